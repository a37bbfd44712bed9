r"""Exact laws of the norm deviation of a mean of n bounded samples: what a finite-sample bound must survive.

Samples have norm 1 (a bound scales with B). Two families: scalars +-1 with probabilities p and 1 - p, and atoms e_j of
equal probability 1/d in R^d, whose deviation is never below sqrt(1/n - 1/d).
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

Tail = tuple[tuple[Fraction, Fraction], ...]
"""Pairs (squared deviation s, P(deviation^2 >= s)), s descending."""


@dataclass(frozen=True, kw_only=True)
class Signs:
    """C = 1 with probability p, else -1: the deviation is 2 |k/n - p| with k binomial."""

    p: Fraction
    n: int

    @property
    def name(self) -> str:
        """The law in words."""
        return f"C = B with {self.p}, -B with {1 - self.p}"

    @cached_property
    def tail(self) -> Tail:
        """The exact tail of the squared deviation."""
        q = 1 - self.p
        weights = {k: math.comb(self.n, k) * self.p**k * q ** (self.n - k) for k in range(self.n + 1)}
        return _cumulated(((2 * (Fraction(k, self.n) - self.p)) ** 2, w) for k, w in weights.items())


@dataclass(frozen=True, kw_only=True)
class Simplex:
    """C = e_j with probability 1/d each: the squared deviation is sum_j (k_j / n)^2 - 1/d with k multinomial."""

    d: int
    n: int

    @property
    def name(self) -> str:
        """The law in words."""
        return f"C = B e_j with 1/{self.d} each, j = 1 to {self.d}"

    @cached_property
    def tail(self) -> Tail:
        """The exact tail of the squared deviation, by the partitions of n into counts."""

        def weighted() -> Iterator[tuple[Fraction, Fraction]]:
            for counts in _partitions(self.n, self.n):
                if len(counts) > self.d:
                    continue
                # Ways to place the counts on the atoms, times ways to order the samples.
                places = math.perm(self.d, len(counts))
                for _, same in itertools.groupby(counts):
                    places //= math.factorial(len(list(same)))
                orders = math.factorial(self.n)
                for count in counts:
                    orders //= math.factorial(count)
                square = Fraction(sum(c * c for c in counts), self.n**2) - Fraction(1, self.d)
                yield square, Fraction(places * orders, self.d**self.n)

        return _cumulated(weighted())


def _cumulated(weighted: Iterator[tuple[Fraction, Fraction]]) -> Tail:
    law: dict[Fraction, Fraction] = {}
    for square, weight in weighted:
        law[square] = law.get(square, Fraction()) + weight
    total, found = Fraction(), []
    for square in sorted(law, reverse=True):
        total += law[square]
        found.append((square, total))
    return tuple(found)


def _partitions(n: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Partitions of n into parts of at most ``largest``, parts descending."""
    if n == 0:
        yield ()
        return
    for part in range(min(n, largest), 0, -1):
        for rest in _partitions(n - part, part):
            yield (part, *rest)
