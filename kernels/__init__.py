"""The CUDA C++ and C++ sources of the op bank, compiled by ddas_gpu.ops."""
