"""Batches for a detector: boxes follow the pixels, and both are the same however they are read."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("nvidia.dali")

from nvidia.dali import Pipeline, fn, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy
from small_coco import write_coco

import ddas_gpu
from ddas_gpu import PolicySchedule, SearchSpace, detection_loader, detection_pipeline
from ddas_gpu.data.coco import Annotated, Coco, open_coco
from ddas_gpu.ops import PixelScale
from ddas_gpu.ops.table import BOX_OPS, Reach
from ddas_gpu.pipelines import DetectionBatch
from ddas_gpu.pipelines.transform import IMAGENET_MEAN as MEAN
from ddas_gpu.pipelines.transform import IMAGENET_STD as DEVIATION
from ddas_gpu.pipelines.transform import KeepRatio, Square

RAW = {"mean": [0.0] * 3, "std": [1.0] * 3}  # levels come out as they are
NAMES = list(DetectionBatch._fields)


class AsItIs(KeepRatio):
    """Every image as it is."""

    def __init__(self) -> None:
        super().__init__(1, 1)

    def new_size(self, height: int, width: int) -> tuple[int, int]:
        return height, width


def load(source, schedule=None, batch_size=4, **settings) -> ddas_gpu.pipelines.Loader:
    usual = {"epochs": 3, "device": "cpu", "resize": (32, 64), "seed": 2}
    return detection_loader(source, schedule, batch_size, **usual | settings)


def by_image(batches) -> dict[int, tuple[np.ndarray, ...]]:
    """What is known of each image, without padding: pixels, boxes and labels."""
    found = {}
    for images, boxes, labels, counts, sizes, ids, *_ in batches:
        for row, place in enumerate(ids.tolist()):
            assert place not in found
            (height, width), count = sizes[row].tolist(), int(counts[row])
            pixels = images[row, :, :height, :width].numpy().copy()
            found[place] = (pixels, boxes[row, :count].numpy(), labels[row, :count].numpy())
    return found


def assert_same(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    for place in one:
        for mine, yours in zip(one[place], other[place], strict=True):
            np.testing.assert_array_equal(mine, yours)


def test_a_batch_is_what_it_says(annotated, box_schedule):
    batches = load(annotated, box_schedule)
    assert len(batches) == 3
    for batch in batches:
        images, boxes, labels, counts, sizes, ids, image_ids, category_ids = batch
        assert isinstance(batch, DetectionBatch) and images.is_contiguous()
        assert images.dtype == boxes.dtype == torch.float32
        assert {part.dtype for part in (labels, counts, sizes, ids)} == {torch.int64}
        assert torch.equal(image_ids, ids)  # without ids of their own
        assert torch.equal(category_ids, torch.where(labels < 0, -1, labels + 1))
        rows, most = labels.shape
        assert counts.shape == ids.shape == (rows,) and sizes.shape == (rows, 2)
        assert boxes.shape == (rows, most, 4) and most >= 1
        assert images.shape[:2] == (rows, 3)
        assert images.shape[2] % 32 == images.shape[3] % 32 == 0
        for row in range(rows):
            (height, width), count = sizes[row].tolist(), int(counts[row])
            assert (height, width) == KeepRatio(32, 64).new_size(
                annotated[ids[row]].height, annotated[ids[row]].width
            )
            assert not images[row, :, height:].any() and not images[row, :, :, width:].any()
            assert not boxes[row, count:].any() and (labels[row, count:] == -1).all()
            assert (labels[row, :count] >= 0).all()
            real = boxes[row, :count]
            assert (0 <= real).all() and (real[:, :2] <= real[:, 2:]).all()
            assert (real <= torch.tensor([width, height] * 2) + 1e-4).all()


def test_evaluation_takes_no_policy(annotated, box_schedule):
    with pytest.raises(ValueError, match="images to test on are not augmented"):
        load(annotated, box_schedule, training=False)


def test_evaluation_is_in_order_and_without_flip(annotated):
    batches = load(annotated, training=False)
    for _ in range(2):
        places = torch.cat([batch.ids.clone() for batch in batches])
        assert places.tolist() == list(range(len(annotated)))
    batches.set_epoch(0)
    for place, (pixels, boxes, labels) in by_image(batches).items():
        image = annotated[place]
        expected, kinds = image.objects()
        factor = np.tile(pixels.shape[:0:-1], 2) / np.tile([image.width, image.height], 2)
        np.testing.assert_allclose(boxes, expected * factor, rtol=1e-6)
        assert labels.tolist() == kinds.tolist()


def test_crowds_are_nothing_to_learn_from(annotated):
    found = by_image(load(annotated, training=False))
    assert len(found[9][1]) == len(annotated[9].boxes) - 1 == 3


def test_what_happens_to_an_image_does_not_depend_on_its_batch(annotated, box_schedule):
    one = by_image(load(annotated, box_schedule))
    assert_same(one, by_image(load(annotated, box_schedule, batch_size=3, num_threads=1)))
    assert_same(one, by_image(load(annotated, box_schedule, batch_size=11, prefetch=3)))
    other = by_image(load(annotated, box_schedule, seed=3))
    assert any(one[i][0].tobytes() != other[i][0].tobytes() for i in one)


@pytest.mark.parametrize("training", [True, False])
def test_shards_are_disjoint_and_complete(annotated, box_schedule, training):
    schedule = box_schedule if training else None
    whole = by_image(load(annotated, schedule, training=training))
    settings = {"training": training, "batch_size": 2, "num_shards": 11}
    shards = [by_image(load(annotated, schedule, shard_id=i, **settings)) for i in range(11)]
    assert sum(map(len, shards)) == len(annotated)
    assert_same(whole, {place: image for shard in shards for place, image in shard.items()})


def test_probabilities_change_with_the_first_batch_of_an_epoch(annotated):
    space = SearchSpace.of(["Identity", "Invert"], depth=1)
    rows = np.array([[0.0, 1.0]] * 3)
    schedule = PolicySchedule(space, np.array([0.0, 1.0, 0.0]), rows)
    for prefetch in (1, 3):
        settings = {"flip": False, "prefetch": prefetch} | RAW
        batches = load(annotated, schedule, **settings)
        plain, inverted, again = (by_image(batches) for _ in range(3))
        assert_same(plain, again)
        for place, (pixels, *_) in inverted.items():
            np.testing.assert_array_equal(255 - plain[place][0], pixels)


@pytest.mark.parametrize("name", [n for n, op in BOX_OPS.items() if op.reach is Reach.WITH_BOXES])
@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_what_was_in_a_box_is_in_it_afterwards(tmp_path, name, device):
    """Through the whole pipeline: a bright thing on black, resized, flipped and moved."""
    generator, images = np.random.default_rng(4), []
    for number in range(24):
        pixels = np.zeros((90, 120, 3), np.uint8)
        (x0, y0), (width, height) = generator.integers(0, 60, 2), generator.integers(20, 30, 2)
        box = [x0, y0, x0 + width, y0 + height]
        pixels[y0 : y0 + height, x0 : x0 + width] = 255
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        columns = np.array([box], float), np.array([7]), np.array([1.0]), np.array([False])
        images.append(Annotated(tmp_path / f"{number}.png", 90, 120, *columns))
    levels = () if name == "Rotate90_BBox" else (4, 8)
    space = SearchSpace.of([name], levels, depth=1, scale=PixelScale(translate=40))
    schedule = PolicySchedule(space, np.ones(1), np.full((1, len(space)), 1 / len(space)))
    batches = load(images, schedule, 8, epochs=1, device=device, resize=64, **RAW)
    seen = 0
    columns = (torch.cat(each) for each in zip(*batches, strict=True))  # squares: one size
    for image, boxes, labels, count, *_ in zip(*columns, strict=True):
        rows, columns = torch.nonzero(image[0] > 160, as_tuple=True)
        if count == 0:
            assert len(rows) <= 2  # nearest-neighbour sampling may keep a pixel on the very edge
            continue
        seen += 1
        assert labels.tolist() == [7]
        x0, y0, x1, y1 = boxes[0].tolist()
        assert x0 - 1 <= columns.min() and columns.max() + 1 <= x1 + 1
        assert y0 - 1 <= rows.min() and rows.max() + 1 <= y1 + 1
    assert seen >= 16


def test_it_reads_what_dalis_own_reader_reads(coco_root):
    """Pixels, boxes, labels and ids; that reader keeps crowds and has the ids of the file."""
    coco = open_coco(coco_root)
    pipeline = Pipeline(1, 1, None)
    with pipeline:
        encoded, boxes, labels, number = fn.readers.coco(
            file_root=str(coco_root / "train2017"),
            annotations_file=str(coco_root / "annotations" / "instances_train2017.json"),
            ltrb=True,
            image_ids=True,
            include_iscrowd=False,
        )
        images = fn.decoders.image(encoded, output_type=types.RGB)
        pipeline.set_outputs(images, boxes, labels, number)
    mine = by_image(load(coco, training=False, resize=AsItIs(), batch_size=8, **RAW))
    places = {int(image.file.stem): place for place, image in enumerate(coco.images)}
    for _ in range(len(coco.images)):
        image, boxes, labels, number = (np.array(out.at(0)) for out in pipeline.run())
        pixels, my_boxes, my_labels = mine.pop(places[int(number[0])])
        np.testing.assert_array_equal(pixels.transpose(1, 2, 0), image)
        np.testing.assert_allclose(my_boxes, boxes, atol=1e-3)
        assert (my_labels + 1).tolist() == labels.tolist()
    assert not mine


def test_dalis_generic_iterator(annotated, box_schedule):
    pipeline = detection_pipeline(annotated, box_schedule, 4, 3, "cpu", resize=32, seed=2)
    iterator = DALIGenericIterator(
        pipeline,
        NAMES,
        reader_name="Reader",
        last_batch_policy=LastBatchPolicy.PARTIAL,
        auto_reset=True,
        dynamic_shape=True,
    )
    expected = load(annotated, box_schedule, resize=32)
    for _ in range(2):
        got = [[entry[name].clone() for name in NAMES] for (entry,) in iterator]
        for mine, yours in zip(got, expected, strict=True):
            assert torch.allclose(mine[0], yours[0], atol=1e-5)  # DALI rounds otherwise than torch
            assert all(torch.equal(a, b) for a, b in zip(mine[1:], yours[1:], strict=True))


def test_a_pipeline_begins_anywhere(annotated, box_schedule):
    def ids(pipeline, count):
        return [np.array(pipeline.run()[-1].as_tensor()).tolist() for _ in range(count)]

    settings = {"resize": 32, "device": "cpu", "epochs": 3, "batch_size": 4}
    whole = ids(detection_pipeline(annotated, box_schedule, **settings), 9)
    later = detection_pipeline(annotated, box_schedule, first=4, **settings)
    assert ids(later, 5) == whole[4:]


def test_sources(coco_root):
    coco = open_coco(coco_root)
    sources = coco_root, str(coco_root), coco, coco.images
    settings = {"resize": 32, "training": False, "batch_size": 64}
    first, *others = (next(iter(load(source, **settings))) for source in sources)
    for other in others:
        # Images alone do not know the ids of their categories.
        assert all(torch.equal(a, b) for a, b in zip(first[:-1], other[:-1], strict=True))
    validation = next(iter(load(coco_root, split="val2017", **settings)))
    assert not torch.equal(first.images, validation.images)


def test_images_without_boxes_stay_unless_told(annotated):
    empty = [i for i, image in enumerate(annotated) if not len(image.boxes)]
    found = by_image(load(Coco(annotated, ("thing",)), training=False))
    assert empty and all(len(found[place][1]) == 0 for place in empty)
    kept = by_image(load(annotated, training=False, keep_empty=False))
    assert len(kept) == len(annotated) - len(empty)
    assert all(len(boxes) for _, boxes, _ in kept.values())
    only = [annotated[place] for place in empty]
    (batch,) = load(only, training=False)
    assert batch.boxes.shape == (3, 1, 4) and not batch.counts.any()


def test_the_mean_is_imagenets_unless_told(annotated):
    levels = by_image(load(annotated, training=False, **RAW))
    normal = by_image(load(annotated, training=False))
    for place, (pixels, *_) in levels.items():
        expected = (pixels.transpose(1, 2, 0) - MEAN) / DEVIATION
        np.testing.assert_allclose(normal[place][0], expected.transpose(2, 0, 1), atol=1e-5)


def test_half_precision_and_channels_last(annotated):
    batch = next(iter(load(annotated, resize=48, layout="NHWC", dtype=torch.float16)))
    assert batch.images.shape == (4, 64, 64, 3) and batch.images.dtype == torch.float16


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": []}, "no images to read"),
        ({"source": "nowhere"}, "no COCO at nowhere: .* is missing"),
        ({"resize": "large"}, "resize is the side of a square in pixels, .* not 'large'"),
        ({"epochs": 0}, "epochs is a whole number, 1 or more, not 0"),
        ({"std": [1, 0, 1]}, "std has a number .*for each of 3 channels"),
        ({"device": "tpu"}, "device is one of auto, cpu, cuda, or cuda:1 …, not 'tpu'"),
    ],
)
def test_wrong_settings(annotated, box_schedule, settings, message):
    usual = {"source": annotated, "device": "cpu", "schedule": box_schedule}
    with pytest.raises(ValueError, match=message):
        detection_pipeline(**usual | settings)


def test_what_holds_no_images_with_boxes(arrays, schedule):
    with pytest.raises(TypeError, match="a Coco, or a sequence of Annotated, not from tuple"):
        load(arrays)
    with pytest.raises(ValueError, match="the number of epochs that you train for"):
        load(arrays, schedule, epochs=None)


def test_a_policy_for_classification_is_refused(annotated, schedule):
    with pytest.raises(ValueError, match="schedule: FlipLR moves pixels away from their boxes"):
        load(annotated, schedule)


def test_too_many_boxes_for_a_policy_are_told_at_once(annotated, box_schedule):
    columns = {"boxes": np.zeros((3000, 4)), "labels": np.zeros(3000, int)}
    columns |= {"areas": np.ones(3000), "crowd": np.zeros(3000, bool)}
    images = [*annotated, replace(annotated[0], **columns)]
    message = f"{annotated[0].file} has 3000 boxes; with a policy at most 2048 are possible"
    with pytest.raises(ValueError, match=message):
        load(images, box_schedule)
    assert max(int(batch.counts.max()) for batch in load(images)) == 3000


def test_square_only_ops_on_other_shapes_are_refused_with_their_own_words(annotated):
    schedule = PolicySchedule(SearchSpace.of(["Rotate90_BBox"], depth=1), [1.0], [[1.0]])
    with pytest.raises(ValueError, match="Rotate90_BBox needs square images, not"):
        list(load(annotated, schedule))
    assert len(list(load(annotated, schedule, resize=Square(32)))) == 3


def test_a_gpu_graph_can_be_defined_without_a_gpu(annotated, box_schedule):
    detection_pipeline(annotated, box_schedule, 4, 3, "gpu", dtype="float16", layout="NHWC")
    detection_pipeline(annotated, None, 4, 3, "gpu", training=False, resize=64)


@pytest.mark.gpu
def test_gpu_and_cpu_agree(annotated, box_schedule):
    """In all but pixels to the bit, because decoders and filters differ a little."""
    images = [image for image in annotated if image.file.suffix == ".png"]
    settings = {"resize": AsItIs()} | RAW
    on_gpu = load(images, box_schedule, device="gpu", **settings)
    for got, expected in zip(on_gpu, load(images, box_schedule, **settings), strict=True):
        assert all(part.is_cuda for part in got)
        for mine, yours in zip(got[1:], expected[1:], strict=True):
            assert torch.equal(mine.cpu(), yours)
        assert (got.images.cpu() - expected.images).abs().mean() < 0.5


def test_cocos_own_ids_and_the_targets_of_other_detectors(tmp_path):
    root = write_coco(tmp_path)  # categories 1 and 5
    annotations = root / "annotations" / "instances_train2017.json"
    content = json.loads(annotations.read_text())
    for entry, key in [(i, "id") for i in content["images"]] + [
        (a, "image_id") for a in content["annotations"]
    ]:
        entry[key] = 1000 - 7 * entry[key]
    annotations.write_text(json.dumps(content))
    names = {image["id"]: image["file_name"] for image in content["images"]}
    coco = open_coco(root)
    seen = []
    for batch in load(root, flip=False, resize=(64, 128)):
        assert set(batch.category_ids[batch.labels >= 0].tolist()) <= {1, 5}
        plain, relative = batch.as_targets("torchvision"), batch.as_targets("detr")
        for row, place in enumerate(batch.ids.tolist()):
            image_id, count = int(batch.image_ids[row]), int(batch.counts[row])
            assert coco.images[place].file.name == names[image_id]
            seen.append(image_id)
            own = [a for a in content["annotations"] if a["image_id"] == image_id]
            expected = torch.tensor([a["bbox"] for a in own]).reshape(-1, 4).double()
            kinds = [a["category_id"] for a in own]
            assert plain[row]["labels"].tolist() == kinds and count == len(own)
            assert int(plain[row]["image_id"]) == int(relative[row]["image_id"]) == image_id
            corners = torch.cat([expected[:, :2], expected[:, :2] + expected[:, 2:]], 1)
            assert torch.allclose(plain[row]["boxes"].double(), 2 * corners)
            centres = expected[:, :2] + expected[:, 2:] / 2
            fractions = torch.cat([centres, expected[:, 2:]], 1) / torch.tensor([48, 32, 48, 32])
            assert torch.allclose(relative[row]["boxes"].double(), fractions)
            assert relative[row]["class_labels"].tolist() == kinds
            assert relative[row]["size"].tolist() == [64, 96]
    assert sorted(seen) == sorted(names)
    with pytest.raises(ValueError, match="targets are for one of torchvision, detr, not 'yolo'"):
        batch.as_targets("yolo")


def test_shifts_and_holes_follow_the_size_of_the_training(annotated):
    space = SearchSpace.of(["TranslateX_BBox"], [10], 1, PixelScale(250, 100))
    recorded = PolicySchedule(space, [1.0], [[1.0]], {"image_size": 800})
    by_hand = SearchSpace.of(["TranslateX_BBox"], [10], 1, PixelScale(10, 4))
    expected = load(annotated, PolicySchedule(by_hand, [1.0], [[1.0]]))
    assert_same(by_image(load(annotated, recorded)), by_image(expected))
