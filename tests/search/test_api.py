"""`search_policy`: any data, any loss, the command's own inside, resumed to the same bytes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest
import torch
from commands import Killed, before_step, die
from own_data import TRAIN, VALIDATION, Digits, arrays, network
from PIL import Image
from torch.nn import functional as F

import ddas_gpu
from ddas_gpu import SearchSpace, search_policy
from ddas_gpu.data.digits import open_digits
from ddas_gpu.models import build
from ddas_gpu.search.__main__ import main
from ddas_gpu.search.algorithm import Search
from ddas_gpu.search.settings import preset

pytestmark = pytest.mark.usefixtures("one_thread")

# 4 steps per epoch, 8 in all.
TINY = {
    **{"epochs": 2, "batch_size": 8, "val_batch_size": 20, "threads": 1, "quiet": True},
    "warmup_epochs": 0,
}


def search(model: Any = None, train: Any = None, validation: Any = None, **settings: Any) -> Any:
    return search_policy(
        network() if model is None else model,
        Digits(TRAIN) if train is None else train,
        Digits(VALIDATION) if validation is None else validation,
        **{"space": "digits", **TINY, **settings},
    )


def test_the_result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = search()
    assert len(result.policy) == 2 and result.policy.space == SearchSpace.preset("digits")
    assert result.report is None and not any(tmp_path.iterdir())
    assert result.verdict == "8 steps are too few to tell the 30 candidates apart."
    result.policy.save(tmp_path / "policy.json")
    assert ddas_gpu.PolicySchedule.load(tmp_path / "policy.json") == result.policy


def test_provenance_is_true():
    model = network()
    settings = search(model).policy.settings
    assert settings["data"] == "custom" and "digits" not in json.dumps(settings)
    assert settings["model"] == f"{type(model).__module__}.Net"
    assert settings["parameters"] == sum(p.numel() for p in model.parameters())
    assert settings["data_names"] == {"train": "Digits", "validation": "Digits"}
    assert settings["loss"] == "cross_entropy"
    other = search(model, train=Digits(slice(100, 132))).policy.settings
    first, second = settings["fingerprints"], other["fingerprints"]
    assert first[0] != second[0] and first[1] == second[1]


@pytest.mark.parametrize("model", [lambda: network(), partial(network, 10)])
def test_the_network_that_a_function_builds_is_named(model):
    assert search(model, epochs=1).policy.settings["model"] == f"{network.__module__}.Net"


def test_the_function_inside_a_partial_loss_is_named():
    settings = search(loss=partial(F.cross_entropy, label_smoothing=0.1), epochs=1).policy.settings
    assert settings["loss"] == "partial(cross_entropy)"


def test_the_normalisation_is_recorded():
    images = arrays(TRAIN)[0]
    settings = search(std=(80, 90, 100), epochs=1).policy.settings
    np.testing.assert_allclose(settings["mean"], images.mean((0, 1, 2)), rtol=1e-5)
    assert settings["std"] == [80, 90, 100]


@pytest.mark.parametrize("wrap", [torch.compile, torch.nn.DataParallel])
def test_wrappers_of_the_network_are_taken_off(wrap):
    plain, wrapped = search(network()).policy, search(wrap(network())).policy
    assert wrapped == plain and wrapped.settings["model"] == plain.settings["model"]


def test_quiet_prints_nothing(capfd):
    search()
    assert capfd.readouterr() == ("", "")


def test_the_users_objects_and_generators_stay_as_they_are():
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    search(model, decode="each", workers=1)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])  # noqa: NPY002


def test_it_is_what_the_command_does(tmp_path):
    """The same images, network, settings and seed give the command's policy, bit for bit."""
    flags = ("--epochs", 2, "--train-images", 32, "--val-images", 40, "--batch-size", 8)
    flags += ("--val-batch-size", 20, "--threads", 1, "--out", tmp_path / "run")
    flags += ("--warmup-epochs", 1)
    assert commands.call(main, *flags) == 0
    split = json.loads((tmp_path / "run" / "split.json").read_text())
    digits = open_digits(16)
    train, validation = (
        (digits.images[chosen], digits.labels[chosen])
        for chosen in (np.array(split[part], int) for part in ("train", "validation"))
    )
    kept = preset("digits").to_json()
    names = ("policies", "lr_ops", "val_statistics")  # in which the presets differ
    settings = {name: kept[name] for name in names} | {"warmup_epochs": 1}
    found = search(lambda: build("small", 10), train, validation, **settings).policy
    policy = ddas_gpu.PolicySchedule.load(tmp_path / "run" / "policy.json")
    assert np.array_equal(found.p_o, policy.p_o) and np.array_equal(found.p_tp, policy.p_tp)
    assert found.space == policy.space


