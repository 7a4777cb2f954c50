"""Files come out in the size their boxes are given in, or are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("nvidia.dali")

from ddas_gpu.data.coco import Annotated
from ddas_gpu.pipelines import detection_loader

RAW = {"mean": [0.0] * 3, "std": [1.0] * 3, "layout": "NHWC"}


def picture(path: Path, height: int, width: int, orientation: int = 1) -> Path:
    """Four quarters of different colours, so that turned and mirrored ones can be told apart."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2] = (200, 0, 0)
    pixels[: height // 2, width // 2 :] = (0, 200, 0)
    pixels[height // 2 :, : width // 2] = (0, 0, 200)
    tags = Image.Exif()
    tags[0x112] = orientation
    Image.fromarray(pixels).save(path, exif=tags)
    return path


def without_boxes(path: Path, height: int, width: int) -> Annotated:
    nothing = np.zeros(0)
    columns = nothing.reshape(0, 4), nothing.astype(int), nothing, nothing.astype(bool)
    return Annotated(path, height, width, *columns)


def read(images: list[Annotated], resize: int | tuple[int, int] = (32, 48)) -> list[np.ndarray]:
    batches = detection_loader(images, None, 2, device="cpu", training=False, resize=resize, **RAW)
    return [
        image[:height, :width].numpy()
        for batch in batches
        for image, (height, width) in zip(batch.images, batch.sizes.tolist(), strict=True)
    ]


@pytest.mark.parametrize("ending", ["jpg", "png"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_counts_where_the_annotations_mean_it(tmp_path, ending, orientation):
    """As stored if that has the annotated size, else as the camera was held."""
    path = picture(tmp_path / f"a.{ending}", 32, 48, orientation)
    sizes = [(32, 48), (48, 32)] if orientation >= 5 else [(32, 48)]
    images = [without_boxes(path, *size) for size in sizes]
    for image, got in zip(images, read(images), strict=True):
        expected = image.read().astype(int)
        assert got.shape == expected.shape
        assert np.abs(got - expected).max() <= 4  # decoders of JPEG may differ


def test_an_image_of_another_size_than_annotated_is_named(tmp_path):
    path = picture(tmp_path / "a.jpg", 32, 48)
    other = without_boxes(picture(tmp_path / "b.jpg", 48, 32), 48, 32)
    with pytest.raises(ValueError, match=rf"{path} has 50 × 32 pixels, but it has 48 × 32"):
        read([other, other, other, without_boxes(path, 32, 50)])


@pytest.mark.parametrize("content", [None, b"", b"hi " * 9])
@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_an_unreadable_file_is_named(annotated, tmp_path, content, ending):
    bad = tmp_path / f"bad.{ending}"
    if content is not None:
        bad.write_bytes(content)
    images = [*annotated[:5], replace(annotated[5], file=bad)]
    with pytest.raises(ValueError, match=f"{bad.name} .*take them out of the annotations"):
        read(images)


def test_grey_and_transparent_images_are_rgb(tmp_path):
    picture(tmp_path / "a.png", 32, 32)
    images = []
    for mode in ("L", "RGBA", "P", "CMYK"):
        path = tmp_path / f"{mode}.{'jpg' if mode == 'CMYK' else 'png'}"
        Image.open(tmp_path / "a.png").convert(mode).save(path)
        images.append(without_boxes(path, 32, 32))
    for image, got in zip(images, read(images, resize=32), strict=True):
        assert np.abs(got - image.read().astype(int)).max() <= 4
