"""Training pipelines against the same without a policy, DALI's RandAugment, and DataLoaders.

Two threads or two workers each, timed in turns. A turn begins when the machine is idle and the
prefetched batches are used up, so that none works in another's time.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import side_by_side
import torch
from PIL import Image
from side_by_side import Timing, repeat, take_turns
from torch.utils.data import DataLoader, Dataset

from ddas_gpu import PolicySchedule, SearchSpace, set_num_threads, training_pipeline
from ddas_gpu.data.folder import open_folder
from ddas_gpu.ops import OPS
from ddas_gpu.ops.records import steps_of
from ddas_gpu.pipelines.transform import IMAGENET_MEAN, IMAGENET_STD

pytest.importorskip("nvidia.dali")

THREADS = 2
DALI_DEVICES = {"cpu": "cpu", "cuda": "gpu"}
MANY = 10_000  # epochs: none comes to its end
NOTE = (
    "Images a second (median, quartiles) with 2 threads or 2 workers. Every image gets a policy of "
    "two ops drawn evenly (p_tp = 1, the most work there can be) unless the row says otherwise. "
    "CPU time, of all threads together, hardly depends on what else runs on the machine."
)
COLUMNS = ("data", "way", "images/s", "quartiles", "time / ours", "CPU ms/image", "CPU / ours")


@pytest.fixture
def photographs_folder(unpacked) -> Path:
    return unpacked("imagenet_sample.tar")


def even_schedule(space: SearchSpace, apply_probability: float) -> PolicySchedule:
    return PolicySchedule(
        space, np.array([apply_probability]), np.full((1, len(space)), 1 / len(space))
    )


def test_photographs(photographs_folder, device, benchmark, tables):
    space, batch = SearchSpace.preset("imagenet"), 128
    settings = {"epochs": MANY, "device": DALI_DEVICES[device], "num_threads": THREADS}

    def pipeline(schedule: PolicySchedule | None) -> DaliWay:
        return DaliWay(training_pipeline(photographs_folder, schedule, batch, **settings))

    ways = {
        "ours": pipeline(even_schedule(space, 1.0)),
        "ours, p_tp = 0.35": pipeline(even_schedule(space, 0.35)),
        "(a) ours without a policy": pipeline(None),
        "(b) DALI's rand_augment": DaliWay(with_rand_augment(photographs_folder, batch, device)),
        "(c) DataLoader and Pillow": LoaderWay(
            PillowFiles(photographs_folder, space), batch, device
        ),
    }
    compare("224 px files", ways, batch, batches=4, rounds=4, benchmark=benchmark, tables=tables)


def test_small_images_in_memory(device, benchmark, tables):
    space, batch = SearchSpace.preset("cifar"), 256
    images = np.random.default_rng(0).integers(0, 256, (10_000, 32, 32, 3), np.uint8)
    labels = np.arange(len(images)) % 10
    settings = {"epochs": MANY, "device": DALI_DEVICES[device], "num_threads": THREADS}
    settings["cutout"] = 16

    def pipeline(schedule: PolicySchedule | None) -> DaliWay:
        return DaliWay(training_pipeline((images, labels), schedule, batch, **settings))

    ways = {
        "ours": pipeline(even_schedule(space, 1.0)),
        "ours, p_tp = 0.35": pipeline(even_schedule(space, 0.35)),
        "(a) ours without a policy": pipeline(None),
        "(c) DataLoader and Pillow": LoaderWay(PillowArrays(images, labels, space), batch, device),
    }
    compare(
        "32 px in memory", ways, batch, batches=30, rounds=5, benchmark=benchmark, tables=tables
    )


def test_first_batch(photographs_folder, device, tables):
    settings = {"batch_size": 32, "epochs": MANY, "num_threads": THREADS}
    settings["device"] = DALI_DEVICES[device]
    schedule = even_schedule(SearchSpace.preset("imagenet"), 1.0)
    ways = {
        "ours": lambda: training_pipeline(photographs_folder, schedule, **settings).run(),
        "ours without a policy": lambda: training_pipeline(
            photographs_folder, None, **settings
        ).run(),
    }
    times = take_turns(ways, rounds=7)
    note = "From nothing to the first batch, in a process that has imported everything."
    table = tables.get_or_make("First batch of 32 files", ("way", "ms", "quartiles"), note)
    for name, timing in times.items():
        low, median, high = (f"{t * 1e3:.0f}" for t in (timing.low, timing.median, timing.high))
        table.add(name, median, f"{low} … {high}")


class DaliWay:
    """A pipeline in this process."""

    def __init__(self, pipeline) -> None:
        self.pipeline = pipeline

    def seconds(self, batches: int) -> float:
        """Return the seconds of so many batches in the middle of an epoch."""
        repeat(self.pipeline.run, self.pipeline.prefetch_queue_depth + 1)  # prefetched in the pause
        return side_by_side.clock(partial(repeat, self.pipeline.run, batches))

    def work(self, batches: int) -> float:
        """Return the CPU seconds of all threads."""
        come_to_rest()
        start = time.process_time()
        repeat(self.pipeline.run, batches)
        come_to_rest()
        return time.process_time() - start


class LoaderWay:
    """A DataLoader with workers, and the copy of its batches to the device."""

    def __init__(self, dataset: Dataset, batch: int, device: str) -> None:
        self.dataset, self.batch, self.device = dataset, batch, device

    def seconds(self, batches: int) -> float:
        loader = DataLoader(
            self.dataset,
            self.batch,
            shuffle=True,
            num_workers=THREADS,
            worker_init_fn=_one_thread,
            drop_last=True,
            pin_memory=self.device == "cuda",
        )
        # Workers finish at the same time: use whole rounds of them, before and while timing.
        assert batches % THREADS == 0
        ahead = (loader.prefetch_factor + 1) * THREADS
        assert len(loader) >= ahead + batches
        stream = iter(loader)

        def one_batch() -> None:
            images, _ = next(stream)
            images.to(self.device, non_blocking=True)

        repeat(one_batch, ahead)
        return side_by_side.clock(partial(repeat, one_batch, batches))

    def work(self, batches: int) -> float:
        """Return the CPU seconds of the workers' job on one thread here."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        stream = iter(DataLoader(self.dataset, self.batch, shuffle=True))
        start = time.process_time()
        for _ in range(batches):
            next(stream)
        seconds = time.process_time() - start
        torch.set_num_threads(threads)
        return seconds


