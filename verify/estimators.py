r"""U-statistics of the mean and the covariance of activation gradients, from their centred Gram matrix.

Rows q_i are iid with mean mu and covariance Sigma. Every moment in the alignment certificate is a polynomial in the
Gram matrix of the rows, so it has exactly one symmetric unbiased estimator, its U-statistic. The raw formulas cancel
catastrophically when the mean is large; here the rows are written as q_i = c + y_i with c = q_bar, and each
U-statistic is expanded around c. Nothing in the expansion needs c to be the mean of the sample in hand: with c held
fixed it stays exact for the sample without row i, which gives all leave-one-out values from the same O(n) vectors.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "GramSummary",
    "MomentEstimates",
    "Moments",
    "PlugInEstimates",
    "estimate",
    "gram_summary",
    "gram_summary_from_gram",
    "leave_one_out",
]

Array = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, kw_only=True, eq=False)
class GramSummary:
    """What the estimators need of n rows: O(n) numbers of the centred Gram matrix H = YY', Y = Q - q_bar.

    Units: rows have unit g, so h has g^2, H h and row squares g^4.
    """

    n: int
    dim: int | None  # N; None when only a Gram matrix was given
    mean_sq_norm: float  # |q_bar|^2
    sq_norms: Array  # h_i = |y_i|^2
    mean_projections: Array  # l_i = y_i . q_bar
    gram_sq_norms: Array  # (H h)_i
    gram_mean_projections: Array  # (H l)_i
    row_squares: Array  # sum_j H_ij^2, j = i included
    degenerate: bool  # all rows identical up to rounding; every vector above is then exactly 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Unbiased estimates, one entry for each left-out row."""

    mu2: Array  # |mu|^2
    mu4: Array  # |mu|^4
    mu_Sigma_mu: Array
    tr_Sigma: Array
    tr_Sigma2: Array


@dataclass(frozen=True, kw_only=True)
class PlugInEstimates:
    """The moments and dimensions of the sample mean and the sample covariance (divisor n - 1): biased, to compare."""

    mu2: float
    mu4: float
    mu_Sigma_mu: float
    tr_Sigma: float
    tr_Sigma2: float
    d_par: float
    d_2: float
    d_align: float


@dataclass(frozen=True, kw_only=True)
class MomentEstimates:
    """Unbiased moments (mu2 and mu_Sigma_mu may be negative) and the alignment dimensions that follow.

    A dimension is 0 where mu2 <= 0 and infinite where its denominator is not positive, which a flag then says.
    """

    n: int
    dim: int | None
    mu2: float
    mu4: float
    mu_Sigma_mu: float
    tr_Sigma: float
    tr_Sigma2: float
    d_par: float
    d_2: float
    d_align: float
    mu_Sigma_mu_nonpositive: bool
    tr_Sigma2_nonpositive: bool
    degenerate: bool  # all rows identical: no spread was seen, so nothing is known about it
    plug_in: PlugInEstimates


def gram_summary(Q: Any, *, block: int = 1024) -> GramSummary:
    r"""Summarise rows of activation gradients in O(block * max(block, N)) memory beside Q, or O(N^2) where 3N < n.

    .. math:: y_i = q_i - \bar q,\quad \sum_j (y_i\cdot y_j)^2 = y_i'(Y'Y)y_i

    Shapes: ``Q (n, N)``. Float32 rows are widened block by block. Row squares come from Y'Y (3nN^2 flops) or from
    the upper-triangle tiles of YY' (n^2 N flops), whichever is cheaper. Source: [width], spec alignment A2.

    Args:
        Q: Gradients, one iid sampling unit a row: array or torch tensor.
        block: Rows handled at once.

    Returns:
        The summary; its estimates do not depend on ``block`` beyond rounding.

    Raises:
        ValueError: If Q is not 2-D, has fewer than 4 rows, no columns or a non-finite row, or block < 1.
    """
    Q = checked_rows(Q, "gram_summary")
    if block < 1:
        raise ValueError(f"gram_summary: block must be at least 1, got {block}.")
    n, dim = Q.shape
    slices = [slice(start, min(start + block, n)) for start in range(0, n, block)]
    mean = np.zeros(dim)
    for _ in range(2):  # the second pass removes the rounding of the first, which grows with n and with the offset
        mean += sum(((np.asarray(Q[rows], np.float64) - mean).sum(axis=0) for rows in slices), np.zeros(dim)) / n

    def centred(rows: slice) -> Array:
        return np.asarray(Q[rows], np.float64) - mean

    h, ell, Yh, Yell = np.empty(n), np.empty(n), np.zeros(dim), np.zeros(dim)
    for rows in slices:
        Y = centred(rows)
        h[rows], ell[rows] = np.einsum("ij,ij->i", Y, Y), Y @ mean
        Yh += h[rows] @ Y
        Yell += ell[rows] @ Y
    row_squares = _row_squares_by_features if 3 * dim < n else _row_squares_by_tiles
    mean_sq_norm = float(mean @ mean)
    return _summary(
        dim=dim,
        mean_sq_norm=mean_sq_norm,
        h=h,
        ell=ell,
        Hh=np.concatenate([centred(rows) @ Yh for rows in slices]),
        Hell=np.concatenate([centred(rows) @ Yell for rows in slices]),
        row_squares=row_squares(centred, slices),
        rounding=(4 * _EPS) ** 2 * mean_sq_norm,
    )


