"""Does a search during the training find what the offline search finds?

    python benchmarks/online_agreement.py runs/online.jsonl
    python benchmarks/online_agreement.py runs/online.jsonl --table
    python benchmarks/online_agreement.py runs/early.jsonl --warmup 160 --every 2 --searches 300
    python benchmarks/online_agreement.py runs/to_the_end.jsonl --steps 4800 --every 64 --train
    python benchmarks/online_agreement.py runs/cifar.jsonl --cifar10 data/cifar10

The offline searches are those of the digits' preset, on 300 digits; with --cifar10 on 500 images of
16 pixels, with the same settings. The trainings with `OnlineSearch`, by default with its defaults,
use the same images and network. They are cut after their last search, because the policy then
stays; with --train they go on, and are tested on other digits of the domain.

The figures are rank correlations (Spearman's ρ) of the final p_o between all pairs of runs with
different seeds, which have different images, and of the mean p_o of each op over its levels. ± is
the standard error by the jackknife over seeds. A finished run is a line of the file: started again,
the script does what is missing. Use one file per setting.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from evidence.numbers import estimate
from reliability import DOMAINS, OtherDomain, accuracy, unseen
from scipy.stats import spearmanr
from torch.nn import functional as F

from ddas_gpu import OnlineSearch
from ddas_gpu.models import build
from ddas_gpu.pipelines.pixels import channel_statistics, normalise
from ddas_gpu.search.algorithm import Search
from ddas_gpu.search.settings import preset
from ddas_gpu.space import SearchSpace

BATCH_SIZE = 64
SPACE = preset("digits").search_space()
Line = dict[str, Any]
Lines = list[Line]


def task_of(domain: str, seed: int, cifar10: Path | None = None) -> OtherDomain:
    settings = preset("digits").replace(seed=seed, threads=1)
    if cifar10 is not None:
        settings = settings.replace(data="cifar10", root=cifar10, train_images=500)
    task = OtherDomain(settings)
    task.domain = domain
    return task


def offline(task: OtherDomain) -> Line:
    """Search with the digits' preset."""
    search = Search(task.settings, SPACE, task)
    while not search.finished:
        search.step()
    p_tp, p_o = search.history[-1]
    return {"p_tp": p_tp, "p_o": p_o.tolist(), "searches": search.steps, "training steps": 0}


def online(task: OtherDomain, steps: int, to_the_end: bool = False, **how: int | None) -> Line:
    """Train with `OnlineSearch` until the policy stays, or to the end, to be tested."""
    train, validation = task.search_sets()
    statistics = channel_statistics(train.images)

    def prepare(images: torch.Tensor) -> torch.Tensor:
        return normalise(images, *statistics)

    torch.manual_seed(task.seed)
    model = build("small", 10).train()
    sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, steps)
    held_out = (validation.images, validation.labels)
    search = OnlineSearch(
        model,
        F.cross_entropy,
        held_out,
        SPACE,
        prepare=prepare,
        steps=steps,
        seed=task.seed,
        **how,
    )
    pixels, labels = torch.from_numpy(train.images), torch.from_numpy(train.labels)
    times = search.times
    stays = False
    while search.steps < steps and (to_the_end or not stays):
        for chosen in torch.randperm(len(pixels)).split(BATCH_SIZE):
            if len(chosen) < BATCH_SIZE:
                continue
            search.step(pixels[chosen], labels[chosen])
            sgd.zero_grad()
            inputs = prepare(search.augment(pixels[chosen]))
            F.cross_entropy(model(inputs), labels[chosen]).backward()
            sgd.step()
            cosine.step()
        search.end_epoch()
        stays = times.searches is not None and search.searches == times.planned
    p_tp, p_o = search.history[-1]
    line = {"p_tp": p_tp, "p_o": p_o.tolist(), "searches": search.searches}
    if to_the_end:
        line["accuracy"] = accuracy(
            model, unseen(train, validation, task.domain, task.seed), statistics
        )
    return {**line, "training steps": steps}


def by_op(p_o: np.ndarray, space: SearchSpace = SPACE) -> np.ndarray:
    """Return the mean p_o of each op over its levels."""
    names = np.array([candidate.op for candidate in space])
    return np.array([p_o[names == op].mean() for op in dict.fromkeys(names)])


def agreement(one: list[Line], other: list[Line], ops: bool = False) -> float:
    """Return the mean ρ of p_o over pairs whose seeds differ: runs with one seed share images."""
    values = {id(x): by_op(np.array(x["p_o"])) if ops else np.array(x["p_o"]) for x in one + other}
    pairs = [(a, b) for a, b in itertools.product(one, other) if a["seed"] != b["seed"]]
    return float(np.mean([spearmanr(values[id(a)], values[id(b)]).statistic for a, b in pairs]))


