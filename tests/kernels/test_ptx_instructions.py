"""PTX instructions on the host compute what the PTX ISA says, and refuse what a GPU refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from harness import KernelError
from harness.host_kernels import ORDERS
from harness.ptx.bank import ptx_kernels
from harness.ptx.parse import UnsupportedPtx

NAN, INFINITY, THREE_BILLION = 0x7FC00000, 0x7F800000, 0x4F32D05E
MINUS = 2**32  # MINUS - 1 are the bits of -1

# {opcode: rows of operands and the result, all as 32 bits}
CASES = {
    "add.s32": [(0x7FFFFFFF, 1, 0x80000000)],
    "sub.s32": [(3, 5, MINUS - 2)],
    "mul.lo.s32": [(0x10001, 0x10001, 0x20001)],
    "mul.hi.s32": [(MINUS - 1, 5, MINUS - 1)],
    "mul.hi.u32": [(MINUS - 1, 5, 4)],
    "mad.lo.s32": [(3, MINUS - 2, 10, 4)],
    "div.s32": [(MINUS - 7, 2, MINUS - 3)],
    "div.u32": [(MINUS - 7, 2, 0x7FFFFFFC)],
    "rem.s32": [(MINUS - 7, 2, MINUS - 1)],
    "min.s32": [(MINUS - 1, 1, MINUS - 1)],
    "min.u32": [(MINUS - 1, 1, 1)],
    "max.s32": [(MINUS - 1, 1, 1)],
    "abs.s32": [(MINUS - 9, 9)],
    "neg.s32": [(9, MINUS - 9)],
    "not.b32": [(0x0F0F0F0F, 0xF0F0F0F0)],
    "shl.b32": [(1, 31, 0x80000000), (1, 32, 0)],
    "shr.u32": [(0x80000000, 31, 1), (0x80000000, 40, 0)],
    "shr.s32": [(0x80000000, 31, MINUS - 1), (0x80000000, 40, MINUS - 1)],
    "popc.b32": [(0xF0F1, 9)],
    "clz.b32": [(1, 31), (0, 32)],
    "bfi.b32": [(0xAB, 0x11111111, 8, 8, 0x1111AB11), (1, 7, 0, 32, 1), (1, 7, 4, 0, 7)],
    "bfe.u32": [(0x1234ABCD, 8, 8, 0xAB), (0xFF, 0, 0, 0)],
    "bfe.s32": [(0x1234ABCD, 8, 8, MINUS - 85), (0x80000000, 28, 8, MINUS - 8)],
    "prmt.b32": [
        (0x33221100, 0x77665544, 0x7531, 0x77553311),
        (0x33228100, 0x77665544, 0x0009, 0x000000FF),
    ],
    "lop3.b32": [(0b1100, 0b1010, 0b0110, 0x96, 0b1100 ^ 0b1010 ^ 0b0110)],
    "shf.l.wrap.b32": [(0x80000001, 0x0F, 4, 0xF8)],
    "shf.r.clamp.b32": [(0x80000001, 0x0F, 32, 0x0F)],
    "dp2a.lo.u32.u32": [(0x00020003, 0x07050B0D, 100, 100 + 3 * 0x0D + 2 * 0x0B)],
    "dp2a.hi.u32.u32": [(0x00020003, 0x07050B0D, 100, 100 + 3 * 5 + 2 * 7)],
    "dp4a.s32.s32": [(0xFF010203, 0x01010101, 1, 6)],
    "add.rn.f32": [(0x3F800000, 0x33800000, 0x3F800000)],  # 1 + 2^-24 rounds to even
    "mul.rn.f32": [(0x40400000, 0x40A00000, 0x41700000)],
    "fma.rn.f32": [(0x3F800001, 0x3F800001, 0xBF800002, 0x28800000)],  # one rounding
    "sqrt.rn.f32": [(0x40800000, 0x40000000)],
    "rcp.rn.f32": [(0x40800000, 0x3E800000)],
    "min.f32": [(NAN, 0x3F800000, 0x3F800000)],
    "cvt.rzi.s32.f32": [
        (0xBFC00000, MINUS - 1),
        (NAN, 0),
        (INFINITY, 0x7FFFFFFF),
        (THREE_BILLION, 0x7FFFFFFF),
    ],
    "cvt.rzi.u32.f32": [(0xBFC00000, 0), (THREE_BILLION, 3_000_000_000 // 256 * 256)],
    "cvt.rni.s32.f32": [(0x40200000, 2)],  # 2.5
    "cvt.rn.f32.s32": [(MINUS - 3, 0xC0400000)],
    "cvt.s32.s8": [(0x1280, MINUS - 128)],
    "cvt.u32.u8": [(0x1280, 0x80)],
    "cvt.sat.u8.s32": [(300, 255), (MINUS - 3, 0)],
    "redux.sync.add.s32": [(2, MINUS - 1, 64)],
}
COMPARISONS = {
    "lt.s32": [(MINUS - 1, 1, 1)],
    "lt.u32": [(MINUS - 1, 1, 0)],
    "hs.u32": [(MINUS - 1, 1, 1)],
    "ne.f32": [(NAN, NAN, 0)],
    "neu.f32": [(NAN, NAN, 1)],
    "geu.f32": [(0, NAN, 1)],
    "eq.f32": [(0x80000000, 0, 1)],  # -0 = 0
}


def module(body: str, threads: int = 32, name: str = "kernel") -> str:
    return f"""
