"""Images in one folder a class: your own data, ImageNet, CIFAR as files."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from ddas_gpu.data.sources import Images

SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp"))
LAYOUT = "one folder a class with its images: ROOT/CLASS/IMAGE.jpg or ROOT/train/CLASS/IMAGE.jpg"


class FolderSource:
    """The images under root/CLASS, or under root/train/CLASS where there is a `train`.

    `shortest` bounds the memory: a shorter side of more pixels than that is reduced to it.
    """

    def __init__(self, root: Path, shortest: int | None = None) -> None:
        root = root / "train" if (root / "train").is_dir() else root
        folders = sorted(f for f in root.iterdir() if f.is_dir() and not f.name.startswith("."))
        by_class = {folder.name: _images_in(folder) for folder in folders}
        if not any(by_class.values()):
            raise ValueError(f"{root} holds no class folders with images; it must have {LAYOUT}")
        empty = [name for name, files in by_class.items() if not files]
        if empty:
            raise ValueError(f"the class folder {root / empty[0]} holds no image")
        self.root = root
        self.class_names = tuple(by_class)
        self.files = [file for files in by_class.values() for file in files]
        self.labels = np.repeat(np.arange(len(by_class)), [len(f) for f in by_class.values()])
        self._shortest = shortest

    def read(self, indices: Sequence[int] | np.ndarray) -> Images:
        """Decoded in threads; one array where all have the same size."""
        with ThreadPoolExecutor() as pool:
            files = (self.files[index] for index in indices)
            images = list(pool.map(lambda file: read_image(file, self._shortest), files))
        return np.stack(images) if len({image.shape for image in images}) == 1 else images

    def name_of(self, index: int) -> str:
        return str(self.files[index].relative_to(self.root))


def _images_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)


def read_image(path: Path, shortest: int | None = None) -> np.ndarray:
    """uint8 HWC, RGB, upright; a ValueError that names the file if it cannot be decoded."""
    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file).convert("RGB")
    # Pillow's decoders raise these, SyntaxError among them, for damaged files.
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise ValueError(
            f"cannot read the image {path} ({error}): replace it or take it out of the folder"
        ) from None
    if shortest is not None and min(image.size) > shortest:
        factor = shortest / min(image.size)
        size = tuple(max(shortest, round(side * factor)) for side in image.size)
        image = image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
    return np.asarray(image)
