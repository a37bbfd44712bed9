"""Norm deviations: exact tails against brute force, McDiarmid's bound, and wrong ones that must be caught."""

import itertools
import math
import time
from fractions import Fraction

import pytest
from rescert.sim.deviation import Signs, Simplex
from rescert.theory.consistency import CLAIM
from rescert.verify.bounds import ask, proving
from rescert.verify.bounds.cross_gradient import confirm, search
from rescert.verify.bounds.target import Effort


def bound(text):
    return ask.bound(text, of="cross_gradient_error")


def brute(values, weights, n):
    """The tail of the squared deviation of a mean, by going through every sample of n vectors."""
    dim = range(len(values[0]))
    mean = [sum(w * v[j] for v, w in zip(values, weights, strict=True)) for j in dim]
    law = {}
    for sample in itertools.product(range(len(values)), repeat=n):
        weight = Fraction(1)
        for i in sample:
            weight *= weights[i]
        square = sum((sum(values[i][j] for i in sample) / Fraction(n) - mean[j]) ** 2 for j in dim)
        law[square] = law.get(square, 0) + weight
    tail, total = [], Fraction()
    for square in sorted(law, reverse=True):
        total += law[square]
        tail.append((square, total))
    return tuple(tail)


@pytest.mark.parametrize(("p", "n"), [(Fraction(1, 2), 1), (Fraction(1, 5), 4), (Fraction(1, 100), 6)])
def test_signs_against_brute_force(p, n):
    assert Signs(p=p, n=n).tail == brute([(1,), (-1,)], [p, 1 - p], n)


@pytest.mark.parametrize(("d", "n"), [(2, 1), (2, 5), (3, 4), (5, 3)])
def test_the_simplex_against_brute_force(d, n):
    atoms = [tuple(int(i == j) for j in range(d)) for i in range(d)]
    assert Simplex(d=d, n=n).tail == brute(atoms, [Fraction(1, d)] * d, n)


def test_all_samples_alike_is_the_largest_deviation_of_a_coin():
    assert Signs(p=Fraction(1, 2), n=10).tail[0] == (1, Fraction(1, 2**9))


@pytest.mark.parametrize(
    ("law", "match"),
    [
        (lambda: Signs(p=Fraction(-3), n=1), "p must be between 0 and 1, got -3"),
        (lambda: Signs(p=Fraction(1, 2), n=0), "n must be an integer >= 1"),
        (lambda: Signs(p=Fraction(1, 2), n=10**6), "above the 2000"),
        (lambda: Simplex(d=0, n=1), "d must be an integer >= 1"),
        (lambda: Simplex(d=2, n=1000), "above the 40"),
    ],
)
def test_a_law_that_is_none_is_refused(law, match):
    with pytest.raises(ValueError, match=match):
        law()


@pytest.mark.parametrize("law", [Signs(p=Fraction(1, 20), n=50), Simplex(d=10_000, n=20), Simplex(d=3, n=20)])
def test_a_tail_ends_at_one_and_the_mean_square_is_known(law):
    squares, tails = zip(*law.tail, strict=True)
    assert tails[-1] == 1
    weights = [tails[0], *(b - a for a, b in itertools.pairwise(tails))]
    variance = 4 * law.p * (1 - law.p) if isinstance(law, Signs) else 1 - Fraction(1, law.d)
    assert sum(s * w for s, w in zip(squares, weights, strict=True)) == variance / law.n


