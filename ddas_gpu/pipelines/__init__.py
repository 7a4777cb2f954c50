"""From image files or arrays to augmented batches, for anybody's trainer."""

from ddas_gpu.pipelines.building import evaluation_pipeline, training_pipeline
from ddas_gpu.pipelines.detection import detection_loader, detection_pipeline
from ddas_gpu.pipelines.detection_feed import DetectionBatch
from ddas_gpu.pipelines.loading import Loader, loader
from ddas_gpu.pipelines.searching import SearchImages, search_pipeline

__all__ = [
    "DetectionBatch",
    "Loader",
    "SearchImages",
    "detection_loader",
    "detection_pipeline",
    "evaluation_pipeline",
    "loader",
    "search_pipeline",
    "training_pipeline",
]
