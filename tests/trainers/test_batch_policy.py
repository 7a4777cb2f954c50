"""BatchPolicy: the bytes of `augment` for every kind of batch, and the same after a resume."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import ddas_gpu
from ddas_gpu import BatchPolicy, PolicySchedule, PolicyTransform, SearchSpace

SPACE = SearchSpace.preset("imagenet")
SCHEDULE = PolicySchedule(
    SPACE, np.array([0.5, 1.0]), np.random.default_rng(1).dirichlet(np.ones(len(SPACE)), 2)
)
IMAGES = np.random.default_rng(2).integers(0, 256, (24, 14, 11, 3), np.uint8)
SAMPLES = np.arange(100, 124)


def policy(epoch: int = 1, **settings) -> BatchPolicy:
    made = BatchPolicy(SCHEDULE, epochs=2, **{"seed": 3} | settings)
    made.set_epoch(epoch)
    return made


def test_every_image_gets_the_policy_of_its_number():
    transform = PolicyTransform(SCHEDULE, epochs=2, seed=3)
    for epoch in (0, 1):
        transform.set_epoch(epoch)
        expected = [transform(image, index=i) for i, image in zip(SAMPLES, IMAGES, strict=True)]
        found = policy(epoch)(IMAGES, SAMPLES)
        np.testing.assert_array_equal(found, expected)
        assert (found != IMAGES).any((1, 2, 3)).mean() > 0.2
    order = np.random.default_rng(0).permutation(24)
    np.testing.assert_array_equal(policy()(IMAGES[order], SAMPLES[order]), found[order])


def test_all_kinds_of_batches_come_back_as_they_came():
    expected = policy()(IMAGES, SAMPLES)
    chw = IMAGES.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(policy()(chw, SAMPLES).transpose(0, 2, 3, 1), expected)
    tensor = torch.from_numpy(IMAGES)
    assert torch.equal(policy()(tensor, torch.from_numpy(SAMPLES)), torch.from_numpy(expected))
    planes = tensor.permute(0, 3, 1, 2)
    for batch in (planes.contiguous(), planes, planes.contiguous()[::1]):
        found = policy()(batch, SAMPLES)
        assert found.dtype == torch.uint8 and found.shape == batch.shape
        assert found.stride() == batch.stride()
        assert torch.equal(found.permute(0, 2, 3, 1), torch.from_numpy(expected))
    np.testing.assert_array_equal(tensor, IMAGES)  # left alone


def test_images_are_numbered_as_they_come():
    one, other = policy(), policy()
    whole = one(IMAGES)
    parts = np.concatenate([other(part) for part in np.split(IMAGES, [5, 8, 20])])
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole, policy()(IMAGES, np.arange(24)))
    assert (one(IMAGES) != whole).any()  # the next 24 images
    one.set_epoch(1)
    np.testing.assert_array_equal(one(IMAGES), whole)


def test_it_resumes_within_an_epoch():
    stopped = policy()
    stopped(IMAGES)
    state = stopped.state_dict()
    rest = [stopped(IMAGES) for _ in range(2)]
    resumed = BatchPolicy(SCHEDULE, epochs=2, seed=3)
    resumed.load_state_dict(state)
    resumed.set_epoch(1)  # as trainers do; it must not go back
    for expected in rest:
        np.testing.assert_array_equal(resumed(IMAGES), expected)


@pytest.mark.parametrize(
    ("schedule", "epochs", "seed", "message"),
    [
        (SCHEDULE, 2, 4, "of a BatchPolicy with seed 3, but this one has 4; .* set_epoch"),
        (SCHEDULE.with_uniform(0.5), 2, 3, r"with policy 2 epochs of .* candidates \("),
    ],
)
def test_the_state_of_another_policy_is_refused(schedule, epochs, seed, message):
    with pytest.raises(ValueError, match=message):
        BatchPolicy(schedule, epochs, seed).load_state_dict(policy().state_dict())


def test_a_training_may_be_made_longer():
    stopped, longer = policy(), BatchPolicy(SCHEDULE, epochs=4, seed=3)
    with pytest.warns(RuntimeWarning, match="with epochs 2, but this one has 4"):
        longer.load_state_dict(stopped.state_dict())
    expected = BatchPolicy(SCHEDULE, epochs=4, seed=3)
    expected.set_epoch(stopped.epoch)
    np.testing.assert_array_equal(longer(IMAGES), expected(IMAGES))


@pytest.mark.parametrize("state", [{}, {"epoch": 1, "seen": 0}, [], {"epoch": 1.0}])
def test_what_is_no_state(state):
    with pytest.raises(ValueError, match="^the state"):
        policy().load_state_dict(state)


def test_a_state_of_an_older_version_is_continued():
    made = policy()
    made.load_state_dict({"epoch": 1, "seen": 24, "seed": 3})
    np.testing.assert_array_equal(made(IMAGES), policy()(IMAGES, np.arange(24, 48)))


class InCollate:
    """A policy where batches are put together: in the worker processes."""

    def __init__(self, numbered: bool) -> None:
        self.policy, self.numbered = policy(), numbered

    def __call__(self, places: list[int]) -> np.ndarray:
        return self.policy(IMAGES[places], np.array(places) if self.numbered else None)


@pytest.mark.parametrize("workers", [0, 2])
def test_worker_processes_must_number_the_images(workers):
    """Each would count from 0 for itself, and two workers would draw the same."""
    numbered = DataLoader(range(24), 6, collate_fn=InCollate(True), num_workers=workers)
    np.testing.assert_array_equal(np.concatenate(list(numbered)), policy()(IMAGES))
    counted = DataLoader(range(24), 6, collate_fn=InCollate(False), num_workers=workers)
    if workers:
        with pytest.raises(ValueError, match="call it in the training loop, or give it samples="):
            next(iter(counted))
    else:
        np.testing.assert_array_equal(np.concatenate(list(counted)), policy()(IMAGES))


def test_ranks_draw_differently(monkeypatch):
    from ddas_gpu.transforms import batch

    found = []
    for rank in (0, 1):
        monkeypatch.setattr(batch, "shard_of", lambda *_, rank=rank, **__: (rank, 2))
        found.append(policy()(IMAGES[:12]))
    numbers = np.arange(24).reshape(12, 2)
    for rank in (0, 1):
        expected = policy()(IMAGES[:12], numbers[:, rank])
        np.testing.assert_array_equal(found[rank], expected)


@pytest.mark.parametrize("fill", [0, 128])
def test_floats_are_within_a_level_of_the_bytes(fill):
    ops = [c.op for c in SPACE if c.op != "Equalize"]
    space = SearchSpace.of(dict.fromkeys(ops), (7, 14), 1, SPACE.scale, fill)
    rows = np.full((1, len(space)), 1 / len(space))
    made = BatchPolicy(PolicySchedule(space, [1.0], rows), 1)
    images = np.random.default_rng(4).integers(0, 256, (120, 16, 12, 3), np.uint8)
    samples = np.arange(120)
    expected = torch.from_numpy(made(images, samples)).permute(0, 3, 1, 2)
    floats = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
    found = made(floats, samples)
    assert found.dtype == torch.float32
    assert (found * 255 - expected).abs().max() < 1.01
    nhwc = made(floats.permute(0, 2, 3, 1), samples)
    assert torch.equal(nhwc.permute(0, 3, 1, 2), found)
    half = made(floats.half(), samples)
    assert half.dtype == torch.float16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_floats_may_be_out_of_range_by_rounding(dtype):
    floats = (torch.from_numpy(IMAGES).permute(0, 3, 1, 2) / 255).to(dtype)
    expected = policy()(floats, SAMPLES)
    beyond = floats.where((floats > 0) & (floats < 1), floats * 1.0000002 - 1e-7)
    torch.testing.assert_close(policy()(beyond, SAMPLES), expected, atol=1e-5, rtol=0)


def test_a_policy_for_boxes_is_refused():
    boxes = SearchSpace.preset("coco")
    rows = np.full((1, len(boxes)), 1 / len(boxes))
    with pytest.raises(ValueError, match="BBox_Cutout needs boxes, which BoxPolicyTransform takes"):
        BatchPolicy(PolicySchedule(boxes, [1.0], rows), 1)


def test_gradients_reach_the_images():
    floats = (torch.from_numpy(IMAGES).permute(0, 3, 1, 2) / 255).requires_grad_()
    policy()(floats, SAMPLES).sum().backward()
    assert floats.grad is not None and torch.isfinite(floats.grad).all()
    assert (floats.grad != 0).any((1, 2, 3)).float().mean() > 0.5


def test_shifts_follow_the_size_of_the_images():
    space = SearchSpace.of(["TranslateX"], [10], depth=1)  # 10 pixels of 100
    made = BatchPolicy(PolicySchedule(space, [1.0], [[1.0]], {"image_size": 100}), 1)
    for side in (20, 50):
        batch = np.full((3, side, side, 3), 255, np.uint8)
        assert ((made(batch) == 0).all((1, 3)).sum(1) == side // 10).all()


@pytest.mark.parametrize(
    ("batch", "settings", "problem", "message"),
    [
        ([IMAGES[0]], {}, TypeError, "a batch is a numpy array or a torch tensor, not list"),
        (IMAGES.astype(np.float32), {}, TypeError, "a batch is uint8, or a tensor of floats"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.int64), {}, TypeError, "not torch.int64"),
        (IMAGES[0], {}, ValueError, "NCHW or NHWC of 3 channels, not of the shape .14, 11, 3."),
        (np.zeros((2, 3, 4, 3), np.uint8), {}, ValueError, "may be NCHW or NHWC: give layout="),
        (IMAGES, {"layout": "NCHW"}, ValueError, "a batch is NCHW of 3 channels"),
        (torch.randn(2, 3, 8, 8), {}, ValueError, r"in \[0, 1\], .* before the normalisation"),
        (torch.full((2, 3, 8, 8), 1.002), {}, ValueError, r"not in \[1.002, 1.002\]"),
        (torch.full((2, 3, 8, 8), torch.nan), {}, ValueError, r"must lie in \[0, 1\]"),
    ],
)
def test_what_is_not_a_batch(batch, settings, problem, message):
    with pytest.raises(problem, match=message):
        policy(**settings)(batch)


def test_the_layout_may_be_given():
    batch = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 3), np.uint8)
    invert = PolicySchedule(SearchSpace.of(["Invert"], depth=1), [1.0], [[1.0]])
    for layout in ("NCHW", "NHWC"):
        np.testing.assert_array_equal(BatchPolicy(invert, 1, layout=layout)(batch), 255 - batch)
    with pytest.raises(ValueError, match="layout is one of NCHW, NHWC, not 'CHW'"):
        BatchPolicy(invert, 1, layout="CHW")


def test_an_empty_batch():
    assert policy()(IMAGES[:0]).shape == (0, 14, 11, 3)


def test_it_is_a_public_name(tmp_path):
    SCHEDULE.save(tmp_path / "policy.json")
    made = ddas_gpu.BatchPolicy(tmp_path / "policy.json", epochs=2, seed=3)
    made.set_epoch(1)
    np.testing.assert_array_equal(made(IMAGES), policy()(IMAGES))


@pytest.mark.gpu
def test_batches_on_a_gpu():
    expected = policy()(IMAGES, SAMPLES)
    found = policy()(torch.from_numpy(IMAGES).cuda(), SAMPLES)
    assert found.is_cuda
    np.testing.assert_array_equal(found.cpu().numpy(), expected)
