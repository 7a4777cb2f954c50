"""Several versions of a batch in one pass, as one larger batch.

Layers treat every image by itself, so they can be called once for all versions. Batch norm cannot:
it is called for each version, on its part of the batch. What else a model may do with the images of
a batch is not known beforehand: `folds` compares a folded pass with passes in turn, once.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ddas_gpu.gradients.layer_rules import LOW_PRECISION, FoldedCall, call_with, take_apart
from ddas_gpu.gradients.versions import RandomState, Tensors, Versions, full_precision, rounded

_RELU_IN_PLACE = {torch.relu_, torch.Tensor.relu_}
_RELU = {F.relu, torch.relu, torch.Tensor.relu} | _RELU_IN_PLACE
# Two ways of rounding; what mixes the images of two versions differs by far more.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}


class CannotFold(Exception):
    """A folded pass would not give what passes in turn give."""


class FoldedPass(TorchFunctionMode):
    """Active in the forward pass of `count` versions: notes the layers, and norms each version.

    leaves   {name: the tensor the model has for the parameter}. Their layers do not compute
             gradients of weights: those can be had from the calls.
    """

    def __init__(self, leaves: Tensors, count: int):
        super().__init__()
        self._names = {id(leaf): name for name, leaf in leaves.items()}
        self._count = count
        self.calls: list[FoldedCall] = []
        self.norm_rows: Tensors = {}  # after the backward pass: (count, channels)
        self._unused: dict[int, torch.Tensor] = {}  # outputs of batch norm
        self._overwritten: dict[int, torch.Tensor] = {}  # by ReLU

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = {id(leaf) for leaf in tree_leaves((args, kwargs))}
        if not tensors.isdisjoint(self._overwritten):
            raise CannotFold("an output of batch norm is used beside its ReLU")
        normed = [self._unused.pop(key) for key in tensors & self._unused.keys()]
        if normed and function in _RELU and normed[0].requires_grad is torch.is_grad_enabled():
            return self._relu(function, normed[0], *args[1:], **kwargs)
        if function is F.batch_norm:
            return self._batch_norm(*args, **kwargs)
        parts = take_apart(function, args, kwargs) if torch.is_grad_enabled() else None
        if parts is None:
            return function(*args, **kwargs)
        layer, a, weight, bias = parts
        names = self._names.get(id(weight)), self._names.get(id(bias))
        if names == (None, None):
            return function(*args, **kwargs)
        a = rounded(a)
        output = layer.output(a, weight.detach(), None if bias is None else bias.detach())
        if not output.requires_grad:
            # A leaf could not be written to, as ReLU in place does; nor may this pass for a view.
            output = torch.ops.aten._unsafe_view(output.requires_grad_(), output.shape)
        elif output._is_view():
            output = torch.ops.aten._unsafe_view(output, output.shape)
        edge = torch.autograd.graph.get_gradient_edge(output)
        call = FoldedCall(names[0] or "", layer, a.detach(), a._version, bias=names[1], edge=edge)
        self.calls.append(call)
        return output

    def _batch_norm(
        self,
        input: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> torch.Tensor:
        names = self._names.get(id(weight)), self._names.get(id(bias))
        if not training and names == (None, None):
            return F.batch_norm(input, running_mean, running_var, weight, bias, False, 0.0, eps)
        if weight is None and input.dtype in LOW_PRECISION:
            raise CannotFold("batch norm without weights saves statistics of 16 bits")
        tensors = (input, weight, bias, running_mean, running_var)
        how = (training, momentum, eps, self._count)
        output = _VersionsBatchNorm.apply(*tensors, how, names, self.norm_rows)
        self._unused[id(output)] = output
        return output

    def _relu(
        self, function: Any, normed: torch.Tensor, inplace: bool = False, **_: Any
    ) -> torch.Tensor:
        """ReLU of an output of batch norm that nothing else uses: written over it.

        The backward pass of the batch norm takes that of the ReLU along, version by version, while
        the numbers are in the cache. `folds` finds out if the output has a use that is not seen.
        """
        with torch.no_grad():
            torch.relu_(normed)
        output = normed
        if not inplace and function not in _RELU_IN_PLACE:
            self._overwritten[id(normed)] = normed
            output = torch.ops.aten._unsafe_view(normed, normed.shape)
        if normed.grad_fn is not None:
            node: Any = normed.grad_fn
            node.rectified = output.detach(), output._version
        return output


class _VersionsBatchNorm(torch.autograd.Function):
    """`F.batch_norm` of every version by itself, without a copy of the whole batch.

    The running statistics are those of the first version. The gradients of weight and bias are
    kept for every version, and are not returned.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        x, weight, bias, mean, variance, (training, momentum, eps, count), names, rows = arguments
        output, channels = torch.empty_like(x), x.shape[1]
        like = x if weight is None else weight  # under autocast x has fewer bits
        means, deviations = like.new_empty((2, count, channels) if training else (2, 0))
        parts = zip(x.chunk(count), output.chunk(count), strict=True)
        for version, (part, out) in enumerate(parts):
            statistics = (None, None) if training and version > 0 else (mean, variance)
            saved = (means[version], deviations[version]) if training else (means, deviations)
            torch.ops.aten.native_batch_norm.out(
                part,
                weight,
                bias,
                *statistics,
                training,
                momentum,
                eps,
                out=out,
                save_mean=saved[0],
                save_invstd=saved[1],
            )
        ctx.save_for_backward(x, weight, mean, variance, means, deviations)
        ctx.how, ctx.names, ctx.rows = (training, eps, count), names, rows
        ctx.rectified = None  # or the output of the ReLU that follows, and its version
        return output

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, mean, variance, means, deviations = ctx.saved_tensors
        training, eps, count = ctx.how
        if training:
            mean = variance = None
        mask = [ctx.needs_input_grad[0], *(name is not None for name in ctx.names)]
        rectified, ctx.rectified = _unchanged(ctx.rectified), None
        to_input, affine = torch.empty_like(x), []
        parts = zip(*(t.chunk(count) for t in (cotangent, x, to_input)), strict=True)
        for version, (b, part, result) in enumerate(parts):
            if rectified is not None:
                output = rectified.chunk(count)[version]
                b = torch.ops.aten.threshold_backward.grad_input(b, output, 0, grad_input=result)
            gradient, *of_version = torch.ops.aten.native_batch_norm_backward(
                b,
                part,
                weight,
                mean,
                variance,
                means[version] if training else None,
                deviations[version] if training else None,
                training,
                eps,
                mask,
            )
            affine.append(of_version)
            if mask[0]:
                # The operator has no variant that writes to a given tensor without a copy.
                result.copy_(gradient)
        for name, gradients in zip(ctx.names, zip(*affine, strict=True), strict=True):
            if name is not None:
                rows = torch.stack(gradients)
                ctx.rows[name] = ctx.rows[name] + rows if name in ctx.rows else rows
        return (to_input if mask[0] else None, *[None] * 7)


