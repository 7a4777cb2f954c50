"""How many gradients of the model a method keeps alive at its worst moment.

Every storage that an operator of torch creates is followed until it dies. Batches have a prime
number of images that divides no parameter's size, so a storage whose number of elements is a
multiple of it holds images or activations. Any other counts as gradient, however small, but for
batch norm's statistics: copies of buffers, and what it saves for its backward pass. A block of
gradients may happen to be a multiple of one prime; so there are two, and the larger result counts.
"""

import weakref

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ddas_gpu.gradients import PolicyGradients

BATCH_SIZES = (13, 17)


class LiveGradients(TorchDispatchMode):
    """Follows the elements alive in storages that are gradients; `peak` is their most."""

    def __init__(self, model: nn.Module, batch_size: int):
        super().__init__()
        self.peak = 0
        self._batch_size = batch_size
        self._alive: dict[int, int] = {}
        self._of_buffers = {_key(buffer) for buffer in model.buffers()}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        outputs = function(*args, **(kwargs or {}))
        inputs = {_key(tensor) for tensor in tree_leaves((args, kwargs)) if torch.is_tensor(tensor)}
        for tensor in tree_leaves(outputs):
            if torch.is_tensor(tensor) and _key(tensor) not in inputs:
                from_buffers = bool(inputs) and inputs <= self._of_buffers
                if from_buffers or function is torch.ops.aten.native_batch_norm.default:
                    self._ignore(tensor)
                else:
                    self._follow(tensor)
        self.peak = max(self.peak, sum(self._alive.values()))
        return outputs

    def _follow(self, tensor: torch.Tensor) -> None:
        storage, key = tensor.untyped_storage(), _key(tensor)
        elements = storage.nbytes() // tensor.element_size()
        if elements % self._batch_size != 0 and key not in self._alive:
            self._alive[key] = elements
            weakref.finalize(storage, self._alive.pop, key, None)

    def _ignore(self, tensor: torch.Tensor) -> None:
        self._of_buffers.add(_key(tensor))
        weakref.finalize(tensor.untyped_storage(), self._of_buffers.discard, _key(tensor))


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def extra_gradient_copies(model: nn.Module, policies: int, method: str, size: int = 16) -> float:
    """Peak of a search step with `method`, beyond that of plain training, in model gradients.

    Plain training on the same L+1 batches, accumulating their weighted gradients, needs one
    gradient and some scratch. A method's step holds the weighted gradient until the end.
    """
    return max(_extra_copies(model, policies, method, size, batch) for batch in BATCH_SIZES)


def _extra_copies(
    model: nn.Module, policies: int, method: str, size: int, batch_size: int
) -> float:
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if any(parameter.numel() % batch_size == 0 for parameter in parameters.values()):
        raise ValueError(f"a parameter's size is a multiple of {batch_size}: choose another prime")
    if policies + 1 >= batch_size:
        raise ValueError(f"{policies + 1} versions cannot be told from {batch_size} images")
    images = torch.randn(policies + 1, batch_size, 3, size, size)
    targets = torch.randint(10, (batch_size,))
    direction = {name: torch.randn_like(p) for name, p in parameters.items()}
    weights = [1 / (policies + 1)] * (policies + 1)

    with LiveGradients(model, batch_size) as plain:
        for version, weight in zip(images, weights, strict=True):
            (weight * F.cross_entropy(model(version), targets)).backward()
    model.zero_grad()
    with LiveGradients(model, batch_size) as ours:
        gradients = PolicyGradients(model, F.cross_entropy, images, targets, weights, method)
        weighted = gradients.weighted()
        gradients.dot(direction)
    del weighted
    return (ours.peak - plain.peak) / sum(p.numel() for p in parameters.values())
