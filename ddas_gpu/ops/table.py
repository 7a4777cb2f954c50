"""The op bank, declared once: an op is a short function under a decorator.

The function is the op's definition, in Pillow. The decorator states the rest: the primitive the
op compiles to and that primitive's numbers, the magnitude law, whether the argument's sign is
drawn at random, and which arguments are accepted. Every back end, the tests, the benchmarks and
the docs read this table; nothing else lists the ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, auto
from numbers import Real
from typing import Any

from PIL import Image, ImageEnhance, ImageFilter, ImageOps

Argument = float | int | None


class Primitive(IntEnum):
    """What the kernels can do; the number is the code in a `Task` (kernels/tasks.h)."""

    COPY = 0
    GATHER = auto()  # ints: Pillow's 16.16 affine coefficients
    SOLARIZE = auto()  # ints: threshold
    SOLARIZE_ADD = auto()  # ints: what is added to the darker half
    POSTERIZE = auto()  # ints: mask
    AUTOCONTRAST = auto()
    EQUALIZE = auto()
    BRIGHTNESS = auto()  # factor
    CONTRAST = auto()  # factor
    COLOR = auto()  # factor
    SHARPNESS = auto()  # factor
    SMOOTH = auto()
    BLUR = auto()
    CUTOUT = auto()  # ints: width, height; the centre is drawn


@dataclass(frozen=True)
class Numbers:
    """What a primitive reads besides the pixels: up to six integers and one factor."""

    ints: tuple[int, ...] = ()
    factor: float = 0.0


@dataclass(frozen=True)
class PixelScale:
    """The two arguments that are pixels, and so depend on the size of the data, at level 10."""

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
        # numpy's numbers are registered as Real; so is bool, which is no magnitude
        is_number = isinstance(argument, Real) and not isinstance(argument, bool)
        if (
            not is_number
            or not self.low <= argument <= self.high
            or (self.whole and argument != int(argument))
        ):
            kind = "a whole number" if self.whole else "a number"
            raise ValueError(
                f"{op} takes {kind} from {self.low:g} to {self.high:g} ({self.unit}), "
                f"not {argument!r}"
            )
        return int(argument) if self.whole else float(argument)


@dataclass(frozen=True)
class Op:
    """One row of the table."""

    name: str
    # (image, argument), if centred (image, side, centre); those that fill also take `fill`
    pillow: Callable[..., Image.Image]
    primitive: Primitive
    numbers: Callable[[Argument, int, int], Numbers]  # (argument, height, width)
    matrix: Callable[[Argument, int, int], AffineMatrix] | None  # of the ops that move pixels
    law: Callable[[float, PixelScale], float | int] | None
    signed: bool
    accepts: Range | None
    square: bool  # defined on square images only
    centred: bool  # acts around a point drawn for each image

    @property
    def fills(self) -> bool:
        """Whether pixels may come from outside the image, or be cut out of it."""
        return self.primitive in (Primitive.GATHER, Primitive.CUTOUT) and self.law is not None

    def check(self, argument: Argument) -> Argument:
        """The argument as the kernels want it, or a ValueError that says what is accepted."""
        if self.accepts is not None:
            return self.accepts.check(self.name, argument)
        if argument is not None:
            raise ValueError(f"{self.name} takes no argument, not {argument!r}")
        return None


OPS: dict[str, Op] = {}

AffineMatrix = tuple[float, float, float, float, float, float]


def op(
    primitive: Primitive,
    numbers: Callable[[Argument, int, int], Numbers] = lambda argument, height, width: Numbers(),
    *,
    matrix: Callable[[Argument, int, int], AffineMatrix] | None = None,
    law: Callable[[float, PixelScale], float | int] | None = None,
    accepts: Range | None = None,
    signed: bool = False,
    square: bool = False,
    centred: bool = False,
) -> Callable[[Callable[..., Image.Image]], Callable[..., Image.Image]]:
    """Add the decorated Pillow function to the bank under its own name."""

    def declare(pillow: Callable[..., Image.Image]) -> Callable[..., Image.Image]:
        name = pillow.__name__
        if name in OPS:
            raise ValueError(f"op {name!r} is declared twice")
        OPS[name] = Op(
            name, pillow, primitive, numbers, matrix, law, signed, accepts, square, centred
        )
        return pillow

    return declare


def find(name: str) -> Op:
    """The op called `name`, or a ValueError that lists the bank."""
    if name not in OPS:
        raise ValueError(f"unknown op {name!r}; the bank has: {', '.join(OPS)}")
    return OPS[name]


def geometric(
    matrix: Callable[[Argument, int, int], AffineMatrix], **declaration: Any
) -> Callable[[Callable[..., Image.Image]], Callable[..., Image.Image]]:
    """An op that moves pixels: output (x, y) reads input (ax + by + c, dx + ey + f)."""

    def numbers(argument: Argument, height: int, width: int) -> Numbers:
        return fixed_point(matrix(argument, height, width), height, width)

    return op(Primitive.GATHER, numbers, matrix=matrix, **declaration)


def fixed_point(matrix: AffineMatrix, height: int, width: int) -> Numbers:
    """Pillow's NEAREST affine, in 16.16 fixed point with the pixel's centre folded into c and f.

    Pillow leaves fixed point where a corner lies 32768 or more away; we refuse such images.
    """
    a, b, c, d, e, f = matrix
    for x, y in ((0, 0), (width, 0), (0, height), (width, height)):
        if max(abs(a * x + b * y + c), abs(d * x + e * y + f)) >= 32768:
            raise ValueError(
                f"image of {height}x{width} pixels: geometric ops reach at most 32767 pixels"
            )
    centred = (a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5)
    return Numbers(ints=tuple(math.floor(v * 65536.0 + 0.5) for v in centred))


def rotation(degrees: Argument, height: int, width: int) -> AffineMatrix:
    """`Image.rotate` about the centre. The rounding to 15 digits is Pillow's, and it matters."""
    degrees = degrees % 360.0
    exact = {0: (1, 0), 180: (-1, 0)}
    if height == width:  # else Pillow sends quarter turns through the general path, too
        exact |= {90: (0, -1), 270: (0, 1)}
    if degrees in exact:
        # Pillow transposes here. The same gather, with the corner of the turned image in (c, f).
        cos, sin = exact[degrees]
        c, f = (width if cos + sin < 0 else 0), (height if cos - sin < 0 else 0)
        return cos, sin, c, -sin, cos, f
    angle = -math.radians(degrees)
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    minus_sin = round(-math.sin(angle), 15)
    centre_x, centre_y = width / 2, height / 2
    c = cos * -centre_x + sin * -centre_y + 0.0 + centre_x
    f = minus_sin * -centre_x + cos * -centre_y + 0.0 + centre_y
    return cos, sin, c, minus_sin, cos, f