def gram_summary_from_gram(G: Any, *, block: int = 1024) -> GramSummary:
    r"""Summarise rows of which only the Gram matrix G_ij = q_i . q_j is known, such as x_i = J_i'q_i.

    .. math:: H = G - r1' - 1r' + m,\quad r = G1/n,\quad m = 1'G1/n^2,\quad l = r - m,\quad |\bar q|^2 = m

    Shapes: ``G (n, n)``. A mean large against the spread is already lost in the rounding of G: prefer
    :func:`gram_summary` where the rows are at hand. Source: [width], spec alignment A2; [depth], spec saturation B1.

    Raises:
        ValueError: If G is not a finite symmetric matrix with n >= 4 and a nonnegative diagonal, or block < 1.
    """
    G = checked_gram(G, "gram_summary_from_gram")
    if block < 1:
        raise ValueError(f"gram_summary_from_gram: block must be at least 1, got {block}.")
    n = len(G)
    r = G.mean(axis=1, dtype=np.float64)
    m = float(r.mean())
    h, ell = np.diagonal(G).astype(np.float64) - 2 * r + m, r - m
    Hh, Hell, row_squares = np.empty(n), np.empty(n), np.empty(n)
    for start in range(0, n, block):
        rows = slice(start, start + block)
        H = np.asarray(G[rows], np.float64) - r[rows, None] - ell
        Hh[rows], Hell[rows], row_squares[rows] = H @ h, H @ ell, np.einsum("ij,ij->i", H, H)
    rounding = 16 * _EPS * float(np.abs(np.diagonal(G)).max())
    return _summary(
        dim=None, mean_sq_norm=max(m, 0.0), h=h, ell=ell, Hh=Hh, Hell=Hell, row_squares=row_squares, rounding=rounding
    )


def estimate(summary: GramSummary) -> MomentEstimates:
    r"""Estimate the moments of the certificate without bias, and d_par, d_2 and d_align from them.

    .. math:: d_\parallel = |\mu|^4/\mu'\Sigma\mu,\quad d_2 = |\mu|^4/\operatorname{tr}\Sigma^2,\quad
              d_{align} = \min(d_\parallel, d_2)

    The moments are exactly unbiased for any law with four finite moments; the dimensions, (|mu|^2 estimate)^2 over
    the denominator, are only consistent. Source: [width], definition of d_align; spec alignment A2.
    """
    s, n = summary, summary.n
    h, ell = s.sq_norms, s.mean_projections
    h2 = float(h @ h)
    mu2, mu4, mu_Sigma_mu, tr_Sigma, tr_Sigma2 = (
        float(moment)
        for moment in _moments(
            n,
            L=s.mean_sq_norm,
            trace=h.sum(),
            diagonal2=h2,
            S1=-h.sum(),
            R2=h2,
            F=s.row_squares.sum() - h2,
            l1=0.0,
            l2=ell @ ell,
            T=-(h @ ell),
        )
    )
    d_par, d_2 = _dimension(mu2, mu_Sigma_mu), _dimension(mu2, tr_Sigma2)
    return MomentEstimates(
        n=n,
        dim=s.dim,
        mu2=mu2,
        mu4=mu4,
        mu_Sigma_mu=mu_Sigma_mu,
        tr_Sigma=tr_Sigma,
        tr_Sigma2=tr_Sigma2,
        d_par=d_par,
        d_2=d_2,
        d_align=min(d_par, d_2),
        mu_Sigma_mu_nonpositive=mu_Sigma_mu <= 0,
        tr_Sigma2_nonpositive=tr_Sigma2 <= 0,
        degenerate=s.degenerate,
        plug_in=_plug_in(s),
    )


