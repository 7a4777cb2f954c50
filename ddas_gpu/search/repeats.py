"""`--repeats N`: the same search with N seeds, joined into one policy."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ddas_gpu.cli.running import StoppedAtOnce, carry_out, stopped
from ddas_gpu.cli.shell import prepare
from ddas_gpu.distributed import torchrun
from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.errors import stoppable
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.report.writing import write_report
from ddas_gpu.runs.run_folder import CONFIG, POLICY, SAMPLES, RunFolder
from ddas_gpu.search.algorithm import open_search
from ddas_gpu.search.job import SearchJob, advice, apply_of, top_candidates, trials_of
from ddas_gpu.search.settings import SearchSettings
from ddas_gpu.search.verdict import Apply, Trials, judge
from ddas_gpu.space import SearchSpace
from ddas_gpu.tasks.facts import FACTS

Found = tuple[PolicySchedule, Trials, Apply]  # by one seed


def run_repeats(program: str, settings: SearchSettings) -> int:
    """Search with every seed that is not finished, then join them; return the exit code.

    A seed is a run of its own, in the folder seed-NUMBER of --out.
    """
    if torchrun.launched():
        raise ValueError(
            "--repeats runs in one process: under torchrun, search once for each --seed"
        )
    space = settings.search_space()
    device = prepare(settings.run, FACTS[settings.spec.task].fixed_shapes)
    out = settings.run.out
    new = [] if out is None else [parent for parent in out.parents if not parent.exists()]
    with _open(settings) as folder:
        found: list[Found] = []
        for seed in range(settings.run.seed, settings.run.seed + settings.run.repeats):
            try:
                with stoppable():
                    job, received = _search(of_seed(settings, folder.path, seed), space, device)
            except StoppedAtOnce as stop:
                return stopped(program, settings, stop.number, folder.path, "at once")
            except BaseException:
                if not any(folder.path.glob("seed-*")):  # refused before anything was searched
                    folder.discard()
                    for parent in new:
                        parent.rmdir()
                raise
            if received is not None:
                when = f"after step {job.steps} of seed {seed}"
                return stopped(program, settings, received, folder.path, when)
            search = job.search
            found.append((search.schedule(), trials_of(search), apply_of(search)))
        schedule = joined(found)
        samples = folder.path / f"seed-{settings.run.seed}" / SAMPLES
        folder.write({POLICY: schedule.to_bytes(), SAMPLES: samples.read_bytes()})
        report = write_report(folder.path)
        print(*summary(schedule, settings, folder.path), f"report: {report}", sep="\n")
        return 0


def _open(settings: SearchSettings) -> RunFolder:
    """Open the folder that holds those of the seeds."""
    out, data = settings.run.out, settings.data.data
    if settings.run.resume:
        assert out is not None  # see `parsing.parse`
        return RunFolder(out)
    return RunFolder.create(out, data, "search", settings.spec.task, settings.to_json(), {})


def of_seed(settings: SearchSettings, folder: Path, seed: int) -> SearchSettings:
    """Return the settings of one seed's run."""
    out = folder / f"seed-{seed}"
    return settings.replace(repeats=1, seed=seed, out=out, resume=(out / CONFIG).exists())


def _search(
    settings: SearchSettings, space: SearchSpace, device: torch.device
) -> tuple[SearchJob, signal.Signals | None]:
    """Run one seed to its end; a finished one only loads its last checkpoint."""

    def build(device: torch.device, ranks: Ranks) -> SearchJob:
        job = SearchJob(open_search(settings, space, device, ranks))
        print(f"seed {settings.run.seed}", file=sys.stderr)
        return job

    ended = carry_out(settings, build, device)
    assert isinstance(ended.job, SearchJob)
    return ended.job, ended.received


def joined(found: Sequence[Found]) -> PolicySchedule:
    """Return the mean of the seeds' probabilities, with the verdict of all and what each found."""
    schedules, trials, apply = zip(*found, strict=True)
    first: PolicySchedule = schedules[0]
    seeds = [
        {
            "seed": schedule.settings["seed"],
            "p_tp": float(schedule.p_tp[-1]),
            "p_o": schedule.p_o[-1].tolist(),
        }
        for schedule in schedules
    ]
    verdict: dict[str, Any] = judge(first.space, trials, apply) | {"seeds": seeds}
    return replace(
        first,
        p_tp=np.mean([schedule.p_tp for schedule in schedules], 0),
        p_o=np.mean([schedule.p_o for schedule in schedules], 0),
        settings={**first.settings, "repeats": len(schedules)},
        verdict=verdict,
    )


def summary(schedule: PolicySchedule, settings: SearchSettings, folder: Path) -> list[str]:
    """Return what to print at the end: the joined policy, and how far the seeds are apart."""
    verdict, space, p_o = schedule.verdict, schedule.space, schedule.p_o[-1]
    shares = [entry["p_tp"] for entry in verdict["seeds"]]
    tops = [top_candidates(space, np.array(entry["p_o"]), 1) for entry in verdict["seeds"]]
    return [
        f"probability to augment: {schedule.p_tp[-1]:.3f} "
        f"({min(shares):.3f} … {max(shares):.3f} over {len(shares)} seeds)",
        f"most probable:  {top_candidates(space, p_o, 5)}  (1.00× is uniform)",
        f"least probable: {top_candidates(space, -p_o, 5)}",
        f"first by seed:  {', '.join(tops)}",
        f"verdict: {verdict['sentence']}",
        *advice(dict(verdict), settings),
        f"policy: {folder / POLICY}",
    ]
