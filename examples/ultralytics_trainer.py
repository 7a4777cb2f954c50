"""Ultralytics: its detector and its trainer; the policy comes after its own augmentation.

    python examples/ultralytics_trainer.py --policy runs/scenes-1

`--data` is a data set of Ultralytics, such as mine.yaml; without it the scenes of the package are
written as one. The new lines are marked.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from PIL import Image
from ultralytics import YOLO

from ddas_gpu.adapters.ultralytics import policy_trainer  # new
from ddas_gpu.data.scenes import draw_scenes


def write_scenes(folder: Path, counts: dict[str, int]) -> Path:
    """Write scenes with boxes as Ultralytics reads them; return the file that describes them."""
    for split, count in counts.items():
        images, labels = folder / "images" / split, folder / "labels" / split
        images.mkdir(parents=True, exist_ok=True)
        labels.mkdir(parents=True, exist_ok=True)
        for number, scene in enumerate(draw_scenes(0, split, count)):
            Image.fromarray(scene.image).save(images / f"{number}.png")
            side = scene.image.shape[0]
            lines = []
            for (x0, y0, x1, y1), label in zip(scene.boxes / side, scene.labels, strict=True):
                lines.append(f"{label} {(x0 + x1) / 2} {(y0 + y1) / 2} {x1 - x0} {y1 - y0}")
            (labels / f"{number}.txt").write_text("\n".join(lines))
    names = {digit: str(digit) for digit in range(10)}
    sets = {"path": str(folder.resolve()), "train": "images/train2017", "val": "images/val2017"}
    (folder / "scenes.yaml").write_text(json.dumps(sets | {"names": names}))
    return folder / "scenes.yaml"


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="yolo11n.yaml", help="or weights, such as yolo11n.pt")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--images", type=int, default=600, help="scenes to train on")
    parser.add_argument("--out", type=Path, default=Path("runs/ultralytics"))
    options = parser.parse_args(arguments)

    data = options.data
    if data is None:
        scenes = options.out / f"scenes-{options.images}"
        data = scenes / "scenes.yaml"
        if not data.exists():
            data = write_scenes(scenes, {"train2017": options.images, "val2017": 100})
    results = YOLO(options.model).train(
        trainer=policy_trainer(options.policy),  # new
        data=str(data),
        epochs=options.epochs,
        imgsz=options.size,
        project=str(options.out.resolve()),
        plots=False,
    )
    print(f"mAP {results.box.map:.3f}; the weights are in {results.save_dir}")
    return float(results.box.map)


if __name__ == "__main__":
    main()
