"""Run folders of trainings for tests of the report, written by hand."""

from __future__ import annotations

import json
from pathlib import Path

from run_folders import schedule, write_samples

from ddas_gpu.space import SearchSpace


def epoch(number: int, **changes) -> dict:
    """One line of metrics.jsonl."""
    return {
        "epoch": number,
        "step": 4 * (number + 1),
        "loss": 2.0 / (1 + number),
        "accuracy": 0.5 + 0.1 * number,
        "test_loss": 1.5 / (1 + number),
        "test_accuracy": [0.6, 0.9, 0.8][number % 3],
        "test_top5_accuracy": 1.0,
        "apply_probability": 0.35,
        "learning_rate": 0.1,
        "seconds": {"data": 1.0, "training": 2.0, "evaluation": 0.5},
        "images": 128,
        **changes,
    }


def write_training(folder: Path, policy: str = "uniform", done: int = 3, **settings) -> Path:
    """A run folder as a training leaves it."""
    folder.mkdir(parents=True)
    config = {
        "version": 1,
        "command": "train",
        "settings": {"data": "digits", "model": "small", "policy": policy, "epochs": 3, **settings},
        "versions": {"torch": "2.13"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    lines = [json.dumps(epoch(n)) + "\n" for n in range(done)]
    (folder / "metrics.jsonl").write_text("".join(lines))
    write_samples(folder, ["one", "two"])
    if policy != "none":
        schedule(SearchSpace.preset("digits"), 2).save(folder / "policy.json")
    return folder


def write_seeds(folder: Path, policy: str, scores: list[float], **settings) -> list[Path]:
    """A finished training for each score."""
    folders = []
    for seed, score in enumerate(scores):
        run = write_training(folder / f"seed-{seed}", policy, seed=seed, **settings)
        lines = [json.dumps(epoch(n, test_accuracy=score)) + "\n" for n in range(3)]
        (run / "metrics.jsonl").write_text("".join(lines))
        folders.append(run)
    return folders
