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

from ddas_gpu import ops
from ddas_gpu.cli.running import StoppedAtOnce, carry_out, stopped
from ddas_gpu.cli.shell import exit_code, prepare
from ddas_gpu.distributed import torchrun
from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.errors import stoppable
from ddas_gpu.ops.backends import cores
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.report.writing import write_report
from ddas_gpu.runs.run_folder import CONFIG, POLICY, SAMPLES, RunFolder
from ddas_gpu.search.algorithm import open_search
from ddas_gpu.search.job import SearchJob, advice, apply_of, top_candidates, trials_of
from ddas_gpu.search.processes import run_side_by_side
from ddas_gpu.search.settings import SearchSettings
from ddas_gpu.search.verdict import Apply, Trials, judge
from ddas_gpu.space import SearchSpace
from ddas_gpu.tasks.facts import FACTS

Found = tuple[PolicySchedule, Trials, Apply]  # by one seed


def run_repeats(program: str, settings: SearchSettings) -> int:
    """Search with every seed that is not finished, then join them; return the exit code.

    A seed is a run of its own, in the folder seed-NUMBER of --out. On a CPU seeds run side by side,
    as many as there are cores for; without --threads with one thread each, so that the number of
    cores does not change the result.
    """
    if torchrun.launched():
        raise ValueError(
            "--repeats runs in one process: under torchrun, search once for each --seed"
        )
    space = settings.search_space()
    device = prepare(settings.run, FACTS[settings.spec.task].fixed_shapes)
    if device.type == "cpu" and settings.run.threads is None:
        settings = settings.replace(threads=1)
        torch.set_num_threads(1)
        ops.set_num_threads(1)
    out = settings.run.out
    new = [] if out is None else [parent for parent in out.parents if not parent.exists()]
    with _open(settings) as folder:
        found: list[Found] = []
        try:
            with stoppable():
                code = _side_by_side(program, settings, folder.path, space, device)
        except BaseException:
            _leave_nothing(folder, new)
            raise
        if code > 128:
            return stopped(program, settings, code - 128, folder.path, "all seeds")
        if code:
            return code
        for seed in seeds_of(settings):
            try:
                with stoppable():
                    job, received = _search(of_seed(settings, folder.path, seed), space, device)
            except StoppedAtOnce as stop:
                return stopped(program, settings, stop.number, folder.path, "at once")
            except BaseException:
                _leave_nothing(folder, new)
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


def _leave_nothing(folder: RunFolder, new: Sequence[Path]) -> None:
    """Remove the folder of a run that was refused before anything was searched."""
    if not any(folder.path.glob("seed-*")):
        folder.discard()
        for parent in new:
            parent.rmdir()


def _side_by_side(
    program: str, settings: SearchSettings, folder: Path, space: SearchSpace, device: torch.device
) -> int:
    """Search with the unfinished seeds, where several fit on the cores; return the exit code.

    Each computes what it would compute alone.
    """
    todo = [seed for seed in seeds_of(settings) if not (folder / f"seed-{seed}" / POLICY).exists()]
    at_once = min(len(todo), cores() // (settings.run.threads or 1))
    if device.type != "cpu" or at_once < 2:
        return 0
    runs = [of_seed(settings, folder, seed) for seed in todo]
    open_search(runs[0], space, device)  # refuse here, once, what no seed can search
    print(f"searching with {len(todo)} seeds, {at_once} side by side: {folder}", file=sys.stderr)
    return run_side_by_side(search_alone, [(program, run, space) for run in runs], at_once)


def search_alone(program: str, settings: SearchSettings, space: SearchSpace) -> int:
    """Search with one seed in a process of its own; return the exit code."""

    def work() -> int:
        device = prepare(settings.run, FACTS[settings.spec.task].fixed_shapes)
        with stoppable():
            _, received = _search(settings, space, device, quiet=True)
        if received is not None:
            return 128 + received
        print(f"seed {settings.run.seed} is done: {settings.run.out}", file=sys.stderr)
        return 0

    return exit_code(program, work)


def seeds_of(settings: SearchSettings) -> range:
    return range(settings.run.seed, settings.run.seed + settings.run.repeats)


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
    settings: SearchSettings, space: SearchSpace, device: torch.device, quiet: bool = False
) -> tuple[SearchJob, signal.Signals | None]:
    """Run one seed to its end; a finished one only loads its last checkpoint."""

    def build(device: torch.device, ranks: Ranks) -> SearchJob:
        job = SearchJob(open_search(settings, space, device, ranks))
        if not quiet:
            print(f"seed {settings.run.seed}", file=sys.stderr)
        return job

    ended = carry_out(settings, build, device, quiet=quiet)
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
