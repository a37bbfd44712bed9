"""Slow references, written from the definitions and sharing no code with what they check."""

from fractions import Fraction
from itertools import product

import mpmath as mp
import numpy as np


def naive_misalignment(population, M, K, trials, rng):
    """X of each trial by drawing M + K gradients and averaging them: the definition."""
    x = np.empty(trials)
    for trial in range(trials):
        u = population.sample(M, rng).mean(axis=0)
        v = population.sample(K, rng).mean(axis=0)
        x[trial] = u @ v
    return x


def enumerate_tuples(atoms, weights, M, K):
    """(P(X <= 0), E X, Var X) in Fractions, over every tuple of M + K raw draws."""
    p = first = second = Fraction()
    for draws in product(range(len(atoms)), repeat=M + K):
        weight = Fraction(1)
        for i in draws:
            weight *= Fraction(weights[i])
        u = [sum(Fraction(atoms[i][j]) for i in draws[:M]) / M for j in range(len(atoms[0]))]
        v = [sum(Fraction(atoms[i][j]) for i in draws[M:]) / K for j in range(len(atoms[0]))]
        x = sum(a * b for a, b in zip(u, v, strict=True))
        p += weight * (x <= 0)
        first += weight * x
        second += weight * x * x
    return p, first, second - first**2


def gaussian_tail_line(mean2, variance, M, K):
    """P(X <= 0) for N = 1: u and v are of opposite sign."""
    with mp.workdps(60):
        a, b = (mp.sqrt(mp.mpf(mean2) * n / mp.mpf(variance)) for n in (M, K))
        return mp.ncdf(-a) * mp.ncdf(b) + mp.ncdf(a) * mp.ncdf(-b)


def gaussian_tail_mp(mean2, eigenvalues, M, K, *, digits=50):
    """P(X <= 0) for Gaussian gradients: mpmath, A4's form of K, along two rays from a point that is no saddle point."""
    groups = {}
    for m, lam in zip(mean2, eigenvalues, strict=True):
        count, total = groups.get(float(lam), (0, mp.mpf(0)))
        groups[float(lam)] = (count + 1, total + mp.mpf(float(m)))
    with mp.workdps(digits):
        MK, inverse = mp.mpf(M) * K, mp.mpf(1) / M + mp.mpf(1) / K

        def cumulant(s):
            value = mp.mpf(0)
            for lam, (count, m) in groups.items():
                lam = mp.mpf(lam)
                w = 1 - s * s * lam * lam / MK
                value += -count * mp.log(w) / 2 + m * (s + s * s * lam * inverse / 2) / w
            return value

        edge = mp.sqrt(MK) / max(groups)
        grid = [-edge * k / 64 for k in range(1, 64)]
        c = mp.mpf("0.8") * min(grid, key=lambda s: mp.re(cumulant(s)) - mp.log(-s))
        width = 1 / mp.sqrt(abs(mp.diff(cumulant, c, 2)) + 1 / c**2)

        ray = mp.expjpi(mp.mpf(2) / 3)

        def integrand(x):  # s = c + r ray with r = width exp(pi/2 sinh x): double-exponential on the half-line
            r = width * mp.exp(mp.pi / 2 * mp.sinh(x))
            s = c + r * ray
            return mp.im(mp.exp(cumulant(s)) / s * ray) * r * mp.pi / 2 * mp.cosh(x)

        step = mp.mpf(1) / 40
        return -step * mp.fsum(integrand(step * k) for k in range(-180, 181)) / mp.pi
