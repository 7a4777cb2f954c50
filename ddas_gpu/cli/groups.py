"""Groups of flags that the search and the training share.

A field is a flag, its docstring the flag's help. No torch here, so that `--help` answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from ddas_gpu.data.catalog import CATALOG

if TYPE_CHECKING:
    DataName = str
else:
    DataName = Literal[tuple(CATALOG)]


@dataclass(frozen=True)
class DataSettings:
    """The data, and its standard transform."""

    data: DataName = "digits"
    """The data set; its preset fills the defaults of all other flags."""
    root: Path | None = None
    """Folder of the data set; without this $DDAS_DATA/NAME, then data/NAME."""
    scale: float = 1.0
    """Below 1, a try-out of the preset: fewer and smaller images, a smaller network."""
    image_size: int = 16
    """Pixels per side that the network sees; the shorter side with --resize keep-ratio."""
    resize: Literal["square", "keep-ratio"] = "square"
    """Detection: make images square, or keep their shape, the longer side at most 5/3 of the
    shorter."""
    drop_empty: bool = False
    """Detection: leave out the training images without boxes."""
    bad_files: Literal["stop", "skip", "trust"] = "stop"
    """Read all image files first and stop at unreadable ones, or skip them; or do not look."""
    crop: Literal["pad", "resized", "auto"] = "pad"
    """Classification: pad and shift small images, or crop and scale a random part of large ones;
    auto, for --data folder, looks at the images."""
    padding: int = 0
    """Classification: pixels of black to shift into, with --crop pad."""
    flip: bool = False
    """Mirror half of the training images."""
    cutout: int = 0
    """Classification: side of the hole cut into every training image; 0 for none."""
    workers: int | None = None
    """Threads that read and decode image files; without this as many as --threads."""


@dataclass(frozen=True)
class TrainingSettings:
    """The network and its training by SGD."""

    model: str = "small"
    """The network: small, wrn-28-10, shake-shake-26-2x96d, resnet-50 …, retinanet-r50 …; or your
    own as module:Net, a class or function that is called with the number of classes and returns a
    torch.nn.Module of images (N, 3, H, W) to logits (N, classes)."""
    backbone: Path | None = None
    """Detection: a file with ImageNet weights of the ResNet inside."""
    frozen_norm: bool = False
    """Detection: keep the batch norms' statistics, scales and shifts as they are in --backbone."""
    anchor_scale: float = 4.0
    """Detection: side of the smallest anchors in strides; less than 4 for images of few pixels."""
    epochs: int = 20
    """Passes over the training images."""
    batch_size: int = 32
    """Training images per step; with torchrun on each rank."""
    lr: float = 0.05
    """SGD's learning rate at the start."""
    lr_schedule: Literal["cosine", "step"] = "cosine"
    """Fall along a cosine to 0, or multiply by 0.1 at every one of --lr-steps."""
    lr_steps: tuple[int, ...] = ()
    """Epochs at which --lr-schedule step multiplies the learning rate by 0.1."""
    momentum: float = 0.9
    """SGD's momentum."""
    weight_decay: float = 5e-4
    """SGD's weight decay."""
    amp: Literal["auto", "on", "bf16", "fp16", "off"] = "auto"
    """Automatic mixed precision: compute in 16 bits where that is safe. on is fp16 on a GPU and
    bf16 on a CPU; auto is on for a GPU and off for a CPU."""


@dataclass(frozen=True)
class RunSettings:
    """The run itself."""

    out: Path | None = None
    """The run's folder; without this the next free runs/DATA-NUMBER."""
    resume: bool = False
    """Continue the run in --out from its last checkpoint, with its settings."""
    seed: int = 0
    """The same seed gives the same result, with the same number of --threads; on a GPU only with
    --deterministic."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto is a GPU if there is one."""
    deterministic: bool = False
    """On a GPU: repeatable algorithms only, and no TF32; slower."""
    threads: int | None = None
    """CPU threads; without this all available cores, with torchrun an even share of them. Results
    are repeatable with the same number only: another one changes the order of torch's sums."""
    checkpoint_seconds: float = 60.0
    """Write a checkpoint at least this often."""
    checkpoint_epochs: bool = True
    """Write a checkpoint after every epoch, too. Without it a run of many short epochs is faster; a
    killed one repeats up to --checkpoint-seconds of work."""
    tensorboard: bool = False
    """Write the numbers of metrics.jsonl for TensorBoard as well."""
    timeout: float = 600.0
    """With torchrun: seconds to wait for the other ranks before giving up."""
    sync_norm: bool = False
    """With torchrun: batch norm over the images of all ranks, not of each; slower."""
    ranks: tyro.conf.Suppress[tyro.conf.Fixed[int]] = 1
    """Ranks at the start of the run. A step takes --batch-size images of each, also when the run
    is resumed on more or fewer."""
