"""How reliable is the search? Agreement between seeds, and whether the right op comes first.

    python benchmarks/reliability.py runs/reliability.jsonl --settings before deck
    python benchmarks/reliability.py runs/reliability.jsonl --table --replay before

Every run searches on 300 digits as they are, with validation images of another domain, in this
process. A finished run is a line of the file: started again, the script does what is missing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy.stats import spearmanr
from torch import nn
from torch.nn import functional as F

from ddas_gpu import ops, streams
from ddas_gpu.data.digits import open_digits
from ddas_gpu.data.sources import ImageArrays
from ddas_gpu.models import build
from ddas_gpu.pipelines.pixels import channel_statistics, normalise
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.search.algorithm import Search
from ddas_gpu.search.alpha import AugmentationParameters
from ddas_gpu.search.settings import SearchSettings, preset
from ddas_gpu.space import SearchSpace
from ddas_gpu.tasks.classification import Classification

SIZE = 16
# Half of the preset's epochs, 270 steps, about 15 s on one core; and the levels of CIFAR's space.
SHORT = {"epochs": 30, "levels": (2, 6, 10, 14), "warmup_epochs": 0}

# The digits' preset before 0.2.0, with rates that move α as far in half of the steps.
BEFORE: dict[str, Any] = {
    "policies": 8,
    "batch_size": 32,
    "lr_ops": 0.02,
    "lr_apply": 0.002,
    "adam_betas": (0.5, 0.999),
    "draws": "independent",
    "compare_with": "clean",
    "val_memory": 0.0,
}
FAST_APPLY = {**BEFORE, "lr_apply": 0.04}
MORE = {"policies": 16, "batch_size": 16, "epochs": 15}  # as many images per step and in all
TOGETHER = {**FAST_APPLY, "draws": "deck", "compare_with": "policies", "val_memory": 0.9}
SETTINGS: dict[str, dict[str, Any]] = {
    "before": BEFORE,
    "apply": FAST_APPLY,
    "deck": {**FAST_APPLY, "draws": "deck"},
    "relative": {**FAST_APPLY, "compare_with": "policies"},
    "memory": {**FAST_APPLY, "val_memory": 0.9},
    "memory-97": {**FAST_APPLY, "val_memory": 0.97},
    "more": {**FAST_APPLY, **MORE},
    "together": TOGETHER,
    "chosen": {**TOGETHER, **MORE, "lr_ops": 0.04, "adam_betas": (0.9, 0.999)},
}


def rotated(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    return image.rotate(generator.uniform(-50, 50), Image.Resampling.BILINEAR)


def shifted(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    x, y = generator.integers(-4, 5, 2)
    return image.transform(image.size, Image.Transform.AFFINE, (1, 0, int(x), 0, 1, int(y)))


def inverted(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    return image.point(lambda level: 255 - level)


def dark(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    return image.point(lambda level: int(level * 0.25))


def same(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    return image


# {domain: how its images are made, the candidates of which one should come first}. Solarize inverts
# everything from level 10 on; levels 2 and 6 shift by 1 and 4 pixels, 10 by 8. In the same domain
# nothing is known to be right.
DOMAINS: dict[str, tuple[Callable[..., Image.Image], tuple[str, ...]]] = {
    "rotated": (rotated, ("Rotate 6", "Rotate 10", "Rotate 14")),
    "shifted": (
        shifted,
        tuple(f"Translate{axis} {level}" for axis in "XY" for level in (2, 6)),
    ),
    "inverted": (inverted, ("Invert", "Solarize 10", "Solarize 14")),
    "dark": (dark, ("Brightness 2", "Contrast 2")),
    "same": (same, ()),
}


def in_domain(source: ImageArrays, domain: str, seed: int) -> ImageArrays:
    """Return the same digits as they look in another domain."""
    make, generator = DOMAINS[domain][0], np.random.default_rng([seed, 16])
    images = [np.asarray(make(Image.fromarray(image), generator)) for image in source.images]
    return ImageArrays(np.stack(images), source.labels, source.class_names, source.members())


class OtherDomain(Classification):
    """The digits with validation images of another domain."""

    domain = "same"

    def search_sets(self) -> tuple[ImageArrays, ImageArrays]:
        train, validation = super().search_sets()
        assert isinstance(train, ImageArrays) and isinstance(validation, ImageArrays)
        return train, in_domain(validation, self.domain, self.seed)


def settings_of(name: str, seed: int) -> SearchSettings:
    values = {**SHORT, **SETTINGS[name]}
    return preset("digits").replace(**values, seed=seed, threads=1)


def run(name: str, domain: str, seed: int, training: bool) -> dict[str, Any]:
    """Search; return the line of this run."""
    settings = settings_of(name, seed)
    task = OtherDomain(settings)
    task.domain = domain
    start = time.process_time()
    search = Search(settings, settings.search_space(), task)
    while not search.finished:
        search.step()
    schedule = search.schedule()
    policies, rewards, _ = search.trials.arrays()
    line = {
        "settings": name,
        "domain": domain,
        "seed": seed,
        "seconds": round(time.process_time() - start, 1),
        "steps": search.steps,
        "p_tp": schedule.p_tp[-1],
        "p_o": schedule.p_o[-1].tolist(),
        "policies": policies.tolist(),
        "rewards": [[float(f"{r:.4g}") for r in row] for row in rewards.tolist()],
    }
    if training:
        line["accuracy"] = accuracy_under(schedule, search, domain)
    return line


def accuracy_under(
    schedule: PolicySchedule, search: Search, domain: str, epochs: int = 60
) -> float:
    """Train on the search's digits under a policy; return the accuracy on unseen ones."""
    seed, space = search.seed, search.space
    test = unseen(search.train, search.validation, domain, seed)
    images, labels = search.train.images, torch.from_numpy(search.train.labels)
    statistics = channel_statistics(images)
    torch.manual_seed(seed)
    model = build("small", 10)
    sgd = torch.optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=5e-4, nesterov=True)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, epochs)
    last = PolicySchedule(space, schedule.p_tp[-1:], schedule.p_o[-1:])
    for epoch in range(epochs):
        samples = np.arange(len(images))
        chosen = last.draw(epoch, epochs, seed, samples)
        pixels = ops.augment(
            torch.from_numpy(images), chosen, space, streams.sign_key(seed, epoch), samples=samples
        )
        inputs = normalise(pixels, *statistics)
        order = streams.generator(seed, streams.Stream.TRAINING_ORDER, epoch).permutation(samples)
        for batch in np.array_split(order, len(order) // 32):
            sgd.zero_grad()
            F.cross_entropy(model(inputs[batch]), labels[batch]).backward()
            sgd.step()
        cosine.step()
    return accuracy(model, test, statistics)


def unseen(train: ImageArrays, validation: ImageArrays, domain: str, seed: int) -> ImageArrays:
    """Return the digits that are in neither set, as they look in a domain."""
    everything = open_digits(SIZE)
    seen = {*map(int, train.members()), *map(int, validation.members())}
    left = np.array([i for i in range(len(everything)) if i not in seen])
    return in_domain(everything.subset(left), domain, seed + 1000)


def accuracy(model: nn.Module, test: ImageArrays, statistics: tuple[Any, Any]) -> float:
    """Return the share of the images that a trained network names right."""
    model.eval()
    with torch.no_grad():
        guessed = model(normalise(torch.from_numpy(test.images), *statistics)).argmax(1)
    return (guessed == torch.from_numpy(test.labels)).double().mean().item()


def summarise(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of the runs of one setting in one domain."""
    names = [str(candidate) for candidate in settings_of("before", 0).search_space()]
    right = [names.index(name) for name in DOMAINS[lines[0]["domain"]][1]]
    p_o = np.array([line["p_o"] for line in lines])
    pairs = list(itertools.combinations(p_o, 2))
    correlations = [spearmanr(one, other).statistic for one, other in pairs]
    order = np.argsort(-p_o, axis=1)
    accuracies = [line["accuracy"] for line in lines if "accuracy" in line]
    return {
        "runs": len(lines),
        "rank correlation": float(np.mean(correlations)) if pairs else float("nan"),
        "first": float(np.mean([row[0] in right for row in order])) if right else float("nan"),
        "share": float(p_o[:, right].sum(1).mean()) if right else float("nan"),
        "p_tp": float(np.mean([line["p_tp"] for line in lines])),
        "accuracy": 100 * float(np.mean(accuracies)) if accuracies else float("nan"),
        "seconds": float(np.mean([line["seconds"] for line in lines])),
        "top": names[np.argmax(p_o.mean(0))],
    }


def table(lines: list[dict[str, Any]]) -> str:
    """Return the figures as a table of Markdown."""
    head = "settings domain runs correlation first share p_tp accuracy seconds top".split()
    rows = [head, ["---"] * len(head)]
    keys = sorted({(line["settings"], line["domain"]) for line in lines})
    for name, domain in keys:
        own = [line for line in lines if (line["settings"], line["domain"]) == (name, domain)]
        values = summarise(own)
        numbers = [
            f"{value:.2f}" if isinstance(value, float) else str(value) for value in values.values()
        ]
        rows.append([name, domain, *numbers])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


# {rule: how α would have learned from the same rewards}
RULES: dict[str, dict[str, Any]] = {
    "clean": {},
    "policies": {"relative": True},
    "policies, β 0.9": {"relative": True, "betas": (0.9, 0.999)},
    "policies, twice the rate": {"relative": True, "lr_ops": 0.04},
    "policies, mean α of the last third": {"relative": True, "last": 1 / 3},
    "policies, levels share 0.3": {"relative": True, "share": 0.3},
    "policies, levels share 0.5": {"relative": True, "share": 0.5},
}


def replayed(
    line: dict[str, Any], last: float = 0.0, share: float = 0.0, lr_ops: float = 0.02, **rule: Any
) -> dict[str, Any]:
    """Return a run as if α had learned by another rule from the same rewards.

    last: average α over this share of the steps, at the end; share: what neighbouring levels of an
    op give and get of each update. That θ would have learned otherwise, too, is left out.
    """
    space = settings_of("before", 0).search_space()
    mixing = torch.from_numpy((1 - share) * np.eye(len(space)) + share * neighbours(space))
    alpha = AugmentationParameters(len(space), lr_ops=lr_ops, lr_apply=0.04, **rule)
    alpha.alpha_o.register_hook(lambda gradient: mixing @ gradient)
    seen = []
    for policies, rewards in zip(line["policies"], line["rewards"], strict=True):
        alpha.update(np.array(policies), torch.tensor(rewards, dtype=torch.float64))
        seen.append(alpha.alpha_o.detach().clone())
    kept = seen[-max(1, round(last * len(seen))) :]
    p_o = torch.softmax(torch.stack(kept).mean(0), 0)
    return {**line, "p_o": p_o.tolist(), "p_tp": alpha.apply_probability}


def neighbours(space: SearchSpace) -> np.ndarray:
    """Return (K, K): row k is the mean over the levels next to k; itself where there is none."""
    rows = np.eye(len(space))
    for index, candidate in enumerate(space):
        near = [i for i in (index - 1, index + 1) if 0 <= i < len(space)]
        near = [i for i in near if space[i].op == candidate.op]
        if near:
            rows[index] = 0
            rows[index, near] = 1 / len(near)
    return rows


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="one line of JSON per finished run")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=[])
    parser.add_argument("--domains", nargs="+", choices=DOMAINS, default=["rotated", "shifted"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--train", action="store_true", help="measure the test accuracy, too")
    parser.add_argument("--table", action="store_true", help="print the figures")
    parser.add_argument("--replay", choices=SETTINGS, help="and those of other rules for α")
    given = parser.parse_args()
    torch.set_num_threads(1)
    ops.set_num_threads(1)
    done = {(line["settings"], line["domain"], line["seed"]) for line in read(given.file)}
    for seed, name, domain in itertools.product(given.seeds, given.settings, given.domains):
        if (name, domain, seed) not in done:
            line = run(name, domain, seed, given.train)
            with given.file.open("a") as file:
                file.write(f"{json.dumps(line)}\n")
    if given.table:
        print(table(read(given.file)))
    if given.replay:
        own = [line for line in read(given.file) if line["settings"] == given.replay]
        for rule, values in RULES.items():
            lines = [{**replayed(line, **values), "settings": rule} for line in own]
            print(table(lines))


if __name__ == "__main__":
    main()
