"""The gradients of the differentiable back end are what its table of gradients says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from ddas_gpu.ops import OPS, PixelScale
from ddas_gpu.ops import kornia as back_end
from ddas_gpu.ops.kornia.entries import BANK, BILINEAR, EXACT, NONE, STRAIGHT_THROUGH

# An argument for each op, away from kinks: no sample falls on a pixel, no result is clipped.
ARGUMENTS = {name: op.law(4, PixelScale()) for name, op in OPS.items() if op.law is not None}
ARGUMENTS |= {
    "Rotate": 17.3,
    "Posterize": 3,
    "ShearX": 0.37,
    "ShearY": -0.29,
    "TranslateX": 1.3,
    "TranslateY": -2.4,
    "Solarize": 128,
    "SolarizeAdd": 40,
    "Color": 0.6,
    "Contrast": 1.4,
    "Brightness": 0.7,
    "Sharpness": 1.6,
    "Cutout": 3,
}
CENTRES = torch.tensor([[2, 3], [5, 0]])


def ops_whose(**gradients: str) -> list[str]:
    return [
        name
        for name, entry in BANK.items()
        if all(getattr(entry, where) == kind for where, kind in gradients.items())
    ]


def images(*, on_bytes: bool = False, size: int = 5) -> Tensor:
    """Values from 60 to 190, off the half-way points between bytes, where roundings jump."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(60, 190, (2, 3, size, size), generator=generator).double()
    if not on_bytes:
        pixels += 0.8 * torch.rand(pixels.shape, generator=generator).double() - 0.4
    return (pixels / 255).requires_grad_()


def run(batch: Tensor, name: str, argument: object, interpolation: str = "nearest") -> Tensor:
    centres = CENTRES if BANK[name].op.centred else None
    return back_end.apply(batch, name, argument, centres=centres, interpolation=interpolation)


@pytest.mark.parametrize("name", ops_whose(image=EXACT))
def test_gradcheck_in_the_image(name):
    assert gradcheck(lambda x: run(x, name, ARGUMENTS.get(name)), (images(),))


@pytest.mark.parametrize("name", ops_whose(argument=BILINEAR))
def test_gradcheck_in_the_image_between_pixels(name):
    assert gradcheck(lambda x: run(x, name, ARGUMENTS[name], "bilinear"), (images(),))


@pytest.mark.parametrize("each", [False, True], ids=["one argument", "one an image"])
@pytest.mark.parametrize("name", [*ops_whose(argument=EXACT), *ops_whose(argument=BILINEAR)])
def test_gradcheck_in_the_argument(name, each):
    value = ARGUMENTS[name]
    argument = torch.tensor([value, value * 1.05] if each else value, dtype=torch.float64)
    argument.requires_grad_()
    assert gradcheck(lambda a: run(images(), name, a, "bilinear"), (argument,))


@pytest.mark.parametrize("name", [*ops_whose(argument=EXACT), *ops_whose(argument=BILINEAR)])
def test_gradcheck_in_both_at_once_on_a_batch_that_came_from_bytes(name):
    argument = torch.tensor(ARGUMENTS[name], dtype=torch.float64, requires_grad=True)
    batch = images(on_bytes=True)
    assert gradcheck(lambda x, a: run(x, name, a, "bilinear"), (batch, argument))


def grey(batch: Tensor) -> Tensor:
    return (batch * torch.tensor([0.299, 0.587, 0.114]).double().view(3, 1, 1)).sum(1, True)


def smoothed(batch: Tensor) -> Tensor:
    window = torch.ones(3, 1, 3, 3, dtype=batch.dtype)
    window[:, :, 1, 1] = 5
    inner = torch.nn.functional.conv2d(batch, window / 13, groups=3)
    return torch.nn.functional.pad(inner, (1, 1, 1, 1)) + batch * border(batch)


def border(batch: Tensor) -> Tensor:
    mask = torch.ones_like(batch)
    mask[:, :, 1:-1, 1:-1] = 0
    return mask


@pytest.mark.parametrize("on_bytes", [False, True])
@pytest.mark.parametrize(
    ("name", "degenerate"),
    [
        ("Color", grey),
        ("Contrast", lambda batch: grey(batch).mean((1, 2, 3), keepdim=True)),
        ("Sharpness", smoothed),
    ],
)
def test_the_rounding_on_the_way_does_not_show_in_the_gradient(name, degenerate, on_bytes):
    """gradcheck would be content with a step in place of the grey or smoothed image."""
    batch, factor = images(on_bytes=on_bytes), ARGUMENTS[name]
    plain = factor * batch + (1 - factor) * degenerate(batch)
    weights = torch.randn_like(batch)
    (expected,) = torch.autograd.grad(plain, batch, weights)
    (gradient,) = torch.autograd.grad(run(batch, name, factor), batch, weights)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-4)  # 0.299 is 19595 / 65536


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["Blur", "Smooth", "Sharpness", "Contrast", "Rotate"])
def test_gradcheck_on_images_smaller_than_a_window(name, size):
    batch = images(size=size)
    assert gradcheck(lambda x: run(x, name, ARGUMENTS.get(name), "bilinear"), (batch,))


