import torch

from ddas_gpu.models.shake_shake import ShiftedShortcut, shake


def branches(images=5):
    first = torch.randn(images, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    second = torch.randn(images, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    return first, second


def test_forward_mixes_by_image_and_backward_mixes_anew():
    torch.manual_seed(0)
    first, second = branches()
    mixed = shake(first, second, training=True)
    # Solve mixed = α first + (1 − α) second for α: one value an image, the same for its pixels.
    alpha = ((mixed - second) / (first - second)).flatten(1).detach()
    torch.testing.assert_close(alpha, alpha[:, :1].expand_as(alpha))
    mixed.sum().backward()
    beta = first.grad.flatten(1)
    torch.testing.assert_close(beta, beta[:, :1].expand_as(beta))
    torch.testing.assert_close(second.grad, 1 - first.grad)
    for values in (alpha[:, 0], beta[:, 0]):
        assert ((values > 0) & (values < 1)).all()
        assert len(values.unique()) == len(values)
    assert (alpha[:, 0] - beta[:, 0]).abs().min() > 1e-3


def test_alpha_and_beta_are_uniform_and_independent():
    torch.manual_seed(0)
    first = torch.ones(4000, 1, 1, 1, requires_grad=True)
    alpha = shake(first, torch.zeros_like(first), training=True).flatten()
    alpha.sum().backward()
    beta = first.grad.flatten()
    for values in (alpha, beta):
        assert abs(values.mean() - 0.5) < 0.02 and abs(values.var() - 1 / 12) < 0.005
    assert torch.corrcoef(torch.stack([alpha.detach(), beta]))[0, 1].abs() < 0.05


def test_halves_outside_training():
    first, second = branches()
    mixed = shake(first, second, training=False)
    torch.testing.assert_close(mixed, (first + second) / 2)
    mixed.sum().backward()
    assert (first.grad == 0.5).all() and (second.grad == 0.5).all()


def test_the_shortcut_sees_two_grids_one_pixel_apart():
    shortcut = ShiftedShortcut(1, 2, stride=2).eval()
    for convolution in (shortcut.conv1, shortcut.conv2):
        torch.nn.init.ones_(convolution.weight)
    shortcut.norm.eps = 0.0
    image = torch.arange(16.0).view(1, 1, 4, 4)
    on_grid, off_grid = shortcut(image)[0]
    assert on_grid.tolist() == [[0, 2], [8, 10]]
    assert off_grid.tolist() == [[5, 7], [13, 15]]
