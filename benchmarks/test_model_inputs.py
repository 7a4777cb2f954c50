"""From uint8 images to the input of a network: policy, normalise, layout and type."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from side_by_side import take_turns

from ddas_gpu import SearchSpace, augment
from ddas_gpu.ops.inputs import inputs_of
from ddas_gpu.pipelines.pixels import normalise
from ddas_gpu.pipelines.transform import IMAGENET_MEAN, IMAGENET_STD, Output

SPACE = SearchSpace.preset("imagenet")
BATCH = 64
NOTE = (
    "ms for a batch of 64, half of it under a policy of 2 ops. Step by step: `augment`, then torch "
    "subtracts, divides, converts and transposes. One pass: `inputs_of`, with the same bits."
)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("size", [32, 224])
def test_model_inputs(size, dtype, layout, photographs, device, benchmark, tables):
    arrays = [np.asarray(photo.resize((size, size))) for photo in photographs]
    images = torch.from_numpy(np.stack([arrays[i % len(arrays)] for i in range(BATCH)])).to(device)
    rng = np.random.default_rng(0)
    policies = rng.integers(0, len(SPACE), (BATCH, 2))
    policies[rng.random(BATCH) < 0.5] = -1
    wanted = Output(IMAGENET_MEAN, IMAGENET_STD, layout, dtype)

    def step_by_step() -> torch.Tensor:
        inputs = normalise(augment(images, policies, SPACE), wanted.mean, wanted.std)
        if layout == "NHWC":
            inputs = inputs.permute(0, 2, 3, 1)
        return inputs.to(getattr(torch, dtype)).contiguous()

    def one_pass() -> torch.Tensor:
        return inputs_of(images, wanted, SPACE.request(policies, len(images)))

    assert torch.equal(step_by_step(), one_pass())
    times = take_turns({"step by step": step_by_step, "one pass": one_pass}, rounds=9)
    one, other = times["one pass"].median, times["step by step"].median
    columns = ("images", "step by step", "one pass", "step by step / one pass")
    tables.get_or_make("Model inputs", columns, NOTE).add(
        f"{size} px, {layout}, {dtype}",
        f"{other * 1e3:.2f}",
        f"{one * 1e3:.2f}",
        f"{other / one:.1f}×",
    )
    benchmark.extra_info["ratio"] = other / one
    benchmark.pedantic(one_pass, rounds=5, iterations=3)
