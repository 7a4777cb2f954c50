"""The code of every page in docs/ works, in its order; docs/extending.md has a test of its own.

python   runs; the blocks of a page share their names
sh       runs
bash     is read by the parsers of our commands: data and hours are missing here
text     is not code
"""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import setuptools
from PIL import Image
from small_coco import write_coco

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.__main__ import COMMANDS, main

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md") if page.name != "extending.md")
FROM_NOTHING = {"first-hour.md", "target-domain.md"}  # begin in an empty folder
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
LANGUAGES = {"python", "sh", "bash", "text"}
PUBLIC = ("ddas_gpu", "ddas_gpu.ops", "ddas_gpu.gradients", "ddas_gpu.pipelines")
OPTIONAL = {"accelerate", "lightning", "nvidia", "transformers", "ultralytics"}

# The function behind the parser of each command, and what it returns if all is well.
WORK: dict[str, tuple[str, Any]] = {
    "search": ("run", 0),
    "train": ("run", 0),
    "compare": ("run", 0),
    "evaluate": ("run", 0),
    "report": ("write_reports", ()),
    "export": ("export", ""),
    "scan": ("scan", ()),
    "doctor": ("run", 0),
}


class Block(NamedTuple):
    language: str
    code: str
    line: int  # of the first line of code, counted from 0


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(*match.group("language", "code"), text[: match.start("code")].count("\n"))
        for match in FENCE.finditer(text)
    ]


def write_images(root: Path, per_class: int) -> None:
    generator = np.random.default_rng(0)
    for label in ("cat", "dog", "fox"):
        (root / label).mkdir(parents=True)
        for number in range(per_class):
            small = Image.fromarray(generator.integers(0, 256, (5, 6, 3), np.uint8))
            small.resize((40, 36 + number)).save(root / label / f"{number}.png")


