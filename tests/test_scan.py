"""The scan command: a line for each bad file, and an exit code for scripts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from ddas_gpu.scan import main


def test_bad_files_are_listed_and_good_ones_are_not(tmp_path: Path, capsys):
    (tmp_path / "cat").mkdir()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "cat" / "a.png")
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr() == ("", "images: 1, classes: 1\n")
    (tmp_path / "cat" / "b.jpg").touch()
    assert main([str(tmp_path), "--threads", "1"]) == 1
    assert capsys.readouterr().out == f"{tmp_path / 'cat' / 'b.jpg'} (the file is empty)\n"


def test_a_wrong_root_is_one_sentence(tmp_path: Path, capsys):
    for root, words in (("nowhere", "there is no folder"), ("", "holds no class folders")):
        assert main([str(tmp_path / root)]) == 2
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1
