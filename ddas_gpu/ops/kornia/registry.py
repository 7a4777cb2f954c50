"""The differentiable bank: one short function an op, under a decorator that states its gradients.

Two decorators for two kinds of ops. An op that `@moves` pixels gets them as they are, floats in
[0, 1] or bytes, and returns them somewhere else. An op that `@changes` pixels gets `Levels` and
returns new levels, neither clipped nor quantised; the callers in `calls.py` do that. Both get the
`Call`. The function bears the name of its op in `ddas_gpu.ops.table`.
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
    """What an op is called with besides the pixels."""

    op: table.Op
    values: tuple[float, ...]  # the argument on the host: one value, or one an image
    tensor: Tensor | None  # the same on the images' device, (1,) or (B,), with its graph
    centres: Tensor | None = None  # (B, 2): x, y
    interpolation: str = "nearest"

    @property
    def argument(self) -> Tensor:
        """The argument in the shape that meets (B, C, H, W)."""
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
        """The argument, checked by the table; `fractions` lets a learned one leave the integers."""
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
    return _register(moves=True, image=image, argument=argument, rounds=False)


def changes(*, image: str = EXACT, argument: str = NONE, rounds: bool = False) -> Decorator:
    """Register an op that changes pixels: (levels, call) -> levels."""
    return _register(moves=False, image=image, argument=argument, rounds=rounds)


def _register(*, moves: bool, image: str, argument: str, rounds: bool) -> Decorator:
    def declare(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        name = function.__name__
        op = table.find(name)
        if name in BANK:
            raise ValueError(f"op {name!r} is registered twice")
        BANK[name] = Entry(op, function, moves, image, argument, rounds)
        return function

    return declare


def find(name: str) -> Entry:
    """The entry of the op called `name`, or a ValueError that says what there is."""
    op = table.find(name)
    if op.name not in BANK:
        raise ValueError(f"{name} has no differentiable form; there is one of: {', '.join(BANK)}")
    return BANK[op.name]


def gradient_table() -> str:
    """What the gradients are, op by op; the package's docstring carries this text."""
    rows = [("op", "in the image", "in the argument", "remark")]
    rows += [
        (name, BANK[name].image, BANK[name].argument, _remark(BANK[name].function))
        for name in table.OPS
        if name in BANK
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*map(str.ljust, row[:3], widths), row[3]]).rstrip() for row in rows]
    return "\n".join(lines)


def _remark(function: Callable[..., Tensor]) -> str:
    return (function.__doc__ or "").strip().split("\n")[0]
