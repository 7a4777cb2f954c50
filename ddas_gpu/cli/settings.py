"""Settings in groups: a dataclass of dataclasses whose fields are the flags of a command."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args, get_type_hints

from ddas_gpu.cli.groups import DataSettings
from ddas_gpu.cli.rules import check_rules, flag
from ddas_gpu.data.catalog import CATALOG, CUSTOM, DataSpec, find_data
from ddas_gpu.schema import check, fits, short, words
from ddas_gpu.tasks.facts import FACTS, facts_of

Own = TypeVar("Own", bound="Settings")

# What may change on --resume.
FREE_TO_CHANGE = (
    "out",
    "resume",
    "checkpoint_seconds",
    "checkpoint_epochs",
    "tensorboard",
    "timeout",
    "workers",
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base of a command's settings, a frozen dataclass of the groups data, policy, training, run.

    No two groups have a flag of the same name.
    """

    data: DataSettings = dataclasses.field(default_factory=DataSettings)

    free_to_change: ClassVar[tuple[str, ...]] = FREE_TO_CHANGE

    @property
    def spec(self) -> DataSpec:
        """The data set."""
        return find_data(self.data.data)

    def usual(self: Own) -> Own:
        """Return the preset that the flags of this run started from."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise a ValueError for settings that no run can have."""
        self.check_each()
        values = self.to_json()
        refuse_foreign_flags(values, self.usual().to_json())
        if values["workers"] == 0 and self.spec is not CUSTOM:  # whose examples Python code reads
            raise ValueError("--workers must be above 0, not 0")
        if values["frozen_norm"] and values["backbone"] is None:
            raise ValueError("--frozen-norm keeps trained statistics: it needs --backbone FILE")

    def check_each(self) -> None:
        """Raise a ValueError for a setting of another type, or out of its range."""
        values, kinds = self.to_json(), self.kinds()
        for name, value in values.items():
            if not (fits(value, kinds[name]) or is_custom(name, value)):
                expected = words(kinds[name]).removesuffix(" or null")
                raise ValueError(f"{flag(name)} must be {expected}, not {short(value)}")
        check_rules(values)

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """Return {setting: its type}, all groups in one."""
        kinds: dict[str, Any] = {}
        defaults = cls()
        for group in dataclasses.fields(cls):
            kinds |= get_type_hints(type(getattr(defaults, group.name)), include_extras=False)
        return kinds

    def to_json(self) -> dict[str, Any]:
        """Return {setting: value}, all groups in one, as in config.json."""
        values: dict[str, Any] = {}
        for group in dataclasses.fields(self):
            values |= dataclasses.asdict(getattr(self, group.name))
        return {
            name: str(value) if isinstance(value, Path) else value for name, value in values.items()
        }

    def replace(self: Own, **values: Any) -> Own:
        """Return a copy with some settings changed, whatever group they are in."""
        groups = {}
        for group in dataclasses.fields(self):
            old = getattr(self, group.name)
            own = {f.name: values.pop(f.name) for f in dataclasses.fields(old) if f.name in values}
            plain = {name: tuple(v) if isinstance(v, list) else v for name, v in own.items()}
            groups[group.name] = dataclasses.replace(old, **plain)
        if values:
            raise ValueError(f"unknown setting {next(iter(values))!r}")
        return type(self)(**groups)

    @classmethod
    def from_json(cls: type[Own], values: dict[str, Any]) -> Own:
        """Return the settings that `to_json` wrote; raise a ValueError for other types."""
        kinds, read = cls.kinds(), {}
        for name, value in values.items():
            if name not in kinds:
                raise ValueError(f"unknown setting {name!r}")
            if not is_custom(name, value):
                check(value, kinds[name], name)
            is_path = isinstance(value, str) and Path in (kinds[name], *get_args(kinds[name]))
            read[name] = Path(value) if is_path else value
        return cls().replace(**read)


def is_custom(name: str, value: Any) -> bool:
    """Return whether a setting says that the data is a user's own: no choice of a command."""
    return (name, value) == ("data", CUSTOM.name)


def refuse_foreign_flags(values: dict[str, Any], usual: dict[str, Any]) -> None:
    """Raise a ValueError for flags of another task or of another data set.

    usual: the preset's values, which are never refused.
    """
    data = find_data(values["data"])
    foreign = [
        *(
            (name, facts.name)
            for facts in FACTS.values()
            if facts.name != data.task
            for name in facts.flags
            if name not in facts_of(data.task).flags
        ),
        *(
            (name, f"--data {other.name}")
            for other in CATALOG.values()
            if other is not data
            for name in other.flags
        ),
    ]
    for name, owner in foreign:
        if name in values and values[name] != usual[name]:
            here = "your own data" if data is CUSTOM else f"--data {data.name}"
            raise ValueError(f"{flag(name)} is for {owner}, not for {here}")
