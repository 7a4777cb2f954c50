from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image
from run_folders import Page, schedule

from ddas_gpu import augment
from ddas_gpu.ops import PixelScale, augment_boxes
from ddas_gpu.report.reading import Samples
from ddas_gpu.report.samples import (
    SEED,
    candidate_pictures,
    draw_policies,
    outlined,
    picture,
    sample_sheet,
)
from ddas_gpu.space import SearchSpace

SPACE = SearchSpace.preset("digits")
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
SAMPLES = Samples(IMAGES, ["one", "two", "three"])


def pixels(image: dict[str, str | None]) -> np.ndarray:
    data = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(data)))


def test_a_picture_holds_the_very_pixels():
    (image,) = Page(picture(IMAGES[0], "a name")).all("img")
    np.testing.assert_array_equal(pixels(image), IMAGES[0])
    assert image["alt"] == "a name" and image["class"] == "pixels"


def test_a_large_picture_is_made_smaller():
    (image,) = Page(picture(np.zeros((500, 1000, 3), np.uint8), "x")).all("img")
    assert pixels(image).shape == (112, 224, 3) and "class" not in image


def test_policies_follow_the_probabilities_of_the_epoch():
    found = schedule(SPACE, 4)
    drawn = draw_policies(found, 3, 200_000)
    assert drawn.shape == (200_000, SPACE.depth)
    shares = np.bincount(drawn.ravel(), minlength=len(SPACE)) / drawn.size
    np.testing.assert_allclose(shares, found.p_o[3], atol=4e-3)


def test_the_sheet_shows_each_image_clean_and_under_two_policies():
    found = schedule(SPACE, 4)
    page = Page(sample_sheet(found, SAMPLES, 4, 4))
    shown = [pixels(image) for image in page.all("img")]
    first, last = (
        augment(IMAGES, draw_policies(found, epoch, 3), SPACE, seed=SEED) for epoch in (0, 3)
    )
    expected = [image for i in range(3) for image in (IMAGES[i], first[i], last[i])]
    np.testing.assert_array_equal(shown, expected)
    for candidate in draw_policies(found, 3, 3).ravel():
        assert str(SPACE[candidate]) in page.words()


def test_the_sheet_is_the_same_every_time():
    found = schedule(SPACE, 4)
    assert sample_sheet(found, SAMPLES, 4, 4) == sample_sheet(found, SAMPLES, 4, 4)


def test_a_candidate_is_shown_alone():
    found = schedule(SPACE, 1)
    invert = [str(c) for c in SPACE].index("Invert")
    (image,) = Page(candidate_pictures(found, SAMPLES, [invert])[0]).all("img")
    np.testing.assert_array_equal(pixels(image), 255 - IMAGES[0])
    assert image["alt"] == "one under Invert"


def test_policies_of_one_op():
    space = SearchSpace.preset("sanity")
    assert len(Page(sample_sheet(schedule(space, 2), SAMPLES, 2, 2)).all("img")) == 9


def test_a_schedule_of_one_entry_is_shown_once():
    page = Page(sample_sheet(schedule(SPACE, 1), SAMPLES, 5, 5))
    assert len(page.all("img")) == 6
    assert "every epoch" in page.words() and "epoch 1" not in page.words()


@pytest.mark.parametrize(
    ("entries", "done", "total", "titles"),
    [
        (60, 40, 40, ["epoch 1", "epoch 40"]),
        (60, 10, 40, ["epoch 1", "epoch 10"]),
        (2, 90, 90, ["epoch 1", "epoch 90"]),
        (2, 1, 90, ["epoch 1"]),
        (60, 1, 1, ["epoch 1"]),
    ],
)
def test_epochs_are_those_of_the_training(entries, done, total, titles):
    """A training of 40 epochs has no epoch 60, however long the search was."""
    found = schedule(SPACE, entries)
    page = Page(sample_sheet(found, SAMPLES, done, total))
    assert set(re.findall(r"epoch \d+", page.words())) == set(titles)
    entry = (2 * done - 1) * entries // (2 * total)
    last = augment(IMAGES, draw_policies(found, entry, 3), SPACE, seed=SEED)
    shown = [pixels(image) for image in page.all("img")]
    np.testing.assert_array_equal(shown[len(titles) :: len(titles) + 1], last)


BOXES = [np.array([[2.0, 3.0, 12.0, 14.0]]), np.zeros((0, 4)), np.array([[0.0, 0.0, 8.0, 8.0]])]
WITH_BOXES = Samples(list(IMAGES), SAMPLES.names, BOXES)


def test_boxes_are_drawn_where_they_are():
    shown = outlined(np.full((16, 16, 3), 128, np.uint8), BOXES[0])
    assert shown.shape == (224, 224, 3)  # small images grow, or lines would cover them
    rows, columns = np.nonzero((shown != 128).any(-1))
    assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == (28, 42, 168, 196)
    assert (shown[60:180, 50:150] == 128).all()  # lines, not filled
    large = outlined(np.full((448, 896, 3), 128, np.uint8), np.array([[40.0, 80.0, 400.0, 400.0]]))
    assert large.shape == (112, 224, 3)
    assert (large[20, 50] == (0, 0, 0)).all() and (large[21, 50] == (255, 221, 0)).all()


def test_the_sheet_of_a_detector_moves_boxes_with_the_pixels():
    space = SearchSpace.of(("TranslateX_BBox",), levels=(10,), depth=1, scale=PixelScale(4), fill=9)
    images = Page(sample_sheet(schedule(space, 1), WITH_BOXES, 1, 1)).all("img")
    clean = [pixels(image) for image in images[::2]]
    for image, boxes, shown in zip(IMAGES, BOXES, clean, strict=True):
        np.testing.assert_array_equal(shown, outlined(image, boxes))
    moved, new, _ = augment_boxes(
        list(IMAGES), BOXES, [np.zeros(len(b), np.int64) for b in BOXES], [0], space, SEED
    )
    for image, boxes, data in zip(moved, new, images[1::2], strict=True):
        np.testing.assert_array_equal(pixels(data), outlined(image, boxes))
    assert not np.array_equal(new[0], BOXES[0])
