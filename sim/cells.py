"""One cell of a misalignment grid as a job: a population, M and K in, the law of X or draws of it out."""

import dataclasses
from typing import Any

from .enumeration import exact_law, exact_law_rational
from .finite_laws import FiniteSupport
from .gaussian_tail import gaussian_tail
from .laws import Gaussian
from .monte_carlo import simulate
from .populations import build
from .rng import generator


def exact(params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Compute P(X <= 0) without sampling; ``seed`` is not used.

    Args:
        params: ``population`` (a spec), ``M``, ``K`` and ``engine``: "rational" (fractions as strings), "enumeration"
            (float) or "contour" (Gaussian laws).
        seed: Not used.

    Returns:
        ``p`` and, but for the contour, ``mean`` and ``variance`` of X, and the engine.

    Raises:
        ValueError: If the engine does not fit the population.
    """
    population, M, K, engine = build(**params["population"]), params["M"], params["K"], params["engine"]
    if engine == "contour" and isinstance(population, Gaussian):
        return {"engine": engine, "p": gaussian_tail(population, M, K).p}
    if engine == "rational" and isinstance(population, FiniteSupport):
        law = exact_law_rational(population, M, K)
        return {"engine": engine, "p": str(law.p), "mean": str(law.mean), "variance": str(law.variance)}
    if engine == "enumeration" and isinstance(population, FiniteSupport):
        law = exact_law(population, M, K)
        return {"engine": engine, "p": law.p, "mean": law.mean, "variance": law.variance}
    raise ValueError(f"exact cell: engine {engine!r} does not serve population {population.name!r}.")


def simulated(params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Draw X; rounds of one cell use different streams.

    Args:
        params: ``population`` (a spec), ``M``, ``K``, ``trials`` and ``round``.
        seed: Root of the streams.

    Returns:
        The fields of ``Draws``.
    """
    population = build(**params["population"])
    M, K, trials = params["M"], params["K"], params["trials"]
    rng = generator(seed, "cell", str(sorted(params["population"].items())), M, K, trials, params["round"])
    return dataclasses.asdict(simulate(population, M, K, trials, rng))
