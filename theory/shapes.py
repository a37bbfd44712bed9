r"""The error bound of networks of all shapes, and the shape (L, M, D) that minimises it at a budget of P = LMD.

At LMD = P the bound is :math:`c_1 MD/P + c_2 D/\sqrt{P} + c_4/\sqrt{D}`: L and M appear in the first term only, which
is of lower order for every :math:`M \ll P^{1/2}`. The other two balance at :math:`D = (c_4/2c_2)^{2/3} P^{1/3}`, where
they add up to :math:`3 c_2^{1/3} (c_4/2)^{2/3} P^{-1/6}`. To leading order all shapes with this D and L of more than
order :math:`P^{1/6}` are equally good, the cube L ~ M ~ D ~ P^(1/3) among them; the first term then prefers few units.
Source: [all-shapes]; the constant and the shapes are derived in ``rates_proofs.best_shape``.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import sympy
from sympy import Rational, sqrt

from .mean_ode import require_shape
from .symbols import D, L, P_budget, c_bias, c_embed, c_noise
from .symbols import M_units as M

BOUND = c_bias / L + c_noise * sqrt(D / (L * M)) + c_embed / sqrt(D)
BEST_EMBED_DIM = (c_embed / (2 * c_noise)) ** Rational(2, 3) * P_budget ** Rational(1, 3)
"""The best embedding dimension to leading order, for M << P^(1/2)."""

CONSTANTS = (c_bias, c_noise, c_embed)
CANDIDATES = 10_000


class Shape(NamedTuple):
    """L, M, D."""

    depth: int
    units: int
    embed_dim: int


@functools.cache
def _bound() -> Callable[..., float]:
    return sympy.lambdify([L, M, D, *CONSTANTS], BOUND, modules="math")


def bound(shape: Shape, constants: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> float:
    """Evaluate the three-term bound.

    Args:
        shape: L, M, D.
        constants: c_bias, c_noise, c_embed.
    """
    return _bound()(*shape, *constants)


def best_shape(
    budget: int, *, units_per_dim: float = 0.0, constants: tuple[float, float, float] = (1.0, 1.0, 1.0)
) -> Shape:
    """Return the shape with L M D <= P of the least bound.

    Without a demand on M it is M = 1 (or what is left over), which is best for every D. It is the exact minimum then up
    to P about 10^11, and within 1e-4 of its D beyond.

    Args:
        budget: P, the number of parameters (of U, or of V).
        units_per_dim: Least M / D: 1 stays within D = O(M), which ``rates.embed_dim`` assumes; 0 leaves M free.
        constants: c_bias, c_noise, c_embed.

    Raises:
        TypeError: If the budget is not an integer.
        ValueError: If an argument is out of range, or the budget holds no such shape.
    """
    require_shape("best_shape", budget=budget)
    if not 0 <= units_per_dim < math.inf:
        raise ValueError(f"best_shape: units_per_dim must be at least 0 and finite, got {units_per_dim}.")
    if len(constants) != 3 or not all(0 < c < math.inf for c in constants):
        raise ValueError(f"best_shape: constants must be three positive numbers, got {constants}.")
    balance = float(BEST_EMBED_DIM.subs({P_budget: budget, **dict(zip(CONSTANTS, constants, strict=True))}))
    # 1/L and whole numbers move the best D, to the left and by about 1; twice the balance is far beyond it.
    last = min(budget, math.ceil(2 * balance) + 1)
    shapes = [
        shape
        for embed_dim in range(1, last + 1, max(1, last // CANDIDATES))
        if (shape := _deepest(budget, embed_dim, units_per_dim)) is not None
    ]
    if not shapes:
        raise ValueError(f"best_shape: a budget of {budget} holds no shape with M >= {units_per_dim} D; raise it.")
    return min(shapes, key=lambda shape: bound(shape, constants))


def _deepest(budget: int, embed_dim: int, units_per_dim: float) -> Shape | None:
    units = max(1, math.ceil(units_per_dim * embed_dim))
    depth = budget // (units * embed_dim)
    return Shape(depth, budget // (depth * embed_dim), embed_dim) if depth else None
