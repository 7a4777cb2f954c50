"""The code of docs/extending.md works: every section is carried out in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text("utf-8")

BLOCK = re.compile(
    r"^```(?P<language>python|cpp|sh)\n(?:#|//) (?P<place>[^\n]+)\n(?P<code>.*?)^```$", re.M | re.S
)
COMMANDS = {"python": [sys.executable, "-c"], "sh": ["sh", "-ec"]}


class Block(NamedTuple):
    language: str
    place: str  # a file of the repository, or "run me"
    code: str


def sections() -> dict[str, list[Block]]:
    """Return the code blocks under each heading of the page."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.M)[1:]
    return {
        title: [Block(*match.group("language", "place", "code")) for match in BLOCK.finditer(text)]
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    }


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy in which `import ddas_gpu` finds the copied kernels, as in a wheel."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("ddas_gpu", "docs", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copytree(ROOT / "kernels", tmp_path / "ddas_gpu" / "kernels", ignore=ignored)
    (tmp_path / "kernels").symlink_to(tmp_path / "ddas_gpu" / "kernels")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(block: Block, repository: Path) -> None:
    search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        "PATH": search_path,
        "PYTHONPATH": str(repository),
        "DDAS_CACHE": str(repository / "cache"),
    }
    command = [*COMMANDS[block.language], block.code]
    result = subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{block.code}\n{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize("title", [title for title, blocks in sections().items() if blocks])
def test_the_code_of_a_section_works(title: str, repository: Path) -> None:
    blocks = sections()[title]
    assert any(block.place == "run me" for block in blocks), f"nothing checks {title!r}"
    for block in blocks:
        if block.place == "run me":
            run(block, repository)
        else:
            with (repository / block.place).open("a", encoding="utf-8") as file:
                file.write("\n\n" + block.code)


def test_every_block_of_code_says_where_it_belongs() -> None:
    assert len(BLOCK.findall(PAGE)) == PAGE.count("\n```\n") > 0


def test_an_op_is_one_declaration_and_one_pixel_function() -> None:
    files = [block.place for block in sections()["An op"] if block.place != "run me"]
    assert files == ["ddas_gpu/ops/table.py", "kernels/pixels.h"]
