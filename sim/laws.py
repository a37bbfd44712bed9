"""Laws of one activation gradient: the interface, and the continuous families with exact moments.

The continuous families live in eigen-coordinates: Sigma is diagonal. X = u . v is invariant under a common rotation of
u and v, so no generality is lost for its law, and a draw costs O(N) instead of O(N^2).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from .normals import row_blocks, scale_rows, standard_normal

Number = float | Fraction
Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Moments:
    """The moments that the width certificate is made of, with mean mu and covariance Sigma.

    Floats, or Fractions for a finite law of rationals (except ``lambda_max``, which is irrational in general).
    Units: with g the unit of a gradient entry, g^2, g^4, g^2, g^4 and g^2.
    """

    mu2: Number
    mu_Sigma_mu: Number
    tr_Sigma: Number
    tr_Sigma2: Number
    lambda_max: Number

    def as_dict(self) -> dict[str, Number]:
        """Return the moments as keyword arguments."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Population(ABC):
    """The law of one activation gradient q in R^dim, known exactly.

    Attributes:
        name: Name in the registry of ``populations``.
        family: Group for panels and tables.
        dim: N.
        moments: Exact moments.
        moment_order: E|q|^r is finite for every r below this (all of them: inf).
        spec: Strings, numbers and lists with ``build(**spec)`` equal to this population.
    """

    name: str
    family: str
    dim: int
    moments: Moments
    moment_order: float = math.inf
    spec: dict[str, Any]

    @abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> Vector:
        """Draw n independent gradients, shape (n, dim), by the definition of the law."""

    @abstractmethod
    def sample_means(self, count: int, size: int, rng: np.random.Generator, dtype: DTypeLike = np.float64) -> NDArray:
        """Draw ``count`` independent means of ``size`` gradients each, shape (count, dim), by a direct route."""


class EigenLaw(Population):
    """A law with diagonal covariance: q = mean + noise, noise centred with variances ``eigenvalues``."""

    def __init__(
        self, mean: Vector, eigenvalues: Vector, *, name: str, family: str, spec: dict[str, Any] | None = None
    ):
        self.mean = np.array(mean, dtype=np.float64)
        self.eigenvalues = np.array(eigenvalues, dtype=np.float64)
        where = f"population '{name}'"
        if self.mean.ndim != 1 or self.mean.shape != self.eigenvalues.shape or not self.mean.size:
            raise ValueError(
                f"{where}: mean {self.mean.shape} and eigenvalues {self.eigenvalues.shape} must be equal vectors."
            )
        if not (np.isfinite(self.mean).all() and np.isfinite(self.eigenvalues).all() and self.eigenvalues.min() >= 0):
            raise ValueError(f"{where}: mean and eigenvalues must be finite and eigenvalues >= 0.")
        self.name, self.family, self.dim = name, family, self.mean.size
        self.spec = spec or {"name": name, "mean": self.mean.tolist(), "eigenvalues": self.eigenvalues.tolist()}
        mean2 = self.mean**2
        self.moments = Moments(
            mu2=float(mean2.sum()),
            mu_Sigma_mu=float(mean2 @ self.eigenvalues),
            tr_Sigma=float(self.eigenvalues.sum()),
            tr_Sigma2=float(self.eigenvalues @ self.eigenvalues),
            lambda_max=float(self.eigenvalues.max()),
        )

    @abstractmethod
    def noise_means(self, count: int, size: int, rng: np.random.Generator, dtype: DTypeLike) -> NDArray:
        """Draw means of ``size`` noise vectors, shape (count, dim)."""

    @abstractmethod
    def noise(self, n: int, rng: np.random.Generator) -> Vector:
        """Draw n noise vectors from their definition, shape (n, dim)."""

    def sample(self, n: int, rng: np.random.Generator) -> Vector:
        """Draw n gradients, shape (n, dim)."""
        return self.mean + self.noise(n, rng)

    def sample_means(self, count: int, size: int, rng: np.random.Generator, dtype: DTypeLike = np.float64) -> NDArray:
        """Draw means of ``size`` gradients from their own law, shape (count, dim): cost O(count dim), not O(size)."""
        means = self.noise_means(count, size, rng, dtype)
        torch.from_numpy(means).add_(torch.from_numpy(self.mean.astype(dtype)))
        return means


