"""Run the ops of an exported file where ddas_gpu cannot be imported.

python exported_ops.py TARGET FILE CASES.npz RESULT.npy: the cases are images, ops, arguments and
centres (x, y), one each; the result has their images.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import numpy as np


class Refuse:
    """Refuses to import this package."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == "ddas_gpu":
            raise ImportError(f"{name} is not installed")


def load(path: str) -> ModuleType:
    """Import an exported file."""
    sys.meta_path.insert(0, Refuse)
    spec = importlib.util.spec_from_file_location("exported", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["exported"] = module
    spec.loader.exec_module(module)
    return module


class At:
    """A generator that draws a given centre."""

    def __init__(self, centre: np.ndarray) -> None:
        self.left = [int(number) for number in centre]

    def randrange(self, size: int) -> int:
        return self.left.pop(0)


def pillow(module: ModuleType, image: np.ndarray, op: str, argument, centre) -> np.ndarray:
    from PIL import Image

    return np.asarray(module.apply(Image.fromarray(image), op, argument, At(centre)))


def torchvision(module: ModuleType, image: np.ndarray, op: str, argument, centre) -> np.ndarray:
    import torch

    module.random = At(centre)
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    made = module.Policy(1).transform(tensor, {"ops": [(op, argument)]})
    return made.permute(1, 2, 0).numpy()


def albumentations(module: ModuleType, image: np.ndarray, op: str, argument, centre) -> np.ndarray:
    module.generator = lambda transform: At(centre)
    return module.transform_of(op, argument)(image=image)["image"]


def dali(module: ModuleType, images, ops, arguments, centres) -> np.ndarray:
    """All cases at once, as one batch."""
    from nvidia.dali import fn, pipeline_def

    height, width = images.shape[1:3]
    rows = []
    for op, argument, (x, y) in zip(ops, arguments, centres, strict=True):
        drawn = iter([(y + 0.5) / height, (x + 0.5) / width])
        rng = SimpleNamespace(random=lambda drawn=drawn: next(drawn))
        rows.append(module.numbers_of(op, argument, rng))
    columns = [[list(images)], *([list(column)] for column in zip(*rows, strict=True))]

    @pipeline_def(batch_size=len(images), num_threads=2, device_id=None, enable_conditionals=True)
    def pipeline():
        pixels = fn.external_source(source=columns[0], layout="HWC")
        numbers = [fn.external_source(source=column) for column in columns[1:]]
        return module.select(pixels, module.NAMES, *numbers)

    pipe = pipeline()
    pipe.build()
    (made,) = pipe.run()
    return np.stack([np.array(image) for image in made])


def main(target: str, file: str, cases: str, result: str) -> None:
    if target == "torchvision":
        import torchvision_stub

        torchvision_stub.install()
    module = load(file)
    with np.load(cases) as found:
        images, ops, centres = found["images"], [str(op) for op in found["ops"]], found["centres"]
        # Whole numbers as such: they are pixels and bits.
        arguments = [
            None if np.isnan(a) else int(a) if a == int(a) and op not in FACTORS else float(a)
            for op, a in zip(ops, found["arguments"], strict=True)
        ]
    if target == "dali":
        made = dali(module, images, ops, arguments, centres)
    else:
        one = {"pillow": pillow, "torchvision": torchvision, "albumentations": albumentations}
        made = np.stack(
            [
                one[target](module, *case)
                for case in zip(images, ops, arguments, centres, strict=True)
            ]
        )
    np.save(result, made)
    assert not any(name.partition(".")[0] == "ddas_gpu" for name in sys.modules)


FACTORS = ("Color", "Contrast", "Brightness", "Sharpness", "ShearX", "ShearY")

if __name__ == "__main__":
    main(*sys.argv[1:])
