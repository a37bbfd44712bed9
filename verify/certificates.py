r"""Intervals and certificates from a sample of activation gradients.

Two kinds, with different promises. The *moment* certificate bounds d_par and d_2 from below by a jackknife and puts
the limits into B_align and B_exact. It is asymptotic, and cannot be more: with only two finite moments no uniformly
valid nontrivial lower limit of d_align exists (Bahadur and Savage), for an atom rarer than 1/n can make d_align
arbitrarily small and stay unseen. The *direct* certificate bounds P(mu_M . g_K <= 0) itself; it holds for any law and
any n, and is the sharper one from about n = 60 (M + K) on.
"""

import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.special import rel_entr, stdtrit

from ..theory import registry
from .estimators import GramSummary, Moments, checked_gram, checked_rows, estimate, leave_one_out

__all__ = [
    "AlignmentInterval",
    "Certificate",
    "DimensionPair",
    "DirectCertificate",
    "alignment_interval",
    "certificate",
    "direct_certificate",
]

Array = NDArray[np.float64]
# A scattered entry of a Gram matrix costs as much as about this many entries of a row added in order.
GATHER_COST = 16


class DimensionPair(NamedTuple):
    """Lower limits of d_par and d_2 that hold together."""

    d_par: float
    d_2: float


@dataclass(frozen=True, kw_only=True)
class AlignmentInterval:
    """Estimates and one-sided limits of the alignment dimensions, each limit at ``level`` by itself."""

    level: float
    n: int
    d_par: float
    d_2: float
    d_align: float
    lower_par: float
    lower_2: float
    lower_align: float
    upper_align: float
    b_exact_pair: DimensionPair  # lower limits that hold jointly at ``level`` (Bonferroni)
    unresolved_par: bool  # mu'Sigma mu not positive in the sample or in one without a row: limit taken from d_2
    unresolved_2: bool  # the same of tr Sigma^2: nothing is certified
    degenerate: bool  # all rows identical: no spread was seen, none can be excluded, and nothing is certified


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Upper confidence limits of the bounds on P(mu_M . g_K <= 0), each at ``level``."""

    M: int
    K: int
    level: float
    b_align_upper: float
    b_exact_upper: float


@dataclass(frozen=True, kw_only=True)
class DirectCertificate:
    """Distribution-free upper confidence limit of P(mu_M . g_K <= 0)."""

    M: int
    K: int
    level: float
    p_hat: float  # unbiased
    upper: float
    groups: int  # k = floor(n / (M + K)), disjoint in each permutation
    permutations: int
    floor: float  # the limit at p_hat = 0: nothing lower can be certified from k groups


@dataclass(frozen=True, kw_only=True)
class _RootJackknife:
    """Jackknife of g = sqrt(d), a signed ratio: |mu|^2 over the root of the denominator."""

    g: float
    bias: float
    se: float
    acceleration: float
    n: int
    unresolved: bool = False

    def lower(self, level: float) -> float:
        """Lower limit of d: bias correction only downwards, Hall's skewness correction only outwards."""
        return max(min(self.g, self.g - self.bias) - self.se * self._quantile(level, -self.acceleration), 0.0) ** 2

    def upper(self, level: float) -> float:
        """Upper limit of d: the lower limit mirrored."""
        return max(max(self.g, self.g - self.bias) + self.se * self._quantile(level, self.acceleration), 0.0) ** 2

    def _quantile(self, level: float, skew: float) -> float:
        t = float(stdtrit(self.n - 1, level))
        return max(t, t + skew * (2 * t * t + 1))


