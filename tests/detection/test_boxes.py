"""Geometry of boxes."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from ddas_gpu.detection.boxes import areas, clip, decode, encode, overlaps

# Boxes of whole pixels, so that they can be painted.
whole = st.tuples(*[st.integers(0, 11)] * 2, *[st.integers(1, 8)] * 2).map(
    lambda v: (v[0], v[1], v[0] + v[2], v[1] + v[3])
)


def painted(box: tuple[int, ...]) -> torch.Tensor:
    mask = torch.zeros(20, 20, dtype=torch.bool)
    mask[box[1] : box[3], box[0] : box[2]] = True
    return mask


@given(st.lists(whole, min_size=1, max_size=4), st.lists(whole, min_size=1, max_size=4))
def test_overlap_is_that_of_the_painted_boxes(one, other):
    found = overlaps(torch.tensor(one).double(), torch.tensor(other).double())
    for i, a in enumerate(map(painted, one)):
        for j, b in enumerate(map(painted, other)):
            expected = (a & b).sum().item() / (a | b).sum().item()
            assert abs(found[i, j].item() - expected) < 1e-12


def test_overlap_of_nothing_with_nothing_is_no_nan():
    point = torch.tensor([[3.0, 3.0, 3.0, 3.0]])
    assert overlaps(point, point).tolist() == [[0.0]]
    assert overlaps(point, torch.zeros(0, 4)).shape == (1, 0)


@given(whole, whole)
def test_decoding_undoes_encoding(box, anchor):
    box, anchor = torch.tensor([box]).double(), torch.tensor([anchor]).double()
    torch.testing.assert_close(decode(encode(box, anchor), anchor), box)


def test_wild_predictions_stay_finite():
    anchor = torch.tensor([[0.0, 0.0, 10.0, 10.0]])
    assert decode(torch.full((1, 4), 1e4), anchor).isfinite().all()


def test_clipping():
    boxes = torch.tensor([[-5.0, 2.0, 30.0, 40.0], [50.0, 50.0, 60.0, 60.0]])
    clipped = clip(boxes, height=20, width=25)
    assert clipped.tolist() == [[0, 2, 25, 20], [25, 20, 25, 20]]
    assert areas(clipped).tolist() == [25 * 18, 0]
