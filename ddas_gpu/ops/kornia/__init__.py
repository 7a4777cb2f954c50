"""The differentiable back end: the op bank in float, on any torch device.

`apply` takes and returns floats in [0, 1]. On images that came from bytes it stays within one level
of Pillow for the ops that change pixels (it leaves out the last rounding) and returns Pillow's very
pixels for those that move them (`interpolation="nearest"`). `apply_uint8` takes and returns bytes,
and they are Pillow's; it serves where the kernels cannot run.

What the gradients are:

    op            in the image      in the argument    remark
    Identity      exact             none
    FlipLR        exact             none
    FlipUD        exact             none
    AutoContrast  exact             none               through the two extremes of the channel, too
    Equalize      straight-through  none               as if it were the identity
    Invert        exact             none               -1
    Blur          exact             none               a border of 2 pixels passes unchanged
    Smooth        exact             none               a border of 1 pixel passes unchanged
    Rotate        exact             exact if bilinear  a degree
    Posterize     straight-through  none               as if it were the identity
    ShearX        exact             exact if bilinear
    ShearY        exact             exact if bilinear
    TranslateX    exact             exact if bilinear  a pixel; fractions of one are accepted
    TranslateY    exact             exact if bilinear  a pixel; fractions of one are accepted
    Solarize      exact             straight-through   in the threshold: (2 pixel - 1) / 255 a level
    SolarizeAdd   exact             exact              where dark; 0 where clipped
    Color         exact             exact              0 where clipped
    Contrast      exact             exact              through the mean, too; 0 where clipped
    Brightness    exact             exact              0 where clipped
    Sharpness     exact             exact              through the smoothing, too; 0 where clipped
    Cutout        exact             none               0 inside the rectangle
    Rotate90      exact             none

"Exact" is the derivative of the function computed, wherever it has one; autograd.gradcheck agrees.
The roundings inside Color, Contrast and Sharpness make jumps half-way between two bytes, nowhere
else (see levels.py). "Straight-through" stands in for a step, whose own derivative is 0: Posterize
and Equalize pass on the gradient they get; Solarize counts its step from 0 to 1 as a slope of 1
over the range of the levels. An argument without a gradient must not require one.

kornia computes what it computes as Pillow does: the bilinear warps, the grey image, the inversion.
The rest is torch, because kornia's posterize and equalize truncate (normalise an image and undo it,
and every fourth value falls a level) and pass no gradient; its sharpness and contrast do not round
in between, which costs up to 2.6 levels at magnitude 30; its shear turns about another origin.
"""

from ddas_gpu.ops.kornia.calls import apply, apply_uint8
from ddas_gpu.ops.kornia.registry import gradient_table

__all__ = ["apply", "apply_uint8", "gradient_table"]
