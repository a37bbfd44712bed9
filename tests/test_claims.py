"""Letters, claims, their numbers, and the registry."""

import dataclasses
import json
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from rescert.theory import registry
from rescert.theory.alignment import B_ALIGN, MISALIGNMENT
from rescert.theory.claims import Claim, Derivation, Kind, Quantity, Source, describe
from rescert.theory.symbols import TABLE, K, M, d_2, d_align, d_par, latex, letter, mu2, n_eff, tr_Sigma2, unfold

CANTELLI = registry.find("alignment.cantelli")
CERTIFICATE = registry.find("alignment.certificate")
BOUNDS = [CANTELLI, CERTIFICATE]


def claim(expression, quantity=MISALIGNMENT, **changes) -> Claim:
    fields = {
        "id": "user.bound",
        "kind": Kind.UPPER_BOUND,
        "quantity": quantity,
        "expression": expression,
        "assumptions": (),
        "source": Source(paper="draft", place="eq. 1"),
        "statement": "",
    }
    return Claim(**fields | changes)


# Letters


def test_a_letter_has_one_meaning():
    with pytest.raises(ValueError, match="'M' already means 'training samples"):
        letter("M", "M", "units a layer")


def test_letters_are_known_by_their_symbols_name():
    assert all(name == found.name == found.symbol.name for name, found in TABLE.items())


def test_unfold_reaches_the_ground_and_keeps_what_it_is_told():
    assert unfold(n_eff) == M * K / (M + K + 1)
    assert not {"n_eff", "d_align"} & {str(symbol) for symbol in unfold(B_ALIGN).free_symbols}
    assert unfold(B_ALIGN, keep=["d_align"]).has(d_align)


def test_latex_uses_the_table():
    assert latex(d_par * mu2) == r"d_\parallel |\mu|^2"


# Claims as data


def test_a_quantity_refuses_an_unknown_letter():
    with pytest.raises(ValueError, match="no letter zeta"):
        Quantity(id="x", meaning="", latex="", symbols=("M", "zeta"))


def test_a_claim_refuses_letters_that_its_quantity_does_not_know():
    with pytest.raises(ValueError, match=r"misalignment knows no p_target; use M, K, N"):
        claim(TABLE["p_target"].symbol / M)


def test_a_claim_without_proof_proves_nothing():
    assert claim(B_ALIGN).prove() is None


def test_making_a_claim_runs_no_proof():
    def never(expression):
        raise AssertionError("a proof ran")

    proof = Derivation(Kind.UPPER_BOUND, "misalignment", never)
    with pytest.raises(AssertionError, match="a proof ran"):
        claim(B_ALIGN, proof=proof).prove()


@pytest.mark.parametrize("found", [c for c in registry.claims() if c.proof is not None], ids=lambda found: found.id)
def test_a_proof_shows_nothing_of_another_kind_or_quantity(found):
    assert found.prove() is not None
    for kind in set(Kind) - {found.kind}:
        assert dataclasses.replace(found, kind=kind).prove() is None
    quantity = dataclasses.replace(found.quantity, id="another")
    assert dataclasses.replace(found, quantity=quantity).prove() is None
    assert describe(dataclasses.replace(found, quantity=quantity))["proof"] is None


@pytest.mark.parametrize("found", registry.claims(), ids=lambda found: found.id)
def test_expressions_have_the_unit_of_their_quantity(found):
    """Under q -> 2q a letter of unit q^k is multiplied by 2^k, and so must be the expression."""
    power = int(found.quantity.unit[2:]) if found.quantity.unit.startswith("q^") else 0
    scale = {
        x: x * 2 ** int(TABLE[str(x)].unit[2:]) for x in found.expression.free_symbols if "^" in TABLE[str(x)].unit
    }
    scaled = found.expression.subs(scale, simultaneous=True)
    assert sympy.simplify(scaled - 2**power * found.expression) == 0


# Numbers


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.id)
@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        ((0, 2, 3), (1, 1)),
        ((0, 0, 3), (1, 1)),
        ((0, 0, 0), (1, 1)),
        ((1, 0, 0), (0, 0)),
        # Singular Sigma with Sigma mu = 0 at M = 2, K = 3: v = 3/6, and n_eff d_align = 1 * 1/3.
        ((1, 0, 3), (Fraction(1, 3), Fraction(3, 4))),
        # v = 2 (1/2 + 1/3) + 3/6 = 13/6.
        ((1, 2, 3), (Fraction(13, 19), Fraction(3, 4))),
    ],
)
def test_zero_mean_and_singular_covariance(bound, moments, expected):
    letters = {"M": 2, "K": 3, **dict(zip(("mu2", "mu_Sigma_mu", "tr_Sigma2"), moments, strict=True))}
    value = expected[BOUNDS.index(bound)]
    assert bound.exact(**letters) == value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bound.numeric()(**letters) == pytest.approx(float(value), rel=1e-15)
        assert bound.numeric()(**{name: float(x) for name, x in letters.items()}) == pytest.approx(
            float(value), rel=1e-15
        )


