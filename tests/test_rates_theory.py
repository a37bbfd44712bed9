"""The rate claims: proofs that hold and fail, the phase diagram, and the best shape against every other."""

import dataclasses
import json
import math
from itertools import product

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from rescert.theory import phase_diagram, rates, registry
from rescert.theory.claims import Kind, describe
from rescert.theory.phase_diagram import ORDER_ONE
from rescert.theory.rates import Phase, Shape, best_shape, regime
from rescert.theory.shapes import BEST_EMBED_DIM, bound
from rescert.theory.symbols import D, L, M_units, P_budget, alpha, c_bias, c_embed, c_lazy, c_noise
from sympy import Rational, sqrt

M = M_units
WITHOUT_PROOF = {"rates.all_shapes", "rates.chaos"}

# Claims and proofs


@pytest.mark.parametrize("claim", rates.CLAIMS, ids=lambda claim: claim.id)
def test_every_claim_can_be_told(claim):
    told = json.loads(json.dumps(describe(claim), allow_nan=False))
    assert registry.find(claim.id) is claim
    assert told["source"].startswith(("[hidden-width], ", "[all-shapes], "))
    assert told["formula"]
    assert told["assumptions"]
    if claim.id in WITHOUT_PROOF:
        assert told["proof"] is None
    else:
        assert told["proof"]["holds"], [step for step in told["proof"]["steps"] if step["leftover"]]


def test_a_rate_is_an_exponent_or_a_law_with_constants():
    for claim in rates.CLAIMS:
        constants = {str(x) for x in claim.expression.free_symbols} & {"c_bias", "c_noise", "c_lazy", "c_embed"}
        if claim.kind is Kind.RATE:
            assert claim.expression.is_number != bool(constants), claim.id
            assert claim.quantity.id.endswith("_exponent") == claim.expression.is_number


half = Rational(1, 2)
PLANTED = {
    "rates.depth_width": [
        c_bias / L**2 + c_noise / sqrt(L * M),
        c_bias / sqrt(L) + c_noise / sqrt(L * M),
        c_bias / L + c_noise / sqrt(M),
        c_bias / L + c_noise / (L * M),
        c_bias / L + c_noise / (L * sqrt(M)),
        c_noise / sqrt(L * M),
    ],
    "rates.embed_dim": [
        c_bias / L + c_noise * D / sqrt(L * M),
        c_bias / L + c_noise / sqrt(L * M),
        c_bias * D / L + c_noise * sqrt(D / (L * M)),
        c_bias / L**2 + c_noise * sqrt(D / (L * M)),
    ],
    "rates.lazy": [
        c_lazy / alpha**2 + c_bias / L + c_noise * alpha / sqrt(L * M),
        c_lazy / alpha + c_bias / L + c_noise / sqrt(L * M),
        c_lazy / alpha + c_bias * alpha / L + c_noise * alpha / sqrt(L * M),
    ],
    "rates.critical_scale": [1 / (L * M), D / (L * M), sqrt(D) / (L * sqrt(M)), sqrt(D) / L, 1 / sqrt(L * M)],
    "rates.bias_exponent": [Rational(-2), -half, Rational(-3, 2)],
    "rates.variance_depth": [Rational(-1), Rational(-1, 4)],
    "rates.variance_width": [Rational(-1), Rational(-1, 4)],
    "rates.dimension": [Rational(1), Rational(1, 4), Rational(0)],
    "rates.lazy_slope": [Rational(-2), -half],
    "rates.lazy_slope_symmetric": [Rational(-1), Rational(-3), Rational(-4)],
    "rates.best_shape": [Rational(-1, 4), Rational(-1, 5), Rational(-1, 3), Rational(-1, 8)],
}


@pytest.mark.parametrize(
    ("name", "wrong"), [(name, wrong) for name, many in PLANTED.items() for wrong in many], ids=str
)
def test_a_planted_rate_has_no_proof(name, wrong):
    proof = dataclasses.replace(registry.find(name), expression=wrong).prove()
    assert not proof.holds
    assert all(step.leftover for step in proof.failures)


def test_every_proof_has_a_planted_mistake():
    assert set(PLANTED) | WITHOUT_PROOF == {claim.id for claim in rates.CLAIMS}


