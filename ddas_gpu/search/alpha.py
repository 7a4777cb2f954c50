"""α: the two sets of numbers the search learns, and how a step updates them.

p_tp = sigmoid(α_tp) is the probability to augment, p_o = softmax(α_o) that of each candidate. A
policy φ is a row of candidate indices; P(φ) is the product of their p_o.
"""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np
import torch

from ddas_gpu import streams
from ddas_gpu.streams import Stream

APPLY_TRAVEL = 10.0  # of α_tp in a run whose every step goes the same way
MOST_APPLY_RATE = 0.05


def draw_policies(
    generator: np.random.Generator, count: int, depth: int, candidates: int
) -> np.ndarray:
    """Draw `count` policies of `depth` candidates each, (count, depth), uniformly.

    Never from p_o: a candidate drawn more often would be promoted more often, and the first to
    lead would win (the paper's Matthew effect).
    """
    return generator.integers(0, candidates, size=(count, depth))


def deal_policies(seed: int, step: int, count: int, depth: int, candidates: int) -> np.ndarray:
    """Draw the policies of a step without replacement, (count, depth).

    Every place in a policy has its own shuffled deck of all candidates, which the steps go through
    one after the other: after each deck, all candidates were tried equally often in that place. A
    single policy is still uniform over all K^depth.
    """
    first = step * count
    places = np.arange(first, first + count)
    columns = []
    for slot in range(depth):
        decks = {
            deck: streams.generator(seed, Stream.POLICIES, deck, slot).permutation(candidates)
            for deck in range(first // candidates, (first + count - 1) // candidates + 1)
        }
        columns.append([decks[place // candidates][place % candidates] for place in places])
    return np.array(columns).T


class AugmentationParameters:
    """α_tp and α_o in float64, each with its own Adam.

    Indices: l = 1 … L̂ counts the drawn policies, 0 is the clean batch, k a candidate.
    """

    def __init__(
        self,
        candidates: int,
        apply_probability: float = 0.35,
        *,
        lr_ops: float = 0.005,
        lr_apply: float = 0.001,
        betas: tuple[float, float] = (0.5, 0.999),
        relative: bool = False,
    ) -> None:
        """relative: compare a policy with the step's other policies, not with the clean batch."""
        if not 0 < apply_probability < 1:
            raise ValueError(
                f"the probability to augment starts between 0 and 1, not at {apply_probability}"
            )
        logit = math.log(apply_probability / (1 - apply_probability))
        self.alpha_tp = torch.tensor(logit, dtype=torch.float64, requires_grad=True)
        self.alpha_o = torch.zeros(candidates, dtype=torch.float64, requires_grad=True)
        self.relative = relative
        self.adam_tp = torch.optim.Adam([self.alpha_tp], lr_apply, betas)
        self.adam_o = torch.optim.Adam([self.alpha_o], lr_ops, betas)

    @property
    def apply_probability(self) -> float:
        """p_tp."""
        return torch.sigmoid(self.alpha_tp.detach()).item()

    @property
    def op_probabilities(self) -> np.ndarray:
        """p_o, (K,)."""
        return torch.softmax(self.alpha_o.detach(), 0).numpy()

    def policy_probabilities(self, policies: np.ndarray) -> torch.Tensor:
        """Return P(φ_l), (L̂,), differentiable in α_o."""
        chosen = torch.as_tensor(policies, dtype=torch.long)
        return torch.softmax(self.alpha_o, 0)[chosen].prod(1)

    @torch.no_grad()
    def weights(self, policies: np.ndarray) -> torch.Tensor:
        """Return (L̂ + 1,): w_0 = 1 - p_tp for the clean batch, w_l = p_tp · P(φ_l) / Z."""
        shares = self.policy_probabilities(policies)
        apply = torch.sigmoid(self.alpha_tp)
        return torch.cat([(1 - apply)[None], apply * shares / shares.sum()])

    def surrogate(
        self, policies: np.ndarray, rewards: torch.Tensor, scale: float | None = None
    ) -> torch.Tensor:
        """Return Σ_l r_l / (Z · Z_g) · p_tp · P(φ_l), with r, Z and Z_g held constant.

        Z_g is Σ|r_l| unless `scale` is given. With `relative`, α_o is compared with the step's
        other policies: r_l is taken less its mean, weighted by P(φ_l). The expected gradient stays
        the same, because policies are drawn uniformly, and what all policies of a step have in
        common no longer moves those that were drawn. (It is the gradient of Σ_l P(φ_l) r_l / Z with
        Z differentiated.)

        Its gradient is equations 16 and 17 of the paper but for their factor η, which is the
        same for all and which Adam's scale invariance takes out again.
        """
        shares = self.policy_probabilities(policies)
        z, z_g = shares.detach().sum(), rewards.abs().sum() if scale is None else scale
        parts = rewards / (z * z_g) * torch.sigmoid(self.alpha_tp)
        if not self.relative:
            return (parts * shares).sum()
        mean = (parts * shares).detach().sum() / z
        return (parts * shares.detach()).sum() + ((parts.detach() - mean) * shares).sum()

    def update(
        self, policies: np.ndarray, rewards: torch.Tensor, scale: float | None = None
    ) -> bool:
        """Take an Adam step for α_o and α_tp, given r (L̂,); return whether there was one.

        Z_g = 0 (no policy changed the batch, or none mattered) is no signal: no step, and the
        optimizers' states stay as they are. 0/0 would make every α NaN for good.
        """
        rewards = rewards.detach().to("cpu", torch.float64)
        if not rewards.any():
            return False
        self.alpha_tp.grad, self.alpha_o.grad = torch.autograd.grad(
            self.surrogate(policies, rewards, scale), (self.alpha_tp, self.alpha_o)
        )
        self.adam_o.step()
        self.adam_tp.step()
        return True

    def state_dict(self) -> dict:
        return {
            "alpha_tp": self.alpha_tp.detach().clone(),
            "alpha_o": self.alpha_o.detach().clone(),
            "adam_tp": self.adam_tp.state_dict(),
            "adam_o": self.adam_o.state_dict(),
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict) -> None:
        self.alpha_tp.copy_(state["alpha_tp"])
        self.alpha_o.copy_(state["alpha_o"])
        self.adam_tp.load_state_dict(state["adam_tp"])
        self.adam_o.load_state_dict(state["adam_o"])


def rewards(dots: torch.Tensor) -> torch.Tensor:
    """Return r_l = g_val · (g_0 - g_l), (L̂,), from g_val · g_l, (L̂ + 1,).

    Negative where the policy's step lowers the validation loss more than the clean step does.
    """
    return dots[0] - dots[1:]


def pull(shares: torch.Tensor, rewards: torch.Tensor) -> float:
    """Return Σ_l P(φ_l)/Z · r_l / Z_g from w, (L̂ + 1,), and r, (L̂,); 0 without a signal.

    Negative where it raises α_tp.
    """
    size = rewards.abs().sum().item()
    return (shares[1:] @ rewards / shares[1:].sum()).item() / size if size else 0.0


def apply_rate(given: float | None, steps: int) -> float:
    """Return α_tp's learning rate; without one, a rate that lets p_tp reach any value.

    Adam's step is at most the rate: with a total of `APPLY_TRAVEL`, p_tp can go from 0.35 to
    0.05 or 0.95 in a third of the steps.
    """
    return min(APPLY_TRAVEL / steps, MOST_APPLY_RATE) if given is None else given


class TrialLog:
    """What the steps have tried, in arrays that grow: 56 bytes per step of three pairs.

    Of each step: φ, (L̂, N_o), r, (L̂,), and Σ_l P(φ_l)/Z · r_l / Z_g, which moves α_tp.
    """

    def __init__(self, policies: int, depth: int) -> None:
        self._shapes = (-1, policies, depth), (-1, policies), (-1,)
        self._parts: list[array[Any]] = [array("i"), array("d"), array("d")]

    def append(self, policies: np.ndarray, rewards: np.ndarray, pull: float) -> None:
        for part, values in zip(self._parts, (policies, rewards, pull), strict=True):
            part.frombytes(np.asarray(values, part.typecode).tobytes())

    def arrays(self) -> list[np.ndarray]:
        """Return copies of the parts, with the steps as their first axis."""
        pairs = zip(self._parts, self._shapes, strict=True)
        return [np.array(part).reshape(shape) for part, shape in pairs]

    def state_dict(self) -> list[torch.Tensor]:
        return [torch.from_numpy(part) for part in self.arrays()]

    def load_state_dict(self, state: list[torch.Tensor]) -> None:
        for part, values in zip(self._parts, state, strict=True):
            part[:] = array(part.typecode, values.numpy().astype(part.typecode).tobytes())