def alignment_interval(summary: GramSummary, level: float = 0.95) -> AlignmentInterval:
    r"""Bound d_par, d_2 and d_align on the root scale by a bias- and skewness-corrected jackknife.

    .. math:: g = U_1/\sqrt{\cdot},\quad \ell_i = \bar g^{(\cdot)} - g^{(-i)},\quad
              se^2 = \tfrac{n-1}{n}\sum\ell_i^2,\quad a = \tfrac{\sum\ell_i^3}{6(\sum\ell_i^2)^{3/2}},\quad
              bias = (n-1)(\bar g^{(\cdot)} - g)

    .. math:: g_{low} = \min(g, g - bias) - se \cdot \max(t, t - a(2t^2 + 1)),\quad t = t_{n-1,\,level}

    The lower limit of d_align, the smaller of the two at ``level``, needs no Bonferroni factor: it is wrong only if
    the limit of the truly smaller dimension is. The pair for B_exact and the upper limit of d_align do need it.
    Where mu'Sigma mu is not estimated positive, d_par >= sqrt(d_2) bounds d_par by the limit of d_2, for
    mu'Sigma mu <= |mu|^2 (tr Sigma^2)^(1/2).
    Valid for: large n (asymptotic). Measured at nominal .95 on six laws, n = 64 to 512: the lower limit and the pair
    cover at least .94 and .98; the upper limit is descriptive, with .83 at n = 64 where a rare cluster carries
    tr Sigma^2. Source: [width], d_align; spec alignment A3 (Hall's correction).

    Args:
        summary: Of at least 5 rows.
        level: One-sided confidence of each limit.

    Returns:
        The limits; where tr Sigma^2 is not estimated positive, [0, inf].

    Raises:
        ValueError: If level is outside (0, 1) or n < 5.
    """
    _check_level(level, "alignment_interval")
    full, loo = estimate(summary), leave_one_out(summary)
    par = _root_jackknife(summary, full.mu2, full.mu_Sigma_mu, loo, loo.mu_Sigma_mu)
    two = _root_jackknife(summary, full.mu2, full.tr_Sigma2, loo, loo.tr_Sigma2)

    def lower_limits(level: float) -> DimensionPair:
        lower_2 = two.lower(level)
        return DimensionPair(min(math.sqrt(lower_2), full.d_par) if par.unresolved else par.lower(level), lower_2)

    lower_par, lower_2 = lower_limits(level)
    half = (1 + level) / 2
    return AlignmentInterval(
        level=level,
        n=summary.n,
        d_par=full.d_par,
        d_2=full.d_2,
        d_align=full.d_align,
        lower_par=lower_par,
        lower_2=lower_2,
        lower_align=min(lower_par, lower_2),
        upper_align=min(par.upper(half), two.upper(half)),
        b_exact_pair=lower_limits(half),
        unresolved_par=par.unresolved,
        unresolved_2=two.unresolved,
        degenerate=summary.degenerate,
    )


def certificate(interval: AlignmentInterval, M: int, K: int) -> Certificate:
    """Turn limits of the alignment dimensions into upper limits of B_align and B_exact.

    Source: [width], Theorem 1; spec alignment A1, A3.

    Raises:
        ValueError: If M or K is below 1.
    """
    _check_sizes(M, K, "certificate")
    return Certificate(
        M=M,
        K=K,
        level=interval.level,
        b_align_upper=_b_align(interval.lower_align, M, K),
        b_exact_upper=_b_exact(*interval.b_exact_pair, M, K),
    )


def direct_certificate(
    Q_or_gram: Any,
    M: int,
    K: int,
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    permutations: int = 200,
    from_gram: bool = False,
) -> DirectCertificate:
    r"""Bound P(mu_M . g_K <= 0) without any assumption on the law.

    .. math:: \hat p = \frac1{Rk}\sum_{r,g} 1\{X_{rg}\le0\},\quad
              P_{up} = \max\{p : k\,\mathrm{KL}(\hat p\,\|\,p) \le \ln\tfrac1{1-level}\},\quad
              k = \lfloor n/(M+K)\rfloor

    Each of the R permutations cuts the sample into k disjoint groups, so p_hat is an average of means of k
    independent indicators and Hoeffding's bound holds with k, for every R. Shapes: ``Q (n, N)`` or ``G (n, n)``.
    Valid for: any law, n >= M + K. Source: Hoeffding (1963), section 5; spec alignment A3.

    Args:
        Q_or_gram: Rows, one iid sampling unit each, or their Gram matrix.
        M: Training samples in mu_M.
        K: Test samples in g_K.
        rng: Draws the permutations.
        level: Confidence of the limit.
        permutations: R; more of them reduce the variance of p_hat only.
        from_gram: Whether the first argument is a Gram matrix.

    Raises:
        ValueError: If n < M + K, a size or level is out of range, or the input is not finite rows or a Gram matrix.
    """
    where = "direct_certificate"
    _check_level(level, where)
    _check_sizes(M, K, where)
    if permutations < 1:
        raise ValueError(f"{where}: permutations must be at least 1, got {permutations}.")
    data = checked_gram(Q_or_gram, where) if from_gram else checked_rows(Q_or_gram, where)
    n = len(data)
    groups = n // (M + K)
    if groups < 1:
        raise ValueError(f"{where}: M = {M} and K = {K} need at least M + K = {M + K} samples, got {n}; draw more.")
    orders = [rng.permutation(n)[: groups * (M + K)].reshape(groups, M + K) for _ in range(permutations)]
    hits = _count_misaligned(data, [(order[:, :M], order[:, M:]) for order in orders], from_gram)
    p_hat = hits / (permutations * groups)
    budget = -math.log1p(-level) / groups
    return DirectCertificate(
        M=M,
        K=K,
        level=level,
        p_hat=p_hat,
        upper=_kl_upper(p_hat, budget),
        groups=groups,
        permutations=permutations,
        floor=_kl_upper(0.0, budget),
    )


