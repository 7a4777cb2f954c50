"""A plain PyTorch training loop with a found policy, on handwritten digits.

    python examples/plain_loop.py --policy runs/digits-1/policy.json

The images are in memory here; for a folder of images: loader("imagenet/train", …). Run it again
with --resume to go on from its checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

import ddas_gpu
from ddas_gpu.data.digits import open_digits


def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def accuracy(model: nn.Module, batches: ddas_gpu.pipelines.Loader) -> float:
    model.eval()
    with torch.no_grad():
        right = [(model(images).argmax(1) == labels).float() for images, labels in batches]
    return torch.cat(right).mean().item()


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--checkpoint", type=Path, default=Path("runs/plain_loop.pt"))
    parser.add_argument("--resume", action="store_true", help="continue from --checkpoint")
    options = parser.parse_args(arguments)
    if options.checkpoint.exists() and not options.resume:
        parser.error(f"{options.checkpoint} exists: continue it with --resume, or name another")

    digits = open_digits(size=16)
    train = (digits.images[:1400], digits.labels[:1400])
    test = (digits.images[1400:], digits.labels[1400:])
    batches = ddas_gpu.loader(
        train, options.policy, batch_size=64, epochs=options.epochs, flip=False, padding=1
    )
    tests = ddas_gpu.loader(test, batch_size=64, training=False)

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = small_network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    if options.resume:
        state = torch.load(options.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        batches.load_state_dict(state["batches"])
        print(f"continuing {options.checkpoint} after {batches.epoch} of {options.epochs} epochs")
    options.checkpoint.parent.mkdir(parents=True, exist_ok=True)

    while batches.epoch < options.epochs:
        model.train()
        for images, labels in batches:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        parts = {"model": model, "optimizer": optimizer, "batches": batches}
        torch.save({name: p.state_dict() for name, p in parts.items()}, options.checkpoint)
        print(f"epoch {batches.epoch}: loss {loss.item():.3f}, test {accuracy(model, tests):.1%}")
    print(f"the state after the last epoch is in {options.checkpoint}")
    return accuracy(model, tests)


if __name__ == "__main__":
    main()
