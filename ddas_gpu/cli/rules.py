"""What the value of a flag must be like, for all commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rule:
    """A condition on some flags."""

    flags: tuple[str, ...]
    holds: Callable[[Any], bool]
    """Written so that NaN fails, too."""
    words: str


RULES = (
    Rule(
        (
            "anchor_scale",
            "batch_size",
            "checkpoint_seconds",
            "classes",
            "depth",
            "epochs",
            "evaluate_every",
            "image_size",
            "lr",
            "lr_apply",
            "lr_ops",
            "policies",
            "randaugment_ops",
            "repeats",
            "seeds",
            "smoothing",
            "test_batch_size",
            "threads",
            "timeout",
            "train_images",
            "val_batch_size",
            "val_images",
        ),
        lambda value: value > 0,
        "must be above 0",
    ),
    Rule(
        (
            "clip_grad_norm",
            "cutout",
            "padding",
            "seed",
            "warmup_epochs",
            "weight_decay",
            "workers",
        ),
        lambda value: value >= 0,
        "cannot be negative",
    ),
    Rule(
        ("scale", "test_share", "train_share"),
        lambda value: 0 < value <= 1,
        "is a share above 0 and up to 1",
    ),
    Rule(("apply_probability",), lambda value: 0 < value < 1, "lies between 0 and 1"),
    Rule(("fixed_apply_probability",), lambda value: 0 <= value <= 1, "lies in [0, 1]"),
    Rule(
        (
            "label_smoothing",
            "momentum",
            "moving_average",
            "uniform_share",
            "val_memory",
            "val_share",
        ),
        lambda value: 0 <= value < 1,
        "lies in [0, 1)",
    ),
    Rule(("randaugment_level",), lambda value: 0 <= value <= 30, "is a level from 0 to 30"),
    Rule(
        ("adam_betas",),
        lambda values: all(0 <= value < 1 for value in values),
        "lie in [0, 1)",
    ),
    Rule(("memory",), lambda value: bytes_of(value) is not None, "is a size such as 8GB"),
    Rule(
        ("lr_steps",),
        lambda values: all(value >= 0 for value in values),
        "cannot be negative",
    ),
)


def bytes_of(text: str) -> int | None:
    """Return the bytes of a size such as 8GB, 500 MB or 2GiB; None if it is not one.

    >>> bytes_of("1.5 kB"), bytes_of("2GiB"), bytes_of("much")
    (1500, 2147483648, None)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)B?\s*", text)
    if found is None or float(found[1]) == 0:
        return None
    power = " kMGT".index(found[2] or " ")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)


def flag(name: str) -> str:
    """Return the flag of a setting: "lr_ops" is --lr-ops."""
    return f"--{name.replace('_', '-')}"


def as_keywords(message: str, names: Container[str]) -> str:
    """Return a message with settings under their names in Python; other flags stay as they are.

    >>> names = {"batch_size", "lr_ops"}
    >>> as_keywords("--batch-size 16 is too large, or try a smaller --lr-ops than --root", names)
    'batch_size=16 is too large, or try a smaller lr_ops than --root'
    """

    def keyword(found: re.Match[str]) -> str:
        name, value = found[1].replace("-", "_"), found[2]
        return found[0] if name not in names else f"{name}=" if value else name

    return re.sub(r"--([a-z]+(?:-[a-z]+)*)( (?=-?\d|[('\[]|True|False|None))?", keyword, message)


def check_rules(values: dict[str, Any]) -> None:
    """Raise a ValueError for the first value that breaks its rule; None is never wrong."""
    for rule in RULES:
        for name in rule.flags:
            value = values.get(name)
            if value is not None and not rule.holds(value):
                raise ValueError(f"{flag(name)} {rule.words}, not {value}")
