"""`search_policy`: a search on your own network and data, from Python."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ddas_gpu import ops
from ddas_gpu.cli.parsing import refuse_changes
from ddas_gpu.cli.running import carry_out, settings_of_run
from ddas_gpu.cli.shell import errors_with_keywords, prepare
from ddas_gpu.data.datasets import COLUMNS, Examples, one_size, open_examples
from ddas_gpu.data.sources import require_same_classes
from ddas_gpu.data.workers import forks
from ddas_gpu.distributed import torchrun
from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.pipelines.transform import require_levels
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.runs.run_folder import CONFIG
from ddas_gpu.search.algorithm import Search
from ddas_gpu.search.job import SearchJob
from ddas_gpu.search.presets import find_space, preset_shape
from ddas_gpu.search.settings import SearchSettings, preset
from ddas_gpu.space import SearchSpace, check_space
from ddas_gpu.tasks.custom import Custom, LossOnly, Own, SearchTask
from ddas_gpu.tasks.own_network import bare, class_name, name_of

MIXED_SIZE = 64  # pixels per side for images of different sizes, as with --data folder
# Flags whose place the arguments take.
ARGUMENTS = ("classes", "data", "model", "ranks", "root", "scale", "space", "val_root")


@dataclass(frozen=True)
class SearchResult:
    """What a search has found."""

    policy: PolicySchedule
    report: Path | None
    """The page about the run, in `out`; None without `out`."""
    verdict: str
    """Which candidates can be told apart, in a sentence."""


@errors_with_keywords(SearchSettings)
def search_policy(
    model: nn.Module | Callable[[], nn.Module],
    train: Any,
    validation: Any,
    loss: Callable[[Any, Any], torch.Tensor] = F.cross_entropy,
    space: str | SearchSpace = "cifar",
    *,
    epochs: int = 20,
    batch_size: int = 32,
    out: str | Path | None = None,
    resume: bool = False,
    seed: int = 0,
    device: str | torch.device = "auto",
    task: SearchTask | None = None,
    columns: tuple[str, str] = COLUMNS,
    mean: Any = None,
    std: Any = None,
    quiet: bool = False,
    **settings: Any,
) -> SearchResult:
    """Find the augmentation policy that helps a network on its validation data most.

    model: an nn.Module, or a function without arguments that builds one. A module is copied: its
        weights are where the search starts, and stay as they are.
    train, validation: a torch Dataset of (image, target), a pair (images, targets) of arrays or
        (paths, targets) of image files, a folder with one folder of images per class, or a Hugging
        Face data set with `columns`. An image is a PIL image, a uint8 array (H, W, 3) or a uint8
        tensor (3, H, W).
    loss: loss(outputs, targets) of model(images), float32 (B, 3, H, W), normalised with `mean` and
        `std` (of the training images, unless given) in levels of 0 … 255. Targets are collated as
        by a DataLoader.
    space: a preset such as "cifar", "svhn" or "imagenet", for images of any size; or a SearchSpace.
    out: the run's folder, with checkpoints and a report; without it nothing is written.
    resume: continue the run in `out`, if there is one, to the same bytes.
    device: "auto", a GPU if there is one; "cpu" or "cuda".
    task: a `SearchTask`, instead of `loss`, for targets that move with the pixels.
    settings: any other flag of `python -m ddas_gpu.search` under its name, such as policies=2. By
        default all images are used, at their own size, without a crop or a flip; images of
        different sizes are cropped at random to image_size=64.
    """
    require_levels(mean, std)
    sets = open_sets(train, validation, columns, seed)
    own = Own(model, *sets, as_task(loss, task), mean, std)
    if isinstance(device, torch.device):
        device = str(device)
    values = {"epochs": epochs, "batch_size": batch_size, "seed": seed, "device": device}
    folder = None if out is None else Path(out)
    chosen = make_settings(own, space, values | settings).replace(out=folder)
    if own.task.spatial:
        own = in_place(own, chosen)
    if folder is None and (resume or chosen.run.tensorboard):
        raise ValueError("resume and tensorboard need `out`, the folder of the run")
    if resume and folder is not None and (folder / CONFIG).exists():
        before = settings_of_run(folder, "search", "search", SearchSettings)
        chosen = chosen.replace(resume=True, ranks=before.run.ranks)
        if not {"levels", "depth"} & settings.keys() and shape(before) != shape(chosen):
            raise ValueError(f"the run in {folder} was started with another space")
        refuse_changes(before, chosen)
    candidates = make_space(chosen, space)
    if task is None:
        check_space(candidates, has_boxes=False, where="space", advice="which only a task= moves")
    return run(chosen, candidates, own, quiet)


def as_task(loss: Any, task: Any) -> SearchTask:
    """Return the task, or that of a loss; raise a TypeError for other objects."""
    if task is not None and loss is not F.cross_entropy:
        raise TypeError("give a loss or a task: the task has its own loss")
    if isinstance(loss, SearchTask):
        raise TypeError(f"{type(loss).__name__} is a SearchTask: give it as task=…")
    for name, given in (("loss", loss), ("task", task)):
        if isinstance(given, type):
            raise TypeError(f"{name} is an object, not a class: {given.__name__}()")
    if not callable(loss):
        raise TypeError(f"loss is a function loss(outputs, targets), not {type(loss).__name__}")
    if task is not None and not isinstance(task, SearchTask):
        raise TypeError(f"task is a SearchTask, not {type(task).__name__}")
    return LossOnly(loss) if task is None else task


def open_sets(
    train: Any, validation: Any, columns: tuple[str, str], seed: int
) -> tuple[Examples, Examples]:
    """Open both sets, whose classes must be the same where both name them."""
    first, second = (open_examples(data, columns, seed) for data in (train, validation))
    if first.class_names and second.class_names:
        require_same_classes(first, second, "the validation images")
    return first, second


def make_settings(own: Own, space: str | SearchSpace, values: dict[str, Any]) -> SearchSettings:
    """Return checked settings; what is not given follows from the data."""
    known = SearchSettings.kinds()
    if values.get("repeats", 1) != 1:
        raise ValueError("repeats is for the command: call search_policy once for each seed")
    for name in values:
        if name in ARGUMENTS:
            raise TypeError(f"search_policy has no setting {name!r}: its arguments say it")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = f"the nearest is {near[0]!r}" if near else "`ddas search --help` has them all"
            raise TypeError(f"search_policy has no setting {name!r}; {advice}")
    values = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in values.items()
    }
    usual = preset("custom", values.get("sanity_check"))
    usual.replace(**values).check_each()  # before the data is looked at with them
    sizes = {"train_images": len(own.train), "val_images": len(own.validation)}
    most = values.get("val_images", sizes["val_images"]) // torchrun.count()
    defaults = {
        **sizes,
        **_space_settings(space),
        "val_batch_size": min(SearchSettings().training.val_batch_size, most),
        "model": model_name(own.model),
        "ranks": torchrun.count(),
        "workers": None if forks() else 0,
    }
    if not {"image_size", "crop"} <= values.keys():
        defaults |= _image_settings(own, values)
    settings = usual.replace(**defaults | values)
    settings.check()
    for name, count in sizes.items():
        if getattr(settings.data, name) > count:
            raise ValueError(f"{name}={getattr(settings.data, name)}, but there are {count}")
    return settings


def _space_settings(space: Any) -> dict[str, Any]:
    if isinstance(space, str):
        return preset_shape(space)
    if isinstance(space, SearchSpace):
        return {"depth": space.depth}
    raise TypeError(f"space is the name of a preset or a SearchSpace, not {type(space).__name__}")


def _image_settings(own: Own, values: dict[str, Any]) -> dict[str, Any]:
    size = one_size(own.train)
    if size is not None and values.get("crop", "pad") == "pad":
        return {"image_size": min(size), "crop": "pad"}
    return {"image_size": MIXED_SIZE, "crop": "resized"}


def in_place(own: Own, settings: SearchSettings) -> Own:
    """Return the data for targets with places: only the policy moves pixels, or scales them."""
    data, size = settings.data, one_size(own.train)
    changed = data.crop != "pad" or data.padding or data.flip or data.sanity_check is not None
    if size is None or changed or data.image_size != min(size):
        raise ValueError(
            f"targets of {type(own.task).__name__} have places in the image: the images must have "
            "one size and stay where they are (crop='pad', padding=0, flip=False, no image_size, "
            "no sanity_check)"
        )
    train, validation = (replace(data, size=size) for data in (own.train, own.validation))
    return replace(own, train=train, validation=validation)


def shape(settings: SearchSettings) -> tuple[Any, ...]:
    """Return what a space says in the settings."""
    return settings.policy.levels, settings.policy.depth


def make_space(settings: SearchSettings, space: str | SearchSpace) -> SearchSpace:
    """Return the candidates, shifts and holes of a preset in proportion to the images."""
    policy = settings.policy
    if isinstance(space, str):
        return find_space(space).at(settings.data.image_size, policy.levels, policy.depth)
    if policy.levels:
        raise ValueError("levels is for the presets: a SearchSpace has its own")
    return replace(space, depth=policy.depth)


def model_name(model: Any) -> str:
    """Return the class of a module, or "module:function"."""
    if isinstance(model, nn.Module):
        return class_name(bare(model))
    if not callable(model):
        raise TypeError(
            f"model is an nn.Module or a function that builds one, not {type(model).__name__}"
        )
    return f"{getattr(model, '__module__', '?')}:{name_of(model)}"


def run(settings: SearchSettings, space: SearchSpace, own: Own, quiet: bool) -> SearchResult:
    """Run the search; torch's modes, generators and numbers of threads stay as they were.

    Without `threads` it computes with as many as the process uses already.
    """

    def build(device: torch.device, ranks: Ranks) -> SearchJob:
        search = Search(settings, space, Custom(own, settings, device, ranks), device, ranks)
        return SearchJob(search, quiet)

    threads = torch.get_num_threads(), ops.get_num_threads()
    writes = settings.run.out is not None
    try:
        with torch.random.fork_rng(), torch.inference_mode(False), torch.enable_grad():
            run = replace(settings.run, threads=settings.run.threads or threads[0])
            device = prepare(run, fixed_shapes=True)
            ended = carry_out(settings, build, device, writes, quiet)
    finally:
        torch.set_num_threads(threads[0])
        ops.set_num_threads(threads[1])
    job = ended.job
    assert isinstance(job, SearchJob)
    if ended.received is not None:
        again = "; resume=True continues it" if writes else ""
        raise KeyboardInterrupt(f"the search was stopped after step {job.steps}{again}")
    return SearchResult(job.schedule(), ended.report, job.judged["sentence"])
