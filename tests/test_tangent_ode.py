"""The Neural Tangent ODE: the linearisation by definition, and the limit of the mean ODE as alpha grows."""

from dataclasses import replace

import numpy as np
import pytest
import sympy
import torch
from limit_oracle import gaussian_data
from rescert.sim import mean_ode, tangent_ode
from rescert.sim.mean_ode import rms
from rescert.sim.particles import COPIES, Particles, draw_particles
from rescert.sim.tangent_ode import TangentField
from rescert.theory import mean_ode as theory
from rescert.theory.mean_ode import Scaling
from scipy.integrate import solve_ivp


def critical(embed_dim, **changes):
    return replace(Scaling.critical(depth=1, units=1, embed_dim=embed_dim), **changes)


def task(embed_dim, samples, points, init="symmetric"):
    X, Y = gaussian_data(embed_dim, samples)
    rng = np.random.default_rng(0)
    tied = draw_particles(rng, embed_dim=embed_dim, particles=points * COPIES[init], init=init)
    return {"particles": tied, "X": X, "Y": Y}


def distances(alphas, init, *, embed_dim, points, steps, nodes, solver="solve_ab2"):
    """RMS distance of the mean ODE from the tangent ODE on the same particles, for each alpha."""
    arguments = task(embed_dim, embed_dim, points, init) | {"steps": steps, "nodes": nodes}
    lazy = getattr(tangent_ode, solver)(**arguments, scaling=critical(embed_dim)).outputs[steps]
    return np.array(
        [
            rms(getattr(mean_ode, solver)(**arguments, scaling=critical(embed_dim, alpha=a)).outputs[steps] - lazy)
            for a in alphas
        ]
    )


def test_field_is_that_of_the_theory():
    """One particle, one data point, one coordinate: every formula of theory/mean_ode.py, evaluated by sympy."""
    u_0, v_0, du, dv, h, b = 0.7, -1.3, 0.2, -0.4, 0.9, 0.5
    scaling = critical(1, alpha=2.5, eta=0.3, eta_u=1.7, eta_v=0.6)
    field = TangentField(Particles(U=np.array([[u_0]]), V=np.array([[v_0]])), 1, scaling)
    field.dU += du
    field.dV += dv
    values = {theory.u_0: u_0, theory.v_0: v_0, theory.du: du, theory.dv: dv, theory.h: h, theory.b: b, theory.D: 1}
    values |= {theory.p_0: u_0 * h, theory.g_0: v_0 * b, theory.dp: du * h, theory.dg: dv * b}
    values |= {getattr(theory, name): getattr(scaling, name) for name in ("alpha", "eta", "eta_u", "eta_v")}

    def value(expression):
        return float(expression.replace(theory.sigma, sympy.tanh).doit().subs(values))

    state, gradient = (torch.full((1, 1), x, dtype=torch.float64) for x in (h, b))
    adjoint = field.adjoint_velocity(0, state, gradient)
    assert float(field.velocity(0, state)) == pytest.approx(value(theory.TANGENT_VELOCITY), rel=1e-13)
    assert float(adjoint) == pytest.approx(value(theory.TANGENT_ADJOINT_VELOCITY), rel=1e-13)
    field.descend(0, state, gradient)
    assert float(field.dU) - du == pytest.approx(value(theory.TANGENT_DELTA_U), rel=1e-12)
    assert float(field.dV) - dv == pytest.approx(value(theory.TANGENT_DELTA_V), rel=1e-12)


def test_adjoint_is_the_derivative_of_the_velocity():
    """b' = -(dF/dh)' b, by autograd of <b, F(h)> after the particles moved."""
    X, Y = (torch.from_numpy(array) for array in gaussian_data(3, 4))
    tied = task(3, 4, 8, "skewed")["particles"]
    field = TangentField(tied, 1, critical(3))
    field.descend(0, X, X - Y)
    h = X.clone().requires_grad_()
    (expected,) = torch.autograd.grad((field.velocity(0, h) * Y).sum(), h)
    torch.testing.assert_close(field.adjoint_velocity(0, X, Y), -expected, rtol=1e-12, atol=1e-14)


def test_first_step_on_given_particles():
    """At D = 1 by a general ODE solver: before the step, h = x and b = (x - y) / N for every s."""
    arguments = task(1, 3, 8)
    x, b = arguments["X"][0], (arguments["X"] - arguments["Y"])[0] / 3
    u, v = arguments["particles"].U[:, 0], arguments["particles"].V[:, 0]
    scaling = critical(1, alpha=3.0, eta=2.0, eta_u=0.7, eta_v=1.3)
    T = np.tanh(np.outer(u, x))
    du, dv = -2.0 * 0.7 * ((1 - T**2) * np.outer(v, b)) @ x, -2.0 * 1.3 * T @ b

    def velocity(_, h):
        T = np.tanh(np.outer(u, h))
        return (dv @ T + v @ ((1 - T**2) * np.outer(du, h))) / len(u)

    expected = solve_ivp(velocity, (0, 1), x, rtol=1e-11, atol=1e-13).y[:, -1]
    found = tangent_ode.solve_torchdiffeq(**arguments, scaling=scaling, steps=1, nodes=3 * 64 + 1).outputs[1]
    np.testing.assert_allclose(found[0], expected, atol=1e-8)


