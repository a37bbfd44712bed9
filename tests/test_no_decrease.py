"""A fixed step: the exact law of its gain, the bound of Theorem 2, and wrong bounds that must be caught."""

import dataclasses
import itertools
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rescert.sim.finite_laws import FiniteSupport
from rescert.sim.fixed_step import StepLaws, step_law
from rescert.sim.rng import generator
from rescert.theory.expansion import CLAIM, CLAIMS, FIXED_STEP, GAIN_MEAN, LARGEST_STEP
from rescert.theory.symbols import M, gain_mean, gain_variance
from rescert.verify.bounds import ask, domain, proving
from rescert.verify.bounds.no_decrease import confirm, search
from rescert.verify.bounds.target import Effort


def bound(text, kind=None):
    return ask.bound(text, of="no_decrease", kind=kind)


def brute(law, m, k, eta, L):
    """P(R(-eta mu_M) >= R(0)) for sample losses g . theta + (L/2)|theta|^2, by going through every sample."""
    p = Fraction()
    atoms = list(zip(law.atoms, law.weights, strict=True))
    for train in itertools.product(atoms, repeat=m):
        mean = [sum(a[j] for a, _ in train) / m for j in range(law.dim)]
        theta = [-eta * x for x in mean]
        for test in itertools.product(atoms, repeat=k):
            loss = sum(sum(g * t for g, t in zip(a, theta, strict=True)) for a, _ in test) / k
            loss += L / 2 * sum(t * t for t in theta)
            if loss >= 0:
                weight = Fraction(1)
                for _, w in (*train, *test):
                    weight *= w
                p += weight
    return p


small = st.integers(-3, 3)


@given(
    st.lists(st.tuples(small, small), min_size=2, max_size=3, unique=True),
    st.integers(1, 3),
    st.integers(1, 2),
    st.fractions(0, 3, max_denominator=4),
)
@settings(max_examples=40, deadline=None)
def test_the_law_of_the_gain_is_that_of_the_loss_itself(atoms, m, k, c):
    law = FiniteSupport([list(a) for a in atoms], [Fraction(1, len(atoms))] * len(atoms))
    eta, L = Fraction(1, 2), 4 * c
    known = step_law(law, m, k, c)
    assert known.p == brute(law, m, k, eta, L)
    if law.moments.mu2:
        letters = {"mu2": law.moments.mu2, "tr_Sigma": law.moments.tr_Sigma, "M": m, "eta": eta, "L_smooth": L}
        expected = GAIN_MEAN.subs(
            {symbol: letters[symbol.name] for symbol in GAIN_MEAN.free_symbols | {M} if symbol.name in letters}
        )
        assert Fraction(int(expected.p), int(expected.q)) == known.mean
        if known.variance and known.mean > 0:
            assert known.p <= known.variance / (known.variance + known.mean**2)


def test_one_enumeration_serves_steps_beyond_64_bits():
    law = FiniteSupport([["1/3", 1], [-2, "1/2"]], ["9/10", "1/10"])
    shared = StepLaws(law, 2, 1)
    for c in (Fraction(0), Fraction(1, 7), Fraction(10**40 + 1, 10**40)):
        assert shared.at(c).p == brute(law, 2, 1, Fraction(1, 2), 4 * c)


def test_the_gain_of_a_fair_coin_is_known():
    # M = K = 1, q fair in {0, 1}: Y is 1 - c or -c at u = 1 and 0 at u = 0.
    known = step_law(FiniteSupport([[1], [0]], ["1/2", "1/2"]), 1, 1, Fraction(1, 2))
    assert (known.p, known.mean, known.variance) == (Fraction(3, 4), 0, Fraction(1, 8))
    assert step_law(FiniteSupport([[1], [0]], ["1/2", "1/2"]), 1, 1, Fraction(1)).p == 1


@pytest.mark.parametrize(("m", "c", "match"), [(0, 1, "M must be an integer >= 1"), (1, -1, "c = eta L / 2")])
def test_a_step_that_is_none_is_refused(m, c, match):
    with pytest.raises(ValueError, match=match):
        step_law(FiniteSupport([[1], [0]], ["1/2", "1/2"]), m, 1, Fraction(c))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_every_step_of_the_proofs_holds_and_a_wrong_expression_fails(claim):
    assert claim.prove().holds
    assert not dataclasses.replace(claim, expression=claim.expression / 2).prove().holds


def test_the_proof_covers_steps_that_lose_on_average():
    without_sign = gain_variance / (gain_variance + gain_mean**2)
    failed = dataclasses.replace(CLAIM, expression=without_sign).prove().failures
    assert [step.text for step in failed] == ["and for E Y = -z <= 0 it says nothing"]


