"""Replaying the random numbers of a pass, so that a second pass sees the same dropout masks."""

from contextlib import contextmanager

import torch


class RandomState:
    """The state of torch's generators (CPU, and `device` if it is a CUDA device) when created."""

    def __init__(self, device: torch.device):
        self._device = device
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        """Set the generators back to this state."""
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda, self._device)

    @contextmanager
    def replayed(self):
        """Inside: the random numbers that followed this state. After: as if nothing was drawn."""
        devices = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            self.restore()
            yield
