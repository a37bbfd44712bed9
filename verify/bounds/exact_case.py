"""One law with M and K, exactly: the law of a sum of draws, P(X <= 0) and every letter as a fraction."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...sim.finite_laws import FiniteSupport
from ...sim.laws import Gaussian, Population
from ...theory.claims import Claim, Kind
from .enclosure import Interval, compare

# Of the largest eigenvalue, which LAPACK gives to a few units of the last place of the norm.
EIGENVALUE_ERROR = Fraction(1, 10**11)
Vector = tuple[Fraction, ...]
SIGNS = {Kind.UPPER_BOUND: (1,), Kind.LOWER_BOUND: (-1,), Kind.IDENTITY: (1, -1)}


@dataclass(frozen=True, kw_only=True)
class FiniteCase:
    """A finite law with M and K."""

    law: FiniteSupport
    M: int
    K: int

    @property
    def where(self) -> dict[str, Any]:
        """Enough to compute it again: ``build(**where["population"])``, M and K."""
        return {"population": self.law.spec, "M": self.M, "K": self.K}

    @property
    def label(self) -> str:
        """The case in a line."""
        return f"{spell_law(self.law)}; M={self.M}, K={self.K}"

    @cached_property
    def letters(self) -> dict[str, int | Fraction | Interval]:
        """Every underived letter; the largest eigenvalue is a fraction for rank one and an interval otherwise."""
        return {"M": self.M, "K": self.K, "N": self.law.dim, **moments(self.law)}

    @cached_property
    def p(self) -> Fraction:
        """P(X <= 0)."""
        return Fraction(self._hits, self._total)

    def violation(self, claim: Claim) -> int:
        """Sign of P minus the claim's expression if that breaks the claim, else 0.

        Raises:
            Undefined: If the expression has no finite real value here.
        """
        sign = compare(claim, self.letters, Interval(low=self.p, high=self.p))[1]
        return sign if sign in SIGNS[claim.kind] else 0

    def outcomes(self) -> Iterator[tuple[Vector, Vector, Fraction, Fraction]]:
        """Distinct values of (u, v) that have X <= 0: u, v, X and the probability."""
        (U, p), (V, r) = self._sums
        for i, row in enumerate(self._products):
            for j in np.flatnonzero(row <= 0):
                u, v = self._mean(U[i], self.M), self._mean(V[j], self.K)
                x = sum((a * b for a, b in zip(u, v, strict=True)), Fraction())
                yield u, v, x, Fraction(int(p[i] * r[j]), self._total)

    def _mean(self, total: NDArray, size: int) -> Vector:
        return tuple(Fraction(int(x), size * self.law.denominator) for x in total)

    @property
    def outcome_pairs(self) -> int:
        """Pairs of count vectors: what an enumeration costs."""
        return math.prod(math.comb(n + len(self.law.weights) - 1, n) for n in (self.M, self.K))

    @property
    def counted(self) -> tuple[int, int]:
        """Pairs of distinct values of (u, v): those with X <= 0, and all."""
        return sum(int(np.count_nonzero(row <= 0)) for row in self._products), math.prod(len(p) for _, p in self._sums)

    @cached_property
    def _sums(self) -> tuple[tuple[NDArray, NDArray], tuple[NDArray, NDArray]]:
        first = _sum_law(self.law, self.M)
        return first, first if self.K == self.M else _sum_law(self.law, self.K)

    @property
    def _products(self) -> Iterator[NDArray]:
        """MK X in integers, a row a value of u."""
        (U, _), (V, _) = self._sums
        largest = max(abs(x) for atom in self.law.integer_atoms for x in atom)
        if self.M * self.K * self.law.dim * largest**2 < 2**62:
            U, V = U.astype(np.int64), V.astype(np.int64)
        return (V @ u for u in U)

    @property
    def _total(self) -> int:
        return math.prod(sum(p) for _, p in self._sums)

    @property
    def _hits(self) -> int:
        (_, p), (_, r) = self._sums
        return sum(weight * int(r[row <= 0].sum()) for weight, row in zip(p, self._products, strict=True))


def moments(law: Population) -> dict[str, Fraction | Interval]:
    """Exact moments of a finite law, or of a Gaussian one whose floats are read as the fractions that they are."""
    values: dict[str, Any] = law.moments.as_dict()
    if isinstance(law, Gaussian):
        mean2, eigenvalues = ([Fraction(float(x)) for x in row] for row in (law.mean, law.eigenvalues))
        mean2 = [m * m for m in mean2]
        return {
            "mu2": sum(mean2, Fraction()),
            "mu_Sigma_mu": sum((m * x for m, x in zip(mean2, eigenvalues, strict=True)), Fraction()),
            "tr_Sigma": sum(eigenvalues, Fraction()),
            "tr_Sigma2": sum((x * x for x in eigenvalues), Fraction()),
            "lambda_max": max(eigenvalues),
        }
    if values["tr_Sigma"] ** 2 == values["tr_Sigma2"]:
        values["lambda_max"] = values["tr_Sigma"]
    else:
        value = Fraction(values["lambda_max"])
        values["lambda_max"] = Interval(low=value * (1 - EIGENVALUE_ERROR), high=value * (1 + EIGENVALUE_ERROR))
    return values


def spell_law(law: FiniteSupport) -> str:
    """Write a law as "(1, 0) with 3/4, (-3, 5) with 1/4"; trailing zeros of many dimensions are counted."""
    return ", ".join(f"{spell_vector(atom)} with {weight}" for atom, weight in zip(law.atoms, law.weights, strict=True))


def spell_vector(vector: tuple[Fraction, ...]) -> str:
    """Write a vector; zeros at the end of a long one are counted."""
    last = max((i for i, x in enumerate(vector) if x), default=0)
    shown = [str(x) for x in vector[: max(last + 1, min(len(vector), 4))]]
    rest = len(vector) - len(shown)
    shown += [f"{rest} zeros"] if rest else []
    return shown[0] if len(vector) == 1 else f"({', '.join(shown)})"


def _sum_law(law: FiniteSupport, size: int) -> tuple[NDArray, NDArray]:
    """Distinct integer sums of ``size`` atoms, (values, dim), and integers proportional to their probability."""
    common = math.lcm(*(w.denominator for w in law.weights))
    weights = [int(w * common) for w in law.weights]
    powers = [_powers(w, size) for w in weights]
    columns = list(zip(*law.integer_atoms, strict=True))
    sums: dict[tuple[int, ...], int] = {}
    for counts in _count_vectors(size, len(weights)):
        ways, left = 1, size
        for count, power in zip(counts, powers, strict=True):
            ways *= math.comb(left, count) * power[count]
            left -= count
        value = tuple(sum(c * a for c, a in zip(counts, column, strict=True)) for column in columns)
        sums[value] = sums.get(value, 0) + ways
    return np.array(list(sums), dtype=object), np.array([*sums.values(), None], dtype=object)[:-1]


def _powers(x: int, size: int) -> list[int]:
    return list(itertools.accumulate(itertools.repeat(x, size), lambda a, b: a * b, initial=1))


def _count_vectors(size: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (size,)
        return
    for first in range(size + 1):
        for rest in _count_vectors(size - first, parts - 1):
            yield (first, *rest)
