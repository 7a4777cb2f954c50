"""Models by name, and the task of each."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ddas_gpu.models.resnet import DEPTHS, ResNet
from ddas_gpu.models.retinanet import RetinaNet, SmallRetinaNet
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
    Family("retinanet-small", DETECTION, SmallRetinaNet, "retinanet-small"),
    Family(
        r"retinanet-r(\d+)",
        DETECTION,
        lambda n, depth: RetinaNet(depth, n),
        ", ".join(f"retinanet-r{depth}" for depth in DEPTHS) + " (detection)",
    ),
)


def build(name: str, num_classes: int) -> nn.Module:
    """Return a new model, images (N, 3, H, W) -> logits (N, num_classes); see `RetinaNet` as well.

    `name` is one of `FAMILIES`, or "package.module:Net" for a class or function that is called with
    the number of classes and returns the model.

    >>> sum(weights.numel() for weights in build("wrn-40-2", num_classes=10).parameters())
    2243546
    """
    if num_classes < 1:
        raise ValueError(f"a model needs at least one class, got num_classes={num_classes}")
    if is_own(name):
        return _make_own(name, num_classes)
    family, numbers = _find(name)
    return family.make(num_classes, *numbers)


def is_own(name: str) -> bool:
    """Return whether a name is that of a user's own model, "package.module:Net"."""
    return ":" in name


def task_of(name: str) -> str | None:
    """Return the task of a model, or None for "package.module:Net", which may have any.

    >>> task_of("retinanet-r50")
    'detection'
    """
    return None if is_own(name) else _find(name)[0].task


def _find(name: str) -> tuple[Family, list[int]]:
    """Return the family of a name and the numbers in it."""
    for family in FAMILIES:
        match = re.fullmatch(family.pattern, name)
        if match:
            return family, [int(number) for number in match.groups()]
    known = ", ".join(family.examples for family in FAMILIES)
    raise ValueError(f"unknown model {name!r}; there are: {known}, or your own, module:Net")


def _make_own(name: str, num_classes: int) -> nn.Module:
    """Import and call "package.module:Net"; raise a ValueError if it is not what is asked for."""
    make, call = _import(name), f"{name.partition(':')[2]}({num_classes})"
    if isinstance(make, nn.Module):
        raise ValueError(
            f"model {name!r} is a network already: name its class, or a function that returns it"
        )
    try:
        inspect.signature(make).bind(num_classes)
    except TypeError as error:
        raise ValueError(
            f"model {name!r} must take the number of classes alone, {call}: {error}"
        ) from None
    except ValueError:  # a builtin that has no signature
        pass
    model = _of_user(f"model {name!r}: {call}", make, num_classes)
    if not isinstance(model, nn.Module):
        raise ValueError(f"model {name!r}: {call} returned {_kind(model)}, not a torch.nn.Module")
    return model


def require_logits(name: str, model: nn.Module, images: torch.Tensor, num_classes: int) -> None:
    """Raise a ValueError if a user's own model does not make (N, num_classes) of images."""
    outputs = try_out(name, model, images)
    if not isinstance(outputs, torch.Tensor) or outputs.shape != (len(images), num_classes):
        raise ValueError(
            f"model {name!r} makes {_kind(outputs)} of images {tuple(images.shape)}, not logits "
            f"{(len(images), num_classes)}, one for each of the {num_classes} classes"
        )


def try_out(name: str, model: nn.Module, images: torch.Tensor) -> Any:
    """Return the outputs of a user's own model, whose state and torch's generators stay."""
    training = model.training
    devices = [images.device] if images.is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(devices):
        outputs = _of_user(f"model {name!r} on images {tuple(images.shape)}", model.eval(), images)
    model.train(training)
    return outputs


def _of_user(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function; raise a ValueError that names the line it failed in."""
    try:
        return function(*arguments)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        torchs = f"{os.sep}torch{os.sep}"
        own = [f for f in frames if f.filename != __file__ and torchs not in f.filename]
        place = f" in {Path(own[-1].filename).name}, line {own[-1].lineno}" if own else ""
        raise ValueError(f"{what} failed{place}: {type(error).__name__}: {error}") from error


def _kind(value: Any) -> str:
    """Return the type of a value, of a tensor its shape."""
    if isinstance(value, torch.Tensor):
        return f"a tensor {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def _import(name: str) -> Callable[..., Any]:
    """Import what "package.module:Net" names, also from the working directory."""
    module_name, _, function_name = name.partition(":")
    if not {"", os.getcwd()} & set(sys.path):  # as `python -m` has it, but not the command `ddas`
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        reason = (
            str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        )
        raise ValueError(f"model {name!r}: cannot import {module_name!r}: {reason}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        near = difflib.get_close_matches(function_name, vars(module), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"model {name!r}: {module_name} has no class or function {function_name!r}{hint}"
        )
    return function
