"""Your own DALI pipeline with the policy as one of its nodes, and DALI's own iterator.

python examples/dali_pipeline.py --root imagenet/train --policy runs/imagenet-1/policy.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIClassificationIterator, LastBatchPolicy
from torch import nn

import ddas_gpu


@pipeline_def
def training(root: str, policy: Path, epochs: int, size: int, device: str):
    files, labels = fn.readers.file(
        file_root=root, random_shuffle=True, pad_last_batch=True, name="Reader"
    )
    images = fn.decoders.image_random_crop(files, device=device, output_type=types.RGB)
    images = fn.resize(images, size=(size, size))
    images = ddas_gpu.dali.policy(images, policy, epochs=epochs)  # new
    images = fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(),
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
    )
    return images, labels


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    options = parser.parse_args(arguments)

    on_gpu = torch.cuda.is_available()
    pipeline = training(
        str(options.root),
        options.policy,
        options.epochs,
        options.size,
        "mixed" if on_gpu else "cpu",
        batch_size=options.batch_size,
        num_threads=4,
        device_id=0 if on_gpu else None,
        seed=0,
    )
    batches = DALIClassificationIterator(
        pipeline,
        reader_name="Reader",
        auto_reset=True,
        last_batch_policy=LastBatchPolicy.PARTIAL,
    )

    torch.manual_seed(0)
    device = "cuda" if on_gpu else "cpu"
    classes = sum(entry.is_dir() for entry in options.root.iterdir())
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()
    )
    model = nn.Sequential(model, nn.Linear(256, classes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(options.epochs):
        losses = []
        for (batch,) in batches:
            labels = batch["label"].flatten().to(device, torch.int64)
            loss = nn.functional.cross_entropy(model(batch["data"].to(device)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        mean_loss = sum(losses) / len(losses)
        print(f"epoch {epoch + 1}: loss {mean_loss:.3f}")
    return mean_loss


if __name__ == "__main__":
    main()
