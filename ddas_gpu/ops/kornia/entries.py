"""The differentiable bank: one short function per op, under a decorator that states its gradients.

Two decorators for two kinds of ops. An op that `@moves` pixels gets them as they are, floats in
[0, 1] or bytes, and returns them in other places. An op that `@changes` pixels gets `Levels` and
returns new levels, neither clipped nor quantised; the callers in `calls.py` do that. Both get the
`Call`. The function has the name of its op in `ddas_gpu.ops.table`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from ddas_gpu.ops import table

EXACT = "exact"
BILINEAR = "exact if bilinear"  # and none at all if nearest
STRAIGHT_THROUGH = "straight-through"
NONE = "none"


@dataclass(frozen=True)
class Call:
    """The parameters of an op besides the pixels."""

    op: table.Op
    values: tuple[float, ...]  # the argument on the host: one value, or one per image
    tensor: Tensor | None  # the same on the images' device, (1,) or (B,), with its graph
    centres: Tensor | None = None  # (B, 2): x, y
    interpolation: str = "nearest"
    fill: int = 0  # of the ops that `@moves` pixels

    @property
    def argument(self) -> Tensor:
        """The argument, broadcastable to (B, C, H, W)."""
        assert self.tensor is not None, f"{self.op.name} has no argument"
        return self.tensor.view(-1, 1, 1, 1)


@dataclass(frozen=True)
class Entry:
    """One op of this back end."""

    op: table.Op
    function: Callable[..., Tensor]
    moves: bool
    image: str  # the gradient in the image
    argument: str  # the gradient in the argument
    rounds: bool  # Pillow rounds the result to a byte; else it truncates

    def check(self, value: object, *, fractions: bool) -> float | int | None:
        """Return the argument, checked; `fractions` allows non-integers where it has a gradient."""
        accepts = self.op.accepts
        if fractions and self.argument != NONE and accepts is not None:
            return replace(accepts, whole=False).check(self.op.name, value)
        return self.op.check(value)

    def has_argument_gradient(self, interpolation: str) -> bool:
        if self.argument == BILINEAR:
            return interpolation == "bilinear"
        return self.argument != NONE


BANK: dict[str, Entry] = {}

Decorator = Callable[[Callable[..., Tensor]], Callable[..., Tensor]]


def moves(*, image: str = EXACT, argument: str = NONE) -> Decorator:
    """Register an op that moves pixels: (images, call) -> images, of any dtype."""

    def declare(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        _add(function.__name__, function, True, image, argument, False)
        return function

    return declare


def changes(
    *, image: str = EXACT, argument: str = NONE, rounds: bool = False, name: str | None = None
) -> Decorator:
    """Register an op that changes pixels: (levels, call) -> levels.

    name: the op, if the function serves several and so cannot have its name.
    """

    def declare(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        _add(name or function.__name__, function, False, image, argument, rounds)
        return function

    return declare


def _add(
    name: str, function: Callable[..., Tensor], moves: bool, image: str, argument: str, rounds: bool
) -> None:
    op = table.find(name)
    if name in BANK:
        raise ValueError(f"op {name!r} is registered twice")
    BANK[name] = Entry(op, function, moves, image, argument, rounds)


def find(name: str) -> Entry:
    """Return the entry of the op called `name`, or raise a ValueError."""
    op = table.find(name)
    if op.name not in BANK:
        raise ValueError(f"{name} has no differentiable form; there is one of: {', '.join(BANK)}")
    return BANK[op.name]


def entry_of(op: table.Op) -> Entry:
    """Return the entry of an op of the table, or of a variant of one for boxes."""
    return replace(find(op.pillow.__name__), op=op)


def gradient_table() -> str:
    """Return a Markdown table of the gradients of every op."""
    rows = [("op", "in the image", "in the argument", "remark"), ("---",) * 4]
    rows += [
        (name, BANK[name].image, BANK[name].argument, _remark(BANK[name].function))
        for name in table.OPS
        if name in BANK
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _remark(function: Callable[..., Tensor]) -> str:
    return (function.__doc__ or "").strip().split("\n")[0]