def _one_thread(worker: int) -> None:
    torch.set_num_threads(1)


def compare(
    data: str, ways: dict, batch: int, batches: int, rounds: int, benchmark, tables
) -> None:
    set_num_threads(THREADS)
    torch.set_num_threads(THREADS)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    work: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            come_to_rest()
            seconds[name].append(way.seconds(batches) / batches)
            work[name].append(way.work(batches) / batches)
    times = {name: Timing.of(each) for name, each in seconds.items()}
    works = {name: statistics.median(each) for name, each in work.items()}
    table = tables.get_or_make("Training pipelines", COLUMNS, NOTE)
    for name, timing in times.items():
        speed, low, high = (batch / t for t in (timing.median, timing.high, timing.low))
        table.add(
            data,
            name,
            f"{speed:.0f}",
            f"{low:.0f} … {high:.0f}",
            f"{timing.median / times['ours'].median:.2f}×",
            f"{works[name] / batch * 1e3:.3f}",
            f"{works[name] / works['ours']:.2f}×",
        )
    others = [timing.median for name, timing in times.items() if name.startswith(("(b)", "(c)"))]
    benchmark.extra_info["ratio"] = min(others) / times["ours"].median
    benchmark.pedantic(ways["ours"].pipeline.run, rounds=3)


def come_to_rest() -> None:
    """Wait until the threads of this process are idle."""
    busy = True
    while busy:
        before = time.process_time()
        time.sleep(0.1)
        busy = time.process_time() - before > 0.003


def with_rand_augment(folder: Path, batch: int, device: str):
    """Return our graph with DALI's RandAugment in place of the policy node."""
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.auto_aug import rand_augment
    from nvidia.dali.pipeline import do_not_convert

    from ddas_gpu.pipelines import graph
    from ddas_gpu.pipelines.loader import prepare

    feed, order = prepare(folder, training=True, batch_size=batch, epochs=MANY)
    feed.order = order

    gpu = device == "cuda"
    where = {"num_threads": THREADS, "device_id": 0 if gpu else None}

    @pipeline_def(batch_size=batch, enable_conditionals=True, seed=0, **where)
    def define():
        given = do_not_convert(graph.given_by_host)(feed)
        encoded = fn.io.file.read(given["paths"])
        images = do_not_convert(graph.random_part)(encoded, given, feed.transform, gpu)
        images = rand_augment.rand_augment(images, n=2, m=10, shape=feed.transform.size)
        return do_not_convert(graph.normalise)(images, feed.transform.output), given["labels"]

    return define()


class WithPillow(Dataset):
    """The standard transform and the policy on PIL images, as most people write it."""

    def __init__(self, space: SearchSpace, mean, deviation) -> None:
        self.steps, self.depth = steps_of(space), space.depth
        self.mean = torch.tensor(mean).view(3, 1, 1)
        self.deviation = torch.tensor(deviation).view(3, 1, 1)

    def policy(self, image: Image.Image) -> Image.Image:
        for _ in range(self.depth):
            name, argument = random.choice(self.steps)
            op = OPS[name]
            if op.signed and random.random() < 0.5:
                argument = -argument
            arguments = [] if argument is None else [argument]
            if op.centred:
                arguments.append((random.randrange(image.width), random.randrange(image.height)))
            image = op.pillow(image, *arguments)
        return image

    def tensor(self, image: Image.Image) -> torch.Tensor:
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
        return (pixels - self.mean) / self.deviation


class PillowFiles(WithPillow):
    def __init__(self, folder: Path, space: SearchSpace) -> None:
        super().__init__(space, IMAGENET_MEAN, IMAGENET_STD)
        source = open_folder(folder)
        # Repeated, so that epochs are long: workers stop at their ends.
        self.files, self.labels = source.files * 20, np.tile(source.labels, 20)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.files[index]) as file:
            image = file.convert("RGB")
        image = image.resize((224, 224), Image.Resampling.BILINEAR, random_box(image))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return self.tensor(self.policy(image)), int(self.labels[index])


def random_box(image: Image.Image) -> tuple[int, int, int, int]:
    for _ in range(10):
        area = image.width * image.height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= image.width and 0 < height <= image.height:
            left = random.randint(0, image.width - width)
            top = random.randint(0, image.height - height)
            return left, top, left + width, top + height
    return 0, 0, image.width, image.height


class PillowArrays(WithPillow):
    def __init__(self, images: np.ndarray, labels: np.ndarray, space: SearchSpace) -> None:
        super().__init__(space, [125.0] * 3, [60.0] * 3)
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.fromarray(self.images[index])
        left, top = random.randint(-4, 4), random.randint(-4, 4)
        image = image.crop((left, top, left + 32, top + 32))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        tensor = self.tensor(self.policy(image))
        top, left = random.randrange(32) - 8, random.randrange(32) - 8
        tensor[:, max(top, 0) : top + 16, max(left, 0) : left + 16] = 0
        return tensor, int(self.labels[index])