def _b_align(d_align: float, M: int, K: int) -> float:
    return float(registry.find("alignment.certificate").function("M", "K", "d_align")(M, K, d_align))


def _b_exact(d_par: float, d_2: float, M: int, K: int) -> float:
    """B_exact of a law with these dimensions (scaled to |mu| = 1); a dimension of 0 certifies nothing."""
    if d_par == 0 or d_2 == 0:
        return 1.0
    bound = registry.find("alignment.cantelli").numeric()
    return float(bound(M=M, K=K, mu2=1.0, mu_Sigma_mu=1 / d_par, tr_Sigma2=1 / d_2))


def _root_jackknife(
    summary: GramSummary, mu2: float, denominator: float, loo: Moments, loo_denominator: Array
) -> _RootJackknife:
    n = summary.n
    # Identical rows say nothing of the spread that they happen not to show: nothing is certified.
    if summary.degenerate or denominator <= 0 or loo_denominator.min() <= 0:
        return _RootJackknife(g=0.0, bias=0.0, se=math.inf, acceleration=0.0, n=n, unresolved=True)
    g = mu2 / math.sqrt(denominator)
    g_loo = loo.mu2 / np.sqrt(loo_denominator)
    influence = g_loo.mean() - g_loo
    squares = float(influence @ influence)
    return _RootJackknife(
        g=g,
        bias=(n - 1) * float(g_loo.mean() - g),
        se=math.sqrt((n - 1) / n * squares),
        acceleration=float((influence**3).sum()) / (6 * squares**1.5) if squares > 0 else 0.0,
        n=n,
    )


def _count_misaligned(data: NDArray[Any], splits: list[tuple[NDArray[np.intp], NDArray[np.intp]]], gram: bool) -> int:
    """Count the groups of all splits with (sum of train rows) . (sum of test rows) <= 0, from rows or their Gram."""
    n, dim = data.shape
    if not gram and dim > n:
        data, gram = sum((C @ C.T for C in _column_blocks(data)), np.zeros((n, n))), True
    if gram:
        G = np.asarray(data, np.float64)
        K = splits[0][1].shape[1]
        if n > GATHER_COST * K:
            # Few entries of G a group: fetch them, instead of adding whole rows.
            pairs = ((train[:, :, None], test[:, None, :]) for train, test in splits)
            return sum(int((G[pair].sum(axis=(1, 2)) <= 0).sum()) for pair in pairs)
        return sum(
            int((np.take_along_axis(_indicator(train, n) @ G, test, axis=1).sum(axis=1) <= 0).sum())
            for train, test in splits
        )
    X = np.zeros((len(splits), len(splits[0][0])))
    for columns in _column_blocks(data):
        for x, (train, test) in zip(X, splits, strict=True):
            x += np.einsum("ij,ij->i", _indicator(train, n) @ columns, _indicator(test, n) @ columns)
    return int((X <= 0).sum())


def _column_blocks(Q: NDArray[Any], width: int = 256) -> Iterator[Array]:
    for start in range(0, Q.shape[1], width):
        yield np.ascontiguousarray(Q[:, start : start + width], np.float64)


def _indicator(index: NDArray[np.intp], n: int) -> csr_array:
    """Return the sparse (groups, n) matrix that sums the rows of each group (sums, not means: integers stay exact)."""
    groups, size = index.shape
    return csr_array((np.ones(index.size), index.ravel(), np.arange(groups + 1) * size), shape=(groups, n))


def _kl_upper(p_hat: float, budget: float) -> float:
    """Return the largest p with KL(p_hat || p) <= budget."""
    if p_hat == 0:
        return -math.expm1(-budget)
    top = math.nextafter(1.0, 0.0)

    def excess(p: float) -> float:
        return float(rel_entr(p_hat, p) + rel_entr(1 - p_hat, 1 - p)) - budget

    if p_hat >= top or excess(top) <= 0:
        return 1.0
    return min(1.0, float(brentq(excess, p_hat, top, xtol=1e-14)) + 1e-14)


def _check_level(level: float, where: str) -> None:
    if not 0 < level < 1:
        raise ValueError(f"{where}: level must lie in (0, 1), got {level}; 0.95 is usual.")


def _check_sizes(M: int, K: int, where: str) -> None:
    for name, size in (("M", M), ("K", K)):
        if not isinstance(size, numbers.Integral) or size < 1:
            raise ValueError(f"{where}: {name} must be an integer of at least 1, got {size!r}.")
