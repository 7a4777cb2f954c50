"""The policy as a transform, for trainers with their own data set and DataLoader."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from ddas_gpu.ops import augment
from ddas_gpu.space import check_space
from ddas_gpu.transforms import image_kinds as kinds
from ddas_gpu.transforms.drawing import plan_for
from ddas_gpu.transforms.epochs import SamplePolicy

NEEDS_BOXES = "as tv_tensors.BoundingBoxes beside the image, or use BoxPolicyTransform"


class PolicyTransform(SamplePolicy):
    """Augments one image with the probabilities of the current epoch.

    Takes and returns RGB in uint8: a PIL image (of any mode, converted to RGB), a numpy array
    (H, W, 3), or a torch tensor (3, H, W). As in torchvision's v2 an image may come with anything
    else, in tuples, lists and dicts: `tv_tensors.BoundingBoxes` and `Mask` are moved along with
    the image (boxes that leave it become empty: `SanitizeBoundingBoxes` drops those), the rest is
    passed through. All images of a call get the same policy; arrays and plain tensors are images
    only where there is no other, and then the first that can be one.

    The draws are a pure function of (seed, epoch, index), so they do not depend on the number or
    the order of the workers. With the image's index in the data set, an image gets the policy that
    a training pipeline gives it; without an index, a checksum of the pixels replaces it. Hence two
    calls on the same pixels in the same epoch return the same bytes. For two views of an image use
    draw="random", which draws from torch's generator.

    Shifts and holes are scaled from the image size of the search to the shorter side of the image.

    >>> transform = PolicyTransform("policy.json", epochs=200)  # a step of your transform
    >>> transform.set_epoch(10)  # at the start of each epoch
    >>> transform(np.zeros((32, 32, 3), np.uint8), index=5).shape
    (32, 32, 3)
    >>> image, label = transform(np.zeros((32, 32, 3), np.uint8), 7)
    >>> label
    7
    """

    _suits_alone = False  # whether the ops are known to need no boxes

    def __call__(self, *inputs: Any, index: int | None = None) -> Any:
        leaves, form = tree_flatten(inputs)
        images = [place for place, leaf in enumerate(leaves) if kinds.is_image(leaf)]
        if not images:
            arrays = [place for place, leaf in enumerate(leaves) if kinds.is_array(leaf)]
            images = [place for place in arrays if kinds.has_pixels(leaves[place])][:1]
            # The one that looks most like an image, for the message.
            images = images or sorted(arrays, key=lambda place: -leaves[place].ndim)[:1]
        if not images:
            kinds.to_pixels(inputs[0] if inputs else None)  # raises and says what an image is
        for leaf in leaves:
            if kinds.is_named(leaf, "KeyPoints", "Video"):
                raise TypeError(f"{type(leaf).__name__} cannot be augmented with a policy")
        pixels = [kinds.to_pixels(leaves[place]) for place in images]
        sample = self.sample_of(pixels[0], index)
        if any(kinds.is_boxes(leaf) or kinds.is_named(leaf, "Mask") for leaf in leaves):
            augmented = self._with_targets(leaves, pixels, sample)
        else:
            augmented = self._alone(pixels, sample)
        for place, each in zip(images, augmented, strict=True):
            leaves[place] = kinds.from_pixels(each, leaves[place])
        outputs = tree_unflatten(leaves, form)
        return outputs[0] if len(inputs) == 1 else outputs

    def _alone(self, pixels: list[Any], sample: np.ndarray) -> list[Any]:
        """Return images without boxes and masks under the policy of the sample."""
        if not self._suits_alone:
            check_space(self.schedule.space, False, "schedule", NEEDS_BOXES)
            self._suits_alone = True
        policies, key = self.draw(sample)
        spaces = [self.for_size(*each.shape[:2]).space for each in pixels]
        return [
            augment([each], policies, space, key, samples=sample)[0]
            for each, space in zip(pixels, spaces, strict=True)
        ]

    def _with_targets(self, leaves: list[Any], pixels: list[Any], sample: np.ndarray) -> list[Any]:
        """Return the images, and replace their boxes and masks, by those under the policy."""
        size = tuple(pixels[0].shape[:2])
        if any(tuple(each.shape[:2]) != size for each in pixels):
            raise ValueError("images that share boxes or masks must have one size")
        for leaf in leaves:
            if kinds.is_boxes(leaf) or kinds.is_named(leaf, "Mask"):
                kinds.require_size(leaf, size)
        given = [place for place, leaf in enumerate(leaves) if kinds.is_boxes(leaf)]
        corners = [kinds.corners_of(leaves[place]) for place in given]
        joined = np.concatenate([np.empty((0, 4)), *corners])
        plan = plan_for(self.for_size(*size), size, joined, self.draw(sample), sample)
        moved = np.zeros_like(joined)
        moved[plan.kept] = plan.boxes
        ends = np.cumsum([len(each) for each in corners])[:-1]
        for place, rows in zip(given, np.split(moved, ends) if given else [], strict=True):
            leaves[place] = kinds.boxes_like(rows, leaves[place])
        for place, leaf in enumerate(leaves):
            if kinds.is_named(leaf, "Mask"):
                leaves[place] = kinds.wrapped(plan.on_mask(leaf.as_subclass(torch.Tensor)), leaf)
        return [plan.on_pixels(each) for each in pixels]