def test_d_align_is_zero_at_zero_mean_and_infinite_without_noise():
    dimension = claim(d_align, Quantity(id="d", meaning="", latex="", symbols=("d_align",)), kind=Kind.IDENTITY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = dimension.numeric()(
            mu2=np.array([0.0, 0, 1, 2, 2]),
            mu_Sigma_mu=np.array([0.0, 1, 0, 0, 8]),
            tr_Sigma2=np.array([0.0, 1, 0, 4, 4]),
        )
    np.testing.assert_array_equal(values, [0, 0, np.inf, 1, 0.5])
    with pytest.raises(ValueError, match="expression is oo at mu2 = 1"):
        dimension.exact(mu2=1, mu_Sigma_mu=0, tr_Sigma2=0)


def test_a_bound_in_d_par_and_d_2_is_total_too():
    """B_exact written in the dimensions, where each of them may be infinite or zero."""
    odds = (1 / M + 1 / K) / d_par + 1 / (M * K * d_2)
    for written in (1 / (1 + 1 / odds), odds / (1 + odds)):
        for moments in [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 0, 3), (1, 2, 3)]:
            letters = {"M": 2, "K": 3, **dict(zip(("mu2", "mu_Sigma_mu", "tr_Sigma2"), moments, strict=True))}
            assert claim(written).exact(**letters) == CANTELLI.exact(**letters)


def test_a_bound_that_is_infinite_at_zero_mean():
    """Chebyshev without the variance in the denominator: infinite of either sign, not an error."""
    for sign in (1, -1):
        bound = claim(sign * tr_Sigma2 / (M * K * mu2**2))
        values = bound.numeric()(M=2, K=2, mu2=np.array([0.0, 1.0]), tr_Sigma2=8.0)
        np.testing.assert_array_equal(values, [sign * math.inf, sign * 2])
        assert bound.exact(M=2, K=2, mu2=1, tr_Sigma2=8) == sign * 2
        with pytest.raises(ValueError, match="oo at M = 2"):
            bound.exact(M=2, K=2, mu2=0, tr_Sigma2=8)


def test_minima_and_exponentials_of_infinite_dimensions():
    rates = claim(sympy.exp(-n_eff * sympy.Min(d_par, d_2) / 2)).numeric()
    values = rates(
        M=1, K=1, mu2=np.array([0.0, 1, 1]), mu_Sigma_mu=np.array([0.0, 0, 0]), tr_Sigma2=np.array([0.0, 0, 2])
    )
    np.testing.assert_allclose(values, [1, 0, math.exp(-1 / 12)], rtol=1e-15)


positive = st.fractions(min_value=Fraction(1, 1000), max_value=1000, max_denominator=1000)
count = st.integers(min_value=1, max_value=10**4)


@settings(deadline=None, max_examples=50)
@given(M=count, K=count, mu2=positive, mu_Sigma_mu=positive, tr_Sigma2=positive)
def test_exact_and_numeric_agree_with_the_formulas(M, K, mu2, mu_Sigma_mu, tr_Sigma2):
    letters = {"M": M, "K": K, "mu2": mu2, "mu_Sigma_mu": mu_Sigma_mu, "tr_Sigma2": tr_Sigma2}
    v = (Fraction(1, M) + Fraction(1, K)) * mu_Sigma_mu + tr_Sigma2 / (M * K)
    n_eff = Fraction(M * K, M + K + 1)
    expected = {
        CANTELLI: v / (v + mu2**2),
        CERTIFICATE: 1 / (1 + n_eff * min(mu2**2 / mu_Sigma_mu, mu2**2 / tr_Sigma2)),
    }
    for bound, value in expected.items():
        assert bound.exact(**letters) == value
        floats = {name: float(x) for name, x in letters.items()}
        assert float(bound.numeric()(**floats)) == pytest.approx(float(value), rel=1e-13)


def test_arrays_broadcast():
    value = CANTELLI.numeric()(
        M=np.arange(1, 4)[:, None], K=2, mu2=np.linspace(0, 1, 5), mu_Sigma_mu=1.0, tr_Sigma2=0.0
    )
    assert value.shape == (3, 5)
    assert np.all(np.diff(value, axis=0) <= 0)


def test_a_derived_letter_can_be_an_argument():
    bound = CERTIFICATE.function("M", "K", "d_align")
    assert float(bound(64, 64, 2.0)) == pytest.approx(1 / (1 + 64 * 64 / 129 * 2), rel=1e-15)
    assert bound(64, 64, d_align=0.0) == 1
    assert bound(64, 64, np.inf) == 0


def test_a_function_of_too_few_letters():
    with pytest.raises(ValueError, match="also depends on mu2, mu_Sigma_mu, tr_Sigma2"):
        CERTIFICATE.function("M", "K")


