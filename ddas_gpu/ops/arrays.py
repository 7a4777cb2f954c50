"""Images as addresses for the kernels: numpy, torch and CuPy arrays."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

Images = Any  # a numpy, torch or CuPy uint8 array (B, H, W, 3), or a sequence of (H, W, 3)
Sizes = tuple[int, int] | list[tuple[int, int]]  # one (height, width) for all, or one per image


@dataclass(frozen=True)
class Kind:
    """What the kernels need to know about an array, for one array library."""

    library: str
    is_bytes: Callable[[Any], bool]
    address: Callable[[Any], int]
    strides: Callable[[Any], tuple[int, ...]]  # in bytes
    writable: Callable[[Any], bool]
    dense: Callable[[Any], Any]  # the same values, contiguous
    empty: Callable[[Any, Sequence[int]], Any]  # (like, shape): uint8 on the same device
    device: Callable[[Any], tuple[str, int]]


def address_of(array: np.ndarray) -> int:
    """Return the address of a numpy array's first byte."""
    try:
        # Three times as fast as the interface. numpy's stubs do not declare the buffer protocol.
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # read-only or not contiguous
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
    """Return the kind by the name of the array's library, without importing any library."""
    if isinstance(array, np.ndarray):
        return NUMPY
    library = type(array).__module__.partition(".")[0]
    found = {"torch": TORCH, "cupy": CUPY}.get(library)
    return found if hasattr(array, "shape") else None


@dataclass(frozen=True, eq=False)  # compared by identity: a fast key of the caches
class Layout:
    """The places of a batch's images in memory. Arrays of equal shape and strides share one."""

    sizes: Sizes
    offsets: np.ndarray  # int64 (B,), in bytes from the start of the batch
    pitches: int | np.ndarray  # bytes from row to row
    extent: int  # bytes from the start of the batch to its end


@dataclass(slots=True)
class Batch:
    """Images in memory."""

    owners: list[Any]  # the arrays, which keep the memory alive
    address: int
    layout: Layout
    device: tuple[str, int]
    library: str

    def __len__(self) -> int:
        return len(self.layout.offsets)

    @property
    def sizes(self) -> Sizes:
        return self.layout.sizes

    def size_list(self) -> list[tuple[int, int]]:
        """Return one (height, width) per image."""
        sizes = self.layout.sizes
        return [sizes] * len(self) if isinstance(sizes, tuple) else sizes


def read(images: Images, name: str = "images", *, writable: bool = False) -> Batch:
    """Check the images and return where they are. Rows may have gaps; other layouts are copied.

    Memory to write to is never copied: it must be contiguous.
    """
    if isinstance(images, (list, tuple)):
        return _read_list(images, name, writable)
    kind = _check_kind(images, name, writable)
    layout = _layout(tuple(images.shape), kind.strides(images), name, writable)
    if layout is None:
        images = kind.dense(images)
        layout = _layout(tuple(images.shape), kind.strides(images), name, writable)
        assert layout is not None, "contiguous images always have a layout"
    return Batch([images], kind.address(images), layout, kind.device(images), kind.library)


@lru_cache(maxsize=1024)
def _layout(
    shape: tuple[int, ...], strides: tuple[int, ...], name: str, writable: bool
) -> Layout | None:
    """Return the layout, or None if the kernels cannot read images with these strides."""
    _check_shape(shape, ("B", "H", "W", 3), name)
    batch, height, width, _ = shape
    if batch == 0:  # numpy's strides are all 0 then
        return Layout((height, width), np.arange(0), 3 * width, extent=0)
    pitch = _pitch(shape[1:], strides[1:], name, writable)
    if pitch is None:
        return None
    offset = strides[0] if batch > 1 else height * pitch  # the stride of one image is arbitrary
    if writable and offset != height * pitch:
        raise _not_contiguous(name, strides)
    if offset <= 0:
        return None
    offsets = np.arange(batch) * offset
    return Layout((height, width), offsets, pitch, extent=int(offsets[-1]) + height * pitch)


@lru_cache(maxsize=64)
def tiled(layout: Layout, times: int) -> Layout:
    """Return the layout of the batch repeated `times` times."""
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
    """Return the bytes from row to row, or None if the pixels of a row are not contiguous."""
    height, width, _ = shape
    row = 3 * width
    # The stride of an axis of length 1 is arbitrary.
    pitch = strides[0] if height > 1 else row
    pixel = strides[1] if width > 1 else 3
    whole = (pixel, strides[2]) == (3, 1)
    if writable and not (whole and pitch == row):
        raise _not_contiguous(name, strides)
    return pitch if whole and row <= pitch < 2**31 else None


def _not_contiguous(name: str, strides: Sequence[int]) -> ValueError:
    return ValueError(f"{name} must be contiguous, not of strides {tuple(strides)}")


def empty_like(images: Images) -> Images:
    """Return contiguous memory of the same library, shape and device."""
    if isinstance(images, (list, tuple)):
        return [empty_like(image) for image in images]
    return empty(images, images.shape)


def empty(like: Any, shape: Sequence[int]) -> Any:
    """Return contiguous memory of this shape, of the library and on the device of `like`."""
    return _check_kind(like, "images", False).empty(like, shape)


def check_target(target: Batch, source: Batch) -> None:
    """Raise a ValueError unless `out=` has the library, shape and device of the images.

    The memory of both must not overlap.
    """
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
        # The ranges overlap; in lists, the images themselves need not.
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
