"""What goes wrong is told in plain words, and nothing hangs."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("nvidia.dali")

from nvidia.dali.plugin.pytorch import DALIClassificationIterator

from ddas_gpu.pipelines import dali_pipeline as dali
from ddas_gpu.pipelines import evaluation_pipeline, loader, training_pipeline
from ddas_gpu.pipelines.batches import StepBatches
from ddas_gpu.pipelines.policy_node import PolicyNode


@pytest.fixture
def own_folder(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "images"))


def spoil(path: Path, how: str) -> Path:
    content = path.read_bytes()
    path.write_bytes(
        {"truncated": content[: len(content) // 2], "empty": b"", "text": b"hi " * 9}[how]
    )
    return path


@pytest.mark.parametrize("how", ["truncated", "empty", "text"])
@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_a_damaged_file_is_named(own_folder: Path, schedule, how, kind):
    bad = spoil(own_folder / "class1" / ("1.jpg" if kind == "jpg" else "2.png"), how)
    pipeline = training_pipeline(own_folder, schedule, 4, 3, "cpu", size=16)
    try:
        for _ in range(4):
            pipeline.run()
    except ValueError as error:
        assert str(bad) in str(error) and "on_bad_files='skip'" in str(error)
    else:
        # libjpeg fills the rest of a truncated JPEG with grey, and DALI takes that.
        assert (how, kind) == ("truncated", "jpg")


@pytest.mark.parametrize("how", ["truncated", "empty", "text"])
def test_damaged_files_stop_a_pipeline_or_are_left_out(own_folder: Path, schedule, how):
    bad = spoil(own_folder / "class1" / "1.jpg", how)
    with pytest.raises(ValueError, match=f"1 unreadable image: .*{bad.name}"):
        training_pipeline(own_folder, schedule, 4, 3, "cpu", size=16, on_bad_files="stop")
    with pytest.warns(RuntimeWarning, match=f"going on without 1 unreadable image: .*{bad.name}"):
        pipeline = training_pipeline(
            own_folder, schedule, 7, 3, "cpu", size=16, on_bad_files="skip"
        )
    labels = np.concatenate([np.array(pipeline.run()[1].as_tensor()) for _ in range(2)])
    assert np.bincount(labels[:, 0]).tolist() == [5, 4, 5]


def test_a_file_that_disappears_in_mid_epoch_is_named(own_folder: Path, schedule):
    pipeline = training_pipeline(own_folder, schedule, 2, 3, "cpu", size=16)
    pipeline.run()
    gone = own_folder / "class2" / "1.jpg"
    gone.unlink()
    with pytest.raises(ValueError, match=f"{gone} .the file is gone."):
        for _ in range(16):
            pipeline.run()


def test_a_file_that_only_pillow_reads_is_named(own_folder: Path):
    Image.new("RGB", (60, 60)).save(own_folder / "class0" / "1.jpg", format="gif")
    pipeline = evaluation_pipeline(own_folder, 4, "cpu", size=16)
    with pytest.raises(ValueError, match="1.jpg .a GIF, which DALI does not read"):
        pipeline.run()


def test_a_damaged_file_is_named_through_dalis_iterators(own_folder: Path):
    bad = spoil(own_folder / "class1" / "1.jpg", "text")
    pipeline = evaluation_pipeline(own_folder, 4, "cpu", size=16)
    with pytest.raises(ValueError, match=str(bad)):
        list(DALIClassificationIterator(pipeline, reader_name="Reader"))


def test_a_problem_in_the_policy_node_keeps_its_type_and_words(arrays, schedule, monkeypatch):
    pipeline = training_pipeline(arrays, schedule, 4, 3, "cpu")

    class Odd(Exception):
        pass

    def fail(node, images, order):
        raise Odd("a lamp fell over")

    monkeypatch.setattr(PolicyNode, "augment", fail)
    for _ in range(2):  # and it stays broken
        with pytest.raises(Odd, match="a lamp fell over") as raised:
            pipeline.run()
        assert "in fail" in str(raised.value.__cause__)  # where it happened


@pytest.mark.parametrize("runs", [1, 4])
def test_a_pipeline_that_failed_is_released(arrays, schedule, runs, monkeypatch):
    """An exception that the graph keeps must not keep the pipeline: threads, buffers and all."""
    pipeline = training_pipeline(arrays, schedule, 4, 3, "cpu")
    monkeypatch.setattr(PolicyNode, "augment", int)  # a TypeError
    for _ in range(runs):
        with pytest.raises(TypeError):
            pipeline.run()
    left = weakref.ref(pipeline)
    del pipeline
    gc.collect()  # pytest's own references to the exceptions
    assert left() is None


LOSING = """
import os, sys
from pathlib import Path
from ddas_gpu.pipelines import evaluation_pipeline
files = {path: path.read_bytes() for path in Path(sys.argv[1]).rglob("*.png")}
pipeline = evaluation_pipeline(sys.argv[1], len(files), "cpu", size=16)
pipeline.build()
parent = os.getpid()
if not os.fork():
    while os.getppid() == parent:
        for path, content in files.items():
            os.truncate(path, 0)
            path.write_bytes(content)
    os._exit(0)
