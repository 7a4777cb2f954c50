"""Damaged files of every format: read, or refused with our own exception, and nothing else."""

from __future__ import annotations

import copy
import io
import json
import math
import pickle
import random
import resource
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from layouts import write_cifar, write_svhn
from PIL import Image
from run_folders import write_run

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.cli.running import settings_of_run
from ddas_gpu.data.cifar import find_batches, open_cifar
from ddas_gpu.data.coco import open_coco
from ddas_gpu.data.decoding import read_image
from ddas_gpu.data.scanning import find_problem
from ddas_gpu.data.sources import FOREIGN, FORMATS
from ddas_gpu.data.svhn import FILE, read_digits
from ddas_gpu.errors import sentence
from ddas_gpu.report.writing import write_report
from ddas_gpu.runs.run_folder import sealed, unsealed
from ddas_gpu.search.settings import SearchSettings
from ddas_gpu.unpickling import restricted_load

LONGEST = 60.0  # seconds for one input, on a machine with other work
NUMBERS = (0, 1, -1, 2.5, 2**31, 2**63, 10**400, math.nan, math.inf, 1e308)
TEXTS = ("", "1", "Invert", "\x1b[31m", "\ud800", "../../etc/passwd", "<script>")
VALUES: tuple[Any, ...] = (None, True, *NUMBERS, *TEXTS, [], {}, [1], [[]], {"a": 1}, [None, None])


def damaged(content: bytes, generator: random.Random) -> bytes:
    """Change, cut, insert or repeat some bytes."""
    changed = bytearray(content)
    for _ in range(generator.randint(1, 4)):
        place = generator.randrange(max(1, len(changed)))
        kind = generator.random()
        if kind < 0.6:
            changed[place : place + 1] = bytes([generator.randrange(256)])
        elif kind < 0.7:
            del changed[place:]
        elif kind < 0.8:
            del changed[place : place + generator.randrange(1, 30)]
        elif kind < 0.9:
            changed[place:place] = generator.randbytes(generator.randrange(1, 9))
        else:
            size = generator.choice((0, 1, 255, 2**16, 2**31 - 1, 2**32 - 1))
            changed[place : place + 4] = size.to_bytes(4, generator.choice(("little", "big")))
    return bytes(changed)


def changed_json(content: Any, generator: random.Random) -> bytes:
    """Replace, remove or repeat values; now and then damage the text."""
    content = {"root": copy.deepcopy(content)}
    for _ in range(generator.randint(1, 3)):
        owner: Any = content
        key: Any = "root"
        while isinstance(owner[key], (dict, list)) and owner[key] and generator.random() < 0.8:
            owner = owner[key]
            key = generator.choice(list(owner) if isinstance(owner, dict) else range(len(owner)))
        kind = generator.random()
        if kind < 0.7 or owner is content:
            owner[key] = copy.deepcopy(generator.choice(VALUES))
        elif kind < 0.85:
            del owner[key]
        elif isinstance(owner, list):
            owner.append(owner[key])
    text = json.dumps(content["root"]).encode()
    return damaged(text, generator) if generator.random() < 0.1 else text


class Fuzzer:
    """Feeds inputs to a reader and counts how it took them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.generator = folder, random.Random(seed)
        self.counts: dict[str, Counter[str]] = {}

    def feed(
        self, name: str, inputs: int, make: Callable[[], bytes], path: Path, read: Callable[[], Any]
    ) -> None:
        counts = self.counts[name] = Counter()
        for _ in range(inputs):
            content = make()
            path.write_bytes(content)
            start = time.monotonic()
            try:
                read()
                counts["read"] += 1
            except (ValueError, OSError) as error:
                assert sentence(error).isprintable()
                counts["refused"] += 1
            except BaseException:
                (self.folder / f"failed-{path.name}").write_bytes(content)
                raise
            assert time.monotonic() - start < LONGEST, f"{name}: an input took too long"
        print(f"{name}: {dict(counts)}", flush=True)

    def json(self, name: str, inputs: int, content: Any, path: Path, read: Callable) -> None:
        self.feed(name, inputs, lambda: changed_json(content, self.generator), path, read)

    def bytes(self, name: str, inputs: int, content: bytes, path: Path, read: Callable) -> None:
        self.feed(name, inputs, lambda: damaged(content, self.generator), path, read)


@contextmanager
def limited_memory(extra: int = 4 << 30) -> Iterator[None]:
    """Fail instead of taking all memory of the machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + extra
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def fuzz(folder: Path, seed: int, share: float) -> dict[str, Counter[str]]:
    """Feed all formats; `share` scales the numbers of inputs."""
    warnings.simplefilter("ignore")  # of Pillow, about damaged tags
    folder.mkdir(parents=True)
    fuzzer = Fuzzer(folder, seed)

    def count(inputs: int) -> int:
        return max(1, round(share * inputs))

    with limited_memory():
        _json_files(fuzzer, count)
        _run_folders(fuzzer, count)
        _data_files(fuzzer, count)
        _images(fuzzer, count)
    return fuzzer.counts


