"""Hugging Face's Trainer with a found policy, on handwritten digits.

    python examples/huggingface_trainer.py --policy runs/digits-1/policy.json

Run it again with --resume to go on from its last checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import TrainingArguments

import ddas_gpu
from ddas_gpu.adapters.huggingface import LoaderTrainer
from ddas_gpu.data.digits import open_digits


class Classifier(nn.Module):
    """Any model of transformers for images takes the same arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Flatten(), nn.Linear(768, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)
        )

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.network(pixel_values)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def accuracy(predictions) -> dict[str, float]:
    found = np.argmax(predictions.predictions, axis=1)
    return {"accuracy": float((found == predictions.label_ids).mean())}


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("runs/huggingface"))
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args(arguments)
    if any(options.out.glob("checkpoint-*")) and not options.resume:
        parser.error(
            f"{options.out} has checkpoints: continue with --resume, or name another --out"
        )

    digits = open_digits(size=16)
    batches = ddas_gpu.loader(
        (digits.images[:1400], digits.labels[:1400]),
        options.policy,
        batch_size=64,
        epochs=options.epochs,
        flip=False,
        padding=1,
    )
    tests = ddas_gpu.loader(
        (digits.images[1400:], digits.labels[1400:]), batch_size=64, training=False
    )
    torch.manual_seed(0)
    trainer = LoaderTrainer(
        Classifier(),
        TrainingArguments(
            str(options.out),
            num_train_epochs=options.epochs,
            learning_rate=0.01,
            save_strategy="epoch",
            report_to=[],
        ),
        train_loader=batches,
        eval_loader=tests,
        compute_metrics=accuracy,
    )
    if options.resume:
        print(f"continuing from the last checkpoint in {options.out}")
    trainer.train(resume_from_checkpoint=options.resume)
    score = trainer.evaluate()["eval_accuracy"]
    print(f"test {score:.1%}; the checkpoints are in {options.out}")
    return score


if __name__ == "__main__":
    main()
