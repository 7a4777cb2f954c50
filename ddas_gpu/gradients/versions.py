"""The L+1 versions of one batch, how one is sent through the model, weights and weighted sum."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from ddas_gpu.gradients.layer_rules import call_with, inner

Tensors = dict[str, torch.Tensor]

# Under float16 the backward passes start with this instead of 1, or small cotangents would be
# rounded to 0; results are divided by it. A power of two changes no bit of the others.
FLOAT16_SCALE = 1024.0
# Below this part of the largest weight a loss is not scaled by its weight but by the largest one:
# a gradient times 1e-30 would lose its bits.
_SMALL = 2.0**-10


class Versions:
    """A batch under L policies, row 0 clean, with the model and the loss that judge it.

    Every pass works on its own copy of the model's buffers, so that no version sees what another
    one wrote and an exception leaves the model as it was. The running statistics of batch norm
    (and any other buffer a forward pass writes) reach the model in `keep_buffers`: once, from
    the clean batch, when all versions have passed.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any, Any], torch.Tensor],
        images: torch.Tensor,
        targets: Any,
    ):
        if images.dim() != 5:
            raise ValueError(
                "images must be (L+1, B, C, H, W), row 0 the clean batch; "
                f"got {tuple(images.shape)}"
            )
        if images.shape[0] == 0 or images.shape[1] == 0:
            raise ValueError(f"images hold no version or no image: {tuple(images.shape)}")
        self.model = model
        self.loss_fn = loss_fn
        self._judged = _Judged(model, loss_fn)
        self.images = images.detach()
        self.count = images.shape[0]
        self.targets = _targets_by_version(targets, self.count, images.shape[1])
        self.parameters: Tensors = {n: p for n, p in model.named_parameters() if p.requires_grad}
        if not self.parameters:
            raise ValueError(f"{type(model).__name__} has no parameter that requires a gradient")
        self.autocast_dtype = autocast_dtype(images.device)
        self.loss_scale = FLOAT16_SCALE if self.autocast_dtype == torch.float16 else 1.0
        self._start = RandomState(images.device)
        self._random_states: list[RandomState] = []
        self._buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        self._clean_buffers = self.copy_buffers()

    def leaves(self) -> Tensors:
        """The parameters as leaves of their own: same memory, but `.grad` is not the model's."""
        return {name: p.detach().requires_grad_() for name, p in self.parameters.items()}

    def loss(
        self, version: int, parameters: Tensors, during: AbstractContextManager | None = None
    ) -> torch.Tensor:
        """The loss of a version's first pass; `during` is active in its forward pass.

        Versions pass in their order. Random states are noted for `loss_again`.
        """
        self._random_states.append(RandomState(self.images.device))
        buffers = self.buffers_of(version)
        return self._loss(version, parameters, buffers, during or nullcontext())

    def loss_again(self, version: int, parameters: Tensors) -> torch.Tensor:
        """The loss of a version that has passed, with the random numbers and buffers of then."""
        with self._random_states[version].replayed():
            return self._loss(version, parameters, self.copy_buffers(), nullcontext())

    def _loss(
        self, version: int, parameters: Tensors, buffers: Tensors, during: AbstractContextManager
    ) -> torch.Tensor:
        state = {f"model.{name}": tensor for name, tensor in (parameters | buffers).items()}
        inputs = (self.images[version], self.targets[version])
        with torch.enable_grad(), self.autocast(), during:
            loss = call_with(self._judged, state, *inputs)
        buffers.update({name: state[f"model.{name}"] for name in buffers})
        return one_number(loss)

    def loss_of(self, version: int, outputs: Any) -> torch.Tensor:
        """The scalar loss of one version whose outputs are at hand."""
        return one_number(self.loss_fn(outputs, self.targets[version]))

    def autocast(self) -> AbstractContextManager:
        """Autocast as it was at construction, wherever the products are asked for.

        Without its cache of cast weights, which would outlive the pass inside a caller's autocast.
        """
        if self.autocast_dtype is None:
            return full_precision(self.images.device)
        device = self.images.device.type
        return torch.autocast(device, self.autocast_dtype, cache_enabled=False)

    def rewind(self) -> None:
        """Give back the random numbers drawn so far: another method is going to make the passes."""
        self._start.restore()
        self._random_states = []
        self._clean_buffers = self.copy_buffers()

    def buffers_of(self, version: int) -> Tensors:
        """Those that a version's first pass may write to."""
        return self._clean_buffers if version == 0 else self.copy_buffers()

    def copy_buffers(self) -> Tensors:
        """The model's buffers as they were before any pass."""
        return {name: buffer.clone() for name, buffer in self._buffers.items()}

    @torch.no_grad()
    def keep_buffers(self, buffers: Tensors | None = None) -> None:
        """Write the buffers of the clean batch's pass to the model."""
        buffers = self._clean_buffers if buffers is None else buffers
        for name, buffer in self.model.named_buffers():
            buffer.copy_(buffers[name])
        self._clean_buffers = {}


