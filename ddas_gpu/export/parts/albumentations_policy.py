"""The policy for Albumentations."""

from __future__ import annotations

import random
from typing import Any

import albumentations as A
import numpy as np
from PIL import Image

from ddas_gpu.export.parts.constants import CANDIDATES, FILL, SIGNED, Argument
from ddas_gpu.export.parts.pillow_ops import apply
from ddas_gpu.export.parts.schedule import Schedule


class Policy(A.BaseCompose):
    """Augment uint8 images (H, W, 3); masks, boxes and key points move along.

    transform = A.Compose([A.RandomCrop(32, 32), policy := Policy(epochs=200), A.Normalize()])
    policy.set_epoch(epoch)  # before each epoch
    """

    def __init__(self, epochs: int) -> None:
        both = [(op, -argument) for op, argument in CANDIDATES if op in SIGNED]
        self._places = {candidate: n for n, candidate in enumerate([*CANDIDATES, *both])}
        self.schedule = Schedule(epochs)
        super().__init__([transform_of(*candidate) for candidate in self._places], p=1.0)

    def set_epoch(self, epoch: int) -> None:
        self.schedule.set_epoch(epoch)

    def __call__(self, *args: Any, force_apply: bool = False, **data: Any) -> dict[str, Any]:
        for candidate in self.schedule.draw(generator(self)):
            transform = self.transforms[self._places[candidate]]
            data = self.check_data_post_transform(transform(force_apply=True, **data))
        return data


def generator(transform: Any) -> Any:
    """Return the generator of a Compose with a seed, else `random`, which workers seed."""
    return random if transform.seed is None else transform.py_random


def transform_of(op: str, argument: Argument) -> Any:
    """Return one op with one argument, always applied."""
    if op in MOVES:
        return MOVES[op](argument)
    made = PillowOp(p=1.0)
    made.op, made.argument = op, argument
    return made


class PillowOp(A.ImageOnlyTransform):
    """An op that moves no pixel, with Pillow."""

    op: str
    argument: Argument
    seed = None

    def apply(self, img: np.ndarray, **params: Any) -> np.ndarray:
        image = Image.fromarray(np.ascontiguousarray(img))
        return np.array(apply(image, self.op, self.argument, generator(self)))


class Gather(A.Affine):
    """Pillow's affine map: the pixel at (x, y) comes from `back` @ (x, y, 1)."""

    nudge = 0.0  # added to where pixels come from

    def back(self, height: int, width: int) -> np.ndarray:
        return np.eye(3)

    def get_params_dependent_on_data(
        self, params: dict[str, Any], data: dict[str, Any]
    ) -> dict[str, Any]:
        back = self.back(*params["shape"][:2])
        centre = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])  # of a pixel
        nudged = back + self.nudge * np.array([[0, 0, 1], [0, 0, 1], [0, 0, 0]])
        return {
            "rotate": 0.0,
            "scale": {"x": 1.0, "y": 1.0},
            "matrix": np.linalg.inv(np.linalg.inv(centre) @ nudged @ centre),
            "bbox_matrix": np.linalg.inv(back),
            "output_shape": params["shape"][:2],
        }


class Shear(Gather):
    """Shear from the corner: the pixel at (x, y) comes from (x + a·y, y + b·x)."""

    a = b = 0.0

    def back(self, height: int, width: int) -> np.ndarray:
        return np.array([[1, self.a, 0], [self.b, 1, 0], [0, 0, 1]], np.float64)


class Zoom(Gather):
    """Zoom about the centre: neighbouring pixels come from `step` pixels apart."""

    step = 1.0
    nudge = 1 / 256  # Pillow takes the second of two pixels; its places are 1/128 apart

    def back(self, height: int, width: int) -> np.ndarray:
        left, top = (1 - self.step) * width / 2, (1 - self.step) * height / 2
        return np.array([[self.step, 0, left], [0, self.step, top], [0, 0, 1]], np.float64)


NEAREST, CONSTANT = 0, 0  # OpenCV's INTER_NEAREST and BORDER_CONSTANT
EDGES = {"interpolation": NEAREST, "border_mode": CONSTANT, "fill": FILL, "p": 1.0}


def _shear(a: float = 0.0, b: float = 0.0) -> Shear:
    made = Shear(**EDGES)
    made.a, made.b = a, b
    return made


def _shift(x: int = 0, y: int = 0) -> Any:
    # Pillow's offset says where a pixel comes from, Albumentations' where it goes.
    return A.Affine(translate_px={"x": (-x, -x), "y": (-y, -y)}, **EDGES)


def _zoom(step: float) -> Zoom:
    made = Zoom(**EDGES)
    made.step = round(64 * step) / 64
    return made


MOVES = {
    "FlipLR": lambda _: A.HorizontalFlip(p=1.0),
    "FlipUD": lambda _: A.VerticalFlip(p=1.0),
    "Rotate": lambda degrees: A.Rotate(limit=(degrees, degrees), **EDGES),
    "Rotate90": lambda _: A.Sequential([A.Transpose(p=1.0), A.VerticalFlip(p=1.0)], p=1.0),
    "ShearX": lambda amount: _shear(a=amount),
    "ShearY": lambda amount: _shear(b=amount),
    "TranslateX": lambda pixels: _shift(x=pixels),
    "TranslateY": lambda pixels: _shift(y=pixels),
    "Shrink": lambda step: _zoom(step),
    "Enlarge": lambda step: _zoom(step),
}
