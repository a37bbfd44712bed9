"""Where a bound on the misalignment is tried: sizes (M, K), and laws of every family, rebuilt by their specs."""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from ...sim.finite_laws import FiniteSupport
from ...sim.populations import build
from ...sim.rng import generator
from ...theory.claims import Claim

Size = tuple[int, int]
Place = tuple[dict[str, Any], int, int]
"""The spec of a population, M and K."""

DIAGONAL = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 100, 128, 200, 256, 400, 512, 1000)
_UNEQUAL = (
    *((1, k) for k in (2, 3, 4, 8, 16, 64, 256, 1000)),
    *((2, k) for k in (3, 4, 8, 32)),
    *((3, 4), (3, 16), (4, 8), (4, 64), (8, 64), (16, 64), (16, 256), (64, 256), (100, 1000)),
)
SIZES: tuple[Size, ...] = (*((m, m) for m in DIAGONAL), *_UNEQUAL, *((k, m) for m, k in _UNEQUAL))
LARGEST_SIZE = 2000
# Units of q and dimensions (zeros are appended) in which a law of two atoms is tried, if the bound depends on them.
SCALES = tuple(Fraction(10) ** power for power in (0, -1, 1, -3, 3))
DIMS = (2, 3, 10, 100)


def sizes(claim: Claim, hint: Mapping[str, float] | None = None) -> tuple[Size, ...]:
    """(M, K) to try: the grid, the sizes of the hint, and those at which whole numbers in the expression say a change.

    In the order of M + K, so that the first violation is at the smallest.
    """
    found = set(SIZES)
    numbers = {abs(int(x)) for x in claim.expression.atoms() if x.is_Integer and 1 < abs(x) < LARGEST_SIZE}
    found |= {size for n in numbers for size in ((n - 1, n - 1), (n, n), (n + 1, n + 1), (2 * n, 2 * n))}
    if hint:
        found |= set(near(hint))
    return tuple(sorted((s for s in found if max(s) <= LARGEST_SIZE), key=lambda s: (sum(s), abs(s[0] - s[1]), s)))


def near(hint: Mapping[str, float]) -> tuple[Size, ...]:
    """The sizes of a hint and those beside it."""
    M, K = (min(max(1, round(hint.get(name, 1))), LARGEST_SIZE) for name in ("M", "K"))
    steps = ((0, 0), (1, 1), (-1, -1), (1, 0), (0, 1), (-1, 0), (0, -1), (M, K))
    return tuple((M + d, K + e) for d, e in steps if min(M + d, K + e) >= 1 and max(M + d, K + e) <= LARGEST_SIZE)


