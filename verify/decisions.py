"""Decisions: from evidence on one cell to a status, and from many statuses to a verdict.

A bound is judged one-sided by two e-processes that may be looked at after every batch; an identity is judged
two-sided by an interval against a tolerance declared beforehand. Every decision spends its share of one error budget.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from scipy import special, stats


class Status(StrEnum):
    """The four words of a verdict; PROVED is kept for proofs that were checked, never for sampling."""

    PROVED = "PROVED"
    SUPPORTED = "SUPPORTED"
    REFUTED = "REFUTED"
    INCONCLUSIVE = "INCONCLUSIVE"


class Evidence(StrEnum):
    """The modes of evidence that can bear on a claim, most certain first."""

    SYMBOLIC = "symbolic"
    EXACT = "exact"
    SIMULATION = "simulation"
    TRAINED = "trained"


@dataclass(frozen=True, kw_only=True)
class ErrorBudget:
    """The probability ``alpha`` of any wrong decision in a run, shared equally by ``tests`` decisions.

    Raises:
        ValueError: If ``alpha`` is not in (0, 1) or ``tests`` is below 1.
    """

    alpha: float = 1e-4
    tests: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"ErrorBudget: alpha must lie in (0, 1), got {self.alpha}.")
        if self.tests < 1:
            raise ValueError(f"ErrorBudget: tests must be at least 1, got {self.tests}.")

    @property
    def per_test(self) -> float:
        """The share of one decision (Bonferroni)."""
        return self.alpha / self.tests

    @property
    def confidence(self) -> float:
        """The confidence that every decision of the run is right."""
        return 1 - self.alpha


def log_e_values(misaligned: float, trials: int, bound: float) -> tuple[float, float]:
    r"""Return the logarithms of the e-values for "P > bound" and for "P < bound".

    .. math:: E = \frac{\int_R \theta^S (1-\theta)^{n-S} \, d\mathrm{Beta}(1/2, 1/2)(\theta | R)}{B^S (1-B)^{n-S}}

    with R = (B, 1) for a violation and R = (0, B) for a pass. Under the opposite hypothesis each is a
    supermartingale, so that P(sup_n E >= 1/a) <= a (Ville): looking after every batch costs nothing. Valid also
    when single outcomes lie in [0, 1] instead of {0, 1}, since x -> a^x b^(1-x) is convex.

    Args:
        misaligned: S, the (possibly fractional) number of misaligned trials.
        trials: n.
        bound: B in (0, 1).

    Returns:
        The pair (log E_violation, log E_pass).

    Raises:
        ValueError: If S is not in [0, n] or B not in (0, 1).
    """
    if not 0 <= misaligned <= trials:
        raise ValueError(f"log_e_values: expected 0 <= misaligned <= trials, got {misaligned} of {trials}.")
    if not 0 < bound < 1:
        raise ValueError(f"log_e_values: bound must lie in (0, 1), got {bound}.")
    a, b = 0.5 + misaligned, 0.5 + trials - misaligned
    log_null = misaligned * math.log(bound) + (trials - misaligned) * math.log1p(-bound)
    log_posterior = float(special.betaln(a, b) - special.betaln(0.5, 0.5)) - log_null

    def log_ratio(posterior_mass: float, prior_mass: float) -> float:
        # A mass that underflows means overwhelming evidence the other way: E = 0 is its conservative value.
        return log_posterior + math.log(posterior_mass / prior_mass) if posterior_mass > 0 else -math.inf

    above = log_ratio(float(special.betaincc(a, b, bound)), float(special.betaincc(0.5, 0.5, bound)))
    below = log_ratio(float(special.betainc(a, b, bound)), float(special.betainc(0.5, 0.5, bound)))
    return above, below


def decide_upper_bound(misaligned: float, trials: int, bound: float, budget: ErrorBudget) -> Status:
    """Decide whether a probability lies below ``bound`` from ``misaligned`` hits in ``trials``.

    A bound of 1 or more holds for any probability; one of 0 or less is violated by a single hit and cannot be
    supported by any number of trials without one. Source: Ville's inequality; beta mixtures as in Robbins (1970).
    """
    if bound >= 1:
        return Status.SUPPORTED
    if bound <= 0:
        return Status.REFUTED if misaligned > 0 else Status.INCONCLUSIVE
    log_violation, log_pass = log_e_values(misaligned, trials, bound)
    threshold = -math.log(budget.per_test)
    if log_violation >= threshold:
        return Status.REFUTED
    return Status.SUPPORTED if log_pass >= threshold else Status.INCONCLUSIVE


def clopper_pearson(misaligned: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact two-sided interval of one cell's probability, for pictures: decisions use the e-processes."""
    interval = stats.binomtest(misaligned, trials).proportion_ci(confidence_level=level, method="exact")
    return float(interval.low), float(interval.high)


