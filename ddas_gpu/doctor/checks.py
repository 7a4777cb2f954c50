"""The list of checks; a check is a function under a decorator."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddas_gpu.errors import sentence

if TYPE_CHECKING:
    from ddas_gpu.doctor.machine import Machine

OK, FAILED, UNCHECKED = "ok", "failed", "unchecked"
MARKS = {OK: "✓", FAILED: "✗", UNCHECKED: "–"}
LONGEST_SENTENCE = 300  # DALI and NVRTC put whole logs into their messages


class CannotCheck(Exception):
    """Something is missing here that a check needs; the message says what."""


class CheckFailed(Exception):
    """A result is wrong; the message says which, and what to do."""


@dataclass(frozen=True)
class Finding:
    """What a check has found: a few words for the table, and everything for the JSON file."""

    text: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """The outcome of a check, one row of the table."""

    name: str
    title: str
    status: str  # OK, FAILED or UNCHECKED
    text: str
    seconds: float
    facts: dict[str, Any]


CheckFunction = Callable[["Machine"], Finding]


@dataclass(frozen=True)
class Check:
    """A function that returns a Finding or raises CannotCheck; other exceptions are failures."""

    title: str
    function: CheckFunction

    @property
    def name(self) -> str:
        return self.function.__name__

    def run(self, machine: Machine) -> Result:
        """Run the check; errors become one sentence."""
        start = time.perf_counter()
        facts: dict[str, Any] = {}
        try:
            with warnings.catch_warnings():
                # That DALI or a compiler is missing is a row of the table.
                warnings.simplefilter("ignore")
                finding = self.function(machine)
            status, text, facts = OK, finding.text, finding.facts
        except CannotCheck as reason:
            status, text = UNCHECKED, sentence(reason)
        except Exception as error:
            status, text = FAILED, describe(error)
        return Result(self.name, self.title, status, text, time.perf_counter() - start, facts)


# The modules of this room that have checks, in the order of the table.
MODULES = ("machine", "kernels", "bank", "decoders", "first_steps", "speed")

_declared: dict[str, Check] = {}


def check(title: str) -> Callable[[CheckFunction], CheckFunction]:
    """Add the decorated function to the checks; it must be in one of MODULES."""

    def declare(function: CheckFunction) -> CheckFunction:
        added = Check(title, function)
        if added.name in _declared:
            raise ValueError(f"the check {added.name!r} is declared twice")
        _declared[added.name] = added
        return function

    return declare


def all_checks() -> dict[str, Check]:
    """Return all checks by name, in the order of the table."""
    modules = [import_module(f"ddas_gpu.doctor.{module}").__name__ for module in MODULES]
    ordered = sorted(_declared.values(), key=lambda one: modules.index(one.function.__module__))
    return {one.name: one for one in ordered}


def describe(error: Exception) -> str:
    """Return one line about an error, with its type unless it was raised to be read."""
    text = sentence(error)
    if not isinstance(error, (CheckFailed, ValueError, OSError)) or not text:
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= LONGEST_SENTENCE else f"{text[: LONGEST_SENTENCE - 1]}…"
