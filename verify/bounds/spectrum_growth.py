"""Claims on the growth of d_align with the width, one quantity a spectrum, decided against the derived exponent.

The exponent of a spectrum is derived in ``theory/families.py`` and its proof is checked here; whether a claimed one
agrees with it for all a, b, s is decided by z3. Source: [width], growth rates.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import sympy
from sympy import Expr, Rational

from ...theory import registry
from ...theory.claims import Claim, Kind
from ...theory.families import FAMILIES, Family
from ...theory.spectra import GROWTH
from ...theory.symbols import TABLE
from .proving import available
from .target import Decision, Points, Target

TIMEOUT_MS = 3000
MAX_POWER = 4
# Changes of regime lie at a = 1/2, a = 1, b = 1/2 and at values of s in between.
ENDS = {"a": (0.0, 3.0), "b": (0.0, 3.0), "s": (-1.0, 3.0)}


def letters(family: Family) -> tuple[str, ...]:
    """The exponents that a family has, of a, b and s."""
    used = {str(x) for x in family.eigenvalue.free_symbols | family.mean_squared.free_symbols}
    return tuple(name for name in GROWTH.symbols if name in used)


def family_of(claim: Claim) -> Family:
    """The spectrum that a claim speaks about.

    Raises:
        ValueError: If its quantity is none of ``TARGETS``.
    """
    name = claim.quantity.id.removeprefix(f"{GROWTH.id}.")
    if name not in FAMILIES:
        raise ValueError(f"Claim {claim.id}: no spectrum {name!r}; expected {GROWTH.id}. and {', '.join(FAMILIES)}.")
    return FAMILIES[name]


def exact(expr: Expr) -> Expr:
    """Read decimals as the fractions that they spell."""
    return expr.xreplace({number: Rational(str(number)) for number in expr.atoms(sympy.Float)})


def decide(claim: Claim) -> Decision | None:
    """Compare the claimed exponent with the derived one for all letters; None where z3 is missing or at a loss.

    Raises:
        ValueError: If the claim speaks of no known spectrum, or the derivation has a step that fails.
    """
    family = family_of(claim)
    if not available():
        return None
    import z3

    reals = {name: z3.Real(name) for name in letters(family)}
    try:
        claimed, true = _translated(exact(claim.expression), reals), _translated(family.e_align, reals)
    except NotImplementedError:
        return None
    relation, violation = {
        Kind.RATE: ("is", true != claimed),
        Kind.UPPER_BOUND: ("is at most", true > claimed),
        Kind.LOWER_BOUND: ("is at least", true < claimed),
    }[claim.kind]
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT_MS)
    solver.add(violation, *(reals[name] >= 0 for name in reals if TABLE[name].symbol.is_nonnegative))
    answer = solver.check()
    if answer == z3.unknown:
        return None
    implication = (
        f"the exponent {family.e_align}, derived from the sums over the spectrum in {_steps(family)} checked steps, "
        f"{relation} {claim.expression} for all {', '.join(reals)}"
    )
    if answer == z3.unsat:
        return Decision(proved=True, implication=implication)
    model = solver.model()
    values = {name: model.eval(x, model_completion=True) for name, x in reals.items()}
    # A root of a polynomial comes as an algebraic number.
    rational = {n: v if z3.is_rational_value(v) else v.approx(10) for n, v in values.items()}
    return Decision(
        proved=False, implication=implication, hint={name: float(v.as_fraction()) for name, v in rational.items()}
    )


@functools.cache
def _steps(family: Family) -> int:
    proof = dataclasses.replace(registry.find(f"spectra.{family.id}"), expression=family.e_align).prove()
    if proof is None or not proof.holds:
        raise ValueError(f"{GROWTH.id}.{family.id}: the derivation of {family.e_align} has a step that fails.")
    return len(proof.steps)


def _translated(expr: Expr, reals: dict[str, Any]) -> Any:
    """Spell an expression of sums, products, whole powers, Max, Min and Abs for z3.

    Raises:
        NotImplementedError: For any other.
    """
    import z3

    if expr.is_Rational:
        return z3.RealVal(str(expr))
    if expr.is_Symbol:
        return reals[str(expr)]
    if expr.is_Pow and expr.exp.is_Integer and 0 < expr.exp <= MAX_POWER:
        return math.prod([_translated(expr.base, reals)] * int(expr.exp))
    if not isinstance(expr, sympy.Add | sympy.Mul | sympy.Max | sympy.Min | sympy.Abs):
        raise NotImplementedError(str(expr))
    arguments = [_translated(argument, reals) for argument in expr.args]
    match expr:
        case sympy.Add():
            return z3.Sum(arguments)
        case sympy.Mul():
            return z3.Product(arguments)
        case sympy.Max():
            return functools.reduce(lambda x, y: z3.If(x >= y, x, y), arguments)
        case sympy.Min():
            return functools.reduce(lambda x, y: z3.If(x <= y, x, y), arguments)
        case _:
            return z3.If(arguments[0] >= 0, arguments[0], -arguments[0])


def _points(names: tuple[str, ...], rng: np.random.Generator, count: int) -> Points:
    return {name: rng.uniform(*ENDS[name], size=count) for name in names}


TARGETS = tuple(
    Target(
        quantity=dataclasses.replace(
            GROWTH,
            id=f"{GROWTH.id}.{family.id}",
            meaning=f"{GROWTH.meaning}; {family.meaning}, |mu|^2 = N^s",
            symbols=letters(family),
        ),
        kinds=(Kind.RATE, Kind.UPPER_BOUND, Kind.LOWER_BOUND),
        points=functools.partial(_points, letters(family)),
        home="growth_search",
        decide=decide,
    )
    for family in FAMILIES.values()
)
