"""All data sets: what each is for, where it is read from, and its settings in both commands.

A new data set is one `DataSpec`. No torch here, so that `--help` answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ddas_gpu.data.cifar import CifarReader
from ddas_gpu.data.coco import CocoReader
from ddas_gpu.data.digits import DigitsReader
from ddas_gpu.data.folder import FolderReader
from ddas_gpu.data.scenes import ScenesReader
from ddas_gpu.data.svhn import SvhnReader
from ddas_gpu.ops.table import PixelScale
from ddas_gpu.space import PRESETS, SearchSpace

Values = dict[str, Any]  # {setting: value}, over the defaults of a command


class Reader(Protocol):
    """Opens a data set as it lies on disk."""

    @property
    def layout(self) -> str:
        """What the root folder must hold, for messages; empty where there is no folder."""
        ...

    def search_images(self, root: Any, size: int) -> Any:
        """Open the images that a search splits, for use at `size` pixels per side."""
        ...

    def training_images(self, root: Any, test_root: Path | None, size: int) -> tuple[Any, Any]:
        """Open the images to train on and to test on; `test_root` if those lie elsewhere."""
        ...


@dataclass(frozen=True)
class SizedSpace:
    """A search space of `ddas_gpu.space.PRESETS`, and the image size that it is meant for."""

    name: str
    image_size: int

    @property
    def levels(self) -> tuple[float, ...]:
        return tuple(PRESETS[self.name]["levels"])

    def at(
        self, image_size: int, levels: tuple[float, ...] | None = None, depth: int = 2
    ) -> SearchSpace:
        """Return the space for images of this size: shifts and holes are pixels, and grow."""
        preset = PRESETS[self.name]
        scale, factor = preset.get("scale", PixelScale()), image_size / self.image_size
        return SearchSpace.of(
            preset["ops"],
            self.levels if levels is None else levels,
            depth,
            PixelScale(round(scale.translate * factor), round(scale.cutout * factor)),
            preset.get("fill", 0),
        )


@dataclass(frozen=True)
class DataSpec:
    """One data set."""

    name: str
    task: str
    """A key of `ddas_gpu.tasks.facts.FACTS`."""
    reader: Reader
    """Opens its images."""
    space: SizedSpace
    search: Values
    """Preset of the search."""
    training: Values
    """Recipe of the training."""
    search_trial: Values = field(default_factory=dict)
    """Changes to the preset with --scale below 1."""
    training_trial: Values = field(default_factory=dict)
    """Changes to the recipe with --scale below 1."""
    training_by_model: dict[str, Values] = field(default_factory=dict)
    """Changes to the recipe for models whose names begin so."""
    sanity_space: SizedSpace = SizedSpace("sanity", 32)
    """Space of --sanity-check."""
    from_files: bool = False
    """Whether training reads the files batch by batch; other data sets fit into memory."""
    flags: tuple[str, ...] = ()
    """Settings that mean nothing to other data sets."""


CATALOG: dict[str, DataSpec] = {}


def declare(spec: DataSpec) -> None:
    """Add a data set to the catalog."""
    if spec.name in CATALOG:
        raise ValueError(f"the data set {spec.name!r} is declared twice")
    CATALOG[spec.name] = spec


def find_data(name: str) -> DataSpec:
    """Return the data set of this name."""
    if name == CUSTOM.name:
        return CUSTOM
    if name not in CATALOG:
        raise ValueError(f"unknown data set {name!r}; there are: {', '.join(CATALOG)}")
    return CATALOG[name]


# Ours, for the presets that are not the paper's: what a search finds depends less on its seed;
# benchmarks/TRIED.md has the figures.
RELIABLE: Values = {
    "draws": "deck",
    "compare_with": "policies",
    "val_memory": 0.9,
    "adam_betas": (0.9, 0.999),
    "lr_apply": None,
    "warmup_epochs": 20,
    "replay": "last",
    "uniform_share": 0.2,
}

# Beside that, for data that may have a target domain.
TARGETED: Values = {**RELIABLE, "val_statistics": "both"}

# A user's own data, which comes as Python objects: `ddas_gpu.search_policy` has it, no command.
# The settings that are not given follow from the data.
CUSTOM = DataSpec(
    name="custom",
    task="custom",
    reader=FolderReader(),
    space=SizedSpace("cifar", 32),
    search={"levels": (), **TARGETED},
    training={},
)

declare(
    DataSpec(
        name="digits",
        task="classification",
        reader=DigitsReader(),
        space=SizedSpace("digits", 16),
        # Ours: a minute on two cores. So few training images that augmentation matters, and more
        # policies per step than the paper's, which costs a small network little and makes the
        # outcome depend less on the seed.
        search={
            "train_images": 300,
            "val_images": 900,
            "model": "small",
            "epochs": 30,
            "batch_size": 16,
            "val_batch_size": 128,
            "policies": 16,
            "lr_ops": 0.02,
            **RELIABLE,
        },
        # Ours: a minute on two cores.
        training={"epochs": 30},
    )
)

SCENES: Values = {
    "image_size": 96,
    "model": "retinanet-small",
    "anchor_scale": 2.0,  # 16 to 50 pixels at strides 8 and 16, where the digits are
    "batch_size": 8,
    "lr": 0.02,
    "weight_decay": 1e-4,
}

declare(
    DataSpec(
        name="scenes",
        task="detection",
        reader=ScenesReader(),
        space=SizedSpace("scenes", 96),
        sanity_space=SizedSpace("coco-sanity", 480),
        from_files=True,
        # Ours: minutes on two cores. Rates with which α can reach any value in so few steps.
        search={
            **SCENES,
            "train_images": 200,
            "val_images": 400,
            "epochs": 15,
            "val_batch_size": 16,
            "policies": 4,
            "lr_ops": 0.02,
            "lr_apply": 0.02,
        },
        # Ours: minutes on two cores.
        training={
            **SCENES,
            "epochs": 12,
            "bad_files": "trust",
            "clip_grad_norm": 10.0,
            "test_batch_size": 50,
            "evaluate_every": 4,
        },
        training_by_model={"retinanet-r": {"lr": 0.01}},
    )
)

CIFAR_SEARCH: Values = {
    "train_images": 2000,
    "val_images": 2000,
    "image_size": 32,
    "padding": 4,
    "flip": True,
    "cutout": 16,
}
CIFAR_TRAINING: Values = {
    "image_size": 32,
    "padding": 4,
    "flip": True,
    "cutout": 16,
    "model": "wrn-28-10",
    "epochs": 200,
    "batch_size": 128,
    "lr": 0.1,
}
SHAKE_SHAKE: Values = {"epochs": 1800, "lr": 0.01, "weight_decay": 1e-3}
SMALL_WIDE_RESNET: Values = {"model": "wrn-16-2", "batch_size": 64}

for name in ("cifar10", "cifar100"):
    declare(
        DataSpec(
            name=name,
            task="classification",
            reader=CifarReader(name),
            space=SizedSpace("cifar", 32),
            search=CIFAR_SEARCH,
            search_trial={"model": "wrn-10-1"},
            training=CIFAR_TRAINING,
            training_trial=SMALL_WIDE_RESNET,
            training_by_model={"shake-shake": SHAKE_SHAKE},
        )
    )

declare(
    DataSpec(
        name="svhn",
        task="classification",
        reader=SvhnReader(),
        space=SizedSpace("svhn", 32),
        search={
            "train_images": 3000,
            "val_images": 3000,
            "image_size": 32,
            "padding": 4,
            "cutout": 16,
        },
        search_trial={"model": "wrn-10-1"},
        training={
            "image_size": 32,
            "padding": 4,
            "cutout": 16,
            "model": "wrn-28-10",
            "epochs": 160,
            "batch_size": 128,
            "lr": 0.005,
            "weight_decay": 1e-3,
        },
        training_trial=SMALL_WIDE_RESNET,
        flags=("svhn_extra",),
    )
)

declare(
    DataSpec(
        name="imagenet",
        task="classification",
        reader=FolderReader(),
        space=SizedSpace("imagenet", 224),
        from_files=True,
        search={
            "train_images": 6000,
            # The paper says 1200 validation images and 20 in each of 120 classes; 10 make 1200.
            "val_images": 1200,
            "classes": 120,
            "image_size": 224,
            "crop": "resized",
            "decode": "each",
            "flip": True,
            "model": "resnet-18",
            "epochs": 40,
            "val_batch_size": 64,
            "policies": 2,
            "lr_ops": 0.003,
            "lr_apply": 0.002,
            "lr": 0.01,
            "weight_decay": 1e-4,
            "smoothing": 6,
        },
        search_trial={"image_size": 96},
        training={
            "image_size": 224,
            "crop": "resized",
            "flip": True,
            "bad_files": "trust",
            "model": "resnet-50",
            "epochs": 270,
            "batch_size": 512,
            "lr": 0.2,
            "lr_schedule": "step",
            "lr_steps": (90, 180, 240),
            "weight_decay": 1e-4,
        },
        training_trial={"model": "resnet-18", "image_size": 64, "batch_size": 64},
    )
)

declare(
    DataSpec(
        name="coco",
        task="detection",
        reader=CocoReader(),
        # The ops are defined on COCO's images as they are, most of them 640 × 480.
        space=SizedSpace("coco", 480),
        sanity_space=SizedSpace("coco-sanity", 480),
        from_files=True,
        search={
            "train_images": 3000,
            "val_images": 1500,
            "image_size": 800,
            "resize": "keep-ratio",
            "flip": True,
            "model": "retinanet-r50",
            "epochs": 30,
            "batch_size": 4,
            "val_batch_size": 4,
            "lr": 0.04,
            "lr_schedule": "step",
            "lr_steps": (24, 28),
            "weight_decay": 1e-4,
            "lr_ops": 0.001,
            "lr_apply": 0.001,
            "smoothing": 1,
        },
        search_trial={"model": "retinanet-r18", "image_size": 96},
        training={
            "image_size": 800,
            "resize": "keep-ratio",
            "flip": True,
            "bad_files": "trust",
            "model": "retinanet-r50",
            "epochs": 150,
            "batch_size": 64,
            "lr": 0.08,
            "lr_schedule": "step",
            "lr_steps": (120, 140),
            "weight_decay": 1e-4,
            # Ours. Most gradients have a norm below 10, but a few of 100 and 1000 drive the loss of
            # a RetinaNet-R18 that is not pretrained to infinity within 50 steps; a warm-up of the
            # learning rate only delays that.
            "clip_grad_norm": 10.0,
            "test_batch_size": 16,
            "evaluate_every": 5,
        },
        # Boxes need more pixels than classes do, and smaller anchors where there are few.
        training_trial={
            "model": "retinanet-r18",
            "image_size": 128,
            "batch_size": 8,
            "anchor_scale": 1.0,
        },
    )
)

declare(
    DataSpec(
        name="folder",
        task="classification",
        reader=FolderReader(),
        space=SizedSpace("camera", 32),
        from_files=True,
        search={
            "train_images": 2000,
            "val_images": 2000,
            "image_size": 64,
            "crop": "auto",
            "padding": 4,
            "flip": True,
            **TARGETED,
        },
        search_trial={"model": "wrn-10-1"},
        # Ours, at the size of the search's preset.
        training={
            "image_size": 64,
            "crop": "auto",
            "padding": 4,
            "flip": True,
            "model": "resnet-18",
            "epochs": 100,
            "batch_size": 128,
            "lr": 0.1,
        },
        training_trial={"batch_size": 64},
    )
)
