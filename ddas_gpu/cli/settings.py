"""Settings in groups: a dataclass of dataclasses whose fields are the flags of a command."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args, get_type_hints

from ddas_gpu.cli.groups import DataSettings
from ddas_gpu.cli.rules import check_rules, flag
from ddas_gpu.data.catalog import CATALOG, CUSTOM, DataSpec, find_data
from ddas_gpu.schema import check
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
        values = self.to_json()
        check_rules(values)
        refuse_foreign_flags(values, self.usual().to_json())
        if values["frozen_norm"] and values["backbone"] is None:
            raise ValueError("--frozen-norm keeps trained statistics: it needs --backbone FILE")

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
            groups[group.name] = dataclasses.replace(old, **own)
        if values:
            raise ValueError(f"unknown setting {next(iter(values))!r}")
        return type(self)(**groups)

    @classmethod
    def from_json(cls: type[Own], values: dict[str, Any]) -> Own:
        """Return the settings that `to_json` wrote; raise a ValueError for other types."""
        defaults = cls()
        kinds: dict[str, Any] = {}
        for group in dataclasses.fields(cls):
            kinds |= get_type_hints(type(getattr(defaults, group.name)), include_extras=False)
        read = {}
        for name, value in values.items():
            if name not in kinds:
                raise ValueError(f"unknown setting {name!r}")
            if (name, value) != ("data", CUSTOM.name):  # which is no choice of a command
                check(value, kinds[name], name)
            if isinstance(value, str) and Path in (kinds[name], *get_args(kinds[name])):
                value = Path(value)
            read[name] = tuple(value) if isinstance(value, list) else value
        return defaults.replace(**read)


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
            raise ValueError(f"{flag(name)} is for {owner}, not for --data {data.name}")
