"""The extremal laws of A6 on grids: Bernoulli, and a rare atom on the line or in the plane.

A law of two atoms comes near B_exact where X = 0 on its second most likely outcome. For the common atom (1, 0) and the
rare one (x, w) that is x = -(M - 1) or -(K - 1); w then trades d_par against d_2. Source: [width] spec, A1 and A6.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np

from .two_atoms import TwoAtoms

_SIMPLE = tuple(Fraction(1, n) for n in (2, 3, 4, 5, 6, 8))
_DECADES = tuple(Fraction(digit, 10**power) for power in range(1, 9) for digit in (1, 2, 3, 5))
WEIGHTS = tuple(sorted({*_SIMPLE, *(w for w in _DECADES if w < Fraction(1, 2)), Fraction(1, 40000)}, reverse=True))
TINY = tuple(Fraction(1, 10**power) for power in (9, 10, 12, 15))
# Multiples of the squared distance of the atoms at which d_par = d_2.
STRETCH = (0.25, 0.5, 1.0, 2.0, 4.0)


@functools.cache
def extremal(M: int, K: int) -> TwoAtoms:
    """Bernoulli laws and rare atoms on the line and in the plane, the weight of the rare atom over many decades."""
    weights = WEIGHTS + (TINY if max(M, K) == 1 else ())
    level = np.arange(len(weights))
    eps = np.array([float(w) for w in weights])
    # Where P and a bound are both 1 up to rounding there is nothing to see, except in fractions at M = K = 1.
    seen = level[eps**2 * M * K > 1e-7] if max(M, K) > 1 else level
    parts = [_pairs((0, 0), (1, 0), seen), _pairs((1, 0), (0, 0), level)]
    for x in edges(M, K):
        if x not in (0, 1):
            parts.append(_pairs((1, 0), (x, 0), level))
        parts += [_raised(x, height, level) for height in _heights(float(x), eps)]
    return _joined(parts, weights).fitting(M, K)


@functools.cache
def misalignment(M: int, K: int) -> np.ndarray:
    """P(X <= 0) of the extremal laws at their own size, computed once a process."""
    return extremal(M, K).misalignment(M, K)


def edges(M: int, K: int) -> tuple[Fraction, ...]:
    """Values of x for the rare atom at which an outcome with few rare atoms passes X = 0, and a few others."""
    found = {Fraction(1 - m, j) for m in (M, K) for j in (1, 2, 3)} | {Fraction(2 - M, 2), Fraction(2 - K, 2)}
    return tuple(sorted(found | {Fraction(x) for x in (-1, 0, 1, 2)}))


def _heights(x: float, eps: np.ndarray) -> Iterator[np.ndarray]:
    """Heights w of the rare atom (x, w): multiples of the squared distance at which d_par = d_2, and 1."""
    level = (1 - x if x < 1 else 1.0) / (eps + np.sqrt(eps * (1 - eps)))
    for stretch in STRETCH:
        yield np.sqrt(np.maximum(stretch * level - (x - 1) ** 2, 0))
    yield np.ones_like(eps)


def _raised(x: Fraction, height: np.ndarray, level: np.ndarray) -> dict[str, np.ndarray]:
    # Three digits of w are enough, and keep the integers small.
    grid = np.where(height < 64, 16, 1) * x.denominator
    w = np.floor(height * grid).astype(np.int64)
    keep = w > 0
    one = np.column_stack([grid, np.zeros_like(grid)])
    rare = np.column_stack([grid // x.denominator * x.numerator, w])
    return {"common": one[keep], "rare": rare[keep], "denominator": grid[keep], "weight": level[keep]}


def _pairs(common: tuple[int, int], rare: tuple[int | Fraction, int], level: np.ndarray) -> dict[str, np.ndarray]:
    denominator = Fraction(rare[0]).denominator
    atoms = [np.tile([int(x * denominator) for x in atom], (len(level), 1)) for atom in (common, rare)]
    return {
        "common": atoms[0],
        "rare": atoms[1],
        "denominator": np.full(len(level), denominator),
        "weight": level,
    }


def _joined(parts: Sequence[dict[str, np.ndarray]], weights: tuple[Fraction, ...]) -> TwoAtoms:
    arrays = {name: np.concatenate([part[name] for part in parts]).astype(np.int64) for name in parts[0]}
    return TwoAtoms(weights=weights, **arrays)


def hinted(hint: Mapping[str, float], M: int, K: int) -> TwoAtoms | None:
    r"""Two-atom laws with the hint's d_par and d_2, over weights of the rare atom; None if no such law exists.

    With |mu| = 1, delta = b - a, s = eps (1 - eps): d_par = 1 / (s (mu.delta)^2) and d_2 = 1 / (s |delta|^2)^2. The
    rare atom is moved onto the next edge at which an outcome passes X = 0, as well as left where it is.
    """
    moments = {name: hint.get(name, math.nan) for name in ("mu2", "mu_Sigma_mu", "tr_Sigma2")}
    d_par = hint.get("d_par", _over(moments["mu2"] ** 2, moments["mu_Sigma_mu"]))
    d_2 = hint.get("d_2", _over(moments["mu2"] ** 2, moments["tr_Sigma2"]))
    if not (d_par > 0 and d_2 > 0 and math.isfinite(d_2)):
        return None
    eps = np.array([float(w) for w in WEIGHTS])
    s = eps * (1 - eps)
    step = 1 / (s * math.sqrt(d_2))
    along = 1 / np.sqrt(s * d_par)
    across = np.sqrt(np.maximum(step - along**2, 0))
    parts = []
    for sign in (-1, 1):
        a = np.column_stack([1 - sign * eps * along, -eps * across])
        b = np.column_stack([1 + sign * (1 - eps) * along, (1 - eps) * across])
        norm2 = np.maximum((a * a).sum(axis=1), 1e-12)
        x, w2 = (a * b).sum(axis=1) / norm2, (b * b).sum(axis=1) / norm2
        for j, m in itertools.product((0, 1, 2), {M, K}):
            edge = np.full_like(x, (j - m) / j) if j else x
            parts.append(_rounded(edge, np.sqrt(np.maximum(w2 - edge**2, 0)), np.arange(len(WEIGHTS))))
    return _joined(parts, WEIGHTS).fitting(M, K)


def _over(top: float, bottom: float) -> float:
    return math.inf if bottom == 0 else top / bottom


def _rounded(x: np.ndarray, w: np.ndarray, level: np.ndarray) -> dict[str, np.ndarray]:
    keep = np.isfinite(x) & (np.maximum(np.abs(x), w) < 1e6)
    x, w = x[keep], w[keep]
    grid = np.where(np.maximum(np.abs(x), w) < 64, 16, 1)
    one = np.column_stack([grid, np.zeros_like(grid)])
    rare = np.column_stack([np.floor(x * grid), np.floor(w * grid)]).astype(np.int64)
    return {"common": one, "rare": rare, "denominator": grid, "weight": level[keep]}
