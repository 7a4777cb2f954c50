"""A detector for tests, by the name narrow_detector:build: RetinaNet on a few narrow layers."""

import torch
from torch import nn

from ddas_gpu.models.retinanet import FeaturePyramid, Head, RetinaNet

WIDTHS = (16, 24, 32, 48, 64)


class NarrowBackbone(nn.Module):
    """Five convolutions, each halving the image."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, width, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            )
            for before, width in zip((3, *WIDTHS[:-1]), WIDTHS, strict=True)
        )

    def features(self, images: torch.Tensor) -> list[torch.Tensor]:
        outputs = []
        for stage in self.stages:
            images = stage(images)
            outputs.append(images)
        return outputs[1:]


class NarrowDetector(RetinaNet):
    def __init__(self, num_classes: int, channels: int = 24):
        nn.Module.__init__(self)
        self.backbone = NarrowBackbone()
        self.pyramid = FeaturePyramid(WIDTHS[2:], channels)
        self.classes = Head(channels, num_classes, bias=-4.6)
        self.boxes = Head(channels, 4)
        for head in (self.classes, self.boxes):  # so narrow, 0.01 would let nothing through
            for layer in head.tower:
                nn.init.kaiming_normal_(layer.weight)


def build(num_classes: int) -> NarrowDetector:
    return NarrowDetector(num_classes)
