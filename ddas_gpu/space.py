"""The search space: ops × magnitude levels → K candidates."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, overload

import numpy as np

from ddas_gpu.files import write_atomically
from ddas_gpu.ops.records import Request, steps_of
from ddas_gpu.ops.table import WIDE, Argument, PixelScale, Reach, find_any
from ddas_gpu.schema import check, read_json, short
from ddas_gpu.streams import draw, sample_numbers

# Of a space in JSON.
SCHEMA = {
    "candidates?": [tuple[str] | tuple[str, float]],
    "ops?": [str],
    "levels?": [float],
    "depth?": int,
    "scale?": {"translate?": int, "cutout?": int},
    "fill?": int,
    "ranges?": str,
}
RANGES = ("autoaugment", "wide")
MOST_OPS = 100  # in a policy
MOST_PIXELS = 100_000


@dataclass(frozen=True)
class Candidate:
    """An op at a magnitude level; `level` is None for ops without a magnitude."""

    op: str
    level: float | None = None

    def __post_init__(self) -> None:
        law = find_any(self.op).law
        if law is None and self.level is not None:
            raise ValueError(f"{self.op} has no magnitude, but was given level {self.level!r}")
        if law is not None and not _is_level(self.level):
            raise ValueError(
                f"{self.op} needs a level from 0 to 30 (10 is AutoAugment's maximum), "
                f"not {self.level!r}"
            )

    def __str__(self) -> str:
        return self.op if self.level is None else f"{self.op} {self.level:g}"


def _is_level(level: object) -> bool:
    return isinstance(level, (int, float)) and not isinstance(level, bool) and 0 <= level <= 30


@dataclass(frozen=True)
class SearchSpace(Sequence[Candidate]):
    """K candidates, and how many of them a policy chains (`depth`, N_o in the paper).

    >>> space = SearchSpace.preset("cifar")
    >>> len(space), space.depth, space[7]
    (52, 2, Candidate(op='Smooth', level=None))
    """

    candidates: tuple[Candidate, ...]
    depth: int = 2
    scale: PixelScale = PixelScale()
    fill: int = 0  # the grey of pixels from outside the image, and of Cutout's holes
    ranges: str = "autoaugment"  # what the levels mean; "wide" for those of `ops.table.WIDE`

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))
        if not self.candidates:
            raise ValueError("a search space needs at least one candidate")
        repeated = {str(c) for c, count in Counter(self.candidates).items() if count > 1}
        if repeated:
            raise ValueError(f"candidates given twice: {', '.join(sorted(repeated))}")
        if not isinstance(self.depth, int) or not 1 <= self.depth <= MOST_OPS:
            raise ValueError(
                f"depth is the number of ops in a policy, 1 to {MOST_OPS}, not {self.depth!r}"
            )
        for side in (self.scale.translate, self.scale.cutout):
            if not 0 <= side <= MOST_PIXELS:
                raise ValueError(f"scale is in pixels, 0 to {MOST_PIXELS}, not {side!r}")
        if not isinstance(self.fill, int) or not 0 <= self.fill <= 255:
            raise ValueError(f"fill is a grey from 0 to 255, not {self.fill!r}")
        if self.ranges not in RANGES:
            raise ValueError(f"ranges is one of {', '.join(RANGES)}, not {self.ranges!r}")
        if self.ranges == "wide" and any((c.level or 0) > 10 for c in self.candidates):
            raise ValueError("the wide ranges end at level 10")

    @classmethod
    def of(
        cls,
        ops: Iterable[str],
        levels: Iterable[float] = (),
        depth: int = 2,
        scale: PixelScale = PixelScale(),
        fill: int = 0,
        ranges: str = "autoaugment",
    ) -> SearchSpace:
        """Return every op in the order given; those with a magnitude once at each level."""
        levels = tuple(levels)
        candidates = []
        for name in ops:
            if find_any(name).law is None:
                candidates.append(Candidate(name))
            elif levels:
                candidates.extend(Candidate(name, level) for level in levels)
            else:
                raise ValueError(f"{name} has a magnitude: give the space at least one level")
        return cls(tuple(candidates), depth, scale, fill, ranges)

    @classmethod
    def preset(cls, name: str) -> SearchSpace:
        """Return a space of `PRESETS`: the paper's, and one for the digits."""
        if name not in PRESETS:
            raise ValueError(f"unknown preset {name!r}; there are: {', '.join(PRESETS)}")
        return cls.of(**PRESETS[name])

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self.candidates[index]

    def __len__(self) -> int:
        return len(self.candidates)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.candidates)

    def argument(self, index: int) -> Argument:
        """Return the argument of candidate `index`, before any random sign."""
        candidate = self.candidates[index]
        law = find_any(candidate.op).law
        if law is None or candidate.level is None:
            return None
        if self.ranges == "wide":
            law = WIDE.get(candidate.op.removesuffix("_BBox"), law)
        return law(candidate.level, self.scale)

    def check_policies(self, policies: Sequence | np.ndarray) -> np.ndarray:
        """Return policies as an index array, or raise an error that names the first wrong index."""
        policies = np.asarray(policies)
        if policies.ndim not in (1, 2) or (policies.size and policies.dtype.kind not in "iu"):
            raise ValueError(
                "a policy is a row of candidate indices, (N,) or (B, N), "
                f"not {policies.dtype} of shape {policies.shape}"
            )
        wrong = policies[(policies < -1) | (policies >= len(self))]
        if wrong.size:
            raise ValueError(
                f"policy index {wrong[0]} is outside the space: "
                f"0 to {len(self) - 1}, or -1 to do nothing"
            )
        return policies.astype(np.intp)

    def request(
        self,
        policies: Sequence | np.ndarray,
        images: int,
        seed: int = 0,
        samples: Sequence[int] | np.ndarray | None = None,
    ) -> Request:
        """Return what the op bank is to do to a number of images: what `augment` asks for."""
        policies = self.check_policies(policies)
        if policies.ndim == 2 and len(policies) != images:
            raise ValueError(f"{len(policies)} policies for {images} images: give one per image")
        draws = draw(seed, sample_numbers(samples, images), policies.shape[-1])
        return Request(steps_of(self), np.atleast_2d(policies), draws, self.fill)

    def identity(self) -> str:
        """Return the space in a few words, with a checksum of all that `to_json` says."""
        return f"{len(self)} candidates ({zlib.crc32(json.dumps(self.to_json()).encode()):08x})"

    def to_json(self) -> dict[str, Any]:
        ranges = {} if self.ranges == "autoaugment" else {"ranges": self.ranges}
        return {
            "depth": self.depth,
            "scale": {"translate": self.scale.translate, "cutout": self.scale.cutout},
            "fill": self.fill,
            **ranges,
            "candidates": [[c.op] if c.level is None else [c.op, c.level] for c in self],
        }

    @classmethod
    def from_json(cls, content: Any) -> SearchSpace:
        """Invert `to_json`; the short form {"ops": [...], "levels": [...]} is accepted as well."""
        try:
            check(content, SCHEMA)
            known = [field.name for field in fields(PixelScale)]
            foreign = [name for name in content.get("scale", {}) if name not in known]
            if foreign:
                raise ValueError(f"'scale' has {' and '.join(known)}, not {short(foreign[0])}")
            scale = PixelScale(**content.get("scale", {}))
            depth, fill = content.get("depth", 2), content.get("fill", 0)
            ranges = content.get("ranges", "autoaugment")
            if "candidates" not in content and "ops" not in content:
                raise ValueError("the content has no 'candidates'")
        except ValueError as error:
            raise ValueError(
                'a search space is written {"candidates": [["Invert"], ["Rotate", 6], …]} or '
                f'{{"ops": […], "levels": […]}}, with "depth", "scale", "fill" if wanted: {error}'
            ) from None
        if "candidates" in content:
            candidates = tuple(Candidate(*entry) for entry in content["candidates"])
            return cls(candidates, depth, scale, fill, ranges)
        return cls.of(content["ops"], content.get("levels", ()), depth, scale, fill, ranges)

    def save(self, path: str | Path) -> None:
        """Write the space as a JSON file, for `load` and --space."""
        write_atomically(path, f"{json.dumps(self.to_json())}\n".encode())

    @classmethod
    def load(cls, path: str | Path) -> SearchSpace:
        """Read a space from a JSON file."""
        return cls.from_json(read_json(path))


