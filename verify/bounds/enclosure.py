"""The value of an expression at a law: a fraction where it is one, else an interval that is sure to hold it.

Intervals are those of mpmath, with every operation rounded outwards. Its context has no error function: erf and erfc of
an interval are taken at its ends, where they are monotone, at twice the digits and widened by the last of them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import sympy
from sympy import Expr, Symbol

from ...theory.claims import Claim
from ...theory.evaluation import Reciprocal, total
from ..checks import Undefined

DIGITS = (30, 60, 120)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Two fractions with the value between them; equal if it is known exactly."""

    low: Fraction
    high: Fraction

    @property
    def exact(self) -> bool:
        """Whether the value is a known fraction."""
        return self.low == self.high


def with_fractions(claim: Claim) -> Claim:
    """Read the decimals of a claim as the fractions that they spell."""
    decimals = {x: sympy.Rational(str(x)) for x in claim.expression.atoms(sympy.Float)}
    return dataclasses.replace(claim, expression=claim.expression.xreplace(decimals)) if decimals else claim


def enclose(claim: Claim, letters: Mapping[str, int | Fraction | Interval], digits: int = DIGITS[0]) -> Interval:
    """Evaluate a claim's expression.

    Args:
        claim: Without decimals.
        letters: Underived letters; those that it does not need are ignored.
        digits: Of the intervals.

    Raises:
        Undefined: If the expression has no finite real value there, or uses a function that has no interval.
    """
    names = claim.arguments
    expression = _away_from_zero_mean(total(claim.expression, names))
    context = type(mpmath.iv)()
    context.dps = digits
    known = {name: _read(context, letters[name]) for name in names}
    try:
        try:
            value = _Evaluation(known, context).of(expression)
        except _InfiniteError:
            # Only sympy calculates with infinities.
            point = {Symbol(name): _rational(x) for name, x in known.items() if isinstance(x, Fraction)}
            value = _Evaluation(known, context).of(expression.xreplace(point))
    except (ArithmeticError, ValueError, NotImplementedError) as error:
        raise Undefined(f"the expression has no finite real value: {error}") from None
    return _result(value)


def compare(claim: Claim, letters: Mapping[str, int | Fraction | Interval], known: Interval) -> tuple[Interval, int]:
    """Hold a known value against a claim's expression.

    Returns:
        The value of the expression, and the sign of ``known`` minus it: 0 if they are equal, or alike to 100 digits.

    Raises:
        Undefined: As :func:`enclose`.
    """
    for digits in DIGITS:
        try:
            value = enclose(claim, letters, digits)
        except Undefined:
            if digits == DIGITS[-1]:
                raise
            continue
        if known.low > value.high:
            return value, 1
        if known.high < value.low:
            return value, -1
        if value.exact and known.exact:
            break
    return value, 0


def _away_from_zero_mean(expr: Expr) -> Expr:
    """Take the branch of a nonzero mean; the other one may have no value, and Max and Min refuse to hold that."""
    if isinstance(expr, sympy.Piecewise) and expr.args[0][1] == sympy.Eq(Symbol("mu2"), 0):
        return expr.args[-1][0]
    return expr


def _rational(x: Fraction) -> sympy.Rational:
    return sympy.Rational(x.numerator, x.denominator)


def _read(iv: Any, x: int | Fraction | Interval) -> Any:
    if not isinstance(x, Interval):
        return Fraction(x)
    low, high = (iv.mpf(end.numerator) / end.denominator for end in (x.low, x.high))
    return iv.mpf([low.a, high.b])


def _result(value: Any) -> Interval:
    if isinstance(value, Fraction):
        return Interval(low=value, high=value)
    return Interval(low=_fraction(value.a), high=_fraction(value.b))


def _fraction(end: Any) -> Fraction:
    """An end of an interval, which is a degenerate interval, as the dyadic fraction that it is."""
    sign, mantissa, exponent, bits = end._mpi_[0]
    if not bits and exponent:
        raise Undefined("the expression is not finite here")
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent


class _InfiniteError(Exception):
    """1 / 0 where it stands for an infinite quantity."""


