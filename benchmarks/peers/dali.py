"""NVIDIA DALI's stock operators: a pipeline with the batch as its source and one operator.

The pipeline does not prefetch: it would do so while the others are timed.
"""

from __future__ import annotations

import numpy as np

from peers.common import Call, argument_of

NOT_AHEAD = {"exec_async": False, "exec_pipelined": False, "prefetch_queue_depth": 1}


def dali(name: str, images: np.ndarray, threads: int = 1, device: str = "cpu") -> Call | None:
    """Return a run of the pipeline, or None if DALI has no such op on the CPU."""
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali import types as dali_types

    operator = _operators(fn, dali_types).get(name)
    if operator is None:
        return None
    device_id = 0 if device == "cuda" else None

    @pipeline_def(batch_size=len(images), num_threads=threads, device_id=device_id, **NOT_AHEAD)
    def pipeline():
        return operator(source_of(images, device))

    built = pipeline()
    built.build()
    return built.run


def source_of(images: np.ndarray, device: str):
    """Return a source that repeats a batch on the pipeline's device; call it in the definition."""
    from nvidia.dali import fn

    place = "cpu"
    if device == "cuda":
        import cupy

        images, place = cupy.asarray(images), "gpu"
    batch = list(images)
    return fn.external_source(lambda: batch, layout="HWC", no_copy=True, device=place)


def _operators(fn, dali_types):
    value = argument_of
    nearest = {"interp_type": dali_types.INTERP_NN, "fill_value": 0}
    rotated = {**nearest, "angle": float(value("Rotate") or 0), "keep_size": True}
    shear, move = value("ShearX"), float(value("TranslateX"))
    threshold = value("Solarize")

    def warp(*matrix: float):
        return lambda data: fn.warp_affine(data, matrix=list(matrix), **nearest)

    def auto_contrast(data):
        low = fn.reductions.min(data, axis_names="HW", keep_dims=True)
        high = fn.reductions.max(data, axis_names="HW", keep_dims=True)
        return fn.cast_like((data - low) * (255 / (high - low)), data)

    smooth = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13
    centre = np.pad([[1.0]], 1).astype(np.float32)
    factor = value("Sharpness")
    ring = np.pad(np.zeros((3, 3), np.float32), 1, constant_values=1) / 16

    def filtered(kernel: np.ndarray):
        return lambda data: fn.filter(data, dali_types.Constant(kernel))

    side = value("Cutout")
    return {
        "Identity": fn.copy,
        "FlipLR": lambda data: fn.flip(data, horizontal=1),
        "FlipUD": lambda data: fn.flip(data, horizontal=0, vertical=1),
        "AutoContrast": auto_contrast,
        "Equalize": fn.equalize,
        "Invert": lambda data: fn.cast_like(255 - data, data),
        "Blur": filtered(ring),
        "Smooth": filtered(smooth),
        "Rotate": lambda data: fn.rotate(data, **rotated),
        "Posterize": lambda data: data & np.uint8(256 - 2 ** (8 - value("Posterize"))),
        "ShearX": warp(1, shear, 0, 0, 1, 0),
        "ShearY": warp(1, 0, 0, shear, 1, 0),
        "TranslateX": warp(1, 0, move, 0, 1, 0),
        "TranslateY": warp(1, 0, 0, 0, 1, move),
        "Solarize": lambda data: fn.cast_like(
            data * (data < threshold) + (255 - data) * (data >= threshold), data
        ),
        "Color": lambda data: fn.saturation(data, saturation=value("Color")),
        "Contrast": lambda data: fn.contrast(data, contrast=value("Contrast")),
        "Brightness": lambda data: fn.brightness(data, brightness=value("Brightness")),
        "Sharpness": filtered(factor * centre + (1 - factor) * smooth),
        "Cutout": lambda data: fn.erase(
            data, anchor=[0.25, 0.25], shape=[side, side], axis_names="HW", normalized_anchor=True
        ),
        "Rotate90": lambda data: fn.rotate(data, angle=90.0, keep_size=True, **nearest),
    }
