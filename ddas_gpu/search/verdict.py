"""How sure a search is: an interval for each candidate and for p_tp, and a verdict per op.

The rewards of the steps are fitted by the effects of the candidates; the intervals come from
leaving out blocks of steps. Nothing here changes what the search does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from ddas_gpu.space import SearchSpace

BLOCKS = 20  # of consecutive steps: neighbours are not independent, blocks nearly are
RESAMPLES = 400
ERROR = 0.05  # the share of searches in which chance alone singles out some candidate
MOST_STEPS = 100  # times the steps of the run: more is "not in reach"
NAMED = 4

HELPS, HURTS = "helps", "hurts"
MIXED = "depends on its level"
UNKNOWN = "cannot be told from uniform"
PLURALS = {HELPS: "help", HURTS: "hurt", MIXED: "depend on their levels"}
AS_UNIFORM = "no policy is told apart from uniform here"


@dataclass(frozen=True)
class Trials:
    """What the steps of one search have tried.

    policies: (S, L̂, N_o) candidates; rewards: (S, L̂), r of the paper, negative where a policy has
    helped; pulls: (S,), Σ_l P(φ_l)/Z · r_l / Z_g, which moves α_tp, negative where it rises.
    """

    policies: np.ndarray
    rewards: np.ndarray
    pulls: np.ndarray

    @property
    def steps(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Apply:
    """How α_tp learns: its start, its Adam, and the p_tp that it ended with."""

    start: float
    lr: float
    betas: tuple[float, float]
    end: float


def judge(space: SearchSpace, trials: Sequence[Trials], apply: Sequence[Apply]) -> dict[str, Any]:
    """Return what policy.json says of the candidates, from one search or from several seeds.

    An effect is how much more than the average candidate one has lowered the validation loss, in
    mean sizes of a policy's reward.
    """
    steps = sum(part.steps for part in trials)
    if min(part.steps for part in trials) < 2 * BLOCKS:
        done = "1 step is" if steps == 1 else f"{steps} steps are"
        few = f"{done} too few to tell the {len(space)} candidates apart."
        return {"sentence": few, "steps": steps, "told": False}
    levels = levels_of(space)
    means = op_means(len(space), levels)
    effect, deviation = effects(len(space), means, trials)
    tests = len(space) + sum(len(members) > 1 for members in levels.values())
    bound = quantile(1 - ERROR / 2 / tests, BLOCKS * len(trials) - 1) * deviation
    rows, op_rows = np.split(_intervals(effect, bound), [len(space)])
    ops = {}
    for (op, members), row in zip(levels.items(), op_rows, strict=True):
        ops[op] = {
            "verdict": _word([rows[index] for index in members] + [row]),
            "interval": row.tolist(),
            "steps_needed": _steps_needed([rows[index] for index in members] + [row], steps),
        }
    content = {
        "steps": steps,
        "told": any(entry["verdict"] != UNKNOWN for entry in ops.values()),
        "apply_probability": apply_interval(trials, apply),
        "candidates": rows.tolist(),
        "ops": ops,
    }
    return {"sentence": sentence(space, content, len(trials)), **content}


def levels_of(space: SearchSpace) -> dict[str, list[int]]:
    """Return {op: its candidates}."""
    found: dict[str, list[int]] = {}
    for index, candidate in enumerate(space):
        found.setdefault(candidate.op, []).append(index)
    return found


def op_means(count: int, levels: dict[str, list[int]]) -> np.ndarray:
    """Return (ops, K): row o takes the mean over the candidates of op o."""
    means = np.zeros((len(levels), count))
    for row, members in zip(means, levels.values(), strict=True):
        row[members] = 1 / len(members)
    return means


def effects(
    count: int, means: np.ndarray, trials: Sequence[Trials]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the effects of the candidates and of the ops, and their deviations, (K + ops,).

    Least squares: a policy's gain, -r / Z_g, is the sum of its candidates' effects and of what all
    policies of the step have in common. The deviation is the jackknife's over blocks of steps; of
    several seeds, the deviation between the seeds where that is larger.
    """
    blocks = [_normal_equations(count, part) for part in trials]

    def solve(squares: np.ndarray, products: np.ndarray) -> np.ndarray:
        # The ridge of one trial keeps candidates that were hardly tried near 0.
        ridge = squares + np.eye(count)
        found = np.linalg.solve(ridge, products[..., None])[..., 0]
        found -= found.mean(-1, keepdims=True)
        return np.concatenate([found, found @ means.T], -1)

    squares, products = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    whole = solve(squares.sum(0), products.sum(0))
    left_out = solve(squares.sum(0) - squares, products.sum(0) - products)
    number = len(left_out)
    deviation = (number - 1) ** 0.5 * left_out.std(0)
    if len(trials) > 1:
        seeds = np.stack([solve(own.sum(0), right.sum(0)) for own, right in blocks])
        deviation = np.maximum(deviation, seeds.std(0, ddof=1) / len(seeds) ** 0.5)
    return whole, deviation


