"""Wrong bounds on the misalignment, each to be refuted, and true ones, never to be; an independent judge decides."""

import time

import pytest
import sympy
from bound_claims import breaks, by_variance, claim, only_from
from rescert.sim.rng import generator
from rescert.theory.alignment import B_ALIGN, B_EXACT, VARIANCE
from rescert.theory.claims import Kind
from rescert.theory.symbols import (
    K,
    M,
    N,
    d_2,
    d_align,
    d_par,
    lambda_max,
    mu2,
    n_eff,
    tr_Sigma,
    tr_Sigma2,
)
from rescert.verify.bounds import laws, stages
from rescert.verify.bounds.misalignment import search
from rescert.verify.bounds.target import Effort
from sympy import Abs, Max, Min, Rational, erf, exp, sqrt

W1 = 1 / (1 + M * K / (M + K) * d_align)
W9 = by_variance(1 / M + 1 / K, 1 / (M * (K + 1)))


def normal_cdf(x):
    return (1 + erf(x / sqrt(2))) / 2


def lemma(n_eff, d=d_align):
    return 1 / (1 + n_eff * d)


QUICK = {
    "W1: n_eff = MK/(M+K)": W1,
    "W4: exponential": exp(-n_eff * d_align / 2),
    "W6: tr(S^2) as tr(S)^2/N": by_variance(1 / M + 1 / K, tr_Sigma**2 / tr_Sigma2 / (N * M * K)),
    "S1: W1 from M = K = 64 on": only_from(64, W1, B_ALIGN),
}
WRONG = {
    "W2: without tr(S^2)": by_variance(1 / M + 1 / K, 0),
    "W3: max instead of min": lemma(n_eff, Max(d_par, d_2)),
    "swapped roles: only 1/M": by_variance(2 / M, 1 / (M * K)),
    "units: |mu|^2 for d": lemma(n_eff, mu2),
    "W5: n_eff = min(M,K)/2": lemma(Min(M, K) / 2),
    "W7: unimodal factor": Rational(4, 9) * B_EXACT,
    "W9: M(K+1)": W9,
    "constant .99": Rational(99, 100) * B_EXACT,
    "constant .999 of B_align": 0.999 * B_ALIGN,
    "relative 1e-6": (1 - Rational(1, 10**6)) * B_EXACT,
    "relative 1e-12": (1 - Rational(1, 10**12)) * B_EXACT,
    "power: d^2": lemma(n_eff, d_align**2),
    "power: sqrt of the product": lemma(1, sqrt(n_eff * d_align)),
    "power 1.001": B_EXACT ** Rational(1001, 1000),
    "swapped roles: M*M": by_variance(1 / M + 1 / K, 1 / M**2),
    "swapped roles: K for M": by_variance(1 / K, 1 / (M * K)),
    "singular covariance only": B_EXACT * (1 - (1 - tr_Sigma**2 / (N * tr_Sigma2)) / 50),
    "regular covariance only": B_EXACT * (1 - (tr_Sigma**2 / tr_Sigma2 - 1) / (20 * N)),
    "rank two: largest eigenvalue": by_variance(1 / M + 1 / K, lambda_max**2 / tr_Sigma2 / (M * K)),
    "largest eigenvalue instead of mu'Sigma mu": (1 / M + 1 / K) * lambda_max / ((1 / M + 1 / K) * lambda_max + mu2),
    "from M = 8 on": B_EXACT * only_from(8, Rational(99, 100), 1),
    "from M = 32 on": B_EXACT * only_from(32, Rational(999, 1000), 1),
    "at M = 37 only": B_EXACT * (1 - Max(0, 1 - Abs(M - 37)) / 50),
    "N >= 2 only": B_EXACT * (1 - Min(1, N - 1) / 100),
    "N >= 3 only": B_EXACT * (1 - Min(1, Max(0, N - 2)) / 100),
    "near 1 only": Min(B_EXACT, Rational(999, 1000)),
    "near 0 only": Max(B_EXACT - Rational(1, 10**5), 0),
    "Chernoff": exp(-(mu2**2) / (2 * VARIANCE)),
    "normal tail": normal_cdf(-mu2 / sqrt(VARIANCE)),
    "wrong units: variance over mean": VARIANCE / (VARIANCE + mu2),
    "units: trace": (1 / M + 1 / K) * tr_Sigma / ((1 / M + 1 / K) * tr_Sigma + sqrt(mu2)),
    "N for n_eff": lemma(N * n_eff),
    "a constant": Rational(9, 10),
    "harmonic and a half": lemma(M * K / (M + K + Rational(1, 2))),
    "geometric mean": lemma(sqrt(M * K) / 2),
    "d_par alone": lemma(n_eff, d_par),
    "d_2 alone, no n": 1 / (1 + M * K * d_2),
    **{f"S1: W1 from M = K = {m} on": only_from(m, W1, B_ALIGN) for m in (4, 8, 16)},
    **{f"W9 from M = K = {m} on": only_from(m, W9, B_EXACT) for m in (4, 8, 16)},
    **{f"W5 from M = K = {m} on": only_from(m, lemma(Min(M, K) / 2), B_ALIGN) for m in (4, 64)},
    **{f"W7 from M = K = {m} on": only_from(m, Rational(4, 9) * B_EXACT, B_EXACT) for m in (16, 64)},
}
LOWER = {
    "positive everywhere": 1 / (100 * M * K),
    "a tenth of B_exact": B_EXACT / 10,
    "positive where d is small": Max(0, 1 - 4 * n_eff * d_align),
    "positive where d_2 is small": Max(0, 1 - d_2 / 100) / 1000,
    "normal tail": normal_cdf(-mu2 / sqrt(VARIANCE)) / 100,
}
IDENTITIES = {"P = B_exact": B_EXACT, "P = normal tail": normal_cdf(-mu2 / sqrt(VARIANCE))}

