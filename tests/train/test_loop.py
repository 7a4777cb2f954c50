"""The loop: learning rates, mixed precision, recipes of every data set, and that it learns."""

from __future__ import annotations

import math

import pytest
import torch
from commands import Killed, die, write_classes
from layouts import write_cifar, write_images, write_svhn
from small_coco import write_coco
from train_commands import at_step, train, write_both_sets

from ddas_gpu.models import build
from ddas_gpu.search.algorithm import Diverged
from ddas_gpu.tasks.evaluation import evaluate
from ddas_gpu.train.loop import Training, open_training
from ddas_gpu.train.moving_average import MovingAverage
from ddas_gpu.train.policies import open_policy
from ddas_gpu.train.settings import preset

pytestmark = pytest.mark.usefixtures("one_thread")


def make(settings, device: str = "cpu") -> Training:
    return open_training(settings, open_policy(settings), device)


def tiny(**flags):
    defaults = {"train_share": 0.03, "test_share": 0.05, "batch_size": 8, "epochs": 2}
    return preset("digits").replace(**defaults | flags)


# --- the pieces -----------------------------------------------------------------------------------


def test_cosine_and_steps():
    training = make(tiny(epochs=4))
    assert training.learning_rate(0) == 0.05
    assert training.learning_rate(8) == pytest.approx(0.025)
    assert training.learning_rate(15) == pytest.approx(0.025 * (1 + math.cos(math.pi * 15 / 16)))
    training = make(tiny(epochs=4, lr=1.0, lr_schedule="step", lr_steps=(1, 3)))
    rates = [training.learning_rate(step) for step in (0, 3, 4, 11, 12, 15)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def flat_weights(training: Training) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in training.model.parameters()])


def test_long_gradients_are_scaled_down():
    """Without momentum and decay a step is the gradient times the rate."""
    plain = {"momentum": 0.0, "weight_decay": 0.0, "lr": 1.0}
    steps = []
    for longest in (0.0, 0.25, 1e6):
        training = make(tiny(clip_grad_norm=longest, **plain))
        before = flat_weights(training)
        training.step()
        after = flat_weights(training)
        steps.append(after - before)
    free, short, long = steps
    assert float(free.norm()) > 0.25
    assert float(short.norm()) == pytest.approx(0.25, rel=1e-3)
    torch.testing.assert_close(short / short.norm(), free / free.norm(), rtol=1e-3, atol=1e-6)
    assert long.equal(free)


def test_moving_average_follows_the_weights():
    model = build("small", 3)
    average = MovingAverage(model, 0.5)
    start = average.tensors["classifier.weight"].clone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    average.update(model)  # the first decay is 2/11
    assert average.tensors["classifier.weight"].allclose(start + 9 / 11)
    for _ in range(60):
        average.update(model)
    assert average.tensors["classifier.weight"].allclose(start + 1)
    again = MovingAverage(build("small", 3), 0.5)
    again.load_state_dict(average.state_dict())
    assert again.updates == 61
    assert again.tensors["classifier.weight"].equal(average.tensors["classifier.weight"])


