"""What a model does with its parameters, found in one forward pass on fake tensors.

Fake tensors have a shape, a type and a device but no numbers: the pass costs milliseconds per
hundred operators, and no memory. Where a model cannot run on them (its control flow looks at
values), the first version of the batch is sent through it for real, once.
"""

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ddas_gpu.gradients.layer_rules import call_with, take_apart
from ddas_gpu.gradients.versions import RandomState, Tensors, Versions


@dataclass
class Survey:
    """Sizes and work of one version's pass; names are those of the parameters to differentiate."""

    sizes: dict[str, int]  # bytes
    work: dict[str, float] = field(default_factory=dict)  # multiplications of the forward pass
    inputs: dict[str, dict[int, int]] = field(default_factory=dict)  # its layers': bytes by tensor
    outputs: dict[str, int] = field(default_factory=dict)  # of its layers, bytes
    order: list[str] = field(default_factory=list)  # by first use
    uncovered: set[str] = field(default_factory=set)  # used in a way no layer rule describes
    unfoldable: set[str] = field(default_factory=set)  # used where a folded pass cannot follow
    joinable: set[str] = field(default_factory=set)  # weights of layers that take batches
    straight: bool = False  # no branch depends on numbers
    plain: str = ""  # what the network does that only ordinary backward passes allow for
    folds: bool | None = None  # whether versions can pass together; None: not tried yet
    tape: int = 0  # bytes that a forward and backward pass takes
    plans: dict[tuple, Any] = field(default_factory=dict)  # made from this survey, by settings

    def uses_per_weight(self, name: str) -> float:
        """In how many places (pixels, tokens) of the batch a number of the parameter is used."""
        return self.work.get(name, 0.0) / max(1, self.sizes[name])

    @property
    def covered(self) -> set[str]:
        """The parameters that are weights of layers and nothing else."""
        return self.outputs.keys() - self.uncovered

    def pair_bytes(self, names: Iterable[str]) -> int:
        """Inputs and outputs of these weights' layers; a block and its shortcut share an input."""
        inputs: dict[int, int] = {}
        for name in names:
            inputs |= self.inputs[name]
        return sum(inputs.values()) + sum(self.outputs[name] for name in names)

    def add_unseen(self, names: set[str]) -> None:
        """Take in uses that the pass did not show: in the loss, or in a branch not taken."""
        self.uncovered |= names
        self.unfoldable |= names
        self.order += sorted(names - set(self.order))
        self.plans.clear()

    @property
    def gradient(self) -> int:
        """Bytes of one gradient of the model."""
        return sum(self.sizes.values())


_surveys: WeakKeyDictionary[nn.Module, dict[tuple, Survey]] = WeakKeyDictionary()


def survey(versions: Versions) -> Survey:
    """The survey of this model with images of this shape; made once."""
    images = versions.images
    key = (
        *(images.shape[1:], images.dtype, images.device, images[0].stride()),
        *(versions.autocast_dtype, versions.model.training, tuple(versions.parameters)),
    )
    known = _surveys.setdefault(versions.model, {})
    if key not in known:
        known[key] = _make(versions)
    return known[key]


def _make(versions: Versions) -> Survey:
    with RandomState(versions.images.device).replayed(), _without_compiler():
        if versions.images.device.type != "meta":
            try:
                with _without_log():
                    found = _run(versions, *_fake_inputs(versions))
                found.straight = True
                return found
            except Exception:  # whatever a model does with numbers that are not there
                pass
        images = versions.images[0].clone()
        state = {**dict(versions.model.named_parameters()), **versions.copy_buffers()}
        found = _run(versions, nullcontext(), state, images)
        found.straight = images.is_meta
        return found


def _fake_inputs(versions: Versions) -> tuple[Any, Any, Any]:
    from torch._subclasses import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    model = versions.model
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    fake = {name: mode.from_tensor(tensor) for name, tensor in state.items()}
    return mode, fake, mode.from_tensor(versions.images[0])


def _run(
    versions: Versions, mode: AbstractContextManager, state: Tensors, images: torch.Tensor
) -> Survey:
    with mode, torch.enable_grad(), versions.autocast():
        leaves = {name: state[name].detach().requires_grad_() for name in versions.parameters}
        sizes = {name: leaf.numel() * leaf.element_size() for name, leaf in leaves.items()}
        state = {**state, **leaves}
        watch = _Watch(Survey(sizes), leaves, images, state)
        with torch.autograd.graph.saved_tensors_hooks(watch.saved, lambda tensor: tensor), watch:
            outputs = call_with(versions.model, state, images)
        return watch.finish(outputs)