SMALL_SIZES: tuple[Size, ...] = ((1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (4, 4), (1, 8), (8, 1), (8, 8))
FEW_OUTCOMES, MANY_OUTCOMES = 2500, 40_000


def affordable(atoms: int, M: int, K: int, limit: int = MANY_OUTCOMES) -> bool:
    """Whether the outcomes of a finite law are few enough to enumerate by the thousand."""
    return math.comb(M + atoms - 1, atoms - 1) * math.comb(K + atoms - 1, atoms - 1) <= limit


def several_atoms(M: int, K: int) -> Iterator[FiniteSupport]:
    """Laws of one atom and of three or more, of every rank, that are cheap to enumerate at M and K."""
    for law in (*_fixed(), *_rare(M)):
        if law.moments.mu2 > 0 and affordable(len(law.weights), M, K, FEW_OUTCOMES):
            yield law


@functools.cache
def _fixed() -> tuple[FiniteSupport, ...]:
    return (*_certain(), *_pairs(), *_simplices(), *_cubes())


def _law(family: str, atoms: list[list[Any]], weights: list[Fraction] | None = None) -> FiniteSupport:
    weights = weights or [Fraction(1, len(atoms))] * len(atoms)
    return FiniteSupport(atoms, weights, name=family, family=family)


def _axis(dim: int, place: int, height: Fraction | int) -> list[Fraction | int]:
    return [height if i == place else 0 for i in range(dim)]


def _certain() -> Iterator[FiniteSupport]:
    for dim in (1, 2, 8):
        yield _law("deterministic", [_axis(dim, 0, 1)])


def _pairs() -> Iterator[FiniteSupport]:
    """Mean plus and minus steps along the axes: the mean in the null space of Sigma, in its range, or across it."""
    for rank, step in itertools.product((1, 2, 3, 4), map(Fraction, ("1/2", "1", "3/2", "2", "4"))):
        for mean in ([1] + [0] * rank, [0] + [1] * rank, [1] + [1] * rank):
            atoms = [
                [m + sign * e for m, e in zip(mean, _axis(rank + 1, i, step), strict=True)]
                for i in range(1, rank + 1)
                for sign in (1, -1)
            ]
            yield _law("symmetric pairs", atoms if mean[0] else [atom[1:] for atom in atoms])


def _simplices() -> Iterator[FiniteSupport]:
    """Corners c e_i on a pedestal: full rank but for the mean's own direction; never misaligned where c is small."""
    for corners, step in itertools.product((3, 4, 5, 6), map(Fraction, ("1/2", "1", "2", "3"))):
        atoms = [[1, *(step * (int(i == j) * corners - 1) for j in range(corners))] for i in range(corners)]
        yield _law("simplex", atoms)
        yield _law("corners", [_axis(corners, i, 1) for i in range(corners)])


@functools.cache
def _rare(M: int) -> tuple[FiniteSupport, ...]:
    """A common atom and several rare ones in different directions: the extremal laws at rank two and more."""
    found = []
    for eps, rank, x in itertools.product(map(Fraction, ("1/4", "1/20", "1/400", "1/10000")), (2, 3), {1 - M, -1, 0}):
        level = Fraction(math.isqrt(int((1 - x) / math.sqrt(eps) * 64)), 8)
        for height in {Fraction(1), level}:
            rare = [[x, *_axis(rank, i, height)] for i in range(rank)]
            found.append(_law("rare atoms", [[1] + [0] * rank, *rare], [1 - eps] + [eps / rank] * rank))
        rare = [[x, level], [x, -level]]
        found.append(_law("rare atoms", [[1, 0], *rare], [1 - eps, eps / 2, eps / 2]))
    return tuple(found)


def _cubes() -> Iterator[FiniteSupport]:
    for pi in map(Fraction, ("1/2", "9/10", "99/100")):
        corners = list(itertools.product((0, 1), repeat=2))
        weights = [math.prod((pi if x else 1 - pi for x in corner), start=Fraction(1)) for corner in corners]
        yield _law("Bernoulli coordinates", [list(corner) for corner in corners], weights)


# Laws without finite support

GAUSSIAN_SIZES: tuple[Size, ...] = (
    (1, 1),
    (1, 4),
    (4, 1),
    (4, 4),
    (16, 16),
    (1, 64),
    (64, 64),
    (256, 256),
    (1000, 1000),
)
SIGNALS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
SAMPLED_SIZES: tuple[Size, ...] = ((1, 1), (2, 2), (16, 1), (8, 8), (32, 32))


def gaussian() -> list[Place]:
    """Gaussian laws: signals over decades; flat, decaying, spiked and singular spectra; the mean along or across."""
    places: list[Place] = []
    for dim in (1, 2, 4, 32, 1024):
        i = np.arange(dim, dtype=float)
        spectra = [np.ones(dim), 1 / (i + 1), np.where(i == 0, 1.0, 0.0625), (i < max(1, dim // 2)).astype(float)]
        means = [np.ones(dim) / math.sqrt(dim), np.eye(dim)[0], np.eye(dim)[-1]]
        for spectrum, mean in itertools.product(spectra[: 1 if dim == 1 else 4], means[: 1 if dim == 1 else 3]):
            for signal, (M, K) in itertools.product(SIGNALS, GAUSSIAN_SIZES):
                # In units of the noise of X at these sizes, so that P is neither 1/2 nor 0 everywhere.
                mu2 = signal * math.sqrt(float(spectrum @ spectrum) / (M * K))
                spec = {"name": "gaussian", "mean": (math.sqrt(mu2) * mean).tolist(), "eigenvalues": spectrum.tolist()}
                places.append((spec, M, K))
    return places


def heavy() -> list[Place]:
    """Heavy tails, sparse and skewed laws."""
    names = ("t3", "t2.1", "laplace", "rare-huge", "sparse-spiky", "skewed")
    grid = itertools.product(names, (4, 64), (0.05, 1.0), SAMPLED_SIZES)
    return [({"name": name, "dim": dim, "d_align": d}, M, K) for name, dim, d, (M, K) in grid]


def pools(seed: int) -> list[Place]:
    """Pools of a few rows: the pool is the population, drawn from with replacement, so its moments are exact."""
    places: list[Place] = []
    for name, d_align, rows in itertools.product(("t2.1", "skewed", "sparse-spiky"), (0.1, 1.0), (12, 40)):
        parent = build(name, dim=3, d_align=d_align)
        pool = np.round(16 * parent.sample(rows, generator(seed, "pool", name, str(d_align), rows))).astype(int)
        distinct, counts = np.unique(pool, axis=0, return_counts=True)
        atoms = [[str(Fraction(int(x), 16)) for x in row] for row in distinct]
        spec = {"name": "finite", "atoms": atoms, "weights": [str(Fraction(int(c), rows)) for c in counts]}
        places += [(spec, M, K) for M, K in ((1, 1), (2, 1), (4, 4), (16, 16))]
    return places