class Fixed(torch.nn.Module):
    """Says what it is given."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)


def test_evaluation_counts_over_uneven_batches():
    scores = torch.tensor([[3.0, 2, 1, 0, -1, -2]] * 5)
    labels = torch.tensor([0, 0, 1, 4, 5])
    tested = evaluate(Fixed(), [(scores[:3], labels[:3]), (scores[3:], labels[3:])])
    assert tested["test_accuracy"] == 0.4
    assert tested["test_top5_accuracy"] == 0.8
    expected = torch.nn.functional.cross_entropy(scores.double(), labels)
    assert tested["test_loss"] == pytest.approx(expected.item(), rel=1e-6)


def test_evaluation_leaves_the_network_in_its_mode():
    training = make(tiny())
    statistics = training.model.norm.running_mean.clone()
    evaluate(training.model, training.test_batches, training.weights())
    assert training.model.training
    assert training.model.norm.running_mean.equal(statistics)


def test_the_average_is_what_is_tested():
    training = make(tiny(moving_average=0.99))
    for _ in range(4):
        training.step()
    line = training.finish_epoch()
    averaged = evaluate(training.model, training.test_batches, training.average.tensors)
    own = evaluate(training.model, training.test_batches)
    assert line["test_loss"] == averaged["test_loss"] != own["test_loss"]


def test_epochs_between_tests():
    training = make(tiny(epochs=4, evaluate_every=3))
    lines = []
    while not training.finished:
        training.step()
        if training.end_of_epoch:
            lines.append(training.finish_epoch())
    assert ["test_accuracy" in line for line in lines] == [False, False, True, True]
    assert [line["seconds"]["evaluation"] > 0 for line in lines] == [False, False, True, True]
    assert training.last == {"epoch": 3, "accuracy": lines[3]["test_accuracy"]}
    assert training.best is None  # nothing is chosen by the test images


def test_validation_images_are_held_back_and_choose_the_epoch():
    whole, training = make(tiny()), make(tiny(val_share=0.25, epochs=3))
    parts = training.train.members(), training.validated.members()
    assert [len(part) for part in parts] == [27, 9]
    assert {*parts[0], *parts[1]} == {*whole.train.members()}
    assert training.tested.fingerprint() == whole.tested.fingerprint()
    lines = []
    while not training.finished:
        training.step()
        if training.end_of_epoch:
            lines.append(training.finish_epoch())
    validated = [line["val_accuracy"] for line in lines]
    best = validated.index(max(validated))
    assert training.best["epoch"] == best
    assert training.best["accuracy"] == lines[best]["test_accuracy"]
    assert training.last["epoch"] == 2


def test_images_of_another_folder_choose_the_epoch(tmp_path):
    root, other = write_both_sets(tmp_path / "here"), write_classes(tmp_path / "there", count=4)
    small = {"image_size": 16, "model": "small", "epochs": 1, "batch_size": 4}
    settings = preset("folder").replace(root=root, val_root=other, **small)
    training = make(settings)
    assert len(training.train) == len(make(settings.replace(val_root=None)).train)
    assert all(str(other) in str(file) for file in training.validated.files)
    assert f"8 to validate on of {other}" in training.task.overview()[1]
    while not training.finished:
        training.step()
    line = training.finish_epoch()
    assert {"test_accuracy", "val_accuracy"} <= line.keys() and training.best["epoch"] == 0


def test_a_detector_is_validated_on_all_images_of_another_folder(tmp_path):
    """Images without boxes, too: what is found in them by mistake must count."""
    here, there = write_coco(tmp_path / "here"), write_coco(tmp_path / "there", train=4)
    small = {"image_size": 64, "batch_size": 2, "drop_empty": True, "model": "retinanet-r18"}
    training = make(preset("coco").replace(root=here, val_root=there, backbone=None, **small))
    assert len(training.validated) == 4


def test_validation_images_come_from_one_place(tmp_path):
    with pytest.raises(ValueError, match="--val-root and --val-share both name"):
        tiny(val_root=tmp_path, val_share=0.1).check()
    with pytest.raises(ValueError, match="the digits are part of ddas_gpu"):
        make(tiny(val_root=tmp_path))


def last_loss(training: Training) -> float:
    """Train to the end; the mean loss of the last epoch."""
    while True:
        training.step()
        if training.end_of_epoch:
            loss = training.finish_epoch()["loss"]
            if training.steps == training.total_steps:
                return loss


def test_label_smoothing_raises_the_loss():
    """A cross-entropy is at least the entropy of its targets: 0 only without smoothing."""
    smoothing, classes = 0.5, 10
    others = smoothing / classes
    targets = [1 - smoothing + others] + [others] * (classes - 1)
    entropy = -sum(p * math.log(p) for p in targets)
    plain, smooth = (last_loss(make(tiny(epochs=10, label_smoothing=s))) for s in (0.0, smoothing))
    assert plain < entropy < smooth


def test_mixed_precision_computes_in_16_bits():
    """On a CPU in bfloat16: the same code but for the scaling of the loss."""
    mixed, full = make(tiny(amp="on")), make(tiny(amp="auto"))
    assert mixed.mixed and not full.mixed
    for training in (mixed, full):
        for _ in range(4):
            training.step()
    a, b = (training.finish_epoch()["loss"] for training in (mixed, full))
    assert a != b and a == pytest.approx(b, rel=0.05)
    assert mixed.model.stem.weight.dtype is torch.float32


def test_a_weight_at_infinity_is_never_kept():
    training = make(tiny())
    training.step()
    with torch.no_grad():
        training.model.classifier.bias[0] = math.inf
    with pytest.raises(Diverged, match="the network is no longer a finite number"):
        training.state_dict()


@pytest.mark.gpu
def test_a_gpu_trains_as_the_cpu_does():
    losses = []
    for device, mixed in (("cpu", "off"), ("cuda", "off"), ("cuda", "auto")):
        training = make(tiny(policy="uniform", amp=mixed), device)
        for _ in range(4):
            training.step()
        losses.append(training.finish_epoch()["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert losses[2] == pytest.approx(losses[0], rel=0.05)


# --- it learns ------------------------------------------------------------------------------------


def test_it_learns_the_digits():
    training = make(preset("digits").replace(train_share=0.5, epochs=5, policy="uniform"))
    while not training.finished:
        training.step()
        if training.end_of_epoch:
            line = training.finish_epoch()
    assert line["test_accuracy"] > 0.9


# --- every recipe ---------------------------------------------------------------------------------

RECIPES = {
    "digits": {},
    "cifar10": {"model": "wrn-28-10", "epochs": 200, "batch_size": 128, "lr": 0.1},
    "cifar10 shake-shake-26-2x96d": {"epochs": 1800, "lr": 0.01, "weight_decay": 1e-3},
    "cifar100": {"model": "wrn-28-10", "cutout": 16, "flip": True, "padding": 4},
    "svhn": {"epochs": 160, "lr": 0.005, "weight_decay": 1e-3, "flip": False},
    "imagenet": {
        "model": "resnet-50",
        "epochs": 270,
        "batch_size": 512,
        "lr_steps": (90, 180, 240),
    },
    "imagenet resnet-200": {"lr": 0.2, "weight_decay": 1e-4, "cutout": 0},
    "folder": {"model": "resnet-18", "image_size": 64},
}


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    """A small copy of every layout."""
    base = tmp_path_factory.mktemp("layouts")
    write_cifar(base / "cifar10")
    write_cifar(base / "cifar100", "cifar100", count=100)
    write_svhn(base / "svhn")
    write_images(base / "imagenet", ("n01440764", "n01443537"), count=4)
    write_images(base / "folder", ("cat", "dog"), count=4)
    return base


def recipe(name: str, roots, scale: float = 1.0):
    data, _, model = name.partition(" ")
    settings = preset(data, model or None, scale)
    return settings if data == "digits" else settings.replace(root=roots / data)


@pytest.mark.parametrize(("name", "expected"), RECIPES.items())
def test_recipes_are_the_papers(name, expected, roots):
    settings = recipe(name, roots)
    settings.check()
    values = settings.to_json()
    assert {key: values[key] for key in expected} == expected


def two_steps(settings) -> None:
    """On few, small images; the network and the transform are the recipe's."""
    size = 32 if settings.data.crop == "resized" else settings.data.image_size
    few = {"batch_size": 2, "test_batch_size": 4, "image_size": size, "epochs": 1}
    whole = {"train_share": 1.0, "test_share": 1.0}
    training = make(settings.replace(**few, **whole, policy="uniform"))
    training.step()
    training.step()
    assert math.isfinite(float(training.sums[0]))


