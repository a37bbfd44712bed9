"""Make a broken case simple: fewer atoms and dimensions, smaller M and K, smaller integers, as long as it stays broken.

Greedy and deterministic: the candidates come in a fixed order, the first that is simpler and still broken (decided
without floats) is taken, and the work is bounded by a count and not by a clock.
"""

import math
from collections.abc import Iterator
from fractions import Fraction

from ...sim.finite_laws import FiniteSupport
from ..checks import Undefined
from .exact_case import FiniteCase
from .laws import affordable
from .screen import Screen

# Outcomes visited in all; a case of two atoms at M = K = 1000 has a million.
WORK = 4_000_000
TRIALS = 800

Atoms = tuple[tuple[Fraction, ...], ...]
Weights = tuple[Fraction, ...]
Plain = tuple[Atoms, Weights, int, int]


def shrink(screen: Screen, case: FiniteCase) -> FiniteCase:
    """Return the simplest broken case that greedy steps reach from a broken one.

    Args:
        screen: Of the claim; floats settle what is clear.
        case: Broken.
    """
    best = _plain(case)
    work = trials = 0
    seen = {best}
    improved = True
    while improved:
        improved = False
        for candidate in _simpler(best):
            if candidate in seen or _size(candidate) >= _size(best):
                continue
            seen.add(candidate)
            trials += 1
            atoms, _, M, K = candidate
            work += _outcomes(len(atoms), M) * _outcomes(len(atoms), K)
            if work > WORK or trials > TRIALS:
                return _case(best)
            if _broken(screen, candidate):
                best, improved = candidate, True
                break
    return _case(best)


def _plain(case: FiniteCase) -> Plain:
    return case.law.atoms, case.law.weights, case.M, case.K


def _case(plain: Plain) -> FiniteCase:
    atoms, weights, M, K = plain
    return FiniteCase(law=FiniteSupport(atoms, weights), M=M, K=K)


def _outcomes(atoms: int, size: int) -> int:
    return math.comb(size + atoms - 1, atoms - 1)


def _broken(screen: Screen, plain: Plain) -> bool:
    case = _case(plain)
    if case.law.moments.mu2 == 0 or not affordable(len(plain[0]), plain[2], plain[3], 10**6 + 10**4):
        return False
    try:
        return bool(screen.suspect(float(case.p), screen.at(case))) and case.violation(screen.claim) != 0
    except Undefined:
        return False


def _size(plain: Plain) -> tuple[int, int, int, float]:
    """Atoms, dimension, M + K, and digits to write."""
    atoms, weights, M, K = plain
    entries = [x for atom in atoms for x in atom] + list(weights)
    digits = sum(math.log2(1 + abs(x.numerator)) + 2 * math.log2(x.denominator) for x in entries)
    return len(atoms), len(atoms[0]), M + K, digits + sum(x < 0 for x in entries) / 8


def _simpler(plain: Plain) -> Iterator[Plain]:
    atoms, weights, M, K = plain
    for i in range(len(atoms)) if len(atoms) > 1 else ():
        rest = 1 - weights[i]
        yield (
            (*atoms[:i], *atoms[i + 1 :]),
            tuple(w / rest for j, w in enumerate(weights) if j != i),
            M,
            K,
        )
    for j in range(len(atoms[0])) if len(atoms[0]) > 1 else ():
        yield tuple(atom[:j] + atom[j + 1 :] for atom in atoms), weights, M, K
    yield from ((atoms, weights, *size) for size in _smaller_sizes(M, K))
    # An extremal law belongs to its M: when M falls, the rare atom -(M - 1) must follow.
    if len(atoms) == 2:
        for m in sorted({1, 2, M // 2, M - 1} - {0, M}):
            for eps in sorted(
                {weights[1], *(Fraction(1, d) for d in (2, 4, 10, 100, 400, 1000, 10_000))}, reverse=True
            ):
                yield (((Fraction(1),), (Fraction(1 - m),)), (1 - eps, eps), m, m)
    for new in _rounder(weights):
        yield atoms, new, M, K
    common = _common_factor(atoms)
    if common != 1:
        yield tuple(tuple(x / common for x in atom) for atom in atoms), weights, M, K
    for i, atom in enumerate(atoms):
        for j, x in enumerate(atom):
            for y in _nearer(x):
                moved = (*atom[:j], y, *atom[j + 1 :])
                yield (*atoms[:i], moved, *atoms[i + 1 :]), weights, M, K


def _smaller_sizes(M: int, K: int) -> Iterator[tuple[int, int]]:
    for m, k in ((1, 1), (M // 2, K // 2), (M - 1, K - 1), (M // 2, K), (M, K // 2), (M - 1, K), (M, K - 1)):
        if min(m, k) >= 1 and (m, k) != (M, K):
            yield m, k


def _rounder(weights: Weights) -> Iterator[Weights]:
    yield tuple(Fraction(1, len(weights)) for _ in weights)
    for i in range(1, len(weights)):
        others = 1 - weights[i]
        for new in _round_fractions(weights[i]):
            scale = (1 - new) / others
            if 0 < new < 1:
                yield tuple(new if j == i else w * scale for j, w in enumerate(weights))


def _round_fractions(x: Fraction) -> Iterator[Fraction]:
    """Simpler fractions of about the size of x, the simplest first."""
    small = min(x, 1 - x)
    exponent = math.floor(math.log10(small))
    simple = [Fraction(d) * Fraction(10) ** e for e in (exponent + 1, exponent) for d in (1, 2, 5, 3)]
    near = [small.limit_denominator(10**n) for n in (1, 2, 3)] + [Fraction(1, round(1 / small))]
    for y in (Fraction(1, 2), *simple, *near):
        if 0 < y < 1:
            yield y if small == x else 1 - y


def _common_factor(atoms: Atoms) -> Fraction:
    entries = [x for atom in atoms for x in atom if x]
    top = math.gcd(*(x.numerator for x in entries))
    return Fraction(top, math.lcm(*(x.denominator for x in entries))) if entries else Fraction(1)


def _nearer(x: Fraction) -> Iterator[Fraction]:
    """Simpler numbers near x: 0, whole ones, halves, and one step towards 0."""
    found = [
        Fraction(0),
        Fraction(1),
        Fraction(-1),
        Fraction(round(x)),
        Fraction(math.floor(x)),
        Fraction(math.ceil(x)),
    ]
    found += [Fraction(round(2 * x), 2), Fraction(math.trunc(x / 2)), x - (1 if x > 0 else -1 if x < 0 else 0)]
    yield from (y for y in dict.fromkeys(found) if y != x)
