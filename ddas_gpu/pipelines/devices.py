"""Which device a user means: "auto", "cpu", "cuda", "cuda:1", or a torch.device."""

from __future__ import annotations

import torch

from ddas_gpu.distributed import torchrun

DEVICES = ("auto", "cpu", "cuda")


def parse_device(
    device: str | torch.device, device_id: int | None = None
) -> tuple[str, int | None]:
    """Return one of DEVICES, and the number of the GPU if one is given.

    device: one of DEVICES, "cuda:1", DALI's own word "gpu", or a torch.device.
    """
    word, colon, number = str(device).partition(":")
    word = "cuda" if word == "gpu" else word
    if word not in DEVICES or (colon and not (word == "cuda" and number.isdecimal())):
        raise ValueError(f"device is one of {', '.join(DEVICES)}, or cuda:1 …, not {device!r}")
    if not colon:
        return word, device_id
    if device_id not in (None, int(number)):
        raise ValueError(f"device={str(device)!r} and device_id={device_id} are different GPUs")
    return word, int(number)


def torch_device(device: str | torch.device, device_id: int | None = None) -> str:
    """Return torch's name of the device; raise a ValueError for a GPU that torch does not have."""
    word, number = parse_device(device, device_id)
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if word == "cpu" or (word == "auto" and not found):
        return "cpu"
    if not found:
        raise ValueError(f"device={str(device)!r}, but torch finds no CUDA GPU: take device='cpu'")
    if number is not None and number >= found:
        raise ValueError(f"there is no GPU {number}: torch finds {found}, counted from 0")
    return "cuda" if number is None else f"cuda:{number}"


def gpu_number(device: str | torch.device, device_id: int | None = None) -> int | None:
    """Return the number of the GPU that `device` means, or None for the CPU.

    Without a number it is this process's GPU under torchrun, then torch's current one.
    """
    word, number = parse_device(device, device_id)
    if word == "cpu" or (word == "auto" and not gpu_found()):
        return None
    return own_gpu() if number is None else number


def gpu_found() -> bool:
    """Return whether the op bank can run on a GPU here."""
    try:
        import cupy
    except ImportError:
        return False
    return bool(cupy.is_available())


def own_gpu() -> int:
    """Return the GPU of this process: that of its local rank under torchrun, else torch's current.

    The rank comes first: before `torch.cuda.set_device` torch's current GPU is 0 on all ranks. A
    rank that sees fewer GPUs than there are ranks was given its own by CUDA_VISIBLE_DEVICES.
    """
    rank, count = torchrun.local_rank(), torch.cuda.device_count()
    if torchrun.launched() and (rank < count or count == 0):
        return rank
    return torch.cuda.current_device() if torch.cuda.is_available() else 0