class _Evaluation:
    """Evaluation by recursion over the tree: in fractions as long as that is possible, then in intervals.

    sympy would factor integers of a thousand digits to simplify their roots.
    """

    def __init__(self, known: Mapping[str, Any], iv: Any) -> None:
        self.known, self.iv = known, iv

    def of(self, expr: Expr) -> Any:
        """Evaluate.

        Raises:
            NotImplementedError: For a function that has no interval here.
            ValueError: Outside the domain of a function; ArithmeticError likewise.
        """
        if expr.is_Rational:
            return Fraction(int(expr.p), int(expr.q))
        if expr.is_Symbol:
            return self.known[expr.name]
        if expr is sympy.pi or expr is sympy.E:
            return +(self.iv.pi if expr is sympy.pi else self.iv.e)
        if isinstance(expr, sympy.Piecewise):
            return self.of(next(value for value, condition in expr.args if self.holds(condition)))
        if not expr.args:
            raise NotImplementedError(f"it contains {expr}")
        parts = [self.of(part) for part in expr.args]
        if not all(isinstance(part, Fraction) for part in parts) and not isinstance(expr, sympy.Pow):
            parts = [self.interval(part) for part in parts]
        match expr:
            case sympy.Add():
                return sum(parts[1:], parts[0])
            case sympy.Mul():
                return functools.reduce(lambda x, y: x * y, parts)
            case sympy.Pow():
                return self.power(*parts)
            case sympy.Max():
                return self.extreme(parts, max)
            case sympy.Min():
                return self.extreme(parts, min)
            case sympy.Abs():
                return abs(parts[0])
            case Reciprocal():
                if parts[0] == 0:
                    raise _InfiniteError
                return 1 / parts[0]
        return self.transcendental(expr, self.interval(parts[0]))

    def holds(self, condition: Expr) -> bool:
        """Decide a condition of ``total``: that something is zero, or nothing."""
        if condition is sympy.true:
            return True
        if not isinstance(condition, sympy.Eq):
            raise NotImplementedError(f"the condition {condition}")
        return bool(self.of(condition.lhs) == self.of(condition.rhs))

    def interval(self, x: Any) -> Any:
        """Widen a fraction to an interval."""
        return self.iv.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else x

    def extreme(self, parts: Sequence[Any], choose: Callable[..., Any]) -> Any:
        """Largest or smallest."""
        if all(isinstance(part, Fraction) for part in parts):
            return choose(parts)
        return self.iv.mpf([choose(part.a for part in parts), choose(part.b for part in parts)])

    def power(self, base: Any, exponent: Any) -> Any:
        """Power; a root of a square is a fraction."""
        if isinstance(exponent, Fraction) and exponent.denominator == 1:
            if base == 0 and exponent < 0:
                raise _InfiniteError
            return base ** int(exponent)
        if isinstance(base, Fraction):
            if base in (0, 1) and not (base == 0 and not _positive(exponent)):
                return base
            if base > 0 and exponent == Fraction(1, 2):
                roots = [math.isqrt(part) for part in (base.numerator, base.denominator)]
                if (roots[0] ** 2, roots[1] ** 2) == (base.numerator, base.denominator):
                    return Fraction(*roots)
        base, exponent = self.interval(base), self.interval(exponent)
        if not base.a > 0:
            raise ValueError("a power of a number that may not be positive")
        return self.iv.exp(exponent * self.iv.log(base))

    def transcendental(self, expr: Expr, x: Any) -> Any:
        """Functions that are irrational almost everywhere."""
        match expr:
            case sympy.exp():
                return self.iv.exp(x)
            case sympy.log():
                if not x.a > 0:
                    raise ValueError("the logarithm of a number that may not be positive")
                return self.iv.log(x)
            case sympy.gamma():
                return self.iv.gamma(x)
            case sympy.erf():
                return self.monotone(mpmath.erf, x)
            case sympy.erfc():
                return -self.monotone(lambda y: -mpmath.erfc(y), x)
        raise NotImplementedError(f"no interval arithmetic for {type(expr).__name__}")

    def monotone(self, function: Callable[[Any], Any], x: Any) -> Any:
        """An increasing function that mpmath has no interval for."""
        digits = 2 * self.iv.dps
        with mpmath.workdps(digits):
            ends = [function(mpmath.mpf(end._mpi_[0])) for end in (x.a, x.b)]
            slack = [abs(value) * mpmath.mpf(10) ** (3 - digits) for value in ends]
            return self.iv.mpf([ends[0] - slack[0], ends[1] + slack[1]])


def _positive(x: Any) -> bool:
    return bool(x > 0) if isinstance(x, Fraction) else bool(x.a > 0)
