from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from run_folders import Page, write_run, write_samples

from ddas_gpu.policy import PolicySchedule
from ddas_gpu.report.page import headline, report_page
from ddas_gpu.report.run import load_run
from ddas_gpu.space import SearchSpace

NAMED_STAGES = (
    "data",
    "augmentation",
    "policy gradients",
    "validation gradient",
    "products",
    "update",
)
HOSTILE = '</script><script>alert("x")</script><img src=http://evil.example/x.png>'


def page_of(folder: Path) -> Page:
    page = Page(report_page(load_run(folder)))
    page.assert_self_contained()
    return page


def test_the_page_names_everything(tmp_path: Path):
    space = SearchSpace.preset("cifar")
    page = page_of(write_run(tmp_path / "my run", space=space, epochs=4, weight_decay=5e-4))
    words = page.words()
    for candidate in space:
        assert str(candidate) in words
    for stage in NAMED_STAGES:
        assert stage in words
    for text in ("digits", "4 epochs, 8 steps,", "35 % to 22 %", "52 candidates", "weight decay"):
        assert text in words.replace("\N{NARROW NO-BREAK SPACE}", " "), text
    assert "class 2" in words and "0.0005" in words


@pytest.mark.parametrize("epochs", [1, 2, 40])
def test_any_number_of_epochs(tmp_path: Path, epochs: int):
    page = page_of(write_run(tmp_path, epochs=epochs))
    assert "nan" not in page.words()


def test_an_unfinished_run_says_so(tmp_path: Path):
    page = page_of(write_run(tmp_path, epochs=2, planned=20))
    assert "not finished: 2 of 20 epochs" in page.words()


def test_metrics_cut_off_are_mentioned(tmp_path: Path):
    write_run(tmp_path)
    assert "cut off" not in page_of(tmp_path).words()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 3, "st')
    assert "metrics.jsonl is cut off" in page_of(tmp_path).words()


def test_a_policy_alone_makes_a_page(tmp_path: Path):
    write_run(tmp_path, samples=0)
    (tmp_path / "config.json").unlink()
    (tmp_path / "metrics.jsonl").unlink()
    page = page_of(tmp_path)
    assert not page.all("img") and "Where the time went" not in page.words()


def test_a_space_of_one_candidate(tmp_path: Path):
    page_of(write_run(tmp_path, space=SearchSpace.of(["Invert"], depth=1), epochs=1))


def test_nothing_from_the_files_becomes_markup(tmp_path: Path):
    folder = write_run(tmp_path / 'a"<b>&', data=HOSTILE, **{HOSTILE: HOSTILE})
    write_samples(folder, [HOSTILE, "plain"])
    step = (folder / "metrics.jsonl").read_text().replace('"dot"', '"<i>dot</i>"')
    (folder / "metrics.jsonl").write_text(step)
    page = Page(report_page(load_run(folder)))
    assert len(page.all("script")) == 1
    assert all(image["src"].startswith("data:image/png") for image in page.all("img"))
    assert "alert" in page.words() and "<i>dot</i>" in page.words()
    assert HOSTILE not in page.html


def test_pictures_and_tables_can_be_read_aloud(tmp_path: Path):
    page = page_of(write_run(tmp_path))
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in page.all("svg"))
    assert all(image.get("alt") for image in page.all("img"))
    assert all(head.get("scope") in ("row", "col") for head in page.all("th"))
    assert page.all("html")[0]["lang"] == "en"


def test_the_headline_names_what_moved(tmp_path: Path):
    run = load_run(write_run(tmp_path, space=SearchSpace.of(["Invert", "Blur", "Smooth"])))

    def said(*p_o: float) -> str:
        schedule = PolicySchedule(run.schedule.space, [0.3], [p_o])
        return headline(type(run)(**{**vars(run), "schedule": schedule}))

    assert said(0.1, 0.5, 0.4) == "Blur and Smooth rose; Invert sank"
    assert said(1 / 3, 1 / 3, 1 / 3) == "No op moved far from uniform"


