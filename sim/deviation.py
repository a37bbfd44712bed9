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

from .enumeration import require_counts

Tail = tuple[tuple[Fraction, Fraction], ...]
"""Pairs (squared deviation s, P(deviation^2 >= s)), s descending."""

# What is enumerated within a second: binomial counts, and partitions of n (37 338 for n = 40).
LARGEST_SIGNS, LARGEST_SIMPLEX = 2000, 40


@dataclass(frozen=True, kw_only=True)
class Signs:
    """C = 1 with probability p, else -1: the deviation is 2 |k/n - p| with k binomial."""

    p: Fraction
    n: int

    def __post_init__(self) -> None:
        _require_size(self.n, LARGEST_SIGNS)
        if not 0 < self.p < 1:
            raise ValueError(f"Signs: p must be between 0 and 1, got {self.p}.")

    @property
    def name(self) -> str:
        """The law in words."""
        return f"C = B with {self.p}, -B with {1 - self.p}"

    @cached_property
    def tail(self) -> Tail:
        """The exact tail of the squared deviation."""
        a, b = self.p.numerator, self.p.denominator
        ways = {k: math.comb(self.n, k) * a**k * (b - a) ** (self.n - k) for k in range(self.n + 1)}
        return _cumulated((((2 * (Fraction(k, self.n) - self.p)) ** 2, w) for k, w in ways.items()), b**self.n)


@dataclass(frozen=True, kw_only=True)
class Simplex:
    """C = e_j with probability 1/d each: the squared deviation is sum_j (k_j / n)^2 - 1/d with k multinomial."""

    d: int
    n: int

    def __post_init__(self) -> None:
        _require_size(self.n, LARGEST_SIMPLEX)
        require_counts("Simplex", d=self.d)

    @property
    def name(self) -> str:
        """The law in words."""
        return f"C = B e_j with 1/{self.d} each, j = 1 to {self.d}"

    @cached_property
    def tail(self) -> Tail:
        """The exact tail of the squared deviation, by the partitions of n into counts."""

        def weighted() -> Iterator[tuple[Fraction, int]]:
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
                yield square, places * orders

        return _cumulated(weighted(), self.d**self.n)


def _require_size(n: int, largest: int) -> None:
    require_counts("deviation of a mean", n=n)
    if n > largest:
        raise ValueError(f"deviation of a mean: n = {n} is above the {largest} that are enumerated for this law.")


def _cumulated(weighted: Iterator[tuple[Fraction, int]], total: int) -> Tail:
    law: dict[Fraction, int] = {}
    for square, ways in weighted:
        law[square] = law.get(square, 0) + ways
    squares = sorted(law, reverse=True)
    sums = itertools.accumulate(law[square] for square in squares)
    return tuple((square, Fraction(ways, total)) for square, ways in zip(squares, sums, strict=True))


def _partitions(n: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Partitions of n into parts of at most ``largest``, parts descending."""
    if n == 0:
        yield ()
        return
    for part in range(min(n, largest), 0, -1):
        for rest in _partitions(n - part, part):
            yield (part, *rest)