def test_tangent_does_not_depend_on_alpha_and_starts_at_the_identity():
    arguments = task(3, 3, 8) | {"steps": 3, "nodes": 6, "record": (0, 3)}
    one, many = (tangent_ode.solve_ab2(**arguments, scaling=critical(3, alpha=alpha)).outputs for alpha in (1.0, 64.0))
    np.testing.assert_allclose(one[0], arguments["X"], atol=1e-15)
    np.testing.assert_allclose(one[3], many[3], rtol=1e-12)


def test_schemes_agree_and_ab2_is_of_second_order():
    arguments = task(4, 4, 16) | {"steps": 4, "scaling": critical(4)}
    exact = tangent_ode.solve_torchdiffeq(**arguments, nodes=3 * 32 + 1).outputs[4]
    errors = [rms(tangent_ode.solve_ab2(**arguments, nodes=nodes).outputs[4] - exact) for nodes in (64, 128)]
    assert errors[1] < 2e-5
    assert np.log2(errors[1] / errors[0]) == pytest.approx(-2, abs=0.1)


def test_small_steps_lower_the_loss():
    losses = tangent_ode.solve_ab2(**task(4, 3, 16), scaling=critical(4, eta=0.05), steps=5, nodes=16).losses
    assert (np.diff(losses) < 0).all()


@pytest.mark.parametrize(("init", "slope"), [("symmetric", -2.0), ("shifted", -2.0), ("skewed", -1.0)])
def test_lazy_rate(init, slope):
    """The mean ODE tends to the tangent like 1 / alpha, and like 1 / alpha^2 where reflecting v is a symmetry.

    The theorem's 1 / alpha is an upper bound. Reflecting v multiplies alpha by -1, so for a law it leaves alone the
    trajectory is even in alpha. A mean of v is not enough to break that: with an odd activation (u, v) and (-u, -v) are
    one unit, so a law that is symmetric in u is symmetric in v.
    """
    alphas = np.array([64.0, 128.0, 256.0])
    errors = distances(alphas, init, embed_dim=4, points=16, steps=3, nodes=12)
    assert np.log2(errors[1:] / errors[:-1]) == pytest.approx(slope, abs=0.02)


def test_lazy_rate_is_not_of_the_scheme():
    errors = distances(
        [64.0, 128.0], "symmetric", embed_dim=4, points=16, steps=3, nodes=13, solver="solve_torchdiffeq"
    )
    assert np.log2(errors[1] / errors[0]) == pytest.approx(-2.0, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("init", "slope", "tolerance"), [("symmetric", -2.0, 0.002), ("shifted", -2.0, 0.002), ("skewed", -1.0, 0.02)]
)
def test_lazy_rate_at_full_size(init, slope, tolerance):
    """alpha = 1..256 at D = N = 10 and k = 10: local slopes settle on the order from alpha = 64 on.

    The next term is 1 / alpha^2 smaller for an even trajectory, 1 / alpha smaller otherwise: hence two tolerances.
    """
    errors = distances(2.0 ** np.arange(9), init, embed_dim=10, points=512, steps=10, nodes=32)
    slopes = np.log2(errors[1:] / errors[:-1])
    assert slopes[6:] == pytest.approx(slope, abs=tolerance)
    assert (errors[1:] < errors[:-1]).all()


def test_diverging_run_is_marked():
    outcome = tangent_ode.solve_ab2(**task(2, 2, 4), scaling=critical(2, eta=1e120), steps=9, nodes=3)
    assert outcome.diverged_at is not None
    assert np.isnan(outcome.outputs[9]).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Y": np.zeros((2, 4))}, r"X and Y must be of one shape"),
        ({"nodes": 0}, r"nodes must be at least 1, got 0"),
        ({"record": (5,)}, r"record must name numbers of steps within 0..steps=1, got \[5\]"),
        ({"scaling": critical(3)}, r"must have the D=3 rows of the scaling, got 2"),
    ],
)
def test_bad_input(changes, message):
    arguments = task(2, 3, 4) | {"scaling": critical(2), "steps": 1, "nodes": 4} | changes
    with pytest.raises(ValueError, match=message):
        tangent_ode.solve_ab2(**arguments)
