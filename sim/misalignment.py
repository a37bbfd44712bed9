"""P(mu_M . g_K <= 0), the chance that a training mean and a held-out mean disagree, and which engine computes it."""

from dataclasses import dataclass
from typing import Literal

from .draws import Draws, Estimate
from .enumeration import ExactLaw, exact_law, exact_law_rational
from .finite_laws import FiniteSupport
from .gaussian_tail import GaussianTail, gaussian_tail
from .laws import Gaussian, Number, Population
from .monte_carlo import rao_blackwell, routes, simulate

__all__ = [
    "Draws",
    "Estimate",
    "ExactLaw",
    "ExactProbability",
    "GaussianTail",
    "exact_engine",
    "exact_law",
    "exact_law_rational",
    "exact_probability",
    "gaussian_tail",
    "rao_blackwell",
    "routes",
    "simulate",
]

Engine = Literal["enumeration", "contour"]


@dataclass(frozen=True, kw_only=True)
class ExactProbability:
    """P(X <= 0) without sampling error, and the engine that gave it."""

    p: Number
    engine: Engine


def exact_engine(population: Population) -> Engine | None:
    """Name the engine that knows the law of X without sampling: None where only simulation does."""
    if isinstance(population, FiniteSupport):
        return "enumeration"
    return "contour" if isinstance(population, Gaussian) else None


def exact_probability(population: Population, M: int, K: int) -> ExactProbability:
    """Compute P(X <= 0) by the exact engine of a population.

    Raises:
        ValueError: If there is none (simulate then), if M or K < 1, or if the enumeration would be too large.
    """
    if isinstance(population, FiniteSupport):
        return ExactProbability(p=exact_law(population, M, K).p, engine="enumeration")
    if isinstance(population, Gaussian):
        return ExactProbability(p=gaussian_tail(population, M, K).p, engine="contour")
    raise ValueError(f"exact_probability: no exact engine for population '{population.name}'; use simulate.")