def test_every_number_has_the_commands_default():
    defaults = json.loads(json.dumps(preset("custom").to_json()))
    found = search(epochs=1).policy.settings
    from_data = {"data", "model", "train_images", "val_images", "levels"}
    given = {"epochs", "batch_size", "val_batch_size", "threads", "warmup_epochs"}
    for name in defaults.keys() & found.keys() - from_data - given:
        assert found[name] == defaults[name], name


# --- data -----------------------------------------------------------------------------------------


def test_every_form_of_an_image_gives_the_same_policy(tmp_path):
    forms = {
        "PIL": Digits(TRAIN, lambda image, label: (Image.fromarray(image), label)),
        "CHW": Digits(TRAIN, lambda i, label: (torch.from_numpy(i).permute(2, 0, 1), label)),
        "mapping": Digits(TRAIN, lambda image, label: {"image": image, "label": label}),
        "grey": Digits(TRAIN, lambda image, label: (image[..., 0], label)),
        "arrays": arrays(TRAIN),
    }
    expected = search().policy
    for name, train in forms.items():
        found = search(train=train).policy
        assert np.array_equal(found.p_o, expected.p_o), name


def test_reading_for_each_batch_gives_the_same_policy():
    statistics = {"mean": (60, 60, 60), "std": (80, 80, 80)}
    once, each = (search(decode=how, workers=2, **statistics).policy for how in ("once", "each"))
    assert np.array_equal(once.p_o, each.p_o)


def noisy(image: np.ndarray, label: int) -> tuple[np.ndarray, int]:
    """An image that draws from every global generator."""
    shift = random.randrange(3) + np.random.randint(3) + int(torch.randint(3, ()))  # noqa: NPY002
    return np.roll(image, shift, 1), label


def test_random_data_sets_are_repeatable_however_many_workers_read():
    found = [
        search(train=Digits(TRAIN, noisy), decode="each", workers=workers).policy
        for workers in (1, 2)
    ]
    assert found[0].p_o.tobytes() == found[1].p_o.tobytes()
    assert found[0].p_o.tobytes() != search(decode="each").policy.p_o.tobytes()


def test_reading_in_this_process_gives_the_same_policy():
    found = [
        search(train=Digits(TRAIN, noisy), decode=decode, workers=workers).policy
        for decode in ("once", "each")
        for workers in (0, 1)
    ]
    assert found[0] == found[1] and np.array_equal(found[2].p_o, found[3].p_o)


@pytest.mark.parametrize("decode", ["once", "each"])
def test_images_of_different_sizes_are_cropped(decode):
    def stretched(image: np.ndarray, label: int) -> tuple[Image.Image, int]:
        return Image.fromarray(image).resize((20 + label, 24)), label

    sets = {"train": Digits(TRAIN, stretched), "validation": Digits(VALIDATION, stretched)}
    settings = search(**sets, decode=decode, image_size=16).policy.settings
    assert settings["crop"] == "resized"


def test_images_of_one_size_keep_it():
    seen = []

    class Seeing(type(network())):
        def forward(self, images):
            seen.append(images.shape[-2:])
            return super().forward(images)

    def wide(image: np.ndarray, label: int) -> tuple[np.ndarray, int]:
        return np.concatenate([image, image[:, :4]], 1), label

    search(Seeing(), Digits(TRAIN, wide), Digits(VALIDATION, wide), epochs=1)
    assert set(seen) == {(16, 20)}


