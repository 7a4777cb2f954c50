"""Every number of a training, in groups, and the paper's recipes that fill them.

As in `ddas_gpu.search.settings` the dataclasses are the command line, and there is no torch here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ddas_gpu.cli.grouped_settings import GroupedSettings
from ddas_gpu.search import settings
from ddas_gpu.search.settings import DataName


@dataclass(frozen=True)
class DataSettings:
    """The data, and its standard transform."""

    data: DataName = "digits"
    """The data set; its recipe fills the defaults of all flags below."""
    scale: float = 1.0
    """A try-out of the recipe: this share of the images and epochs, on a small network."""
    root: Path | None = None
    """Where it lies; without this $DDAS_DATA/NAME, then data/NAME."""
    test_root: Path | None = None
    """Test images in another folder; without this ROOT/test or ROOT/val, on COCO val2017."""
    train_share: float = 1.0
    """Use only this share of the training images, the classes in their proportions; on COCO any
    images."""
    test_share: float = 1.0
    """Use only this share of the test images."""
    svhn_extra: bool = False
    """Train on SVHN's extra_32x32.mat, too."""
    bad_files: Literal["stop", "skip", "trust"] = "stop"
    """Look through all image files first and stop at unreadable ones, or skip them; or do not."""
    image_size: int = 16
    """Pixels a side that the network sees; the shorter side with --resize keep-ratio."""
    resize: Literal["square", "keep-ratio"] = "square"
    """Detection: make images square, or keep their shape, the longer side at most 5/3 of the
    shorter."""
    drop_empty: bool = False
    """Detection: leave out the training images without boxes."""
    crop: Literal["pad", "resized"] = "pad"
    """Pad and shift small images, or crop and scale a random part of large ones."""
    padding: int = 0
    """Pixels of black to shift into, with --crop pad."""
    flip: bool = False
    """Mirror half of the training images."""
    cutout: int = 0
    """Side of the hole cut into every training image; 0 for none."""


@dataclass(frozen=True)
class PolicySettings:
    """The augmentation policy."""

    policy: str = "none"
    """A policy.json that a search wrote, released:cifar10, released:cifar100, or one of: none,
    uniform, randaugment, trivialaugment."""
    fixed_apply_probability: float | None = None
    """Augment with this probability in all epochs, whatever the policy's p_tp (an ablation)."""
    static: Literal["last", "last-apply", "last-ops"] | None = None
    """Keep the policy of the last epoch from the first on: all of it, only p_tp, or only p_o."""
    randaugment_ops: int = 2
    """Ops an image, with --policy randaugment."""
    randaugment_level: float = 9.0
    """Level of all ops, with --policy randaugment; 10 is AutoAugment's maximum."""
    released_root: Path | None = None
    """Folder of the authors' .npy files; without this $DDAS_DATA/released_policies, then
    data/released_policies."""


@dataclass(frozen=True)
class TrainingSettings:
    """The network and its training."""

    model: str = "small"
    """The network: small, wrn-28-10, shake-shake-26-2x96d, resnet-50 …, retinanet-r50 …, or
    module:function."""
    backbone: Path | None = None
    """Detection: a file with ImageNet weights of the ResNet inside."""
    frozen_norm: bool = False
    """Detection: keep the batch norms' statistics, scales and shifts as they are in --backbone."""
    anchor_scale: float = 4.0
    """Detection: side of the smallest anchors in strides; less than 4 for images of few pixels."""
    epochs: int = 20
    """Passes over the training images."""
    batch: int = 32
    """Training images in a step; with torchrun on each rank."""
    test_batch: int = 256
    """Test images in a step of the evaluation."""
    evaluate_every: int = 1
    """Test after every so many epochs, and after the last."""
    lr: float = 0.05
    """SGD's learning rate at the start."""
    lr_schedule: Literal["cosine", "step"] = "cosine"
    """Fall along a cosine to 0, or by a tenth at every --lr-steps."""
    lr_steps: tuple[int, ...] = ()
    """Epochs at which --lr-schedule step falls."""
    momentum: float = 0.9
    """SGD's momentum."""
    weight_decay: float = 5e-4
    """SGD's weight decay."""
    longest_gradient: float = 0.0
    """Scale gradients down that are longer than this; 0 for none."""
    label_smoothing: float = 0.0
    """Share of the target that is spread over all classes."""
    moving_average: float = 0.0
    """Evaluate a moving average of the weights with this decay, such as 0.999; 0 for none."""
    mixed_precision: Literal["auto", "on", "off"] = "auto"
    """Compute in 16 bits where that is safe; auto does so on a GPU."""


