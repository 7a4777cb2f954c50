"""Files of all kinds come out as Pillow shows them, upright and in RGB."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

pytest.importorskip("nvidia.dali")

from nvidia.dali import fn, types

from ddas_gpu.pipelines import detection_pipeline, evaluation_pipeline, training_pipeline

RAW = {"mean": [0.0] * 3, "std": [1.0] * 3, "layout": "NHWC"}


@pytest.fixture(scope="module")
def photo(imagenet_images) -> Image.Image:
    image = Image.fromarray(imagenet_images[0])
    return image.resize((160, 120), Image.Resampling.BILINEAR)


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x112] = orientation
    return tags


def save_16_bit(image: Image.Image, path: Path) -> None:
    """RGB with 16 bits a channel, which Pillow reads but cannot write."""
    levels = np.asarray(image).astype(">u2") * 257
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in levels)

    def chunk(name: bytes, content: bytes) -> bytes:
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", *image.size, 16, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


WRITERS = {
    "jpeg.jpg": lambda image, path: image.save(path, quality=95),
    "progressive.jpg": lambda image, path: image.save(path, quality=95, progressive=True),
    "grey.jpg": lambda image, path: image.convert("L").save(path, quality=95),
    "cmyk.jpg": lambda image, path: image.convert("CMYK").save(path, quality=95),
    "rgb.png": lambda image, path: image.save(path),
    "grey.png": lambda image, path: image.convert("L").save(path),
    "palette.png": lambda image, path: image.convert("P").save(path),
    "transparent.png": lambda image, path: image.convert("RGBA").save(path),
    "bits.png": lambda image, path: image.convert("1").save(path),
    "a_png_called.JPEG": lambda image, path: image.save(path, format="png"),
    "grey16.png": lambda image, path: Image.fromarray(
        np.asarray(image.convert("L")).astype(np.uint16) * 257
    ).save(path),
    "rgb16.png": save_16_bit,
    "plain.bmp": lambda image, path: image.save(path),
    "plain.webp": lambda image, path: image.save(path, lossless=True),
    "plain.tif": lambda image, path: image.save(path),
    **{
        f"turned{n}.jpg": lambda image, path, n=n: image.save(path, quality=95, exif=exif(n))
        for n in range(2, 9)
    },
}


def pillows(path: Path) -> np.ndarray:
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode == "I;16":  # which convert("RGB") would clip
        image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_comes_out_as_pillow_shows_it(photo, tmp_path, name):
    path = tmp_path / "class" / name
    path.parent.mkdir()
    WRITERS[name](photo, path)
    expected = pillows(path)
    size = expected.shape[:2]
    pipeline = evaluation_pipeline(tmp_path, 1, "cpu", crop="pad", size=size, **RAW)
    image = np.array(pipeline.run()[0].as_tensor())[0]
    difference = np.abs(image - expected)
    assert difference.mean() <= 0.5 and difference.max() <= 4  # decoders of JPEG may differ


@pytest.mark.parametrize("name", ["jpeg.jpg", "turned6.jpg", "rgb.png"])
def test_the_random_part_of_a_file_is_where_it_was_drawn(photo, tmp_path, name):
    """Also for turned images: the place is meant in the upright one."""
    from ddas_gpu import streams

    path = tmp_path / "class" / name
    path.parent.mkdir()
    WRITERS[name](photo, path)
    upright = pillows(path)
    pipeline = training_pipeline(tmp_path, None, 1, 8, "cpu", size=32, flip=True, **RAW)
    for epoch in range(8):
        image = np.array(pipeline.run()[0].as_tensor())[0]
        crops, flips = streams.crops_and_flips(0, epoch, np.array([0]), flip=True)
        corner, shape = streams.boxes(crops, np.array([upright.shape[:2]]))
        (top, left), (height, width) = corner[0], shape[0]
        part = Image.fromarray(upright[top : top + height, left : left + width])
        part = np.asarray(part.resize((32, 32), Image.Resampling.BILINEAR)).astype(int)
        expected = part[:, ::-1] if flips[0] else part
        assert np.abs(image - expected).mean() < 1.5  # both filter, but not alike


def test_evaluation_shows_the_middle(photo, tmp_path):
    (tmp_path / "class").mkdir()
    wide = photo.resize((150, 120))
    wide.save(tmp_path / "class" / "rgb.png")
    pipeline = evaluation_pipeline(tmp_path, 1, "cpu", size=56, **RAW)
    image = np.array(pipeline.run()[0].as_tensor())[0]
    expected = wide.resize((80, 64), Image.Resampling.BILINEAR).crop((12, 4, 68, 60))
    assert np.abs(image - np.asarray(expected)).mean() < 1.5  # both filter, but not alike


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_decoder_upsamples_chroma_alike(folder, annotated, monkeypatch, device):
    """nvJPEG's default differs from libjpeg-turbo's: "mixed" and "cpu" must ask for the same."""
    asked = []

    def recorded(decoder):
        def define(*args, **options):
            asked.append(options)
            return decoder(*args, **options)

        return define

    for name in [name for name in dir(fn.decoders) if name.startswith("image")]:
        monkeypatch.setattr(fn.decoders, name, recorded(getattr(fn.decoders, name)))
    training_pipeline(folder, None, 2, 1, device, size=16)
    training_pipeline(folder, None, 2, 1, device, size=16, crop="pad")
    evaluation_pipeline(folder, 2, device, size=16)
    detection_pipeline(annotated, None, 2, 1, device)
    assert len(asked) == 4
    for options in asked:
        assert options["jpeg_fancy_upsampling"] is True
        assert options["device"] == ("cpu" if device == "cpu" else "mixed")


@pytest.mark.parametrize("finished", [True, False])
def test_everything_that_leaves_a_gpu_graph_is_on_the_gpu(
    folder, arrays, annotated, schedule, box_schedule, finished
):
    """Labels and boxes too: copied on DALI's stream, nobody waits for them."""
    pipelines = [
        training_pipeline(folder, schedule, 2, 3, "cuda", size=16, finished=finished),
        training_pipeline(arrays, schedule, 2, 3, "cuda", finished=finished),
        evaluation_pipeline(folder, 2, "cuda", size=16, finished=finished),
        detection_pipeline(annotated, box_schedule, 2, 3, "cuda", finished=finished),
    ]
    for pipeline in pipelines:
        pipeline._build_graph()
        assert [output.device for output in pipeline._graph_outputs] == ["gpu"] * (
            len(pipeline._graph_outputs)
        )


def test_a_graph_that_is_finished_outside_ends_in_bytes(arrays, schedule):
    """No policy node, no normalisation: `Feed.pack` runs them in one pass."""
    pipeline = training_pipeline(arrays, schedule, 4, 3, "cpu", cutout=3, finished=False)
    images, _ = pipeline.run()
    assert images.as_tensor().dtype == types.UINT8
    assert len(pipeline.feed.drawn) > 0  # the policies wait for `pack`
