"""The page of one search."""

from __future__ import annotations

import numpy as np

from ddas_gpu.policy import PolicySchedule
from ddas_gpu.report import course_sections, policy_sections, tables
from ddas_gpu.report.html import Html, document, el
from ddas_gpu.report.next_steps import as_uniform, next_steps
from ddas_gpu.report.numbers import (
    count,
    course,
    duration,
    in_words,
    op_ratios,
    percent,
    ratios,
    rose_and_sank,
    share_from_to,
    since_start,
    times,
)
from ddas_gpu.report.parts import section, settings_list, tiles
from ddas_gpu.report.run import Run

NAMED = 4  # ops in each part of the headline


def report_page(run: Run) -> str:
    """Return the whole page, as HTML."""
    sections = [
        policy_sections.certainty(run),
        el("div", policy_sections.ops(run), policy_sections.extremes(run), class_="pair"),
        policy_sections.samples(run),
        course_sections.curves(run),
        policy_sections.epoch_by_epoch(run),
        course_sections.time_by_stage(run),
        settings_list(run),
        _tables(run),
        next_steps(run),
    ]
    return document(f"{run.name} · ddas_gpu", _header(run), sections, _footer())


def headline(run: Run) -> str:
    """Return what can be told of the ops; without a verdict, which of them moved."""
    if "ops" in run.schedule.verdict:
        return verdict_headline(run.schedule)
    rose, sank = rose_and_sank(op_ratios(run.schedule.space, run.schedule.p_o[-1]))
    parts = [f"{in_words(rose)} rose"] * bool(rose) + [f"{in_words(sank)} sank"] * bool(sank)
    return "; ".join(parts) if parts else "No op moved far from uniform"


def verdict_headline(schedule: PolicySchedule) -> str:
    """Return the ops that help and hurt, those of the largest effect first."""
    verdict = schedule.verdict

    def strength(op: str) -> float:
        rows = [r for c, r in zip(schedule.space, verdict["candidates"], strict=True) if c.op == op]
        rows.append(verdict["ops"][op]["interval"])
        return max((abs(value) for value, low, high in rows if low > 0 or high < 0), default=0.0)

    def named(word: str, verb: str) -> str:
        found = [op for op, entry in verdict["ops"].items() if entry["verdict"] == word]
        names = sorted(found, key=strength, reverse=True)
        more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
        return f"{in_words(names[:NAMED] + more)} {verb if len(names) == 1 else verb[:-1]}"

    words = {entry["verdict"] for entry in verdict["ops"].values()}
    parts = [named(word, word) for word in ("helps", "hurts") if word in words]
    if not parts:
        told = verdict["told"]
        return "Some ops depend on their level" if told else "No op can be told from uniform"
    return "; ".join(parts)


def _header(run: Run) -> Html:
    schedule, metrics = run.schedule, run.metrics
    data = run.settings.get("data")
    seeds = len(schedule.verdict.get("seeds", []))
    steps = f", {count(len(metrics), 'step')}," if len(metrics) else ""
    steps = f" with {seeds} seeds, joined," if seeds else steps
    on = f" on {data}" if data else ""
    took = f" took {duration(metrics.total_seconds)}" if metrics.total_seconds else ""
    summary = (
        f"A search of {count(run.epochs, 'epoch')}{steps}{on}{took or ' is done'}: "
        f"{count(len(schedule.space), 'candidate')}, "
        f"{count(schedule.space.depth, 'op')} per policy. "
        f"The share of images to augment {course(schedule.p_tp)}."
    )
    return el(
        "header",
        el("p", "ddas_gpu · search report", class_="eyebrow"),
        el("h1", headline(run), "."),
        el("p", summary, class_="summary"),
        _notes(run),
        _tiles(run),
    )


def _notes(run: Run) -> list[Html]:
    notes = []
    verdict = run.schedule.verdict
    if verdict and not verdict["told"] and not run.unfinished:
        notes.append(f"{verdict['sentence']} {as_uniform(run)}")
    if run.unfinished:
        notes.append(
            f"This run is not finished: {run.epochs} of "
            f"{count(run.planned_epochs, 'epoch')} so far."
        )
    if run.metrics.truncated:
        notes.append(
            "The last line of metrics.jsonl is cut off, as after a kill; it is ignored here."
        )
    return [el("p", note, class_="note", role="note") for note in notes]


def _tiles(run: Run) -> Html:
    schedule = run.schedule
    relative = ratios(schedule.p_o[-1])
    top, bottom = int(relative.argmax()), int(relative.argmin())
    entries = [
        ("images to augment", share_from_to(schedule.p_tp)[1], _share_remark(run)),
        ("most likely", str(schedule.space[top]), f"{times(relative[top])} uniform"),
        ("least likely", str(schedule.space[bottom]), f"{times(relative[bottom])} uniform"),
    ]
    seconds = run.metrics.total_seconds
    if seconds:
        images = np.nansum(run.metrics.numbers["images"])
        speed = f"{images / seconds:,.0f} images/s, augmented versions included"
        speed = speed if images else count(len(run.metrics), "step")
        entries.append(("time", duration(seconds), speed))
    return tiles(entries)


def _share_remark(run: Run) -> str:
    remark = since_start(run.schedule.p_tp)
    if "apply_probability" not in run.schedule.verdict:
        return remark
    low, high = map(percent, run.schedule.verdict["apply_probability"])
    return f"{remark}; {low} to {high} by its interval"


def _tables(run: Run) -> Html:
    """Return the numbers behind the charts, for screen readers, copying and sorting."""
    return section(
        "All numbers",
        None,
        el("details", el("summary", "Every candidate"), tables.candidate_table(run)),
        el("details", el("summary", "Every epoch"), tables.epoch_table(run)),
    )


def _footer() -> Html:
    return el(
        "footer",
        "Made by ddas_gpu, which implements Direct Differentiable Augmentation Search (ICCV 2021).",
    )
