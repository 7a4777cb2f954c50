"""The launcher's calls of CuPy, against a CuPy that records them: streams, caches and errors."""

from __future__ import annotations

import shutil
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ddas_gpu.ops import arrays, backends, cuda
from ddas_gpu.ops.cuda import DeviceError, PinnedMemory
from ddas_gpu.ops.records import (
    Inputs,
    Records,
    Request,
    chains_for,
    pictures_for,
    pictures_of_source,
)
from ddas_gpu.streams import NOTHING_DRAWN


class CompileException(Exception):
    pass


class FakeStream(nullcontext):
    """A stream that knows where it came from; as CuPy's, it is a context."""

    def __init__(self, origin):
        super().__init__()
        self.origin = origin

    from_external = classmethod(lambda cls, stream: cls(stream))


class FakeEvent:
    done = False

    def __init__(self, disable_timing):
        pass

    def record(self, stream):
        self.stream = stream


class FakeModule:
    def __init__(self, code, options):
        self.code, self.options = code, options

    def get_function(self, name):
        def launch(*arguments):
            FAKE.launches.append((name, self.options))
            FAKE.arguments.append(arguments)

        return launch


class FakeMemory(bytearray):
    ptr = 0

    def copy_from_host_async(self, source, size, stream):
        FAKE.copies.append(stream)


FAKE = SimpleNamespace()


@pytest.fixture(autouse=True)
def cupy(monkeypatch):
    """Replaces CuPy; FAKE has what was launched and copied."""
    FAKE.launches, FAKE.copies, FAKE.arguments = [], [], []
    device = SimpleNamespace(
        Device=lambda number: nullcontext(),
        Stream=FakeStream,
        Event=FakeEvent,
        ExternalStream=lambda pointer, number: FakeStream((pointer, number)),
        get_current_stream=lambda number: FakeStream("CuPy's"),
        alloc=FakeMemory,
        alloc_pinned_memory=FakeMemory,
        compiler=SimpleNamespace(CompileException=CompileException),
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=device, RawModule=FakeModule))
    monkeypatch.setattr(cuda, "PINNED", PinnedMemory())
    cuda.module.cache_clear()
    yield device
    cuda.module.cache_clear()


class TorchStream:
    cuda_stream = 7

    def __cuda_stream__(self):
        return 0, self.cuda_stream


def launch(library="cupy"):
    """Run Invert on two images that are said to be on a GPU."""
    images, out = (arrays.read(np.zeros((2, 4, 4, 3), np.uint8)) for _ in range(2))
    source, target = (replace(b, device=("cuda", 0), library=library) for b in (images, out))
    chains = chains_for(Request.of_one("Invert", None, NOTHING_DRAWN), (4, 4), 2)
    cuda.run(pictures_for(source.layout, target.layout), chains, source, target)


def test_images_of_torch_use_torchs_stream_through_the_stream_protocol(monkeypatch):
    stream = TorchStream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    launch("torch")
    assert [copy.origin for copy in FAKE.copies] == [stream]
    assert [name for name, _ in FAKE.launches] == ["solarize"]


def test_model_inputs_are_one_upload_and_one_launch_on_torchs_stream(monkeypatch):
    """The table and the holes travel with the records; the launch keeps no memory."""
    stream = TorchStream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    source = replace(arrays.read(np.zeros((2, 4, 4, 3), np.uint8)), device=("cuda", 0))
    source.library = "torch"
    holes, table = Records(np.zeros((2, 4), np.int32)), Records(np.zeros((3, 256), np.int16))
    wanted = Inputs(holes, table, 4096, height=4, width=4, planar=True, word_bytes=2)
    request = Request.of_one("Invert", None, NOTHING_DRAWN)
    chains, pictures = chains_for(request, (4, 4), 2), pictures_of_source(source.layout)
    cuda.run_inputs(pictures, chains, source, wanted)
    assert [copy.origin for copy in FAKE.copies] == [stream]
    assert [name for name, _ in FAKE.launches] == ["inputs"]
    ((grid, block, args),) = FAKE.arguments
    assert (grid, block) == ((2, 1, 1), cuda.BLOCK)
    *addresses, height, width, planar, word_bytes = args
    assert all(isinstance(address, np.uint64) for address in addresses) and addresses[-1] == 4096
    sizes = [np.int32(n) for n in (4, 4, 1, 2)]
    assert [height, width, planar, word_bytes] == sizes and isinstance(height, np.int32)
    records = [pictures, chains.shares, chains.tasks, holes]
    begins = np.cumsum([part.array.nbytes for part in records])
    assert [int(a) for a in (*addresses[1:3], *addresses[6:8])] == begins.tolist()
    assert len(cuda.PINNED) == 1


def test_an_older_cupy_gets_the_pointer_of_the_stream(cupy, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: TorchStream())
    cupy.Stream = object
    launch("torch")
    assert [copy.origin for copy in FAKE.copies] == [(7, 0)]


def test_images_of_cupy_use_cupys_stream():
    launch()
    assert [copy.origin for copy in FAKE.copies] == ["CuPy's"]


@pytest.mark.parametrize("header", ["pixels.h", "tasks.h", "blocks.cuh"])
def test_a_changed_header_changes_the_options_that_are_cupys_cache_key(
    header, monkeypatch, tmp_path
):
    launch()
    changed = shutil.copytree(backends.kernel_folder(), tmp_path / "kernels")
    with (changed / header).open("a") as file:
        file.write("// changed\n")
    monkeypatch.setattr(backends, "kernel_folder", lambda: changed)
    cuda.module.cache_clear()
    launch()
    before, after = ({o for o in options if o[:2] != "-I"} for _, options in FAKE.launches)
    assert before != after


def test_memory_is_held_until_its_copy_has_ended_whichever_thread_looks():
    """Another thread releases memory while this one looks at the oldest copy."""
    pinned, inner = PinnedMemory(), []

    class Interrupted:
        @property
        def done(self):
            if not inner:
                inner.append(threading.Thread(target=pinned.hold, args=(running, "third")))
                inner[0].start()
                inner[0].join(0.2)  # it waits for us; without a lock it is through by now
            return True

    running = SimpleNamespace(done=False)
    pinned.hold(Interrupted(), "first")
    pinned.hold(running, "second")
    pinned.hold(running, "fourth")
    inner[0].join()
    assert sorted(memory for _, memory in pinned._copies) == ["fourth", "second", "third"]


def test_memory_is_released_after_its_copy():
    pinned = PinnedMemory()
    for _ in range(5):
        pinned.hold(SimpleNamespace(done=True), "memory")
    assert len(pinned) == 1


def test_out_of_memory_is_one_sentence_with_the_flag_that_helps(cupy):
    def alloc(size):
        raise MemoryError("Out of memory allocating 1,024 bytes (allocated so far: 7 bytes).")

    cupy.alloc = alloc
    with pytest.raises(
        DeviceError, match="GPU 0 is out of memory .* 2 images.*--batch-size.*--memory"
    ):
        launch()


@pytest.mark.parametrize("problem", [CompileException, RuntimeError])
def test_a_kernel_that_does_not_compile_is_one_sentence(monkeypatch, problem):
    def get_function(self, name):
        raise problem("cannot open source file\n  cuda_fp16.h\n")

    monkeypatch.setattr(FakeModule, "get_function", get_function)
    with pytest.raises(DeviceError, match=r"solarize\.cu; .*: cannot open .* cuda_fp16\.h$"):
        launch()
