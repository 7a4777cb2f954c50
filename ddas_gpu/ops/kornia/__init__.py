"""The differentiable back end: the op bank in float, on any torch device.

`apply` takes and returns floats in [0, 1]. On images that came from bytes, the ops that change
pixels stay within one level of Pillow (the last rounding is left out), and the ops that move pixels
return Pillow's pixels (`interpolation="nearest"`). `apply_uint8` takes and returns bytes, and they
are Pillow's; it is used where the kernels cannot run.

`gradient_table()` lists the gradients of every op; docs/ops.md has the table and explains it.

kornia computes the bilinear warps, the grey image and the inversion, which agree with Pillow. The
rest is torch: kornia's posterize and equalize truncate (after normalising an image and undoing it,
every fourth value is one level lower) and have no gradient; its sharpness and contrast do not round
in between, which differs by up to 2.6 levels at magnitude 30; its shear has another origin.
"""

from ddas_gpu.ops.kornia.calls import apply, apply_uint8
from ddas_gpu.ops.kornia.entries import gradient_table

__all__ = ["apply", "apply_uint8", "gradient_table"]
