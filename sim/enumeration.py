"""P(u . v <= 0) of a finite law, by enumerating how often each atom occurs: no sampling error, no misjudged tie."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.stats import binom

from .finite_laws import FiniteSupport
from .laws import Number, Vector
from .normals import row_blocks


@dataclass(frozen=True, kw_only=True)
class ExactLaw:
    """The law of X = u . v in three numbers, with u and v means of M and K independent gradients.

    Attributes:
        p: P(X <= 0); ties count as misaligned.
        mean: E X, from the enumeration and not from a formula.
        variance: Var X, likewise.
        outcomes: Pairs of distinct values of (u, v) that were visited.
    """

    p: Number
    mean: Number
    variance: Number
    outcomes: int


def require_counts(where: str, **counts: int) -> None:
    """Check that M, K, trials... are integers >= 1.

    Raises:
        ValueError: If one is not, naming it.
    """
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{where}: {name} must be an integer >= 1, got {value!r}.")


def exact_law(population: FiniteSupport, M: int, K: int, *, max_outcomes: int = 10**9) -> ExactLaw:
    r"""Enumerate the law of X in float64.

    With s atoms, u takes C(M+s-1, s-1) values. Their products with the values of v are one GEMM of exactly represented
    integers (atoms over their common denominator, checked below 2^53), so the sign of X is exact; only the
    probabilities are rounded (relative error about 1e-13). Memory is bounded by blocks. Source: [width] spec, A6.

    Raises:
        ValueError: If M or K < 1, if there are more than ``max_outcomes`` outcomes, or if integers would be inexact.
    """
    require_counts("exact_law", M=M, K=K)
    population.require_exact(M, K)
    _refuse(_compositions(M, population) + _compositions(K, population), 2 * 10**7, "count vectors", population, M, K)
    U, p = _sums(population, M)
    V, r = (U, p) if K == M else _sums(population, K)
    outcomes = len(p) * len(r)
    _refuse(outcomes, max_outcomes, "outcomes", population, M, K)

    unit = 1 / (M * K * population.denominator**2)
    mean = float((p @ U) @ (r @ V))
    hit = variance = 0.0
    for rows in row_blocks(len(p), len(r)):
        X = U[rows] @ V.T
        hit += float(p[rows] @ ((X <= 0) @ r))
        X -= mean
        variance += float(p[rows] @ (np.square(X, out=X) @ r))
    return ExactLaw(p=hit, mean=mean * unit, variance=variance * unit**2, outcomes=outcomes)


def exact_law_rational(population: FiniteSupport, M: int, K: int, *, max_outcomes: int = 2 * 10**6) -> ExactLaw:
    """Enumerate the law of X in exact rational arithmetic; for small M, K and few atoms.

    Raises:
        ValueError: If M or K < 1, or if there are more than ``max_outcomes`` outcomes.
    """
    require_counts("exact_law_rational", M=M, K=K)
    _refuse(
        _compositions(M, population) + _compositions(K, population), max_outcomes, "count vectors", population, M, K
    )
    U = integer_sums(population, M)
    V = U if K == M else integer_sums(population, K)
    outcomes = len(U) * len(V)
    _refuse(outcomes, max_outcomes, "outcomes", population, M, K)

    hit = first = second = 0
    for u, p in U.items():
        hit_u = first_u = second_u = 0
        for v, r in V.items():
            x = sum(a * b for a, b in zip(u, v, strict=True))
            if x <= 0:
                hit_u += r
            first_u += r * x
            second_u += r * x * x
        hit, first, second = hit + p * hit_u, first + p * first_u, second + p * second_u
    total = sum(U.values()) * sum(V.values())
    unit = Fraction(1, M * K * population.denominator**2)
    mean = Fraction(first, total) * unit
    variance = Fraction(second, total) * unit**2 - mean**2
    return ExactLaw(p=Fraction(hit, total), mean=mean, variance=variance, outcomes=outcomes)


def _compositions(n: int, population: FiniteSupport) -> int:
    atoms = len(population.weights)
    return math.comb(n + atoms - 1, atoms - 1)


def _refuse(count: int, limit: int, what: str, population: FiniteSupport, M: int, K: int) -> None:
    if count > limit:
        raise ValueError(
            f"exact enumeration of '{population.name}' at M={M}, K={K}: {count} {what}, above the limit of {limit}; "
            "take smaller M, K or fewer atoms, or simulate."
        )


def _sums(population: FiniteSupport, size: int) -> tuple[Vector, Vector]:
    """Distinct values of the integer sum of ``size`` atoms, (values, dim), and their probabilities.

    The multinomial law is built atom by atom from conditional binomials, which stay accurate at any ``size``, unlike
    differences of log-gamma.
    """
    weights = population.weights
    atoms = np.array(population.integer_atoms, dtype=np.float64)
    left = np.array([size])
    probability = np.ones(1)
    sums = np.zeros((1, population.dim))
    remaining = Fraction(1)
    for weight, atom in zip(weights[:-1], atoms[:-1], strict=True):
        repeat = left + 1
        count = np.arange(repeat.sum()) - np.repeat(np.cumsum(repeat) - repeat, repeat)
        before = np.repeat(left, repeat)
        probability = np.repeat(probability, repeat) * binom.pmf(count, before, float(weight / remaining))
        sums = np.repeat(sums, repeat, axis=0) + count[:, None] * atom
        left = before - count
        remaining -= weight
    sums += left[:, None] * atoms[-1]
    values, inverse = np.unique(sums, axis=0, return_inverse=True)
    return values, np.bincount(inverse.ravel(), weights=probability).astype(np.float64)


def integer_sums(population: FiniteSupport, size: int) -> dict[tuple[int, ...], int]:
    """Distinct values of the integer sum of ``size`` atoms, with integer weights proportional to their probability."""
    common = math.lcm(*(w.denominator for w in population.weights))
    weights = [int(w * common) for w in population.weights]
    columns = list(zip(*population.integer_atoms, strict=True))
    law: dict[tuple[int, ...], int] = {}
    for counts in _count_vectors(size, len(weights)):
        ways = math.factorial(size)
        for count, weight in zip(counts, weights, strict=True):
            ways = ways // math.factorial(count) * weight**count
        value = tuple(sum(c * a for c, a in zip(counts, column, strict=True)) for column in columns)
        law[value] = law.get(value, 0) + ways
    return law


def _count_vectors(size: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (size,)
        return
    for first in range(size + 1):
        for rest in _count_vectors(size - first, parts - 1):
            yield (first, *rest)