class ScaleMixture(EigenLaw):
    """Noise = s z with z Gaussian and an independent random scale s, E s^2 = 1.

    Given the scales, the mean of n noise vectors is Gaussian with covariance c Sigma, c = sum s_i^2 / n^2.
    """

    @abstractmethod
    def scale2(self, n: int, rng: np.random.Generator) -> Vector:
        """Draw n values of s^2."""

    def mean_scale2(self, count: int, size: int, rng: np.random.Generator) -> Vector:
        """Draw c for means of ``size`` noise vectors: shape (count,), or (1,) where c is not random."""
        out = np.empty(count)
        for rows in row_blocks(count, size):
            block = rows.stop - rows.start
            out[rows] = self.scale2(block * size, rng).reshape(block, size).sum(axis=1)
        return out / size**2

    def noise(self, n: int, rng: np.random.Generator) -> Vector:
        """Draw the scales, then one Gaussian vector each."""
        return np.sqrt(self.scale2(n, rng))[:, None] * np.sqrt(self.eigenvalues) * rng.standard_normal((n, self.dim))

    def noise_means(self, count: int, size: int, rng: np.random.Generator, dtype: DTypeLike) -> NDArray:
        """Draw the scales of all vectors in a mean, then one Gaussian vector a mean."""
        scales = np.sqrt(self.mean_scale2(count, size, rng))
        means = standard_normal((count, self.dim), rng, dtype)
        if scales.size == 1:
            return scale_rows(means, scales * np.sqrt(self.eigenvalues))
        return scale_rows(means, np.sqrt(self.eigenvalues), scales[:, None])


class Gaussian(ScaleMixture):
    """q ~ N(mean, diag(eigenvalues)); eigenvalues may be zero."""

    def __init__(
        self,
        mean: Vector,
        eigenvalues: Vector,
        *,
        name: str = "gaussian",
        family: str = "Gaussian",
        spec: dict[str, Any] | None = None,
    ):
        super().__init__(mean, eigenvalues, name=name, family=family, spec=spec)

    def scale2(self, n: int, rng: np.random.Generator) -> Vector:
        """Return ones: the scale is not random."""
        return np.ones(n)

    def mean_scale2(self, count: int, size: int, rng: np.random.Generator) -> Vector:
        """Return 1 / size."""
        return np.array([1.0 / size])


class MultivariateT(ScaleMixture):
    """Multivariate t, s^2 = (nu - 2) / chi^2_nu: covariance exactly Sigma for every nu > 2, moments below nu."""

    def __init__(
        self, mean: Vector, eigenvalues: Vector, *, degrees: float, name: str, spec: dict[str, Any] | None = None
    ):
        super().__init__(mean, eigenvalues, name=name, family="heavy tails", spec=spec)
        self.degrees = self.moment_order = degrees

    def scale2(self, n: int, rng: np.random.Generator) -> Vector:
        """Draw (nu - 2) / chi^2_nu."""
        return (self.degrees - 2) / rng.chisquare(self.degrees, n)


class RareHuge(ScaleMixture):
    """Two-component Gaussian mixture: one gradient in a hundred is 20 times as large as the others."""

    probability = 0.01
    ratio2 = 400.0
    quiet2 = 1 / (1 - probability + probability * ratio2)  # makes E s^2 = 1

    def scale2(self, n: int, rng: np.random.Generator) -> Vector:
        """Draw the component of each vector."""
        return self.quiet2 * np.where(rng.random(n) < self.probability, self.ratio2, 1.0)

    def mean_scale2(self, count: int, size: int, rng: np.random.Generator) -> Vector:
        """Draw the number of huge vectors in each mean."""
        huge = rng.binomial(size, self.probability, count)
        return self.quiet2 * (size - huge + huge * self.ratio2) / size**2


