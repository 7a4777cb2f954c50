"""A search that is not finished has a report of its epochs so far."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from run_folders import Page
from torch.nn import functional as F

from ddas_gpu import search_policy
from ddas_gpu.data.digits import open_digits
from ddas_gpu.models import build
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.report.__main__ import main
from ddas_gpu.report.run import load_run
from ddas_gpu.report.writing import write_report
from ddas_gpu.runs.run_folder import RunFolder
from ddas_gpu.runs.runner import advance
from ddas_gpu.search.algorithm import open_search
from ddas_gpu.search.job import SearchJob
from ddas_gpu.search.presets import sized_space
from ddas_gpu.search.settings import preset
from ddas_gpu.space import SearchSpace

SMALL = {
    "train_images": 20,
    "val_images": 20,
    "batch_size": 10,
    "val_batch_size": 10,
    "policies": 2,
    "warmup_epochs": 0,
    "epochs": 5,
}
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def stopped(tmp_path: Path):
    """A real search of 5 epochs, stopped within the third."""
    settings = preset("digits").replace(out=tmp_path / "run", **SMALL)
    job = SearchJob(open_search(settings))
    values, files = settings.to_json(), job.first_files()
    with RunFolder.create(
        tmp_path / "run", "digits", "search", "classification", values, files
    ) as folder:
        folder.start_metrics(0)
        folder.save_checkpoint({"data": [], "search": job.state_dict()})
        for _ in range(5):
            advance(job, folder)
        folder.save_checkpoint({"data": [], "search": job.state_dict()})
        yield folder.path, job.search


def test_the_epochs_so_far_are_drawn(stopped):
    folder, search = stopped
    run = load_run(folder)
    assert run.unfinished and (run.epochs, run.planned_epochs) == (2, 5)
    assert run.schedule.space == search.space
    expected = search.schedule()
    np.testing.assert_array_equal(run.schedule.p_tp, expected.p_tp)
    np.testing.assert_array_equal(run.schedule.p_o, expected.p_o)
    words = Page(write_report(folder).read_text("utf-8")).words()
    assert "not finished: 2 of 5 epochs" in words
    assert f"ddas search --resume --out {folder}" in words
    assert "PolicyTransform" not in words


def test_it_is_written_while_the_search_runs(stopped, capsys):
    folder, _ = stopped  # which still holds the folder
    assert main([str(folder)]) == 0


def test_own_spaces_are_read_again(stopped, tmp_path):
    folder, search = stopped
    space = tmp_path / "space.json"
    space.write_text(json.dumps(search.space.to_json()))
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["space"] = str(space)
    (folder / "config.json").write_text(json.dumps(config))
    assert load_run(folder).schedule.space == search.space
    space.unlink()
    with pytest.raises(ValueError, match="search space cannot be read again"):
        load_run(folder)


class Stop(Exception):
    """Ends a search in the middle."""


def stop_in_the_third_epoch(folder: Path, space) -> None:
    """Call `search_policy` on arrays, with a loss that fails."""
    digits, losses = open_digits(16), []

    def loss(outputs, labels):
        losses.append(F.cross_entropy(outputs, labels))
        if len(losses) == 30:
            raise Stop
        return losses[-1]

    sets = [(digits.images[at : at + 20], digits.labels[at : at + 20]) for at in (0, 20)]
    sizes = {name: SMALL[name] for name in SMALL if not name.endswith("images")}
    with pytest.raises(Stop):
        search_policy(
            lambda: build("small", 10), *sets, loss, space, out=folder, quiet=True, **sizes
        )


@pytest.mark.parametrize("space", ["svhn", "imagenet"])
def test_a_search_from_python_is_resumed_in_python(tmp_path, space):
    folder = tmp_path / "run"
    stop_in_the_third_epoch(folder, space)
    found = load_run(folder).schedule.space
    assert [c.op for c in found] == [c.op for c in sized_space(space, 16)]
    words = Page(write_report(folder).read_text("utf-8")).words()
    again = f"search_policy(model, train, validation, out={str(folder)!r}, resume=True)"
    assert again in words and "ddas search" not in words
    with pytest.raises(ValueError, match="resume it with search_policy.*resume=True"):
        PolicySchedule.load(folder)


def test_a_space_of_the_callers_own_is_not_guessed(tmp_path):
    folder = tmp_path / "run"
    stop_in_the_third_epoch(folder, SearchSpace.of(["Rotate", "Invert"], (3, 6), 2))
    with pytest.raises(ValueError, match="a space of its own; finish the search"):
        load_run(folder)


def test_nothing_to_draw_yet(stopped, capsys):
    folder, search = stopped
    state = search.state_dict() | {"history": []}
    torch.save({"version": 1, "data": [], "search": state}, folder / "checkpoint.pt")
    assert main([str(folder)]) == 2
    assert "no finished epoch yet" in capsys.readouterr().err
    (folder / "checkpoint.pt").unlink()
    assert main([str(folder)]) == 2
    assert "no finished epoch yet" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"PK", b"\x80\x04."])
def test_a_broken_checkpoint(stopped, capsys, content):
    folder, _ = stopped
    (folder / "checkpoint.pt").write_bytes(content)
    assert main([str(folder)]) == 2
    assert "checkpoint.pt is not the checkpoint of a search" in capsys.readouterr().err
