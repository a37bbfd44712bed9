"""U-statistics side by side with the obvious way to compute them: `python tests/bench/bench_estimators.py`."""

import json
import math
import time
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
from rescert.verify.certificates import alignment_interval
from rescert.verify.estimators import estimate, gram_summary, leave_one_out


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Best of several runs: the machine may be shared."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def raw_moments(Q: np.ndarray) -> tuple[float, float, float]:
    """|mu|^2, mu'Sigma mu and tr Sigma^2 from a full float64 Gram matrix."""
    A = Q @ Q.T
    np.fill_diagonal(A, 0)
    r, n = A.sum(axis=1), len(A)
    S1, R2 = r.sum(), r @ r
    F = np.einsum("ij,ij->", A, A)
    U2, U3, U4 = F / math.perm(n, 2), (R2 - F) / math.perm(n, 3), (S1**2 - 4 * R2 + 2 * F) / math.perm(n, 4)
    return S1 / math.perm(n, 2), U3 - U4, U2 - 2 * U3 + U4


def jackknife_ratio(n: int = 256, dim: int = 100) -> float:
    """Moments and all leave-one-out moments, against n recomputations."""
    Q = 0.3 + np.random.default_rng(0).standard_normal((n, dim))
    naive = seconds(lambda: [raw_moments(np.delete(Q, i, axis=0)) for i in range(n)], 2)
    return naive / seconds(lambda: alignment_interval(gram_summary(Q)), 5)


def offset_error(n: int = 8, dim: int = 20) -> float:
    """Largest relative error of any moment, full or leave-one-out, at a mean of 1e4, against rational numbers."""
    Q = 1e4 + np.random.default_rng(0).standard_normal((n, dim))
    got, without = estimate(gram_summary(Q)), leave_one_out(gram_summary(Q))
    errors = []
    rows = [[Fraction(x) for x in row] for row in Q.tolist()]
    G = [[sum(a * b for a, b in zip(u, v, strict=True)) for v in rows] for u in rows]
    for left_out in (None, 0):
        keep = [i for i in range(n) if i != left_out]
        mean = [
            sum(kernel(*index) for index in permutations(keep, order)) / math.perm(len(keep), order)
            for order, kernel in (
                (2, lambda i, j: G[i][j]),
                (2, lambda i, j: G[i][j] ** 2),
                (3, lambda i, j, k: G[i][j] * G[j][k]),
                (4, lambda i, j, k, m: G[i][j] * G[k][m]),
            )
        ]
        U1, U2, U3, U4 = mean
        trace = sum(G[i][i] for i in keep) / len(keep)
        truth = {"mu2": U1, "mu4": U4, "mu_Sigma_mu": U3 - U4, "tr_Sigma": trace - U1, "tr_Sigma2": U2 - 2 * U3 + U4}
        for name, value in truth.items():
            computed = getattr(got, name) if left_out is None else getattr(without, name)[left_out]
            errors.append(abs(float(Fraction(float(computed)) / value - 1)))
    return max(errors)


def large_sample_ratio(n: int = 16384, dim: int = 1024) -> float:
    """Everything an interval needs from float32 rows, against the moments alone from the full float64 Gram matrix."""
    Q = np.random.default_rng(0).standard_normal((n, dim), dtype=np.float32)
    ours = seconds(lambda: alignment_interval(gram_summary(Q)), 2)
    return seconds(lambda: raw_moments(Q.astype(np.float64)), 1) / ours


def bench() -> dict[str, dict[str, Any]]:
    """Return the entries of `bench.json`."""
    return {
        "U-statistics and jackknife, n = 256, N = 100": {
            "ratio": jackknife_ratio(),
            "baseline": "numpy loop that recomputes without each row",
            "goal": "> 1",
            "unit": "times faster",
        },
        "U-statistics at a mean offset of 1e4": {
            "value": offset_error(),
            "baseline": "rational numbers",
            "goal": 1e-9,
            "unit": "largest relative error (at most)",
        },
        "U-statistics and jackknife, n = 16384, N = 1024": {
            "ratio": large_sample_ratio(),
            "baseline": "moments alone from a full float64 Gram matrix (2 GiB)",
            "goal": "> 1",
            "unit": "times faster",
        },
    }


if __name__ == "__main__":
    print(json.dumps(bench(), indent=2))
