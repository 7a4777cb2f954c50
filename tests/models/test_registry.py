import sys

import pytest
import torch

from ddas_gpu.models import build, task_of
from ddas_gpu.models.registry import require_logits

PARAMETERS = {
    ("wrn-40-2", 10): 2_243_546,
    ("wrn-28-10", 10): 36_479_194,
    ("resnet-18", 1000): 11_689_512,
    ("resnet-50", 1000): 25_557_032,
    ("resnet-101", 1000): 44_549_160,
    ("resnet-200", 1000): 64_673_832,
    ("shake-shake-26-2x96d", 10): 26_192_922,
}


@pytest.mark.parametrize(("name", "classes"), PARAMETERS)
def test_as_many_parameters_as_published(name, classes):
    with torch.device("meta"):
        model = build(name, classes)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[name, classes]


def test_the_small_model_is_small():
    assert 20_000 <= sum(p.numel() for p in build("small", 10).parameters()) <= 80_000
    assert sum(p.numel() for p in build("retinanet-small", 10).parameters()) <= 600_000


@pytest.mark.parametrize("name", ["small", "wrn-10-1", "resnet-18", "shake-shake-8-2x8d"])
@pytest.mark.parametrize("size", [16, 32, 40])
def test_logits_for_any_image_size(name, size):
    logits = build(name, 7)(torch.randn(2, 3, size, size))
    assert logits.shape == (2, 7)
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", ["small", "wrn-16-1", "resnet-18", "shake-shake-8-2x8d"])
def test_the_signal_keeps_its_size_at_the_start(name):
    torch.manual_seed(0)
    logits = build(name, 10)(torch.randn(16, 3, 32, 32))
    assert 0.05 < logits.std() < 5


def test_a_model_of_the_users_own(monkeypatch, tmp_path):
    (tmp_path / "my_models.py").write_text(
        "from torch import nn\ndef tiny(num_classes):\n    return nn.Linear(12, num_classes)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert build("my_models:tiny", 4).out_features == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnext-50", r"unknown model 'resnext-50'; there are: small, wrn-DEPTH-WIDTH"),
        ("wrn-40", r"unknown model 'wrn-40'"),
        ("wrn-40-2 ", r"unknown model"),
        ("resnet-34", r"no ResNet of depth 34; there are: 18, 50, 101, 200"),
        ("wrn-41-2", r"depth 6n \+ 4.*got 41"),
        ("wrn-40-0", r"at least 1, got 0"),
        ("shake-shake-27-2x96d", r"depth 6n \+ 2.*got 27"),
        ("shake-shake-26-2x95d", r"even, got 95"),
        ("no_such_module:f", r"cannot import 'no_such_module'"),
        ("math:no_such_function", r"math has no class or function 'no_such_function'"),
        (":f", r"cannot import ''"),
    ],
)
def test_names_that_mean_nothing(name, message):
    with pytest.raises(ValueError, match=message):
        build(name, 10)


OWN = """
import torch
from torch import nn

class Fixed(nn.Module):
    def __init__(self): super().__init__()

class Wide(nn.Module):
    def __init__(self, classes, width): super().__init__()

def nothing(classes): pass

def broken(classes):
    return classes / 0

def fewer(classes): return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes - 1))

def pair(classes):
    class Pair(nn.Module):
        def forward(self, x): return x, x
    return Pair()

def too_small(classes): return nn.Sequential(nn.Flatten(), nn.Linear(7, classes))

def good(classes): return nn.Sequential(nn.Flatten(), nn.Dropout(), nn.LazyLinear(classes))

ready = good(4)
"""


@pytest.fixture
def own_models(monkeypatch, tmp_path):
    (tmp_path / "own_models.py").write_text(OWN)
    (tmp_path / "own_typo.py").write_text("import torch\nclass Net(nn.Module): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [p for p in sys.path if p not in ("", str(tmp_path))])
    for name in ("own_models", "own_typo"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_models:Fixed", r"must take the number of classes alone, Fixed\(4\): too many"),
        ("own_models:Wide", r"Wide\(4\): missing a required argument: 'width'"),
        ("own_models:nothing", r"nothing\(4\) returned a NoneType, not a torch.nn.Module"),
        ("own_models:broken", r"broken\(4\) failed in own_models.py, line 14: ZeroDivisionError"),
        ("own_models:fewer", r"makes a tensor \(2, 3\) of images .*not logits \(2, 4\), one for"),
        ("own_models:pair", r"makes a tuple of images"),
        ("own_models:too_small", r"on images \(2, 3, 8, 8\) failed: RuntimeError: mat1 and"),
        ("own_models:ready", r"is a network already: name its class"),
        ("own_models:goood", r"no class or function 'goood'; did you mean 'good'?"),
        ("own_typo:Net", r"cannot import 'own_typo': NameError: name 'nn' is not defined"),
    ],
)
def test_every_way_to_get_an_own_model_wrong_is_one_sentence(own_models, name, message):
    with pytest.raises(ValueError, match=message):
        require_logits(name, build(name, 4), torch.zeros(2, 3, 8, 8), 4)


def test_an_own_model_is_found_in_the_working_directory_and_tried_without_a_trace(own_models):
    torch.manual_seed(0)
    model = build("own_models:good", 4)
    state = torch.random.get_rng_state()
    require_logits("own_models:good", model, torch.zeros(2, 3, 8, 8), 4)
    assert model.training and torch.random.get_rng_state().equal(state)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("small", "classification"),
        ("wrn-40-2", "classification"),
        ("resnet-50", "classification"),
        ("shake-shake-26-2x96d", "classification"),
        ("retinanet-r50", "detection"),
        ("my_models:tiny", None),
    ],
)
def test_the_registry_knows_the_task(name, task):
    assert task_of(name) == task


def test_unknown_models_have_no_task():
    with pytest.raises(ValueError, match="unknown model 'resnext-50'"):
        task_of("resnext-50")


def test_at_least_one_class():
    with pytest.raises(ValueError, match="num_classes=0"):
        build("small", 0)
