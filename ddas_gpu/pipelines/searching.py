"""Clean batches for the search, decoded when needed instead of kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ddas_gpu.pipelines import draws
from ddas_gpu.pipelines.base_feed import paths_for_dali
from ddas_gpu.pipelines.images import ImageFiles
from ddas_gpu.pipelines.recipe import Recipe, make_recipe


def search_pipeline(
    recipe: Recipe,
    batch_size: int,
    device: str = "auto",
    *,
    training: bool,
    num_threads: int | None = None,
) -> Any:
    """A DALI Pipeline of uint8 (B, H, W, 3), to be run with what each batch needs:

    >>> (images,) = pipeline.run(paths=[…], crops=…, flips=…)  # training
    >>> (images,) = pipeline.run(paths=[…])  # validation: the middle part

    Batches may be smaller than `batch_size`. `SearchImages` does this for the search.
    """
    from nvidia.dali import Pipeline, fn

    from ddas_gpu.pipelines.graph import middle_part, random_part
    from ddas_gpu.pipelines.pipeline import default_threads, gpu_number, on_gpu

    gpu = on_gpu(device)
    pipeline = Pipeline(
        batch_size=batch_size,
        num_threads=num_threads or default_threads(),
        device_id=gpu_number() if gpu else None,
        prefetch_queue_depth=1,  # a batch is asked for when the step begins
    )
    with pipeline:
        encoded = fn.io.file.read(fn.external_source(name="paths"))
        if training:
            names = ("crops", "flips") if recipe.flip else ("crops",)
            given = {name: fn.external_source(name=name) for name in names}
            images = random_part(encoded, given, recipe, gpu)
        else:
            images = middle_part(encoded, recipe, gpu)
        pipeline.set_outputs(images)
    return pipeline


@dataclass(frozen=True)
class SearchImages:
    """Image files that hand out batches like `ddas_gpu.data.DataSet`, through DALI.

    A batch is a pure function of (indices, generator), decoded, cropped and flipped once for all
    versions of it.
    """

    files: Sequence[Path]
    labels: np.ndarray
    class_names: tuple[str, ...]
    size: int
    training: bool  # a random part, mirrored half of the time; else the middle
    batch_size: int
    flip: bool = True
    device: str = "auto"
    num_threads: int | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def _pipeline(self) -> Any:
        images = ImageFiles(self.files, self.labels)
        recipe = make_recipe(images, size=self.size, flip=self.flip)
        return search_pipeline(
            recipe,
            self.batch_size,
            self.device,
            training=self.training,
            num_threads=self.num_threads,
        )

    def batch(
        self, indices: np.ndarray, generator: np.random.Generator, rows: slice = slice(None)
    ) -> torch.Tensor:
        """The images at `indices`, uint8 (B, H, W, 3), where they were decoded.

        With `rows` only these of them, the same to the byte.
        """
        files = [self.files[i] for i in indices[rows]]
        given: dict[str, Any] = {"paths": paths_for_dali(files)}
        if self.training:
            given["crops"] = generator.random((len(indices), draws.CROP_DRAWS))[rows]
            if self.flip:
                given["flips"] = (generator.random(len(indices)) < 0.5).astype(np.int32)[rows]
        (images,) = self._pipeline.run(**given)
        return torch.from_dlpack(images.as_tensor()).clone()  # DALI uses its memory again
