"""What can be said of a task without torch: its score, and the flags that it alone knows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """The number that trainings are ranked by; more is better."""

    key: str  # test_KEY and val_KEY in metrics.jsonl, KEY in last.pt and best.pt
    name: str  # for people
    form: str  # format specification of a value

    @property
    def tested(self) -> str:
        return f"test_{self.key}"

    @property
    def validated(self) -> str:
        return f"val_{self.key}"

    def show(self, value: float) -> str:
        return format(value, self.form)


ACCURACY = Score("accuracy", "test accuracy", ".2%")
PRECISION = Score("mAP", "test mAP", ".3f")  # COCO's mean average precision, in its own format


@dataclass(frozen=True)
class TaskFacts:
    """A task, as settings, commands and the report know it."""

    name: str
    score: Score
    flags: tuple[str, ...]  # settings that mean nothing to tasks without them
    has_boxes: bool = False
    fixed_shapes: bool = False  # batches of one shape


FACTS = {
    facts.name: facts
    for facts in (
        TaskFacts(
            name="classification",
            score=ACCURACY,
            flags=("classes", "crop", "cutout", "decode", "label_smoothing", "padding"),
            fixed_shapes=True,
        ),
        TaskFacts(
            name="detection",
            score=PRECISION,
            flags=("anchor_scale", "backbone", "drop_empty", "frozen_norm", "resize"),
            has_boxes=True,
        ),
    )
}

# A user's own network, data and loss: only the search knows it, so that it has no score.
CUSTOM = TaskFacts(
    name="custom",
    score=Score("", "", ""),
    flags=("crop", "cutout", "decode", "padding"),
)


def facts_of(name: str) -> TaskFacts:
    """Return the facts of a task."""
    return CUSTOM if name == CUSTOM.name else FACTS[name]
