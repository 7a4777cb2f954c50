"""The policy as a transform, for trainers with their own data set and DataLoader."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from ddas_gpu.ops import augment
from ddas_gpu.transforms import image_kinds as kinds
from ddas_gpu.transforms.drawing import plan_for
from ddas_gpu.transforms.epochs import SamplePolicy


class PolicyTransform(SamplePolicy):
    """Augments one image with the probabilities of the current epoch.

    Takes and returns RGB in uint8: a PIL image (of any mode, converted to RGB), a numpy array
    (H, W, 3), or a torch tensor (3, H, W). As in torchvision's v2 an image may come with anything
    else, in tuples, lists and dicts: `tv_tensors.BoundingBoxes` and `Mask` are moved along with
    the image (boxes that leave it become empty: `SanitizeBoundingBoxes` drops those), the rest is
    passed through.

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

    def __call__(self, *inputs: Any, index: int | None = None) -> Any:
        leaves, form = tree_flatten(inputs)
        images = [place for place, leaf in enumerate(leaves) if kinds.is_image(leaf)]
        images = images or [place for place, leaf in enumerate(leaves) if kinds.is_array(leaf)][:1]
        if not images:
            kinds.to_pixels(inputs[0] if inputs else None)  # raises and says what an image is
        for leaf in leaves:
            if kinds.is_named(leaf, "KeyPoints", "Video"):
                raise TypeError(f"{type(leaf).__name__} cannot be augmented with a policy")
        if any(kinds.is_boxes(leaf) or kinds.is_named(leaf, "Mask") for leaf in leaves):
            self._with_targets(leaves, images, index)
        else:
            for place in images:
                leaves[place] = self._image(leaves[place], index)
        outputs = tree_unflatten(leaves, form)
        return outputs[0] if len(inputs) == 1 else outputs

    def _image(self, image: Any, index: int | None) -> Any:
        pixels = kinds.to_pixels(image)
        sample = self.sample_of(pixels, index)
        policies, key = self.draw(sample)
        space = self.for_size(*pixels.shape[:2]).space
        return kinds.from_pixels(augment([pixels], policies, space, key, samples=sample)[0], image)

    def _with_targets(self, leaves: list[Any], images: list[int], index: int | None) -> None:
        """Replace images, boxes and masks; all images of a sample get the same policy."""
        pixels = [kinds.to_pixels(leaves[place]) for place in images]
        size = tuple(pixels[0].shape[:2])
        if any(tuple(each.shape[:2]) != size for each in pixels):
            raise ValueError("images that share boxes or masks must have one size")
        given = [place for place, leaf in enumerate(leaves) if kinds.is_boxes(leaf)]
        corners = [kinds.corners_of(leaves[place]) for place in given]
        sample = self.sample_of(pixels[0], index)
        joined = np.concatenate([np.empty((0, 4)), *corners])
        plan = plan_for(self.for_size(*size), size, joined, self.draw(sample), sample)
        for place, each in zip(images, pixels, strict=True):
            leaves[place] = kinds.from_pixels(plan.on_pixels(each), leaves[place])
        moved = np.zeros_like(joined)
        moved[plan.kept] = plan.boxes
        ends = np.cumsum([len(each) for each in corners])[:-1]
        for place, rows in zip(given, np.split(moved, ends) if given else [], strict=True):
            leaves[place] = kinds.boxes_like(rows, leaves[place])
        for place, leaf in enumerate(leaves):
            if kinds.is_named(leaf, "Mask"):
                leaves[place] = kinds.wrapped(plan.on_mask(leaf.as_subclass(torch.Tensor)), leaf)
