from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image
from run_folders import Page, schedule

from ddas_gpu import augment
from ddas_gpu.reporting.run import Samples
from ddas_gpu.reporting.samples import (
    SEED,
    candidate_pictures,
    draw_policies,
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
    page = Page(sample_sheet(found, SAMPLES))
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
    assert sample_sheet(found, SAMPLES) == sample_sheet(found, SAMPLES)


def test_a_candidate_is_shown_alone():
    found = schedule(SPACE, 1)
    invert = [str(c) for c in SPACE].index("Invert")
    (image,) = Page(candidate_pictures(found, SAMPLES, [invert])[0]).all("img")
    np.testing.assert_array_equal(pixels(image), 255 - IMAGES[0])
    assert image["alt"] == "one under Invert"


def test_policies_of_one_op():
    space = SearchSpace.preset("sanity")
    assert len(Page(sample_sheet(schedule(space, 1), SAMPLES)).all("img")) == 9
