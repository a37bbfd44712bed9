"""Single checks: every kind on exact cells, values that cannot be had, claims that bring their own computation."""

import dataclasses
import math
import re
from fractions import Fraction as F

import pytest
import sympy
from rescert.sim.enumeration import exact_law_rational
from rescert.sim.laws import Moments
from rescert.sim.populations import build
from rescert.theory import registry
from rescert.theory.claims import Kind
from rescert.theory.symbols import K, M, N, lambda_max, mu2, tr_Sigma, tr_Sigma2
from rescert.verify.checks import Cell, Undefined, judge
from rescert.verify.decisions import ErrorBudget, Evidence, Status, conclude
from rescert.verify.formula_checks import FORMULAS

BUDGET = ErrorBudget()
CANTELLI = registry.find("alignment.cantelli")
VARIANCE = registry.find("alignment.variance")
OWN = [claim for claim in registry.claims() if (claim.kind, claim.quantity.id) in FORMULAS]
Q = sympy.Rational


def rational(m=1, k=1, name="bernoulli", **params):
    population = build(name, **params)
    law = exact_law_rational(population, m, k)
    return cell(population, m, k, "rational", p=law.p, mean=law.mean, variance=law.variance)


def cell(population, m, k, engine, evidence=Evidence.EXACT, **known):
    return Cell(
        evidence=evidence,
        subject=population.name,
        family=population.family,
        spec=population.spec,
        dim=population.dim,
        M=m,
        K=k,
        moments=population.moments,
        engine=engine,
        **known,
    )


def sampled(misaligned, trials=10_000, **changes):
    population = build("gaussian-flat", dim=4, d_align=1.0)
    found = cell(population, 2, 2, "draws", Evidence.SIMULATION, misaligned=misaligned, trials=trials)
    return dataclasses.replace(found, **changes)


def on(found, expression, kind=Kind.UPPER_BOUND, claim=CANTELLI):
    """The one check of a claim without proof on a cell."""
    (check,) = judge(
        dataclasses.replace(claim, kind=kind, expression=sympy.sympify(expression), proof=None), [found], BUDGET
    )
    return check


def statuses(found, expression, claim=CANTELLI):
    kinds = (Kind.UPPER_BOUND, Kind.LOWER_BOUND, Kind.IDENTITY)
    return [on(found, expression, kind, claim).status.value for kind in kinds]


SUPPORTED, REFUTED, INCONCLUSIVE = "SUPPORTED", "REFUTED", "INCONCLUSIVE"


# Kinds


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Q(3, 4), [SUPPORTED, SUPPORTED, SUPPORTED]),
        (Q(3, 4) + Q(1, 10**20), [SUPPORTED, REFUTED, REFUTED]),
        (Q(3, 4) - Q(1, 10**20), [REFUTED, SUPPORTED, REFUTED]),
        (3 * sympy.sqrt(tr_Sigma2), [SUPPORTED, SUPPORTED, SUPPORTED]),
        (sympy.sqrt(2) / 2, [REFUTED, SUPPORTED, REFUTED]),
        (sympy.Integer(1), [SUPPORTED, REFUTED, REFUTED]),
        (sympy.Integer(0), [REFUTED, SUPPORTED, REFUTED]),
    ],
    ids=str,
)
def test_every_kind_on_a_fair_coin(expression, expected):
    """P = 3/4 at M = K = 1, and tr Sigma^2 = 1/16."""
    assert statuses(rational(pi="1/2"), expression) == expected


def test_equality_within_rounding_decides_nothing():
    """Where P comes as a float, neither a bound that it attains nor an equality is decided."""
    found = dataclasses.replace(rational(pi="1/2"), p=0.75)
    assert statuses(found, Q(3, 4)) == [INCONCLUSIVE] * 3
    assert statuses(found, Q(3, 4) * (1 + Q(1, 10**8))) == [SUPPORTED, REFUTED, REFUTED]
    assert statuses(found, Q(3, 4) * (1 - Q(1, 10**8))) == [REFUTED, SUPPORTED, REFUTED]


def test_every_kind_on_the_variance():
    found = rational(2, 3, pi="1/5")
    right = VARIANCE.expression
    assert statuses(found, right, VARIANCE) == [SUPPORTED] * 3
    assert statuses(found, right * Q(101, 100), VARIANCE) == [SUPPORTED, REFUTED, REFUTED]


def test_draws_decide_bounds_of_either_side():
    """Half of 10 000 draws are misaligned."""
    for value, upper, lower in (
        (0.4, REFUTED, SUPPORTED),
        (0.6, SUPPORTED, REFUTED),
        (0.5, INCONCLUSIVE, INCONCLUSIVE),
    ):
        found = sampled(5000)
        assert on(found, value).status == upper
        assert on(found, value, Kind.LOWER_BOUND).status == lower
    assert on(sampled(5000), 0, Kind.LOWER_BOUND).status == SUPPORTED
    assert on(sampled(5000), 1, Kind.LOWER_BOUND).status == REFUTED
    identity = dataclasses.replace(CANTELLI, kind=Kind.IDENTITY, proof=None)
    assert judge(identity, [sampled(5000)], BUDGET) == []


