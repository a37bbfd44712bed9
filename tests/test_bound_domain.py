"""The first look at a bound: real laws only, no false alarm on a true bound, every unsound one named with its point."""

import numpy as np
import pytest
from rescert.sim.rng import generator
from rescert.theory.alignment import MISALIGNMENT
from rescert.theory.claims import Kind
from rescert.verify.bounds import statement
from rescert.verify.bounds.domain import examine, moment_points
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
    ],
)
def test_an_unsound_bound_is_named_with_its_point(text, message):
    with pytest.raises(BoundError, match=message):
        look(text)


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
