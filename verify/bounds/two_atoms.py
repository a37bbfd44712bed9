r"""Laws of two atoms, thousands at once: they reach B_exact at M = K, and their misalignment costs O(M) each.

Up to scale and rotation such a law is a weight and three scalar products. With j of M and k of K draws on the rare one,

.. math:: MK X = (M-j)(K-k)\,a\cdot a + [(M-j)k + j(K-k)]\,a\cdot b + jk\,b\cdot b

is linear in k, so that {X <= 0} is a range of k for each j, found in integers: no tie is misjudged. Source: [width]
spec, A1 and A6.
"""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...sim.finite_laws import FiniteSupport

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Letters = dict[str, Floats]
LARGEST = 2**61  # of the integers M K |q|^2


@dataclass(frozen=True, kw_only=True, eq=False)
class TwoAtoms:
    """n laws in the plane.

    Attributes:
        common: Numerators of the common atom a, shape (n, 2).
        rare: Numerators of the rare atom b, shape (n, 2).
        denominator: Of both, shape (n,).
        weights: The weights that occur.
        weight: Index into ``weights`` of the weight of b, shape (n,).
    """

    common: Integers
    rare: Integers
    denominator: Integers
    weights: tuple[Fraction, ...]
    weight: Integers

    def __len__(self) -> int:
        return len(self.weight)

    def take(self, index: NDArray) -> "TwoAtoms":
        """Select laws by index or mask."""
        return TwoAtoms(
            common=self.common[index],
            rare=self.rare[index],
            denominator=self.denominator[index],
            weights=self.weights,
            weight=self.weight[index],
        )

    @property
    def dim(self) -> Integers:
        """1 for laws on a line, else 2."""
        return 1 + ((self.common[:, 1] != 0) | (self.rare[:, 1] != 0)).astype(np.int64)

    @property
    def size(self) -> Floats:
        """How hard a law is to write down, shape (n,)."""
        digits = np.array([float(w.denominator) for w in self.weights])[self.weight]
        entries = np.abs(np.hstack([self.common, self.rare])).sum(axis=1) + self.denominator
        return np.log(digits) + np.log(entries) + 2.0 * self.dim

    def fitting(self, M: int, K: int) -> "TwoAtoms":
        """Drop laws whose scaled X could overflow, and those of zero mean, on which no claim speaks."""
        size = np.maximum(self._dots[0].astype(float), self._dots[2].astype(float))
        return self.take((size * M * K < LARGEST) & (self.letters()["mu2"] > 1e-300))

    @property
    def _dots(self) -> tuple[Integers, Integers, Integers]:
        a, b = self.common, self.rare
        return (a * a).sum(axis=1), (a * b).sum(axis=1), (b * b).sum(axis=1)

    def letters(self) -> Letters:
        """Moments of the laws, arrays of shape (n,); the covariance has rank one."""
        eps = np.array([float(w) for w in self.weights])[self.weight]
        scale = 1 / self.denominator.astype(float)
        step = (self.rare - self.common) * scale[:, None]
        mean = self.common * scale[:, None] + eps[:, None] * step
        spread = eps * (1 - eps)
        trace = spread * (step * step).sum(axis=1)
        return {
            "mu2": (mean * mean).sum(axis=1),
            "mu_Sigma_mu": spread * (mean * step).sum(axis=1) ** 2,
            "tr_Sigma": trace,
            "tr_Sigma2": trace**2,
            "lambda_max": trace,
        }

    def misalignment(self, M: int, K: int) -> Floats:
        """P(X <= 0) of each law, shape (n,), to a relative 1e-11."""
        aa, ab, bb = (dot[:, None] for dot in self._dots)
        j = np.arange(M + 1)
        start = K * ((M - j) * aa + j * ab)
        slope = (M - j) * (ab - aa) + j * (bb - ab)
        # X <= 0 for k up to the quotient where X grows with k, and from it on where X falls.
        size = np.where(slope == 0, 1, np.abs(slope))
        last = np.clip(np.floor_divide(-start, size), -1, K)
        first = np.clip(-np.floor_divide(-start, size), 0, K + 1)
        at_most, at_least = self._cumulated(K)
        weight = self.weight[:, None]
        inner = np.where(slope > 0, at_most[weight, last + 1], at_least[weight, first])
        inner = np.where(slope == 0, (start <= 0).astype(float), inner)
        return np.einsum("ij,ij->i", self._binomial(M)[self.weight], inner)

    def _binomial(self, size: int) -> Floats:
        """Probability of each number of rare atoms among ``size`` draws, a row a weight."""
        k = np.arange(size + 1)
        eps = np.array([float(w) for w in self.weights])[:, None]
        return np.exp(_log_ways(size) + k * np.log(eps) + (size - k) * np.log1p(-eps))

    def _cumulated(self, size: int) -> tuple[Floats, Floats]:
        pmf = self._binomial(size)
        zero = np.zeros((len(pmf), 1))
        at_most = np.hstack([zero, np.cumsum(pmf, axis=1)])
        at_least = np.hstack([np.cumsum(pmf[:, ::-1], axis=1)[:, ::-1], zero])
        return at_most, at_least

    def law(self, index: int, dim: int | None = None, scale: Fraction = Fraction(1)) -> FiniteSupport:
        """One of the laws, in as many dimensions as asked for (zeros are appended) and in other units."""
        size = int(self.dim[index]) if dim is None else dim
        unit = scale / int(self.denominator[index])
        atoms = [
            [*(int(x) * unit for x in atom[:size]), *[Fraction()] * (size - 2)]
            for atom in (self.common[index], self.rare[index])
        ]
        eps = self.weights[self.weight[index]]
        return FiniteSupport(atoms, [1 - eps, eps], name="two atoms", family=str(self.families[index]))

    @property
    def families(self) -> NDArray[np.str_]:
        """Names for tables, shape (n,)."""
        zero = ~(self.common.any(axis=1) & self.rare.any(axis=1))
        return np.where(zero, "Bernoulli", np.where(self.dim == 1, "rare atom", "rare atom in the plane"))


@functools.cache
def _log_ways(size: int) -> Floats:
    return np.array([math.log(math.comb(size, k)) for k in range(size + 1)])
