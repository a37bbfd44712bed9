"""Particle sets that stand for the law of the units at initialisation: quasi-random, whitened, exactly centred."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.special import ndtri
from scipy.stats import qmc

__all__ = ["Init", "Particles", "copies", "draw_particles"]

Init = Literal["symmetric", "shifted", "skewed"]

COPIES: dict[Init, int] = {"symmetric": 2, "shifted": 2, "skewed": 3}
SOBOL_BITS = 30


@dataclass(frozen=True, kw_only=True, eq=False)
class Particles:
    """Input weights ``U`` and output weights ``V`` of P particles.

    Shapes: both (P, D), one set shared by every layer time s, or both (nodes, P, D), a set for each node.
    """

    U: NDArray
    V: NDArray

    def __post_init__(self) -> None:
        if self.U.shape != self.V.shape or self.U.ndim not in (2, 3) or 0 in self.U.shape:
            raise ValueError(
                "Particles: U and V must both be (particles, embed_dim) or (nodes, particles, embed_dim), none of them "
                f"0, got {self.U.shape} and {self.V.shape}."
            )


def draw_particles(
    rng: np.random.Generator,
    *,
    embed_dim: int,
    particles: int,
    nodes: int | None = None,
    init: Init = "symmetric",
    sigma_u: float | None = None,
    sigma_v: float | None = None,
    dtype: DTypeLike = np.float64,
) -> Particles:
    r"""Draw particles whose rows u, v have entries of standard deviation ``sigma_u``, ``sigma_v``.

    Scrambled Sobol points of dimension 2D, made normal by the inverse distribution function and whitened, so that
    u and v have exact zero means and exact isotropic covariances. Every law below is centred exactly,

    .. math:: E[v \tanh(\langle u, h\rangle / D)] = 0 \text{ for every } h,

    as the lazy limit needs it:

    - ``symmetric``: (u, v) and (u, -v), the Gaussian law.
    - ``shifted``: (u, v + m) and (-u, v + m), m = sigma_v in each entry. With an odd activation its trajectory is
      even in alpha all the same: reflecting u is reflecting v.
    - ``skewed``: (u, g), (u, g) and (u, -2g) over sqrt(2), g Gaussian given <g, u> >= 0. The third moment of v given u
      is odd in u, so neither reflection is a symmetry.

    Quasi-random points change the constant of the error, not its order P^(-1/2) (spec "Solving the limit"). Whitening
    helps below P of about 1000, where it costs a bias of the trained output that more nodes do not average out: about
    0.1 / P at P <= 128 (D = 10, critical scaling, k = 10). Beyond, Sobol points are nearly white by themselves.

    Args:
        rng: Source of the scrambling.
        embed_dim: D.
        particles: P: 2 (3 for ``skewed``) times a power of two above D.
        nodes: Independent sets, one a node; None draws one set to share.
        init: Law of the units.
        sigma_u: Default sqrt(D).
        sigma_v: Default sqrt(D).
        dtype: Of the result; the points are made in float64.

    Raises:
        ValueError: For sizes or scales out of range.
    """
    if embed_dim < 1 or (nodes is not None and nodes < 1):
        raise ValueError(f"draw_particles: embed_dim and nodes must be at least 1, got {embed_dim} and {nodes}.")
    points, rest = divmod(particles, copies(init))
    if rest or points <= embed_dim or points & (points - 1):
        raise ValueError(
            f"draw_particles: particles must be {copies(init)} (the copies of init={init!r}) times a power of two "
            f"above embed_dim={embed_dim}, got {particles}."
        )
    scale_u, scale_v = (math.sqrt(embed_dim) if sigma is None else sigma for sigma in (sigma_u, sigma_v))
    if not all(0 <= scale < math.inf for scale in (scale_u, scale_v)):
        raise ValueError(f"draw_particles: sigma_u, sigma_v must be at least 0 and finite, got {scale_u}, {scale_v}.")
    U = np.empty((nodes or 1, particles, embed_dim), dtype)
    V = np.empty_like(U)
    for node in range(len(U)):
        u, v = _gaussian_pairs(points, embed_dim, rng)
        U[node], V[node] = _copies(init, scale_u * u, scale_v * v, scale_v)
    return Particles(U=U[0], V=V[0]) if nodes is None else Particles(U=U, V=V)


def copies(init: Init) -> int:
    """Return how many particles each quasi-random point gives.

    Raises:
        ValueError: If there is no such law.
    """
    if init not in COPIES:
        raise ValueError(f"particles: init must be one of {', '.join(COPIES)}, got {init!r}.")
    return COPIES[init]


def _gaussian_pairs(points: int, embed_dim: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    sobol = qmc.Sobol(2 * embed_dim, scramble=True, bits=SOBOL_BITS, rng=rng)
    # Half a cell keeps 0, a possible Sobol coordinate, away from minus infinity.
    z = ndtri(sobol.random(points) + 0.5 ** (SOBOL_BITS + 1))
    return _whiten(z[:, :embed_dim]), _whiten(z[:, embed_dim:])


def _whiten(z: NDArray) -> NDArray:
    z = z - z.mean(axis=0)
    root = np.linalg.cholesky(z.T @ z / len(z))
    return np.linalg.solve(root, z.T).T


def _copies(init: Init, u: NDArray, v: NDArray, shift: float) -> tuple[NDArray, NDArray]:
    if init == "symmetric":
        return np.concatenate([u, u]), np.concatenate([v, -v])
    if init == "shifted":
        return np.concatenate([u, -u]), np.concatenate([v, v]) + shift
    g = np.where(np.einsum("pd,pd->p", u, v) < 0, -1.0, 1.0)[:, None] * v / math.sqrt(2)
    return np.concatenate([u, u, u]), np.concatenate([g, g, -2 * g])
