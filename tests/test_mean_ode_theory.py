"""The definitions of the hidden-width theory against differentiation, their own limits, and bad input."""

import dataclasses
import math
from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from rescert.theory import mean_ode as net
from rescert.theory.mean_ode import Embedding, Scaling
from rescert.theory.symbols import TABLE, D, L, M_units, N_data, S_scale, alpha, eta, eta_u, eta_v, sigma_v, unfold

HIDDEN_WIDTH = ("L", "M_units", "D", "N_data", "P_budget", "alpha", "sigma_u", "sigma_v", "S_scale", "eta", "eta_u")


def rational(rng):
    return sympy.Rational(rng.randint(-12, 12) or 1, rng.randint(5, 9))


# A tiny network, in exact arithmetic


class Tiny:
    """A network of symbols with rational values; its activation is any sympy function."""

    def __init__(self, depth, units, embed_dim, samples, activation, seed=0):
        rng = Random(seed)
        self.activation = activation
        self.depth, self.units, self.embed_dim, self.samples = depth, units, embed_dim, samples
        self.U = self._weights("U")
        self.V = self._weights("V")
        self.values = {x: rational(rng) for x in (*self.U.values(), *self.V.values())}
        self.X = {(i, n): rational(rng) for i, n in product(range(embed_dim), range(samples))}
        self.Y = {place: rational(rng) for place in self.X}
        self.sizes = {L: depth, M_units: units, D: embed_dim, N_data: samples}
        self.letters = {alpha: rational(rng) ** 2, eta: rational(rng) ** 2, eta_u: sympy.S(3), eta_v: sympy.S(2)}
        self.forward()

    def _weights(self, name):
        places = product(range(self.depth), range(self.embed_dim), range(self.units))
        return {place: sympy.Symbol(f"{name}_{'_'.join(map(str, place))}") for place in places}

    def of(self, formula, p=sympy.S.Zero, **at):
        """A formula of the theory at one unit, data point and coordinate, with this network's activation."""
        formula = formula.subs({getattr(net, name): value for name, value in at.items()})
        z = sympy.Symbol("z")
        slope = self.activation(z).diff(z)
        formula = formula.subs(net.sigma(net.p).diff(net.p), slope.subs(z, p)).subs(
            net.sigma(net.p), self.activation(p)
        )
        return formula.subs({**self.sizes, **self.letters})

    def forward(self):
        """The states as expressions in the weights, from VELOCITY alone."""
        self.H, self.P = [dict(self.X)], []
        for layer in range(self.depth):
            h = self.H[-1]
            p = {
                (j, n): sum(self.U[layer, i, j] * h[i, n] for i in range(self.embed_dim)) / self.embed_dim
                for j, n in product(range(self.units), range(self.samples))
            }
            width = self.depth * self.units
            self.P.append(p)
            self.H.append(
                {
                    (i, n): h[i, n]
                    + sum(self.of(net.VELOCITY, p[j, n], v=self.V[layer, i, j]) / width for j in range(self.units))
                    for i, n in h
                }
            )

    def half_loss(self):
        square = sum((self.H[-1][place] - self.Y[place]) ** 2 for place in self.X)
        return square / (2 * self.samples * self.embed_dim)

    def at(self, expr):
        return sympy.sympify(expr).subs(self.values)

    def stated_updates(self):
        """Updates of U and V from the stated adjoint and update, in rational numbers."""
        scale = self.of(net.LOSS_GRADIENT)
        B = {place: (self.at(self.H[-1][place]) - self.Y[place]) * scale for place in self.X}
        moves = {}
        dims, data = range(self.embed_dim), range(self.samples)
        for layer in reversed(range(self.depth)):
            before = dict(B)
            for j, n in product(range(self.units), data):
                p = self.at(self.P[layer][j, n])
                g = sum(self.values[self.V[layer, i, j]] * before[i, n] for i in dims)
                for i in dims:
                    h, u = self.at(self.H[layer][i, n]), self.values[self.U[layer, i, j]]
                    B[i, n] -= self.of(net.ADJOINT_VELOCITY, p, u=u, g=g) / (self.depth * self.units)
                    for weights, formula in ((self.U, net.DELTA_U), (self.V, net.DELTA_V)):
                        place = weights[layer, i, j]
                        moves[place] = moves.get(place, 0) + self.of(formula, p, h=h, b=before[i, n], g=g)
        return moves


