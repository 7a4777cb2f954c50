"""docs/evidence.md, its pictures and the table of the README, from the recorded lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .images import DOMAINS
from .numbers import BEFORE, KEPT, PEERS, SEARCHED, Line, read_lines, standing, with_kept
from .pictures import COLOURS, Curve, accuracies, curves
from .protocol import (
    DATA,
    FINDING_CELLS,
    FIXED,
    LONGER,
    LONGER_CELLS,
    POLICIES,
    POLICY_CELL,
    SAME,
    STATIC_CELLS,
)
from .tables import (
    TITLES,
    Row,
    accuracy_table,
    cost_table,
    count_of,
    found_table,
    goals,
    level_table,
    protocol,
    ptp_sentence,
    rotate90_table,
    rounds_table,
    searches,
    standing_table,
    table,
    variants_table,
)

README_ROWS = ("rotated", "shifted", "dark", "blurred", "inverted", "smaller", "bright")
README_PEERS = ("none", "uniform", "randaugment", "trivialaugment", "trivialaugment-wide")
HERE = Path(__file__).resolve().parent
INTRODUCTION = (HERE / "introduction.md").read_text("utf-8").strip()
SAME_TEXT = (
    "Validation and test images are like the training images: the paper's own setting. Test "
    "accuracy in %, mean ± standard error over the seeds:"
)
COST_TEXT = (
    "Median CPU seconds of one search and of one training under its policy, on one core. The last "
    "column is what the kept policy costs beside the search; the trainings can run side by side."
)
LEVEL_TEXT = (
    "Test accuracy in % of each level. The tables above have the level chosen on validation images."
)
FINDING_TEXT = (
    "Seeds 50 to 52 and the settings of the third round, without the new ops and statistics, "
    "unless a section says otherwise."
)
ROTATE_TEXT = (
    "One op per policy, on the digits. With the validation images rotated by 90° the search must "
    "find Rotate90; with the validation images as they are it must not."
)
ROUNDS_TEXT = (
    "Searched minus the best peer, and minus uniform, in each round; uniform at the searched p_tp "
    "is a peer only where it was run. The seeds are others in each round, so these differences are "
    "not paired with each other. In 0.2.0 the network was untrained when the search began: every "
    "augmented step looked harmful then, p_tp fell in all domains, and the schedule began with it. "
    "Since then the network is trained on clean images first (`--warmup-epochs 20`), the last "
    "epoch's policy is used throughout (`--replay last`), and a fifth of it is uniform "
    "(`--uniform-share 0.2`). The second and the third round have the same settings. The fourth "
    "has four more ops, for uniform, too (`--space camera`), and running statistics in the "
    "validation gradient (`--val-statistics both`)."
)
LONGER_TEXT = (
    "Added when the first round was known: are more steps what the searches on CIFAR-10 lack?"
)
STATIC_TEXT = (
    "Searched with the settings of 0.2.0, without a warm-up, seeds 0 to 4: the policy of the "
    "search's last epoch in all epochs of the training (`--static last`), and the schedule as the "
    "paper replays it. Run in two domains as planned, and in the others when the first round was "
    "known. The present presets use the last epoch's policy."
)
FIXED_TEXT = (
    "The ops are those of the search; p_tp is held at one value in all epochs of the training."
)
MARKS = "<!-- evidence: begin -->", "<!-- evidence: end -->"


def sections(lines: Sequence[Line], folder: Path) -> list[str]:
    """Return the page in sections, and draw its pictures."""
    by_data = {name: rows_of(lines, name) for name in DATA}
    rows = [row for found in by_data.values() for row in found]
    targets = [row for row in rows if row.searched.domain != SAME]
    same = [row for row in rows if row.searched.domain == SAME]
    parts = [INTRODUCTION.format(goals=all_goals(targets, same), protocol=protocol())]
    for name, found in by_data.items():
        there = [row for row in found if row in targets]
        if not there:
            continue
        places = [row.searched for row in there]
        accuracies(places, folder / f"{name}.svg", with_samples=name == "digits")
        parts.append(
            f"## Another target domain: {TITLES[name]}\n\n"
            f"![Accuracy of every peer in every domain](evidence/{name}.svg)\n\n"
            f"Test accuracy in %, mean ± standard error over the seeds:\n\n{accuracy_table(there)}"
            f"\n\n{standing_table(there)}\n\nWhat the searches found, and which policy was kept:"
            f"\n\n{found_table(lines, DATA[name])}"
        )
    if same:
        renamed = [replace(row, name=TITLES[row.searched.data]) for row in same]
        parts.append(
            f"## The same domain\n\n{SAME_TEXT}\n\n{accuracy_table(renamed)}\n\n"
            f"{standing_table(renamed)}"
        )
    if rows:
        cells = [(row.searched.data, row.searched.domain) for row in rows]
        parts.append(f"## Four rounds\n\n{ROUNDS_TEXT}\n\n{rounds_table(lines, cells)}")
    parts += findings(lines, folder)
    parts.append(f"## What the search costs\n\n{COST_TEXT}\n\n{cost_table(lines)}")
    if rows:
        levels = level_table(lines, [row.searched for row in rows])
        parts.append(f"## RandAugment's levels\n\n{LEVEL_TEXT}\n\n{levels}")
    return parts


def rows_of(lines: Sequence[Line], data: str) -> list[Row]:
    """Return the domains of a data set that have been run."""
    found = []
    for domain in DATA[data].domains:
        searched = standing(lines, data, domain)
        if searched is not None:
            found.append(Row(domain, searched, standing(lines, data, domain, KEPT)))
    return found


def all_goals(targets: Sequence[Row], same: Sequence[Row]) -> str:
    """Say which goals the searched policies reach, and which the kept ones."""
    text = goals([row.searched for row in targets], [row.searched for row in same])
    kept = [[row.kept for row in rows if row.kept is not None] for rows in (targets, same)]
    if any(kept):
        text = f"{text}\n\n{goals(kept[0], kept[1], KEPT)}"
    return text


def ptp_curves(lines: Sequence[Line]) -> list[Curve]:
    given: list[Curve] = [
        (f"released, {label}", colour, run["p_tp"])
        for name, label, colour in (
            ("cifar10", "CIFAR-10", "#222222"),
            ("cifar100", "CIFAR-100", "#888888"),
        )
        for run in searches(lines, name, SAME, "released")
    ]
    groups = (
        ("cifar10", SAME, "paper", "ours, paper's settings", COLOURS["uniform-searched"]),
        ("cifar10", SAME, SEARCHED, "ours, our preset", COLOURS["trivialaugment-wide"]),
        ("digits", "rotated", SEARCHED, "digits rotated", COLOURS[SEARCHED]),
    )
    for data, domain, name, label, colour in groups:
        seeds = DATA[data].table_seeds if name == SEARCHED else None
        for number, run in enumerate(searches(lines, data, domain, name, seeds)):
            given.append((label if number == 0 else "", colour, run["p_tp"]))
    return given


def findings(lines: Sequence[Line], folder: Path) -> list[str]:
    """Return the sections on the paper's findings; those without a recorded run are left out."""
    parts = []
    rotated = rotate90_table(lines)
    if rotated:
        parts.append(
            f"## The paper's findings, small\n\n{FINDING_TEXT}\n\n### Rotate90\n\n{ROTATE_TEXT}"
            f"\n\n{rotated}"
        )
    given = ptp_curves(lines)
    if given:
        curves(given, folder / "p_tp.svg", "epochs of the search, first to last", "p_tp")
        parts.append(
            "### p_tp over the epochs\n\n![p_tp over the epochs](evidence/p_tp.svg)\n\n"
            f"{ptp_sentence(lines)}"
        )
    fixed = variants_table(
        lines, FINDING_CELLS, {f"fixed-{v}": f"p_tp fixed at {v}" for v in FIXED}
    )
    if fixed:
        parts.append(f"### p_tp fixed and learned\n\n{FIXED_TEXT}\n\n{fixed}")
    static = variants_table(
        lines, STATIC_CELLS, {"static": "last epoch's policy throughout"}, BEFORE
    )
    if static:
        parts.append(f"### The schedule, or its last epoch\n\n{STATIC_TEXT}\n\n{static}")
    counts = variants_table(lines, [POLICY_CELL], {f"policies-{c}": f"L̂ = {c}" for c in POLICIES})
    if counts:
        parts.append(f"### Policies per step (L̂)\n\n{counts}")
    names = {
        "longer": f"search with {LONGER} × the steps",
        "trivialaugment-wide": PEERS["trivialaugment-wide"],
    }
    if any(searches(lines, *cell, "longer") for cell in LONGER_CELLS):
        longer = variants_table(lines, LONGER_CELLS, names)
        parts.append(f"### A longer search on CIFAR-10\n\n{LONGER_TEXT}\n\n{longer}")
    return parts