for _ in range(12):
    try:
        pipeline.run()
    except (ValueError, RuntimeError):  # the file may be whole again by the time it is looked at
        pipeline = evaluation_pipeline(sys.argv[1], len(files), "cpu", size=16)
os._exit(0)
"""


def test_files_that_are_replaced_while_they_are_read(tmp_path: Path):
    """A mapped file would end the process here, with SIGBUS."""
    pixels = np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)
    (tmp_path / "class").mkdir()
    for number in range(16):
        Image.fromarray(pixels).save(tmp_path / "class" / f"{number}.png")
    done = run_program(LOSING, tmp_path)
    assert done.returncode == 0, (done.returncode, done.stderr)


def run_program(program: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("way", ["pass", "raise SystemExit(0)", "os.kill(os.getpid(), 2)"])
def test_the_interpreter_exits_with_batches_under_way(folder: Path, way: str):
    program = f"""
import os
import numpy as np
from ddas_gpu import PolicySchedule, SearchSpace, training_pipeline
space = SearchSpace.preset("imagenet")
schedule = PolicySchedule(space, np.ones(1), np.full((1, len(space)), 1 / len(space)))
pipeline = training_pipeline({str(folder)!r}, schedule, 64, 1, "cpu", prefetch=8)
pipeline.run()
{way}
"""
    done = run_program(program)
    assert "Fatal" not in done.stderr
    assert done.returncode in ((-2, 130) if "kill" in way else (0,)), done.stderr


@pytest.mark.parametrize(("cores", "ranks", "threads"), [(2, 1, 2), (64, 1, 8), (64, 16, 4)])
def test_processes_of_one_machine_share_its_cores(
    monkeypatch, as_rank, arrays, cores, ranks, threads
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(cores))
    as_rank(0, ranks)
    assert evaluation_pipeline(arrays, 4, "cpu").num_threads == threads
    as_rank(0, 2 * cores)
    assert evaluation_pipeline(arrays, 4, "cpu").num_threads == 1


def test_workers_and_the_batch_size_reach_dali(folder: Path):
    batches = loader(folder, None, 3, 2, "cpu", size=16, num_threads=5)
    next(iter(batches))
    steps = StepBatches(batches._batches._feed, batches._batches.order, "cpu", workers=5)
    steps.batch(1)
    for pipeline in (batches._batches._pipeline, steps._batches._pipeline):
        assert (pipeline.num_threads, pipeline.max_batch_size) == (5, 3)


def test_only_a_graph_with_a_policy_in_it_needs_cupy(arrays, schedule, monkeypatch):
    """Loaders run the policy after the graph, with torch where CuPy is missing."""
    built = []
    monkeypatch.setattr(dali, "gpu_found", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(dali.Pipeline, "build", lambda pipeline: built.append(pipeline))
    for policy, finished in ((schedule, False), (None, True)):
        pipeline = training_pipeline(arrays, policy, 4, 3, "cuda:0", finished=finished)
        pipeline.build()
        assert built.pop() is pipeline
    with pytest.raises(ValueError, match="needs an NVIDIA GPU and CuPy"):
        training_pipeline(arrays, schedule, 4, 3, "cuda:0").build()
    assert not built


def test_outputs_are_bound_to_torchs_stream(arrays, schedule, monkeypatch):
    """DALI must not reuse their memory before torch has read it, and nobody waits on the host."""
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: ("stream of", device))
    assert training_pipeline(arrays, schedule, 4, 3, "cuda:1").torch_stream() == ("stream of", 1)
    batches, asked = loader(arrays, schedule, 4, 3, "cpu"), []
    next(iter(batches))
    pipeline = batches._batches._pipeline
    assert pipeline.torch_stream() is None
    monkeypatch.setattr(pipeline, "torch_stream", lambda: "torch's")
    monkeypatch.setattr(pipeline, "run", lambda stream: asked.append(stream) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        batches._batches.next()
    assert asked == ["torch's"]


def test_the_number_reaches_dali(arrays, schedule):
    pipeline = training_pipeline(arrays, schedule, 4, 3, "cuda:3")
    assert pipeline.device_id == 3
