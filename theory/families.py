r"""Families of covariance spectra and placements of the mean, and the growth of their moments with the width N.

With :math:`|\mu|^2 = N^s` and moments that grow like powers of N, possibly times a logarithm,

.. math:: e_\parallel = 2s - e(\mu^\top\Sigma\mu), \quad e_2 = 2s - e(\operatorname{tr}\Sigma^2),
          \quad e_{align} = \min(e_\parallel, e_2) .

A family states its eigenvalues, its mean and the exponent that the paper's table claims; ``e_align`` is derived from
its sums by the rules below. Source: [width], growth rates.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sympy
from sympy import Eq, Expr, Max, Min, Piecewise, Symbol

from .symbols import N, a, b, s

i = Symbol("i", integer=True, positive=True)
"""Index of an eigen-direction, from 1 to N."""


class Place(StrEnum):
    """The eigen-directions over which the mean is spread evenly."""

    ALL = "all"
    FIRST = "first"
    REST = "all-but-first"
    LAST = "last"


@dataclass(frozen=True)
class Growth:
    """Growth of a moment: N to the ``exponent``, times log N to the ``log`` (0 or 1)."""

    exponent: Expr
    log: Expr = sympy.S.Zero


Part = tuple[Expr, Place]
"""Part of a moment: the sum of a term in ``i`` over all i, or the term at the first or the last i alone."""


def as_powers(expr: Expr) -> tuple[Expr, Expr]:
    """Write a term as N^p i^-c and return (p, c)."""
    powers = sympy.powsimp(expr).as_powers_dict()
    return powers.get(N, sympy.S.Zero), -powers.get(i, sympy.S.Zero)


def sum_growth(expr: Expr) -> Growth:
    """Growth of a sum of N^p i^-c over i <= N: compare it with its integral."""
    p, c = as_powers(expr)
    return Growth(p + Max(1 - c, 0), Piecewise((1, Eq(c, 1)), (0, True)))


def term_growth(expr: Expr, place: Place) -> Growth:
    """Growth of the term at i = 1 or at i = N."""
    p, c = as_powers(expr)
    return Growth(p if place is Place.FIRST else p - c)


def larger(x: Growth, y: Growth) -> Growth:
    """Growth of a sum of two terms."""
    gap = x.exponent - y.exponent
    return Growth(Max(x.exponent, y.exponent), Piecewise((x.log, gap > 0), (y.log, gap < 0), (Max(x.log, y.log), True)))


def growth_of(parts: tuple[Part, ...]) -> Growth:
    """Growth of a moment from its parts."""
    alone = (sum_growth(expr) if place is Place.ALL else term_growth(expr, place) for expr, place in parts)
    return functools.reduce(larger, alone)


@dataclass(frozen=True, kw_only=True)
class Family:
    """A covariance spectrum and the place of a mean with |mu|^2 = N^s.

    Attributes:
        id: Short name.
        meaning: In words.
        bulk: Eigenvalue lambda_i in ``i`` and ``N``.
        place: Where the mean lies.
        stated: Growth exponent of d_align as the paper's table has it, for every s.
        spike: Leading eigenvalue instead of the bulk's, where there is one.
    """

    id: str
    meaning: str
    bulk: Expr
    place: Place
    stated: Expr
    spike: Expr | None = None

    @property
    def eigenvalue(self) -> Expr:
        """lambda_i, the leading one included."""
        return self.bulk if self.spike is None else Piecewise((self.spike, Eq(i, 1)), (self.bulk, True))

    @property
    def mean_squared(self) -> Expr:
        """Square of the mean's coordinate i; they add up to N^s."""
        match self.place:
            case Place.ALL:
                return N ** (s - 1)
            case Place.REST:
                return Piecewise((0, Eq(i, 1)), (N**s / (N - 1), True))
            case Place.FIRST:
                return Piecewise((N**s, Eq(i, 1)), (0, True))
            case Place.LAST:
                return Piecewise((N**s, Eq(i, N)), (0, True))

    @property
    def parallel(self) -> tuple[Part, ...]:
        """The parts of mu'Sigma mu = sum_i mean_squared_i lambda_i; N^(s-1) stands for N^s / (N - 1)."""
        first = self.bulk if self.spike is None else self.spike
        match self.place:
            case Place.FIRST:
                return ((N**s * first, Place.FIRST),)
            case Place.LAST:
                return ((N**s * self.bulk, Place.LAST),)
            case Place.REST:
                return ((N ** (s - 1) * self.bulk, Place.ALL),)
            case Place.ALL:
                return ((N ** (s - 1) * self.bulk, Place.ALL), (N ** (s - 1) * first, Place.FIRST))

    @property
    def spectrum(self) -> tuple[Part, ...]:
        """The parts of tr Sigma^2 = sum_i lambda_i^2."""
        first = self.bulk if self.spike is None else self.spike
        return ((self.bulk**2, Place.ALL), (first**2, Place.FIRST))

    @property
    def e_par(self) -> Expr:
        """Growth exponent of d_par."""
        return 2 * s - growth_of(self.parallel).exponent

    @property
    def e_2(self) -> Expr:
        """Growth exponent of d_2."""
        return 2 * s - growth_of(self.spectrum).exponent

    @property
    def e_align(self) -> Expr:
        """Growth exponent of d_align; negative where width hurts."""
        return Min(self.e_par, self.e_2)

    @property
    def log_align(self) -> Expr:
        """Power of log N that divides N^e_align."""
        return larger(growth_of(self.parallel), growth_of(self.spectrum)).log

    def function(self) -> Callable[..., Any]:
        """Return (eigenvalues, squared mean) as a function of arrays ``i`` and numbers ``N, a, b, s``."""
        plain = {letter: Symbol(letter.name) for letter in (i, N, a, b, s)}
        # A constant would come back as one number instead of an array as long as i.
        each = [
            Piecewise((expr.xreplace(plain), plain[i] >= 1), (0, True)) for expr in (self.eigenvalue, self.mean_squared)
        ]
        return sympy.lambdify(list(plain.values()), each, modules="numpy")


_FLAT = sympy.S.One
_POWER = i**-a

_TRACE = 2 * s - Max(1 - 2 * a, 0)
_SPIKED_TRACE = 2 * s - Max(2 * b, 1)

FAMILIES = {
    family.id: family
    for family in (
        Family(id="flat", meaning="all eigenvalues 1", bulk=_FLAT, place=Place.ALL, stated=Min(s, 2 * s - 1)),
        Family(
            id="power_spread",
            meaning="lambda_i = i^-a, mean spread evenly",
            bulk=_POWER,
            place=Place.ALL,
            stated=Min(s + 1 - Max(1 - a, 0), _TRACE),
        ),
        Family(
            id="power_top",
            meaning="lambda_i = i^-a, mean on the top direction",
            bulk=_POWER,
            place=Place.FIRST,
            stated=Min(s, _TRACE),
        ),
        Family(
            id="power_bottom",
            meaning="lambda_i = i^-a, mean on the last one",
            bulk=_POWER,
            place=Place.LAST,
            stated=Min(s + a, _TRACE),
        ),
        Family(
            id="spike_aligned",
            meaning="lambda_1 = N^b, others 1, mean on it",
            bulk=_FLAT,
            spike=N**b,
            place=Place.FIRST,
            stated=Min(s - b, _SPIKED_TRACE),
        ),
        Family(
            id="spike_orthogonal",
            meaning="lambda_1 = N^b, others 1, mean off it",
            bulk=_FLAT,
            spike=N**b,
            place=Place.REST,
            stated=Min(s, _SPIKED_TRACE),
        ),
    )
}
