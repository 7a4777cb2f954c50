"""Gradients of every version of a batch, their weighted sum and their dot products."""

from ddas_gpu.gradients.forward_mode import version_products
from ddas_gpu.gradients.plan import Plan, free_bytes
from ddas_gpu.gradients.policy_gradients import METHODS, PolicyGradients

__all__ = ["METHODS", "Plan", "PolicyGradients", "free_bytes", "version_products"]
