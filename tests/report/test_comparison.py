from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from run_folders import Page, write_run

from ddas_gpu import PolicySchedule
from ddas_gpu.report.comparison import comparison_page, distinct_names
from ddas_gpu.report.run import load_run
from ddas_gpu.space import SearchSpace


def compare(*folders: Path) -> Page:
    page = Page(comparison_page([load_run(folder) for folder in folders]))
    page.assert_self_contained()
    return page


def test_runs_side_by_side(tmp_path: Path):
    a = write_run(tmp_path / "first", seed=1, lr=0.05, batch=32)
    b = write_run(tmp_path / "second", seed=2, epochs=5, lr=0.1, batch=32)
    page = compare(a, b)
    words = page.words()
    for candidate in SearchSpace.preset("digits"):
        assert candidate.op in words
    assert "first – second" in words and "0.05" in words
    heads = [text for text in page.text if text in ("lr", "seed", "epochs", "batch")]
    assert sorted(heads) == ["epochs", "lr", "seed"]  # the batch is the same


def test_p_tp_of_every_run_is_drawn(tmp_path: Path):
    folders = [write_run(tmp_path / f"run{n}", seed=n, epochs=2 + n) for n in range(10)]
    (plot,) = (tag for tag in compare(*folders).all("div") if tag.get("class") == "plot")
    lines = json.loads(plot["data-lines"])
    assert [line["name"] for line in lines] == [f"run{n}" for n in range(10)]
    assert [len(line["x"]) for line in lines] == [2 + n for n in range(10)]


def test_a_run_agrees_with_its_copy(tmp_path: Path):
    words = compare(write_run(tmp_path / "a"), write_run(tmp_path / "b")).words()
    assert "Spearman's ρ is +1.00" in words
    assert "None: the runs have the same settings." in words


def test_spaces_that_overlap_are_compared_where_they_do(tmp_path: Path):
    a = write_run(tmp_path / "a", space=SearchSpace.preset("digits"))
    b = write_run(tmp_path / "b", space=SearchSpace.preset("sanity"))
    words = compare(a, b).words()
    assert "18 ops in common" in words and "Rotate90" not in words


def test_spaces_without_a_common_op(tmp_path: Path):
    a = write_run(tmp_path / "a", space=SearchSpace.of(["Invert"]))
    b = write_run(tmp_path / "b", space=SearchSpace.of(["Blur"]))
    with pytest.raises(ValueError, match="no op in common"):
        compare(a, b)


def test_unfinished_runs_are_named(tmp_path: Path):
    words = compare(write_run(tmp_path / "a"), write_run(tmp_path / "b", planned=20)).words()
    assert "b is not finished: 3 of 20 epochs" in words


def write_seeds(folder: Path, tilt: float) -> list[Path]:
    """Three searches that differ in their seed; Rotate rises by `tilt` in all of them."""
    space, folders = SearchSpace.preset("digits"), []
    for seed in range(3):
        run = write_run(folder / f"seed-{seed}", seed=seed)
        noise = np.random.default_rng(seed).normal(0, 0.1, len(space))
        alpha = noise + tilt * np.array([candidate.op == "Rotate" for candidate in space])
        p_o = np.exp(alpha) / np.exp(alpha).sum()
        PolicySchedule(space, [0.3] * 3, [p_o] * 3).save(run / "policy.json")
        folders.append(run)
    return folders


def test_seeds_are_one_column_and_only_what_they_tell_is_named(tmp_path: Path):
    words = compare(*write_seeds(tmp_path / "a", tilt=2.0)).words()
    assert "Over 3 seeds Rotate rose" in words and "3 runs, 1 setting, over" in words
    assert "Of several seeds the mean ± its standard error" in words
    words = compare(*write_seeds(tmp_path / "b", tilt=0.0)).words()
    assert "Over 3 seeds no op is told apart from uniform" in words


def test_names_grow_until_they_differ(tmp_path: Path):
    runs = [load_run(write_run(tmp_path / path)) for path in ("a/run", "b/run")]
    assert distinct_names(runs) == ["a/run", "b/run"]
    with pytest.raises(ValueError, match="given twice"):
        distinct_names([runs[0], runs[0]])


def test_one_run_is_no_comparison(tmp_path: Path):
    with pytest.raises(ValueError, match="two runs or more"):
        comparison_page([load_run(write_run(tmp_path))])


def test_names_of_folders_are_escaped(tmp_path: Path):
    page = compare(write_run(tmp_path / "<script>x"), write_run(tmp_path / "b", seed=1))
    assert len(page.all("script")) == 1
