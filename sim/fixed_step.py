r"""The exact law of the gain of a fixed step, Y = mu_M . g_K - c |mu_M|^2 with c = eta L / 2, for a finite law."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .enumeration import integer_sums, require_counts
from .finite_laws import FiniteSupport

INT64 = 2**62


@dataclass(frozen=True, kw_only=True)
class StepLaw:
    """P(Y <= 0), E Y and Var Y, in fractions."""

    p: Fraction
    mean: Fraction
    variance: Fraction


class StepLaws:
    """The joint law of X = mu_M . g_K and S = |mu_M|^2 in integers, from which the law of Y follows for every c.

    P(Y <= 0) is the probability of no decrease where the held-out loss of a sample is g . theta + (L/2) |theta|^2, and
    an upper limit of it for every L-smooth loss. Source: [width], Theorem 2.

    Args:
        population: A law of few atoms.
        M: Training samples.
        K: Test samples.

    Raises:
        ValueError: If M or K < 1.
    """

    def __init__(self, population: FiniteSupport, M: int, K: int):
        require_counts("StepLaws", M=M, K=K)
        U = integer_sums(population, M)
        V = U if K == M else integer_sums(population, K)
        u, v = (np.array(list(law), dtype=object) for law in (U, V))
        p, r = (np.array([*law.values(), None], dtype=object)[:-1] for law in (U, V))
        # X and S times these units are integers; a row a value of u, a column a value of v.
        self._units = M * K * population.denominator**2, M**2 * population.denominator**2
        self._X, self._S, self._p = u @ v.T, np.square(u).sum(axis=1), np.outer(p, r)
        self._largest = max(int(abs(self._X).max()), int(self._S.max()))
        self._total = sum(U.values()) * sum(V.values())
        s = np.broadcast_to(self._S[:, None], self._X.shape)
        self._means = self._mean(self._X), self._mean(s)
        x2, xs, s2 = (self._mean(product) for product in (self._X**2, self._X * s, s**2))
        x, y = self._means
        self._covariance = x2 - x * x, xs - x * y, s2 - y * y

    def _mean(self, values: Any) -> Fraction:
        return Fraction((self._p * values).sum(), self._total)

    def at(self, c: Fraction) -> StepLaw:
        """The law of Y.

        Args:
            c: eta L / 2.

        Raises:
            ValueError: If c is negative.
        """
        if c < 0:
            raise ValueError(f"step_law: c = eta L / 2 must be at least 0, got {c}.")
        ratio = c * self._units[0] / self._units[1]
        # Y <= 0 where this multiple of X is at most that multiple of S.
        own, other = ratio.denominator, ratio.numerator
        exact = np.int64 if self._largest * max(own, other) < INT64 else object
        lost = self._X.astype(exact) * own <= (self._S.astype(exact) * other)[:, None]
        (x, s), (xx, xs, ss) = self._means, self._covariance
        unit = Fraction(1, self._units[0])
        return StepLaw(
            p=Fraction(int(self._p[lost].sum()), self._total),
            mean=(x - ratio * s) * unit,
            variance=(xx - 2 * ratio * xs + ratio**2 * ss) * unit**2,
        )


def step_law(population: FiniteSupport, M: int, K: int, c: Fraction) -> StepLaw:
    """Enumerate Y for one c in exact rational arithmetic; for small M, K and few atoms.

    Raises:
        ValueError: If M or K < 1, or c is negative.
    """
    return StepLaws(population, M, K).at(c)
