"""Every number of a search, in groups, and the presets that fill them.

The dataclasses are the command line: a field is a flag, its docstring the flag's help. No torch
here, so that `--help` answers at once.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tyro

from ddas_gpu.cli.grouped_settings import GroupedSettings
from ddas_gpu.ops.table import PixelScale
from ddas_gpu.space import PRESETS, SearchSpace, check_space

DataName = Literal["digits", "cifar10", "cifar100", "svhn", "imagenet", "coco", "folder"]


@dataclass(frozen=True)
class DataSettings:
    """The data, and the small proxy task cut out of it."""

    data: DataName = "digits"
    """The data set; its preset fills the defaults of all flags below."""
    root: Path | None = None
    """Where it lies; without this $DDAS_DATA/NAME, then data/NAME."""
    val_root: Path | None = None
    """Validate on images of another folder: a policy that carries over to another domain."""
    sanity_check: Literal["rotate90"] | None = None
    """Turn the validation images by 90°: the search must then find Rotate90 (Rotate90_BBox)."""
    scale: float = 1.0
    """Below 1, a try-out of the preset: fewer and smaller images, a smaller network."""
    train_images: int = 600
    """Training images of the proxy task."""
    val_images: int = 600
    """Validation images of the proxy task."""
    classes: int | None = None
    """Use this many classes, drawn at random, all equally often; without this all of them."""
    image_size: int = 16
    """Pixels a side that the network sees; the shorter side with --resize keep-ratio."""
    resize: Literal["square", "keep-ratio"] = "square"
    """Detection: make images square, or keep their shape, the longer side at most 5/3 of the
    shorter."""
    drop_empty: bool = False
    """Detection: leave out the images without boxes."""
    crop: Literal["pad", "resized"] = "pad"
    """Pad and shift small images, or crop and scale a random part of large ones."""
    decode: Literal["once", "each"] = "once"
    """Decode the files once and keep the images in memory, or for each batch, with DALI."""
    padding: int = 0
    """Pixels of black to shift into, with --crop pad."""
    flip: bool = False
    """Mirror half of the training images."""
    cutout: int = 0
    """Side of the hole cut into every training image; 0 for none."""


@dataclass(frozen=True)
class PolicySettings:
    """What is searched, and how fast."""

    space: Path | None = None
    """A JSON file with a search space of your own; without this the preset's."""
    levels: tuple[float, ...] = ()
    """Magnitude levels of the preset's ops."""
    depth: int = 2
    """Ops in a policy (N_o)."""
    policies: int = 3
    """Policies tried in every step (L̂)."""
    apply_probability: float = 0.35
    """Probability to augment at the start (p_tp)."""
    lr_ops: float = 0.005
    """Learning rate of the candidates' probabilities (α_o)."""
    lr_apply: float = 0.001
    """Learning rate of the probability to augment (α_tp)."""
    adam_betas: tuple[float, float] = (0.5, 0.999)
    """Adam's β for both."""
    smoothing: int = 2
    """Size of the mean filter over the epochs' p_tp at the end (F_s)."""


@dataclass(frozen=True)
class TrainingSettings:
    """The proxy network and its training."""

    model: str = "wrn-40-2"
    """The proxy network."""
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
    val_batch: int = 256
    """Validation images in a step; with torchrun on each rank."""
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
    gradients: Literal["auto", "jvp", "layerwise", "reference"] = "auto"
    """How the policies' gradients are compared; all are exact."""


