"""What the commands that run for a while have in common: flags, exit codes, one sentence."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from ddas_gpu.grouped_settings import Own
from ddas_gpu.settings import FREE_TO_CHANGE

if TYPE_CHECKING:
    import torch


def exit_code(program: str, work: Callable[[], int]) -> int:
    """What `work` returns; 2 if something was wrong, after one sentence that says what."""
    try:
        return work()
    except (ValueError, ArithmeticError, OSError) as error:
        # The pipelines speak of their argument, which is a flag here.
        told = sentence(error).replace("on_bad_files='skip'", "--bad-files skip")
        print(f"{program}: {told}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped before the first step: there is nothing to resume", file=sys.stderr)
        return 128 + signal.SIGINT


def sentence(error: Exception) -> str:
    """One line that says what is wrong and what to do."""
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"the disk is full{place}: free some space, then go on with --resume"
        return f"{error.strerror}{place}"
    return " ".join(str(error).split())


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
        return tyro.cli(
            type(defaults),
            prog=program,
            args=argv,
            default=defaults,
            config=(tyro.conf.OmitArgPrefixes,),
        )

    if first.resume:
        if first.out is None:
            raise ValueError("--resume needs --out, the folder of the run to go on with")
        before = of_run(first.out)
        settings = flags(before.replace(out=first.out, resume=True))
        refuse_changes(before, settings)
    else:
        settings = flags(fresh())
    settings.check()
    return settings


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

    threads = run.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    ops.set_num_threads(threads)
    found = torch.cuda.is_available()
    if run.device == "cuda" and not found:
        raise ValueError("--device cuda, but torch finds no CUDA GPU here: take --device cpu")
    return torch.device("cuda" if found and run.device != "cpu" else "cpu")


def stopped(program: str, received: signal.Signals, folder: Path, steps: int) -> int:
    """Say how to go on after a signal; the exit code."""
    again = f"{program} --resume --out {shlex.quote(str(folder))}"
    print(f"stopped after step {steps}; go on with: {again}", file=sys.stderr)
    return 128 + received
