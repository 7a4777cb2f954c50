"""Whole search steps, against a straightforward implementation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from side_by_side import take_turns
from torch.nn import functional as F

from ddas_gpu.cli.shell import keep_freed_memory
from ddas_gpu.ops import OPS
from ddas_gpu.ops.records import steps_of
from ddas_gpu.search.algorithm import Search, open_search
from ddas_gpu.search.alpha import rewards
from ddas_gpu.search.settings import preset
from ddas_gpu.streams import draw

NOTE = (
    "ms a step. Straightforward: the published algorithm as one would write it first, with Pillow "
    "image by image, L̂ + 1 gradients kept and tensors as torch lays them out. It profits from our "
    "command's keeping freed memory, which counts for the whole process. The stages are ours, in "
    "percent of the step."
)
DIGITS = {
    "digits, small network, L̂ = 8": {},
    "digits at 32 px, WRN-16-1, L̂ = 3": {"image_size": 32, "model": "wrn-16-1", "policies": 3},
}


@pytest.mark.parametrize("scale", DIGITS)
def test_digits(scale, device, benchmark, tables):
    settings = preset("digits").replace(**DIGITS[scale])
    compare_steps(scale, settings, device, benchmark, tables, rounds=9)


def test_cifar10(unpacked, device, benchmark, tables):
    """The paper's own search: WRN-40-2, L̂ = 3, batches of 32 and 256."""
    settings = preset("cifar10").replace(root=unpacked("cifar10.tar.gz"))
    compare_steps("CIFAR-10, WRN-40-2, L̂ = 3", settings, device, benchmark, tables, rounds=3)


def compare_steps(scale, settings, device, benchmark, tables, rounds) -> None:
    keep_freed_memory()
    search, plain = (open_search(settings, device=device) for _ in range(2))
    plain.model.to(memory_format=torch.contiguous_format)
    metrics = []
    ways = {
        "ddas_gpu": lambda: metrics.append(search.step()),
        "straightforward": lambda: straightforward_step(plain),
    }
    times = take_turns(ways, rounds=rounds, round_seconds=0.05)
    ratio = times["straightforward"].median / times["ddas_gpu"].median
    stages = {name: sum(m["seconds"][name] for m in metrics) for name in metrics[0]["seconds"]}
    total = sum(stages.values())
    columns = ("search", *ways, "ratio", *stages)
    tables.get_or_make("A whole search, step by step", columns, NOTE).add(
        scale,
        *(f"{times[way].median * 1e3:.1f}" for way in ways),
        f"{ratio:.2f}×",
        *(f"{seconds / total:.1%}" for seconds in stages.values()),
    )
    benchmark.extra_info["ratio"] = ratio
    benchmark.pedantic(ways["ddas_gpu"], rounds=1)


def straightforward_step(search: Search) -> None:
    """Take a step of Algorithm 1 with only the data and α of the package."""
    step, model, weights = search.steps, search.model, search.learner.weights
    batch = search.batches.batch(step)
    clean, labels, task = batch.images, batch.labels, search.task
    policies = search.draw_policies(step)
    gradients = []
    for pixels in [clean, *(with_pillow(clean, policy, search, step) for policy in policies)]:
        inputs, _ = task.validation_inputs(batch._replace(images=pixels))
        loss = F.cross_entropy(model(inputs.contiguous()), labels)
        gradients.append(torch.autograd.grad(loss, weights))
    shares = search.parameters.weights(policies).tolist()
    combined = [
        sum(w * g for w, g in zip(shares, each, strict=True))
        for each in zip(*gradients, strict=True)
    ]
    search.learner.descend(
        dict(zip(search.learner.names, combined, strict=True)), search.learning_rate(step)
    )
    inputs, targets = task.validation_inputs(search.validation_batches.batch(step))
    _, direction = search.learner.validation_gradient(inputs.contiguous(), targets)
    flat = torch.cat([direction[name].flatten() for name in search.learner.names])
    dots = torch.stack([torch.cat([g.flatten() for g in each]) @ flat for each in gradients])
    search.parameters.update(policies, rewards(dots.double()))
    search.steps += 1


def with_pillow(
    images: torch.Tensor, policy: np.ndarray, search: Search, seed: int
) -> torch.Tensor:
    steps, draws = steps_of(search.space), draw(seed, np.arange(len(images)), len(policy))
    results = []
    for i, image in enumerate(images.cpu()):
        picture = Image.fromarray(image.numpy())
        for stage, candidate in enumerate(policy):
            name, argument = steps[candidate]
            if OPS[name].signed and draws.negative[i, stage]:
                argument = -argument
            arguments = () if argument is None else (argument,)
            picture = OPS[name].pillow(picture, *arguments)
        results.append(torch.from_numpy(np.array(picture)))
    return torch.stack(results).to(images.device)
