"""Pickles of plain data are read; forged ones are refused in bounded memory and run nothing."""

from __future__ import annotations

import pickle
import resource
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ddas_gpu.unpickling import restricted_load

PROTOCOLS = (2, 3, 4)
TYPES = st.sampled_from(["?", "i1", "u1", "<i2", ">u2", "i4", "<u4", "<i8", "u8", "<f4", ">f8"])
plain = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False),
        st.text(max_size=300),
        st.binary(min_size=1, max_size=300),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(st.text(max_size=9) | st.integers(), inner, max_size=5),
    ),
    max_leaves=12,
)


@given(plain, st.sampled_from(PROTOCOLS))
def test_plain_data_is_read_as_pickle_reads_it(value, protocol):
    assert restricted_load(pickle.dumps(value, protocol), "a file") == value


@given(TYPES.flatmap(lambda kind: arrays.arrays(kind, arrays.array_shapes())), st.booleans())
def test_arrays_are_read_bit_by_bit(array, column_major):
    array = np.asfortranarray(array) if column_major else array
    for protocol in PROTOCOLS:
        first, second = restricted_load(pickle.dumps([array, array], protocol), "a file")
        assert first is second
        assert first.dtype == array.dtype and first.shape == array.shape
        assert first.tobytes() == array.tobytes()


def test_scalars_and_python_2_strings():
    assert restricted_load(pickle.dumps(np.float32(0.5), 2), "a file") == 0.5
    array = np.arange(256, dtype=np.uint8)
    # Python 2 writes the bytes as a string: BINSTRING.
    old = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01M\x00\x01\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89T\x00\x01\x00\x00" + array.tobytes() + b"tb."
    )
    assert (restricted_load(old, "a file") == array).all()


FORGED = {
    # A dtype whose state declares objects: raw bytes would become pointers.
    "an object dtype by its state": (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x01\x85cnumpy\ndtype\nU\x02V8K\x00K\x01\x87R(K\x03U\x01|NU\x01f\x85}U\x01fcnumpy\n"
        b"dtype\nU\x02O8K\x00K\x01\x87RK\x00\x86sK\x08K\x01K\x3ftb\x89U\x08AAAAAAAAtb."
    ),
    "fields in the state of a number": (
        b"\x80\x02cnumpy\ndtype\nU\x02i8K\x00K\x01\x87R(K\x03U\x01|NU\x01f\x85}K\x08K\x01K\x3ftb."
    ),
    "bytes as objects": (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x01\x85cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R\x89U\x08AAAAAAAAtb."
    ),
    "an object scalar": (
        b"\x80\x02cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nU\x02O8K\x00K\x01\x87RU\x08AAAAAAAA"
        b"\x86R."
    ),
    "an array of more bytes than there are": (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01J\xff\xff\xff\x7f\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R\x89U\x08AAAAAAAAtb."
    ),
    "an array in `_reconstruct` alone": (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n(J\xff\xff\xff\x7f"
        b"J\xff\xff\xff\x7ftU\x01b\x87RK\x01\x85b."
    ),
    "an empty place of the memo": b"\x80\x02Nr\xff\xff\xff\x7fj\x00\x00\x00\x00.",
    "a string copied often": (
        b"\x80\x02c_codecs\nencode\nq\x00X\x00\x10\x00\x00"
        + 4096 * b"a"
        + b"X\x06\x00\x00\x00latin1\x86q\x01R"
        + 100_000 * b"h\x00h\x01R"
        + b"."
    ),
    "a key that is a deep tuple": b"\x80\x02}N" + 300_000 * b"\x85" + b"Ns.",
    "a name that is a deep tuple": b"\x80\x04N" + 300_000 * b"\x85" + b"N\x93.",
    "os.system": b"cposix\nsystem\n(S'true'\ntR.",
    "builtins.eval": b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
    "an instance": b"\x80\x02cnumpy\ndtype\n)\x81.",
    "nothing on the stack": b"\x80\x02.",
    "a tuple of too few": b"\x80\x02N\x87.",
    "no end": b"\x80\x02N",
    "empty": b"",
}
PROGRAM = """
import resource, sys
from ddas_gpu.unpickling import restricted_load
content = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    print("read", type(restricted_load(content, "a file")))
except ValueError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, "kB")
"""


@pytest.mark.parametrize("what", FORGED)
def test_forged_pickles_are_refused(what):
    """In a process of its own: the old reader ended the interpreter."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], input=FORGED[what], capture_output=True)
    assert done.returncode == 0, done.stderr
    told, memory = done.stdout.decode().splitlines()
    assert told.startswith("a file is not a pickle of plain NumPy data"), told
    assert len(told) < 300
    assert int(memory.split()[0]) < 200_000


def test_a_far_place_in_the_memo_takes_no_memory():
    """Python's unpickler takes 16 bytes for every place before it: 2.2 GB for ten bytes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    content = b"\x80\x02K\x07r" + struct.pack("<I", 2**31 - 1) + b"."
    assert restricted_load(content, "a file") == 7
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@given(st.data())
def test_a_changed_pickle_is_read_or_refused(data):
    content = bytearray(pickle.dumps({"data": np.arange(12), "labels": [1, 2], "n": ("a", 2.0)}, 2))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        restricted_load(bytes(content), "a file")
    except ValueError as error:
        assert "a file is not a pickle" in str(error)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content):
    try:
        restricted_load(b"\x80\x02" + content + b".", "a file")
    except ValueError as error:
        assert "a file is not a pickle" in str(error)