.version 9.0
.target sm_80
.address_size 64
.visible .entry {name}(
	.param .u64 out
)
.maxntid {threads}, 1, 1
{{
	.reg .pred %p<9>;
	.reg .b16 %rs<9>;
	.reg .b32 %r<9>;
	.reg .f32 %f<9>;
	.reg .b64 %rd<9>;
	.shared .align 8 .b8 memory[64];
	ld.param.u64 %rd1, [out];
	mov.u32 %r8, %tid.x;
{body}
	ret;
}}
"""


def run(body: str, out: np.ndarray, threads: int = 32, order: str = "forward") -> np.ndarray:
    kernels = ptx_kernels({"kernel": module(body, threads)}, order)
    kernels.watch(out)
    kernels.launch("kernel", (1, 1, 1), (threads, 1, 1), (np.uint64(out.ctypes.data),))
    return out


def test_values() -> None:
    body, wanted = ["setp.ne.s32 %p8, %r8, 0;"], []
    for opcode, rows in [*CASES.items(), *COMPARISONS.items()]:
        for *operands, result in rows:
            body += [f"mov.u32 %r{i + 1}, {v};" for i, v in enumerate(operands)]
            registers = ", ".join(f"%r{i + 1}" for i in range(len(operands)))
            if opcode in COMPARISONS:
                body.append(f"setp.{opcode} %p1, {registers};\nselp.u32 %r0, 1, 0, %p1;")
            else:
                body.append(f"{opcode} %r0, {registers};")
            body.append(f"@!%p8 st.global.u32 [%rd1+{4 * len(wanted)}], %r0;")
            wanted.append((opcode, operands, result))
    got = run("\n".join(body), np.zeros(len(wanted), np.uint32))
    for (opcode, operands, result), value in zip(wanted, got, strict=True):
        shown = ", ".join(map(hex, operands))
        assert value == result, f"{opcode} {shown}: {value:#x}, not {result:#x}"


@pytest.mark.parametrize("order", ORDERS)
def test_shuffles(order: str) -> None:
    body = """
    mul.wide.u32 %rd2, %r8, 16;
    add.s64 %rd3, %rd1, %rd2;
    shfl.sync.down.b32 %r1|%p1, %r8, 4, 31, -1;
    shfl.sync.up.b32 %r2|%p2, %r8, 1, 0, -1;
    shfl.sync.bfly.b32 %r3, %r8, 1, 31, -1;
    shfl.sync.idx.b32 %r4|%p4, %r8, 9, 6175, -1;
    st.global.v4.u32 [%rd3], {%r1, %r2, %r3, %r4};
    """
    lane = np.arange(32)
    down, up = np.where(lane < 28, lane + 4, lane), np.maximum(lane - 1, 0)
    segments = (lane & 24) | (9 & 7)  # of eight lanes: 6175 is 0x181f
    wanted = np.stack([down, up, lane ^ 1, segments], axis=1)
    assert np.array_equal(run(body, np.zeros((32, 4), np.uint32), order=order), wanted)


@pytest.mark.parametrize("order", ORDERS)
def test_shared_memory_and_atomics(order: str) -> None:
    body = """
    mov.u32 %r1, memory;
    setp.eq.s32 %p1, %r8, 0;
    @%p1 st.shared.u32 [memory+8], 0;
    bar.sync 0;
    atom.shared.add.u32 %r2, [%r1+8], %r8;
    bar.sync 0;
    @!%p1 bra $DONE;
    ld.shared.u32 %r3, [memory+8];
    st.global.u32 [%rd1], %r3;
$DONE:
    """
    assert run(body, np.zeros(1, np.uint32), 64, order)[0] == 63 * 32


def test_halves_of_a_register() -> None:
    body = """
    mov.u32 %r1, 305419896;
    mov.b32 {%rs1, %rs2}, %r1;
    mov.b32 %r2, {%rs2, %rs1};
    setp.eq.s32 %p1, %r8, 0;
    @%p1 st.global.u32 [%rd1], %r2;
    """
    assert run(body, np.zeros(1, np.uint32))[0] == 0x56781234


def test_an_indirect_branch() -> None:
    body = """
    mul.wide.u32 %rd2, %r8, 4;
    add.s64 %rd3, %rd1, %rd2;
    and.b32 %r1, %r8, 1;