def with_error(figure: Callable[[Lines], float], lines: Lines) -> tuple[float, float]:
    """Return a figure of some runs and its standard error, by the jackknife over seeds.

    Pairs share runs, so they are not independent; what is left out is a seed, with all its runs.
    """
    seeds = sorted({x["seed"] for x in lines})
    without = np.array([figure([x for x in lines if x["seed"] != seed]) for seed in seeds])
    variance = (len(seeds) - 1) * np.mean((without - without.mean()) ** 2)
    return figure(lines), float(np.sqrt(variance))


def offline_of(lines: Lines) -> Lines:
    return [x for x in lines if not x["training steps"]]


def online_of(lines: Lines) -> Lines:
    return [x for x in lines if x["training steps"]]


FIGURES: dict[str, Callable[[Lines, bool], float]] = {
    "offline, offline": lambda lines, ops: agreement(offline_of(lines), offline_of(lines), ops),
    "online, online": lambda lines, ops: agreement(online_of(lines), online_of(lines), ops),
    "online, offline": lambda lines, ops: agreement(online_of(lines), offline_of(lines), ops),
}
FIGURES["difference"] = lambda lines, ops: (
    FIGURES["offline, offline"](lines, ops) - FIGURES["online, offline"](lines, ops)
)


def table(lines: Lines) -> str:
    """Return the figures as a table of Markdown; difference: offline, offline less online, offline.

    Of seeds that have both runs.
    """
    names = ("p_tp offline", "p_tp online", "accuracy")
    rows = [["domain", "online steps", "seeds", *FIGURES, *names]]
    rows.append(["---"] * len(rows[0]))
    for domain, steps in sorted({(x["domain"], x["training steps"]) for x in online_of(lines)}):
        runs = [x for x in lines if x["domain"] == domain and x["training steps"] in (0, steps)]
        seeds = {x["seed"] for x in offline_of(runs)} & {x["seed"] for x in online_of(runs)}
        runs = [x for x in runs if x["seed"] in seeds]
        if len(seeds) < 3:
            continue
        cells = []
        for figure in FIGURES.values():
            both = [with_error(partial(figure, ops=ops), runs) for ops in (False, True)]
            cells.append("; ops ".join(f"{mean:.3f} ± {error:.3f}" for mean, error in both))
        p_tp = [np.mean([x["p_tp"] for x in kind(runs)]) for kind in (offline_of, online_of)]
        cells += [f"{p:.2f}" for p in p_tp]
        tested = [100 * x["accuracy"] for x in online_of(runs) if "accuracy" in x]
        cells.append(str(estimate(tested)) if len(tested) > 1 else "")
        rows.append([domain, f"{steps:,}", str(len(seeds)), *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--domains", nargs="+", choices=DOMAINS, default=["rotated", "same"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[*range(70, 80)])
    parser.add_argument("--steps", nargs="+", type=int, default=[9600], help="of the trainings")
    parser.add_argument("--cifar10", type=Path, help="the folder of CIFAR-10, instead of digits")
    parser.add_argument("--warmup", type=int, help="first steps, on clean images")
    parser.add_argument("--every", type=int, help="steps from a search to the next")
    parser.add_argument("--searches", type=int, help="then no more")
    parser.add_argument("--train", action="store_true", help="train to the end, and test")
    parser.add_argument("--table", action="store_true", help="only print the table")
    options = parser.parse_args()
    if options.train and options.cifar10:
        parser.error("--train is for the digits")
    torch.set_num_threads(1)
    lines = [json.loads(line) for line in options.file.open()] if options.file.exists() else []
    done = {(x["domain"], x["seed"], x["training steps"]) for x in lines}
    wanted = itertools.product(options.seeds, options.domains, sorted({0, *options.steps}))
    how = {name: getattr(options, name) for name in ("warmup", "every", "searches")}
    for seed, domain, steps in [] if options.table else wanted:
        if (domain, seed, steps) in done:
            continue
        start = time.process_time()
        task = task_of(domain, seed, options.cifar10)
        found = online(task, steps, options.train, **how) if steps else offline(task)
        seconds = round(time.process_time() - start, 1)
        line = {"domain": domain, "seed": seed, "seconds": seconds, **found}
        lines.append(line)
        with options.file.open("a") as file:
            file.write(json.dumps(line) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main()