def decide_equal(
    estimate: float, standard_error: float, expected: float, *, tolerance: float, budget: ErrorBudget
) -> Status:
    """Decide two-sided whether a quantity equals ``expected`` up to the relative ``tolerance``.

    The interval is estimate +- z standard errors (central limit theorem, hence for means of many draws with finite
    variance only): inside the tolerance band it supports, clear of the expected value by more than the band it
    refutes; a mere departure from the expected value that the band still covers stays inconclusive.
    """
    half = float(stats.norm.isf(budget.per_test / 2)) * standard_error
    band = tolerance * abs(expected)
    if not (math.isfinite(estimate) and math.isfinite(half)):
        return Status.INCONCLUSIVE
    if estimate - half > expected + band or estimate + half < expected - band:
        return Status.REFUTED
    if estimate - half >= expected - band and estimate + half <= expected + band:
        return Status.SUPPORTED
    return Status.INCONCLUSIVE


@dataclass(frozen=True, kw_only=True)
class Check:
    """One claim held against one piece of evidence.

    ``observed`` and ``expected`` are the two sides of the comparison (a probability and its bound, a moment and its
    formula); ``where`` says on what, in JSON-able terms that are enough to repeat it.
    """

    claim: str
    evidence: Evidence
    status: Status
    subject: str
    observed: float | None = None
    expected: float | None = None
    detail: str = ""
    where: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Observed over expected, or None where that has no meaning."""
        if self.observed is None or self.expected is None or self.expected == 0:
            return None
        return self.observed / self.expected


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What all checks together say of one claim.

    ``confidence`` is 1 when only proof and exact computation bore on it. ``tried`` counts checks by evidence and
    status; ``tightness`` is the largest ratio observed / bound and where it was seen (upper bounds only).
    """

    claim: str
    status: Status
    evidence: tuple[Evidence, ...]
    confidence: float
    tried: dict[str, Any]
    tightness: dict[str, Any] | None = None
    counterexample: dict[str, Any] | None = None
    note: str = ""


def _simplest(checks: Iterable[Check]) -> Check:
    """Exact before sampled evidence, then the fewest samples M K."""
    order = list(Evidence)

    def size(check: Check) -> tuple[int, float]:
        return order.index(check.evidence), float(check.where.get("M", 1)) * float(check.where.get("K", 1))

    return min(checks, key=size)


def _count(checks: Sequence[Check]) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    for evidence in Evidence:
        mine = [check.status for check in checks if check.evidence is evidence]
        if mine:
            counts[evidence.value] = {status.value: mine.count(status) for status in Status if status in mine}
    return counts


def conclude(claim: str, checks: Sequence[Check], budget: ErrorBudget, *, bound: bool) -> Verdict:
    """Combine the checks of one claim.

    One refuted check refutes, even against a proof: then one of the two is wrong and a person must look. A checked
    proof proves; without one, an undecided check leaves the claim inconclusive, and no check at all does too.

    Args:
        claim: The claim's id.
        checks: Everything that was held against it.
        budget: The error budget that the sampled checks shared.
        bound: Whether observed / expected measures tightness.

    Returns:
        The verdict.
    """
    refuted = [check for check in checks if check.status is Status.REFUTED]
    undecided = [check for check in checks if check.status is Status.INCONCLUSIVE]
    sampled = any(check.evidence in (Evidence.SIMULATION, Evidence.TRAINED) for check in checks)
    counterexample, note, confidence = None, "", budget.confidence if sampled else 1.0
    if refuted:
        status, worst = Status.REFUTED, _simplest(refuted)
        confidence = 1.0 if worst.evidence in (Evidence.SYMBOLIC, Evidence.EXACT) else budget.confidence
        counterexample = {
            "subject": worst.subject,
            "evidence": worst.evidence.value,
            "observed": worst.observed,
            "expected": worst.expected,
            "detail": worst.detail,
            **worst.where,
        }
    elif any(check.status is Status.PROVED for check in checks):
        status = Status.PROVED
    elif undecided or not checks:
        status = Status.INCONCLUSIVE
    else:
        status = Status.SUPPORTED
    if undecided:
        note = f"{len(undecided)} of {len(checks)} checks undecided, first: {undecided[0].subject}"
        note += f" ({undecided[0].detail})" if undecided[0].detail else ""
    ratios = [check for check in checks if bound and check.ratio is not None]
    tightest = max(ratios, key=lambda check: check.ratio or 0.0, default=None)
    return Verdict(
        claim=claim,
        status=status,
        evidence=tuple(mode for mode in Evidence if any(check.evidence is mode for check in checks)),
        confidence=confidence,
        tried=_count(checks),
        tightness=None if tightest is None else {"ratio": tightest.ratio, "subject": tightest.subject},
        counterexample=counterexample,
        note=note,
    )