def test_letters_that_are_not_needed_are_ignored_and_unknown_ones_are_not():
    letters = {"M": 1, "K": 1, "mu2": 1, "mu_Sigma_mu": 1, "tr_Sigma2": 1}
    assert CERTIFICATE.exact(**letters, tr_Sigma=9, lambda_max=2, N=5) == Fraction(3, 4)
    with pytest.raises(TypeError, match="missing tr_Sigma2, unknown trS2"):
        CERTIFICATE.numeric()(**{name: x for name, x in letters.items() if name != "tr_Sigma2"}, trS2=1)


GOOD = {"M": 4, "K": 2, "mu2": 1.0, "mu_Sigma_mu": 2.0, "tr_Sigma2": 5.0}


@pytest.mark.parametrize(
    ("letters", "message"),
    [
        ({"M": -3}, "user.bound: M = -3, expected a positive integer: training samples"),
        ({"M": 0}, "M = 0, expected a positive integer"),
        ({"K": 1.5}, r"K = 1\.5, expected a positive integer"),
        ({"M": math.nan}, "M = nan, expected a positive integer"),
        ({"M": math.inf}, "M = inf, expected a positive integer"),
        ({"M": np.array([1, 2, 2.5])}, r"M = 2\.5, expected a positive integer"),
        ({"mu2": -1}, "mu2 = -1, expected a nonnegative real number"),
        ({"mu2": math.nan}, "mu2 = nan, expected a nonnegative real number"),
        ({"mu2": 1j}, "mu2 = 1j, expected a nonnegative real number"),
        ({"tr_Sigma2": None}, "tr_Sigma2 = None, expected a nonnegative real number"),
        ({"tr_Sigma2": np.array([[1.0, 2], [-3, 4]])}, r"tr_Sigma2 = -3\.0, expected a nonnegative real number"),
    ],
)
def test_values_that_a_letter_cannot_have(letters, message):
    with pytest.raises(ValueError, match=message):
        claim(B_ALIGN).numeric()(**GOOD | letters)


def test_values_that_a_letter_can_have():
    evaluate = claim(B_ALIGN).numeric()
    value = float(evaluate(**GOOD))
    for same in ({"M": 4.0}, {"M": np.int64(4)}, {"M": np.array(4)}, {"M": Fraction(4)}, {"tr_Sigma": -1}):
        assert float(evaluate(**GOOD | same)) == value
    assert evaluate(**GOOD | {"mu2": 0}) == 1
    slope = claim(TABLE["s"].symbol, Quantity(id="x", meaning="", latex="", symbols=("s",)))
    assert slope.numeric()(s=-1.0) == -1
    with pytest.raises(ValueError, match="s = nan, expected a real number"):
        slope.numeric()(s=math.nan)
    with pytest.raises(ValueError, match="M = 3/2, expected a positive integer"):
        claim(B_ALIGN).exact(M=Fraction(3, 2), K=1, mu2=1, mu_Sigma_mu=1, tr_Sigma2=1)


def test_exact_refuses_what_is_not_rational():
    letters = {"M": 1, "K": 1, "mu2": 1, "mu_Sigma_mu": 1, "tr_Sigma2": 1}
    with pytest.raises(TypeError, match=r"mu2 = 0\.5, expected an int or a Fraction"):
        CERTIFICATE.exact(**letters | {"mu2": 0.5})
    with pytest.raises(ValueError, match=r"sqrt\(2\).* not a rational number; use numeric"):
        claim(sympy.sqrt(tr_Sigma2) / mu2).exact(mu2=1, tr_Sigma2=2)
    assert claim(sympy.sqrt(tr_Sigma2) / mu2).exact(mu2=3, tr_Sigma2=4) == Fraction(2, 3)


# The registry


@pytest.mark.parametrize("found", registry.claims(), ids=lambda found: found.id)
def test_describe_is_strict_json(found):
    told = json.loads(json.dumps(describe(found), allow_nan=False))
    assert told["id"] == found.id
    assert told["formula"]
    assert told["source"].startswith("[")
    assert told["proof"] is None if found.proof is None else told["proof"]["holds"]
    steps = told["proof"]["steps"] if told["proof"] else []
    assert all(step["formula"] and not step["leftover"] for step in steps)


def test_describe_shows_a_failing_step():
    wrong = dataclasses.replace(CERTIFICATE, expression=1 / (1 + M * K / (M + K) * d_align))
    proof = describe(wrong)["proof"]
    assert not proof["holds"]
    assert [step["text"] for step in proof["steps"] if not step["holds"]] == ["the bound with these odds"]


def test_ids_and_quantities_are_unique():
    found = registry.claims()
    assert len({item.id for item in found}) == len(found)
    assert all(registry.quantities()[item.quantity.id] == item.quantity for item in found)


def test_find():
    assert registry.find("alignment.certificate") is CERTIFICATE
    assert {item.id.split(".")[0] for item in registry.claims("spectra.")} == {"spectra"}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("alignment.certificat", "did you mean alignment.certificate"),
        ("width.certificate", "alignment.certificate"),
        ("zzz", "`rescert claims` lists them"),
    ],
)
def test_an_unknown_claim_names_the_nearest(asked, told):
    with pytest.raises(registry.UnknownClaim, match=told):
        registry.find(asked)
