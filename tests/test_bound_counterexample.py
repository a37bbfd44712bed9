"""Counterexamples: shrunk, confirmed by other means than they were found by, and laid out to be checked by hand."""

import json
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from bound_claims import breaks, claim
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import gaussian_tail_mp
from rescert.sim.finite_laws import FiniteSupport
from rescert.sim.gaussian_tail import gaussian_tail
from rescert.sim.populations import build
from rescert.theory.alignment import B_ALIGN, B_EXACT, VARIANCE
from rescert.theory.claims import Kind
from rescert.theory.symbols import K, M, d_2, d_align, lambda_max, mu2, n_eff, tr_Sigma
from rescert.verify.bounds import counterexample, exact_case
from rescert.verify.bounds.continuous import tail_on_rays
from rescert.verify.bounds.counterexample import decimal, spell
from rescert.verify.bounds.enclosure import Interval, compare, enclose
from rescert.verify.bounds.exact_case import FiniteCase
from rescert.verify.bounds.misalignment import confirm
from rescert.verify.bounds.screen import Screen
from rescert.verify.bounds.shrinking import shrink
from rescert.verify.checks import Undefined
from sympy import Abs, Max, Min, Rational, erf, erfc, exp, gamma, log, pi, sqrt

W1 = 1 / (1 + M * K / (M + K) * d_align)
FAIR = {"population": {"name": "bernoulli", "pi": "1/2"}, "M": 1, "K": 1}
S1 = {"population": {"name": "rare-atom-2d", "M": 4, "eps": "1/400", "w": "31/4"}, "M": 4, "K": 4}


def case(where):
    return FiniteCase(law=build(**where["population"]), M=where["M"], K=where["K"])


# Values without floats


@settings(deadline=None, max_examples=25)
@given(st.fractions(Fraction(1, 100), 20), st.fractions(Fraction(1, 100), 20))
def test_intervals_hold_the_value(a, b):
    letters = {"M": 3, "K": 2, "N": 2, "mu2": a, "mu_Sigma_mu": b, "tr_Sigma": b, "tr_Sigma2": b}
    with mpmath.workdps(60):
        x, y = (mpmath.mpf(v.numerator) / v.denominator for v in (a, b))
        for expression, truth in (
            (exp(-mu2), mpmath.exp(-x)),
            (log(1 + mu2) * tr_Sigma, mpmath.log(1 + x) * y),
            (sqrt(mu2) + mu2 ** Rational(1, 3), mpmath.sqrt(x) + mpmath.cbrt(x)),
            (mu2**tr_Sigma, x**y),
            (gamma(1 + mu2 / 4), mpmath.gamma(1 + x / 4)),
            (erf(mu2 - 5) + erfc(mu2), mpmath.erf(x - 5) + mpmath.erfc(x)),
            (Max(exp(-mu2), tr_Sigma / 9) + Min(sqrt(2), mu2) + Abs(mu2 - tr_Sigma) / pi, None),
        ):
            if truth is None:
                truth = max(mpmath.exp(-x), y / 9) + min(mpmath.sqrt(2), x) + abs(x - y) / mpmath.pi
            value = enclose(claim(expression), letters)
            low, high = (mpmath.mpf(end.numerator) / end.denominator for end in (value.low, value.high))
            slack = abs(truth) * mpmath.mpf(10) ** -50
            assert low - slack <= truth <= high + slack
            assert high - low <= mpmath.mpf(10) ** -25 * (1 + abs(truth))


def test_rational_values_are_fractions_and_roots_of_squares_too():
    letters = {"M": 3, "K": 2, "mu2": Fraction(4, 9), "mu_Sigma_mu": Fraction(1), "tr_Sigma2": Fraction(2)}
    assert enclose(claim(sqrt(mu2)), letters) == Interval(low=Fraction(2, 3), high=Fraction(2, 3))
    exact = enclose(claim(B_EXACT), letters)
    assert exact.exact
    assert exact.low == claim(B_EXACT).exact(**letters)


def test_powers_with_large_denominators_are_quick():
    # sympy would factor integers of hundreds of digits.
    letters = {
        "M": 1,
        "K": 1,
        "mu2": Fraction(10**80 + 1, 3**90),
        "mu_Sigma_mu": Fraction(7, 5),
        "tr_Sigma2": Fraction(1),
    }
    value = enclose(claim(B_EXACT ** Rational(1001, 1000)), letters)
    assert 0 < value.low < value.high


@pytest.mark.parametrize("expression", [sqrt(mu2 - 100), log(mu2 - 100), (mu2 - 100) ** Rational(1, 3)])
def test_what_is_not_real_is_undefined(expression):
    with pytest.raises(Undefined, match="no finite real value"):
        enclose(claim(expression), {"mu2": Fraction(1)})


def test_infinite_dimensions_are_understood():
    letters = {"M": 1, "K": 1, "mu2": Fraction(1), "mu_Sigma_mu": Fraction(0), "tr_Sigma2": Fraction(0)}
    assert enclose(claim(exp(-d_2)), letters) == Interval(low=Fraction(0), high=Fraction(0))
    assert enclose(claim(Min(B_ALIGN, Rational(1, 2))), letters).high == 0


