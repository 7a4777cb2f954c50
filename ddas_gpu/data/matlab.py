"""Reading MATLAB files (.mat, version 5), which SVHN and ImageNet's devkit are published in.

Damaged files crash SciPy's reader, and with it the interpreter. This one reads only what those two
data sets need, and checks every size before it uses it.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HEADER_BYTES = 128
MOST_BYTES = 1 << 31  # of a variable in this version of the format
DEEPEST = 4  # structs in structs

MATRIX, COMPRESSED = 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8"}
NUMBERS |= {13: "u8", 16: "u1", 17: "u2", 18: "u4"}  # 16 to 18: UTF-8, UTF-16, UTF-32

STRUCT, TEXT = 2, 4
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4"}
CLASSES |= {14: "i8", 15: "u8"}
COMPLEX = 0x0800


class Damaged(Exception):
    """The bytes are not of this format."""


@dataclass
class Elements:
    """Elements one after the other: a type, a size, and that many bytes."""

    content: memoryview
    order: str  # of bytes: "<" or ">"
    place: int = 0

    def take(self, count: int) -> memoryview:
        if count > len(self.content) - self.place:
            raise Damaged("it ends too early")
        self.place += count
        return self.content[self.place - count : self.place]

    def integer(self) -> int:
        return int(np.frombuffer(self.take(4), f"{self.order}u4")[0])

    def next(self) -> tuple[int, memoryview]:
        """Return the type and the bytes of the next element."""
        kind = self.integer()
        if kind >> 16:  # up to four bytes lie in the place of the size
            size, kind = kind >> 16, kind & 0xFFFF
            if size > 4:
                raise Damaged("a small element is too large")
            return kind, self.take(4)[:size]
        size = self.integer()
        found = self.take(size)
        if kind != COMPRESSED:
            self.place = min(len(self.content), self.place + -size % 8)
        return kind, found

    def numbers(self) -> np.ndarray:
        """Return the next element, which must hold numbers."""
        kind, found = self.next()
        if kind not in NUMBERS or len(found) % np.dtype(NUMBERS[kind]).itemsize:
            raise Damaged("it has no numbers where they must be")
        return np.frombuffer(found, self.order + NUMBERS[kind])

    def inner(self, kind: int, found: memoryview) -> Elements:
        if kind != MATRIX:
            raise Damaged("it has no matrix where one must be")
        return Elements(found, self.order)


def read_mat(path: Path, what: str, variables: Collection[str]) -> dict[str, Any]:
    """Return some variables of a .mat file: arrays, text, or for a struct a list of dicts.

    Raise a ValueError if one is missing, or if the file is damaged and so not `what`.
    """
    try:
        content = memoryview(path.read_bytes())
        found = {}
        for matrix in _matrices(content):
            flags, shape, name = _head(matrix)
            if name in variables:
                found[name] = _value(matrix, flags, shape, DEEPEST)
        missing = [name for name in variables if name not in found]
        if missing:
            raise Damaged(f"it has no {missing[0]}")
        return found
    except (Damaged, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not {what}: {error}") from None


def _matrices(content: memoryview) -> Iterator[Elements]:
    """Yield the variables of a file, unpacked."""
    order = {b"IM": "<", b"MI": ">"}.get(bytes(content[HEADER_BYTES - 2 : HEADER_BYTES]))
    if order is None:
        raise Damaged("it is no MATLAB file of version 5")
    file = Elements(content, order, HEADER_BYTES)
    while file.place < len(content):
        kind, found = file.next()
        if kind == COMPRESSED:
            unpacked = zlib.decompressobj().decompress(found, MOST_BYTES)
            kind, found = Elements(memoryview(unpacked), order).next()
        yield file.inner(kind, found)


def _head(matrix: Elements) -> tuple[int, tuple[int, ...], str]:
    """Return the flags, the shape and the name of a matrix."""
    flags, shape, name = matrix.numbers(), matrix.numbers(), matrix.numbers()
    if len(flags) != 2 or not 2 <= len(shape) <= 8 or shape.dtype.kind == "f" or (shape < 0).any():
        raise Damaged("a matrix has no shape")
    return int(flags[0]), tuple(int(side) for side in shape), name.tobytes().decode("latin1")


def _value(matrix: Elements, flags: int, shape: tuple[int, ...], depth: int) -> Any:
    kind = flags & 0xFF
    if kind == STRUCT and depth:
        return _struct(matrix, math.prod(shape), depth)
    if (kind != TEXT and kind not in CLASSES) or flags & COMPLEX:
        raise Damaged(f"it has a matrix of class {kind}")
    numbers = matrix.numbers()
    if kind == TEXT:
        return "".join(map(chr, numbers.tolist())) if numbers.dtype.kind == "u" else ""
    if len(numbers) != math.prod(shape):
        raise Damaged(f"it has {len(numbers)} numbers for the shape {shape}")
    # Whole numbers are stored in fewer bytes than their class has.
    return numbers.astype(CLASSES[kind], copy=False).reshape(shape, order="F")


def _struct(matrix: Elements, count: int, depth: int) -> list[dict[str, Any]]:
    (width,), text = matrix.numbers()[:1].tolist() or (0,), matrix.numbers().tobytes()
    if not 0 < width <= 64 or len(text) % width:
        raise Damaged("a struct has no names")
    starts = range(0, len(text), width)
    names = [text[start : start + width].split(b"\0")[0].decode("latin1") for start in starts]
    if 8 * count * max(1, len(names)) > len(matrix.content):
        raise Damaged("it ends too early")
    return [{name: _field(matrix, depth - 1) for name in names} for _ in range(count)]


def _field(matrix: Elements, depth: int) -> Any:
    inner = matrix.inner(*matrix.next())
    if not len(inner.content):  # how an empty array is written
        return np.zeros((0, 0))
    flags, shape, _ = _head(inner)
    return _value(inner, flags, shape, depth)
