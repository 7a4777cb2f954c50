"""The sections of a search's page on its course: p_tp, the losses and the time."""

from __future__ import annotations

import numpy as np

from ddas_gpu.report import parts
from ddas_gpu.report.charts import Line, line_chart
from ddas_gpu.report.html import Html, el
from ddas_gpu.report.numbers import count, course, in_words, percent, short_percent
from ddas_gpu.report.parts import section
from ddas_gpu.report.run import LOSSES, Run


def curves(run: Run) -> Html:
    epochs = np.arange(1, run.epochs + 1, dtype=float)
    steps = run.metrics.numbers["apply_probability"]
    lines = [Line("in the policy", epochs, run.schedule.p_tp, 0)]
    if np.isfinite(steps).any():
        lines.insert(0, Line("step by step", _step_positions(run), steps, 0, faint=True))
    share = line_chart(
        lines,
        label=f"Share of images to augment, by epoch: it {course(run.schedule.p_tp)}",
        x_label="epoch",
        show=lambda p: percent(p, 1),
        mark=short_percent,
        least_span=0.04,
    )
    charts = [el("div", el("h3", "Share of images to augment, p_tp"), share)]
    losses = _losses(run)
    if losses:
        charts.append(el("div", el("h3", "Losses"), losses))
    size = run.settings.get("smoothing")
    smoothed = f", smoothed over {count(size, 'epoch')}" if isinstance(size, int) else ""
    return section(
        "How the search went",
        f"The policy holds p_tp after each epoch{smoothed}. Losses are means over the steps of an "
        "epoch.",
        el("div", charts, class_="columns"),
    )


def _step_positions(run: Run) -> np.ndarray:
    """Return steps on the axis of epochs: the last step of epoch e (from 0) is at e + 1."""
    epoch = run.metrics.epoch
    found, steps = np.unique(epoch, return_counts=True)
    positions = np.empty(len(epoch))
    for e, count_in_epoch in zip(found, steps, strict=True):
        # The last epoch may be incomplete: the longest has the steps of a full one.
        positions[epoch == e] = e + np.arange(1, count_in_epoch + 1) / steps.max()
    return positions


def _losses(run: Run) -> Html | None:
    epochs = int(run.metrics.epoch.max()) + 1 if len(run.metrics) else 0
    names = {"loss": "training, weighted", "clean_loss": "clean", "validation_loss": "validation"}
    lines = []
    for series, key in enumerate(LOSSES):
        values = run.metrics.by_epoch(key, epochs)
        if np.isfinite(values).any():
            x = np.arange(1, epochs + 1, dtype=float)
            lines.append(Line(names[key], x, values, series))
    if not lines:
        return None
    label = "Mean losses by epoch: " + in_words([line.name for line in lines])
    return line_chart(lines, label=label, x_label="epoch", show="{:.2f}".format, mark="{:g}".format)


# The stages of metrics.jsonl, as a reader knows them.
STAGES = {
    "augment": "augmentation",
    "gradients": "policy gradients",
    "validation": "validation gradient",
    "dot": "products",
}


def time_by_stage(run: Run) -> Html | None:
    total, steps = run.metrics.total_seconds, len(run.metrics)
    if not total:
        return None
    seconds = {name: float(np.nansum(values)) for name, values in run.metrics.seconds.items()}
    stages = {STAGES.get(name, name): value for name, value in seconds.items()}
    lead = f"{count(steps, 'step')} of {1000 * total / steps:,.1f} ms."
    if run.metrics.gradients:
        lead += f" Of the ways to compare gradients, {run.metrics.gradients}."
    return parts.time_by_stage(lead, stages, steps)
