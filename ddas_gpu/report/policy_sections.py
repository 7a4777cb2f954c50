"""The sections of a search's page on what it found: the ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddas_gpu.data.overview import is_grey
from ddas_gpu.report.charts import Effect, effect_chart
from ddas_gpu.report.heatmap import heat_map, op_strips
from ddas_gpu.report.html import Html, el
from ddas_gpu.report.numbers import (
    THIN,
    change,
    count,
    groups,
    percent,
    ratios,
    share_from_to,
    times,
)
from ddas_gpu.report.parts import data_table, section
from ddas_gpu.report.run import Run
from ddas_gpu.report.samples import candidate_pictures, sample_sheet
from ddas_gpu.tasks.same_candidates import sameness

EXTREMES = 5  # candidates listed at either end


def certainty(run: Run) -> Html | None:
    """Return the verdict on each op with its interval; None for a policy without a verdict."""
    verdict = run.schedule.verdict
    if "ops" not in verdict:
        return None
    steps, seeds = verdict["steps"], len(verdict.get("seeds", [])) or 1
    of = f"{count(steps, 'step')} of {seeds} seeds" if seeds > 1 else count(steps, "step")
    lead = (
        f"How much more than the average candidate an op lowered the validation loss, over {of}, "
        "in mean sizes of a reward. The lines are 95 % intervals for all ops and candidates at "
        "once. An op helps or hurts if its own interval or that of one of its levels leaves out 0; "
        "the last column is about how many steps that takes."
    )
    rows = []
    for op, entry in verdict["ops"].items():
        needed = entry["steps_needed"]
        remark = "–" if needed is None else f"{needed:,}"
        value, low, high = entry["interval"]
        word = entry["verdict"] + _deciding(run, op)
        rows.append(Effect(op, value, low, high, word, remark))
    rows.sort(key=lambda row: -row.value)
    heads = ("op", "← hurts · helps →", "verdict", "steps needed")
    low, high = verdict["apply_probability"]
    share = (
        f"Share of images to augment: {percent(run.schedule.p_tp[-1])}, "
        f"95{THIN}% interval {percent(low)} to {percent(high)}."
    )
    return section(
        "How sure it is",
        lead,
        effect_chart(rows, heads),
        el("p", share, class_="lead"),
        _seeds(run),
    )


def _deciding(run: Run, op: str) -> str:
    """Return the levels that decide the verdict on an op whose mean does not: " at 6, 10"."""
    verdict, space = run.schedule.verdict, run.schedule.space
    _, low, high = verdict["ops"][op]["interval"]
    if low > 0 or high < 0 or verdict["ops"][op]["verdict"] not in ("helps", "hurts"):
        return ""
    rows = zip(space, verdict["candidates"], strict=True)
    levels = [c.level for c, (_, low, high) in rows if c.op == op and (low > 0 or high < 0)]
    return f" at {', '.join(f'{level:g}' for level in levels if level is not None)}"


def _seeds(run: Run) -> Html | None:
    """Return what each seed of --repeats has found."""
    seeds = run.schedule.verdict.get("seeds", [])
    if not seeds:
        return None
    found = np.array([ratios(entry["p_o"]) for entry in seeds])
    rows = []
    for group in groups(run.schedule.space):
        means = found[:, list(group.indices)].mean(1)
        cells = [el("td", times(mean), class_="number") for mean in means]
        spread = f"{times(means.min())} to {times(means.max())}"
        rows.append(
            el(
                "tr",
                el("th", group.op, scope="row"),
                cells,
                el("td", spread, class_="number", data_value=f"{np.ptp(means):.9g}"),
            )
        )
    shares = [el("td", percent(entry["p_tp"]), class_="number") for entry in seeds]
    low, high = (percent(f(entry["p_tp"] for entry in seeds)) for f in (min, max))
    rows.append(
        el(
            "tr",
            el("th", "images to augment", scope="row"),
            shares,
            el("td", f"{low} to {high}", class_="number"),
        )
    )
    heads = ("op", *(f"seed {entry['seed']}" for entry in seeds), "spread")
    title = el("summary", f"Every op of the {len(seeds)} seeds, relative to uniform")
    return el("details", title, data_table("Every seed", heads, rows, sortable=True))


def ops(run: Run) -> Html:
    lead = (
        "The bar is the mean over an op's levels after the last epoch, relative to the uniform "
        f"1/{len(run.schedule.space)}; the dots are its candidates, the stronger the larger."
    )
    same = _sameness(run)
    note = None if same is None else el("p", f"{same[0].upper()}{same[1:]}.", class_="note")
    return section("Which ops to use", lead, op_strips(run.schedule), note)


def _sameness(run: Run) -> str | None:
    """Return a sentence about the candidates that did the same to the images of the run."""
    space, size, grey = run.schedule.space, run.settings.get("image_size"), False
    if run.samples is not None:
        grey = all(is_grey(image) for image in run.samples.images)
        size = size or min(run.samples.images[0].shape[:2])
    if not isinstance(size, int) or size < 1:
        return None
    return sameness(space, size, flip=run.settings.get("flip") is True, grey=grey)


def extremes(run: Run) -> Html | None:
    p_o, uniform = run.schedule.p_o[-1], 1 / len(run.schedule.space)
    order = [int(i) for i in np.argsort(-p_o, kind="stable")]
    half = min(EXTREMES, len(order) // 2)
    if not half:
        return None
    top, bottom = order[:half], order[::-1][:half]
    lead = f"Single candidates after epoch {run.epochs}, against the uniform {percent(uniform, 1)}."
    return section(
        "What rose, what sank",
        lead,
        _candidates(run, "Most likely", top),
        _candidates(run, "Least likely", bottom),
    )


def _candidates(run: Run, title: str, indices: list[int]) -> Html:
    relative = ratios(run.schedule.p_o[-1])
    pictures: Sequence[Html | None] = [None] * len(indices)
    if run.samples is not None:
        pictures = candidate_pictures(run.schedule, run.samples, indices)
    rows = []
    for i, image in zip(indices, pictures, strict=True):
        side = "up" if relative[i] >= 1 else "down"
        rows.append(
            el(
                "tr",
                image and el("td", image, class_="thumb"),
                el("th", str(run.schedule.space[i]), scope="row"),
                el("td", percent(run.schedule.p_o[-1, i], 1), class_="number"),
                el("td", times(relative[i]), class_=f"number {side}"),
                el("td", change(relative[i]), class_=f"number {side}"),
            )
        )
    head = el(
        "tr",
        el("th", el("span", "example", class_="unseen"), scope="col")
        if run.samples is not None
        else None,
        [el("th", name, scope="col") for name in ("candidate", "p", "of uniform", "change")],
    )
    return el(
        "table", el("caption", title), el("thead", head), el("tbody", rows), class_="extremes"
    )


def samples(run: Run) -> Html | None:
    if run.samples is None:
        return None
    replayed = run.schedule.replayed
    first, last = share_from_to(replayed.p_tp)
    share = first if first == last else f"{first} at first and {last} at the end"
    both, one = "first and of the last epoch", "last epoch, which a training uses"
    which = both if len(replayed) > 1 else one
    lead = (
        "Training images as they are, and under policies drawn with the probabilities of the "
        f"{which}. A trainer augments only some of its images, {share}: this is what those look "
        "like."
    )
    sheet = sample_sheet(run.schedule, run.samples, run.epochs, run.epochs)
    return section("What it looks like", lead, sheet)


def epoch_by_epoch(run: Run) -> Html:
    lead = (
        "The probability of every candidate by epoch, relative to uniform. Rows are the levels of "
        "an op; the number at the end of a row is the last epoch's."
    )
    return section("Epoch by epoch", lead, heat_map(run.schedule))
