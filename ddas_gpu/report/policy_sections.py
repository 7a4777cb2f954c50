"""The sections of a search's page on what it found: the ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddas_gpu.data.overview import is_grey
from ddas_gpu.report.heatmap import heat_map, op_strips
from ddas_gpu.report.html import Html, el
from ddas_gpu.report.numbers import change, percent, ratios, share_from_to, times
from ddas_gpu.report.parts import section
from ddas_gpu.report.run import Run
from ddas_gpu.report.samples import candidate_pictures, sample_sheet
from ddas_gpu.tasks.same_candidates import sameness

EXTREMES = 5  # candidates listed at either end


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
    first, last = share_from_to(run.schedule.p_tp)
    share = first if first == last else f"{first} at first and {last} at the end"
    lead = (
        "Training images as they are, and under policies drawn with the probabilities of the first "
        f"and of the last epoch. A trainer augments only some of its images, {share}: "
        "this is what those look like."
    )
    sheet = sample_sheet(run.schedule, run.samples, run.epochs, run.epochs)
    return section("What it looks like", lead, sheet)


def epoch_by_epoch(run: Run) -> Html:
    lead = (
        "The probability of every candidate by epoch, relative to uniform. Rows are the levels of "
        "an op; the number at the end of a row is the last epoch's."
    )
    return section("Epoch by epoch", lead, heat_map(run.schedule))
