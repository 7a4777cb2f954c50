"""The numbers behind the charts, for screen readers, copying and sorting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddas_gpu.report.html import Html, el
from ddas_gpu.report.numbers import change, percent, ratios, signed, times
from ddas_gpu.report.parts import data_table
from ddas_gpu.report.run import LOSSES, Run


def candidate_table(run: Run) -> Html:
    schedule = run.schedule
    relative = ratios(schedule.p_o)
    intervals = schedule.verdict.get("candidates")
    certain = ("effect", "95 % interval") if intervals else ()
    rows = [
        el(
            "tr",
            el("th", str(candidate), scope="row"),
            [
                el("td", text, class_="number", data_value=f"{value:.9g}")
                for text, value in (
                    (percent(schedule.p_o[0, i], 2), schedule.p_o[0, i]),
                    (percent(schedule.p_o[-1, i], 2), schedule.p_o[-1, i]),
                    (times(relative[-1, i]), relative[-1, i]),
                    (change(relative[-1, i]), relative[-1, i]),
                )
            ],
            _interval(intervals[i]) if intervals else None,
        )
        for i, candidate in enumerate(schedule.space)
    ]
    heads = ("candidate", "first epoch", "last epoch", "of uniform", "change", *certain)
    return data_table("Every candidate", heads, rows, sortable=True)


def _interval(interval: Sequence[float]) -> list[Html]:
    effect, low, high = map(float, interval)
    texts = (signed(effect), effect), (f"{signed(low)} … {signed(high)}", low)
    return [el("td", text, class_="number", data_value=f"{value:.9g}") for text, value in texts]


def epoch_table(run: Run) -> Html:
    losses = [run.metrics.by_epoch(name, run.epochs) for name in LOSSES]
    rows = []
    for epoch in range(run.epochs):
        known = [values[epoch] for values in losses]
        cells = [percent(run.schedule.p_tp[epoch], 2)]
        cells += [f"{value:.4f}" if np.isfinite(value) else "–" for value in known]
        row = [el("td", cell, class_="number") for cell in cells]
        rows.append(el("tr", el("th", epoch + 1, scope="row"), row))
    heads = ("epoch", "p_tp", "training loss", "clean loss", "validation loss")
    return data_table("Every epoch", heads, rows)
