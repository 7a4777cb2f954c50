"""Sample images under the policy, embedded in the page."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image, ImageDraw

from ddas_gpu.policy import PolicySchedule
from ddas_gpu.report.html import Html, el
from ddas_gpu.report.numbers import share_from_to
from ddas_gpu.report.reading import Samples
from ddas_gpu.space import SearchSpace

SEED = 0  # the same draws in every page
LARGEST = 224  # pixels per side in the page
SMALL = 64  # images up to this side are shown with their pixels
BOX, EDGE = (255, 221, 0), (0, 0, 0)  # visible on any photograph


def picture(image: np.ndarray, alt: str) -> Html:
    """Return an image as an embedded PNG."""
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


def outlined(image: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Draw the boxes (n, 4) on the image, resized for the page."""
    drawn = Image.fromarray(image)
    factor = LARGEST // max(drawn.size)
    if factor > 1:  # enlarge, or the lines would cover small boxes
        drawn = drawn.resize(
            (drawn.width * factor, drawn.height * factor), Image.Resampling.NEAREST
        )
    drawn.thumbnail((LARGEST, LARGEST))
    scale = np.array(drawn.size * 2) / (image.shape[1::-1] * 2)
    pen = ImageDraw.Draw(drawn)
    for box in boxes * scale:
        x0, y0, x1, y1 = (int(v) for v in np.round(box))
        pen.rectangle((x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), outline=EDGE, width=3)
        pen.rectangle((x0 + 1, y0 + 1, max(x0 + 1, x1 - 2), max(y0 + 1, y1 - 2)), outline=BOX)
    return np.asarray(drawn)


def clean_views(samples: Samples) -> list[np.ndarray]:
    """Return the samples without augmentation; for detection with their boxes."""
    if samples.boxes is None:
        return list(samples.images)
    return [outlined(*sample) for sample in zip(samples.images, samples.boxes, strict=True)]


def augmented_views(
    samples: Samples, which: np.ndarray, policies: np.ndarray, space: SearchSpace
) -> list[np.ndarray]:
    """Augment the samples `which`, each by its own policy; boxes move with the pixels."""
    from ddas_gpu.ops import augment, augment_boxes  # slow to import
    from ddas_gpu.ops.table import BOX_OPS

    if samples.boxes is None and not any(candidate.op in BOX_OPS for candidate in space):
        chosen = np.ascontiguousarray(samples.images[which])
        return list(augment(chosen, policies, space, seed=SEED))
    images = [samples.images[w] for w in which]
    if samples.boxes is None:  # of a user's own task, in targets that only it can read
        boxes = [np.array([[0.0, 0.0, *image.shape[1::-1]]]) for image in images]
    else:
        boxes = [samples.boxes[w] for w in which]
    labels = [np.zeros(len(b), np.int64) for b in boxes]
    images, boxes, _ = augment_boxes(images, boxes, labels, policies, space, SEED)
    if samples.boxes is None:
        return images
    return [outlined(*sample) for sample in zip(images, boxes, strict=True)]


def draw_policies(schedule: PolicySchedule, epoch: int, images: int) -> np.ndarray:
    """Draw a policy for each image from p_o of an epoch: (images, depth) candidate indices."""
    p_o = schedule.p_o[epoch]
    generator = np.random.default_rng([SEED, epoch % len(schedule.p_o)])
    return generator.choice(len(p_o), size=(images, schedule.space.depth), p=p_o / p_o.sum())


def candidate_pictures(
    schedule: PolicySchedule, samples: Samples, candidates: list[int]
) -> list[Html]:
    """Show each candidate on a sample, another sample each time."""
    which = np.arange(len(candidates)) % len(samples.images)
    policies = np.full((len(candidates), schedule.space.depth), -1)
    policies[:, 0] = candidates
    changed = augmented_views(samples, which, policies, schedule.space)
    return [
        picture(image, f"{samples.names[w]} under {schedule.space[c]}")
        for image, w, c in zip(changed, which, candidates, strict=True)
    ]


def sample_sheet(schedule: PolicySchedule, samples: Samples, done: int, total_epochs: int) -> Html:
    """Show every sample clean, and under policies of the first and of the last epoch.

    done: epochs so far of a run of `total_epochs`, to which the schedule is stretched.
    """
    schedule = schedule.replayed
    clean, everyone = clean_views(samples), np.arange(len(samples.images))
    entries = {  # of the schedule: the number of an epoch that uses it
        (2 * epoch + 1) * len(schedule) // (2 * total_epochs): epoch + 1
        for epoch in sorted({0, done - 1}, reverse=True)
    }
    epochs = sorted(entries)
    whole = len(schedule) == 1
    titles = ["every epoch" if whole else f"epoch {entries[entry]}" for entry in epochs]
    drawn = [draw_policies(schedule, entry, len(clean)) for entry in epochs]
    changed = [augmented_views(samples, everyone, p, schedule.space) for p in drawn]
    figures = []
    for i, name in enumerate(samples.names):
        cells = [_cell("clean", picture(clean[i], name), name)]
        for title, policies, images in zip(titles, drawn, changed, strict=True):
            ops = [str(schedule.space[c]) for c in policies[i]]
            alt = f"{name} under {', then '.join(ops)}"
            cells.append(_cell(title, picture(images[i], alt), *ops))
        figures.append(el("li", cells))
    shares = share_from_to(schedule.p_tp[epochs])[: len(epochs)]
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
