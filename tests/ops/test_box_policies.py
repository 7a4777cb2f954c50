"""Ops with boxes: pixels as defined in Pillow, boxes where the pixels went."""

import numpy as np
import oracle
import pytest
import torch
from harness.bank import bank_kernels, bank_on
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from ddas_gpu import SearchSpace, augment
from ddas_gpu.ops import PixelScale, augment_boxes
from ddas_gpu.ops import box_policies as boxes
from ddas_gpu.ops.table import BOX_OPS, Reach, find_any, variant

SPACE = SearchSpace.preset("coco")


def some_pictures(seed, count, largest=60):
    """Noise of many sizes, with up to four boxes each."""
    rng = np.random.default_rng(seed)
    images, found, labels = [], [], []
    for _ in range(count):
        height, width = rng.integers(3, largest, 2)
        corners = rng.random((rng.integers(0, 5), 2, 2)) * [width, height]
        images.append(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        found.append(np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1))
        labels.append(rng.integers(0, 80, len(corners)))
    return images, found, labels


def planned(seed, count, depth, largest=60):
    """Pictures, a policy for each, and what Pillow makes of them."""
    images, found, labels = some_pictures(seed, count, largest)
    policies = np.random.default_rng(seed).integers(-1, len(SPACE), (count, depth))
    arguments = (found, labels, policies, SPACE, seed)
    plans = boxes.plan_boxes([image.shape[:2] for image in images], *arguments)
    pairs = zip(images, plans.steps, strict=True)
    return images, arguments, [oracle.run_steps(*pair, SPACE.fill) for pair in pairs]


@given(st.integers(0, 2**32), st.integers(1, 4))
@settings(max_examples=60)
def test_the_kernels_do_what_pillow_defines(seed, depth):
    images, arguments, want = planned(seed, 8, depth)
    got = augment_boxes(images, *arguments)[0]
    for i in range(8):
        assert (got[i] == want[i]).all(), f"image {i}, policy {arguments[2][i]}"


@pytest.mark.parametrize("order", ["forward", "reverse", "racecheck"])
def test_the_cuda_kernels_do_too(order):
    racecheck = order == "racecheck"
    kernels = bank_kernels(order="shuffled" if racecheck else order, racecheck=racecheck)
    images, arguments, want = planned(7, 40, 3, largest=40)
    with bank_on(kernels):
        got = augment_boxes(images, *arguments, backend="cpu")[0]
    assert all((a == b).all() for a, b in zip(got, want, strict=True))


@given(st.integers(0, 2**32), st.integers(1, 4))
@settings(max_examples=40)
def test_torch_does_too(seed, depth):
    """Also with images that torch made, as on a GPU without CuPy."""
    images, arguments, want = planned(seed, 8, depth)
    tensors = [torch.from_numpy(image) for image in images]
    got = augment_boxes(tensors, *arguments, backend="kornia")
    same = augment_boxes(images, *arguments)
    for i in range(8):
        assert (got[0][i].numpy() == want[i]).all(), f"image {i}, policy {arguments[2][i]}"
        assert (got[1][i] == same[1][i]).all()
        assert (got[2][i] == same[2][i]).all()


@pytest.mark.parametrize("name", BOX_OPS)
def test_torch_knows_every_op_for_boxes(name, monkeypatch):
    monkeypatch.setattr(boxes, "BOX_PROBABILITY", 1.0)
    image = np.random.default_rng(5).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    arguments = ([[[3.0, 4, 30, 20]]], [[1]], [0], candidate(name), 6)
    (got,), *_ = augment_boxes([image], *arguments, backend="kornia")
    (want,), *_ = augment_boxes([image], *arguments)
    assert (got == want).all() and (got != image).any()


def candidate(name, level=8):
    """A space with one candidate that leaves zeros behind, and its only policy."""
    law = find_any(name).law
    return SearchSpace.of([name], [] if law is None else [level], depth=1)


