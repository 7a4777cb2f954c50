"""Every number of a training, in groups, and the recipes that fill them.

As in `ddas_gpu.search.settings` the dataclasses are the command line, and there is no torch here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ddas_gpu.cli import groups
from ddas_gpu.cli.groups import RunSettings
from ddas_gpu.cli.rules import check_rules
from ddas_gpu.cli.settings import Settings
from ddas_gpu.data.catalog import find_data


@dataclass(frozen=True)
class DataSettings(groups.DataSettings):
    """The data, and its standard transform."""

    scale: float = 1.0
    """Below 1, a try-out of the recipe: this share of the images and epochs, on a small network."""
    test_root: Path | None = None
    """Test images in another folder; without this ROOT/test or ROOT/val, on COCO val2017."""
    train_share: float = 1.0
    """Use only this share of the training images, the classes in their proportions; on COCO any
    images."""
    test_share: float = 1.0
    """Use only this share of the test images."""
    val_share: float = 0.0
    """Hold back this share of the training images and keep the weights of the epoch that scores
    best on them, in best.pt; 0 to train on all. No epoch is ever chosen by the test images."""
    val_root: Path | None = None
    """Choose the epoch by all images of another folder, such as those that a search validated on,
    instead of --val-share."""
    svhn_extra: bool = False
    """SVHN: train on extra_32x32.mat, too."""


@dataclass(frozen=True)
class PolicySettings:
    """The augmentation policy."""

    policy: str = "none"
    """A policy.json that a search wrote, released:cifar10, released:cifar100, or one of: none,
    uniform, randaugment, trivialaugment, trivialaugment-wide. uniform-0.5 has that p_tp,
    uniform:POLICY the candidates and the p_tp of another policy, randaugment-5 that level."""
    fixed_apply_probability: float | None = None
    """Augment with this probability in all epochs, whatever the policy's p_tp (an ablation)."""
    static: Literal["last", "last-apply", "last-ops"] | None = None
    """Keep the policy of the last epoch from the first on: all of it, only p_tp, or only p_o."""
    randaugment_ops: int = 2
    """Ops per image, with --policy randaugment."""
    randaugment_level: float = 9.0
    """Level of all ops, with --policy randaugment; 10 is AutoAugment's maximum."""
    released_root: Path | None = None
    """Folder of the authors' .npy files; without this $DDAS_DATA/released_policies, then
    data/released_policies."""


@dataclass(frozen=True)
class TrainingSettings(groups.TrainingSettings):
    """The network and its training."""

    test_batch_size: int = 256
    """Test images per step of the evaluation."""
    evaluate_every: int = 1
    """Test after every so many epochs, and after the last."""
    clip_grad_norm: float = 0.0
    """Scale gradients with a larger norm than this down to it; 0 for none."""
    label_smoothing: float = 0.0
    """Classification: share of the target that is spread over all classes."""
    moving_average: float = 0.0
    """Evaluate a moving average of the weights with this decay, such as 0.999; 0 for none."""


@dataclass(frozen=True)
class TrainSettings(Settings):
    """Train a network under an augmentation policy."""

    data: DataSettings = field(default_factory=DataSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    run: RunSettings = field(default_factory=RunSettings)

    def usual(self) -> TrainSettings:
        return preset(self.data.data, scale=self.data.scale)

    def check(self) -> None:
        super().check()
        if self.data.crop != "pad" and not self.spec.from_files:
            raise ValueError(
                f"--crop {self.data.crop} is for image files; {self.data.data} has one size"
            )
        if self.data.val_root is not None and self.data.val_share:
            raise ValueError("--val-root and --val-share both name validation images: give one")


FEWEST_EPOCHS = 10  # of a try-out: the least there must be for a curve


def preset(data: str = "digits", model: str | None = None, scale: float = 1.0) -> TrainSettings:
    """Return the recipe for a data set and a network, before any other flag."""
    spec = find_data(data)
    values = {"data": data, **spec.training}
    if model is not None:
        values["model"] = model
        for prefix, changes in spec.training_by_model.items():
            if model.startswith(prefix):
                values |= changes
    recipe = TrainSettings().replace(**values)
    return recipe if scale == 1 else scaled(recipe, scale, keep_model=model is not None)


def scaled(recipe: TrainSettings, scale: float, keep_model: bool = False) -> TrainSettings:
    """Return the recipe at a `scale` below 1: fewer images, epochs and weights.

    The learning rate keeps its proportion to the batch size.
    """
    check_rules({"scale": scale})
    training = recipe.training
    epochs = min(training.epochs, max(FEWEST_EPOCHS, round(scale * training.epochs)))
    trial = dict(recipe.spec.training_trial)
    if keep_model:
        trial.pop("model", None)
    small = recipe.replace(
        scale=scale,
        train_share=scale,
        test_share=scale,
        epochs=epochs,
        lr_steps=tuple(round(step * epochs / training.epochs) for step in training.lr_steps),
        **trial,
    )
    return small.replace(lr=training.lr * small.training.batch_size / training.batch_size)
