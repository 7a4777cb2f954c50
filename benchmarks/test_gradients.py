"""A whole search step with each gradient method, against the one that keeps every gradient.

A step: the gradients of L̂+1 versions of a batch, their weighted sum, an SGD step in place, the
gradient of a validation batch, and its product with every version's gradient.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import side_by_side
import torch
from gradients.live_bytes import StepBytes, step_bytes
from gradients.vision_transformer import VisionTransformer
from side_by_side import Timing, take_turns
from torch import nn
from torch.nn import functional as F

from ddas_gpu.cli.shell import keep_freed_memory
from ddas_gpu.detection.losses import detection_loss, targets_for
from ddas_gpu.gradients import PolicyGradients, plan
from ddas_gpu.gradients.plan import size
from ddas_gpu.gradients.survey import survey
from ddas_gpu.gradients.versions import Versions
from ddas_gpu.models import build
from ddas_gpu.models.frozen_batch_norm import freeze_batch_norm
from ddas_gpu.models.retinanet import anchors_for

OURS = ("fast", "lean")
OBJECTS = 7  # per image, as many as COCO has
TIME_COLUMNS = (
    *("model", "L̂", "batch", "validation", "px"),
    *("reference, ms", "fast", "by arithmetic", "lean", "bytes: reference", "fast", "lean"),
)
TIME_NOTE = (
    "Time of a whole step over the reference's, medians of interleaved rounds (quartiles over the "
    "reference's median in brackets): below 1 is faster. On a CPU it is the CPU time of one "
    "thread, which other programs on the machine disturb least; freed memory is kept, as "
    "`ddas search` keeps it. Batches of the larger models are "
    "a part of the paper's, with its ratio of training to validation images. By arithmetic: "
    "multiplications of the fast way over the reference's, when rows of one gradient are chosen "
    "so that they save the most; a fast way below it is faster per multiplication. Bytes: the most "
    "alive at once in PolicyGradients, weighted and dot, as a multiple of the reference's. A "
    "detector has the loss of the search, with boxes of its own for each version."
)
HALF_COLUMNS = ("model", "L̂", "batch", "validation", "px", "reference, ms", "fast", "lean")
HALF_NOTE = "As above, under autocast with bfloat16; the reference's step is under autocast, too."
ROWS_COLUMNS = ("model", "L̂", "batch", "px", "rows, gradients", "fast", "by arithmetic", "bytes")
ROWS_NOTE = (
    "The fast way if it were allowed more rows than one gradient of the model takes: time, "
    "multiplications and bytes (the most alive at once) over the reference's, as above."
)
BYTES_COLUMNS = ("model", "batch", "px", "L̂", "reference", "fast", "lean", "fast plan, held")
BYTES_NOTE = (
    "The most bytes of tensors alive at once in PolicyGradients, weighted and dot, above the "
    "model, the images and the direction; float32, the paper's batches, counted on meta tensors."
)


def make_model(name: str, image: int = 224) -> nn.Module:
    if name == "vit-s/16":
        return VisionTransformer(image)
    if is_detector(name):
        return freeze_batch_norm(build(name, 80))
    return build(name, 10)


def is_detector(name: str) -> bool:
    return name.startswith("retinanet")


def loss_for(name: str) -> Callable:
    return detection_loss if is_detector(name) else F.cross_entropy


def make_targets(name: str, images: int, shape: tuple[int, int], device: str) -> Any:
    """Classes of images, or what the anchors of a detector are matched to."""
    if not is_detector(name):
        return torch.randint(10, (images,), device=device)
    centres, sides = torch.rand(images, OBJECTS, 2), 0.05 + 0.4 * torch.rand(images, OBJECTS, 2)
    boxes = torch.cat([centres - sides / 2, centres + sides / 2], -1).clamp(0, 1)
    boxes *= torch.tensor(shape[::-1]).repeat(2)  # x, y, x, y
    labels = torch.randint(80, (images, OBJECTS))
    matched = targets_for(anchors_for(*shape), boxes, labels)
    return {name: tensor.to(device) for name, tensor in matched.items()}


def make_versions_targets(
    name: str, policies: int, batch: int, shape: tuple[int, int], device: str
) -> Any:
    """As the search has them: policies move boxes, and leave classes alone."""
    if not is_detector(name):
        return make_targets(name, batch, shape, device)
    return [make_targets(name, batch, shape, device) for _ in range(policies + 1)]


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch, device: str) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    keep_freed_memory()
    if device == "cpu":
        monkeypatch.setattr(side_by_side, "clock", cpu_seconds)
    yield
    torch.set_num_threads(before)


def least_work(name: str, policies: int, batch: int, validation: int, px: int, rows: int) -> float:
    """Multiplications of a fast step over the reference's, in layers, for the best choice of rows.

    A product without a row costs a call of its layer. Rows of `rows` gradients save the most where
    each of their numbers is used most often; here a row may also be a part of a parameter's.
    """
    model, count = meta_model(name), policies + 1
    images = torch.empty(count, batch, px, px, 3, device="meta").movedim(-1, 2)
    found = survey(Versions(model, loss_for(name), images, {}))
    left, budget = sum(found.work.values()), rows * found.gradient / policies
    for parameter in sorted(found.order, key=found.uses_per_weight, reverse=True):
        share = min(1.0, budget / found.sizes[parameter])
        left -= share * found.work.get(parameter, 0.0)
        budget -= share * found.sizes[parameter]
    # Forward, to the weights, and to the inputs, but for the first layer's, which are the images.
    version = 3 * sum(found.work.values()) - found.work[found.order[0]]
    return 1 + policies * left / (version * (count + validation / batch))


def make_step(name: str, policies: int, batch: int, validation: int, px: int, device: str):
    """A function of the method: one search step of a model of its own."""
    torch.manual_seed(0)
    model = make_model(name).to(device, memory_format=torch.channels_last)  # as in the search
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(parameters.values(), lr=1e-4, momentum=0.9, weight_decay=5e-4)
    images = torch.randn(policies + 1, batch, px, px, 3, device=device).movedim(-1, 2)
    validation_images = torch.randn(validation, px, px, 3, device=device).movedim(-1, 1)
    targets = make_versions_targets(name, policies, batch, (px, px), device)
    validation_targets = make_targets(name, validation, (px, px), device)
    weights = [0.65] + [0.35 / policies] * policies
    loss_fn = loss_for(name)

    def step(method: str) -> torch.Tensor:
        gradients = PolicyGradients(model, loss_fn, images, targets, weights, method)
        for name, gradient in gradients.weighted().items():
            parameters[name].grad = gradient
        optimizer.step()
        optimizer.zero_grad()
        loss = loss_fn(model(validation_images), validation_targets)
        direction = torch.autograd.grad(loss, list(parameters.values()))
        return gradients.dot(dict(zip(parameters, direction, strict=True)))

    return step


def bytes_on_meta(
    name: str, method: str, policies: int, batch: int, shape: tuple[int, int]
) -> StepBytes:
    targets = make_versions_targets(name, policies, batch, shape, "meta")
    return step_bytes(meta_model(name), method, policies, batch, shape, loss_for(name), targets)


def meta_model(name: str) -> nn.Module:
    with torch.device("meta"):
        return make_model(name).to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("name", "policies", "batch", "validation", "px", "rounds"),
    [
        ("small", 3, 32, 128, 16, 15),
        ("small", 11, 32, 128, 16, 15),
        ("small", 11, 8, 32, 16, 15),
        ("small", 3, 32, 128, 32, 9),
        ("small", 11, 32, 128, 32, 9),
        ("wrn-10-1", 3, 32, 64, 32, 7),
        ("wrn-10-1", 11, 32, 64, 32, 7),
        ("wrn-40-2", 3, 8, 64, 32, 5),
        ("wrn-40-2", 11, 8, 64, 32, 5),
        ("wrn-28-10", 3, 1, 8, 32, 5),
        ("resnet-18", 2, 4, 8, 224, 5),
        ("vit-s/16", 2, 4, 8, 224, 5),
        ("retinanet-r50", 3, 1, 1, 256, 5),
        ("retinanet-r50", 3, 1, 1, 512, 5),  # too large for versions to pass together
    ],
)
def test_search_step(name, policies, batch, validation, px, rounds, device, benchmark, tables):
    step = make_step(name, policies, batch, validation, px, device)
    ways = {method: (lambda method=method: step(method)) for method in ("reference", *OURS)}
    times = take_turns(ways, rounds=rounds)
    reference = times["reference"].median
    peaks = {way: bytes_on_meta(name, way, policies, batch, (px, px)).peak for way in ways}
    tables.get_or_make("Search step, by gradient method", TIME_COLUMNS, TIME_NOTE).add(
        *(name, policies, batch, validation, px, f"{reference * 1e3:.0f}"),
        ratio(times["fast"], reference),
        f"{least_work(name, policies, batch, validation, px, 1):.2f}",
        ratio(times["lean"], reference),
        size(peaks["reference"]),
        *(f"{peaks[method] / peaks['reference']:.2f}" for method in OURS),
    )
    benchmark.extra_info["ratio"] = reference / times["fast"].median
    benchmark.pedantic(ways["fast"], rounds=1)


def ratio(timing: Timing, reference: float) -> str:
    low, high = timing.low / reference, timing.high / reference
    return f"{timing.median / reference:.2f} [{low:.2f}–{high:.2f}]"


@pytest.mark.parametrize(
    ("name", "policies", "batch", "validation", "px", "rounds"),
    [
        ("small", 3, 32, 128, 32, 9),
        ("small", 11, 32, 128, 32, 9),
        ("wrn-10-1", 3, 32, 64, 32, 9),
        ("wrn-40-2", 3, 8, 64, 32, 5),
    ],
)
def test_search_step_in_bfloat16(
    name, policies, batch, validation, px, rounds, device, benchmark, tables
):
    step = make_step(name, policies, batch, validation, px, device)

    def in_bfloat16(method: str) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            return step(method)

    ways = {way: (lambda way=way: in_bfloat16(way)) for way in ("reference", *OURS)}
    times = take_turns(ways, rounds=rounds)
    reference = times["reference"].median
    tables.get_or_make("Search step in bfloat16", HALF_COLUMNS, HALF_NOTE).add(
        *(name, policies, batch, validation, px, f"{reference * 1e3:.0f}"),
        *(ratio(times[way], reference) for way in OURS),
    )
    benchmark.pedantic(ways["fast"], rounds=1)


@pytest.mark.parametrize(
    ("name", "policies", "batch", "validation", "px", "rounds"),
    [
        ("small", 11, 32, 128, 32, 9),
        ("wrn-10-1", 11, 32, 64, 32, 7),
        ("wrn-40-2", 11, 8, 64, 32, 5),
    ],
)
def test_more_rows(
    name, policies, batch, validation, px, rounds, device, monkeypatch, benchmark, tables
):
    arguments = (name, policies, batch, validation, px)
    counts = (1, 2, 4, policies)
    steps = {rows: make_step(*arguments, device) for rows in counts}

    def fast(rows: int) -> torch.Tensor:
        monkeypatch.setattr(plan, "ROW_GRADIENTS", rows)
        return steps[rows]("fast")

    ways = {str(rows): (lambda rows=rows: fast(rows)) for rows in counts}
    times = take_turns({"reference": lambda: steps[1]("reference")} | ways, rounds=rounds)
    reference = bytes_on_meta(name, "reference", policies, batch, (px, px)).peak
    table = tables.get_or_make("Search step with more rows", ROWS_COLUMNS, ROWS_NOTE)
    for rows in counts:
        monkeypatch.setattr(plan, "ROW_GRADIENTS", rows)
        peak = bytes_on_meta(name, "fast", policies, batch, (px, px)).peak
        table.add(
            *(name, policies, batch, px, rows),
            f"{times[str(rows)].median / times['reference'].median:.2f}",
            f"{least_work(*arguments, rows):.2f}",
            f"{peak / reference:.2f}",
        )
    benchmark.pedantic(ways["1"], rounds=1)


@pytest.mark.parametrize(
    ("name", "batch", "shape"),
    [
        ("wrn-40-2", 32, (32, 32)),
        ("wrn-28-10", 32, (32, 32)),
        ("resnet-18", 32, (224, 224)),
        ("vit-s/16", 32, (224, 224)),
        ("retinanet-r50", 4, (800, 1333)),
    ],
)
def test_bytes(name, batch, shape, benchmark, tables):
    table = tables.get_or_make("Bytes of the gradient methods", BYTES_COLUMNS, BYTES_NOTE)
    for policies in (2, 3, 7, 11):
        found = {
            method: bytes_on_meta(name, method, policies, batch, shape)
            for method in ("reference", *OURS)
        }
        table.add(
            *(name, batch, "×".join(map(str, shape)), policies),
            *(size(step.peak) for step in found.values()),
            size(found["fast"].held),
        )
    benchmark.pedantic(bytes_on_meta, (name, "lean", 2, batch, shape), rounds=1)