def _unchanged(rectified: tuple[torch.Tensor, int] | None) -> torch.Tensor | None:
    if rectified is None:
        return None
    output, written = rectified
    if output._version != written:
        raise CannotFold("an output of ReLU was changed in place")
    return output


def split(outputs: Any, count: int) -> Iterator[Any]:
    """What a model has returned for a folded batch, version by version."""
    leaves, structure = tree_flatten(outputs)
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0 or len(leaf) % count:
            raise CannotFold(f"{type(leaf).__name__} has no part for each version")
    for version in zip(*[leaf.chunk(count) for leaf in leaves], strict=True):
        yield tree_unflatten(list(version), structure)


@torch.no_grad()
def folds(versions: Versions) -> bool:
    """Whether a folded pass gives every version what a pass of its own gives it.

    Tried on two batches that no mixture could leave alike. The model must not branch on values:
    then a pass is one formula, and what holds for these batches holds for all. Tried without
    autocast, whose rounding would hide small differences: the formula is the same with it.
    """
    start = RandomState(versions.images.device)
    try:
        return _same_together(versions) and start.is_now()
    except (RuntimeError, ValueError, CannotFold):
        return False  # an error of the model's own will come again when the versions pass in turn
    finally:
        if not start.is_now():
            start.restore()


def _same_together(versions: Versions) -> bool:
    first = versions.images[0]
    second = 0.1 * first.abs().amax() - 0.7 * first.roll(1, 0)
    seen: tuple[list[torch.Tensor], list[torch.Tensor]] = [], []  # by layers, in the passes in turn

    def note(inputs: list[torch.Tensor], a: torch.Tensor) -> None:
        inputs.append(a.clone())  # before something writes to it

    def compare(a: torch.Tensor) -> None:
        expected = [inputs.pop(0) for inputs in seen if inputs]
        if not _alike(expected, list(split(a, 2))):
            raise CannotFold("a layer does not see the images of each version next to each other")

    batches = zip((first, second), seen, strict=True)
    apart = [_pass(versions, batch, partial(note, inputs)) for batch, inputs in batches]
    together, buffers = _pass(versions, torch.cat([first, second]), compare, FoldedPass({}, 2))
    same = all(_alike(a, b) for (a, _), b in zip(apart, split(together, 2), strict=True))
    return same and not any(seen) and _alike(apart[0][1], buffers)


class _Inputs(TorchFunctionMode):
    """Calls `see` with the input of every layer, before the layer."""

    def __init__(self, see: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self._see = see

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        parts = take_apart(function, args, kwargs or {})
        if parts is not None:
            self._see(parts[1])
        return function(*args, **(kwargs or {}))


def _pass(
    versions: Versions,
    images: torch.Tensor,
    see: Callable[[torch.Tensor], None],
    mode: AbstractContextManager | None = None,
) -> tuple[Any, Tensors]:
    """What the model returns, and the buffers after the pass."""
    buffers = versions.copy_buffers()
    state = {**versions.parameters, **buffers}
    with full_precision(images.device), mode or nullcontext(), _Inputs(see):
        outputs = call_with(versions.model, state, images)
    return outputs, {name: state[name] for name in buffers}


def _alike(expected: Any, found: Any) -> bool:
    (ours, structure), (theirs, other) = tree_flatten(expected), tree_flatten(found)
    if structure != other:
        return False
    return all(_close(a, b) for a, b in zip(ours, theirs, strict=True))


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.is_meta or not a.is_floating_point():
        return a.shape == b.shape and (a.is_meta or torch.equal(a, b))
    error, scale = (a - b).abs().amax(), a.abs().amax()
    return bool(error <= _TOLERANCE.get(a.dtype, 0.0) * scale) if a.numel() else True