def write_policy(space: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    candidates = SearchSpace.preset(space)
    rows = np.full((2, len(candidates)), 1 / len(candidates))
    PolicySchedule(candidates, np.array([0.2, 0.8]), rows).save(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: empty, with DDAS_DATA unset."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DDAS_DATA", raising=False)
    yield tmp_path


def fill(folder: Path) -> None:
    """Write what pages take for granted: images, boxes, a policy."""
    write_images(folder / "photos" / "train", 7)
    write_images(folder / "photos" / "test", 3)
    write_images(folder / "data" / "imagenet" / "train", 2)
    write_coco(folder / "data" / "coco")
    write_policy("digits", folder / "policy.json")
    write_policy("coco", folder / "runs" / "coco-1" / "policy.json")


def run_python(block: Block, page: Path, names: dict[str, Any]) -> None:
    code = compile("\n" * block.line + block.code, str(page), "exec")
    try:
        exec(code, names)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in OPTIONAL:
            pytest.skip(f"{page.name} needs {error.name}")
        raise


def run_shell(code: str) -> None:
    code = re.sub(r"^ddas ", f"{shlex.quote(sys.executable)} -m ddas_gpu ", code, flags=re.M)
    result = subprocess.run(["sh", "-ec", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{code}\n{result.stdout}\n{result.stderr}"


def commands_in(code: str) -> list[list[str]]:
    """Return the words of each command; a backslash continues a line, # begins a comment."""
    lines = code.replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def ours(words: list[str]) -> list[str] | None:
    """Return the arguments of `ddas`, or None if the command is not ours."""
    if words[0] == "ddas":
        return words[1:]
    if words[0] in ("python", "torchrun") and "-m" in words:
        place = words.index("-m") + 1
        if words[place].startswith("ddas_gpu."):
            return [words[place].removeprefix("ddas_gpu."), *words[place + 1 :]]
    return None


def check_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail for a flag, a target, an extra or an example that does not exist."""
    arguments = ours(words)
    if arguments is not None:
        function, returned = WORK[arguments[0]]
        module = import_module(COMMANDS[arguments[0]][0])
        with monkeypatch.context() as patch:
            patch.setattr(module, function, lambda *_, **__: returned)
            assert main(arguments) == 0, words
    elif words[0] == "make":
        assert f"\n{words[1]}: " in (ROOT / "Makefile").read_text("utf-8"), words
    elif words[:2] == ["pip", "install"]:
        for extra in re.findall(r"[\w]+(?=[,\]])", words[2]):
            assert extra in extras(monkeypatch), words
    else:
        pytest.fail(f"nothing checks the command {words}")


def extras(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    found: dict[str, Any] = {}
    with monkeypatch.context() as patch:
        patch.setattr(setuptools, "setup", found.update)
        runpy.run_path(str(ROOT / "setup.py"))
    return found["extras_require"]


def follow(page: Path, blocks: list[Block], monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        if block.language == "python":
            run_python(block, page, names)
        elif block.language == "sh":
            run_shell(block.code)
        elif block.language == "bash":
            for words in commands_in(block.code):
                check_command(words, monkeypatch)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_page_works(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in FROM_NOTHING:
        fill(folder)
    follow(DOCS / name, blocks_of(DOCS / name), monkeypatch)


def test_the_code_of_the_readme_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder)
    blocks = blocks_of(ROOT / "README.md")
    scripts = [block for block in blocks if block.language == "python"][:2]  # tests/test_readme.py
    names = Block("python", "import ddas_gpu\n", 0)
    rest = [names, *(block for block in blocks if block not in scripts)]
    follow(ROOT / "README.md", rest, monkeypatch)


@pytest.mark.parametrize("page", [*(DOCS / name for name in PAGES), ROOT / "README.md"])
def test_every_block_says_what_it_is(page: Path) -> None:
    assert {block.language for block in blocks_of(page)} <= LANGUAGES
    assert len(re.findall(r"^```", page.read_text("utf-8"), re.M)) == 2 * len(blocks_of(page))


def test_a_wrong_flag_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for line in ("ddas search --epoch-count 3", "make coffee", 'pip install ".[cuda1]"'):
        with pytest.raises((AssertionError, SystemExit)):
            check_command(shlex.split(line), monkeypatch)


def test_examples_and_pages_that_are_named_exist() -> None:
    for page in [*DOCS.glob("*.md"), ROOT / "README.md"]:
        text = page.read_text("utf-8")
        for file in re.findall(r"(?:examples|benchmarks|docs)/[\w-]+\.(?:py|md)", text):
            assert (ROOT / file).is_file(), f"{page.name} names {file}"


def test_the_api_page_has_every_public_name() -> None:
    page = (DOCS / "api.md").read_text("utf-8")
    shown = re.findall(r"^::: ([\w.]+)\.(\w+)$", page, re.M)
    homes = {name: home for home, name in shown}
    for module in map(import_module, PUBLIC):
        for name in set(module.__all__) - {"dali", "gradients", "ops"}:  # modules
            assert name in homes, f"{module.__name__}.{name} is missing"
            assert getattr(import_module(homes[name]), name) is getattr(module, name)


def test_docstrings_become_lists_and_examples() -> None:
    pytest.importorskip("griffe", reason="mkdocstrings is not installed: ddas_gpu[docs]")
    to_markdown = runpy.run_path(str(DOCS / "docstring_markdown.py"))["to_markdown"]
    given = "Do it.\n\nroot: a folder,\n    or files.\nmean, std: of all. The\nrest.\nAll is well"
    assert to_markdown(given) == (
        "Do it.\n\n- **root**: a folder,\n    or files.\n- **mean, std**: of all. The\n    rest."
        "\n\nAll is well"
    )
    assert to_markdown(">>> 1\n1") == "```pycon\n>>> 1\n1\n```"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: ddas_gpu[docs]")
    pytest.importorskip("material", reason="mkdocs-material is not installed: ddas_gpu[docs]")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: ddas_gpu[docs]")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    pages = {page.stem for page in DOCS.glob("*.md")}
    assert pages <= {page.stem for page in tmp_path.glob("*.html")}
    built = "".join(page.read_text("utf-8") for page in tmp_path.glob("*.html"))
    assert not re.search(r'(?:src|href)="https?://[^"]+\.(?:js|css|woff2?)"', built)
