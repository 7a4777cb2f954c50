"""The order of the runs: seed by seed, so that a stopped benchmark leaves balanced tables."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ddas_gpu import PolicySchedule
from ddas_gpu.train.policies import RELEASED_NAMES, find_released

from .cells import Bench, any_search, search, shared_transform, train, uniform_like
from .images import Missing, parts
from .numbers import compared_name
from .protocol import (
    BEFORE,
    COMPARED,
    COMPARED_SEEDS,
    DATA,
    FINDING_CELLS,
    FINDING_SEEDS,
    FIXED,
    LONGER,
    LONGER_CELLS,
    PAPER,
    PAPER_OPS,
    PAPER_SEEDS,
    POLICIES,
    POLICY_CELL,
    ROTATE90,
    SAME,
    SHARED,
    STAGES,
    STATIC_CELLS,
    STATIC_SEEDS,
    Data,
)


@dataclass(frozen=True)
class Job:
    """Some runs that belong together."""

    name: str
    stage: str
    run: Callable[[Bench], None]


def jobs() -> Iterator[Job]:
    """Yield all jobs in their order."""
    for seed in sorted({seed for data in DATA.values() for seed in data.table_seeds}):
        for data in DATA.values():
            if seed in data.table_seeds:
                yield from data_jobs(data, seed)
    for seed in range(PAPER_SEEDS):
        yield from paper_jobs(seed)
    for seed in FINDING_SEEDS:
        yield from finding_jobs(seed)
    for seed in range(STATIC_SEEDS):
        for name, domain in STATIC_CELLS:
            run = static_run(DATA[name], seed, domain)
            yield Job(f"static/{name}/{seed}/{domain}", "findings", run)


def data_jobs(data: Data, seed: int) -> Iterator[Job]:
    for peer in SHARED:
        yield Job(f"{data.name}/{seed}/{peer}", "peers", peer_run(data, seed, peer))
    for domain in data.domains:
        yield Job(f"{data.name}/{seed}/{domain}", "searched", searched_run(data, seed, domain))
    for peer in (data.unaugmented, *COMPARED):
        run = compared_run(data, seed, peer)
        yield Job(f"{data.name}/{seed}/{peer}/compared", "compared", run)
    for domain in data.domains:
        run = compared_search_run(data, seed, domain)
        yield Job(f"{data.name}/{seed}/{domain}/compared", "compared", run)
    for domain in data.domains:
        run = levelled_run(data, seed, domain)
        yield Job(f"{data.name}/{seed}/{domain}/uniform", "levelled", run)


def peer_run(data: Data, seed: int, peer: str) -> Callable[[Bench], None]:
    def run(bench: Bench) -> None:
        if peer == "released":
            released("cifar10")
        transform = shared_transform(data, peer)
        train(bench, data, seed, peer, SHARED[peer], data.domains, transform)

    return run


def searched_run(data: Data, seed: int, domain: str) -> Callable[[Bench], None]:
    def run(bench: Bench) -> None:
        policy = found(bench, data, seed, domain, "searched")
        train(bench, data, seed, "searched", policy, [domain], data.base)

    return run


def found(
    bench: Bench,
    data: Data,
    seed: int,
    domain: str,
    name: str,
    search_flags: tuple[str, ...] = (),
    train_flags: tuple[str, ...] = (),
) -> Callable[[], tuple[str, ...]]:
    """Return a function that searches, unless that is done, and returns flags for a training."""

    def flags() -> tuple[str, ...]:
        policy = search(bench, data, seed, domain, name, search_flags)
        return ("--policy", str(policy), *train_flags)

    return flags


def compared_run(data: Data, seed: int, peer: str) -> Callable[[Bench], None]:
    """Train with the seeds of the comparison under a policy that needs no search."""

    def run(bench: Bench) -> None:
        for name, seeded in seeds_compared(bench, seed, peer):
            train(seeded, data, seed, name, SHARED[peer], data.domains, data.base)

    return run


def compared_search_run(data: Data, seed: int, domain: str) -> Callable[[Bench], None]:
    """Train with the seeds of the comparison under the searched policy."""

    def run(bench: Bench) -> None:
        policy = found(bench, data, seed, domain, "searched")
        for name, seeded in seeds_compared(bench, seed, "searched"):
            train(seeded, data, seed, name, policy, [domain], data.base)

    return run


def seeds_compared(bench: Bench, seed: int, policy: str) -> Iterator[tuple[str, Bench]]:
    for number, other in enumerate(COMPARED_SEEDS):
        flags = (*bench.training, "--seed", str(seed + other))
        yield compared_name(policy, number), replace(bench, training=flags)


def levelled_run(data: Data, seed: int, domain: str) -> Callable[[Bench], None]:
    """Train with the p_tp of the search and uniform ops."""

    def run(bench: Bench) -> None:
        def policy() -> tuple[str, ...]:
            return "--policy", str(uniform_like(search(bench, data, seed, domain, "searched")))

        train(bench, data, seed, "uniform-searched", policy, [domain], data.base)

    return run


def paper_jobs(seed: int) -> Iterator[Job]:
    yield Job(f"paper/{seed}", "findings", lambda bench: paper_search(bench, seed))
    if seed == 0:
        yield Job("released", "findings", released_curves)


def finding_jobs(seed: int) -> Iterator[Job]:
    yield Job(f"rotate90/{seed}", "findings", lambda bench: rotate90(bench, seed))
    for name, domain in FINDING_CELLS:
        run = ablation_run(DATA[name], seed, domain)
        yield Job(f"{name}/{seed}/{domain}/fixed", "findings", run)
    name, domain = POLICY_CELL
    for count in POLICIES:
        run = policies_run(DATA[name], seed, domain, count)
        yield Job(f"{name}/{seed}/{domain}/L{count}", "findings", run)
    for name, domain in LONGER_CELLS:
        run = longer_run(DATA[name], seed, domain)
        yield Job(f"{name}/{seed}/{domain}/longer", "findings", run)


def rotate90(bench: Bench, seed: int) -> None:
    """Search with the validation images rotated by 90°, and with the same space as they are."""
    arguments = [*ROTATE90, "--sanity-check", "rotate90"]
    policy = any_search(bench, "digits", seed, "rotate90", "check", arguments)
    space = bench.work / "sanity.json"
    space.write_text(json.dumps(PolicySchedule.load(policy).space.to_json()))
    control = ["--space", str(space), "--apply-probability", "0.75"]
    any_search(bench, "digits", seed, "rotate90", "control", [*ROTATE90, *control])


def ablation_run(data: Data, seed: int, domain: str) -> Callable[[Bench], None]:
    """Train with p_tp fixed."""

    def run(bench: Bench) -> None:
        for value in FIXED:
            fixed = ("--fixed-apply-probability", str(value))
            policy = found(bench, data, seed, domain, "searched", PAPER_OPS, fixed)
            train(bench, data, seed, f"fixed-{value}", policy, [domain], data.base)

    return run


def static_run(data: Data, seed: int, domain: str) -> Callable[[Bench], None]:
    """Train with the policy of the last epoch from the first on."""

    def run(bench: Bench) -> None:
        policy = found(bench, data, seed, domain, "before", BEFORE, ("--static", "last"))
        train(bench, data, seed, "static", policy, [domain], data.base)

    return run


def policies_run(data: Data, seed: int, domain: str, count: int) -> Callable[[Bench], None]:
    return variant_run(data, seed, domain, f"policies-{count}", ("--policies", str(count)))


def longer_run(data: Data, seed: int, domain: str) -> Callable[[Bench], None]:
    epochs = LONGER * data.search_epochs
    return variant_run(data, seed, domain, "longer", ("--epochs", str(epochs)))


def variant_run(
    data: Data, seed: int, domain: str, name: str, flags: tuple[str, ...]
) -> Callable[[Bench], None]:
    """Search with other settings, and train under what is found."""

    def run(bench: Bench) -> None:
        policy = found(bench, data, seed, domain, name, (*PAPER_OPS, *flags))
        train(bench, data, seed, name, policy, [domain], data.base)

    return run


def paper_search(bench: Bench, seed: int) -> None:
    """Search on CIFAR-10 with the paper's settings, on a small network and fewer images."""
    parts(DATA["cifar10"], seed)  # raises `Missing`
    any_search(bench, "cifar10", seed, SAME, "paper", PAPER)


