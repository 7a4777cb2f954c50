"""From --policy to the schedule that a training replays."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from ddas_gpu.cli.rules import check_rules
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.tasks.facts import FACTS
from ddas_gpu.train import baselines
from ddas_gpu.train.settings import PolicySettings, TrainSettings

NAMES = ("none", "uniform", "randaugment", "trivialaugment", "trivialaugment-wide")
NUMBERED = "uniform-P_TP, randaugment-LEVEL, uniform:POLICY"
UNIFORM = "uniform:"  # the candidates and the p_tp of a policy, all candidates equally likely
RELEASED = "released:"
RELEASED_NAMES = ("cifar10", "cifar100")


def open_policy(chosen: TrainSettings) -> PolicySchedule | None:
    """Return the schedule that --policy and the ablations name; None to augment nothing."""
    policy, size = chosen.policy, chosen.data.image_size
    if policy.policy == "none":
        _refuse_ablations(policy)
        return None
    schedule = _baseline(chosen)
    if schedule is None:
        name = policy.policy.removeprefix(UNIFORM)
        schedule = at_size(_load(name, policy.released_root), size)
        if policy.policy.startswith(UNIFORM):
            schedule = baselines.levelled(schedule)
    return ablated(schedule, policy)


def _baseline(chosen: TrainSettings) -> PolicySchedule | None:
    """Return the schedule of a baseline; None if --policy is not the name of one."""
    policy, size = chosen.policy, chosen.data.image_size
    name, number = numbered(policy.policy)
    space = chosen.spec.space.at(size)
    if name == "uniform":
        return baselines.uniform(space, baselines.START if number is None else number)
    if name == "randaugment":
        level = policy.randaugment_level if number is None else number
        schedule = baselines.randaugment(policy.randaugment_ops, level, space.scale)
    elif name == "trivialaugment":
        schedule = baselines.trivialaugment(space.scale)
    elif name == "trivialaugment-wide":
        schedule = baselines.trivialaugment_wide(size)
    else:
        return None
    has_boxes = FACTS[chosen.spec.task].has_boxes
    return baselines.with_boxes(schedule, space.fill) if has_boxes else schedule


# {baseline with a number: the setting whose rule the number follows}
NUMBERS = {"uniform": "fixed_apply_probability", "randaugment": "randaugment_level"}


def numbered(name: str) -> tuple[str, float | None]:
    """Return a baseline's name and the number behind it, if there is one.

    >>> numbered("randaugment-5"), numbered("trivialaugment-wide")
    (('randaugment', 5.0), ('trivialaugment-wide', None))
    """
    baseline, _, rest = name.partition("-")
    if baseline not in NUMBERS or not rest:
        return name, None
    try:
        number = float(rest)
    except ValueError:
        return name, None
    check_rules({NUMBERS[baseline]: number})
    return baseline, number


def _load(name: str, released_root: Path | None) -> PolicySchedule:
    if name.startswith(RELEASED):
        return PolicySchedule.from_released(
            find_released(name.removeprefix(RELEASED), released_root)
        )
    path = Path(name)
    if not path.exists():
        raise ValueError(
            f"--policy {name} is neither a file nor one of {', '.join(NAMES)}, {NUMBERED}, "
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
