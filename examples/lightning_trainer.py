"""Lightning with a found policy, on handwritten digits: the loader, or the policy on each batch.

    python examples/lightning_trainer.py --policy runs/digits-1/policy.json
    python examples/lightning_trainer.py --policy runs/digits-1/policy.json --on-batches

With the loader, Lightning sets the epochs and keeps the state in its checkpoints by itself. With
BatchPolicy, the callback PolicyEpochs does so.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ddas_gpu
from ddas_gpu.adapters.lightning import PolicyDataModule, PolicyEpochs
from ddas_gpu.data.digits import open_digits


class Classifier(pl.LightningModule):
    def __init__(self, policy: ddas_gpu.BatchPolicy | None = None) -> None:
        super().__init__()
        self.policy = policy
        self.network = nn.Sequential(
            nn.Flatten(), nn.Linear(768, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)
        )

    def on_after_batch_transfer(self, batch, dataloader_idx: int):
        images, labels = batch
        if images.dtype == torch.uint8:  # a batch of the plain DataLoader
            if self.trainer.training:
                images = self.policy(images)
            images = (images.permute(0, 3, 1, 2).float() - 78.0) / 95.0
        return images, labels

    def training_step(self, batch, _) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def validation_step(self, batch, _) -> None:
        images, labels = batch
        self.log("accuracy", (self.network(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--on-batches", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/lightning"))
    options = parser.parse_args(arguments)

    digits = open_digits(size=16)
    train, test = slice(0, 1400), slice(1400, None)
    settings = {"max_epochs": options.epochs, "default_root_dir": options.out, "logger": False}
    pl.seed_everything(0)
    if options.on_batches:
        policy = ddas_gpu.BatchPolicy(options.policy, options.epochs)
        parts = [
            TensorDataset(torch.from_numpy(digits.images[p]), torch.from_numpy(digits.labels[p]))
            for p in (train, test)
        ]
        trainer = pl.Trainer(**settings, callbacks=[PolicyEpochs(policy)])
        trainer.fit(
            Classifier(policy),
            DataLoader(parts[0], batch_size=64, shuffle=True),
            DataLoader(parts[1], batch_size=64),
        )
    else:
        data = PolicyDataModule(
            (digits.images[train], digits.labels[train]),
            options.policy,
            (digits.images[test], digits.labels[test]),
            epochs=options.epochs,
            batch_size=64,
            flip=False,
            padding=1,
        )
        trainer = pl.Trainer(**settings)
        trainer.fit(Classifier(), data)
    score = float(trainer.callback_metrics["accuracy"])
    print(
        f"validation {score:.1%}; the checkpoint is {trainer.checkpoint_callback.best_model_path}"
    )
    return score


if __name__ == "__main__":
    main()
