"""Subsets of a data set: the two sets of a search, or a share of a set to train or test on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddas_gpu.data.sources import Labelled, Own


def shares(total: int, sizes: np.ndarray) -> np.ndarray:
    """Divide `total` in proportion to `sizes`, by the largest remainder; never above `sizes`."""
    exact = total * sizes / sizes.sum()
    result = np.floor(exact).astype(np.int64)
    # stable, so that equal remainders go to the first classes on every machine
    order = np.argsort(result - exact, kind="stable")
    result[order[: total - result.sum()]] += 1
    return result


def fitted(
    sizes: tuple[int, ...], may_shrink: tuple[bool, ...], available: int, least: int = 1
) -> tuple[int, ...]:
    """Return sizes that add up to at most `available`: those that may shrink, in proportion.

    least: that they keep if possible, such as one image of each class.

    >>> fitted((2000, 2000), (True, True), 1500), fitted((100, 2000), (False, True), 1500)
    ((750, 750), (100, 1400))
    >>> fitted((50, 10), (True, True), 12, least=3)
    (9, 3)
    """
    free = [place for place, may in enumerate(may_shrink) if may]
    total = sum(sizes[place] for place in free)
    left = available - (sum(sizes) - total)
    if left >= total or left < len(free):
        return sizes
    result = list(sizes)
    free.sort(key=lambda place: sizes[place])  # the smallest takes its least first
    for done, place in enumerate(free):
        even = left // (len(free) - done)
        result[place] = max(sizes[place] * left // total, min(least, even))
        total, left = total - sizes[place], left - result[place]
    return tuple(result)


def stratified_split(
    labels: np.ndarray,
    class_names: tuple[str, ...],
    sizes: tuple[int, ...],
    generator: np.random.Generator,
    *,
    even: bool = False,
    there_are: str = "there are",
) -> tuple[np.ndarray, ...]:
    """Draw disjoint index sets of the given sizes, with the classes in their share of the whole.

    `even`: every class as often as any other, instead. Within a set the indices are sorted: only
    the membership is random. `there_are` begins the words about too few images.
    """
    total = " + ".join(str(size) for size in sizes)
    if sum(sizes) > len(labels):
        raise ValueError(
            f"{total} images are wanted, but {there_are} only {len(labels)}: "
            "lower --train-images or --val-images"
        )
    available = np.bincount(labels, minlength=len(class_names))
    wanted = shares(sum(sizes), np.ones_like(available) if even else available)
    chosen = [generator.permutation(np.flatnonzero(labels == c)) for c in range(len(class_names))]
    parts, left = [], wanted
    for number, size in enumerate(sizes):
        # the last part takes what is left, so that the rounding adds up
        counts = left if number == len(sizes) - 1 else shares(size, left)
        for name, has, count, needs in zip(class_names, available, counts, wanted, strict=True):
            if count == 0 or has < needs:
                raise ValueError(
                    f"class {name!r} has too few images, {has}, for a share in "
                    f"{total} images of {len(class_names)} classes: each must be in every set"
                )
        parts.append(np.sort(np.concatenate([c[:n] for c, n in zip(chosen, counts, strict=True)])))
        chosen = [c[n:] for c, n in zip(chosen, counts, strict=True)]
        left = left - counts
    return tuple(parts)


def some_classes(
    class_names: tuple[str, ...], count: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw `count` classes, as sorted class indices."""
    if count > len(class_names):
        raise ValueError(
            f"{count} classes are wanted, but there are only {len(class_names)}: lower --classes"
        )
    return np.sort(generator.permutation(len(class_names))[:count])


def of_classes(source: Labelled, kept: np.ndarray) -> Labelled:
    """Return the images of the classes `kept`, whose labels become 0, 1, …."""
    images = source.subset(np.flatnonzero(np.isin(source.labels, kept)))
    names = tuple(source.class_names[index] for index in kept)
    return replace(images, labels=np.searchsorted(kept, images.labels), class_names=names)


def stratified_sets(
    source: Labelled,
    sizes: tuple[int, ...],
    generator: np.random.Generator,
    even: bool,
    there_are: str = "there are",
) -> tuple[Labelled, ...]:
    """Draw disjoint sets of these sizes, the classes as in the whole, or equally often."""
    names = source.class_names
    labels = source.labels
    parts = stratified_split(labels, names, sizes, generator, even=even, there_are=there_are)
    return tuple(source.subset(part) for part in parts)


def random_sets(
    source: Own, sizes: tuple[int, ...], generator: np.random.Generator
) -> tuple[Own, ...]:
    """Draw disjoint sets of these sizes, whatever is in the images."""
    order = generator.permutation(len(source))
    if sum(sizes) > len(order):
        raise ValueError(
            f"{sum(sizes)} images are wanted, but there are only {len(order)}: "
            "lower --train-images or --val-images"
        )
    ends = np.cumsum(sizes)
    parts = (order[end - size : end] for end, size in zip(ends, sizes, strict=True))
    return tuple(source.subset(part) for part in parts)


def stratified_share(source: Labelled, share: float, generator: np.random.Generator) -> Labelled:
    """Draw a share of the images, the classes in their proportions."""
    if share == 1:
        return source
    count = max(len(source.class_names), round(share * len(source)))
    return stratified_sets(source, (count,), generator, even=False)[0]


def random_share(source: Own, share: float, generator: np.random.Generator) -> Own:
    """Draw a share of the images, in their order."""
    count = max(1, round(share * len(source)))
    return source.subset(np.sort(generator.permutation(len(source))[:count]))


def held_out(source: Own, share: float, generator: np.random.Generator) -> tuple[Own, Own]:
    """Draw a share of the images at random; return the others and it, each in their order."""
    order = generator.permutation(len(source))
    count = max(1, round(share * len(source)))
    return source.subset(np.sort(order[count:])), source.subset(np.sort(order[:count]))
