"""Writes PTX kernels as C++ for the host harness: registers as variables, branches as goto."""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.ptx.parse import Instruction, Kernel, UnsupportedPtx, parse

HEADER = "cuda_on_host_ptx.h"
# Where a variable is at each instruction takes as long to find out as all else; lines are enough.
QUICKER = '#pragma GCC optimize("no-var-tracking")'

SPECIAL = {"tid": "threadIdx", "ntid": "blockDim", "ctaid": "blockIdx", "nctaid": "gridDim"}
TYPE = r"pred|[bus](?:8|16|32|64)|f(?:32|64)"

# {opcode: C++ value of the first operand}. {0}, {1}, … are the groups of the pattern; {a} to {d}
# the operands behind the first, read as the type of the last group; {A} to {D} the same as u32.
VALUES = {
    rf"mov\.({TYPE})": "{a}",
    rf"(add|sub|div)(?:\.rn)?\.({TYPE})": "ptx::{0}<{1}>({a}, {b})",
    rf"mul(?:\.lo|\.rn)\.({TYPE})": "ptx::mul<{0}>({a}, {b})",
    rf"mul\.(hi|wide)\.({TYPE})": "ptx::mul_{0}<{1}>({a}, {b})",
    rf"mad\.lo\.({TYPE})": "ptx::mad<{0}>({a}, {b}, {c})",
    rf"mad\.wide\.({TYPE})": "ptx::mad_wide<{0}>({a}, {b}, ptx::as<ptx::twice<{0}>>({raw_c}))",
    rf"fma\.rn\.({TYPE})": "ptx::fma<{0}>({a}, {b}, {c})",
    rf"(rem)\.({TYPE})": "ptx::{0}<{1}>({a}, {b})",
    rf"(min|max|and|or|xor)\.({TYPE})": "ptx::{0}_<{1}>({a}, {b})",
    rf"(abs|not)\.({TYPE})": "ptx::{0}_<{1}>({a})",
    rf"(neg|popc|clz)\.({TYPE})": "ptx::{0}<{1}>({a})",
    rf"(shl|shr)\.({TYPE})": "ptx::{0}<{1}>({a}, {B})",
    rf"bfi\.({TYPE})": "ptx::bfi<{0}>({a}, {b}, {C}, {D})",
    rf"bfe\.({TYPE})": "ptx::bfe<{0}>({a}, {B}, {C})",
    r"prmt\.(b32)": "ptx::prmt({a}, {b}, {c})",
    r"lop3\.(b32)": "ptx::lop3({a}, {b}, {c}, {d})",
    r"shf\.([lr])\.wrap\.(b32)": "ptx::shf_{0}({a}, {b}, {c} & 31)",
    r"shf\.([lr])\.clamp\.(b32)": "ptx::shf_{0}({a}, {b}, std::min({c}, ptx::u32(32)))",
    r"dp2a\.lo\.([us]32)\.([us]32)": "ptx::dp2a<{0}, {1}, 0>({A}, {B}, {C})",
    r"dp2a\.hi\.([us]32)\.([us]32)": "ptx::dp2a<{0}, {1}, 2>({A}, {B}, {C})",
    r"dp4a\.([us]32)\.([us]32)": "ptx::dp4a<{0}, {1}>({A}, {B}, {C})",
    rf"setp\.(\w+)\.({TYPE})": "ptx::{0}<{1}>({a}, {b})",
    rf"setp\.(\w+)\.(and|or|xor)\.({TYPE})": "ptx::{1}_<bool>(ptx::{0}<{2}>({a}, {b}), {raw_c})",
    rf"selp\.({TYPE})": "ptx::selp<{0}>({a}, {b}, {raw_c})",
    rf"cvt(?:\.rn)?\.({TYPE})\.({TYPE})": "ptx::cvt<{0}, {1}>({a})",
    rf"cvt\.(r[nzmp]i|sat)\.({TYPE})\.({TYPE})": "ptx::cvt_{0}<{1}, {2}>({a})",
    rf"(sqrt|rcp)\.rn\.({TYPE})": "ptx::{0}<{1}>({a})",
    r"cvt\.rn\.(b?f16)\.(f32)": "ptx::to_{0}({a})",
    r"cvt\.rn\.(b?f16)x2\.(f32)": "ptx::u32(ptx::to_{0}({a})) << 16 | ptx::to_{0}({b})",
    r"cvt\.f32\.(b?f16)": "ptx::from_{0}({raw_a})",
    # Generic and global addresses are addresses of the host; shared ones count from 0.
    r"cvta(?:\.to)?\.(?:global|local)\.(u64)": "{a}",
    r"cvta\.shared\.(u64)": "{a} + ptx::u64(shared_memory)",
    r"cvta\.to\.shared\.(u64)": "{a} - ptx::u64(shared_memory)",
    r"vote\.sync\.ballot\.(b32)": "__ballot_sync({B}, {raw_a})",
    r"vote\.sync\.(any|all)\.(pred)": "__{0}_sync({B}, {raw_a})",
    r"redux\.sync\.(add|and|or|min|max)\.([ubs]32)": "__reduce_{0}_sync({B}, {a})",
}

