"""How the peers are called: each the fastest documented way to the nearest equivalent of an op.

All get the same batch of uint8 arrays and return arrays, except that kornia gets and returns float
tensors in [0, 1], which is what it works on. A peer is a function (name of the op, images, threads)
-> call, or None where the library has nothing like the op.
"""

from peers.albumentations import albumentations
from peers.common import argument_of
from peers.dali import dali
from peers.kornia import kornia
from peers.pillow import pillow, pillow_without_arrays

CPU_PEERS = {"Pillow": pillow, "albumentations": albumentations}  # the two the targets name
ALL_PEERS = {**CPU_PEERS, "kornia": kornia, "DALI": dali}

__all__ = ["ALL_PEERS", "CPU_PEERS", "argument_of", "pillow_without_arrays"]
