"""The exported policy does what ours does: op by op within the bounds, and in its counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from export_bounds import within

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.export.differences import DALI, EXACT
from ddas_gpu.exports import dali_policy
from ddas_gpu.ops import apply_op
from ddas_gpu.ops.table import OPS, PixelScale

pytest.importorskip("nvidia.dali")

from nvidia.dali import fn, pipeline_def
from nvidia.dali.auto_aug.auto_augment import apply_auto_augment

from ddas_gpu.export.dali_operators import augmentation_of
from ddas_gpu.export.filled import apply_filled

LEVELS = (0, 2, 6, 10, 14)


def run(images: np.ndarray, graph, batches: int = 1) -> list[np.ndarray]:
    """Batches of a graph on the CPU."""

    @pipeline_def(
        batch_size=len(images), num_threads=1, device_id=None, enable_conditionals=True, seed=1
    )
    def pipeline():
        return graph(fn.external_source(source=[list(images)], cycle=True, layout="HWC"))

    pipe = pipeline()
    pipe.build()
    made = [pipe.run()[0] for _ in range(batches)]
    return [np.stack([np.array(image) for image in batch]) for batch in made]


@pytest.mark.parametrize("op", [op for op in OPS if not OPS[op].centred])
def test_op_by_op(photographs, op):
    """Every level, both signs; the outputs of one graph."""
    declared = OPS[op]
    arguments = [declared.law(level, PixelScale()) for level in LEVELS] if declared.law else [None]
    arguments += [-argument for argument in arguments if declared.signed]
    for argument in arguments:
        augmentation = augmentation_of(op, [argument])
        if declared.law is not None:  # the sign is ours to choose here
            augmentation = augmentation.augmentation(randomly_negate=False)
        bins = {} if declared.law is None else {"magnitude_bin": 0, "num_magnitude_bins": 1}
        (theirs,) = run(photographs, lambda data, a=augmentation, b=bins: a(data, **b))
        within(DALI.get(op, EXACT), apply_op(photographs, op, argument), theirs)


@pytest.mark.parametrize("op", ["Rotate", "ShearX", "TranslateY"])
def test_the_fill_value_is_exported(photographs, op):
    space = SearchSpace.of([op], [10], depth=1, fill=128)
    schedule = PolicySchedule(space, [1.0], [[1.0]])
    policy = dali_policy(schedule, 0, 1)
    (theirs,) = run(photographs, lambda data: apply_auto_augment(policy, data))
    for image, found in zip(photographs, theirs, strict=True):
        signs = [apply_filled([image], op, [sign * space.argument(0)], 128)[0] for sign in (1, -1)]
        assert any((found == ours).all(2).mean() > 0.99 for ours in signs)


def test_holes_have_the_fill_value():
    space = SearchSpace.of(["Cutout"], [10], depth=1, fill=128)
    policy = dali_policy(PolicySchedule(space, [1.0], [[1.0]]), 0, 1)
    (found,) = run(np.full((8, 32, 32, 3), 200, np.uint8), lambda d: apply_auto_augment(policy, d))
    assert set(np.unique(found)) == {128, 200}


def test_cutout_puts_a_hole_somewhere():
    images = np.full((8, 32, 32, 3), 200, np.uint8)
    augmentation = augmentation_of("Cutout", [8])
    bins = {"magnitude_bin": 0, "num_magnitude_bins": 1}
    (made,) = run(images, lambda data: augmentation(data, **bins))
    sizes = (made[..., 0] == 0).sum((1, 2))
    assert (sizes > 0).all() and (sizes <= 64).all()
    assert len({image.tobytes() for image in made}) > 1


def schedule() -> PolicySchedule:
    space = SearchSpace.of(["Invert", "Equalize", "Rotate"], (5, 10), 2)
    return PolicySchedule(space, [0.4, 0.75], [[0.25] * 4, [0.1, 0.6, 0.3, 0.0]])


def test_counts_are_the_probabilities():
    policy = dali_policy(schedule(), epoch=5, total_epochs=6)
    assert policy.num_magnitude_bins == 2
    assert len(policy.sub_policies) == 1000
    for stage in (0, 1):
        names = Counter(
            (augmentation.name.split("__")[-1], bin)
            for augmentation, _, bin in (row[stage] for row in policy.sub_policies)
        )
        assert names == {
            ("Identity", None): 250,
            ("Invert", None): 75,
            ("Equalize", None): 450,
            ("Rotate", 0): 225,
        }
    pairs = Counter(tuple(a.name for a, _, _ in row) for row in policy.sub_policies)
    assert len(pairs) > 4  # the stages are drawn apart


def test_the_policy_runs_in_a_pipeline():
    images = np.random.default_rng(0).integers(0, 256, (16, 24, 24, 3), dtype=np.uint8)
    policy = dali_policy(schedule(), epoch=5, total_epochs=6)
    made = run(images, lambda data: apply_auto_augment(policy, data), batches=20)
    alike = np.mean([(batch == images).all((1, 2, 3)) for batch in made])
    # Left alone, or inverted twice.
    assert alike == pytest.approx(0.25 + 0.75 * 0.01, abs=0.1)


@pytest.mark.parametrize("preset", ["cifar", "imagenet", "digits"])
def test_every_space_runs_in_a_pipeline(preset):
    space = SearchSpace.preset(preset)
    whole = PolicySchedule(space, [1.0], np.full((1, len(space)), 1 / len(space)))
    images = np.random.default_rng(0).integers(0, 256, (8, 40, 40, 3), dtype=np.uint8)
    policy = dali_policy(whole, 0, 1)
    (made,) = run(images, lambda data: apply_auto_augment(policy, data))
    assert made.shape == images.shape and made.dtype == np.uint8
