"""The tables of docs/scaling.md: how a step's time would grow with the number of GPUs.

    python benchmarks/scaling.py        # writes the tables into docs/scaling.md

Calculated, not measured: bytes and operations are counted in the program, the rest is published.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from communication import Traffic, search_traffic, training_bytes
from conftest import Table
from torch.utils.flop_counter import FlopCounterMode

from ddas_gpu.models import build
from ddas_gpu.search.settings import preset

PAGE = Path(__file__).resolve().parent.parent / "docs" / "scaling.md"
BEGIN, END = "<!-- tables: benchmarks/scaling.py -->\n", "<!-- end of tables -->"
SIZES = (1, 8, 64, 512)
GPUS_A_MACHINE = 8

# NVIDIA DeepLearningExamples, ResNet-50 v1.5 for PyTorch, one A100 80 GB, images per second.
# All networks are assumed to be as efficient as ResNet-50.
RESNET50_TF32, RESNET50_MIXED = 938, 2470
MEMORY = 2039e9  # bytes per second, the A100's data sheet
DECODED_ON_GPU = 7000  # images per second, NVIDIA's blog on DALI and the A100's JPEG decoder
CORES_PER_GPU = 16  # DGX A100: two EPYC 7742 of 64 cores for eight GPUs
LAUNCH = 5e-6  # seconds to launch a kernel from Python: assumed
# Seconds of one core for an image, measured on the machine of RESULTS.md: a crop at 32 px and at
# 224 px ("Training pipelines", without a policy); a COCO image, decoded and resized to 800 px.
CORE_SECONDS = {"cifar10": 0.013e-3, "imagenet": 2.119e-3, "coco": 20e-3}
FILE_BYTES = {"cifar10": 0, "imagenet": 110e3, "coco": 160e3}  # on average
BUCKET = 25 << 20


@dataclass(frozen=True)
class Fabric:
    """Links: bytes per second and GPU within and between machines; seconds per hop."""

    name: str
    within: float
    between: float
    hop_within: float
    hop_between: float


# Latencies are those of NCCL's own cost model (src/graph/tuning.cc: base, NVLink, PCI, network).
BASE = 8.4e-6
FABRICS = (
    # nccl-tests reach 230 GB/s of the A100's NVLink 3 (300 GB/s each way); a 200 Gb/s port per GPU.
    Fabric("NVLink, and InfiniBand of 200 Gb/s per GPU", 230e9, 25e9, 4.0e-6, 14e-6),
    # PCIe 4.0 ×16 has 32 GB/s each way; eight GPUs share one port of 100 Gb/s.
    Fabric("PCIe 4, and 100 Gb/s per machine", 32e9, 12.5e9 / 8, 4.0e-6, 14e-6),
)


@dataclass(frozen=True)
class Work:
    """A step on one GPU: seconds by stage, and bytes to all-reduce."""

    name: str
    computing: float
    reading: float
    augmenting: float
    messages: tuple[tuple[float, float], ...]  # bytes of a gradient, seconds that overlap
    scalars: int  # reductions of a few numbers
    prefetched: bool  # reading overlaps with computing
    images: int  # read in a step
    file_bytes: float
    most_ranks: float = math.inf  # that the set has images for


def all_reduce(size: float, gpus: int, fabric: Fabric) -> float:
    """Return the seconds of rings within machines, then between them, an equal part per GPU."""
    if gpus == 1:
        return 0.0
    local = min(gpus, GPUS_A_MACHINE)
    machines = gpus // local
    seconds = BASE + 2 * math.log2(local) * fabric.hop_within
    seconds += 2 * math.log2(machines) * fabric.hop_between
    seconds += 2 * (local - 1) / local * size / fabric.within
    return seconds + 2 * (machines - 1) / machines * size / local / fabric.between


def exposed(size: float, hidden_behind: float, gpus: int, fabric: Fabric) -> float:
    """Return the seconds of an all-reduce that nothing overlaps: at least its last bucket's."""
    full, rest = divmod(size, BUCKET)
    journey = full * all_reduce(BUCKET, gpus, fabric) + all_reduce(rest, gpus, fabric)
    return max(all_reduce(rest, gpus, fabric), journey - hidden_behind)


def step(work: Work, gpus: int, fabric: Fabric) -> dict[str, float]:
    """Return the seconds of a step by stage."""
    reducing = sum(exposed(*message, gpus, fabric) for message in work.messages)
    reducing += work.scalars * all_reduce(0, gpus, fabric)
    busy = work.computing + work.augmenting + reducing
    waiting = max(0.0, work.reading - busy) if work.prefetched else work.reading
    return {
        "computing": work.computing,
        "reading and decoding": waiting,
        "augmenting": work.augmenting,
        "all-reduce": reducing,
    }


def operations(model: str, classes: int, height: int, width: int) -> float:
    """Return the FLOPs of a forward pass of one image; a backward pass has twice as many."""
    with torch.device("meta"):
        network, images = build(model, classes), torch.empty(2, 3, height, width)
    with FlopCounterMode(display=False) as counter:
        network(images)
    return counter.get_total_flops() / 2


def rate(images_a_second: float) -> float:
    """Return the FLOP/s of a GPU that trains ResNet-50 at this speed."""
    return images_a_second * 3 * operations("resnet-50", 1000, 224, 224)


