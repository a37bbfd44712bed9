"""Finite ResNets: against the numpy port and autograd, engine against engine, seeds, divergence, messages."""

import importlib.util
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rescert.models.perceptron_resnet import PerceptronResNet
from rescert.sim import ensembles
from rescert.sim.ensembles import (
    Descent,
    FiniteJob,
    Shape,
    data,
    init_parameters,
    train_ensemble,
    train_finite,
    train_parameters,
)
from rescert.sim.rng import generator, torch_generator
from resnet_oracle import NumpyResNet

ENGINES = ("numba", "torch")
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
sizes = st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(1, 8), st.integers(1, 8))


def problem(depth, units, embed_dim, samples, *, seed=0, steps=10, **options):
    shape = Shape(depth=depth, units=units, embed_dim=embed_dim)
    X, Y = data(embed_dim, samples, generator(seed, "data"))
    return shape, Descent(X=X, Y=Y, steps=steps, **options)


def weights(shape, *, seed=0, dtype="float64"):
    return init_parameters(shape, generator(seed, "init"), dtype=dtype)


def port(shape, descent, *, seed=0):
    """The numpy port's outputs and losses, always in float64."""
    net = NumpyResNet(
        *weights(shape, seed=seed), descent.X, descent.Y, alpha=descent.alpha, eta=descent.eta, eta_u=descent.eta_u
    )
    return net, *net.train(descent.steps)


def is_stable(size, seed, **options):
    """Whether a nudge of the weights stays small: at the edge of stability any rounding grows without bound."""
    shape, descent = problem(*size, seed=seed, record=range(11), **options)
    U, V = weights(shape, seed=seed)
    rates = {"alpha": descent.alpha, "eta": descent.eta, "eta_u": descent.eta_u}
    nets = [NumpyResNet(U * (1 + nudge), V * (1 - nudge), descent.X, descent.Y, **rates) for nudge in (0, 1e-7)]
    (outputs, _), (nudged, _) = (net.train(descent.steps) for net in nets)
    return np.abs(np.array(nudged) - np.array(outputs)).max() < 1e-5


def check_against_port(size, engine, dtype, seed=0, **options):
    shape, descent = problem(*size, seed=seed, record=range(11), **options)
    run = train_parameters(*weights(shape, seed=seed, dtype=dtype), descent, engine=engine)
    net, outputs, losses = port(shape, descent, seed=seed)
    scale = TOLERANCE[dtype] * max(1, np.abs(outputs).max())
    np.testing.assert_allclose(run.losses, losses, rtol=0, atol=scale * max(1, losses.max()))
    for k, output in enumerate(outputs):
        np.testing.assert_allclose(run.outputs[k], output, rtol=0, atol=scale)
    for name, after, before in zip("UV", (net.U, net.V), weights(shape, seed=seed), strict=True):
        change = np.sqrt(np.mean((after - before) ** 2))
        np.testing.assert_allclose(run.update_rms[name][10], change, rtol=0, atol=scale * max(1, change))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@settings(max_examples=40, deadline=None)
@given(size=sizes, alpha=st.sampled_from([0.5, 1.0, 4.0]), seed=st.integers(0, 100))
def test_small_shapes_equal_the_numpy_port(engine, dtype, size, alpha, seed):
    options = {"alpha": alpha, "eta": 0.5, "eta_u": 2.0}
    assume(is_stable(size, seed, **options))
    check_against_port(size, engine, dtype, seed, **options)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "size", [(1, 1, 1, 1), (3, 1300, 10, 10), (5, 512, 31, 10), (2, 513, 7, 11), (4, 24, 31, 18), (4, 25, 31, 18)]
)
def test_several_blocks_and_leftover_rows_equal_the_numpy_port(engine, dtype, size):
    check_against_port(size, engine, dtype)


