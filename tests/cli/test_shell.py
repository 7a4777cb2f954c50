"""What the commands share: how they end, and what they do with memory."""

import os
import platform
import subprocess
import sys

import pytest

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
