"""Without DALI the loader still works, with one warning and the same draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ddas_gpu.pipelines import loader, training_pipeline


@pytest.fixture(params=["arrays", "folder", "small files"])
def source(request):
    if request.param == "arrays":
        return request.getfixturevalue("arrays"), {}
    look = {"size": 32} if request.param == "folder" else {"size": (24, 30), "crop": "pad"}
    return request.getfixturevalue("folder"), look


def with_dali(root, schedule, **settings) -> list:
    pytest.importorskip("nvidia.dali")
    return list(loader(root, schedule, 4, 3, "cpu", **settings))


@pytest.mark.parametrize("training", [True, False])
def test_the_fallback_sees_what_dali_sees(request, source, schedule, training):
    """Bit by bit for arrays; files are scaled by another filter, so no policy there."""
    root, settings = source
    in_memory = isinstance(root, tuple)
    settings = settings | {"training": training, "mean": [0] * 3, "std": [64] * 3}
    if training:
        settings |= {"cutout": 6}
    policy = schedule if in_memory and training else None
    expected = with_dali(root, policy, **settings)
    request.getfixturevalue("no_dali")
    with pytest.warns(RuntimeWarning, match="because DALI is missing") as warned:
        batches = loader(root, policy, 4, 3, "cpu", **settings)
        found = list(batches)
    assert len(warned) == 1 and len(found) == len(expected) == len(batches)
    for (images, labels), (right, right_labels) in zip(found, expected, strict=True):
        assert torch.equal(labels, right_labels)
        assert images.shape == right.shape and images.dtype == right.dtype
        assert torch.equal(images, right) if in_memory else (images - right).abs().mean() < 0.05


def test_the_fallback_resumes(arrays, schedule, no_dali):
    with pytest.warns(RuntimeWarning, match="DALI is missing"):
        one, other = (loader(arrays, schedule, 4, 3) for _ in range(2))
    passing = iter(one)
    next(passing)
    other.load_state_dict(one.state_dict())
    for (images, _), (right, _) in zip(other, passing, strict=True):
        assert torch.equal(images, right)


def test_records_and_pipelines_need_dali(arrays, schedule, tmp_path, no_dali):
    with pytest.raises(ImportError, match="need NVIDIA DALI, also on the CPU: install ddas_gpu"):
        training_pipeline(arrays, schedule, 4, 3)
    (tmp_path / "a.tar").write_bytes(b"")
    with (
        pytest.warns(RuntimeWarning, match="DALI is missing"),
        pytest.raises(ValueError, match="reading .tar and .tfrecord files needs DALI"),
    ):
        loader(tmp_path / "a.tar", schedule, 4, 3)


def test_half_precision_and_channels_last(arrays, no_dali):
    with pytest.warns(RuntimeWarning, match="DALI is missing"):
        batches = loader(arrays, None, 4, dtype="float16", layout="NHWC")
    images, _ = next(iter(batches))
    assert images.dtype == torch.float16 and images.shape == (4, 12, 10, 3)
    assert np.isfinite(images.float().numpy()).all()
