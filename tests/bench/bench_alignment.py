"""Monte Carlo, pool resampling and the exact Gaussian law, side by side with their slow counterparts in one run.

One thread, processor time (least of a few calls), so that a busy machine blurs the ratios less.

Alone: ``python tests/bench/bench_alignment.py``; ``make bench`` collects ``bench()``.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from rescert.sim.misalignment import gaussian_tail, rao_blackwell, simulate
from rescert.sim.monte_carlo import cheapest_route
from rescert.sim.populations import Empirical, build
from rescert.sim.rng import generator
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1]))
from oracles import gaussian_tail_line, gaussian_tail_mp

N, M, K, TRIALS = 1024, 64, 64, 10_000


def seconds(function, repeats):
    """Least processor time of a few calls, the first being a warm-up."""
    best = np.inf
    for _ in range(repeats + 1):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def monte_carlo():
    rng = generator(0, "bench")
    population, flat = (build(name, dim=N, d_align=0.01) for name in ("gaussian-power-law", "gaussian-flat"))
    scale = TRIALS / 100  # the naive loop is timed on 100 trials and scaled up: its trials are alike
    naive = scale * seconds(lambda: naive_gaussian(population, 100, rng), 3)
    baseline = f"numpy loop, N={N}, M=K={M}, 1e4 trials (100 timed): {naive:.1f} s"

    def ratio(function, goal):
        return {"ratio": naive / seconds(function, 5), "baseline": baseline, "goal": goal, "unit": "x"}

    route = cheapest_route(population, M, K)
    return {
        f"monte carlo, chosen route ({route})": ratio(lambda: simulate(population, M, K, TRIALS, rng), 150.0),
        "monte carlo, direct-means": ratio(lambda: simulate(population, M, K, TRIALS, rng, "direct-means"), 80.0),
        "monte carlo, rao-blackwell": ratio(lambda: rao_blackwell(population, M, K, TRIALS, rng), 150.0),
        "monte carlo, isotropic": ratio(lambda: simulate(flat, M, K, TRIALS, rng, "isotropic"), 10_000.0),
    }


def naive_gaussian(population, trials, rng):
    mean, deviation = population.mean, np.sqrt(population.eigenvalues)
    for _ in range(trials):
        u = (mean + deviation * rng.standard_normal((M, N))).mean(axis=0)
        v = (mean + deviation * rng.standard_normal((K, N))).mean(axis=0)
        u @ v


def pool_resampling():
    rng = generator(0, "bench pool")
    pool = Empirical((rng.standard_normal((2048, N)) + 0.02).astype(np.float32))
    naive = TRIALS / 500 * seconds(lambda: naive_pool(pool.pool, 500, rng), 2)
    fast = seconds(lambda: simulate(pool, M, K, TRIALS, rng), 3)
    return {
        "pool resampling": {
            "ratio": naive / fast,
            "baseline": f"numpy loop over rows, n=2048, N={N}, M=K={M}, 1e4 trials (500 timed): {naive:.2f} s",
            "goal": 4.0,
            "unit": "x",
        }
    }


def naive_pool(pool, trials, rng):
    for _ in range(trials):
        pool[rng.integers(len(pool), size=M)].mean(axis=0) @ pool[rng.integers(len(pool), size=K)].mean(axis=0)


def gaussian_law():
    eigenvalues = np.sort(generator(0, "bench spectrum").gamma(1.0, 1.0, N))[::-1]
    mean2 = np.full(N, 0.01)
    errors = []
    for depth in (1.0, 4.3, 8.2, 11.4):  # N = 1: closed form, from 0.27 to 1e-30
        errors.append(
            gaussian_tail(([depth**2 / 7], [1.0]), 7, 20).p / gaussian_tail_line(depth**2 / 7, 1.0, 7, 20) - 1
        )
    spectrum = 1.0 + np.arange(24) / 24
    for scale in (2.2, 6.4, 11.4):  # N = 24: from 1e-5 to 1e-30
        m = np.full(24, scale / 24)
        errors.append(gaussian_tail((m, spectrum), 20, 30).p / gaussian_tail_mp(m, spectrum, 20, 30) - 1)
    return {
        "exact Gaussian law, time": {
            "value": seconds(lambda: gaussian_tail((mean2, eigenvalues), M, K), 5),
            "baseline": f"N={N}, all eigenvalues distinct",
            "goal": 0.150,
            "unit": "s",
        },
        "exact Gaussian law, relative error": {
            "value": float(max(map(abs, errors))),
            "baseline": "closed form (N=1) and mpmath on another contour (N=24), P from 0.3 to 1e-30",
            "goal": 1e-12,
            "unit": "",
        },
    }


def bench() -> dict[str, dict]:
    """Measure everything on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            return monte_carlo() | pool_resampling() | gaussian_law()
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    print(json.dumps(bench(), indent=1))
