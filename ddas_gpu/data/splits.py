"""The proxy task: a small training set and a small validation set out of a large one."""

from __future__ import annotations

import numpy as np


def shares(total: int, sizes: np.ndarray) -> np.ndarray:
    """`total` divided in proportion to `sizes`, by the largest remainder; never above `sizes`."""
    exact = total * sizes / sizes.sum()
    result = np.floor(exact).astype(np.int64)
    # stable, so that equal remainders go to the first classes on every machine
    order = np.argsort(result - exact, kind="stable")
    result[order[: total - result.sum()]] += 1
    return result


def stratified_split(
    labels: np.ndarray,
    class_names: tuple[str, ...],
    sizes: tuple[int, ...],
    generator: np.random.Generator,
    *,
    even: bool = False,
) -> tuple[np.ndarray, ...]:
    """Disjoint index sets of the given sizes, with the classes in their share of the whole.

    `even`: every class as often as any other, instead. Within a set the indices are sorted: only
    the membership is random.
    """
    total = " + ".join(str(size) for size in sizes)
    if sum(sizes) > len(labels):
        raise ValueError(
            f"{total} images are wanted, but there are only {len(labels)}: "
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
                    f"{total} images of {len(class_names)} classes"
                )
        parts.append(np.sort(np.concatenate([c[:n] for c, n in zip(chosen, counts, strict=True)])))
        chosen = [c[n:] for c, n in zip(chosen, counts, strict=True)]
        left = left - counts
    return tuple(parts)


def some_classes(
    class_names: tuple[str, ...], count: int, generator: np.random.Generator
) -> np.ndarray:
    """`count` classes drawn at random, as sorted class indices."""
    if count > len(class_names):
        raise ValueError(f"{count} classes are wanted, but there are only {len(class_names)}")
    return np.sort(generator.permutation(len(class_names))[:count])
