"""Object detection: targets, losses, boxes out of predictions, and how good they are."""

from ddas_gpu.detection.losses import detection_loss, targets_for
from ddas_gpu.detection.precision import average_precision
from ddas_gpu.detection.predictions import Detections, detections
from ddas_gpu.detection.suppression import suppress

__all__ = [
    "Detections",
    "average_precision",
    "detection_loss",
    "detections",
    "suppress",
    "targets_for",
]