WRONG = {
    "scalar Hoeffding for the norm": "B/sqrt(n)*sqrt(log(1/delta)/2)",
    "no expected norm, half the variance": "B*sqrt(log(1/delta)/n)",
    "no expected norm": "B*sqrt(2*log(1/delta)/n)",
    "n for its root": "B/n*(1 + sqrt(2*log(1/delta)))",
    "no delta": "2*B/sqrt(n)",
    "half of McDiarmid": "B/sqrt(n)*(1 + sqrt(2*log(1/delta)))/2",
    "three quarters of McDiarmid": "0.75*B/sqrt(n)*(1 + sqrt(2*log(1/delta)))",
    "nine tenths of McDiarmid": "0.9*B/sqrt(n)*(1 + sqrt(2*log(1/delta)))",
    "nine tenths of the expected norm": "B/sqrt(n)*(0.9 + sqrt(2*log(1/delta)))",
    "no factor 2": "B/sqrt(n)*(1 + sqrt(log(1/delta)))",
    "3/2 for the factor 2": "B/sqrt(n)*(1 + sqrt(1.5*log(1/delta)))",
    "n twice": "B/sqrt(n)*(1 + sqrt(2*log(1/delta)/n))",
    "Bernstein without a variance": "B/sqrt(n) + B*log(1/delta)/n",
    "Chebyshev-Cantelli for the norm": "B*sqrt((1 - delta)/(n*delta))",
    "B^2": "B**2/sqrt(n)*(1 + sqrt(2*log(1/delta)))",
    "delta for its logarithm": "B/sqrt(n)*(1 + sqrt(2*(1 - delta)))",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_wrong_bound_gets_a_confirmed_counterexample(text):
    start = time.monotonic()
    claim = bound(text)
    assert proving.decide_deviation(claim) is None
    found = search(claim, Effort()).counterexample
    assert found is not None
    assert time.monotonic() - start < 20
    assert confirm(claim, found.where) == found
    assert confirm(CLAIM, found.where) is None
    n, B, delta = found.where["n"], Fraction(found.where["B"]), Fraction(found.where["delta"])
    if "p" in found.where and n <= 8:
        tail = brute([(1,), (-1,)], [Fraction(found.where["p"]), 1 - Fraction(found.where["p"])], n)
        t = claim.numeric()(n_samples=n, B_norm=float(B), delta=float(delta))
        assert max(w for s, w in tail if float(s * B**2) ** 0.5 >= t) > delta


TRUE = {
    "McDiarmid": ("B/sqrt(n)*(1 + sqrt(2*log(1/delta)))", True),
    "twice McDiarmid": ("2*B/sqrt(n)*(1 + sqrt(2*log(1/delta)))", True),
    "McDiarmid and more": ("B/sqrt(n)*(1 + sqrt(2*log(1/delta))) + B/n", True),
    "Chebyshev": ("B/sqrt(n*delta)", False),
    "Pinelis": ("2*B*sqrt(2*log(2/delta)/n)", False),
    "Bernstein with the largest variance": ("4*B*log(2/delta)/n + B*sqrt(2*log(2/delta)/n)", False),
    "the diameter": ("2*B", False),
}


@pytest.mark.parametrize(("text", "proved"), TRUE.values(), ids=TRUE)
def test_a_true_bound_is_never_refuted(text, proved):
    claim = bound(text)
    decision = proving.decide_deviation(claim)
    assert (decision is not None and decision.proved) == proved
    found = search(claim, Effort())
    assert found.counterexample is None
    assert found.tightest.ratio(claim.kind) <= 1 + 1e-12
    assert not found.undecided


WITHOUT_EXPECTED_NORM = "B*sqrt(2*log(1/delta)/n)"


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_without_the_expected_norm_a_coin_refutes_for_n_2_and_3_at_small_delta(n):
    # n samples are alike with probability 2^(1-n); the bound is below that deviation of B from exp(-n/2) on.
    chance, level = Fraction(1, 2 ** (n - 1)), Fraction(math.exp(-n / 2)).limit_denominator(10**6)
    claim = bound(WITHOUT_EXPECTED_NORM)
    for delta in (level + Fraction(1, 1000), level - Fraction(1, 1000)):
        found = confirm(claim, {"p": "1/2", "n": n, "B": "1", "delta": str(delta)})
        # n = 1 has one atom, of probability 1; n >= 4 is too seldom alike.
        assert (found is not None) == (level < delta < chance)


def test_reaching_the_bound_is_a_violation():
    where = {"p": "1/2", "n": 1, "B": "1", "delta": "9/10"}
    assert confirm(bound("B"), where) is not None
    assert confirm(bound("B + B/10**30"), where) is None


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"p": "-3"}, "p must be between 0 and 1"),
        ({"p": "1/0"}, "no rational number"),
        ({"B": "-1"}, "B must be positive"),
        ({"delta": "1"}, "delta between 0 and 1"),
        ({"n": 0}, "n must be an integer >= 1"),
        ({"n": 1.5}, "n must be an integer >= 1"),
    ],
)
def test_a_stored_case_outside_the_claim_is_refused(change, match):
    with pytest.raises(ValueError, match=match):
        confirm(CLAIM, {"p": "1/2", "n": 1, "B": "1", "delta": "1/2"} | change)


@pytest.mark.parametrize("where", [{}, {"p": "1/2", "n": 3}])
def test_a_case_that_is_none_is_refused(where):
    with pytest.raises(ValueError, match="expected 'p' or 'd'"):
        confirm(CLAIM, where)