def reading(data: str, images: int) -> float:
    """Return the seconds to read and decode images, on CPU cores or on the GPU, the faster."""
    if not FILE_BYTES[data]:
        return images * CORE_SECONDS[data]
    on_cores = images * CORE_SECONDS[data] / CORES_PER_GPU
    return min(on_cores, images / DECODED_ON_GPU) if data == "imagenet" else on_cores


def search(
    data: str, classes: int, height: int, width: int, traffic: Traffic, spread: int = 1
) -> Work:
    """Return a search step of a preset, in TF32, with the preset's batches on every GPU.

    spread: with the preset's batches divided among so many GPUs instead.
    """
    settings = preset(data)
    sizes = settings.training
    batch, val_batch = sizes.batch_size // spread, sizes.val_batch_size // spread
    versions = settings.policy.policies + 1
    one = operations(settings.training.model, classes, height, width) / rate(RESNET50_TF32)
    policies, validation = 3 * versions * batch * one, 3 * val_batch * one
    products = versions * batch * one
    computing = max(policies + validation + products, traffic.launches * LAUNCH)
    slower = computing / (policies + validation + products)
    read = batch + (val_batch if FILE_BYTES[data] else 0)  # small images are only copied
    gradient = sum(traffic.gradients) / 2
    return Work(
        f"{settings.training.model}, {data} search",
        computing,
        reading(data, read),
        (versions - 1) * batch * height * width * 12 / MEMORY,
        # The weights' gradients are a third of a step's passes; a validation gradient comes layer
        # by layer in its backward pass.
        ((gradient, policies * slower / 3), (gradient, validation * slower * 2 / 3)),
        len(traffic.scalars),
        False,
        read,
        FILE_BYTES[data],
        min(settings.data.train_images // batch, settings.data.val_images // val_batch),
    )


def training(data: str, model: str, classes: int, size: tuple[int, int], batch: int) -> Work:
    """Return a training step in mixed precision."""
    computing = 3 * batch * operations(model, classes, *size) / rate(RESNET50_MIXED)
    gradients, statistics = training_bytes(model, classes)
    return Work(
        f"{model}, {data} training, {batch} per GPU",
        computing,
        reading(data, batch),
        batch * size[0] * size[1] * 12 / MEMORY,
        ((gradients, computing * 2 / 3), (statistics / 2, 0.0)),  # a broadcast is half as much
        0,
        True,
        batch,
        FILE_BYTES[data],
    )


# Classes, height and width of the images that the search's network sees. COCO's are resized to 800
# pixels; most of them are 4:3, and sides are padded to multiples of 32.
SEARCHES = {"cifar10": (10, 32, 32), "imagenet": (120, 224, 224), "coco": (80, 800, 1088)}
COLUMNS = ("GPUs", "step", "computing", "reading, decoding", "augmenting", "all-reduce")


def tables() -> list[Table]:
    with tempfile.TemporaryDirectory() as folder:
        counted = {
            data: search_traffic(data, preset(data).policy.policies, Path(folder))
            for data in SEARCHES
        }
    works = [
        *(search(data, *SEARCHES[data], counted[data]) for data in SEARCHES),
        training("cifar10", "wrn-28-10", 10, (32, 32), 128),
        training("imagenet", "resnet-50", 1000, (224, 224), 64),
        training("coco", "retinanet-r50", 80, (800, 1088), 8),
    ]
    made = []
    for fabric in FABRICS:
        for work in works:
            columns = (*COLUMNS, "efficiency", "files read in total", "largest besides computing")
            table = Table(f"{work.name}: {fabric.name}", columns)
            for gpus in SIZES:
                table.add(*row(work, gpus, fabric))
            made.append(table)
    made.extend(spread(data, counted[data]) for data in ("cifar10", "imagenet"))
    return made


def spread(data: str, traffic: Traffic) -> Table:
    """Return the table of the same search, with the same result, on more GPUs."""
    table = Table(
        f"The {data} preset's own batches, divided among more GPUs", (*COLUMNS, "speed-up")
    )
    alone = None
    for gpus in (1, 2, 4, 8, 16, 32):
        work = search(data, *SEARCHES[data], traffic, gpus)
        parts = step(work, gpus, FABRICS[0])
        total = sum(parts.values())
        alone = alone or total
        times = (f"{seconds * 1e3:.2f} ms" for seconds in (total, *parts.values()))
        table.add(gpus, *times, f"{alone / total:.1f}×")
    return table


def row(work: Work, gpus: int, fabric: Fabric) -> tuple[str, ...]:
    parts = step(work, gpus, fabric)
    total = sum(parts.values())
    efficiency = sum(step(work, 1, fabric).values()) / total
    besides = {name: seconds for name, seconds in parts.items() if name != "computing"}
    worst = max(besides, key=besides.get)
    files = gpus * work.images * work.file_bytes / total / 1e9
    too_many = gpus > work.most_ranks
    return (
        f"{gpus}{' *' if too_many else ''}",
        *(f"{seconds * 1e3:.2f} ms" for seconds in (total, *parts.values())),
        f"{efficiency:.0%}",
        f"{files:.2f} GB/s" if files else "–",
        f"{worst}, {besides[worst] / total:.0%} of the step",
    )


def main() -> None:
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    parts = [table.markdown().replace("\n\n\n\n", "\n\n") for table in tables()]
    body = "\n".join(parts).replace("## ", "### ")
    PAGE.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