class _Judged(nn.Module):
    """A model and its loss as one module: a loss that uses the model's parameters, to penalise
    large ones, sees those of the pass."""

    def __init__(self, model: nn.Module, loss_fn: Callable[[Any, Any], torch.Tensor]):
        super().__init__()
        self.model = model
        self.loss_fn = loss_fn

    def forward(self, images: torch.Tensor, targets: Any) -> torch.Tensor:
        return self.loss_fn(self.model(images), targets)


def one_number(loss: Any) -> torch.Tensor:
    """Return what a loss function gave; raise a ValueError unless it is a scalar."""
    if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
        found = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise ValueError(f"loss must return one number per batch (shape ()), got {found}")
    return loss


def full_precision(device: torch.device) -> AbstractContextManager:
    """Switch autocast off: sums of products need every bit."""
    if device.type in ("cpu", "cuda"):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The type that autocast computes in here, or None."""
    if device.type in ("cpu", "cuda") and torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return None


def rounded(a: torch.Tensor) -> torch.Tensor:
    """The input of a layer in the type that autocast, if active, has the layer compute in."""
    dtype = autocast_dtype(a.device)
    return a if dtype is None or a.dtype == torch.float64 else a.to(dtype)


def _targets_by_version(targets: Any, count: int, batch_size: int) -> list[Any]:
    """One entry per version: a list or tuple already is that; anything else serves them all."""
    if isinstance(targets, (list, tuple)):
        if len(targets) != count:
            raise ValueError(
                f"a list of targets has one entry per version: images have {count} versions, "
                f"targets {len(targets)}; pass a tensor or a dict to share targets between versions"
            )
        return list(targets)
    if isinstance(targets, torch.Tensor) and targets.shape[:1] != (batch_size,):
        raise ValueError(
            f"targets shared by all versions need one row per image: images have batch size "
            f"{batch_size}, targets have shape {tuple(targets.shape)}"
        )
    return [targets] * count


class RandomState:
    """The state of torch's generators (CPU, and `device` if it is a CUDA device) when created."""

    def __init__(self, device: torch.device):
        self._device = device
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def is_now(self) -> bool:
        """Whether no random number has been drawn since."""
        now = RandomState(self._device)
        same = torch.equal(self._cpu, now._cpu)
        if self._cuda is None or now._cuda is None:
            return same
        return same and torch.equal(self._cuda, now._cuda)

    def restore(self) -> None:
        """Set the generators back to this state."""
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda, self._device)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Inside: the random numbers that followed this state. After: as if nothing was drawn."""
        devices = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            self.restore()
            yield


class Weighting:
    """The weights w_l (L+1,) and what follows from them; plain numbers, known before any pass.

    Σ_l w_l g_l is computed anyway. Its product with a direction is Σ_l w_l (g_l · direction), so
    with all but one of the g_l · direction the last follows. That of the largest weight: dividing
    by it never multiplies the rounding errors of the others by more than L.
    """

    def __init__(self, weights: Sequence[float]):
        self.weights = [float(weight) for weight in weights]
        sizes = [abs(weight) for weight in self.weights]
        largest = max(sizes)
        self.solved: int | None = sizes.index(largest) if largest > 0 else None
        self.kept = [version for version in range(len(sizes)) if version != self.solved]
        self.factors = [
            weight if largest > 0 and size >= _SMALL * largest else largest or 1.0
            for weight, size in zip(self.weights, sizes, strict=True)
        ]

    @property
    def plain(self) -> bool:
        """Whether every loss is scaled by its weight."""
        return self.factors == self.weights

    def correction(self, version: int) -> float:
        """What turns a gradient of the loss times `factors[version]` into w_l g_l."""
        return self.weights[version] / self.factors[version]

    def solve(self, total: torch.Tensor, products: dict[int, torch.Tensor]) -> torch.Tensor:
        """The one missing g_l · v, from (Σ w_l g_l) · v and all the others."""
        assert self.solved is not None
        rest = sum(self.weights[version] * product for version, product in products.items())
        return (total - rest) / self.weights[self.solved]


class WeightedGradient:
    """Parameter by parameter; some parts are computed when they are first asked for.

    ready   {name: gradient}
    due     {name: what computes it}
    """

    def __init__(
        self, names: list[str], ready: Tensors, due: Mapping[str, Callable[[], torch.Tensor]]
    ):
        self._names, self._parts, self._due = names, ready, dict(due)
        self._written = {name: part._version for name, part in ready.items()}

    def parts(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, gradient), one after the other: the very tensors that `product` will use."""
        for name in self._names:
            if name in self._due:
                with torch.no_grad():
                    self._parts[name] = self._due.pop(name)()
                self._written[name] = self._parts[name]._version
            yield name, self._parts[name]

    def product(self, direction: Tensors) -> torch.Tensor | None:
        """(Σ w_l g_l) · direction, or None if somebody has changed the gradient in place."""
        parts = dict(self.parts())
        if any(self._written[name] != part._version for name, part in parts.items()):
            return None
        return torch.stack([inner(part, direction[name]) for name, part in parts.items()]).sum()


CHANGED = (
    "the tensors that weighted() returned were changed in place before dot(), which needs them: "
    "clone them first"
)
