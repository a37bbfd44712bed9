"""The value of an expression at one point in hundreds of digits: a second look at what floats find suspicious."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import mpmath
import sympy
from sympy import Expr, Symbol

from ...theory.claims import Claim
from ...theory.evaluation import total

# Floats of a few bits stay exact in polynomials of any degree that a text can have.
BITS = 1000
# Binary digits of the largest number that is told from infinity: exp(x) takes as many as x has before the point.
MOST = 1000


def precise(claim: Claim, letters: Mapping[str, float]) -> Any:
    """Evaluate a claim's expression.

    Args:
        claim: Any.
        letters: Underived letters; those that it does not need are ignored.

    Returns:
        An mpmath number: real, infinite, complex, or nan where the expression is undefined.
    """
    names = claim.arguments
    with mpmath.workprec(BITS):
        try:
            found = mpmath.mpmathify(_compiled(claim.expression, names)(*(mpmath.mpf(letters[n]) for n in names)))
        except ZeroDivisionError:
            return mpmath.inf
        except (TypeError, ValueError):  # min or max of complex numbers, and the poles of gamma
            return mpmath.nan
        # A root of zero that is not quite zero.
        if abs(mpmath.im(found)) <= mpmath.ldexp(1, -BITS // 4) * (1 + abs(found)):
            return mpmath.re(found)
        return found


@functools.cache
def _compiled(expression: Expr, names: tuple[str, ...]) -> Callable[..., Any]:
    guarded = {
        "Reciprocal": lambda x: mpmath.inf if x == 0 else 1 / x,
        "exp": _guarded(mpmath.exp, mpmath.inf, mpmath.mpf(0)),
        "gamma": _guarded(mpmath.gamma, mpmath.inf, mpmath.nan),
        "erf": _guarded(mpmath.erf, mpmath.mpf(1), mpmath.mpf(-1)),
        "erfc": _guarded(mpmath.erfc, mpmath.mpf(0), mpmath.mpf(2)),
    }
    return sympy.lambdify([Symbol(name) for name in names], total(expression, names), modules=[guarded, "mpmath"])


def _guarded(function: Callable[[Any], Any], above: Any, below: Any) -> Callable[[Any], Any]:
    """Return a function of mpmath with its limits at arguments so large that it would take forever."""

    def evaluate(x: Any) -> Any:
        if not mpmath.isfinite(x) or mpmath.mag(x) <= MOST:
            return function(x)
        return above if mpmath.re(x) > 0 else below

    return evaluate
