"""Growth exponents of d_align, against the published table and against slopes of exact sums."""

import dataclasses
import math

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from rescert.theory import families, registry
from rescert.theory.families import FAMILIES, Growth, as_powers
from rescert.theory.symbols import a, b, s

Q = sympy.Rational

# The exponents at |mu|^2 = N, as the paper's companion table states them.
TABLE_AT_S_1 = {
    "flat": sympy.S.One,
    "power_spread": 1 + sympy.Min(a, 1),
    "power_top": sympy.S.One,
    "power_bottom": sympy.Min(1 + a, 2),
    "spike_aligned": 1 - b,
    "spike_orthogonal": sympy.Min(1, 2 - 2 * b),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_derived_exponents_are_those_of_the_table(name):
    for value in (Q(0), Q(1, 4), Q(1, 2), Q(3, 4), Q(1)):
        at = {a: 2 * value, b: value, s: 1}
        assert FAMILIES[name].e_align.subs(at) == TABLE_AT_S_1[name].subs(at)


def paper(name, a, b, s):
    """The paper's two columns, for every s: exponents of mu'Sigma mu and of tr Sigma^2."""
    trace = max(1 - 2 * a, 0) if name.startswith("power") else max(1, 2 * b) if name.startswith("spike") else 1
    along = {"power_spread": s - min(a, 1), "power_bottom": s - a, "spike_aligned": s + b}.get(name, s)
    return min(2 * s - along, 2 * s - trace)


@pytest.mark.parametrize("name", FAMILIES)
@given(a_=st.fractions(0, 3), b_=st.fractions(0, 3), s_=st.fractions(-2, 3))
def test_the_claims_state_the_table_and_the_sums_give_it(name, a_, b_, s_):
    at = {a: Q(a_), b: Q(b_), s: Q(s_)}
    expected = Q(paper(name, a_, b_, s_))
    assert registry.find(f"spectra.{name}").expression.subs(at) == expected
    assert FAMILIES[name].e_align.subs(at) == expected


EVERY = set(FAMILIES)
WRONG_RULES = [
    ("sum_growth", lambda expr: Growth(as_powers(expr)[0] + sympy.Max(2 - as_powers(expr)[1], 0)), EVERY),
    # Right for flat sums.
    (
        "sum_growth",
        lambda expr: Growth(as_powers(expr)[0] + 1 - as_powers(expr)[1] / 2),
        {"power_spread", "power_top", "power_bottom"},
    ),
    ("term_growth", lambda expr, place: Growth(as_powers(expr)[0] + 1), EVERY),
    # Right at i = 1.
    ("term_growth", lambda expr, place: Growth(as_powers(expr)[0]), {"power_bottom"}),
    ("larger", lambda x, y: Growth(sympy.Min(x.exponent, y.exponent)), EVERY),
    ("larger", lambda x, y: Growth(x.exponent + y.exponent), EVERY),
]


@pytest.mark.parametrize(("rule", "wrong", "served"), WRONG_RULES)
def test_a_wrong_rule_leaves_the_claims_as_they_are_and_without_proof(monkeypatch, rule, wrong, served):
    claims = {name: registry.find(f"spectra.{name}") for name in FAMILIES}
    stated = {name: claim.expression for name, claim in claims.items()}
    monkeypatch.setattr(families, rule, wrong)
    assert {name for name, claim in claims.items() if not claim.prove().holds} == served
    assert {name: claim.expression for name, claim in claims.items()} == stated


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rule_and_a_table_wrong_in_the_same_way_are_found_by_the_limits(monkeypatch, name):
    monkeypatch.setattr(families, "sum_growth", WRONG_RULES[0][1])
    wrong = dataclasses.replace(registry.find(f"spectra.{name}"), expression=FAMILIES[name].e_align)
    failures = wrong.prove().failures
    assert failures
    assert {step.rule for step in failures} == {"limit"}


def test_width_hurts_a_flat_spectrum_with_a_weak_signal():
    flat = FAMILIES["flat"].e_align
    assert flat.subs(s, Q(1, 2)) == 0
    assert flat.subs(s, Q(1, 4)) == -Q(1, 2)
    assert FAMILIES["spike_aligned"].e_align.subs({s: 1, b: Q(3, 2)}) < 0


def dimensions(family, width, at):
    """(d_par, d_2, |mu|^2) of a family from sums over its eigenvalues, and from nothing else."""
    values = [float(at.get(letter, 0)) for letter in (a, b, s)]
    eigenvalue, mean_squared = family.function()(np.arange(1, width + 1, dtype=float), float(width), *values)
    norm = math.fsum(mean_squared)
    return norm**2 / math.fsum(mean_squared * eigenvalue), norm**2 / math.fsum(eigenvalue**2), norm


CASES = [
    ("flat", {s: Q(1)}),
    ("flat", {s: Q(1, 4)}),
    ("flat", {s: Q(0)}),
    ("power_spread", {a: Q(1, 4), s: Q(1)}),
    ("power_spread", {a: Q(1), s: Q(1)}),
    ("power_spread", {a: Q(2), s: Q(1)}),
    ("power_top", {a: Q(1, 4), s: Q(1)}),
    ("power_top", {a: Q(1, 2), s: Q(0)}),
    ("power_top", {a: Q(2), s: Q(1)}),
    ("power_bottom", {a: Q(1, 4), s: Q(1)}),
    ("power_bottom", {a: Q(2), s: Q(1)}),
    ("power_bottom", {a: Q(1, 2), s: Q(0)}),
    ("spike_aligned", {b: Q(1, 4), s: Q(1)}),
    ("spike_aligned", {b: Q(1), s: Q(1)}),
    ("spike_orthogonal", {b: Q(1, 4), s: Q(1)}),
    ("spike_orthogonal", {b: Q(3, 4), s: Q(1)}),
]
WIDTHS = 2 ** np.arange(14, 21, 2)

# With sum_i i^-c = N^(1-c)/(1-c) + zeta(c) + ..., or log N + 0.577, the local slope is off by at most the relative size
# of the second term at the smallest width: 1.2 % at c = 1/2 on 2^14, and 0.577 / (log N)^2 = 0.6 % with a logarithm.
SLOPE_TOLERANCE = 0.013


def fitted_slope(name, at):
    family = FAMILIES[name]
    power = float(family.log_align.subs(at))
    values = [min(dimensions(family, int(width), at)[:2]) * math.log(width) ** power for width in WIDTHS]
    return np.polyfit(np.log(WIDTHS), np.log(values), 1)[0]


@pytest.mark.parametrize(("name", "at"), CASES, ids=str)
def test_fitted_slopes_match(name, at):
    claim = registry.find(f"spectra.{name}")
    predicted = float(claim.expression.subs(at))
    slope = fitted_slope(name, at)
    assert slope == pytest.approx(predicted, abs=SLOPE_TOLERANCE)
    for planted in (predicted + 0.25, predicted - 0.25, 2 * predicted + 0.1):
        assert abs(slope - planted) > SLOPE_TOLERANCE


def test_logarithms_are_where_the_sums_say():
    assert FAMILIES["power_spread"].log_align.subs({a: 1, s: 1}) == 1
    assert FAMILIES["power_spread"].log_align.subs({a: Q(1, 2), s: 1}) == 0
    assert FAMILIES["power_top"].log_align.subs({a: Q(1, 2), s: 0}) == 1
    assert FAMILIES["flat"].log_align.subs({s: 1}) == 0


def test_a_logarithm_left_in_shows():
    """Not dividing by log N at a = 1 shifts the slope by about 1 / log N, which the tolerance does not cover."""
    at = {a: Q(1), s: Q(1)}
    values = [min(dimensions(FAMILIES["power_spread"], int(width), at)[:2]) for width in WIDTHS]
    slope = np.polyfit(np.log(WIDTHS), np.log(values), 1)[0]
    assert slope == pytest.approx(1.93, abs=SLOPE_TOLERANCE)
    assert abs(slope - 2) > SLOPE_TOLERANCE


@pytest.mark.parametrize("name", FAMILIES)
def test_the_mean_has_the_stated_norm(name):
    for exponent in (Q(0), Q(1, 3), Q(1)):
        at = {a: Q(1, 2), b: Q(1, 2), s: exponent}
        assert dimensions(FAMILIES[name], 1000, at)[2] == pytest.approx(1000.0 ** float(exponent), rel=1e-12)


@pytest.mark.parametrize("claim", registry.claims("spectra."), ids=lambda claim: claim.id)
def test_a_planted_exponent_has_no_proof(claim):
    assert claim.prove().holds
    assert not dataclasses.replace(claim, expression=claim.expression + Q(1, 4)).prove().holds
    assert not dataclasses.replace(claim, expression=2 * claim.expression).prove().holds


@given(
    eigenvalues=st.lists(st.floats(0, 1), min_size=1, max_size=12),
    seed=st.integers(0, 2**32 - 1),
    c=st.floats(0.01, 10),
    sigma2=st.floats(0.1, 10),
)
def test_a_bounded_spectrum_gives_linear_growth(eigenvalues, seed, c, sigma2):
    width = len(eigenvalues)
    spectrum = sigma2 * np.array(eigenvalues)
    mean = np.random.default_rng(seed).standard_normal(width)
    mean *= np.sqrt(c * width) / np.linalg.norm(mean)
    bound = float(registry.find("spectra.bounded").numeric()(N=width, c_signal=c, sigma2=sigma2))
    norm = float(mean @ mean)
    # As a product, so that a zero spectrum (infinite dimension) needs no division.
    assert bound * max(mean @ (spectrum * mean), spectrum @ spectrum) <= norm**2 * (1 + 1e-12)


def test_the_bounded_spectrum_is_attained():
    """Flat at sigma^2 with |mu|^2 = cN: both dimensions equal their bound."""
    bound = registry.find("spectra.bounded")
    for c, sigma2 in ((1, 2), (3, 2)):
        mu2, spectrum = 10 * c, 10 * sigma2**2
        assert bound.exact(N=10, c_signal=c, sigma2=sigma2) == min(mu2**2 / (sigma2 * mu2), mu2**2 / spectrum)
