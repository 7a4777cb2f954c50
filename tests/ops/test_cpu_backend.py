"""Building the CPU target once, in a cache that many processes may share; and its threads."""

import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ddas_gpu.ops import OPS, apply_op, backends, get_num_threads, set_num_threads

AUGMENT = (
    "import numpy as np; from ddas_gpu.ops import apply_op; "
    "assert (apply_op(np.zeros((1, 2, 2, 3), np.uint8), 'Invert', backend='cpu') == 255).all()"
)


def test_processes_that_start_at_once_share_one_library(tmp_path):
    environment = {**os.environ, "DDAS_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", AUGMENT]
    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(subprocess.run, command, env=environment) for _ in range(3)]
    assert [run.result().returncode for run in runs] == [0, 0, 0]
    assert [file.suffix for file in tmp_path.iterdir()] == [".so"]


@pytest.fixture
def quick_flags(tmp_path, monkeypatch):
    """A cache of its own, and no optimisation: these tests ask when to compile, not how well."""
    monkeypatch.setenv("DDAS_CACHE", str(tmp_path))
    monkeypatch.setattr(backends, "FLAGS", ("-std=c++17", "-fPIC", "-shared"))


def test_a_second_build_is_found_and_another_source_is_built_anew(quick_flags, monkeypatch):
    first = backends.build()
    stamp = first.stat().st_mtime_ns
    assert backends.build() == first
    assert first.stat().st_mtime_ns == stamp
    monkeypatch.setattr(backends, "FLAGS", (*backends.FLAGS, "-DOTHER"))
    assert backends.build() != first


@pytest.mark.parametrize("header", ["pixels.h", "tasks.h", "cpu_job.h", "cpu_tones.h"])
def test_a_changed_header_is_built_anew(header, quick_flags, monkeypatch, tmp_path):
    first = backends.build()
    changed = shutil.copytree(backends.kernel_folder(), tmp_path / "kernels")
    monkeypatch.setattr(backends, "kernel_folder", lambda: changed)
    assert backends.build() == first
    with (changed / header).open("a") as file:
        file.write("// changed\n")
    assert backends.build() != first


def test_another_cpu_gets_another_library(quick_flags, monkeypatch):
    first = backends.build()
    monkeypatch.setattr(backends, "_cpu", lambda: "flags: none")
    assert backends.build() != first


def test_a_compiler_that_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("DDAS_CACHE", str(tmp_path))
    monkeypatch.setattr(backends, "FLAGS", ("-std=no-such-standard",))
    with pytest.raises(backends.NoCompiler, match="no-such-standard"):
        backends.build()
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("DDAS_CACHE", str(file / "cache"))
    with pytest.raises(backends.NoCompiler, match="cannot be written"):
        backends.build()


@pytest.fixture
def four_threads():
    before = get_num_threads()
    set_num_threads(4)
    yield
    set_num_threads(before)


def test_many_callers_share_the_helpers(four_threads):
    batches = np.random.default_rng(0).integers(0, 256, (8, 40, 96, 96, 3), np.uint8)
    with ThreadPoolExecutor(8) as callers:
        for _ in range(5):
            results = list(callers.map(lambda images: apply_op(images, "Invert"), batches))
            np.testing.assert_array_equal(results, 255 - batches)


def test_a_forked_process_has_helpers_of_its_own():
    """As the workers of a DataLoader: the helpers of their parent are not there."""
    code = """
import os, warnings
import numpy as np
from ddas_gpu.ops import OPS, apply_op, set_num_threads
warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
set_num_threads(4)
images = np.full((40, 96, 96, 3), 7, np.uint8)
assert (apply_op(images, "Invert") == 248).all()
child = os.fork()
right = (apply_op(images, "Invert") == 248).all()
if child == 0:
    os._exit(0 if right else 1)
assert right and os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_no_op_touches_memory_outside_its_images():
    program = Path(__file__).parents[1] / "guarded_memory.py"
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, f"{run.stdout.splitlines()[-1]}\n{run.stderr}"
    assert len(run.stdout.splitlines()) > 1000


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names of x86 processors")
@pytest.mark.parametrize("processor", ["x86-64", "x86-64-v3"])
def test_processors_with_smaller_vectors_return_the_same_bytes(processor, tmp_path):
    """Compiled for them: what only the processor at hand can do is left out."""
    code = """
import sys
import numpy as np
from ddas_gpu.ops import OPS, PixelScale, apply_op, backends
backends.FLAGS = tuple(f.replace("native", sys.argv[1]) for f in backends.FLAGS)
images = np.random.default_rng(0).integers(0, 256, (3, 70, 70, 3), np.uint8)
images[1] //= 9
for name, op in OPS.items():
    for level in (2, 10) if op.law else (None,):
        argument = op.law(level, PixelScale()) if op.law else None
        np.save(f"{name}-{level}.npy", apply_op(images, name, argument, backend="cpu"))
"""
    for folder in ("native", processor):
        (tmp_path / folder).mkdir()
        environment = {**os.environ, "DDAS_CACHE": str(tmp_path / "cache")}
        command = [sys.executable, "-c", code, folder]
        subprocess.run(command, cwd=tmp_path / folder, env=environment, check=True)
    assert len(list((tmp_path / "cache").iterdir())) == 2
    saved = sorted((tmp_path / "native").iterdir())
    assert len(saved) >= len(OPS)
    for file in saved:
        other = np.load(tmp_path / processor / file.name)
        assert (np.load(file) == other).all(), file.name
