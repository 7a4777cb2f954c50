"""What ranks tell each other arrives, and what goes wrong on one is said by all."""

from __future__ import annotations

import pytest

from ddas_gpu.distributed.ranks import ALONE, Ranks


def test_numbers_and_values_come_together(answers):
    count = len(answers)
    for answer in answers:
        found = answer["means"]
        assert found["largest"] == count - 1
        assert found["sum"] == [count, sum(range(count))]
        assert found["gathered"] == [f"rank {rank}" for rank in range(count)]
        assert found["copied"] == [0.0, 0.0]


def test_what_goes_wrong_on_one_rank_goes_wrong_on_all(answers):
    last = len(answers) - 1
    full = "the disk is full: /out/config.json: free some space; a run goes on with --resume"
    for answer in answers:
        found = answer["refusals"]
        assert found["one"] == f"rank {last}: {full}"
        assert found["all"] == full
        assert "none" not in found


def test_the_whole_batch_stays_what_it_was_on_another_number_of_ranks():
    for count in (1, 2, 3, 6):
        sizes = [Ranks(rank, count).batch_size("--batch-size", 4, 3) for rank in range(count)]
        assert sizes == [12 // count] * count


def test_a_batch_that_cannot_be_divided_evenly_is_refused():
    with pytest.raises(ValueError, match="--batch-size 4 on the 3 ranks .* 12 .* among 5 ranks"):
        Ranks(0, 5).batch_size("--batch-size", 4, 3)


def test_alone_nothing_happens():
    assert ALONE.gather("hello") == ["hello"]
    assert ALONE.largest(3) == 3
    with pytest.raises(OSError, match="as it was"), ALONE.together():
        raise OSError("as it was")
