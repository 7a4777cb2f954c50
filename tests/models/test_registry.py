import pytest
import torch

from ddas_gpu.models import build, task_of

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
        ("math:no_such_function", r"math has no function 'no_such_function'"),
        (":f", r"cannot import ''"),
    ],
)
def test_names_that_mean_nothing(name, message):
    with pytest.raises(ValueError, match=message):
        build(name, 10)


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
