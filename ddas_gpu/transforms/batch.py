"""The policy on a batch in the middle of a training loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from ddas_gpu.ops import augment
from ddas_gpu.ops.table import find
from ddas_gpu.pipelines.order import shard_of
from ddas_gpu.policy import PolicyLike
from ddas_gpu.schema import check, require_same
from ddas_gpu.space import SearchSpace, check_space
from ddas_gpu.streams import Draws, draw
from ddas_gpu.transforms.epochs import EpochPolicy

LAYOUTS = ("NCHW", "NHWC")
ROUNDING = 1e-3  # a quarter of a level
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class BatchPolicy(EpochPolicy):
    """Augments a batch of images of one size, each with a policy of its own.

    A batch is uint8, a numpy array or a torch tensor on any device, (B, H, W, 3) or (B, 3, H, W);
    it comes back as it came, with the bytes of Pillow. `layout` is needed only where both would
    fit. A tensor of floats in [0, 1] goes through the differentiable back end: gradients pass to
    the images. The policy belongs before the normalisation.

    Draws are a pure function of (seed, epoch, sample), where `samples` are the images' numbers in
    the data set; without them images are numbered as they come in an epoch, on all ranks
    together; worker processes, which see some of the batches each, must give `samples`.
    `state_dict` holds the epoch and that number, for an exact resume.

    >>> policy = BatchPolicy("policy.json", epochs=90)
    >>> policy.set_epoch(10)  # at the start of each epoch
    >>> policy(torch.zeros(8, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([8, 3, 32, 32])

    In Lightning:

        def on_after_batch_transfer(self, batch, dataloader_idx):
            images, labels = batch
            if self.trainer.training:
                images = self.policy(images)
            return normalise(images), labels
    """

    def __init__(
        self,
        schedule: PolicyLike,
        epochs: int,
        seed: int = 0,
        *,
        layout: str | None = None,
    ) -> None:
        if layout not in (None, *LAYOUTS):
            raise ValueError(f"layout is one of {', '.join(LAYOUTS)}, not {layout!r}")
        super().__init__(schedule, epochs, seed)
        check_space(self.schedule.space, False, "schedule", "which BoxPolicyTransform takes")
        self.layout = layout
        self._seen = 0  # images of this epoch on this rank
        self._resumed = False
        self._checked = False

    def set_epoch(self, epoch: int) -> None:
        if not (self._resumed and epoch == self.epoch):  # which a resumed trainer announces again
            self._seen = 0
        self._resumed = False
        super().set_epoch(epoch)

    def _settings(self) -> dict[str, Any]:
        policy = self.schedule.identity()
        return {"seed": self.seed, "policy": policy, "epochs": self.epochs}

    def state_dict(self) -> dict[str, Any]:
        """What the next call depends on; for torch.save."""
        return {"epoch": self.epoch, "seen": self._seen, **self._settings()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the last batch that the state knows of."""
        check(state, {"epoch": int, "seen": int, "seed": int}, "the state")
        require_same("BatchPolicy", state, self._settings())
        super().set_epoch(state["epoch"])
        self._seen, self._resumed = state["seen"], True

    def __call__(self, images: Any, samples: Any = None) -> Any:
        layout = self._layout_of(images)
        count = len(images)
        if not count:
            return images
        numbers = self._numbers(count) if samples is None else _numbers_of(samples, count)
        policies, key = self.draw(numbers)
        height, width = images.shape[1:3] if layout == "NHWC" else images.shape[2:]
        space = self.for_size(height, width).space
        self._resumed = False
        if isinstance(images, torch.Tensor) and images.dtype in FLOATS:
            self._check_range(images)
            inputs = images if layout == "NCHW" else images.permute(0, 3, 1, 2)
            outputs = augment_floats(inputs, policies, space, draw(key, numbers, space.depth))
            return outputs if layout == "NCHW" else outputs.permute(0, 2, 3, 1)
        if layout == "NHWC":
            return augment(_contiguous(images), policies, space, key, samples=numbers)
        if isinstance(images, np.ndarray):
            pixels = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
            augmented = augment(pixels, policies, space, key, samples=numbers)
            return np.ascontiguousarray(augmented.transpose(0, 3, 1, 2))
        pixels = images.permute(0, 2, 3, 1)
        channels_last = pixels.is_contiguous()
        augmented = augment(pixels.contiguous(), policies, space, key, samples=numbers)
        augmented = augmented.permute(0, 3, 1, 2)
        return augmented if channels_last else augmented.contiguous()

    def _numbers(self, count: int) -> np.ndarray:
        if get_worker_info() is not None:
            raise ValueError(
                "BatchPolicy counts the images of an epoch, which no worker process of a "
                "DataLoader sees all of: call it in the training loop, or give it samples=…"
            )
        rank, ranks = shard_of(None, None, warn=False)
        numbers = (self._seen + np.arange(count)) * ranks + rank
        self._seen += count
        return numbers

    def _layout_of(self, images: Any) -> str:
        if not isinstance(images, (np.ndarray, torch.Tensor)):
            raise TypeError(
                f"a batch is a numpy array or a torch tensor, not {type(images).__name__}"
            )
        accepted = (torch.uint8, *FLOATS) if isinstance(images, torch.Tensor) else (np.uint8,)
        if images.dtype not in accepted:
            raise TypeError(
                f"a batch is uint8, or a tensor of floats in [0, 1], not {images.dtype}"
            )
        shape = tuple(images.shape)
        fits = [layout for layout in LAYOUTS if len(shape) == 4 and shape[layout.index("C")] == 3]
        if self.layout in fits:
            return self.layout
        if self.layout is not None or not fits:
            wanted = self.layout or "NCHW or NHWC"
            raise ValueError(f"a batch is {wanted} of 3 channels, not of the shape {shape}")
        if len(fits) == 2:
            raise ValueError(f"the shape {shape} may be NCHW or NHWC: give layout='NCHW' or 'NHWC'")
        return fits[0]

    def _check_range(self, images: torch.Tensor) -> None:
        if images.is_cuda and self._checked:
            return  # do not wait for the GPU at every step
        low, high = (float(x) for x in images.detach().aminmax())
        if not (low >= -ROUNDING and high <= 1 + ROUNDING):
            raise ValueError(
                f"floats must lie in [0, 1], not in [{low:g}, {high:g}]: put the policy before "
                "the normalisation"
            )
        self._checked = True


def augment_floats(
    images: torch.Tensor, policies: np.ndarray, space: SearchSpace, draws: Draws
) -> torch.Tensor:
    """Apply a policy (B, N) to floats (B, 3, H, W) in [0, 1], differentiably."""
    from ddas_gpu.ops.kornia import apply

    wide = images if images.dtype == torch.float64 else images.float()
    wide = wide.clamp(0, 1)  # rounding of the steps before
    centres = torch.from_numpy(draws.centre(*images.shape[2:]).astype(np.int64))
    for stage in range(policies.shape[1]):
        chosen = policies[:, stage]
        for candidate in np.unique(chosen[chosen >= 0]):
            op, argument = find(space[candidate].op), space.argument(candidate)
            rows = np.flatnonzero(chosen == candidate)
            if op.signed and argument is not None:
                argument = np.where(draws.negative[rows, stage], -argument, argument).tolist()
            members = torch.from_numpy(rows).to(images.device)
            places = centres[rows, stage].to(images.device) if op.centred else None
            # Pixels from outside are 0 there: make the fill value 0, and undo it.
            fill = space.fill / 255 if op.fills else 0.0
            changed = apply(wide[members] - fill, op.name, argument, centres=places) + fill
            wide = wide.index_copy(0, members, changed)
    return wide.to(images.dtype)


def _numbers_of(samples: Any, count: int) -> np.ndarray:
    numbers = samples.cpu().numpy() if isinstance(samples, torch.Tensor) else np.asarray(samples)
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        raise ValueError(f"samples are {count} whole numbers, one per image, not {samples!r}")
    return numbers


def _contiguous(images: Any) -> Any:
    if isinstance(images, np.ndarray):
        return np.ascontiguousarray(images)
    return images.contiguous()
