"""Fluctuation over repeats: how the variance of the output grows with the shape, and bias apart from variance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from .fits import LEVEL, Estimate
from .observations import ALL_SHAPES, SHAPE, Array, Cells, Observations, Window
from .surfaces import unidentified


@dataclass(frozen=True, kw_only=True)
class VarianceFit:
    """std over repeats = scale * units^q * depth^r ..., entry by entry.

    Attributes:
        window: Its name.
        estimates: ``scale``, then one exponent a column.
        effective_entries: Independent entries that the output amounts to, (tr S)^2 / tr S^2 pooled over the cells.
        dispersion: Mean squared residual in units of the chi-square noise of a sample variance; about 1 if the power
            law holds. Above 1 it widens the intervals.
        cells: Distinct shapes.
        diverged: Runs left out.
    """

    window: str
    estimates: tuple[Estimate, ...]
    effective_entries: float
    dispersion: float
    cells: int
    diverged: int

    def __getitem__(self, name: str) -> Estimate:
        """Return an estimate by name.

        Raises:
            KeyError: If there is none.
        """
        return {estimate.name: estimate for estimate in self.estimates}[name]


# Names of the exponents, as in the free form of the error surface.
EXPONENTS = {"units": "q", "depth": "r", "embed_dim": "t", "alpha": "u"}


def variance_exponents(
    observations: Observations,
    columns: Sequence[str] = ("units", "depth"),
    *,
    window: Window = ALL_SHAPES,
    level: float = LEVEL,
) -> VarianceFit:
    r"""Fit std ~ M^q L^r by regression of log sample variances over repeats; the limit and its error cancel.

    A sample variance over R repeats of Gaussian outputs is, to Satterthwaite's approximation, a chi-square with
    nu = (R - 1) * effective entries degrees of freedom, so that its logarithm has bias psi(nu/2) - log(nu/2), removed,
    and variance psi'(nu/2), whose inverse is the weight.

    Args:
        observations: The runs with their deviations.
        columns: The columns of the shape to fit a power of; the others must not vary for the scale to mean anything.
        window: Which shapes to fit.
        level: Of the normal intervals.

    Returns:
        The exponents of the standard deviation.

    Raises:
        ValueError: If deviations are missing, a cell has fewer than 3 repeats or no variance, more than a tenth of the
            runs diverged, or the shapes cannot tell the exponents apart.
    """
    where = f"variance_exponents ({window.name})"
    unknown = [column for column in columns if column not in EXPONENTS]
    if unknown or not columns:
        raise ValueError(f"{where}: no column {', '.join(unknown) or 'given'}; use {', '.join(EXPONENTS)}.")
    cells = window.of(observations).cells()
    repeats = _repeats(cells, where, least=3)
    names = ("scale", *(EXPONENTS[column] for column in columns))
    X = np.column_stack([np.ones(len(cells)), *(np.log(cells.shapes[column]) for column in columns)])
    if len(cells) <= len(names) or (lost := unidentified(X)).any():
        bad = names if len(cells) <= len(names) else [n for n, is_lost in zip(names, lost, strict=True) if is_lost]
        raise ValueError(f"{where}: cannot find {', '.join(bad)} from {len(cells)} shapes; vary {', '.join(columns)}.")
    variances = np.array([d.var(axis=0, ddof=1).mean() for d in cells.deviations])
    if not (variances > 0).all():
        raise ValueError(f"{where}: {np.sum(variances == 0)} of {len(cells)} cells do not vary over their repeats.")
    entries = _effective_entries(cells.deviations)
    half_nu = (repeats - 1) * entries / 2
    weight = 1 / special.polygamma(1, half_nu)
    y = np.log(variances) - special.digamma(half_nu) + np.log(half_nu)
    covariance = np.linalg.inv(X.T @ (weight[:, None] * X))
    beta = covariance @ (X.T @ (weight * y))
    dispersion = float(weight @ (y - X @ beta) ** 2) / (len(cells) - len(names))
    errors = np.sqrt(np.diag(covariance) * max(1.0, dispersion))
    half = float(stats.norm.isf((1 - level) / 2)) * errors / 2
    middle = beta / 2  # of the standard deviation, not the variance

    def estimate(i: int) -> Estimate:
        value, low, high = (np.exp(v) if i == 0 else v for v in (middle[i], middle[i] - half[i], middle[i] + half[i]))
        return Estimate(
            name=names[i],
            value=float(value),
            interval=(float(low), float(high)),
            level=level,
            diverged=cells.diverged,
        )

    return VarianceFit(
        window=window.name,
        estimates=tuple(estimate(i) for i in range(len(names))),
        effective_entries=entries,
        dispersion=dispersion,
        cells=len(cells),
        diverged=cells.diverged,
    )


def _repeats(cells: Cells, where: str, *, least: int) -> Array:
    if not cells.deviations:
        raise ValueError(f"{where}: the runs carry errors only; build them with Observations.from_deviations.")
    repeats = np.array([len(d) for d in cells.deviations], dtype=float)
    if (repeats < least).any():
        few = int(np.sum(repeats < least))
        raise ValueError(f"{where}: {few} of {len(cells)} cells have fewer than {least} repeats; run more repeats.")
    return repeats


def _effective_entries(deviations: Sequence[Array]) -> float:
    """Pool (tr S)^2 / tr S^2 over cells from estimates of both that are unbiased for Gaussian entries."""
    trace2 = square = 0.0
    for d in deviations:
        n, centred = len(d) - 1, d - d.mean(axis=0)
        G = centred @ centred.T
        ratio = float(np.sum(G * G) / np.trace(G) ** 2)  # tr S^2 / (tr S)^2 of the sample covariance S
        unbiased = n**2 / ((n - 1) * (n + 2)) * (ratio - 1 / n)
        trace2, square = trace2 + unbiased, square + 1 - 2 * unbiased / n
    entries = max(d.shape[1] for d in deviations)
    return float(np.clip(square / trace2, 1, entries)) if trace2 > 0 else float(entries)


@dataclass(frozen=True, kw_only=True)
class BiasVariance:
    """Bias apart from fluctuation in one cell, as means over the output entries.

    Attributes:
        depth: L.
        units: M.
        embed_dim: D.
        alpha: The residual scale.
        repeats: R.
        squared_bias: Unbiased estimate of |mean - limit|^2, negative where noise exceeds it.
        squared_bias_error: Its standard error by jackknife over the repeats, None below 3 repeats.
        variance: Unbiased variance of one run.
    """

    depth: float
    units: float
    embed_dim: float
    alpha: float
    repeats: int
    squared_bias: float
    squared_bias_error: float | None
    variance: float


def bias_variance(observations: Observations, *, window: Window = ALL_SHAPES) -> tuple[BiasVariance, ...]:
    r"""Separate squared bias and variance in every cell.

    .. math:: \hat b^2 = \frac{1}{R(R-1)} \sum_{r \ne r'} \langle d_r, d_{r'} \rangle - \delta^2

    with d_r the deviation of repeat r, inner products averaged over the entries, and delta the limit's standard error:
    the squared error of the mean over repeats, less its variance and the limit's.

    Raises:
        ValueError: If deviations are missing, a cell has fewer than 2 repeats, or more than a tenth of the runs
            diverged.
    """
    cells = window.of(observations).cells()
    _repeats(cells, f"bias_variance ({window.name})", least=2)
    found = []
    for c, d in enumerate(cells.deviations):
        R = len(d)
        G = d @ d.T / d.shape[1]
        pairs = G.sum(axis=1) - np.diag(G)
        error = None
        if R > 2:
            without = (pairs.sum() - 2 * pairs) / ((R - 1) * (R - 2))
            error = float(np.sqrt((R - 1) * without.var()))
        found.append(
            BiasVariance(
                **{column: float(cells.shapes[column][c]) for column in SHAPE},
                repeats=R,
                squared_bias=float(pairs.sum() / (R * (R - 1)) - cells.limit_error[c] ** 2),
                squared_bias_error=error,
                variance=float(d.var(axis=0, ddof=1).mean()),
            )
        )
    return tuple(found)
