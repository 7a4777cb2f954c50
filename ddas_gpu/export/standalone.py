"""Exported files: a policy schedule as one Python file that does not need this package.

A file is made of the sources of `ddas_gpu.export.parts`, the Pillow functions of the ops, and the
numbers of the schedule. Of the policy file only numbers, checked op names and a few words about its
origin get in, and of those words only letters, digits and harmless signs.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from ddas_gpu.export.differences import ALBUMENTATIONS_FILE, DALI_FILE, Difference
from ddas_gpu.ops.table import BOX_OPS, Op, find
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import SearchSpace

PARTS = "ddas_gpu.export.parts"
PILLOW = ("Image", "ImageEnhance", "ImageFilter", "ImageOps")  # modules that ops may use
WIDTH = 100


@dataclass(frozen=True)
class Target:
    """A library to export to."""

    title: str
    needs: str
    parts: tuple[str, ...]  # modules of `ddas_gpu.export.parts`
    differences: Mapping[str, Difference] = field(default_factory=dict)
    # Whether the last part defines an op itself; the others are Pillow functions.
    own: Callable[[Op], bool] = lambda op: False


TARGETS = {
    "pillow": Target(
        title="Pillow and numpy",
        needs="Pillow and numpy",
        parts=("schedule", "pillow_ops", "pillow_policy"),
    ),
    "torchvision": Target(
        title="torchvision's transforms v2",
        needs="torchvision 0.21 or later, and Pillow",
        parts=("schedule", "pillow_ops", "torchvision_policy"),
    ),
    "albumentations": Target(
        title="Albumentations",
        needs="Albumentations 2, Pillow and numpy",
        parts=("schedule", "pillow_ops", "albumentations_policy"),
        differences=ALBUMENTATIONS_FILE,
        own=lambda op: op.matrix is not None,
    ),
    "dali": Target(
        title="NVIDIA DALI",
        needs="DALI 1.44 or later, and numpy",
        parts=("schedule", "dali_policy"),
        differences=DALI_FILE,
        own=lambda op: True,
    ),
}


def exported(schedule: PolicySchedule, target: str, versions: Mapping[str, Any]) -> str:
    """Return the schedule as a Python file for a target.

    versions: of the packages that made the policy, for the head of the file.
    """
    if target not in TARGETS:
        raise ValueError(f"unknown target {target!r}; there are: {', '.join(TARGETS)}")
    chosen = TARGETS[target]
    schedule = schedule.replayed
    ops = _ops_of(schedule.space)
    _check_complete(chosen, ops)
    pillow_ops = [op for op in ops if not chosen.own(op)]
    functions = _functions(pillow_ops)
    sources = [_source(part) for part in chosen.parts]
    parsed = [ast.parse(source) for source in sources]
    imports = {line for tree in parsed for line in _imports(tree)} | {"from typing import Any"}
    if functions:
        imports.add(f"from PIL import {', '.join(PILLOW)}")
        imports.discard("from PIL import Image")
    start = [
        _head(schedule, chosen, ops, versions),
        "from __future__ import annotations",
        _sorted_imports(imports),
        _constants(schedule, ops),
    ]
    code = [
        *functions,
        *_op_table(pillow_ops),
        *(_body(source, tree) for source, tree in zip(sources, parsed, strict=True)),
        _numbers(schedule),  # last: a reader sees the code first
    ]
    return "\n\n\n".join(["\n\n".join(start), *code]) + "\n"


def _ops_of(space: SearchSpace) -> list[Op]:
    names = dict.fromkeys(candidate.op for candidate in space)
    with_boxes = [name for name in names if name in BOX_OPS]
    if with_boxes:
        raise ValueError(
            f"{with_boxes[0]} transforms boxes, which exported files cannot: train such a policy "
            "with ddas_gpu.detection_loader"
        )
    return [find(name) for name in names]


def _check_complete(target: Target, ops: list[Op]) -> None:
    """Raise a ValueError if a target with its own ops lacks one: an op that a user has added."""
    source = _source(target.parts[-1])
    for op in ops:
        if target.own(op) and f'"{op.name}": ' not in source:
            raise ValueError(f"the export to {target.title} does not have the op {op.name}")


def recorded_versions(policy: Path) -> dict[str, Any]:
    """Return the versions of the packages that made a policy file; {} if it does not say."""
    found = json.loads(policy.read_bytes()).get("versions")
    return found if isinstance(found, dict) else {}


# --- sources --------------------------------------------------------------------------------------


def _source(part: str) -> str:
    return resources.files(PARTS).joinpath(f"{part}.py").read_text("utf-8")


def _imports(tree: ast.Module) -> Iterable[str]:
    """Yield the imports of a module, without those of this package."""
    for node in tree.body:
        if isinstance(node, ast.Import) or (
            isinstance(node, ast.ImportFrom)
            and not (node.module or "").startswith(("ddas_gpu", "__future__"))
        ):
            yield ast.unparse(node)


def _sorted_imports(lines: Iterable[str]) -> str:
    """Return imports of the standard library, then the others."""
    standard = ("import math", "import multiprocessing", "import random", "from typing")
    first: list[str] = []
    then: list[str] = []
    for line in sorted(lines, key=lambda line: (line.startswith("from"), line)):
        (first if line.startswith(standard) else then).append(line)
    return "\n".join(first) + "\n\n" + "\n".join(then)


def _body(source: str, tree: ast.Module) -> str:
    """Return a module without its docstring and imports."""
    last = max(
        node.end_lineno or 0
        for node in tree.body[:1] + [n for n in tree.body if isinstance(n, _IMPORTS)]
    )
    return "\n".join(source.splitlines()[last:]).strip("\n")


_IMPORTS = (ast.Import, ast.ImportFrom)


def _functions(ops: list[Op]) -> list[str]:
    """Return the sources of the ops' Pillow functions, and of what those call."""
    found: dict[str, str] = {}
    for op in ops:
        _add_function(op.pillow, found)
    return list(found.values())


