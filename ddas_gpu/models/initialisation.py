"""The initialisation of all image classifiers."""

from torch import nn


def he_initialise(model: nn.Module) -> None:
    """Draw convolutions from He et al.'s fan-out normal; set the biases of linear layers to 0.

    Batch norms keep PyTorch's scale 1 and shift 0.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
