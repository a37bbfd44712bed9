"""One claim held against one cell: a law of q with M and K, known exactly or by draws."""

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..sim.laws import Moments
from ..sim.monte_carlo import Draws
from ..theory.claims import Claim, Kind
from .decisions import Check, ErrorBudget, Evidence, Status, decide_equal, decide_upper_bound
from .formula_checks import FORMULAS

# A float engine cannot tell a bound that is attained from one that is missed by rounding; fractions can.
ROUNDING = 1e-9
IDENTITY_TOLERANCE = 0.01

Number = Fraction | float
RELATIONS = {Kind.UPPER_BOUND: operator.le, Kind.LOWER_BOUND: operator.ge, Kind.IDENTITY: operator.eq}
MOMENTS = {"alignment_mean": "mean", "alignment_variance": "variance"}


class Undefined(ValueError):
    """An expression has no real value in a cell."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A law of q, with M and K, and what is known of X there.

    ``p``, ``mean`` and ``variance`` are exact where an engine gave them; otherwise ``misaligned`` of ``trials`` draws
    had X <= 0, and ``draws`` holds their moments. ``spec`` and ``engine`` are enough to repeat the cell.
    """

    evidence: Evidence
    subject: str
    family: str
    spec: dict[str, Any]
    dim: int
    M: int
    K: int
    moments: Moments
    engine: str
    p: Number | None = None
    mean: Number | None = None
    variance: Number | None = None
    misaligned: int = 0
    trials: int = 0
    draws: Draws | None = None

    @property
    def label(self) -> str:
        """The cell in a line."""
        return f"{self.subject}, M={self.M}, K={self.K}"

    @property
    def where(self) -> dict[str, Any]:
        """Enough to repeat the cell."""
        return {"population": self.spec, "M": self.M, "K": self.K, "engine": self.engine, "trials": self.trials or None}

    @property
    def observed(self) -> Number:
        """P(X <= 0), exact or as a frequency."""
        return self.misaligned / self.trials if self.p is None else self.p

    @property
    def letters(self) -> dict[str, Number]:
        """The letters that have a value here; the largest eigenvalue of a rational law is exact for rank one."""
        moments = self.moments.as_dict()
        trace = self.moments.tr_Sigma
        if isinstance(trace, Fraction) and trace**2 == self.moments.tr_Sigma2:
            moments["lambda_max"] = trace
        letters = {"M": self.M, "K": self.K, "N": self.dim, **moments}
        return {name: value for name, value in letters.items() if value is not None}

    def value(self, claim: Claim) -> Number:
        """Evaluate a claim's expression here, in fractions where the cell is rational and the value too.

        Raises:
            Undefined: If a letter has no value here, or the expression has none that is a real number.
        """
        letters = self.letters
        missing = [name for name in claim.arguments if name not in letters]
        if missing:
            raise Undefined(f"{', '.join(missing)} has no value here")
        used = {name: letters[name] for name in claim.arguments}
        rational = {name: x for name, x in used.items() if isinstance(x, int | Fraction)}
        if isinstance(self.p, Fraction) and rational == used:
            try:
                exact = claim.exact(**rational)
                float(exact)
                return exact
            except (ValueError, OverflowError):
                pass  # the value is irrational, infinite or beyond the floats
        try:
            with np.errstate(all="ignore"):
                value = claim.numeric()(**{name: float(x) for name, x in used.items()})
        except (ValueError, ArithmeticError, TypeError, NameError) as error:
            raise Undefined(f"{type(error).__name__}: {error}") from None
        if np.iscomplexobj(value) or math.isnan(value):
            raise Undefined(f"the expression is {value} here")
        return float(value)


def check_probability(claim: Claim, cell: Cell, budget: ErrorBudget) -> Check | None:
    """Hold a bound on P(X <= 0), or its value, against a cell; draws can decide bounds only."""
    if cell.p is not None:
        return _check_exact(claim, cell, cell.p)
    if claim.kind is Kind.IDENTITY:
        return None
    bound = float(cell.value(claim))
    if claim.kind is Kind.UPPER_BOUND:
        status = decide_upper_bound(cell.misaligned, cell.trials, bound, budget)
    else:
        status = decide_upper_bound(cell.trials - cell.misaligned, cell.trials, 1 - bound, budget)
    detail = f"{cell.misaligned} of {cell.trials} draws misaligned"
    return _check(claim, cell, status, cell.observed, bound, detail)


def check_moment(claim: Claim, cell: Cell, budget: ErrorBudget) -> Check | None:
    """Hold a claim on the mean or the variance of X against a cell; None where the cell does not know it."""
    moment = MOMENTS[claim.quantity.id]
    known = getattr(cell, moment)
    if known is not None:
        return _check_exact(claim, cell, known)
    if cell.draws is None or claim.kind is not Kind.IDENTITY:
        return None
    expected = float(cell.value(claim))
    estimate, error = getattr(cell.draws, moment), getattr(cell.draws, f"{moment}_error")
    status = decide_equal(estimate, error, expected, tolerance=IDENTITY_TOLERANCE, budget=budget)
    detail = f"{cell.draws.trials} draws, standard error {error:.2g}, tolerance {IDENTITY_TOLERANCE:.0%}"
    return _check(claim, cell, status, estimate, expected, detail)


