"""Models by name, and the task of each."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from ddas_gpu.models.resnet import DEPTHS, ResNet
from ddas_gpu.models.retinanet import RetinaNet
from ddas_gpu.models.shake_shake import ShakeShake
from ddas_gpu.models.small import SmallResNet
from ddas_gpu.models.wide_resnet import WideResNet

CLASSIFICATION, DETECTION = "classification", "detection"


class Family(NamedTuple):
    """Models whose names match `pattern`; its groups are numbers that `make` takes."""

    pattern: str
    task: str
    make: Callable[..., nn.Module]  # of num_classes and the numbers in the name
    examples: str


FAMILIES = (
    Family("small", CLASSIFICATION, SmallResNet, "small"),
    Family(
        r"wrn-(\d+)-(\d+)",
        CLASSIFICATION,
        lambda n, depth, width: WideResNet(depth, width, n),
        "wrn-DEPTH-WIDTH (wrn-40-2, wrn-28-10, ...)",
    ),
    Family(
        r"resnet-(\d+)",
        CLASSIFICATION,
        lambda n, depth: ResNet(depth, n),
        ", ".join(f"resnet-{depth}" for depth in DEPTHS),
    ),
    Family(
        r"shake-shake-(\d+)-2x(\d+)d",
        CLASSIFICATION,
        lambda n, depth, width: ShakeShake(depth, width, n),
        "shake-shake-26-2x96d",
    ),
    Family(
        r"retinanet-r(\d+)",
        DETECTION,
        lambda n, depth: RetinaNet(depth, n),
        ", ".join(f"retinanet-r{depth}" for depth in DEPTHS) + " (detection)",
    ),
)


def build(name: str, num_classes: int) -> nn.Module:
    """Return a new model, images (N, 3, H, W) -> logits (N, num_classes); see `RetinaNet` as well.

    `name` is one of `FAMILIES`, or "package.module:function" for a function(num_classes) that
    returns the model.

    >>> sum(weights.numel() for weights in build("wrn-40-2", num_classes=10).parameters())
    2243546
    """
    if num_classes < 1:
        raise ValueError(f"a model needs at least one class, got num_classes={num_classes}")
    if ":" in name:
        return _import(name)(num_classes)
    family, numbers = _find(name)
    return family.make(num_classes, *numbers)


def task_of(name: str) -> str | None:
    """Return the task of a model, or None for "package.module:function", which may have any.

    >>> task_of("retinanet-r50")
    'detection'
    """
    return None if ":" in name else _find(name)[0].task


def _find(name: str) -> tuple[Family, list[int]]:
    """Return the family of a name and the numbers in it."""
    for family in FAMILIES:
        match = re.fullmatch(family.pattern, name)
        if match:
            return family, [int(number) for number in match.groups()]
    known = ", ".join(family.examples for family in FAMILIES)
    raise ValueError(f"unknown model {name!r}; there are: {known}, or your own as module:function")


def _import(name: str) -> Callable[[int], nn.Module]:
    """Import the function of "package.module:function"."""
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise ValueError(f"model {name!r}: cannot import {module_name!r}: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(f"model {name!r}: {module_name} has no function {function_name!r}")
    return function
