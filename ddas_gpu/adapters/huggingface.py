"""Hugging Face: a Trainer that reads from loaders, and a callback that follows the epochs.

`accelerate` needs nothing: `accelerator.prepare` leaves a loader as it is, and
`accelerator.register_for_checkpointing(loader)` keeps its state.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback

from ddas_gpu.adapters.callbacks import require_set_epoch
from ddas_gpu.pipelines import Loader

__all__ = ["LoaderTrainer", "NamedBatches", "PolicyEpochs"]

STATE = "ddas_gpu_loader_{rank}.pt"


class PolicyEpochs(TrainerCallback):
    """Sets the epoch of policies.

        policy = ddas_gpu.PolicyTransform("policy.json", epochs=90)
        Trainer(model, args, train_dataset=Photos(policy), callbacks=[PolicyEpochs(policy)])

    policies: anything with `set_epoch`.
    """

    def __init__(self, *policies: Any) -> None:
        require_set_epoch(policies)
        self.policies = policies

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # A sum of fractions; one that is resumed within its second epoch begins at 1.67.
        epoch = int(state.epoch + 1e-6)
        for policy in self.policies:
            policy.set_epoch(epoch)


class NamedBatches:
    """A loader whose batches are dicts, as the models of transformers take them."""

    def __init__(self, loader: Loader, names: tuple[str, ...] = ("pixel_values", "labels")) -> None:
        self.loader, self.names = loader, names

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.loader:
            yield dict(zip(self.names, batch, strict=False))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)  # dataset, sampler, batch_size, set_epoch, …


class LoaderTrainer(Trainer):
    """A Trainer that trains on a `ddas_gpu.loader`, and resumes it within an epoch.

        LoaderTrainer(model, args, train_loader=batches, eval_loader=tests).train()

    The loader counts the epochs itself. Its batch size is its own: that of `args` is not used.
    """

    def __init__(
        self,
        *args: Any,
        train_loader: Loader,
        eval_loader: Loader | None = None,
        names: tuple[str, ...] = ("pixel_values", "labels"),
        **options: Any,
    ) -> None:
        self._train_loader = NamedBatches(train_loader, names)
        self._eval_loader = None if eval_loader is None else NamedBatches(eval_loader, names)
        if eval_loader is not None:
            options.setdefault("eval_dataset", eval_loader.dataset)
        super().__init__(*args, **options)
        self.args.ignore_data_skip = True  # the loader goes on where it was
        self.add_callback(_SaveLoader(train_loader))

    def get_train_dataloader(self) -> Any:
        return self._train_loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        if self._eval_loader is None:
            raise ValueError("LoaderTrainer needs an eval_loader to evaluate")
        return self._eval_loader

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *args: Any, **options: Any) -> Any:
        path = Path(resume_from_checkpoint) / STATE.format(rank=self.args.process_index)
        if path.is_file():
            self._train_loader.loader.load_state_dict(torch.load(path, weights_only=True))
        return super()._load_from_checkpoint(resume_from_checkpoint, *args, **options)


class _SaveLoader(TrainerCallback):
    """Writes the state of a loader beside the other files of a checkpoint."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        torch.save(self.loader.state_dict(), folder / STATE.format(rank=args.process_index))
