"""Reading pickles of plain NumPy data (CIFAR batches, released policies) without running code.

Python's unpickler calls what a file names, and even `numpy.dtype` is not safe to call: the state
in a file can declare raw bytes to be pointers. So this reads the opcodes itself. It makes numbers,
text, bytes, lists, tuples, dicts and arrays of plain numbers, and nothing else.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np

NUMBERS = frozenset("b1 i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8".split())  # type codes
OBJECT = "O8"
MOST_DIMENSIONS = 8


class NotPlain(Exception):
    """The pickle holds something else than plain data."""


class _Name(str):
    """A name such as "numpy.dtype" in the file; only `_Reader.call` gives it a meaning."""


class _Dtype:
    """Stands for a dtype: a type code, and the byte order that its state sets."""

    def __init__(self, code: Any) -> None:
        if not isinstance(code, str) or code not in (*NUMBERS, OBJECT):
            raise NotPlain("it has an array that is not one of plain numbers")
        self.code, self.order = code, "="

    def set_state(self, state: Any) -> None:
        """Take (version, byte order, subtype, names, fields, size, alignment, flags)."""
        order, *parts = state[1:5]
        if not isinstance(order, str) or order not in ("<", ">", "|", "=") or any(parts):
            raise NotPlain("it has an array that is not one of plain numbers")
        self.order = order

    def plain(self) -> np.dtype:
        if self.code == OBJECT:
            raise NotPlain("it has an array of objects")
        return np.dtype(self.order + self.code)


class _Unbuilt:
    """Stands for an array before its state is there."""

    def __init__(self) -> None:
        self.keys: list[int] = []  # in the memo


class _Reader:
    """A machine with a stack and a memo, for the opcodes that plain data need."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        # A file can name a string many times but needs each as bytes only once.
        self.bytes_left = len(content)

    def read(self) -> Any:
        for opcode, argument, _ in pickletools.genops(self.content):
            if opcode.name == "STOP":
                return self.stack.pop()
            if opcode.name in LITERALS:
                self.stack.append(argument)
            elif opcode.name in ACTIONS:
                ACTIONS[opcode.name](self, argument)
            else:
                raise NotPlain(f"it has the opcode {opcode.name}")
        raise NotPlain("it has no end")

    def pop(self, count: int) -> list[Any]:
        """Take the last values; none from before the last mark."""
        start = len(self.stack) - count
        if start < (self.marks[-1] if self.marks else 0):
            raise NotPlain("a value is missing")
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def pop_to_mark(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def put(self, key: int) -> None:
        if isinstance(self.stack[-1], _Unbuilt):
            self.stack[-1].keys.append(key)
        self.memo[key] = self.stack[-1]

    def extend(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise NotPlain("it appends to what is not a list")
        self.stack[-1].extend(values)

    def set_items(self, pairs: list[Any]) -> None:
        if type(self.stack[-1]) is not dict:
            raise NotPlain("it sets items of what is not a dict")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            # Hashing a tuple of tuples of tuples … would overflow the C stack.
            if not isinstance(key, (str, bytes, int)):
                raise NotPlain("a key is neither text nor a number")
            self.stack[-1][key] = value

    def name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise NotPlain("it has a name that is not text")
        self.stack.append(_Name(f"{module}.{name}"))

    def call(self) -> None:
        """Do what the few allowed functions do."""
        function, arguments = self.pop(2)
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise NotPlain("it calls what is no function")
        # NumPy moved `numpy.core` to `numpy._core`; files name either.
        match function.replace("numpy._core", "numpy.core"), arguments:
            case "numpy.core.multiarray._reconstruct", ("numpy.ndarray", _, _):
                result: Any = _Unbuilt()
            case "numpy.core.multiarray.scalar", (_Dtype() as dtype, content):
                result = self.array((1,), dtype, content)[0].item()
            case "numpy.dtype", (code, *_):
                result = _Dtype(code)
            case "_codecs.encode", (str(text), "latin1"):
                result = self.encoded(text)
            case _:
                raise NotPlain(f"it names {function[:80]}")
        self.stack.append(result)

    def build(self) -> None:
        """Give a dtype or an array its state."""
        thing, state = self.pop(2)
        if not isinstance(state, tuple):
            raise NotPlain("it has a state that is not a tuple")
        if isinstance(thing, _Dtype):
            thing.set_state(state)
            self.stack.append(thing)
            return
        if not isinstance(thing, _Unbuilt):
            raise NotPlain("it sets the state of what is not an array")
        _, shape, dtype, column_major, content = state
        if not isinstance(dtype, _Dtype):
            raise NotPlain("it has an array without a type")
        if dtype.code == OBJECT and shape == () and isinstance(content, list):
            (built,) = content  # `np.save` of a Python object: an array of 0 dimensions around it
        else:
            built = self.array(shape, dtype, content, "F" if column_major else "C")
        self.memo.update(dict.fromkeys(thing.keys, built))
        self.stack.append(built)

    def array(self, shape: Any, dtype: _Dtype, content: Any, order: Any = "C") -> np.ndarray:
        kind = dtype.plain()
        sizes = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
        if not sizes or len(shape) > MOST_DIMENSIONS:
            raise NotPlain("it has an array without a shape")
        raw = self.encoded(content) if isinstance(content, str) else content  # str: of Python 2
        if not isinstance(raw, bytes) or len(raw) != math.prod(shape) * kind.itemsize:
            raise NotPlain("it has an array whose bytes do not fit its shape")
        return np.frombuffer(raw, kind).reshape(shape, order=order)

    def encoded(self, text: str) -> bytes:
        self.bytes_left -= len(text)
        if self.bytes_left < 0:
            raise NotPlain("it makes more bytes than it has")
        return text.encode("latin1")


LITERALS = frozenset(
    """BININT BININT1 BININT2 LONG1 BINFLOAT BINSTRING SHORT_BINSTRING BINUNICODE SHORT_BINUNICODE
    BINBYTES SHORT_BINBYTES""".split()
)
ACTIONS: dict[str, Callable[[_Reader, Any], Any]] = {
    "PROTO": lambda reader, _: None,
    "FRAME": lambda reader, _: None,
    "NONE": lambda reader, _: reader.stack.append(None),
    "NEWTRUE": lambda reader, _: reader.stack.append(True),
    "NEWFALSE": lambda reader, _: reader.stack.append(False),
    "EMPTY_LIST": lambda reader, _: reader.stack.append([]),
    "EMPTY_DICT": lambda reader, _: reader.stack.append({}),
    "EMPTY_TUPLE": lambda reader, _: reader.stack.append(()),
    "MARK": lambda reader, _: reader.marks.append(len(reader.stack)),
    "TUPLE": lambda reader, _: reader.stack.append(tuple(reader.pop_to_mark())),
    "TUPLE1": lambda reader, _: reader.stack.append(tuple(reader.pop(1))),
    "TUPLE2": lambda reader, _: reader.stack.append(tuple(reader.pop(2))),
    "TUPLE3": lambda reader, _: reader.stack.append(tuple(reader.pop(3))),
    "APPEND": lambda reader, _: reader.extend(reader.pop(1)),
    "APPENDS": lambda reader, _: reader.extend(reader.pop_to_mark()),
    "SETITEM": lambda reader, _: reader.set_items(reader.pop(2)),
    "SETITEMS": lambda reader, _: reader.set_items(reader.pop_to_mark()),
    "BINPUT": lambda reader, key: reader.put(key),
    "LONG_BINPUT": lambda reader, key: reader.put(key),
    "MEMOIZE": lambda reader, _: reader.put(len(reader.memo)),
    "BINGET": lambda reader, key: reader.stack.append(reader.memo[key]),
    "LONG_BINGET": lambda reader, key: reader.stack.append(reader.memo[key]),
    "GLOBAL": lambda reader, names: reader.name(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda reader, _: reader.name(*reader.pop(2)),
    "REDUCE": lambda reader, _: reader.call(),
    "BUILD": lambda reader, _: reader.build(),
}


def restricted_load(content: bytes, path: object) -> Any:
    """Return the object pickled in `content`; raise a ValueError for anything but plain data."""
    try:
        return _Reader(content).read()
    except (NotPlain, ValueError, TypeError, LookupError, OverflowError) as error:
        raise ValueError(
            f"{path} is not a pickle of plain NumPy data, and nothing else is read: {error}"
        ) from None
