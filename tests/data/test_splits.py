"""Proxy sets: disjoint, of the size asked for, every class in its share, the seed's alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddas_gpu.data.splits import shares, some_classes, stratified_split


def names(count: int) -> tuple[str, ...]:
    return tuple(f"class {n}" for n in range(count))


@given(st.lists(st.integers(1, 500), min_size=1, max_size=20), st.data())
def test_shares_add_up_and_are_within_one_of_exact(sizes, data):
    sizes = np.array(sizes)
    total = data.draw(st.integers(0, int(sizes.sum())))
    parts = shares(total, sizes)
    assert parts.sum() == total
    assert (parts <= sizes).all()
    assert (np.abs(parts - total * sizes / sizes.sum()) < 1).all()


@given(st.lists(st.integers(20, 60), min_size=1, max_size=8), st.integers(0, 99), st.data())
def test_split_is_disjoint_stratified_and_repeats(class_sizes, seed, data):
    labels = np.random.default_rng(seed).permutation(
        np.repeat(np.arange(len(class_sizes)), class_sizes)
    )
    least = 4 * len(class_sizes)
    train = data.draw(st.integers(least, len(labels) // 2))
    val = data.draw(st.integers(least, len(labels) // 2))
    parts = stratified_split(
        labels, names(len(class_sizes)), (train, val), np.random.default_rng(seed)
    )
    assert [len(set(part.tolist())) for part in parts] == [train, val]
    assert not set(parts[0].tolist()) & set(parts[1].tolist())
    for part in parts:
        exact = np.array(class_sizes) * len(part) / len(labels)
        assert (np.abs(np.bincount(labels[part]) - exact) < 2).all()
    again = stratified_split(
        labels, names(len(class_sizes)), (train, val), np.random.default_rng(seed)
    )
    assert all((a == b).all() for a, b in zip(parts, again, strict=True))


def test_another_seed_is_another_split():
    labels = np.repeat(np.arange(4), 50)
    one, other = (
        stratified_split(labels, names(4), (40,), np.random.default_rng(seed))[0] for seed in (0, 1)
    )
    assert (one != other).any()


def test_even_split_ignores_how_common_a_class_is():
    labels = np.repeat([0, 1], [1000, 30])
    train, val = stratified_split(labels, names(2), (40, 20), np.random.default_rng(0), even=True)
    assert np.bincount(labels[train]).tolist() == [20, 20]
    assert np.bincount(labels[val]).tolist() == [10, 10]
    with pytest.raises(ValueError, match="'class 1' has too few images, 30"):
        stratified_split(labels, names(2), (60, 20), np.random.default_rng(0), even=True)


def test_a_class_with_too_few_images_is_named():
    labels = np.repeat([0, 1], [199, 1])
    with pytest.raises(ValueError, match="'class 1' has too few images, 1"):
        stratified_split(labels, names(2), (50, 50), np.random.default_rng(0))


def test_more_images_than_there_are():
    with pytest.raises(ValueError, match=r"8 \+ 4 images are wanted, but there are only 10"):
        stratified_split(np.zeros(10, int), names(1), (8, 4), np.random.default_rng(0))


def test_some_classes():
    chosen = some_classes(names(30), 12, np.random.default_rng(0))
    assert len(set(chosen.tolist())) == 12
    assert (np.diff(chosen) > 0).all()
    with pytest.raises(ValueError, match="only 3"):
        some_classes(names(3), 4, np.random.default_rng(0))
