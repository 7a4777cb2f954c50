"""RandAugment, TrivialAugment and uniform policies as schedules."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.ops import apply_op
from ddas_gpu.ops.table import PixelScale, find
from ddas_gpu.train import baselines


def test_uniform_is_where_a_search_starts():
    space = SearchSpace.preset("cifar")
    schedule = baselines.uniform(space)
    assert schedule.space == space
    assert schedule.p_tp.tolist() == [0.35]
    assert np.ptp(schedule.p_o) == 0


def test_randaugment_always_applies_ops_of_one_level():
    schedule = baselines.randaugment(ops=3, level=5, scale=PixelScale(translate=100))
    assert len(schedule.space) == 14
    assert schedule.space.depth == 3
    assert {candidate.level for candidate in schedule.space} == {None, 5}
    drawn = schedule.draw(3, 10, 0, np.arange(20_000))
    assert (drawn >= 0).all()
    counts = np.bincount(drawn.ravel(), minlength=14) / drawn.size
    assert np.abs(counts - 1 / 14).max() < 0.005
    places = {str(c): schedule.space.argument(i) for i, c in enumerate(schedule.space)}
    assert places["TranslateX 5"] == 50 and places["Rotate 5"] == 15


def test_trivialaugment_draws_ops_and_magnitudes_evenly():
    schedule = baselines.trivialaugment()
    assert schedule.space.depth == 1
    by_op = {}
    for candidate, probability in zip(schedule.space, schedule.p_o[0], strict=True):
        by_op.setdefault(candidate.op, []).append(probability)
    assert len(by_op) == 14
    for probabilities in by_op.values():
        assert sum(probabilities) == pytest.approx(1 / 14)
        assert len(probabilities) in (1, baselines.TRIVIALAUGMENT_BINS)
        assert np.ptp(probabilities) == 0
    degrees = [schedule.space.argument(i) for i, c in enumerate(schedule.space) if c.op == "Rotate"]
    assert degrees == list(range(31))


# (op, smallest and largest argument, number of different ones): torchvision's TrivialAugmentWide,
# with the signs of the enhancements and without those that are drawn.
WIDE = [
    ("ShearX", 0, 0.99, 31),
    ("TranslateY", 0, 32, 31),
    ("Rotate", 0, 135, 31),
    ("Brightness", 0.01, 1.99, 61),
    ("Color", 0.01, 1.99, 61),
    ("Contrast", 0.01, 1.99, 61),
    ("Sharpness", 0.01, 1.99, 61),
    ("Posterize", 2, 8, 7),
    ("Solarize", 0, 255, 31),
]


@pytest.mark.parametrize(("op", "low", "high", "different"), WIDE)
def test_the_wide_ranges_are_torchvisions(op, low, high, different):
    space = baselines.trivialaugment_wide().space
    found = [space.argument(i) for i, candidate in enumerate(space) if candidate.op == op]
    assert min(found) == pytest.approx(low) and max(found) == pytest.approx(high)
    assert len({round(argument, 5) for argument in found}) == different
    find(op).accepts.check(op, min(found))
    find(op).accepts.check(op, max(found))


def test_the_wide_magnitudes_bin_by_bin():
    schedule = baselines.trivialaugment_wide()
    bins = np.arange(31)

    def arguments(op: str) -> list[float]:
        return [schedule.space.argument(i) for i, c in enumerate(schedule.space) if c.op == op]

    assert arguments("Rotate") == (4.5 * bins).tolist()
    assert arguments("Posterize") == (8 - np.round(bins / 5)).tolist()
    assert arguments("Solarize") == np.ceil(255 - 8.5 * bins).tolist()
    assert arguments("TranslateX") == np.floor(32 * bins / 30).tolist()
    assert np.allclose(arguments("ShearX"), 0.033 * bins, atol=1e-6)
    p_o = dict(zip(map(str, schedule.space), schedule.p_o[0], strict=True))
    assert p_o["Color 5"] == pytest.approx(2 * p_o["Color 0"])  # the magnitude 0 has no sign
    assert p_o["Rotate 0"] == p_o["Rotate 10"] == pytest.approx(1 / 14 / 31)
    assert p_o["Identity"] == pytest.approx(1 / 14)


@pytest.mark.parametrize("op", [op for op, *_ in WIDE])
def test_the_wide_ranges_are_pillows_bytes(op):
    space = baselines.trivialaugment_wide().space
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    chosen = [i for i, candidate in enumerate(space) if candidate.op == op][::6]
    for argument in map(space.argument, chosen):
        expected = np.asarray(find(op).pillow(Image.fromarray(image), argument))
        assert (apply_op(image[None], op, argument)[0] == expected).all()


@pytest.mark.parametrize(("size", "pixels"), [(16, 16), (32, 32), (224, 32)])
def test_small_images_are_shifted_by_their_own_width_at_most(size, pixels):
    assert baselines.trivialaugment_wide(size).space.scale.translate == pixels


def test_a_wide_space_is_kept_in_its_file(tmp_path):
    schedule = baselines.trivialaugment_wide()
    schedule.save(tmp_path / "policy.json")
    again = PolicySchedule.load(tmp_path / "policy.json")
    assert again == schedule and again.space.ranges == "wide"
    with pytest.raises(ValueError, match="end at level 10"):
        SearchSpace.of(["Rotate"], [11], ranges="wide")
    with pytest.raises(ValueError, match="one of autoaugment, wide"):
        SearchSpace.of(["Rotate"], [1], ranges="huge")
