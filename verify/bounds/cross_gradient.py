"""Finite-sample bounds on the norm deviation of a mean, against laws whose tails are known exactly."""

import bisect
import functools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np

from ...sim.deviation import Signs, Simplex
from ...sim.finite_laws import fraction
from ...theory.claims import Claim, Kind
from ..checks import Undefined
from .counterexample import spell, spell_interval
from .enclosure import Interval, compare, with_fractions
from .target import Case, Counterexample, Effort, Searched

PROBABILITIES = tuple(Fraction(n, 100) for n in (1, 2, 5, 10, 20, 30, 40, 50))
SAMPLES = (*range(1, 13), 16, 20, 32, 50, 64, 100, 200, 500)
DIMENSIONS = (2, 3, 5, 10, 100, 10_000, 10**8)
MOST_SAMPLES = 20
# The expected norm shows near 1 and the constant of the logarithm near 0, where the other one is small beside it.
LEVELS = (
    *(Fraction(1, 10**n) for n in (100, 30, 12, 9, 6, 5, 4, 3, 2)),
    *(Fraction(n, 100) for n in (2, 3, 5, 8, 10, 15, 20, 24, 25, 30, 33, 40, 48, 50, 60, 70, 80, 90, 99)),
    *(1 - Fraction(1, 10**n) for n in (3, 6)),
)
# Deviations scale with B: for few samples, others than 1 show whether a bound does.
BOUNDS, SCALED = (Fraction(1), Fraction(2), Fraction(1, 10)), 4
NEAR = 1 - 1e-9
KEPT = 12
ROOT_DIGITS = 10**40


@dataclass(frozen=True, kw_only=True)
class DeviationCase:
    """A law of C, n, B and delta; ``square`` is the largest squared deviation over B^2 with a tail above delta."""

    law: Signs | Simplex
    B: Fraction
    delta: Fraction
    square: Fraction
    tail: Fraction

    @property
    def where(self) -> dict[str, Any]:
        """Enough to compute it again."""
        law = {"p": str(self.law.p)} if isinstance(self.law, Signs) else {"d": self.law.d}
        return {**law, "n": self.law.n, "B": str(self.B), "delta": str(self.delta)}

    @property
    def family(self) -> str:
        """Group for pictures."""
        return "signs" if isinstance(self.law, Signs) else "simplex"

    @property
    def subject(self) -> str:
        """The case in a line."""
        return f"{self.law.name}; n={self.law.n}, B={self.B}, delta={_spell_level(self.delta)}"

    @property
    def letters(self) -> dict[str, int | Fraction | Interval]:
        """Every letter that a bound may use."""
        return {"n_samples": self.law.n, "B_norm": self.B, "delta": self.delta}

    @property
    def deviation(self) -> Interval:
        """The deviation that is reached with a probability above delta."""
        square = self.square * self.B**2
        low = isqrt(square.numerator * square.denominator * ROOT_DIGITS**2)
        unit = square.denominator * ROOT_DIGITS
        exact = low * low == square.numerator * square.denominator * ROOT_DIGITS**2
        return Interval(low=Fraction(low, unit), high=Fraction(low + (not exact), unit))

    @property
    def size(self) -> tuple[bool, int, int, int]:
        """What makes a case simple: B = 1, few samples, few digits."""
        digits = len(str(self.delta)) + len(str(self.where.get("p", self.where.get("d"))))
        return self.B != 1, self.law.n, digits, len(str(self.delta))


def _spell_level(level: Fraction) -> str:
    return str(level) if level.denominator <= 10**6 else f"{float(level):g}"


def _at(law: Signs | Simplex, B: Fraction, level: Fraction) -> DeviationCase | None:
    """The case at a level; None where only a deviation of 0 has a tail above it."""
    place = bisect.bisect_right(law.tail, level, key=lambda pair: pair[1])
    if place == len(law.tail):
        return None
    square, tail = law.tail[place]
    return DeviationCase(law=law, B=B, delta=level, square=square, tail=tail) if square else None


def _laws() -> Iterator[Signs | Simplex]:
    for n in SAMPLES:
        yield from (Signs(p=p, n=n) for p in PROBABILITIES)
        if n <= MOST_SAMPLES:
            yield from (Simplex(d=d, n=n) for d in DIMENSIONS)


@functools.lru_cache(maxsize=1)
def _cases() -> tuple[DeviationCase, ...]:
    found = (
        _at(law, B, level) for law in _laws() for level in LEVELS for B in (BOUNDS if law.n <= SCALED else BOUNDS[:1])
    )
    return tuple(case for case in found if case is not None)