@pytest.mark.parametrize("name", ops_whose(image=STRAIGHT_THROUGH))
def test_straight_through_in_the_image_is_the_identity(name):
    batch = images(size=20).detach().requires_grad_()
    result = run(batch, name, ARGUMENTS.get(name))
    assert not torch.equal(result, batch)
    cotangent = torch.randn_like(result)
    (gradient,) = torch.autograd.grad(result, batch, cotangent)
    torch.testing.assert_close(gradient, cotangent)


def test_straight_through_in_the_threshold_of_solarize():
    batch = images().detach()
    threshold = torch.tensor([100.0, 150.0], dtype=torch.float64, requires_grad=True)
    result = run(batch, "Solarize", threshold)
    assert torch.equal(result.detach(), run(batch, "Solarize", [100, 150]))
    cotangent = torch.randn_like(result)
    (gradient,) = torch.autograd.grad(result, threshold, cotangent)
    expected = (cotangent * (2 * batch - 1) / 255).sum((1, 2, 3))
    torch.testing.assert_close(gradient, expected)


def test_solarize_turns_the_sign_above_the_threshold():
    batch = images()
    (gradient,) = torch.autograd.grad(run(batch, "Solarize", 128).sum(), batch)
    below = (batch.detach() * 255).round() < 128
    torch.testing.assert_close(gradient, torch.where(below, 1.0, -1.0).double())


def test_flat_channels_have_finite_gradients():
    batch = torch.full((1, 3, 5, 5), 0.4, dtype=torch.float64, requires_grad=True)
    for name in BANK:
        argument = ARGUMENTS.get(name)
        centres = CENTRES[:1] if BANK[name].op.centred else None
        result = back_end.apply(batch, name, argument, centres=centres, interpolation="bilinear")
        (gradient,) = torch.autograd.grad(result.sum(), batch)
        assert gradient.isfinite().all(), name
    (gradient,) = torch.autograd.grad(run(batch, "AutoContrast", None).sum(), batch)
    torch.testing.assert_close(gradient, torch.ones_like(gradient))


def test_clipped_pixels_have_no_gradient():
    batch = torch.tensor([0.2, 0.6, 0.9]).view(1, 3, 1, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(run(batch, "Brightness", 2.0).sum(), batch)
    torch.testing.assert_close(gradient.flatten(), torch.tensor([2.0, 0.0, 0.0]))


@pytest.mark.parametrize(
    "name", [name for name in ARGUMENTS if BANK[name].argument in (NONE, BILINEAR)]
)
def test_an_argument_without_a_gradient_is_refused_if_it_requires_one(name):
    argument = torch.tensor(float(ARGUMENTS[name]), requires_grad=True)
    with pytest.raises(ValueError, match=f"{name} .*no gradient in its argument"):
        run(images(), name, argument)
    run(images(), name, argument.detach())
    with torch.no_grad():
        run(images(), name, argument)


@pytest.mark.parametrize(
    ("name", "start", "goal", "rate"),
    [("Rotate", 2.0, 14.0, 2.0), ("TranslateX", 0.3, 3.6, 0.3), ("Color", 1.0, 0.4, 0.1)],
)
def test_an_argument_can_be_learned(name, start, goal, rate):
    """Seen only through the images: gradient descent finds the argument that made them."""
    ramp = torch.linspace(0, 3, 24)
    waves = torch.stack([ramp.sin()[:, None] * ramp.cos().abs(), ramp[:, None] * ramp / 9])
    batch = torch.cat([waves, waves[:1].flip(1)])[None].abs().clamp(0, 1)
    wanted = run(batch, name, goal, "bilinear")
    argument = torch.tensor(start, requires_grad=True)
    optimizer = torch.optim.Adam([argument], lr=rate)
    for _ in range(120):
        optimizer.zero_grad()
        (run(batch, name, argument, "bilinear") - wanted).square().mean().backward()
        optimizer.step()
    assert abs(argument.item() - goal) < 0.1 * abs(goal - start)


def test_the_gradient_of_float32_is_that_of_float64():
    for name in BANK:
        gradients = []
        for dtype in (torch.float32, torch.float64):
            batch = images().detach().to(dtype).requires_grad_()
            result = run(batch, name, ARGUMENTS.get(name), "bilinear")
            weights = torch.linspace(-1, 1, result.numel(), dtype=dtype).view_as(result)
            gradients += torch.autograd.grad(result, batch, weights)
        torch.testing.assert_close(gradients[0].double(), gradients[1], rtol=1e-3, atol=1e-3)
