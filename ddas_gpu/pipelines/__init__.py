"""From image files or arrays to augmented batches, for anybody's trainer."""

from ddas_gpu.pipelines.building import evaluation_pipeline, training_pipeline
from ddas_gpu.pipelines.loading import Loader, loader

__all__ = ["Loader", "evaluation_pipeline", "loader", "training_pipeline"]
