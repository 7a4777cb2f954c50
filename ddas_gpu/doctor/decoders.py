"""JPEGs through each decoder: Pillow, DALI on the CPU, DALI on the GPU."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import numpy as np
from PIL import Image

from ddas_gpu.doctor.checks import CannotCheck, CheckFailed, Finding, check
from ddas_gpu.doctor.machine import Machine, advice
from ddas_gpu.doctor.pictures import jpeg, photograph

SIZE = (375, 500)
MOST_ON_AVERAGE = 1.0  # levels; decoders round differently, but show the same image


@check("JPEG decoders, DALI on the CPU and Pillow")
def decoders_on_cpu(machine: Machine) -> Finding:
    return compare_decoders("cpu")


@check("JPEG decoders, DALI on the GPU and Pillow")
def decoders_on_gpu(machine: Machine) -> Finding:
    machine.need_gpu()
    return compare_decoders("mixed")


def compare_decoders(device: str) -> Finding:
    """Decode a photograph with DALI and with Pillow; say how they differ."""
    encoded = jpeg(photograph(*SIZE))
    wanted = np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))
    got = decode_with_dali(encoded, device)
    if got.shape != wanted.shape:
        raise CheckFailed(f"DALI decodes {got.shape} where Pillow decodes {wanted.shape}")
    difference = np.abs(got.astype(int) - wanted)
    share, most = float(difference.any(axis=-1).mean()), int(difference.max())
    if difference.mean() > MOST_ON_AVERAGE:
        raise CheckFailed(
            f"DALI decodes another image than Pillow: {difference.mean():.1f} levels apart on "
            "average; take a DALI version of constraints.txt"
        )
    text = "equal" if most == 0 else f"{share:.1%} of the pixels differ, by at most {most} levels"
    return Finding(text, {"share of pixels": share, "largest difference": most})


def decode_with_dali(encoded: bytes, device: str) -> np.ndarray:
    """Decode as the pipelines do; `device` is "cpu" or "mixed"."""
    try:
        dali = import_module("nvidia.dali")
        fn, types = import_module("nvidia.dali.fn"), import_module("nvidia.dali.types")
    except ImportError as error:
        raise CannotCheck(f"DALI is missing: {advice()}") from error
    number = None if device == "cpu" else 0
    pipeline: Any = dali.Pipeline(batch_size=1, num_threads=1, device_id=number, exec_dynamic=True)
    with pipeline:
        source = fn.external_source(lambda: [np.frombuffer(encoded, np.uint8)])
        images = fn.decoders.image(
            source, device=device, output_type=types.RGB, jpeg_fancy_upsampling=True
        )
        pipeline.set_outputs(images)
    pipeline.build()
    (images,) = pipeline.run()
    return np.array((images if device == "cpu" else images.as_cpu()).at(0))
