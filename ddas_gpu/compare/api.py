"""A comparison: its trainings one after the other in this process, then the page."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddas_gpu.cli.parsing import refuse_changes, require_data_of_commands
from ddas_gpu.cli.running import Ended, StoppedAtOnce, carry_out, settings_of_run
from ddas_gpu.cli.shell import prepare
from ddas_gpu.compare.contenders import Contender
from ddas_gpu.compare.settings import PEERS, CompareSettings, compare_preset
from ddas_gpu.distributed import torchrun
from ddas_gpu.errors import signal_of
from ddas_gpu.tasks.facts import FACTS
from ddas_gpu.train.settings import TrainSettings

if TYPE_CHECKING:
    import torch

    from ddas_gpu.distributed.ranks import Ranks
    from ddas_gpu.policy import PolicySchedule
    from ddas_gpu.report.score_differences import Difference, ScoreComparison
    from ddas_gpu.report.seeds import Spread
    from ddas_gpu.train.job import TrainingJob

PAGE, TABLE = "comparison.html", "comparison.json"
LAST_FILES = ("last.pt", "report.html")  # of a training that is finished


@dataclass(frozen=True)
class ComparisonResult:
    """What a comparison found; the scores are those of the last epoch, from 0 to 1."""

    scores: dict[str, dict[int, float]]
    """{policy: {seed: test score}}"""
    table: dict[str, Spread]
    """{policy: mean, standard error and 95 % interval over the seeds}"""
    differences: list[Difference]
    """Of the policy in question, or else the one with the highest mean, to each other one."""
    sentence: str
    """The result in one sentence."""
    report: Path
    """The page."""
    kept: str | None
    """The policy that is best on the validation images of --val-root or --val-share, which
    policy.json in the folder is; None without such images."""


def compare(
    *policies: str,
    policy: str | Path | None = None,
    data: str = "digits",
    seeds: int = 3,
    out: str | Path,
    quiet: bool = False,
    **settings: Any,
) -> ComparisonResult:
    """Train under several policies with several seeds each, and compare them.

    policies: what to compare with, as the flag --policies of `ddas compare`; by default no policy,
        uniform and TrivialAugment.
    policy: the policy in question, a file or the folder of a search.
    out: the folder of the comparison. What is in it is kept, and an interrupted training goes on
        from its checkpoint, if the settings are the same.
    settings: any flag of `python -m ddas_gpu.train` under its name, such as epochs=30.
    """
    chosen = make_settings(policies, policy, data, seeds, Path(out), settings)
    with unchanged_process():
        found, folder, ended = run_all(chosen, quiet)
    if found is None:
        steps = ended.job.steps if ended else 0
        raise KeyboardInterrupt(f"stopped after step {steps} of a training; call it again to go on")
    return ComparisonResult(
        found.scores, found.spreads, found.differences, found.headline(), folder / PAGE, found.kept
    )


def make_settings(
    policies: tuple[str, ...],
    policy: str | Path | None,
    data: str,
    seeds: int,
    out: Path,
    settings: dict[str, Any],
) -> CompareSettings:
    """Return checked settings, those of the comparison in `out` if there is one."""
    require_data_of_commands(data, 'data="custom"')
    fresh = compare_preset(data, settings.get("model"), settings.get("scale", 1.0)).to_json()
    own = {"policies": policies or PEERS, "seeds": seeds, "out": out}
    values = fresh | settings | own | {"policy": "none" if policy is None else policy}
    # As a config.json: paths may be given as text, and types are checked.
    chosen = CompareSettings.from_json(json.loads(json.dumps(values, default=str)))
    chosen.check()
    if (out / "config.json").exists():
        before = settings_of_run(out, "compare", "comparison", CompareSettings)
        chosen = chosen.replace(resume=True)
        refuse_changes(before, chosen)
    return chosen


@contextmanager
def unchanged_process() -> Iterator[None]:
    """Keep torch's generators and the numbers of threads as they are."""
    import torch

    from ddas_gpu import ops

    threads = torch.get_num_threads(), ops.get_num_threads()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch.set_num_threads(threads[0])
        ops.set_num_threads(threads[1])


