"""How an expression of the theory becomes a number, on arrays and exactly.

Evaluation is total in the moments:

- ``mu2 = 0``: the expression is reduced first and evaluated then, so that d_align is 0 and a bound is 1 whatever the
  covariance is, zero included;
- a vanishing denominator elsewhere (``mu_Sigma_mu = 0``, or a zero covariance) stands for an infinite quantity:
  d_align is infinite and the bounds are 0 where Sigma = 0.
"""

import functools
from collections.abc import Callable
from typing import Any

import sympy
from sympy import Eq, Expr, Piecewise, Symbol

from .symbols import TABLE, mu2, unfold

TRANSCENDENTAL = (sympy.exp, sympy.log, sympy.erf, sympy.erfc, sympy.gamma)


@functools.cache
def arguments(expression: Expr) -> tuple[str, ...]:
    """Return the underived letters that an expression depends on, in the order of the table."""
    used = {str(symbol) for symbol in unfold(expression).free_symbols}
    return tuple(name for name in TABLE if name in used)


def require(where: str, name: str, value: Any) -> None:
    """Check that a number, or every element of an array, is a value that the letter can have.

    The norm of the mean may be zero here, though not in the theory: evaluation is total there.

    Raises:
        ValueError: If one is not, naming the letter, the value and what was expected.
    """
    symbol = TABLE[name].symbol
    positive = symbol.is_positive and symbol != mu2
    try:
        fits = value > 0 if positive else value >= 0 if symbol.is_nonnegative else value == value
        if symbol.is_integer:
            fits = fits & (value % 1 == 0)
    except TypeError:
        fits = False
    if fits.all() if hasattr(fits, "all") else fits:
        return
    sign = "positive " if positive else "nonnegative " if symbol.is_nonnegative else ""
    wrong = value[~fits].ravel()[0] if getattr(fits, "shape", ()) else value
    raise ValueError(
        f"{where}: {name} = {wrong}, expected a {sign}{'integer' if symbol.is_integer else 'real number'}: "
        f"{TABLE[name].meaning}."
    )


class Reciprocal(sympy.Function):
    """1 / x, infinite at x = 0."""

    @classmethod
    def eval(cls, x: Expr) -> Expr | None:
        """Evaluate at numbers."""
        if x.is_zero:
            return sympy.oo
        return 1 / x if x.is_number else None


def _indicator_of_zero(x: Expr) -> Expr:
    return Piecewise((sympy.S.One, Eq(x, 0)), (sympy.S.Zero, True))


@functools.cache
def _reciprocal() -> Callable[..., Any]:
    """Return :class:`Reciprocal` for arrays; it divides by zero nowhere, so that numpy has nothing to warn of."""
    x = Symbol("x")
    value = Piecewise((sympy.oo, Eq(x, 0)), (1 / (x + _indicator_of_zero(x)), True))
    return sympy.lambdify(x, value, modules="numpy")


@functools.cache
def compiled(expression: Expr, names: tuple[str, ...]) -> Callable[..., Any]:
    """Return an expression as a numpy function of these letters."""
    special = expression.has(sympy.erf, sympy.erfc, sympy.gamma)
    modules = [{"Reciprocal": _reciprocal()}, "scipy" if special else "numpy"]
    return sympy.lambdify([Symbol(name) for name in names], total(expression, names), modules=modules)


@functools.cache
def total(expression: Expr, names: tuple[str, ...]) -> Expr:
    """Return an expression in plain symbols of these names, defined at zero mean and at zero covariance.

    Raises:
        ValueError: If the expression depends on further letters.
    """
    reduced = _reduced(unfold(expression, keep=names))
    foreign = sorted(str(symbol) for symbol in reduced.free_symbols if str(symbol) not in names)
    if foreign:
        raise ValueError(f"function: {expression} also depends on {', '.join(foreign)}; name them as arguments too.")
    # Plain symbols: those of the table are positive, and sympy would decide mu2 = 0 at once.
    plain = {symbol: Symbol(symbol.name) for symbol in reduced.free_symbols}
    generic = _guard(reduced).xreplace(plain)
    if mu2 not in reduced.free_symbols:
        return generic
    zero_mean = _guard(_at_zero_mean(reduced)).xreplace(plain)
    norm = plain[mu2]
    # Both branches are evaluated on arrays: the generic one is kept away from the point that it does not serve.
    elsewhere = generic.xreplace({norm: norm + _indicator_of_zero(norm)})
    return Piecewise((zero_mean, Eq(norm, 0)), (elsewhere, True))


def _reduced(expr: Expr) -> Expr:
    """Cancel an expression, the arguments of its exponentials and the like on their own.

    Left to itself, sympy writes 1 - exp(-x) over the denominator exp(x), which is infinity over infinity for floats.
    """
    inside: dict[Expr, Expr] = {}

    def hide(node: Expr) -> Expr:
        if node.is_Atom:
            return node
        if isinstance(node, TRANSCENDENTAL):
            kept = node.func(*map(_reduced, node.args))
            if kept.is_number:
                return kept
            letter = sympy.Dummy(real=True)
            inside[letter] = kept
            return letter
        return node.func(*map(hide, node.args))

    return sympy.cancel(sympy.together(hide(expr))).xreplace(inside)


def _at_zero_mean(reduced: Expr) -> Expr:
    value = sympy.cancel(reduced.subs(mu2, 0))
    if not value.has(sympy.zoo, sympy.nan):
        return value
    # sympy's complex infinity has no sign; 1 / mu2 tends to plus infinity.
    norm = Symbol("norm", nonnegative=True)
    value = _guard(reduced.xreplace({mu2: norm})).subs(norm, 0)
    return value.xreplace({sympy.zoo: sympy.nan})


def _guard(expr: Expr) -> Expr:
    """Spell division by what may vanish as multiplication by :class:`Reciprocal`."""
    return expr.replace(
        lambda node: node.is_Pow and node.exp.is_negative and not node.base.is_positive,
        lambda node: Reciprocal(node.base) ** (-node.exp),
    )