def test_the_recursion_behind_1_over_L_bounds_a_real_euler_error():
    """h' = sin h + 2: C = sup |F'| = 1, kappa = sup |F' F| / 2 <= 3/2; the errors halve with L."""
    errors = []
    for depth in (64, 128, 256, 4096):
        h = 0.3
        for _ in range(depth):
            h += (math.sin(h) + 2) / depth
        errors.append(h)
    *coarse, fine = errors
    off = [abs(h - fine) for h in coarse]
    for depth, error in zip((64, 128, 256), off, strict=True):
        assert error <= 1.5 * (math.e - 1) / depth
    assert off[0] / off[1] == pytest.approx(2, rel=0.1)


@settings(deadline=None, max_examples=25)
@given(
    depth=st.integers(1, 300),
    units=st.integers(1, 300),
    dim=st.integers(1, 300),
    c=st.tuples(*[st.floats(0.05, 5)] * 3),
)
def test_no_shape_beats_the_lower_bound_of_the_proof(depth, units, dim, c):
    least = 3 * c[1] ** (1 / 3) * (c[2] / 2) ** (2 / 3) * (depth * units * dim) ** (-1 / 6)
    assert bound(Shape(depth, units, dim), c) > least * (1 - 1e-12)


def test_the_variance_of_a_mean_gives_the_correlation():
    """rates.chaos, by a Gaussian vector with equal correlations: n corr tends to y / x - 1."""
    for n in (3, 10, 1000):
        x, y = 2.0, 3.0
        corr = (y - x) / ((n - 1) * x)
        covariance = x * ((1 - corr) * np.eye(n) + corr)
        assert covariance.mean() == pytest.approx(y / n, rel=1e-12)


# The best shape


