"""From a broken case to a counterexample: computed again by another route, and laid out to be checked by hand."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import mpmath

from ...sim.finite_laws import FiniteSupport
from ...sim.gaussian_tail import gaussian_tail
from ...sim.laws import Gaussian, Population
from ...sim.populations import build
from ...theory.claims import Claim, Kind
from ...theory.symbols import TABLE
from ..checks import Undefined
from ..decisions import ErrorBudget, Status, clopper_pearson
from .continuous import ALPHA, decide_by_draws, tail_on_rays
from .enclosure import Interval, compare, enclose, with_fractions
from .exact_case import SIGNS, FiniteCase, moments, spell_vector
from .screen import float_letters, screen_of
from .shrinking import shrink
from .target import Counterexample

ENUMERABLE = 5_000_000
SHOWN_OUTCOMES = 8
LONGEST = 40
CONFIRMING_ROUNDS = (20_000, 80_000, 400_000, 2_000_000)
# Of two quadratures of one integral, far above their own errors.
AGREEMENT = 1e-8

Rows = tuple[tuple[str, str], ...]


def confirm(claim: Claim, where: Mapping[str, Any], *, simplify: bool = False) -> Counterexample | None:
    """Compute a case again and lay it out, if it breaks the claim.

    A finite law is enumerated in exact fractions, and the expression is a fraction or an interval; a Gaussian law's
    contour integral is taken again along other rays, with 30 digits; anything else is drawn twice, independently.

    Args:
        claim: On the misalignment.
        where: "population" (a spec for ``sim.populations.build``), "M" and "K".
        simplify: Shrink a finite law first.

    Raises:
        ValueError: If ``where`` describes no case.
    """
    claim = with_fractions(claim)
    try:
        law, M, K = build(**where["population"]), int(where["M"]), int(where["K"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"case {dict(where)}: expected 'population', 'M' and 'K' ({error}).") from None
    if min(M, K) < 1:
        raise ValueError(f"case: M and K must be at least 1, got {M} and {K}.")
    if isinstance(law, FiniteSupport) and (case := FiniteCase(law=law, M=M, K=K)).outcome_pairs <= ENUMERABLE:
        return _exact(claim, case, simplify=simplify)
    return _gaussian(claim, law, M, K) if isinstance(law, Gaussian) else _sampled(claim, law, M, K)


def _exact(claim: Claim, case: FiniteCase, *, simplify: bool) -> Counterexample | None:
    if case.law.moments.mu2 == 0:
        return None
    try:
        if not case.violation(claim):
            return None
        if simplify:
            case = shrink(screen_of(claim), case)
        known = Interval(low=case.p, high=case.p)
        value, _ = compare(claim, case.letters, known)
    except Undefined:
        return None
    return Counterexample(
        subject=case.label,
        where=case.where,
        observed=spell(case.p, up=case.p < value.low),
        bound=_side(value, up=case.p > value.high),
        confirmed="exact fractions" if value.exact else "exact fractions against interval arithmetic",
        table=tuple(_rows(claim, case, value)),
    )


def _rows(claim: Claim, case: FiniteCase, value: Interval) -> Iterator[tuple[str, str]]:
    law = case.law
    for atom, weight in zip(law.atoms, law.weights, strict=True):
        yield f"q = {spell_vector(atom)}", f"with probability {weight}"
    yield "M, K", f"{case.M}, {case.K}"
    mean = tuple(
        sum((w * a[j] for w, a in zip(law.weights, law.atoms, strict=True)), Fraction()) for j in range(law.dim)
    )
    yield "mu", spell_vector(mean)
    yield from _letters(claim, case.letters)
    hits, total = case.counted
    yield "pairs of sums with X <= 0", f"{hits} of {total}"
    if hits <= SHOWN_OUTCOMES:
        for u, v, x, weight in sorted(case.outcomes(), key=lambda outcome: outcome[2:]):
            means = f"mu_M = {spell_vector(u)}, g_K = {spell_vector(v)}"
            yield means, f"X = {spell(x)}, with probability {spell(weight)}"
    yield "P(X <= 0)", _both(Interval(low=case.p, high=case.p))
    yield f"claimed ({claim.kind}): {claim.expression}", _both(value)
    yield "P minus the claimed value", _both(Interval(low=case.p - value.high, high=case.p - value.low))


def _letters(claim: Claim, letters: Mapping[str, int | Fraction | Interval]) -> Iterator[tuple[str, str]]:
    """The moments of A1, and every other letter that the expression names."""
    used = {str(x) for x in claim.expression.free_symbols} - {"M", "K"}
    for name in [n for n in TABLE if n in used | {"mu2", "mu_Sigma_mu", "tr_Sigma2"}]:
        if name in letters:
            value = letters[name]
            text = spell_interval(value) if isinstance(value, Interval) else spell(Fraction(value))
        else:
            text = _derived(claim, name, letters)
        yield name, text


def _derived(claim: Claim, name: str, letters: Mapping[str, int | Fraction | Interval]) -> str:
    try:
        return spell_interval(enclose(dataclasses.replace(claim, expression=TABLE[name].symbol), letters))
    except Undefined:
        return "infinite"


# Gaussian laws


def _gaussian(claim: Claim, law: Gaussian, M: int, K: int) -> Counterexample | None:
    letters: dict[str, Any] = {"M": M, "K": K, "N": law.dim, **moments(law)}
    if letters["mu2"] == 0 or not law.eigenvalues.any():
        return None
    first = gaussian_tail(law, M, K).p
    second = tail_on_rays(law, M, K)
    if not abs(first - second) <= AGREEMENT * abs(second):
        return None
    known = Interval(
        low=Fraction(second) * (1 - Fraction(AGREEMENT)), high=Fraction(second) * (1 + Fraction(AGREEMENT))
    )
    try:
        value, sign = compare(claim, letters, known)
    except Undefined:
        return None
    if sign not in SIGNS[claim.kind]:
        return None
    spectrum = [f"{x:.6g} ({len(list(group))} times)" for x, group in itertools.groupby(law.eigenvalues)]
    return Counterexample(
        subject=f"Gaussian, N={law.dim}; M={M}, K={K}",
        where={"population": law.spec, "M": M, "K": K},
        observed=f"{second:.12g}",
        bound=_side(value, up=sign > 0),
        confirmed="two contour integrals, one with 30 digits",
        table=(
            ("q", f"Gaussian in {law.dim} dimensions"),
            ("eigenvalues of Sigma", ", ".join(spectrum[:6]) + (", ..." if len(spectrum) > 6 else "")),
            ("M, K", f"{M}, {K}"),
            *_letters(claim, letters),
            ("P(X <= 0), curved contour", f"{first:.12g}"),
            ("P(X <= 0), rays, 30 digits", f"{second:.12g}"),
            (f"claimed ({claim.kind}): {claim.expression}", _both(value)),
            ("P minus the claimed value", f"{second - float(value.high):.6g}"),
        ),
    )


# Laws that can only be drawn


def _sampled(claim: Claim, law: Population, M: int, K: int) -> Counterexample | None:
    if claim.kind is Kind.IDENTITY:
        return None
    letters = float_letters(law, M, K)
    bound = float(screen_of(claim).values(letters))
    if bound != bound:
        return None
    looks = [decide_by_draws(claim, law, M, K, bound, (place, "confirm"), 2, CONFIRMING_ROUNDS) for place in range(2)]
    if any(status is not Status.REFUTED for status, _, _ in looks):
        return None
    (_, hits, trials), _ = looks
    rows: list[tuple[str, str]] = [("q", f"{law.name}, N = {law.dim}"), ("M, K", f"{M}, {K}")]
    rows += [(name, f"{letters[name]:.10g}") for name in claim.arguments if name not in ("M", "K")]
    for place, (_, hit, count) in enumerate(looks, start=1):
        low, high = clopper_pearson(hit, count, 1 - ALPHA)
        rows.append((f"draws with X <= 0, simulation {place}", f"{hit} of {count}: P in [{low:.6g}, {high:.6g}]"))
    rows.append((f"claimed ({claim.kind}): {claim.expression}", f"{bound:.10g}"))
    return Counterexample(
        subject=f"{law.name}, N={law.dim}; M={M}, K={K}",
        where={"population": law.spec, "M": M, "K": K},
        observed=f"{hits}/{trials}",
        bound=f"{bound:.10g}",
        confirmed="fresh draws, twice",
        confidence=ErrorBudget(alpha=ALPHA).confidence,
        table=tuple(rows),
    )


# Numbers as text


def spell(x: Fraction, *, up: bool = False) -> str:
    """A fraction, or if it is long a decimal rounded down (or up)."""
    text = str(x) if max(abs(x.numerator), x.denominator) < 10**LONGEST else ""
    return text if 0 < len(text) <= LONGEST else decimal(x, up=up)


def decimal(x: Fraction, *, up: bool, digits: int = 15) -> str:
    """A decimal of so many digits, rounded down or up."""
    if x == 0:
        return "0"
    with mpmath.workdps(digits + 15):
        exponent = int(mpmath.floor(mpmath.log10(abs(mpmath.mpf(x.numerator) / x.denominator)))) - digits + 1
    scaled = x / Fraction(10) ** exponent
    whole = -((-scaled.numerator) // scaled.denominator) if up else scaled.numerator // scaled.denominator
    with mpmath.workdps(digits + 15):
        return str(mpmath.nstr(mpmath.mpf(whole) * mpmath.mpf(10) ** exponent, digits + 1))


def spell_interval(x: Interval) -> str:
    """A fraction, or two decimals with the value between them."""
    return spell(x.low) if x.exact else f"{decimal(x.low, up=False)} to {decimal(x.high, up=True)}"


def _side(x: Interval, *, up: bool) -> str:
    """A fraction, or a decimal beyond which the value is not."""
    end = x.high if up else x.low
    return spell(end, up=up) if x.exact else decimal(end, up=up)


def _both(x: Interval) -> str:
    if not x.exact:
        return f"between {decimal(x.low, up=False)} and {decimal(x.high, up=True)}"
    text = spell(x.low)
    return f"{text} = {float(x.low):.10g}" if "/" in text else text