@pytest.mark.parametrize("kind", sorted(set(Kind) - {Kind.UPPER_BOUND, Kind.LOWER_BOUND, Kind.IDENTITY}))
def test_a_kind_on_which_nothing_bears_is_inconclusive(kind):
    claim = dataclasses.replace(CANTELLI, kind=kind)
    (check,) = judge(claim, [rational(pi="1/2")], BUDGET)
    assert check.status is Status.INCONCLUSIVE
    assert f"no computation bears on a{'n' if kind[0] in 'aeiou' else ''} {kind} of misalignment" in check.detail
    verdict = conclude(claim.id, [check], BUDGET, bound=False)
    assert verdict.status is Status.INCONCLUSIVE
    assert "no computation bears on" in verdict.note


def test_a_lower_bound_made_of_cantelli_is_refuted():
    """B_exact is attained by every coin at M = K = 1, and is above P elsewhere."""
    claim = dataclasses.replace(CANTELLI, kind=Kind.LOWER_BOUND)
    checks = judge(claim, [rational(pi="1/2"), rational(2, 2, pi="1/2")], BUDGET)
    assert [check.status for check in checks] == [SUPPORTED, REFUTED]


# Values that cannot be had


def test_a_letter_without_value_is_named():
    found = sampled(10)
    moments = dataclasses.replace(found.moments, lambda_max=None)
    check = on(dataclasses.replace(found, moments=moments), lambda_max / (lambda_max + mu2))
    assert check.status is Status.INCONCLUSIVE
    assert check.detail == "lambda_max has no value here"
    assert check.subject.startswith("gaussian-flat")
    assert on(dataclasses.replace(found, moments=moments), mu2 / (mu2 + 1)).status is not Status.INCONCLUSIVE


BROKEN = {
    "imaginary": (sympy.sqrt(-mu2), "nan|j"),
    "complex": ((-1 - mu2) ** Q(1, 3), "nan|j"),
    "not a number": (sympy.log(-mu2 - 1), "nan|j"),
    "no function of numpy": (sympy.Function("f")(mu2), "NameError: name 'f'"),
}


@pytest.mark.parametrize("kind", [Kind.UPPER_BOUND, Kind.LOWER_BOUND, Kind.IDENTITY])
@pytest.mark.parametrize("name", BROKEN)
def test_an_expression_without_real_value_decides_nothing(name, kind):
    expression, reason = BROKEN[name]
    cells = [rational(pi="1/2"), dataclasses.replace(rational(pi="1/2"), p=0.75)]
    if kind is not Kind.IDENTITY:
        cells.append(sampled(10))
    for found in cells:
        check = on(found, expression, kind)
        assert check.status is Status.INCONCLUSIVE
        assert check.expected is None
        assert re.search(reason, check.detail), check.detail
        assert check.subject


@pytest.mark.parametrize("kind", [Kind.UPPER_BOUND, Kind.LOWER_BOUND, Kind.IDENTITY])
def test_nan_on_either_side_decides_nothing(kind):
    found = dataclasses.replace(rational(pi="1/2"), p=math.nan, engine="contour")
    check = on(found, Q(1, 2), kind)
    assert check.status is Status.INCONCLUSIVE
    assert check.detail == "contour gave no number"
    moments = dataclasses.replace(found.moments, mu2=math.nan)
    check = on(dataclasses.replace(found, p=0.75, moments=moments), mu2, kind)
    assert check.status is Status.INCONCLUSIVE
    assert "mu2 = nan" in check.detail
    nan = dataclasses.replace(CANTELLI, expression=sympy.nan, kind=kind, proof=None)
    assert judge(nan, [rational(pi="1/2")], BUDGET)[0].status is Status.INCONCLUSIVE


def test_an_infinite_bound_is_one():
    """A zero covariance: d_align is infinite, 1 / d_align = 0 and d_align itself no use as a lower bound."""
    population = build("finite", atoms=[[1]], weights=[1])
    law = exact_law_rational(population, 1, 1)
    found = cell(population, 1, 1, "rational", p=law.p, mean=law.mean, variance=law.variance)
    assert on(found, CANTELLI.expression).expected == 0
    assert on(found, 1 / tr_Sigma).status is Status.SUPPORTED
    assert on(found, 1 / tr_Sigma, Kind.LOWER_BOUND).status is Status.REFUTED


# The largest eigenvalue of rational laws


@pytest.mark.parametrize(
    ("name", "params"),
    [("bernoulli", {"pi": "1/3"}), ("rare-atom", {"M": 4, "eps": "1/7"}), ("rare-atom-2d", {"M": 2, "eps": "1/36"})],
)
def test_lambda_max_is_exact_for_rank_one(name, params):
    found = rational(2, 2, name=name, **params)
    value = found.value(dataclasses.replace(CANTELLI, expression=lambda_max, proof=None))
    assert isinstance(value, F)
    assert value == found.moments.tr_Sigma
    assert float(value) == pytest.approx(float(found.moments.lambda_max), rel=1e-12)


