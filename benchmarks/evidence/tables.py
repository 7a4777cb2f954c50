"""The tables and sentences of the page, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from .numbers import (
    BEFORE,
    PEERS,
    SEARCHED,
    Estimate,
    Line,
    Standing,
    chosen_in,
    common,
    estimate,
    paired,
    scores_in,
)
from .protocol import DATA, LEVELS, SAME, Data

TITLES = {
    "digits": "digits",
    "cifar10": "CIFAR-10 at 16 px",
    "fashion-mnist": "Fashion-MNIST at 16 px",
}


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


def progress_table(pairs: Sequence[tuple[Standing, Standing]]) -> str:
    """Compare the standings of two settings of the search, on other seeds."""

    def cells(place: Standing) -> list[str]:
        seeds = sorted(place.scores[SEARCHED])
        named = f"{seeds[0]} to {seeds[-1]}"
        return [named, place.difference.signed, place.from_uniform.signed]

    parts = ["seeds", "− best peer", "− uniform"]
    head = ["data", "domain", *(f"{when}: {x}" for when in ("0.2.0", "now") for x in parts)]
    rows = [[TITLES[a.data], a.domain, *cells(a), *cells(b)] for a, b in pairs]
    return table(head, rows)


def chosen_table(lines: Sequence[Line], standings: Sequence[Standing]) -> str:
    """Compare the policy that is best on the validation images with the best peer on average."""
    rows = []
    for place in standings:
        seeds = sorted(place.scores[SEARCHED])
        found = chosen_in(lines, place.data, place.domain, seeds)
        scores = {seed: accuracy for seed, (_, accuracy) in found.items()}
        rows.append(
            [
                TITLES[place.data],
                place.domain,
                str(estimate(list(scores.values()))),
                paired(scores, place.scores[place.best_peer]).signed,
                paired(scores, place.scores["uniform"]).signed,
                f"{sum(name == SEARCHED for name, _ in found.values())} of {len(found)}",
            ]
        )
    head = ["data", "domain", "accuracy", "− best peer", "− uniform", "the searched one chosen"]
    return table(head, rows)


def count_of(standings: Sequence[Standing]) -> str:
    """Count where the searched policy is first, and where it is behind, in a sentence per data."""
    sentences = []
    for data, title in TITLES.items():
        found = [place for place in standings if place.data == data]
        if not found:
            continue
        first, clear = (sum(getattr(p, key) for p in found) for key in ("first", "clearly_first"))
        behind = [place.domain for place in found if place.behind]
        text = f"On {title} the searched policy is first in {first} of {len(found)} target domains"
        if first:
            text += f", in {clear} by more than one standard error of the paired difference"
        text += f"; it is more than one standard error behind the best peer in {len(behind)}"
        sentences.append(f"{text} ({', '.join(behind)})." if behind else f"{text}.")
    return " ".join(sentences)


def goals(targets: Sequence[Standing], same: Sequence[Standing]) -> str:
    """Say which of the goals are reached."""
    lines = []
    if targets:
        enough = 4 * sum(place.first for place in targets) >= 3 * len(targets)
        never = not any(place.behind for place in targets)
        lines += [
            count_of(targets),
            f"Over all {len(targets)} the goal of three quarters first is "
            f"{'reached' if enough else 'not reached'}; the goal never to be more than one "
            f"standard error behind is {'reached' if never else 'not reached'}.",
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
        own = [line for line in lines if line["seed"] in place.scores[SEARCHED]]
        found = common(scores_in(own, place.data, place.domain), names)
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
    """Compare variants of a policy of 0.2.0, with the paired difference of each from it."""
    rows = []
    for data, domain in cells:
        found = common(scores_in(lines, data, domain), [*names, BEFORE])
        if BEFORE not in found or len(found) < 2 or len(found[BEFORE]) < 2:
            continue
        for name, label in {**names, BEFORE: "searched, as it is"}.items():
            if name not in found:
                continue
            values = found[name]
            less = "" if name == BEFORE else paired(values, found[BEFORE]).signed
            rows.append([domain, label, str(estimate(list(values.values()))), less])
    return table(["domain", "policy", "accuracy", "minus searched"], rows) if rows else ""


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