SHAPES = [(1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2), (2, 2, 2, 1), (2, 1, 2, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_update_is_a_gradient_step_on_half_the_loss(shape):
    network = Tiny(*shape, activation=lambda p: p - p**3 / 3)
    loss, stated = network.half_loss(), network.stated_updates()
    for weights, step in ((network.U, net.GRADIENT_STEP_U), (network.V, net.GRADIENT_STEP_V)):
        for symbol in weights.values():
            assert stated[symbol] == -network.of(step) * network.at(sympy.diff(loss, symbol))


def test_the_update_is_a_gradient_step_for_tanh_too():
    network = Tiny(2, 1, 1, 1, activation=sympy.tanh)
    loss, stated = network.half_loss(), network.stated_updates()
    for symbol in network.U.values():
        step = -network.of(net.GRADIENT_STEP_U) * network.at(sympy.diff(loss, symbol))
        assert abs((stated[symbol] - step).evalf(40)) < 1e-35


@pytest.mark.parametrize("wrong", [2, alpha, 1 / alpha], ids=["loss for half the loss", "1/alpha", "1/alpha^3"])
def test_another_step_size_is_another_dynamics(wrong):
    network = Tiny(2, 1, 1, 1, activation=lambda p: p - p**3 / 3)
    symbol = network.U[0, 0, 0]
    step = -network.of(net.GRADIENT_STEP_U * wrong) * network.at(sympy.diff(network.half_loss(), symbol))
    assert network.stated_updates()[symbol] != step


# The limits of the definitions


def displaced(formula):
    """The formula in eps = 1 / alpha around the initial values, its activation a polynomial of degree 4."""
    eps = sympy.Symbol("epsilon", positive=True)
    z, *c = sympy.symbols("z c0:5")

    def activation(x):
        return sum(a * x**n for n, a in enumerate(c))

    first = activation(z).diff(z).subs(z, net.p)
    formula = formula.subs(net.sigma(net.p).diff(net.p), first).subs(net.sigma(net.p), activation(net.p))
    moved = {getattr(net, x): getattr(net, f"{x}_0") + eps * getattr(net, f"d{x}") for x in ("u", "v", "p", "g")}
    return eps, formula.subs(moved).subs(alpha, 1 / eps), activation


def tangent(formula, activation):
    z = sympy.Symbol("z")
    for order in (2, 1):
        slope = activation(z).diff(z, order).subs(z, net.p_0)
        formula = formula.subs(net.sigma(net.p_0).diff(net.p_0, order), slope)
    return formula.subs(net.sigma(net.p_0), activation(net.p_0))


@pytest.mark.parametrize(
    ("full", "linear"),
    [
        (net.VELOCITY, net.TANGENT_VELOCITY),
        (net.ADJOINT_VELOCITY, net.TANGENT_ADJOINT_VELOCITY),
        (alpha * net.DELTA_U, net.TANGENT_DELTA_U),
        (alpha * net.DELTA_V, net.TANGENT_DELTA_V),
    ],
    ids=["velocity", "adjoint", "update of u", "update of v"],
)
def test_the_tangent_ode_is_the_part_that_stays_as_alpha_grows(full, linear):
    """The part of order alpha is linear in v_0: its mean over centred particles is zero."""
    eps, formula, activation = displaced(full)
    series = sympy.expand(formula)
    assert sympy.expand(series.coeff(eps, 0) - tangent(linear, activation)) == 0
    assert series.coeff(eps, -1).subs({net.v_0: 0, net.g_0: 0}) == 0
    assert series.coeff(eps, -2) == 0


def test_alpha_can_be_absorbed_in_V():
    """(alpha, sigma_v, eta_u, eta_v) and (1, alpha sigma_v, eta_u / alpha^2, eta_v) move u and alpha v alike."""
    absorbed = {alpha: 1, eta_u: eta_u / alpha**2, net.v: alpha * net.v, net.g: alpha * net.g}
    for formula in (net.VELOCITY, net.ADJOINT_VELOCITY, net.DELTA_U):
        assert sympy.simplify(formula.subs(absorbed, simultaneous=True) - formula) == 0
    assert sympy.simplify(net.DELTA_V.subs(absorbed, simultaneous=True) - alpha * net.DELTA_V) == 0
    at_one = unfold(S_scale).subs({alpha: 1, sigma_v: alpha * sigma_v}, simultaneous=True)
    assert sympy.simplify(at_one - unfold(S_scale)) == 0
    assert unfold(S_scale).subs(sigma_v, net.CRITICAL_SIGMA_V) == 1


# Numbers

sizes = st.integers(1, 2000)
scales = st.floats(1e-3, 1e3)


@settings(deadline=None, max_examples=30)
@given(depth=sizes, units=sizes, embed_dim=sizes, scale=scales, step=scales)
def test_the_constants_of_a_scaling(depth, units, embed_dim, scale, step):
    scaling = Scaling.critical(depth=depth, units=units, embed_dim=embed_dim, alpha=scale, eta=step)
    a, e, width = Fraction(scale), Fraction(step), depth * units
    expected = {
        "residual": a / width,
        "residual_backward": a / (width * embed_dim),
        "step_u": e / a,
        "step_v": e * embed_dim / a,
        "gradient_step_u": e * embed_dim * width / a**2,
        "gradient_step_v": e * embed_dim * width / a**2,
        "S": a,
    }
    for name, value in expected.items():
        assert getattr(scaling, name) == pytest.approx(float(value), rel=1e-14), name


@pytest.mark.parametrize(("S", "step"), [(0.0, 10.0), (0.5, 10.0), (1.0, 10.0), (2.0, 2.5), (100.0, 1e-3)])
def test_the_authors_phase_diagram(S, step):
    scaling = Scaling.initial_scale(depth=1000, units=10, embed_dim=10, S=S)
    assert math.isclose(scaling.S, S, rel_tol=1e-14)
    assert (scaling.eta_u, scaling.eta_v, scaling.alpha) == (pytest.approx(step, rel=1e-14), 10.0, 1.0)


def euler(scaling, X, Y, U, V, steps):
    """Train a finite network in numpy, and return the output."""
    for step in range(steps + 1):
        H = [X]
        for u, v in zip(U, V, strict=True):
            H.append(H[-1] + scaling.residual * v @ np.tanh(u.T @ H[-1] / scaling.embed_dim))
        if step == steps:
            return H[-1]
        B = (H[-1] - Y) / Y.size
        for layer in reversed(range(scaling.depth)):
            T = np.tanh(U[layer].T @ H[layer] / scaling.embed_dim)
            Q = (1 - T**2) * (V[layer].T @ B)
            after, B = B, B + scaling.residual_backward * U[layer] @ Q
            U[layer] = U[layer] - scaling.step_u * H[layer] @ Q.T
            V[layer] = V[layer] - scaling.step_v * after @ T.T
    raise AssertionError


@pytest.mark.parametrize("S", [1.0, 3.0, 20.0])
def test_a_large_initial_scale_is_a_large_alpha(S):
    """The two ways to write the lazy regime train to the same output, to rounding."""
    rng, shape = np.random.default_rng(0), {"depth": 5, "units": 4, "embed_dim": 3}
    X, Y = rng.standard_normal((2, 3, 6))
    U, V = rng.standard_normal((2, 5, 3, 4)) * math.sqrt(3)
    by_alpha = euler(Scaling.critical(**shape, alpha=S), X, Y, list(U), list(V), 5)
    by_scale = euler(Scaling.initial_scale(**shape, S=S), X, Y, list(U), list(S * V), 5)
    assert np.abs(by_alpha - X).max() > 0.01
    np.testing.assert_allclose(by_alpha, by_scale, rtol=0, atol=1e-12)


def test_the_embedded_network_is_the_critical_one_between_its_ends():
    """In the authors' B = D b: Q = V'B/D, U -= eta H (s'Q)', V -= eta B s(P)'."""
    critical = {eta_u: D, eta_v: D, alpha: 1}
    B = sympy.Symbol("B", real=True)
    slope = net.sigma(net.p).diff(net.p)
    assert net.DELTA_V.subs(critical).subs(net.b, B / D) == -eta * B * net.sigma(net.p)
    assert net.DELTA_U.subs(critical) == -eta * net.h * slope * net.g
    ends = Embedding(input_dim=4, output_dim=9)
    assert (ends.embed_std, ends.unembed_std) == (0.5, 3.0)


# Letters and errors


def test_the_letters_of_the_hidden_width_have_their_own_names():
    assert all(TABLE[name].symbol.name == name for name in HIDDEN_WIDTH)
    assert TABLE["M"].meaning != TABLE["M_units"].meaning
    assert TABLE["M_units"].latex == "M"


GOOD = Scaling.critical(depth=2, units=3, embed_dim=4)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"depth": 0}, ValueError, "Scaling: depth must be at least 1, got 0"),
        ({"units": -1}, ValueError, "Scaling: units must be at least 1, got -1"),
        ({"embed_dim": 2.0}, TypeError, r"Scaling: embed_dim must be an integer, got 2\.0"),
        ({"alpha": 0.0}, ValueError, r"Scaling: alpha must be positive and finite, got 0\.0"),
        ({"alpha": -1.0}, ValueError, r"got -1\.0"),
        ({"alpha": math.nan}, ValueError, "got nan"),
        ({"alpha": math.inf}, ValueError, "got inf"),
        ({"eta": -0.1}, ValueError, r"Scaling: eta must be at least 0 and finite, got -0\.1"),
        ({"sigma_v": math.nan}, ValueError, "Scaling: sigma_v must be at least 0 and finite, got nan"),
    ],
)
def test_a_scaling_refuses(changes, error, message):
    with pytest.raises(error, match=message):
        dataclasses.replace(GOOD, **changes)


def test_the_named_scalings_and_ends_refuse():
    with pytest.raises(ValueError, match=r"Scaling.critical: embed_dim must be at least 1, got -4"):
        Scaling.critical(depth=1, units=1, embed_dim=-4)
    with pytest.raises(ValueError, match=r"Scaling.initial_scale: S must be at least 0 and finite, got -1"):
        Scaling.initial_scale(depth=1, units=1, embed_dim=1, S=-1)
    with pytest.raises(ValueError, match="Embedding: output_dim must be at least 1, got 0"):
        Embedding(input_dim=1, output_dim=0)