@dataclass(frozen=True)
class RunSettings:
    """The run itself."""

    out: Path | None = None
    """The run's folder; without this the next free runs/DATA-NUMBER."""
    resume: bool = False
    """Go on with the run in --out from its last checkpoint, with its settings."""
    seed: int = 0
    """The same seed gives the same policy."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""
    threads: int | None = None
    """CPU threads; without this all cores we may use, with torchrun an even part of them."""
    checkpoint_seconds: float = 60.0
    """Write a checkpoint at least this often; one is written after every epoch anyway."""
    timeout: float = 600.0
    """With torchrun: seconds to wait for the other ranks before giving up."""
    sync_norm: bool = False
    """With torchrun: batch norm over the images of all ranks, not of each; slower."""
    ranks: tyro.conf.Suppress[tyro.conf.Fixed[int]] = 1
    """Ranks at the start of the run. A step takes --batch images of each, also when the run is
    resumed on more or fewer."""


@dataclass(frozen=True)
class SearchSettings(GroupedSettings):
    """Search for the augmentation policy that helps a data set most."""

    data: DataSettings = field(default_factory=DataSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    run: RunSettings = field(default_factory=RunSettings)

    def check(self) -> None:
        """A ValueError for numbers that no search can run with."""
        values = self.to_json()
        for name in POSITIVE:
            if values[name] is not None and not values[name] > 0:
                raise ValueError(f"--{name.replace('_', '-')} must be above 0, not {values[name]}")
        for name in NOT_NEGATIVE:
            if not values[name] >= 0:
                raise ValueError(f"--{name.replace('_', '-')} cannot be negative: {values[name]}")
        if self.run.sync_norm and self.training.gradients == "jvp":
            raise ValueError(
                "--sync-norm does not go with --gradients jvp: ranks cannot exchange forward-mode "
                "derivatives"
            )
        if self.training.frozen_norm and self.training.backbone is None:
            raise ValueError("--frozen-norm keeps trained statistics: it needs --backbone FILE")
        if self.data.decode == "each" and self.data.crop != "resized":
            raise ValueError("--decode each is for image files: it needs --crop resized")
        if not 0 < self.policy.apply_probability < 1:
            raise ValueError(
                f"--apply-probability lies between 0 and 1, not {self.policy.apply_probability}"
            )
        if not all(0 <= beta < 1 for beta in self.policy.adam_betas):
            raise ValueError(f"--adam-betas lie in [0, 1), not {self.policy.adam_betas}")
        for batch, images in (("batch", "train_images"), ("val_batch", "val_images")):
            if values[batch] * self.run.ranks > values[images]:
                on_all = f" on {self.run.ranks} ranks" if self.run.ranks > 1 else ""
                raise ValueError(
                    f"--{batch.replace('_', '-')} {values[batch]}{on_all} is larger than the set, "
                    f"--{images.replace('_', '-')} {values[images]}"
                )

    def search_space(self) -> SearchSpace:
        """The candidates: the preset's ops at --levels and --depth, or those of --space."""
        if self.policy.space is not None:
            if self.policy.levels:
                raise ValueError(f"--levels is for the presets: {self.policy.space} has its own")
            own = SearchSpace.load(self.policy.space)
            check_space(own, self.data.data == "coco", str(self.policy.space))
            return dataclasses.replace(own, depth=self.policy.depth)
        names = SANITY_SPACES if self.data.sanity_check else SPACES
        name = names[self.data.data]
        preset = dict(PRESETS[name])
        # Shifts and holes are pixels: they grow with the images.
        factor = self.data.image_size / SIZES[name]
        scale = preset.pop("scale", PixelScale())
        scale = PixelScale(round(scale.translate * factor), round(scale.cutout * factor))
        fill = preset.get("fill", 0)
        return SearchSpace.of(preset["ops"], self.policy.levels, self.policy.depth, scale, fill)


# What a resumed run may have otherwise than before.
FREE_TO_CHANGE = ("out", "resume", "checkpoint_seconds", "timeout")

POSITIVE = (
    *("train_images", "val_images", "image_size", "policies", "depth", "epochs", "batch"),
    *(
        "val_batch",
        "lr",
        "lr_ops",
        "lr_apply",
        "smoothing",
        "checkpoint_seconds",
        "timeout",
        "classes",
        "threads",
        "anchor_scale",
    ),
)
NOT_NEGATIVE = ("padding", "cutout", "momentum", "weight_decay", "seed")

