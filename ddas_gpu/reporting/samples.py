"""Real images under the policy, as pictures inside the page."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from ddas_gpu.policy import PolicySchedule
from ddas_gpu.reporting.html import Html, el
from ddas_gpu.reporting.numbers import share_from_to
from ddas_gpu.reporting.run import Samples

SEED = 0  # the same draws whenever a page is rebuilt, and in every page
LARGEST = 224  # pixels a side in the page
SMALL = 64  # images up to this side are shown with their pixels


def picture(image: np.ndarray, alt: str) -> Html:
    """An image as a PNG inside the page."""
    height, width = image.shape[:2]
    drawn = Image.fromarray(image)
    drawn.thumbnail((LARGEST, LARGEST))
    buffer = io.BytesIO()
    drawn.save(buffer, "PNG", optimize=True)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return el(
        "img",
        src=f"data:image/png;base64,{data}",
        alt=alt,
        width=width,
        height=height,
        class_="pixels" if max(height, width) <= SMALL else None,
    )


def draw_policies(schedule: PolicySchedule, epoch: int, images: int) -> np.ndarray:
    """A policy for each image from p_o of an epoch: (images, depth) candidate indices."""
    p_o = schedule.p_o[epoch]
    generator = np.random.default_rng([SEED, epoch % len(schedule.p_o)])
    return generator.choice(len(p_o), size=(images, schedule.space.depth), p=p_o / p_o.sum())


def candidate_pictures(
    schedule: PolicySchedule, samples: Samples, candidates: list[int]
) -> list[Html]:
    """What each candidate does to one of the samples, another one each time."""
    from ddas_gpu.ops import augment  # loads the back ends; only needed with samples

    which = np.arange(len(candidates)) % len(samples.images)
    policies = np.full((len(candidates), schedule.space.depth), -1)
    policies[:, 0] = candidates
    images = np.ascontiguousarray(samples.images[which])
    changed = augment(images, policies, schedule.space, seed=SEED)
    return [
        picture(image, f"{samples.names[w]} under {schedule.space[c]}")
        for image, w, c in zip(changed, which, candidates, strict=True)
    ]


def sample_sheet(schedule: PolicySchedule, samples: Samples) -> Html:
    """Every sample clean, under a policy of the first epoch and under one of the last."""
    from ddas_gpu.ops import augment

    clean = np.ascontiguousarray(samples.images)
    last = len(schedule.p_o) - 1
    titles = [f"epoch {epoch + 1}" for epoch in (0, last)]
    drawn = [draw_policies(schedule, epoch, len(clean)) for epoch in (0, last)]
    changed = [augment(clean, policies, schedule.space, seed=SEED) for policies in drawn]
    figures = []
    for i, name in enumerate(samples.names):
        cells = [_cell("clean", picture(clean[i], name), name)]
        for title, policies, images in zip(titles, drawn, changed, strict=True):
            ops = [str(schedule.space[c]) for c in policies[i]]
            alt = f"{name} under {', then '.join(ops)}"
            cells.append(_cell(title, picture(images[i], alt), *ops))
        figures.append(el("li", cells))
    shares = share_from_to(schedule.p_tp)
    heads = [
        el("b", title, el("small", f"{share} of the images"))
        for title, share in zip(titles, shares, strict=True)
    ]
    return el(
        "div",
        el("div", el("b", "clean"), heads, class_="heads", aria_hidden="true"),
        el("ul", figures),
        class_="sheet",
        style=f"--samples:{len(clean)}",
    )


def _cell(title: str, image: Html, *caption: str) -> Html:
    lines = [el("span", line) for line in caption]
    return el("figure", el("b", title), image, el("figcaption", lines))
