"""The result of a search: the probabilities of augmenting and of each candidate, by epoch."""

from __future__ import annotations

import json
import platform
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from ddas_gpu.files import write_atomically
from ddas_gpu.ops.table import PixelScale
from ddas_gpu.released import read_released
from ddas_gpu.schema import check, read_json, short
from ddas_gpu.space import SearchSpace
from ddas_gpu.streams import Stream, epoch_key, uniforms, whole

FORMAT = "ddas_gpu policy"
VERSION = 1
# What the search says of its candidates; see docs/report.md. An interval is [effect, low, high].
INTERVAL = tuple[float, float, float]
VERDICT = {
    "sentence": str,
    "steps": int,
    "told": bool,
    "apply_probability?": tuple[float, float],
    "candidates?": [INTERVAL],
    "ops?": dict,
    "seeds?": [{"seed": int, "p_tp": float, "p_o": [float]}],
}
OP_VERDICT = {"verdict": str, "interval": INTERVAL, "steps_needed": int | None}
SCHEMA = {
    "space": dict,
    "p_tp": [float],
    "p_o": [[float]],
    "settings?": dict,
    "verdict?": VERDICT,
}
# float32 probabilities, as in the released policies, sum to 1 within about 1e-7 · √K.
TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class PolicySchedule:
    """Entry t holds the probabilities after epoch t of the search.

    `p_tp` (T,) is the probability to augment an image at all, `p_o` (T, K) that of each
    candidate of `space`; both float64. `settings` is free-form JSON that the search adds, `verdict`
    what it says of the candidates; both may be empty.

    >>> space = SearchSpace.of(["Invert", "Blur"])
    >>> schedule = PolicySchedule(space, [0.2, 0.4], [[0.5, 0.5], [0.7, 0.3]])
    >>> schedule.at(epoch=3, total_epochs=4)
    (0.4, array([0.7, 0.3]))
    """

    space: SearchSpace
    p_tp: np.ndarray
    p_o: np.ndarray
    settings: Mapping[str, Any] = field(default_factory=dict)
    verdict: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("p_tp", "p_o"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        p_tp, p_o = self.p_tp, self.p_o
        if p_tp.ndim != 1 or p_tp.size == 0:
            raise ValueError(f"p_tp has one number per epoch, not the shape {p_tp.shape}")
        if p_o.shape != (len(p_tp), len(self.space)):
            raise ValueError(
                f"p_o has the shape {p_o.shape}, but {len(p_tp)} epochs of a space of "
                f"{len(self.space)} candidates make {(len(p_tp), len(self.space))}"
            )
        if p_tp.min() < 0 or p_tp.max() > 1:
            raise ValueError(f"p_tp lies in [0, 1], not {p_tp.min():g} to {p_tp.max():g}")
        if p_o.min() < 0:
            raise ValueError(f"p_o has a negative probability, {p_o.min():g}")
        off = np.abs(p_o.sum(1) - 1)
        if off.max() > TOLERANCE:
            epoch = int(off.argmax())
            raise ValueError(f"p_o of epoch {epoch} sums to {p_o[epoch].sum():g}, not to 1")

    def __len__(self) -> int:
        """T, the number of epochs searched."""
        return len(self.p_tp)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PolicySchedule):
            return NotImplemented
        return self.to_json() == other.to_json()

    def at(self, epoch: int, total_epochs: int) -> tuple[float, np.ndarray]:
        """Return (p_tp, p_o) for `epoch`, counted from 0, of a training of `total_epochs`.

        Nearest neighbour by the middle of the epoch: entry ⌊(epoch + ½) · T / total_epochs⌋. A
        training of T epochs replays the schedule entry by entry; a longer one repeats entries
        evenly, from the first to the last; a shorter one skips some, evenly. A search with
        --replay last asks for the last entry throughout.
        """
        if total_epochs < 1:
            raise ValueError(f"a training has at least 1 epoch, not {total_epochs}")
        if not 0 <= epoch < total_epochs:
            raise ValueError(f"epoch {epoch} is not one of 0 … {total_epochs - 1}")
        rows = self.replayed
        entry = (2 * epoch + 1) * len(rows) // (2 * total_epochs)
        return float(rows.p_tp[entry]), rows.p_o[entry].copy()

    @property
    def replayed(self) -> PolicySchedule:
        """What a training goes through: all entries, or the last if `settings` say so."""
        if self.settings.get("replay") != "last" or len(self) == 1:
            return self
        return replace(self, p_tp=self.p_tp[-1:], p_o=self.p_o[-1:])

    def draw(self, epoch: int, total_epochs: int, seed: int, samples: np.ndarray) -> np.ndarray:
        """Draw (B, N_o) candidate indices; a row of -1 for a sample that is not augmented.

        Each sample is augmented with the probability p_tp of this epoch, by N_o candidates drawn
        from p_o. Beyond the last epoch its probabilities stay.
        """
        apply_probability, probabilities = self.at(min(epoch, total_epochs - 1), total_epochs)
        key = epoch_key(seed, Stream.POLICIES, epoch)
        drawn = uniforms(key, samples, 1 + self.space.depth)
        steps = np.cumsum(probabilities)
        steps /= steps[-1]  # so that a draw below 1 never falls behind the last candidate
        policies = np.searchsorted(steps, drawn[:, 1:], side="right")
        policies[drawn[:, 0] >= apply_probability] = -1
        return policies

    def smoothed(self, size: int) -> PolicySchedule:
        """Return a copy with p_tp under a mean filter of `size` entries (F_s in the paper).

        The window of entry t is t - ⌊size/2⌋ … t - ⌊size/2⌋ + size - 1: centred, and an even
        size reaches one further back. At the ends the mean is over the entries there are.
        """
        if not isinstance(size, (int, np.integer)) or size < 1:
            raise ValueError(f"the size of a mean filter is 1 or more, not {size!r}")
        starts = np.arange(len(self)) - size // 2
        p_tp = [self.p_tp[max(0, start) : start + size].mean() for start in starts]
        return replace(self, p_tp=np.array(p_tp))

    def with_uniform(self, share: float) -> PolicySchedule:
        """Return a copy whose p_o is uniform to this share, and as it was for the rest."""
        if not 0 <= share <= 1:
            raise ValueError(f"a share lies in [0, 1], not {share}")
        return (
            replace(self, p_o=(1 - share) * self.p_o + share / len(self.space)) if share else self
        )

    def scaled(self, image_size: int) -> PolicySchedule:
        """Return the schedule for images of another size than those of the search.

        Shifts and holes are numbers of pixels: they are multiplied by `image_size` divided by the
        size that `settings` records as "image_size", the shorter side where images are not square.
        Without that record the schedule stays as it is.
        """
        if not isinstance(image_size, (int, np.integer)) or image_size < 1:
            raise ValueError(f"image_size is a number of pixels, 1 or more, not {image_size!r}")
        searched = self.settings.get("image_size")
        if not isinstance(searched, int) or searched < 1 or searched == image_size:
            return self
        factor, old = image_size / searched, self.space.scale
        scale = PixelScale(round(old.translate * factor), round(old.cutout * factor))
        settings = {**self.settings, "image_size": int(image_size)}
        return replace(self, space=replace(self.space, scale=scale), settings=settings)

    def identity(self) -> str:
        """Return what the draws depend on in a few words, with a checksum."""
        rows, checksum = self.replayed, zlib.crc32(json.dumps(self.space.to_json()).encode())
        for numbers in (rows.p_tp, rows.p_o):
            checksum = zlib.crc32(numbers.tobytes(), checksum)
        return f"{len(rows)} epochs of {len(self.space)} candidates ({checksum:08x})"

    def to_json(self) -> dict[str, Any]:
        content = {
            "format": FORMAT,
            "version": VERSION,
            "space": self.space.to_json(),
            "p_tp": self.p_tp.tolist(),
            "p_o": self.p_o.tolist(),
            "settings": dict(self.settings),
        }
        return content | ({"verdict": dict(self.verdict)} if self.verdict else {})

    @classmethod
    def from_json(cls, content: Any) -> PolicySchedule:
        """Invert `to_json`; raise a ValueError that says what is wrong with anything else."""
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f'not a policy: the file must start with "format": "{FORMAT}"')
        if content.get("version") != VERSION:
            raise ValueError(
                f"a policy of version {short(content.get('version'))}; this program reads {VERSION}"
            )
        check(content, SCHEMA)
        space = SearchSpace.from_json(content["space"])
        verdict = content.get("verdict", {})
        _check_verdict(verdict, space)
        return cls(space, content["p_tp"], content["p_o"], content.get("settings", {}), verdict)

    def save(self, path: str | Path) -> None:
        """Write the schedule as JSON."""
        write_atomically(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the content of policy.json: one line per epoch, and the versions that made it."""
        content = self.to_json() | {"versions": versions()}
        rows = ",\n    ".join(json.dumps(row) for row in content["p_o"])
        lines = {key: json.dumps(value, ensure_ascii=False) for key, value in content.items()}
        lines["p_o"] = f"[\n    {rows}\n  ]"
        text = ",\n".join(f'  "{key}": {line}' for key, line in lines.items())
        return f"{{\n{text}\n}}\n".encode()

    @classmethod
    def load(cls, path: str | Path) -> PolicySchedule:
        """Read a schedule that `save` wrote; `path` may be the folder of a finished run."""
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"there is no policy.json and no folder of a run {path}")
        if path.is_dir():
            path = in_run_folder(path)
        content = read_json(path)
        try:
            return cls.from_json(content)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def from_released(cls, path: str | Path) -> PolicySchedule:
        """Read a policy that the authors published as .npy; see `ddas_gpu.released`."""
        p_tp, p_o = read_released(path)
        try:
            settings = {"released": Path(path).name, "image_size": 32}
            return cls(SearchSpace.preset("cifar"), p_tp, p_o, settings)
        except ValueError as error:
            raise ValueError(f"{path} is not a released policy: {error}") from None


def _check_verdict(verdict: dict[str, Any], space: SearchSpace) -> None:
    """Raise a ValueError for a verdict on other candidates than those of `space`."""
    if "ops" in verdict and not {"candidates", "apply_probability"} <= verdict.keys():
        raise ValueError("the verdict has ops, but no candidates or no apply_probability")
    for op, entry in verdict.get("ops", {}).items():
        check(entry, OP_VERDICT, f"verdict.ops.{op}")
    if "ops" in verdict and set(verdict["ops"]) != {candidate.op for candidate in space}:
        raise ValueError("the verdict is on other ops than those of the space")
    rows = [verdict["candidates"]] if "candidates" in verdict else []
    rows += [entry["p_o"] for entry in verdict.get("seeds", [])]
    if any(len(row) != len(space) for row in rows):
        raise ValueError(f"the verdict is not on the {len(space)} candidates of the space")


def in_run_folder(folder: Path) -> Path:
    """Return the policy.json of a run, or raise a ValueError that says why there is none."""
    if (folder / "policy.json").is_file():
        return folder / "policy.json"
    try:
        config = json.loads((folder / "config.json").read_bytes())
        command, settings = config["command"], config.get("settings", {})
    except (OSError, ValueError, TypeError, KeyError):
        raise ValueError(f"{folder} holds no policy.json and is not the folder of a run") from None
    if command == "search":
        by_command = f"ddas search --resume --out {folder}"
        by_call = f"search_policy(…, out={str(folder)!r}, resume=True)"
        raise ValueError(
            f"the search in {folder} is not finished and has no policy.json yet: "
            f"resume it with {by_call if settings.get('data') == 'custom' else by_command}"
        )
    raise ValueError(f"the {command} in {folder} has no policy.json: it was made without a policy")


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is not an array of numbers") from None
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds a value that is not a finite number")
    array.setflags(write=False)
    return array


def versions() -> dict[str, str]:
    """Return the package versions that a run's result depends on."""
    from importlib.metadata import version

    from ddas_gpu import __version__

    packages = {name: version(name) for name in ("torch", "numpy", "pillow")}
    return {"python": platform.python_version(), **packages, "ddas_gpu": __version__}


class HasPolicy(Protocol):
    """Anything with a policy, such as the result of `search_policy`."""

    @property
    def policy(self) -> PolicySchedule: ...


PolicyLike: TypeAlias = PolicySchedule | HasPolicy | str | Path


def open_policy(given: PolicyLike) -> PolicySchedule:
    """Return the schedule that an argument `schedule` means."""
    if isinstance(given, (str, Path)):
        return PolicySchedule.load(given)
    schedule = given if isinstance(given, PolicySchedule) else getattr(given, "policy", None)
    if isinstance(schedule, PolicySchedule):
        return schedule
    raise TypeError(
        "schedule is a PolicySchedule, what search_policy returned, or the path of a policy.json "
        f"or of a finished run, not {type(given).__name__}"
    )


def open_schedule(
    schedule: PolicyLike | None, epochs: int | None, training: bool
) -> PolicySchedule | None:
    """Return the schedule of a training of `epochs`, which only a schedule needs."""
    if epochs is not None:
        whole("epochs", epochs, 1)
    if schedule is None:
        return None
    if not training:
        raise ValueError("a schedule is for training: images to test on are not augmented")
    if epochs is None:
        raise ValueError("a schedule needs the number of epochs that you train for: epochs=…")
    return open_policy(schedule)
