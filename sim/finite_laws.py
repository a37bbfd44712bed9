"""Laws on finitely many points: rational atoms for exact work, and pools of really measured gradients."""

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import eigvalsh

from .laws import Moments, Population, Vector
from .normals import row_blocks

Rational = int | str | Fraction


def fraction(value: Rational, *, where: str) -> Fraction:
    """Read an exact rational; a float is refused, for 0.2 is not 1/5."""
    if isinstance(value, float):
        raise TypeError(f"{where}: got the float {value!r}; write an exact rational such as '1/5'.")
    try:
        return Fraction(value)
    except (ValueError, TypeError, ZeroDivisionError):
        raise ValueError(f"{where}: {value!r} is no rational number; write an integer or 'p/q'.") from None


class FiniteSupport(Population):
    """q = atoms[i] with probability weights[i], all of them exact rationals.

    The atoms are integers over one common ``denominator``, so that sums and products of them are exact in float64 up to
    2^53 and X = 0 is never mistaken for a small number.
    """

    def __init__(
        self,
        atoms: Sequence[Sequence[Rational]],
        weights: Sequence[Rational],
        *,
        name: str = "finite",
        family: str = "finite support",
        spec: dict[str, Any] | None = None,
    ):
        where = f"population '{name}'"
        self.atoms = tuple(tuple(fraction(x, where=where) for x in atom) for atom in atoms)
        self.weights = tuple(fraction(w, where=where) for w in weights)
        if not self.atoms or len(self.atoms) != len(self.weights):
            raise ValueError(
                f"{where}: {len(self.atoms)} atoms and {len(self.weights)} weights; give one weight an atom."
            )
        self.dim = len(self.atoms[0])
        if self.dim < 1 or any(len(atom) != self.dim for atom in self.atoms):
            raise ValueError(
                f"{where}: atoms have {[len(a) for a in self.atoms]} entries; give all the same number >= 1."
            )
        if min(self.weights) <= 0 or sum(self.weights) != 1:
            raise ValueError(
                f"{where}: weights must be positive and sum to 1, got {[str(w) for w in self.weights]} "
                f"with sum {sum(self.weights)}."
            )
        self.name, self.family = name, family
        self.spec = spec or {
            "name": "finite",
            "atoms": [[str(x) for x in atom] for atom in self.atoms],
            "weights": [str(w) for w in self.weights],
        }
        self.denominator = math.lcm(*(x.denominator for atom in self.atoms for x in atom))
        self.integer_atoms = tuple(tuple(int(x * self.denominator) for x in atom) for atom in self.atoms)
        self.moments = self._moments()

    def _moments(self) -> Moments:
        mean = [
            sum((w * a[j] for w, a in zip(self.weights, self.atoms, strict=True)), Fraction()) for j in range(self.dim)
        ]
        centred = [[x - m for x, m in zip(atom, mean, strict=True)] for atom in self.atoms]
        gram = [[sum((x * y for x, y in zip(a, b, strict=True)), Fraction()) for b in centred] for a in centred]
        along = [sum((x * m for x, m in zip(a, mean, strict=True)), Fraction()) for a in centred]
        w = self.weights
        size = range(len(w))
        root = np.sqrt(np.array(w, dtype=np.float64))
        return Moments(
            mu2=sum((m * m for m in mean), Fraction()),
            mu_Sigma_mu=sum((w[a] * along[a] ** 2 for a in size), Fraction()),
            tr_Sigma=sum((w[a] * gram[a][a] for a in size), Fraction()),
            tr_Sigma2=sum((w[a] * w[b] * gram[a][b] ** 2 for a in size for b in size), Fraction()),
            lambda_max=float(np.linalg.eigvalsh(np.outer(root, root) * np.array(gram, dtype=np.float64))[-1]),
        )

    def require_exact(self, M: int, K: int) -> None:
        """Check that every scaled X = (sum of M atoms) . (sum of K atoms) is an integer below 2^53.

        Raises:
            ValueError: If float64 could not hold it.
        """
        sizes = [[abs(x) for x in atom] for atom in self.integer_atoms]
        largest = M * K * max(sum(x * y for x, y in zip(a, b, strict=True)) for a in sizes for b in sizes)
        if largest >= 2**53:
            raise ValueError(
                f"population '{self.name}': at M={M}, K={K} the scaled X reaches {float(largest):.2g}, beyond the 2^53 "
                f"of exact float64; use exact_law_rational, or a common denominator below {self.denominator}."
            )

    def sample_sums(self, count: int, size: int, rng: np.random.Generator) -> Vector:
        """Draw ``denominator`` times the sum of ``size`` gradients: exact integers, shape (count, dim)."""
        counts = rng.multinomial(size, np.array(self.weights, dtype=np.float64), count)
        return counts.astype(np.float64) @ np.array(self.integer_atoms, dtype=np.float64)

    def sample(self, n: int, rng: np.random.Generator) -> Vector:
        """Draw n gradients, shape (n, dim)."""
        index = rng.choice(len(self.weights), size=n, p=np.array(self.weights, dtype=np.float64))
        return np.array(self.atoms, dtype=np.float64)[index]

    def sample_means(self, count: int, size: int, rng: np.random.Generator, dtype: DTypeLike = np.float64) -> NDArray:
        """Draw multinomial counts of the atoms; the means, shape (count, dim)."""
        return (self.sample_sums(count, size, rng) / (size * self.denominator)).astype(dtype, copy=False)


