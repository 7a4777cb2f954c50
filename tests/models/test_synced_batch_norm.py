"""Synced batch norm is batch norm; that it is over all ranks, tests/distributed shows."""

from __future__ import annotations

import pytest
import torch
from torch import distributed, nn

from ddas_gpu.models.small import SmallResNet
from ddas_gpu.models.synced_batch_norm import SyncedBatchNorm2d, sync_batch_norm


@pytest.fixture
def group_of_one(tmp_path):
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    yield
    distributed.destroy_process_group()


def test_alone_it_is_torchs(group_of_one):
    """Outputs, gradients and running statistics, in training and then in evaluation."""
    torch.manual_seed(0)
    model = SmallResNet(10).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    synced = SmallResNet(10).double()
    synced.load_state_dict(model.state_dict())
    sync_batch_norm(synced)
    assert not [m for m in synced.modules() if type(m) is nn.BatchNorm2d]
    images = torch.randn(4, 3, 16, 16, dtype=torch.float64)
    for _ in range(2):
        outputs = [each(images) for each in (model, synced)]
        torch.testing.assert_close(*outputs, rtol=1e-9, atol=1e-12)
        gradients = [
            torch.autograd.grad(out.square().sum(), list(each.parameters()))
            for out, each in zip(outputs, (model, synced), strict=True)
        ]
        torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-10)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(synced.state_dict()[name], value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(model.eval()(images), synced.eval()(images))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_sums_of_short_numbers_are_long(group_of_one, kind):
    images = (1000 + torch.arange(2 * 3 * 64 * 64) % 7).reshape(2, 3, 64, 64).to(kind)
    norm = SyncedBatchNorm2d(3)
    outputs = norm(images)
    assert outputs.dtype == kind
    torch.testing.assert_close(
        outputs.float(), nn.BatchNorm2d(3)(images.float()), atol=0.01, rtol=0.01
    )
