"""A new detector, as the search and training start from."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ddas_gpu.models import build
from ddas_gpu.models.backbone_weights import load_backbone
from ddas_gpu.models.frozen_batch_norm import freeze_batch_norm
from ddas_gpu.models.retinanet import RetinaNet


class DetectorSettings(Protocol):
    model: str
    backbone: Path | None
    frozen_norm: bool


def build_detector(settings: DetectorSettings, num_classes: int) -> RetinaNet:
    """The detector that --model names, with the weights of --backbone."""
    model = build(settings.model, num_classes)
    if not isinstance(model, RetinaNet):
        raise ValueError(
            f"--data coco needs a detector such as retinanet-r50, not {settings.model!r}"
        )
    if settings.backbone is not None:
        load_backbone(model.backbone, settings.backbone)
    if settings.frozen_norm:
        freeze_batch_norm(model)
    return model
