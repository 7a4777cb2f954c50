"""From the command line to checked settings."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import tyro

from ddas_gpu.cli.rules import flag
from ddas_gpu.cli.settings import Own
from ddas_gpu.data.catalog import CUSTOM
from ddas_gpu.distributed import torchrun

# Flags of ddas_gpu 0.1, which keep working for one version.
RENAMED = {
    "--batch": "--batch-size",
    "--val-batch": "--val-batch-size",
    "--test-batch": "--test-batch-size",
    "--longest-gradient": "--clip-grad-norm",
    "--mixed-precision": "--amp",
}


def with_new_names(argv: list[str]) -> list[str]:
    """Replace the flags that were renamed, in both forms: `--batch 8` and `--batch=8`."""
    replaced = []
    for argument in argv:
        name, *value = argument.split("=", 1)
        name = RENAMED.get(name.replace("_", "-"), name)
        replaced.append("=".join([name, *value]))
    return replaced


def first_look(argv: list[str], **own: Any) -> argparse.Namespace:
    """Read the few flags that decide the defaults of the others; tyro reports what is wrong.

    own: further flags and their types.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    for name, kind in own.items():
        parser.add_argument(flag(name), f"--{name}", type=kind)
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
    """Read the flags over the settings of a `fresh` run or, with --resume, over those `of_run`."""

    def flags(defaults: Own) -> Own:
        with quiet_except_on_one_rank():
            return tyro.cli(
                type(defaults),
                prog=program,
                args=argv,
                default=defaults,
                config=(tyro.conf.OmitArgPrefixes,),
            )

    require_data_of_commands(first.data, "--data custom")
    if first.resume or restarted(first.out):
        if first.out is None:
            raise ValueError("--resume needs --out, the folder of the run to go on with")
        before = of_run(first.out)
        require_data_of_commands(before.to_json()["data"], f"the run in {first.out}")
        settings = flags(before.replace(out=first.out, resume=True))
        refuse_changes(before, settings)
        require_model(first.out, before.to_json()["model"], first_look(argv, model=str).model)
    else:
        settings = flags(fresh()).replace(ranks=torchrun.count())
    settings.check()
    return settings


@contextmanager
def quiet_except_on_one_rank() -> Iterator[None]:
    """Print help and complaints about flags once per machine."""
    with open(os.devnull, "w") as nowhere, ExitStack() as stack:
        if torchrun.local_rank() > 0:
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        yield


def restarted(out: Path | None) -> bool:
    """Return whether torchrun has restarted the ranks of the run in `out` after a failure."""
    if out is None:
        if torchrun.most_restarts():
            raise ValueError("torchrun --max-restarts needs --out, to find the run again")
        return False
    return torchrun.restarts() > 0 and (out / "config.json").exists()


def refuse_changes(before: Own, after: Own) -> None:
    """Raise a ValueError if a resumed run has other settings than before."""
    old, new = before.to_json(), after.to_json()
    for name in old:
        if old[name] != new[name] and name not in after.free_to_change:
            raise ValueError(
                f"the run in {new['out']} was started with {flag(name)} {old[name]}, not "
                f"{new[name]}: a resumed run keeps its settings"
            )


def require_data_of_commands(data: str, what: str) -> None:
    """Raise a ValueError for data that a call of `search_policy` was given, as Python objects."""
    if data == CUSTOM.name:
        raise ValueError(
            f"{what} belongs to ddas_gpu.search_policy, which has its images from Python: resume "
            "with search_policy(…, out=…, resume=True), and train with PolicyTransform, "
            "BatchPolicy or loader"
        )


def require_model(folder: Path, model: str, given: str | None) -> None:
    """Raise a ValueError if a resumed run would import a module that only its folder names.

    The folder may be somebody else's, and importing runs code.
    """
    if ":" in model and given is None:
        raise ValueError(
            f"the run in {folder} imports its model: if you trust it, add --model {model}"
        )
