"""The script of the README runs: from a data set and a network to a trained network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from own_data import DIGITS

README = (Path(__file__).resolve().parent.parent / "README.md").read_text("utf-8")


def scripts() -> list[str]:
    """What the user has, and the script that trains it."""
    section = README.split("## Your own network, your own data\n")[1]
    return re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)[:2]


def test_the_script_has_at_most_15_lines():
    assert sum(bool(line.strip()) for line in scripts()[1].splitlines()) <= 15


@pytest.mark.usefixtures("one_thread")
def test_the_script_trains_a_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "__main__"}
    for script in scripts():
        exec(script, names)
    assert len(names["result"].policy) == 5 and not any(tmp_path.iterdir())
    images, labels = (value[1200:] for value in (DIGITS.images, DIGITS.labels))
    inputs = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
    assert (names["model"](inputs).argmax(1).numpy() == labels).mean() > 0.85