def check_space(
    space: Iterable[Candidate],
    has_boxes: bool,
    where: str,
    advice: str = "which --data coco and scenes have",
) -> None:
    """Raise a ValueError if a candidate does not suit data with, or without, boxes.

    where: the origin of the candidates, for the message; advice: where there are boxes.
    """
    for op in dict.fromkeys(candidate.op for candidate in space):
        found = find_any(op)
        if found.reach is not Reach.IMAGE and not has_boxes:
            raise ValueError(f"{where}: {op} needs boxes, {advice}")
        moves = found.matrix is not None
        if has_boxes and moves and found.reach is Reach.IMAGE:
            raise ValueError(
                f"{where}: {op} moves pixels away from their boxes; detection has ops "
                "that transform both, such as Rotate_BBox"
            )


# In the order of the authors' released policies: first the ops without a magnitude, then the
# others, each at every level.
PLAIN = ("Identity", "FlipLR", "FlipUD", "AutoContrast", "Equalize", "Invert", "Blur", "Smooth")
GEOMETRIC = ("ShearX", "ShearY", "TranslateX", "TranslateY")
TONES = ("Solarize", "Color", "Contrast", "Brightness", "Sharpness")
CLASSIFICATION = (*PLAIN, "Rotate", "Posterize", *GEOMETRIC, *TONES)

