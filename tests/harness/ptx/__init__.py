"""Runs the PTX that NVRTC makes of the kernels on the host: what a GPU's driver gets to compile."""
