"""The images of each seed and domain, as folders for the commands."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from ddas_gpu.data.catalog import find_data
from ddas_gpu.data.digits import open_digits

from .protocol import SAME, Data

FASHION = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package puts it
CLASSES = ("top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag")
FASHION_CLASSES = (*CLASSES, "boot")

Pool = tuple[list[np.ndarray], np.ndarray, tuple[str, ...]]  # images, labels, class names


class Missing(Exception):
    """A data set that is not on this machine; the message says where it may come from."""


def rotate(image: Image.Image, random: np.random.Generator) -> Image.Image:
    return image.rotate(random.uniform(-50, 50), Image.Resampling.BILINEAR)


def shift(image: Image.Image, random: np.random.Generator) -> Image.Image:
    moved = Image.new("RGB", image.size)
    moved.paste(image, tuple(int(pixels) for pixels in random.integers(-4, 5, 2)))
    return moved


def shrink(image: Image.Image, random: np.random.Generator) -> Image.Image:
    side = round(image.width * random.uniform(0.5, 0.8))
    smaller = Image.new("RGB", image.size)
    corner = (image.width - side) // 2
    smaller.paste(image.resize((side, side), Image.Resampling.BILINEAR), (corner, corner))
    return smaller


def levels(offset: float, *factors: float) -> Callable[..., Image.Image]:
    """Return a change of all levels: offset + factor × level, a factor per channel or one."""

    def change(image: Image.Image, random: np.random.Generator) -> Image.Image:
        changed = offset + np.asarray(image, np.float64) * np.array(factors)
        return Image.fromarray(changed.round().clip(0, 255).astype(np.uint8))

    return change


def blur(image: Image.Image, random: np.random.Generator) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(1.5))


def shear(image: Image.Image, random: np.random.Generator) -> Image.Image:
    slant = random.uniform(-0.6, 0.6)
    about_the_middle = (1, slant, -slant * image.height / 2, 0, 1, 0)
    return image.transform(
        image.size, Image.Transform.AFFINE, about_the_middle, Image.Resampling.BILINEAR
    )


def noise(image: Image.Image, random: np.random.Generator) -> Image.Image:
    noisy = np.asarray(image, np.float64) + random.normal(0, 50, (image.height, image.width, 1))
    return Image.fromarray(noisy.round().clip(0, 255).astype(np.uint8))


DOMAINS: dict[str, tuple[Callable[..., Image.Image], str]] = {
    "rotated": (rotate, "rotated by up to ±50°"),
    "shifted": (shift, "shifted by up to ±4 pixels"),
    "smaller": (shrink, "0.5 to 0.8 of the size"),
    "dark": (levels(10, 0.2), "dark, low contrast: 10 + 0.2 × level"),
    "bright": (levels(130, 0.45), "bright: 130 + 0.45 × level"),
    "blurred": (blur, "Gaussian blur, radius 1.5"),
    "posterised": (lambda image, _: ImageOps.posterize(image, 1), "posterised to 1 bit"),
    "inverted": (lambda image, _: ImageOps.invert(image), "inverted"),
    "sheared": (shear, "sheared sideways by up to ±0.6 of the height"),
    "noisy": (noise, "grey Gaussian noise with a deviation of 50 levels"),
    "colour-cast": (levels(0, 1.1, 0.8, 0.5), "lamplight: red × 1.1, green × 0.8, blue × 0.5"),
    SAME: (lambda image, _: image, "as they are: the same domain"),
}


def _digits(size: int) -> tuple[Pool, None]:
    digits = open_digits(size)
    return (list(digits.images), digits.labels, digits.class_names), None


def _fashion(size: int) -> tuple[Pool, Pool]:
    base = os.environ.get("DDAS_DATA")
    folders = [*([Path(base) / "fashion-mnist"] if base else []), FASHION]
    found = [folder for folder in folders if (folder / "train-images-idx3-ubyte.gz").is_file()]
    if not found:
        raise Missing(f"no Fashion-MNIST in {' or '.join(map(str, folders))}")

    def read(part: str) -> Pool:
        def numbers(kind: str, header: int) -> np.ndarray:
            content = gzip.decompress((found[0] / f"{part}-{kind}-ubyte.gz").read_bytes())
            return np.frombuffer(content, np.uint8, offset=header)

        grey = numbers("images-idx3", 16).reshape(-1, 28, 28)
        return list(grey), numbers("labels-idx1", 8).astype(int), FASHION_CLASSES

    return read("train"), read("t10k")


def _cifar(size: int) -> tuple[Pool, Pool]:
    base = os.environ.get("DDAS_DATA")
    roots = [*([Path(base) / "cifar10"] if base else []), Path("data/cifar10")]
    root = next((root for root in roots if root.is_dir()), None)
    if root is None:
        raise Missing(f"no CIFAR-10 in {' or '.join(map(str, roots))}")
    sets = find_data("cifar10").reader.training_images(root, None, size)
    pools = []
    for source in sets:
        images = getattr(source, "images", None)
        pools.append(
            (source.files if images is None else images, source.labels, source.class_names)
        )
    return pools[0], pools[1]


POOLS = {"digits": _digits, "fashion-mnist": _fashion, "cifar10": _cifar}


@lru_cache(maxsize=4)
def _pools(name: str, size: int) -> tuple[Pool, Pool | None]:
    return POOLS[name](size)


def decoded(image: np.ndarray | Path, size: int) -> Image.Image:
    if isinstance(image, Path):
        with Image.open(image) as file:
            read = file.convert("RGB")
    else:
        read = Image.fromarray(image).convert("RGB")
    # Averages of whole squares of pixels; nothing where the size is that of the images.
    return read.resize((size, size), Image.Resampling.BOX)


def parts(data: Data, seed: int) -> dict[str, tuple[Pool, np.ndarray]]:
    """Return where the images of each part of a seed are; no image is in two parts."""
    pool, separate = _pools(data.name, data.size)
    random = np.random.default_rng([seed, zlib.crc32(data.name.encode())])
    order = random.permutation(len(pool[1]))
    both = data.train + data.validation
    tested = order[both:] if separate is None else random.permutation(len(separate[1]))
    return {
        "train": (pool, order[: data.train]),
        "validation": (pool, order[data.train : both]),
        "test": (pool if separate is None else separate, tested[: data.test]),
    }


def folder_of(work: Path, data: Data, seed: int, part: str, domain: str = SAME) -> Path:
    """Return the folder of a part, with one folder per class; it is written when first needed."""
    folder = work / "images" / data.name / str(seed) / f"{part}-{domain}"
    if folder.is_dir():
        return folder
    (images, labels, names), chosen = parts(data, seed)[part]
    random = np.random.default_rng([seed, zlib.crc32(f"{part} {domain}".encode())])
    change = DOMAINS[domain][0]
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    for name in names:
        (unfinished / name).mkdir(parents=True)
    for place in chosen:
        image = change(decoded(images[place], data.size), random)
        image.save(unfinished / names[labels[place]] / f"{place:05}.png")
    try:
        unfinished.rename(folder)
    except OSError:  # another process was faster
        pass
    return folder
