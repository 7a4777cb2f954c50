"""Checks of JSON content: every file format has one schema, and every error is one sentence.

`require_same` compares a state with what it is loaded into.

A schema is a type as in annotations (`int`, `float | None`, `Literal["a", "b"]`), `[schema]` for a
list, or `{"name": schema, "other?": schema}` for an object, in which `other` may be missing. A
`float` may be written as a whole number and must be finite; a bool is not a number.
"""

from __future__ import annotations

import json
import math
import reprlib
import warnings
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

WORDS = {
    int: "a whole number",
    float: "a finite number",
    str: "text",
    bool: "true or false",
    NoneType: "null",
    Path: "a path",
    dict: "an object",
    list: "a list",
}

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60


def short(value: object) -> str:
    """Return a value for a message: not all of a long one, and no deep recursion."""
    return _short.repr(value)


def read_json(path: str | Path) -> Any:
    """Return the content of a JSON file; raise a ValueError for other files."""
    try:
        return json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def check(value: Any, schema: Any, where: str = "") -> None:
    """Raise a ValueError that says what in `value` does not fit; `where` is its name."""
    if isinstance(schema, dict):
        _check_object(value, schema, where)
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise ValueError(f"{where} must be a list, not {short(value)}")
        for index, item in enumerate(value):
            check(item, schema[0], f"{where}[{index}]")
    elif not fits(value, schema):
        raise ValueError(f"{where} must be {words(schema)}, not {short(value)}")


def require_same(what: str, saved: dict[str, Any], own: dict[str, Any]) -> None:
    """Raise a ValueError if a state was saved by something else than it is loaded into.

    What the state does not say, being of an older version, is not compared. Another number of
    epochs is a warning: a training may be made longer.
    """
    for name, value in own.items():
        if name not in saved or saved[name] == value:
            continue
        difference = f"the state is of a {what} with {name} {saved[name]}, but this one has {value}"
        if name != "epochs":
            raise ValueError(
                f"{difference}; to begin an epoch with other settings, call set_epoch instead"
            )
        warnings.warn(
            f"{difference}: from here on the policy's epochs are spread over {value}",
            RuntimeWarning,
            stacklevel=3,
        )


def _check_object(value: Any, schema: dict[str, Any], where: str) -> None:
    name_of_all = where or "the content"
    if not isinstance(value, dict):
        raise ValueError(f"{name_of_all} must be an object, not {short(value)}")
    for key, kind in schema.items():
        name = key.removesuffix("?")
        if name in value:
            # Most values are simple: spend no time on their names.
            if not (isinstance(kind, type) and fits(value[name], kind)):
                check(value[name], kind, f"{where}.{name}" if where else name)
        elif name == key:
            raise ValueError(f"{name_of_all} has no {name!r}")


def fits(value: Any, kind: Any) -> bool:
    """Return whether a value of a JSON file is of this type."""
    if kind is Any:
        return True
    if kind is float:
        return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)
    if kind is Path:
        return isinstance(value, str) and "\0" not in value
    if get_origin(kind) is None and isinstance(kind, type):  # in Python 3.10 tuple[int] is a type
        return type(value) is kind
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return any(fits(value, argument) for argument in arguments)
    if get_origin(kind) is Annotated:
        return fits(value, arguments[0])
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in arguments
    if get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            return False
        if arguments[1:] == (...,):
            return all(fits(item, arguments[0]) for item in value)
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    raise TypeError(f"no rule for {kind}")


def words(kind: Any) -> str:
    """Return a type in words.

    >>> words(int | None), words(tuple[float, ...])
    ('a whole number or null', '[a finite number, …]')
    """
    if kind in WORDS:
        return WORDS[kind]
    arguments = get_args(kind)
    if get_origin(kind) is Annotated:
        return words(arguments[0])
    if get_origin(kind) is Literal:
        return f"one of {', '.join(arguments)}"
    if get_origin(kind) is tuple:
        return f"[{', '.join('…' if item is ... else words(item) for item in arguments)}]"
    return " or ".join(words(argument) for argument in arguments)