def shapes_within(budget):
    for depth in range(1, budget + 1):
        for units in range(1, budget // depth + 1):
            yield from (Shape(depth, units, dim) for dim in range(1, budget // (depth * units) + 1))


@pytest.mark.parametrize("budget", [1, 2, 3, 7, 30, 97, 256, 1000])
@pytest.mark.parametrize("constants", [(1.0, 1.0, 1.0), (0.24, 0.8, 2.5), (5.0, 0.3, 0.3)])
def test_the_best_shape_is_the_best_of_all(budget, constants):
    found = best_shape(budget, constants=constants)
    assert math.prod(found) <= budget
    least = min(bound(shape, constants) for shape in shapes_within(budget))
    assert bound(found, constants) == pytest.approx(least, rel=1e-13)


@pytest.mark.parametrize("budget", [10**3, 10**6, 10**9, 10**12])
@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_the_best_shape_beats_its_neighbours(budget, ratio):
    found = best_shape(budget, units_per_dim=ratio)
    assert math.prod(found) <= budget
    assert found.units >= ratio * found.embed_dim
    for l_factor, m_factor in product((0.5, 0.8, 1, 1.25, 2), repeat=2):
        depth, units = max(1, int(found.depth * l_factor)), max(1, math.ceil(found.units * m_factor))
        other = Shape(depth, units, budget // (depth * units))
        if other != found and other.embed_dim >= 1 and units >= ratio * other.embed_dim:
            assert bound(other) > bound(found)


def test_the_exponent_and_the_constant_of_the_best_shape():
    """The bound times P^(1/6) falls to 3 / 4^(1/3), and D over (P/4)^(1/3) tends to 1, with M = 1 and with M = D."""
    constant = 3 / 4 ** (1 / 3)
    # The first term left out is P^(-1/3) units_per_dim against P^(-1/6): a part of order P^(-1/6).
    for ratio in (0.0, 1.0):
        for exponent in (9, 12, 15):
            shape = best_shape(10**exponent, units_per_dim=ratio)
            excess = bound(shape) * 10 ** (exponent / 6) / constant - 1
            assert 0 < excess < 10 ** (-exponent / 6)
            assert shape.embed_dim / float(balance(10**exponent)) == pytest.approx(1, abs=3 * 10 ** (-exponent / 6))


def balance(budget):
    return BEST_EMBED_DIM.subs({P_budget: budget, c_embed: 1, c_noise: 1})


def test_the_best_shape_leaves_units_out_unless_asked():
    free, tied = best_shape(10**9), best_shape(10**9, units_per_dim=1)
    assert free.units == 1
    assert tied.units >= tied.embed_dim
    assert free.embed_dim == pytest.approx(tied.embed_dim, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"budget": 0}, ValueError, "best_shape: budget must be at least 1, got 0"),
        ({"budget": 1e6}, TypeError, "best_shape: budget must be an integer, got 1000000"),
        ({"budget": 9, "units_per_dim": -1}, ValueError, "units_per_dim must be at least 0 and finite, got -1"),
        (
            {"budget": 9, "constants": (1, 0, 1)},
            ValueError,
            r"constants must be three positive numbers, got \(1, 0, 1\)",
        ),
        ({"budget": 9, "constants": (1, 1)}, ValueError, "three positive numbers"),
        ({"budget": 9, "units_per_dim": 10}, ValueError, "a budget of 9 holds no shape with M >= 10 D"),
    ],
)
def test_best_shape_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        best_shape(**arguments)


# The phase diagram

AUTHOR = {"depth": 1000, "units": 10}


def at(S, dim=10, **changes):
    return regime(**AUTHOR | {"embed_dim": dim, "sigma_v": S * math.sqrt(dim)} | changes)


@pytest.mark.parametrize(
    ("S", "phase"),
    [
        (0.0, Phase.SMALL_RESIDUAL),
        (0.01, Phase.SMALL_RESIDUAL),
        (0.999 / ORDER_ONE, Phase.SMALL_RESIDUAL),
        (1.001 / ORDER_ONE, Phase.MAXIMAL),
        (1.0, Phase.MAXIMAL),
        (0.999 * ORDER_ONE, Phase.MAXIMAL),
        (1.001 * ORDER_ONE, Phase.LAZY),
        (31.6, Phase.LAZY),
        (31.7, Phase.UNSTABLE),
        (100.0, Phase.UNSTABLE),
    ],
)
def test_the_phases_along_the_authors_line(S, phase):
    """L = 1000, M = 10, D = 10: breakdown at sqrt(1000) = 31.6."""
    found = at(S)
    assert found.phase is phase
    assert math.isclose(found.S, S, rel_tol=1e-13)
    assert found.breakdown == pytest.approx(math.sqrt(1000), rel=1e-13)


@pytest.mark.parametrize("dim", [10, 31, 100])
@pytest.mark.parametrize("S", [0.01, 0.3, 1.0, 5.0, 80.0])
def test_the_magnitudes_are_the_drawn_formulas(S, dim):
    found = at(S, dim)
    assert found.output_std == pytest.approx(((0.05 + 0.3 * S) * math.sqrt(dim) + 0.4) / 100, rel=1e-13)
    assert found.rms_change_of_U == pytest.approx(min(3, 3 / S), rel=1e-13)


@settings(deadline=None, max_examples=30)
@given(S=st.floats(1e-3, 1e3), scale=st.floats(1e-2, 1e2))
def test_alpha_and_sigma_v_act_through_their_product(S, scale):
    one = at(S)
    other = at(S / scale, alpha=scale)
    assert math.isclose(other.S, one.S, rel_tol=1e-12)
    assert other.output_std == pytest.approx(one.output_std, rel=1e-12)


def test_more_units_or_layers_cure_an_unstable_network():
    assert regime(1, 1, 100, sigma_v=10.0).phase is Phase.UNSTABLE
    assert regime(100, 1, 100, sigma_v=9.9).phase is Phase.MAXIMAL
    assert regime(10, 100, 100, sigma_v=10.0).phase is Phase.MAXIMAL
    assert at(0.0).rms_change_of_U == 3.0


def test_the_fluctuation_is_of_order_1_at_the_breakdown():
    """The drawn slope of the output's deviation in S is 0.3 sqrt(D/(LM)): 0.3 at the breakdown, whatever the shape."""
    slope = sympy.diff(phase_diagram.OUTPUT_STD, phase_diagram.S_scale) * phase_diagram.BREAKDOWN
    assert sympy.simplify(slope) == Rational(3, 10)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 1, 1, 1.0), ValueError, "regime: depth must be at least 1, got 0"),
        ((1, 1.5, 1, 1.0), TypeError, r"regime: units must be an integer, got 1\.5"),
        ((1, 1, 1, -1.0), ValueError, r"regime: sigma_v must be at least 0 and finite, got -1\.0"),
        ((1, 1, 1, math.nan), ValueError, "sigma_v .* got nan"),
        ((1, 1, 1, 1.0, 0.0), ValueError, r"regime: alpha must be positive and finite, got 0\.0"),
    ],
)
def test_regime_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        regime(*arguments)
