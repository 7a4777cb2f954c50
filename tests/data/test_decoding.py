"""Pillow and DALI decode the same pixels, whatever the file; or both refuse it."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ddas_gpu.data.datasets import to_pixels
from ddas_gpu.data.decoding import read_image
from ddas_gpu.data.scanning import find_problem
from ddas_gpu.data.sources import is_image
from ddas_gpu.doctor.decoders import decode_with_dali

ROWS, COLUMNS = np.mgrid[0:24, 0:32]
RGB = np.stack([COLUMNS * 8, ROWS * 10, COLUMNS * 3 + ROWS * 5], -1).astype(np.uint8)
WIDE = (COLUMNS * 2000 + ROWS * 37).astype(np.uint16)
PICTURE = Image.fromarray(RGB)


def with_alpha(mode: str) -> Image.Image:
    image = PICTURE.convert(mode)
    image.putalpha(Image.fromarray((COLUMNS * 8).astype(np.uint8)))
    return image


def turned(orientation: int) -> dict[str, Image.Exif]:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return {"exif": exif}


def png(kind: int, samples: np.ndarray) -> bytes:
    """A PNG of 16 bits in one of its colour types, which Pillow cannot write."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + check

    height, width = samples.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    header = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


COLOURS = np.stack([WIDE, WIDE[::-1], WIDE // 2], -1)

# {file: (image, options of `save`) or bytes}
SAME = {
    "rgb.png": (PICTURE, {}),
    "rgb.jpg": (PICTURE, {}),
    "rgb.bmp": (PICTURE, {}),
    "rgb.ppm": (PICTURE, {}),
    "rgb.tif": (PICTURE, {}),
    "rgb.webp": (PICTURE, {}),
    "progressive.jpg": (PICTURE, {"progressive": True}),
    "cmyk.jpg": (PICTURE.convert("CMYK"), {}),
    "cmyk.tif": (PICTURE.convert("CMYK"), {}),
    "palette.png": (PICTURE.quantize(16), {}),
    "palette.bmp": (PICTURE.quantize(16), {}),
    "transparent palette.png": (PICTURE.quantize(16), {"transparency": 3}),
    "transparent colour.png": (PICTURE, {"transparency": (0, 0, 0)}),
    "rgba.png": (with_alpha("RGB"), {}),
    "rgba.tif": (with_alpha("RGB"), {}),
    "rgba.webp": (with_alpha("RGB"), {"lossless": True}),
    "grey and alpha.png": (with_alpha("L"), {}),
    "grey.png": (PICTURE.convert("L"), {}),
    "grey.jpg": (PICTURE.convert("L"), {}),
    "grey.pgm": (PICTURE.convert("L"), {}),
    "1 bit.png": (PICTURE.convert("1"), {}),
    "1 bit.pbm": (PICTURE.convert("1"), {}),
    "16 bit grey.png": (Image.fromarray(WIDE), {}),
    "16 bit grey.tif": (Image.fromarray(WIDE), {}),
    "16 bit grey.pgm": b"P5 32 24 65535\n" + WIDE.astype(">u2").tobytes(),
    "mirrored.png": (PICTURE, turned(2)),
    "upside down.jpg": (PICTURE, turned(3)),
    "on its side.jpg": (PICTURE, turned(6)),
    "on its side.png": (PICTURE, turned(8)),
    "on its side.tif": (PICTURE, turned(6)),
    "two frames.webp": (PICTURE, {"save_all": True, "append_images": [PICTURE.rotate(90)]}),
    "two pages.tif": (PICTURE, {"save_all": True, "append_images": [PICTURE.rotate(90)]}),
}
# Pillow takes the upper byte of such samples, DALI rounds.
NEARLY = {
    "16 bit rgb.png": png(2, COLOURS),
    "16 bit rgba.png": png(6, np.concatenate([COLOURS, WIDE[..., None]], -1)),
    "16 bit grey and alpha.png": png(4, COLOURS[..., :2]),
    "palette.tif": (PICTURE.quantize(16), {}),
}
REFUSED = {
    "animated.gif": ((PICTURE, {}), "a GIF, which DALI does not read: save it as PNG"),
    "float.tif": ((Image.fromarray((WIDE / 65535).astype(np.float32)), {}), "32 bits per channel"),
    "integers.tif": ((Image.fromarray(WIDE.astype(np.int32)), {}), "32 bits per channel"),
    # DALI does not know the largest value, 1023 here.
    "10 bit.pgm": (b"P5 32 24 1023\n" + (WIDE >> 6).astype(">u2").tobytes(), "decode it differ"),
    "no bits per sample.tif": ((PICTURE.convert("1"), {}), "DALI cannot decode it"),
}


def write(path: Path, content) -> Path:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        image, options = content
        image.save(path, **options)
    return path


@pytest.mark.parametrize("name", [*SAME, *NEARLY])
def test_both_decoders_see_the_same(tmp_path, name):
    path = write(tmp_path / name, SAME.get(name) or NEARLY[name])
    assert is_image(path) and find_problem(path) is None
    pixels = read_image(path)
    assert pixels.dtype == np.uint8 and pixels.shape[2] == 3
    assert pixels.std() > 10  # not white
    pytest.importorskip("nvidia.dali")
    apart = np.abs(pixels.astype(int) - decode_with_dali(path.read_bytes(), "cpu"))
    assert apart.max() <= (1 if name in NEARLY else 0)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_two_do_not_share_is_refused(tmp_path, name):
    content, reason = REFUSED[name]
    path = write(tmp_path / name, content)
    if "DALI" in reason or "differ" in reason:
        pytest.importorskip("nvidia.dali")
    assert reason in (find_problem(path) or "")


def test_16_bits_are_scaled_and_not_clipped(tmp_path):
    every = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    Image.fromarray(every).save(tmp_path / "every.png")
    wanted = np.rint(every / 257)
    np.testing.assert_array_equal(read_image(tmp_path / "every.png")[..., 0], wanted)
    np.testing.assert_array_equal(to_pixels(Image.open(tmp_path / "every.png"))[..., 1], wanted)
    with pytest.raises(ValueError, match="32 bits per channel"):
        to_pixels(Image.fromarray(every.astype(np.float32)))


def test_photographs_are_turned_upright(tmp_path):
    path = write(tmp_path / "turned.jpg", (PICTURE, turned(6)))
    assert read_image(path).shape == (32, 24, 3)


def test_the_files_of_a_mac_are_not_images():
    for name in ("._0001.jpg", ".DS_Store", ".hidden.png", "notes.txt"):
        assert not is_image(Path("cat") / name)
    assert is_image(Path("cat") / "0001.JPG")