# More than ten seconds each; CIFAR-10's stands for the three with the same network.
LARGE = {"cifar10 shake-shake-26-2x96d", "imagenet resnet-200"}
SLOW = {*LARGE, "cifar100", "svhn"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in RECIPES],
)
def test_every_recipe_takes_two_steps(name, roots):
    two_steps(recipe(name, roots))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_can_be_tried_out_at_a_small_scale(name, roots):
    whole, small = recipe(name, roots), recipe(name, roots, scale=0.02)
    small.check()
    assert small.training.epochs <= whole.training.epochs
    assert small.training.epochs >= 10
    assert small.data.train_share == 0.02
    rate = small.training.lr / small.training.batch_size
    assert rate == pytest.approx(whole.training.lr / whole.training.batch_size)
    if name not in LARGE:
        two_steps(small)


@pytest.mark.slow
def test_real_cifar10_trains_and_resumes(shared_data, tmp_path, monkeypatch):
    from tarfile import open as open_tar

    root = tmp_path / "cifar10"
    with open_tar(shared_data / "cifar10.tar.gz") as tar:
        tar.extractall(root, filter="data")
    flags = "--data cifar10 --scale 0.02 --epochs 3 --model wrn-10-1 --policy uniform".split()
    flags += ["--root", root, "--checkpoint-seconds", 2]
    with monkeypatch.context() as patch:
        at_step(patch, 20, die)
        with pytest.raises(Killed):
            train(*flags, "--out", tmp_path / "run")
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert train(*flags, "--out", tmp_path / "whole") == 0
    for name in ("last.pt", "policy.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
