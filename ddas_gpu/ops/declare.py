"""How an op is declared: a Pillow function under one of three decorators.

The function defines the op. The decorator states the rest: the primitive of the kernels that runs
the op and its parameters, the magnitude law, whether the sign of the argument is drawn at random,
and which arguments are accepted. The declarations are in `table.py`.

`@point_op` is for ops that map each byte by itself: their kernels are generated from a function of
`kernels/pixels.h`. `@geometric` is for ops that move pixels by an affine map. `@op` is for the
others, whose primitives are written by hand for each target.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from numbers import Real
from typing import Any

from PIL import Image

Argument = float | int | None
AffineMatrix = tuple[float, float, float, float, float, float]
PillowFunction = Callable[..., Image.Image]
Decorator = Callable[[PillowFunction], PillowFunction]


@dataclass(frozen=True)
class Primitive:
    """One case in the kernels' switch over ops, PRIMITIVE_<name>."""

    name: str
    code: int  # `primitive` of a Task (kernels/tasks.h)
    # For point ops, how the CPU target applies the function: map_bytes computes every byte,
    # map_values looks it up in a table of 256 results.
    cpu_map: str | None = None

    @property
    def definition(self) -> str:
        """Return the compiler definition of the code."""
        return f"-DPRIMITIVE_{self.name}={self.code}"


PRIMITIVES: dict[str, Primitive] = {}


def primitive(name: str, cpu_map: str | None = None) -> Primitive:
    """Return the primitive `name`; the first call assigns its code."""
    found = PRIMITIVES.setdefault(name, Primitive(name, len(PRIMITIVES), cpu_map))
    if found.cpu_map != cpu_map:
        raise ValueError(f"primitive {name} is declared with {found.cpu_map} and with {cpu_map}")
    return found


# The primitives that are written by hand in kernels/blocks.cuh and kernels/cpu.cpp.
COPY = primitive("COPY")  # code 0
GATHER = primitive("GATHER")  # ints: Pillow's 16.16 affine coefficients
AUTOCONTRAST = primitive("AUTOCONTRAST")
EQUALIZE = primitive("EQUALIZE")
CONTRAST = primitive("CONTRAST")  # factor
COLOR = primitive("COLOR")  # factor
SHARPNESS = primitive("SHARPNESS")  # factor
SMOOTH = primitive("SMOOTH")
BLUR = primitive("BLUR")
CUTOUT = primitive("CUTOUT")  # ints: width, height; the centre is drawn
WARMTH = primitive("WARMTH")  # ints: the factors of red, green and blue, 128 for 1


def compiler_definitions() -> tuple[str, ...]:
    """Return the definitions from which the kernels learn the primitives (kernels/tasks.h)."""
    points = " ".join(
        f"P({p.name},{p.name.lower()}_pixel,{p.cpu_map})" for p in PRIMITIVES.values() if p.cpu_map
    )
    return (*(p.definition for p in PRIMITIVES.values()), f"-DPOINT_PRIMITIVES(P)={points}")


@dataclass(frozen=True)
class Numbers:
    """The parameters of a primitive: up to six integers and one factor."""

    ints: tuple[int, ...] = ()
    factor: float = 0.0


@dataclass(frozen=True)
class PixelScale:
    """The arguments at level 10 that are in pixels, and so depend on the image size."""

    translate: int = 10
    cutout: int = 20


@dataclass(frozen=True)
class Range:
    """The arguments an op accepts, ends included."""

    low: float
    high: float
    unit: str
    whole: bool = False

    def check(self, op: str, argument: object) -> float | int:
        """Return the argument as a float, or as an int if it must be whole."""
        # numpy's numbers are registered as Real; so is bool, which is no magnitude
        is_number = isinstance(argument, Real) and not isinstance(argument, bool)
        value: Any = argument
        if (
            not is_number
            or not self.low <= value <= self.high
            or (self.whole and value != int(value))
        ):
            kind = "a whole number" if self.whole else "a number"
            raise ValueError(
                f"{op} takes {kind} from {self.low:g} to {self.high:g} ({self.unit}), "
                f"not {argument!r}"
            )
        return int(value) if self.whole else float(value)


