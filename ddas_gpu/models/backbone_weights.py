"""ImageNet weights for a detector's backbone, from a file on this machine."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from ddas_gpu.models.resnet import ResNet

Tensors = dict[str, torch.Tensor]

# The published ResNets (torchvision's and timm's) number the parts of a block; ours are a list.
_PARTS = {"conv1": 0, "bn1": 1, "conv2": 3, "bn2": 4, "conv3": 6, "bn3": 7}


def load_backbone(backbone: ResNet, path: Path) -> None:
    """Fill `backbone` with the weights in `path`: .safetensors, or a file of `torch.save`.

    Names may be ours or those of the published ResNets. The classifier's weights are left out.
    """
    found = {_our_name(name): tensor for name, tensor in _read(path).items()}
    wanted = backbone.state_dict()
    for name, tensor in wanted.items():
        if name.endswith("num_batches_tracked"):  # counts steps; older files are without it
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
    if path.suffix == ".safetensors":
        try:
            from safetensors.torch import load_file
        except ImportError:
            raise ValueError(
                f"{path} needs the package safetensors: pip install safetensors"
            ) from None
        content = load_file(path)
    else:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises whatever the bytes lead it to
            reason = str(error).partition("\n")[0]
            raise ValueError(f"{path} is not a file of weights: {reason}") from None
    for key in ("state_dict", "model"):  # checkpoints of trainers
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(
        isinstance(value, torch.Tensor) for value in content.values()
    ):
        raise ValueError(f"{path} must hold tensors by name")
    return content