def released(name: str) -> PolicySchedule:
    """Return a policy that the authors published, where it is at hand."""
    try:
        return PolicySchedule.from_released(find_released(name, None))
    except ValueError as reason:
        raise Missing(str(reason)) from None


def released_curves(bench: Bench) -> None:
    """Record p_tp of the policies that the authors published, where they are at hand."""
    for name in RELEASED_NAMES:
        if bench.has("search", name, SAME, "released", 0):
            continue
        p_tp = [round(float(value), 4) for value in released(name).p_tp]
        line = {"kind": "search", "data": name, "domain": SAME, "name": "released", "seed": 0}
        bench.record({**line, "p_tp": p_tp})


def run_all(
    bench: Bench, stages: tuple[str, ...] = STAGES, only: str = "", seconds: float = float("inf")
) -> None:
    """Run what is not recorded yet; begin nothing new after `seconds`."""
    end = time.monotonic() + seconds
    missing = set()
    for job in jobs():
        if job.stage not in stages or not job.name.startswith(only):
            continue
        if time.monotonic() > end:
            print(f"time is over before {job.name}", file=sys.stderr)
            return
        with bench.claimed(job.name) as mine:
            if mine:
                try:
                    job.run(bench)
                except Missing as reason:
                    missing.add(str(reason))
    for reason in sorted(missing):
        print(f"skipped: {reason}", file=sys.stderr)


def fresh_bench(work: Path, results: Path) -> Bench:
    work.mkdir(parents=True, exist_ok=True)
    return Bench(work.resolve(), results)
