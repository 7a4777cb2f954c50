"""The few names of torchvision that an exported file uses, where torchvision is not installed.

`functional` returns what it was asked for instead of moving anything: `affine` the matrix from an
output point to its input point, by torchvision's own formula.
"""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any

import torch


class Transform(torch.nn.Module):
    def forward(self, *inputs: Any) -> Any:
        params = self.make_params(list(inputs))
        return tuple(self.transform(inpt, params) for inpt in inputs)


class TVTensor(torch.Tensor):
    pass


class Image(TVTensor):
    pass


class Mask(TVTensor):
    pass


def affine(
    inpt: Any, angle: float, translate: list[int], scale: float, shear: list[float], center: Any
) -> tuple[float, ...]:
    rot, sx, sy = (math.radians(value) for value in (angle, *shear))
    (cx, cy), (tx, ty) = center, translate
    a = math.cos(rot - sy) / math.cos(sy)
    b = -math.cos(rot - sy) * math.tan(sx) / math.cos(sy) - math.sin(rot)
    c = math.sin(rot - sy) / math.cos(sy)
    d = -math.sin(rot - sy) * math.tan(sx) / math.cos(sy) + math.cos(rot)
    matrix = [x / scale for x in (d, -b, 0.0, -c, a, 0.0)]
    matrix[2] += matrix[0] * (-cx - tx) + matrix[1] * (-cy - ty) + cx
    matrix[5] += matrix[3] * (-cx - tx) + matrix[4] * (-cy - ty) + cy
    return tuple(matrix)


def install() -> None:
    """Put the stub where `import torchvision` finds it."""
    functional = ModuleType("torchvision.transforms.v2.functional")
    functional.affine = affine
    functional.horizontal_flip = lambda inpt: "horizontal_flip"
    functional.vertical_flip = lambda inpt: "vertical_flip"
    functional.rotate = lambda inpt, angle: ("rotate", angle)
    v2 = ModuleType("torchvision.transforms.v2")
    v2.Transform, v2.functional = Transform, functional
    transforms = ModuleType("torchvision.transforms")
    transforms.v2 = v2
    tv_tensors = ModuleType("torchvision.tv_tensors")
    tv_tensors.TVTensor, tv_tensors.Image, tv_tensors.Mask = TVTensor, Image, Mask
    tv_tensors.wrap = lambda wrappee, like: wrappee.as_subclass(type(like))
    package = ModuleType("torchvision")
    package.transforms, package.tv_tensors = transforms, tv_tensors
    for module in (package, transforms, v2, functional, tv_tensors):
        sys.modules[module.__name__] = module
