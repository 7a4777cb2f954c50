"""The policies of a comparison, and the names of their folders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddas_gpu.train.policies import NAMES, numbered

SEARCHED = "searched"
UNIFORM = "uniform"
FREE = "free"  # stands for these, which need no search
WITHOUT_SEARCH = (
    *("none", "uniform-0.35", "randaugment-5", "randaugment-9", "randaugment-14"),
    *("trivialaugment", "trivialaugment-wide"),
)


@dataclass(frozen=True)
class Contender:
    """One policy of a comparison."""

    name: str  # of its folder, and on the page
    policy: str  # what --policy of train takes
    is_subject: bool = False  # the policy in question
    ablated: bool = False  # whether --static and --fixed-apply-probability change it


def contenders(subject: str, peers: Sequence[str]) -> list[Contender]:
    """Return the policies in the order given, the one in question last.

    subject: --policy; "none" for none, and then the only file among the peers is it.
    """
    parts = [part for peer in peers for part in peer.split(",") if part]
    entries = [one for part in parts for one in (WITHOUT_SEARCH if part == FREE else (part,))]
    if subject != "none":
        entries = [entry for entry in entries if entry != subject]
        given = [*map(_named, entries), _named(subject)]
        question = len(given) - 1
    else:
        given = [_named(entry) for entry in entries]
        files = [n for n, (_, policy) in enumerate(given) if _is_file(policy)]
        question = files[0] if len(files) == 1 else -1
    names = _names(given, question)
    found = []
    for number, (name, (_, policy)) in enumerate(zip(names, given, strict=True)):
        is_subject = number == question
        ablated = is_subject
        if policy == UNIFORM and question >= 0 and _is_file(given[question][1]):
            policy, ablated = f"{UNIFORM}:{given[question][1]}", True
        found.append(Contender(name, policy, is_subject, ablated))
    _require_different(found)
    return found


def _named(entry: str) -> tuple[str | None, str]:
    """Return the name that NAME=POLICY gives, or None, and the policy."""
    name, sign, policy = entry.partition("=")
    if not sign or Path(entry).exists():
        return None, entry
    if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
        raise ValueError(f"--policies {entry}: a name has letters, digits, '-', '_' and '.'")
    return name, policy


def _is_file(policy: str) -> bool:
    """Return whether a policy is one that was searched: a file, a folder, a released one."""
    return numbered(policy)[0] not in NAMES and not policy.startswith(f"{UNIFORM}:")


def _names(given: Sequence[tuple[str | None, str]], question: int) -> list[str]:
    names = []
    for number, (name, policy) in enumerate(given):
        if name is not None:
            names.append(name)
        elif _is_file(policy):
            names.append(SEARCHED if number == question else _name_of_file(policy))
        else:
            names.append(re.sub(r"[^\w.-]+", "-", policy))
    return names


def _name_of_file(policy: str) -> str:
    """Return the name of a run's folder, or of a file that is not called policy.json."""
    path = Path(policy).resolve()
    name = path.parent.name if path.name == "policy.json" else path.stem
    return re.sub(r"[^\w.-]+", "-", policy if ":" in policy else name)


def _require_different(found: Sequence[Contender]) -> None:
    if len(found) < 2:
        raise ValueError("a comparison needs two policies or more: name them with --policies")
    twice = [name for name, count in Counter(one.name for one in found).items() if count > 1]
    if twice:
        raise ValueError(
            f"--policies has {twice[0]!r} twice: name different policies NAME=POLICY, such as "
            f"{twice[0]}-2=POLICY"
        )
