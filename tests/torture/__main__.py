"""`make torture`: attack runs and readers, and write the counts into docs/reliability.md.

PYTHONPATH=tests python -m torture [--seed N] [--runs SHARE] [--inputs SHARE] [--load SHARE]
                                   [--log FILE] [--write FILE]

Attacks are done in parts; those that --log already has are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # children are forked: no threads before that

from commands import Command
from search_commands import search
from torture import load
from torture.disks import Data, Disks, NotAllowed
from torture.fuzzing import fuzz
from torture.starts import signalled
from train_commands import train

from ddas_gpu.ops import backends

MARK = "<!-- figures: written by `make torture` -->\n"
SAME = "all end with the bytes of an undisturbed run"
PART = 10  # attacks that are counted together

# {method of Disks: (attacks on a search, on a training, what they are, outcome)}
FAULTS = {
    "killed": (
        100,
        50,
        "kill -9",
        "{runs} runs; {at a moment} at random moments, {in a write} inside a write, of both "
        "{in the report} before the report was there and {before the run existed} before the run "
        f"existed; {SAME}",
    ),
    "stopped": (
        20,
        20,
        "SIGTERM or SIGINT, once or twice",
        f"{{with a run to resume}} name the command that goes on; {SAME}",
    ),
    "rivals": (
        10,
        10,
        "four processes start on one folder",
        f"one runs, three are refused; {SAME}",
    ),
    "checkpoints": (
        20,
        20,
        "wrong checkpoint",
        "{truncated} truncated, {of torch} of other content, {of other weights} of another "
        f"network, {{of another file}} another file; refused, nothing is touched; {SAME}",
    ),
    "limited_files": (
        20,
        20,
        "no space in a file (RLIMIT_FSIZE)",
        f"one sentence; {{left nothing}} left no folder; {SAME}",
    ),
    "full_disk": (
        20,
        20,
        "full disk (tmpfs)",
        f"one sentence; {{left nothing}} left nothing; {SAME} once there is space",
    ),
    "read_only": (
        10,
        10,
        "read-only folder, from the start or in mid-run",
        f"one sentence; {SAME} once it can be written",
    ),
    "deleted": (10, 10, "run folder deleted in mid-run", f"one sentence; begun anew, {SAME}"),
}


@dataclass
class Campaign:
    """Runs attacks and remembers their counts."""

    folder: Path
    seed: int
    log: Path | None

    def __post_init__(self) -> None:
        lines = self.log.read_text().splitlines() if self.log and self.log.exists() else []
        self.done: dict[str, Any] = dict(map(json.loads, lines))
        self.lines = ["| attack | count | outcome |", "| --- | ---: | --- |"]

    def once(self, name: str, work: Callable[[], Any]) -> Any:
        """Return what `work` returns, or has returned in an earlier campaign."""
        key = f"{name}, seed {self.seed}"
        if key not in self.done:
            self.done[key] = work()
            if self.log is not None:
                with self.log.open("a") as file:
                    print(json.dumps([key, self.done[key]]), file=file)
        return self.done[key]

    def in_parts(
        self, name: str, count: int, attack: Callable[[random.Random, int], Counter[str]]
    ) -> Counter[str] | str:
        """Return the sum of the counts; or why the attack is not possible here."""
        total: Counter[str] = Counter()
        for start in range(0, count, PART):
            part = f"{name} from {start}"
            generator = random.Random(f"{self.seed} {part}")
            amount = min(PART, count - start)

            def work(generator=generator, amount=amount) -> dict[str, int] | str:
                try:
                    return dict(attack(generator, amount))
                except NotAllowed as reason:
                    return str(reason)

            found = self.once(f"{part} to {start + amount}", work)
            if isinstance(found, str):
                return found
            total.update(found)
        return total

    def add(self, name: str, counts: Counter[str] | str, outcome: str) -> None:
        """Add a line to the table."""
        if isinstance(counts, str):
            self.lines.append(f"| {name} | 0 | skipped: {counts} |")
        else:
            outcome = outcome.format_map(Zeros(counts))
            self.lines.append(f"| {name} | {counts['count']:,} | {outcome} |")
        print(self.lines[-1], flush=True)


class Zeros(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return 0


def attack_runs(campaign: Campaign, command: Command, column: int, share: float) -> None:
    folder = campaign.folder

    @cache
    def disks() -> Disks:
        backends.library()  # a child without rights could not read it
        return Disks(command, folder / command.name)

    @cache
    def data() -> Data:
        return Data(command, folder / f"{command.name}-data")

    for method, settings in FAULTS.items():
        count, words, outcome = settings[column], *settings[2:]

        def attack(generator, amount, method=method) -> Counter[str]:
            return getattr(disks(), method)(generator, amount)

        name = f"{command.name}: {words}"
        campaign.add(name, campaign.in_parts(name, amount_of(share, count), attack), outcome)
    name = f"{command.name}: signals from the first import on"
    starts = iter(range(10**6))
    counts = campaign.in_parts(
        name,
        amount_of(share, 10),
        lambda generator, amount: signalled(
            command, folder / f"{command.name}-starts-{next(starts)}", generator, amount
        ),
    )
    campaign.add(name, counts, "no traceback; {with a run to resume} name the command that goes on")
    name = f"{command.name}: images deleted, truncated or replaced in mid-run"
    counts = campaign.in_parts(name, amount_of(share, 12), lambda *given: data().changed(*given))
    campaign.add(name, counts, described(counts))


def described(counts: Counter[str] | str) -> str:
    if isinstance(counts, str):
        return counts
    found = [f"{number} {way}" for way, number in sorted(counts.items()) if way != "count"]
    again = "; those noticed go on to the same bytes once the files are back"
    return "; ".join(found) + again * any("noticed" in way for way in counts)


def amount_of(share: float, count: int) -> int:
    return max(1, round(share * count))


def attack_readers(campaign: Campaign, share: float) -> None:
    def work() -> dict[str, dict[str, int]]:
        found = fuzz(campaign.folder / "fuzz", campaign.seed, share)
        return {name: dict(counts) for name, counts in found.items()}

    total: Counter[str] = Counter()
    for name, found in campaign.once(f"damaged inputs, share {share}", work).items():
        counts = Counter(found)
        counts["count"] = counts.total()
        campaign.add(f"damaged: {name}", counts, "{read:,} read, {refused:,} refused")
        total += counts
    campaign.add("damaged inputs in all", total, "no crash, no hang, no other exception")


def put_under_load(campaign: Campaign, share: float) -> Iterator[str]:
    """Yield the lines of the table of slopes."""
    yield "| load | count | memory, per 1,000 | open files | threads |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name, work, rounds in (
        ("steps of a search", load.search_steps, 10_000),
        ("batches through the policy node in DALI", load.policy_batches, 100_000),
    ):
        count = amount_of(share, rounds)

        def measure(work=work, count=count) -> dict[str, Any]:
            return asdict(work(campaign.folder, count))

        found = campaign.once(f"{count} {name}", measure)
        (_, files, threads), (kib, last_files, last_threads) = found["first"], found["last"]
        yield (
            f"| {name} | {found['rounds']:,} | {found['kib']:+.0f} KiB of {kib >> 10} MiB "
            f"| {files} → {last_files} | {threads} → {last_threads} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=float, default=1.0, help="share of the disturbed runs")
    parser.add_argument("--inputs", type=float, default=1.0, help="share of the damaged inputs")
    parser.add_argument("--load", type=float, default=1.0, help="share of the long runs")
    parser.add_argument("--log", type=Path, help="keep the counts here, and go on from them")
    parser.add_argument("--write", type=Path, help="replace the figures in this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        campaign = Campaign(Path(folder), options.seed, options.log)
        attack_runs(campaign, search, 0, options.runs)
        attack_runs(campaign, train, 1, options.runs)
        slopes = list(put_under_load(campaign, options.load))
        print(*slopes, sep="\n", flush=True)
        attack_readers(campaign, options.inputs)
    if options.write is not None:
        head, mark, _ = options.write.read_text("utf-8").partition(MARK)
        text = "\n".join([f"Seed {options.seed}.", "", *campaign.lines, "", *slopes])
        options.write.write_text(f"{head}{mark}\n{text}\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
