"""Does a search during the training find what the offline search finds? On the digits.

    python benchmarks/online_agreement.py runs/online.jsonl
    python benchmarks/online_agreement.py runs/online.jsonl --table

The offline searches are the preset's, on 300 digits. The trainings with `OnlineSearch` use the same
digits, network and validation images; with --warmup they begin on clean images, and with --searches
they search only so often after that. Rank correlations (Spearman's ρ) of the final p_o between all
pairs of runs with different seeds, which have different images, and of the mean p_o of each op over
its levels. A finished run is a line of the file: started again, the script does what is missing.
Use one file per setting.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reliability import DOMAINS, OtherDomain
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


def task_of(domain: str, seed: int) -> OtherDomain:
    task = OtherDomain(preset("digits").replace(seed=seed, threads=1))
    task.domain = domain
    return task


def offline(domain: str, seed: int) -> Line:
    """Search with the digits' preset."""
    task = task_of(domain, seed)
    search = Search(task.settings, SPACE, task)
    while not search.finished:
        search.step()
    p_tp, p_o = search.history[-1]
    return {"p_tp": p_tp, "p_o": p_o.tolist(), "searches": search.steps, "training steps": 0}


def online(
    domain: str, seed: int, epochs: int, warmup: int = 0, every: int = 64, searches: int = 0
) -> Line:
    """Train with `OnlineSearch`, otherwise its defaults.

    warmup: steps on clean images, without a search, as the preset begins; searches: the most there
    are, 0 for no limit.
    """
    train, validation = task_of(domain, seed).search_sets()
    statistics = channel_statistics(train.images)

    def prepare(images: torch.Tensor) -> torch.Tensor:
        return normalise(images, *statistics)

    torch.manual_seed(seed)
    model = build("small", 10).train()
    steps = epochs * (len(train.images) // BATCH_SIZE)
    sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, steps)
    held_out = (validation.images, validation.labels)
    how = {"warmup": warmup, "every": every, "searches": searches or None}
    search = OnlineSearch(
        *(model, F.cross_entropy, held_out, SPACE), prepare=prepare, steps=steps, seed=seed, **how
    )
    pixels, labels = torch.from_numpy(train.images), torch.from_numpy(train.labels)
    for _ in range(epochs):
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
    (p_tp, p_o), by_epoch = search.history[-1], [row.tolist() for _, row in search.history]
    parts = {f"p_o after {part}/4": by_epoch[part * epochs // 4 - 1] for part in (1, 2, 3)}
    line = {"p_tp": p_tp, "p_o": p_o.tolist(), "searches": search.searches}
    return {**line, "training steps": steps, **parts}


def by_op(p_o: np.ndarray, space: SearchSpace = SPACE) -> np.ndarray:
    """Return the mean p_o of each op over its levels."""
    names = np.array([candidate.op for candidate in space])
    return np.array([p_o[names == op].mean() for op in dict.fromkeys(names)])


def of_other_seeds(pairs: Iterable[tuple[Line, Line]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return p_o of the pairs whose seeds differ: runs with one seed share their images."""
    return [(np.array(a["p_o"]), np.array(b["p_o"])) for a, b in pairs if a["seed"] != b["seed"]]


def agreement(pairs: list[tuple[np.ndarray, np.ndarray]]) -> str:
    if not pairs:
        return "–"
    candidates = [spearmanr(a, b).statistic for a, b in pairs]
    ops = [spearmanr(by_op(a), by_op(b)).statistic for a, b in pairs]
    low, high = min(candidates), max(candidates)
    return f"{np.mean(candidates):.2f} ({low:.2f} to {high:.2f}); ops {np.mean(ops):.2f}"


def table(lines: list[Line]) -> str:
    """Return the figures as a table of Markdown."""
    head = ["domain", "online steps", "offline, offline", "online, online", "online, offline"]
    rows = [[*head, "p_tp offline", "p_tp online"], ["---"] * 7]
    for domain, steps in sorted({(x["domain"], x["training steps"]) for x in lines}):
        if not steps:
            continue
        both = [
            [x for x in lines if x["domain"] == domain and x["training steps"] == count]
            for count in (0, steps)
        ]
        off, on = both
        pairs = [itertools.combinations(off, 2), itertools.combinations(on, 2)]
        cells = [agreement(of_other_seeds(p)) for p in (*pairs, itertools.product(on, off))]
        p_tp = [f"{np.mean([x['p_tp'] for x in kind]):.2f}" for kind in both]
        rows.append([domain, f"{steps:,}", *cells, *p_tp])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--domains", nargs="+", choices=DOMAINS, default=["rotated", "same"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[30, 31, 32])
    parser.add_argument("--epochs", nargs="+", type=int, default=[2400], help="of the trainings")
    parser.add_argument("--warmup", type=int, default=0, help="first steps, on clean images")
    parser.add_argument("--every", type=int, default=64, help="steps from a search to the next")
    parser.add_argument("--searches", type=int, default=0, help="then no more; 0 for no limit")
    parser.add_argument("--table", action="store_true", help="only print the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [json.loads(line) for line in options.file.open()] if options.file.exists() else []
    done = {(x["domain"], x["seed"], x["epochs"]) for x in lines}
    wanted = itertools.product(options.seeds, options.domains, sorted({0, *options.epochs}))
    for seed, domain, epochs in [] if options.table else wanted:
        if (domain, seed, epochs) in done:
            continue
        start = time.process_time()
        how = (options.warmup, options.every, options.searches)
        found = online(domain, seed, epochs, *how) if epochs else offline(domain, seed)
        seconds = round(time.process_time() - start, 1)
        line = {"domain": domain, "seed": seed, "epochs": epochs, "seconds": seconds, **found}
        lines.append(line)
        with options.file.open("a") as file:
            file.write(json.dumps(line) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main()
