"""The schedule: its JSON round-trips, bad files are refused in words, resampling and smoothing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.ops.table import PixelScale

SPACE = SearchSpace.of(("Identity", "Invert", "Rotate"), levels=(2, 6), depth=2)  # K = 4


def schedule_of(p_tp, seed: int = 0, **settings) -> PolicySchedule:
    p_o = np.random.default_rng(seed).dirichlet(np.ones(len(SPACE)), len(p_tp))
    return PolicySchedule(SPACE, p_tp, p_o, settings)


schedules = st.builds(
    schedule_of,
    st.lists(st.floats(0, 1), min_size=1, max_size=12),
    st.integers(0, 2**32 - 1),
    note=st.text(),
)


@given(schedule=schedules)
def test_what_is_saved_is_loaded_bit_for_bit(schedule, tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "policy.json"
    schedule.save(path)
    loaded = PolicySchedule.load(path)
    assert loaded == schedule
    assert loaded.p_tp.tobytes() == schedule.p_tp.tobytes()
    assert loaded.p_o.tobytes() == schedule.p_o.tobytes()


def test_file_says_what_it_is_and_who_wrote_it(tmp_path):
    schedule_of([0.25, 0.5], seed=3).save(tmp_path / "policy.json")
    content = json.loads((tmp_path / "policy.json").read_text("utf-8"))
    assert (content["format"], content["version"]) == ("ddas_gpu policy", 1)
    assert set(content["versions"]) == {"python", "torch", "numpy", "pillow", "ddas_gpu"}
    assert content["space"] == SPACE.to_json()
    assert [path.name for path in tmp_path.iterdir()] == ["policy.json"]


def changed(**changes):
    content = schedule_of([0.25, 0.5]).to_json()
    content.update(changes)
    return content


BAD = {
    "another version": (changed(version=2), "version 2"),
    "no version": ({k: v for k, v in changed().items() if k != "version"}, "version None"),
    "another format": (changed(format="recipe"), "not a policy"),
    "not an object": ([1, 2], "not a policy"),
    "no p_o": ({k: v for k, v in changed().items() if k != "p_o"}, "has no 'p_o'"),
    "NaN": (changed(p_tp=[float("nan"), 0.5]), "must be a finite number"),
    "infinity": (changed(p_o=[[float("inf"), 0, 0, 0], [1, 0, 0, 0]]), "must be a finite number"),
    "sum is not 1": (changed(p_o=[[1, 0, 0, 0], [0.5, 0.5, 0.1, 0]]), "epoch 1 sums to 1.1"),
    "negative": (changed(p_o=[[1, 0, 0, 0], [1.5, -0.5, 0, 0]]), "negative"),
    "p_tp above 1": (changed(p_tp=[0.5, 1.5]), "lies in"),
    "p_tp below 0": (changed(p_tp=[-0.5, 0.5]), "lies in"),
    "K does not fit": (changed(p_o=[[0.5, 0.5, 0]] * 2), "4 candidates"),
    "T does not fit": (changed(p_tp=[0.5, 0.5, 0.5]), "3 epochs"),
    "ragged": (changed(p_o=[[1, 0, 0, 0], [1]]), "not an array of numbers"),
    "words": (changed(p_tp=["often", "rarely"]), r"p_tp\[0\] must be a finite number, not 'often'"),
    "empty": (changed(p_tp=[], p_o=[]), "one number per epoch"),
    "unknown op": (changed(space={"candidates": [["Twist"]]}), "unknown op 'Twist'"),
    "settings of another kind": (changed(settings=[1]), "settings must be an object"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD.keys())
def test_bad_content_is_refused_with_the_file_and_the_reason(content, message, tmp_path):
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as refusal:
        PolicySchedule.load(path)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("content", [b"{", b"\x80\x02c", b"\xff\xfe", b""])
def test_a_file_that_is_not_json_is_refused(content, tmp_path):
    path = tmp_path / "policy.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not JSON"):
        PolicySchedule.load(path)


def entries(schedule: PolicySchedule, total: int) -> list[float]:
    return [schedule.at(epoch, total)[0] for epoch in range(total)]


LADDER = schedule_of([0.0, 0.1, 0.2, 0.3])


def test_as_many_epochs_replay_the_schedule():
    assert entries(LADDER, 4) == [0.0, 0.1, 0.2, 0.3]
    np.testing.assert_array_equal(LADDER.at(2, 4)[1], LADDER.p_o[2])


def test_more_epochs_repeat_entries_and_fewer_skip_some():
    assert entries(LADDER, 8) == [0.0, 0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.3]
    assert entries(LADDER, 6) == [0.0, 0.1, 0.1, 0.2, 0.3, 0.3]
    assert entries(LADDER, 2) == [0.1, 0.3]
    assert entries(LADDER, 1) == [0.2]


@given(st.integers(1, 60), st.integers(1, 400))
def test_resampling_is_monotone_even_and_reaches_both_ends(length, total):
    steps = np.arange(length) / length
    taken = [round(value * length) for value in entries(schedule_of(steps), total)]
    assert taken == sorted(taken)
    repeats = np.bincount(taken, minlength=length)
    assert repeats.max() - repeats.min() <= 1
    if total >= length:
        assert (taken[0], taken[-1]) == (0, length - 1)


@pytest.mark.parametrize(("epoch", "total"), [(-1, 5), (5, 5), (0, 0), (0, -3)])
def test_epochs_outside_the_training_are_refused(epoch, total):
    with pytest.raises(ValueError, match="epoch"):
        LADDER.at(epoch, total)


def test_what_at_returns_is_the_callers():
    LADDER.at(0, 4)[1][:] = 0
    assert LADDER.p_o[0].sum() == pytest.approx(1)


def test_mean_filter_centred_and_cut_at_the_ends():
    schedule = schedule_of([0.0, 0.6, 0.3, 0.9])
    np.testing.assert_array_equal(schedule.smoothed(1).p_tp, schedule.p_tp)
    # an even size reaches one further back
    np.testing.assert_allclose(schedule.smoothed(2).p_tp, [0.0, 0.3, 0.45, 0.6])
    np.testing.assert_allclose(schedule.smoothed(3).p_tp, [0.3, 0.3, 0.6, 0.6])
    np.testing.assert_allclose(schedule.smoothed(9).p_tp, [0.45] * 4)
    np.testing.assert_array_equal(schedule.smoothed(3).p_o, schedule.p_o)


@given(st.floats(0, 1), st.integers(1, 9), st.integers(1, 12))
def test_smoothing_keeps_a_constant(value, length, size):
    np.testing.assert_allclose(schedule_of([value] * length).smoothed(size).p_tp, value)


@pytest.mark.parametrize("size", [0, -1, 1.5, "2"])
def test_filter_sizes_that_are_none_are_refused(size):
    with pytest.raises(ValueError, match="mean filter"):
        LADDER.smoothed(size)


def test_scaled_follows_the_recorded_size():
    space = SearchSpace.of(["TranslateX", "Cutout", "Rotate"], [10], scale=PixelScale(250, 100))
    schedule = PolicySchedule(space, [0.5], [[0.2, 0.3, 0.5]], {"image_size": 800, "data": "coco"})
    half = schedule.scaled(400)
    assert [half.space.argument(index) for index in range(3)] == [125, 50, 30]
    assert half.settings == {"image_size": 400, "data": "coco"}
    assert half.scaled(400) is half and half.scaled(800) == schedule
    assert (half.p_tp == schedule.p_tp).all() and (half.p_o == schedule.p_o).all()


def test_scaled_without_a_record_changes_nothing():
    space = SearchSpace.of(["TranslateX"], [10])
    schedule = PolicySchedule(space, [0.5], [[1.0]])
    assert schedule.scaled(400) is schedule
    with pytest.raises(ValueError, match="image_size is a number of pixels, 1 or more, not 0"):
        schedule.scaled(0)


def test_a_policy_may_ask_for_its_last_entry_throughout(tmp_path):
    space = SearchSpace.of(["Invert", "Blur"])
    rows = [[0.5, 0.5], [0.7, 0.3]]
    schedule = PolicySchedule(space, [0.2, 0.4], rows, {"replay": "last"})
    schedule.save(tmp_path / "policy.json")
    schedule = PolicySchedule.load(tmp_path / "policy.json")
    for epoch in range(3):
        share, ops = schedule.at(epoch, 3)
        assert share == 0.4 and ops.tolist() == [0.7, 0.3]
    assert len(schedule) == 2 and len(schedule.replayed) == 1
    paper = PolicySchedule(space, [0.2, 0.4], rows, {"replay": "epochs"})
    assert paper.replayed is paper and paper.at(0, 3)[0] == 0.2