def leave_one_out(summary: GramSummary) -> Moments:
    r"""Return the unbiased moments of the n samples that lack one row each, in O(n).

    With A = H - diag h, so that A1 = -h, and c_i = sum_{j != i} H_ij^2:

    .. math:: S_1^{(-i)} = S_1 + 2h_i,\quad R_2^{(-i)} = R_2 - 3h_i^2 + 2(Hh)_i + c_i,\quad F^{(-i)} = F - 2c_i,\quad
              T^{(-i)} = T + 2h_il_i - (Hl)_i

    where T = sum_{j != k} l_j H_jk. Source: spec alignment A2, moved to the centred form (derived here, tested
    against recomputation).

    Raises:
        ValueError: If n < 5: without one row fewer than the 4 that a U-statistic of order 4 needs would be left.
    """
    s, n = summary, summary.n
    if n < 5:
        raise ValueError(f"leave_one_out: at least 5 samples are needed, got {n}; draw more.")
    h, ell = s.sq_norms, s.mean_projections
    h2, c = h @ h, s.row_squares - h**2
    mu2, mu4, mu_Sigma_mu, tr_Sigma, tr_Sigma2 = _moments(
        n - 1,
        L=s.mean_sq_norm,
        trace=h.sum() - h,
        diagonal2=h2 - h**2,
        S1=2 * h - h.sum(),
        R2=h2 - 3 * h**2 + 2 * s.gram_sq_norms + c,
        F=c.sum() - 2 * c,
        l1=-ell,
        l2=ell @ ell - ell**2,
        T=2 * h * ell - s.gram_mean_projections - h @ ell,
    )
    return Moments(mu2=mu2, mu4=mu4, mu_Sigma_mu=mu_Sigma_mu, tr_Sigma=tr_Sigma, tr_Sigma2=tr_Sigma2)


def _moments(n: int, *, L: Any, trace: Any, diagonal2: Any, S1: Any, R2: Any, F: Any, l1: Any, l2: Any, T: Any) -> Any:
    """Return mu2, mu4, mu_Sigma_mu, tr_Sigma, tr_Sigma2 of n rows c + y_i about a fixed c with |c|^2 = L.

    A is the Gram matrix of the y_i without its diagonal (sum of squares ``diagonal2``, sum ``trace``), S1 its sum,
    R2 the squared norm of its row sums, F its squared Frobenius norm; l_i = y_i . c has sum l1 and sum of squares l2,
    and T = l'A1. Scalars, or one entry a sample.
    """
    n2 = n * (n - 1)
    n3 = n2 * (n - 2)
    n4 = n3 * (n - 3)
    U1, U2, U3, U4 = S1 / n2, F / n2, (R2 - F) / n3, (S1**2 - 4 * R2 + 2 * F) / n4
    A_l = (l1 * S1 - 2 * T) / n3  # mean of A_ij l_k over distinct i, j, k
    mu2 = U1 + 2 * l1 / n + L
    mu4 = U4 + 4 * A_l + 2 * L * U1 + 4 * (l1**2 - l2) / n2 + 4 * L * l1 / n + L * L
    mu_Sigma_mu = U3 - U4 + 2 * (T / n2 - A_l) + (l2 - l1**2 / n) / (n - 1)
    # A mean of squares ((q_i - q_j).(q_k - q_l))^2 / 4, never negative but for rounding of the terms that cancel.
    tr_Sigma2 = U2 - 2 * U3 + U4
    tr_Sigma2 = np.where(tr_Sigma2 > 64 * _EPS * (F + diagonal2) / n2, tr_Sigma2, 0.0)
    return mu2, mu4, mu_Sigma_mu, trace / n - U1, tr_Sigma2


def _plug_in(s: GramSummary) -> PlugInEstimates:
    mu2 = s.mean_sq_norm
    mu_Sigma_mu = float(s.mean_projections @ s.mean_projections) / (s.n - 1)
    tr_Sigma2 = float(s.row_squares.sum()) / (s.n - 1) ** 2
    d_par, d_2 = _dimension(mu2, mu_Sigma_mu), _dimension(mu2, tr_Sigma2)
    return PlugInEstimates(
        mu2=mu2,
        mu4=mu2 * mu2,
        mu_Sigma_mu=mu_Sigma_mu,
        tr_Sigma=float(s.sq_norms.sum()) / (s.n - 1),
        tr_Sigma2=tr_Sigma2,
        d_par=d_par,
        d_2=d_2,
        d_align=min(d_par, d_2),
    )