# The space of each data set, and the image size that a space's pixel scale is meant for.
SPACES = {
    **{"digits": "digits", "cifar10": "cifar", "cifar100": "cifar", "svhn": "svhn"},
    **{"imagenet": "imagenet", "folder": "cifar", "coco": "coco"},
}
SANITY_SPACES = dict.fromkeys(SPACES, "sanity") | {"coco": "coco-sanity"}
# COCO's ops are defined on its images as they are, most of them 640 × 480.
SIZES = {
    **{"digits": 16, "cifar": 32, "svhn": 32, "sanity": 32, "imagenet": 224},
    **{"coco": 480, "coco-sanity": 480},
}

CIFAR = {
    **{"train_images": 2000, "val_images": 2000, "image_size": 32},
    **{"padding": 4, "flip": True, "cutout": 16},
}
DATA: dict[str, dict[str, Any]] = {
    # Ours: a minute on two cores. So few training images that augmentation matters, and more
    # policies a step than the paper's, which costs a small network little and makes the outcome
    # depend less on the seed.
    "digits": {
        **{"train_images": 300, "val_images": 900, "model": "small", "epochs": 60},
        **{"val_batch": 128, "policies": 8, "lr_ops": 0.01},
    },
    "cifar10": CIFAR,
    "cifar100": CIFAR,
    "svhn": CIFAR | {"train_images": 3000, "val_images": 3000, "flip": False},
    # The paper says 1200 validation images and 20 in each of 120 classes; 10 make 1200.
    "imagenet": {
        **{"train_images": 6000, "val_images": 1200, "classes": 120, "image_size": 224},
        **{"crop": "resized", "decode": "each", "flip": True},
        **{"model": "resnet-18", "epochs": 40, "val_batch": 64},
        **{"policies": 2, "lr_ops": 0.003, "lr_apply": 0.002, "lr": 0.01, "weight_decay": 1e-4},
        **{"smoothing": 6},
    },
    "coco": {
        **{"train_images": 3000, "val_images": 1500, "image_size": 800, "resize": "keep-ratio"},
        **{"flip": True, "model": "retinanet-r50", "epochs": 30, "batch": 4, "val_batch": 4},
        **{"lr": 0.04, "lr_schedule": "step", "lr_steps": (24, 28), "weight_decay": 1e-4},
        **{"lr_ops": 0.001, "lr_apply": 0.001, "smoothing": 1},
    },
    "folder": CIFAR | {"image_size": 64, "crop": "resized", "cutout": 0},
}
# The paper's check: one op a policy, one level, and augmentation more likely than not.
SANITY_CHECK: dict[str, Any] = {"depth": 1, "levels": (2,), "apply_probability": 0.75}


# --scale: the networks to try out instead, and the largest images.
SMALLER = {"wrn-40-2": "wrn-10-1", "retinanet-r50": "retinanet-r18"}
LARGEST_TRIAL_IMAGE = 96


def preset(
    data: str = "digits", sanity_check: str | None = None, scale: float = 1.0
) -> SearchSettings:
    """The settings for a data set, before any flag."""
    if data not in DATA:
        raise ValueError(f"unknown data set {data!r}; there are: {', '.join(DATA)}")
    values = {"data": data, "levels": PRESETS[SPACES[data]]["levels"], **DATA[data]}
    if sanity_check is not None:
        values |= {"sanity_check": sanity_check, "resize": "square", **SANITY_CHECK}
    settings = SearchSettings().replace(**values)
    return settings if scale == 1 else scaled(settings, scale)


def scaled(settings: SearchSettings, scale: float) -> SearchSettings:
    """The settings at a `scale` below 1: as many epochs, over fewer and smaller images."""
    if not 0 < scale <= 1:
        raise ValueError(f"--scale lies between 0 and 1, not {scale}")
    data, training = settings.data, settings.training
    classes = None if data.classes is None else max(2, round(scale * data.classes))
    share = scale if classes is None else classes / data.classes  # as many images a class
    train_images = max(training.batch, round(share * data.train_images))
    val_images = max(training.batch, round(share * data.val_images))
    return settings.replace(
        scale=scale,
        classes=classes,
        train_images=train_images,
        val_images=val_images,
        val_batch=min(training.val_batch, val_images),
        image_size=min(data.image_size, LARGEST_TRIAL_IMAGE),
        model=SMALLER.get(training.model, training.model),
    )
