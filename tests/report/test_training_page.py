"""The page of a training, and the comparison of several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_folders import Page, write_run
from training_folders import epoch, write_seeds, write_training

from ddas_gpu.report.__main__ import main
from ddas_gpu.report.training_run import load_training
from ddas_gpu.report.writing import write_report


@pytest.mark.parametrize("policy", ["uniform", "none"])
def test_the_page(tmp_path, policy):
    page = Page(write_report(write_training(tmp_path / "run", policy)).read_text("utf-8"))
    page.assert_self_contained()
    words = page.words()
    assert "80.00 % of the test images are classified correctly" in words  # not epoch 2's 90 %
    assert "test error 20.00 % epoch 3, the last" in words
    assert "not finished" not in words
    assert ("p_tp" in words) == (policy == "uniform")
    assert bool(page.all("img")) == (policy == "uniform")
    assert "evaluation 14.3 %" in words


def detector_epoch(number: int) -> dict:
    """One line of metrics.jsonl of a detector that is tested every second epoch."""
    line = {key: value for key, value in epoch(number).items() if "accuracy" not in key}
    precisions = {"test_mAP": 0.1 * number, "test_mAP50": 0.2 * number, "test_mAP75": 0.05}
    if number % 2:
        return line | precisions | {"test_mAP_large": 0.3}
    return {key: value for key, value in line.items() if not key.startswith("test_")}


def write_detector(folder: Path) -> Path:
    write_training(folder, "none", data="coco", model="retinanet-r50", epochs=4)
    lines = [json.dumps(detector_epoch(n)) + "\n" for n in range(4)]
    (folder / "metrics.jsonl").write_text("".join(lines))
    return folder


def test_a_detector_is_scored_by_its_precision(tmp_path):
    page = Page(write_report(write_detector(tmp_path / "run")).read_text("utf-8"))
    words = page.words()
    assert "an mAP of 0.300 on the test images" in words
    assert "test mAP 0.300 epoch 4, the last" in words
    assert "mAP50 0.600 mAP75 0.050" in words
    assert "accuracy" not in words and " nan" not in words
    assert "large 0.300" in words and "small 0." not in words


@pytest.mark.parametrize("data", ["coco", "folder", "a data set of my own"])
def test_without_a_named_task_the_metrics_decide(tmp_path, data):
    """Folders of 0.1.0 name no task."""
    write_training(tmp_path / "classifier", data=data)
    detector = write_detector(tmp_path / "detector")
    config = json.loads((detector / "config.json").read_text())
    config["settings"]["data"] = data
    (detector / "config.json").write_text(json.dumps(config))
    assert load_training(tmp_path / "classifier").words.name == "accuracy"
    assert load_training(detector).words.name == "mAP"


def test_a_named_task_decides(tmp_path):
    folder = write_training(tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    for task, message in (("detection", "no tested epoch yet"), ("segmentation", "no report for")):
        (folder / "config.json").write_text(json.dumps(config | {"task": task}))
        with pytest.raises(ValueError, match=message):
            load_training(folder)


def test_classifiers_and_detectors_are_not_compared(tmp_path, capsys):
    write_training(tmp_path / "a")
    write_detector(tmp_path / "b")
    assert main([str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "classifiers and detectors cannot be compared" in capsys.readouterr().err
    assert main([str(tmp_path / "b"), str(write_detector(tmp_path / "c"))]) == 0
    words = Page((tmp_path / "compare.html").read_text("utf-8")).words()
    assert "mAP 0.300 ± 0.000, 2 seeds" in words and "accuracy" not in words


def test_an_unfinished_run_and_a_line_that_is_cut(tmp_path):
    folder = write_training(tmp_path / "run", done=2)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 2, "lo')
    words = Page(write_report(folder).read_text("utf-8")).words()
    assert "This run is not finished: 2 of 3 epochs" in words


def test_text_is_escaped(tmp_path):
    folder = write_training(tmp_path / "run", model="<script>alert(1)</script>")
    assert "<script>alert" not in write_report(folder).read_text("utf-8")


def compared(*folders: Path) -> str:
    common = folders[0].parent.parent
    assert main([*map(str, folders), "--out", str(common / "compare.html")]) == 0
    page = Page((common / "compare.html").read_text("utf-8"))
    page.assert_self_contained()
    return page.words()


def test_one_seed_each_names_no_winner(tmp_path):
    words = compared(
        *write_seeds(tmp_path / "none", "none", [0.8]),
        *write_seeds(tmp_path / "uniform", "uniform", [0.95]),
    )
    assert "One seed each: no difference can be told from noise" in words


@pytest.mark.parametrize(
    ("scores", "headline"),
    [
        (
            [0.95, 0.961, 0.951],
            "Uniform is better than training without a policy by 15.4 ± 1.5 points",
        ),
        ([0.95, 0.70, 0.83], "No winner: uniform and none cannot be told apart"),
    ],
)
def test_seeds_of_one_setting_are_grouped(tmp_path, scores, headline):
    words = compared(
        *write_seeds(tmp_path / "none", "none", [0.80, 0.80, 0.80]),
        *write_seeds(tmp_path / "uniform", "uniform", scores),
    )
    assert headline in words
    assert "6 trainings, 2 settings, 3 seeds each" in words
    assert "80.00 ± 0.00" in words


def test_other_test_images_are_not_compared(tmp_path):
    words = compared(
        *write_seeds(tmp_path / "none", "none", [0.80, 0.81]),
        *write_seeds(tmp_path / "uniform", "uniform", [0.95, 0.96], test_share=0.5),
    )
    assert "2 settings with different test images" in words and "better" not in words


def test_the_seeds_of_one_setting_alone(tmp_path):
    words = compared(*write_seeds(tmp_path / "uniform", "uniform", [0.8, 0.9]))
    assert "accuracy 85.00 ± 5.00 %, 2 seeds" in words


def test_a_search_and_a_training_are_not_compared(tmp_path, capsys):
    write_training(tmp_path / "a")
    write_run(tmp_path / "b")
    assert main([str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "searches and trainings cannot be compared" in capsys.readouterr().err
    assert not (tmp_path / "a" / "report.html").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no tested epoch yet"),
        ("[]\n", "must hold a JSON object"),
        ("{\n", "is not JSON"),
        ('{"loss": "low"}\n', "loss must be a number"),
        ('{"loss": 1}\n', "no tested epoch yet"),
    ],
)
def test_metrics_that_cannot_be_drawn(tmp_path, content, reason):
    folder = write_training(tmp_path / "run")
    (folder / "metrics.jsonl").write_text(content)
    with pytest.raises(ValueError, match=reason):
        load_training(folder)