def one_int(argument: Argument, height: int, width: int) -> Numbers:
    return Numbers(ints=(argument,))


def one_factor(argument: Argument, height: int, width: int) -> Numbers:
    return Numbers(factor=argument)


def affine(image: Image.Image, matrix: AffineMatrix, fill: int) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, fillcolor=(fill,) * 3)


# --- the ops, in the order of the search spaces ---------------------------------------------------

SHEAR = Range(-2, 2, "the tangent of the angle")
PIXELS = Range(-16383, 16383, "pixels", whole=True)
FACTOR = Range(0, 1000, "1 leaves the image as it is")


def enhancement(level: float, scale: PixelScale) -> float:
    return 0.1 + 1.8 * level / 10


@op(Primitive.COPY)
def Identity(image):
    return image.copy()


@geometric(lambda argument, height, width: (-1, 0, width, 0, 1, 0))
def FlipLR(image):
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


@geometric(lambda argument, height, width: (1, 0, 0, 0, -1, height))
def FlipUD(image):
    return image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)


@op(Primitive.AUTOCONTRAST)
def AutoContrast(image):
    return ImageOps.autocontrast(image)


@op(Primitive.EQUALIZE)
def Equalize(image):
    return ImageOps.equalize(image)


@op(Primitive.SOLARIZE, lambda argument, height, width: Numbers(ints=(0,)))
def Invert(image):
    return ImageOps.invert(image)


@op(Primitive.BLUR)
def Blur(image):
    return image.filter(ImageFilter.BLUR)


@op(Primitive.SMOOTH)
def Smooth(image):
    return image.filter(ImageFilter.SMOOTH)