@given(
    st.sampled_from([name for name, op in BOX_OPS.items() if op.reach is Reach.WITH_BOXES]),
    st.integers(0, 30),
    st.integers(0, 2**32),
)
@settings(max_examples=150)
def test_boxes_go_where_the_pixels_go(name, level, seed):
    rng = np.random.default_rng(seed)
    height, width = (64, 64) if name == "Rotate90_BBox" else (50, 70)
    (x0, x1), (y0, y1) = (np.sort(rng.choice(side, 2, replace=False)) for side in (width, height))
    image = np.zeros((height, width, 3), np.uint8)
    image[y0:y1, x0:x1] = 255
    arguments = ([[[x0, y0, x1, y1]]], [[1]], [0], candidate(name, level), seed)
    (mask,), (moved,), (labels,) = augment_boxes([image], *arguments)
    rows, columns = np.nonzero(mask[..., 0])
    if len(moved) == 0:
        assert len(labels) == 0
        assert len(rows) <= 2  # nearest-neighbour sampling may keep a pixel on the very edge
        return
    if len(rows) == 0:  # a sliver that no pixel's centre lies in
        return
    left, top, right, bottom = moved[0]
    assert left - 1 <= columns.min()
    assert columns.max() + 1 <= right + 1
    assert top - 1 <= rows.min()
    assert rows.max() + 1 <= bottom + 1
    whole = 1 <= left and right <= width - 1 and 1 <= top and bottom <= height - 1
    if whole and min(x1 - x0, y1 - y0) > 8:  # nothing was clipped or widened: the hull is tight
        slack = 2.5
        assert columns.min() - left < slack
        assert right - columns.max() - 1 < slack
        assert rows.min() - top < slack
        assert bottom - rows.max() - 1 < slack


def test_boxes_that_leave_are_dropped_with_their_labels():
    space = SearchSpace.of(["TranslateX_BBox"], [10], depth=1)  # by 10 pixels
    image, found = np.zeros((40, 40, 3), np.uint8), np.array([[0, 0, 5, 5], [15, 15, 25, 25]])
    for seed in range(8):
        _, (left,), (labels,) = augment_boxes([image], [found], [[7, 9]], [0], space, seed)
        to_the_left = (left[:, 0] < 15).any() and 7 not in labels
        assert to_the_left == (len(left) == 1)
        assert 9 in labels


def test_a_box_of_some_size_keeps_a_twentieth_of_the_side():
    space = SearchSpace.of(["TranslateX_BBox"], [29], depth=1)  # by 29 pixels
    image, found = np.zeros((100, 100, 3), np.uint8), np.array([[20.0, 40, 30, 60], [28, 0, 30, 3]])
    for seed in range(20):
        _, (moved,), (labels,) = augment_boxes([image], [found], [[1, 2]], [0], space, seed)
        if moved[0, 0] == 0:  # to the left: one pixel of each would be left
            assert moved[0].tolist() == [0, 40, 5, 60]
            assert moved[labels == 2].tolist() == [[0, 0, 1, 3]]  # it was smaller before
            return
    raise AssertionError("no seed moved the image to the left")


@pytest.mark.parametrize("name", [n for n, op in BOX_OPS.items() if op.reach is Reach.EACH_BOX])
def test_ops_inside_boxes_touch_nothing_else(name, monkeypatch):
    monkeypatch.setattr(boxes, "BOX_PROBABILITY", 1.0)
    image = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    found = np.array([[5, 5, 25, 30], [40, 20, 70, 50]])
    (got,), (same,), _ = augment_boxes([image], [found], [[0, 1]], [0], candidate(name), 4)
    assert (same == found).all()
    changed = (got != image).any(axis=-1)
    assert changed[5:30, 5:25].any()
    assert changed[20:50, 40:70].any()
    changed[5:30, 5:25] = changed[20:50, 40:70] = False
    assert not changed.any()


def test_flipping_inside_a_box(monkeypatch):
    monkeypatch.setattr(boxes, "BOX_PROBABILITY", 1.0)
    image = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    (got,), *_ = augment_boxes(
        [image], [[[4.2, 3.9, 11.5, 9]]], [[0]], [0], candidate("Flip_Only_BBoxes")
    )
    want = image.copy()
    want[3:9, 4:12] = image[3:9, 4:12][:, ::-1]  # to whole pixels, outwards
    assert (got == want).all()


