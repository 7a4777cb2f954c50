"""WebDataset tars and TFRecords through DALI's readers."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("nvidia.dali")

from nvidia.dali.plugin.pytorch import DALIClassificationIterator, LastBatchPolicy

from ddas_gpu.pipelines import evaluation_pipeline, loader, training_pipeline
from ddas_gpu.pipelines.readers import find_index, record_index, record_spans, tar_index

RAW = {"crop": "pad", "size": (12, 10), "mean": [0.0] * 3, "std": [1.0] * 3, "layout": "NHWC"}


def png(image: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "png")
    return stream.getvalue()


def write_tar(path: Path, images: np.ndarray, labels: np.ndarray, digits=str) -> None:
    with tarfile.open(path, "w") as tar:
        for image, label in zip(images, labels, strict=True):
            for ending, content in (("png", png(image)), ("cls", digits(label).encode())):
                entry = tarfile.TarInfo(f"{label:04}.{ending}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))


def field(number: int, content: bytes) -> bytes:
    """A protobuf field of bytes."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(number: int) -> bytes:
    head = b""
    while number > 127:
        head, number = head + bytes([number & 127 | 128]), number >> 7
    return head + bytes([number])


def example(image: bytes, label: int) -> bytes:
    """A tf.train.Example with the two features of ImageNet's records."""
    image_feature = field(1, field(1, image))
    label_feature = field(3, field(1, varint(label)))
    entries = ((b"image/encoded", image_feature), (b"image/class/label", label_feature))
    return field(1, b"".join(field(1, field(1, key) + field(2, f)) for key, f in entries))