def test_comparison_sharpens_until_it_can_tell():
    letters = {"mu2": Fraction(2)}
    with mpmath.workdps(150):
        near = Fraction(str(mpmath.sqrt(2)))  # right to 150 digits, beyond every precision that is tried
    shifted = near + Fraction(1, 10**45)
    assert compare(claim(sqrt(mu2)), letters, Interval(low=shifted, high=shifted))[1] == 1
    assert compare(claim(sqrt(mu2)), letters, Interval(low=near, high=near))[1] == 0


def test_largest_eigenvalue_of_higher_rank_is_enclosed():
    law = build("lattice", dim=2)
    value = enclose(claim(lambda_max), FiniteCase(law=law, M=1, K=1).letters)
    assert value.low < Fraction(law.moments.lambda_max) < value.high
    assert exact_case.moments(build("bernoulli"))["lambda_max"] == Fraction(1, 4)


# Confirmation of finite laws


def test_the_table_can_be_checked_by_hand():
    found = confirm(claim(W1), FAIR)
    assert (found.observed, found.bound, found.confirmed, found.confidence) == ("3/4", "2/3", "exact fractions", 1.0)
    table = dict(found.table)
    assert table["M, K"] == "1, 1"
    assert table["q = 1"] == "with probability 1/2"
    assert (table["mu2"], table["mu_Sigma_mu"], table["tr_Sigma2"], table["d_align"]) == ("1/4", "1/16", "1/16", "1")
    assert table["pairs of sums with X <= 0"] == "3 of 4"
    assert table["mu_M = 0, g_K = 1"] == "X = 0, with probability 1/4"
    assert table["P(X <= 0)"] == "3/4 = 0.75"
    assert table["P minus the claimed value"] == "1/12 = 0.08333333333"
    assert len(found.table) <= 24


def test_subtle_case_of_the_spec_is_confirmed():
    found = confirm(claim(W1), S1)
    assert Fraction(found.observed) / Fraction(found.bound) == pytest.approx(1.068, abs=5e-4)
    assert breaks(claim(W1), S1)


@pytest.mark.parametrize("expression", [B_EXACT, B_ALIGN, 1 - exp(-1 / (n_eff * d_align))])
@pytest.mark.parametrize("where", [FAIR, S1])
def test_what_does_not_break_a_bound_is_not_confirmed(expression, where):
    assert confirm(claim(expression), where) is None
    assert not breaks(claim(expression), where)


@pytest.mark.parametrize("relative", [Rational(1, 10**6), Rational(1, 10**12), Rational(1, 10**40)])
def test_a_bound_that_is_barely_wrong_is_confirmed_in_fractions(relative):
    assert confirm(claim(B_EXACT * (1 - relative)), FAIR).confirmed == "exact fractions"
    assert confirm(claim(B_EXACT * (1 + relative)), FAIR) is None


def test_a_bound_that_is_barely_wrong_is_confirmed_in_intervals():
    # 3/4 against an irrational value below and above it.
    for gap in (Rational(1, 10**20), Rational(1, 10**50)):
        off = gap * sqrt(2)
        assert confirm(claim(B_EXACT - off), FAIR).confirmed == "exact fractions against interval arithmetic"
        assert confirm(claim(B_EXACT + off), FAIR) is None


def test_rounding_in_the_text_keeps_the_sides():
    wrong = claim(exp(-1 / VARIANCE))
    found = confirm(wrong, S1)
    assert Fraction(found.observed) <= case(S1).p
    assert Fraction(found.bound) >= enclose(wrong, case(S1).letters).high
    assert Fraction(found.observed) > Fraction(found.bound)


def test_lower_bounds_and_identities():
    assert confirm(claim(Rational(4, 5), Kind.LOWER_BOUND), FAIR).bound == "4/5"
    assert confirm(claim(Rational(3, 4), Kind.LOWER_BOUND), FAIR) is None
    assert confirm(claim(Rational(3, 4), Kind.IDENTITY), FAIR) is None
    for other in (Rational(4, 5), Rational(1, 5)):
        assert confirm(claim(other, Kind.IDENTITY), FAIR).observed == "3/4"


def test_zero_mean_breaks_nothing():
    centred = {"population": {"name": "finite", "atoms": [["1"], ["-1"]], "weights": ["1/2", "1/2"]}, "M": 1, "K": 1}
    assert confirm(claim(Rational(1, 3)), centred) is None


def test_a_case_is_replayed_from_json():
    found = confirm(claim(W1), S1)
    assert confirm(claim(W1), json.loads(json.dumps(found.where))) == found


@pytest.mark.parametrize(
    ("where", "match"),
    [
        ({"M": 1, "K": 1}, "expected 'population', 'M' and 'K'"),
        ({**FAIR, "M": 0}, "M and K must be at least 1"),
        ({**FAIR, "population": {"name": "bernouli"}}, "nearest: bernoulli"),
    ],
)
def test_what_is_no_case_is_refused(where, match):
    with pytest.raises(ValueError, match=match):
        confirm(claim(W1), where)


