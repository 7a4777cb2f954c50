"""RetinaNet: its shapes, its anchors, and that per-policy gradients are exact on it."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch
from gradients.comparison import Case, assert_equal, captured_names, plain_loop, run_method
from safetensors.torch import save_file

from ddas_gpu.detection import detection_loss, targets_for
from ddas_gpu.models import build
from ddas_gpu.models.backbone_weights import load_backbone
from ddas_gpu.models.frozen_batch_norm import FrozenBatchNorm2d, freeze_batch_norm
from ddas_gpu.models.resnet import ResNet
from ddas_gpu.models.retinanet import (
    PER_PLACE,
    PRIOR,
    STRIDES,
    RetinaNet,
    SmallRetinaNet,
    anchors_for,
    level_shapes,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("depth", "millions"), [(18, 21.4), (50, 38.0), (101, 57.0)])
def test_size_is_that_of_the_published_detectors(depth, millions):
    with torch.device("meta"):
        model = build(f"retinanet-r{depth}", num_classes=80)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert round(count / 1e6, 1) == millions


@pytest.mark.parametrize("model", [RetinaNet(18, 7, channels=8), SmallRetinaNet(7)])
@pytest.mark.parametrize(("height", "width"), [(64, 64), (40, 72), (33, 97)])
def test_predictions_are_one_for_each_anchor(model, height, width):
    model.eval()
    with torch.no_grad():
        predictions = model(torch.randn(2, 3, height, width))
    count = len(anchors_for(height, width))
    assert predictions["logits"].shape == (2, count, 7)
    assert predictions["deltas"].shape == (2, count, 4)


@pytest.mark.parametrize("model", [RetinaNet(18, 7, channels=8), SmallRetinaNet(7)])
def test_an_untrained_network_expects_nothing(model):
    """The focal loss needs this start, or the background drowns the first steps."""
    with torch.no_grad():
        scores = model(torch.randn(2, 3, 64, 64))["logits"].sigmoid()
    assert math.isclose(scores.mean().item(), PRIOR, rel_tol=0.1)


def test_predictions_of_a_place_meet_the_anchors_of_that_place():
    """A head that tells row, column and anchor of each output gives them back in order."""
    model = RetinaNet(18, num_classes=1, channels=8)
    head = model.classes
    for layer in (*head.tower, head.last):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    for layer in head.tower:  # passes channel 0 on
        layer.weight.data[0, 0, 1, 1] = 1.0
    head.last.weight.data[:, 0, 1, 1] = 1.0
    head.last.bias.data = torch.arange(PER_PLACE) / 100
    rows, columns = 2, 3
    place = torch.zeros(1, 8, rows, columns)
    place[0, 0] = torch.arange(rows * columns).view(rows, columns) + 1.0
    with torch.no_grad():
        values = head(place).view(rows, columns, PER_PLACE)
    expected = place[0, 0][..., None] + torch.arange(PER_PLACE) / 100
    torch.testing.assert_close(values, expected)


def test_anchors_lie_around_their_places_in_the_papers_sizes():
    height, width = 70, 100
    anchors, start = anchors_for(height, width), 0
    for stride, (rows, columns) in zip(STRIDES, level_shapes(height, width), strict=True):
        level = anchors[start : start + rows * columns * PER_PLACE].view(rows, columns, -1, 4)
        start += rows * columns * PER_PLACE
        centres = (level[..., :2] + level[..., 2:]) / 2
        row, column = rows - 1, columns // 2
        expected = torch.tensor([(column + 0.5) * stride, (row + 0.5) * stride])
        torch.testing.assert_close(centres[row, column], expected.expand(PER_PLACE, 2))
        size = level[..., 2:] - level[..., :2]
        sides = size.prod(-1).sqrt() / (4 * stride)
        torch.testing.assert_close(sides[0, 0, ::3], torch.tensor([2 ** (i / 3) for i in range(3)]))
        ratios = size[0, 0, :3, 1] / size[0, 0, :3, 0]
        torch.testing.assert_close(ratios, torch.tensor([0.5, 1.0, 2.0]))
    assert start == len(anchors)
    torch.testing.assert_close(
        anchors_for(64, 64, 2.0)[0, 2:] - anchors_for(64, 64, 2.0)[0, :2],
        (anchors_for(64, 64)[0, 2:] - anchors_for(64, 64)[0, :2]) / 2,
    )


def detection_case(model: torch.nn.Module, versions: int = 3, size: int = 64) -> Case:
    """Versions of different statistics, each with its own boxes; one image has none."""
    generator, boxes_of = torch.Generator().manual_seed(0), np.random.default_rng(0)
    images = torch.randn(versions, 2, 3, size, size, generator=generator, dtype=torch.float64)
    images *= torch.arange(1, versions + 1).view(-1, 1, 1, 1, 1) / 2
    anchors = anchors_for(size, size).double()
    targets = []
    for version in range(versions):
        boxes, labels = [], []
        for count in (2, 0 if version == 1 else 3):
            corner = boxes_of.uniform(0, size / 2, (count, 2))
            far = corner + boxes_of.uniform(8, size / 2, (count, 2))
            boxes.append(np.concatenate([corner, far], 1))
            labels.append(boxes_of.integers(0, 5, count))
        targets.append(targets_for(anchors, boxes, labels))
    model = model.double()
    direction = {
        name: torch.randn(p.shape, generator=generator, dtype=torch.float64)
        for name, p in model.named_parameters()
    }
    weights = torch.rand(versions, generator=generator, dtype=torch.float64)
    return Case(model, images, targets, weights, direction, detection_loss)


@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_of_every_method_are_exact(frozen):
    torch.manual_seed(1)
    model = RetinaNet(18, num_classes=5, channels=16)
    case = detection_case(freeze_batch_norm(model) if frozen else model)
    expected = plain_loop(case)
    for method in ("lean", "in turn", "folded"):
        results, gradients = run_method(method, case)
        assert_equal(results, expected)
        if method in ("in turn", "folded"):
            assert any(name.startswith("backbone") for name in captured_names(gradients))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["retinanet-r18", "retinanet-r50", "retinanet-r101"])
def test_gradients_are_exact_at_full_width(name):
    """All channels: weights of the heads, shared by five levels, are then among the captured."""
    torch.manual_seed(1)
    case = detection_case(build(name, num_classes=5), versions=2)
    expected = plain_loop(case)
    for method in ("lean", "in turn"):
        results, gradients = run_method(method, case)
        assert_equal(results, expected)
        assert method == "lean" or "classes.tower.2.weight" in captured_names(gradients)


def test_frozen_batch_norm_is_batch_norm_in_evaluation():
    torch.manual_seed(0)
    model = RetinaNet(18, num_classes=3, channels=8)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(1.0, 2.0)
            torch.nn.init.normal_(module.weight)
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = model.eval()(images)
        frozen = freeze_batch_norm(model).train()
        found = frozen(images)
    torch.testing.assert_close(found, expected)
    assert any(isinstance(module, FrozenBatchNorm2d) for module in frozen.modules())
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in frozen.modules())
    assert not any("norm" in name for name, _ in frozen.named_parameters())


def published(backbone: ResNet) -> dict[str, torch.Tensor]:
    """A backbone's weights under the names of the published ResNets, written out by hand."""
    names = {"stem.0": "conv1", "stem.1": "bn1"}
    for stage, blocks in enumerate(backbone.stages):
        for number, block in enumerate(blocks):
            ours, theirs = f"stages.{stage}.{number}", f"layer{stage + 1}.{number}"
            layers = [i for i, m in enumerate(block.layers) if not isinstance(m, torch.nn.ReLU)]
            for i, place in enumerate(layers):
                kind = ("conv", "bn")[i % 2]
                names[f"{ours}.layers.{place}"] = f"{theirs}.{kind}{i // 2 + 1}"
            for i in (0, 1):
                names[f"{ours}.shortcut.{i}"] = f"{theirs}.downsample.{i}"
    weights = {}
    for name, tensor in backbone.state_dict().items():
        module, _, kind = name.rpartition(".")
        weights[f"{names[module]}.{kind}"] = tensor
    return weights | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}


