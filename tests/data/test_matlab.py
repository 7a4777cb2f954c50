"""MATLAB files are read, or refused with one sentence."""

from __future__ import annotations

import sys

import pytest
from scipy.io import savemat

from ddas_gpu.data.matlab import read_mat


def test_variables_are_read(tmp_path):
    savemat(tmp_path / "file.mat", {"x": [[1, 2, 3]]})
    assert read_mat(tmp_path / "file.mat", "a test")["x"].tolist() == [[1, 2, 3]]


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / "file.mat").write_bytes(b"MATLAB 5.0 MAT-file, but cut off")
    with pytest.raises(ValueError, match=r"file\.mat is not a test: "):
        read_mat(tmp_path / "file.mat", "a test")


def test_without_scipy_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ValueError, match=r"pip install 'ddas_gpu\[mat\]'"):
        read_mat(tmp_path / "file.mat", "a test")
