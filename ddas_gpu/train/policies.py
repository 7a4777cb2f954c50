"""From --policy to the schedule that a training replays."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from ddas_gpu.policy import PolicySchedule
from ddas_gpu.train import baselines
from ddas_gpu.train.settings import PolicySettings, TrainSettings

NAMES = ("none", "uniform", "randaugment", "trivialaugment")
RELEASED = "released:"
RELEASED_NAMES = ("cifar10", "cifar100")


def open_policy(chosen: TrainSettings) -> PolicySchedule | None:
    """Return the schedule that --policy and the ablations name; None to augment nothing."""
    policy, size = chosen.policy, chosen.data.image_size
    if policy.policy == "none":
        _refuse_ablations(policy)
        return None
    if policy.policy in NAMES:
        space = chosen.spec.space.at(size)
        made = {
            "uniform": lambda: baselines.uniform(space),
            "randaugment": lambda: baselines.randaugment(
                policy.randaugment_ops, policy.randaugment_level, space.scale
            ),
            "trivialaugment": lambda: baselines.trivialaugment(space.scale),
        }
        return ablated(made[policy.policy](), policy)
    if policy.policy.startswith(RELEASED):
        name = policy.policy.removeprefix(RELEASED)
        schedule = PolicySchedule.from_released(find_released(name, policy.released_root))
        return ablated(at_size(schedule, size), policy)
    return ablated(at_size(_load(policy.policy), size), policy)


def _load(name: str) -> PolicySchedule:
    path = Path(name)
    if not path.exists():
        raise ValueError(
            f"--policy {name} is neither a file nor one of {', '.join(NAMES)}, "
            f"{', '.join(RELEASED + released for released in RELEASED_NAMES)}"
        )
    return PolicySchedule.load(path)


def find_released(name: str, root: Path | None) -> Path:
    """Return the .npy of a policy that the authors published; the package has no copy."""
    if name not in RELEASED_NAMES:
        known = ", ".join(RELEASED + released for released in RELEASED_NAMES)
        raise ValueError(f"no released policy {name!r}; there are: {known}")
    base = os.environ.get("DDAS_DATA")
    folders = [Path(base) / "released_policies"] if base else []
    folders = [root] if root is not None else [*folders, Path("data/released_policies")]
    for folder in folders:
        found = sorted(folder.glob(f"*_{name}_*.npy")) or sorted(folder.glob(f"{name}.npy"))
        if found:
            return found[0]
    looked = " or ".join(str(folder) for folder in folders)
    raise ValueError(
        f"the released policy of {name} is not in {looked}: download *_{name}_*.npy from the "
        "authors' repository and name its folder with --released-root"
    )


def at_size(schedule: PolicySchedule, size: int) -> PolicySchedule:
    """Scale shifts and holes, which are pixels, to images of another size than in the search."""
    scaled = schedule.scaled(size)
    if scaled is not schedule:
        searched = schedule.settings["image_size"]
        print(
            f"the policy was searched at {searched} pixels: its shifts and holes are scaled to "
            f"{size}",
            file=sys.stderr,
        )
    return scaled


def ablated(schedule: PolicySchedule, policy: PolicySettings) -> PolicySchedule:
    """Hold parts of the schedule fixed: the ablations of the paper's section 5."""
    p_tp, p_o = schedule.p_tp, schedule.p_o
    if policy.static in ("last", "last-apply"):
        p_tp = np.full_like(p_tp, p_tp[-1])
    if policy.static in ("last", "last-ops"):
        p_o = np.tile(p_o[-1], (len(p_o), 1))
    if policy.fixed_apply_probability is not None:
        p_tp = np.full_like(p_tp, policy.fixed_apply_probability)
    return replace(schedule, p_tp=p_tp, p_o=p_o)


def _refuse_ablations(policy: PolicySettings) -> None:
    for flag in ("fixed_apply_probability", "static"):
        if getattr(policy, flag) is not None:
            raise ValueError(f"--{flag.replace('_', '-')} needs a policy, but --policy is none")