def _json_files(fuzzer: Fuzzer, count: Callable[[int], int]) -> None:
    path = fuzzer.folder / "file.json"
    spaces = SearchSpace.preset("digits")
    fuzzer.json(
        "search spaces", count(20_000), spaces.to_json(), path, lambda: SearchSpace.load(path)
    )
    space = SearchSpace.of(["Invert", "Rotate"], [4, 8])
    p_o = np.full((3, len(space)), 1 / len(space))
    schedule = PolicySchedule(space, np.full(3, 0.4), p_o, {"image_size": 16})
    fuzzer.json(
        "policies", count(20_000), schedule.to_json(), path, lambda: PolicySchedule.load(path)
    )
    root = fuzzer.folder / "coco"
    for name in ("annotations", "train2017"):
        (root / name).mkdir(parents=True)
    for name in "ab":
        Image.new("RGB", (40, 30)).save(root / "train2017" / f"{name}.png")
    box = {"image_id": 7, "category_id": 2, "bbox": [1, 2, 3, 4.5], "area": 9, "iscrowd": 0}
    content = {
        "images": [
            {"id": 7, "file_name": "a.png", "width": 40, "height": 30},
            {"id": 3, "file_name": "b.png", "width": 40, "height": 30},
        ],
        "annotations": [{"id": 1, **box}, {"id": 2, **box, "image_id": 3}],
        "categories": [{"id": 2, "name": "car"}, {"id": 5, "name": "dog"}],
    }
    path = root / "annotations" / "instances_train2017.json"
    fuzzer.json("COCO annotations", count(10_000), content, path, lambda: open_coco(root))


def _run_folders(fuzzer: Fuzzer, count: Callable[[int], int]) -> None:
    folder = write_run(fuzzer.folder / "run", epochs=2)
    for name in ("config.json", "policy.json"):
        content = json.loads((folder / name).read_bytes())
        whole = (folder / name).read_bytes()
        fuzzer.json(
            f"report of a changed {name}", count(300), content, folder / name,
            lambda: write_report(folder),
        )  # fmt: skip
        (folder / name).write_bytes(whole)
    for name in ("metrics.jsonl", "samples.npz"):
        whole = (folder / name).read_bytes()
        fuzzer.bytes(
            f"report of a damaged {name}", count(300), whole, folder / name,
            lambda: write_report(folder),
        )  # fmt: skip
        (folder / name).write_bytes(whole)
    settings = json.loads(json.dumps(SearchSettings().to_json()))
    config = {"version": 2, "command": "search", "settings": settings}

    def resume() -> None:
        settings_of_run(folder, "search", "search", SearchSettings).check()

    fuzzer.json("config.json on --resume", count(10_000), config, folder / "config.json", resume)
    import torch

    path = fuzzer.folder / "checkpoint.pt"
    state = sealed({"data": [1], "search": {"steps": 3, "weights": torch.arange(500.0)}})

    def load() -> None:
        content = path.read_bytes()
        loaded = unsealed(content, path)
        assert content == state and loaded, "a damaged checkpoint was accepted"

    fuzzer.bytes("checkpoints", count(10_000), state, path, load)


def _data_files(fuzzer: Fuzzer, count: Callable[[int], int]) -> None:
    path = fuzzer.folder / "file.pickle"
    batch = {"data": np.arange(60, dtype=np.uint8), "labels": [1, 2, 3], "filenames": ["a", "b"]}

    def plain() -> None:
        restricted_load(path.read_bytes(), path)

    for protocol in (2, 4):
        content = pickle.dumps(batch, protocol)
        fuzzer.bytes(f"pickles, protocol {protocol}", count(15_000), content, path, plain)
    root = write_cifar(fuzzer.folder / "cifar", count=4)
    file = root / "cifar-10-batches-py" / "data_batch_3"

    def cifar() -> None:
        batches = find_batches(root, "cifar10")
        assert batches is not None
        open_cifar(batches, "cifar10")

    fuzzer.bytes("CIFAR batches", count(3_000), file.read_bytes(), file, cifar)
    path = fuzzer.folder / "policy.npy"
    row = np.full(52, 1 / 52, np.float32)
    buffer = io.BytesIO()
    np.save(buffer, {"dis_ps": [row, row], "tps": [0.3, 0.4]}, allow_pickle=True)  # type: ignore[arg-type]
    fuzzer.bytes(
        "released .npy", count(10_000), buffer.getvalue(), path,
        lambda: PolicySchedule.from_released(path),
    )  # fmt: skip
    root = write_svhn(fuzzer.folder / "svhn", count=2)
    path = root / FILE
    fuzzer.bytes(
        "SVHN .mat", count(10_000), path.read_bytes(), path, lambda: read_digits(root, FILE)
    )


def _images(fuzzer: Fuzzer, count: Callable[[int], int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    for kind in (*FORMATS, *FOREIGN):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, kind)
        path = fuzzer.folder / f"image.{kind.lower()}"

        def look(path: Path = path, kind: str = kind) -> None:
            find_problem(path)
            read_image(path)
            assert kind in FORMATS, f"a {kind} was read"

        words = f"{kind} files" + ", which are not read" * (kind in FOREIGN)
        fuzzer.bytes(words, count(1_500), buffer.getvalue(), path, look)
