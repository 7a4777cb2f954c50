"""How the pages present the score of a training: accuracy, or mean average precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddas_gpu.report.numbers import percent, short_percent
from ddas_gpu.report.parts import Tile
from ddas_gpu.tasks.facts import ACCURACY, PRECISION, Score

if TYPE_CHECKING:
    from ddas_gpu.report.training_run import TrainingRun

Show = Callable[[float], str]


@dataclass(frozen=True)
class ScoreWords:
    """How the score of a task is presented; numbers are named as in metrics.jsonl."""

    score: Score
    name: str
    headline: str  # {} is the score
    charts: dict[str, dict[str, str]]  # title: {number: name of its line}
    columns: dict[str, tuple[str, Show]]  # of the table: {number: (head, how it is written)}
    show: Show
    mark: Show  # on an axis
    tiles: Callable[[TrainingRun], list[Tile]]
    difference: Callable[[float, float | None], str]  # of two scores, ± half its interval


def _share(value: float) -> str:
    return percent(value, 2)


def _errors(run: TrainingRun) -> list[Tile]:
    training = run.numbers["accuracy"][run.chosen_epoch]
    return [
        ("test error", _share(1 - run.score), run.chosen_words),
        ("training error", _share(1 - training), "of augmented images"),
    ]


def _precisions(run: TrainingRun) -> list[Tile]:
    half, strict = (run.numbers[f"test_mAP{overlap}"][run.chosen_epoch] for overlap in (50, 75))
    return [
        ("test mAP", PRECISION.show(run.score), run.chosen_words),
        ("mAP50", PRECISION.show(half), f"mAP75 {PRECISION.show(strict)}"),
    ]


def _points(difference: float, half: float | None) -> str:
    """Format percentage points: 2.1 ± 0.6 points.

    >>> _points(0.021, 0.006), _points(0.0012, 0.0004)
    ('2.1 ± 0.6 points', '0.12 ± 0.04 points')
    """
    digits = 2 if (difference if half is None else half) < 0.001 else 1
    range_ = "" if half is None else f" ± {100 * half:.{digits}f}"
    return f"{100 * difference:.{digits}f}{range_} points"


def _precision(difference: float, half: float | None) -> str:
    range_ = "" if half is None else f" ± {half:.3f}"
    return f"{difference:.3f}{range_} mAP"


LOSS: Show = "{:.4f}".format
BEFORE = {"loss": ("training loss", LOSS)}
TEST_LOSS = {"test_loss": ("test loss", LOSS)}
AFTER = {"learning_rate": ("learning rate", "{:.3g}".format)}

CLASSIFIER = ScoreWords(
    score=ACCURACY,
    name="accuracy",
    headline="{} of the test images are classified correctly.",
    charts={
        "Accuracy": {
            "test_accuracy": "test",
            "accuracy": "training, augmented",
            "val_accuracy": "validation",
        }
    },
    columns={
        **BEFORE,
        "accuracy": ("training accuracy", _share),
        **TEST_LOSS,
        "test_accuracy": ("test accuracy", _share),
        "test_top5_accuracy": ("top-5 accuracy", _share),
        **AFTER,
    },
    show=_share,
    mark=short_percent,
    tiles=_errors,
    difference=_points,
)

OVERLAPS = {"test_mAP": "mAP", "test_mAP50": "mAP50", "test_mAP75": "mAP75"}
SIZES = {f"test_mAP_{size}": size for size in ("small", "medium", "large")}
DETECTOR = ScoreWords(
    score=PRECISION,
    name="mAP",
    headline="The boxes reach an mAP of {} on the test images.",
    charts={
        "Mean average precision, by overlap": {**OVERLAPS, "val_mAP": "mAP, validation"},
        "mAP, by object size": SIZES,
    },
    columns={
        **BEFORE,
        **TEST_LOSS,
        **{key: (name, PRECISION.show) for key, name in OVERLAPS.items()},
        **{key: (f"mAP {name}", PRECISION.show) for key, name in SIZES.items()},
        **AFTER,
    },
    show=PRECISION.show,
    mark="{:g}".format,
    tiles=_precisions,
    difference=_precision,
)


WORDS = {"classification": CLASSIFIER, "detection": DETECTOR}


def words_for(task: str) -> ScoreWords:
    """Return the words for a training of this task."""
    if task not in WORDS:
        raise ValueError(f"no report for the task {task!r}; there are: {', '.join(WORDS)}")
    return WORDS[task]


def known(values: np.ndarray) -> np.ndarray:
    """Return the epochs, from 0, that have a value: not every epoch is tested."""
    return np.flatnonzero(np.isfinite(values))
