"""Run folders for tests of the report, written by hand, and a check of the pages."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import SearchSpace

STAGES = ("data", "augment", "gradients", "validation", "dot", "update")


def schedule(space: SearchSpace, epochs: int, seed: int = 0) -> PolicySchedule:
    """Probabilities that drift apart from uniform."""
    generator = np.random.default_rng(seed)
    alpha = generator.normal(0, 0.2, (epochs, len(space))).cumsum(0)
    p_o = np.exp(alpha) / np.exp(alpha).sum(1, keepdims=True)
    return PolicySchedule(space, np.linspace(0.35, 0.22, epochs), p_o, {"seed": seed})


def step(epoch: int, number: int, **changes: Any) -> dict[str, Any]:
    """One line of metrics.jsonl."""
    return {
        "epoch": epoch,
        "step": number,
        "loss": 2.0 / (1 + number),
        "clean_loss": 1.5 / (1 + number),
        "validation_loss": 2.5 / (1 + number),
        "apply_probability": 0.35 - 0.01 * epoch,
        "policies": [[0, 1]],
        "rewards": [0.5],
        "learning_rate": 0.05,
        "seconds": {stage: 0.01 * (n + 1) for n, stage in enumerate(STAGES)},
        "images": 384,
        **changes,
    }


def write_run(
    folder: Path,
    *,
    space: SearchSpace | None = None,
    epochs: int = 3,
    planned: int | None = None,
    seed: int = 0,
    samples: int = 3,
    **settings: Any,
) -> Path:
    """A run folder as a search leaves it, with two steps an epoch."""
    folder.mkdir(parents=True, exist_ok=True)
    space = space or SearchSpace.preset("digits")
    schedule(space, epochs, seed).save(folder / "policy.json")
    settings = {"data": "digits", "seed": seed, "epochs": planned or epochs, **settings}
    config = {
        "version": 1,
        "command": "search",
        "settings": settings,
        "versions": {"python": "3.11"},
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    lines = [json.dumps(step(n // 2, n)) + "\n" for n in range(2 * epochs)]
    (folder / "metrics.jsonl").write_text("".join(lines), "utf-8")
    if samples:
        write_samples(folder, [f"class {n}" for n in range(samples)])
    return folder


def write_samples(folder: Path, names: list[str], side: int = 16) -> None:
    generator = np.random.default_rng(1)
    images = generator.integers(0, 256, (len(names), side, side, 3), dtype=np.uint8)
    np.savez(folder / "samples.npz", images=images, labels=np.arange(len(names)), names=names)


class Page(HTMLParser):
    """A page taken apart: fails on tags that do not match; keeps text, tags and attributes."""

    VOID = ("img", "meta")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.text: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in {tag}: {attrs}"
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-1:] not in (["style"], ["script"]):
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))

    def assert_self_contained(self) -> None:
        without_pictures = re.sub(r"data:image/png;base64,[\w+/=]+", "", self.html)
        assert not re.search(r"https?:|url\(|@import|//\w", without_pictures)
        for tag, attributes in self.tags:
            assert tag not in ("link", "iframe", "object", "embed", "base"), tag
            for name in ("src", "href", "srcset", "xlink:href"):
                value = attributes.get(name)
                assert value is None or value.startswith("data:image/png;base64,"), value
