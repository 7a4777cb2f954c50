"""`python -m ddas_gpu.train`: train a network under an augmentation policy."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from ddas_gpu.search import _prepare, _refuse_changes, sentence
from ddas_gpu.training_settings import FROM_FILES, TrainSettings, preset

if TYPE_CHECKING:
    from ddas_gpu.training import Training

PROGRAM = "python -m ddas_gpu.train"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code.

    0 the network is trained, 2 something was wrong and one sentence said what, 128 + n signal n
    came and the run can be resumed.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        return run(parse(argv))
    except (ValueError, ArithmeticError, OSError) as error:
        # The pipelines speak of their argument, which is a flag here.
        told = sentence(error).replace("on_bad_files='skip'", "--bad-files skip")
        print(f"{PROGRAM}: {told}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped before the first step: there is nothing to resume", file=sys.stderr)
        return 128 + signal.SIGINT


def parse(argv: list[str]) -> TrainSettings:
    """The flags over the recipe's defaults or, with --resume, over the run's settings."""
    first = _first_look(argv)
    if first.resume:
        if first.out is None:
            raise ValueError("--resume needs --out, the folder of the run to go on with")
        from ddas_gpu.training_runs import read_settings

        before = read_settings(first.out)
        settings = _flags(argv, before.replace(out=first.out, resume=True))
        _refuse_changes(before, settings)
    else:
        settings = _flags(argv, preset(first.data, first.model, first.scale))
    settings.check()
    return settings


def _flags(argv: list[str], defaults: TrainSettings) -> TrainSettings:
    return tyro.cli(
        TrainSettings,
        prog=PROGRAM,
        args=argv,
        default=defaults,
        config=(tyro.conf.OmitArgPrefixes,),
    )


def _first_look(argv: list[str]) -> argparse.Namespace:
    """The few flags that decide the defaults of the others; what is wrong, tyro will say."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    try:
        return parser.parse_known_args(argv)[0]
    except argparse.ArgumentError:
        return parser.parse_args([])


def run(settings: TrainSettings) -> int:
    """Build everything, and only then touch the run folder; train; tell how it ended."""
    # As in the search: waiting threads would eat the cores that others share with us.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Everything below needs torch, which takes seconds to import.
    from ddas_gpu.data.full_sets import full_sets
    from ddas_gpu.report import write_report
    from ddas_gpu.runs import check_free
    from ddas_gpu.training import Training
    from ddas_gpu.training_batches import open_batches, readable
    from ddas_gpu.training_policies import open_policy
    from ddas_gpu.training_running import carry_out, sample_images
    from ddas_gpu.training_runs import TrainingFolder

    device = _prepare(settings)
    resumed = TrainingFolder(settings.run.out) if settings.run.resume else None
    if resumed is None and settings.run.out is not None:
        check_free(settings.run.out)
    schedule = open_policy(settings) if resumed is None else resumed.schedule()
    in_memory = settings.data.data not in FROM_FILES
    sets = full_sets(settings.data, settings.run.seed, in_memory)
    sets = readable(sets, settings.data.bad_files)
    batches, test = open_batches(settings, sets, schedule, device)
    training = Training(settings, schedule, len(sets.class_names), batches, test, device)
    folder = resumed or TrainingFolder.create(settings, schedule, sample_images(settings, sets))
    with folder:
        received = carry_out(training, sets, folder)
        if received is not None:
            again = f"{PROGRAM} --resume --out {shlex.quote(str(folder.path))}"
            print(f"stopped after step {training.steps}; go on with: {again}", file=sys.stderr)
            return 128 + received
        _tell(training, folder.path, write_report(folder.path))
    return 0


def _tell(training: Training, folder: Path, report: Path) -> None:
    best = training.best
    print(f"best test accuracy: {best['accuracy']:.2%}, after epoch {best['epoch'] + 1}")
    print(f"weights: {folder / 'best.pt'}")
    print(f"report: {report}")


if __name__ == "__main__":
    sys.exit(main())
