"""Claims that no cell decides, held against exact computation of their own: sample counts, odds, limits, dimensions.

Everything is in fractions, or in sympy's exact numbers where a count is irrational.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import sympy

from ..sim.enumeration import exact_law_rational
from ..sim.populations import FiniteSupport, build
from ..sim.rng import generator
from ..theory import registry
from ..theory.claims import Claim, Kind
from .decisions import Check, Evidence, Status
from .growth import check_growth

B_EXACT, B_ALIGN = "alignment.cantelli", "alignment.certificate"
COUNTS = (1, 2, 3, 5, 8)
TARGETS = tuple(Fraction(p) for p in ("1/100", "1/20", "3/10", "9/10"))
DIMENSIONS = tuple(Fraction(d) for d in ("1/50", "3/7", "1", "12"))
# (mu2, mu_Sigma_mu, tr_Sigma2) with d_par below, at and above d_2.
MOMENTS = ((1, 5, 2), (2, 3, 3), (1, 1, 9), (3, 0, 4))
# |P / B - limit| of the rare-atom law shrinks like eps; below LIMIT_GAP at the last eps for every M here.
RARE = tuple(Fraction(1, 10**k) for k in (3, 4, 5, 6))
RARE_COUNTS, LIMIT_GAP = (1, 2, 4, 8), 1e-4
SPECTRA = 40


def _check(
    claim: Claim, holds: bool | None, subject: str, observed: Any, expected: Any, detail: str, where: Any
) -> Check:
    status = {True: Status.SUPPORTED, False: Status.REFUTED, None: Status.INCONCLUSIVE}[holds]
    return Check(
        claim=claim.id,
        evidence=Evidence.EXACT,
        status=status,
        subject=subject,
        observed=None if observed is None else float(observed),
        expected=None if expected is None else float(expected),
        detail=detail,
        where=where,
    )


def _against(claim: Claim, letters: dict[str, Any], true: Fraction, detail: str, *, lower: bool = False) -> Check:
    """Hold the claim's value at these letters against the true one: equality, or a lower bound on it."""
    subject = ", ".join(f"{name}={value}" for name, value in letters.items())
    where = {name: str(value) if isinstance(value, Fraction) else value for name, value in letters.items()}
    try:
        value = claim.number(**letters)
    except (TypeError, ValueError) as error:
        return _check(claim, None, subject, true, None, str(error), where)
    if not (value.is_real and value.is_finite):
        return _check(claim, None, subject, true, None, f"the expression is {value} here", where)
    exact = sympy.Rational(true.numerator, true.denominator)
    holds = bool(exact >= value) if lower else _is_zero(value - exact)
    return _check(claim, holds, subject, true, value, detail, where)


def _is_zero(number: sympy.Expr) -> bool | None:
    """Whether an exact number is zero; None where neither algebra nor thirty digits can tell."""
    if sympy.radsimp(sympy.expand(number)) == 0:
        return True
    return None if abs(number.evalf(30)) < 1e-20 else False


# Sample counts


def check_n_eff(claim: Claim) -> list[Check]:
    """For a fair coin |mu|^4, mu'Sigma mu and tr Sigma^2 are equal: n_eff is (E X)^2 / Var X of its enumerated law."""
    coin, checks = _finite("bernoulli", pi="1/2"), []
    for M, K in product(COUNTS, COUNTS):
        law = exact_law_rational(coin, M, K)
        true = Fraction(law.mean) ** 2 / Fraction(law.variance)
        checks.append(_against(claim, {"M": M, "K": K}, true, "(E X)^2 / Var X of a fair {0, 1} coin, enumerated"))
    return checks


def _b_align(M: Any, K: Any, dimension: Any) -> Any:
    """Return B_align, also at counts that are no integers."""
    return 1 / (1 + M * K * dimension / (M + K + 1))


def _samples(claim: Claim, points: Iterator[tuple[Fraction, Fraction, int | None]]) -> list[Check]:
    """B_align is p at the claimed real count, at most p at the next integer, and above p at the one before."""
    checks = []
    for p, d, K in points:
        # |mu|^2 = d and both moments d make d_align = d.
        letters = {"p_target": p, "mu2": d, "mu_Sigma_mu": d, "tr_Sigma2": d} | ({} if K is None else {"K": K})
        subject = f"p={p}, d_align={d}" + ("" if K is None else f", K={K}")
        where = {"p": str(p), "d_align": str(d)} | ({} if K is None else {"K": K})
        try:
            count = claim.number(**letters)
        except (TypeError, ValueError) as error:
            checks.append(_check(claim, None, subject, None, p, str(error), where))
            continue
        if not (count.is_real and count.is_finite):
            checks.append(_check(claim, None, subject, None, p, f"the expression is {count} here", where))
            continue
        if not count.is_positive:
            checks.append(_check(claim, False, subject, count, p, "a count that is not positive", where))
            continue
        at_count = _b_align(count, count if K is None else K, sympy.Rational(d.numerator, d.denominator))
        reached = _is_zero(at_count - sympy.Rational(p.numerator, p.denominator))
        first = int(sympy.ceiling(count))
        enough, fewer = (_b_align(Fraction(m), m if K is None else K, d) for m in (first, first - 1))
        holds = False if reached is False or not enough <= p < fewer else reached
        detail = f"B_align at the claimed {float(count):.10g} against p; {float(enough):.6g} at {first}, "
        detail += f"{float(fewer):.6g} at {first - 1}"
        checks.append(_check(claim, holds, subject, at_count, p, detail, where))
    return checks


def check_samples(claim: Claim) -> list[Check]:
    """Hold the count M = K against B_align."""
    return _samples(claim, ((p, d, None) for p, d in product(TARGETS, DIMENSIONS)))