def test_the_same_run_makes_the_same_page(tmp_path: Path):
    write_run(tmp_path)
    assert report_page(load_run(tmp_path)) == report_page(load_run(tmp_path))


def test_a_share_that_stays_is_said_to_stay(tmp_path: Path):
    write_run(tmp_path, epochs=3)
    run = load_run(tmp_path)
    schedule = PolicySchedule(run.schedule.space, [0.36] * 3, run.schedule.p_o)
    page = Page(report_page(type(run)(**{**vars(run), "schedule": schedule})))
    words = page.words().replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert "The share of images to augment stayed at 36.0 %." in words
    assert "from 36" not in words and "the same in all epochs" in words


def test_speed_says_what_it_counts(tmp_path: Path):
    assert "images/s, augmented versions included" in page_of(write_run(tmp_path)).words()


SPACE = SearchSpace.of(["Invert", "Blur", "Rotate"], levels=(4, 8))


def with_verdict(folder: Path, **words: str) -> Path:
    """A run whose policy has a verdict; by default nothing can be told."""
    unknown = "cannot be told from uniform"
    intervals = {"helps": [0.5, 0.2, 0.8], "hurts": [-0.4, -0.7, -0.1], unknown: [0.1, -0.2, 0.4]}
    ops = {}
    for op in ("Invert", "Blur", "Rotate"):
        word = words.get(op, unknown)
        ops[op] = {"verdict": word, "interval": intervals[word], "steps_needed": 1234}
    verdict = {
        "sentence": "So it is.",
        "steps": 400,
        "told": bool(words),
        "apply_probability": [0.2, 0.6],
        "candidates": [[0.1, -0.2, 0.4]] * len(SPACE),
        "ops": ops,
    }
    write_run(folder, space=SPACE)
    schedule = PolicySchedule.load(folder)
    replace(schedule, verdict=verdict).save(folder / "policy.json")
    return folder


def test_the_verdict_leads_and_intervals_are_drawn(tmp_path: Path):
    page = page_of(with_verdict(tmp_path, Rotate="helps", Invert="hurts"))
    words = page.words().replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert "Rotate helps; Invert hurts" in words and "How sure it is" in words
    assert "20 % to 60 %" in words and "1,234" in words and "is a good choice" not in words
    labels = [svg["aria-label"] or "" for svg in page.all("svg")]
    assert any(label.startswith("Rotate: +0.50, from +0.20 to +0.80; helps") for label in labels)


def test_where_nothing_can_be_told_the_page_says_what_to_use(tmp_path: Path):
    words = page_of(with_verdict(tmp_path)).words()
    assert "No op can be told from uniform" in words and "So it is." in words
    assert "No policy is told apart from uniform here: TrivialAugment is a good choice." in words
    assert "ddas train --data digits --policy trivialaugment" in words


def test_the_spread_of_the_seeds_is_shown(tmp_path: Path):
    folder = with_verdict(tmp_path, Blur="helps")
    schedule = PolicySchedule.load(folder)
    seeds = [
        {"seed": seed, "p_tp": p_tp, "p_o": [0.4, 0.3, 0.1, 0.2]}
        for seed, p_tp in ((7, 0.3), (8, 0.5))
    ]
    replace(schedule, verdict={**schedule.verdict, "seeds": seeds}).save(folder / "policy.json")
    words = page_of(folder).words().replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert "with 2 seeds, joined" in words and "seed 7 seed 8 spread" in words
    assert "30 % to 50 %" in words and "×1.60 to ×1.60" in words


def test_a_verdict_on_other_candidates_is_refused(tmp_path: Path):
    folder = with_verdict(tmp_path)
    schedule = PolicySchedule.load(folder)
    replace(schedule, verdict={**schedule.verdict, "candidates": []}).save(folder / "policy.json")
    with pytest.raises(ValueError, match="the verdict is not on the 4 candidates"):
        load_run(folder)