@settings(max_examples=30, deadline=None)
@given(size=sizes, scheme=st.sampled_from(["euler", "ab2"]), seed=st.integers(0, 100))
def test_engines_agree(size, scheme, seed):
    shape, descent = problem(*size, seed=seed, steps=4, eta=0.5, scheme=scheme)
    first, second = (train_parameters(*weights(shape, seed=seed), descent, engine=engine) for engine in ENGINES)
    np.testing.assert_allclose(first.outputs[4], second.outputs[4], rtol=0, atol=1e-12)
    np.testing.assert_allclose(first.losses, second.losses, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_first_step_follows_the_gradient_of_autograd(engine):
    """Change of the weights = - eta eta_u L M / alpha^2 times the gradient of half the loss."""
    (L, M, D), alpha = (3, 5, 4), 2.0
    shape, descent = problem(L, M, D, 6, steps=1, alpha=alpha, eta=0.7, eta_u=3.0, eta_v=5.0)
    U, V = weights(shape)
    model = PerceptronResNet(L, M, D, alpha=alpha, generator=torch_generator(0), dtype=torch.float64)
    with torch.no_grad():
        for block, U_l, V_l in zip(model.blocks, U, V, strict=True):
            block.U.copy_(torch.from_numpy(U_l))
            block.V.copy_(torch.from_numpy(V_l))
    x, y = torch.from_numpy(descent.X.T), torch.from_numpy(descent.Y.T)
    ((model(x) - y).square().mean() / 2).backward()
    run = train_parameters(U, V, descent, engine=engine)
    for name, scale in (("U", 3.0), ("V", 5.0)):
        gradient = torch.stack([getattr(block, name).grad for block in model.blocks]).numpy()
        step = 0.7 * scale * L * M / alpha**2 * gradient
        np.testing.assert_allclose(run.update_rms[name][1], np.sqrt(np.mean(step**2)), rtol=1e-13)
        (U if name == "U" else V)[:] -= step
    moved = train_parameters(U, V, Descent(X=descent.X, Y=descent.Y, steps=0, alpha=alpha), engine=engine)
    np.testing.assert_allclose(run.outputs[1], moved.outputs[0], rtol=0, atol=1e-14)


@pytest.mark.parametrize(("scheme", "order"), [("euler", 1), ("ab2", 2)])
def test_order_in_depth_with_tied_particles(scheme, order):
    """The same units in every layer: no noise, so halving 1/L divides the difference to the next depth by 2^order."""
    shape, descent = problem(1, 16, 6, 4, steps=3, scheme=scheme)
    U, V = weights(shape)
    outputs = [
        train_parameters(np.repeat(U, L, axis=0), np.repeat(V, L, axis=0), descent).outputs[3]
        for L in (32, 64, 128, 256, 512)
    ]
    gaps = [np.abs(b - a).max() for a, b in pairwise(outputs)]
    slopes = np.log2(np.array(gaps[:-1]) / gaps[1:])
    # The next term of the expansion moves the slope by O(1/L).
    assert (np.abs(slopes - order) < [0.1, 0.05, 0.025]).all(), slopes


def test_kernel_tanh_keeps_its_stated_accuracy_and_nan():
    from numba import njit
    from rescert.sim.perceptron_kernel import _tanh

    @njit
    def each(x):
        return np.array([_tanh(value) for value in x])

    for dtype, bound in ((np.float32, 2e-7), (np.float64, 4e-16)):
        x = np.concatenate([np.linspace(-30, 30, 200_001), [0.0, np.inf, -np.inf]]).astype(dtype)
        assert np.abs(each(x) - np.tanh(x.astype(float))).max() < bound
        assert each(np.zeros(1, dtype))[0] == 0  # or the units that fill a block would move
        assert np.isnan(each(np.array([np.nan], dtype))[0])


def jobs(repeats=4, **options):
    X, Y = data(5, 3, generator(0, "data"))
    shapes = [Shape(depth=L, units=M, embed_dim=5) for L, M in ((1, 1), (3, 2), (2, 20))]
    descent = Descent(X=X, Y=Y, steps=6)
    return [
        FiniteJob(shape=shape, descent=descent, rng=generator(7, "init", shape.depth, shape.units, r), **options)
        for shape in shapes
        for r in range(repeats)
    ]


def test_result_depends_on_neither_threads_nor_order_nor_company():
    alone = [train_ensemble([job])[0] for job in jobs()]
    for threads in (1, 3):
        for order in (1, -1):
            together = train_ensemble(jobs()[::order], threads=threads)[::order]
            for one, other in zip(alone, together, strict=True):
                assert one.shape == other.shape
                np.testing.assert_array_equal(one.outputs[6], other.outputs[6])
    repeats = [run.outputs[6] for run in alone[:4]]
    assert all(not np.array_equal(a, b) for i, a in enumerate(repeats) for b in repeats[:i])


def test_torch_batch_keeps_the_order_of_the_jobs():
    for run, reference in zip(train_ensemble(jobs(), engine="torch"), train_ensemble(jobs()), strict=True):
        assert (run.engine, reference.engine) == ENGINES[::-1]
        np.testing.assert_allclose(run.outputs[6], reference.outputs[6], rtol=0, atol=1e-5)


def test_initial_weights_have_the_stated_law_and_do_not_depend_on_the_dtype():
    shape = Shape(depth=20, units=50, embed_dim=10)
    U, V = init_parameters(shape, generator(0), sigma_v=0.5)
    for W, variance in ((U, 10), (V, 0.25)):
        # Five standard errors of the mean and second moment of normal variables.
        assert abs(W.mean()) < 5 * (variance / W.size) ** 0.5
        assert abs(np.square(W).mean() / variance - 1) < 5 * (2 / W.size) ** 0.5
    single, _ = init_parameters(shape, generator(0), dtype="float32")
    np.testing.assert_array_equal(single, U.astype("float32"))


def test_given_weights_are_not_changed_and_zero_steps_are_a_forward_pass():
    shape, descent = problem(3, 20, 5, 4, steps=0)
    U, V = weights(shape)
    run = train_parameters(U, V, descent)
    np.testing.assert_allclose(run.outputs[0], port(shape, descent)[1][0], rtol=0, atol=1e-13)
    assert run.losses.shape == (1,)
    train_parameters(U, V, problem(3, 20, 5, 4)[1])
    np.testing.assert_array_equal(U, weights(shape)[0])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_divergence_is_marked_and_leaves_no_output(engine, dtype):
    shape, descent = problem(2, 3, 4, 5, steps=8, eta=1e200 if dtype == "float64" else 1e20, record=range(9))
    bad = train_parameters(*weights(shape, dtype=dtype), descent, engine=engine)
    assert bad.diverged
    assert set(bad.outputs) == set(bad.update_rms["U"]) == set(np.flatnonzero(np.isfinite(bad.losses)))
    assert np.isfinite(bad.losses[0])
    assert not np.isfinite(bad.losses[-1])
    assert not train_parameters(*weights(shape, dtype=dtype), problem(2, 3, 4, 5)[1], engine=engine).diverged


def test_without_numba_torch_takes_over(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    shape, descent = problem(1, 2, 2, 2, steps=1)
    assert train_parameters(*weights(shape), descent).engine == "torch"
    with pytest.raises(ValueError, match="'numba' is not installed; take 'torch'"):
        train_parameters(*weights(shape), descent, engine="numba")


def test_numba_is_imported_when_it_is_needed():
    code = "import sys, rescert.sim.ensembles; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_messages(monkeypatch):
    X, Y = data(3, 2, generator(0))
    rng = generator(1)
    shape = Shape(depth=1, units=1, embed_dim=3)
    for name in ("depth", "units", "embed_dim"):
        with pytest.raises(ValueError, match=f"Shape: {name} must be at least 1, got 0"):
            Shape(**{"depth": 1, "units": 1, "embed_dim": 1, name: 0})
    with pytest.raises(TypeError, match="integer"):
        Shape(depth=1.5, units=1, embed_dim=1)
    for alpha in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="alpha must be positive"):
            train_finite(shape, X, Y, steps=1, rng=rng, alpha=alpha)
    for x, y in ((X, Y[:, :1]), (X[0], Y[0]), (X[:, :0], Y[:, :0])):
        with pytest.raises(ValueError, match=r"X and Y must both be \(D, N\), not empty, got"):
            train_finite(shape, x, y, steps=1, rng=rng)
    with pytest.raises(ValueError, match="X and Y must be finite"):
        train_finite(shape, X * np.nan, Y, steps=1, rng=rng)
    with pytest.raises(ValueError, match=r"embed_dim=4 does not fit data of shape \(3, 2\)"):
        train_finite(Shape(depth=1, units=1, embed_dim=4), X, Y, steps=1, rng=rng)
    with pytest.raises(ValueError, match="steps must be at least 0, got -1"):
        train_finite(shape, X, Y, steps=-1, rng=rng)
    with pytest.raises(ValueError, match=r"record must lie within 0..steps=1, got 1..2"):
        train_finite(shape, X, Y, steps=1, rng=rng, record=[2])
    with pytest.raises(ValueError, match="scheme must be 'euler' or 'ab2', got 'rk4'"):
        train_finite(shape, X, Y, steps=1, rng=rng, scheme="rk4")
    with pytest.raises(ValueError, match="dtype must be 'float32' or 'float64', got 'float16'"):
        train_finite(shape, X, Y, steps=1, rng=rng, dtype="float16")
    with pytest.raises(ValueError, match="engine must be 'numba', 'torch' or None, got 'jax'"):
        train_finite(shape, X, Y, steps=1, rng=rng, engine="jax")
    U, V = init_parameters(shape, rng)
    for u, v in ((U, V[:, :1]), (U[0], V[0]), (U[:, :1], V[:, :1]), (U, V.astype("float32"))):
        with pytest.raises(ValueError, match=r"U and V must both be \(L, D, M\) of one dtype with D=3"):
            train_parameters(u, v, Descent(X=X, Y=Y, steps=1))
    job = FiniteJob(shape=shape, descent=Descent(X=X, Y=Y, steps=1), rng=rng)
    with pytest.raises(ValueError, match="two jobs share a generator"):
        train_ensemble([job, job])
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        train_ensemble([job], threads=0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="'cuda' is not there"):
        train_ensemble([job], device="cuda")


def test_cuda_has_no_compiled_kernel(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="'numba' has no kernel for 'cuda'"):
        train_ensemble(jobs()[:1], engine="numba", device="cuda")
    assert ensembles._choose_engine(None, "cuda") == "torch"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_cuda_equals_the_cpu(dtype):
    for place, reference in zip(
        train_ensemble(jobs(dtype=dtype), device="cuda"), train_ensemble(jobs(dtype=dtype)), strict=True
    ):
        np.testing.assert_allclose(place.outputs[6], reference.outputs[6], rtol=0, atol=TOLERANCE[dtype])
