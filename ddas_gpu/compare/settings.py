"""The flags of a comparison: those of a training, the policies and the seeds. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ddas_gpu.cli.rules import check_rules
from ddas_gpu.cli.settings import FREE_TO_CHANGE
from ddas_gpu.compare.contenders import Contender, contenders
from ddas_gpu.train.settings import PolicySettings, TrainSettings, preset

PEERS = ("none", "uniform", "trivialaugment")


@dataclass(frozen=True)
class ComparedSettings(PolicySettings):
    """The augmentation policies."""

    policy: str = "none"
    """The policy in question: a policy.json that a search wrote, the folder of a run, or a name
    that --policy of train knows."""
    policies: tuple[str, ...] = PEERS
    """What to compare it with, separated by commas or spaces: names that --policy of train knows,
    files, or NAME=POLICY. uniform has the candidates and the p_tp of the policy in question;
    uniform-0.35 and randaugment-5 have a p_tp and a level of their own; free stands for seven that
    need no search. With --val-root or --val-share the policy that is best on those images is kept,
    in policy.json of --out."""
    seeds: int = 3
    """Trainings of each policy, with the seeds --seed, --seed + 1 and so on."""


@dataclass(frozen=True)
class CompareSettings(TrainSettings):
    """Train under several policies with several seeds each, and compare them."""

    policy: ComparedSettings = field(default_factory=ComparedSettings)

    # A comparison can grow: what is trained is kept.
    free_to_change: ClassVar[tuple[str, ...]] = (*FREE_TO_CHANGE, "policies", "seeds")

    @property
    def contenders(self) -> list[Contender]:
        return contenders(self.policy.policy, self.policy.policies)

    def check(self) -> None:
        check_rules({"seeds": self.policy.seeds})
        self.contenders  # noqa: B018 (raises)
        self.of_training(self.contenders[0], 0, None).check()

    def of_training(self, contender: Contender, seed: int, out: Path | None) -> TrainSettings:
        """Return the settings of one training; `seed` counts from 0."""
        own = {name: getattr(self.policy, name) for name in PolicySettings.__dataclass_fields__}
        if not contender.ablated:
            own |= {"static": None, "fixed_apply_probability": None}
        policy = PolicySettings(**own | {"policy": contender.policy})
        training = TrainSettings(self.data, policy, self.training, self.run)
        return training.replace(seed=self.run.seed + seed, out=out, resume=False)


def compare_preset(
    data: str = "digits", model: str | None = None, scale: float = 1.0
) -> CompareSettings:
    """Return the recipe of a training as that of a comparison."""
    recipe = preset(data, model, scale)
    return CompareSettings(recipe.data, ComparedSettings(), recipe.training, recipe.run)
