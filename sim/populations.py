"""The populations of activation gradients by name, from which every suite draws.

The continuous ones take (``dim``, ``d_align``): the direction of the mean and the shape of the spectrum are fixed, and
|mu| solves min(|mu|^4 / mu'Sigma mu, |mu|^4 / tr Sigma^2) = d_align in closed form. The others are exact rationals.
"""

import difflib
import inspect
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .finite_laws import Empirical, FiniteSupport, Rational, fraction
from .laws import (
    EigenLaw,
    Gaussian,
    Laplace,
    Moments,
    MultivariateT,
    Population,
    RareHuge,
    Skewed,
    SparseSpiky,
    Vector,
)

__all__ = ["CONTINUOUS", "Empirical", "FiniteSupport", "Gaussian", "Moments", "Population", "build", "names"]


def _flat(dim: int) -> tuple[Vector, Vector]:
    return np.ones(dim), np.ones(dim)


def _power_law(dim: int) -> tuple[Vector, Vector]:
    return np.ones(dim), np.arange(1, dim + 1, dtype=np.float64) ** -1.0


def _spiked(dim: int) -> tuple[Vector, Vector]:
    """One eigenvalue sqrt(N), with half of |mu|^2 along it."""
    direction, eigenvalues = np.ones(dim), np.ones(dim)
    direction[0] = math.sqrt(max(dim - 1, 1))
    eigenvalues[0] = math.sqrt(dim)
    return direction, eigenvalues


