"""`ddas evaluate RUN`: test a trained network, also on images of another folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ddas_gpu.errors import die_of_ctrl_c

if __name__ == "__main__":
    die_of_ctrl_c()  # before the imports that take time

import tyro

from ddas_gpu.cli.parsing import require_model
from ddas_gpu.cli.running import settings_of_run
from ddas_gpu.cli.shell import exit_code, prepare
from ddas_gpu.tasks.facts import FACTS
from ddas_gpu.train.settings import TrainSettings

if TYPE_CHECKING:
    import torch

PROGRAM = "python -m ddas_gpu.train.evaluate"


@dataclass(frozen=True)
class Evaluate:
    """Test the network of a finished training. Nothing is written."""

    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """The folder of a run of `ddas train`."""
    test_root: Path | None = None
    """Test on the images of this folder; without this on the run's own test images."""
    weights: Literal["last", "best"] = "last"
    """The weights after the last epoch, or of the epoch that --val-share has chosen."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto is a GPU if there is one."""
    threads: int | None = None
    """CPU threads; without this all available cores."""
    model: str | None = None
    """Of a run that imports its network: the same module:Net again, because importing runs code."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = tyro.cli(Evaluate, prog=PROGRAM, args=arguments)
    return exit_code(PROGRAM, lambda: run(options))


def run(options: Evaluate) -> int:
    """Test and print; return the exit code."""
    settings = settings_of_run(options.run, "train", "training", TrainSettings)
    require_model(options.run, settings.training.model, options.model)
    # Another folder is tested whole: shares are for try-outs of the run's own images.
    changes: dict[str, Any] = {"device": options.device, "threads": options.threads}
    if options.test_root is not None:
        changes |= {"test_root": options.test_root, "test_share": 1.0}
    settings = settings.replace(**changes)
    tested, count = evaluate(settings, options.run / f"{options.weights}.pt")
    score = FACTS[settings.spec.task].score
    where = "" if options.test_root is None else f" of {options.test_root}"
    print(f"{score.name} {score.show(tested[score.tested])} on {count} images{where}")
    others = {name: value for name, value in tested.items() if name != score.tested}
    print(", ".join(f"{name} {value:.4f}" for name, value in others.items()))
    return 0


def evaluate(settings: TrainSettings, weights: Path) -> tuple[dict[str, float], int]:
    """Return the scores of a file of weights on the settings' test images, and how many these are.

    The images are those that a training with these settings would be tested on.
    """
    from ddas_gpu.train.loop import open_training

    if not weights.is_file():
        why = "it needs --val-share" if weights.stem == "best" else "the training is not finished"
        raise ValueError(f"there is no {weights}: {why}")
    device = prepare(settings.run, FACTS[settings.spec.task].fixed_shapes)
    training = open_training(settings, None, device)
    class_names, state = read_weights(weights, device)
    if class_names != list(training.train.class_names):
        raise ValueError(f"{weights} was trained on other classes than there are images of now")
    try:
        training.model.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{weights} does not fit {settings.training.model}: {reason}") from None
    tested = training.task.test(
        training.model, training.model.state_dict(), training.test_batches, training.tested
    )
    return tested, len(training.tested)


def read_weights(path: Path, device: torch.device | str) -> tuple[list[str], dict[str, Any]]:
    """Return the class names and the weights of a file that a training has written."""
    import torch

    try:
        content = torch.load(path, map_location=device, weights_only=True)
        return list(content["class_names"]), dict(content["weights"])
    except Exception as error:  # torch.load raises whatever the damaged bytes lead it to
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} does not hold the weights of a training: {reason}") from None


if __name__ == "__main__":
    sys.exit(main())
