"""The tables of docs/scenes.md are those of the results."""

from __future__ import annotations

import shutil

from evidence_scenes import DOMAINS, PAGE, RESULTS, SAME, render, results, spread, table


def row(policy, seed, **scores):
    found = {domain: {"test_mAP": value} for domain, value in scores.items()}
    return {"run": "train", "policy": policy, "domain": "", "seed": seed, "scores": found}


def test_the_page_says_what_was_measured(tmp_path):
    copy = shutil.copy(PAGE, tmp_path / "page.md")
    render(results(RESULTS), copy)
    assert copy.read_text("utf-8") == PAGE.read_text("utf-8")


def test_means_have_a_standard_error_if_there_are_several_seeds():
    assert [spread(values) for values in ([], [0.5], [0.4, 0.5])] == ["–", "50.0", "45.0 ± 5.0"]
    rows = [row("none", 0, **{SAME: 0.1}), row("none", 1, **{SAME: 0.2}), row("uniform", 0)]
    lines = table(rows, "test_mAP").splitlines()
    assert lines[2] == f"| {SAME} | 15.0 ± 5.0 | – | – | – |"
    assert len(lines) == 2 + len(DOMAINS)