def write_tfrecord(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    with path.open("wb") as file:
        for image, label in zip(images, labels, strict=True):
            content = example(png(image), int(label))
            # DALI does not look at the checksums.
            file.write(struct.pack("<Q", len(content)) + b"\0" * 4 + content + b"\0" * 4)


@pytest.fixture(params=["tar", "tfrecord"])
def records(request, arrays, tmp_path) -> Path:
    """The arrays as two files."""
    write = write_tar if request.param == "tar" else write_tfrecord
    for number, part in enumerate((slice(0, 13), slice(13, 22))):
        write(tmp_path / f"{number}.{request.param}", *(array[part] for array in arrays))
    return tmp_path


def test_evaluation_reads_every_image_in_order(records, arrays):
    pipeline = evaluation_pipeline(records, 8, "cpu", **RAW)
    batches = DALIClassificationIterator(
        pipeline, reader_name="Reader", last_batch_policy=LastBatchPolicy.PARTIAL
    )
    data = [batch[0] for batch in batches]
    assert len(batches) == pipeline.order.batches == 3
    np.testing.assert_array_equal(torch.cat([d["data"] for d in data]).numpy(), arrays[0])
    assert torch.cat([d["label"] for d in data]).flatten().tolist() == arrays[1].tolist()


@pytest.mark.parametrize("prefetch", [1, 3])
def test_the_policy_of_an_epoch_acts_from_its_first_batch(
    records, arrays, all_or_nothing, prefetch
):
    settings = RAW | {"padding": 0, "flip": False}
    pipeline = training_pipeline(
        records, all_or_nothing, 8, 3, "cpu", prefetch=prefetch, **settings
    )
    for number in range(9):
        images, labels = (np.array(output.as_tensor()) for output in pipeline.run())
        clean = arrays[0][labels[:, 0]]
        np.testing.assert_array_equal(images, 255 - clean if number // 3 == 1 else clean)


def test_a_loader_of_records_resumes_to_the_same_bytes(records, schedule):
    def make(**settings):
        return loader(records, schedule, 4, 3, "cpu", **RAW | {"layout": "NCHW"} | settings)

    batches = make()
    passes = [[(i.clone(), n) for i, n in batches] for _ in range(3)]
    for labels in [torch.cat([n for _, n in one]) for one in passes]:
        assert sorted(labels.tolist()) == list(range(22))
    stopped = make()
    list(stopped)
    passing = iter(stopped)
    next(passing), next(passing)
    resumed = make(num_threads=1)
    resumed.load_state_dict(stopped.state_dict())
    rest = list(resumed)
    assert len(rest) == len(resumed) - 2
    later = list(resumed)
    for (images, labels), (right, right_labels) in zip(
        rest + later, passes[1][2:] + passes[2], strict=True
    ):
        assert torch.equal(images, right) and torch.equal(labels, right_labels)


def test_shards_share_the_records(records, schedule):
    seen = []
    for rank in (0, 1):
        batches = loader(records, schedule, 4, 3, "cpu", shard_id=rank, num_shards=2, **RAW)
        seen += torch.cat([labels for _, labels in batches]).tolist()
    assert sorted(seen) == list(range(22))


def test_gpu_graphs_of_records_can_be_defined(records, schedule):
    training_pipeline(records, schedule, 4, 3, "gpu")
    evaluation_pipeline(records, 4, "gpu")


def test_a_label_that_is_no_number_is_shown(arrays, tmp_path):
    write_tar(tmp_path / "a.tar", *(array[:4] for array in arrays), digits=lambda n: f"cat{n}")
    pipeline = evaluation_pipeline(tmp_path / "a.tar", 2, "cpu", **RAW)
    with pytest.raises(ValueError, match="must hold a number, not b'cat0'"):
        pipeline.run()


def test_a_cut_off_tfrecord_is_named(arrays, tmp_path):
    path = tmp_path / "a.tfrecord"
    write_tfrecord(path, *(array[:3] for array in arrays))
    spans = list(record_spans(path))
    assert len(spans) == 3 and sum(spans[-1]) == path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        ValueError, match=f"a.tfrecord is not a TFRecord, or cut off, .* {spans[2][0]} on"
    ):
        evaluation_pipeline(path, 2, "cpu")


def test_an_index_that_is_there_is_used(tmp_path):
    for name in ("a.idx", "a.tfrecord.idx"):
        (tmp_path / name).touch()
        found = find_index(tmp_path / "a.tfrecord", tmp_path / "new.idx", record_index)
        assert found == tmp_path / name


def test_records_begin_with_any_epoch_and_go_to_any(records, arrays, all_or_nothing):
    """The images go on; the policies are those of the epoch. It has three batches of eight."""
    settings = RAW | {"padding": 0, "flip": False}
    pipeline = training_pipeline(records, all_or_nothing, 8, 3, "cpu", start_epoch=1, **settings)

    def inverted():
        images, labels = (np.array(output.as_tensor()) for output in pipeline.run())
        clean = arrays[0][labels[:, 0]]
        assert (images == clean).all() or (images == 255 - clean).all()
        return bool((images != clean).any())

    assert [inverted() for _ in range(4)] == [True, True, True, False]
    for epoch in (1, 0, 1, 2):
        pipeline.set_epoch(epoch)
        assert [inverted() for _ in range(2)] == [epoch == 1] * 2


def test_parts_without_an_ending_and_patterns(arrays, tmp_path):
    images, labels = arrays
    for part in range(2):
        rows = slice(11 * part, 11 * part + 11)
        write_tfrecord(tmp_path / f"train-{part:05}-of-00002", images[rows], labels[rows])
        write_tar(tmp_path / f"train-{part:04}.tar", images[rows], labels[rows])
    for root in ("train-*-of-00002", "train-{00000..00001}-of-00002", "train-{0000..0001}.tar"):
        batches = loader(f"{tmp_path}/{root}", None, 4, device="cpu", training=False, **RAW)
        assert torch.cat([n for _, n in batches]).tolist() == labels.tolist()


def test_epochs_of_records_with_so_many_steps(records, schedule):
    batches = loader(records, schedule, 4, 3, "cpu", steps_per_epoch=2, **RAW)
    assert len(batches) == 2
    for _ in range(3):
        assert [len(labels) for _, labels in batches] == [4, 4]


TRUNCATED = """
import os, sys
from ddas_gpu.pipelines import loader
for number, batch in enumerate(loader(sys.argv[1], None, 4, 9, "cpu", size=12)):
    if number == 2:
        os.truncate(sys.argv[1], 0)
"""


@pytest.mark.parametrize(("name", "write"), [("a.tfrecord", write_tfrecord), ("a.tar", write_tar)])
def test_records_that_are_truncated_in_mid_run(name, write, arrays, tmp_path):
    """A mapped file would end the process here, with SIGBUS; a tar without an index as well."""
    path = tmp_path / name
    write(path, *(np.concatenate(20 * [part]) for part in arrays))
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", TRUNCATED, str(path)],
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "RuntimeError" in done.stderr, (done.returncode, done.stderr)


def test_the_index_of_a_tar(tmp_path):
    path, content = tmp_path / "a.tar", {}
    with tarfile.open(path, "w") as tar:
        for name in (
            "in/my 1.jpg",
            "in/my 1.cls",
            f"in/{120 * 'n'}.seg.png",
            f"in/{120 * 'n'}.cls",
        ):
            content[name] = name.encode()
            member = tarfile.TarInfo(name)
            member.size = len(content[name])
            tar.addfile(member, io.BytesIO(content[name]))
        tar.addfile(tarfile.TarInfo("in/link.jpg"))
    first, *lines = tar_index(path).splitlines()
    assert first == "v1.2 3" and len(lines) == 3
    words = lines[0].split() + lines[1].split()
    assert words[::4] == ["jpg", "cls", "seg.png", "cls"]
    for start, size, stored in zip(words[1::4], words[2::4], content.values(), strict=True):
        assert path.read_bytes()[int(start) : int(start) + int(size)] == stored
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(ValueError, match="a.tar is not a .tar, or cut off"):
        tar_index(path)
