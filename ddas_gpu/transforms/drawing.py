"""The policy of one image with boxes and masks: one plan for the pixels and for what is in them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from ddas_gpu.ops.box_policies import BoxStep, move_boxes, plan_boxes, run_steps
from ddas_gpu.ops.table import OPS
from ddas_gpu.policy import PolicySchedule


class Plan(NamedTuple):
    """What happens to an image."""

    steps: list[BoxStep]
    boxes: np.ndarray  # (k, 4) x0 y0 x1 y1, of those that are still in the image
    kept: np.ndarray  # (k,) their places among the boxes given
    fill: int

    def on_pixels(self, pixels: Any) -> Any:
        return run_steps([pixels], [self.steps], self.fill)[0]

    def on_mask(self, mask: torch.Tensor) -> torch.Tensor:
        """Move the pixels of a mask (…, H, W) of any type; those from outside are 0."""
        moving = [step for step in self.steps if step.op.matrix is not None]
        if not moving or not mask.numel():
            return mask.clone()
        # The kernels move bytes, three to a pixel; a number is as many bytes as it has.
        height, width = mask.shape[-2:]
        numbers = mask.detach().cpu().reshape(-1, height, width, 1).contiguous()
        layers = np.moveaxis(numbers.view(torch.uint8).numpy(), 0, 2).reshape(height, width, -1)
        bytes_each = layers.shape[2]
        layers = np.pad(layers, ((0, 0), (0, 0), (0, -bytes_each % 3)))
        parts = [np.ascontiguousarray(part) for part in np.split(layers, layers.shape[2] // 3, 2)]
        moved = np.concatenate(run_steps(parts, [moving] * len(parts), 0), axis=2)
        moved = moved[:, :, :bytes_each].reshape(height, width, -1, mask.element_size())
        layers = np.ascontiguousarray(np.moveaxis(moved, 2, 0))
        flat = torch.from_numpy(layers).reshape(-1).view(mask.dtype)
        return flat.reshape(mask.shape).to(mask.device)


def plan_for(
    schedule: PolicySchedule,
    size: tuple[int, int],
    boxes: np.ndarray,
    drawn: tuple[np.ndarray, int],
    sample: np.ndarray,
) -> Plan:
    """Plan the policy drawn for an image. Ops that move the whole image move its boxes, too."""
    policies, key = drawn
    numbers = [np.arange(len(boxes))]
    (steps,), (boxes,), (kept,) = plan_boxes(
        [size], [boxes], numbers, policies, schedule.space, key, samples=sample
    )
    for op, argument, _, _ in steps:
        if op.name in OPS and op.matrix is not None:  # the ops for boxes have moved them already
            moved, inside = move_boxes(boxes, op.matrix(argument, *size), *size)
            boxes, kept = moved[inside], kept[inside]
    return Plan(steps, boxes, kept, schedule.space.fill)
