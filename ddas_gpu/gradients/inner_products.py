"""⟨a, b⟩ of two tensors of one shape, summed in float32 or wider, without copies."""

import torch

_LOW_PRECISION = (torch.float16, torch.bfloat16)


def inner(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Σ a·b, a tensor of shape ()."""
    a, b = widened(a), widened(b)
    if a.dtype != b.dtype:
        common = torch.promote_types(a.dtype, b.dtype)
        a, b = a.to(common), b.to(common)
    flat_a, flat_b = _in_memory_order(a), _in_memory_order(b)
    if flat_a is None or flat_b is None or flat_a[0] != flat_b[0]:
        return (a * b).sum()
    return torch.dot(flat_a[1], flat_b[1])


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, in float32 if it has fewer bits."""
    return tensor.float() if tensor.dtype in _LOW_PRECISION else tensor


def _in_memory_order(tensor: torch.Tensor) -> tuple[str, torch.Tensor] | None:
    """The layout and a flat view of a dense tensor; flattening channels-last would copy it."""
    if tensor.is_contiguous():
        return "contiguous", tensor.view(-1)
    if tensor.dim() in (4, 5):
        channels_last = tensor.movedim(1, -1)
        if channels_last.is_contiguous():
            return "channels last", channels_last.view(-1)
    return None
