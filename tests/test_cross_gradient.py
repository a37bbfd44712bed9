"""Norm deviations: exact tails against brute force, McDiarmid's bound, and wrong ones that must be caught."""

import itertools
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


@pytest.mark.parametrize("where", [{}, {"p": "1/2", "n": 3}])
def test_a_case_that_is_none_is_refused(where):
    with pytest.raises(ValueError, match="expected 'p' or 'd'"):
        confirm(CLAIM, where)
