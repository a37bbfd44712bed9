"""The first look at a bound: real laws only, no false alarm on a true bound, every unsound one named with its point."""

import time
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from rescert.sim.rng import generator
from rescert.theory.alignment import MISALIGNMENT
from rescert.theory.claims import Kind
from rescert.verify.bounds import statement
from rescert.verify.bounds.domain import examine, moment_points
from rescert.verify.bounds.high_precision import precise
from rescert.verify.bounds.statement import BoundError

POINTS = moment_points(generator(0, "points"), 512)


def look(text, kind=Kind.UPPER_BOUND, limits=(0.0, 1.0)):
    return examine(statement.bound(text, quantity=MISALIGNMENT, kind=kind), POINTS, limits)


def test_the_points_are_moments_of_laws():
    p, slack = POINTS, 1 + 1e-9
    assert np.all(p["mu2"] > 0)
    assert np.all(p["mu_Sigma_mu"] <= p["lambda_max"] * p["mu2"] * slack)
    assert np.all(p["mu_Sigma_mu"] ** 2 <= p["mu2"] ** 2 * p["tr_Sigma2"] * slack)
    assert np.all(p["lambda_max"] ** 2 <= p["tr_Sigma2"] * slack)
    assert np.all(p["tr_Sigma2"] <= p["lambda_max"] * p["tr_Sigma"] * slack)
    assert np.all(p["tr_Sigma"] ** 2 <= p["N"] * p["tr_Sigma2"] * slack)
    # Not even by a rounding: a root of any of these differences is real.
    exact = {name: [Fraction(x) for x in values] for name, values in p.items()}
    rows = [{name: values[i] for name, values in exact.items()} for i in range(len(p["M"]))]
    assert all(row["tr_Sigma"] ** 2 >= row["tr_Sigma2"] for row in rows)
    assert all(row["lambda_max"] * row["mu2"] >= row["mu_Sigma_mu"] for row in rows)
    assert all(row["tr_Sigma"] ** 2 <= row["N"] * row["tr_Sigma2"] for row in rows)
    assert np.any(p["tr_Sigma"] == 0)
    assert np.any((p["mu_Sigma_mu"] == 0) & (p["tr_Sigma2"] > 0))
    assert {1.0, 2.0} <= set(p["N"])
    assert all(float(x).is_integer() for x in (*p["M"], *p["K"]))


@pytest.mark.parametrize(
    "text",
    [
        "1/(1 + n_eff*d_align)",
        "1/(n_eff*d_align)",
        "min(1, 1/(n_eff*d_align))",
        "((1/M + 1/K)/d_par + 1/(M*K*d_2))/(1 + (1/M + 1/K)/d_par + 1/(M*K*d_2))",
        "(M+K)*mu_Sigma_mu/(M*K*mu2**2) + tr_Sigma2/(M*K*mu2**2)",
        "exp(-n_eff*d_align/2)",
        "1 - exp(-1/(n_eff*d_align))",
        "normal_cdf(-sqrt(n_eff*d_align))",
        "lambda_max*tr_Sigma/mu2**2",
        "sqrt(1/(1 + n_eff*d_align))",
        # Zero at rank one or at a flat spectrum: a rounding below, it would be complex.
        "sqrt(tr_Sigma**2 - tr_Sigma2)/mu2",
        "sqrt(N*tr_Sigma2 - tr_Sigma**2)/mu2",
        "sqrt(lambda_max*mu2 - mu_Sigma_mu)/mu2",
        # Infinity over infinity for floats, or beyond them.
        "1/(1 + exp(n_eff*d_align/2))",
        "exp(-n_eff*d_align/2)/(1 + exp(-n_eff*d_align/2))",
        "(1 - 1/(1 + d_align))**(M*K)",
        # Expanded, it cancels to noise below zero.
        "(1 - 1/(1 + n_eff*d_align))**4/(1 + n_eff*d_align)",
        "1 - 1e-30",
        "min(1, 1/(M - 1))",
    ],
)
def test_a_sound_bound_passes_without_remark(text):
    assert look(text) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 - d_align", "below 0"),
        ("sqrt(d_align - 1)", "no real number"),
        ("log(M - 1)", "below 0"),
        ("d_par", "infinite"),
        ("mu_Sigma_mu/tr_Sigma2 - mu_Sigma_mu/tr_Sigma2 + 0*d_par + 1/(M-1)", "infinite"),
        ("1 + n_eff", "vacuous"),
        ("5/4", "vacuous"),
        ("1", "vacuous"),
        ("2**(M*K)", "vacuous"),
        ("-2**(M*K)", r"is -2\.0 at M = 1, K = 1: below 0"),
        ("log(M - K)", "no real number"),
        ("(M - 1)/(K - 1)", "is nan at M = 1, K = 1: undefined"),
        ("1/(1 + n_eff*d_2) + d_2", "d_2 = inf.*: infinite"),
        ("exp(exp(d_2))", "infinite"),
        ("1/N + 1/(N - 1)", r"at N = 1: infinite"),
    ],
)
def test_an_unsound_bound_is_named_with_its_point(text, message):
    with pytest.raises(BoundError, match=message):
        look(text)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("1/(1 + n_eff*d_align*tr_Sigma2/tr_Sigma**2)", "tr_Sigma = tr_Sigma2 = 0"),
        ("sqrt(n_eff*d_align)*exp(-n_eff*d_align/2)", "mu_Sigma_mu = tr_Sigma2 = 0"),
        ("d_par*exp(-M*d_par)", "mu_Sigma_mu = 0"),
    ],
)
def test_zero_over_zero_without_variance_is_remarked_on_where_the_value_beside_it_is_sound(text, where):
    (remark,) = look(text)
    assert f"{where}: nothing is said there" in remark


