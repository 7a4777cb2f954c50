"""Makes torchvision importable beside a build of torch that it was not compiled for.

Its compiled operators do not load there, and its import then asks for two of them by name. They
are declared here, without an implementation: neither its transforms nor timm call them.
"""

from __future__ import annotations

import torch

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")


def declare() -> None:
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            _LIBRARY.define(name + _BOXES)
