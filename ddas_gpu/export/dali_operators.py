"""Our ops in DALI's operators, with Pillow's conventions: nearest neighbours, one grey outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali.auto_aug import augmentations
from nvidia.dali.auto_aug.core import augmentation
from nvidia.dali.pipeline import do_not_convert

from ddas_gpu.export.filled import apply_filled
from ddas_gpu.ops.table import Argument, find


def augmentation_of(op: str, arguments: Sequence[Argument], fill: int = 0) -> Any:
    """Return an op with its arguments as magnitude bins; DALI draws the sign of signed ops.

    fill: the grey of pixels from outside the image, and of Cutout's holes.
    """
    declared = find(op)
    if op in MOVING:
        moving, parameter = MOVING[op]
        function = moving(fill)
    else:
        function, parameter = OWN.get(op, (_ours(op, fill), float))
    if declared.law is None:
        return augmentation(function, name=op)
    return augmentation(
        function,
        mag_range=np.array(arguments, dtype=np.float64),
        randomly_negate=declared.signed,
        mag_to_param=parameter,
        # Parameters of these ops are operands, which must be on the device of the data.
        param_device="auto" if op in OPERANDS else "cpu",
        name=op,
    )


def _ours(op: str, fill: int) -> Callable[..., Any]:
    """Return a node that calls our own op, which is exact."""
    takes_argument = find(op).law is not None

    @do_not_convert
    def batch(images: list[Any], *arguments: list[Any]) -> list[Any]:
        seed = int(np.random.randint(2**31)) if find(op).centred else 0  # noqa: NPY002
        numbers: list[Any] = [None] * len(images)
        if arguments:
            numbers = [float(argument) for argument in arguments[0]]
        return apply_filled([_contiguous(image) for image in images], op, numbers, fill, seed)

    def node(data: Any, argument: Any) -> Any:
        inputs = (data, argument) if takes_argument else (data,)
        return fn.python_function(
            *inputs,
            function=batch,
            batch_processing=True,
            output_layouts="HWC",
            device=data.device or "cpu",
        )

    return node


def _contiguous(image: Any) -> Any:
    return np.ascontiguousarray(image) if isinstance(image, np.ndarray) else image


# --- DALI's own -----------------------------------------------------------------------------------


def _warp(fill: int) -> Callable[..., Any]:
    def warp(data: Any, matrix: Any) -> Any:
        return fn.warp_affine(
            data,
            matrix=matrix,
            inverse_map=True,
            fill_value=float(fill),
            interp_type=types.INTERP_NN,
        )

    return warp


def _rotate(fill: int) -> Callable[..., Any]:
    def rotate(data: Any, degrees: Any) -> Any:
        return fn.rotate(
            data,
            angle=degrees,
            keep_size=True,
            fill_value=float(fill),
            interp_type=types.INTERP_NN,
        )

    return rotate


def _flip_lr(data: Any, _: Any) -> Any:
    return fn.flip(data, horizontal=1, vertical=0)


def _flip_ud(data: Any, _: Any) -> Any:
    return fn.flip(data, horizontal=0, vertical=1)


def _rotate90(data: Any, _: Any) -> Any:
    transposed = fn.transpose(data, perm=[1, 0, 2], transpose_layout=False, output_layout="HWC")
    return fn.flip(transposed, horizontal=0, vertical=1)


def _brightness(data: Any, factor: Any) -> Any:
    return fn.brightness(data, brightness=factor)


def _filter(data: Any, kernel: Any) -> Any:
    return fn.filter(data, kernel)


def _smooth(data: Any, _: Any) -> Any:
    return fn.filter(data, types.Constant(SMOOTH, device=data.device or "cpu"))


def _blur(data: Any, _: Any) -> Any:
    return fn.filter(data, types.Constant(BLUR, device=data.device or "cpu"))


SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13
BLUR = np.pad(np.zeros((3, 3), np.float32), 1, constant_values=1) / 16
ONE = np.pad(np.ones((1, 1), np.float32), 1)


def _matrix(row: int, column: int) -> Callable[[float], np.ndarray]:
    """Return a map of the argument to an affine matrix, output pixel → input pixel."""

    @do_not_convert
    def matrix(argument: float) -> np.ndarray:
        entries = np.eye(2, 3, dtype=np.float32)
        entries[row, column] = argument
        return entries

    return matrix


@do_not_convert
def _sharpening(factor: float) -> np.ndarray:
    return np.float32(factor) * ONE + np.float32(1 - factor) * SMOOTH


# op: (function of data and parameter, map of the argument to the parameter)
OWN: dict[str, tuple[Callable[..., Any], Callable[[float], Any]]] = {
    "Identity": (augmentations.identity.op, float),
    "FlipLR": (_flip_lr, float),
    "FlipUD": (_flip_ud, float),
    "AutoContrast": (augmentations.auto_contrast.op, float),
    "Invert": (augmentations.invert.op, float),
    "Blur": (_blur, float),
    "Smooth": (_smooth, float),
    "Posterize": (augmentations.posterize.op, augmentations.poster_mask_uint8),
    "Solarize": (augmentations.solarize.op, np.int16),
    "Color": (augmentations.color.op, np.float32),
    "Contrast": (augmentations.contrast.op, np.float32),
    "Brightness": (_brightness, np.float32),
    "Sharpness": (_filter, _sharpening),
    "Rotate90": (_rotate90, float),
}
# Those with pixels from outside the image: the function is made for a fill value.
MOVING: dict[str, tuple[Callable[[int], Callable[..., Any]], Callable[[float], Any]]] = {
    "Rotate": (_rotate, np.float32),
    "ShearX": (_warp, _matrix(0, 1)),
    "ShearY": (_warp, _matrix(1, 0)),
    "TranslateX": (_warp, _matrix(0, 2)),
    "TranslateY": (_warp, _matrix(1, 2)),
}
OPERANDS = ("Posterize", "Solarize", "Sharpness")
