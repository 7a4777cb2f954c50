"""The digits in the package are those that were published."""

from __future__ import annotations

import hashlib
from importlib import resources

import numpy as np

from ddas_gpu.data.digits import DigitsReader, open_digits

# Of scikit-learn's `load_digits`: the images, then the labels, one byte per number.
PUBLISHED = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


def test_the_file_holds_the_published_numbers():
    file = resources.files("ddas_gpu.data").joinpath("digits.npz")
    with file.open("rb") as content, np.load(content) as archive:
        found = archive["images"].tobytes() + archive["labels"].tobytes()
    assert hashlib.sha256(found).hexdigest() == PUBLISHED


def test_at_8_pixels_they_are_not_resized():
    digits = open_digits(8)
    assert digits.labels[:10].tolist() == list(range(10))
    assert digits.images[0, 0, :, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]


def test_no_search_sees_the_images_that_trainings_are_tested_on():
    train, test = DigitsReader().training_images(None, None, 8)
    searched = DigitsReader().search_images(None, 8)
    assert (len(train), len(test)) == (1200, 597)
    np.testing.assert_array_equal(searched.images, train.images)
    assert not set(searched.members()) & set(test.members())