BRANCH = re.compile(r"bra(?:\.uni)?$")
BARRIER = re.compile(r"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?$")
FENCE = re.compile(r"(?:membar|fence)\.")
ACCESS = re.compile(
    rf"(ld|st)(?:\.volatile|\.relaxed\.\w+)?(?:\.(global|shared|local))?(?:::cta)?(?:\.nc|\.c[agsv])?"
    rf"(?:\.L[12]::\w+)*(?:\.v([24]))?\.({TYPE})$"
)
ATOMIC = re.compile(
    rf"(?:atom|red)(?:\.relaxed)?(?:\.(?:cta|gpu))?(?:\.(global|shared))?(?:::cta)?(?:\.(?:cta|gpu))?"
    rf"\.(add|min|max|and|or|xor|exch|cas)\.({TYPE})$"
)
SHUFFLE = re.compile(r"shfl\.sync\.(up|down|bfly|idx)\.b32$")
PARAMETER = re.compile(rf"ld\.param\.({TYPE})$")


def translate(text: str, file: str) -> str:
    """Return a PTX module as a source for HostKernels; errors name lines of `file`."""
    kernels = [Translation(kernel, file).source() for kernel in parse(text).values()]
    return "\n".join([QUICKER, f'#include "{HEADER}"', *kernels])


