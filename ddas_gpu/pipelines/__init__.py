"""From image files or arrays to augmented batches, for any trainer."""

from ddas_gpu.pipelines.api import evaluation_pipeline, training_pipeline
from ddas_gpu.pipelines.box_api import detection_loader, detection_pipeline
from ddas_gpu.pipelines.box_feed import DetectionBatch
from ddas_gpu.pipelines.loader import Loader, loader

__all__ = [
    "DetectionBatch",
    "Loader",
    "detection_loader",
    "detection_pipeline",
    "evaluation_pipeline",
    "loader",
    "training_pipeline",
]
