"""Reads PTX: kernels with their parameters, registers, shared memory and instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod


class UnsupportedPtx(Exception):
    """The text has something that the translator does not know."""


@dataclass(frozen=True)
class Instruction:
    """One instruction, or the label in front of the next one."""

    line: int
    label: str = ""
    guard: str = ""  # "%p1", or "!%p1"
    opcode: str = ""  # "ld.global.u32"
    operands: tuple[str, ...] = ()  # a list in braces is one operand

    def unsupported(self) -> UnsupportedPtx:
        return UnsupportedPtx(
            f"PTX line {self.line}: {self.opcode} {', '.join(self.operands)} has no translation"
        )


@dataclass
class Kernel:
    """A kernel of a PTX module."""

    name: str
    parameters: list[tuple[str, str]]  # type and name
    most_threads: int = 1024
    registers: dict[str, str] = field(default_factory=dict)  # {name: type}
    memory: list[tuple[str, int, str, int]] = field(default_factory=list)  # space, align, name, n
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of labels, for brx.idx
    body: list[Instruction] = field(default_factory=list)


ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)([^{]*)\{", re.DOTALL)
PARAMETER = re.compile(r"\.param\s+\.(\w+)(?:\s+\.ptr(?:\s+\.global)?\s+\.align\s+\d+)?\s+(\w+)$")
REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.DOTALL)
REGISTER = re.compile(r"(%?\w+)(?:<(\d+)>)?$")
MEMORY = re.compile(r"\.(shared|local)\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\]$")
TABLE = re.compile(r"([$\w]+):\s*\.branchtargets\s+(.*)$", re.DOTALL)
LABEL = re.compile(r"([$\w]+):\s*|[{}]\s*")  # or a brace around inline assembly
INSTRUCTION = re.compile(r"(?:@(!?%?\w+)\s+)?([a-z][\w.:]*)\s*(.*)$", re.DOTALL)
OPERAND = re.compile(r"\s*(\{[^}]*\}|\[[^\]]*\]|[^,\[{]+?)\s*(?:,|$)")


def parse(text: str) -> dict[str, Kernel]:
    """Return the kernels of a PTX module by name."""
    # Comments become spaces, so that lines keep their numbers.
    text = re.sub(r"//[^\n]*", "", text)
    outside = re.sub(r"^\s*\.(version|target|address_size|visible)\b.*$", "", text, flags=re.M)
    kernels = {}
    for match in ENTRY.finditer(text):
        name, parameters, directives = match.groups()
        kernel = Kernel(name, [_parameter(one) for one in parameters.split(",") if one.strip()])
        most = re.search(r"\.maxntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", directives)
        if most:
            kernel.most_threads = prod(int(size) for size in most.groups() if size)
        _read_body(
            kernel, _to_closing_brace(text[match.end() :]), 1 + text.count("\n", 0, match.end())
        )
        kernels[name] = kernel
    if not kernels or re.search(r"^\s*\.(global|const|func|extern)\b", outside, flags=re.M):
        raise UnsupportedPtx("global variables, constants and functions have no translation")
    return kernels


def _to_closing_brace(text: str) -> str:
    """Return the text in front of the brace that closes the kernel."""
    depth = 1
    for match in re.finditer(r"[{}]", text):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return text[: match.start()]
    raise UnsupportedPtx("a kernel has no end")


def _parameter(text: str) -> tuple[str, str]:
    match = PARAMETER.match(text.strip())
    if match is None:
        raise UnsupportedPtx(f"the parameter {text.strip()!r} has no translation")
    return match[1], match[2]


def _read_body(kernel: Kernel, body: str, line: int) -> None:
    for statement in re.split(r"(?<=;)", body):
        start = line + statement[: len(statement) - len(statement.lstrip())].count("\n")
        line += statement.count("\n")
        _read_statement(kernel, statement.strip().rstrip(";").rstrip(), start)


def _read_statement(kernel: Kernel, text: str, line: int) -> None:
    if match := TABLE.match(text):
        kernel.tables[match[1]] = tuple(part.strip() for part in match[2].split(","))
        return
    while match := LABEL.match(text):
        if match[1]:
            kernel.body.append(Instruction(line, label=match[1]))
        line += text[: match.end()].count("\n")
        text = text[match.end() :]
    if not text or text.startswith(".pragma"):
        return
    if match := REGISTERS.match(text):
        _declare(kernel, match[1], match[2])
    elif match := MEMORY.match(text):
        kernel.memory.append((match[1], int(match[2]), match[3], int(match[4])))
    elif match := INSTRUCTION.match(text):
        operands = tuple(one[1] for one in OPERAND.finditer(match[3])) if match[3] else ()
        kernel.body.append(Instruction(line, "", match[1] or "", match[2], operands))
    else:
        raise UnsupportedPtx(f"PTX line {line}: {text!r} has no translation")


def _declare(kernel: Kernel, kind: str, names: str) -> None:
    for name, count in (REGISTER.match(one.strip()).groups() for one in names.split(",")):
        for register in [name] if count is None else [f"{name}{i}" for i in range(int(count))]:
            # Inline assembly has registers of its own, which become variables of the kernel.
            if kernel.registers.setdefault(register, kind) != kind:
                raise UnsupportedPtx(f"{kernel.name}: {register} is declared with two types")
