"""The value of an expression at a law: a fraction where it is one, else an interval that is sure to hold it.

Intervals are those of mpmath, with every operation rounded outwards. Its context has no error function: erf and erfc of
an interval are taken at its ends, where they are monotone, at twice the digits and widened by the last of them.
"""

import dataclasses
from collections.abc import Mapping
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
    point = {Symbol(n): _rational(x) for n in names if not isinstance(x := letters[n], Interval)}
    value = _away_from_zero_mean(total(claim.expression, names)).xreplace(point)
    if value.is_Rational:
        exact = Fraction(int(value.p), int(value.q))
        return Interval(low=exact, high=exact)
    if value is sympy.nan or value.is_finite is False or value.is_extended_real is False:
        raise Undefined(f"the expression is {value} here")
    context = type(mpmath.iv)()
    context.dps = digits
    known = {n: _interval(context, x) for n in names if isinstance(x := letters[n], Interval)}
    try:
        found = _evaluate(value, known, context)
    except (ValueError, ZeroDivisionError, mpmath.libmp.ComplexResult, NotImplementedError, AttributeError) as error:
        raise Undefined(f"no interval for {value}: {error}") from None
    low, high = (_fraction(end) for end in (found.a, found.b))
    return Interval(low=low, high=high)


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


def _rational(x: int | Fraction) -> sympy.Rational:
    return sympy.Rational(*x.as_integer_ratio())


def _interval(context: Any, x: Interval) -> Any:
    low, high = (context.mpf(end.numerator) / end.denominator for end in (x.low, x.high))
    return context.mpf([low.a, high.b])


def _fraction(end: Any) -> Fraction:
    """An end of an interval, which is a degenerate interval, as the dyadic fraction that it is."""
    sign, mantissa, exponent, bits = end._mpi_[0]
    if not bits and exponent:
        raise Undefined("the expression is not finite here")
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent


def _evaluate(expr: Expr, known: Mapping[str, Any], iv: Any) -> Any:
    """Evaluate by recursion over the tree.

    Raises:
        NotImplementedError: For a function that has no interval here.
    """
    if expr.is_Rational:
        return iv.mpf(int(expr.p)) / int(expr.q)
    if expr.is_Symbol:
        return known[expr.name]
    if expr is sympy.pi:
        return +iv.pi
    if expr is sympy.E:
        return +iv.e
    parts = [_evaluate(part, known, iv) for part in expr.args]
    match expr:
        case sympy.Add():
            return sum(parts[1:], parts[0])
        case sympy.Mul():
            product = parts[0]
            for part in parts[1:]:
                product = product * part
            return product
        case sympy.Pow():
            return _power(parts[0], parts[1], expr.exp, iv)
        case sympy.Max():
            return iv.mpf([max(p.a for p in parts), max(p.b for p in parts)])
        case sympy.Min():
            return iv.mpf([min(p.a for p in parts), min(p.b for p in parts)])
        case sympy.Abs():
            return abs(parts[0])
        case sympy.exp():
            return iv.exp(parts[0])
        case sympy.log():
            _require_positive(parts[0])
            return iv.log(parts[0])
        case sympy.gamma():
            return iv.gamma(parts[0])
        case sympy.erf():
            return _monotone(mpmath.erf, parts[0], iv)
        case sympy.erfc():
            return -_monotone(lambda x: -mpmath.erfc(x), parts[0], iv)
        case Reciprocal():
            return 1 / parts[0]
    raise NotImplementedError(f"no interval arithmetic for {type(expr).__name__}")


def _power(base: Any, exponent: Any, spelled: Expr, iv: Any) -> Any:
    if spelled.is_Integer:
        return base ** int(spelled)
    if spelled == sympy.Rational(1, 2):
        if base.a < 0:
            raise ValueError("root of a number that may be negative")
        return iv.sqrt(base)
    _require_positive(base)
    return iv.exp(exponent * iv.log(base))


def _require_positive(x: Any) -> None:
    if not x.a > 0:
        raise ValueError("logarithm or power of a number that may be zero or negative")


def _monotone(function: Any, x: Any, iv: Any) -> Any:
    digits = 2 * iv.dps
    with mpmath.workdps(digits):
        ends = [function(mpmath.mpf(end._mpi_[0])) for end in (x.a, x.b)]
        slack = [abs(value) * mpmath.mpf(10) ** (3 - digits) for value in ends]
        return iv.mpf([ends[0] - slack[0], ends[1] + slack[1]])
