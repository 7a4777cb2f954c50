"""The policy as a node of somebody's own DALI pipeline."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np
from nvidia.dali import Pipeline, fn
from nvidia.dali.pipeline import do_not_convert

from ddas_gpu import streams
from ddas_gpu.ops import augment
from ddas_gpu.pipelines.order import ReaderOrder, check_shards, shard_of
from ddas_gpu.pipelines.policy_node import DrawnPolicies, PolicyNode, Problems
from ddas_gpu.policy import PolicyLike
from ddas_gpu.space import check_space
from ddas_gpu.streams import whole
from ddas_gpu.transforms.epochs import EpochPolicy

__all__ = ["policy"]


@do_not_convert
def policy(
    images: Any,
    schedule: PolicyLike,
    epochs: int,
    *,
    seed: int = 0,
    start_epoch: int = 0,
    steps_per_epoch: int | None = None,
    shard_id: int | None = None,
    num_shards: int | None = None,
) -> Any:
    """Augment the images of a pipeline, each with a policy of its own.

        @pipeline_def(batch_size=256, num_threads=8, device_id=0)
        def pipeline():
            files, labels = fn.readers.file(file_root=root, random_shuffle=True, name="Reader")
            images = fn.decoders.image_random_crop(files, device="mixed")
            images = fn.resize(images, size=(224, 224))
            images = ddas_gpu.dali.policy(images, "policy.json", epochs=90)
            return fn.crop_mirror_normalize(images, mean=…, std=…), labels

    images: uint8 HWC of 3 channels, on the CPU or a GPU.
    schedule, epochs: as in `training_pipeline`; shifts and holes follow the size of each image.
    steps_per_epoch: batches per epoch; by default those of the pipeline's only reader.
    shard_id, num_shards: by default the reader's, else torch.distributed's.

    Draws are a pure function of (seed, epoch, place of the image in the epoch), on all shards
    together; they follow DALI's checkpoints. A problem with a batch is raised by a later one.
    """
    pipeline = Pipeline.current()
    if pipeline is None:
        raise ValueError("policy is a node: call it inside a pipeline_def, or use BatchPolicy")
    whole("start_epoch", start_epoch)
    if steps_per_epoch is not None:
        whole("steps_per_epoch", steps_per_epoch, 1)
    check_shards(shard_id, num_shards)
    node = SizedNode(EpochPolicy(schedule, epochs, seed))
    check_space(node.policy.schedule.space, False, "schedule", "which detection_pipeline reads")
    source = PolicySource(node, pipeline, start_epoch, steps_per_epoch, (shard_id, num_shards))
    drawn = fn.external_source(source=source, batch=True, batch_info=True)
    on_gpu = images.device == "gpu"
    return fn.python_function(
        images,
        drawn.gpu() if on_gpu else drawn,
        function=node,
        batch_processing=True,
        output_layouts="HWC",
        device="gpu" if on_gpu else "cpu",
    )


class SizedNode(PolicyNode):
    """A policy node for images of any size, whose second input only says that they were drawn."""

    def __init__(self, policy: EpochPolicy) -> None:
        super().__init__(policy.schedule.space, Problems(), deque())
        self.policy = policy

    def __call__(self, images: list[Any], drawn: list[Any] | None = None) -> list[Any]:
        return super().__call__(images)

    def augment(self, images: list[Any], drawn: DrawnPolicies) -> list[Any]:
        policies, key, samples = drawn
        drawn = DrawnPolicies(policies[: len(images)], key, samples[: len(images)])
        spaces = [self.policy.for_size(*image.shape[:2]).space for image in images]
        if all(space == spaces[0] for space in spaces[1:]):
            self.space = spaces[0]
            return super().augment(images, drawn)
        return [
            augment([image], drawn.policies[[row]], space, key, samples=drawn.samples[[row]])[0]
            for row, (image, space) in enumerate(zip(images, spaces, strict=True))
        ]


class PolicySource:
    """Draws the policies of batch after batch; the source of an `fn.external_source`."""

    def __init__(
        self,
        node: SizedNode,
        pipeline: Pipeline,
        start_epoch: int,
        steps: int | None,
        shard: tuple[int | None, int | None],
    ) -> None:
        self._node, self._steps, self._shard = node, steps, shard
        self._start_epoch = start_epoch
        self._pipeline = weakref.ref(pipeline)  # which holds this source
        self._order: ReaderOrder | None = None

    def __call__(self, info: Any) -> np.ndarray:
        if self._node.problems:
            self._node.problems.raise_first()
        if self._order is None:
            self._order = self._make_order()
        order, policy = self._order, self._node.policy
        epoch, place = order.locate(self._start_epoch * order.batches + info.iteration)
        samples = order.batch(epoch, place)
        policies = policy.schedule.draw(epoch, policy.epochs, policy.seed, samples)
        key = streams.sign_key(policy.seed, epoch)
        self._node.drawn.append(DrawnPolicies(policies, key, samples))
        return np.zeros((order.batch_size, 1), np.uint8)

    def _make_order(self) -> ReaderOrder:
        """Return the order, which the reader knows once the pipeline is built."""
        pipeline: Any = self._pipeline()
        readers = list(pipeline.reader_meta().values())
        size, shard, steps = pipeline.max_batch_size, self._shard, self._steps
        if len(readers) == 1 and shard == (None, None):
            shard = readers[0]["shard_id"], readers[0]["number_of_shards"]
        if steps is None:
            if len(readers) != 1:
                raise ValueError(
                    f"the pipeline has {len(readers)} readers: say how many batches make an "
                    "epoch, policy(…, steps_per_epoch=…)"
                )
            share = -(-readers[0]["epoch_size_padded"] // readers[0]["number_of_shards"])
            steps = -(-share // size)
        shard_id, num_shards = shard_of(*shard)
        return ReaderOrder(num_shards, size, 0, shard_id, num_shards, steps=steps)
