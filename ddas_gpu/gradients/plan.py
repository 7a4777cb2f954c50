"""What is kept of each parameter's gradient, what that costs, and which way is taken.

Two ways beside the reference; G is one gradient of the model:

fast   rows of at most G in all, pairs (a, b) for the other layers: one forward call per layer;
       where the model allows it, several versions pass together as one batch
lean   a copy of θ_t, on which every version runs again for its product, and rows of at most G/8

A row is worth the more the more places of the batch use each of its numbers: it saves their work.
Where the fast way meets a parameter that is neither a row nor a pair, a copy of θ_t takes the place
of the rows, and those parameters run again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from ddas_gpu.gradients.survey import Survey

# The validation pass, the optimizer's step and the allocator's gaps want their part.
_SHARE = 0.6
# Rows of the fast way, in gradients of the model.
ROW_GRADIENTS = 1


@dataclass(frozen=True)
class Plan:
    """The names of the parameters by what is kept of them, and the bytes that takes."""

    method: str
    rows: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    held: int = 0  # bytes, from the constructor to `dot`
    peak: int = 0  # bytes, with the tape of one version
    work: float = 0.0  # of the products, in forward passes of one version
    joined: tuple[str, ...] = ()  # of the pairs: those of all versions are one batch
    folded: int = 1  # versions per pass
    half: torch.dtype | None = None  # what autocast computes in
    others: dict[str, int] = field(default_factory=dict)  # the peaks of the other ways
    because: str = ""  # what the network does, if there is no other way

    def __str__(self) -> str:
        others = ", ".join(f"{method} {size(peak)}" for method, peak in self.others.items())
        half = "" if self.half is None else f", computed in {str(self.half).split('.')[1]},"
        why = f"the only way for a network that {self.because}" if self.because else ""
        return (
            f"{self.method} gradients{half} hold {size(self.held)} until the products and take "
            f"about {size(self.peak)} at their peak ({why or f'other ways: {others}'})"
        )


def size(count: int) -> str:
    """1536 -> "1.5 kB"."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"


def choose(
    survey: Survey,
    kept: int,
    method: str,
    memory: int | None,
    capture: bool = True,
    joining: bool = True,
    folding: int = 1,
) -> Plan:
    """The plan of a method for `kept` versions; of "auto", the fastest that fits in `memory`.

    capture   whether pairs can be had: not from within a compiled graph
    joining   whether pairs of several versions can be one batch
    folding   how many versions may pass together
    """
    if survey.plain:
        return replace(_reference(survey, kept), because=survey.plain)
    plans = {
        "fast": _fast(survey, kept, capture, joining),
        "lean": _lean(survey, kept),
        "reference": _reference(survey, kept),
    }

    def fits(plan: Plan) -> bool:
        return memory is None or plan.peak <= memory

    if method == "auto":
        method = "fast" if fits(plans["fast"]) else "lean"
    together = range(min(folding, kept + 1), 1, -1)
    groups = [_folded(survey, kept, plans["fast"], versions) for versions in together]
    plans["fast"] = next((plan for plan in groups if fits(plan)), plans["fast"])
    others = {way: plan.peak for way, plan in plans.items() if way != method}
    return replace(plans[method], others=others)


