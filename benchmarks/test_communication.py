"""The bytes that a step communicates: independent of the number of policies, except scalars."""

from __future__ import annotations

import pytest
from communication import search_traffic, training_bytes

SEARCH = (
    "What one rank hands to the others in a step of the search, counted in the program. Gradients: "
    "the weighted one and that of the validation loss, once each whatever L̂ is. Scalars: L̂ + 1 "
    "losses with L̂ flags, the validation loss, L̂ + 1 products; for detectors also counts of "
    "objects; and at the end of a step whether to stop."
)
TRAINING = (
    "What DistributedDataParallel hands over in a step: every gradient once, and the statistics of "
    "batch norm, which rank 0 gives out."
)
# The scalars of a step are few, and at most this many for each policy.
MOST_SCALARS, SCALARS_A_POLICY = 6, 4


@pytest.mark.parametrize("data", ["digits", "cifar10", "imagenet", "coco"])
def test_search(data, tables, tmp_path):
    columns = ("preset", "L̂", "gradients", "in buckets", "scalars", "in reductions")
    table = tables.get_or_make("Communicated in a step of the search", columns, SEARCH)
    totals = set()
    for policies in (1, 3, 8):
        traffic = search_traffic(data, policies, tmp_path)
        totals.add(sum(traffic.gradients))
        scalars = sum(traffic.scalars)
        assert scalars <= 8 * (MOST_SCALARS + SCALARS_A_POLICY * policies)
        table.add(
            data,
            policies,
            f"{sum(traffic.gradients) / 1e6:.2f} MB",
            len(traffic.gradients),
            f"{scalars} B",
            len(traffic.scalars),
        )
    assert len(totals) == 1


@pytest.mark.parametrize(
    ("model", "classes"),
    [
        *(("wrn-28-10", 10), ("shake-shake-26-2x96d", 10), ("resnet-50", 1000)),
        *(("resnet-200", 1000), ("retinanet-r50", 80), ("retinanet-r101", 80)),
    ],
)
def test_training(model, classes, tables):
    columns = ("network", "gradients", "statistics")
    table = tables.get_or_make("Communicated in a step of a training", columns, TRAINING)
    table.add(model, *(f"{size / 1e6:.2f} MB" for size in training_bytes(model, classes)))