@geometric(
    rotation,
    law=lambda level, scale: int(30 * level / 10),
    accepts=Range(-360, 360, "degrees"),
    signed=True,
)
def Rotate(image, degrees, fill=0):
    return image.rotate(degrees, fillcolor=(fill,) * 3)


@op(
    Primitive.POSTERIZE,
    lambda bits, height, width: Numbers(ints=(0xFF & ~(2 ** (8 - bits) - 1),)),
    law=lambda level, scale: max(1, 4 - int(4 * level / 10)),
    accepts=Range(1, 8, "bits", whole=True),
)
def Posterize(image, bits):
    return ImageOps.posterize(image, bits)


@geometric(
    lambda amount, height, width: (1, amount, 0, 0, 1, 0),
    law=lambda level, scale: 0.3 * level / 10,
    accepts=SHEAR,
    signed=True,
)
def ShearX(image, amount, fill=0):
    return affine(image, (1, amount, 0, 0, 1, 0), fill)


@geometric(
    lambda amount, height, width: (1, 0, 0, amount, 1, 0),
    law=lambda level, scale: 0.3 * level / 10,
    accepts=SHEAR,
    signed=True,
)
def ShearY(image, amount, fill=0):
    return affine(image, (1, 0, 0, amount, 1, 0), fill)


@geometric(
    lambda pixels, height, width: (1, 0, pixels, 0, 1, 0),
    law=lambda level, scale: int(scale.translate * level / 10),
    accepts=PIXELS,
    signed=True,
)
def TranslateX(image, pixels, fill=0):
    return affine(image, (1, 0, pixels, 0, 1, 0), fill)


@geometric(
    lambda pixels, height, width: (1, 0, 0, 0, 1, pixels),
    law=lambda level, scale: int(scale.translate * level / 10),
    accepts=PIXELS,
    signed=True,
)
def TranslateY(image, pixels, fill=0):
    return affine(image, (1, 0, 0, 0, 1, pixels), fill)


@op(
    Primitive.SOLARIZE,
    one_int,
    law=lambda level, scale: max(0, 256 - int(256 * level / 10)),
    accepts=Range(0, 256, "the first value to invert", whole=True),
)
def Solarize(image, threshold):
    return ImageOps.solarize(image, threshold)


@op(
    Primitive.SOLARIZE_ADD,
    lambda addition, height, width: Numbers(ints=(min(addition, 255),)),  # fits in a byte
    law=lambda level, scale: int(110 * level / 10),
    accepts=Range(0, 510, "added to what is darker than 128", whole=True),
)
def SolarizeAdd(image, addition):
    table = [min(255, v + addition) if v < 128 else v for v in range(256)]
    return image.point(3 * table)


@op(Primitive.COLOR, one_factor, law=enhancement, accepts=FACTOR)
def Color(image, factor):
    return ImageEnhance.Color(image).enhance(factor)


@op(Primitive.CONTRAST, one_factor, law=enhancement, accepts=FACTOR)
def Contrast(image, factor):
    return ImageEnhance.Contrast(image).enhance(factor)


@op(Primitive.BRIGHTNESS, one_factor, law=enhancement, accepts=FACTOR)
def Brightness(image, factor):
    return ImageEnhance.Brightness(image).enhance(factor)


@op(Primitive.SHARPNESS, one_factor, law=enhancement, accepts=FACTOR)
def Sharpness(image, factor):
    return ImageEnhance.Sharpness(image).enhance(factor)


@op(
    Primitive.CUTOUT,
    lambda side, height, width: Numbers(ints=(side, side)),
    law=lambda level, scale: int(scale.cutout * level / 10),
    accepts=Range(0, 16383, "pixels a side", whole=True),
    centred=True,
)
def Cutout(image, side, centre, fill=0):
    left, top = centre[0] - side // 2, centre[1] - side // 2
    image = image.copy()
    if side:  # Pillow refuses an empty box
        image.paste((fill,) * 3, (left, top, left + side, top + side))
    return image


@geometric(lambda argument, height, width: (0, -1, width, 1, 0, 0), square=True)
def Rotate90(image):
    return image.transpose(Image.Transpose.ROTATE_90)
