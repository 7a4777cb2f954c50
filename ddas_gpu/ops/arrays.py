"""Images in and out: numpy, torch and CuPy arrays, as addresses that a kernel can use."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
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
    writable: Callable[[Any], bool]
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
    writable=lambda array: array.flags.writeable,
    dense=np.ascontiguousarray,
    empty=lambda like, shape: np.empty(shape, np.uint8),
    device=lambda array: ("cpu", 0),
)
TORCH = Kind(
    library="torch",
    is_bytes=lambda array: array.dtype is sys.modules["torch"].uint8,
    address=lambda array: array.data_ptr(),
    strides=lambda array: array.stride(),  # in elements, which are bytes
    writable=lambda array: True,
    dense=lambda array: array.contiguous(),
    empty=lambda like, shape: like.new_empty(tuple(shape)),
    device=lambda array: (array.device.type, array.device.index or 0),
)
CUPY = Kind(
    library="cupy",
    is_bytes=lambda array: array.dtype == np.uint8,
    address=lambda array: array.data.ptr,
    strides=lambda array: array.strides,
    writable=lambda array: True,
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


@dataclass(frozen=True, eq=False)  # compared by identity, so that it is quick to find in a cache
class Layout:
    """Where the images of a batch lie, from where it begins. Alike arrays share one object."""

    sizes: Sizes
    offsets: np.ndarray  # int64 (B,), in bytes
    pitches: int | np.ndarray  # bytes from row to row
    extent: int  # bytes to behind the last one


@dataclass(slots=True)
class Batch:
    """Images in memory."""

    owners: list[Any]  # keeps the memory alive while it is in use
    address: int
    layout: Layout
    device: tuple[str, int]
    library: str

    def __len__(self) -> int:
        return len(self.layout.offsets)

    @property
    def sizes(self) -> Sizes:
        return self.layout.sizes


def read(images: Images, name: str = "images", *, writable: bool = False) -> Batch:
    """Check the images and find them. Rows may lie apart; other layouts are copied first.

    Memory to write to is never copied: it must be contiguous.
    """
    if isinstance(images, (list, tuple)):
        return _read_list(images, name, writable)
    kind = _check_kind(images, name, writable)
    layout = _layout(tuple(images.shape), kind.strides(images), name, writable)
    if layout is None:
        images = kind.dense(images)
        layout = _layout(tuple(images.shape), kind.strides(images), name, writable)
    return Batch([images], kind.address(images), layout, kind.device(images), kind.library)


@lru_cache(maxsize=1024)
def _layout(
    shape: tuple[int, ...], strides: tuple[int, ...], name: str, writable: bool
) -> Layout | None:
    """None: the kernels cannot read images that lie like this."""
    _check_shape(shape, ("B", "H", "W", 3), name)
    batch, height, width, _ = shape
    if batch == 0:  # numpy's strides are all 0 then
        return Layout((height, width), np.arange(0), 3 * width, extent=0)
    pitch = _pitch(shape[1:], strides[1:], name, writable)
    if pitch is None:
        return None
    offset = strides[0] if batch > 1 else height * pitch  # of a single image it may be anything
    if writable and offset != height * pitch:
        raise _not_contiguous(name, strides)
    if offset <= 0:
        return None
    offsets = np.arange(batch) * offset
    return Layout((height, width), offsets, pitch, extent=int(offsets[-1]) + height * pitch)


@lru_cache(maxsize=64)
def tiled(layout: Layout, times: int) -> Layout:
    """The same images several times over."""
    return replace(layout, offsets=np.tile(layout.offsets, times))


def _read_list(images: Sequence[Any], name: str, writable: bool) -> Batch:
    owners, addresses, pitches, places = [], [], [], set()
    for i, image in enumerate(images):
        each = f"{name}[{i}]"
        kind = _check_kind(image, each, writable)
        _check_shape(tuple(image.shape), ("H", "W", 3), each)
        pitch = _pitch(image.shape, kind.strides(image), each, writable)
        if pitch is None:
            image, pitch = kind.dense(image), 3 * image.shape[1]
        owners.append(image)
        addresses.append(kind.address(image))
        pitches.append(pitch)
        places.add((kind.library, kind.device(image)))
    if len(places) > 1:
        raise ValueError(f"{name} are of different kinds or devices: {sorted(places)}")
    library, device = places.pop() if places else ("numpy", ("cpu", 0))
    begin = min(addresses, default=0)
    ends = [a + p * len(image) for a, p, image in zip(addresses, pitches, owners, strict=True)]
    layout = Layout(
        sizes=[tuple(image.shape[:2]) for image in owners],
        offsets=np.array([address - begin for address in addresses], np.int64),
        pitches=np.array(pitches, np.int32),
        extent=max(ends, default=0) - begin,
    )
    return Batch(owners, begin, layout, device, library)


def _pitch(shape: Sequence[int], strides: Sequence[int], name: str, writable: bool) -> int | None:
    """Bytes from row to row of an image, or None if the pixels of a row do not lie side by side."""
    height, width, _ = shape
    row = 3 * width
    # Where there is only one, it does not matter how far the next would be.
    pitch = strides[0] if height > 1 else row
    pixel = strides[1] if width > 1 else 3
    whole = (pixel, strides[2]) == (3, 1)
    if writable and not (whole and pitch == row):
        raise _not_contiguous(name, strides)
    return pitch if whole and row <= pitch < 2**31 else None


def _not_contiguous(name: str, strides: Sequence[int]) -> ValueError:
    return ValueError(f"{name} must be contiguous, not of strides {tuple(strides)}")


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
    if (
        target.address < source.address + source.layout.extent
        and source.address < target.address + target.layout.extent
    ):
        # Lists of images may lie in between each other, which is fine.
        (begin, end), (low, high) = _spans(target), _spans(source)
        if ((begin[:, None] < high) & (low < end[:, None])).any():
            # ops read the neighbours of pixels already written
            raise ValueError("out overlaps the images: give it memory of its own")


def _spans(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    begin = batch.address + batch.layout.offsets
    return begin, begin + np.array(batch.sizes)[..., 0] * batch.layout.pitches


def _check_kind(array: Any, name: str, writable: bool) -> Kind:
    kind = kind_of(array)
    if kind is None:
        raise TypeError(
            f"{name} must be a numpy, torch or CuPy array of uint8, not {type(array).__name__}"
        )
    if not kind.is_bytes(array):
        raise TypeError(f"{name} must be uint8, not {array.dtype}")
    if writable and not kind.writable(array):
        raise ValueError(f"{name} must be an array that may be written to; this one is read-only")
    return kind


def _check_shape(shape: tuple[int, ...], layout: tuple[str | int, ...], name: str) -> None:
    if len(shape) != len(layout) or shape[-1] != 3:
        raise ValueError(f"{name} must have the shape ({', '.join(map(str, layout))}), not {shape}")
    if 0 in shape[-3:]:
        raise ValueError(f"{name} must have pixels, not the shape {shape}")