class Empirical(Population):
    """A pool of measured gradients, resampled WITH replacement: the pool is the population, its moments are exact.

    Drawing without replacement would make u and v dependent and void the theorem: [width] spec, A5.
    """

    family = "measured"

    def __init__(self, pool: ArrayLike, *, label: str = "empirical"):
        rows = np.asarray(pool)
        if rows.ndim != 2 or rows.shape[0] < 2 or rows.shape[1] < 1:
            raise ValueError(f"Empirical: the pool must be (samples >= 2, dim >= 1), got shape {rows.shape}.")
        rows = np.array(rows, dtype=np.float32 if rows.dtype == np.float32 else np.float64, order="C")
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if bad.size:
            raise ValueError(
                f"Empirical: {bad.size} of {rows.shape[0]} rows hold NaN or infinity (first: row {bad[0]}); "
                "remove them or mend the gradients."
            )
        rows.flags.writeable = False
        self.pool, self.name, self.dim = rows, label, rows.shape[1]

    @cached_property
    def sha256(self) -> str:
        """Hash of shape, dtype and content of the pool."""
        return hashlib.sha256(f"{self.pool.shape}{self.pool.dtype.str}".encode() + self.pool.tobytes()).hexdigest()

    @property
    def spec(self) -> dict[str, Any]:  # type: ignore[override]
        """Name the pool by its hash: ``build(**spec, pool=pool)`` checks it."""
        return {"name": "empirical", "label": self.name, "sha256": self.sha256}

    @cached_property
    def moments(self) -> Moments:  # type: ignore[override]
        """Moments of the uniform law on the rows; O(n N min(n, N)), by the smaller of the two Gram matrices."""
        n = self.pool.shape[0]
        mean = self.pool.mean(axis=0, dtype=np.float64)
        Y = self.pool - mean
        gram = (Y @ Y.T if n < self.dim else Y.T @ Y) / n
        last = len(gram) - 1
        return Moments(
            mu2=float(mean @ mean),
            mu_Sigma_mu=float(np.square(Y @ mean).mean()),
            tr_Sigma=float(np.trace(gram)),
            tr_Sigma2=float(np.square(gram).sum()),
            lambda_max=max(0.0, float(eigvalsh(gram, subset_by_index=[last, last])[0])),
        )

    @cached_property
    def tensor(self) -> torch.Tensor:
        """The pool in float32, as the fast routes read it."""
        return torch.from_numpy(self.pool.astype(np.float32))

    @cached_property
    def tiles(self) -> tuple[torch.Tensor, ...]:
        """The pool in float32, cut into column tiles of half a MiB (32 columns at least): gathers stay in the cache."""
        width = max(32, 2**17 // self.pool.shape[0])
        return tuple(tile.contiguous() for tile in self.tensor.split(width, dim=1))

    @cached_property
    def gram(self) -> torch.Tensor:
        """All scalar products q_i . q_j in float32, shape (n, n)."""
        return self.tensor @ self.tensor.T

    def sample(self, n: int, rng: np.random.Generator) -> Vector:
        """Draw n rows with replacement, shape (n, dim)."""
        return self.pool[rng.integers(self.pool.shape[0], size=n)].astype(np.float64, copy=False)

    def sample_counts(self, count: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw how often each row is in each of ``count`` bags of ``size`` rows, shape (count, n)."""
        n = self.pool.shape[0]
        index = rng.integers(n, size=(count, size))
        index += n * np.arange(count)[:, None]
        return np.bincount(index.ravel(), minlength=count * n).reshape(count, n)

    def sample_means(self, count: int, size: int, rng: np.random.Generator, dtype: DTypeLike = np.float64) -> NDArray:
        """Draw counts of the rows, then one matrix product a block; shape (count, dim)."""
        means = np.empty((count, self.dim), dtype=dtype)
        for rows in row_blocks(count, max(size, self.pool.shape[0])):
            counts = self.sample_counts(rows.stop - rows.start, size, rng)
            means[rows] = counts.astype(dtype) @ self.pool.astype(dtype, copy=False)
        means /= size
        return means
