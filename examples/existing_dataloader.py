"""A trainer that keeps its own Dataset and DataLoader: one more step in its transform.

    python examples/existing_dataloader.py --policy runs/digits-1/policy.json

For data that DALI does not read, or machines without DALI. The two new lines are marked.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

import ddas_gpu
from ddas_gpu.data.digits import open_digits


class Digits(Dataset):
    """Somebody's data set of PIL images, with a transform, as in torchvision."""

    def __init__(self, part: slice, transform) -> None:
        digits = open_digits(size=16)
        self.images, self.labels = digits.images[part], digits.labels[part]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.fromarray(self.images[index])
        return self.transform(image), int(self.labels[index])


class Compose:
    def __init__(self, *steps) -> None:
        self.steps = steps

    def __call__(self, image):
        for step in self.steps:
            image = step(image)
        return image


def to_tensor(image: Image.Image) -> torch.Tensor:
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    return (pixels.float() - 78.0) / 95.0


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)

    policy = ddas_gpu.PolicyTransform(options.policy, options.epochs)  # new
    train = Digits(slice(0, 1400), Compose(policy, to_tensor))
    test = Digits(slice(1400, None), to_tensor)
    workers = {"num_workers": options.workers, "persistent_workers": options.workers > 0}
    batches = DataLoader(train, batch_size=64, shuffle=True, **workers)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(options.epochs):
        policy.set_epoch(epoch)  # new
        for images, labels in batches:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = [
                (model(images).argmax(1) == labels).float()
                for images, labels in DataLoader(test, batch_size=256)
            ]
        accuracy = torch.cat(right).mean().item()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, test {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
