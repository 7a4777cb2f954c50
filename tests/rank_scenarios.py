"""What the tests have every rank do; one start of the processes serves many tests."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ddas_gpu import SearchSpace, distributed
from ddas_gpu.distributed.agreement import require_same, require_same_start
from ddas_gpu.distributed.ranks import MeanGradient, Ranks
from ddas_gpu.runs import shared_folder
from ddas_gpu.runs.run_folder import RunFolder
from ddas_gpu.search.algorithm import Search, open_search
from ddas_gpu.search.job import require_same_state
from ddas_gpu.search.settings import SearchSettings, preset
from ddas_gpu.tasks.task import open_task
from ddas_gpu.train import settings as training_settings
from ddas_gpu.train.loop import open_training
from ddas_gpu.train.policies import open_policy
from ddas_gpu.train.settings import TrainSettings

DIGITS = {
    **{"train_images": 48, "val_images": 40, "batch_size": 16, "val_batch_size": 20, "epochs": 2},
    **{"policies": 3, "padding": 2, "flip": True, "cutout": 6, "model": "exact_model:build"},
    "warmup_epochs": 0,
}
NARROW = {
    **{"model": "exact_model:build_detector", "image_size": 64, "resize": "square"},
    **{"anchor_scale": 1.0, "lr": 0.01, "batch_size": 4},
}
SYNCED = {"model": "exact_model:build_with_norm", "sync_norm": True}
METHODS = ("fast", "lean", "reference")


def search_of(ranks: Ranks, settings: SearchSettings, space: SearchSpace | None = None) -> Search:
    return open_search(settings, space, ranks=ranks)


def steps_of(search: Search, count: int) -> dict[str, Any]:
    """What `count` steps of a search leave behind."""
    metrics = [search.step() for _ in range(count)]
    require_same_state(search)
    return {
        "losses": [[m["loss"], m["clean_loss"], m["validation_loss"]] for m in metrics],
        "rewards": [m["rewards"] for m in metrics],
        "images": [m["images"] for m in metrics],
        "alpha": search.parameters.alpha_o.detach().numpy(),
        "weights": flat(search.model),
    }


def flat(model: torch.nn.Module) -> np.ndarray:
    """Weights, and batch norm's running statistics."""
    tensors = model.state_dict().values()
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors]).numpy()


def searches(ranks: Ranks, coco: Path, methods: tuple[str, ...]) -> dict[str, Any]:
    """Steps on the digits by some methods, and with boxes."""
    distributed.ranks.BUCKET_BYTES = 20_000  # so that there are several
    found = {}
    for method in methods:
        settings = preset("digits").replace(**DIGITS, gradients=method)
        found[method] = steps_of(search_of(ranks, settings), 4)
    settings = preset("digits").replace(**DIGITS | SYNCED, gradients="lean")
    found["synced batch norm"] = steps_of(search_of(ranks, settings), 4)
    images = {"train_images": 4, "val_images": 4, "val_batch_size": 4, "policies": 2, "epochs": 3}
    settings = preset("coco").replace(**NARROW | images, root=coco)
    found["coco"] = steps_of(search_of(ranks, settings), 3)
    return found


def trained(ranks: Ranks, settings: TrainSettings) -> dict[str, Any]:
    """What a training leaves behind, its epochs' metrics and its weights."""
    settings.check()
    training = open_training(settings, open_policy(settings), ranks=ranks)
    epochs = []
    while not training.finished:
        training.step()
        if training.end_of_epoch:
            epochs.append(training.finish_epoch())
            del epochs[-1]["seconds"]
    names = list(training.state_dict()["model"])
    return {"epochs": epochs, "weights": flat(training.model), "names": names}


def trainings(ranks: Ranks, coco: Path) -> dict[str, Any]:
    """Trainings on the digits and with boxes; in both some images do not fill a last step."""
    digits = {
        "batch_size": 8,
        "epochs": 2,
        "train_share": 0.03,
        "test_share": 0.05,
        "test_batch_size": 7,
        **{"model": "exact_model:build", "policy": "uniform", "padding": 2, "flip": True},
        **{"moving_average": 0.9},
    }
    boxes = NARROW | {"test_batch_size": 1, "epochs": 2, "evaluate_every": 1, "policy": "uniform"}
    return {
        "digits": trained(ranks, training_settings.preset("digits").replace(**digits | SYNCED)),
        "coco": trained(ranks, training_settings.preset("coco").replace(root=coco, **boxes)),
    }


def coloured_on_one_rank(ranks: Ranks) -> list[float]:
    """Color changes coloured images alone, and those are all on the last rank."""
    settings = preset("digits").replace(**DIGITS | {"policies": 2, "cutout": 0, "padding": 0})
    search = search_of(ranks, settings, SearchSpace.of(("Color",), levels=(9,), depth=1))
    batch = search.batches.batch

    def coloured(step: int) -> Any:
        clean = batch(step)
        if ranks.rank == ranks.count - 1:
            clean.images[..., 0] //= 2
        return clean

    search.batches.batch = coloured
    return search.step()["rewards"]


def refusals(ranks: Ranks, folder: Path) -> dict[str, str]:
    """What is said where the last rank is not like the others."""
    odd = ranks.rank == ranks.count - 1
    settings = preset("digits").replace(**DIGITS)
    found = {}

    def say(name: str, attempt: Any) -> None:
        try:
            attempt()
        except ValueError as error:
            found[name] = str(error)

    train, _ = open_task(settings).search_sets()
    _, other = open_task(settings.replace(seed=1 if odd else 0)).search_sets()

    def handshake(value: float, *sets: Any) -> None:
        fingerprints = [each.fingerprint() for each in sets]
        require_same_start(ranks, settings.replace(lr=value), lambda: fingerprints)

    say("flags", lambda: handshake(0.1 if odd else 0.2, train, train))
    say("images", lambda: handshake(0.1, train, other))
    say("nothing", lambda: handshake(0.1, train, train))
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

    class Hidden(RunFolder):
        def __init__(self, path: Path, writes: bool = True) -> None:
            super().__init__(path.parent / "elsewhere" if odd else path, writes)

    def open_new() -> RunFolder:
        return RunFolder.create(folder / "run", "digits", "search", "classification", {}, {})

    shared_folder.RunFolder = Hidden
    say("folder", lambda: shared_folder.open_for_all(ranks, open_new))
    shared_folder.RunFolder = RunFolder
    say("one", lambda: failing(odd))
    say("all", lambda: failing(True))
    say("none", lambda: failing(False))
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


def everything(ranks: Ranks, folder: Path, coco: Path, methods: tuple[str, ...]) -> dict[str, Any]:
    return {
        "means": means(ranks),
        "refusals": refusals(ranks, folder),
        "coloured": coloured_on_one_rank(ranks),
        "searches": searches(ranks, coco, methods),
        "trainings": trainings(ranks, coco),
    }