@dataclass(frozen=True)
class RunSettings(settings.RunSettings):
    """The run itself."""

    seed: int = 0
    """The same seed gives the same weights."""


@dataclass(frozen=True)
class TrainSettings(GroupedSettings):
    """Train a network under an augmentation policy."""

    data: DataSettings = field(default_factory=DataSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    run: RunSettings = field(default_factory=RunSettings)

    def check(self) -> None:
        """A ValueError for numbers that no training can run with."""
        values = self.to_json()
        for names, wrong, words in RULES:
            for name in names:
                if values[name] is not None and wrong(values[name]):
                    flag = f"--{name.replace('_', '-')}"
                    raise ValueError(f"{flag} {words}, not {values[name]}")
        self._check_task()
        if values["svhn_extra"] and values["data"] != "svhn":
            raise ValueError(f"--svhn-extra is for --data svhn, not for {values['data']}")
        if values["data"] not in FROM_FILES and values["crop"] != "pad":
            raise ValueError(f"--crop resized is for image files; {values['data']} has one size")

    def _check_task(self) -> None:
        """A ValueError for flags of the other task."""
        values, defaults = self.to_json(), TrainSettings().to_json()
        is_detection = values["data"] == "coco"
        for name in FOR_CLASSIFICATION if is_detection else FOR_DETECTION:
            if values[name] != defaults[name]:
                flag = f"--{name.replace('_', '-')}"
                if is_detection:
                    raise ValueError(f"{flag} is for classification, not for --data coco")
                raise ValueError(f"{flag} is for detection: it needs --data coco")
        if values["frozen_norm"] and values["backbone"] is None:
            raise ValueError("--frozen-norm keeps trained statistics: it needs --backbone FILE")


# Flags, what is wrong with a value of theirs, and what is right. Comparisons are written so that
# NaN is wrong, too.
RULES = (
    (
        (
            *("image_size", "epochs", "batch", "test_batch", "evaluate_every", "lr"),
            *("randaugment_ops", "threads", "checkpoint_seconds", "anchor_scale"),
        ),
        lambda value: not value > 0,
        "must be above 0",
    ),
    (
        ("padding", "cutout", "momentum", "weight_decay", "longest_gradient", "seed"),
        lambda value: not value >= 0,
        "cannot be negative",
    ),
    (
        ("scale", "train_share", "test_share"),
        lambda value: not 0 < value <= 1,
        "is a share above 0 and up to 1",
    ),
    (("fixed_apply_probability",), lambda value: not 0 <= value <= 1, "lies in [0, 1]"),
    (("label_smoothing", "moving_average"), lambda value: not 0 <= value < 1, "lies in [0, 1)"),
    (("randaugment_level",), lambda value: not 0 <= value <= 30, "is a level from 0 to 30"),
)

# Flags that mean nothing to the other task.
FOR_CLASSIFICATION = ("crop", "padding", "cutout", "label_smoothing")
FOR_DETECTION = ("resize", "drop_empty", "backbone", "frozen_norm", "anchor_scale")

# Data sets that are read from their files batch by batch; the others fit into memory.
FROM_FILES = ("imagenet", "folder")

SMALL_IMAGES = {"image_size": 32, "padding": 4, "flip": True, "cutout": 16}
CIFAR = {
    **SMALL_IMAGES,
    **{"model": "wrn-28-10", "epochs": 200, "batch": 128, "lr": 0.1, "weight_decay": 5e-4},
}
DATA: dict[str, dict[str, Any]] = {
    # Ours: a minute on two cores.
    "digits": {"epochs": 30, "batch": 32, "lr": 0.05},
    "cifar10": CIFAR,
    "cifar100": CIFAR,
    "svhn": CIFAR | {"flip": False, "epochs": 160, "lr": 0.005, "weight_decay": 1e-3},
    "imagenet": {
        **{"image_size": 224, "crop": "resized", "flip": True, "bad_files": "trust"},
        **{"model": "resnet-50", "epochs": 270, "batch": 512, "lr": 0.2, "weight_decay": 1e-4},
        **{"lr_schedule": "step", "lr_steps": (90, 180, 240)},
    },
    "coco": {
        **{"image_size": 800, "resize": "keep-ratio", "flip": True, "bad_files": "trust"},
        **{"model": "retinanet-r50", "epochs": 150, "batch": 64, "lr": 0.08, "weight_decay": 1e-4},
        **{"lr_schedule": "step", "lr_steps": (120, 140)},
        # Ours. Most gradients are shorter than 10, but a few of 100 and 1000 drive the loss of a
        # RetinaNet-R18 that is not pretrained to infinity within 50 steps; a learning rate that
        # rises over the first steps only puts that off.
        **{"longest_gradient": 10.0, "test_batch": 16, "evaluate_every": 5},
    },
    # Ours, at the size of the search's preset.
    "folder": {
        **{"image_size": 64, "crop": "resized", "flip": True},
        **{"model": "resnet-18", "epochs": 100, "batch": 128, "lr": 0.1},
    },
}
SHAKE_SHAKE = {"epochs": 1800, "lr": 0.01, "weight_decay": 1e-3}

# --scale: the networks to try out instead, and the least there must be for a curve.
SMALLER = {
    **{"wrn-28-10": "wrn-16-2", "shake-shake-26-2x96d": "shake-shake-8-2x16d"},
    **{"resnet-50": "resnet-18", "resnet-200": "resnet-18"},
    **{"retinanet-r50": "retinanet-r18", "retinanet-r101": "retinanet-r18"},
}
FEWEST_EPOCHS = 10
# The largest batch and image; boxes need more pixels, and smaller anchors where there are few.
LARGEST_TRIAL = {"classification": (64, 64), "detection": (8, 128)}
TRIAL_ANCHOR_SCALE = 1.0


def preset(data: str = "digits", model: str | None = None, scale: float = 1.0) -> TrainSettings:
    """The recipe for a data set and a network, before any other flag."""
    if data not in DATA:
        raise ValueError(f"unknown data set {data!r}; there are: {', '.join(DATA)}")
    values: dict[str, Any] = {"data": data, **DATA[data]}
    if model is not None:
        values["model"] = model
        if model.startswith("shake-shake") and data.startswith("cifar"):
            values |= SHAKE_SHAKE
    recipe = TrainSettings().replace(**values)
    return recipe if scale == 1 else scaled(recipe, scale, keep_model=model is not None)


def scaled(recipe: TrainSettings, scale: float, keep_model: bool = False) -> TrainSettings:
    """The recipe at a `scale` below 1: fewer images, epochs and weights, the same proportions."""
    training = recipe.training
    epochs = min(training.epochs, max(FEWEST_EPOCHS, round(scale * training.epochs)))
    is_detection = recipe.data.data == "coco"
    largest = LARGEST_TRIAL["detection" if is_detection else "classification"]
    batch = min(training.batch, largest[0])
    return recipe.replace(
        scale=scale,
        train_share=scale,
        test_share=scale,
        image_size=min(recipe.data.image_size, largest[1]),
        anchor_scale=TRIAL_ANCHOR_SCALE if is_detection else training.anchor_scale,
        model=training.model if keep_model else SMALLER.get(training.model, training.model),
        epochs=epochs,
        batch=batch,
        lr=training.lr * batch / training.batch,
        lr_steps=tuple(round(step * epochs / training.epochs) for step in training.lr_steps),
    )
