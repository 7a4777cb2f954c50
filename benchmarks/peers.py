"""How the peers are called: each the fastest documented way to the nearest equivalent of an op.

All get the same uint8 arrays and return arrays. Pillow wraps and unwraps each image, as a data
loader does (`Image.fromarray`, `np.asarray`); "Pillow, no arrays" leaves that out, for those whose
images are Pillow's already. albumentations' transforms are called directly, not through Compose,
with p=1, fixed parameters, one OpenCV thread and nearest-neighbour interpolation like Pillow's.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable

import numpy as np
from PIL import Image

from ddas_gpu.ops.table import OPS, Argument, PixelScale

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would look for a newer version on the network

LEVEL = 6
Call = Callable[[], object]


def argument_of(name: str) -> Argument:
    law = OPS[name].law
    return None if law is None else law(LEVEL, PixelScale())


def _pillow_call(name: str, size: tuple[int, int]) -> Callable[[Image.Image], Image.Image]:
    op, argument = OPS[name], argument_of(name)
    arguments = () if argument is None else (argument,)
    if op.centred:
        arguments = (*arguments, (size[1] // 2, size[0] // 2))
    return lambda image: op.pillow(image, *arguments)


def pillow(name: str, images: np.ndarray) -> Call:
    """The op's definition on every image of the batch, from array to array."""
    apply = _pillow_call(name, images.shape[1:3])

    def call() -> None:
        for image in images:
            np.asarray(apply(Image.fromarray(image)))

    return call


def pillow_without_arrays(name: str, images: np.ndarray) -> Call:
    """The op's definition on every image of the batch, from PIL image to PIL image."""
    apply = _pillow_call(name, images.shape[1:3])
    pictures = [Image.fromarray(image) for image in images]

    def call() -> None:
        for picture in pictures:
            apply(picture)

    return call


def albumentations(name: str, images: np.ndarray) -> Call:
    """The nearest transform of albumentations on every image of the batch."""
    transform = _transform(name)

    def call() -> None:
        for image in images:
            transform(image=image)

    return call


def _transform(name: str):
    import albumentations as A
    import cv2

    cv2.setNumThreads(1)
    nearest = {"interpolation": cv2.INTER_NEAREST}
    value = argument_of(name)
    still = {"brightness": (1, 1), "contrast": (1, 1), "saturation": (1, 1), "hue": (0, 0)}

    def shear(axis: str):
        degrees = math.degrees(math.atan(value))
        return A.Affine(shear={axis: (degrees, degrees)}, **nearest, p=1)

    def translate(axis: str):
        return A.Affine(translate_px={axis: (value, value)}, **nearest, p=1)

    makers = {
        "Identity": lambda: A.NoOp(p=1),
        "FlipLR": lambda: A.HorizontalFlip(p=1),
        "FlipUD": lambda: A.VerticalFlip(p=1),
        "AutoContrast": lambda: A.AutoContrast(method="cdf", p=1),
        "Equalize": lambda: A.Equalize(mode="cv", p=1),
        "Invert": lambda: A.InvertImg(p=1),
        "Blur": lambda: A.Blur(blur_limit=(5, 5), p=1),
        "Smooth": lambda: A.Blur(blur_limit=(3, 3), p=1),
        "Rotate": lambda: A.Rotate(limit=(value, value), **nearest, p=1),
        "Posterize": lambda: A.Posterize(num_bits=value, p=1),
        "ShearX": lambda: shear("x"),
        "ShearY": lambda: shear("y"),
        "TranslateX": lambda: translate("x"),
        "TranslateY": lambda: translate("y"),
        "Solarize": lambda: A.Solarize(threshold_range=(value / 255, value / 255), p=1),
        "Color": lambda: A.ColorJitter(**{**still, "saturation": (value, value)}, p=1),
        "Contrast": lambda: A.ColorJitter(**{**still, "contrast": (value, value)}, p=1),
        "Brightness": lambda: A.ColorJitter(**{**still, "brightness": (value, value)}, p=1),
        "Sharpness": lambda: A.Sharpen(alpha=(0.5, 0.5), lightness=(1, 1), kernel_size=3, p=1),
        "Cutout": lambda: A.CoarseDropout(
            num_holes_range=(1, 1), hole_height_range=(value, value),
            hole_width_range=(value, value), p=1,
        ),
        "Rotate90": lambda: A.RandomRotate90(p=1),
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return makers[name]()


PEERS = {"Pillow": pillow, "albumentations": albumentations}
WITHOUT_ARRAYS = "Pillow, no arrays"
