"""The search for a point where a claimed growth exponent of d_align is wrong.

A counterexample rests on two things: the derived exponent differs from the claimed one, in fractions, and sums over the
spectrum grow with slopes that follow the derived exponent over two ranges of the width.
"""

import dataclasses
import functools
import itertools
import time
from fractions import Fraction
from typing import Any

from sympy import Expr, Rational

from ...theory.claims import Claim, Kind
from ...theory.families import Family
from ...theory.spectra import GROWTH
from ...theory.symbols import TABLE
from ..growth import TOLERANCE, d_align, slope
from .spectrum_growth import exact, family_of, letters
from .target import Case, Counterexample, Effort, Searched

RANGES = ((2**14, 2**16, 2**18), (2**18, 2**20, 2**22))
# On both sides of and at every change of regime; none so near to one that the next order shows at these widths.
GRID = {
    "a": ("0", "1/4", "1/2", "1", "2", "3"),
    "b": ("0", "1/4", "1/2", "1", "3/2"),
    "s": ("-1/2", "0", "1/4", "1/2", "1", "3/2", "2"),
}
# Attempts to confirm, at the points with the simplest numbers first.
ATTEMPTS = 12
# A hint is tried as small numbers, which a person can check, and as it is.
DENOMINATORS = (8, 10**9)

Point = dict[str, Fraction]


def derived(family: Family, point: Point) -> Rational:
    """Exponent of d_align at a point."""
    return _exponent(family).xreplace(_symbols(point))


@functools.cache
def _exponent(family: Family) -> Expr:
    return family.e_align


def excess(kind: Kind, claimed: Any, true: Any) -> Any:
    """By how much a claimed exponent is wrong: positive where it is violated, else zero or less."""
    return {Kind.RATE: abs(true - claimed), Kind.UPPER_BOUND: true - claimed, Kind.LOWER_BOUND: claimed - true}[kind]


def search(claim: Claim, effort: Effort, hint: dict[str, float] | None = None) -> Searched:
    """Hold the claimed exponent against the derived one, and against slopes of sums, at points of a grid.

    No case is called the tightest: exponents may be negative or 0, and their ratio says nothing.

    Args:
        claim: Of one of the growth quantities.
        effort: Seconds, and what to do on progress; nothing is drawn.
        hint: A point at which the claim may be wrong.
    """
    stop = time.monotonic() + effort.seconds
    family = family_of(claim)
    names = letters(family)
    grid = [dict(zip(names, map(Fraction, p), strict=True)) for p in itertools.product(*(GRID[n] for n in names))]
    near = [{n: Fraction(hint[n]).limit_denominator(d) for n in names} for d in DENOMINATORS] if hint else []
    claimed = [(point, value) for point in (*near, *grid) if (value := _claimed(claim, point)) is not None]
    undecided = [] if len(claimed) == len(near) + len(grid) else ["the expression is no real number on all of the grid"]
    wrong = [point for point, value in claimed if excess(claim.kind, value, derived(family, point)) > 0]
    candidates = sorted(wrong, key=_size)[:ATTEMPTS]
    attempts = (confirm(claim, _spelled(point)) for point in candidates)
    found = next((counterexample for counterexample in attempts if counterexample), None)
    if wrong and not found:
        undecided.append(
            f"the derived exponent is not the claimed one at {_label(candidates[0])}, but sums up to N = "
            f"{RANGES[-1][-1]} do not tell them apart"
        )
    cases: list[Case] = []
    for point, value in claimed[len(near) :]:
        if time.monotonic() > stop or (found and not effort.sharpen):
            break
        measured = slope(family, **_floats(point), widths=RANGES[-1])
        cases.append(
            Case(
                stage="sums",
                family=family.id,
                subject=_label(point),
                where=_spelled(point),
                observed=measured,
                bound=float(value),
                exact=True,
            )
        )
        if abs(measured - derived(family, point)) > TOLERANCE:
            undecided.append(f"the slope {measured:.4f} at {_label(point)} is not the derived exponent")
        effort.on_progress("sums", len(cases), len(grid))
    return Searched(
        counterexample=found,
        cases=tuple(cases),
        tried={
            "derived": {"cells": len(claimed), "exact": len(claimed)},
            "sums": {"cells": len(cases), "exact": len(cases)},
        },
        undecided=tuple(undecided),
        finished=found is not None or len(cases) == len(claimed) - len(near),
    )


