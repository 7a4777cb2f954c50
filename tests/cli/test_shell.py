"""What the commands share: how they end, and what they do with memory."""

import os
import platform
import subprocess
import sys
import warnings

import pytest
import torch

from ddas_gpu.cli.groups import RunSettings
from ddas_gpu.cli.shell import exit_code, prepare
from ddas_gpu.ops import backends

LEAVE = """
import atexit
from ddas_gpu.cli.shell import leave
atexit.register(print, "in good order")
print("said", end=" ")
leave(3)
"""


def printed_by(code: str, **environment: str) -> tuple[int, str]:
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
    )
    assert not run.stderr, run.stderr
    return run.returncode, run.stdout


@pytest.mark.parametrize(
    ("environment", "printed"),
    [({}, "said in good order\n"), ({"TORCHELASTIC_RUN_ID": "some"}, "said ")],
)
def test_ranks_end_at_once_and_lose_no_word(environment, printed):
    assert printed_by(LEAVE, **environment) == (3, printed)


FAULTS = """
import resource
import torch
from ddas_gpu.cli.shell import keep_freed_memory
keep_freed_memory()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(64 << 20, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

# In the first rounds small objects may settle in the freed memory, which is then too small.
print(min(faults() for _ in range(20)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_freed_memory_is_used_again():
    code, printed = printed_by(FAULTS)
    assert code == 0
    assert int(printed) < 1000  # new memory of this size has 16,384 pages


@pytest.fixture
def torch_settings():
    """What `prepare` changes in this process is set back."""
    names = ["benchmark", "deterministic", "allow_tf32"]
    before = {name: getattr(torch.backends.cudnn, name) for name in names}
    matmul, threads = torch.backends.cuda.matmul.allow_tf32, torch.get_num_threads()
    variable = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.matmul.allow_tf32 = matmul
    torch.set_num_threads(threads)
    for name, value in before.items():
        setattr(torch.backends.cudnn, name, value)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    if variable is not None:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = variable


def test_deterministic_sets_all_that_torch_offers(torch_settings):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    prepare(RunSettings(device="cpu", threads=1, deterministic=True), fixed_shapes=True)
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] in (":4096:8", ":16:8")  # that torch accepts
    cudnn = torch.backends.cudnn
    assert cudnn.deterministic and not cudnn.benchmark and not cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("fixed_shapes", [True, False])
def test_cudnn_measures_its_algorithms_where_shapes_are_fixed(torch_settings, fixed_shapes):
    prepare(RunSettings(device="cpu", threads=1), fixed_shapes)
    assert torch.backends.cudnn.benchmark is fixed_shapes
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("rank", [None, 0, 1])
def test_a_gpu_without_cupy_is_used_and_the_missing_package_named(
    torch_settings, monkeypatch, capsys, rank
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    if rank is not None:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "some")
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    backends.forget()
    device = prepare(RunSettings(threads=1), fixed_shapes=True)
    backends.forget()
    assert device == torch.device("cuda", rank)
    printed = capsys.readouterr().err
    extra = "cuda12" if (torch.version.cuda or "").startswith("12.") else "cuda13"
    assert printed.count(f"pip install 'ddas_gpu[{extra}]'") == (rank != 1)
    assert printed.count("\n") == (rank != 1)


def test_a_warning_is_one_sentence_without_a_line_of_code():
    printed, usual = [], warnings.formatwarning

    def work() -> int:
        printed.append(warnings.formatwarning("without a\n.jpg", RuntimeWarning, "code.py", 3))
        return 0

    assert exit_code("ddas search", work) == 0
    assert printed == ["ddas search: without a\\n.jpg\n"]
    assert warnings.formatwarning is usual
