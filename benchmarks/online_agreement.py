"""Does a search during the training find what the offline search finds? On the digits.

    python benchmarks/online_agreement.py

Rank correlations (Spearman's ρ) of the final p_o: of two offline searches with different seeds, and
of an online search with each of them. Online searches train the same network on the same images,
four times as long, and take one step of the search in every fourth of their steps.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch.nn import functional as F

from ddas_gpu import OnlineSearch, SearchSpace
from ddas_gpu.models import build
from ddas_gpu.report.correlation import rank_agreement
from ddas_gpu.search.algorithm import open_search
from ddas_gpu.search.settings import preset

SEEDS = range(3)


def offline(seed: int) -> np.ndarray:
    """Return p_o after the preset's search."""
    search = open_search(preset("digits").replace(seed=seed))
    while not search.finished:
        search.step()
    return search.parameters.op_probabilities


def online(seed: int, epochs: int = 240) -> np.ndarray:
    """Return p_o after a training with a step of the search in every fourth of its steps."""
    train, validation = open_search(preset("digits").replace(seed=seed)).task.search_sets()
    torch.manual_seed(seed)
    model = build("small", 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
    space = SearchSpace.preset("digits")
    held_out = (validation.images, validation.labels)
    search = OnlineSearch(
        model,
        F.cross_entropy,
        held_out,
        space,
        every=4,
        policies=2,
        batch_size=32,
        val_batch_size=128,
        lr_ops=0.01,
        seed=seed,
    )
    pixels = torch.from_numpy(train.images).permute(0, 3, 1, 2).contiguous()
    labels = torch.from_numpy(train.labels)
    for _ in range(epochs):
        for chosen in torch.randperm(len(pixels)).split(32)[:-1]:
            search.step(pixels[chosen], labels[chosen])
            outputs = model(search.augment(pixels[chosen]).float() / 255)
            optimizer.zero_grad()
            F.cross_entropy(outputs, labels[chosen]).backward()
            optimizer.step()
        search.end_epoch()
    return search.parameters.op_probabilities


def main() -> None:
    offline_found = [offline(seed) for seed in SEEDS]
    online_found = [online(seed) for seed in SEEDS]

    def told(pairs: list[tuple[np.ndarray, np.ndarray]]) -> str:
        found = [rank_agreement(a, b) for a, b in pairs]
        return ", ".join(f"{each[0]:.2f}" for each in found if each is not None)

    print(f"offline and offline: {told(list(itertools.combinations(offline_found, 2)))}")
    print(f"online and online: {told(list(itertools.combinations(online_found, 2)))}")
    print(f"online and offline: {told(list(itertools.product(online_found, offline_found)))}")


if __name__ == "__main__":
    main()