def confirm(claim: Claim, where: dict[str, Any]) -> Counterexample | None:
    """Compute derived exponent and slopes at a point; a counterexample if both are away from the claimed exponent.

    Args:
        claim: Of one of the growth quantities.
        where: The letters of its spectrum as fractions in text, as in {"a": "1/4", "s": "1"}.

    Raises:
        ValueError: If a letter is missing, foreign, no fraction, or none that the spectrum can have.
    """
    family = family_of(claim)
    point = _point(claim, where)
    value, true = _claimed(claim, point), derived(family, point)
    # With slopes within one tolerance of the derived exponent, two keep them clear of the claimed one.
    if value is None or not excess(claim.kind, value, true) > 2 * TOLERANCE:
        return None
    slopes = [slope(family, **_floats(point), widths=widths) for widths in RANGES]
    if any(abs(measured - true) > TOLERANCE for measured in slopes):
        return None
    times = " log N" if family.log_align.xreplace(_symbols(point)) else ""
    widths = dict.fromkeys(itertools.chain.from_iterable(RANGES))
    return Counterexample(
        subject=f"{family.meaning}, {_label(point)}",
        where=_spelled(point),
        observed=str(true),
        bound=str(value),
        confirmed="exact fractions",
        table=(
            ("spectrum", f"{family.meaning}, |mu|^2 = N^s"),
            *_spelled(point).items(),
            *((f"d_align at N = {width}", f"{d_align(family, width, **_floats(point)):.6g}") for width in widths),
            *(
                (f"slope of log(d_align{times}), N = {some[0]} to {some[-1]}", f"{measured:.4f}")
                for some, measured in zip(RANGES, slopes, strict=True)
            ),
            (f"exponent: {family.e_align}", str(true)),
            (f"claimed ({claim.kind}): {claim.expression}", str(value)),
        ),
    )


def _claimed(claim: Claim, point: Point) -> Expr | None:
    """The claimed exponent, exactly; None where it is no real number."""
    rational = dataclasses.replace(claim, expression=exact(claim.expression))
    value = rational.number(**{name: point[name] for name in rational.arguments})
    return value if value.is_real and value.is_finite else None


def _point(claim: Claim, where: dict[str, Any]) -> Point:
    names = letters(family_of(claim))
    if set(where) != set(names):
        raise ValueError(f"{claim.quantity.id}: got {', '.join(where) or 'no letter'}, expected {', '.join(names)}.")
    try:
        point = {name: Fraction(where[name]) for name in names}
    except (TypeError, ValueError, ZeroDivisionError):
        raise ValueError(f"{claim.quantity.id}: got {where}, expected fractions as in '1/4'.") from None
    negative = [name for name in names if TABLE[name].symbol.is_nonnegative and point[name] < 0]
    if negative:
        raise ValueError(f"{claim.quantity.id}: {negative[0]} = {point[negative[0]]}, expected at least 0.")
    return point


def _symbols(point: Point) -> dict[Expr, Rational]:
    return {TABLE[name].symbol: Rational(*x.as_integer_ratio()) for name, x in point.items()}


def _floats(point: Point) -> dict[str, float]:
    return {name: float(point.get(name, 0)) for name in GROWTH.symbols}


def _spelled(point: Point) -> dict[str, str]:
    return {name: str(x) for name, x in point.items()}


def _label(point: Point) -> str:
    return ", ".join(f"{name} = {x}" for name, x in point.items())


def _size(point: Point) -> tuple[int, int]:
    return sum(x.denominator for x in point.values()), sum(abs(x.numerator) for x in point.values())
