"""Error laws with free constants: how they read, and whether any constants at all fit measured intervals."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import sympy
from scipy.optimize import linprog
from sympy import Expr

from ...theory.claims import Claim
from ...theory.symbols import TABLE
from ..observations import Array
from ..rates import COLUMNS, power
from ..surfaces import Combine, Model, Term

DEGREES: dict[Combine, int] = {"sum": 1, "quadrature": 2}


def model(claim: Claim) -> Model:
    """Return a law as a sum of terms to fit.

    Raises:
        ValueError: If a term is no constant of its own times powers of the sizes, or two terms have the same powers.
    """
    terms: dict[str, dict[str, float | str]] = {}
    for term in sympy.Add.make_args(sympy.expand(claim.expression)):
        constant, powers = _monomial(claim, term)
        if constant in terms:
            raise ValueError(f"Claim {claim.id}: {constant} stands in two terms; give each a constant of its own.")
        if powers in terms.values():
            raise ValueError(f"Claim {claim.id}: two terms have the powers of {term}; their constants are one.")
        terms[constant] = powers
    return Model(name=str(claim.expression), terms=tuple(Term(*item) for item in terms.items()))


def _monomial(claim: Claim, term: Expr) -> tuple[str, dict[str, float | str]]:
    constants = [x for x in term.free_symbols if str(x).startswith("c_")]
    if len(constants) != 1:
        raise ValueError(f"Claim {claim.id}: the term {term} needs one constant, as in c1/L, and has {len(constants)}.")
    powers: dict[str, float | str] = {column: power(term, letter) for letter, column in COLUMNS.items()}
    sizes = [TABLE[letter].symbol ** power(term, letter) for letter in COLUMNS]
    number = (term / constants[0]).subs({TABLE[letter].symbol: 1 for letter in COLUMNS})
    if power(term, str(constants[0])) != 1 or number != 1:
        raise ValueError(
            f"Claim {claim.id}: the term {term} must read {constants[0]} times powers of {', '.join(COLUMNS)}, here "
            f"{constants[0] * sympy.nsimplify(math.prod(sizes))}: the constant stands for every number."
        )
    return str(constants[0]), powers


def readings(law: Model) -> tuple[Model, ...]:
    """The law as written, and with its terms added in quadrature where there is more than one."""
    return (law, replace(law, combine="quadrature"))[: len(law.terms)]


def varied(law: Model) -> tuple[str, ...]:
    """The columns of the shape that the law depends on."""
    return tuple(column for column in COLUMNS.values() if any(term.powers[column] for term in law.terms))


def values(law: Model, constants: Mapping[str, float], shapes: Mapping[str, Array]) -> Array:
    """Evaluate the law at shapes."""
    degree = DEGREES[law.combine]
    c = np.array([constants[name] for name in law.coefficients])
    return ((c[:, None] * _powers(law, shapes)) ** degree).sum(axis=0) ** (1 / degree)


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """The constants that come nearest to intervals of the error.

    Attributes:
        law: With its way to combine.
        constants: By name, at least 0.
        factor: The law leaves some interval by this factor, however the constants are chosen; 1 or less if it need not.
        greater: Weights u by index of a shape, see ``nearest``.
        smaller: Weights w; that of the other side is 1.
    """

    law: Model
    constants: dict[str, float]
    factor: float
    greater: dict[int, float]
    smaller: dict[int, float]

    @property
    def deciding(self) -> tuple[int, ...]:
        """Indices of the shapes that force the factor, at most one more than there are constants."""
        return tuple(sorted({*self.greater, *self.smaller}))


def nearest(law: Model, shapes: Mapping[str, Array], low: Array, high: Array) -> Nearest:
    r"""Find the least factor t for which some constants c put the law within [low / t, high t] at every shape.

    With p = 1 for a sum and 2 for quadrature, x = c^p and m the powers of the sizes, to the p: the least t for which
    low^p / t^p <= m x <= t^p high^p. In y = t^p x and T = t^(2p) that is the linear programme

    .. math:: \min T \quad \text{where} \quad low^p \le m y \le T \, high^p, \quad y \ge 0,

    Its dual proves that no choice of constants escapes: with weights u and w of a few shapes,
    :math:`\sum u \, law^p \le \sum w \, law^p` for all constants, but :math:`\sum u \, low^p = T` and
    :math:`\sum w \, high^p = 1`.
    """
    p = DEGREES[law.combine]
    m = (_powers(law, shapes) / high).T ** p
    scale = m.max(axis=0)
    m = m / scale
    n, J = m.shape
    A = np.block([[-m, np.zeros((n, 1))], [m, -np.ones((n, 1))]])
    b = np.concatenate([-((low / high) ** p), np.zeros(n)])
    found = linprog(np.append(np.zeros(J), 1.0), A_ub=A, b_ub=b, bounds=(0, None), method="highs")
    T = float(found.fun)
    greater, smaller = (
        {int(i): float(side[i] / high[i] ** p) for i in np.flatnonzero(side)}
        for side in np.abs(found.ineqlin.marginals).reshape(2, n)
    )
    constants = (np.maximum(found.x[:J], 0) / scale / math.sqrt(T)) ** (1 / p)
    return Nearest(
        law=law,
        constants=dict(zip(law.coefficients, constants.tolist(), strict=True)),
        factor=T ** (1 / (2 * p)),
        greater=greater,
        smaller=smaller,
    )


def _powers(law: Model, shapes: Mapping[str, Array]) -> Array:
    """Each term at constant 1, (terms, shapes)."""
    return np.array(
        [
            np.exp(sum(float(power) * np.log(shapes[column]) for column, power in term.powers.items()))
            for term in law.terms
        ]
    )
