"""The authors' policies import with the right candidates; other pickles do not run."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from ddas_gpu import PolicySchedule

DATA_SETS = ("cifar10", "cifar100")


@pytest.fixture(params=DATA_SETS)
def published(request, shared_data):
    name = f"wresnet40x2_{request.param}_new_search_smoothed.npy"
    return shared_data / "released_policies" / name


def test_published_policies_import(published):
    schedule = PolicySchedule.from_released(published)
    assert (len(schedule), len(schedule.space), schedule.space.depth) == (20, 52, 2)
    # Both series begin before the first step: uniform candidates, p_tp at its initial 0.35.
    np.testing.assert_allclose(schedule.p_o[0], 1 / 52, rtol=1e-6)
    assert schedule.p_tp[0] == pytest.approx(0.35)
    assert schedule.p_tp[-1] < 0.25
    np.testing.assert_allclose(schedule.p_o.sum(1), 1, rtol=1e-12)


def test_candidates_have_their_published_names(shared_data):
    """In what they published for CIFAR-10 these lead, and FlipUD and Blur are near the end."""
    folder = shared_data / "released_policies"
    cifar10 = PolicySchedule.from_released(folder / "wresnet40x2_cifar10_new_search_smoothed.npy")
    order = [str(cifar10.space[i]) for i in np.argsort(-cifar10.p_o[-1])]
    assert order[:5] == ["TranslateX 6", "Posterize 6", "TranslateX 14", "TranslateX 2", "Equalize"]
    assert {"FlipUD", "Blur"} < set(order[-12:])


def test_import_survives_a_save(published, tmp_path):
    schedule = PolicySchedule.from_released(published)
    schedule.save(tmp_path / "policy.json")
    assert PolicySchedule.load(tmp_path / "policy.json") == schedule


class Bomb:
    """Touches a file when unpickled the ordinary way."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickle_that_wants_to_run_code_is_refused(tmp_path):
    path, mark = tmp_path / "policy.npy", tmp_path / "exploded"
    np.save(path, {"dis_ps": Bomb(mark), "tps": []}, allow_pickle=True)
    with pytest.raises(ValueError, match="nothing else is read"):
        PolicySchedule.from_released(path)
    assert not mark.exists()
    with open(path, "rb") as file:  # the bomb is live
        np.load(file, allow_pickle=True).item()["dis_ps"].close()
    assert mark.exists()


def uniform(rows: int, candidates: int) -> list[np.ndarray]:
    return [np.full(candidates, 1 / candidates, np.float32)] * rows


@pytest.mark.parametrize(
    "content",
    [
        {"tps": [0.35]},
        {"dis_ps": uniform(2, 52), "tps": [0.35]},
        {"dis_ps": uniform(2, 51), "tps": [0.35, 0.3]},
        {"dis_ps": [], "tps": []},
        [1, 2],
        {"dis_ps": uniform(2, 52), "tps": [0.35, 7.0]},
    ],
    ids=["no p_o", "too few p_tp", "K = 51", "empty", "a list", "p_tp above 1"],
)
def test_other_content_is_refused_in_words(content, tmp_path):
    holder = np.empty((), object)
    holder[()] = content
    np.save(tmp_path / "policy.npy", holder, allow_pickle=True)
    with pytest.raises(ValueError, match="is not a released policy"):
        PolicySchedule.from_released(tmp_path / "policy.npy")


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"\x93NUMPY\x09\x00", pickle.dumps(1)])
def test_damaged_files_are_refused_in_words(content, tmp_path):
    (tmp_path / "policy.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"policy\.npy is (not )?an \.npy file"):
        PolicySchedule.from_released(tmp_path / "policy.npy")


def test_an_array_of_numbers_is_no_policy(tmp_path):
    np.save(tmp_path / "policy.npy", np.zeros((20, 52)))
    with pytest.raises(ValueError, match="not a released policy"):
        PolicySchedule.from_released(tmp_path / "policy.npy")


def test_truncated_pickles_are_refused(published, tmp_path):
    content = published.read_bytes()
    for length in range(128, len(content), 997):
        (tmp_path / "policy.npy").write_bytes(content[:length])
        with pytest.raises(ValueError, match="nothing else is read"):
            PolicySchedule.from_released(tmp_path / "policy.npy")
