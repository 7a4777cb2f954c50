import torch
from torch import nn

from ddas_gpu.models.wide_resnet import WideBlock, WideResNet


def test_depth_counts_convolutions_and_the_classifier():
    model = WideResNet(16, 2, 10)
    layers = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    shortcuts = [m for m in layers if isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1)]
    assert len(layers) - len(shortcuts) == 16 - 2  # 3 groups x 2 blocks x 2, stem, classifier
    assert len(shortcuts) == 3


def test_blocks_of_one_shape_keep_their_input_untouched_on_the_shortcut():
    block = WideBlock(4, 4, stride=1)
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 6, 6)
    assert torch.equal(block(x), x)


def test_blocks_that_change_shape_project_the_activated_input():
    block = WideBlock(4, 8, stride=2)
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 6, 6)
    activated = torch.relu(block.norm1(x))
    torch.testing.assert_close(block(x), block.shortcut(activated))