def test_a_folder(tmp_path):
    root = commands.write_classes(tmp_path / "images", count=20)
    result = search(network(2), str(root), str(root), image_size=16)
    assert result.policy.settings["data_names"]["train"] == str(root)


def test_a_hugging_face_data_set():
    datasets = pytest.importorskip("datasets")
    images = [Image.fromarray(image) for image in arrays(TRAIN)[0]]
    features = datasets.Features(
        {"img": datasets.Image(), "y": datasets.ClassLabel(names=list("0123456789"))}
    )
    content = {"img": images, "y": arrays(TRAIN)[1].tolist()}
    data = datasets.Dataset.from_dict(content, features=features)
    found = search(train=data, validation=data, columns=("img", "y")).policy
    expected = search(validation=Digits(TRAIN)).policy
    assert np.array_equal(found.p_o, expected.p_o)
    with pytest.raises(ValueError, match="no column 'image'; it has: img, y"):
        search(train=data)


def test_paths_of_image_files_with_labels(tmp_path):
    images, labels = arrays(TRAIN)
    files = [tmp_path / f"{index}.png" for index in range(len(images))]
    for file, image in zip(files, images, strict=True):
        Image.fromarray(image).save(file)
    found = search(train=(list(map(str, files)), labels)).policy
    assert np.array_equal(found.p_o, search().policy.p_o)


def test_data_sets_that_name_other_classes_are_refused(tmp_path):
    root = commands.write_classes(tmp_path / "images", count=2)
    other = commands.write_classes(tmp_path / "other", "bc", count=2)
    with pytest.raises(ValueError, match="must have the same classes .* has a, c"):
        search(network(2), root, other)
    ordered = Digits(TRAIN), Digits(VALIDATION)
    ordered[0].classes, ordered[1].classes = list("0123456789"), list("9876543210")
    with pytest.raises(ValueError, match="must have the same classes .* in another order"):
        search(None, *ordered)


# --- losses ---------------------------------------------------------------------------------------


def one_hot(image: np.ndarray, label: int) -> tuple[np.ndarray, np.ndarray]:
    return image, np.eye(10)[label]


def two_heads(image: np.ndarray, label: int) -> tuple[np.ndarray, tuple[int, float]]:
    return image, (label, label / 10)


def named(image: np.ndarray, label: int) -> tuple[np.ndarray, dict[str, Any]]:
    return image, {"digit": label, "size": float(image.mean())}


def loss_of_two(outputs: torch.Tensor, targets: Any) -> torch.Tensor:
    label, share = targets
    return F.cross_entropy(outputs[:, :10], label) + F.mse_loss(outputs[:, 10], share)


def loss_of_named(outputs: torch.Tensor, targets: Any) -> torch.Tensor:
    return loss_of_two(outputs, (targets["digit"], targets["size"] / 255))


LOSSES = {
    "multi-label": (one_hot, 10, F.binary_cross_entropy_with_logits),
    "regression": (
        lambda image, label: (image, label / 10),
        1,
        lambda outputs, targets: F.mse_loss(outputs[:, 0], targets),
    ),
    "two heads": (two_heads, 11, loss_of_two),
    "a dict": (named, 11, loss_of_named),
}


@pytest.mark.parametrize("name", LOSSES)
def test_any_target_and_any_loss(name):
    change, outputs, loss = LOSSES[name]
    sets = {"train": Digits(TRAIN, change), "validation": Digits(VALIDATION, change)}
    found = [
        search(network(outputs), **sets, loss=loss, gradients=method).policy.p_o
        for method in ("auto", "reference")
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3)
    assert found[0].std() > 0


