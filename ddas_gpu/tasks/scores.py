"""The number that trainings are ranked by, one for each task; no torch, for the report's sake."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """What a test measures; more is better."""

    key: str  # test_KEY and best_KEY in metrics.jsonl, KEY in best.pt
    name: str  # for people
    form: str  # how `format` writes a value

    @property
    def tested(self) -> str:
        return f"test_{self.key}"

    @property
    def best(self) -> str:
        return f"best_{self.key}"

    def show(self, value: float) -> str:
        return format(value, self.form)


ACCURACY = Score("accuracy", "test accuracy", ".2%")
PRECISION = Score("mAP", "test mAP", ".3f")  # COCO's mean average precision, written as it does
