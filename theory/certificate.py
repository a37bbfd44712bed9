r"""What the alignment certificate is made of: the dimensions, the moments of X = mu_M . g_K, and the two bounds.

The samples q_i are iid in R^N with mean mu and covariance Sigma; mu_M and g_K are means of M and K of them, all M + K
independent. Source: [width].
"""

from fractions import Fraction
from math import ceil, isinf, isqrt

from .symbols import K, M, d_2, d_align, d_par, mu2, mu_Sigma_mu, n_eff, tr_Sigma2, unfold

N_EFF, D_PAR, D_2, D_ALIGN = (unfold(letter) for letter in (n_eff, d_par, d_2, d_align))
MEAN = mu2
VARIANCE = (1 / M + 1 / K) * mu_Sigma_mu + tr_Sigma2 / (M * K)
B_EXACT = VARIANCE / (VARIANCE + MEAN**2)
B_ALIGN = 1 / (1 + n_eff * d_align)

# Odds P / (1 - P) of the two bounds: sums of terms, where the bounds themselves are quotients.
ODDS_EXACT = (1 / M + 1 / K) / d_par + 1 / (M * K * d_2)
ODDS_ALIGN = 1 / (n_eff * d_align)

ROUNDING = Fraction(1, 10**12)


def samples_needed(target: float | Fraction, d_align: float | Fraction, other: int | None = None) -> int | None:
    r"""Smallest sample count for which B_align is at most ``target``, exactly.

    .. math:: t = \frac{1-p}{p\,d_{align}}, \quad M = K \ge t + \sqrt{t^2 + t}, \quad M \ge \frac{t (K+1)}{K-t}

    Fractions decide a case of equality exactly. Floats count at their binary value, but .01 is not 1/100: with a float,
    a t that agrees with K to 1e-12 counts as K.

    Args:
        target: The probability asked for, strictly between 0 and 1.
        d_align: Effective alignment dimension, from 0 to infinity.
        other: K, when it is given; by default M = K.

    Returns:
        M, or None when no M suffices: d_align = 0, or K d_align <= (1 - p) / p.

    Raises:
        ValueError: If ``target``, ``d_align`` or ``other`` is out of range.
    """
    if not 0 < target < 1:
        raise ValueError(f"samples_needed: target must lie strictly between 0 and 1, got {target}.")
    if not d_align >= 0:
        raise ValueError(f"samples_needed: d_align must be at least 0, got {d_align}.")
    if other is not None and other < 1:
        raise ValueError(f"samples_needed: the other sample count must be at least 1, got {other}.")
    if d_align == 0:
        return None
    if isinf(d_align):
        return 1
    t = (1 / Fraction(target) - 1) / Fraction(d_align)
    if other is not None:
        rounded = isinstance(target, float) or isinstance(d_align, float)
        margin = ROUNDING * other if rounded else 0
        return None if other <= t + margin else ceil(t * (other + 1) / (other - t))
    # With t = x / y the condition is yM - x >= sqrt(x^2 + xy), an integer against a root.
    x, y = t.as_integer_ratio()
    root = isqrt(x * x + x * y - 1) + 1
    return ceil(Fraction(x + root, y))
