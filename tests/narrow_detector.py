"""A detector for tests: RetinaNet-R18 with narrow heads, by the name narrow_detector:build."""

from ddas_gpu.models.retinanet import RetinaNet


def build(num_classes: int) -> RetinaNet:
    return RetinaNet(18, num_classes, channels=16)
