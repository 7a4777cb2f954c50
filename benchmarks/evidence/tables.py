"""The tables and sentences of the page, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from .numbers import (
    BEFORE,
    KEPT,
    PEERS,
    SEARCHED,
    Estimate,
    Line,
    Standing,
    common,
    estimate,
    key_of,
    paired,
    scores_in,
    standing,
)
from .protocol import COMPARED, COMPARED_SEEDS, DATA, FINDING_SEEDS, LEVELS, SAME, Data

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


@dataclass(frozen=True)
class Row:
    """A domain, under its name in the tables: the searched policy and the kept one."""

    name: str
    searched: Standing
    kept: Standing | None

    @property
    def cells(self) -> dict[str, str]:
        scores = dict(self.searched.scores)
        if self.kept is not None:
            scores[KEPT] = self.kept.scores[SEARCHED]
        return best_in_bold({name: estimate(list(v.values())) for name, v in scores.items()})


def accuracy_table(rows: Sequence[Row]) -> str:
    names = [name for name in PEERS if any(name in row.searched.scores for row in rows)]
    columns = [*names, SEARCHED, *([KEPT] if any(row.kept for row in rows) else [])]
    head = ["domain", "seeds", *(PEERS.get(name, name) for name in columns)]
    filled = [
        [
            row.name,
            str(row.searched.difference.seeds),
            *(row.cells.get(name, "–") for name in columns),
        ]
        for row in rows
    ]
    return table(head, filled)


def standing_table(rows: Sequence[Row]) -> str:
    head = ["domain", "best peer"]
    for name in (SEARCHED, KEPT):
        head += [f"{name} − best peer", f"{name} − uniform", f"{name} is"]

    def cells(place: Standing | None) -> list[str]:
        if place is None:
            return ["–"] * 3
        return [place.difference.signed, place.from_uniform.signed, str(place)]

    filled = [
        [row.name, PEERS[row.searched.best_peer], *cells(row.searched), *cells(row.kept)]
        for row in rows
    ]
    return table(head, filled)


ROUNDS = {
    "0.2.0": (BEFORE, range(10)),
    "seeds 40 on": (SEARCHED, range(40, 50)),
    "seeds 50 on": (SEARCHED, range(50, 60)),
    "seeds 60 on": (SEARCHED, range(60, 70)),
}


def rounds_table(lines: Sequence[Line], cells: Sequence[tuple[str, str]]) -> str:
    """Compare the standings of all rounds, each on its own seeds."""
    head = ["data", "domain"]
    head += [f"{name}: − {peer}" for name in ROUNDS for peer in ("best peer", "uniform")]
    rows = []
    for data, domain in cells:
        row = [TITLES[data], domain]
        for name, seeds in ROUNDS.values():
            place = standing(lines, data, domain, name, seeds)
            row += [place.difference.signed, place.from_uniform.signed] if place else ["–"] * 2
        rows.append(row)
    return table(head, rows)


def count_of(standings: Sequence[Standing], what: str = SEARCHED) -> str:
    """Count where a policy is first, and where it is behind, in a sentence per data set."""
    sentences = []
    for data, title in TITLES.items():
        found = [place for place in standings if place.data == data]
        if not found:
            continue
        first, clear = (sum(getattr(p, key) for p in found) for key in ("first", "clearly_first"))
        behind = [place.domain for place in found if place.behind]
        text = f"On {title} the {what} policy is first in {first} of {len(found)} target domains"
        if first:
            text += f", in {clear} by more than one standard error of the paired difference"
        text += f"; it is more than one standard error behind the best peer in {len(behind)}"
        sentences.append(f"{text} ({', '.join(behind)})." if behind else f"{text}.")
    return " ".join(sentences)


def goals(targets: Sequence[Standing], same: Sequence[Standing], what: str = SEARCHED) -> str:
    """Say which of the goals are reached."""
    lines = []
    if targets:
        enough = 4 * sum(place.first for place in targets) >= 3 * len(targets)
        never = not any(place.behind for place in targets)
        lines += [
            count_of(targets, what),
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


def searches(
    lines: Sequence[Line], data: str, domain: str, name: str, seeds: Sequence[int] | None = None
) -> list[Line]:
    wanted = ("search", data, domain, name)
    found = [x for x in lines if key_of(x)[:4] == wanted and (seeds is None or x["seed"] in seeds)]
    return sorted(found, key=lambda line: line["seed"])


def found_table(lines: Sequence[Line], data: Data) -> str:
    """Say what each search put first, and what was kept, seed by seed."""
    rows = []
    for domain in data.domains:
        runs = searches(lines, data.name, domain, SEARCHED, data.table_seeds)
        if not runs:
            continue
        first = ", ".join("{} {:.1f}×".format(*next(iter(run["ops"].items()))) for run in runs)
        p_tp = estimate([run["p_tp"][-1] for run in runs])
        place = ("training", data.name, domain, KEPT)
        kept = {x["seed"]: x["policy"] for x in lines if key_of(x)[:4] == place}
        named = ", ".join(kept[seed] for seed in data.table_seeds if seed in kept)
        rows.append([domain, f"{p_tp.mean:.2f} ± {p_tp.error:.2f}", first, named])
    head = ["domain", "p_tp at the end", "first candidate of each seed, × uniform", "kept"]
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
        for run in searches(lines, "digits", "rotate90", name, FINDING_SEEDS):
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
    lines: Sequence[Line],
    cells: Sequence[tuple[str, str]],
    names: dict[str, str],
    searched: str = SEARCHED,
) -> str:
    """Compare variants of a searched policy, with the paired difference of each from it."""
    rows = []
    for data, domain in cells:
        found = common(scores_in(lines, data, domain), [*names, searched])
        if searched not in found or len(found) < 2 or len(found[searched]) < 2:
            continue
        for name, label in {**names, searched: "searched, as it is"}.items():
            if name not in found:
                continue
            values = found[name]
            less = "" if name == searched else paired(values, found[searched]).signed
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
    trainings = len(COMPARED_SEEDS) * (len(COMPARED) + 2)  # with the searched policy, and with none
    for data in DATA.values():
        seeds = data.table_seeds
        runs = [x for d in data.domains for x in searches(lines, data.name, d, SEARCHED, seeds)]
        own = ("training", data.name, SEARCHED)
        trained = [
            x for x in lines if (x["kind"], x["data"], x["name"]) == own and x["seed"] in seeds
        ]
        if runs and trained:
            search = median(run["cpu_seconds"] for run in runs)
            training = median(line["cpu_seconds"] for line in trained)
            rows.append(
                [
                    TITLES[data.name],
                    f"{search:.1f} s",
                    f"{training:.1f} s",
                    f"{search / training:.1f}",
                    f"{trainings * training:.0f} s",
                ]
            )
    compared = f"comparison of {trainings} trainings, CPU"
    return table(["data", "search, CPU", "training, CPU", "ratio", compared], rows)


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
