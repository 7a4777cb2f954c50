"""timm: its loader, its network and its schedule; the policy is one step of the transform.

    python examples/timm_loop.py --policy runs/digits-1/policy.json

The new lines are marked. timm's schedule goes on for a few epochs after its last one ("cooldown");
the policy then keeps the probabilities of its last epoch.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import timm
import torch
from PIL import Image
from timm.data import create_loader
from timm.scheduler import create_scheduler_v2
from torch import nn
from torch.utils.data import Dataset

import ddas_gpu
from ddas_gpu.data.digits import open_digits


class Digits(Dataset):
    """Somebody's data set of PIL images; timm sets its transform."""

    transform = None

    def __init__(self, part: slice) -> None:
        digits = open_digits(size=32)
        self.images, self.labels = digits.images[part], digits.labels[part]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.images[index])), int(self.labels[index])


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)

    train, test = Digits(slice(0, 1400)), Digits(slice(1400, None))
    usual = {
        "input_size": (3, 32, 32),
        "batch_size": 64,
        "num_workers": options.workers,
        "persistent_workers": options.workers > 0,
        "use_prefetcher": False,
    }
    batches = create_loader(train, is_training=True, hflip=0.0, scale=(0.7, 1.0), **usual)
    tests = create_loader(test, **usual)
    policy = ddas_gpu.PolicyTransform(options.policy, options.epochs)  # new
    train.transform.transforms.insert(1, policy)  # new: after the crop, before the tensor

    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule, epochs = create_scheduler_v2(optimizer, num_epochs=options.epochs, cooldown_epochs=1)
    for epoch in range(epochs):
        policy.set_epoch(epoch)  # new
        schedule.step(epoch)
        model.train()
        for images, labels in batches:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = [(model(images).argmax(1) == labels).float() for images, labels in tests]
        accuracy = torch.cat(right).mean().item()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, test {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
