"""Unreadable images are found and named."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ddas_gpu
from ddas_gpu.data.decoding import read_image
from ddas_gpu.data.scanning import BadImage, describe, find_problem, scan_images


@pytest.fixture
def root(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 50, 3), np.uint8)
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for name in ("a.jpg", "b.png", "c.bmp"):
            Image.fromarray(pixels).save(tmp_path / label / name)
    return tmp_path


def test_good_images_pass(root, imagenet_root):
    assert scan_images(root) == []
    assert scan_images(imagenet_root) == []


def test_images_of_a_few_pixels_pass(root):
    for size in ((1, 1), (7, 30), (30, 7)):
        Image.new("RGB", size).save(root / "cat" / f"{size[0]}-{size[1]}.jpg")
    assert scan_images(root) == []


@pytest.mark.parametrize("name", ["a.jpg", "b.png"])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.97])
def test_truncated_images_are_found(root, name, kept):
    path = root / "dog" / name
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert [bad.path for bad in scan_images(root)] == [path]


def test_every_kind_of_damage_is_named_in_order(root):
    (root / "cat" / "d.jpg").write_bytes(b"")
    (root / "cat" / "e.JPEG").write_text("I am a text")
    (root / "dog" / "a.jpg").unlink()
    (root / "dog" / "a.jpg").symlink_to(root / "nowhere")
    content = (root / "dog" / "b.png").read_bytes()
    (root / "dog" / "b.png").write_bytes(content[:200] + b"\0" * 50 + content[250:])
    found = ddas_gpu.scan_images(root, threads=3)
    reasons = {bad.path.name: bad.reason for bad in found}
    assert list(reasons) == ["d.jpg", "e.JPEG", "a.jpg", "b.png"]
    assert reasons["d.jpg"] == "the file is empty" and reasons["e.JPEG"] == "not an image"
    assert reasons["a.jpg"] == "the file is gone" and reasons["b.png"]


def test_a_bar_is_shown_when_asked_for(root, capsys):
    scan_images(root, progress=True)
    assert "6/6" in capsys.readouterr().err
    scan_images(root)
    assert capsys.readouterr().err == ""


def test_a_long_list_is_cut():
    bad = [BadImage(Path(f"{i}.jpg"), "broken") for i in range(12)]
    text = describe(bad)
    assert text.startswith("12 unreadable images: 0.jpg (broken), ")
    assert text.endswith("9.jpg (broken) and 2 more") and "10.jpg" not in text


def test_roots_that_cannot_be_scanned(tmp_path):
    with pytest.raises(ValueError, match="there is no folder .*nowhere"):
        scan_images(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="holds no class folders with images"):
        scan_images(tmp_path)


def test_a_pipe_and_a_folder_are_no_images(root):
    os.mkfifo(root / "cat" / "pipe.jpg")
    (root / "dog" / "folder.png").mkdir()
    found = scan_images(root)
    assert [bad.path.name for bad in found] == ["pipe.jpg", "folder.png"]
    assert "not a regular file" in found[0].reason
    with pytest.raises(ValueError, match="pipe.jpg .not a regular file"):
        read_image(root / "cat" / "pipe.jpg")


def test_other_formats_are_not_opened(root, monkeypatch):
    """Pillow would start Ghostscript for an EPS of any name."""
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", None)  # calling it would fail
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "EPS")
    (root / "cat" / "a.jpg").write_bytes(buffer.getvalue())
    assert [(bad.path.name, bad.reason) for bad in scan_images(root)] == [("a.jpg", "not an image")]
    with pytest.raises(ValueError, match="a.jpg .not an image"):
        read_image(root / "cat" / "a.jpg")


def test_control_characters_of_names_are_escaped(root):
    (root / "cat" / "\x1b[31mred\n\u202e.jpg").touch()
    (bad,) = scan_images(root)
    assert str(bad).endswith(r"\x1b[31mred\n\u202e.jpg (the file is empty)")
    assert describe([bad]).isprintable()


def damaged(content: bytes, generator: random.Random) -> bytes:
    """Change two bytes, preferably in the header or at the end, where a TIFF has its tags."""
    changed, most = bytearray(content), len(content) - 1
    for _ in range(2):
        near = generator.randrange(200)
        place = generator.choice((generator.randrange(len(content)), near, most - near))
        changed[min(most, max(0, place))] = generator.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("kind", ["TIFF", "JPEG", "BMP", "PPM", "WEBP", "PNG"])
def test_what_passes_the_scan_is_decoded_by_dali(tmp_path, kind):
    fn = pytest.importorskip("nvidia.dali.fn")
    from nvidia.dali import Pipeline

    generator, pixels = random.Random(1), np.random.default_rng(0).integers(0, 256, (20, 30, 3))
    buffer = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(buffer, kind)
    path, passed = tmp_path / "image", []
    for _ in range(300):
        path.write_bytes(damaged(buffer.getvalue(), generator))
        if find_problem(path) is None:
            passed.append(np.fromfile(path, np.uint8))
    assert passed or kind == "PNG"  # its checksums find everything
    pipeline = Pipeline(1, 1, None)
    with pipeline:
        encoded = fn.external_source(source=passed, batch=False)
        pipeline.set_outputs(fn.decoders.image(encoded, device="cpu"))
    for _ in passed:
        pipeline.run()
