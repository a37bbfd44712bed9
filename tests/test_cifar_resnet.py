"""ResNet-(6n+2): shape, parameter count, shortcut, initialisation, independence from the global generator."""

import pytest
import torch
from rescert.models.cifar_resnet import CifarResNet, ResidualBlock, insertion_points
from rescert.sim.rng import torch_generator
from torch import nn


def build(depth=8, width=1.0, classes=10, channels=3, norm="group", seed=0):
    return CifarResNet(depth, width, classes, channels, norm, generator=torch_generator(seed, "init"))


@pytest.mark.parametrize(("depth", "published"), [(20, 0.27e6), (32, 0.46e6), (44, 0.66e6), (56, 0.85e6), (110, 1.7e6)])
def test_parameter_counts_of_the_paper(depth, published):
    """He et al., Table 6, give two digits; the paper's network has option A shortcuts and BatchNorm."""
    count = sum(p.numel() for p in build(depth, norm="batch").parameters())
    half_last_digit = 0.05e6 if depth == 110 else 0.005e6
    assert abs(count - published) <= half_last_digit


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("width", [0.0625, 0.25, 0.3, 1, 2])
@pytest.mark.parametrize("side", [4, 5, 8, 14])
def test_every_size_and_width_runs_forward_and_backward(norm, width, side):
    model = build(8, width, classes=7, channels=2, norm=norm)
    logits = model(torch.randn(3, 2, side, side, generator=torch_generator(1)))
    assert logits.shape == (3, 7)
    logits.logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_layers_counted_by_depth_and_blocks_named():
    model = build(20)
    assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in model.modules()) == 20
    assert insertion_points(model) == [f"layer{stage}.{block}" for stage in (1, 2, 3) for block in range(3)]


@pytest.mark.parametrize("width", [0.25, 0.5, 1, 2])
def test_width_multiplies_channels(width):
    model = build(8, width)
    assert [model.get_submodule(f"layer{s}.0").conv2.out_channels for s in (1, 2, 3)] == [
        round(c * width) for c in (16, 32, 64)
    ]


def test_shortcut_is_option_a():
    """With a dead branch the block subsamples, pads new channels with zeros and applies the ReLU."""
    block = ResidualBlock(3, 5, stride=2, norm="group")
    nn.init.zeros_(block.norm2.weight)
    z = torch.randn(2, 3, 7, 7, generator=torch_generator(0))
    out = block(z)
    assert torch.equal(out[:, :3], z[:, :, ::2, ::2].relu())
    assert torch.equal(out[:, 3:], torch.zeros(2, 2, 4, 4))


def test_initial_weights_come_from_the_generator_alone():
    before = torch.get_rng_state()
    first, same, other = build(seed=3), build(seed=3), build(seed=4)
    assert torch.equal(torch.get_rng_state(), before)
    for key, value in first.state_dict().items():
        assert torch.equal(value, same.state_dict()[key]), key
    assert not torch.equal(first.conv1.weight, other.conv1.weight)


def test_initialisation_law():
    model = build(20, 2, norm="batch")
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.in_channels > 3:
            w, fan_in = module.weight, module.in_channels * 9
            n = w.numel()
            # Five standard errors of a Gaussian mean and second moment.
            assert abs(w.mean()) < 5 * (2 / fan_in / n) ** 0.5
            assert abs(w.square().mean() * fan_in / 2 - 1) < 5 * (2 / n) ** 0.5
        if isinstance(module, nn.BatchNorm2d):
            assert torch.equal(module.running_mean, torch.zeros_like(module.running_mean))
            assert torch.equal(module.running_var, torch.ones_like(module.running_var))
            assert module.num_batches_tracked == 0
    assert model.fc.weight.abs().max() <= 128**-0.5


def test_samples_do_not_interact_with_group_norm_in_training():
    model = build().double().train()
    x = torch.randn(5, 3, 8, 8, generator=torch_generator(2), dtype=torch.float64)
    alone = torch.cat([model(x[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(model(x), alone, rtol=1e-12, atol=1e-12)


def test_messages():
    with pytest.raises(ValueError, match=r"depth must be 6n \+ 2 with n >= 1 \(8, 14, 20, ...\), got 18"):
        build(18)
    with pytest.raises(ValueError, match="got 2"):
        build(2)
    for width in (0.02, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="width must leave a channel of 16"):
            build(8, width)
    with pytest.raises(ValueError, match="norm must be 'group' or 'batch', got 'layer'"):
        build(norm="layer")
    with pytest.raises(ValueError, match="must be positive, got 0 and 3"):
        build(classes=0)
    for shape in ((2, 1, 8, 8), (2, 3, 3, 8), (3, 8, 8)):
        with pytest.raises(ValueError, match=r"images must be \(B, 3, H, W\) with H, W >= 4"):
            build()(torch.zeros(shape))