def test_a_broken_confirmation_does_not_pass_the_judge(monkeypatch):
    """Negative control: with P one part in a million too large, equality turns into a 'violation', and is caught."""
    monkeypatch.setattr(
        FiniteCase, "p", property(lambda self: Fraction(self._hits, self._total) * (1 + Fraction(1, 10**6)))
    )
    planted = confirm(claim(B_EXACT), FAIR)
    assert planted is not None
    assert not breaks(claim(B_EXACT), planted.where)


# Shrinking


def test_shrinking_reaches_the_fair_coin():
    law = FiniteSupport([["1/9", 0, 0], ["22/7", "1/5", 0], [0, 0, "1/100"]], ["99/200", "100/200", "1/200"])
    wrong = claim(Rational(3, 4) * B_EXACT)
    small = shrink(Screen(wrong), FiniteCase(law=law, M=1, K=1))
    assert small.violation(wrong)
    assert sorted(small.law.atoms) == [(0,), (1,)]
    assert small.law.weights == (Fraction(1, 2), Fraction(1, 2))


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 9), st.integers(2, 9), st.integers(1, 12), st.integers(2, 60))
def test_shrinking_keeps_the_violation_and_is_deterministic(m, k, height, n):
    law = FiniteSupport([[1, 0], [1 - m, height]], [1 - Fraction(1, n), Fraction(1, n)])
    wrong = claim(Rational(1, 3) * B_EXACT)
    start = FiniteCase(law=law, M=m, K=k)
    if law.moments.mu2 == 0 or not start.violation(wrong):
        return
    small = shrink(Screen(wrong), start)
    assert small.violation(wrong)
    assert breaks(wrong, small.where)
    assert (len(small.law.atoms), small.law.dim, small.M + small.K) <= (2, 2, m + k)
    assert small.where == shrink(Screen(wrong), start).where


# Laws without finite support


@pytest.mark.parametrize(("m", "k"), [(1, 1), (3, 8), (64, 64)])
@pytest.mark.parametrize(
    ("mean", "eigenvalues"), [([1.0], [1.0]), ([0.5, 0.0, 0.5], [1.0, 1.0, 0.25]), ([0.3] * 8, [1.0] * 8)]
)
def test_second_contour_agrees_with_the_oracle_and_the_first(mean, eigenvalues, m, k):
    law = build("gaussian", mean=mean, eigenvalues=eigenvalues)
    second = tail_on_rays(law, m, k)
    assert second == pytest.approx(float(gaussian_tail_mp(np.square(mean), eigenvalues, m, k)), rel=1e-12)
    assert second == pytest.approx(gaussian_tail(law, m, k).p, rel=1e-9)


def test_gaussian_case_is_confirmed_by_a_second_contour():
    where = {"population": {"name": "gaussian", "mean": [0.5, 0.0], "eigenvalues": [1.0, 1.0]}, "M": 2, "K": 2}
    found = confirm(claim(lambda_max / 10), where)
    assert found.confirmed == "two contour integrals, one with 30 digits"
    assert float(found.observed) == pytest.approx(float(gaussian_tail_mp([0.25, 0.0], [1.0, 1.0], 2, 2)), rel=1e-10)
    assert confirm(claim(B_EXACT), where) is None
    assert confirm(claim(lambda_max / 10), json.loads(json.dumps(found.where))) == found


def test_contours_that_disagree_confirm_nothing(monkeypatch):
    where = {"population": {"name": "gaussian", "mean": [0.5], "eigenvalues": [1.0]}, "M": 2, "K": 2}
    assert confirm(claim(lambda_max / 100), where) is not None
    monkeypatch.setattr(counterexample, "tail_on_rays", lambda law, M, K: 0.31)
    assert confirm(claim(lambda_max / 100), where) is None


def test_sampled_case_is_confirmed_by_two_simulations():
    where = {"population": {"name": "t3", "dim": 4, "d_align": 0.05}, "M": 2, "K": 2}
    found = confirm(claim(B_EXACT / 5), where)
    assert found.confirmed == "fresh draws, twice"
    assert 0.999 < found.confidence < 1
    assert len([row for row in found.table if row[0].startswith("draws with X <= 0")]) == 2
    assert confirm(claim(B_EXACT), where) is None
    assert confirm(claim(B_EXACT / 5), json.loads(json.dumps(found.where))) == found
    assert confirm(claim(B_EXACT / 5, Kind.IDENTITY), where) is None


# Text


@pytest.mark.parametrize("x", [Fraction(1, 3), Fraction(-(10**50), 7**40), Fraction(2, 10**30 + 1), Fraction(0)])
def test_decimals_are_rounded_to_their_side(x):
    assert Fraction(decimal(x, up=False)) <= x <= Fraction(decimal(x, up=True))
    assert float(Fraction(decimal(x, up=False))) == pytest.approx(float(x), rel=1e-13)


def test_short_fractions_are_spelled_out():
    assert spell(Fraction(3, 4)) == "3/4"
    assert spell(Fraction(1, 3**99)).startswith("5.82097")
    assert len(spell(Fraction(1, 10**5000))) < 40