def test_a_head_that_the_loss_ignores():
    class TwoHeads(type(network())):
        def __init__(self):
            super().__init__()
            self.unused = torch.nn.Linear(32, 4)

        def forward(self, images):
            features = self.features(images)
            return self.head(features), self.unused(features)

    search(TwoHeads(), loss=lambda outputs, labels: F.cross_entropy(outputs[0], labels))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_learns_where_the_caller_does_not(mode):
    with mode():
        found = search().policy
        assert not torch.is_grad_enabled()
    assert found == search().policy


# --- stopping and going on ------------------------------------------------------------------------


def results(folder: Path) -> dict[str, Any]:
    return {
        "policy": (folder / "policy.json").read_bytes(),
        "metrics": commands.metrics(folder),
        "tensors": commands.tensors(folder / "checkpoint.pt"),
    }


@pytest.mark.parametrize("decode", ["once", "each"])
def test_a_search_cut_in_the_middle_resumes_to_the_same_bytes(tmp_path, monkeypatch, decode):
    whole = search(out=tmp_path / "whole", decode=decode)
    assert whole.report == tmp_path / "whole" / "report.html" and whole.report.exists()
    for cut in (3, 6):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            before_step(patch, Search, cut, die)
            search(out=tmp_path / "run", decode=decode, resume=True, checkpoint_seconds=1e-4)
    resumed = search(out=tmp_path / "run", decode=decode, resume=True)
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert (resumed.policy, resumed.verdict) == (whole.policy, whole.verdict)


