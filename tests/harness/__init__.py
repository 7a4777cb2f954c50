"""Runs CUDA sources on the CPU, unmodified, to test them where there is no GPU."""

from harness.host_kernels import HostKernels, KernelError

__all__ = ["HostKernels", "KernelError"]
