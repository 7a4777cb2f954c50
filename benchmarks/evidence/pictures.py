"""The page's pictures: plain SVG, black on white."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image

from .images import DOMAINS, decoded, parts
from .numbers import PEERS, SEARCHED, Standing, estimate
from .protocol import DATA, SAME

COLOURS = {
    "none": "#999999",
    "standard": "#5b5b5b",
    "uniform": "#8fb8de",
    "uniform-searched": "#2f6fad",
    "randaugment": "#e69f00",
    "trivialaugment": "#8cc29a",
    "trivialaugment-wide": "#1b8a5a",
    "released": "#b07cc6",
    SEARCHED: "#d81b3a",
}
NAMES = {**PEERS, SEARCHED: "searched"}
FONT = 'font-family="sans-serif" font-size="12"'
SAMPLES = 6
SIDE = 30  # pixels per side of a sample on the picture


class Drawing:
    """SVG elements on white."""

    def __init__(self, width: int, height: int) -> None:
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT}>',
            f'<rect width="{width}" height="{height}" fill="white"/>',
        ]

    def text(
        self, x: float, y: float, words: str, anchor: str = "start", fill: str = "#222"
    ) -> None:
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"'
        self.parts.append(f"<text {place}>{escape(words)}</text>")

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        style = f'fill="none" stroke="{colour}" stroke-width="{width}"'
        self.parts.append(f'<polyline points="{path}" {style}/>')

    def dot(self, x: float, y: float, colour: str, radius: float = 4) -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>')

    def image(self, x: float, y: float, side: int, image: Image.Image) -> None:
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        content = base64.b64encode(buffer.getvalue()).decode()
        place = f'x="{x}" y="{y}" width="{side}" height="{side}" style="image-rendering:pixelated"'
        self.parts.append(f'<image {place} href="data:image/png;base64,{content}"/>')

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*self.parts, "</svg>\n"]), "utf-8")


def samples(domain: str) -> list[Image.Image]:
    """Return some digits as they are, or as the domain has them."""
    (images, _, _), chosen = parts(DATA["digits"], 0)["test"]
    change, random = DOMAINS[domain][0], np.random.default_rng(0)
    size = DATA["digits"].size
    return [change(decoded(images[place], size), random) for place in chosen[:SAMPLES]]


def draw_samples(drawing: Drawing, domain: str, label: str, middle: float) -> None:
    drawing.text(10, middle + 4, label)
    for place, image in enumerate(samples(domain)):
        drawing.image(90 + place * (SIDE + 2), int(middle - SIDE / 2), SIDE, image)


def accuracies(standings: Sequence[Standing], path: Path, with_samples: bool) -> None:
    """Draw the accuracy of every peer with its standard error, a row per domain."""
    left = 95 + (SAMPLES * (SIDE + 2) + 15 if with_samples else 0)
    width, row = left + 430, 44
    top = 62 + (row if with_samples else 0)
    height = top + row * len(standings) + 28
    drawing = Drawing(width, height)
    names = [name for name in COLOURS if any(name in s.scores for s in standings)]
    for place, name in enumerate(names):
        x, y = 12 + place % 4 * (width / 4), 16 + place // 4 * 17
        drawing.dot(x, y - 4, COLOURS[name])
        drawing.text(x + 8, y, NAMES[name])
    drawn = [estimate(list(v.values())).mean for s in standings for v in s.scores.values()]
    low, high = 10 * (min(drawn) // 10), min(100, 10 * -(-max(drawn) // 10))

    def across(value: float) -> float:
        return left + (value - low) / (high - low) * (width - left - 20)

    for tick in range(int(low), int(high) + 1, 10):
        x = across(tick)
        drawing.line([(x, top), (x, height - 26)], "#e4e4e4")
        drawing.text(x, height - 10, f"{tick} %" if tick == low else str(tick), "middle")
    if with_samples:
        draw_samples(drawing, SAME, "training", top - row / 2)
    for number, standing in enumerate(standings):
        middle = top + row * number + row / 2
        if with_samples:
            draw_samples(drawing, standing.domain, standing.domain, middle)
        else:
            drawing.text(10, middle + 4, standing.domain)
        for place, name in enumerate(names):
            if name not in standing.scores:
                continue
            found = estimate(list(standing.scores[name].values()))
            y = middle + (place - (len(names) - 1) / 2) * (row - 12) / len(names)
            ends = [(across(found.mean + sign * found.error), y) for sign in (-1, 1)]
            drawing.line(ends, COLOURS[name], 1.5)
            drawing.dot(across(found.mean), y, COLOURS[name], 4.5 if name == SEARCHED else 3)
        bottom = middle + row / 2
        drawing.line([(8, bottom), (width - 8, bottom)], "#d0d0d0", 0.5)
    drawing.save(path)


Curve = tuple[str, str, Sequence[float]]  # label, colour, values


def curves(given: Sequence[Curve], path: Path, across: str, up: str) -> None:
    """Draw curves over the epochs, each over the whole width."""
    width, height, left, top = 640, 340, 46, 28
    right, bottom = width - 190, height - 40
    drawing = Drawing(width, height)
    highest = max(max(values) for _, _, values in given)
    high = min(1.0, 0.1 * -(-highest // 0.1))

    def place(index: int, values: Sequence[float]) -> tuple[float, float]:
        x = left + index / max(1, len(values) - 1) * (right - left)
        return x, bottom - values[index] / high * (bottom - top)

    for tick in np.arange(0, high + 0.001, 0.1 if high <= 0.6 else 0.2):
        y = bottom - tick / high * (bottom - top)
        drawing.line([(left, y), (right, y)], "#e4e4e4")
        drawing.text(left - 6, y + 4, f"{tick:.1f}", "end")
    drawing.text((left + right) / 2, height - 12, across, "middle")
    drawing.text(8, 12, up)
    labels = []
    for label, colour, values in given:
        drawing.line([place(index, values) for index in range(len(values))], colour, 1.8)
        if label:
            labels.append((place(len(values) - 1, values)[1], label, colour))
    lowest = 0.0
    for y, label, colour in sorted(labels):
        lowest = max(y + 4, lowest + 15)
        drawing.text(right + 8, lowest, label, fill=colour)
    drawing.save(path)
