"""What each op does to pixels."""

from ddas_gpu.ops.api import apply_op, augment, versions
from ddas_gpu.ops.backends import get_num_threads, set_num_threads
from ddas_gpu.ops.box_policies import augment_boxes
from ddas_gpu.ops.table import OPS, Op, PixelScale

__all__ = [
    "OPS",
    "Op",
    "PixelScale",
    "apply_op",
    "augment",
    "augment_boxes",
    "get_num_threads",
    "set_num_threads",
    "versions",
]
