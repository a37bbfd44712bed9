"""Simulated misalignment: draws of X = u . v by the cheapest exact route for each kind of population."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr

from .draws import Draws, Estimate
from .enumeration import require_counts
from .finite_laws import Empirical, FiniteSupport
from .laws import Gaussian, Population, ScaleMixture, Vector
from .normals import standard_normal

AUTO = "auto"
CACHED = 2**17  # float32 entries of one block: u, v and the work space of both stay in a cache of 1 to 2 MiB
BOUNDED = 2**23  # entries of one block of counts or indices: tens of MiB

# Measured nanoseconds a unit of work, one thread (the ratios matter): an entry of a row gathered and added; a scalar
# gathered from a Gram matrix of up to NEAR entries, which the caches hold, and from a larger one; a multiply-add of a
# GEMM; a count made and converted.
ROW_NS, SCALAR_NS, GEMM_NS, COUNT_NS = 0.07, (1.5, 7.0), 0.025, 3.0
NEAR = 2**20
GRAM_LIMIT = 4096  # rows of the largest pool whose Gram matrix is kept (64 MiB)
GRAM_USES = 10**5  # draws over which the price of the Gram matrix is spread: a pool serves a whole (M, K) grid

Block = Callable[[int], NDArray]


def simulate(population: Population, M: int, K: int, trials: int, rng: np.random.Generator, route: str = AUTO) -> Draws:
    """Draw X = u . v ``trials`` times, u and v independent means of M and K gradients. Source: [width] spec, A5.

    Every route draws from the exact law of X, independently in each trial:

    - ``direct-means``: u and v from their own laws (``sample_means``), float32, in cache-sized blocks; exact integers
      in float64 for finite laws, so that ties are seen.
    - ``conditional`` (Gaussian and scale mixtures): u as above; given u, X is one normal variable.
    - ``isotropic`` (Gaussian, all eigenvalues equal): X = u_1 v_1 + sigma^2 sqrt(chi^2_{N-1} / (MK)) z.
    - ``bag-rows``, ``bag-gram``, ``counts-gemm`` (a pool): sums of gathered rows; of gathered entries of the Gram
      matrix; counts of the rows, times the pool or its Gram matrix, whichever is smaller.

    In float32 the sign of X is that of a value within about 1e-6 |u| |v|, far below the sampling error.

    Raises:
        ValueError: If M, K or trials < 1, or the route does not exist for this population.
    """
    require_counts("simulate", M=M, K=K, trials=trials)
    known = routes(population)
    if route == AUTO:
        route = cheapest_route(population, M, K)
    if route not in known:
        raise ValueError(f"simulate: no route '{route}' for population '{population.name}'; it has {', '.join(known)}.")
    rows, draw = _ROUTES[route](population, M, K, rng)
    shift = float(population.moments.mu2)
    scale = shift + float(population.moments.tr_Sigma) or 1.0
    misaligned, sums = 0, np.zeros(4)
    for start in range(0, trials, rows):
        x = draw(min(rows, trials - start))
        misaligned += int(np.count_nonzero(x <= 0))
        y = (x.astype(np.float64) - shift) / scale
        y2 = y * y
        sums += (y.sum(), y2.sum(), y2 @ y, y2 @ y2)
    first, second, third, fourth = map(float, sums)
    return Draws(
        trials=trials,
        misaligned=misaligned,
        shift=shift,
        scale=scale,
        sums=(first, second, third, fourth),
        route=route,
    )


def rao_blackwell(population: ScaleMixture, M: int, K: int, trials: int, rng: np.random.Generator) -> Estimate:
    r"""Estimate P(X <= 0) by the mean of P(X <= 0 | u) over draws of u: less variance than counting hits.

    .. math:: P(X \le 0 \mid u) = \Phi\left(-u^\top\mu / \sqrt{c\, u^\top\Sigma u}\right),

    c = 1 / K for Gaussian gradients, random for scale mixtures. Source: [width] spec, A5.

    Raises:
        ValueError: If M, K or trials < 1.
        TypeError: If the population is no scale mixture of Gaussians.
    """
    require_counts("rao_blackwell", M=M, K=K, trials=trials)
    if not isinstance(population, ScaleMixture):
        raise TypeError(f"rao_blackwell: '{population.name}' is no scale mixture of Gaussians; use simulate.")
    rows, given_u = _given_u(population, M, K, rng)
    total = squares = 0.0
    for start in range(0, trials, rows):
        mean, deviation = given_u(min(rows, trials - start))
        p = np.where(deviation > 0, ndtr(-mean / np.where(deviation > 0, deviation, 1.0)), mean <= 0)
        total += float(p.sum())
        squares += float(p @ p)
    p_hat = total / trials
    variance = max(squares / trials - p_hat**2, 0.0)
    return Estimate(
        p=p_hat, standard_error=math.sqrt(variance / max(trials - 1, 1)), trials=trials, route="rao-blackwell"
    )


def routes(population: Population) -> tuple[str, ...]:
    """Return the routes that exist for a population."""
    if isinstance(population, Empirical):
        fits = population.pool.shape[0] <= GRAM_LIMIT
        return ("bag-rows", "bag-gram", "counts-gemm") if fits else ("bag-rows", "counts-gemm")
    if isinstance(population, Gaussian) and np.ptp(population.eigenvalues) == 0:
        return ("direct-means", "conditional", "isotropic")
    if isinstance(population, ScaleMixture):
        return ("direct-means", "conditional")
    return ("direct-means",)


def cheapest_route(population: Population, M: int, K: int) -> str:
    """Choose a route by its cost alone (A5), so that batches of one setting take the same route."""
    if not isinstance(population, Empirical):
        return routes(population)[-1]
    n, N = population.pool.shape
    gram = GEMM_NS * n * n * N / GRAM_USES
    product = GEMM_NS * n * n + gram if _counts_by_gram(population) else 2 * GEMM_NS * n * N
    cost = {
        "bag-rows": ROW_NS * (M + K) * N,
        "bag-gram": SCALAR_NS[n * n > NEAR] * M * K + gram,
        "counts-gemm": 2 * COUNT_NS * n + product,
    }
    return min(routes(population), key=lambda name: cost[name])


def _counts_by_gram(population: Empirical) -> bool:
    n, N = population.pool.shape
    return n < 2 * N and n <= GRAM_LIMIT


def _dot(u: NDArray, v: NDArray) -> NDArray:
    return torch.linalg.vecdot(torch.from_numpy(u), torch.from_numpy(v)).numpy()


def _direct_means(population: Population, M: int, K: int, rng: np.random.Generator) -> tuple[int, Block]:
    rows = max(1, CACHED // population.dim)
    if isinstance(population, FiniteSupport):
        population.require_exact(M, K)
        unit = 1 / (M * K * population.denominator**2)

        def exact(count: int) -> NDArray:
            u, v = population.sample_sums(count, M, rng), population.sample_sums(count, K, rng)
            return unit * np.einsum("ij,ij->i", u, v)

        return max(1, CACHED // (population.dim + len(population.weights))), exact
    return rows, lambda count: _dot(
        population.sample_means(count, M, rng, np.float32), population.sample_means(count, K, rng, np.float32)
    )


def _given_u(
    population: ScaleMixture, M: int, K: int, rng: np.random.Generator
) -> tuple[int, Callable[[int], tuple[Vector, Vector]]]:
    """Blocks of (mean, standard deviation) of the normal law of X given u and the scales behind v."""
    columns = torch.from_numpy(np.stack([population.mean, population.eigenvalues], axis=1).astype(np.float32))

    def moments(count: int) -> tuple[Vector, Vector]:
        u = torch.from_numpy(population.sample_means(count, M, rng, np.float32))
        mean = (u @ columns[:, 0]).numpy().astype(np.float64)
        variance = (u.square_() @ columns[:, 1]).numpy().astype(np.float64)
        return mean, np.sqrt(variance * population.mean_scale2(count, K, rng))

    return max(1, CACHED // population.dim), moments


def _conditional(population: ScaleMixture, M: int, K: int, rng: np.random.Generator) -> tuple[int, Block]:
    rows, given_u = _given_u(population, M, K, rng)

    def draw(count: int) -> NDArray:
        mean, deviation = given_u(count)
        return mean + deviation * standard_normal((count,), rng)

    return rows, draw


def _isotropic(population: Gaussian, M: int, K: int, rng: np.random.Generator) -> tuple[int, Block]:
    mu, variance = math.sqrt(population.moments.mu2), float(population.eigenvalues[0])

    def draw(count: int) -> NDArray:
        u1 = mu + math.sqrt(variance / M) * rng.standard_normal(count)
        v1 = mu + math.sqrt(variance / K) * rng.standard_normal(count)
        if population.dim == 1:
            return u1 * v1
        radius = np.sqrt(rng.chisquare(population.dim - 1, count) / (M * K))
        return u1 * v1 + variance * radius * rng.standard_normal(count)

    return CACHED, draw


def _bags(population: Empirical, count: int, size: int, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.integers(population.pool.shape[0], size=(count, size), dtype=np.int32))


def _bag_rows(population: Empirical, M: int, K: int, rng: np.random.Generator) -> tuple[int, Block]:
    bag = partial(torch.nn.functional.embedding_bag, mode="sum")  # "mean" is twice as slow

    def draw(count: int) -> NDArray:
        row, column = _bags(population, count, M, rng), _bags(population, count, K, rng)
        total = torch.zeros(count)
        for tile in population.tiles:
            total += torch.linalg.vecdot(bag(row, tile), bag(column, tile))
        return (total / (M * K)).numpy()

    return max(1, min(CACHED // 64, BOUNDED // max(M, K))), draw


def _bag_gram(population: Empirical, M: int, K: int, rng: np.random.Generator) -> tuple[int, Block]:
    n = population.pool.shape[0]
    entries = population.gram.view(-1)

    def draw(count: int) -> NDArray:
        row = _bags(population, count, M, rng) * n
        pairs = row[:, :, None] + _bags(population, count, K, rng)[:, None, :]
        return entries.index_select(0, pairs.view(-1)).view(count, M * K).mean(dim=1).numpy()

    return max(1, CACHED // (M * K)), draw


def _counts_gemm(population: Empirical, M: int, K: int, rng: np.random.Generator) -> tuple[int, Block]:
    by_gram = _counts_by_gram(population)

    def counts(count: int, size: int) -> torch.Tensor:
        return torch.from_numpy(population.sample_counts(count, size, rng).astype(np.float32)) / size

    def draw(count: int) -> NDArray:
        u, v = counts(count, M), counts(count, K)
        if by_gram:
            return torch.linalg.vecdot(u @ population.gram, v).numpy()
        return torch.linalg.vecdot(u @ population.tensor, v @ population.tensor).numpy()

    n, N = population.pool.shape
    return max(1, BOUNDED // (2 * max(M, K, n, N))), draw


_ROUTES: dict[str, Callable[..., tuple[int, Block]]] = {
    "direct-means": _direct_means,
    "conditional": _conditional,
    "isotropic": _isotropic,
    "bag-rows": _bag_rows,
    "bag-gram": _bag_gram,
    "counts-gemm": _counts_gemm,
}
