"""Settings in groups: a dataclass of dataclasses whose fields are the flags of a command."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, TypeVar

Own = TypeVar("Own", bound="GroupedSettings")


class GroupedSettings:
    """What a frozen dataclass of groups can do; no two groups have a flag of the same name."""

    def to_json(self) -> dict[str, Any]:
        """{flag: value}, all groups in one, as in config.json."""
        values: dict[str, Any] = {}
        for group in dataclasses.fields(self):
            values |= dataclasses.asdict(getattr(self, group.name))
        return {
            name: str(value) if isinstance(value, Path) else value for name, value in values.items()
        }

    def replace(self: Own, **values: Any) -> Own:
        """With some flags changed, whatever group they are in."""
        groups = {}
        for group in dataclasses.fields(self):
            old = getattr(self, group.name)
            own = {f.name: values.pop(f.name) for f in dataclasses.fields(old) if f.name in values}
            groups[group.name] = dataclasses.replace(old, **own)
        if values:
            raise ValueError(f"unknown setting {next(iter(values))!r}")
        return type(self)(**groups)

    @classmethod
    def from_json(cls: type[Own], values: dict[str, Any]) -> Own:
        """Inverse of `to_json`."""
        defaults = cls()
        groups = [getattr(defaults, group.name) for group in dataclasses.fields(cls)]
        paths = {f.name for group in groups for f in dataclasses.fields(group) if _is_path(f)}
        read = {}
        for name, value in values.items():
            if name in paths and value is not None:
                value = Path(value)
            read[name] = tuple(value) if isinstance(value, list) else value
        return defaults.replace(**read)


def _is_path(field: dataclasses.Field) -> bool:
    return "Path" in str(field.type)
