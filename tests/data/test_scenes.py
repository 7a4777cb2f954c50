"""The scenes: drawn from a seed, with boxes that fit, and recovered when something is missing."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from commands import metrics
from search_commands import search
from train_commands import train

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.data import scenes
from ddas_gpu.data.catalog import find_data
from ddas_gpu.data.coco import open_coco
from ddas_gpu.data.scenes import draw_background, draw_scene, draw_scenes, write_scenes
from ddas_gpu.search.settings import preset
from ddas_gpu.tasks.task import open_task

PIXELS = "d036794eb0254e81"  # of the first three training images
FEW = {"train2017": 6, "val2017": 3}
READER = find_data("scenes").reader


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache folder, to which only a few scenes are written."""
    monkeypatch.setattr(scenes, "_cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(scenes, "IMAGES", FEW)
    return tmp_path / "cache" / f"scenes-{scenes.VERSION}"


def digest(root: Path) -> dict[str, str]:
    files = (file for file in sorted(root.rglob("*")) if file.is_file())
    return {
        str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }


def pixels(split: str, count: int) -> bytes:
    return b"".join(scene.image.tobytes() for scene in draw_scenes(0, split, count))


def test_the_pixels_of_this_version():
    """A change needs a new VERSION, or old and new caches would differ under one name."""
    assert hashlib.sha256(pixels("train2017", 3)).hexdigest()[:16] == PIXELS


def test_a_seed_gives_the_same_files(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_scenes(tmp_path / name, seed, FEW)
    a, b, c = (digest(tmp_path / name) for name in "abc")
    assert a == b and a.keys() == c.keys() and not set(a.values()) & set(c.values())


def test_boxes_are_exactly_what_the_digits_have_changed(monkeypatch):
    monkeypatch.setattr(scenes, "_with_noise", lambda image, generator: image)
    strokes = np.zeros((2, 8, 8), np.uint8)
    strokes[0, 1:7, 3:5], strokes[1, 2:4, 1:7] = 255, 255
    for seed in range(20):
        background = draw_background(np.random.default_rng(seed))
        scene = draw_scene(strokes, np.array([1, 7]), np.random.default_rng(seed))
        changed = (scene.image != background).any(2)
        covered = np.zeros_like(changed)
        for x0, y0, x1, y1 in scene.boxes:
            assert min(x0, y0) >= 0 and max(x1, y1) <= scenes.SIZE
            inside = changed[y0:y1, x0:x1]
            assert all(edge.any() for edge in (inside[0], inside[-1], inside[:, 0], inside[:, -1]))
            covered[y0:y1, x0:x1] = True
        assert not changed[~covered].any()


def test_digits_differ_from_their_background_and_overlap_little():
    for scene in draw_scenes(0, "val2017", 30):
        boxes = [tuple(box) for box in scene.boxes.tolist()]
        for number, box in enumerate(boxes):
            x0, y0, x1, y1 = box
            assert np.ptp(scene.image[y0:y1, x0:x1].mean(2)) > scenes.CONTRAST[0] / 2
            assert scenes.HEIGHTS[0] - 2 <= y1 - y0 <= scenes.HEIGHTS[1] + 2
            overlaps = [scenes._overlap(box, other) for other in boxes[:number]]
            assert max(overlaps, default=0) <= scenes.MOST_OVERLAP


def test_no_digit_of_the_training_images_is_in_the_test_images(monkeypatch):
    used = []
    monkeypatch.setattr(scenes, "draw_scene", lambda digits, *_: used.extend(digits))
    seen = []
    for split, count in scenes.IMAGES.items():
        used.clear()
        list(draw_scenes(0, split, count))
        assert len(used) > 3 * count
        seen.append({digit.tobytes() for digit in used})
    # A few were written alike to the last of their 64 pixels.
    assert len(seen[0] & seen[1]) <= 3 < len(seen[1])


def test_without_a_root_they_are_written_once_to_the_cache(cache):
    train, test = READER.training_images(None, None, 96)
    assert (len(train), len(test)) == (6, 3) and train.class_names == tuple("0123456789")
    assert train.images[0].read().shape == (96, 96, 3)
    assert sum(len(image.labels) for image in train.images) >= 12
    before = train.images[0].file.stat().st_mtime_ns
    assert READER.search_images(None, 96).images[0].file.stat().st_mtime_ns == before
    assert [path.name for path in cache.parent.iterdir()] == [cache.name]


@pytest.mark.parametrize("damage", ["image", "annotations", "facts"])
def test_what_is_missing_in_the_cache_is_made_again(cache, damage):
    READER.search_images(None, 96)
    whole = digest(cache)
    if damage == "image":
        (cache / "train2017" / "000003.png").write_bytes(b"")
    elif damage == "annotations":
        (cache / "annotations" / "instances_val2017.json").unlink()
    else:
        (cache / scenes.FACTS).write_text("{")
    READER.search_images(None, 96)
    assert digest(cache) == whole


def test_an_interrupted_write_leaves_nothing_to_read(cache, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scenes, "write_atomically", interrupted)
        with pytest.raises(KeyboardInterrupt):
            READER.search_images(None, 96)
    assert not any(cache.parent.iterdir())
    # What a killed process leaves is removed later.
    left = cache.with_name(f".{cache.name}.0.part")
    (left / "train2017").mkdir(parents=True)
    os.utime(left, (0, 0))
    assert len(READER.search_images(None, 96)) == 6 and not left.exists()


def test_of_two_writers_the_second_leaves_the_first_alone(tmp_path):
    write_scenes(tmp_path / "scenes", 0, FEW)
    before = digest(tmp_path / "scenes")
    write_scenes(tmp_path / "scenes", 1, FEW)
    assert digest(tmp_path / "scenes") == before
    assert [path.name for path in tmp_path.iterdir()] == ["scenes"]


def test_a_root_is_filled_if_it_is_empty_and_read_if_it_is_not(cache, tmp_path):
    root = tmp_path / "here"
    root.mkdir()
    assert READER.search_images(root, 96).fingerprint() == open_coco(root).fingerprint()
    facts = json.loads((root / scenes.FACTS).read_text())
    assert facts["version"] == scenes.VERSION and facts["images"] == FEW
    (root / "train2017" / "000003.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"the scenes in .*here are damaged: delete it"):
        READER.search_images(root, 96)
    (root / scenes.FACTS).unlink()  # now they are a user's own images
    assert len(READER.search_images(root, 96)) == 6


def test_a_target_domain_must_be_there(cache, tmp_path):
    """A mistyped folder is not filled with scenes."""
    with pytest.raises(ValueError, match="there is no folder .*nowhere"):
        READER.training_images(None, tmp_path / "nowhere", 96)
    settings = preset("scenes").replace(val_root=tmp_path / "nowhere", train_images=2, val_images=2)
    with pytest.raises(ValueError, match="--val-root: there is no folder .*nowhere"):
        open_task(settings).search_sets()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.usefixtures("one_thread")
def test_a_search_and_a_training_without_any_folder(cache, tmp_path):
    few = ("--data", "scenes", "--model", "narrow_detector:build", "--threads", 1, "--epochs", 1)
    searched = tmp_path / "search"
    sizes = ("--train-images", 4, "--val-images", 2, "--batch-size", 2, "--val-batch-size", 2)
    assert search(*few, *sizes, "--policies", 2, "--out", searched) == 0
    assert len(PolicySchedule.load(searched).space) == len(SearchSpace.preset("scenes"))
    trained = tmp_path / "training"
    sizes = ("--batch-size", 2, "--test-batch-size", 4)
    assert train(*few, *sizes, "--policy", searched, "--out", trained) == 0
    (line,) = metrics(trained)
    assert 0 <= line["test_mAP"] <= line["test_mAP50"] <= 1
