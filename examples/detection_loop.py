"""A plain PyTorch training loop for a detector, with a found policy, on COCO.

    python examples/detection_loop.py --root coco --policy runs/coco-1/policy.json

The detector is the package's RetinaNet; any other that accepts padded boxes can replace it. Run it
again with --resume to go on from its checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import ddas_gpu
from ddas_gpu.data.coco import open_coco
from ddas_gpu.detection import detection_loss, targets_for
from ddas_gpu.models import build
from ddas_gpu.models.retinanet import anchors_for


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--model", default="retinanet-r50")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--short", type=int, default=800, help="pixels of the shorter side")
    parser.add_argument("--checkpoint", type=Path, default=Path("runs/detection_loop.pt"))
    parser.add_argument("--resume", action="store_true", help="continue from --checkpoint")
    options = parser.parse_args(arguments)
    if options.checkpoint.exists() and not options.resume:
        parser.error(f"{options.checkpoint} exists: continue it with --resume, or name another")

    coco = open_coco(options.root)
    batches = ddas_gpu.detection_loader(
        coco,
        options.policy,
        batch_size=options.batch_size,
        epochs=options.epochs,
        resize=(options.short, options.short * 5 // 3),
    )

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build(options.model, len(coco.class_names)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    mean_loss = float("nan")
    if options.resume:
        state = torch.load(options.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        batches.load_state_dict(state["batches"])
        mean_loss = state["loss"]
        print(f"continuing {options.checkpoint} after {batches.epoch} of {options.epochs} epochs")
    options.checkpoint.parent.mkdir(parents=True, exist_ok=True)

    while batches.epoch < options.epochs:
        losses = []
        for batch in batches:
            anchors = anchors_for(*batch.images.shape[-2:]).to(device)
            targets = targets_for(anchors, batch.boxes, batch.labels)
            loss = detection_loss(model(batch.images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        mean_loss = sum(losses) / len(losses)
        parts = {"model": model, "optimizer": optimizer, "batches": batches}
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save(state | {"loss": mean_loss}, options.checkpoint)
        print(f"epoch {batches.epoch}: loss {mean_loss:.3f}")
    print(f"the state after the last epoch is in {options.checkpoint}")
    return mean_loss


if __name__ == "__main__":
    main()