# What cameras differ in beside that: distance, haze and the colour of the light.
CAMERA = (*CLASSIFICATION, "Shrink", "Enlarge", "Lighten", "Warmth")

# Ops on the colours of the image, geometric ops that move the boxes, and ops inside the boxes.
DETECTION = (
    "Identity",
    "AutoContrast",
    "Equalize",
    "Posterize",
    "Solarize",
    "SolarizeAdd",
    "Color",
    "Contrast",
    "Brightness",
    "Sharpness",
    "Cutout",
    "BBox_Cutout",
    "Rotate_BBox",
    "ShearX_BBox",
    "ShearY_BBox",
    "TranslateX_BBox",
    "TranslateY_BBox",
    "Rotate_Only_BBoxes",
    "ShearX_Only_BBoxes",
    "ShearY_Only_BBoxes",
    "TranslateX_Only_BBoxes",
    "TranslateY_Only_BBoxes",
    "Flip_Only_BBoxes",
    "Solarize_Only_BBoxes",
    "Equalize_Only_BBoxes",
    "Cutout_Only_BBoxes",
)

PRESETS: dict[str, dict[str, Any]] = {
    "cifar": {"ops": CLASSIFICATION, "levels": (2, 6, 10, 14)},
    "svhn": {"ops": CLASSIFICATION, "levels": (2, 6, 10, 14)},
    "camera": {"ops": CAMERA, "levels": (2, 6, 10, 14)},
    "imagenet": {
        "ops": (*CLASSIFICATION, "Cutout"),
        "levels": (7, 14),
        "scale": PixelScale(translate=100, cutout=40),
    },
    "coco": {
        "ops": DETECTION,
        "levels": (4, 6, 8),
        "scale": PixelScale(translate=250, cutout=100),
        "fill": 128,
    },
    # "sanity" for detection.
    "coco-sanity": {
        "ops": [name.replace("Rotate_BBox", "Rotate90_BBox") for name in DETECTION],
        "levels": (2,),
        "depth": 1,
        "scale": PixelScale(translate=250, cutout=100),
        "fill": 128,
    },
    # The paper replaces Rotate by Rotate90, with one magnitude and one op per policy.
    "sanity": {
        "ops": (*PLAIN, "Rotate90", "Posterize", *GEOMETRIC, *TONES),
        "levels": (2,),
        "depth": 1,
    },
    # Few levels, that a short search tries each often, and more ops that blur.
    "scenes": {
        "ops": ("Invert", "Blur", "Smooth", *DETECTION),
        "levels": (2, 8),
        "scale": PixelScale(translate=25, cutout=20),
        "fill": 128,
    },
    "digits": {"ops": CLASSIFICATION, "levels": (4, 8), "scale": PixelScale(translate=8)},
}