class Translation:
    """One kernel on its way to C++."""

    def __init__(self, kernel: Kernel, file: str) -> None:
        self.kernel = kernel
        self.file = file
        self.symbols: dict[str, str] = {}
        self.shared_bytes = 0

    def source(self) -> str:
        kernel = self.kernel
        variables = list(self._memory())
        parameters = ", ".join(f"ptx::{kind} {name}" for kind, name in kernel.parameters)
        lines = [
            f'extern "C" __global__ void __launch_bounds__({kernel.most_threads}) '
            f"{kernel.name}({parameters}) {{",
            "using namespace ptx;",
            f"alignas(16) __shared__ ptx::u8 shared_memory[{max(1, self.shared_bytes)}];",
            *variables,
            *self._registers(),
        ]
        for one in kernel.body:
            # Errors and barriers are reported with the line in the PTX.
            lines.append(f'#line {one.line} "{self.file}"')
            lines.append(f"{_label(one.label)}:;" if one.label else self._statement(one))
        return "\n".join([*lines, "}"])

    def _memory(self) -> list[str]:
        local = []
        for space, align, name, count in self.kernel.memory:
            if space == "shared":
                start = -(-self.shared_bytes // align) * align
                self.symbols[name] = f"ptx::u64({start})"
                self.shared_bytes = start + count
            else:
                local.append(f"alignas({align}) ptx::u8 {name}[{count}];")
                self.symbols[name] = f"ptx::u64({name})"
        return local

    def _registers(self) -> list[str]:
        lines = []
        for name, kind in self.kernel.registers.items():
            # Without a value at first, as on a GPU; 0xA5… rather than 0, which is often right.
            width = "bool" if kind == "pred" else f"ptx::u{kind[1:]}"
            lines.append(f"{width} {_register(name)} = {width}(0xA5A5A5A5A5A5A5A5u);")
        return lines

    def _statement(self, one: Instruction) -> str:
        statement = self._plain(one)
        if not one.guard:
            return statement
        return f"if ({self._operand(one.guard)}) {{ {statement} }}"

    def _plain(self, one: Instruction) -> str:
        opcode, operands = one.opcode, one.operands
        if opcode in ("ret", "exit"):
            return "return;"
        if BRANCH.match(opcode):
            return f"goto {_label(operands[0])};"
        if opcode == "brx.idx" and operands[1] in self.kernel.tables:
            targets = enumerate(self.kernel.tables[operands[1]])
            cases = " ".join(f"case {i}: goto {_label(label)};" for i, label in targets)
            return f"switch ({self._operand(operands[0])}) {{ {cases} }}"
        if BARRIER.match(opcode) and operands == ("0",):
            return "__syncthreads();"
        if opcode == "bar.warp.sync":
            return f"__syncwarp({self._operand(operands[0], 'u32')});"
        if FENCE.match(opcode):
            return ""
        if match := PARAMETER.match(opcode):
            return self._set(operands[0], f"ptx::as<{match[1]}>({operands[1].strip('[]')})")
        for pattern, write in self._special():
            if match := pattern.match(opcode):
                return write(match, operands)
        if "{" in "".join(operands):
            return self._packed(one)
        return self._set(operands[0].split("|")[0], self._value(one))

    def _special(self) -> list[tuple[re.Pattern[str], Callable[..., str]]]:
        return [(ACCESS, self._access), (ATOMIC, self._atomic), (SHUFFLE, self._shuffle)]

    def _access(self, match: re.Match[str], operands: tuple[str, ...]) -> str:
        direction, space, count, kind = match.groups()
        place, values = operands[::-1] if direction == "ld" else operands
        registers = [part.strip() for part in values.strip("{}").split(",")]
        lines = [f"{kind}* at = {self._place(space, place, kind, count or 1)};"]
        if direction == "ld":
            lines += [self._set(register, f"at[{i}]") for i, register in enumerate(registers)]
        else:
            lines += [f"at[{i}] = {self._operand(r, kind)};" for i, r in enumerate(registers)]
        return f"{{ {' '.join(lines)} }}"

    def _place(self, space: str | None, address: str, kind: str, count: int | str = 1) -> str:
        base, _, offset = address.strip("[]").partition("+")
        where = f"{self._operand(base)} + ptx::u64({offset or 0}ll)"
        if space == "shared":
            # 32-bit addresses wrap.
            return f"ptx::shared<{kind}, {count}>(shared_memory, ptx::u32({where}))"
        return f"ptx::global<{kind}, {count}>({where})"

    def _atomic(self, match: re.Match[str], operands: tuple[str, ...]) -> str:
        space, name, kind = match.groups()
        operands = operands if not operands[0].startswith("[") else ("_", *operands)
        values = ", ".join(self._operand(one, kind) for one in operands[2:])
        call = f"ptx::atom_{name}<{kind}>({self._place(space, operands[1], kind)}, {values})"
        return f"{call};" if operands[0] == "_" else self._set(operands[0], call)

    def _shuffle(self, match: re.Match[str], operands: tuple[str, ...]) -> str:
        value, _, inside = operands[0].partition("|")
        arguments = ", ".join(self._operand(one, "u32") for one in operands[1:])
        lines = [f"ptx::Shuffled got = ptx::shfl<ptx::{match[1]}>({arguments});"]
        lines.append(self._set(value, "got.value"))
        if inside:
            lines.append(f"{_register(inside)} = got.inside;")
        return f"{{ {' '.join(lines)} }}"

    def _packed(self, one: Instruction) -> str:
        """mov between a register and its halves in braces."""
        match = re.fullmatch(r"mov\.b(32|64)", one.opcode)
        if match is None:
            raise one.unsupported()
        to, value = one.operands
        if to.startswith("{"):
            parts = [part.strip() for part in to.strip("{}").split(",")]
            size = int(match[1]) // len(parts)
            whole = self._operand(value)
            lines = [
                self._set(part, f"ptx::u{size}({whole} >> {i * size})")
                for i, part in enumerate(parts)
                if part != "_"
            ]
            return " ".join(lines)
        parts = [part.strip() for part in value.strip("{}").split(",")]
        size = int(match[1]) // len(parts)
        shifted = (
            f"ptx::u64({self._operand(part, f'u{size}')}) << {i * size}"
            for i, part in enumerate(parts)
        )
        return self._set(to, f"ptx::u{match[1]}({' | '.join(shifted)})")

    def _value(self, one: Instruction) -> str:
        for pattern, template in VALUES.items():
            match = re.fullmatch(pattern, one.opcode)
            if match is None:
                continue
            groups = match.groups()
            names: dict[str, str] = {}
            for letter, operand in zip("abcd", one.operands[1:], strict=False):
                names[letter] = self._operand(operand, groups[-1])
                names[letter.upper()] = self._operand(operand, "u32")
                names[f"raw_{letter}"] = self._operand(operand)
            return template.format(*groups, **names)
        raise one.unsupported()

    def _set(self, register: str, value: str) -> str:
        return f"ptx::set({_register(register)}, {value});" if register != "_" else f"{value};"

    def _operand(self, text: str, kind: str = "") -> str:
        """Return a register, number, special register or address as C++, read as `kind`."""
        raw = self._raw(text.strip())
        return f"ptx::as<{kind}>({raw})" if kind else raw

    def _raw(self, text: str) -> str:
        if text in self.symbols:
            return self.symbols[text]
        if text.startswith("!"):
            return f"!{self._raw(text[1:])}"
        if text in self.kernel.registers:
            return _register(text)
        if text == "%laneid":
            return "cuda_on_host::lane_index()"
        if match := re.fullmatch(rf"%({'|'.join(SPECIAL)})\.([xyz])", text):
            return f"{SPECIAL[match[1]]}.{match[2]}"
        if match := re.fullmatch(r"0([fd])([0-9A-Fa-f]+)", text):
            return f"ptx::u{32 if match[1] == 'f' else 64}(0x{match[2]})"
        if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)U?", text):
            return f"ptx::u64({text.rstrip('U')}{'ll' if text.startswith('-') else 'ull'})"
        raise UnsupportedPtx(f"{self.kernel.name}: the operand {text!r} has no translation")


def _register(text: str) -> str:
    return f"reg_{text.strip().lstrip('%')}"


def _label(text: str) -> str:
    return text.replace("$", "label_")
