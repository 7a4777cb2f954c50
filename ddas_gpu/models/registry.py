"""Models by name."""

import importlib
import re
from collections.abc import Callable

from torch import nn

from ddas_gpu.models.resnet import DEPTHS, ResNet
from ddas_gpu.models.retinanet import RetinaNet
from ddas_gpu.models.shake_shake import ShakeShake
from ddas_gpu.models.small import SmallResNet
from ddas_gpu.models.wide_resnet import WideResNet

# A name's pattern, and the model that the number n of classes and its own numbers give.
_FAMILIES: list[tuple[str, Callable[..., nn.Module]]] = [
    (r"small", SmallResNet),
    (r"wrn-(\d+)-(\d+)", lambda n, depth, width: WideResNet(depth, width, n)),
    (r"resnet-(\d+)", lambda n, depth: ResNet(depth, n)),
    (
        r"shake-shake-(\d+)-2x(\d+)d",
        lambda n, depth, width: ShakeShake(depth, width, n),
    ),
    (r"retinanet-r(\d+)", lambda n, depth: RetinaNet(depth, n)),
]

_SPOKEN = (
    "small, wrn-DEPTH-WIDTH (wrn-40-2, wrn-28-10, ...), "
    + ", ".join(f"resnet-{depth}" for depth in DEPTHS)
    + ", shake-shake-26-2x96d, "
    + ", ".join(f"retinanet-r{depth}" for depth in DEPTHS)
    + " (detection), or your own as module:function"
)


def build(name: str, num_classes: int) -> nn.Module:
    """A new model, images (N, 3, H, W) -> logits (N, num_classes); see `RetinaNet` for detectors.

    `name` is one of ours, or "package.module:function", where function(num_classes) gives the
    model.

    >>> build("wrn-40-2", num_classes=10)
    """
    if num_classes < 1:
        raise ValueError(f"a model needs at least one class, got num_classes={num_classes}")
    if ":" in name:
        return _import(name)(num_classes)
    for pattern, make in _FAMILIES:
        match = re.fullmatch(pattern, name)
        if match:
            return make(num_classes, *map(int, match.groups()))
    raise ValueError(f"unknown model {name!r}; there are: {_SPOKEN}")


def _import(name: str) -> Callable[[int], nn.Module]:
    """The user's function behind "package.module:function"."""
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise ValueError(f"model {name!r}: cannot import {module_name!r}: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(f"model {name!r}: {module_name} has no function {function_name!r}")
    return function
