"""`ddas` and `python -m ddas_gpu`: all commands under one name."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

from ddas_gpu import __version__
from ddas_gpu.errors import die_of_ctrl_c

PROGRAM = "ddas"

# {command: (module whose main runs it, what it does)}
COMMANDS = {
    "search": ("ddas_gpu.search.__main__", "find the augmentation policy that helps a data set"),
    "train": ("ddas_gpu.train.__main__", "train a network under an augmentation policy"),
    "evaluate": ("ddas_gpu.train.evaluate", "test a trained network, also on another folder"),
    "compare": ("ddas_gpu.compare.__main__", "train under several policies and compare them"),
    "report": ("ddas_gpu.report.__main__", "draw the report of a run, or compare several runs"),
    "export": (
        "ddas_gpu.export.__main__",
        "write a policy as a file for other libraries",
    ),
    "scan": ("ddas_gpu.scan", "list the images of a folder that cannot be read"),
    "doctor": ("ddas_gpu.doctor.__main__", "check this machine: versions, exact results, speed"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    if argv is None:  # as a program
        die_of_ctrl_c()
    first, *rest = (sys.argv[1:] if argv is None else list(argv)) or ["--help"]
    if first in COMMANDS:
        return import_module(COMMANDS[first][0]).main(rest)
    if first in ("-h", "--help"):
        print(usage())
        return 0
    if first == "--version":
        print(f"ddas_gpu {__version__}")
        return 0
    nearest = difflib.get_close_matches(first, COMMANDS, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"there are: {', '.join(COMMANDS)}"
    print(f"{PROGRAM}: unknown command {first!r}; {hint}", file=sys.stderr)
    return 2


def usage() -> str:
    """Return the list of all commands."""
    lines = [f"  {name:<10}{words}" for name, (_, words) in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROGRAM} COMMAND [FLAGS]",
            "",
            *lines,
            "",
            f"`{PROGRAM} COMMAND --help` lists the flags of a command, `{PROGRAM} --version` tells "
            "the version.",
        ]
    )


if __name__ == "__main__":
    from ddas_gpu.cli.shell import leave

    leave(main())
