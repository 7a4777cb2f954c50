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

policy = dali_policy(PolicySchedule.load({path!r}){scaled}, epoch={epoch}, total_epochs={epochs})
'''


@dataclass(frozen=True)
class Export:
    """Export the policy of one epoch to another library."""

    policy: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="POLICY.JSON")]
    """The policy file that a search wrote, or the folder of its run."""
    to: Literal["albumentations", "dali"] = "albumentations"
    """Albumentations' JSON, or a Python module with a Policy for DALI's auto_aug."""
    epoch: int | None = None
    """The epoch, counted from 0; by default the last."""
    epochs: int | None = None
    """The number of epochs of the training; by default that of the search."""
    image_size: int | None = None
    """The size of the training images, if not that of the search: shifts and holes are scaled."""
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
    path = options.policy / "policy.json" if options.policy.is_dir() else options.policy
    scaled = ""
    if options.image_size is not None:
        schedule, scaled = schedule.scaled(options.image_size), f".scaled({options.image_size})"
    epochs = len(schedule) if options.epochs is None else options.epochs
    epoch = epochs - 1 if options.epoch is None else options.epoch
    schedule.at(epoch, epochs)  # raises if the epoch is out of range
    if options.to == "albumentations":
        out = options.out or path.with_name(f"{path.stem}.albumentations.json")
        save_albumentations(schedule, out, epoch, epochs)
        return out
    dali_policy(schedule, epoch, epochs)  # raises if DALI is missing or cannot do it
    out = options.out or path.with_name(f"{path.stem}_dali.py")
    content = DALI_MODULE.format(
        epoch=epoch, epochs=epochs, path=str(path.resolve()), scaled=scaled
    )
    write_atomically(out, content.encode())
    return out


if __name__ == "__main__":
    sys.exit(main())
