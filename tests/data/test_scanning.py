"""Unreadable images are found and named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ddas_gpu
from ddas_gpu.data.scanning import BadImage, describe, scan_images


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