def _normal_equations(count: int, trials: Trials) -> tuple[np.ndarray, np.ndarray]:
    """Return XᵀX (BLOCKS, K, K) and Xᵀy (BLOCKS, K) of each block of steps."""
    policies, rewards = trials.policies, trials.rewards
    size = np.abs(rewards).mean(1, keepdims=True)
    gains = np.divide(-rewards, size, out=np.zeros_like(rewards), where=size > 0)
    tried = np.zeros((*rewards.shape, count))
    for place in range(policies.shape[2]):
        np.put_along_axis(
            tried,
            policies[..., place, None],
            np.take_along_axis(tried, policies[..., place, None], 2) + 1,
            2,
        )
    # A single policy per step has no others to be compared with.
    axis = 1 if rewards.shape[1] > 1 else (0, 1)
    tried -= tried.mean(axis, keepdims=True)
    gains = gains - gains.mean(axis, keepdims=True)
    squares, products = np.zeros((BLOCKS, count, count)), np.zeros((BLOCKS, count))
    for block, steps in enumerate(np.array_split(np.arange(trials.steps), BLOCKS)):
        rows = tried[steps].reshape(-1, count)
        squares[block], products[block] = rows.T @ rows, rows.T @ gains[steps].ravel()
    return squares, products


def quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's t, to the second order in 1 / freedom.

    >>> round(quantile(0.975, 19), 2), round(quantile(0.999, 19), 2)
    (2.09, 3.57)
    """
    z = NormalDist().inv_cdf(share)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def apply_interval(trials: Sequence[Trials], apply: Sequence[Apply]) -> list[float]:
    """Return a 95 % interval for p_tp; of several seeds, one that holds the p_tp of each."""
    ends = [
        np.quantile(_replayed(part.pulls, own), (ERROR / 2, 1 - ERROR / 2))
        for part, own in zip(trials, apply, strict=True)
    ]
    low, high = np.mean(ends, 0)
    found = [own.end for own in apply]
    return [round(float(min(low, *found)), 6), round(float(max(high, *found)), 6)]


def _replayed(pulls: np.ndarray, apply: Apply) -> np.ndarray:
    """Return p_tp after each of `RESAMPLES` replays of α_tp's Adam on blocks of steps, in order."""
    steps, generator = len(pulls), np.random.default_rng(0)
    length = max(1, steps // BLOCKS)
    starts = np.sort(generator.integers(0, steps - length + 1, (RESAMPLES, -(-steps // length))))
    drawn = (starts[..., None] + np.arange(length)).reshape(RESAMPLES, -1)[:, :steps]
    alpha = np.full(RESAMPLES, np.log(apply.start / (1 - apply.start)))
    mean, square = np.zeros((2, RESAMPLES))
    (beta1, beta2), done = apply.betas, np.zeros(RESAMPLES)
    for pull in pulls[drawn].T:
        p_tp = 1 / (1 + np.exp(-alpha))
        gradient, moved = pull * p_tp * (1 - p_tp), pull != 0  # 0: a step without a signal
        done += moved
        mean = np.where(moved, beta1 * mean + (1 - beta1) * gradient, mean)
        square = np.where(moved, beta2 * square + (1 - beta2) * gradient**2, square)
        count = np.maximum(done, 1)
        root = np.sqrt(square / (1 - beta2**count)) + 1e-8
        alpha -= np.where(moved, apply.lr * mean / (1 - beta1**count) / root, 0)
    return 1 / (1 + np.exp(-alpha))


def _intervals(effect: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """(n,) → (n, 3): the effect, its lower and its upper bound."""
    return np.round(np.stack([effect, effect - bound, effect + bound], 1), 6)


def _word(rows: list[np.ndarray]) -> str:
    """Return the verdict on an op from the intervals of its levels and of their mean."""
    helps, hurts = any(low > 0 for _, low, _ in rows), any(high < 0 for _, _, high in rows)
    return {(True, False): HELPS, (False, True): HURTS, (True, True): MIXED}.get(
        (helps, hurts), UNKNOWN
    )


def _steps_needed(rows: list[np.ndarray], steps: int) -> int | None:
    """Return the steps after which an effect of this size would be told from 0.

    The width of an interval falls with the root of the steps. None: not in reach.
    """
    widths = [(high - low) / 2 / abs(effect) for effect, low, high in rows if effect]
    needed = min(widths, default=np.inf) ** 2
    return max(1, round(steps * needed)) if needed <= MOST_STEPS else None


def sentence(space: SearchSpace, content: dict[str, Any], seeds: int = 1) -> str:
    """Say which ops help and which hurt."""
    over = f"the steps of {seeds} seeds" if seeds > 1 else "this run's steps, not over seeds"
    if not content["told"]:
        steps = content["steps"]
        return f"{AS_UNIFORM[0].upper()}{AS_UNIFORM[1:]} in {steps} steps{_nearest(content)}."
    parts, rest = [], 0
    levels = levels_of(space)
    for word, plural in PLURALS.items():
        found = [op for op, entry in content["ops"].items() if entry["verdict"] == word]
        found.sort(key=lambda op: -_strength(content, levels[op], op))
        if found:
            named = [*found[:NAMED], "others"] if len(found) > NAMED else found
            joined = " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
            parts.append(f"{joined} {word if len(found) == 1 else plural}")
        rest += len(found)
    others = len(content["ops"]) - rest
    tail = f"; the other {others} ops cannot be told from uniform" if others else ""
    return f"{'; '.join(parts)}{tail} (95 % intervals over {over})."


def _strength(content: dict[str, Any], members: list[int], op: str) -> float:
    rows = [content["candidates"][index] for index in members] + [content["ops"][op]["interval"]]
    return max(abs(effect) for effect, low, high in rows if low > 0 or high < 0)


def _nearest(content: dict[str, Any]) -> str:
    needed = {op: entry["steps_needed"] for op, entry in content["ops"].items()}
    known = {op: steps for op, steps in needed.items() if steps is not None}
    if not known:
        return ""
    op = min(known, key=known.__getitem__)
    return f"; {op}, the nearest to it, would take about {known[op]:,}"
