"""--tensorboard: the numbers of metrics.jsonl as curves, also of a run that was cut."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from commands import Killed, die
from search_commands import TINY, refused, search


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def test_the_curves_are_the_numbers_of_the_metrics(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    flags = (*TINY, "--tensorboard", "--out", tmp_path / "run")
    with monkeypatch.context() as patch:
        search.at_step(patch, 6, die)
        with pytest.raises(Killed):
            search(*flags)
    assert search("--resume", "--out", tmp_path / "run") == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    found = curves(tmp_path / "run")
    for name in ("loss", "validation_loss", "apply_probability", "learning_rate"):
        expected = [(step, pytest.approx(line[name])) for step, line in enumerate(lines)]
        assert found[name] == expected
    assert "seconds/gradients" in found and "policies" not in found


def test_a_missing_package_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    sentence = refused(capsys, tmp_path, *TINY, "--tensorboard")
    assert "pip install tensorboard" in sentence