@pytest.mark.parametrize("depth", [18, 50])
def test_published_backbone_weights_find_their_places(depth, tmp_path):
    torch.manual_seed(0)
    trained = RetinaNet(depth, num_classes=3, channels=8).backbone
    torch.save(published(trained), tmp_path / "weights.pt")
    fresh = RetinaNet(depth, num_classes=3, channels=8).backbone
    load_backbone(fresh, tmp_path / "weights.pt")
    for name, tensor in trained.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], tensor), name


def test_own_backbone_weights_and_those_of_a_frozen_network(tmp_path):
    model = RetinaNet(18, num_classes=3, channels=8)
    torch.save({"state_dict": model.backbone.state_dict()}, tmp_path / "weights.pt")
    frozen = freeze_batch_norm(RetinaNet(18, num_classes=3, channels=8))
    load_backbone(frozen.backbone, tmp_path / "weights.pt")
    assert torch.equal(frozen.backbone.stem[0].weight, model.backbone.stem[0].weight)


def test_weights_that_do_not_fit(tmp_path):
    backbone = RetinaNet(18, num_classes=3, channels=8).backbone
    path = tmp_path / "weights.pt"
    with pytest.raises(ValueError, match="there is no file of weights"):
        load_backbone(backbone, path)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot be read as weights"):
        load_backbone(backbone, path)
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="must hold tensors by name"):
        load_backbone(backbone, path)
    torch.save(RetinaNet(50, num_classes=3, channels=8).backbone.state_dict(), path)
    with pytest.raises(ValueError, match=r"does not fit this backbone: stages\.0\.0"):
        load_backbone(backbone, path)
    torch.save({"fc.weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match=r"it has no stem\.0\.weight"):
        load_backbone(backbone, path)


def test_safetensors_are_read(tmp_path):
    backbone = RetinaNet(18, num_classes=3, channels=8).backbone
    save_file(backbone.state_dict(), tmp_path / "weights.safetensors")
    other = RetinaNet(18, num_classes=3, channels=8).backbone
    load_backbone(other, tmp_path / "weights.safetensors")
    assert torch.equal(other.stem[0].weight, backbone.stem[0].weight)


def test_damaged_safetensors_are_refused(tmp_path):
    (tmp_path / "weights.safetensors").write_bytes(b"not tensors")
    with pytest.raises(ValueError, match=r"weights\.safetensors cannot be read as weights: "):
        load_backbone(ResNet(18, num_classes=3), tmp_path / "weights.safetensors")


def test_without_safetensors_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    (tmp_path / "weights.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"pip install 'ddas_gpu\[coco\]'"):
        load_backbone(ResNet(18, num_classes=3), tmp_path / "weights.safetensors")
