"""The units of work of the search: each does a fixed amount of it, with a stream of its own, whoever runs it."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ...sim.finite_laws import FiniteSupport
from ...sim.populations import build
from ...sim.rng import generator
from ...theory.claims import Claim
from . import extremal, laws
from .continuous import gaussian_laws, sampled_laws
from .exact_case import FiniteCase
from .laws import LARGEST_SIZE, Size
from .screen import Screen, screen_of
from .tally import Tally, finite, pairs
from .two_atoms import TwoAtoms

TRIED_ATOMS = 4
COPIES, BEAM, FEW = 120, 8, 40

Unit = tuple[str, dict[str, Any]]
"""Name of a kind of work, and its arguments besides the claim and the seed."""


def run(claim: Claim, seed: int, unit: Unit) -> Tally:
    """Do one unit of work."""
    name, arguments = unit
    return _UNITS[name](claim, seed, **arguments)


def near_hint(screen: Screen, hint: Mapping[str, float], size: Size) -> Tally:
    """Laws with the moments of a hint."""
    tally = Tally(stage="hint")
    found = extremal.hinted(hint, *size)
    if found is not None:
        pairs(tally, screen, found, *size)
    return tally


def extremal_laws(screen: Screen, size: Size) -> Tally:
    """The extremal families at one size, and at small sizes laws of one atom and of several."""
    tally = Tally(stage="extremal laws")
    pairs(tally, screen, extremal.extremal(*size), *size, p=extremal.misalignment(*size))
    for case in _several_atoms(size) if size in laws.SMALL_SIZES else ():
        finite(tally, screen, case)
    return tally


@functools.cache
def _several_atoms(size: Size) -> tuple[FiniteCase, ...]:
    M, K = size
    return tuple(FiniteCase(law=law, M=M, K=K) for law in laws.several_atoms(M, K))


def random_laws(claim: Claim, seed: int, index: int, examples: int) -> Tally:
    """Laws with rational atoms by hypothesis, driven towards a large ratio."""
    import hypothesis
    from hypothesis import strategies as st

    tally, screen = Tally(stage="random laws"), screen_of(claim)
    entries = st.integers(-24, 24).map(lambda n: Fraction(n, 4))
    parts = st.sampled_from((1, 1, 2, 3, 5, 10, 30, 100, 1000, 10_000))
    counts = st.sampled_from((1, 1, 2, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64))

    @hypothesis.seed(int(generator(seed, "random laws", index).integers(2**32)))
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, hypothesis.Phase.target),
    )
    @hypothesis.given(st.data())
    def visit(data: st.DataObject) -> None:
        dim, atoms = data.draw(st.integers(1, 3)), data.draw(st.integers(2, TRIED_ATOMS))
        points = data.draw(st.lists(st.tuples(*[entries] * dim), min_size=atoms, max_size=atoms, unique=True))
        weights = data.draw(st.lists(parts, min_size=atoms, max_size=atoms))
        law = FiniteSupport(points, [Fraction(w, sum(weights)) for w in weights], name="random", family="random atoms")
        M, K = data.draw(counts), data.draw(counts)
        while not laws.affordable(atoms, M, K):
            M, K = max(1, M // 2), max(1, K // 2)
        if law.moments.mu2 > 0:
            hypothesis.target(_score(finite(tally, screen, FiniteCase(law=law, M=M, K=K))), label="ratio")

    visit()
    return tally


def _score(ratio: float) -> float:
    return -50.0 if math.isnan(ratio) or ratio <= 0 else min(50.0, max(-50.0, math.log(ratio)))


def refined_pairs(claim: Claim, seed: int, starts: Sequence[Mapping[str, Any]], size: Size, rounds: int) -> Tally:
    """Move atoms and weights of the best laws of two atoms by ever smaller random steps, at one size."""
    tally, screen = Tally(stage="refined laws"), screen_of(claim)
    rng = generator(seed, "refined pairs", str(size))
    best = _arrays([FiniteSupport(s["atoms"], s["weights"]) for s in starts])
    for spread in np.geomspace(0.5, 0.01, rounds):
        x, w, eps, zero = (np.repeat(values, COPIES) for values in best)
        moved = rng.random(x.shape) < 0.5
        # Many stay on the edge at which they are, or go to another one, for there the ratio jumps.
        x = np.where(moved, x * np.exp(spread * rng.standard_normal(x.shape)), x)
        x = np.where(rng.random(x.shape) < 0.3, rng.choice([float(edge) for edge in extremal.edges(*size)], x.shape), x)
        w = np.where(rng.random(w.shape) < 0.7, w * np.exp(spread * rng.standard_normal(w.shape)), w)
        eps = np.minimum(eps * np.exp(2 * spread * rng.standard_normal(eps.shape)), 0.999)
        x, w, eps, zero = (np.concatenate(both) for both in zip(best, (x, w, eps, zero), strict=True))
        candidates = _from_arrays(x, w, eps, zero).fitting(*size)
        ratio = pairs(tally, screen, candidates, *size, equal_cases=FEW)
        if not len(ratio):
            break
        top = np.argsort(-np.where(np.isfinite(ratio), ratio, -np.inf), kind="stable")[:BEAM]
        best = _arrays([candidates.law(int(i)) for i in top])
    return tally


def _arrays(pairs_of_atoms: Sequence[FiniteSupport]) -> tuple[np.ndarray, ...]:
    """(x, w, eps, whether the common atom is 0) with the atoms turned and scaled to (1, 0) or 0, and (x, w)."""
    rows = []
    for law in pairs_of_atoms:
        a, b = (np.array(atom, dtype=float) for atom in law.atoms)
        norm2 = float(a @ a)
        if norm2 == 0:
            rows.append((1.0, 0.0, float(law.weights[1]), 1.0))
        else:
            x = float(a @ b) / norm2
            rows.append((x, math.sqrt(max(float(b @ b) / norm2 - x * x, 0.0)), float(law.weights[1]), 0.0))
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def _from_arrays(x: np.ndarray, w: np.ndarray, eps: np.ndarray, zero: np.ndarray) -> TwoAtoms:
    grid = np.where(np.maximum(np.abs(x), w) < 64, 48, 6)
    one = np.column_stack([np.where(zero, 0, grid), np.zeros_like(grid)]).astype(np.int64)
    rare = np.column_stack([np.round(x * grid), np.floor(w * grid)]).astype(np.int64)
    weights = tuple(_three_digits(float(e)) for e in eps)
    return TwoAtoms(common=one, rare=rare, denominator=grid, weights=weights, weight=np.arange(len(weights)))


def _three_digits(eps: float) -> Fraction:
    if eps > 0.9:
        return 1 - _three_digits(1 - eps)
    power = 10 ** (3 - math.floor(math.log10(eps)) - 1)
    return Fraction(max(1, round(eps * power)), power)


def climbed(claim: Claim, seed: int, index: int, start: Mapping[str, Any], steps: int) -> Tally:
    """Change one thing of a law at a time, also M and K, and keep what does not lower the ratio."""
    tally, screen = Tally(stage="refined laws"), screen_of(claim)
    rng = generator(seed, "climbed", index)
    law = build(**start["population"])
    assert isinstance(law, FiniteSupport)
    best = FiniteCase(law=law, M=start["M"], K=start["K"])
    reached = finite(tally, screen, best)
    for _ in range(steps):
        if (changed := _changed(best, rng)) is not None:
            ratio = finite(tally, screen, changed)
            if ratio >= reached:
                best, reached = changed, ratio
    return tally


def _changed(case: FiniteCase, rng: np.random.Generator) -> FiniteCase | None:
    atoms = [list(atom) for atom in case.law.atoms]
    common = math.lcm(*(w.denominator for w in case.law.weights))
    parts = [int(w * common) for w in case.law.weights]
    M, K, dim = case.M, case.K, case.law.dim
    i, j = int(rng.integers(len(atoms))), int(rng.integers(dim))
    move = rng.choice(("entry", "entry", "entry", "weight", "weight", "atom", "dim", "size"))
    if move == "entry":
        atoms[i][j] += Fraction(int(rng.choice((-1, 1))), int(rng.choice((1, 2, 4, 8))))
    elif move == "weight":
        parts = [p * 4 for p in parts]
        parts[i] = max(1, int(parts[i] * rng.choice((0.25, 0.5, 0.75, 1.25, 2.0, 4.0))))
    elif move == "atom" and len(atoms) < TRIED_ATOMS:
        atoms.append([x + int(rng.integers(-2, 3)) for x in atoms[i]])
        parts = [p * 8 for p in parts] + [max(1, parts[i])]
    elif move == "dim" and dim < 3:
        atoms = [[*atom, Fraction(int(rng.integers(-1, 2)))] for atom in atoms]
    elif move == "size":
        M, K = (max(1, n + int(rng.integers(-1, 2))) for n in (M, K))
    if not laws.affordable(len(atoms), M, K) or sum(parts) > 10**9 or max(M, K) > LARGEST_SIZE:
        return None
    law = FiniteSupport(atoms, [Fraction(p, sum(parts)) for p in parts], name="climbed", family="refined atoms")
    return FiniteCase(law=law, M=M, K=K) if law.moments.mu2 > 0 else None


_UNITS: dict[str, Callable[..., Tally]] = {
    "random laws": random_laws,
    "refined pairs": refined_pairs,
    "climbed": climbed,
    "Gaussian laws": gaussian_laws,
    "sampled laws": sampled_laws,
}
