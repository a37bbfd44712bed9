"""Growth exponents of d_align in the width, fitted to exact sums over a spectrum and held against the theory."""

import math
from collections.abc import Sequence

import numpy as np

from ..theory.claims import Claim, Kind
from ..theory.families import FAMILIES, Family
from ..theory.symbols import TABLE
from .decisions import Check, Evidence, Status

WIDTHS = tuple(2**k for k in range(14, 21, 2))
# The next term of sum_i i^-c, or of a harmonic sum against log N, shifts the local slope by at most 1.2 % here.
TOLERANCE = 0.013
# Spectral exponents a, spike exponents b and signals s on both sides of every change of regime, boundaries included.
POINTS = tuple((a, b, s) for a in (0.25, 1.0, 2.0) for b in (0.25, 1.0) for s in (0.25, 1.0))


def d_align(family: Family, width: int, a: float, b: float, s: float) -> float:
    """Compute d_align of a family at one width from sums over its eigenvalues."""
    index = np.arange(1, width + 1, dtype=float)
    eigenvalue, mean_squared = family.function()(index, float(width), a, b, s)
    norm = float(mean_squared.sum())
    return norm**2 / max(float(mean_squared @ eigenvalue), float(eigenvalue @ eigenvalue))


def slope(family: Family, a: float, b: float, s: float, widths: Sequence[int] = WIDTHS) -> float:
    """Fit the log-log slope of d_align in the width, after division by the logarithm that the theory expects."""
    point = {TABLE[name].symbol: value for name, value in (("a", a), ("b", b), ("s", s))}
    power = float(family.log_align.subs(point))
    values = [d_align(family, width, a, b, s) * math.log(width) ** power for width in widths]
    return float(np.polyfit(np.log(widths), np.log(values), 1)[0])


def check_growth(claim: Claim) -> list[Check]:
    """Hold a claimed growth exponent against fitted slopes at every point that its letters distinguish."""
    family = FAMILIES.get(claim.id.removeprefix("spectra."))
    if claim.kind is not Kind.RATE or family is None:
        return []
    used = {str(symbol) for symbol in family.eigenvalue.free_symbols | family.mean_squared.free_symbols}
    points = dict.fromkeys(tuple(v if n in used else 0.0 for n, v in zip("abs", p, strict=True)) for p in POINTS)
    checks = []
    for a, b, s in points:
        claimed = claim.expression.subs({TABLE[n].symbol: v for n, v in (("a", a), ("b", b), ("s", s))})
        number = bool(claimed.is_real and claimed.is_finite)
        expected = float(claimed) if number else math.nan
        found = slope(family, a, b, s)
        status = Status.SUPPORTED if abs(found - expected) <= TOLERANCE else Status.REFUTED
        checks.append(
            Check(
                claim=claim.id,
                evidence=Evidence.EXACT,
                status=status if number else Status.INCONCLUSIVE,
                subject=f"{family.meaning}; a={a:g}, b={b:g}, s={s:g}",
                observed=found,
                expected=expected if number else None,
                detail=f"slope over N = {WIDTHS[0]} to {WIDTHS[-1]}, tolerance {TOLERANCE}"
                if number
                else f"the expression is {claimed} here",
                where={"a": a, "b": b, "s": s},
            )
        )
    return checks
