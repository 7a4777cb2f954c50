"""The policy as a step of somebody's own code: on an image, an image with boxes, or a batch."""

from ddas_gpu.transforms.batch import BatchPolicy
from ddas_gpu.transforms.box import BoxPolicyTransform
from ddas_gpu.transforms.image import PolicyTransform

__all__ = ["BatchPolicy", "BoxPolicyTransform", "PolicyTransform"]