def domain_list() -> str:
    used = dict.fromkeys(domain for data in DATA.values() for domain in data.domains)
    rows = [[domain, DOMAINS[domain][1]] for domain in used]
    return f"## The domains\n\n{table(['domain', 'what its images are'], rows)}"


def readme_table(rows: Sequence[Row]) -> str:
    columns = (*README_PEERS, SEARCHED, KEPT)
    head = ["the camera sees digits", *(PEERS.get(name, name) for name in columns)]
    filled = [
        [DOMAINS[row.name][1], *(row.cells.get(name, "–") for name in columns)]
        for row in sorted(rows, key=lambda row: README_ROWS.index(row.name))
    ]
    return table(head, filled)  # bold is the best of all peers, here or on the page


def readme_text(lines: Sequence[Line]) -> str:
    """Return what the README says between its marks."""
    rows = {name: [row for row in rows_of(lines, name) if row.name != SAME] for name in DATA}
    shown = [row for row in rows["digits"] if row.name in README_ROWS]
    every = [row for found in rows.values() for row in found]
    kept = [row.kept for row in every if row.kept is not None]
    counts = [count_of([row.searched for row in every]), count_of(kept, KEPT)]
    return "\n\n".join([readme_table(shown), *filter(None, counts)])


def write_page(results: Path, root: Path) -> None:
    """Write docs/evidence.md, docs/evidence/*.svg and the README's table."""
    lines = with_kept(read_lines(results))
    parts = sections(lines, root / "docs" / "evidence")
    text = "\n\n".join([*parts, domain_list()])
    (root / "docs" / "evidence.md").write_text(f"{text}\n", "utf-8")
    readme = root / "README.md"
    between = re.compile(f"{MARKS[0]}.*?{MARKS[1]}", re.S)
    filled = f"{MARKS[0]}\n{readme_text(lines)}\n{MARKS[1]}"
    if readme.is_file():
        readme.write_text(between.sub(lambda _: filled, readme.read_text("utf-8")), "utf-8")
