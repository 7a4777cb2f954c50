"""The policy for torchvision's transforms v2."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from ddas_gpu.export.parts.pillow_ops import apply
from ddas_gpu.export.parts.schedule import Schedule


class Policy(v2.Transform):
    """Augment PIL images and uint8 tensors (3, H, W); masks, boxes and key points move along.

    transform = v2.Compose([v2.RandomCrop(32, 4), policy := Policy(epochs=200), v2.ToImage(), …])
    policy.set_epoch(epoch)  # before each epoch
    """

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.schedule = Schedule(epochs)

    def set_epoch(self, epoch: int) -> None:
        self.schedule.set_epoch(epoch)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"ops": self.schedule.draw(random)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if isinstance(inpt, Image.Image):
            inpt = inpt.convert("RGB")
            for op, argument in params["ops"]:
                inpt = apply(inpt, op, argument, random)
            return inpt
        if isinstance(inpt, tv_tensors.TVTensor) and not isinstance(inpt, tv_tensors.Image):
            for op, argument in params["ops"]:
                if op in MOVES:
                    inpt = MOVES[op](inpt, argument)
            return inpt
        if inpt.dtype != torch.uint8 or inpt.ndim != 3 or inpt.shape[0] != 3:
            raise ValueError(
                "put the policy before the normalisation: a tensor must be uint8 (3, H, W), "
                f"not {inpt.dtype} {tuple(inpt.shape)}"
            )
        pixels = inpt.permute(1, 2, 0).contiguous().cpu().numpy()
        augmented = np.array(self.transform(Image.fromarray(pixels), params))
        result = torch.from_numpy(augmented).permute(2, 0, 1).to(inpt.device)
        return tv_tensors.wrap(result, like=inpt) if isinstance(inpt, tv_tensors.Image) else result


def _move(inpt: Any, shift: tuple[int, int] = (0, 0), x: float = 0.0, y: float = 0.0) -> Any:
    """Shift, or shear from the corner by the tangents x and y."""
    shear = [math.degrees(math.atan(x)), math.degrees(math.atan(y))]
    corner = [0.0, 0.0]
    return F.affine(inpt, angle=0.0, translate=list(shift), scale=1.0, shear=shear, center=corner)


def _zoom(inpt: Any, step: float) -> Any:
    step = round(64 * step) / 64
    return F.affine(inpt, angle=0.0, translate=[0, 0], scale=1 / step, shear=[0.0, 0.0])


# Where pixels go, for masks and boxes. Pillow's offset says where a pixel comes from.
MOVES = {
    "FlipLR": lambda inpt, _: F.horizontal_flip(inpt),
    "FlipUD": lambda inpt, _: F.vertical_flip(inpt),
    "Rotate": lambda inpt, degrees: F.rotate(inpt, degrees),
    "Rotate90": lambda inpt, _: F.rotate(inpt, 90),
    "ShearX": lambda inpt, amount: _move(inpt, x=amount),
    "ShearY": lambda inpt, amount: _move(inpt, y=amount),
    "TranslateX": lambda inpt, pixels: _move(inpt, (-pixels, 0)),
    "TranslateY": lambda inpt, pixels: _move(inpt, (0, -pixels)),
    "Shrink": lambda inpt, step: _zoom(inpt, step),
    "Enlarge": lambda inpt, step: _zoom(inpt, step),
}