$TABLE: .branchtargets $EVEN, $ODD;
    brx.idx %r1, $TABLE;
$EVEN:
    st.global.u32 [%rd3], 10;
    bra.uni $END;
$ODD:
    st.global.u32 [%rd3], 11;
$END:
    """
    assert np.array_equal(run(body, np.zeros(32, np.uint32)), 10 + np.arange(32) % 2)


# There must be a store somewhere: C++ compilers know the value of a variable without one.
NEVER_WRITTEN = "setp.gt.s32 %p1, %r8, 99;\n@%p1 st.shared.u32 [memory], 1;\n"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("st.global.u32 [%rd1+2], %r8;", r"4 bytes at 0x.*, which is not aligned \(PTX line 18\)"),
        ("st.global.v2.u32 [%rd1+4], {%r8, %r8};", "8 bytes .* not aligned"),
        ("st.global.u32 [%rd1+16], %r8;", r"out of bounds, .* \(kernel.ptx:18"),
        ("ld.global.u32 %r1, [%rd1+-4];\nst.global.u32 [%rd1], %r1;", "4 bytes before array 0"),
        ("st.shared.u32 [memory+64], %r8;", "past the end of its shared memory"),
        ("st.shared.u32 [memory+2], %r8;", "not aligned"),
        (f"{NEVER_WRITTEN}ld.shared.u32 %r1, [memory];\nst.global.u32 [%rd1], %r1;", "nobody has"),
        ("st.global.u32 [%rd1], %r8;", "with no barrier in between"),
        ("setp.lt.s32 %p1, %r8, 5;\n@%p1 bar.sync 0;\n@!%p1 bar.sync 0;", "barrier divergence"),
    ],
)
def test_a_mistake_is_found(body: str, complaint: str) -> None:
    with pytest.raises(KernelError, match=complaint):
        run(body, np.zeros(4, np.uint32))


def test_inline_assembly_with_registers_of_its_own() -> None:
    body = """
    mul.wide.u32 %rd2, %r8, 4;
    add.s64 %rd3, %rd1, %rd2;
    mov.u32 %r1, 5;
    {
    .reg .pred p, q;
    .reg .b32 twice;
    add.s32 twice, %r8, %r8;
    setp.lt.s32 p, twice, 20;
    @!p mov.u32 twice, 99;
    { mov.u32 %r1, twice;}

}
    st.global.u32 [%rd3], %r1;
    """
    thread = np.arange(32)
    assert np.array_equal(run(body, np.zeros(32, np.uint32)), np.where(thread < 10, 2 * thread, 99))


def test_sixteen_bit_floats() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=512) * 10.0 ** rng.integers(-9, 7, 512)
    special = [
        0,
        -0.0,
        1 + 2**-11,
        1 + 3 * 2**-11,
        65519,
        65520,
        2**-24,
        2**-25,
        3 * 2**-26,
        np.inf,
    ]
    values[: len(special)] = special
    out = np.zeros((512, 6), np.uint32)
    out[:, 0] = values.astype(np.float32).view(np.uint32)
    body = """
    mul.wide.u32 %rd2, %r8, 24;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    cvt.rn.f16.f32 %rs1, %f1;
    cvt.rn.bf16.f32 %rs2, %f1;
    cvt.f32.f16 %f2, %rs1;
    cvt.f32.bf16 %f3, %rs2;
    cvt.rn.f16x2.f32 %r3, %f1, %f2;
    cvt.u32.u16 %r1, %rs1;
    cvt.u32.u16 %r2, %rs2;
    st.global.u32 [%rd3+4], %r1;
    st.global.u32 [%rd3+8], %r2;
    st.global.f32 [%rd3+12], %f2;
    st.global.f32 [%rd3+16], %f3;
    st.global.u32 [%rd3+20], %r3;
    """
    single = torch.from_numpy(values.astype(np.float32))
    half, brain = single.half(), single.bfloat16()
    bits = [one.view(torch.int16).numpy().view(np.uint16) for one in (half, brain)]
    back = [one.float().numpy().view(np.uint32) for one in (half, brain)]
    pair = bits[0].astype(np.uint32) << 16 | bits[0]
    got = run(body, out, 512)
    assert np.array_equal(got[:, 1:], np.stack([*bits, *back, pair], axis=1))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (module("tanh.approx.f32 %f1, %f2;"), "PTX line 18: tanh.approx.f32 %f1, %f2 has no"),
        (module("mov.u32 %r1, elsewhere;"), "the operand 'elsewhere'"),
        (module("bar.sync 1;"), "bar.sync 1"),
        (module("").replace(".u64 out", ".align 8 .b8 out[16]"), "the parameter"),
        (".global .b8 table[4];" + module(""), "global variables"),
    ],
)
def test_what_has_no_translation_is_named(text: str, complaint: str) -> None:
    with pytest.raises(UnsupportedPtx, match=complaint):
        ptx_kernels({"kernel": text})
