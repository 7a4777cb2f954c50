"""Files with many images: DALI's readers of WebDataset tars and TFRecords."""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali import fn, tfrecord, types

from ddas_gpu.data.sources import Records
from ddas_gpu.pipelines.policy_node import Problems

READER = "Reader"
IMAGE_ENDINGS = "jpg;jpeg;png;webp;bmp;tif;tiff;ppm;JPEG;JPG;PNG"
LABEL_ENDING = "cls"
# As in the TFRecords that TensorFlow's scripts write. Labels come out as they are stored.
IMAGE_FEATURE = "image/encoded"
LABEL_FEATURE = "image/class/label"


def read_records(
    records: Records,
    scratch: Path,
    problems: Problems,
    *,
    shuffle: bool,
    seed: int,
    shard_id: int,
    num_shards: int,
) -> tuple[Any, Any]:
    """Return encoded images and labels, int32 of the shape (1,).

    Each file has an index: DALI needs those of TFRecords, and without those of tars it crashes
    when one is truncated in mid-run. `scratch` is a folder for indices that are missing; it must
    last until the pipeline is built. Labels that are no numbers go to `problems`.
    """
    options = {
        "name": READER,
        "random_shuffle": shuffle,
        "seed": seed & 0x7FFFFFFF,
        "shard_id": shard_id,
        "num_shards": num_shards,
        "pad_last_batch": True,  # so that epochs begin with a batch
        "stick_to_shard": True,
        "dont_use_mmap": True,  # as in graph.read_files
    }
    files = [str(file) for file in records.files]
    index = tar_index if records.kind == "webdataset" else record_index
    indices = [
        str(find_index(Path(file), scratch / f"{i}.idx", index)) for i, file in enumerate(files)
    ]
    if records.kind == "webdataset":
        encoded, text = fn.readers.webdataset(
            paths=files,
            index_paths=indices,
            ext=[IMAGE_ENDINGS, LABEL_ENDING],
            missing_component_behavior="error",
            **options,
        )
        return encoded, fn.python_function(text, function=Numbers(problems), batch_processing=True)
    features = {
        IMAGE_FEATURE: tfrecord.FixedLenFeature((), tfrecord.string, ""),
        LABEL_FEATURE: tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
    }
    read = fn.readers.tfrecord(path=files, index_path=indices, features=features, **options)
    return read[IMAGE_FEATURE], fn.cast(read[LABEL_FEATURE], dtype=types.INT32)


class Numbers:
    """Reads labels, which WebDataset stores as decimal digits."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    def __call__(self, texts: list[np.ndarray]) -> list[np.ndarray]:
        return [np.array([self.number(text.tobytes())], np.int32) for text in texts]

    def number(self, text: bytes) -> int:
        try:
            return int(text)
        except ValueError:
            self.problems.append(
                ValueError(f"a .{LABEL_ENDING} of a WebDataset must hold a number, not {text!r}")
            )
            return -1


def find_index(file: Path, target: Path, index: Callable[[Path], str]) -> Path:
    """Return FILE.idx where `tfrecord2idx` or `wds2idx` left one, else `target`, written now."""
    for there in (file.with_name(f"{file.name}.idx"), file.with_suffix(".idx")):
        if there.is_file():
            return there
    target.write_text(index(file), "utf-8")
    return target


def tar_index(file: Path) -> str:
    """Return the index of a WebDataset, as `wds2idx` writes it: the parts of a sample in a line."""
    try:
        with tarfile.open(file, "r:") as members:
            parts = [_part(member) for member in members if member.isreg()]
    except tarfile.TarError as error:
        raise ValueError(f"{file} is not a .tar, or cut off: {error}") from error
    lines = [" ".join(text for _, text in sample) for _, sample in groupby(parts, lambda p: p[0])]
    return "\n".join([f"v1.2 {len(lines)}", *lines, ""])


def _part(member: tarfile.TarInfo) -> tuple[str, str]:
    """Return the sample that a file belongs to, its name up to the first dot, and its entry."""
    folder, slash, name = member.name.rpartition("/")
    sample, _, ending = name.partition(".")
    words = (ending or "-", member.offset_data, member.size, member.name)
    return f"{folder}{slash}{sample}", " ".join("_".join(str(word).split()) for word in words)


def record_index(file: Path) -> str:
    """Return the index of a TFRecord, as `tfrecord2idx` writes it."""
    return "".join(f"{start} {size}\n" for start, size in record_spans(file))


def record_spans(file: Path) -> Iterator[tuple[int, int]]:
    """Yield the first byte and the size of every record, with its length and checksums."""
    end, place = file.stat().st_size, 0
    with file.open("rb") as stream:
        while place < end:
            head = stream.read(8)
            size = 8 + 4 + struct.unpack("<Q", head)[0] + 4 if len(head) == 8 else end + 1
            if place + size > end:
                raise ValueError(f"{file} is not a TFRecord, or cut off, from byte {place} on")
            yield place, size
            place += size
            stream.seek(place)
