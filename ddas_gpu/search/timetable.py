"""In which steps of a user's training `OnlineSearch` searches."""

from __future__ import annotations

from dataclasses import dataclass

STEPS = 5_000  # of a training that does not say how many it has
EVERY = 64  # steps of a training per search: below 10 % of the time, even of small networks
MOST_SEARCHES = 1_000  # about as many as an offline search has


@dataclass(frozen=True)
class Timetable:
    """After `warmup` steps on images as they are, a search in one of `every` steps.

    searches: no more than this, in the first steps after the warm-up; None goes on to the end.
    """

    steps: int
    warmup: int
    every: int
    searches: int | None

    def __post_init__(self) -> None:
        leasts = {"steps": 1, "warmup": 0, "every": 1, "searches": 1}
        for name, least in leasts.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        if self.warmup >= self.steps:
            raise ValueError(
                f"a warmup of {self.warmup} steps leaves none of {self.steps} to search in: give "
                "steps=…, those of your training"
            )

    @classmethod
    def of(
        cls, steps: int | None, warmup: int | None, every: int | None, searches: int | None
    ) -> Timetable:
        """Return what a user asks for; with the number of steps alone, an early search.

        That has as many searches as one in `EVERY` steps, but one after the other: rewards are
        largest soon after the network has learned a little from images as they are, and searches
        that are farther apart compare networks that have changed more.
        """
        if steps is not None and warmup is every is searches is None:
            searches = min(max(1, steps // EVERY), MOST_SEARCHES)
            return cls(steps, steps // 30, 1, searches)
        steps, warmup = STEPS if steps is None else steps, 0 if warmup is None else warmup
        return cls(steps, warmup, EVERY if every is None else every, searches)

    @property
    def planned(self) -> int:
        """How many searches there will be."""
        there_are = max(1, (self.steps - self.warmup) // self.every)
        return there_are if self.searches is None else min(self.searches, there_are)

    def due(self, step: int, done: int) -> bool:
        """Return whether to search in a step, after `done` searches."""
        if self.searches is not None and done >= self.planned:
            return False
        return step >= self.warmup and (step - self.warmup) % self.every == 0
