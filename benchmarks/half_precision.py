"""What 16 bits do to a search: the order of the candidates beside that of two seeds.

    python benchmarks/half_precision.py digits
    python benchmarks/half_precision.py cifar10 --root data/cifar10

Rank correlations (Spearman's ρ) of the final p_o: float32 against bfloat16 and float16 with the
same seed, and float32 with two seeds. On a CPU float16 is slow; --types bf16 leaves it out.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np

from ddas_gpu.report.correlation import rank_agreement
from ddas_gpu.search.algorithm import open_search
from ddas_gpu.search.settings import SearchSettings, preset


def final_probabilities(settings: SearchSettings) -> np.ndarray:
    """Return p_o after a whole search."""
    search = open_search(settings)
    while not search.finished:
        search.step()
    return search.parameters.op_probabilities


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=["digits", "cifar10"])
    parser.add_argument("--root", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--types", nargs="+", default=["bf16", "fp16"])
    options = parser.parse_args()
    # CIFAR-10 at a scale that two cores finish: a small network, 500 images, 12 epochs.
    small = {"model": "wrn-10-1", "train_images": 500, "val_images": 500, "epochs": 12}
    changes = {} if options.data == "digits" else {**small, "val_batch_size": 64}
    settings = preset(options.data).replace(root=options.root, **changes)
    found = {}
    for seed, amp in itertools.product(range(options.seeds), ["off", *options.types]):
        found[amp, seed] = final_probabilities(settings.replace(seed=seed, amp=amp))
        print(f"{options.data}, seed {seed}, amp {amp}: done", flush=True)
    for amp in options.types:
        same = [rank_agreement(found["off", s], found[amp, s])[0] for s in range(options.seeds)]
        print(f"{options.data}: float32 and {amp}, same seed: {np.round(same, 3).tolist()}")
    pairs = itertools.combinations(range(options.seeds), 2)
    other = [rank_agreement(found["off", a], found["off", b])[0] for a, b in pairs]
    print(f"{options.data}: float32, two seeds: {np.round(other, 3).tolist()}")


if __name__ == "__main__":
    main()
