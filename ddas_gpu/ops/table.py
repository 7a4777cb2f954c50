"""The op bank: every op is declared here, once.

Every back end, the tests, the benchmarks and the docs read this table; nothing else lists the ops.
`declare.py` explains the decorators; docs/extending.md adds an op step by step.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from ddas_gpu.ops.declare import (
    AUTOCONTRAST,
    BLUR,
    COLOR,
    CONTRAST,
    COPY,
    CUTOUT,
    EQUALIZE,
    OPS,
    SHARPNESS,
    SMOOTH,
    WARMTH,
    AffineMatrix,
    Argument,
    Law,
    Numbers,
    Op,
    PixelScale,
    Range,
    Reach,
    geometric,
    op,
    point_op,
)

__all__ = ["BOX_OPS", "OPS", "WIDE", "Argument", "Op", "PixelScale", "Reach", "find", "find_any"]


def find(name: str) -> Op:
    """Return the op called `name`, or raise a ValueError that lists the bank."""
    if name not in OPS:
        raise ValueError(f"unknown op {name!r}; the bank has: {', '.join(OPS)}")
    return OPS[name]


def find_any(name: str) -> Op:
    """Return the op called `name`, for boxes or not, or raise a ValueError that lists all."""
    if name not in OPS and name not in BOX_OPS:
        raise ValueError(f"unknown op {name!r}; there are: {', '.join([*OPS, *BOX_OPS])}")
    return OPS.get(name) or BOX_OPS[name]


# --- parameters that several declarations share ---------------------------------------------------

SHEAR = Range(-2, 2, "the tangent of the angle")
PIXELS = Range(-16383, 16383, "pixels", whole=True)
FACTOR = Range(0, 1000, "1 leaves the image as it is")


def enhancement(level: float, scale: PixelScale) -> float:
    return 0.1 + 1.8 * level / 10


def one_factor(factor: float, height: int, width: int) -> Numbers:
    return Numbers(factor=factor)


def affine(image: Image.Image, matrix: AffineMatrix, fill: int) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, fillcolor=(fill,) * 3)


def rotation(degrees: float, height: int, width: int) -> AffineMatrix:
    """Return the matrix of `Image.rotate`; its rounding to 15 digits changes the result."""
    degrees = degrees % 360.0
    exact = {0: (1, 0), 180: (-1, 0)}
    if height == width:  # else Pillow rotates by 90 and 270 degrees like by any other angle
        exact |= {90: (0, -1), 270: (0, 1)}
    if degrees in exact:
        # Pillow transposes here. The same gather; (c, f) is the corner of the rotated image.
        cos, sin = exact[int(degrees)]
        return cos, sin, (width if cos + sin < 0 else 0), -sin, cos, (height if cos < sin else 0)
    angle = -math.radians(degrees)
    cosine, sine = round(math.cos(angle), 15), round(math.sin(angle), 15)
    minus_sine = round(-math.sin(angle), 15)
    centre_x, centre_y = width / 2, height / 2
    c = cosine * -centre_x + sine * -centre_y + 0.0 + centre_x
    f = minus_sine * -centre_x + cosine * -centre_y + 0.0 + centre_y
    return cosine, sine, c, minus_sine, cosine, f


def zoom(step: float, height: int, width: int) -> AffineMatrix:
    """Return a map about the centre in which neighbouring pixels come from `step` pixels apart.

    Rounded to 1/64: Pillow scales in double precision, and the kernels' fixed point is then exact.
    """
    step = round(64 * step) / 64
    return step, 0, (1 - step) * width / 2, 0, step, (1 - step) * height / 2


def gains(warmth: float) -> tuple[int, int, int]:
    """Return the factors of red, green and blue in 1/128."""
    return round(128 * (1 + warmth)), 128, round(128 * (1 - warmth))


# --- the ops, in the order of the search spaces ---------------------------------------------------


@op(COPY)
def Identity(image: Image.Image) -> Image.Image:
    return image.copy()


@geometric(lambda argument, height, width: (-1, 0, width, 0, 1, 0))
def FlipLR(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


@geometric(lambda argument, height, width: (1, 0, 0, 0, -1, height))
def FlipUD(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)


@op(AUTOCONTRAST)
def AutoContrast(image: Image.Image) -> Image.Image:
    return ImageOps.autocontrast(image)


@op(EQUALIZE)
def Equalize(image: Image.Image) -> Image.Image:
    return ImageOps.equalize(image)


@point_op(lambda argument, height, width: Numbers(ints=(0, 255)), pixel="solarize")
def Invert(image: Image.Image) -> Image.Image:
    return ImageOps.invert(image)


@op(BLUR)
def Blur(image: Image.Image) -> Image.Image:
    return image.filter(ImageFilter.BLUR)


@op(SMOOTH)
def Smooth(image: Image.Image) -> Image.Image:
    return image.filter(ImageFilter.SMOOTH)


@geometric(
    rotation,
    law=lambda level, scale: int(30 * level / 10),
    accepts=Range(-360, 360, "degrees"),
    signed=True,
)
def Rotate(image: Image.Image, degrees: float, fill: int = 0) -> Image.Image:
    return image.rotate(degrees, fillcolor=(fill,) * 3)


@point_op(
    lambda bits, height, width: Numbers(ints=(0xFF & ~(2 ** (8 - bits) - 1),)),
    law=lambda level, scale: max(1, 4 - int(4 * level / 10)),
    accepts=Range(1, 8, "bits", whole=True),
)
def Posterize(image: Image.Image, bits: int) -> Image.Image:
    return ImageOps.posterize(image, bits)


@geometric(
    lambda amount, height, width: (1, amount, 0, 0, 1, 0),
    law=lambda level, scale: 0.3 * level / 10,
    accepts=SHEAR,
    signed=True,
)
def ShearX(image: Image.Image, amount: float, fill: int = 0) -> Image.Image:
    return affine(image, (1, amount, 0, 0, 1, 0), fill)


@geometric(
    lambda amount, height, width: (1, 0, 0, amount, 1, 0),
    law=lambda level, scale: 0.3 * level / 10,
    accepts=SHEAR,
    signed=True,
)
def ShearY(image: Image.Image, amount: float, fill: int = 0) -> Image.Image:
    return affine(image, (1, 0, 0, amount, 1, 0), fill)


@geometric(
    lambda pixels, height, width: (1, 0, pixels, 0, 1, 0),
    law=lambda level, scale: int(scale.translate * level / 10),
    accepts=PIXELS,
    signed=True,
)
def TranslateX(image: Image.Image, pixels: int, fill: int = 0) -> Image.Image:
    return affine(image, (1, 0, pixels, 0, 1, 0), fill)


@geometric(
    lambda pixels, height, width: (1, 0, 0, 0, 1, pixels),
    law=lambda level, scale: int(scale.translate * level / 10),
    accepts=PIXELS,
    signed=True,
)
def TranslateY(image: Image.Image, pixels: int, fill: int = 0) -> Image.Image:
    return affine(image, (1, 0, 0, 0, 1, pixels), fill)


@point_op(
    lambda threshold, height, width: Numbers(ints=(threshold % 256, 255 * (threshold < 256))),
    law=lambda level, scale: max(0, 256 - int(256 * level / 10)),
    accepts=Range(0, 256, "the first value to invert", whole=True),
)
def Solarize(image: Image.Image, threshold: int) -> Image.Image:
    return ImageOps.solarize(image, threshold)


@point_op(
    lambda addition, height, width: Numbers(ints=(min(addition, 255),)),  # fits in a byte
    law=lambda level, scale: int(110 * level / 10),
    accepts=Range(0, 510, "added to what is darker than 128", whole=True),
)
def SolarizeAdd(image: Image.Image, addition: int) -> Image.Image:
    table = [min(255, v + addition) if v < 128 else v for v in range(256)]
    return image.point(3 * table)


@op(COLOR, one_factor, law=enhancement, accepts=FACTOR)
def Color(image: Image.Image, factor: float) -> Image.Image:
    return ImageEnhance.Color(image).enhance(factor)


@op(CONTRAST, one_factor, law=enhancement, accepts=FACTOR)
def Contrast(image: Image.Image, factor: float) -> Image.Image:
    return ImageEnhance.Contrast(image).enhance(factor)


@point_op(one_factor, by_table=True, law=enhancement, accepts=FACTOR)
def Brightness(image: Image.Image, factor: float) -> Image.Image:
    return ImageEnhance.Brightness(image).enhance(factor)


@op(SHARPNESS, one_factor, law=enhancement, accepts=FACTOR)
def Sharpness(image: Image.Image, factor: float) -> Image.Image:
    return ImageEnhance.Sharpness(image).enhance(factor)


@op(
    CUTOUT,
    lambda side, height, width: Numbers(ints=(side, side)),
    law=lambda level, scale: int(scale.cutout * level / 10),
    accepts=Range(0, 16383, "pixels per side", whole=True),
    centred=True,
)
def Cutout(image: Image.Image, side: int, centre: tuple[int, int], fill: int = 0) -> Image.Image:
    left, top = centre[0] - side // 2, centre[1] - side // 2
    image = image.copy()
    if side:  # Pillow refuses an empty box
        image.paste((fill,) * 3, (left, top, left + side, top + side))
    return image


# --- what cameras differ in beside that: distance, haze and the colour of the light ---------------


@geometric(
    zoom,
    law=lambda level, scale: round(64 * (1 + level / 10)) / 64,
    accepts=Range(1, 8, "how many times smaller things become; rounded to 1/64"),
)
def Shrink(image: Image.Image, step: float, fill: int = 0) -> Image.Image:
    return affine(image, zoom(step, image.height, image.width), fill)


@geometric(
    zoom,
    law=lambda level, scale: round(64 / (1 + level / 10)) / 64,
    accepts=Range(1 / 64, 1, "1 / how many times larger things become; rounded to 1/64"),
)
def Enlarge(image: Image.Image, step: float, fill: int = 0) -> Image.Image:
    return affine(image, zoom(step, image.height, image.width), fill)


@point_op(
    one_factor,
    by_table=True,
    law=lambda level, scale: max(0.0, 1 - 0.06 * level),
    accepts=Range(0, 1, "1 leaves the image as it is, 0 makes it white"),
)
def Lighten(image: Image.Image, factor: float) -> Image.Image:
    white = Image.new("RGB", image.size, (255, 255, 255))
    return Image.blend(white, image, factor)


@op(
    WARMTH,
    lambda warmth, height, width: Numbers(ints=gains(warmth)),
    law=lambda level, scale: min(1.0, 0.05 * level),
    accepts=Range(-1, 1, "0 leaves the image as it is, 1 doubles red and takes away blue"),
    signed=True,
)
def Warmth(image: Image.Image, warmth: float) -> Image.Image:
    return image.point(
        [min(255, (v * gain + 64) // 128) for gain in gains(warmth) for v in range(256)]
    )


@geometric(lambda argument, height, width: (0, -1, width, 1, 0, 0), square=True)
def Rotate90(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.ROTATE_90)


# --- ops of detection -----------------------------------------------------------------------------
# Those of "Learning Data Augmentation Strategies for Object Detection": ops of the bank that also
# transform boxes, or change only their inside. There is no second implementation of the pixels.

BOX_OPS: dict[str, Op] = {}


def variant(name: str, of: str, reach: Reach, **changes: Any) -> None:
    """Declare the op `name`: the op `of` with another reach and, if given, another law."""
    if name in BOX_OPS or name in OPS:
        raise ValueError(f"op {name!r} is declared twice")
    BOX_OPS[name] = replace(OPS[of], name=name, reach=reach, **changes)


def share_of_box(share: float, height: int, width: int) -> Numbers:
    return Numbers(ints=(int(share * width), int(share * height)))


for name in ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate90"):
    variant(f"{name}_BBox", name, Reach.WITH_BOXES)
for name in ("Rotate", "ShearX", "ShearY", "Solarize", "Equalize"):
    variant(f"{name}_Only_BBoxes", name, Reach.EACH_BOX)
for name in ("TranslateX", "TranslateY"):  # up to 120 pixels, whole images up to 250
    variant(
        f"{name}_Only_BBoxes",
        name,
        Reach.EACH_BOX,
        law=lambda level, scale: int(scale.translate * 120 / 250 * level / 10),
    )
variant("Flip_Only_BBoxes", "FlipLR", Reach.EACH_BOX)
variant(
    "Cutout_Only_BBoxes",
    "Cutout",
    Reach.EACH_BOX,
    law=lambda level, scale: int(scale.cutout / 2 * level / 10),
)
variant(
    "BBox_Cutout",
    "Cutout",
    Reach.ONE_BOX,
    law=lambda level, scale: 0.75 * level / 10,
    accepts=Range(0, 3, "the fraction of the box's sides that is cut out"),
    numbers=share_of_box,
)


# --- the wide ranges of TrivialAugment ------------------------------------------------------------


def wide_enhancement(level: float, scale: PixelScale) -> float:
    return 1 + 0.99 * (level - 5) / 5


# Laws for levels 0 to 10 that replace those above; ops that are not here keep theirs. Rounded where
# a level such as 3.333334 stands for 10/3.
WIDE: dict[str, Law] = {
    "Rotate": lambda level, scale: round(13.5 * level, 3),
    "Posterize": lambda level, scale: 8 - round(0.6 * level),
    "ShearX": lambda level, scale: 0.099 * level,
    "ShearY": lambda level, scale: 0.099 * level,
    # Pillow inverts from a threshold on; 246.5 and 247 are the same to bytes.
    "Solarize": lambda level, scale: math.ceil(255 - 25.5 * level),
    "Color": wide_enhancement,
    "Contrast": wide_enhancement,
    "Brightness": wide_enhancement,
    "Sharpness": wide_enhancement,
}
