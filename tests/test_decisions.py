"""Decisions: e-processes against brute force, error rates under every look, and the combination of checks."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rescert.verify.decisions import (
    Check,
    ErrorBudget,
    Evidence,
    Status,
    clopper_pearson,
    conclude,
    decide_equal,
    decide_upper_bound,
    log_e_values,
)
from scipy import integrate

BUDGET = ErrorBudget(alpha=0.05)


@pytest.mark.parametrize(("hits", "trials", "bound"), [(0, 5, 0.3), (3, 10, 0.2), (9, 12, 0.75), (7, 7, 0.9)])
def test_e_values_are_the_mixture_integrals(hits, trials, bound):
    def beta_density(theta):
        return 1 / (math.pi * math.sqrt(theta * (1 - theta)))

    def ratio(theta):
        return (theta / bound) ** hits * ((1 - theta) / (1 - bound)) ** (trials - hits) * beta_density(theta)

    for found, (low, high) in zip(log_e_values(hits, trials, bound), ((bound, 1), (0, bound)), strict=True):
        top = integrate.quad(ratio, low, high, limit=400)[0]
        mass = integrate.quad(beta_density, low, high, limit=400)[0]
        assert math.exp(found) == pytest.approx(top / mass, rel=1e-6)


@given(bound=st.floats(0.01, 0.99), trials=st.integers(1, 12))
def test_e_values_have_mean_one_at_the_bound(bound, trials):
    weights = [math.comb(trials, k) * bound**k * (1 - bound) ** (trials - k) for k in range(trials + 1)]
    for side in (0, 1):
        mean = math.fsum(w * math.exp(log_e_values(k, trials, bound)[side]) for k, w in enumerate(weights))
        assert mean == pytest.approx(1, rel=1e-7)


@given(bound=st.floats(0.05, 0.95), shares=st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_fractional_outcomes_never_exceed_the_chord(bound, shares):
    """x -> a^x b^(1-x) is convex: an outcome in [0, 1] counts for no more than the coin flip with its mean."""
    mixed = log_e_values(sum(shares), len(shares), bound)
    chord = np.zeros(2)
    for flips in np.ndindex(*(2,) * len(shares)):
        weight = math.prod(s if f else 1 - s for s, f in zip(shares, flips, strict=True))
        chord += weight * np.exp(log_e_values(sum(flips), len(flips), bound))
    assert np.all(np.exp(mixed) <= chord * (1 + 1e-9))


def test_looking_after_every_draw_keeps_the_error_rate():
    """True probability at the bound: both wrong answers together stay below alpha each (400 repeats, 5 sigma)."""
    rng, wrong, repeats = np.random.default_rng(1), 0, 400
    for _ in range(repeats):
        hits = np.cumsum(rng.random(600) < 0.2)
        looks = (decide_upper_bound(int(s), n, 0.2, BUDGET) for n, s in enumerate(hits, start=1))
        wrong += any(status is Status.REFUTED for status in looks)
    assert wrong / repeats <= BUDGET.alpha + 5 * math.sqrt(BUDGET.alpha / repeats)


@pytest.mark.parametrize(("p", "expected"), [(0.05, Status.SUPPORTED), (0.2, Status.REFUTED)])
def test_decisions_have_power(p, expected):
    hits = np.random.default_rng(0).binomial(2000, p)
    assert decide_upper_bound(int(hits), 2000, 0.1, ErrorBudget(alpha=1e-6, tests=100)) is expected


def test_equality_is_inconclusive_not_a_pass():
    assert decide_upper_bound(100_000, 1_000_000, 0.1, BUDGET) is Status.INCONCLUSIVE


@pytest.mark.parametrize(
    ("hits", "bound", "expected"),
    [(3, 1.0, Status.SUPPORTED), (3, 0.0, Status.REFUTED), (0, 0.0, Status.INCONCLUSIVE), (3, -0.5, Status.REFUTED)],
)
def test_bounds_outside_the_open_interval(hits, bound, expected):
    assert decide_upper_bound(hits, 10, bound, BUDGET) is expected


def test_huge_counts_do_not_overflow():
    violation, passing = log_e_values(0, 10**9, 0.5)
    assert violation == -math.inf
    assert passing > 1e8


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [(1.0, Status.SUPPORTED), (1.05, Status.REFUTED), (0.95, Status.REFUTED), (1.01, Status.INCONCLUSIVE)],
)
def test_equal_within_a_declared_tolerance(estimate, expected):
    assert decide_equal(estimate, 0.001, 1.0, tolerance=0.01, budget=BUDGET) is expected


def test_equal_needs_finite_numbers():
    assert decide_equal(math.nan, 0.1, 1.0, tolerance=0.01, budget=BUDGET) is Status.INCONCLUSIVE


def test_interval_of_zero_hits():
    low, high = clopper_pearson(0, 100)
    assert low == 0
    assert high == pytest.approx(1 - 0.025 ** (1 / 100))


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 1\), got 1.5"):
        ErrorBudget(alpha=1.5)
    with pytest.raises(ValueError, match="tests must be at least 1, got 0"):
        ErrorBudget(tests=0)
    with pytest.raises(ValueError, match="got 5 of 3"):
        log_e_values(5, 3, 0.5)
    with pytest.raises(ValueError, match="bound must lie in"):
        log_e_values(1, 3, 1.0)


def _check(status, evidence=Evidence.EXACT, *, M=1, ratio=0.5):
    return Check(
        claim="c", evidence=evidence, status=status, subject=f"M={M}", observed=ratio, expected=1.0, where={"M": M}
    )


def test_one_refutation_beats_a_proof_and_the_smallest_exact_one_is_shown():
    proof = Check(claim="c", evidence=Evidence.SYMBOLIC, status=Status.PROVED, subject="proof")
    checks = [
        proof,
        _check(Status.REFUTED, Evidence.SIMULATION, M=1),
        _check(Status.REFUTED, M=8),
        _check(Status.REFUTED, M=2),
    ]
    verdict = conclude("c", checks, BUDGET, bound=True)
    assert verdict.status is Status.REFUTED
    assert verdict.counterexample["M"] == 2
    assert verdict.confidence == 1.0


def test_undecided_cells_are_said():
    supported, undecided = _check(Status.SUPPORTED), _check(Status.INCONCLUSIVE, Evidence.SIMULATION, ratio=0.9)
    proof = Check(claim="c", evidence=Evidence.SYMBOLIC, status=Status.PROVED, subject="proof")
    open_verdict = conclude("c", [supported, undecided], BUDGET, bound=True)
    assert open_verdict.status is Status.INCONCLUSIVE
    assert "1 of 2 checks undecided" in open_verdict.note
    proved = conclude("c", [proof, supported, undecided], BUDGET, bound=True)
    assert proved.status is Status.PROVED
    assert proved.confidence == BUDGET.confidence
    assert proved.tightness == {"ratio": 0.9, "subject": "M=1"}
    assert proved.tried == {
        "symbolic": {"PROVED": 1},
        "exact": {"SUPPORTED": 1},
        "simulation": {"INCONCLUSIVE": 1},
    }


def test_nothing_tried_is_not_support():
    assert conclude("c", [], BUDGET, bound=False).status is Status.INCONCLUSIVE
