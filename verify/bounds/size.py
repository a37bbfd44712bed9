"""How large an expression is over a common denominator, counted without expanding it.

Evaluation brings a rational expression into that form first (``theory/evaluation.py``): the number of its terms decides
how long that takes, and the degrees of its numerator and denominator how long their common divisor takes.
"""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy
from sympy import Expr

from ...theory.symbols import unfold

MAX_TERMS = 1500
MAX_VOLUME = 50_000

Degrees = Counter[Expr]


@dataclass(frozen=True, kw_only=True)
class _Ratio:
    """Bounds on a numerator, and the factors of a denominator: factor -> (power, its numerator)."""

    terms: int = 1
    degrees: Degrees = field(default_factory=Counter)
    below: Mapping[Expr, tuple[int, "_Ratio"]] = field(default_factory=dict)

    @property
    def denominator(self) -> "_Ratio":
        """The denominator, multiplied out."""
        product = _Ratio()
        for power, factor in self.below.values():
            product = product.times(factor.to(power))
        return product

    def times(self, other: "_Ratio") -> "_Ratio":
        below = dict(self.below)
        for factor, (power, size) in other.below.items():
            below[factor] = (power + below.get(factor, (0, size))[0], size)
        return _Ratio(terms=_limited(self.terms * other.terms), degrees=self.degrees + other.degrees, below=below)

    def to(self, power: int) -> "_Ratio":
        """The power of a numerator without denominator."""
        terms = math.comb(self.terms + power - 1, power)
        return _Ratio(terms=_limited(terms), degrees=Counter({x: n * power for x, n in self.degrees.items()}))

    def over(self, below: Mapping[Expr, tuple[int, "_Ratio"]]) -> "_Ratio":
        """The numerator once the denominator is ``below``, a multiple of its own."""
        missing = {x: (power - self.below.get(x, (0, size))[0], size) for x, (power, size) in below.items()}
        extra = _Ratio(below={x: found for x, found in missing.items() if found[0]}).denominator
        return _Ratio(terms=self.terms, degrees=self.degrees).times(extra)


def require_small(expr: Expr) -> None:
    """Check that evaluating an expression takes about a second at most.

    Raises:
        ValueError: If it has too many terms over a common denominator, or too high degrees in too many letters.
    """
    _Count().require_small(unfold(expr))


def _limited(terms: int) -> int:
    if terms > MAX_TERMS:
        raise ValueError(f"too large: over a common denominator it has more than {MAX_TERMS} terms")
    return terms


class _Count:
    """Counts one expression.

    Attributes:
        steps: The common divisor of the degrees of each generator: a polynomial in x^9 is one in x.
        terms: Of all arguments of functions together, which are multiplied out too.
    """

    def __init__(self) -> None:
        self.steps: dict[Expr, int] = {}
        self.terms = 0

    def require_small(self, expr: Expr) -> None:
        ratio = self.ratio(expr)
        below = ratio.denominator
        self.terms = _limited(self.terms + ratio.terms + below.terms)
        if 1 in (ratio.terms, below.terms):
            return
        degrees = ratio.degrees | below.degrees
        if math.prod(1 + degree // self.steps[x] for x, degree in degrees.items()) > MAX_VOLUME:
            raise ValueError("too large: high degrees in many letters; use lower powers and fewer digits in exponents")

    def ratio(self, expr: Expr) -> _Ratio:
        """Count the terms of an expression over a common denominator."""
        if expr.is_Number:
            return _Ratio()
        if expr.is_Add:
            return self.sum([self.ratio(part) for part in expr.args])
        if expr.is_Mul:
            return functools.reduce(_Ratio.times, map(self.ratio, expr.args), _Ratio())
        base, exponent = expr.as_base_exp()
        if exponent.is_Integer and exponent != 1:
            return self.power(base, int(exponent))
        for part in expr.args if exponent == 1 else (base, exponent):
            self.require_small(part)
        # A power with another exponent is one of base ** (tail / q), for every term p/q * tail of the exponent.
        product = _Ratio()
        for term in sympy.Add.make_args(exponent):
            number, tail = term.as_coeff_Mul(rational=True)
            generator, degree = base ** (tail / number.q), abs(int(number.p))
            self.steps[generator] = math.gcd(self.steps.get(generator, 0), degree)
            one = _Ratio(degrees=Counter({generator: degree}))
            product = product.times(_Ratio(below={generator: (1, one)}) if number < 0 else one)
        return product

    def sum(self, parts: list[_Ratio]) -> _Ratio:
        below: dict[Expr, tuple[int, _Ratio]] = {}
        for part in parts:
            for x, (power, size) in part.below.items():
                below[x] = (max(power, below.get(x, (0, size))[0]), size)
        numerators = [part.over(below) for part in parts]
        degrees = functools.reduce(Counter.__or__, (numerator.degrees for numerator in numerators))
        return _Ratio(terms=_limited(sum(n.terms for n in numerators)), degrees=degrees, below=below)

    def power(self, base: Expr, exponent: int) -> _Ratio:
        size = self.ratio(base)
        above = _Ratio(terms=size.terms, degrees=size.degrees)
        if exponent > 0:
            below = {x: (power * exponent, factor) for x, (power, factor) in size.below.items()}
            return dataclasses.replace(above.to(exponent), below=below)
        return dataclasses.replace(size.denominator.to(-exponent), below={base: (-exponent, above)})
