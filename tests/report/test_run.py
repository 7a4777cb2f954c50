from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from run_folders import step, write_run, write_samples

from ddas_gpu.report.run import load_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", epochs=3, momentum=0.9)


def add_line(folder: Path, line: str) -> None:
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(line)


def test_all_of_a_run_is_read(folder: Path):
    run = load_run(folder)
    assert (run.name, run.epochs, run.unfinished) == ("run", 3, False)
    assert run.settings["momentum"] == 0.9 and run.versions == {"python": "3.11"}
    assert len(run.metrics) == 6 and not run.metrics.truncated
    assert run.metrics.total_seconds == pytest.approx(6 * 0.21)
    np.testing.assert_allclose(run.metrics.by_epoch("loss", 3), [1.5, 0.5833333, 0.3666667])
    assert run.samples.images.shape == (3, 16, 16, 3)


def test_only_the_policy_is_needed(folder: Path):
    for name in ("config.json", "metrics.jsonl", "samples.npz"):
        (folder / name).unlink()
    run = load_run(folder)
    assert len(run.metrics) == 0 and run.samples is None
    assert run.settings == {"seed": 0}  # those the policy remembers


def test_nested_settings_get_dotted_names(folder: Path):
    (folder / "config.json").write_text('{"settings": {"a": {"b": 1, "c": {}}, "d": 2}}')
    assert load_run(folder).settings == {"a.b": 1, "a.c": {}, "d": 2}


def test_fewer_epochs_than_planned_are_an_unfinished_run(tmp_path: Path):
    assert load_run(write_run(tmp_path, epochs=2, planned=20)).unfinished


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_last_line_cut_off_is_left_out(folder: Path, cut: int):
    add_line(folder, json.dumps(step(3, 6))[:cut])
    run = load_run(folder)
    assert run.metrics.truncated and len(run.metrics) == 6


def test_a_last_line_without_its_newline_counts(folder: Path):
    add_line(folder, json.dumps(step(3, 6)))
    run = load_run(folder)
    assert not run.metrics.truncated and len(run.metrics) == 7


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ("[1]", "must hold a JSON object"),
        ("{}", "must be a step"),
        (json.dumps(step(-1, 6)), "must be a step"),
        (json.dumps(step(10**9, 6)), "must be a step"),
        (json.dumps(step(3, 6, loss="low")), "loss must be a number, not 'low'"),
        (json.dumps(step(3, 6, seconds=[1])), "seconds must be"),
        (json.dumps(step(3, 6, seconds={"dot": None, "data": "1"})), "data must be a number"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_any_other_broken_line_is_an_error_with_its_number(folder: Path, line: str, message: str):
    add_line(folder, f"{line}\n{json.dumps(step(3, 7))}\n")
    with pytest.raises(ValueError, match=rf"metrics\.jsonl, line 7.*{message}"):
        load_run(folder)


def test_numbers_that_are_none_are_gaps(folder: Path):
    add_line(folder, json.dumps(step(3, 6, loss=float("nan"), clean_loss=10**400)) + "\n")
    metrics = load_run(folder).metrics
    assert np.isnan(metrics.numbers["loss"][-1]) and np.isnan(metrics.numbers["clean_loss"][-1])
    assert np.isnan(metrics.by_epoch("loss", 4)[3])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "config.json is not JSON"),
        ("[]", "must hold a JSON object"),
        ('{"settings": 3}', "'settings' must be a JSON object"),
        ('{"versions": null}', "'versions' must be a JSON object"),
    ],
)
def test_a_broken_config_is_an_error(folder: Path, text: str, message: str):
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_run(folder)


def test_a_broken_policy_is_an_error(folder: Path):
    (folder / "policy.json").write_text("{")
    with pytest.raises(ValueError, match=r"policy\.json is not JSON"):
        load_run(folder)


def test_samples_must_be_images(folder: Path):
    (folder / "samples.npz").write_bytes(b"PK not a zip")
    with pytest.raises(ValueError, match="does not hold sample images"):
        load_run(folder)
    np.savez(folder / "samples.npz", images=np.zeros((2, 4, 4, 3)), names=["a", "b"])
    with pytest.raises(ValueError, match=r"must be uint8 of shape \(N, H, W, 3\), not float64"):
        load_run(folder)
    np.savez(folder / "samples.npz", images=np.zeros((2, 4, 4, 3), np.uint8), names=["a"])
    with pytest.raises(ValueError, match="2 images but 1 names"):
        load_run(folder)


def test_samples_are_never_unpickled(folder: Path):
    np.savez(folder / "samples.npz", images=np.array([print], dtype=object), names=["a"])
    with pytest.raises(ValueError, match="does not hold sample images"):
        load_run(folder)


def test_no_samples_are_fine(folder: Path):
    write_samples(folder, [])
    assert load_run(folder).samples is None