@given(*(st.fractions(Fraction(1, 9), 9, max_denominator=9) for _ in range(4)), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_the_largest_step_is_where_the_mean_gain_vanishes(mu2, trace, L, share, m):
    letters = {"mu2": mu2, "tr_Sigma": trace, "L_smooth": L, "M": m}
    largest = next(c for c in CLAIMS if c.expression == LARGEST_STEP).exact(**letters)
    gain = next(c for c in CLAIMS if c.expression == GAIN_MEAN).exact(**letters, eta=largest * share)
    assert (gain > 0, gain == 0) == (share < 1, share == 1)


def test_the_points_of_gaussian_laws_have_the_moments_of_the_gain():
    p = domain.step_points(generator(0, "points"), 40)
    rng = np.random.default_rng(1)
    chosen = [i for i in range(len(p["M"])) if p["N"][i] == 1 and p["M"][i] <= 4 and p["K"][i] <= 1000][:4]
    assert chosen
    for i in chosen:
        mean, sd = np.sqrt(p["mu2"][i]), np.sqrt(p["tr_Sigma"][i])
        u = rng.normal(mean, sd / np.sqrt(p["M"][i]), 400_000)
        v = rng.normal(mean, sd / np.sqrt(p["K"][i]), 400_000)
        y = u * v - p["eta"][i] * p["L_smooth"][i] / 2 * u**2
        assert abs(y.mean() - p["gain_mean"][i]) < 6 * y.std() / np.sqrt(len(y))
        assert y.var() == pytest.approx(p["gain_variance"][i], rel=0.05)


WRONG = {
    "alignment alone": "1/(1 + n_eff*d_align)",
    "Cantelli without its sign": "gain_variance/(gain_variance + gain_mean**2)",
    "Chebyshev without its sign": "min(1, gain_variance/gain_mean**2)",
    "half of it": "gain_variance/(gain_variance + max(gain_mean, 0)**2)/2",
    "a step without curvature": "gain_variance/(gain_variance + mu2**2)",
    "exponential": "exp(-max(gain_mean, 0)**2/(2*gain_variance))",
    "certainty minus alignment": "1 - mu2**2/(mu2**2 + max(mu_Sigma_mu, tr_Sigma2))",
    "a curvature that is forgotten": "gain_variance/(gain_variance + max(mu2 - eta/2*(mu2 + tr_Sigma/M), 0)**2)",
    "Sigma for a mean of M": "gain_variance/(gain_variance + max(mu2 - eta*L_smooth/2*mu2, 0)**2)",
    "K for M": "gain_variance/(gain_variance + max(mu2 - eta*L_smooth/2*(mu2 + tr_Sigma/K), 0)**2)",
    "wrong from M = 32 on": "gain_variance/(gain_variance + max(gain_mean, 0)**2)*min(1, 32/(M + 1))",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_wrong_bound_gets_a_counterexample_that_brute_force_confirms(text):
    start = time.monotonic()
    claim = bound(text)
    assert not (decision := proving.decide(claim)) or not decision.proved
    found = search(claim, Effort()).counterexample
    assert found is not None
    assert time.monotonic() - start < 20
    where = found.where
    law = (
        FiniteSupport(where["population"]["atoms"], where["population"]["weights"])
        if "atoms" in where["population"]
        else None
    )
    if law is not None and where["M"] * where["K"] <= 4:
        eta, L = Fraction(where["eta"]), Fraction(where["L_smooth"])
        p = brute(law, where["M"], where["K"], eta, L)
        assert str(p) == found.observed
    assert confirm(claim, where) == found
    assert confirm(bound("gain_variance/(gain_variance + max(gain_mean, 0)**2)"), where) is None


TRUE = {
    "the claim itself": "gain_variance/(gain_variance + max(gain_mean, 0)**2)",
    "its odds": "min(1, gain_variance/max(gain_mean, 0)**2)",
    "its root": "sqrt(gain_variance/(gain_variance + max(gain_mean, 0)**2))",
}


@pytest.mark.parametrize("text", TRUE.values(), ids=TRUE)
def test_a_true_bound_is_proved_and_never_refuted(text):
    claim = bound(text)
    decision = proving.decide(claim)
    assert decision is not None
    assert decision.proved
    for seed in range(2):
        found = search(claim, Effort(seed=seed))
        assert found.counterexample is None
        assert found.tightest.ratio(claim.kind) <= 1 + 1e-12


def test_the_claim_is_attained():
    assert search(CLAIM, Effort()).tightest.ratio(CLAIM.kind) == pytest.approx(1)


def test_the_same_seed_gives_the_same_counterexample():
    claim = bound(WRONG["alignment alone"])
    assert search(claim, Effort(seed=3)).counterexample == search(claim, Effort(seed=3)).counterexample


@pytest.mark.parametrize("where", [{}, {"population": {"name": "bernoulli"}, "M": 1}])
def test_a_case_that_is_none_is_refused(where):
    with pytest.raises(ValueError, match="expected 'population'"):
        confirm(CLAIM, where)


COIN = {"population": {"name": "bernoulli", "pi": "1/2"}, "M": 1, "K": 1, "eta": "1", "L_smooth": "1"}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"eta": "-1", "L_smooth": "-1"}, "must be positive, got -1 and -1"),
        ({"eta": "0"}, "must be positive"),
        ({"eta": "1/0"}, "no rational number"),
        ({"M": 0}, "M must be an integer >= 1"),
        ({"M": 1.5}, "M must be an integer >= 1"),
        ({"M": 5000, "K": 5000}, "pairs of sums"),
    ],
)
def test_a_stored_case_outside_the_theorem_is_refused(change, match):
    with pytest.raises(ValueError, match=match):
        confirm(bound("gain_variance"), COIN | change)


@pytest.mark.parametrize("atoms", [[["1"]], [["1"], ["-1"]]], ids=["no variance", "no mean"])
def test_nothing_is_refuted_where_nothing_is_claimed(atoms):
    law = {"name": "finite", "atoms": atoms, "weights": [str(Fraction(1, len(atoms)))] * len(atoms)}
    assert confirm(bound("0*M"), COIN | {"population": law, "eta": "3"}) is None


def test_a_search_without_time_says_so():
    found = search(dataclasses.replace(CLAIM, expression=FIXED_STEP), Effort(seconds=0.0))
    assert not found.finished
    assert found.counterexample is None
