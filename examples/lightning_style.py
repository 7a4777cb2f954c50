"""A module in the style of Lightning: it defines the steps, and a trainer runs them.

    python examples/lightning_style.py --policy runs/digits-1/policy.json

The module needs of its loader what Lightning needs: `iter`, `len`, and `state_dict` with
`load_state_dict`, which Lightning calls for loaders that have them. `Trainer` below replaces
Lightning's, so that this file runs without it; the module would be a `LightningModule` there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

import ddas_gpu
from ddas_gpu.data.digits import open_digits


class BatchLoader(Protocol):
    """What a trainer expects of a loader."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterable[tuple[torch.Tensor, torch.Tensor]]: ...
    def set_epoch(self, epoch: int) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class DigitsModule(nn.Module):
    def __init__(self, policy: Path, epochs: int) -> None:
        super().__init__()
        self.policy, self.epochs = policy, epochs
        self.digits = open_digits(size=16)
        self.network = nn.Sequential(
            nn.Flatten(), nn.LazyLinear(64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)
        )

    def train_dataloader(self) -> BatchLoader:
        images, labels = self.digits.images[:1400], self.digits.labels[:1400]
        return ddas_gpu.loader(
            (images, labels), self.policy, batch_size=64, epochs=self.epochs, flip=False, padding=1
        )

    def val_dataloader(self) -> BatchLoader:
        images, labels = self.digits.images[1400:], self.digits.labels[1400:]
        return ddas_gpu.loader((images, labels), batch_size=64, training=False)

    def configure_optimizers(self, steps: int) -> tuple[torch.optim.Optimizer, Any]:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        images, labels = batch
        return (self.network(images).argmax(1) == labels).float().mean()


class Trainer:
    """The part of Lightning's trainer that the module needs."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def fit(self, module: DigitsModule) -> float:
        batches, tests = module.train_dataloader(), module.val_dataloader()
        module.training_step(next(iter(tests)))  # lazy layers infer their size
        optimizer, schedule = module.configure_optimizers(self.epochs * len(batches))
        for epoch in range(self.epochs):
            batches.set_epoch(epoch)
            module.train()
            for batch in batches:
                optimizer.zero_grad()
                module.training_step(batch).backward()
                optimizer.step()
                schedule.step()
            module.eval()
            with torch.no_grad():
                scores = [module.validation_step(batch) for batch in tests]
            score = torch.stack(scores).mean().item()
            print(f"epoch {epoch + 1}: validation {score:.1%}")
        return score


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    module = DigitsModule(options.policy, options.epochs)
    return Trainer(options.epochs).fit(module)


if __name__ == "__main__":
    main()
