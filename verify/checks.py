"""One claim held against one cell: a law of q with M and K, known exactly or by draws."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..sim.laws import Moments
from ..sim.monte_carlo import Draws
from ..theory.claims import Claim, Kind
from .decisions import Check, ErrorBudget, Evidence, Status, decide_equal, decide_upper_bound
from .growth import check_growth

# A float engine cannot tell a bound that is attained from one that is missed by rounding; fractions can.
ROUNDING = 1e-9
IDENTITY_TOLERANCE = 0.01

Number = Fraction | float


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

    def value(self, claim: Claim) -> Number:
        """Evaluate a claim's expression here, in fractions where the cell is rational and the value too."""
        letters: dict[str, Any] = {"M": self.M, "K": self.K, "N": self.dim, **self.moments.as_dict()}
        if isinstance(self.p, Fraction):
            try:
                return claim.exact(**letters)
            except (TypeError, ValueError):
                pass  # a letter or the value is irrational, or the value infinite
        return float(claim.numeric()(**{name: float(value) for name, value in letters.items() if value is not None}))


def check_bound(claim: Claim, cell: Cell, budget: ErrorBudget) -> Check:
    """Hold an upper bound on P(X <= 0) against a cell."""
    bound = cell.value(claim)
    if cell.p is None:
        status = decide_upper_bound(cell.misaligned, cell.trials, float(bound), budget)
        detail = f"{cell.misaligned} of {cell.trials} draws misaligned"
    elif isinstance(cell.p, Fraction) and isinstance(bound, Fraction):
        status = Status.SUPPORTED if cell.p <= bound else Status.REFUTED
        detail = f"P = {_spell(cell.p)} against {_spell(bound)}"
    else:
        status, detail = _compare(float(cell.p), float(bound)), f"exact law by {cell.engine}"
    return _check(claim, cell, status, cell.observed, bound, detail)


def check_identity(claim: Claim, cell: Cell, budget: ErrorBudget) -> Check | None:
    """Hold the formula for the mean or the variance of X against a cell; None where the cell does not know it."""
    moment, expected = ("mean" if claim.quantity.id == "alignment_mean" else "variance"), cell.value(claim)
    known = getattr(cell, moment)
    if isinstance(known, Fraction) and isinstance(expected, Fraction):
        status = Status.SUPPORTED if known == expected else Status.REFUTED
        return _check(claim, cell, status, known, expected, f"{_spell(known)} against {_spell(expected)}")
    if cell.draws is None:
        return None
    estimate, error = getattr(cell.draws, moment), getattr(cell.draws, f"{moment}_error")
    status = decide_equal(estimate, error, float(expected), tolerance=IDENTITY_TOLERANCE, budget=budget)
    detail = f"{cell.draws.trials} draws, standard error {error:.2g}, tolerance {IDENTITY_TOLERANCE:.0%}"
    return _check(claim, cell, status, estimate, expected, detail)


def check_ordering(claim: Claim, cell: Cell) -> Check:
    """Hold the sign of a difference of bounds against a cell."""
    value = cell.value(claim)
    slack = 0 if isinstance(value, Fraction) else ROUNDING
    status = Status.SUPPORTED if value >= -slack else Status.REFUTED
    return _check(claim, cell, status, value, 0, "difference of the bounds, at least 0")


def check_bernoulli(claim: Claim, cell: Cell) -> Check | None:
    """Hold the probability claimed of a Bernoulli law at M = K = 1 against its enumeration."""
    if cell.spec["name"] != "bernoulli" or (cell.M, cell.K) != (1, 1) or cell.p is None:
        return None
    expected = claim.exact(pi_atom=Fraction(cell.spec["pi"]))
    status = Status.SUPPORTED if cell.p == expected else Status.REFUTED
    return _check(claim, cell, status, cell.p, expected, f"P = {cell.p} against {expected}")


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


def _compare(p: float, bound: float) -> Status:
    if p <= bound * (1 - ROUNDING) or bound >= 1:
        return Status.SUPPORTED
    return Status.REFUTED if p > bound * (1 + ROUNDING) else Status.INCONCLUSIVE


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


def _spell(value: Fraction) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{float(value):.10g}"


def judge(claim: Claim, cells: Iterable[Cell], budget: ErrorBudget) -> list[Check]:
    """Hold one claim of the alignment theory against every cell that bears on it."""
    if claim.quantity.id == "misalignment" and claim.kind is Kind.UPPER_BOUND:
        return [check_bound(claim, cell, budget) for cell in cells]
    if claim.quantity.id in ("alignment_mean", "alignment_variance"):
        return [check for cell in cells if (check := check_identity(claim, cell, budget)) is not None]
    if claim.quantity.id == "misalignment_bernoulli":
        return [check for cell in cells if (check := check_bernoulli(claim, cell)) is not None]
    if claim.kind is Kind.ORDERING:
        return [check_ordering(claim, cell) for cell in cells if cell.evidence is Evidence.EXACT]
    return check_growth(claim)