class SparseSpiky(EigenLaw):
    """Gaussian rows; in one row of ten, 2 % of the coordinates (the first ones) are 10 times as loud.

    ``eigenvalues`` are the quiet variances; the loud coordinates get 0.9 + 0.1 * 100 times theirs.
    """

    fraction, probability, ratio2 = 0.02, 0.1, 100.0

    def __init__(self, mean: Vector, eigenvalues: Vector, *, name: str, family: str, spec: dict[str, Any]):
        self.quiet = np.sqrt(eigenvalues)
        super().__init__(mean, self.covariance(eigenvalues), name=name, family=family, spec=spec)
        self.loud = self.loud_count(self.dim)

    @classmethod
    def loud_count(cls, dim: int) -> int:
        """Return the number of loud coordinates, at least one."""
        return max(1, round(cls.fraction * dim))

    @classmethod
    def covariance(cls, quiet2: Vector) -> Vector:
        """Return the variances of the coordinates from the quiet ones."""
        gain = np.ones_like(quiet2)
        gain[: cls.loud_count(quiet2.size)] = 1 - cls.probability + cls.probability * cls.ratio2
        return gain * quiet2

    def noise(self, n: int, rng: np.random.Generator) -> Vector:
        """Draw rows, then make the loud coordinates of the loud rows louder."""
        z = self.quiet * rng.standard_normal((n, self.dim))
        z[:, : self.loud] *= np.where(rng.random(n) < self.probability, math.sqrt(self.ratio2), 1.0)[:, None]
        return z

    def noise_means(self, count: int, size: int, rng: np.random.Generator, dtype: DTypeLike) -> NDArray:
        """Draw the number of loud rows in each mean, then one Gaussian vector."""
        z = scale_rows(standard_normal((count, self.dim), rng, dtype), self.quiet / math.sqrt(size))
        loud_rows = rng.binomial(size, self.probability, count)
        z[:, : self.loud] *= np.sqrt(1 + loud_rows * (self.ratio2 - 1) / size)[:, None].astype(dtype)
        return z


class Laplace(EigenLaw):
    """Independent Laplace coordinates: a mean is a difference of two gamma variables."""

    def noise(self, n: int, rng: np.random.Generator) -> Vector:
        """Draw Laplace coordinates of variance ``eigenvalues``."""
        return np.sqrt(self.eigenvalues / 2) * rng.laplace(size=(n, self.dim))

    def noise_means(self, count: int, size: int, rng: np.random.Generator, dtype: DTypeLike) -> NDArray:
        """Draw gammas of shape ``size`` in float64: their difference cancels in float32."""
        shape = (count, self.dim)
        difference = rng.standard_gamma(size, shape) - rng.standard_gamma(size, shape)
        return (difference * (np.sqrt(self.eigenvalues / 2) / size)).astype(dtype, copy=False)


class Skewed(EigenLaw):
    """Independent centred exponential coordinates (skewness 2): a mean is a centred gamma variable."""

    def noise(self, n: int, rng: np.random.Generator) -> Vector:
        """Draw centred exponential coordinates of variance ``eigenvalues``."""
        return np.sqrt(self.eigenvalues) * (rng.standard_exponential((n, self.dim)) - 1)

    def noise_means(self, count: int, size: int, rng: np.random.Generator, dtype: DTypeLike) -> NDArray:
        """Draw gammas of shape ``size``."""
        gamma = rng.standard_gamma(size, (count, self.dim))
        return ((gamma / size - 1) * np.sqrt(self.eigenvalues)).astype(dtype, copy=False)
