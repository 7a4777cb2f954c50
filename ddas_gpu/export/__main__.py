"""The command that exports the policy of one epoch: `python -m ddas_gpu.export`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ddas_gpu.errors import sentence

PROGRAM = "python -m ddas_gpu.export"

DALI_MODULE = '''\
"""The augmentation policy of epoch {epoch} of {epochs}, for DALI's `apply_auto_augment`."""

from ddas_gpu import PolicySchedule
from ddas_gpu.exports import dali_policy

policy = dali_policy(PolicySchedule.load({path!r}), epoch={epoch}, total_epochs={epochs})
'''


@dataclass(frozen=True)
class Export:
    """Export the policy of one epoch to another library."""

    policy: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="POLICY.JSON")]
    """The policy file that a search wrote."""
    to: Literal["albumentations", "dali"] = "albumentations"
    """Albumentations' JSON, or a Python module with a Policy for DALI's auto_aug."""
    epoch: int | None = None
    """The epoch, counted from 0; by default the last."""
    epochs: int | None = None
    """The number of epochs of the training; by default that of the search."""
    out: Path | None = None
    """The file to write; by default POLICY.albumentations.json or POLICY_dali.py beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = tyro.cli(Export, prog=PROGRAM, args=arguments)
    try:
        print(export(options))
    except (ValueError, OSError) as error:
        print(f"{PROGRAM}: {sentence(error)}", file=sys.stderr)
        return 2
    return 0


def export(options: Export) -> Path:
    """Write the file and return its path."""
    from ddas_gpu.export.albumentations_policy import save_albumentations
    from ddas_gpu.export.dali_policy import dali_policy
    from ddas_gpu.files import write_atomically
    from ddas_gpu.policy import PolicySchedule

    schedule = PolicySchedule.load(options.policy)
    epochs = len(schedule) if options.epochs is None else options.epochs
    epoch = epochs - 1 if options.epoch is None else options.epoch
    schedule.at(epoch, epochs)  # raises if the epoch is out of range
    stem = options.policy.stem
    if options.to == "albumentations":
        out = options.out or options.policy.with_name(f"{stem}.albumentations.json")
        save_albumentations(schedule, out, epoch, epochs)
        return out
    dali_policy(schedule, epoch, epochs)  # raises if DALI is missing or cannot do it
    out = options.out or options.policy.with_name(f"{stem}_dali.py")
    path = str(options.policy.resolve())
    write_atomically(out, DALI_MODULE.format(epoch=epoch, epochs=epochs, path=path).encode())
    return out


if __name__ == "__main__":
    sys.exit(main())
