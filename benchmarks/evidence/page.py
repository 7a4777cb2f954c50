"""docs/evidence.md, its pictures and the table of the README, from the recorded lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from .cells import read_lines
from .images import DOMAINS
from .numbers import (
    PEERS,
    SEARCHED,
    Estimate,
    Line,
    Standing,
    common,
    estimate,
    paired,
    scores_in,
    standing,
)
from .pictures import COLOURS, Curve, accuracies, curves
from .protocol import DATA, FINDING_CELLS, FIXED, LEVELS, POLICIES, POLICY_CELL, SAME, Data

TITLES = {"digits": "digits", "cifar10": "CIFAR-10 at 16 px", "fashion-mnist": "Fashion-MNIST"}
README_ROWS = ("rotated", "shifted", "dark", "blurred", "inverted", "smaller")
README_PEERS = ("none", "uniform", "randaugment", "trivialaugment-wide")
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
ROTATE_TEXT = (
    "One op per policy, on the digits. With the validation images rotated by 90° the search must "
    "find Rotate90; with the validation images as they are it must not."
)
FIXED_TEXT = (
    "The ops are those of the search; p_tp is held at one value in all epochs of the training."
)
MARKS = "<!-- evidence: begin -->", "<!-- evidence: end -->"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def best_in_bold(found: dict[str, Estimate]) -> dict[str, str]:
    """Return what the cells of a row say, the largest mean in bold."""
    most = max(found.values(), key=lambda value: value.mean).mean
    return {
        name: f"**{value}**" if value.mean == most else str(value) for name, value in found.items()
    }


def row_of(place: Standing) -> dict[str, str]:
    return best_in_bold({name: estimate(list(v.values())) for name, v in place.scores.items()})


def accuracy_table(standings: Sequence[Standing]) -> str:
    names = [name for name in PEERS if any(name in place.scores for place in standings)]
    head = ["domain", "seeds", *(PEERS[name] for name in names), "searched"]
    rows = []
    for place in standings:
        cells = row_of(place)
        seeds = str(place.difference.seeds)
        rows.append([place.domain, seeds, *(cells.get(name, "–") for name in [*names, SEARCHED])])
    return table(head, rows)


def standing_table(standings: Sequence[Standing]) -> str:
    head = ["domain", "best peer", "searched − best peer", "searched − uniform", "searched is"]
    rows = [
        [
            place.domain,
            PEERS[place.best_peer],
            place.difference.signed,
            place.from_uniform.signed,
            str(place),
        ]
        for place in standings
    ]
    return table(head, rows)


def count_of(standings: Sequence[Standing]) -> str:
    """Count the goals of the target domains, in a sentence."""
    first = [place for place in standings if place.first]
    behind = [place for place in standings if place.behind]
    clear = sum(place.clearly_first for place in standings)
    text = (
        f"The searched policy is first in {len(first)} of {len(standings)} target domains, in "
        f"{clear} of them by more than one standard error of the paired difference; it is more "
        f"than one standard error behind the best peer in {len(behind)}"
    )
    names = ", ".join(f"{TITLES[place.data]} {place.domain}" for place in behind)
    return f"{text} ({names})." if behind else f"{text}."


def goals(targets: Sequence[Standing], same: Sequence[Standing]) -> str:
    """Say which of the goals are reached."""
    lines = []
    if targets:
        enough = 4 * sum(place.first for place in targets) >= 3 * len(targets)
        never = not any(place.behind for place in targets)
        lines += [
            count_of(targets),
            f"The goal of three quarters first is {'reached' if enough else 'not reached'}; the "
            "goal never to be more than one standard error behind is "
            f"{'reached' if never else 'not reached'}.",
        ]
    if same:
        worse = [TITLES[place.data] for place in same if place.worse_than_uniform]
        behind = [
            f"{TITLES[p.data]} (behind {PEERS[p.best_peer]}, {p.difference.signed})"
            for p in same
            if p.behind
        ]
        lines += [
            "In the same domain it is worse than uniform by more than one standard error on "
            f"{len(worse)} of {len(same)} data sets{': ' if worse else ''}{', '.join(worse)}; "
            f"it is more than one standard error behind the best peer on {len(behind)}"
            f"{': ' if behind else ''}{', '.join(behind)}."
        ]
    return " ".join(lines)


def searches(lines: Sequence[Line], data: str, domain: str, name: str) -> list[Line]:
    wanted = ("search", data, domain, name)
    found = [x for x in lines if (x["kind"], x["data"], x["domain"], x["name"]) == wanted]
    return sorted(found, key=lambda line: line["seed"])


def found_table(lines: Sequence[Line], data: Data) -> str:
    """Say what each search put first, seed by seed."""
    rows = []
    for domain in data.domains:
        runs = searches(lines, data.name, domain, SEARCHED)
        if not runs:
            continue
        first = ", ".join("{} {:.1f}×".format(*next(iter(run["ops"].items()))) for run in runs)
        p_tp = estimate([run["p_tp"][-1] for run in runs])
        rows.append([domain, f"{p_tp.mean:.2f} ± {p_tp.error:.2f}", first])
    head = ["domain", "p_tp at the end", "first candidate of each seed, × uniform"]
    return table(head, rows) if rows else ""


def level_table(lines: Sequence[Line], standings: Sequence[Standing]) -> str:
    names = [f"randaugment-{level}" for level in LEVELS]
    rows = []
    for place in standings:
        found = common(scores_in(lines, place.data, place.domain), names)
        cells = best_in_bold({name: estimate(list(v.values())) for name, v in found.items()})
        rows.append([TITLES[place.data], place.domain, *(cells[name] for name in names)])
    return table(["data", "domain", *(f"level {level}" for level in LEVELS)], rows)


def rotate90_table(lines: Sequence[Line]) -> str:
    rows = []
    labels = {"check": "rotated by 90°", "control": "as they are (control)"}
    for name, label in labels.items():
        for run in searches(lines, "digits", "rotate90", name):
            order = list(run["ops"])
            place = order.index("Rotate90") + 1
            rows.append(
                [
                    label,
                    str(run["seed"]),
                    f"{run['ops']['Rotate90']:.2f}×",
                    f"{place} of {len(order)}",
                    f"{run['p_tp'][-1]:.2f}",
                ]
            )
    head = ["validation images", "seed", "Rotate90, × uniform", "its rank", "p_tp, from 0.75"]
    return table(head, rows) if rows else ""


def variants_table(
    lines: Sequence[Line], cells: Sequence[tuple[str, str]], names: dict[str, str]
) -> str:
    """Compare variants of a policy, with the paired difference of each from the searched one."""
    rows = []
    for data, domain in cells:
        found = common(scores_in(lines, data, domain), [*names, SEARCHED])
        if SEARCHED not in found or len(found) < 2 or len(found[SEARCHED]) < 2:
            continue
        for name, label in {**names, SEARCHED: "searched, as it is"}.items():
            if name not in found:
                continue
            values = found[name]
            less = "" if name == SEARCHED else paired(values, found[SEARCHED]).signed
            rows.append([domain, label, str(estimate(list(values.values()))), less])
    return table(["domain", "policy", "accuracy", "minus searched"], rows) if rows else ""


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


def ptp_sentence(lines: Sequence[Line]) -> str:
    runs = searches(lines, "cifar10", SAME, "paper")
    released = searches(lines, "cifar10", SAME, "released")
    if not runs:
        return ""
    ends = ", ".join(f"{run['p_tp'][-1]:.2f}" for run in runs)
    text = f"With the paper's settings p_tp goes from 0.35 to {ends} (seeds 0 to {len(runs) - 1})"
    if released:
        text += f"; in the released CIFAR-10 policy to {released[0]['p_tp'][-1]:.2f}"
    return f"{text}."


def cost_table(lines: Sequence[Line]) -> str:
    rows = []
    for data in DATA.values():
        runs = [x for d in data.domains for x in searches(lines, data.name, d, SEARCHED)]
        trained = [
            line
            for line in lines
            if (line["kind"], line["data"], line["name"]) == ("training", data.name, SEARCHED)
        ]
        if runs and trained:
            search = median(run["cpu_seconds"] for run in runs)
            training = median(line["cpu_seconds"] for line in trained)
            wall = median(run["seconds"] for run in runs)
            rows.append(
                [
                    TITLES[data.name],
                    f"{search:.1f} s",
                    f"{training:.1f} s",
                    f"{search / training:.1f}",
                    f"{wall:.0f} s",
                ]
            )
    head = ["data", "search, CPU", "training, CPU", "ratio", "search, wall clock"]
    return table(head, rows)


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
    parts += findings(lines, folder)
    parts.append(f"## What the search costs\n\n{COST_TEXT}\n\n{cost_table(lines)}")
    if places:
        parts.append(f"## RandAugment's levels\n\n{LEVEL_TEXT}\n\n{level_table(lines, places)}")
    return parts


def findings(lines: Sequence[Line], folder: Path) -> list[str]:
    """Return the sections on the paper's findings; those without a recorded run are left out."""
    parts = []
    rotated = rotate90_table(lines)
    if rotated:
        parts.append(
            f"## The paper's findings, small\n\n### Rotate90\n\n{ROTATE_TEXT}\n\n{rotated}"
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
    static = variants_table(lines, FINDING_CELLS, {"static": "last epoch's policy throughout"})
    if static:
        parts.append(f"### The schedule, or its last epoch\n\n{static}")
    counts = variants_table(lines, [POLICY_CELL], {f"policies-{c}": f"L̂ = {c}" for c in POLICIES})
    if counts:
        parts.append(f"### Policies per step (L̂)\n\n{counts}")
    return parts


def protocol() -> str:
    rows = [
        [
            TITLES[data.name],
            f"{data.train} / {data.validation} / {data.test}",
            str(data.seeds),
            "`" + " ".join(data.standard) + "`",
            "standard transform" if data.policies_on_standard else "nothing",
            f"{data.epochs}, {data.search_epochs}",
        ]
        for data in DATA.values()
    ]
    head = ["data", "train / validation / test", "seeds", "standard transform"]
    return table([*head, "policies come after", "epochs: training, search"], rows)


def domain_list() -> str:
    used = dict.fromkeys(domain for data in DATA.values() for domain in data.domains)
    rows = [[domain, DOMAINS[domain][1]] for domain in used]
    return f"## The domains\n\n{table(['domain', 'what its images are'], rows)}"


def readme_table(lines: Sequence[Line]) -> str:
    found = [p for d in README_ROWS if (p := standing(lines, "digits", d)) is not None]
    head = ["the camera sees digits that are", *(PEERS[n].split(",")[0] for n in README_PEERS)]
    rows = []
    for place in found:
        scores = {name: place.scores[name] for name in (*README_PEERS, SEARCHED)}
        cells = best_in_bold({n: estimate(list(v.values())) for n, v in scores.items()})
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