def _dimension(mu2: float, denominator: float) -> float:
    if mu2 <= 0:
        return 0.0
    return mu2 * mu2 / denominator if denominator > 0 else math.inf


def _row_squares_by_features(centred: Callable[[slice], Array], slices: Sequence[slice]) -> Array:
    """Return sum_j H_ij^2 as y_i'(Y'Y)y_i: no n x n object."""
    S = sum(Y.T @ Y for Y in map(centred, slices))
    return np.concatenate([np.einsum("ij,ij->i", Y @ S, Y) for Y in map(centred, slices)])


def _row_squares_by_tiles(centred: Callable[[slice], Array], slices: Sequence[slice]) -> Array:
    """Return sum_j H_ij^2 from the tiles of H on and above the diagonal."""
    out = np.zeros(slices[-1].stop)
    for a, rows in enumerate(slices):
        Y = centred(rows)
        for b in range(a, len(slices)):
            tile = Y @ (Y if b == a else centred(slices[b])).T
            np.square(tile, out=tile)
            out[rows] += tile.sum(axis=1)
            if b > a:
                out[slices[b]] += tile.sum(axis=0)
    return out


def _summary(
    *,
    dim: int | None,
    mean_sq_norm: float,
    h: Array,
    ell: Array,
    Hh: Array,
    Hell: Array,
    row_squares: Array,
    rounding: float,
) -> GramSummary:
    degenerate = bool(h.max() <= rounding)
    if degenerate:  # what is left is rounding: a ratio of it would look like a finite, arbitrary dimension
        h, ell, Hh, Hell, row_squares = (np.zeros(len(h)) for _ in range(5))
    return GramSummary(
        n=len(h),
        dim=dim,
        mean_sq_norm=mean_sq_norm,
        sq_norms=h,
        mean_projections=ell,
        gram_sq_norms=Hh,
        gram_mean_projections=Hell,
        row_squares=row_squares,
        degenerate=degenerate,
    )


def checked_rows(Q: Any, where: str) -> NDArray[Any]:
    """Return Q as a real matrix of finite rows, at least 4 of them, or raise a ValueError that names ``where``."""
    Q = np.asarray(Q)
    if Q.ndim != 2:
        raise ValueError(f"{where}: Q must be 2-D (n samples, N), got shape {Q.shape}; flatten each sample to a row.")
    if Q.shape[1] < 1:
        raise ValueError(f"{where}: Q must have at least one column, got shape {Q.shape}.")
    return _checked_finite(Q, where)


def checked_gram(G: Any, where: str) -> NDArray[Any]:
    """Return G as a finite Gram matrix of at least 4 rows, or raise a ValueError that names ``where``."""
    G = np.asarray(G)
    if G.ndim != 2 or G.shape[0] != G.shape[1]:
        raise ValueError(f"{where}: a Gram matrix must be square, got shape {G.shape}; pass rows as Q instead.")
    G = _checked_finite(G, where)
    # Half the digits of the input type: a matrix product may differ from its transpose by the rounding of long sums.
    tolerance = math.sqrt(np.finfo(np.result_type(G, np.float32)).eps) * float(np.abs(G).max())
    gap = float(np.abs(G - G.T).max())
    if gap > tolerance:
        raise ValueError(f"{where}: a Gram matrix must be symmetric, got |G - G'| up to {gap:.3g}; pass G = Q Q'.")
    lowest = float(np.diagonal(G).min())
    if lowest < -tolerance:
        raise ValueError(f"{where}: a Gram matrix has a nonnegative diagonal, got {lowest:.3g}; pass G = Q Q'.")
    return G


def _checked_finite(X: NDArray[Any], where: str) -> NDArray[Any]:
    if np.iscomplexobj(X) or not np.issubdtype(X.dtype, np.number):
        raise TypeError(f"{where}: entries must be real numbers, got dtype {X.dtype}.")
    if len(X) < 4:
        raise ValueError(f"{where}: at least 4 samples are needed, got {len(X)}; draw more.")
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(bad):
        raise ValueError(
            f"{where}: {len(bad)} of {len(X)} rows hold NaN or infinite values, first at index {bad[0]}; "
            "remove them and report how many."
        )
    return X