def check_samples_given_K(claim: Claim) -> list[Check]:
    """Hold the count M at a given K against B_align, where some M suffices."""
    points = product(TARGETS, DIMENSIONS, (1, 7, 500))
    return _samples(claim, ((p, d, K) for p, d, K in points if K * d > (1 - p) / p))


# The two bounds against each other and against a law


def check_odds_loss(claim: Claim) -> list[Check]:
    """Hold the claimed ratio against the odds of the two registered bounds."""
    align, exact = registry.find(B_ALIGN), registry.find(B_EXACT)
    checks = []
    for M, K, (mu2, along, spectrum) in product(COUNTS, COUNTS, MOMENTS):
        letters = {"M": M, "K": K, "mu2": mu2, "mu_Sigma_mu": along, "tr_Sigma2": spectrum}
        odds = [bound / (1 - bound) for bound in (align.exact(**letters), exact.exact(**letters))]
        checks.append(_against(claim, letters, odds[0] / odds[1], "odds of B_align over odds of B_exact"))
    return checks


def _rare_atom_limit(bound_id: str) -> Callable[[Claim], list[Check]]:
    bound = registry.find(bound_id)

    def check(claim: Claim) -> list[Check]:
        """Hold the claimed limit against P / B of the enumerated law as the rare atom gets rarer."""
        checks = []
        for M in RARE_COUNTS:
            ratios = []
            for eps in RARE:
                law = _finite("rare-atom", M=M, eps=str(eps))
                p = Fraction(exact_law_rational(law, M, M).p)
                ratios.append(p / bound.exact(M=M, K=M, **_moments(law)))
            subject, where = f"rare atom, M=K={M}", {"M": M, "K": M, "eps": [str(eps) for eps in RARE]}
            try:
                limit = claim.exact(M=M)
            except (TypeError, ValueError) as error:
                checks.append(_check(claim, None, subject, ratios[-1], None, str(error), where))
                continue
            gaps = [abs(ratio - limit) for ratio in ratios]
            holds = gaps[-1] <= LIMIT_GAP and all(later <= gap for gap, later in pairwise(gaps))
            detail = "|P / B - limit| = " + ", ".join(f"{float(gap):.2g}" for gap in gaps)
            checks.append(_check(claim, holds, subject, ratios[-1], limit, f"{detail} at eps = 1e-3 to 1e-6", where))
        return checks

    return check


def _finite(name: str, **params: Any) -> FiniteSupport:
    law = build(name, **params)
    assert isinstance(law, FiniteSupport)
    return law


def _moments(law: FiniteSupport) -> dict[str, Fraction]:
    known = law.moments.as_dict()
    return {name: Fraction(known[name]) for name in ("mu2", "mu_Sigma_mu", "tr_Sigma2")}


# The dimension under a bounded spectrum


def _bounded_laws() -> Iterator[tuple[Fraction, Fraction, list[Fraction], list[Fraction]]]:
    """Yield (c, sigma^2, eigenvalues, squared mean) in fractions: flat and one-directional extremes, then random."""
    for c, sigma2, N in product((Fraction(1, 3), Fraction(4)), (Fraction(1, 2), Fraction(1), Fraction(9)), (1, 10)):
        yield c, sigma2, [sigma2] * N, [c] * N
        yield c, sigma2, [sigma2] + [Fraction(0)] * (N - 1), [c * N] + [Fraction(0)] * (N - 1)
    rng = generator(0, "bounded spectra")
    for _ in range(SPECTRA):
        N, *numbers = (int(x) for x in rng.integers(1, 13, size=3))
        c, sigma2 = (Fraction(x, 4) for x in numbers)
        eigenvalues = [sigma2 * Fraction(int(x), 16) for x in rng.integers(0, 17, size=N)]
        weights = [int(x) + 1 for x in rng.integers(0, 9, size=N)]
        yield c, sigma2, [*eigenvalues[1:], sigma2], [c * N * Fraction(w, sum(weights)) for w in weights]


def check_bounded(claim: Claim) -> list[Check]:
    """Hold the lower bound against d_align of laws with these bounds; the flat law attains it."""
    checks = []
    for c, sigma2, eigenvalues, mean2 in _bounded_laws():
        along = sum((m * x for m, x in zip(mean2, eigenvalues, strict=True)), Fraction())
        spectrum = sum((x * x for x in eigenvalues), Fraction())
        mu2 = sum(mean2, Fraction())
        letters = {"N": len(mean2), "c_signal": c, "sigma2": sigma2, "mu2": mu2, "mu_Sigma_mu": along}
        letters |= {"tr_Sigma2": spectrum, "lambda_max": max(eigenvalues)}
        checks.append(_against(claim, letters, mu2**2 / max(along, spectrum), "d_align of the spectrum", lower=True))
    return checks


FORMULAS: dict[tuple[Kind, str], Callable[[Claim], list[Check]]] = {
    (Kind.IDENTITY, "effective_samples"): check_n_eff,
    (Kind.EQUIVALENCE, "samples_needed"): check_samples,
    (Kind.EQUIVALENCE, "samples_needed_given_K"): check_samples_given_K,
    (Kind.IDENTITY, "odds_loss"): check_odds_loss,
    (Kind.LIMIT, "tightness_rare_atom"): _rare_atom_limit(B_EXACT),
    (Kind.LIMIT, "tightness_rare_atom_align"): _rare_atom_limit(B_ALIGN),
    (Kind.LOWER_BOUND, "alignment_dimension"): check_bounded,
    (Kind.RATE, "d_align_growth"): check_growth,
}
"""By kind and id of the quantity."""
