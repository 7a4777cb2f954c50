"""Images in and out: numpy, torch and CuPy arrays, as addresses that a kernel can use."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Images = Any  # a numpy, torch or CuPy uint8 array (B, H, W, 3), or a sequence of (H, W, 3)
Sizes = tuple[int, int] | list[tuple[int, int]]  # one (height, width) for all, or one an image


@dataclass(frozen=True)
class Kind:
    """How one array library says what we need to know."""

    library: str
    is_bytes: Callable[[Any], bool]
    address: Callable[[Any], int]
    strides: Callable[[Any], tuple[int, ...]]  # in bytes
    is_dense: Callable[[Any], bool]
    dense: Callable[[Any], Any]  # the same values, contiguous
    empty: Callable[[Any, Sequence[int]], Any]  # (like, shape): uint8 on the same device
    device: Callable[[Any], tuple[str, int]]


def address_of(array: np.ndarray) -> int:
    """Where a numpy array begins."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # three times as fast
    except (TypeError, ValueError):  # read-only, or with gaps
        return array.__array_interface__["data"][0]


def _empty_cupy(like: Any, shape: Sequence[int]) -> Any:
    with like.device:
        return sys.modules["cupy"].empty(tuple(shape), np.uint8)


NUMPY = Kind(
    library="numpy",
    is_bytes=lambda array: array.dtype == np.uint8,
    address=address_of,
    strides=lambda array: array.strides,
    is_dense=lambda array: array.flags.c_contiguous,
    dense=np.ascontiguousarray,
    empty=lambda like, shape: np.empty(shape, np.uint8),
    device=lambda array: ("cpu", 0),
)
TORCH = Kind(
    library="torch",
    is_bytes=lambda array: array.dtype is sys.modules["torch"].uint8,
    address=lambda array: array.data_ptr(),
    strides=lambda array: array.stride(),  # in elements, which are bytes
    is_dense=lambda array: array.is_contiguous(),
    dense=lambda array: array.contiguous(),
    empty=lambda like, shape: like.new_empty(tuple(shape)),
    device=lambda array: (array.device.type, array.device.index or 0),
)
CUPY = Kind(
    library="cupy",
    is_bytes=lambda array: array.dtype == np.uint8,
    address=lambda array: array.data.ptr,
    strides=lambda array: array.strides,
    is_dense=lambda array: array.flags.c_contiguous,
    dense=lambda array: sys.modules["cupy"].ascontiguousarray(array),
    empty=_empty_cupy,
    device=lambda array: ("cuda", array.device.id),
)


def kind_of(array: Any) -> Kind | None:
    """By the name of the library, so that none is imported before its arrays turn up."""
    if isinstance(array, np.ndarray):
        return NUMPY
    library = type(array).__module__.partition(".")[0]
    found = {"torch": TORCH, "cupy": CUPY}.get(library)
    return found if hasattr(array, "shape") else None


@dataclass
class Batch:
    """Where the images of a batch lie."""

    owners: list[Any]  # keeps the memory alive while it is in use
    sizes: Sizes
    addresses: np.ndarray  # uint64 (B,)
    extent: tuple[int, int]  # from the first byte to behind the last
    pitches: int | np.ndarray  # bytes from row to row
    device: tuple[str, int]
    library: str

    def __len__(self) -> int:
        return len(self.addresses)


def read(images: Images, name: str = "images", *, writable: bool = False) -> Batch:
    """Check the images and find them. Rows may lie apart; other layouts are copied first.

    Memory to write to is never copied: it must be contiguous.
    """
    if isinstance(images, (list, tuple)):
        return _read_list(images, name, writable)
    kind = _check(images, ("B", "H", "W", 3), name)
    images = _whole_rows(images, kind, name, writable)
    batch, height, width, _ = images.shape
    offset, pitch, *_ = kind.strides(images)
    offset = max(offset, 1)  # an empty batch may have a stride of 0
    address = kind.address(images)
    end = address + batch * offset
    return Batch(
        owners=[images],
        sizes=(height, width),
        addresses=np.arange(address, end, offset, np.uint64),
        extent=(address, max(end, address + height * pitch)),
        pitches=pitch,
        device=kind.device(images),
        library=kind.library,
    )