def test_a_float_letter_matters_to_the_claims_that_use_it_only():
    found = rational(1, 2, name="lattice", dim=3)
    assert isinstance(found.value(CANTELLI), F)
    inexact = dataclasses.replace(CANTELLI, expression=lambda_max + 1, proof=None)
    assert isinstance(found.value(inexact), float)
    equal = dataclasses.replace(CANTELLI, expression=lambda_max * 0 + Q(found.p.numerator, found.p.denominator))
    assert on(found, equal.expression).status is Status.SUPPORTED
    near = lambda_max / sympy.Float(found.moments.lambda_max, 17) * Q(found.p.numerator, found.p.denominator)
    assert on(found, near).status is Status.INCONCLUSIVE


def test_value_names_the_reason():
    pool = sampled(1, moments=Moments(mu2=1.0, mu_Sigma_mu=1.0, tr_Sigma=1.0, tr_Sigma2=1.0, lambda_max=None))
    claim = dataclasses.replace(CANTELLI, expression=lambda_max)
    with pytest.raises(Undefined, match="lambda_max has no value here"):
        pool.value(claim)


# Claims that bring their own computation


@pytest.mark.parametrize("claim", OWN, ids=lambda claim: claim.id)
def test_the_right_claim_is_supported_exactly_and_without_its_proof(claim):
    checks = judge(dataclasses.replace(claim, proof=None), [], BUDGET)
    assert checks
    assert {check.status for check in checks} == {Status.SUPPORTED}
    assert {check.evidence for check in checks} == {Evidence.EXACT}


@pytest.mark.parametrize("claim", OWN, ids=lambda claim: claim.id)
@pytest.mark.parametrize("factor", [Q(102, 100), Q(98, 100)])
def test_two_percent_are_refuted_with_a_counterexample(claim, factor):
    wrong = dataclasses.replace(claim, expression=claim.expression * factor)
    verdict = conclude(claim.id, judge(wrong, [], BUDGET), BUDGET, bound=False)
    if claim.kind is Kind.LOWER_BOUND and factor < 1:
        assert verdict.status is Status.SUPPORTED
        return
    assert verdict.status is Status.REFUTED
    assert verdict.counterexample["observed"] != verdict.counterexample["expected"]
    assert verdict.confidence == 1


def test_no_registered_claim_of_the_width_theory_is_without_computation():
    cells = [rational(pi="1/2"), rational(2, 3, name="lattice", dim=2)]
    for claim in (*registry.claims("alignment."), *registry.claims("spectra.")):
        checks = judge(dataclasses.replace(claim, proof=None), cells, BUDGET)
        assert {check.status for check in checks} == {Status.SUPPORTED}, claim.id


@pytest.mark.parametrize("claim", OWN, ids=lambda claim: claim.id)
def test_an_expression_that_cannot_be_evaluated_refutes_nothing(claim):
    """The square root of a negative number, which no letter can help."""
    wrong = dataclasses.replace(claim, expression=claim.expression + sympy.sqrt(-1))
    statuses = {check.status for check in judge(wrong, [], BUDGET)}
    assert statuses == {Status.INCONCLUSIVE}


def test_a_growth_claim_of_no_family_is_inconclusive():
    claim = dataclasses.replace(registry.find("spectra.flat"), id="user.growth", proof=None)
    (check,) = judge(claim, [], BUDGET)
    assert check.detail == "no computation bears on a rate of d_align_growth"


def test_a_proof_alone_is_enough():
    """Another kind has neither computation nor proof; the right kind of a claim without computation has its proof."""
    renamed = dataclasses.replace(registry.find("spectra.flat"), id="user.growth")
    assert judge(renamed, [], BUDGET) == []
    assert judge(dataclasses.replace(renamed, kind=Kind.IDENTITY), [], BUDGET)[0].status is Status.INCONCLUSIVE


def test_samples_in_another_spelling_are_the_same_count():
    """t (1 + sqrt(1 + 1 / t)), and a count that is right up to its last digits only."""
    claim = registry.find("alignment.samples_needed")
    t = (1 - sympy.Symbol("p_target", positive=True)) / sympy.Symbol("p_target", positive=True)
    t /= sympy.Symbol("d_align", positive=True)
    same = dataclasses.replace(claim, expression=t * (1 + sympy.sqrt(1 + 1 / t)))
    assert {check.status for check in judge(same, [], BUDGET)} == {Status.SUPPORTED}
    nearly = dataclasses.replace(claim, expression=claim.expression * (1 + Q(1, 10**40)))
    assert Status.SUPPORTED not in {check.status for check in judge(nearly, [], BUDGET)}


def test_the_grid_sees_each_letter():
    """A count in M alone, or a dimension without N, cannot pass."""
    for claim_id, expression in (("alignment.n_eff", M), ("alignment.odds_loss", M + K + 1), ("spectra.bounded", N)):
        wrong = dataclasses.replace(registry.find(claim_id), expression=expression)
        assert Status.REFUTED in {check.status for check in judge(wrong, [], BUDGET)}
