"""All ranks have one run folder, in which one of them writes."""

from __future__ import annotations

import pytest

from ddas_gpu.runs.run_folder import RunFolder


def test_a_rank_that_cannot_see_the_folder_is_named_and_the_folder_removed(started):
    last = len(started.answers) - 1
    for answer in started.answers:
        said = answer["refusals"]["folder"]
        assert said.startswith(f"rank {last}: {started.folder / 'elsewhere'} cannot be seen here")
    assert not list(started.folder.iterdir())


def test_other_ranks_write_nothing(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with RunFolder(tmp_path), RunFolder(tmp_path, writes=False) as other:  # not locked out
        other.start_metrics(0)
        other.add_metrics({"step": 0})
        other.save_checkpoint({"steps": 1})
        assert other.load_checkpoint() is None
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="cannot be seen here: --out must be on a shared disk"):
        RunFolder(tmp_path, writes=False)
