"""What a stage of the search keeps of the cases it tries: counts, the tightest and the loosest, and the violation."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import Undefined
from .exact_case import FiniteCase
from .laws import DIMS, SCALES
from .screen import ROUNDING, Floats, Screen
from .target import Case
from .two_atoms import TwoAtoms

# Of the cases that floats call broken, simplest first, of those that they cannot tell from equality, and of those
# without a value.
BROKEN, EQUAL, DOUBTFUL = 12, 600, 3
# Scores that differ by rounding only.
ALIKE = 1e-12


Role = Literal["tightest", "near", "loose"]
"""What a case is kept for: its ratio, what the search climbs (``Screen.guide``), or its ratio upside down."""


@dataclass(kw_only=True)
class Tally:
    """Everything that one unit of work found.

    Attributes:
        stage: Of the search.
        counts: "laws", "cells", "exact", "draws".
        cases: (role, family, M, K) -> score and case.
        violation: The first case that breaks the claim, as decided without floats, or None.
        undefined: How many real cases have no value of the expression, and the first of them.
        undecided: Other reasons why the claim stays open.
    """

    stage: str
    counts: Counter[str] = field(default_factory=Counter)
    cases: dict[tuple[Role, str, int, int], tuple[float, Case]] = field(default_factory=dict)
    violation: dict[str, Any] | None = None
    undefined: tuple[int, str] = (0, "")
    undecided: list[str] = field(default_factory=list)

    def keep(self, role: Role, case: Case, score: float) -> None:
        """Keep a case if its score is the highest in its role: of all for "tightest", else of its family and size."""
        key = (role, "", 0, 0) if role == "tightest" else (role, case.family, case.where["M"], case.where["K"])
        if key not in self.cases or score > self.cases[key][0]:
            self.cases[key] = (score, case)

    def note(self, case: Case, screen: Screen) -> None:
        """Keep a case in every role that it wins; 0 against 0 says nothing."""
        ratio = float(screen.ratio(case.observed, case.bound))
        if (case.observed != 0 or case.bound != 0) and not math.isnan(ratio):
            self.keep("tightest", case, ratio)
            self.keep("near", case, float(screen.guide(case.observed, case.bound)))
            self.keep("loose", case, -ratio)

    def best(self, role: Role) -> list[tuple[float, Case]]:
        """The cases of a role with their scores."""
        return [kept for key, kept in self.cases.items() if key[0] == role]

    def add(self, other: "Tally") -> None:
        """Take in what another unit of the same stage found; its violation counts if there was none before."""
        self.counts += other.counts
        for (role, *_), (score, case) in other.cases.items():
            self.keep(role, case, score)
        self.violation = self.violation or other.violation
        self.undefined = (self.undefined[0] + other.undefined[0], self.undefined[1] or other.undefined[1])
        self.undecided += other.undecided

    def no_value(self, label: str, count: int = 1) -> None:
        """Count cases in which the expression is no real number."""
        self.undefined = (self.undefined[0] + count, self.undefined[1] or label)


def finite(tally: Tally, screen: Screen, case: FiniteCase) -> float:
    """Hold a claim against a finite law; how near it comes to breaking it, NaN where the expression has no value."""
    p, bound = float(case.p), screen.at(case)
    tally.counts.update(laws=1, cells=1, exact=1)
    if np.isnan(bound) or bool(screen.suspect(p, bound)):
        _decide(tally, screen, [case])
    tally.note(_case(tally.stage, case, p, bound), screen)
    return float(screen.guide(p, bound))


def pairs(
    tally: Tally,
    screen: Screen,
    laws: TwoAtoms,
    M: int,
    K: int,
    *,
    p: Floats | None = None,
    equal_cases: int = EQUAL,
) -> Floats:
    """Hold a claim against many laws of two atoms, in several dimensions and units if it depends on them.

    Args:
        tally: Taken note of there.
        screen: Of the claim.
        laws: Of two atoms.
        M: Draws in u.
        K: Draws in v.
        p: Their misalignment, if it is known.
        equal_cases: How many cases of near equality are decided in fractions; any more are not counted as tried.

    Returns:
        How near each law comes to breaking the claim, shape (n,), minus infinity where the expression has no value.
    """
    if not len(laws):
        return np.zeros(0)
    p = laws.misalignment(M, K) if p is None else p
    dims = np.array([laws.dim, *(np.full(len(laws), d) for d in DIMS)]) if "N" in screen.names else laws.dim[None]
    scales = SCALES if screen.depends_on_units() else SCALES[:1]
    unit = np.array([float(x) for x in scales])[:, None, None] ** 2
    power = {"mu_Sigma_mu": 2, "tr_Sigma2": 2}
    moments = {name: x * unit ** power.get(name, 1) for name, x in laws.letters().items()}
    bound = screen.values({"M": M, "K": K, "N": dims[None], **moments})
    bound = np.broadcast_to(bound, (len(scales), *dims.shape))
    ratio = screen.ratio(p, bound)
    tally.counts.update(laws=len(laws), cells=ratio.size, exact=ratio.size)

    def build(index: Any) -> FiniteCase:
        u, v, i = (int(x) for x in index)
        return FiniteCase(law=laws.law(i, int(dims[v, i]), scales[u]), M=M, K=K)

    if tally.violation is None:
        suspects = np.argwhere(screen.suspect(p, bound))
        order = np.lexsort((laws.size[suspects[:, 2]], suspects[:, 1], suspects[:, 0]))
        suspects = suspects[order]
        sure = ratio[tuple(suspects.T)] > 1 + ROUNDING
        _decide(tally, screen, (build(i) for i in suspects[sure][:BROKEN]))
        if tally.violation is None:
            equal = suspects[~sure]
            _decide(tally, screen, (build(i) for i in equal[:equal_cases]))
            left_out = max(0, len(equal) - equal_cases)
            tally.counts.subtract({"cells": left_out, "exact": left_out})
    nowhere = np.argwhere(np.isnan(bound))
    before = tally.undefined[0]
    _decide(tally, screen, (build(i) for i in nowhere[:DOUBTFUL]))
    if tally.undefined[0] > before:
        tally.no_value("", max(0, len(nowhere) - DOUBTFUL))

    guide = screen.guide(p, bound)
    telling = ~np.isnan(ratio) & ((p != 0) | (bound != 0))
    wanted: list[tuple[Role, Floats, NDArray[np.bool_]]] = [("tightest", ratio, telling)]
    for family in np.unique(laws.families):
        own = telling & (laws.families == family)
        wanted += [("near", guide, own), ("loose", -ratio, own)]
    for role, score, among in wanted:
        if (index := _simplest(score, among, laws.size)) is not None:
            tally.keep(
                role, _case(tally.stage, build(index), float(p[index[2]]), float(bound[index])), float(score[index])
            )
    return np.where(np.isnan(guide), -np.inf, guide).max(axis=(0, 1))


def _simplest(score: Floats, among: NDArray[np.bool_], size: Floats) -> tuple[int, ...] | None:
    """Index of the highest score, of those that are alike the one that is easiest to write down."""
    score = np.where(among, score, -np.inf)
    best = score.max()
    if np.isneginf(best):
        return None
    least = best if np.isinf(best) else best - ALIKE * abs(best)
    alike = np.where(score >= least, size, np.inf)
    return tuple(int(x) for x in np.unravel_index(int(np.argmin(alike)), alike.shape))


def _decide(tally: Tally, screen: Screen, cases: Iterable[FiniteCase]) -> None:
    """Decide cases without floats, up to the first violation; those without a value are counted."""
    for case in cases:
        if tally.violation is not None:
            return
        try:
            if case.violation(screen.claim):
                tally.violation = case.where
        except Undefined:
            tally.no_value(case.label)


def _case(stage: str, case: FiniteCase, p: float, bound: float) -> Case:
    return Case(
        stage=stage,
        family=case.law.family,
        subject=case.label,
        where=case.where,
        observed=p,
        bound=bound,
        exact=True,
    )