class _Watch(TorchFunctionMode):
    """Notes the uses of the leaves in a forward pass, and what autograd saves."""

    def __init__(self, result: Survey, leaves: Tensors, images: torch.Tensor, state: Tensors):
        super().__init__()
        self._result = result
        self._images, self._written = images, images._version
        self._seen = False  # by `saved`
        self._names = {id(leaf): name for name, leaf in leaves.items()}
        self._inputs: dict[int, torch.Tensor] = {}  # of layers; alive, or keys could come again
        self._largest = 0
        self._own = {tensor.untyped_storage()._cdata for tensor in state.values()}
        self._storages = self._own | {images.untyped_storage()._cdata}

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        output = function(*args, **kwargs)
        parts = take_apart(function, args, kwargs)
        if parts is not None and self._storage(parts[1]) in self._own:
            parts = None  # its input is a parameter or a buffer, which somebody may write to
        outputs = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
        if function is torch.autograd.grad:
            self._result.plain = "takes a gradient in its forward pass"
        if torch.is_grad_enabled() and outputs:
            if not self._saves_here():
                self._result.plain = "checkpoints or offloads its activations"
            for tensor in tree_leaves((args, kwargs)):
                name = self._names.get(id(tensor))
                if name is not None:
                    self._note(name, tensor, outputs[0], parts)
                    self._note_batches(name, tensor, function, parts)
        return output

    def _note(self, name: str, parameter: torch.Tensor, output: torch.Tensor, parts: Any) -> None:
        result = self._result
        if name not in result.work:
            result.order.append(name)
        # A weight (C_out, ...) takes part once in each output number of its channel, a map of the
        # size of an image once per image.
        channels = parameter.shape[0] if parameter.dim() and parts else parameter.numel()
        places = max(1.0, output.numel() / max(1, channels))
        result.work[name] = result.work.get(name, 0.0) + places * parameter.numel()
        if parts is not None and parts[2] is parameter:
            a = parts[1]
            key = self._storage(a)
            self._inputs[key] = a
            result.inputs.setdefault(name, {})[key] = _bytes(a)
            result.outputs[name] = result.outputs.get(name, 0) + _bytes(output)
        else:
            result.uncovered.add(name)

    def _note_batches(self, name: str, parameter: torch.Tensor, function: Any, parts: Any) -> None:
        """Whether the use of a parameter allows for several versions in one batch."""
        result = self._result
        layer, a, weight, _ = parts or (None,) * 4
        batches = layer is not None and layer.takes_batches(a, weight)
        if not batches and function is not F.batch_norm:
            result.unfoldable.add(name)
        if weight is parameter and batches:
            result.joinable.add(name)
        elif weight is parameter:
            result.joinable.discard(name)

    def _storage(self, tensor: torch.Tensor) -> int:
        try:
            return tensor.untyped_storage()._cdata
        except NotImplementedError:  # a batch of torch.vmap
            self._result.plain = "uses torch.func"
            return 0

    def _saves_here(self) -> bool:
        """Whether `saved` gets what autograd saves now, and not an inner hook of the network."""
        self._seen = False
        probe = torch.ones((), requires_grad=True).exp()
        return self._seen or not probe.requires_grad

    def saved(self, tensor: torch.Tensor) -> torch.Tensor:
        self._seen = True
        key = self._storage(tensor)
        if key not in self._storages:
            self._storages.add(key)
            size = tensor.untyped_storage().nbytes() if key else _bytes(tensor)
            self._result.tape += size
            self._largest = max(self._largest, size)
        return tensor

    def finish(self, outputs: Any) -> Survey:
        """Add what the loss will save (not called here: it may have side effects), and scratch."""
        if self._images._version != self._written:
            self._result.plain = "changes its input in place"
        leaves = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
        self._result.tape += 2 * sum(map(_bytes, leaves)) + self._largest
        return self._result


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


@contextmanager
def _without_log() -> Iterator[None]:
    """Keep fake tensors from logging an error of the model's, which comes again with numbers."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _without_compiler() -> AbstractContextManager:
    """Run compiled modules as they were written: there is nothing to see inside a graph."""
    if "torch._dynamo" in sys.modules:
        return torch.compiler.set_stance("force_eager")
    return nullcontext()


def is_compiled(model: nn.Module) -> bool:
    """Whether any part of the model runs as a compiled graph."""
    if "torch._dynamo" not in sys.modules:
        return False
    from torch._dynamo.eval_frame import OptimizedModule

    return any(
        isinstance(module, OptimizedModule) or module._compiled_call_impl is not None
        for module in model.modules()
    )
