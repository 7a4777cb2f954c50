"""A gradient's mean does not depend on buckets or on the order in which its parts come."""

from __future__ import annotations

import numpy as np
import torch

from ddas_gpu.distributed import ranks
from ddas_gpu.distributed.ranks import ALONE, MeanGradient, buckets_of


def test_the_mean_over_ranks(answers):
    for name in answers[0]["means"]["own"]:
        own = [answer["means"]["own"][name] for answer in answers]
        for answer in answers:
            found = answer["means"]["mean"][name]
            assert found.shape == own[0].shape
            assert found.dtype == own[0].dtype
            np.testing.assert_allclose(found, np.mean(own, axis=0), rtol=1e-6)
            np.testing.assert_array_equal(found, answers[0]["means"]["mean"][name])


def test_buckets_are_cut_where_they_are_full(monkeypatch):
    monkeypatch.setattr(ranks, "BUCKET_BYTES", 80)
    parameters = {name: torch.zeros(10) for name in "abcde"}
    parameters["d"] = torch.zeros(10, dtype=torch.float64)
    assert buckets_of(parameters) == [["a", "b"], ["c"], ["d"], ["e"]]
    assert buckets_of({}) == []


def test_alone_a_gradient_stays_what_it_is():
    parts = {"a": torch.rand(3), "b": torch.rand(2, 2)}
    mean = MeanGradient(ALONE, parts)
    for name, part in parts.items():
        mean.add(name, part)
    result = mean.result()
    assert all(result[name].data_ptr() == part.data_ptr() for name, part in parts.items())
