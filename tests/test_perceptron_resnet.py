"""The ResNet as a torch module: equal to the fast engine, critical scale, other activations and blocks."""

from functools import partial

import numpy as np
import pytest
import torch
from rescert.models.perceptron_resnet import PerceptronBlock, PerceptronResNet
from rescert.sim.ensembles import Descent, Shape, data, init_parameters, train_parameters
from rescert.sim.rng import generator, torch_generator
from torch import nn


def build(depth=3, units=4, embed_dim=5, *, seed=0, **options):
    return PerceptronResNet(depth, units, embed_dim, generator=torch_generator(seed), dtype=torch.float64, **options)


def descend(model, X, Y, steps, **rates):
    """Autograd descent on half the mean squared error; the losses and the last output."""
    x, y = (torch.from_numpy(A.T.copy()) for A in (X, Y))
    optimiser = torch.optim.SGD(model.step_groups(**rates))
    losses = []
    for _ in range(steps):
        loss = (model(x) - y).square().mean()
        losses.append(loss.item())
        optimiser.zero_grad()
        (loss / 2).backward()
        optimiser.step()
    output = model(x).detach()
    return [*losses, (output - y).square().mean().item()], output.T.numpy()


@pytest.mark.parametrize(
    ("depth", "units", "embed_dim", "samples", "alpha", "scales"),
    [(4, 30, 10, 10, 1.0, {}), (3, 7, 6, 4, 2.5, {"eta": 0.3, "eta_u": 2.0, "eta_v": 7.0}), (1, 1, 1, 1, 0.5, {})],
)
def test_autograd_descent_equals_the_fast_engine(depth, units, embed_dim, samples, alpha, scales):
    X, Y = data(embed_dim, samples, generator(0, "data"))
    shape = Shape(depth=depth, units=units, embed_dim=embed_dim)
    U, V = init_parameters(shape, generator(0, "init"))
    model = build(depth, units, embed_dim, alpha=alpha)
    with torch.no_grad():
        for block, U_l, V_l in zip(model.blocks, U, V, strict=True):
            block.U.copy_(torch.from_numpy(U_l))
            block.V.copy_(torch.from_numpy(V_l))
    losses, output = descend(model, X, Y, 5, **scales)
    run = train_parameters(U, V, Descent(X=X, Y=Y, steps=5, alpha=alpha, **scales))
    np.testing.assert_allclose(run.losses, losses, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.outputs[5], output, rtol=0, atol=1e-12)
    for name, before in (("U", U), ("V", V)):
        after = np.stack([getattr(block, name).detach().numpy() for block in model.blocks])
        np.testing.assert_allclose(run.update_rms[name][5], np.sqrt(np.mean((after - before) ** 2)), rtol=1e-12)


def test_loss_instead_of_half_of_it_is_another_dynamics():
    """Negative control of the step size: twice the step must not pass the comparison above."""
    X, Y = data(5, 3, generator(0, "data"))
    once, twice = (descend(build(), X, Y, 5, eta=eta)[1] for eta in (1.0, 2.0))
    assert np.abs(once - twice).max() > 1e-3


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_block_is_the_sum_over_units(activation):
    block = PerceptronBlock(3, 4, activation=activation, generator=torch_generator(1), dtype=torch.float64)
    h = torch.randn(4, generator=torch_generator(2), dtype=torch.float64)
    sigma = {"tanh": torch.tanh, "relu": torch.relu, "gelu": nn.GELU()}[activation]
    total = sum(block.V[:, j] * sigma(block.U[:, j] @ h / 4) for j in range(3))
    torch.testing.assert_close(block(h), total, rtol=1e-13, atol=1e-13)
    assert torch.equal(block(h.expand(2, 3, 4))[1, 2], block(h.expand(2, 3, 4))[0, 0])


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_every_activation_learns_at_its_step_sizes(activation):
    X, Y = data(6, 2, generator(3, "data"))
    losses, _ = descend(build(4, 64, 6, activation=activation), X, Y, 30, eta=0.3)
    assert losses[-1] < 0.8 * losses[0]


class Gated(nn.Module):
    """Sum over units of V tanh(U h / D) sigmoid(W h / D): another block of the general theory."""

    def __init__(self, units, dim, rng):
        super().__init__()
        draws = dim**0.5 * rng.standard_normal((3, dim, units))
        self.U, self.V, self.W = (nn.Parameter(torch.from_numpy(draw)) for draw in draws)

    def forward(self, h):
        gate = torch.sigmoid(h @ self.W / len(self.W))
        return (torch.tanh(h @ self.U / len(self.U)) * gate) @ self.V.mT


def test_general_block_trains_every_parameter_and_converges_with_depth_and_width():
    """Outputs of two independent networks approach each other: residual scale 1/(LM) has a limit for any block."""
    X, Y = data(4, 3, generator(4, "data"))

    def gap(size):
        outputs = []
        for seed in range(2):
            rng = generator(seed, "gated", size)
            model = build(size, size, 4, block=partial(lambda rng, _: Gated(size, 4, rng), rng))
            before = [p.detach().clone() for p in model.parameters()]
            outputs.append(descend(model, X, Y, 5)[1])
            assert not any(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
        return np.sqrt(np.mean((outputs[0] - outputs[1]) ** 2))

    assert gap(64) < gap(4) / 4  # 1/sqrt(LM) gives 1/16, and 12 entries scatter by a factor below 4


def test_weights_come_from_the_generator_alone_and_have_the_stated_deviation():
    before = torch.get_rng_state()
    first, same, other = build(seed=1), build(seed=1), build(seed=2)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), same.parameters(), strict=True))
    assert not torch.equal(first.blocks[0].U, other.blocks[0].U)
    weights = torch.cat([p.flatten() for p in build(50, 40, 5).parameters()])
    # Five standard errors of the second moment of a normal variable.
    assert abs(weights.square().mean() / 5 - 1) < 5 * (2 / len(weights)) ** 0.5


def test_messages():
    for sizes in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(ValueError, match="must be at least 1, got"):
            build(*sizes)
    for alpha in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="alpha must be positive"):
            build(alpha=alpha)
    with pytest.raises(ValueError, match="activation must be one of tanh, relu, gelu, got 'sin'"):
        build(activation="sin")
    with pytest.raises(ValueError, match=r"x must end in embed_dim=5, got \(2, 4\)"):
        build()(torch.zeros(2, 4, dtype=torch.float64))
