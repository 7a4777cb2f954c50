"""Presets are the paper's numbers, and a scale makes them small without changing their shape."""

import pytest

from ddas_gpu.data.catalog import CATALOG
from ddas_gpu.search.settings import preset


@pytest.mark.parametrize("data", CATALOG)
def test_every_preset_can_run_at_every_scale(data):
    for scale in (1.0, 0.5, 0.1, 0.01):
        settings = preset(data, scale=scale)
        settings.check()
        assert len(settings.search_space()) > 0
        if settings.data.classes is not None:
            assert settings.data.train_images % settings.data.classes == 0
            assert settings.data.val_images % settings.data.classes == 0


def test_the_papers_numbers():
    cifar, imagenet = preset("cifar10"), preset("imagenet")
    assert (cifar.data.train_images, cifar.data.val_images, cifar.training.epochs) == (
        2000,
        2000,
        20,
    )
    assert (cifar.training.batch_size, cifar.training.val_batch_size) == (32, 256)
    assert cifar.policy.policies == 3
    assert (cifar.training.model, cifar.training.lr, cifar.policy.smoothing) == (
        "wrn-40-2",
        0.05,
        2,
    )
    assert (imagenet.data.classes, imagenet.data.train_images, imagenet.data.val_images) == (
        120,
        6000,
        1200,
    )
    assert (imagenet.policy.lr_ops, imagenet.policy.lr_apply) == (0.003, 0.002)


def test_a_scale_means_fewer_images_and_a_smaller_network():
    settings = preset("cifar10", scale=0.25)
    assert (settings.data.train_images, settings.data.val_images) == (500, 500)
    assert settings.training.model == "wrn-10-1"
    assert settings.training.epochs == preset("cifar10").training.epochs


def test_policies_are_compared_with_others_only_where_there_are_some():
    settings = preset("digits").replace(policies=1)
    with pytest.raises(ValueError, match="--compare-with policies needs --policies 2 or more"):
        settings.check()
    settings.replace(compare_with="clean").check()


@pytest.mark.parametrize("scale", [0, -1, 1.5, float("nan")])
def test_a_scale_that_cannot_be(scale):
    with pytest.raises(ValueError, match="--scale is a share above 0 and up to 1"):
        preset("cifar10", scale=scale)
