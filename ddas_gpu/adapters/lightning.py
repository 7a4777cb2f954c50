"""Lightning: a callback that follows the epochs, and a DataModule of loaders.

A `ddas_gpu.loader` needs neither: Lightning sets the epoch of its `sampler` and, from 2.3 on, keeps
its state in checkpoints.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningDataModule

from ddas_gpu.adapters.callbacks import require_set_epoch
from ddas_gpu.pipelines import Loader, loader
from ddas_gpu.policy import PolicySchedule

__all__ = ["PolicyDataModule", "PolicyEpochs"]

# The settings of a loader that hold for validation, too.
FOR_BOTH = ("device", "device_id", "num_threads", "prefetch", "size", "crop", "on_bad_files")


class PolicyEpochs(Callback):
    """Sets the epoch of policies, and keeps their state in checkpoints.

        policy = ddas_gpu.BatchPolicy("policy.json", epochs=90)
        Trainer(max_epochs=90, callbacks=[PolicyEpochs(policy)])

    policies: anything with `set_epoch`: BatchPolicy, PolicyTransform, a loader, a pipeline.
    """

    def __init__(self, *policies: Any) -> None:
        require_set_epoch(policies)
        self.policies = policies

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        for policy in self.policies:
            policy.set_epoch(trainer.current_epoch)

    def state_dict(self) -> dict[str, Any]:
        return {str(i): policy.state_dict() for i, policy in self._with_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for i, policy in self._with_state():
            policy.load_state_dict(state_dict[str(i)])

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        # The workers of a DataLoader begin before on_train_epoch_start is called.
        if "loops" not in checkpoint:  # one with weights alone
            return
        epoch = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
        stateful = [policy for _, policy in self._with_state()]
        for policy in self.policies:
            if not any(policy is other for other in stateful):
                policy.set_epoch(epoch)

    def _with_state(self) -> list[tuple[int, Any]]:
        return [(i, p) for i, p in enumerate(self.policies) if hasattr(p, "load_state_dict")]


class PolicyDataModule(LightningDataModule):
    """Training images under a policy, and images to validate on, through `ddas_gpu.loader`.

    train, validation: what `loader` takes as its root.
    settings: those of `loader`. The validation images are normalised as the training images.
    """

    def __init__(
        self,
        train: Any,
        schedule: PolicySchedule | str | Path | None,
        validation: Any = None,
        *,
        epochs: int,
        batch_size: int = 256,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._train = loader(train, schedule, batch_size, epochs, **settings)
        if validation is None:
            # Lightning takes what is not overridden as not there; an empty list it warns of.
            self.val_dataloader = super().val_dataloader  # type: ignore[method-assign]
            return
        own = {name: settings[name] for name in FOR_BOTH if name in settings}
        output = self._train.transform.output
        self._validation = loader(
            validation,
            batch_size=batch_size,
            training=False,
            mean=output.mean,
            std=output.std,
            layout=output.layout,
            dtype=output.dtype,
            **own,
        )

    def train_dataloader(self) -> Loader:
        return self._train

    def val_dataloader(self) -> Loader:
        return self._validation
