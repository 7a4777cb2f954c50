"""The differentiable back end against Pillow: bytes equal, floats within one level."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracle import arguments_of, is_refused, patterns, with_pillow
from PIL import Image

from ddas_gpu.ops import kornia as back_end
from ddas_gpu.ops.kornia.entries import BANK
from ddas_gpu.ops.table import OPS, Op, PixelScale

LEVEL = 1 / 255
# float32 holds k / 255 to 1e-5 levels, and AutoContrast multiplies that by up to 255.
SLACK = 2e-5

SIZES = [(1, 1), (1, 7), (2, 2), (5, 3), (5, 5), (33, 17)]
SIGNED = [name for name in OPS if OPS[name].signed]
EXACT = {"Equalize", "Invert", "Posterize", "Solarize"}  # nothing is left to round at the end


def pillow(op: Op, images: np.ndarray, each: list, centres: np.ndarray | None) -> np.ndarray:
    around = [None] * len(images) if centres is None else centres
    rows = zip(images, each, around, strict=True)
    return np.stack([with_pillow(image, op, value, centre) for image, value, centre in rows])


def cases(op: Op, images: np.ndarray) -> tuple[np.ndarray, list, np.ndarray | None]:
    """Every image with every argument as one batch, with centres in and around the image."""
    values = arguments_of(op)
    batch = np.repeat(images, len(values), axis=0)
    each = values * len(images)
    _, height, width, _ = batch.shape
    rng = np.random.default_rng(len(each))
    centres = rng.integers(-5, [width + 5, height + 5], (len(batch), 2)) if op.centred else None
    return batch, each, centres


def floats(images: np.ndarray, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(images).permute(0, 3, 1, 2).to(dtype) / 255


def in_bytes(images: torch.Tensor) -> np.ndarray:
    """(B, 3, H, W) in [0, 1] -> (B, H, W, 3) in levels."""
    return images.permute(0, 2, 3, 1).double().numpy() * 255


def check(op: Op, images: np.ndarray) -> None:
    batch, each, centres = cases(op, images)
    expected = pillow(op, batch, each, centres)
    argument = None if op.law is None else each
    given_bytes = torch.tensor(batch)
    np.testing.assert_array_equal(
        back_end.apply_uint8(given_bytes, op.name, argument, centres), expected
    )
    np.testing.assert_array_equal(given_bytes, batch)  # the input is left alone
    for dtype in (torch.float32, torch.float64):
        result = back_end.apply(floats(batch, dtype), op.name, argument, centres=centres)
        assert result.dtype == dtype
        assert result.min() >= 0 and result.max() <= 1
        if BANK[op.name].moves:
            assert torch.equal(result, floats(expected, dtype))
        else:
            # Pillow's truncation only ever lowers a value; its filters round to the nearest.
            above = (result - floats(expected, dtype)).numpy()
            low, high = (0, 0) if op.name in EXACT else (0, 1)
            low, high = (-0.5, 0.5) if BANK[op.name].rounds else (low, high)
            assert above.min() >= low * LEVEL - SLACK
            assert above.max() <= high * LEVEL + SLACK


@pytest.mark.parametrize("name", OPS)
def test_every_level_and_sign_on_made_up_images(name):
    for size in SIZES:
        images = patterns(*size)
        if not is_refused(OPS[name], torch.from_numpy(images), back_end.apply_uint8):
            check(OPS[name], images)


@pytest.mark.parametrize("name", OPS)
def test_every_level_and_sign_on_photographs(name, imagenet_images):
    photographs = [image for image in imagenet_images if min(image.shape[:2]) >= 80]
    check(OPS[name], np.stack([image[16:64, 32:80] for image in photographs[:3]]))


@pytest.mark.parametrize("name", OPS)
def test_a_whole_photograph(name, imagenet_images):
    op, image = OPS[name], imagenet_images[0]
    side = min(image.shape[:2]) if op.square else None
    image = np.ascontiguousarray(image[:side, :side])
    argument = None if op.law is None else op.law(14, PixelScale(translate=100, cutout=40))
    centres = np.array([[3, 90]]) if op.centred else None
    expected = pillow(op, image[None], [argument], centres)
    result = back_end.apply_uint8(torch.tensor(image[None]), name, argument, centres)
    np.testing.assert_array_equal(result, expected)


def accepted(op: Op) -> st.SearchStrategy:
    if op.accepts is None:
        return st.none()
    low, high = op.accepts.low, op.accepts.high
    if op.accepts.whole:
        return st.integers(max(int(low), -20), min(int(high), 256))
    return st.floats(low, min(high, 360), width=32)


@given(st.data())
def test_any_bytes_of_any_shape_with_any_argument(data):
    op = OPS[data.draw(st.sampled_from(sorted(OPS)), label="op")]
    height, width = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    shape = (data.draw(st.integers(1, 3)), height, height if op.square else width, 3)
    images = data.draw(hnp.arrays(np.uint8, shape), label="images")
    each = [data.draw(accepted(op), label="argument") for _ in images]
    centres = data.draw(hnp.arrays(np.int64, (len(images), 2), elements=st.integers(-9, 20)))
    centres = centres if op.centred else None
    argument = None if op.accepts is None else each
    expected = pillow(op, images, each, centres)
    result = back_end.apply_uint8(torch.tensor(images), op.name, argument, centres)
    np.testing.assert_array_equal(result, expected)
    if BANK[op.name].moves:
        result = back_end.apply(floats(images), op.name, argument, centres=centres)
        assert torch.equal(result, floats(expected))


@pytest.mark.parametrize("name", OPS)
def test_one_argument_for_all_is_the_same_argument_for_each(name):
    op, images = OPS[name], patterns(9, 9)
    centres = np.array([[4, 2]] * len(images)) if op.centred else None
    for argument in arguments_of(op)[::7]:
        each = None if argument is None else [argument] * len(images)
        whole = back_end.apply_uint8(torch.tensor(images), name, argument, centres)
        assert torch.equal(whole, back_end.apply_uint8(torch.tensor(images), name, each, centres))
        alone = [
            back_end.apply(floats(images[i : i + 1]), name, argument, centres=centres[i : i + 1])
            if op.centred
            else back_end.apply(floats(images[i : i + 1]), name, argument)
            for i in range(len(images))
        ]
        whole = back_end.apply(floats(images), name, argument, centres=centres)
        torch.testing.assert_close(torch.cat(alone), whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in OPS if OPS[name].accepts])
def test_arguments_may_be_numbers_arrays_or_tensors(name):
    op, images = OPS[name], torch.tensor(patterns(6, 6)[:2])
    value = arguments_of(op)[-1]
    centres = torch.tensor([[1, 2], [5, 5]]) if op.centred else None
    expected = back_end.apply_uint8(images, name, value, centres)
    tensor = torch.tensor([value] * 2, dtype=torch.float64)
    for same in ([value] * 2, tensor.numpy(), tensor, tensor[0]):
        assert torch.equal(back_end.apply_uint8(images, name, same, centres), expected)


@pytest.mark.parametrize("name", OPS)
def test_an_empty_batch_stays_empty(name):
    op = OPS[name]
    centres = torch.zeros(0, 2, dtype=torch.int64) if op.centred else None
    argument = arguments_of(op)[0]
    images = torch.zeros(0, 4, 4, 3, dtype=torch.uint8)
    assert back_end.apply_uint8(images, name, argument, centres).shape == images.shape
    images = torch.zeros(0, 3, 4, 4)
    for interpolation in ("nearest", "bilinear"):
        result = back_end.apply(
            images, name, argument, centres=centres, interpolation=interpolation
        )
        assert result.shape == images.shape


@pytest.mark.parametrize("name", OPS)
def test_memory_layout_does_not_matter(name):
    op, images = OPS[name], torch.tensor(patterns(12, 12))
    argument = arguments_of(op)[-1]
    centres = torch.full((len(images), 2), 3) if op.centred else None
    turned = images.permute(0, 3, 2, 1).contiguous().permute(0, 3, 2, 1)
    assert not turned.is_contiguous()
    result = back_end.apply_uint8(turned, name, argument, centres)
    assert torch.equal(result, back_end.apply_uint8(images, name, argument, centres))
    assert result.is_contiguous()
    nchw = floats(images.numpy())
    result = back_end.apply(nchw.contiguous(), name, argument, centres=centres)
    last = nchw.to(memory_format=torch.channels_last)
    torch.testing.assert_close(back_end.apply(last, name, argument, centres=centres), result)


@pytest.mark.parametrize("name", OPS)
def test_the_result_never_shares_memory_with_the_input(name):
    op, images = OPS[name], torch.tensor(patterns(1, 1))
    argument = arguments_of(op)[0]
    centres = torch.zeros(len(images), 2, dtype=torch.int64) if op.centred else None
    result = back_end.apply_uint8(images, name, argument, centres)
    assert result.data_ptr() != images.data_ptr()
    result = back_end.apply(nchw := floats(images.numpy()), name, argument, centres=centres)
    assert result.data_ptr() != nchw.data_ptr()


@pytest.mark.parametrize("name", sorted(EXACT))
def test_steps_are_robust_to_the_noise_of_float_arithmetic(name):
    """As left by normalising an image and undoing it: k / 255 * 255 is k up to 1e-4."""
    op, images = OPS[name], patterns(16, 16)
    argument = arguments_of(op)[len(arguments_of(op)) // 2]
    clean = floats(images)
    for noise in (1e-6, -1e-6):
        result = back_end.apply(clean + noise, name, argument)
        expected = floats(pillow(op, images, [argument] * len(images), None))
        torch.testing.assert_close(result, expected, rtol=0, atol=3e-6)


# --- bilinear -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIGNED)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
def test_bilinear_at_zero_is_the_identity(name, size):
    images = floats(patterns(*size))
    result = back_end.apply(images, name, 0, interpolation="bilinear")
    torch.testing.assert_close(result, images, rtol=0, atol=1e-5)


@pytest.mark.parametrize("pixels", [-8, -1, 1, 3])
@pytest.mark.parametrize("name", ["TranslateX", "TranslateY"])
def test_bilinear_by_whole_pixels_is_nearest(name, pixels):
    images = floats(patterns(33, 17), torch.float64)
    result = back_end.apply(images, name, pixels, interpolation="bilinear")
    torch.testing.assert_close(result, back_end.apply(images, name, pixels))


@pytest.mark.parametrize("name", ["Rotate", "ShearX", "ShearY"])
def test_bilinear_is_pillows_away_from_the_edge(name):
    images = patterns(33, 17)
    for value in arguments_of(OPS[name]):
        where = back_end.apply(torch.ones(1, 3, 33, 17), name, value, interpolation="bilinear")
        inside = (in_bytes(where)[0] > 255 - 1e-2).all(-1)
        result = in_bytes(back_end.apply(floats(images), name, value, interpolation="bilinear"))
        for image, ours in zip(images, result, strict=True):
            if name == "Rotate":
                theirs = Image.fromarray(image).rotate(value, Image.Resampling.BILINEAR)
            else:
                matrix = (1, value, 0, 0, 1, 0) if name == "ShearX" else (1, 0, 0, value, 1, 0)
                theirs = Image.fromarray(image).transform(
                    (17, 33), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR
                )
            assert (
                np.abs(ours - np.asarray(theirs))[inside].max(initial=0) <= 1 + 1e-2
            )  # it truncates


def test_bilinear_takes_fractions_of_a_pixel():
    images = torch.tensor([[0.0, 1.0, 0.0, 0.0]]).expand(1, 3, 1, 4)
    result = back_end.apply(images, "TranslateX", -0.25, interpolation="bilinear")
    torch.testing.assert_close(result[0, 0, 0], torch.tensor([0.0, 0.75, 0.25, 0.0]))


# --- bad input ------------------------------------------------------------------------------------

FLOATS = torch.zeros(2, 3, 4, 5)
BYTES = torch.zeros(2, 4, 5, 3, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (BYTES, TypeError, "float32 or float64, not torch.uint8"),
        (FLOATS.half(), TypeError, "not torch.float16"),
        (FLOATS.numpy(), TypeError, "not ndarray"),
        (FLOATS[0], ValueError, r"\(B, 3, H, W\) and not empty, not of shape \(3, 4, 5\)"),
        (FLOATS[:, :1], ValueError, r"not of shape \(2, 1, 4, 5\)"),
        (FLOATS.permute(0, 2, 3, 1), ValueError, r"not of shape \(2, 4, 5, 3\)"),
        (FLOATS[:, :, :0], ValueError, r"not of shape \(2, 3, 0, 5\)"),
    ],
)
def test_float_images_that_are_none(images, error, message):
    with pytest.raises(error, match=message):
        back_end.apply(images, "Invert", None)


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (FLOATS, TypeError, "uint8, not torch.float32"),
        (BYTES.numpy(), TypeError, "not ndarray"),
        (BYTES[0], ValueError, r"\(B, H, W, 3\) and not empty, not of shape \(4, 5, 3\)"),
        (BYTES.permute(0, 3, 1, 2), ValueError, r"not of shape \(2, 3, 4, 5\)"),
    ],
)
def test_byte_images_that_are_none(images, error, message):
    with pytest.raises(error, match=message):
        back_end.apply_uint8(images, "Invert")


@pytest.mark.parametrize(
    ("op", "argument", "message"),
    [
        ("Emboss", None, "unknown op 'Emboss'; the bank has: Identity"),
        ("Invert", 1, "Invert takes no argument, not 1"),
        ("Invert", torch.ones(2), "Invert takes no argument"),
        ("Rotate", None, "Rotate takes a number from -360 to 360 .degrees., not None"),
        ("Rotate", 361, "not 361"),
        ("Rotate", [10, 400], "not 400"),
        ("Rotate", float("nan"), "not nan"),
        ("Rotate", torch.tensor([1.0, float("inf")]), "not inf"),
        ("Rotate", "far", "not 'far'"),
        ("Rotate", [1, 2, 3], "one for each of 2 images, not 3"),
        ("Rotate", torch.ones(1), "one for each of 2 images, not 1"),
        ("Rotate", torch.ones(2, 1), r"not \[1.0\]"),
        ("Posterize", 0, "Posterize takes a whole number from 1 to 8 .bits., not 0"),
        ("Posterize", 2.5, "not 2.5"),
        ("Color", -0.1, "not -0.1"),
        ("Rotate90", None, "Rotate90 needs square images, not 4x5 pixels"),
        ("Cutout", 2, r"Cutout takes centres: \(2, 2\) integers x, y"),
    ],
)
def test_ops_and_arguments_out_of_range(op, argument, message):
    with pytest.raises(ValueError, match=message):
        back_end.apply(FLOATS, op, argument)
    with pytest.raises(ValueError, match=message):
        back_end.apply_uint8(BYTES, op, argument)


@pytest.mark.parametrize("centres", [torch.zeros(3, 2).long(), torch.zeros(2, 2), [1, 2]])
def test_centres_of_the_wrong_kind(centres):
    with pytest.raises(ValueError, match=r"centres must be \(2, 2\) integers"):
        back_end.apply(FLOATS, "Cutout", 2, centres=centres)


def test_centres_where_they_have_no_meaning():
    with pytest.raises(ValueError, match="Rotate takes no centres"):
        back_end.apply(FLOATS, "Rotate", 2, centres=torch.zeros(2, 2).long())


def test_an_unknown_interpolation():
    with pytest.raises(ValueError, match="'cubic' is unknown; there are: nearest, bilinear"):
        back_end.apply(FLOATS, "Rotate", 2, interpolation="cubic")


@pytest.mark.parametrize("name", ["TranslateX", "TranslateY", "Solarize"])
def test_bytes_take_whole_numbers_only(name):
    back_end.apply(FLOATS, name, 1.5)
    with pytest.raises(ValueError, match="a whole number .* not 1.5"):
        back_end.apply_uint8(BYTES, name, 1.5)


def test_a_shape_beyond_fixed_point_is_refused():
    with pytest.raises(ValueError, match="at most 32767 pixels"):
        back_end.apply(torch.zeros(1, 3, 1, 40000), "Rotate", 10)


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPS)
def test_the_gpu_returns_what_the_cpu_returns(name):
    batch, each, centres = cases(OPS[name], patterns(33, 33))
    argument = None if OPS[name].law is None else each
    images = torch.tensor(batch)
    result = back_end.apply_uint8(images.cuda(), name, argument, centres)
    assert torch.equal(result.cpu(), back_end.apply_uint8(images, name, argument, centres))
    result = back_end.apply(floats(batch).cuda(), name, argument, centres=centres)
    expected = back_end.apply(floats(batch), name, argument, centres=centres)
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=1e-5)
