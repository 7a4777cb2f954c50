"""Loading ImageNet weights for a detector's backbone from a local file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

Tensors = dict[str, torch.Tensor]

# Names in a block of torchvision's and timm's ResNets, and the index of the layer in ours.
_PARTS = {"conv1": 0, "bn1": 1, "conv2": 3, "bn2": 4, "conv3": 6, "bn3": 7}


def load_backbone(backbone: nn.Module, path: Path) -> None:
    """Load the weights in `path`, a .safetensors file or one of `torch.save`.

    Names may be ours or those of torchvision's and timm's ResNets. The classifier is ignored.
    """
    found = {_our_name(name): tensor for name, tensor in _read(path).items()}
    wanted = backbone.state_dict()
    for name, tensor in wanted.items():
        if name.endswith("num_batches_tracked"):  # a counter that older files lack
            found.setdefault(name, tensor)
        elif name not in found:
            raise ValueError(f"{path} does not fit this backbone: it has no {name}")
        elif found[name].shape != tensor.shape:
            raise ValueError(
                f"{path} does not fit this backbone: {name} has the shape "
                f"{tuple(found[name].shape)}, not {tuple(tensor.shape)}"
            )
    backbone.load_state_dict({name: found[name] for name in wanted})


def _our_name(name: str) -> str:
    name = re.sub(r"^(module\.|backbone\.)+", "", name)
    name = re.sub(r"^conv1\.", "stem.0.", re.sub(r"^bn1\.", "stem.1.", name))
    name = re.sub(r"^layer(\d)\.", lambda m: f"stages.{int(m[1]) - 1}.", name)
    name = name.replace(".downsample.", ".shortcut.")
    pattern = r"(?<=\d)\.(conv[123]|bn[123])\."
    return re.sub(pattern, lambda m: f".layers.{_PARTS[m[1]]}.", name)


def _read(path: Path) -> Tensors:
    if not path.is_file():
        raise ValueError(f"there is no file of weights {path}")
    try:
        content = _load_safetensors(path) if path.suffix == ".safetensors" else _load_torch(path)
    except Exception as error:  # the readers raise many types for damaged files
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} cannot be read as weights: {reason}") from None
    for key in ("state_dict", "model"):  # checkpoints of trainers
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(
        isinstance(value, torch.Tensor) for value in content.values()
    ):
        raise ValueError(f"{path} must hold tensors by name")
    return content


def _load_torch(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _load_safetensors(path: Path) -> Any:
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise ValueError("it needs safetensors: pip install 'ddas_gpu[coco]'") from None
    return load_file(path)