def _add_function(function: Any, found: dict[str, str]) -> None:
    """Add a function after those of its own module that it calls, and the types it names."""
    source = _undecorated(function)
    for name in sorted({n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)}):
        value = function.__globals__.get(name)
        if name in found or name == function.__name__ or name in PILLOW or value is None:
            continue
        if isinstance(value, types.GenericAlias):
            found[name] = f"{name} = {value!r}"
        elif getattr(value, "__module__", None) == function.__module__ and callable(value):
            _add_function(value, found)
        else:
            raise ValueError(f"{function.__name__} cannot be exported, because it uses {name}")
    found[function.__name__] = source


def _undecorated(function: Any) -> str:
    source = textwrap.dedent(inspect.getsource(function))
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef)
    return "\n".join(source.splitlines()[node.lineno - 1 :])


# --- the policy -----------------------------------------------------------------------------------


def _constants(schedule: PolicySchedule, ops: list[Op]) -> str:
    space = schedule.space
    candidates = "".join(
        f"    ({candidate.op!r}, {space.argument(index)!r}),".replace("'", '"')
        + ("" if candidate.level is None else f"  # level {candidate.level:g}")
        + "\n"
        for index, candidate in enumerate(space)
    )
    return "\n".join(
        [
            "Argument = Any  # a number, or None for an op without one",
            f"CANDIDATES = [  # (op, argument)\n{candidates}]",
            f"DEPTH = {space.depth}  # ops per augmented image",
            f"FILL = {space.fill}  # grey of pixels from outside the image and of Cutout's square",
            f"SIGNED = {_names(op.name for op in ops if op.signed)}  # the sign is drawn",
            f"CENTRED = {_names(op.name for op in ops if op.centred)}  # the centre is drawn",
            f"FILLED = {_names(op.name for op in ops if op.fills)}",
        ]
    )


def _names(names: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _op_table(ops: list[Op]) -> list[str]:
    entries = "".join(f'    "{op.name}": {op.name},\n' for op in ops)
    return [f"OPS = {{\n{entries}}}"] if ops else ["OPS: dict[str, Any] = {}"]


def _numbers(schedule: PolicySchedule) -> str:
    rows = "".join(f"    {row!r},\n" for row in schedule.p_o.tolist())
    return (
        "# --- the schedule: one entry per epoch of the search "
        f"{'-' * 46}\n\n"
        f"# The probability to augment an image.\nP_TP = {schedule.p_tp.tolist()!r}\n\n"
        f"# The probability of each candidate.\nP_O = [\n{rows}]"
    )


# --- the head -------------------------------------------------------------------------------------


def _head(
    schedule: PolicySchedule, target: Target, ops: list[Op], versions: Mapping[str, Any]
) -> str:
    lines = [
        f"An augmentation policy for {target.title}, found by ddas_gpu, which this file does not "
        "need.",
        "",
        f"It needs {target.needs}. `Policy(epochs)` replays the {len(schedule)} entries of the "
        "schedule, stretched to the epochs of your training; call `set_epoch` before each epoch. "
        "The random draws are not those of ddas_gpu.",
        "",
        *_origin(schedule, versions),
        "",
        *_differences_in_words(target, ops),
    ]
    wrapped = "\n".join(
        textwrap.fill(line, WIDTH - 2, subsequent_indent="  " if line.startswith("- ") else "")
        for line in lines
    )
    return f'"""{wrapped}\n"""'


def _origin(schedule: PolicySchedule, versions: Mapping[str, Any]) -> list[str]:
    settings = schedule.settings
    known = {key: settings[key] for key in ("data", "model", "seed", "released") if key in settings}
    made_by = ", ".join(f"{plain(name)} {plain(number)}" for name, number in versions.items())
    found = ", ".join(f"{key} {plain(value)}" for key, value in known.items()) or "not recorded"
    space = schedule.space
    return [
        f"- Origin: {found}.",
        f"- Candidates: {len(space)}, {space.depth} per augmented image, fill {space.fill}.",
        f"- Versions: {made_by or 'not recorded'}.",
    ]


def plain(value: object) -> str:
    """Return a word of the policy file that is safe in a docstring: no quote, line end or path.

    >>> plain("/home/me/data"), plain("x' + 1")
    ('data', 'x? + 1')
    """
    text = re.split(r"[/\\]", str(value).rstrip("/\\"))[-1]
    return re.sub(r"[^0-9A-Za-z_.:+ -]", "?", text)[:80]


def _differences_in_words(target: Target, ops: list[Op]) -> list[str]:
    different = [op.name for op in ops if op.name in target.differences]
    if not different:
        return ["Every op returns the bytes that ddas_gpu returns."]
    rest = "The other ops return" if len(different) < len(ops) else "No op returns"
    return [
        "These ops differ from those of the search (measured on photographs of 80 x 80 pixels):",
        *(f"- {name}: {target.differences[name].in_words()}" for name in different),
        f"{rest} the same bytes.",
    ]
