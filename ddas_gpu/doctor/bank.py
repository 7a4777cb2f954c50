"""The op bank against Pillow, and the GPU against the CPU, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ddas_gpu.doctor.checks import CannotCheck, CheckFailed, Finding, check
from ddas_gpu.doctor.machine import Machine
from ddas_gpu.doctor.pictures import batch, photograph
from ddas_gpu.ops import OPS, apply_op, augment, augment_boxes, backends
from ddas_gpu.ops.records import negated, steps_of
from ddas_gpu.ops.table import Argument, Op, PixelScale
from ddas_gpu.space import SearchSpace
from ddas_gpu.streams import draw

LEVELS = (0, 2, 6, 10, 14)
SIZES = ((33, 47), (64, 64))
CHAINS, DEPTH = 48, 3
SEED = 5


@check("op bank, CPU and Pillow")
def bank_on_cpu(machine: Machine) -> Finding:
    try:
        backends.library()
    except backends.NoCompiler as error:
        raise CannotCheck(f"the kernels cannot be built for this CPU: {error}") from error
    return against_pillow("cpu")


@check("op bank, GPU and Pillow")
def bank_on_gpu(machine: Machine) -> Finding:
    machine.need_gpu()
    return against_pillow("cuda")


@check("op bank, GPU and CPU")
def gpu_equals_cpu(machine: Machine) -> Finding:
    machine.need_gpu()
    return same_on("cpu", "cuda")


def same_on(one: str, other: str) -> Finding:
    """Compare two devices on a batch of photographs, each with its own policy."""
    space = SearchSpace.preset("imagenet")
    images = batch(64, 224, 224)
    policies = np.random.default_rng(SEED).integers(0, len(space), (len(images), DEPTH))
    results = [
        on_host(augment(on_device(images, device), policies, space, SEED))
        for device in (one, other)
    ]
    require_equal(results[0], results[1], f"a batch of policies on {other}", one)
    return Finding(f"{len(images)} images of 224×224 pixels, {DEPTH} ops each: equal")


def against_pillow(device: str) -> Finding:
    """Compare every op, chains of ops and ops on boxes with Pillow."""
    calls = 0
    for op in OPS.values():
        for argument in arguments_of(op):
            for size in SIZES:
                if op.square and size[0] != size[1]:
                    continue
                images = batch(3, *size)
                got = on_host(apply_op(on_device(images, device), op.name, argument, seed=SEED))
                require_equal(got, pillow_op(images, op, argument), f"{op.name} {argument}")
                calls += 1
    check_chains(device)
    boxes = check_boxes(device)
    text = f"{len(OPS)} ops ({calls} calls), {CHAINS} chains and {boxes} policies on boxes: equal"
    return Finding(text, {"ops": len(OPS), "calls": calls, "chains": CHAINS, "boxes": boxes})


def check_chains(device: str) -> None:
    """Compare one policy per image, for images of many sizes."""
    space = SearchSpace.preset("imagenet")
    rng = np.random.default_rng(SEED)
    images = [photograph(*map(int, rng.integers(1, 80, 2)), seed) for seed in range(CHAINS)]
    policies = rng.integers(-1, len(space), (CHAINS, DEPTH))
    got = augment([on_device(image, device) for image in images], policies, space, SEED)
    wanted = pillow_chains(images, policies, space)
    for result, want, policy in zip(got, wanted, policies, strict=True):
        names = " then ".join(str(space[i]) for i in policy if i >= 0)
        require_equal(on_host(result), want, names or "an empty policy")


def check_boxes(device: str) -> int:
    """Compare every op on boxes; return the number of policies."""
    space = SearchSpace.preset("coco")
    count = len(space)
    images = [photograph(48, 60, seed) for seed in range(count)]
    boxes = [np.array([[3.0, 4.0, 40.0, 36.0], [10.0, 2.0, 55.0, 20.0]])] * count
    labels = [np.array([0, 1])] * count
    policies = np.stack([np.arange(count), np.arange(count)[::-1]], axis=1)
    on_it = [on_device(image, device) for image in images]
    got = augment_boxes(on_it, boxes, labels, policies, space, SEED)[0]
    # The fallback for images with boxes is Pillow.
    wanted = augment_boxes(images, boxes, labels, policies, space, SEED, backend="kornia")[0]
    for result, want, policy in zip(got, wanted, policies, strict=True):
        require_equal(on_host(result), want, " then ".join(str(space[i]) for i in policy))
    return count


def require_equal(
    got: np.ndarray, wanted: np.ndarray, what: str, reference: str = "Pillow"
) -> None:
    """Raise CheckFailed with the number of bytes that differ."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    differ = int((got != wanted).sum()) if got.shape == wanted.shape else got.size
    if differ:
        raise CheckFailed(
            f"{what} differs from {reference} in {differ} of {got.size} bytes: "
            "please report it, with the file of --json"
        )


def arguments_of(op: Op) -> list[Argument]:
    """Return the op's arguments at some levels, with both signs."""
    if op.law is None:
        return [None]
    plain = [op.law(level, PixelScale()) for level in LEVELS]
    return list(dict.fromkeys([*plain, *(negated(op, each) for each in plain)]))


def pillow_op(images: np.ndarray, op: Op, argument: Argument) -> np.ndarray:
    """Apply one op with Pillow."""
    centres = draw(SEED, np.arange(len(images)), 1).centre(*images[0].shape[:2])[:, 0]
    return np.stack([_pillow(one, op, argument, c) for one, c in zip(images, centres, strict=True)])


def pillow_chains(
    images: Sequence[np.ndarray], policies: np.ndarray, space: SearchSpace
) -> Iterator[np.ndarray]:
    """Apply a policy per image with Pillow."""
    steps = steps_of(space)
    draws = draw(SEED, np.arange(len(images)), policies.shape[1])
    for i, image in enumerate(images):
        centres = draws.centre(*image.shape[:2])[i]
        for stage, choice in enumerate(policies[i]):
            if choice >= 0:
                op, argument = OPS[steps[choice][0]], steps[choice][1]
                if draws.negative[i, stage]:
                    argument = negated(op, argument)
                image = _pillow(image, op, argument, centres[stage])
        yield image


def _pillow(image: np.ndarray, op: Op, argument: Argument, centre: np.ndarray) -> np.ndarray:
    arguments: list[Any] = [] if argument is None else [argument]
    if op.centred:
        arguments.append(tuple(int(v) for v in centre))
    return np.asarray(op.pillow(Image.fromarray(image), *arguments))


def on_device(images: np.ndarray, device: str) -> Any:
    """Return a tensor on a GPU, or the array itself."""
    if device == "cpu":
        return images
    import torch

    return torch.tensor(images, device=device)


def on_host(images: Any) -> np.ndarray:
    """Return an array, whatever `on_device` has made."""
    return images if isinstance(images, np.ndarray) else images.cpu().numpy()
