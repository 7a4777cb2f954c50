"""One tiny cell of the evidence runs end to end; the page is what the recorded lines say."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from evidence import cells, jobs, page
from evidence.images import folder_of, parts
from evidence.numbers import compared_name, scores_in, standing, with_kept
from evidence.protocol import COMPARED, DATA

from ddas_gpu.compare import compare

ROOT = Path(__file__).resolve().parent.parent.parent
TINY = replace(
    DATA["digits"],
    train=64,
    validation=32,
    test=40,
    domains=("inverted", "same"),
    epochs=1,
    search_epochs=1,
)


@pytest.mark.usefixtures("one_thread")
def test_a_cell_runs_once_and_is_recorded(tmp_path, monkeypatch):
    bench = replace(
        jobs.fresh_bench(tmp_path / "work", tmp_path / "results.jsonl"),
        search=("--val-batch-size", "32", "--warmup-epochs", "0"),
    )
    own = []
    monkeypatch.setattr(cells.shutil, "rmtree", lambda out, **_: own.append(out))
    jobs.peer_run(TINY, 0, "none")(bench)
    jobs.searched_run(TINY, 0, "inverted")(bench)
    jobs.levelled_run(TINY, 0, "inverted")(bench)
    lines = bench.lines()
    assert [line["name"] for line in lines] == ["none"] * 2 + ["searched"] * 2 + [
        "uniform-searched"
    ]
    assert all(line["cpu_seconds"] > 0 for line in lines)
    # Our test of last.pt and the command's own agree.
    said = (bench.work / "logs" / "digits-0-inverted-none.txt").read_text()
    assert f"{lines[0]['accuracy']:.2f}%" in said
    jobs.searched_run(TINY, 0, "inverted")(bench)
    assert bench.lines() == lines
    scores = scores_in(lines, "digits", "inverted")
    assert scores["none"] == {0: lines[0]["accuracy"]}
    assert standing(lines, "digits", "inverted", seeds=[0]) is None  # one seed: no standard error


@pytest.mark.usefixtures("one_thread")
def test_the_comparison_is_that_of_the_command(tmp_path, capsys):
    """What the page calls kept is what `ddas compare --val-root` keeps."""
    bench = jobs.fresh_bench(tmp_path / "work", tmp_path / "results.jsonl")
    for peer in ("none", "uniform"):
        jobs.compared_run(TINY, 0, peer)(bench)
    recorded = {(line["name"], line["domain"]): line["validation"] / 100 for line in bench.lines()}
    found = compare(
        *("none", "uniform"),
        data="folder",
        root=folder_of(bench.work, TINY, 0, "train"),
        val_root=folder_of(bench.work, TINY, 0, "validation", "inverted"),
        test_root=folder_of(bench.work, TINY, 0, "test", "inverted"),
        seed=1000,
        seeds=1,
        out=tmp_path / "out",
        quiet=True,
        **{"crop": "pad", "model": "small", "device": "cpu", "image_size": 16, "threads": 1},
        **{"batch_size": 64, "lr": 0.1, "epochs": 1, "padding": 0, "flip": False},
    )
    table = json.loads((tmp_path / "out" / "comparison.json").read_text())
    said = {entry["name"]: entry["validation"] for entry in table["policies"]}
    ours = {name: recorded[compared_name(name, 0), "inverted"] for name in said}
    assert said == pytest.approx(ours) and found.kept == max(ours, key=ours.get)


def test_the_kept_policy_is_best_on_the_validation_images_on_average():
    policies = (DATA["digits"].unaugmented, *COMPARED, "searched")
    lines = [line(name, 0, accuracy) for accuracy, name in enumerate(policies)]
    for policy in policies:
        scores = {"uniform": (70, 90), "searched": (95, 60)}.get(policy, (10, 20))
        lines += [line(compared_name(policy, n), 0, 0, score) for n, score in enumerate(scores)]
    *_, kept = with_kept(lines)
    assert (kept["name"], kept["policy"]) == ("kept", "uniform")
    assert kept["accuracy"] == policies.index("uniform")
    assert with_kept(lines[:-1]) == lines[:-1]  # nothing is kept before all are trained


def test_the_parts_of_a_seed_share_no_image(tmp_path):
    places = [set(chosen) for _, chosen in parts(TINY, 3).values()]
    assert len(set.union(*places)) == sum(map(len, places)) == 136
    first = folder_of(tmp_path / "a", TINY, 3, "test", "inverted")
    again = folder_of(tmp_path / "b", TINY, 3, "test", "inverted")
    files = sorted(file.relative_to(first) for file in first.rglob("*.png"))
    assert len(files) == 40
    assert all((first / file).read_bytes() == (again / file).read_bytes() for file in files)


def line(name: str, seed: int, accuracy: float, validation: float = 0.0) -> dict:
    place = {"kind": "training", "data": "digits", "domain": "dark", "name": name, "seed": seed}
    return {**place, "accuracy": accuracy, "validation": validation, "cpu_seconds": 1}


def test_randaugment_takes_the_level_of_the_validation_images():
    levels = [line("randaugment-5", 0, 80, 70), line("randaugment-9", 0, 60, 75)]
    found = scores_in([*levels, line("randaugment-14", 0, 90, 10)], "digits", "dark")
    assert found["randaugment"] == {0: 60}


@pytest.mark.parametrize(
    ("searched", "first", "behind"),
    [((81, 83), True, False), ((79, 82), False, False), ((70, 71), False, True)],
)
def test_the_standing_is_paired(searched, first, behind):
    lines = [line("uniform", seed, value) for seed, value in enumerate((80, 82, 99))]
    lines += [line("searched", seed, value) for seed, value in enumerate(searched)]
    found = standing(lines, "digits", "dark", seeds=range(3))
    assert found is not None and found.difference.seeds == 2  # the third has no searched policy
    assert (found.first, found.behind) == (first, behind)


def test_the_page_is_what_was_recorded(tmp_path):
    shutil.copy(ROOT / "README.md", tmp_path)
    (tmp_path / "docs").mkdir()
    page.write_page(ROOT / "benchmarks/evidence/results.jsonl", tmp_path)
    files = sorted((tmp_path / "docs").rglob("*.*"))
    assert len(files) > 1
    for file in [tmp_path / "README.md", *files]:
        assert file.read_text("utf-8") == (ROOT / file.relative_to(tmp_path)).read_text("utf-8")


def test_every_recorded_line_is_there_once():
    text = (ROOT / "benchmarks/evidence/results.jsonl").read_text("utf-8")
    keys = [cells.key_of(json.loads(recorded)) for recorded in text.splitlines()]
    assert len(keys) == len(set(keys)) and not re.search(r"/(tmp|work|home)/", text)
