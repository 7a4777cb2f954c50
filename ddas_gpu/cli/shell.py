"""The process around a command: exit codes, errors as one sentence, threads and devices."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from ddas_gpu.cli.rules import as_keywords
from ddas_gpu.distributed import torchrun
from ddas_gpu.errors import lasting_messages, printable, sentence, signal_of

if TYPE_CHECKING:
    import torch

    from ddas_gpu.cli.groups import RunSettings
    from ddas_gpu.cli.settings import Settings


def exit_code(program: str, work: Callable[[], int]) -> int:
    """Return what `work` returns; or print one sentence that says what is wrong, and return 2."""
    with lasting_messages():
        try:
            with warnings_as_sentences(program):
                return work()
        except (ValueError, ArithmeticError, OSError, MemoryError) as error:
            # The pipelines name their argument, which is a flag here.
            message = sentence(error).replace("on_bad_files='skip'", "--bad-files skip")
            if is_mine_to_print(error):
                print(f"{program}: {message}", file=sys.stderr, flush=True)
            return 2
        except KeyboardInterrupt as stop:
            if torchrun.local_rank() == 0:
                print("stopped before it began: nothing was changed", file=sys.stderr)
            return 128 + signal_of(stop)


@contextmanager
def warnings_as_sentences(program: str) -> Iterator[None]:
    """Print warnings without the line of code that they come from."""
    usual = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"{program}: {printable(str(message))}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


@contextmanager
def errors_with_keywords(settings: type[Settings]) -> Iterator[None]:
    """Name settings in errors as keywords, for callers from Python: lr_ops, not --lr-ops."""
    try:
        yield
    except Exception as error:
        names = settings.kinds()
        error.args = tuple(
            as_keywords(part, names) if isinstance(part, str) else part for part in error.args
        )
        raise


def is_mine_to_print(error: Exception) -> bool:
    """Return whether this process prints what went wrong, or another one does.

    Before the ranks have met, wrong flags or a missing folder are found by all on a machine.
    """
    if getattr(error, "on_all_ranks", False):
        return torchrun.rank() == 0
    return torchrun.local_rank() == 0 or getattr(error, "of_one_rank", False)


def leave(code: int) -> NoReturn:
    """End the program.

    Ranks end at once, without finalising the interpreter: threads of torch that still release
    their last message, or wait for a lost rank, sometimes abort during finalisation, and torchrun
    takes the abort of one rank for the failure of all.
    """
    if torchrun.launched():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def prepare(run: RunSettings, fixed_shapes: bool) -> torch.device:
    """Set the threads, find the device and decide how repeatable it is; this imports torch.

    fixed_shapes: whether the network gets batches of one shape.
    """
    # By default torch's threads spin while they wait for each other. That can be faster on idle
    # cores, but on shared ones it can cost many times the work itself, so they sleep unless the
    # user has set the variable. OpenMP reads it once, when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if run.deterministic:
        # cuBLAS reads it when it is first used; of the two values torch accepts, the faster one.
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch

    from ddas_gpu import ops
    from ddas_gpu.ops.backends import cores, tell

    threads = run.threads or cores()
    torch.set_num_threads(threads)
    ops.set_num_threads(threads)
    set_determinism(run.deterministic, fixed_shapes)
    device = find_device(run.device)
    if device.type == "cpu":
        keep_freed_memory()
    tell(device.type, print_once)
    return device


def set_determinism(deterministic: bool, fixed_shapes: bool) -> None:
    """Make torch choose algorithms by their repeatability, or by their speed."""
    import torch

    torch.use_deterministic_algorithms(deterministic)
    # With it on, cuDNN measures its algorithms at each new shape and takes the fastest.
    torch.backends.cudnn.benchmark = fixed_shapes and not deterministic
    if deterministic:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False


def find_device(wanted: str) -> torch.device:
    """Return the device of this process, and make it torch's current one under torchrun."""
    import torch

    found = torch.cuda.is_available()
    if wanted == "cuda" and not found:
        raise ValueError("--device cuda, but torch finds no CUDA GPU here: use --device cpu")
    if not found or wanted == "cpu":
        return torch.device("cpu")
    if not torchrun.launched():
        return torch.device("cuda")
    if torchrun.local_count() > torch.cuda.device_count():
        raise ValueError(
            f"{torchrun.local_count()} ranks, but {torch.cuda.device_count()} GPUs on this "
            "machine: torchrun --nproc-per-node allows at most one rank per GPU"
        )
    device = torch.device("cuda", torchrun.local_rank())
    torch.cuda.set_device(device)
    return device


def print_once(message: str) -> None:
    """Print to stderr, on one rank of a machine."""
    if torchrun.local_rank() == 0:
        print(message, file=sys.stderr, flush=True)


def keep_freed_memory() -> None:
    """Make the C library keep what torch frees in a step for the next one.

    Otherwise the system clears and maps the memory of every large tensor anew: up to a third of a
    step on the CPU.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's
    if mallopt is not None:
        never_trim, no_mappings = (-1, -1), (-4, 0)  # M_TRIM_THRESHOLD, M_MMAP_MAX
        mallopt(*never_trim)
        mallopt(*no_mappings)
