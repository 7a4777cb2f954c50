"""Without DALI a detector gets the same boxes, and the same pixels but for the filter."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from ddas_gpu.data.coco import Annotated
from ddas_gpu.pipelines import detection_loader
from ddas_gpu.pipelines.box_api import prepare_boxes
from ddas_gpu.pipelines.host import BoxesOnHost
from ddas_gpu.pipelines.loader import Loader

RAW = {"mean": [0.0] * 3, "std": [1.0] * 3}


def plain(source, schedule, **settings) -> Loader:
    """What `detection_loader` falls back to."""
    usual = {"training": True, "epochs": 3, "batch_size": 4}
    feed, order = prepare_boxes(source, schedule=schedule, **usual | settings)
    return Loader(feed, order, partial(BoxesOnHost, device="cpu"))


@pytest.fixture(scope="module")
def squares(tmp_path_factory, annotated) -> list[Annotated]:
    """The images as squares that need no scaling."""
    folder, made = tmp_path_factory.mktemp("squares"), []
    for number, image in enumerate(annotated):
        path = folder / f"{number}.png"
        Image.fromarray(image.read()).resize((64, 64)).save(path)
        factor = np.tile([64 / image.width, 64 / image.height], 2)
        columns = image.boxes * factor, image.labels, image.areas, image.crowd
        made.append(Annotated(path, 64, 64, *columns))
    return made


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_same_to_the_bit_where_nothing_is_scaled(squares, box_schedule, layout):
    pytest.importorskip("nvidia.dali")
    settings = {"resize": 64, "seed": 5, "layout": layout}
    expected = detection_loader(squares, box_schedule, 4, 3, "cpu", **settings)
    found = plain(squares, box_schedule, **settings)
    for _ in range(3):
        for mine, yours in zip(found, expected, strict=True):
            torch.testing.assert_close(mine.images, yours.images, rtol=0, atol=1e-5)
            for one, other in zip(mine[1:], yours[1:], strict=True):
                assert torch.equal(one, other)


def test_half_a_level_apart_where_images_are_scaled(coco_root):
    """On photographs: filters differ by 0.2 levels in the mean, decoders not at all."""
    pytest.importorskip("nvidia.dali")
    settings = {"resize": (100, 167), "training": False} | RAW
    found = plain(coco_root, None, batch_size=32, **settings)
    expected = detection_loader(coco_root, None, 32, device="cpu", **settings)
    for mine, yours in zip(found, expected, strict=True):
        assert mine.images.shape == yours.images.shape
        difference = (mine.images - yours.images).abs()
        assert difference.mean() < 0.5 and (difference > 8).float().mean() < 0.001


def test_boxes_and_policies_are_the_same_where_images_are_scaled(annotated, box_schedule):
    pytest.importorskip("nvidia.dali")
    settings = {"resize": (32, 64), "seed": 7}
    expected = detection_loader(annotated, box_schedule, 4, 3, "cpu", **settings)
    found = plain(annotated, box_schedule, **settings)
    for _ in range(3):
        for mine, yours in zip(found, expected, strict=True):
            for one, other in zip(mine[1:], yours[1:], strict=True):
                assert torch.equal(one, other)


def test_the_loader_falls_back_with_one_warning(annotated, box_schedule, no_dali):
    with pytest.warns(RuntimeWarning, match="because DALI is missing") as warned:
        batches = detection_loader(annotated, box_schedule, 4, 3, "cpu", resize=32)
        found = list(batches)
    assert len(warned) == 1
    for mine, yours in zip(found, plain(annotated, box_schedule, resize=32), strict=True):
        assert all(torch.equal(one, other) for one, other in zip(mine, yours, strict=True))


def test_the_fallback_resumes(annotated, box_schedule):
    one, other = (plain(annotated, box_schedule, resize=32) for _ in range(2))
    passing = iter(one)
    next(passing)
    other.load_state_dict(one.state_dict())
    for mine, yours in zip(other, passing, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, yours, strict=True))


def test_an_unreadable_file_is_named(annotated, tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match="cannot read the image .*bad.jpg"):
        list(plain([*annotated[:3], replace(annotated[3], file=tmp_path / "bad.jpg")], None))
