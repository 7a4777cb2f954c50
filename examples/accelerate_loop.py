"""Hugging Face's accelerate with a found policy, on handwritten digits.

    accelerate launch examples/accelerate_loop.py --policy runs/digits-1/policy.json

The loader gives every process its share of the images; `prepare` leaves it as it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn

import ddas_gpu
from ddas_gpu.data.digits import open_digits


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--checkpoint", type=Path, default=Path("runs/accelerate"))
    parser.add_argument("--resume", action="store_true", help="continue from --checkpoint")
    options = parser.parse_args(arguments)
    if options.checkpoint.exists() and not options.resume:
        parser.error(f"{options.checkpoint} exists: continue it with --resume, or name another")

    digits = open_digits(size=16)
    train = (digits.images[:1400], digits.labels[:1400])
    batches = ddas_gpu.loader(
        train, options.policy, batch_size=64, epochs=options.epochs, flip=False, padding=1
    )
    tests = ddas_gpu.loader(
        (digits.images[1400:], digits.labels[1400:]), batch_size=64, training=False
    )

    torch.manual_seed(0)
    accelerator = Accelerator()
    network = nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    network, optimizer, batches = accelerator.prepare(network, optimizer, batches)
    accelerator.register_for_checkpointing(batches)
    if options.resume:
        accelerator.load_state(str(options.checkpoint))
        done = f"{batches.epoch} of {options.epochs} epochs"
        accelerator.print(f"continuing {options.checkpoint} after {done}")

    while batches.epoch < options.epochs:
        network.train()
        for images, labels in batches:
            images, labels = images.to(accelerator.device), labels.to(accelerator.device)
            accelerator.backward(nn.functional.cross_entropy(network(images), labels))
            optimizer.step()
            optimizer.zero_grad()
        accelerator.save_state(str(options.checkpoint))
        accelerator.print(f"epoch {batches.epoch} is done")

    network.eval()
    right = []
    with torch.no_grad():
        for images, labels in tests:
            found = network(images.to(accelerator.device)).argmax(1)
            right.append(accelerator.gather_for_metrics((found.cpu() == labels.cpu()).float()))
    score = torch.cat(right).mean().item()
    accelerator.print(f"test {score:.1%}; the state is in {options.checkpoint}")
    return score


if __name__ == "__main__":
    main()
