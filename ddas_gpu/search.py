"""`python -m ddas_gpu.search`: find the augmentation policy that helps a data set most."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from ddas_gpu.progress import top_candidates
from ddas_gpu.settings import FREE_TO_CHANGE, SearchSettings, preset
from ddas_gpu.space import SearchSpace

if TYPE_CHECKING:
    import torch

    from ddas_gpu.searching import Search

PROGRAM = "python -m ddas_gpu.search"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code.

    0 the policy is there, 2 something was wrong and one sentence said what, 128 + n signal n came
    and the run can be resumed.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        return run(parse(argv))
    except (ValueError, ArithmeticError, OSError) as error:
        print(f"{PROGRAM}: {sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped before the first step: there is nothing to resume", file=sys.stderr)
        return 128 + signal.SIGINT


def parse(argv: list[str]) -> SearchSettings:
    """The flags over the preset's defaults or, with --resume, over the run's settings."""
    first = _first_look(argv)
    if first.resume:
        if first.out is None:
            raise ValueError("--resume needs --out, the folder of the run to go on with")
        from ddas_gpu.runs import read_settings

        before = read_settings(first.out)
        settings = _flags(argv, before.replace(out=first.out, resume=True))
        _refuse_changes(before, settings)
    else:
        defaults = preset(first.data, first.sanity_check, first.scale)
        if first.space is not None:
            defaults = defaults.replace(levels=(), depth=SearchSpace.load(first.space).depth)
        settings = _flags(argv, defaults)
    settings.check()
    return settings


def _flags(argv: list[str], defaults: SearchSettings) -> SearchSettings:
    return tyro.cli(
        SearchSettings,
        prog=PROGRAM,
        args=argv,
        default=defaults,
        config=(tyro.conf.OmitArgPrefixes,),
    )


def _first_look(argv: list[str]) -> argparse.Namespace:
    """The few flags that decide the defaults of the others; what is wrong, tyro will say."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--sanity-check", "--sanity_check")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--space", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    try:
        return parser.parse_known_args(argv)[0]
    except argparse.ArgumentError:
        return parser.parse_args([])


def _refuse_changes(before: SearchSettings, after: SearchSettings) -> None:
    old, new = before.to_json(), after.to_json()
    for name in old:
        if old[name] != new[name] and name not in FREE_TO_CHANGE:
            raise ValueError(
                f"the run in {after.run.out} was started with --{name.replace('_', '-')} "
                f"{old[name]}, not {new[name]}: a resumed run keeps its settings"
            )


def run(settings: SearchSettings) -> int:
    """Build everything, and only then touch the run folder; search; tell what was found."""
    space = settings.search_space()
    # torch's threads spin while they wait for each other. That can be faster on idle cores, but on
    # shared ones the spinning can cost many times the work itself, so they sleep unless told
    # otherwise. Read once, when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Everything below needs torch, which takes seconds to import.
    from ddas_gpu.data import proxy_sets
    from ddas_gpu.report import write_report
    from ddas_gpu.running import carry_out
    from ddas_gpu.runs import RunFolder, check_free
    from ddas_gpu.searching import Search

    device = _prepare(settings)
    if settings.run.out is not None and not settings.run.resume:
        check_free(settings.run.out)
    search = Search(settings, space, *proxy_sets(settings.data, settings.run.seed), device)
    if settings.run.resume:
        folder = RunFolder(settings.run.out)
    else:
        folder = RunFolder.create(settings, search.train, search.validation)
    with folder:
        print(
            f"searching {len(space)} candidates in {search.total_steps} steps: {folder.path}",
            file=sys.stderr,
        )
        received = carry_out(search, folder)
        if received is not None:
            again = f"{PROGRAM} --resume --out {shlex.quote(str(folder.path))}"
            print(f"stopped after step {search.steps}; go on with: {again}", file=sys.stderr)
            return 128 + received
        _tell(search, folder.path, write_report(folder.path))
    return 0


def _prepare(settings: SearchSettings) -> torch.device:
    """Set the threads and find the device."""
    import torch

    from ddas_gpu import ops

    threads = settings.run.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    ops.set_num_threads(threads)
    name, found = settings.run.device, torch.cuda.is_available()
    if name == "cuda" and not found:
        raise ValueError("--device cuda, but torch finds no CUDA GPU here: take --device cpu")
    return torch.device("cuda" if found and name != "cpu" else "cpu")


def _tell(search: Search, folder: Path, report: Path) -> None:
    p_o = search.parameters.op_probabilities
    print(f"probability to augment: {search.parameters.apply_probability:.3f}")
    print(f"most probable:  {top_candidates(search.space, p_o, 5)}  (1.00× is uniform)")
    print(f"least probable: {top_candidates(search.space, -p_o, 5)}")
    print(f"policy: {folder / 'policy.json'}")
    print(f"report: {report}")


def sentence(error: Exception) -> str:
    """One line that says what is wrong and what to do."""
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"the disk is full{place}: free some space, then go on with --resume"
        return f"{error.strerror}{place}"
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())
