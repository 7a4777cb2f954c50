"""Any change of any value in a file of ours is read or refused with one sentence."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.cli.running import settings_of_run
from ddas_gpu.data.coco import open_coco
from ddas_gpu.errors import sentence
from ddas_gpu.schema import check, fits, read_json
from ddas_gpu.search.settings import SearchSettings
from ddas_gpu.train.settings import TrainSettings

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from([0, 1, -1, 2, 2.5, 2**31, 2**63, 10**400, 1e308, -1e-300]),
        st.floats(),
        st.integers(),
        st.text(max_size=6),
        st.sampled_from(["Invert", "Rotate", "candidates", "1", "\x1b[31m", "\ud800"]),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


def places(content: Any, path: tuple = ()) -> list[tuple]:
    """Return the paths of all values in JSON content."""
    found = [path]
    if isinstance(content, dict):
        found += [p for key in content for p in places(content[key], (*path, key))]
    elif isinstance(content, list):
        found += [p for index, item in enumerate(content) for p in places(item, (*path, index))]
    return found


@st.composite
def changed(draw: Any, content: Any) -> Any:
    """Replace, remove or repeat up to three values of JSON content."""
    content = {"root": copy.deepcopy(content)}
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(places(content)[1:]))
        owner = content
        for key in path:
            owner = owner[key]
        deed = draw(st.sampled_from(["replace", "remove", "repeat"]))
        if deed == "replace" or last == "root":
            owner[last] = draw(JSON)
        elif deed == "remove":
            del owner[last]
        elif isinstance(owner, list):
            owner.append(owner[last])
    return content["root"]


def refused_in_a_sentence(read: Any) -> bool:
    """Return whether `read` raises a ValueError; it may raise nothing else."""
    try:
        read()
    except ValueError as error:
        assert str(error)
        assert sentence(error).isprintable()
        return True
    return False


SPACE = SearchSpace.preset("digits").to_json()
SHORT = {"ops": ["Invert", "Rotate"], "levels": [2, 6], "scale": {"translate": 8}, "fill": 0}
POLICY = PolicySchedule(
    SearchSpace.of(["Invert", "Blur"]), [0.2, 0.4], [[0.5, 0.5], [0.7, 0.3]], {"image_size": 16}
).to_json()


@given(changed(SPACE) | changed(SHORT) | JSON)
def test_spaces(content):
    refused_in_a_sentence(lambda: SearchSpace.from_json(content))


@given(changed(POLICY) | JSON)
def test_policies(content):
    refused_in_a_sentence(lambda: PolicySchedule.from_json(content))


COCO = {
    "images": [
        {"id": 7, "file_name": "a.png", "width": 40, "height": 30},
        {"id": 3, "file_name": "b.png", "width": 40, "height": 30},
    ],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 2, "bbox": [1, 2, 3, 4.5], "area": 9, "iscrowd": 0},
        {"id": 2, "image_id": 3, "category_id": 5, "bbox": [1, 2, 3, 4.5]},
    ],
    "categories": [{"id": 2, "name": "car"}, {"id": 5, "name": "dog"}],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("coco")
    for name in ("annotations", "train2017"):
        (root / name).mkdir()
    for name in "ab":
        Image.new("RGB", (40, 30)).save(root / "train2017" / f"{name}.png")
    return root


def open_annotations(root: Path, content: Any) -> Any:
    (root / "annotations" / "instances_train2017.json").write_text(json.dumps(content))
    return open_coco(root)


@given(changed(COCO) | JSON)
def test_annotations(root, content):
    def read():
        for image in open_annotations(root, content).images:
            assert image.file.parent == root / "train2017"
            assert np.isfinite(image.boxes).all() and np.isfinite(image.areas).all()

    refused_in_a_sentence(read)


@pytest.mark.parametrize("part", ["images", "categories"])
def test_an_id_that_is_there_twice(root, part):
    content = COCO | {part: [*COCO[part], COCO[part][0]]}
    with pytest.raises(ValueError, match=rf"has the id \d 2 times in its {part}"):
        open_annotations(root, content)


def test_ids_may_be_text_too(root):
    content = json.loads(
        json.dumps(COCO).replace('"id": 7', '"id": "x"').replace('d": 7', 'd": "x"')
    )
    assert [image.file.name for image in open_annotations(root, content).images] == [
        "b.png",
        "a.png",
    ]


# --- config.json ----------------------------------------------------------------------------------

SETTINGS = {"search": SearchSettings, "train": TrainSettings}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.mark.parametrize("command", SETTINGS)
@given(st.data())
def test_configurations(run, command, data):
    settings = json.loads(json.dumps(SETTINGS[command]().to_json()))
    config = {"version": 2, "command": command, "settings": settings}
    (run / "config.json").write_text(json.dumps(data.draw(changed(config))))

    def read():
        settings_of_run(run, command, command, SETTINGS[command]).check()

    refused_in_a_sentence(read)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epochs", value) for value in (2.5, "2", True, None, [2])],
        *[("lr", value) for value in ("fast", float("nan"), 10**400)],
        *[("out", value) for value in (3, "a\0b")],
        *[("amp", value) for value in ("maybe", 1)],
        *[("lr_steps", value) for value in (3, [2.5], "12")],
        ("data", ["digits"]),
    ],
)
@pytest.mark.parametrize("command", SETTINGS)
def test_a_setting_of_another_type_is_named(run, command, name, value):
    config = {"version": 2, "command": command, "settings": {name: value}}
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"{name} must be "):
        settings_of_run(run, command, command, SETTINGS[command])


# --- the schema itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"candidates":['])
def test_deeply_nested_json_is_refused(tmp_path, opening):
    path = tmp_path / "file.json"
    path.write_text(100_000 * opening)
    for read in (read_json, SearchSpace.load, PolicySchedule.load):
        with pytest.raises(ValueError, match="is not JSON"):
            read(path)
    for depth in (50, 300, 900, 960, 980, 990):
        path.write_text(depth * "[" + depth * "]")
        assert refused_in_a_sentence(lambda: SearchSpace.load(path))
        assert refused_in_a_sentence(lambda: PolicySchedule.load(path))


def test_numbers_are_no_bools_and_no_infinities():
    assert fits(1, float) and fits(1, int) and fits(0.5, float)
    for value in (True, float("nan"), float("inf"), 10**400, "1", None):
        assert not fits(value, float)
    assert not fits(True, int) and not fits(1.0, int) and not fits(1, bool)


def test_the_place_is_named():
    schema = {"images": [{"id": int, "name?": str}]}
    check({"images": [{"id": 1}]}, schema)
    with pytest.raises(ValueError, match=r"^images\[1\]\.id must be a whole number, not '2'$"):
        check({"images": [{"id": 1}, {"id": "2"}]}, schema)
    with pytest.raises(ValueError, match=r"^images\[0\] has no 'id'$"):
        check({"images": [{}]}, schema)
