"""What a search prints of its candidates."""

from __future__ import annotations

import numpy as np

from ddas_gpu import SearchSpace
from ddas_gpu.search.algorithm import open_search
from ddas_gpu.search.job import SearchJob, top_candidates
from ddas_gpu.search.settings import preset


def test_top_candidates_in_multiples_of_uniform():
    space = SearchSpace.of(("Identity", "Invert", "Rotate"), levels=(8,))
    probabilities = np.array([0.25, 0.15, 0.6])
    assert top_candidates(space, probabilities, 2) == "Rotate 8 1.80×, Identity 0.75×"
    assert top_candidates(space, -probabilities, 1) == "Invert 0.45×"


def test_the_status_shows_the_validation_accuracy_of_the_epoch(one_thread):
    few = {"train_images": 32, "val_images": 40, "batch_size": 16, "val_batch_size": 40}
    job = SearchJob(
        open_search(preset("digits").replace(epochs=2, policies=2, warmup_epochs=0, **few))
    )
    lines = [job.step() for _ in range(3)]
    scores = [line["validation_accuracy"] for line in lines]
    assert all(0 <= score <= 1 and score * 40 == round(score * 40) for score in scores)
    assert f", validation accuracy {scores[2]:.1%}, p_tp" in job.status()  # a new epoch
    job.step()
    assert f"{np.mean([scores[2], job._last['validation_accuracy']]):.1%}" in job.status()
