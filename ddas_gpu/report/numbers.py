"""What the pages say about a policy, as numbers; and numbers as words."""

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
    """The candidates by op, ops in the order in which they first appear."""
    found: dict[str, list[int]] = {}
    for index, candidate in enumerate(space):
        found.setdefault(candidate.op, []).append(index)
    return [OpGroup(op, tuple(indices)) for op, indices in found.items()]


def ratios(p_o: np.ndarray) -> np.ndarray:
    """Probabilities relative to the uniform 1/K."""
    return np.asarray(p_o) * np.shape(p_o)[-1]


def op_ratios(space: SearchSpace, p_o: np.ndarray) -> dict[str, float]:
    """For each op the mean over its levels, relative to uniform."""
    relative = ratios(p_o)
    return {group.op: float(relative[list(group.indices)].mean()) for group in groups(space)}


def scale_limit(relative: np.ndarray, quantile: float = 1.0) -> float:
    """The smallest scale 1/limit .. limit that holds (that share of) the ratios."""
    distance = np.abs(log2(relative))
    needed = 2 ** float(np.quantile(distance, quantile)) if distance.size else 1.0
    return next((limit for limit in SCALES if limit >= needed), max(SCALES))


def log2(relative: np.ndarray | float) -> np.ndarray:
    """log2 of a ratio; a probability of 0 stays finite, far below every scale."""
    return np.log2(np.maximum(relative, 2.0**-20))


def rose_and_sank(values: dict[str, float], most: int = 3) -> tuple[list[str], list[str]]:
    """The names furthest above and below 1, at most so many each, nearest misses left out."""
    ordered = sorted(values, key=values.__getitem__, reverse=True)
    rose = [name for name in ordered if values[name] > 1.05][:most]
    sank = [name for name in reversed(ordered) if values[name] < 0.95][:most]
    return rose, sank


def in_words(names: Sequence[str]) -> str:
    """a; a and b; a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def times(ratio: float) -> str:
    """A ratio to uniform: ×1.66."""
    return f"×{ratio:.2f}" if ratio < 10 else f"×{ratio:.1f}"


def change(ratio: float) -> str:
    """A ratio as a change: +66 %, −40 %."""
    percent = round(100 * (ratio - 1))
    sign = "+" if percent > 0 else MINUS if percent < 0 else "±"
    return f"{sign}{abs(percent)}{THIN}%"


def signed(number: float) -> str:
    """+0.63, −0.20."""
    return f"{number:+.2f}".replace("-", MINUS)


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f}{THIN}%"


def share_from_to(p_tp: np.ndarray) -> tuple[str, str]:
    """The first and the last share, with a digit more where they are close."""
    digits = 0 if abs(p_tp[-1] - p_tp[0]) >= 0.05 else 1
    return percent(p_tp[0], digits), percent(p_tp[-1], digits)


def short_percent(share: float) -> str:
    """A share with only the digits it needs."""
    return f"{100 * share:g}{THIN}%"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
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
    """1 epoch, 20 epochs, 12,500 steps."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
