"""albumentations 2.0.8: a transform called directly, not through Compose.

With p=1, fixed parameters, one OpenCV thread (threads go over images, as for the others) and
nearest-neighbour interpolation like Pillow's.
"""

from __future__ import annotations

import math
import os
import warnings

import numpy as np

from peers.common import Call, argument_of, for_each

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would look for a newer version on the network


def albumentations(name: str, images: np.ndarray, threads: int = 1) -> Call | None:
    """Apply the nearest transform to every image of the batch."""
    transform = _transform(name)
    if transform is None:
        return None
    return for_each(images, lambda image: transform(image=image), threads)


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
            num_holes_range=(1, 1),
            hole_height_range=(value, value),
            hole_width_range=(value, value),
            p=1,
        ),
        "Rotate90": lambda: A.RandomRotate90(p=1),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return makers[name]() if name in makers else None
