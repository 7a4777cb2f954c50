"""A network for tests, by the name mortal_model:build, on which one rank dies once.

$DDAS_TEST_DEATHS names a file that does not exist as long as nobody has died.
"""

import os
import signal
from pathlib import Path

import torch

from ddas_gpu.models.small import SmallResNet

LAST_BREATH = 7  # forward passes


class MortalResNet(SmallResNet):
    passes = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        deaths = Path(os.environ.get("DDAS_TEST_DEATHS", "/"))
        if self.passes == LAST_BREATH and os.environ.get("RANK") == "1" and not deaths.exists():
            deaths.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(images)


def build(num_classes: int) -> MortalResNet:
    return MortalResNet(num_classes)
