"""The initial weights all our image classifiers share."""

from torch import nn


def he_initialise(model: nn.Module) -> None:
    """He et al.'s fan-out normal law for convolutions; classifier biases start at 0.

    Batch norms keep PyTorch's scale 1 and shift 0: no block starts as the identity.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
