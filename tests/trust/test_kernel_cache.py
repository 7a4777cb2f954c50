"""The kernels' cache is private and checked before it is loaded; failures are exceptions."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from ddas_gpu.ops import backends

AUGMENT = """
import numpy as np
from ddas_gpu.ops import apply_op
assert (apply_op(np.zeros((1, 2, 2, 3), np.uint8), "Invert", backend="cpu") == 255).all()
"""


def augment(cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Load the library of a cache in a process of its own, which a bad one would end."""
    return subprocess.run(
        [sys.executable, "-c", AUGMENT],
        env={**os.environ, "DDAS_CACHE": str(cache), **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def cached(tmp_path_factory) -> tuple[Path, bytes]:
    """A cache with a library, and the library's content."""
    folder = tmp_path_factory.mktemp("cache") / "kernels"
    done = augment(folder)
    assert done.returncode == 0, done.stderr
    (library,) = folder.iterdir()
    return library, library.read_bytes()


def test_a_new_cache_is_private(cached):
    assert cached[0].parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", ["empty", "one page", "cut", "garbage", "a flipped bit"])
def test_a_damaged_library_is_built_anew(cached, damage):
    library, content = cached
    flipped = bytearray(content)
    flipped[random.Random(0).randrange(len(content))] ^= 1
    library.write_bytes(
        {
            "empty": b"",
            "one page": content[:4096],
            "cut": content[:-100],
            "garbage": os.urandom(len(content)),
            "a flipped bit": bytes(flipped),
        }[damage]
    )
    done = augment(library.parent)
    assert done.returncode == 0, done.stderr
    assert library.read_bytes() == content


def test_a_cached_library_needs_no_compiler(cached, tmp_path):
    library, content = cached
    library.write_bytes(content)
    assert augment(library.parent, PATH=str(tmp_path)).returncode == 0
    missing = augment(tmp_path / "empty", PATH=str(tmp_path))
    assert missing.returncode != 0 and "'c++' was not found" in missing.stderr


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_is_refused(cached, tmp_path, monkeypatch, mode):
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / cached[0].name).write_bytes(cached[1])
    shared.chmod(mode)
    monkeypatch.setenv("DDAS_CACHE", str(shared))
    with pytest.raises(ValueError, match="shared can be written by other users"):
        backends.build()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_another_user_are_refused(cached, tmp_path, monkeypatch):
    """Planted while the folder was open to others."""
    (tmp_path / cached[0].name).write_bytes(cached[1])
    monkeypatch.setenv("DDAS_CACHE", str(tmp_path))
    assert backends.build().parent == tmp_path
    os.chown(tmp_path / cached[0].name, 12345, -1)
    with pytest.raises(ValueError, match=r"\.so can be written by other users"):
        backends.build()


def test_an_empty_variable_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("DDAS_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert backends.cache_folder() == tmp_path / "ddas_gpu"


# The limit leaves no room for a thread's stack or a large copy, but for small objects.
SHORT = """
import resource
import numpy as np
from ddas_gpu import SearchSpace
from ddas_gpu.ops import apply_op, augment, set_num_threads
space = SearchSpace.of(["Invert", "Blur"])
images = np.full((3, 2000, 2000, 3), 7, np.uint8)
out = np.empty_like(images)
apply_op(images[:1, :4, :4], "Invert", backend="cpu")
set_num_threads(4)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (2 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
apply_op(images, "Invert", backend="cpu", out=out)
assert (out[:, ::97, ::97] == 248).all()
try:
    augment(images, [0, 1], space, backend="cpu", out=out)
except MemoryError as error:
    print(error)
"""


def test_no_thread_and_no_memory_are_no_crash():
    done = subprocess.run([sys.executable, "-c", SHORT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "too little memory" in done.stdout
