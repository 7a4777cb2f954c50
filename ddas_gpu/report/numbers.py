"""The numbers that the pages show of a policy, and their formatting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddas_gpu.space import SearchSpace

MINUS = "\N{MINUS SIGN}"
THIN = "\N{NARROW NO-BREAK SPACE}"

# The ends of a scale of ratios, and what to mark between 1 and that end.
SCALES = {
    1.1: (1.05,),
    1.25: (1.1,),
    1.5: (1.2,),
    2.0: (1.5,),
    3.0: (2.0,),
    4.0: (2.0,),
    6.0: (2.0,),
    8.0: (2.0, 4.0),
    16.0: (4.0,),
    64.0: (4.0, 16.0),
}


@dataclass(frozen=True)
class OpGroup:
    """The candidates of one op, in the order of the space."""

    op: str
    indices: tuple[int, ...]


def groups(space: SearchSpace) -> list[OpGroup]:
    """Group the candidates by op, in the order in which ops first appear."""
    found: dict[str, list[int]] = {}
    for index, candidate in enumerate(space):
        found.setdefault(candidate.op, []).append(index)
    return [OpGroup(op, tuple(indices)) for op, indices in found.items()]


def ratios(p_o: np.ndarray) -> np.ndarray:
    """Return probabilities relative to the uniform 1/K."""
    return np.asarray(p_o) * np.shape(p_o)[-1]


def op_ratios(space: SearchSpace, p_o: np.ndarray) -> dict[str, float]:
    """Return the mean over the levels of each op, relative to uniform."""
    relative = ratios(p_o)
    return {group.op: float(relative[list(group.indices)].mean()) for group in groups(space)}


def scale_limit(relative: np.ndarray, quantile: float = 1.0) -> float:
    """Return the smallest limit whose scale 1/limit … limit holds that quantile of the ratios."""
    distance = np.abs(log2(relative))
    needed = 2 ** float(np.quantile(distance, quantile)) if distance.size else 1.0
    return next((limit for limit in SCALES if limit >= needed), max(SCALES))


def log2(relative: np.ndarray | float) -> np.ndarray:
    """Return log2 of a ratio; for a ratio of 0 a finite number far below every scale."""
    return np.log2(np.maximum(relative, 2.0**-20))


def rose_and_sank(values: dict[str, float], most: int = 3) -> tuple[list[str], list[str]]:
    """Return the `most` names furthest above 1.05, and those furthest below 0.95."""
    ordered = sorted(values, key=values.__getitem__, reverse=True)
    rose = [name for name in ordered if values[name] > 1.05][:most]
    sank = [name for name in reversed(ordered) if values[name] < 0.95][:most]
    return rose, sank


def in_words(names: Sequence[str]) -> str:
    """Join names as in a sentence.

    >>> in_words(["Invert", "Rotate", "Blur"])
    'Invert, Rotate and Blur'
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def times(ratio: float) -> str:
    """Format a ratio to uniform: ×1.66."""
    return f"×{ratio:.2f}" if ratio < 10 else f"×{ratio:.1f}"


def change(ratio: float) -> str:
    """Format a ratio as a change: +66 %, −40 %."""
    percent = round(100 * (ratio - 1))
    sign = "+" if percent > 0 else MINUS if percent < 0 else "±"
    return f"{sign}{abs(percent)}{THIN}%"


def signed(number: float) -> str:
    """Format a number with its sign: +0.63, −0.20."""
    return f"{number:+.2f}".replace("-", MINUS)


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f}{THIN}%"


def share_from_to(p_tp: np.ndarray) -> tuple[str, str]:
    """Format the first and the last share, with one more digit if they are close."""
    digits = 0 if abs(p_tp[-1] - p_tp[0]) >= 0.05 else 1
    return percent(p_tp[0], digits), percent(p_tp[-1], digits)


def course(p_tp: np.ndarray) -> str:
    """Return how a share went, for a sentence.

    >>> course(np.array([0.35, 0.22])), course(np.array([0.36, 0.36]))
    ('went from 35\u202f% to 22\u202f%', 'stayed at 36.0\u202f%')
    """
    first, last = share_from_to(p_tp)
    return f"stayed at {first}" if first == last else f"went from {first} to {last}"


def since_start(p_tp: np.ndarray) -> str:
    """Return where a share started, as the remark beside its last value."""
    first, last = share_from_to(p_tp)
    return "the same in all epochs" if first == last else f"from {first}"


def short_percent(share: float) -> str:
    """Format a share with only the digits it needs."""
    return f"{100 * share:g}{THIN}%"


def duration(seconds: float) -> str:
    """Format seconds: 350 ms, 2.1 s, 3 min 5 s, 2 h 10 min."""
    if seconds < 1:
        return f"{1000 * seconds:.0f}{THIN}ms"
    if seconds < 10:
        return f"{seconds:.1f}{THIN}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}{THIN}h {minutes}{THIN}min"
    return f"{minutes}{THIN}min {rest}{THIN}s" if minutes else f"{rest}{THIN}s"


def count(number: int, noun: str) -> str:
    """Format a count: 1 epoch, 20 epochs, 12,500 steps."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
