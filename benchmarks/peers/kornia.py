"""kornia: a whole batch of floats at a time, on torch's threads or a GPU."""

from __future__ import annotations

import numpy as np

from peers.common import Call, argument_of


def kornia(name: str, images: np.ndarray, threads: int = 1, device: str = "cpu") -> Call | None:
    """Apply the nearest function of kornia, or of torch if kornia has none, to the batch."""
    import torch

    torch.set_num_threads(threads)
    batch = torch.from_numpy(images).to(device).permute(0, 3, 1, 2).contiguous().float() / 255
    function = _functions(batch).get(name)
    if function is None:
        return None

    @torch.no_grad()
    def call() -> None:
        function(batch)

    return call


def _functions(batch):
    import kornia.enhance as enhance
    import kornia.filters as filters
    import kornia.geometry.transform as geometry
    import torch

    def each(value: float) -> torch.Tensor:
        return torch.full((len(batch),), float(value), device=batch.device)

    def pair(x: float, y: float) -> torch.Tensor:
        return torch.stack([each(x), each(y)], dim=1)

    def cutout(images):
        """Cut a hole at another place of each image, without a loop over images."""
        side = argument_of("Cutout")
        inside = []
        for size in images.shape[2:]:
            begin = torch.randint(size, (len(images), 1), device=images.device) - side // 2
            place = torch.arange(size, device=images.device)
            inside.append((place >= begin) & (place < begin + side))
        return images.masked_fill(inside[0][:, None, :, None] & inside[1][:, None, None], 0)

    value = argument_of
    shear, move = value("ShearX"), value("TranslateX")
    # The older functions take a mode; rotate and shear call it differently from translate.
    nearest = {"mode": "nearest"}
    return {
        "Identity": torch.clone,
        "FlipLR": geometry.hflip,
        "FlipUD": geometry.vflip,
        "AutoContrast": enhance.normalize_min_max,
        "Equalize": enhance.equalize,
        "Invert": enhance.invert,
        "Blur": lambda x: filters.box_blur(x, 5),
        "Smooth": lambda x: filters.box_blur(x, 3),
        "Rotate": lambda x: geometry.rotate(x, each(value("Rotate")), **nearest),
        "Posterize": lambda x: enhance.posterize(x, value("Posterize")),
        "ShearX": lambda x: geometry.shear(x, pair(shear, 0), **nearest),
        "ShearY": lambda x: geometry.shear(x, pair(0, shear), **nearest),
        "TranslateX": lambda x: geometry.translate(x, pair(move, 0), **nearest),
        "TranslateY": lambda x: geometry.translate(x, pair(0, move), **nearest),
        "Solarize": lambda x: enhance.solarize(x, value("Solarize") / 255),
        "Color": lambda x: enhance.adjust_saturation_with_gray_subtraction(x, value("Color")),
        "Contrast": lambda x: enhance.adjust_contrast_with_mean_subtraction(x, value("Contrast")),
        "Brightness": lambda x: enhance.adjust_brightness_accumulative(x, value("Brightness")),
        "Sharpness": lambda x: enhance.sharpness(x, value("Sharpness")),
        "Cutout": cutout,
        "Rotate90": lambda x: torch.rot90(x, 1, (2, 3)),
    }
