"""Step 1 of the search: a clean batch and its versions under three policies of two ops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from peers.dali import NOT_AHEAD, source_of
from PIL import Image
from side_by_side import take_turns

from ddas_gpu import SearchSpace
from ddas_gpu.ops import OPS, versions
from ddas_gpu.ops.records import steps_of
from ddas_gpu.streams import draw

SPACE = SearchSpace.preset("cifar")
BATCH, POLICIES = 32, 3
NOTE = (
    "ms for a batch of 32 and its versions under 3 policies of 2 ops, drawn anew in every call. "
    "Pillow: tensor → PIL → ops → tensor, image by image. DALI, kornia: their own RandAugment of "
    "2 ops, three times over the batch, kornia on floats."
)


@pytest.mark.parametrize("size", [32, 224])
def test_policy_step(size, photographs, device, benchmark, tables):
    arrays = np.stack([np.asarray(photo.resize((size, size))) for photo in photographs])
    on_host = torch.from_numpy(arrays)
    images = on_host.to(device)
    rng = np.random.default_rng(0)

    def policies() -> np.ndarray:
        return rng.integers(0, len(SPACE), (POLICIES, SPACE.depth))

    def ours() -> None:
        versions(images, policies(), SPACE, seed=int(rng.integers(1 << 31)))

    ways = {
        "ddas_gpu": ours,
        "Pillow": lambda: with_pillow(on_host, policies()).to(device),
        "DALI": dali(arrays, device),
        "kornia": kornia(images),
        "our torch back end": lambda: versions(images, policies(), SPACE, backend="kornia"),
    }
    times = take_turns(ways, rounds=9, round_seconds=0.02)
    columns = ("size", *ways, "best peer / ours")
    best = min(times[way].median for way in ("Pillow", "DALI", "kornia"))
    ratio = best / times["ddas_gpu"].median
    cells = (f"{times[way].median * 1e3:.2f}" for way in ways)
    tables.get_or_make("Policy step of the search", columns, NOTE).add(
        f"{size} px", *cells, f"{ratio:.1f}×"
    )
    benchmark.extra_info["ratio"] = ratio
    benchmark.pedantic(ours, rounds=5, iterations=3)


def with_pillow(images: torch.Tensor, policies: np.ndarray) -> torch.Tensor:
    """Do it as a straightforward program does."""
    steps, results = steps_of(SPACE), [images]
    draws = draw(0, np.arange(len(images)), SPACE.depth)
    for policy in policies:
        changed = []
        for i, image in enumerate(images):
            picture = Image.fromarray(image.numpy())
            for stage, candidate in enumerate(policy):
                (_, argument), op = steps[candidate], OPS[steps[candidate][0]]
                if op.signed and draws.negative[i, stage]:
                    argument = -argument
                picture = op.pillow(picture) if argument is None else op.pillow(picture, argument)
            changed.append(torch.from_numpy(np.array(picture)))
        results.append(torch.stack(changed))
    return torch.stack(results)


def dali(arrays: np.ndarray, device: str):
    """Run a pipeline whose batch is the three copies."""
    from nvidia.dali import pipeline_def
    from nvidia.dali.auto_aug import rand_augment
    from nvidia.dali.pipeline import do_not_convert

    batch = np.concatenate([arrays] * POLICIES)

    @pipeline_def(
        batch_size=len(batch),
        num_threads=torch.get_num_threads(),
        device_id=0 if device == "cuda" else None,
        enable_conditionals=True,
        **NOT_AHEAD,
    )
    def pipeline():
        images = do_not_convert(source_of)(batch, device)
        return rand_augment.rand_augment(images, n=SPACE.depth, m=10)

    built = pipeline()
    built.build()
    return built.run


def kornia(images: torch.Tensor):
    """Run kornia's RandAugment on the three copies at once."""
    from kornia.augmentation.auto import RandAugment

    augment = RandAugment(n=SPACE.depth, m=10)
    batch = images.permute(0, 3, 1, 2).float().div(255).repeat(POLICIES, 1, 1, 1)

    @torch.no_grad()
    def call() -> None:
        augment(batch)

    return call
