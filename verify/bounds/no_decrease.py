"""Bounds on the probability that a fixed step does not lower the held-out loss, against exactly enumerated laws.

The loss of every case is quadratic: its curvature attains the smoothness that the theorem assumes, so that P(Y <= 0) is
the probability itself.
"""

import functools
import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...sim.enumeration import require_counts
from ...sim.finite_laws import FiniteSupport, fraction
from ...sim.fixed_step import StepLaw, StepLaws
from ...sim.populations import build
from ...sim.rng import generator
from ...theory.claims import Claim, Kind
from ..checks import Undefined
from .counterexample import spell, spell_interval
from .enclosure import Interval, compare, with_fractions
from .exact_case import SIGNS, moments, spell_law, spell_vector
from .target import Case, Counterexample, Effort, Points, Searched

RANDOM_LAWS = 150
RARE = tuple(Fraction(1, n) for n in (2, 3, 5, 10, 50, 400, 10_000))
SIZES = ((1, 1), (2, 2), (1, 4), (4, 1), (4, 4), (2, 8), (8, 8), (16, 16))
LARGE = ((64, 64), (1, 64), (64, 1))
# Of the largest step at which E Y is positive; the last ones are beyond it.
STEPS = tuple(Fraction(n, 100) for n in (1, 10, 30, 50, 80, 99, 100, 150, 1000))
# In turn: the law of Y knows eta L only, a bound may know one of the two.
SMOOTHNESS = (Fraction(1), Fraction(3))
# Pairs of count vectors that a stored case may have.
ENUMERABLE = 20_000
NEAR = 1 - 1e-9
KEPT = 12


@dataclass(frozen=True, kw_only=True)
class StepCase:
    """A finite law with M, K, a step size and a curvature."""

    law: FiniteSupport
    M: int
    K: int
    eta: Fraction
    L: Fraction
    family: str = ""

    @functools.cached_property
    def known(self) -> StepLaw:
        """P(Y <= 0), E Y and Var Y."""
        return _step_laws(self.law, self.M, self.K).at(self.eta * self.L / 2)

    @property
    def count_vectors(self) -> int:
        """Pairs of count vectors: what an enumeration costs."""
        return math.prod(math.comb(n + len(self.law.weights) - 1, n) for n in (self.M, self.K))

    @property
    def letters(self) -> dict[str, int | Fraction | Interval]:
        """Every underived letter."""
        return {
            **{"M": self.M, "K": self.K, "N": self.law.dim, **moments(self.law)},
            **{"eta": self.eta, "L_smooth": self.L},
            **{"gain_mean": self.known.mean, "gain_variance": self.known.variance},
        }

    @property
    def where(self) -> dict[str, Any]:
        """Enough to compute it again."""
        step = {"eta": str(self.eta), "L_smooth": str(self.L)}
        return {"population": self.law.spec, "M": self.M, "K": self.K, **step}

    @property
    def subject(self) -> str:
        """The case in a line."""
        return f"{spell_law(self.law)}; M={self.M}, K={self.K}, eta={self.eta}, L={self.L}"

    @property
    def size(self) -> tuple[bool, int, int, int, int]:
        """What makes a case telling: a step that gains on average, then few samples, atoms, dimensions and digits."""
        digits = len(str(self.eta)) + len(str(self.L)) + sum(len(str(w)) for w in self.law.weights)
        return self.known.mean <= 0, self.M * self.K, len(self.law.weights), self.law.dim, digits


@functools.lru_cache(maxsize=16)
def _step_laws(law: FiniteSupport, M: int, K: int) -> StepLaws:
    """Steps of every size share one enumeration."""
    return StepLaws(law, M, K)


def _laws(seed: int) -> Iterator[tuple[str, FiniteSupport]]:
    for rare in RARE:
        for p in dict.fromkeys((rare, 1 - rare)):
            yield "Bernoulli", _finite("bernoulli", pi=p)
        for m in (2, 4, 8, 16, 64):
            yield "rare atom", _finite("rare-atom", M=m, eps=rare)
            yield "rare atom in the plane", FiniteSupport([[1, 0], [1 - m, m]], [1 - rare, rare])
        yield "symmetric pair", FiniteSupport([[1, 3], [1, -3]], [1 - rare, rare])
    rng = generator(seed, "no decrease")
    for _ in range(RANDOM_LAWS):
        dim, count = (int(x) for x in rng.integers((1, 2), (3, 4)))
        atoms = rng.integers(-5, 6, (count, dim)).tolist()
        shares = rng.integers(1, 9, count).tolist()
        yield "random", FiniteSupport(atoms, [Fraction(w, sum(shares)) for w in shares])


def _finite(name: str, **params: Any) -> FiniteSupport:
    law = build(name, **params)
    if not isinstance(law, FiniteSupport):
        raise ValueError(f"population {name!r} has no finite support; a step is enumerated exactly.")
    return law


@functools.lru_cache(maxsize=4)
def _cases(seed: int) -> tuple[StepCase, ...]:
    """Every case, in one order: the step is a share of the largest one at which E Y is positive."""
    found = []
    for family, law in _laws(seed):
        mu2, trace = Fraction(law.moments.mu2), Fraction(law.moments.tr_Sigma)
        if mu2 == 0 or trace == 0:
            continue
        sizes = SIZES if family == "random" else SIZES + LARGE
        for ((M, K), share), L in zip(itertools.product(sizes, STEPS), itertools.cycle(SMOOTHNESS), strict=False):
            step = share * 2 * mu2 / (mu2 + trace / M)
            eta = (step.limit_denominator(1000) or step) / L
            if len(law.weights) == 2 or M * K <= 16:
                found.append(StepCase(law=law, M=M, K=K, eta=eta, L=L, family=family))
    return tuple(found)


