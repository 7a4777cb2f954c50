"""What the commands that run for a while have in common: flags, exit codes, one sentence."""

from __future__ import annotations

import argparse
import ctypes
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import tyro

from ddas_gpu.cli.grouped_settings import Own
from ddas_gpu.distributed import torchrun
from ddas_gpu.errors import sentence
from ddas_gpu.search.settings import FREE_TO_CHANGE

if TYPE_CHECKING:
    import torch


def exit_code(program: str, work: Callable[[], int]) -> int:
    """What `work` returns; 2 if something was wrong, after one sentence that says what."""
    try:
        return work()
    except (ValueError, ArithmeticError, OSError) as error:
        # The pipelines speak of their argument, which is a flag here.
        told = sentence(error).replace("on_bad_files='skip'", "--bad-files skip")
        if is_mine_to_tell(error):
            print(f"{program}: {told}", file=sys.stderr, flush=True)
        return 2
    except KeyboardInterrupt:
        if torchrun.local_rank() == 0:
            print("stopped before the first step: there is nothing to resume", file=sys.stderr)
        return 128 + signal.SIGINT


def is_mine_to_tell(error: Exception) -> bool:
    """Whether this process says what went wrong, or another one does.

    Before the ranks have met, flags or a missing folder are as wrong for all on a machine.
    """
    if getattr(error, "on_all_ranks", False):
        return torchrun.rank() == 0
    return torchrun.local_rank() == 0 or getattr(error, "of_one_rank", False)


def leave(code: int) -> NoReturn:
    """End the program.

    Ranks end at once: threads of torch that still let go of their last message, or wait for a lost
    rank, now and then abort an interpreter that ends in good order, and torchrun takes the abort
    of a rank for the failure of all.
    """
    if torchrun.launched():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def first_look(argv: list[str], **own: Any) -> argparse.Namespace:
    """The few flags that decide the defaults of the others; what is wrong, tyro will say.

    own: further flags and their defaults, or their types where there is none.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    for name, kind in own.items():
        parser.add_argument(f"--{name.replace('_', '-')}", f"--{name}", type=kind)
    try:
        return parser.parse_known_args(argv)[0]
    except argparse.ArgumentError:
        return parser.parse_args([])


def parse(
    program: str,
    argv: list[str],
    first: argparse.Namespace,
    fresh: Callable[[], Own],
    of_run: Callable[[Path], Own],
) -> Own:
    """The flags over the defaults of a `fresh` run or, with --resume, over those `of_run`."""

    def flags(defaults: Own) -> Own:
        with quiet_but_on_one_rank():
            return tyro.cli(
                type(defaults),
                prog=program,
                args=argv,
                default=defaults,
                config=(tyro.conf.OmitArgPrefixes,),
            )

    if first.resume or restarted(first.out):
        if first.out is None:
            raise ValueError("--resume needs --out, the folder of the run to go on with")
        before = of_run(first.out)
        settings = flags(before.replace(out=first.out, resume=True))
        refuse_changes(before, settings)
    else:
        settings = flags(fresh()).replace(ranks=torchrun.count())
    settings.check()
    return settings


@contextmanager
def quiet_but_on_one_rank() -> Iterator[None]:
    """One help, or one complaint about the flags, a machine."""
    with open(os.devnull, "w") as nowhere, ExitStack() as stack:
        if torchrun.local_rank() > 0:
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        yield


def restarted(out: Path | None) -> bool:
    """Whether torchrun has started the ranks of the run in `out` again after a failure."""
    if out is None:
        if torchrun.most_restarts():
            raise ValueError("torchrun --max-restarts needs --out, to find the run again")
        return False
    return torchrun.restarts() > 0 and (out / "config.json").exists()


def refuse_changes(before: Own, after: Own) -> None:
    """A resumed run keeps its settings."""
    old, new = before.to_json(), after.to_json()
    for name in old:
        if old[name] != new[name] and name not in FREE_TO_CHANGE:
            raise ValueError(
                f"the run in {after.run.out} was started with --{name.replace('_', '-')} "
                f"{old[name]}, not {new[name]}: a resumed run keeps its settings"
            )


def prepare(run: Any) -> torch.device:
    """Set the threads and find the device; the first thing that imports torch."""
    # torch's threads spin while they wait for each other. That can be faster on idle cores, but on
    # shared ones the spinning can cost many times the work itself, so they sleep unless told
    # otherwise. Read once, when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    from ddas_gpu import ops

    threads = run.threads or max(1, len(os.sched_getaffinity(0)) // torchrun.local_count())
    torch.set_num_threads(threads)
    ops.set_num_threads(threads)
    found = torch.cuda.is_available()
    if run.device == "cuda" and not found:
        raise ValueError("--device cuda, but torch finds no CUDA GPU here: take --device cpu")
    if not found or run.device == "cpu":
        keep_freed_memory()
        return torch.device("cpu")
    if not torchrun.launched():
        return torch.device("cuda")
    if torchrun.local_count() > torch.cuda.device_count():
        raise ValueError(
            f"{torchrun.local_count()} ranks, but {torch.cuda.device_count()} GPUs on this "
            "machine: torchrun --nproc-per-node takes at most one rank a GPU"
        )
    device = torch.device("cuda", torchrun.local_rank())
    torch.cuda.set_device(device)
    return device


def keep_freed_memory() -> None:
    """Have the C library keep what torch frees in a step for the next one.

    Without it, every large tensor is memory that the system clears and maps anew: up to a third
    of a step on the CPU.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's
    if mallopt is not None:
        never_trim, no_mappings = (-1, -1), (-4, 0)  # M_TRIM_THRESHOLD, M_MMAP_MAX
        mallopt(*never_trim)
        mallopt(*no_mappings)


def stopped(program: str, received: signal.Signals, folder: Path, steps: int) -> int:
    """Say how to go on after a signal; the exit code."""
    if torchrun.launched():
        program = program.replace("python", "torchrun …")
    again = f"{program} --resume --out {shlex.quote(str(folder))}"
    if torchrun.rank() == 0:
        print(f"stopped after step {steps}; go on with: {again}", file=sys.stderr)
    return 128 + received
