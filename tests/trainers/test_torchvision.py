"""timm's loader and torchvision's own transforms, in a process of their own: see beside.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from beside import ROOT, even_policy, needs, run

from ddas_gpu import SearchSpace

pytestmark = needs("timm")

TRAIN = """
import runpy, sys

example, policy = sys.argv[1:]
options = ["--policy", policy, "--epochs", "1", "--workers", "1"]
print(runpy.run_path(example)["main"](options))
"""
LOADER = """
import json, sys
import numpy as np
import torch
from PIL import Image
from timm.data import create_loader

import ddas_gpu


class Images(torch.utils.data.Dataset):
    transform = None
    pixels = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), np.uint8)

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.pixels[index])), index


images, prefetch = Images(), json.loads(sys.argv[1])
batches = create_loader(
    images, (3, 16, 16), batch_size=2, is_training=True, no_aug=True, use_prefetcher=prefetch,
    mean=(0, 0, 0), std=(1, 1, 1), num_workers=1, persistent_workers=True,
    device=torch.device("cpu"),
)
policy = ddas_gpu.PolicyTransform(sys.argv[2], epochs=2)
images.transform.transforms.insert(2, policy)  # after the crop, before the tensor
for epoch in range(2):
    policy.set_epoch(epoch)
    expected = [policy(pixels) for pixels in images.pixels]
    for found, numbers in batches:
        found = (255 * found).round().byte().permute(0, 2, 3, 1).numpy()
        assert np.array_equal(found, np.stack([expected[number] for number in numbers]))
    print(float(np.mean(np.stack(expected) != images.pixels)))
"""
TRANSFORM = """
import json, sys
import torch
from torchvision import tv_tensors
from torchvision.transforms import v2

import ddas_gpu

policy = ddas_gpu.PolicyTransform(sys.argv[2], epochs=1)
transform = v2.Compose([policy, v2.SanitizeBoundingBoxes(), v2.ToDtype(torch.float32, scale=True)])
pixels = torch.zeros(3, 40, 50, dtype=torch.uint8)
pixels[:, 10:26, 14:30] = 255
boxes = tv_tensors.BoundingBoxes([[14, 10, 16, 16]], format="XYWH", canvas_size=(40, 50))
targets = {"boxes": boxes, "labels": torch.tensor([7]), "masks": tv_tensors.Mask(pixels[:1] > 0)}
image, target = transform(tv_tensors.Image(pixels), targets)
white = image[0].nonzero()
print(json.dumps({
    "kinds": [type(image).__name__, *(type(target[name]).__name__ for name in targets)],
    "dtype": str(image.dtype),
    "box": target["boxes"][0].tolist(),
    "white": [*white.amin(0).tolist(), *white.amax(0).tolist()],
    "same": bool((target["masks"][0] == (image[0] > 0)).all()),
    "moved": bool((image[0] * 255 != pixels[0]).any()),
    "labels": target["labels"].tolist(),
}))
"""


def policy(folder: Path, *ops: str) -> Path:
    return even_policy(folder, SearchSpace.of(ops, [4], depth=1))


def test_timm_trains_with_the_policy(tmp_path):
    found = policy(tmp_path, "Rotate", "Brightness", "ShearX")
    assert float(run(TRAIN, ROOT / "examples" / "timm_loop.py", found)) > 0.15


@pytest.mark.parametrize("prefetch", [False, True])
def test_timms_loader_shows_what_the_policy_makes(tmp_path, prefetch):
    """In persistent workers, with the draws of each epoch."""
    found = policy(tmp_path, "Rotate", "Invert")
    assert float(run(LOADER, json.dumps(prefetch), found)) > 0.3


@pytest.mark.parametrize("op", ["FlipLR", "TranslateX"])
def test_boxes_and_masks_move_inside_compose(tmp_path, op):
    found = json.loads(run(TRANSFORM, "-", policy(tmp_path, op)))
    assert found["kinds"] == ["Image", "BoundingBoxes", "Tensor", "Mask"]
    assert found["dtype"] == "torch.float32" and found["labels"] == [7]
    x, y, width, height = found["box"]
    top, left, bottom, right = found["white"]
    assert (x, y, x + width, y + height) == (left, top, right + 1, bottom + 1)
    assert found["same"] and found["moved"]
