"""MATLAB files are read as SciPy reads them, or refused with one sentence."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.io import loadmat, savemat

from ddas_gpu.data.matlab import read_mat

TYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


def write(path, compressed=True, **variables):
    savemat(path, variables, do_compression=compressed)
    return path


@given(
    st.sampled_from(TYPES).flatmap(
        lambda kind: arrays(kind, array_shapes(min_dims=2, max_dims=4, max_side=4))
    ),
    st.booleans(),
)
def test_arrays_are_read_as_scipy_reads_them(tmp_path_factory, array, compressed):
    path = write(tmp_path_factory.mktemp("mat") / "file.mat", compressed, other="no", x=array)
    ours, theirs = read_mat(path, "a test", ["x"])["x"], loadmat(path)["x"]
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    np.testing.assert_array_equal(ours, theirs)


def synsets() -> np.ndarray:
    rows = [(1, "n01", np.zeros((0, 0))), (2, "n0002", np.array([[1.0, 2.0]]))]
    return np.array(rows, dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O"), ("children", "O")])


@pytest.mark.parametrize("compressed", [False, True])
def test_structs_are_lists_of_dicts(tmp_path, compressed):
    path = write(tmp_path / "file.mat", compressed, synsets=synsets())
    first, second = read_mat(path, "a test", ["synsets"])["synsets"]
    assert (first["WNID"], second["WNID"]) == ("n01", "n0002")
    assert (first["ILSVRC2012_ID"].item(), second["ILSVRC2012_ID"].item()) == (1, 2)
    assert second["children"].tolist() == [[1, 2]] and first["children"].size == 0


def test_another_byte_order(tmp_path):
    """One matrix of one double, as a big-endian machine writes it."""
    header = b" " * 124 + b"\1\0MI"
    body = (
        b"\0\0\0\6\0\0\0\10\0\0\0\6\0\0\0\0"  # flags: class double
        b"\0\0\0\5\0\0\0\10\0\0\0\1\0\0\0\1"  # shape
        b"\0\1\0\1x\0\0\0"  # name, a small element
        b"\0\0\0\11\0\0\0\10" + np.array(2.5, ">f8").tobytes()
    )
    (tmp_path / "file.mat").write_bytes(header + b"\0\0\0\16" + len(body).to_bytes(4, "big") + body)
    assert read_mat(tmp_path / "file.mat", "a test", ["x"])["x"].tolist() == [[2.5]]


def test_a_missing_variable_is_named(tmp_path):
    path = write(tmp_path / "file.mat", x=[[1]])
    with pytest.raises(ValueError, match=r"file\.mat is not a test: it has no y"):
        read_mat(path, "a test", ["y"])


@pytest.mark.parametrize(
    "content", [b"", b"MATLAB 5.0 MAT-file, but cut off", b"\x89HDF\r\n\x1a\n" + bytes(500)]
)
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "file.mat").write_bytes(content)
    with pytest.raises(ValueError, match=r"file\.mat is not a test: "):
        read_mat(tmp_path / "file.mat", "a test", ["x"])


def published(compressed: bool) -> bytes:
    buffer = io.BytesIO()
    digits = np.arange(32 * 32 * 3 * 2, dtype=np.uint8).reshape(32, 32, 3, 2)
    content = {"X": digits, "y": [[1], [10]], "synsets": synsets()}
    savemat(buffer, content, do_compression=compressed)
    return buffer.getvalue()


FILES = {compressed: published(compressed) for compressed in (False, True)}


@given(st.booleans(), st.data())
def test_damaged_files_are_read_or_refused(tmp_path_factory, compressed, data):
    content = bytearray(FILES[compressed])
    small = [place for place in range(len(content)) if not 400 < place < len(content) - 1500]
    places = small if data.draw(st.booleans()) else range(len(content))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.sampled_from(places))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.sampled_from([len(content), *places]))]
    path = tmp_path_factory.mktemp("mat") / "file.mat"
    path.write_bytes(content)
    for name in ("X", "y", "synsets"):
        try:
            read_mat(path, "a test", [name])
        except ValueError as error:
            assert "file.mat is not a test: " in str(error)


def test_a_struct_of_very_many_elements_is_refused(tmp_path):
    content = FILES[False]
    shape = content.rindex(b"synsets") - 24  # before the name: tag and two sides
    place = content.index((2).to_bytes(4, "little"), shape)
    forged = content[:place] + (2**31 - 1).to_bytes(4, "little") + content[place + 4 :]
    (tmp_path / "file.mat").write_bytes(forged)
    with pytest.raises(ValueError, match="is not a test"):
        read_mat(tmp_path / "file.mat", "a test", ["synsets"])


def test_a_bomb_is_unpacked_no_further_than_a_variable_can_be(tmp_path, monkeypatch):
    monkeypatch.setattr("ddas_gpu.data.matlab.MOST_BYTES", 1 << 20)
    packed = zlib.compress(b"\16\0\0\0\xff\xff\xff\x7f" + bytes(1 << 24))
    body = b"\17\0\0\0" + len(packed).to_bytes(4, "little") + packed
    (tmp_path / "file.mat").write_bytes(FILES[True][:128] + body)
    with pytest.raises(ValueError, match="ends too early"):
        read_mat(tmp_path / "file.mat", "a test", ["X"])