def _columns(cases: list[StepCase]) -> Points:
    rows = [case.letters for case in cases]
    return {
        name: np.array([float(x.low) if isinstance(x := row[name], Interval) else float(x) for row in rows])
        for name in rows[0]
    }


def search(claim: Claim, effort: Effort, hint: Mapping[str, float] | None = None) -> Searched:
    """Hold a bound against every case; the simplest that breaks it is the counterexample.

    Args:
        claim: An upper or a lower bound on ``no_decrease``.
        effort: Seed, time and progress; one process is enough.
        hint: Not used.
    """
    claim = with_fractions(claim)
    deadline = time.monotonic() + effort.seconds
    every, done, step = _cases(effort.seed), [], 400
    for start in range(0, len(every), step):
        if time.monotonic() > deadline:
            break
        done += [case for case in every[start : start + step] if case.known.variance > 0]
        effort.on_progress("enumerated steps", min(start + step, len(every)), len(every))
    if not done:
        return Searched(finished=False)
    with np.errstate(all="ignore"):
        letters = _columns(done)
        bounds = np.broadcast_to(claim.numeric()(**{name: letters[name] for name in claim.arguments}), (len(done),))
    cases = [
        Case(
            stage="enumerated steps",
            family=case.family,
            subject=case.subject,
            where=case.where,
            observed=float(case.known.p),
            bound=float(np.real(bound)),
            exact=True,
        )
        for case, bound in zip(done, bounds, strict=True)
    ]
    undefined = [case for case, bound in zip(cases, bounds, strict=True) if np.isnan(bound)]
    order = sorted(range(len(done)), key=lambda i: done[i].size)
    # A ratio says nothing of two zeros, and exact arithmetic is for what floats cannot tell.
    doubtful = [i for i in order if not cases[i].ratio(claim.kind) < NEAR and cases[i].observed != cases[i].bound]
    broken = (found for i in doubtful if (found := confirm(claim, done[i].where)))
    known = [case for case in cases if case not in undefined]
    return Searched(
        counterexample=next(broken, None),
        cases=tuple(_kept(known, claim.kind)),
        tightest=max(known, key=lambda case: case.ratio(claim.kind), default=None),
        tried={"enumerated steps": {"cells": len(done), "exact": len(done)}},
        undecided=(f"no value at {undefined[0].subject}",) if undefined else (),
        finished=len(done) > 0 and time.monotonic() <= deadline,
    )


def _kept(cases: list[Case], kind: Kind) -> Iterator[Case]:
    """The tightest and the loosest of each family."""
    for _, group in itertools.groupby(sorted(cases, key=lambda c: c.family), key=lambda c: c.family):
        ranked = sorted(group, key=lambda case: -case.ratio(kind))
        yield from ranked[:KEPT]
        yield from ranked[KEPT:][-KEPT:]


def confirm(claim: Claim, where: Mapping[str, Any]) -> Counterexample | None:
    """Enumerate a case again and lay it out, if it breaks the claim.

    Raises:
        ValueError: If ``where`` describes no case, or one that is too large to be enumerated.
    """
    case = _read(where)
    if case.law.moments.mu2 == 0 or case.known.variance == 0:
        return None
    claim = with_fractions(claim)
    p = case.known.p
    try:
        value, sign = compare(claim, case.letters, Interval(low=p, high=p))
    except Undefined:
        return None
    if sign not in SIGNS[claim.kind]:
        return None
    return Counterexample(
        subject=case.subject,
        where=case.where,
        observed=spell(p),
        bound=spell_interval(value),
        confirmed="exact fractions" if value.exact else "exact fractions against interval arithmetic",
        table=tuple(_rows(claim, case, value)),
    )


def _read(where: Mapping[str, Any]) -> StepCase:
    try:
        law, M, K = _finite(**where["population"]), where["M"], where["K"]
        eta, L = (fraction(where[name], where=f"case: {name}") for name in ("eta", "L_smooth"))
    except (KeyError, TypeError) as error:
        raise ValueError(f"case {dict(where)}: expected 'population', 'M', 'K', 'eta', 'L_smooth' ({error}).") from None
    require_counts("case", M=M, K=K)
    if min(eta, L) <= 0:
        raise ValueError(f"case: eta and L_smooth must be positive, got {eta} and {L}.")
    case = StepCase(law=law, M=M, K=K, eta=eta, L=L)
    if case.count_vectors > ENUMERABLE:
        raise ValueError(
            f"case: {len(law.weights)} atoms at M={M}, K={K} are {case.count_vectors} pairs of sums; "
            f"at most {ENUMERABLE} are enumerated."
        )
    return case


def _rows(claim: Claim, case: StepCase, value: Interval) -> Iterator[tuple[str, str]]:
    for atom, weight in zip(case.law.atoms, case.law.weights, strict=True):
        yield f"g = {spell_vector(atom)}", f"with probability {weight}"
    yield "loss of a sample", f"g . theta + ({case.L}/2) |theta|^2"
    yield "M, K", f"{case.M}, {case.K}"
    yield "eta, L", f"{case.eta}, {case.L}"
    yield "Y", f"mu_M . g_K - ({case.eta * case.L / 2}) |mu_M|^2; no decrease where Y <= 0"
    for name in ("mu2", "mu_Sigma_mu", "tr_Sigma", "tr_Sigma2", "gain_mean", "gain_variance"):
        known = case.letters[name]
        yield name, spell_interval(known) if isinstance(known, Interval) else spell(Fraction(known))
    yield "P(Y <= 0)", f"{spell(case.known.p)} = {float(case.known.p):.10g}"
    yield f"claimed ({claim.kind}): {claim.expression}", f"{spell_interval(value)} = {float(value.low):.10g}"
