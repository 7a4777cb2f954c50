"""Ultralytics trains its detector with the policy, in a process of its own: see beside.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from beside import ROOT, even_policy, needs, run

from ddas_gpu import SearchSpace

pytestmark = needs("ultralytics")

# torchvision's operators do not load here; Ultralytics has its own for where there are none.
START = """
import json, runpy, sys
from pathlib import Path
import numpy as np
import torchvision
from ultralytics.utils.nms import TorchNMS

torchvision.ops.nms = TorchNMS.nms
"""
# Records what the policy gets; on a CPU Ultralytics reads images in its own process.
TRAIN = f"""{START}
from ddas_gpu.adapters import ultralytics

seen, call = [], ultralytics.PolicyStep.__call__

def record(self, labels):
    before, boxes = labels["img"].copy(), len(labels["instances"])
    changed = call(self, labels)
    assert changed["img"].flags.c_contiguous and changed["img"].shape == before.shape
    assert len(changed["instances"]) == len(changed["cls"]) <= boxes
    seen.append((self.policy.epoch, bool((changed["img"] != before).any())))
    return changed

ultralytics.PolicyStep.__call__ = record
example, policy, out = sys.argv[1:]
options = ["--policy", policy, "--out", out, "--epochs", "3", "--images", "24"]
score = runpy.run_path(example)["main"]([*options, "--model", "yolo26n.yaml"])
print(json.dumps({{"score": score, "seen": seen}}))
"""
STEP = f"""{START}
from ultralytics.utils.instance import Instances
from ddas_gpu import BoxPolicyTransform
from ddas_gpu.adapters.ultralytics import PolicyStep

image = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
boxes = np.array([[0.3, 0.4, 0.2, 0.3], [0.7, 0.6, 0.2, 0.2]], np.float32)  # centre and size
policy = BoxPolicyTransform(sys.argv[1], epochs=1)
found = Instances(boxes, np.zeros((0, 1000, 2), np.float32), bbox_format="xywh", normalized=True)
given = {{"img": image[..., ::-1], "instances": found, "cls": np.array([[4], [7]]), "im_file": "a"}}
labels = PolicyStep(policy)(given)

corners = np.array([[10, 10, 20, 22], [30, 20, 40, 28]], np.float32)
pixels, moved, kept = policy(image, corners, np.arange(2))
assert np.array_equal(labels["img"], pixels[..., ::-1])
assert np.allclose(labels["instances"].bboxes, moved, atol=1e-4)
assert np.array_equal(labels["cls"], np.array([[4], [7]])[kept]) and labels["im_file"] == "a"
print(json.dumps(bool((pixels != image).any())))
"""
PAGE = f"""{START}
write = runpy.run_path(sys.argv[1])["write_scenes"]
write(Path("data"), {{"train2017": 16, "val2017": 8}}).rename("data/boxes.yaml")
exec(Path(sys.argv[2]).read_text().split("```python")[1].split("```")[0])
options = {{"model": "yolo11n.yaml", "data": "data/boxes.yaml"}}
trainer = policy_trainer("runs/coco-1")(overrides=options)
trainer.world_size = 2
try:
    trainer.train()
except ValueError as error:
    print(error)
"""


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    """Ultralytics' settings, in a folder with the font that it would download for its pictures."""
    (tmp_path / "Ultralytics").mkdir()
    (tmp_path / "Ultralytics" / "Arial.ttf").touch()
    return {"YOLO_CONFIG_DIR": str(tmp_path), "YOLO_OFFLINE": "1", "YOLO_AUTOINSTALL": "false"}


def test_ultralytics_trains_under_the_policy_to_the_last_epoch(tmp_path, offline):
    """Also in the last ten epochs, which it trains with transforms that it builds anew."""
    found = even_policy(tmp_path, SearchSpace.preset("scenes"))
    example = ROOT / "examples" / "ultralytics_trainer.py"
    result = json.loads(run(TRAIN, example, found, tmp_path / "out", **offline))
    assert 0 <= result["score"] <= 1
    assert [epoch for epoch, _ in result["seen"]] == [0] * 24 + [1] * 24 + [2] * 24
    changed = [new for _, new in result["seen"]]
    assert sum(changed[:24]) > 20 and sum(changed[48:]) > 20


@pytest.mark.parametrize("op", ["FlipLR", "TranslateX", "Color"])
def test_images_boxes_and_classes_are_those_of_the_policy(tmp_path, offline, op):
    """The order of the colours shows in Color, which weighs them."""
    found = even_policy(tmp_path, SearchSpace.of([op], [4], depth=1))
    assert json.loads(run(STEP, found, **offline))


def test_the_page_works_and_several_gpus_are_refused(tmp_path, offline, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "coco-1").mkdir(parents=True)
    even_policy(tmp_path / "runs" / "coco-1", SearchSpace.preset("coco"))
    example, page = ROOT / "examples" / "ultralytics_trainer.py", ROOT / "docs" / "ultralytics.md"
    assert "in one process" in run(PAGE, example, page, **offline)
