"""How many bytes may be allocated without asking the machine for what it does not have."""

from pathlib import Path

import torch

# The validation pass, the optimizer's step and the allocator's gaps want their part.
_SHARE = 0.6


def free_bytes(device: torch.device) -> int | None:
    """What a plan may take on this device, or None where nothing is known of it."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(_SHARE * (free + cached))
    if device.type == "cpu":
        known = [limit for limit in (_available(), _left_in_cgroup()) if limit is not None]
        return int(_SHARE * min(known)) if known else None
    return None


def _available() -> int | None:
    """MemAvailable of Linux: free memory and what the kernel would give back."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _left_in_cgroup() -> int | None:
    """What is left of a container's limit."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = int((folder / "memory.max").read_text())
        return max(0, limit - int((folder / "memory.current").read_text()))
    except (OSError, ValueError):  # no cgroup, or its limit is "max"
        return None