NumbersFunction = Callable[[Any, int, int], Numbers]  # (argument, height, width)
MatrixFunction = Callable[[Any, int, int], AffineMatrix]  # (argument, height, width)
Law = Callable[[float, PixelScale], float | int]  # (level, scale) -> argument


class Reach(Enum):
    """Which pixels an op changes, and whether it transforms the boxes."""

    IMAGE = auto()  # the whole image; the boxes stay
    WITH_BOXES = auto()  # the whole image and the boxes
    EACH_BOX = auto()  # the inside of each box, with probability 1/3
    ONE_BOX = auto()  # the inside of one box, drawn at random


@dataclass(frozen=True)
class Op:
    """One op of the bank."""

    name: str
    # (image, argument), if centred (image, side, centre); ops with a fill value also take `fill`
    pillow: PillowFunction
    primitive: Primitive
    numbers: NumbersFunction | None  # if None, those of the matrix, or none
    matrix: MatrixFunction | None  # of the ops that move pixels
    law: Law | None
    signed: bool
    accepts: Range | None
    square: bool  # defined on square images only
    centred: bool  # acts around a point drawn per image
    reach: Reach = Reach.IMAGE

    @property
    def is_point(self) -> bool:
        """Whether every byte of the result depends on one byte of the image alone."""
        return self.primitive.cpu_map is not None

    @property
    def fills(self) -> bool:
        """Whether the result may have pixels of the fill value."""
        return self.primitive in (GATHER, CUTOUT) and self.law is not None

    def check(self, argument: object) -> Argument:
        """Return the argument as the kernels need it, or raise a ValueError."""
        if self.accepts is not None:
            return self.accepts.check(self.name, argument)
        if argument is not None:
            raise ValueError(f"{self.name} takes no argument, not {argument!r}")
        return None


OPS: dict[str, Op] = {}


def op(
    primitive: Primitive,
    numbers: NumbersFunction | None = None,
    *,
    matrix: MatrixFunction | None = None,
    law: Law | None = None,
    accepts: Range | None = None,
    signed: bool = False,
    square: bool = False,
    centred: bool = False,
) -> Decorator:
    """Add the decorated Pillow function to the bank under its own name."""

    def declare(pillow: PillowFunction) -> PillowFunction:
        name = pillow.__name__
        if name in OPS:
            raise ValueError(f"op {name!r} is declared twice")
        OPS[name] = Op(
            name, pillow, primitive, numbers, matrix, law, signed, accepts, square, centred
        )
        return pillow

    return declare


def point_op(
    numbers: NumbersFunction | None = None,
    *,
    pixel: str | None = None,
    by_table: bool = False,
    law: Law | None = None,
    accepts: Range | None = None,
) -> Decorator:
    """Declare an op that maps each byte by itself.

    Args:
        numbers: the parameters of the pixel function.
        pixel: the function `<pixel>_pixel(byte, const Numbers&)` of kernels/pixels.h; by default
            the op's name in snake case.
        by_table: on CPUs with fast table look-ups (AVX-512 VBMI), evaluate the function once per
            byte value. Set it if the function computes in floating point.
        law, accepts: as in `op`.
    """

    def declare(pillow: PillowFunction) -> PillowFunction:
        name = pixel or re.sub(r"(?<!^)(?=[A-Z])", "_", pillow.__name__)
        kernel = primitive(name.upper(), "map_values" if by_table else "map_bytes")
        return op(kernel, numbers, law=law, accepts=accepts)(pillow)

    return declare


def geometric(matrix: MatrixFunction, **declaration: Any) -> Decorator:
    """Declare an op that moves pixels: output (x, y) reads input (ax + by + c, dx + ey + f)."""
    return op(GATHER, matrix=matrix, **declaration)
