"""The command that exports a policy to another library: `python -m ddas_gpu.export`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ddas_gpu.errors import die_of_ctrl_c, exit_code_of

if __name__ == "__main__":
    die_of_ctrl_c()  # before the imports that take time

import tyro

PROGRAM = "python -m ddas_gpu.export"


@dataclass(frozen=True)
class Export:
    """Write a policy as one Python file, with all its epochs, that does not need ddas_gpu."""

    policy: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN|POLICY.JSON")]
    """The folder of a search, or the policy file that it wrote."""
    to: Literal["pillow", "torchvision", "albumentations", "dali"] = "pillow"
    """The library that applies the policy. The file's head says how its ops differ, if they do."""
    image_size: int | None = None
    """The size of the training images, if not that of the search: shifts and holes are scaled."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """The file to write; by default policy_LIBRARY.py beside the policy."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = tyro.cli(Export, prog=PROGRAM, args=arguments)
    return exit_code_of(PROGRAM, lambda: run(options))


def run(options: Export) -> int:
    """Write the file and print its path; return the exit code."""
    print(export(options))
    return 0


def export(options: Export) -> Path:
    """Write the file and return its path."""
    from ddas_gpu.export.standalone import exported, recorded_versions
    from ddas_gpu.files import write_atomically
    from ddas_gpu.policy import PolicySchedule, in_run_folder

    given = options.policy
    policy = in_run_folder(given) if given.is_dir() else given
    schedule = PolicySchedule.load(policy)
    if options.image_size is not None:
        schedule = schedule.scaled(options.image_size)
    text = exported(schedule, options.to, recorded_versions(policy))
    out = options.out or policy.with_name(f"{policy.stem}_{options.to}.py")
    if out.resolve() == policy.resolve():
        raise ValueError(f"{out} is the policy itself: name another file for --out")
    write_atomically(out, text.encode())
    return out


if __name__ == "__main__":
    sys.exit(main())
