"""COCO through our pipeline against the same without a policy, and a DataLoader with Pillow.

As in test_pipelines.py: two threads or two workers each, timed in turns.
"""

from __future__ import annotations

import random

import numpy as np
import oracle
import pytest
import torch
from test_pipelines import DALI_DEVICES, MANY, THREADS, DaliWay, LoaderWay, compare, even_schedule
from torch.utils.data import Dataset

from ddas_gpu import SearchSpace, detection_pipeline
from ddas_gpu.data.coco import Annotated, open_coco
from ddas_gpu.data.decoding import resized
from ddas_gpu.ops.box_policies import plan_boxes
from ddas_gpu.pipelines.box_feed import flipped_boxes, padded, resized_boxes
from ddas_gpu.pipelines.pixels import normalise_and_pad
from ddas_gpu.pipelines.transform import IMAGENET_MEAN, IMAGENET_STD, Resize, open_resize

pytest.importorskip("nvidia.dali")

BATCH = 16
SIZES = {"square": 512, "keep-ratio": (400, 667)}


@pytest.fixture
def coco_images(unpacked) -> list[Annotated]:
    return open_coco(unpacked("coco128.tar")).images


@pytest.mark.parametrize("name", SIZES)
def test_coco(coco_images, device, benchmark, tables, name):
    space, resize = SearchSpace.preset("coco"), SIZES[name]

    def pipeline(apply_probability: float | None) -> DaliWay:
        schedule = None if apply_probability is None else even_schedule(space, apply_probability)
        settings = {"device": DALI_DEVICES[device], "resize": resize, "num_threads": THREADS}
        return DaliWay(detection_pipeline(coco_images, schedule, BATCH, MANY, **settings))

    ways = {
        "ours": pipeline(1.0),
        "ours, p_tp = 0.35": pipeline(0.35),
        "(a) ours without a policy": pipeline(None),
        "(c) DataLoader and Pillow": LoaderWay(
            PillowBoxes(coco_images, space, open_resize(resize)), BATCH, device
        ),
    }
    sides = resize if isinstance(resize, tuple) else (resize, resize)
    data = f"COCO {name} {sides[0]} × {sides[1]}"
    compare(data, ways, BATCH, batches=4, rounds=4, benchmark=benchmark, tables=tables)


class PillowBoxes(Dataset):
    """The standard transform and the policy in Pillow, one image at a time.

    Our own code transforms the boxes; only the pixels are computed by Pillow.
    """

    def __init__(self, images: list[Annotated], space: SearchSpace, resize: Resize) -> None:
        # Repeated, so that epochs are long: workers stop at their ends.
        self.images, self.space, self.resize = images * 20, space, resize

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, np.ndarray]]:
        """Return a batch as the only entry of a list: images of many sizes cannot be stacked."""
        images, boxes, labels = zip(*(self.one(index) for index in indices), strict=True)
        inputs = normalise_and_pad(images, IMAGENET_MEAN, IMAGENET_STD)
        return [(inputs, padded(list(boxes), list(labels))["boxes"])]

    def one(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        annotated = self.images[index]
        boxes, labels = annotated.objects()
        size = self.resize.new_size(annotated.height, annotated.width)
        image = resized(annotated.read(), size)
        boxes = resized_boxes(boxes, (annotated.height, annotated.width), size)
        if random.random() < 0.5:
            image, boxes = image[:, ::-1], flipped_boxes(boxes, size[1])
        policy = [[random.randrange(len(self.space)) for _ in range(self.space.depth)]]
        seed = random.getrandbits(60)
        plans = plan_boxes([image.shape[:2]], [boxes], [labels], policy, self.space, seed)
        image = oracle.run_steps(np.ascontiguousarray(image), plans.steps[0], self.space.fill)
        return image, plans.boxes[0], plans.labels[0]
