"""Every number of a search, in groups, and the presets that fill them.

The dataclasses are the command line: a field is a flag, its docstring the flag's help. No torch
here, so that `--help` answers at once.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ddas_gpu.cli import groups
from ddas_gpu.cli.rules import check_rules, flag
from ddas_gpu.cli.settings import Settings
from ddas_gpu.data.catalog import CUSTOM, find_data
from ddas_gpu.search.presets import SIZED
from ddas_gpu.space import SearchSpace, check_space
from ddas_gpu.tasks.facts import facts_of


@dataclass(frozen=True)
class DataSettings(groups.DataSettings):
    """The data, and the small proxy task cut out of it."""

    val_root: Path | None = None
    """Validate on images of another folder: search for a policy that helps in another domain."""
    sanity_check: Literal["rotate90"] | None = None
    """Rotate the validation images by 90°: the search must then find Rotate90 (Rotate90_BBox)."""
    train_images: int = 600
    """Training images of the proxy task."""
    val_images: int = 600
    """Validation images of the proxy task."""
    classes: int | None = None
    """Classification: use this many classes, drawn at random, all equally often; without this all
    of them."""
    decode: Literal["once", "each"] = "once"
    """Classification: decode the files once and keep the images in memory, or for each batch, with
    DALI."""


@dataclass(frozen=True)
class PolicySettings:
    """What is searched, and how fast."""

    space: Path | None = None
    """The name of a space, such as cifar, or camera (more ops, for --val-root), or a JSON file with
    one of your own; without this the preset's."""
    levels: tuple[float, ...] = ()
    """Magnitude levels of the space's ops, unless it is your own."""
    depth: int = 2
    """Ops per policy (N_o)."""
    policies: int = 3
    """Policies tried in every step (L̂)."""
    apply_probability: float = 0.35
    """Probability to augment at the start (p_tp)."""
    lr_ops: float = 0.005
    """Learning rate of the candidates' probabilities (α_o)."""
    lr_apply: float | None = 0.001
    """Learning rate of the probability to augment (α_tp); without one 10 / steps, with which it can
    reach any value within the run."""
    adam_betas: tuple[float, float] = (0.5, 0.999)
    """Adam's β for both."""
    smoothing: int = 2
    """Size of the mean filter over the epochs' p_tp at the end (F_s)."""
    draws: Literal["independent", "deck"] = "independent"
    """Draw each policy independently, as the paper, or from shuffled decks, so that every candidate
    is tried equally often."""
    compare_with: Literal["clean", "policies"] = "clean"
    """What moves a candidate: how much better than the clean batch its policy was, as in the paper,
    or how much better than the other policies of the step, which is less noisy."""
    warmup_epochs: int = 0
    """First train the network on clean images for this many epochs; 0 is the paper's. A step of the
    search compares single steps, and to a network that has learned little every augmented step
    looks harmful; overfitting, which augmentation is for, must be there to be seen."""
    replay: Literal["epochs", "last"] = "epochs"
    """What a training under the policy replays: the probabilities epoch by epoch, as in the paper,
    or those of the last epoch throughout."""
    uniform_share: float = 0.0
    """Share of uniform probabilities in the policy's ops, beside those that were learned; 0 is the
    paper's. It keeps some of what a search of single steps cannot see the use of."""
    val_statistics: Literal["batch", "both"] = "batch"
    """Batch norm in the validation pass: with the batch's own statistics, as in the paper, or the
    mean of two gradients of length 1, with these and with the running ones. A batch's own
    statistics take out what a camera does to all of its images, such as a colour cast."""
    val_memory: float = 0.0
    """Measure along a running mean of the validation gradient with this decay; 0, the paper's, is
    each step's own gradient."""


@dataclass(frozen=True)
class TrainingSettings(groups.TrainingSettings):
    """The proxy network and its training."""

    model: str = "wrn-40-2"
    """The proxy network, small, wrn-40-2, resnet-18, retinanet-r50 …; or your own as module:Net, a
    class or function that is called with the number of classes and returns a torch.nn.Module of
    images (N, 3, H, W) to logits (N, classes)."""
    val_batch_size: int = 256
    """Validation images per step; with torchrun on each rank."""
    gradients: Literal["auto", "fast", "lean", "reference", "layerwise", "jvp"] = "auto"
    """How the policies' gradients are compared; all are exact. auto is the fastest that fits in
    --memory, lean takes the least, reference keeps every gradient; layerwise and jvp are the names
    of fast and lean before 0.2.0."""
    memory: str | None = None
    """Memory for the gradients, such as 8GB; without this most of what is free."""