def _read_list(images: Sequence[Any], name: str, writable: bool) -> Batch:
    owners, addresses, pitches, places = [], [], [], set()
    for i, image in enumerate(images):
        kind = _check(image, ("H", "W", 3), f"{name}[{i}]")
        image = _whole_rows(image, kind, f"{name}[{i}]", writable)
        owners.append(image)
        addresses.append(kind.address(image))
        pitches.append(kind.strides(image)[0])
        places.add((kind.library, kind.device(image)))
    if len(places) > 1:
        raise ValueError(f"{name} are of different kinds or devices: {sorted(places)}")
    library, device = places.pop() if places else ("numpy", ("cpu", 0))
    ends = [a + p * len(image) for a, p, image in zip(addresses, pitches, owners, strict=True)]
    return Batch(
        owners=owners,
        sizes=[tuple(image.shape[:2]) for image in owners],
        addresses=np.array(addresses, np.uint64),
        extent=(min(addresses, default=0), max(ends, default=0)),
        pitches=np.array(pitches, np.int32),
        device=device,
        library=library,
    )


def empty_like(images: Images) -> Images:
    """Contiguous memory of the same kind, shape and device."""
    if isinstance(images, (list, tuple)):
        return [empty_like(image) for image in images]
    return empty(images, images.shape)


def empty(like: Any, shape: Sequence[int]) -> Any:
    """Contiguous memory of this shape, of the kind and on the device of `like`."""
    return kind_of(like).empty(like, shape)


def check_target(target: Batch, source: Batch) -> None:
    """`out=` must be like the images in kind, shape and device, and have memory of its own."""
    if len(target) != len(source) or target.sizes != source.sizes:
        raise ValueError(
            f"out holds {len(target)} images of {target.sizes} pixels, "
            f"but the result has {len(source)} of {source.sizes}"
        )
    if (target.library, target.device) != (source.library, source.device):
        raise ValueError(
            f"out is a {target.library} array on {target.device}, "
            f"but the images are {source.library} on {source.device}"
        )
    if target.extent[0] < source.extent[1] and source.extent[0] < target.extent[1]:
        # Lists of images may lie in between each other, which is fine.
        (begin, end), (low, high) = _spans(target), _spans(source)
        if ((begin[:, None] < high) & (low < end[:, None])).any():
            # ops read the neighbours of pixels already written
            raise ValueError("out overlaps the images: give it memory of its own")


def _spans(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    heights = np.array(batch.sizes, np.uint64)[..., 0]
    return batch.addresses, batch.addresses + heights * np.asarray(batch.pitches, np.uint64)


def _check(array: Any, layout: tuple[str | int, ...], name: str) -> Kind:
    kind = kind_of(array)
    if kind is None:
        raise TypeError(
            f"{name} must be a numpy, torch or CuPy array of uint8, not {type(array).__name__}"
        )
    if not kind.is_bytes(array):
        raise TypeError(f"{name} must be uint8, not {array.dtype}")
    shape = tuple(array.shape)
    if len(shape) != len(layout) or shape[-1] != 3:
        raise ValueError(f"{name} must have the shape ({', '.join(map(str, layout))}), not {shape}")
    if 0 in shape[-3:]:
        raise ValueError(f"{name} must have pixels, not the shape {shape}")
    return kind


def _whole_rows(array: Any, kind: Kind, name: str, writable: bool) -> Any:
    strides = kind.strides(array)
    if writable:
        if not kind.is_dense(array):
            raise ValueError(f"{name} must be contiguous, not of strides {strides}")
        return array
    *_, pitch, pixel, channel = strides
    whole = (pixel, channel) == (3, 1) and 3 * array.shape[-2] <= pitch < 2**31
    return array if whole and min(strides) > 0 else kind.dense(array)