def check_ordering(claim: Claim, cell: Cell, budget: ErrorBudget) -> Check | None:
    """Hold the sign of a difference of bounds against an exact cell."""
    if cell.evidence is not Evidence.EXACT:
        return None
    value = cell.value(claim)
    slack = 0 if isinstance(value, Fraction) else ROUNDING
    status = Status.SUPPORTED if value >= -slack else Status.REFUTED
    return _check(claim, cell, status, value, 0, "difference of the bounds, at least 0")


def check_bernoulli(claim: Claim, cell: Cell, budget: ErrorBudget) -> Check | None:
    """Hold the probability claimed of a Bernoulli law at M = K = 1 against its enumeration."""
    if cell.spec["name"] != "bernoulli" or (cell.M, cell.K) != (1, 1) or not isinstance(cell.p, Fraction):
        return None
    try:
        expected = claim.exact(pi_atom=Fraction(cell.spec["pi"]))
    except ValueError as error:
        raise Undefined(str(error)) from None
    return _compared(claim, cell, cell.p, expected)


def prove(claim: Claim) -> list[Check]:
    """Check the claim's proof; a proof that fails leaves the claim to computation."""
    proof = claim.prove()
    if proof is None:
        return []
    failed = "; ".join(f"{step.text}: {step.leftover}" for step in proof.failures)
    return [
        Check(
            claim=claim.id,
            evidence=Evidence.SYMBOLIC,
            status=Status.PROVED if proof.holds else Status.INCONCLUSIVE,
            subject=f"proof in {len(proof.steps)} steps",
            detail=f"failed: {failed}" if failed else "",
        )
    ]


def _check_exact(claim: Claim, cell: Cell, known: Number) -> Check:
    if math.isnan(known):
        raise Undefined(f"{cell.engine} gave no number")
    return _compared(claim, cell, known, cell.value(claim))


def _compared(claim: Claim, cell: Cell, known: Number, claimed: Number) -> Check:
    """Compare in fractions; floats that agree within rounding decide nothing, unless no probability is beyond."""
    exact = isinstance(known, Fraction) and isinstance(claimed, Fraction)
    beyond = {Kind.UPPER_BOUND: claimed >= 1, Kind.LOWER_BOUND: claimed <= 0}.get(claim.kind, False)
    if claim.quantity.id == "misalignment" and beyond:
        status = Status.SUPPORTED
    elif not exact and math.isclose(known, claimed, rel_tol=ROUNDING):
        status = Status.INCONCLUSIVE
    else:
        status = Status.SUPPORTED if RELATIONS[claim.kind](known, claimed) else Status.REFUTED
    name = "" if claim.quantity.id in MOMENTS else "P = "
    detail = f"{name}{_spell(known)} against {_spell(claimed)}" if exact else f"exact law by {cell.engine}"
    return _check(claim, cell, status, known, claimed, detail)


def _check(claim: Claim, cell: Cell, status: Status, observed: Number, expected: Number, detail: str) -> Check:
    return Check(
        claim=claim.id,
        evidence=cell.evidence,
        status=status,
        subject=cell.label,
        observed=float(observed),
        expected=float(expected),
        detail=detail,
        where=cell.where,
    )


def _spell(value: Number) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{float(value):.10g}"


CELL_CHECKS: dict[tuple[Kind, str], Callable[[Claim, Cell, ErrorBudget], Check | None]] = {
    **{(kind, "misalignment"): check_probability for kind in RELATIONS},
    **{(kind, quantity): check_moment for kind in RELATIONS for quantity in MOMENTS},
    **{(kind, "misalignment_bernoulli"): check_bernoulli for kind in RELATIONS},
    (Kind.ORDERING, "bound_difference"): check_ordering,
}


def judge(claim: Claim, cells: Iterable[Cell], budget: ErrorBudget) -> list[Check]:
    """Hold one claim of the alignment theory against every cell that bears on it, or against its own computation.

    A claim on which nothing bears, and which no proof shows, gets one check that says so.
    """
    about = (claim.kind, claim.quantity.id)
    if about in CELL_CHECKS:
        checks = (_on_cell(CELL_CHECKS[about], claim, cell, budget) for cell in cells)
        return [check for check in checks if check is not None]
    if about in FORMULAS and (found := FORMULAS[about](claim)):
        return found
    proof = claim.prove()
    if proof is not None and proof.holds:
        return []
    subject = f"{claim.kind} of {claim.quantity.id}"
    return [
        Check(
            claim=claim.id,
            evidence=Evidence.SYMBOLIC,
            status=Status.INCONCLUSIVE,
            subject=subject,
            detail=f"no computation bears on {'an' if subject[0] in 'aeiou' else 'a'} {subject}",
        )
    ]


def _on_cell(
    check: Callable[[Claim, Cell, ErrorBudget], Check | None], claim: Claim, cell: Cell, budget: ErrorBudget
) -> Check | None:
    try:
        return check(claim, cell, budget)
    except Undefined as error:
        return Check(
            claim=claim.id,
            evidence=cell.evidence,
            status=Status.INCONCLUSIVE,
            subject=cell.label,
            detail=str(error),
            where=cell.where,
        )
