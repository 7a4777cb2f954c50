"""Where data sets lie, the proxy task cut out of them, and their standard transforms."""

from ddas_gpu.data.datasets import DataSet
from ddas_gpu.data.locating import find_root, open_source
from ddas_gpu.data.proxies import proxy_sets
from ddas_gpu.data.tensors import Normalise, cutout_holes

__all__ = ["DataSet", "Normalise", "cutout_holes", "find_root", "open_source", "proxy_sets"]
