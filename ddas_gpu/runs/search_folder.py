"""The folder of a search: a run's folder, with the division of the images in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ddas_gpu.files import write_atomically
from ddas_gpu.runs.folder import RunFolder, read_config
from ddas_gpu.search.settings import SearchSettings

if TYPE_CHECKING:
    from ddas_gpu.runs.folder import Images

SPLIT = "split.json"


def read_settings(folder: Path) -> SearchSettings:
    """The settings of the search in `folder`."""
    return read_config(folder, "search", SearchSettings)


class SearchFolder(RunFolder):
    """Beside what every run has: split.json; and in the end policy.json, what was found."""

    @classmethod
    def create(cls, settings: SearchSettings, train: Images, validation: Images) -> SearchFolder:
        def write(path: Path) -> None:
            split = {"train": train.members, "validation": validation.members}
            text = json.dumps(split, ensure_ascii=False)
            write_atomically(path / SPLIT, f"{text}\n".encode())

        return cls.begin("search", settings, train, write)
