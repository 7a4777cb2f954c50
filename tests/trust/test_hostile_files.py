"""Files that were made to do harm: pickles that run code, paths that lead away, bombs.

Elsewhere: forged pickles (test_unpickling.py), modules that a run folder names
(tests/cli/test_commands.py), HTML in names (tests/report/test_page.py, test_training_page.py,
test_comparison.py), exported Python (tests/export/test_standalone.py), bombs in MATLAB files
(tests/data/test_matlab.py).
"""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from layouts import write_cifar
from PIL import Image
from run_folders import write_run

from ddas_gpu import PolicySchedule
from ddas_gpu.data.cifar import find_batches, open_cifar
from ddas_gpu.data.coco import open_coco
from ddas_gpu.data.decoding import read_image
from ddas_gpu.data.scanning import find_problem
from ddas_gpu.models.backbone_weights import load_backbone
from ddas_gpu.report.reading import read_samples
from ddas_gpu.report.unfinished import schedule_so_far
from ddas_gpu.runs.run_folder import sealed, unsealed
from ddas_gpu.train.evaluate import read_weights

ROOT = Path(__file__).resolve().parents[2]


class Trap:
    """Writes a file when it is unpickled the ordinary way."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def cifar(folder: Path, trap: Trap, file: str) -> Callable[[], object]:
    root = write_cifar(folder / "cifar", count=4)
    (root / "cifar-10-batches-py" / file).write_bytes(pickle.dumps({"label_names": trap}, 2))
    return lambda: open_cifar(find_batches(root, "cifar10"), "cifar10")


def released(folder: Path, trap: Trap) -> Callable[[], object]:
    np.save(folder / "policy.npy", {"dis_ps": trap, "tps": []}, allow_pickle=True)
    return lambda: PolicySchedule.from_released(folder / "policy.npy")


def samples(folder: Path, trap: Trap) -> Callable[[], object]:
    np.savez(folder / "samples.npz", images=np.array([trap], dtype=object), names=["a"])
    return lambda: read_samples(folder / "samples.npz")


def checkpoint(folder: Path, trap: Trap) -> Callable[[], object]:
    """With a checksum that fits."""
    return lambda: unsealed(sealed({"search": trap}), folder / "checkpoint.pt")


def unfinished(folder: Path, trap: Trap) -> Callable[[], object]:
    (folder / "checkpoint.pt").write_bytes(sealed({"search": {"history": trap}}))
    return lambda: schedule_so_far(folder, {})


def weights(folder: Path, trap: Trap) -> Callable[[], object]:
    torch.save({"conv1.weight": trap}, folder / "weights.pth")
    return lambda: load_backbone(torch.nn.Conv2d(1, 1, 1), folder / "weights.pth")


def trained(folder: Path, trap: Trap) -> Callable[[], object]:
    torch.save({"class_names": [], "weights": trap}, folder / "last.pt")
    return lambda: read_weights(folder / "last.pt", "cpu")


READERS = {
    "a CIFAR batch": lambda *given: cifar(*given, "data_batch_2"),
    "CIFAR's class names": lambda *given: cifar(*given, "batches.meta"),
    "a released policy": released,
    "the samples of a run": samples,
    "the checkpoint of a run": checkpoint,
    "the checkpoint of a run that is drawn": unfinished,
    "the weights of a backbone": weights,
    "the weights of a training": trained,
}


@pytest.mark.parametrize("what", READERS)
def test_pickles_that_would_write_a_file_are_refused(what, tmp_path):
    mark = tmp_path / "exploded"
    read = READERS[what](tmp_path, Trap(mark))
    with pytest.raises(ValueError):
        read()
    assert not mark.exists()


def test_the_trap_works(tmp_path):
    pickle.loads(pickle.dumps(Trap(tmp_path / "exploded")))
    assert (tmp_path / "exploded").exists()


def test_nothing_else_unpickles():
    """A new reader belongs to READERS."""
    pattern = re.compile(r"np\.load|torch\.load|restricted_load|pickle\.\w+|.*extractall")
    found = {
        str(path.relative_to(ROOT / "ddas_gpu"))
        for path in (ROOT / "ddas_gpu").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and pattern.fullmatch(ast.unparse(node.func))
    }
    assert found == {
        "adapters/huggingface.py",  # the user's own trainer's checkpoint; weights only
        "data/cifar.py",
        "data/digits.py",  # a file of the package; no pickles
        "models/backbone_weights.py",
        "released.py",
        "report/reading.py",
        "report/unfinished.py",
        "runs/run_folder.py",
        "train/evaluate.py",
    }


@pytest.mark.parametrize("name", ["../b.png", "a/../../b.png", "{root}/b.png", "link/b.png", ".."])
def test_annotations_name_no_image_outside_their_folder(tmp_path, name):
    root = tmp_path / "coco"
    (root / "annotations").mkdir(parents=True)
    (root / "train2017").mkdir()
    Image.new("RGB", (40, 30)).save(root / "b.png")
    (root / "train2017" / "link").symlink_to(root)
    image = {"id": 1, "file_name": name.format(root=root), "width": 40, "height": 30}
    content = {"images": [image], "annotations": [], "categories": [{"id": 1, "name": "car"}]}
    (root / "annotations" / "instances_train2017.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="names the image .*, not in "):
        open_coco(root)


def test_samples_that_are_compressed_are_refused(tmp_path):
    """A file of 1 MB could take 1 GB."""
    folder = write_run(tmp_path / "run")
    np.savez_compressed(
        folder / "samples.npz", images=np.zeros((1, 9, 9, 3), np.uint8), names=["a"]
    )
    with pytest.raises(ValueError, match="does not hold sample images: it is compressed"):
        read_samples(folder / "samples.npz")


def image_bomb(path: Path, side: int) -> None:
    """A black PNG of 1 bit per pixel."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(side * (side // 8 + 1)), 1)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)


LOADING = """
import resource, sys
import torch
from ddas_gpu.pipelines import evaluation_pipeline, training_pipeline
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for make in (
    lambda: training_pipeline(sys.argv[1], None, 4, 1, "cpu", size=32),
    lambda: training_pipeline(sys.argv[1], None, 4, 1, "cpu", size=32, crop="pad"),
    lambda: evaluation_pipeline(sys.argv[1], 4, "cpu", size=32),
    lambda: evaluation_pipeline(sys.argv[1], 4, "cpu", size=32, crop="pad"),
):
    pipeline = make()
    try:
        for _ in range(4):
            pipeline.run()
    except ValueError as error:
        assert "bomb.png" in str(error), error
    else:
        raise AssertionError("the bomb was decoded")
taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10
assert taken < 600, f"{taken} MiB"
"""


def test_images_that_unpack_to_gigabytes_are_refused(folder, tmp_path):
    root = Path(shutil.copytree(folder, tmp_path / "images"))
    path = root / "class0" / "bomb.png"
    image_bomb(path, 20_000)
    assert path.stat().st_size < 300_000
    assert "exceeds limit of" in (find_problem(path) or "")
    with pytest.raises(ValueError, match="exceeds limit of"):
        read_image(path)
    pytest.importorskip("nvidia.dali")
    done = subprocess.run(
        [sys.executable, "-c", LOADING, str(root)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