def _lean(survey: Survey, kept: int) -> Plan:
    """Rows of the parameters nearest the input save most of their part of the second passes."""
    by_value = sorted(survey.order, key=survey.uses_per_weight, reverse=True)
    rows = _affordable(survey, by_value, survey.gradient // (8 * max(1, kept)))
    return _planned(
        survey,
        kept,
        "lean",
        rows=tuple(name for name in survey.order if name in rows),
        again=tuple(name for name in survey.order if name not in rows),
    )


def _fast(survey: Survey, kept: int, capture: bool, joining: bool) -> Plan:
    covered = survey.covered if capture else set()
    by_value = sorted(survey.order, key=survey.uses_per_weight, reverse=True)
    # One parameter that is neither a row nor a pair costs a whole pass: they come first.
    by_value.sort(key=lambda name: name in covered)
    rows = _affordable(survey, by_value, ROW_GRADIENTS * survey.gradient // max(1, kept))
    if any(name not in rows and name not in covered for name in survey.order):
        rows = set()
    rest = [name for name in survey.order if name not in rows]
    pairs = tuple(name for name in rest if name in covered)
    return _planned(
        survey,
        kept,
        "fast",
        rows=tuple(name for name in survey.order if name in rows),
        pairs=pairs,
        again=tuple(name for name in rest if name not in covered),
        joined=tuple(name for name in pairs if joining and _is_joined(survey, name)),
    )


def _is_joined(survey: Survey, name: str) -> bool:
    """Whether copying a version's pair to one batch is less than adding up its gradient.

    Read and written: the pair once each; the gradient once each, and the sum once more.
    """
    return name in survey.joinable and 2 * survey.pair_bytes([name]) < 3 * survey.sizes[name]


def _planned(
    survey: Survey,
    kept: int,
    method: str,
    rows: tuple[str, ...] = (),
    pairs: tuple[str, ...] = (),
    again: tuple[str, ...] = (),
    joined: tuple[str, ...] = (),
) -> Plan:
    if kept == 0:
        rows, pairs, again, joined = (), (), (), ()
    row_bytes = kept * sum(survey.sizes[name] for name in rows)
    pair_bytes = survey.pair_bytes(pairs)
    theta = survey.gradient if again else 0
    more = survey.pair_bytes(joined)  # of the version whose product follows from the others
    held = survey.gradient + theta + row_bytes + kept * pair_bytes + more
    # The last version's inputs are on its tape anyway.
    passing = survey.tape + survey.gradient + row_bytes + max(0, kept - 1) * pair_bytes
    return Plan(
        method,
        rows,
        pairs,
        again,
        held=held,
        peak=max(held, passing),
        work=_work(survey, pairs, again),
        joined=joined,
    )


def _folded(survey: Survey, kept: int, in_turn: Plan, versions: int) -> Plan:
    """Groups of versions in one pass, with the rows and pairs of the passes in turn."""
    held = in_turn.held + survey.pair_bytes(in_turn.pairs) - survey.pair_bytes(in_turn.joined)
    # The weighted gradient of pairs is computed when it is asked for; the backward pass exchanges
    # what is on the tape for cotangents.
    before = (kept + 1 - versions) * survey.pair_bytes(in_turn.pairs)
    rows = (kept + 1) * sum(survey.sizes[name] for name in in_turn.rows)
    passing = max(survey.tape, survey.pair_bytes(survey.outputs))
    peak = max(held, rows + before + versions * passing)
    return replace(in_turn, held=held, peak=peak, joined=(), folded=versions)


def _affordable(survey: Survey, names: Iterable[str], budget: int) -> set[str]:
    chosen = set()
    for name in names:
        if survey.sizes[name] <= budget:
            budget -= survey.sizes[name]
            chosen.add(name)
    return chosen


def _work(survey: Survey, pairs: tuple[str, ...], again: tuple[str, ...]) -> float:
    """Of one version's product, in forward passes."""
    forward = sum(survey.work.values()) or 1.0
    work = sum(survey.work.get(name, 0.0) for name in pairs)
    if again:
        first = min(survey.order.index(name) for name in again)
        to_inputs = sum(survey.work.get(name, 0.0) for name in survey.order[first + 1 :])
        work += forward + to_inputs + sum(survey.work.get(name, 0.0) for name in again)
    return work / forward


def _reference(survey: Survey, kept: int) -> Plan:
    held = (kept + 2) * survey.gradient
    peak = max(held, survey.tape + kept * survey.gradient)
    return Plan("reference", held=held, peak=peak)


def free_bytes(device: torch.device) -> int | None:
    """What a plan may take on this device, or None where nothing is known of it."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(_SHARE * (free + cached))
    if device.type == "cpu":
        known = [limit for limit in (_available(), _left_in_cgroup()) if limit is not None]
        return int(_SHARE * min(known)) if known else None
    return None


def _available() -> int | None:
    """MemAvailable of Linux: free memory and what the kernel would give back."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _left_in_cgroup() -> int | None:
    """What is left of a container's limit."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = int((folder / "memory.max").read_text())
        return max(0, limit - int((folder / "memory.current").read_text()))
    except (OSError, ValueError):  # no cgroup, or its limit is "max"
        return None
