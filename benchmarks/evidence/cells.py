"""Trainings and searches through the public commands, one recorded line each.

A line is written when its run is over, and a run whose lines are there is not repeated: a stopped
benchmark goes on where it was. Several processes may share one folder and one file of results.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ddas_gpu import PolicySchedule, SearchSpace, loader
from ddas_gpu.models import build
from ddas_gpu.search.__main__ import main as search_command
from ddas_gpu.train.__main__ import main as train_command

from .images import folder_of
from .numbers import key_of, read_lines
from .protocol import BOTH, SEARCH, TRAINING, UNTOUCHED, Data


@dataclass(frozen=True)
class Bench:
    """The folder to work in, the file of results, and the seeds' sizes for a try-out."""

    work: Path
    results: Path
    training: tuple[str, ...] = ()  # flags over those of the protocol
    search: tuple[str, ...] = ()

    def lines(self) -> list[dict[str, Any]]:
        return read_lines(self.results)

    def has(self, kind: str, data: str, domain: str, name: str, seed: int) -> bool:
        wanted = (kind, data, domain, name, seed)
        return any(key_of(line) == wanted for line in self.lines())

    def record(self, line: dict[str, Any]) -> None:
        self.results.parent.mkdir(parents=True, exist_ok=True)
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        print(shown(line), file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def claimed(self, name: str) -> Iterator[bool]:
        """Yield whether this process may do the work of that name; another one may be at it."""
        lock = self.work / "locks" / name.replace("/", "-")
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def shown(line: dict[str, Any]) -> str:
    found = line["accuracy"] if "accuracy" in line else list(line.get("ops", ()))[:3]
    return f"{time.strftime('%H:%M:%S')} {' '.join(map(str, key_of(line)))}: {found}"


def command(
    bench: Bench, main: Callable[[list[str]], int], arguments: Sequence[str], out: Path
) -> dict[str, float]:
    """Run a command in this process; return its seconds."""
    shutil.rmtree(out, ignore_errors=True)
    log = bench.work / "logs" / f"{out.name}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    wall, cpu = time.perf_counter(), time.process_time()
    rarely = ("--checkpoint-seconds", "600", "--no-checkpoint-epochs")
    given = [*arguments, "--out", str(out), "--threads", "1", *rarely]
    with log.open("w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        code = main(given)
    if code > 128:
        raise KeyboardInterrupt
    if code:
        raise RuntimeError(f"{' '.join(given)}\n{log.read_text()[-2000:]}")
    return {
        "seconds": round(time.perf_counter() - wall, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
    }


def train(
    bench: Bench,
    data: Data,
    seed: int,
    name: str,
    policy: Sequence[str] | Callable[[], Sequence[str]],
    domains: Sequence[str],
    transform: Sequence[str],
) -> None:
    """Train once on the images as they are, and record the accuracy in each of the domains.

    policy: flags, or a search that returns them, which is run if the training is.
    """
    domains = [d for d in domains if not bench.has("training", data.name, d, name, seed)]
    if not domains:
        return
    out = bench.work / "runs" / f"{data.name}-{seed}-{domains[0]}-{name}"
    arguments = [
        *BOTH,
        *TRAINING,
        *("--root", str(folder_of(bench.work, data, seed, "train"))),
        *("--test-root", str(folder_of(bench.work, data, seed, "test", domains[0]))),
        *("--image-size", str(data.size), "--epochs", str(data.epochs), "--seed", str(seed)),
        *("--evaluate-every", str(data.epochs)),
        *transform,
        *(policy() if callable(policy) else policy),
        *bench.training,
    ]
    seconds = command(bench, train_command, arguments, out)
    network = trained(out)
    for domain in domains:
        scores = {
            part: accuracy(network, folder_of(bench.work, data, seed, part, domain), data.size)
            for part in ("validation", "test")
        }
        bench.record(
            {
                "kind": "training",
                "data": data.name,
                "domain": domain,
                "name": name,
                "seed": seed,
                "accuracy": scores["test"],
                "validation": scores["validation"],
                **seconds,
            }
        )
    shutil.rmtree(out)


def trained(run: Path) -> torch.nn.Module:
    """Return the network of a training, ready to test."""
    last = torch.load(run / "last.pt", weights_only=True)
    network = build(last["model"], len(last["class_names"]))
    network.load_state_dict(last["weights"])
    return network.eval()


@lru_cache(maxsize=24)
def test_batches(folder: Path, size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    batches = loader(
        folder, batch_size=256, training=False, size=size, crop="pad", device="cpu", num_threads=1
    )
    return [(images.clone(), labels.clone()) for images, labels in batches]


def accuracy(network: torch.nn.Module, folder: Path, size: int) -> float:
    """Return the share of a folder's images, in %, that the network classifies right."""
    right = count = 0
    with torch.inference_mode():
        for images, labels in test_batches(folder, size):
            right += int((network(images).argmax(1) == labels).sum())
            count += len(labels)
    return round(100 * right / count, 3)


def search(
    bench: Bench, data: Data, seed: int, domain: str, name: str, flags: Sequence[str] = ()
) -> Path:
    """Search for a policy for a domain, record what was found, and return its file."""
    roots = {
        "--root": folder_of(bench.work, data, seed, "train"),
        "--val-root": folder_of(bench.work, data, seed, "validation", domain),
    }
    arguments = [
        *BOTH,
        *SEARCH,
        *(word for flag, folder in roots.items() for word in (flag, str(folder))),
        *("--train-images", str(data.train), "--val-images", str(data.validation)),
        *("--image-size", str(data.size), "--epochs", str(data.search_epochs)),
        *data.base,
        *flags,
    ]
    return any_search(bench, data.name, seed, domain, name, arguments)


def any_search(
    bench: Bench, data: str, seed: int, domain: str, name: str, arguments: Sequence[str]
) -> Path:
    """Run a search unless its policy is there; record it, and return the policy's file."""
    policy = policy_of(bench, data, seed, domain, name)
    if policy.is_file() and bench.has("search", data, domain, name, seed):
        return policy
    out = bench.work / "runs" / f"search-{data}-{seed}-{domain}-{name}"
    given = [*arguments, "--seed", str(seed), *bench.search]
    seconds = command(bench, search_command, given, out)
    schedule = PolicySchedule.load(out)
    schedule.save(policy)
    if not bench.has("search", data, domain, name, seed):
        bench.record(
            {
                "kind": "search",
                "data": data,
                "domain": domain,
                "name": name,
                "seed": seed,
                "p_tp": [round(float(value), 4) for value in schedule.p_tp],
                "ops": times_uniform(schedule.space, schedule.p_o[-1]),
                **seconds,
            }
        )
    shutil.rmtree(out)
    return policy


def policy_of(bench: Bench, data: str, seed: int, domain: str, name: str) -> Path:
    folder = bench.work / "policies"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{data}-{seed}-{domain}-{name}.json"


def times_uniform(space: SearchSpace, p_o: np.ndarray) -> dict[str, float]:
    """Return how many times more likely than uniform each candidate is, the most likely first."""
    order = np.argsort(-p_o, kind="stable")
    return {str(space[int(i)]): round(float(p_o[i]) * len(space), 3) for i in order}


def uniform_like(policy: Path) -> Path:
    """Write a policy with the p_tp of another one, epoch by epoch, and uniform ops."""
    schedule = PolicySchedule.load(policy)
    same = np.full_like(schedule.p_o, 1 / len(schedule.space))
    path = policy.with_name(f"{policy.stem}-uniform.json")
    replace(schedule, p_o=same).save(path)
    return path


def shared_transform(data: Data, peer: str) -> tuple[str, ...]:
    """Return the flags of the standard transform under a peer."""
    return {"none": UNTOUCHED, "standard": data.standard}.get(peer, data.base)
