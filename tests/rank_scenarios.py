"""What the tests have every rank do; one start of the processes serves many tests."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ddas_gpu import SearchSpace
from ddas_gpu.data import proxy_sets
from ddas_gpu.distributed import buckets
from ddas_gpu.distributed.agreement import require_same, require_same_start
from ddas_gpu.distributed.buckets import MeanGradient
from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.models.frozen_batch_norm import freeze_batch_norm
from ddas_gpu.running import require_same_state
from ddas_gpu.searching import Search
from ddas_gpu.settings import SearchSettings, preset

DIGITS = {
    **{"train_images": 48, "val_images": 40, "batch": 16, "val_batch": 20, "epochs": 2},
    **{"policies": 3, "padding": 2, "flip": True, "cutout": 6},
}
COCO = {
    **{"train_images": 12, "val_images": 8, "batch": 4, "val_batch": 4, "policies": 2},
    **{"image_size": 64, "resize": "square", "anchor_scale": 1.0, "lr": 0.01, "epochs": 1},
    "model": "narrow_detector:build",
}
METHODS = ("auto", "jvp", "reference")


def search_of(ranks: Ranks, settings: SearchSettings, space: SearchSpace | None = None) -> Search:
    """In double precision, batch norm frozen: what ranks compute is then exact."""
    sets = proxy_sets(settings.data, settings.run.seed)
    search = Search(settings, space or settings.search_space(), *sets, ranks=ranks)
    freeze_batch_norm(search.model).double()
    search.names = [name for name, p in search.model.named_parameters() if p.requires_grad]
    search.weights = [p for p in search.model.parameters() if p.requires_grad]
    search.optimizer = torch.optim.SGD(search.weights, 1.0, momentum=0.9, weight_decay=5e-4)
    return search


def in_float64(search: Search) -> None:
    """Inputs in double precision, too."""
    versions, validation = search.task.versions, search.task.validation_batch

    def double_versions(*arguments: Any) -> Any:
        made = versions(*arguments)
        object.__setattr__(made, "inputs", made.inputs.double())
        return made

    def double_validation(*arguments: Any) -> Any:
        inputs, targets = validation(*arguments)
        return inputs.double(), targets

    search.task.versions, search.task.validation_batch = double_versions, double_validation


def steps_of(search: Search, count: int) -> dict[str, Any]:
    """What `count` steps of a search leave behind."""
    in_float64(search)
    metrics = [search.step() for _ in range(count)]
    require_same_state(search)
    return {
        "losses": [[m["loss"], m["clean_loss"], m["validation_loss"]] for m in metrics],
        "rewards": [m["rewards"] for m in metrics],
        "images": [m["images"] for m in metrics],
        "alpha": search.parameters.alpha_o.detach().numpy(),
        "weights": torch.cat([w.detach().reshape(-1) for w in search.weights]).numpy(),
    }


def searches(ranks: Ranks, coco: Path | None, methods: tuple[str, ...]) -> dict[str, Any]:
    """Steps on the digits by some methods, and if there is data on COCO."""
    buckets.BUCKET_BYTES = 20_000  # so that there are several
    found = {}
    for method in methods:
        settings = preset("digits").replace(**DIGITS, gradients=method)
        found[method] = steps_of(search_of(ranks, settings), 4)
    if coco is not None:
        settings = preset("coco").replace(**COCO, root=coco)
        found["coco"] = steps_of(search_of(ranks, settings), 3)
    return found


def identity_on_one_rank(ranks: Ranks) -> list[float]:
    """Color changes the coloured images alone, and those all are on the last rank."""
    settings = preset("digits").replace(**DIGITS | {"policies": 2, "cutout": 0, "padding": 0})
    space = SearchSpace.of(("Color",), levels=(9,), depth=1)
    search = search_of(ranks, settings, space)
    batch = search.training_batch

    def coloured(step: int) -> Any:
        clean = batch(step)
        if ranks.rank == ranks.count - 1:
            clean.images[..., 0] //= 2
        return clean

    search.training_batch = coloured
    in_float64(search)
    return search.step()["rewards"]


def refusals(ranks: Ranks) -> dict[str, str]:
    """What is said where the last rank is not like the others."""
    odd = ranks.rank == ranks.count - 1
    settings = preset("digits").replace(**DIGITS)
    found = {}

    def say(name: str, attempt: Any) -> None:
        try:
            attempt()
        except ValueError as error:
            found[name] = str(error)

    train, _ = proxy_sets(settings.data, 0)
    _, other = proxy_sets(settings.data, 1 if odd else 0)
    images = {"training images": train, "validation images": other}
    say("flags", lambda: require_same_start(ranks, settings.replace(lr=0.1 if odd else 0.2), {}))
    say("images", lambda: require_same_start(ranks, settings, images))
    say("nothing", lambda: require_same_start(ranks, settings, {"images": train}))
    say("facts", lambda: require_same(ranks, {"hats": ranks.rank // (ranks.count - 1)}, " today"))
    search = search_of(ranks, settings)
    if odd:
        with torch.no_grad():  # the least that can be wrong
            first = search.parameters.alpha_o[:1]
            first.copy_(torch.nextafter(first, torch.tensor(math.inf, dtype=first.dtype)))
    say("alpha", lambda: require_same_state(search))

    def failing(where: bool) -> None:
        with ranks.together():
            if where:
                raise OSError(28, "No space left on device", "/out/config.json")

    say("one", lambda: failing(odd))
    say("all", lambda: failing(True))
    say("none", lambda: failing(False))
    say("share", lambda: ranks.share("--batch", 4 * ranks.count + 1, 1))
    return found


def means(ranks: Ranks) -> dict[str, Any]:
    """Gradients that come in another order on every rank, and single numbers."""
    generator = torch.Generator().manual_seed(ranks.rank)
    shapes = {"a": (3, 4), "b": (5,), "c": (), "d": (2, 2, 2)}
    kinds = {"a": torch.float64, "b": torch.float64, "c": torch.float32, "d": torch.float64}
    gradients = {
        name: torch.rand(shape, generator=generator, dtype=kinds[name])
        for name, shape in shapes.items()
    }
    mean = MeanGradient(ranks, gradients)
    for place in np.roll(np.arange(4), ranks.rank):
        name = list(shapes)[place]
        mean.add(name, gradients[name])
    tensor = torch.full((2,), float(ranks.rank), dtype=torch.float64)
    ranks.copy_from_first([tensor])
    return {
        "own": {name: value.numpy() for name, value in gradients.items()},
        "mean": {name: value.numpy() for name, value in mean.result().items()},
        "largest": ranks.largest(ranks.rank),
        "sum": ranks.sum(torch.tensor([1.0, ranks.rank])).tolist(),
        "gathered": ranks.gather(f"rank {ranks.rank}"),
        "copied": tensor.tolist(),
    }


def everything(ranks: Ranks, coco: Path | None, methods: tuple[str, ...]) -> dict[str, Any]:
    return {
        "means": means(ranks),
        "refusals": refusals(ranks),
        "identity": identity_on_one_rank(ranks),
        "searches": searches(ranks, coco, methods),
    }