def test_each_box_has_a_chance_of_a_third():
    image = np.zeros((40, 4000, 3), np.uint8)
    found = np.array([[4.0 * i, 0, 4 * i + 3, 3] for i in range(1000)])
    (got,), *_ = augment_boxes(
        [image], [found], [np.zeros(1000)], [0], candidate("Solarize_Only_BBoxes", 10), 5
    )
    inverted = int(got[0, ::4, 0].astype(bool).sum())
    assert binomtest(inverted, 1000, 1 / 3).pvalue > 1e-3


def test_cutting_a_box_stays_inside_it():
    image, found = np.full((50, 50, 3), 9, np.uint8), np.array([[10, 10, 30, 20], [35, 35, 45, 45]])
    hit = set()
    for seed in range(30):
        (got,), *_ = augment_boxes([image], [found], [[0, 1]], [0], candidate("BBox_Cutout"), seed)
        rows, columns = np.nonzero(got[..., 0] == 0)
        inside = [
            (x0 <= columns).all()
            and (columns < x1).all()
            and (y0 <= rows).all()
            and (rows < y1).all()
            for x0, y0, x1, y1 in found
        ]
        assert sum(inside) == 1 or len(rows) == 0
        hit.add(tuple(inside))
    assert {(True, False), (False, True)} <= hit


def test_invariant_under_order_and_the_same_on_torch():
    images, found, labels = some_pictures(3, count=10)
    policies = np.random.default_rng(2).integers(0, len(SPACE), (10, 2))
    samples = np.arange(10) + 50
    straight = augment_boxes(images, found, labels, policies, SPACE, 1, samples=samples)
    back = [list(reversed(part)) for part in (images, found, labels)]
    tensors = [torch.from_numpy(image) for image in back[0]]
    reversed_ = augment_boxes(tensors, *back[1:], policies[::-1], SPACE, 1, samples=samples[::-1])
    for i in range(10):
        assert isinstance(reversed_[0][9 - i], torch.Tensor)
        assert (reversed_[0][9 - i].numpy() == straight[0][i]).all()
        assert (reversed_[1][9 - i] == straight[1][i]).all()


IMAGE = np.zeros((8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: augment_boxes([IMAGE], [], [[1]], [0], SPACE), "1 images, but boxes of 0"),
        (lambda: augment_boxes([IMAGE], [[[0, 0, 1, 1]]], [[]], [0], SPACE), "1 boxes, but 0"),
        (lambda: augment_boxes([IMAGE], [[[2, 0, 1, 1]]], [[1]], [0], SPACE), "x0 <= x1"),
        (lambda: augment_boxes([IMAGE], [[[0, 0, np.nan, 1]]], [[1]], [0], SPACE), "finite"),
        (lambda: augment_boxes([IMAGE], [[]], [[]], [68], SPACE), "index 68 is outside"),
        (lambda: augment_boxes([IMAGE], [[]], [[]], [[0], [1]], SPACE), "2 policies for 1"),
        (lambda: augment(IMAGE[None], [0, 1], SPACE), "needs boxes: use"),
        (lambda: variant("Rotate_BBox", "Rotate", Reach.WITH_BOXES), "declared twice"),
        (lambda: find_any("Rotate_Box"), "unknown op 'Rotate_Box'.*Rotate_BBox"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_pixels_follow_the_scale_of_the_data():
    arguments = {str(c): SPACE.argument(i) for i, c in enumerate(SPACE)}
    assert arguments["TranslateX_BBox 8"] == 200
    assert arguments["TranslateX_Only_BBoxes 8"] == 96
    assert arguments["Cutout_Only_BBoxes 8"] == 40
    assert arguments["BBox_Cutout 8"] == pytest.approx(0.6)
    small = SearchSpace.of(["TranslateX_Only_BBoxes"], [10], scale=PixelScale(25, 10))
    assert small.argument(0) == 12
