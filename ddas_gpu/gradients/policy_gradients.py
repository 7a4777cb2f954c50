"""`PolicyGradients`: the one name the search needs; the methods behind it are interchangeable."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from ddas_gpu.gradients.folded import FoldedGradients
from ddas_gpu.gradients.folding import CannotFold, folds
from ddas_gpu.gradients.plan import Plan, choose, free_bytes
from ddas_gpu.gradients.planned import NotAsPlanned, PlannedGradients
from ddas_gpu.gradients.reference import ReferenceGradients
from ddas_gpu.gradients.survey import Survey, is_compiled, survey
from ddas_gpu.gradients.versions import Versions, Weighting

METHODS = ("auto", "fast", "lean", "reference")
ALIASES = {"layerwise": "fast", "jvp": "lean"}  # the names of earlier versions

# The most bytes that the tapes of versions that pass together may take: larger batches gain little.
_TOGETHER = {"cpu": 1e9, "cuda": 2e9, "meta": 1e9}

_free_bytes: WeakKeyDictionary[nn.Module, int | None] = WeakKeyDictionary()


class PolicyGradients:
    """Gradients g_l of the loss on L+1 versions of a batch, at the parameters of this moment.

    images   (L+1, B, C, H, W), row 0 the clean batch.
    targets  what `loss_fn(model(images[l]), targets)` takes: a list or tuple has one entry for
             each version; a tensor (B, ...), a dict or any other object serves all versions.
    weights  (L+1,): w_l of the weighted gradient. Numbers, or a tensor on the CPU: one on a GPU
             is read back, which waits for it.
    method   "fast", "lean" (the least memory), "reference" (keeps L+1 gradients), or "auto": the
             fastest way that fits in `memory`. See `plan` for what each of them keeps.
    memory   bytes for "auto" to plan with; None for most of what is free on the images' device,
             as it was in the first step with this model.

    `plan` says what was chosen and how many bytes it takes.

    Every version has its own batch-norm statistics. Running statistics, and all other buffers,
    are updated once, here, from the clean batch alone. A model that draws random numbers from
    torch's generators (dropout) draws anew for each version, in the versions' order; the
    gradients of all methods are those of these draws. Under `torch.autocast` all passes run as
    autocast says here, and products are summed in float32.

    >>> model, images = nn.Linear(4, 3), torch.rand(3, 8, 4, 1, 1)  # two policies, 8 images
    >>> def loss(outputs, labels): return nn.functional.cross_entropy(outputs, labels)
    >>> labels, flat = torch.arange(8) % 3, nn.Sequential(nn.Flatten(), model)
    >>> gradients = PolicyGradients(flat, loss, images, labels, weights=[0.6, 0.2, 0.2])
    >>> direction = gradients.weighted()  # in the search, the gradient of the validation loss
    >>> gradients.dot(direction).shape
    torch.Size([3])
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any, Any], torch.Tensor],
        images: torch.Tensor,
        targets: Any,
        weights: torch.Tensor | Sequence[float],
        method: str = "auto",
        memory: int | None = None,
    ):
        method = ALIASES.get(method, method)
        if method not in METHODS:
            raise ValueError(f"unknown method {method!r}; there are: {', '.join(METHODS)}")
        versions = Versions(model, loss_fn, images, targets)
        weighting = Weighting(_one_per_version(weights, versions.count))
        self._shapes = {name: p.shape for name, p in versions.parameters.items()}
        self.plan: Plan = _plan(versions, weighting, method, memory)
        """What is kept, and how many bytes that takes."""
        self._gradients: ReferenceGradients | FoldedGradients | PlannedGradients
        if self.plan.method == "reference":
            self._gradients = ReferenceGradients(versions, weighting.weights)
        else:
            self._gradients = self._run(versions, weighting, method, memory)
        self.losses: torch.Tensor = self._gradients.losses
        """(L+1,): the loss of each version."""

    def _run(
        self, versions: Versions, weighting: Weighting, method: str, memory: int | None
    ) -> FoldedGradients | PlannedGradients:
        if self.plan.folded > 1:
            try:
                return FoldedGradients(versions, weighting, self.plan)
            except CannotFold:
                survey(versions).folds = False
        else:
            try:
                return PlannedGradients(versions, weighting, self.plan)
            except NotAsPlanned as error:
                survey(versions).add_unseen(error.names)
        versions.rewind()
        self.plan = _plan(versions, weighting, method, memory)
        return self._run(versions, weighting, method, memory)

    def weighted(self) -> dict[str, torch.Tensor]:
        """{name: Σ_l w_l g_l} for the parameters that require gradients.

        They are not copies: `dot` uses them too. Clone them before changing them in place.
        """
        return dict(self.weighted_parts())

    def weighted_parts(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The same as (name, gradient), one after the other.

        Gradients of weights whose layers kept the inputs of all versions are computed here: what
        is done with one of them (an all-reduce) can go on while the next is computed.
        """
        return self._gradients.weighted().parts()

    def dot(self, direction: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """(L+1,): g_l · direction, for a direction with the names `weighted` returns.

        The lean way runs every version again, and to make room for that it lets go of the weighted
        gradient once that was asked for.
        """
        missing = sorted(self._shapes.keys() - direction.keys())
        extra = sorted(direction.keys() - self._shapes.keys())
        if missing or extra:
            raise ValueError(
                "the direction must name exactly the parameters that require gradients; "
                f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(extra) or 'none'}"
            )
        for name, shape in self._shapes.items():
            if direction[name].shape != shape:
                raise ValueError(
                    f"direction[{name!r}] has shape {tuple(direction[name].shape)}, "
                    f"the parameter {tuple(shape)}"
                )
        return self._gradients.dot({name: direction[name].detach() for name in self._shapes})


def _one_per_version(weights: torch.Tensor | Sequence[float], count: int) -> list[float]:
    weights = torch.as_tensor(weights, dtype=torch.float64, device="cpu")
    if weights.shape != (count,):
        raise ValueError(
            f"one weight per version, please: {count} versions, "
            f"weights of shape {tuple(weights.shape)}"
        )
    return weights.tolist()


def _plan(versions: Versions, weighting: Weighting, method: str, memory: int | None) -> Plan:
    model = versions.model
    if method == "auto" and memory is None:
        if model not in _free_bytes:
            _free_bytes[model] = free_bytes(versions.images.device)
        memory = _free_bytes[model]
    capture = not is_compiled(model)
    found = survey(versions)
    if found.plain and method not in ("auto", "reference"):
        raise ValueError(
            f"{type(model).__name__} {found.plain}, which the {method} way cannot follow: "
            'choose gradients="reference" or "auto"'
        )
    joining = weighting.plain and versions.autocast_dtype is None
    check = method in ("auto", "fast")  # the others only say what the fast way would take
    together = capture and weighting.plain
    folding = _versions_together(versions, found, check) if together else 1
    key = (len(weighting.kept), method, memory, capture, joining, folding)
    if key not in found.plans:
        found.plans[key] = replace(choose(found, *key), half=versions.autocast_dtype)
    return found.plans[key]


def _versions_together(versions: Versions, found: Survey, check: bool) -> int:
    """How many versions pass together, if the model allows it, or without a check may allow it."""
    most = int(_TOGETHER.get(versions.images.device.type, 0) // max(1, found.tape))
    if min(most, versions.count) < 2 or found.unfoldable or found.folds is False or found.plain:
        return 1
    if len({parameter.dtype for parameter in versions.parameters.values()}) > 1:
        return 1  # rows are one tensor
    if found.folds is None and check:
        found.folds = found.straight and folds(versions)
    return most if found.folds or (found.folds is None and found.straight) else 1