@dataclass(frozen=True)
class RunSettings(groups.RunSettings):
    """The run itself."""

    repeats: int = 1
    """Search with this many seeds, --seed and those after it, and join them into one policy; each
    has a folder in --out. On a CPU they run side by side, as many as there are cores for; with one
    thread each unless --threads says otherwise."""


@dataclass(frozen=True)
class SearchSettings(Settings):
    """Search for the augmentation policy that helps a data set most."""

    data: DataSettings = field(default_factory=DataSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    run: RunSettings = field(default_factory=RunSettings)

    def usual(self) -> SearchSettings:
        return preset(self.data.data, self.data.sanity_check, self.data.scale)

    def check(self) -> None:
        super().check()
        from_files = self.spec is not CUSTOM  # whose images are read by the user's code
        if from_files and self.data.decode == "each" and self.data.crop == "pad":
            raise ValueError("--decode each is for image files: it needs --crop resized")
        if self.policy.compare_with == "policies" and self.policy.policies < 2:
            raise ValueError(
                "--compare-with policies needs --policies 2 or more, which it compares with each "
                "other; --compare-with clean needs one"
            )
        self._check_batch("batch_size", "train_images")
        self._check_batch("val_batch_size", "val_images")

    def _check_batch(self, size: str, images: str) -> None:
        batch, count, ranks = (
            getattr(self.training, size),
            getattr(self.data, images),
            self.run.ranks,
        )
        if batch * ranks > count:
            on_all = f" on {ranks} ranks" if ranks > 1 else ""
            raise ValueError(
                f"{flag(size)} {batch}{on_all} is larger than the set, {flag(images)} {count}"
            )

    def search_space(self) -> SearchSpace:
        """Return the candidates: --space or the preset's, at --levels and --depth."""
        policy, data = self.policy, self.data
        if policy.space is None:
            space = self.spec.sanity_space if data.sanity_check else self.spec.space
            return space.at(data.image_size, policy.levels, policy.depth)
        name = str(policy.space)
        if name in SIZED:
            own = SIZED[name].at(data.image_size, policy.levels, policy.depth)
        elif policy.levels:
            raise ValueError(f"--levels is for the presets: {name} has its own")
        else:
            own = dataclasses.replace(SearchSpace.load(policy.space), depth=policy.depth)
        check_space(own, facts_of(self.spec.task).has_boxes, name)
        return own


# The paper's check: one op per policy, one level, and augmentation more likely than not. Only
# square images keep their size when they are rotated by 90°.
SANITY_CHECK: dict[str, Any] = {
    "depth": 1,
    "levels": (2,),
    "apply_probability": 0.75,
    "resize": "square",
}


def preset(
    data: str = "digits", sanity_check: str | None = None, scale: float = 1.0
) -> SearchSettings:
    """Return the settings for a data set, before any flag."""
    spec = find_data(data)
    values = {"data": data, "levels": spec.space.levels, **spec.search}
    if sanity_check is not None:
        values |= {"sanity_check": sanity_check, **SANITY_CHECK}
    settings = SearchSettings().replace(**values)
    return settings if scale == 1 else scaled(settings, scale)


def scaled(settings: SearchSettings, scale: float) -> SearchSettings:
    """Return the settings at a `scale` below 1: as many epochs, over fewer and smaller images."""
    check_rules({"scale": scale})
    data, training = settings.data, settings.training
    classes, share = data.classes, scale
    if data.classes is not None:
        classes = max(2, round(scale * data.classes))
        share = classes / data.classes  # as many images per class
    val_images = max(training.batch_size, round(share * data.val_images))
    values = {
        "scale": scale,
        "classes": classes,
        "train_images": max(training.batch_size, round(share * data.train_images)),
        "val_images": val_images,
        "val_batch_size": min(training.val_batch_size, val_images),
    }
    return settings.replace(**values | settings.spec.search_trial)
