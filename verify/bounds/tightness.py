"""How tight a bound is, to the last digit: ratios in fractions where floats would leave 1 + 1e-16."""

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ...sim.finite_laws import FiniteSupport
from ...sim.populations import build
from ...theory.claims import Claim, Kind
from ..checks import Undefined
from .enclosure import enclose
from .exact_case import FiniteCase
from .target import Case

# Of a contour integral, relative.
CONTOUR = Fraction(1, 10**9)


def polished(claim: Claim, case: Case) -> Case:
    """Return a case with both sides correctly rounded, where it can be computed in fractions."""
    known = _exactly(claim, case)
    if known is None:
        return case
    p, low, high = known
    return dataclasses.replace(case, observed=float(p), bound=float((low + high) / 2))


def constant(claim: Claim, ranked: Sequence[Case]) -> dict[str, Any]:
    """The constant c for which c times the bound still holds wherever it was tried, next to it on the holding side.

    Args:
        claim: An upper or a lower bound; an identity has none.
        ranked: Cases, tightest first.

    Returns:
        "constant" (None if no c > 0 will do, or no finite one), with the "subject" and "where" of the case behind it.
    """
    exact = [case for case in ranked if case.exact]
    if not exact or claim.kind is Kind.IDENTITY:
        return {}
    first = exact[0].ratio(claim.kind)
    alike = (
        [case for case in exact if case.ratio(claim.kind) >= first * (1 - 1e-9)] if math.isfinite(first) else exact[:1]
    )
    ratio, case = max(((_ratio(claim, case), case) for case in alike), key=lambda both: both[0] or 0)
    value = None
    if ratio:
        upper = claim.kind is Kind.UPPER_BOUND
        wanted = ratio if upper else 1 / ratio
        value = float(wanted)
        if (Fraction(value) < wanted) if upper else (Fraction(value) > wanted):
            value = math.nextafter(value, math.inf if upper else 0.0)
    return {"constant": value, "subject": case.subject, "where": case.where}


def _ratio(claim: Claim, case: Case) -> Fraction | None:
    """The ratio that the claim is judged by, not rounded down; None if it is infinite."""
    known = _exactly(claim, case)
    if known is None:
        ratio = case.ratio(claim.kind)
        return Fraction(ratio) * (1 + CONTOUR) if math.isfinite(ratio) else None
    p, low, high = known
    over, under = (high, p) if claim.kind is Kind.LOWER_BOUND else (p, low)
    return over / under if under > 0 else None


def _exactly(claim: Claim, case: Case) -> tuple[Fraction, Fraction, Fraction] | None:
    law = build(**case.where["population"])
    if not (case.exact and isinstance(law, FiniteSupport)):
        return None
    finite = FiniteCase(law=law, M=case.where["M"], K=case.where["K"])
    try:
        value = enclose(claim, finite.letters)
    except Undefined:
        return None
    return finite.p, value.low, value.high