def _low_rank(dim: int) -> tuple[Vector, Vector]:
    """Rank N / 4, with most of the mean in the null space."""
    return np.ones(dim), (np.arange(dim) < max(1, dim // 4)).astype(np.float64)


def _continuous(
    law: Callable[..., EigenLaw],
    shape: Callable[[int], tuple[Vector, Vector]],
    *,
    dim: int,
    d_align: float,
    **labels: Any,
) -> EigenLaw:
    name = labels["name"]
    if not isinstance(dim, int) or dim < 1:
        raise ValueError(f"build('{name}'): dim must be an integer >= 1, got {dim!r}.")
    if not 0 <= d_align < math.inf:
        raise ValueError(f"build('{name}'): d_align must be finite and >= 0 (0 means zero mean), got {d_align!r}.")
    direction, eigenvalues = shape(dim)
    direction = direction / np.linalg.norm(direction)
    covariance = SparseSpiky.covariance(eigenvalues) if law is SparseSpiky else eigenvalues
    # With mu = sqrt(m) w: d_par = m / w'Sigma w and d_2 = m^2 / tr Sigma^2, so the larger of the two roots has min = d.
    mu2 = max(d_align * float(direction**2 @ covariance), math.sqrt(d_align * float(covariance @ covariance)))
    return law(
        math.sqrt(mu2) * direction, eigenvalues, spec={"name": name, "dim": dim, "d_align": float(d_align)}, **labels
    )


def _lattice(*, dim: int = 2) -> FiniteSupport:
    """Three integer points without symmetry, weights 3/6, 2/6, 1/6: few enough to enumerate at M = K = 64 and above."""
    if not isinstance(dim, int) or dim < 1:
        raise ValueError(f"build('lattice'): dim must be an integer >= 1, got {dim!r}.")
    atoms = [[(7 * i * i + 3 * i * j + 5 * j + 2) % 11 - 6 for j in range(dim)] for i in range(3)]
    weights = [Fraction(i, 6) for i in (3, 2, 1)]
    return FiniteSupport(atoms, weights, name="lattice", spec={"name": "lattice", "dim": dim})


def _probability(value: Rational, *, name: str, letter: str) -> Fraction:
    p = fraction(value, where=f"build('{name}')")
    if not 0 < p < 1:
        raise ValueError(f"build('{name}'): {letter} must lie strictly between 0 and 1, got {value}.")
    return p


def _sample_size(M: int, *, name: str) -> int:
    if not isinstance(M, int) or M < 1:
        raise ValueError(f"build('{name}'): M must be an integer >= 1, got {M!r}.")
    return M


def _extremal(atoms: Sequence[Sequence[Rational]], rare: Fraction, **spec: int | str) -> FiniteSupport:
    return FiniteSupport(atoms, [1 - rare, rare], name=str(spec["name"]), family="extremal", spec=dict(spec))


def _bernoulli(*, pi: Rational = "1/2") -> FiniteSupport:
    """1 with probability pi, else 0: reaches B_exact at M = K = 1 for every pi ([width] spec, A1)."""
    p = _probability(pi, name="bernoulli", letter="pi")
    return _extremal([[0], [1]], p, name="bernoulli", pi=str(p))


def _rare_atom(*, M: int = 4, eps: Rational = "1/100") -> FiniteSupport:
    """1, and with probability eps -(M - 1): reaches B_exact for M = K as eps -> 0 ([width] spec, A1)."""
    p = _probability(eps, name="rare-atom", letter="eps")
    return _extremal([[1], [1 - _sample_size(M, name="rare-atom")]], p, name="rare-atom", M=M, eps=str(p))


def _rare_atom_2d(*, M: int = 4, eps: Rational = "1/400", w: Rational | None = None) -> FiniteSupport:
    """(1, 0), and with probability eps (-(M - 1), w), w such that d_par = d_2 nearly ([width] spec, A1 and A6)."""
    p = _probability(eps, name="rare-atom-2d", letter="eps")
    _sample_size(M, name="rare-atom-2d")
    if w is None:
        r = math.sqrt(p * (1 - p))
        w2 = (M * (1 - M * p) - r * M * M) / (p + r)
        if w2 <= 0:
            raise ValueError(f"build('rare-atom-2d'): w is imaginary at M={M}, eps={p}; take eps below 1/{M * M}.")
        grid = min(M, 16)
        w = Fraction(math.floor(grid * math.sqrt(w2)), grid)
    height = fraction(w, where="build('rare-atom-2d')")
    return _extremal([[1, 0], [1 - M, height]], p, name="rare-atom-2d", M=M, eps=str(p), w=str(height))


def _gaussian(*, mean: ArrayLike, eigenvalues: ArrayLike) -> Gaussian:
    return Gaussian(np.asarray(mean, dtype=np.float64), np.asarray(eigenvalues, dtype=np.float64))


def _empirical(*, pool: ArrayLike, label: str = "empirical", sha256: str | None = None) -> Empirical:
    population = Empirical(pool, label=label)
    if sha256 not in (None, population.sha256):
        raise ValueError(
            f"build('empirical'): the pool has hash {population.sha256[:12]}, expected {str(sha256)[:12]}."
        )
    return population


_CONTINUOUS: dict[str, Callable[..., Population]] = {
    name: partial(_continuous, law, shape, name=name, **labels)
    for name, law, shape, labels in (
        ("gaussian-flat", Gaussian, _flat, {}),
        ("gaussian-power-law", Gaussian, _power_law, {}),
        ("gaussian-spiked", Gaussian, _spiked, {}),
        ("gaussian-low-rank", Gaussian, _low_rank, {}),
        ("t5", MultivariateT, _flat, {"degrees": 5.0}),
        ("t3", MultivariateT, _flat, {"degrees": 3.0}),
        ("t2.1", MultivariateT, _flat, {"degrees": 2.1}),
        ("laplace", Laplace, _flat, {"family": "heavy tails"}),
        ("rare-huge", RareHuge, _flat, {"family": "heavy tails"}),
        ("sparse-spiky", SparseSpiky, _flat, {"family": "sparse and skewed"}),
        ("skewed", Skewed, _flat, {"family": "sparse and skewed"}),
    )
}
_OTHERS: dict[str, Callable[..., Population]] = {
    "lattice": _lattice,
    "bernoulli": _bernoulli,
    "rare-atom": _rare_atom,
    "rare-atom-2d": _rare_atom_2d,
    "finite": FiniteSupport,
    "gaussian": _gaussian,
    "empirical": _empirical,
}
_BUILDERS = _CONTINUOUS | _OTHERS
CONTINUOUS = tuple(_CONTINUOUS)
"""Names of the populations that take (``dim``, ``d_align``)."""


def names() -> tuple[str, ...]:
    """Return every name that ``build`` knows."""
    return tuple(_BUILDERS)


def build(name: str, **params: Any) -> Population:
    """Build a population by name; ``build(**population.spec)`` is the round trip (plus ``pool`` for a measured one).

    Args:
        name: One of ``names()``.
        params: ``dim`` and ``d_align`` for the continuous ones; ``dim`` (lattice); ``pi`` (bernoulli); ``M``, ``eps``
            (rare-atom, rare-atom-2d) and ``w``; ``atoms``, ``weights`` (finite); ``mean``, ``eigenvalues`` (gaussian);
            ``pool``, ``label``, ``sha256`` (empirical). Rationals are integers, Fractions or strings such as '1/5'.

    Raises:
        ValueError: For an unknown name, an unknown or missing parameter or a value outside its range.
    """
    if name not in _BUILDERS:
        near = difflib.get_close_matches(name, _BUILDERS, n=3, cutoff=0.4) or list(_BUILDERS)
        raise ValueError(f"build: unknown population '{name}'; nearest: {', '.join(near)}.")
    if name in _CONTINUOUS:
        allowed = ["dim", "d_align"]
        required = allowed
    else:
        parameters = inspect.signature(_BUILDERS[name]).parameters.values()
        allowed = [p.name for p in parameters if p.name not in ("name", "family", "spec")]
        required = [p.name for p in parameters if p.default is p.empty]
    if unknown := sorted(params.keys() - set(allowed)):
        raise ValueError(f"build('{name}'): unknown parameter {', '.join(unknown)}; it takes {', '.join(allowed)}.")
    if missing := [p for p in required if p not in params]:
        raise ValueError(f"build('{name}'): missing parameter {', '.join(missing)}; it takes {', '.join(allowed)}.")
    return _BUILDERS[name](**params)