def run_all(
    settings: CompareSettings, quiet: bool = False
) -> tuple[ScoreComparison | None, Path, Ended | None]:
    """Train what is not trained yet, and write the page; None and the training that a signal ended.

    Everything that can be wrong with the flags is found before the first training.
    """
    if torchrun.launched():
        raise ValueError("a comparison trains in one process: start it without torchrun")
    device = prepare(settings.run, FACTS[settings.spec.task].fixed_shapes)
    from ddas_gpu.train.policies import open_policy

    schedules = {
        one.name: open_policy(settings.of_training(one, 0, None)) for one in settings.contenders
    }
    with _open_folder(settings) as folder:
        trainings = _trainings(settings, folder.path)
        try:
            for number, (contender, wanted) in enumerate(trainings, 1):
                if not quiet:
                    which = f"{contender.name}, seed {wanted.run.seed}"
                    print(f"[{number}/{len(trainings)}] {which}", file=sys.stderr, flush=True)
                ended = train_one(wanted, schedules[contender.name], device, quiet)
                if ended is not None and ended.received is not None:
                    return None, folder.path, ended
            return write_pages(settings, folder.path), folder.path, None
        except KeyboardInterrupt as stop:
            raise StoppedAtOnce(signal_of(stop), folder.path) from None
        except Exception:
            if not any(folder.path.glob("*/*/config.json")):
                _remove_empty(folder)
            raise


def _open_folder(settings: CompareSettings) -> Any:
    """Open the folder of the comparison, which holds those of its trainings."""
    from ddas_gpu.runs.run_folder import RunFolder

    if not settings.run.resume:
        name, task, values = f"{settings.data.data}-compare", settings.spec.task, settings.to_json()
        return RunFolder.create(settings.run.out, name, "compare", task, values, {})
    assert settings.run.out is not None
    folder = RunFolder(settings.run.out)
    # It may have grown by seeds or policies.
    path = folder.path / "config.json"
    content = json.loads(path.read_bytes()) | {"settings": settings.replace(resume=False).to_json()}
    folder.write({path.name: json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"})
    return folder


def _remove_empty(folder: Any) -> None:
    """Remove the folder of a comparison whose first training could not begin."""
    with suppress(OSError):
        for path in folder.path.glob("*/"):
            path.rmdir()
    folder.discard()


def _trainings(settings: CompareSettings, out: Path) -> list[tuple[Contender, TrainSettings]]:
    """Return all trainings, seed by seed: after the first seed every policy has one."""
    return [
        (one, settings.of_training(one, seed, folder_of(out, one, settings.run.seed + seed)))
        for seed in range(settings.policy.seeds)
        for one in settings.contenders
    ]


def folder_of(out: Path, contender: Contender, seed: int) -> Path:
    return out / contender.name / f"seed-{seed}"


def train_one(
    wanted: TrainSettings, schedule: PolicySchedule | None, device: torch.device, quiet: bool
) -> Ended | None:
    """Train, or go on with a training that was interrupted; None if it is finished already."""
    from ddas_gpu.runs.run_folder import read_schedule
    from ddas_gpu.train.job import TrainingJob
    from ddas_gpu.train.loop import open_training

    folder = wanted.run.out
    assert folder is not None
    if (folder / "config.json").exists():
        before = settings_of_run(folder, "train", "training", TrainSettings)
        wanted = wanted.replace(resume=True)
        refuse_changes(before, wanted)
        if schedule is not None and read_schedule(folder) != schedule:
            raise ValueError(
                f"{folder} was trained under another policy than {wanted.policy.policy} is now: "
                "name another --out"
            )
        if all((folder / name).exists() for name in LAST_FILES):
            return None

    def build(device: torch.device, ranks: Ranks) -> TrainingJob:
        return TrainingJob(open_training(wanted, schedule, device, ranks))

    return carry_out(wanted, build, device, quiet=quiet)


def write_pages(settings: CompareSettings, out: Path) -> ScoreComparison:
    """Write the page and the table of a comparison whose trainings are finished."""
    from ddas_gpu.report.writing import write_comparison

    folders = {
        one.name: [
            folder_of(out, one, settings.run.seed + seed) for seed in range(settings.policy.seeds)
        ]
        for one in settings.contenders
    }
    subject = next((one.name for one in settings.contenders if one.is_subject), None)
    found = write_comparison(folders, subject, out / PAGE, out / TABLE)
    if found.kept is not None:
        keep_policy(settings, folders[found.kept][0], found.validated, out)
    return found


def keep_policy(
    settings: CompareSettings, training: Path, validated: dict[str, float], out: Path
) -> None:
    """Write the policy of a training as that of the comparison, with the scores it was chosen by.

    A training without a policy is kept as one that augments no image.
    """
    from ddas_gpu.policy import PolicySchedule
    from ddas_gpu.runs.run_folder import POLICY
    from ddas_gpu.train.baselines import nothing

    if (training / POLICY).exists():
        schedule = PolicySchedule.load(training)
    else:
        schedule = nothing(settings.spec.space.at(settings.data.image_size))
    known = {"image_size": settings.data.image_size, **schedule.settings, "kept_of": validated}
    replace(schedule, settings=known).save(out / POLICY)