def search(claim: Claim, effort: Effort, hint: Mapping[str, float] | None = None) -> Searched:
    """Hold a bound against every case; the simplest that breaks it is the counterexample.

    Args:
        claim: An upper bound t(n, B, delta): P(deviation >= t) <= delta.
        effort: Time and progress; nothing is random, and one process is enough.
        hint: Not used.
    """
    claim, start = with_fractions(claim), time.monotonic()
    every = _cases()
    effort.on_progress("exact tails", 1, 2)
    letters = {name: np.array([float(case.letters[name]) for case in every]) for name in every[0].letters}  # type: ignore[arg-type]
    with np.errstate(all="ignore"):
        bounds = np.broadcast_to(claim.numeric()(**{name: letters[name] for name in claim.arguments}), (len(every),))
    cases = [
        Case(
            stage="exact tails",
            family=case.family,
            subject=case.subject,
            where=case.where,
            observed=math.sqrt(case.square) * float(case.B),
            bound=float(np.real(bound)),
            exact=True,
        )
        for case, bound in zip(every, bounds, strict=True)
    ]
    undefined = [case for case in cases if np.isnan(case.bound)]
    order = sorted(range(len(every)), key=lambda i: every[i].size)
    doubtful = (i for i in order if not cases[i].ratio(claim.kind) < NEAR)
    broken = (found for i in doubtful if (found := confirm(claim, every[i].where)))
    known = [case for case in cases if not np.isnan(case.bound)]
    effort.on_progress("exact tails", 2, 2)
    return Searched(
        counterexample=next(broken, None),
        cases=tuple(_kept(known, claim.kind)),
        tightest=max(known, key=lambda case: case.ratio(claim.kind), default=None),
        tried={"exact tails": {"cells": len(every), "exact": len(every)}},
        undecided=(f"no value at {undefined[0].subject}",) if undefined else (),
        finished=time.monotonic() - start <= effort.seconds,
    )


def _kept(cases: list[Case], kind: Kind) -> Iterator[Case]:
    for family in dict.fromkeys(case.family for case in cases):
        ranked = sorted((case for case in cases if case.family == family), key=lambda case: -case.ratio(kind))
        yield from ranked[:: max(1, len(ranked) // (2 * KEPT))]


def confirm(claim: Claim, where: Mapping[str, Any]) -> Counterexample | None:
    """Compute a case again and lay it out, if the claimed deviation is reached with a probability above delta.

    Raises:
        ValueError: If ``where`` describes no case.
    """
    law, B, level = _read(where)
    claim = with_fractions(claim)
    case = _at(law, B, level)
    if case is None:
        return None
    try:
        value, sign = compare(claim, case.letters, case.deviation)
    except Undefined:
        return None
    # An atom at the claimed deviation reaches it; but 0 also means that 100 digits do not tell the two apart.
    if sign < 0 or (sign == 0 and not (value.exact and case.deviation.exact)):
        return None
    return Counterexample(
        subject=case.subject,
        where=case.where,
        observed=spell_interval(case.deviation),
        bound=spell_interval(value),
        confirmed="exact fractions against interval arithmetic",
        table=tuple(_rows(claim, case, value)),
    )


def _read(where: Mapping[str, Any]) -> tuple[Signs | Simplex, Fraction, Fraction]:
    try:
        B, level = (fraction(where[name], where=f"case: {name}") for name in ("B", "delta"))
        n, p = where["n"], fraction(where["p"], where="case: p") if "p" in where else None
        law = Simplex(d=where["d"], n=n) if p is None else Signs(p=p, n=n)
    except (KeyError, TypeError) as error:
        raise ValueError(f"case {dict(where)}: expected 'p' or 'd', and 'n', 'B', 'delta' ({error}).") from None
    if B <= 0 or not 0 < level < 1:
        raise ValueError(f"case: B must be positive and delta between 0 and 1, got {B} and {level}.")
    return law, B, level


def _rows(claim: Claim, case: DeviationCase, value: Interval) -> Iterator[tuple[str, str]]:
    yield "law of a sample", case.law.name
    yield "n, B, delta", f"{case.law.n}, {case.B}, {_spell_level(case.delta)}"
    yield "deviation of the mean, squared", f"at least {spell(case.square * case.B**2)}"
    yield "with probability", f"{spell(case.tail)} = {float(case.tail):.10g}, above delta"
    yield "deviation", f"{float(case.deviation.low):.10g}"
    yield f"claimed ({claim.kind}): {claim.expression}", f"{spell_interval(value)} = {float(value.low):.10g}"