TRUE = {
    "B_exact": B_EXACT,
    "B_align": B_ALIGN,
    "n_eff a little less": lemma(M * K / (M + K + Rational(11, 10))),
    "half of d": lemma(n_eff, d_align / 2),
    "B_exact to a smaller power": B_EXACT ** Rational(999, 1000),
    "twice B_exact, capped": Min(1, 2 * B_EXACT),
    "Chebyshev": VARIANCE / mu2**2,
    "B_exact and a normal tail": B_EXACT + normal_cdf(-mu2 / sqrt(VARIANCE)) / 1000,
    "half way to 1": (1 + B_EXACT) / 2,
    "exponential above": 1 - exp(-1 / (n_eff * d_align)),
    "trace for tr(S^2)": by_variance(1 / M + 1 / K, tr_Sigma**2 / tr_Sigma2 / (M * K)),
    "largest eigenvalue": 1 - mu2**2 / (mu2**2 + (1 / M + 1 / K) * lambda_max * mu2 + lambda_max * tr_Sigma / (M * K)),
    "larger of two": Max(B_EXACT, normal_cdf(-mu2 / sqrt(VARIANCE))),
    "logarithm": sympy.log(1 + 2 * B_EXACT) / sympy.log(3) + B_EXACT / 50,
    "N times B_exact": N * B_EXACT,
}
TRUE_LOWER = {"zero": sympy.Integer(0), "negative": B_EXACT - 1, "below B_exact - 1": -B_ALIGN}


def refuted(expression, kind=Kind.UPPER_BOUND, seconds=60.0):
    wrong = claim(expression, kind)
    began = time.monotonic()
    found = search(wrong, Effort(seconds=seconds, workers=2))
    assert found.counterexample is not None
    assert time.monotonic() - began < seconds
    assert breaks(wrong, found.counterexample.where)
    assert found.counterexample.confirmed.startswith("exact fractions")
    return found


@pytest.mark.parametrize("name", QUICK)
def test_wrong_bound_is_refuted(name):
    refuted(QUICK[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_wrong_or_subtle_bound_is_refuted(name):
    refuted(WRONG[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", LOWER)
def test_wrong_lower_bound_is_refuted(name):
    refuted(LOWER[name], Kind.LOWER_BOUND)


@pytest.mark.slow
@pytest.mark.parametrize("name", IDENTITIES)
def test_wrong_identity_is_refuted(name):
    refuted(IDENTITIES[name], Kind.IDENTITY)


def test_the_zoo_is_large_enough():
    assert len(QUICK) + len(WRONG) + len(LOWER) + len(IDENTITIES) >= 24
    assert len(TRUE) + len(TRUE_LOWER) >= 12


CALM = [(name, expression, Kind.UPPER_BOUND) for name, expression in TRUE.items()]
CALM += [(name, expression, Kind.LOWER_BOUND) for name, expression in TRUE_LOWER.items()]


def units(seed):
    """A little of every seeded stage."""
    rng = generator(seed, "test")
    m = int(rng.choice((1, 2, 3, 4, 8)))
    pair = {"atoms": [["1", "0"], [str(1 - m), str(int(rng.integers(0, 40)))]], "weights": ["99/100", "1/100"]}
    places = [laws.heavy()[int(rng.integers(120))], laws.pools(seed)[int(rng.integers(48))]]
    sampled = [("sampled laws", {"places": places, "tests": 2})] if seed % 4 == 0 else []
    return [
        ("random laws", {"index": 0, "examples": 8}),
        ("refined pairs", {"starts": [pair], "size": (m, m), "rounds": 3}),
        ("climbed", {"index": 0, "start": {"population": {"name": "finite", **pair}, "M": m, "K": m}, "steps": 15}),
        *sampled,
    ]


def assert_calm(true, seeds):
    for seed in seeds:
        for unit in units(seed):
            assert stages.run(true, seed, unit).violation is None, (seed, unit)


@pytest.mark.parametrize(("name", "expression", "kind"), CALM)
def test_true_bound_is_not_refuted_on_a_few_seeds(name, expression, kind):
    assert_calm(claim(expression, kind), range(2))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expression", "kind"), CALM)
def test_true_bound_is_never_refuted_on_200_seeds(name, expression, kind):
    assert_calm(claim(expression, kind), range(200))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expression", "kind"), CALM)
def test_true_bound_survives_the_whole_search(name, expression, kind):
    found = search(claim(expression, kind), Effort(seconds=30.0, workers=2))
    assert found.counterexample is None
    assert found.tightest is None or found.tightest.ratio(kind) <= 1
    assert not [reason for reason in found.undecided if "violation" in reason]
