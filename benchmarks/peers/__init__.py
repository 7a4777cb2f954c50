"""How the peers are called: each the fastest documented way to the nearest equivalent of an op.

All get the same batch of uint8 arrays and return arrays, except that kornia gets and returns float
tensors in [0, 1], which is what it works on. A peer is a function (name of the op, images, threads)
-> call, or None if the library has no such op. kornia and DALI process a whole batch on the given
device; Pillow and albumentations process image by image on the CPU.
"""

from functools import partial

from peers.albumentations import albumentations
from peers.common import argument_of
from peers.dali import dali
from peers.kornia import kornia
from peers.pillow import pillow, pillow_without_arrays

IMAGE_PEERS = {"Pillow": pillow, "albumentations": albumentations}
BATCH_PEERS = {"kornia": kornia, "DALI": dali}
PEERS = (*IMAGE_PEERS, *BATCH_PEERS)
# Returns its input, where all others make a new image: shown, but not counted as the best.
WITHOUT_WORK = ("albumentations", "Identity")


def batch_peers(device: str) -> dict:
    """Return the peers that process a whole batch on this device."""
    return {name: partial(peer, device=device) for name, peer in BATCH_PEERS.items()}


__all__ = [
    "IMAGE_PEERS",
    "PEERS",
    "WITHOUT_WORK",
    "argument_of",
    "batch_peers",
    "pillow_without_arrays",
]
