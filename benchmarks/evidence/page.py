"""docs/evidence.md, its pictures and the table of the README, from the recorded lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .images import DOMAINS
from .numbers import BEFORE, PEERS, SEARCHED, Line, Standing, read_lines, standing
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
    accuracy_table,
    chosen_table,
    cost_table,
    count_of,
    found_table,
    goals,
    level_table,
    progress_table,
    protocol,
    ptp_sentence,
    rotate90_table,
    row_of,
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
    "Median seconds of one search and of one training under its policy, on one core. The cores "
    "were shared with other work while this ran: compare the CPU seconds."
)
LEVEL_TEXT = (
    "Test accuracy in % of each level. The tables above have the level chosen on validation images."
)
FINDING_TEXT = (
    "These runs have the settings of 0.2.0, without a warm-up, and the seeds 0 to 4: they were not "
    "repeated."
)
ROTATE_TEXT = (
    "One op per policy, on the digits. With the validation images rotated by 90° the search must "
    "find Rotate90; with the validation images as they are it must not."
)
CHOSEN_TEXT = (
    "Added when the tables above were known, from the same runs. Whoever has validation images of "
    "the domain need not believe in the search: train under the searched policy and under every "
    "peer, and keep what is best on the validation images, as RandAugment's level is chosen above. "
    "`ddas compare` trains them. It costs a training per peer. The best peer is the one with the "
    "largest mean on the test images, which nobody knows beforehand."
)
WARM_TEXT = (
    "Searched minus the best peer, and minus uniform, with the settings of 0.2.0 and now. The "
    "seeds are others, so these differences are not paired with each other; uniform at the "
    "searched p_tp is no peer here. In 0.2.0 the network "
    "was untrained when the search began: every augmented step looked harmful then, p_tp fell in "
    "all domains, and the schedule began with it. Now the network is trained on clean images first "
    "(`--warmup-epochs 20`), the last epoch's policy is used throughout (`--replay last`), and a "
    "fifth of it is uniform (`--uniform-share 0.2`)."
)
LONGER_TEXT = (
    "Added when the tables above were known: are more steps what the searches on CIFAR-10 lack?"
)
STATIC_TEXT = (
    "The policy of the search's last epoch in all epochs of the training (`--static last`). Run in "
    "two domains as planned, and in the others when the tables above were known."
)
FIXED_TEXT = (
    "The ops are those of the search; p_tp is held at one value in all epochs of the training."
)
MARKS = "<!-- evidence: begin -->", "<!-- evidence: end -->"


def sections(lines: Sequence[Line], folder: Path) -> list[str]:
    """Return the page in sections, and draw its pictures."""
    by_data = {
        name: [p for d in data.domains if (p := standing(lines, name, d)) is not None]
        for name, data in DATA.items()
    }
    places = [place for found in by_data.values() for place in found]
    targets = [place for place in places if place.domain != SAME]
    same = [place for place in places if place.domain == SAME]
    parts = [INTRODUCTION.format(goals=goals(targets, same), protocol=protocol())]
    for name, found in by_data.items():
        there = [place for place in found if place.domain != SAME]
        if not there:
            continue
        accuracies(there, folder / f"{name}.svg", with_samples=name == "digits")
        parts.append(
            f"## Another target domain: {TITLES[name]}\n\n"
            f"![Accuracy of every peer in every domain](evidence/{name}.svg)\n\n"
            f"Test accuracy in %, mean ± standard error over the seeds:\n\n{accuracy_table(there)}"
            f"\n\n{standing_table(there)}\n\n{count_of(there)}\n\nWhat the searches found:\n\n"
            f"{found_table(lines, DATA[name])}"
        )
    if same:
        renamed = [Standing(**{**vars(p), "domain": TITLES[p.data]}) for p in same]
        parts.append(
            f"## The same domain\n\n{SAME_TEXT}\n\n{accuracy_table(renamed)}\n\n"
            f"{standing_table(renamed)}"
        )
    if places:
        parts.append(
            f"## Taking what validates best\n\n{CHOSEN_TEXT}\n\n{chosen_table(lines, places)}"
        )
    earlier = [
        (before, now)
        for now in places
        if (before := standing(lines, now.data, now.domain, BEFORE)) is not None
    ]
    if earlier:
        parts.append(f"## What the warm-up changed\n\n{WARM_TEXT}\n\n{progress_table(earlier)}")
    parts += findings(lines, folder)
    parts.append(f"## What the search costs\n\n{COST_TEXT}\n\n{cost_table(lines)}")
    if places:
        parts.append(f"## RandAugment's levels\n\n{LEVEL_TEXT}\n\n{level_table(lines, places)}")
    return parts


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
        for number, run in enumerate(searches(lines, data, domain, name)):
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
    static = variants_table(lines, STATIC_CELLS, {"static": "last epoch's policy throughout"})
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


def readme_table(lines: Sequence[Line]) -> str:
    found = [p for d in README_ROWS if (p := standing(lines, "digits", d)) is not None]
    head = ["the camera sees digits", *(PEERS[n] for n in README_PEERS)]
    rows = []
    for place in found:
        cells = row_of(place)  # bold is the best of all peers, here or on the page
        rows.append([DOMAINS[place.domain][1], *(cells[n] for n in (*README_PEERS, SEARCHED))])
    return table([*head, "searched"], rows)


def readme_text(lines: Sequence[Line]) -> str:
    """Return what the README says between its marks."""
    places = [
        p for data in DATA.values() for d in data.targets if (p := standing(lines, data.name, d))
    ]
    return f"{readme_table(lines)}\n\n{count_of(places)}"


def write_page(results: Path, root: Path) -> None:
    """Write docs/evidence.md, docs/evidence/*.svg and the README's table."""
    lines = read_lines(results)
    parts = sections(lines, root / "docs" / "evidence")
    text = "\n\n".join([*parts, domain_list()])
    (root / "docs" / "evidence.md").write_text(f"{text}\n", "utf-8")
    readme = root / "README.md"
    between = re.compile(f"{MARKS[0]}.*?{MARKS[1]}", re.S)
    filled = f"{MARKS[0]}\n{readme_text(lines)}\n{MARKS[1]}"
    if readme.is_file():
        readme.write_text(between.sub(lambda _: filled, readme.read_text("utf-8")), "utf-8")
