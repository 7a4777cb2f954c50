"""The policy of an epoch as an Albumentations transform, and as its JSON.

Ops that Albumentations has become its own transforms; `differences.ALBUMENTATIONS` bounds how far
those are from ours. The others call our ops under names such as "ddas_gpu ShearX 0.18", because
Albumentations' op of that name differs too much (by up to 64 of 255 levels for AutoContrast, 22
for Equalize) or does not exist (Pillow's Blur and Smooth, shears from the corner). A file with
such calls is read by `load_albumentations`, which needs this package.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddas_gpu.export.filled import apply_filled
from ddas_gpu.files import write_atomically
from ddas_gpu.ops.table import Argument, find
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import SearchSpace

if TYPE_CHECKING:
    import albumentations

PREFIX = "ddas_gpu"


def albumentations_policy(
    schedule: PolicySchedule, epoch: int, total_epochs: int
) -> albumentations.Compose:
    """Return the transform for `epoch` of a training of `total_epochs`: image=uint8 (H, W, 3).

    With probability p_tp it applies N_o candidates, each drawn from p_o with a random sign.
    """
    A = _albumentations()
    apply_probability, probabilities = schedule.at(epoch, total_epochs)
    space = schedule.space

    def stage() -> Any:
        candidates = [
            _candidate(space, index, float(probability))
            for index, probability in enumerate(probabilities)
            if probability > 0
        ]
        # OneOf needs two to choose from.
        return A.OneOf(candidates, p=1.0) if len(candidates) > 1 else candidates[0]

    stages = [stage() for _ in range(space.depth)]
    return A.Compose([A.Sequential(stages, p=apply_probability)])


def save_albumentations(
    schedule: PolicySchedule, path: str | Path, epoch: int, total_epochs: int
) -> None:
    """Write the transform of an epoch as Albumentations' JSON."""
    A = _albumentations()
    content = A.to_dict(albumentations_policy(schedule, epoch, total_epochs))
    write_atomically(path, json.dumps(content, indent=1).encode() + b"\n")


def load_albumentations(path: str | Path) -> albumentations.Compose:
    """Read what `save_albumentations` wrote."""
    A = _albumentations()
    try:
        content = json.loads(Path(path).read_bytes())
        ours = {name: _from_name(name) for name in _names(content)}
        return A.from_dict(content, nonserializable=ours)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not an exported policy: {error}") from None


def _albumentations() -> Any:
    try:
        import albumentations
    except ImportError as error:
        raise ValueError(f"exporting to Albumentations needs it installed: {error}") from None
    return albumentations


def _candidate(space: SearchSpace, index: int, probability: float) -> Any:
    """Return a transform that OneOf draws with weight `probability`."""
    A = _albumentations()
    op, argument = space[index].op, space.argument(index)
    if find(op).signed and argument:
        both = [transform_of(op, signed, space.fill) for signed in (argument, -argument)]
        return A.OneOf(both, p=probability)
    # In a Sequential, because the JSON does not keep the probability of our Lambdas.
    return A.Sequential([transform_of(op, argument, space.fill)], p=probability)


def transform_of(op: str, argument: Argument, fill: int = 0) -> Any:
    """Return one op at one argument, always applied; `fill` is the grey from outside the image."""
    A = _albumentations()
    if op in MOVING:
        return MOVING[op](A, argument, {"fill": fill, **EDGES})
    if op in OWN:
        return OWN[op](A, argument)
    fill = fill if find(op).fills else 0
    name = " ".join([PREFIX, op, *map(repr, [] if argument is None else [argument])])
    name += f" fill {fill}" if fill else ""
    call = partial(_apply, op=op, argument=argument, fill=fill)
    return A.Lambda(image=call, name=name, p=1.0)


def _apply(image: np.ndarray, op: str, argument: Argument, fill: int, **_: Any) -> np.ndarray:
    # Cutout draws its position from NumPy's global state, which DataLoader workers seed.
    seed = int(np.random.randint(2**31)) if find(op).centred else 0  # noqa: NPY002
    return apply_filled([np.ascontiguousarray(image)], op, [argument], fill, seed)[0]


def _names(content: Any) -> Iterator[str]:
    """Yield the names of our transforms anywhere in the JSON."""
    if isinstance(content, dict):
        if "__name__" in content:
            yield content["__name__"]
        content = list(content.values())
    if isinstance(content, list):
        for part in content:
            yield from _names(part)


def _from_name(name: str) -> Any:
    words, _, fill = name.partition(" fill ")
    prefix, op, *argument = words.split(" ")
    if prefix != PREFIX or len(argument) > 1:
        raise ValueError(f"the transform {name!r} is not one of ours")
    number = json.loads(argument[0]) if argument else None
    return transform_of(op, find(op).check(number), int(fill or 0))


# --- the ops that Albumentations has --------------------------------------------------------------

NEAREST, CONSTANT = 0, 0  # OpenCV's INTER_NEAREST and BORDER_CONSTANT
EDGES = {"interpolation": NEAREST, "border_mode": CONSTANT, "p": 1.0}


def _jitter(A: Any, **changed: float) -> Any:
    kept = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0} | changed
    return A.ColorJitter(**{name: (value, value) for name, value in kept.items()}, p=1.0)


def _shift(A: Any, edges: dict[str, Any], x: int = 0, y: int = 0) -> Any:
    # Pillow's offset says where a pixel comes from, Albumentations' where it goes.
    return A.Affine(translate_px={"x": (-x, -x), "y": (-y, -y)}, **edges)


# Arguments are those that `Op.check` accepted: None only for ops without one.
OWN: dict[str, Callable[[Any, Any], Any]] = {
    "Identity": lambda A, _: A.NoOp(p=1.0),
    "FlipLR": lambda A, _: A.HorizontalFlip(p=1.0),
    "FlipUD": lambda A, _: A.VerticalFlip(p=1.0),
    "Invert": lambda A, _: A.InvertImg(p=1.0),
    "Posterize": lambda A, bits: A.Posterize(num_bits=bits, p=1.0),
    "Solarize": lambda A, threshold: (
        # The threshold is a fraction of 255; ours of 256 inverts nothing.
        A.Solarize(threshold_range=(threshold / 255, threshold / 255), p=1.0)
        if threshold <= 255
        else A.NoOp(p=1.0)
    ),
    "Color": lambda A, factor: _jitter(A, saturation=factor),
    "Contrast": lambda A, factor: _jitter(A, contrast=factor),
    "Brightness": lambda A, factor: _jitter(A, brightness=factor),
    "Rotate90": lambda A, _: A.Sequential([A.Transpose(p=1.0), A.VerticalFlip(p=1.0)], p=1.0),
}

# Those with pixels from outside the image: the last argument says how to fill them.
MOVING: dict[str, Callable[[Any, Any, dict[str, Any]], Any]] = {
    "Rotate": lambda A, degrees, edges: A.Rotate(limit=(degrees, degrees), **edges),
    "TranslateX": lambda A, pixels, edges: _shift(A, edges, x=pixels),
    "TranslateY": lambda A, pixels, edges: _shift(A, edges, y=pixels),
}