@pytest.fixture
def cut(tmp_path, monkeypatch) -> Path:
    """The folder of a search that died in its sixth step."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        before_step(patch, Search, 5, die)
        search(out=tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": network(width=12)}, "another model: Net of 570 parameters"),
        ({"model": torch.nn.Flatten()}, "model own_data.Net, not torch"),
        ({"loss": F.nll_loss}, "another loss: cross_entropy, not nll_loss"),
        ({"train": Digits(slice(100, 132))}, "other images"),
        ({"mean": (0, 0, 0)}, "another mean: .*, not .0.0, 0.0, 0.0."),
        ({"std": (1, 1, 1)}, "another std"),
        ({"train": Digits(slice(0, 40))}, "train_images=32, not 40"),
        ({"space": SearchSpace.of(["Invert", "FlipUD"])}, "another space"),
        ({"epochs": 3}, "epochs=2, not 3"),
    ],
)
def test_a_resumed_search_refuses_another_model_or_other_data(cut, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        search(out=cut, resume=True, **changes)


def test_a_folder_is_not_overwritten(cut):
    with pytest.raises(ValueError, match="already holds a run: add resume to go on .* another out"):
        search(out=cut)


def test_a_killed_process_resumes(tmp_path):
    """With a user's own script, and a real signal."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys\n"
        "from own_data import *\n"
        "from ddas_gpu import search_policy\n"
        "class Mortal(Digits):\n"
        "    def __getitem__(self, index):\n"
        "        return super().__getitem__(index)\n"
        "class Net(Net):\n"
        "    passes = 0\n"
        "    def forward(self, images):\n"
        "        self.passes += 1\n"
        "        if self.passes == int(sys.argv[2]): os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return super().forward(images)\n"
        "torch.manual_seed(0)\n"
        "search_policy(Net(), Mortal(TRAIN), Mortal(VALIDATION), space='digits', epochs=2,\n"
        "    batch_size=8, val_batch_size=20, threads=1, gradients='reference',\n"
        "    checkpoint_seconds=1e-4, out=sys.argv[1], resume=True)\n"
    )
    path = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}

    def start(folder: str, dies_at: int) -> int:
        command = [sys.executable, str(script), str(tmp_path / folder), str(dies_at)]
        return subprocess.run(command, env=os.environ | path, capture_output=True).returncode

    assert start("whole", 0) == 0
    assert start("run", 23) == -9  # in the fifth step: five passes per step
    assert start("run", 0) == 0
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def without_gradient(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs.detach(), labels)


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "error", "sentence"),
    [
        ({"epoch": 3}, TypeError, "no setting 'epoch'; the nearest is 'epochs'"),
        ({"lr_op": 3}, TypeError, "the nearest is 'lr_ops'"),
        ({"learning_rate": 3}, TypeError, "no setting 'learning_rate'; `ddas search --help` has"),
        ({"root": "x"}, TypeError, "its arguments say it"),
        ({"epochs": 0}, ValueError, "^epochs must be above 0"),
        (
            {"anchor_scale": 2.0},
            ValueError,
            "^anchor_scale is for detection, not for your own data",
        ),
        ({"space": "cifr"}, ValueError, "unknown space 'cifr'; there are: digits, sanity"),
        ({"space": "coco"}, ValueError, "needs boxes, which only a task= moves"),
        ({"space": None}, TypeError, "name of a preset or a SearchSpace, not NoneType"),
        ({"compare_with": "foo"}, ValueError, "^compare_with must be one of clean, policies"),
        ({"sanity_check": "foo"}, ValueError, "^sanity_check must be one of rotate90"),
        ({"seed": None}, ValueError, "^seed must be a whole number, not None"),
        ({"val_images": "all"}, ValueError, "^val_images must be a whole number"),
        ({"batch_size": 33}, ValueError, "^batch_size=33 is larger .*, train_images=32"),
        ({"policies": 1}, ValueError, "^compare_with policies needs policies=2 or more"),
        ({"lr": 1e30}, ArithmeticError, "try a smaller lr than"),
        ({"device": "gpu0"}, ValueError, "^device must be one of auto, cpu, cuda, not 'gpu0'"),
        ({"device": torch.device("meta")}, ValueError, "cpu, cuda, not 'meta'"),
        ({"device": None}, ValueError, "cpu, cuda, not None"),
        ({"loss": None}, TypeError, "loss is a function .*, not NoneType"),
        ({"loss": torch.nn.CrossEntropyLoss}, TypeError, r"not a class: CrossEntropyLoss\(\)"),
        ({"loss": without_gradient}, ValueError, "loss of without_gradient has no gradient"),
        ({"task": "x"}, TypeError, "task is a SearchTask, not str"),
        ({"model": network().double()}, ValueError, "Net has weights of float64"),
        ({"model": lambda: torch.nn.LazyLinear(10)}, ValueError, "lazy layers"),
        ({"model": lambda: torch.jit.script(network())}, ValueError, "is a scripted network"),
        ({"std": (0, 0, 0)}, ValueError, "std has a number above 0 for each of 3 channels"),
        ({"train": {"train": 1}}, TypeError, r"several data sets: .* data\['train'\]"),
        ({"model": 3}, TypeError, "nn.Module or a function"),
        ({"model": lambda: 3}, TypeError, "the function returned int"),
        ({"model": network().requires_grad_(False)}, ValueError, "no parameter that requires"),
        ({"mean": (0.485, 0.456, 0.406)}, ValueError, "mean is given in levels .* by 255"),
        ({"std": (0.229, 0.224, 0.225)}, ValueError, "std is given in levels .* by 255"),
        ({"train": 3}, TypeError, "data is a Dataset"),
        ({"train": "/nowhere"}, ValueError, "there is no folder /nowhere"),
        ({"train": (np.zeros((2, 4, 4, 3)), [0, 1])}, ValueError, "uint8, before any"),
        ({"train": (np.zeros((2, 4, 4, 3), np.uint8), [0])}, ValueError, "2 images, but 1"),
        ({"train_images": 33}, ValueError, "train_images=33, but there are 32"),
        ({"resume": True}, ValueError, "need `out`"),
        ({"tensorboard": True}, ValueError, "need `out`"),
    ],
)
def test_mistakes_are_named(wrong, error, sentence):
    with pytest.raises(error, match=sentence):
        search(**wrong)


def test_numbers_of_numpy_and_devices_of_torch_are_taken():
    given = {"epochs": np.int64(2), "lr": np.float64(0.05), "device": torch.device("cpu")}
    assert search(**given).policy == search(device="cpu").policy
