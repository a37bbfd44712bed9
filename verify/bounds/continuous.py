"""Laws without finite support: Gaussian ones by contour integrals, the others by draws that an error budget judges."""

import math
from collections.abc import Sequence
from typing import Any

import mpmath

from ...sim.gaussian_tail import gaussian_tail
from ...sim.laws import Gaussian, Population
from ...sim.monte_carlo import simulate
from ...sim.populations import build
from ...sim.rng import generator
from ...theory.claims import Claim, Kind
from ..decisions import ErrorBudget, Status, decide_upper_bound
from .laws import Place
from .screen import ROUNDING, float_letters, screen_of
from .tally import Tally
from .target import Case

ALPHA = 1e-6
ROUNDS = (20_000, 80_000, 400_000)
# Below this a bound is out of reach of that many draws.
VISIBLE = 2e-3


def gaussian_laws(claim: Claim, seed: int, places: Sequence[Place]) -> Tally:
    """Gaussian laws by the exact contour; nothing is drawn."""
    tally, screen = Tally(stage="Gaussian laws"), screen_of(claim)
    for spec, M, K in places:
        law = build(**spec)
        assert isinstance(law, Gaussian)
        p, bound = gaussian_tail(law, M, K).p, float(screen.values(float_letters(law, M, K)))
        tally.counts.update(laws=1, cells=1, exact=1)
        case = _case(tally, law, spec, M, K, p, bound, exact=True)
        ratio = float(screen.ratio(p, bound))
        if math.isnan(ratio):
            tally.no_value(case.subject)
            continue
        tally.note(case, screen)
        if ratio > 1 + ROUNDING:
            tally.violation = tally.violation or case.where
        elif bool(screen.suspect(p, bound)) and claim.kind is not Kind.IDENTITY:
            tally.undecided.append(f"P and the expression agree within rounding at {case.subject}")
    return tally


def sampled_laws(claim: Claim, seed: int, places: Sequence[Place], tests: int) -> Tally:
    """Other laws by draws, looked at after every round; a cell whose bound is out of their reach is left out."""
    tally, screen = Tally(stage="sampled laws"), screen_of(claim)
    for spec, M, K in places:
        law = build(**spec)
        bound = float(screen.values(float_letters(law, M, K)))
        subject = f"{law.name} {spec.get('d_align', '')}, N={law.dim}; M={M}, K={K}"
        if math.isnan(bound):
            tally.no_value(subject)
            continue
        if bound <= VISIBLE:
            continue
        status, hits, trials = decide_by_draws(claim, law, M, K, bound, (seed, "search"), tests, ROUNDS)
        tally.counts.update(laws=1, cells=1, draws=trials)
        case = _case(tally, law, spec, M, K, hits / max(trials, 1), bound, exact=False)
        if trials:
            tally.note(case, screen)
        if status is Status.REFUTED:
            tally.violation = tally.violation or case.where
        elif status is Status.INCONCLUSIVE:
            tally.undecided.append(f"{trials} draws do not decide {case.subject}")
    return tally


def decide_by_draws(
    claim: Claim,
    law: Population,
    M: int,
    K: int,
    bound: float,
    stream: tuple[int, str],
    tests: int,
    rounds: Sequence[int],
) -> tuple[Status, int, int]:
    """Draw until a bound is decided.

    Returns:
        The decision, the misaligned draws and all of them.
    """
    rng = generator(*stream, str(sorted(law.spec.items())), M, K)
    budget = ErrorBudget(alpha=ALPHA, tests=tests)
    hits = trials = 0
    status = decide_upper_bound(0, 0, bound, budget) if claim.kind is Kind.UPPER_BOUND else Status.INCONCLUSIVE
    for count in rounds if status is Status.INCONCLUSIVE else ():
        hits += simulate(law, M, K, count, rng).misaligned
        trials += count
        if claim.kind is Kind.UPPER_BOUND:
            status = decide_upper_bound(hits, trials, bound, budget)
        else:
            status = decide_upper_bound(trials - hits, trials, 1 - bound, budget)
        if status is not Status.INCONCLUSIVE:
            break
    return status, hits, trials


def _case(
    tally: Tally, law: Population, spec: dict[str, Any], M: int, K: int, p: float, bound: float, *, exact: bool
) -> Case:
    signal = f", |mu|^2={float(law.moments.mu2):.3g}"
    return Case(
        stage=tally.stage,
        family=law.family,
        subject=f"{law.name}, N={law.dim}{signal}; M={M}, K={K}",
        where={"population": spec, "M": M, "K": K},
        observed=p,
        bound=bound,
        exact=exact,
    )


def tail_on_rays(law: Gaussian, M: int, K: int, digits: int = 30) -> float:
    """P(X <= 0) in mpmath by the cumulants of A4, along two rays from a point that is no saddle point."""
    groups: dict[float, tuple[int, Any]] = {}
    for mean, eigenvalue in zip(law.mean.tolist(), law.eigenvalues.tolist(), strict=True):
        count, total = groups.get(eigenvalue, (0, mpmath.mpf(0)))
        groups[eigenvalue] = (count + 1, total + mpmath.mpf(mean) ** 2)
    with mpmath.workdps(digits):
        MK, inverse = mpmath.mpf(M) * K, mpmath.mpf(1) / M + mpmath.mpf(1) / K

        def cumulant(s: Any) -> Any:
            total = mpmath.mpf(0)
            for eigenvalue, (count, mean2) in groups.items():
                rest = 1 - s * s * eigenvalue * eigenvalue / MK
                total += -count * mpmath.log(rest) / 2 + mean2 * (s + s * s * eigenvalue * inverse / 2) / rest
            return total

        edge = mpmath.sqrt(MK) / max(groups)
        grid = [-edge * k / 64 for k in range(1, 64)]
        start = mpmath.mpf("0.8") * min(grid, key=lambda s: mpmath.re(cumulant(s)) - mpmath.log(-s))
        width = 1 / mpmath.sqrt(abs(mpmath.diff(cumulant, start, 2)) + 1 / start**2)
        ray = mpmath.expjpi(mpmath.mpf(2) / 3)
        step = mpmath.mpf(1) / 24

        def term(k: int) -> Any:
            r = width * mpmath.exp(mpmath.pi / 2 * mpmath.sinh(step * k))
            s = start + r * ray
            slope = r * mpmath.pi / 2 * mpmath.cosh(step * k)
            return mpmath.im(mpmath.exp(cumulant(s)) / s * ray) * slope

        return float(-step * mpmath.fsum(term(k) for k in range(-100, 101)) / mpmath.pi)