def test_zero_over_zero_is_refused_where_the_value_beside_it_is_not_sound():
    still = {name: values[:1] for name, values in POINTS.items()}
    assert still["tr_Sigma"] == 0
    claim = statement.bound("tr_Sigma2/tr_Sigma**2 - 2", quantity=MISALIGNMENT)
    with pytest.raises(BoundError, match="is nan at tr_Sigma = 0, tr_Sigma2 = 0: undefined"):
        examine(claim, still, (0.0, 1.0))


def test_floats_and_hundreds_of_digits_agree():
    texts = (
        "normal_cdf(-sqrt(n_eff*d_align))",
        "gamma(M)/gamma(M + K)",
        "max(1, log(M)) - abs(M - K)/erf(N)",
        "2**(-K/2)",
    )
    for text in texts:
        claim = statement.bound(text, quantity=MISALIGNMENT)
        letters = {name: POINTS[name] for name in claim.arguments}
        with np.errstate(all="ignore"):
            floats = claim.numeric()(**letters)
        for place in range(0, 512, 40):
            value = precise(claim, {name: x[place] for name, x in letters.items()})
            if np.isfinite(floats[place]):
                assert float(value) == pytest.approx(floats[place], rel=1e-9, abs=1e-300)


def test_hundreds_of_digits_know_zero_infinity_and_the_complex():
    def at(text, **letters):
        return precise(statement.bound(text, quantity=MISALIGNMENT), letters)

    assert at("1/M - 1/K", M=3, K=3) == 0
    assert at("sqrt(M/3 - K/7)", M=3, K=7) == 0
    assert mpmath.isinf(at("1/(M - K)", M=3, K=3))
    assert at("log(M - K)", M=3, K=3) == -mpmath.inf
    assert at("exp(M*K)", M=10_000, K=10_000) > 1e300
    assert mpmath.isfinite(at("exp(M*K)", M=10_000, K=10_000))
    assert at("sqrt(M - K)", M=3, K=7) == 2j
    assert mpmath.isnan(at("min(1, sqrt(M - K))", M=3, K=7))
    assert mpmath.isnan(at("gamma(M - K)", M=3, K=7))


def test_a_look_is_fast():
    start = time.process_time()
    with pytest.raises(BoundError, match="infinite"):
        look("exp(exp(d_2))*gamma(d_par)")
    assert time.process_time() - start < 2


def test_the_point_is_spelled_in_the_letters_of_the_bound():
    with pytest.raises(BoundError, match=r"d_align = .*M = .*mu2 = "):
        look("1 - M*d_align")


def test_lower_bounds_and_identities_have_other_limits():
    assert look("1/4 - d_align/(1 + d_align)", Kind.LOWER_BOUND) == ()
    with pytest.raises(BoundError, match="above 1"):
        look("1 + 1/M", Kind.LOWER_BOUND)
    with pytest.raises(BoundError, match="vacuous"):
        look("-M", Kind.LOWER_BOUND)
    with pytest.raises(BoundError, match="above 1, which"):
        look("1/(n_eff*d_align)", Kind.IDENTITY)


def test_a_bound_that_changes_with_the_unit_is_remarked_on():
    (remark,) = look("1/(1 + mu2)")
    assert "unit" in remark


def test_a_letter_without_values_is_an_error():
    claim = statement.bound("1/(1 + N)", quantity=MISALIGNMENT)
    with pytest.raises(BoundError, match="no values of N"):
        examine(claim, {"M": np.ones(3)}, (0.0, 1.0))
