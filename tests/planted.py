"""Runs with planted bias and fluctuation, as output deviations of networks that do not exist."""

import numpy as np
from rescert.verify.observations import Observations

GRID = np.array([3.0, 6.0, 12.0, 25.0, 50.0, 100.0, 200.0])
AUTHOR = np.unique(np.floor(10 ** np.linspace(0, 2.5, 10)))
# Unequal variances: 40 entries amount to (sum w)^2 / sum w^2 = 30 independent ones, as in the networks.
WEIGHTS = np.arange(1, 41) ** -0.5
ENTRIES = len(WEIGHTS)
EFFECTIVE = WEIGHTS.sum() ** 2 / np.sum(WEIGHTS**2)
SPREAD = np.sqrt(WEIGHTS / WEIGHTS.mean())
SIGNS = np.resize([1.0, -1.0], ENTRIES)


def plant(rng, *, a=0.236, b=0.35, p=1.0, q=0.5, r=0.5, t=0.5, repeats=5, depths=GRID, units=GRID, dims=(10.0,)):
    """Observations with squared error (a L^-p)^2 + (b L^-r M^-q D^t)^2 in the mean."""
    L, M, D = (g.ravel() for g in np.meshgrid(depths, units, dims, indexing="ij"))
    repeat = np.tile(np.arange(repeats), len(L))
    L, M, D = (np.repeat(x, repeats) for x in (L, M, D))
    bias, std = a * L**-p, b * L**-r * M**-q * D**t
    noise = SPREAD * rng.standard_normal((len(L), ENTRIES))
    deviation = bias[:, None] * SIGNS + std[:, None] * noise
    return Observations.from_deviations(deviation, depth=L, units=M, embed_dim=D, repeat=repeat)


def exact(*, a=0.236, b=0.35, repeats=2):
    """The same without noise: every run has the root mean square error of its shape."""
    L, M = (np.repeat(g.ravel(), repeats) for g in np.meshgrid(GRID, GRID, indexing="ij"))
    repeat = np.tile(np.arange(repeats), len(GRID) ** 2)
    return Observations(depth=L, units=M, embed_dim=10.0, repeat=repeat, error=np.hypot(a / L, b * np.sqrt(10 / L / M)))
