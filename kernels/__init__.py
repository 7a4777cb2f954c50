"""The CUDA C++ sources of the op bank, read as text by ddas_gpu.ops."""
