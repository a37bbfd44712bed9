"""Log-log slopes of one series, with their interval and the local slopes beside."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .fits import LEVEL, RESAMPLES, Estimate
from .observations import (
    MAX_DIVERGED,
    log_errors,
    percentiles,
    r_squared,
    resampled_log_errors,
    why_no_interval,
    why_no_percentiles,
)


@dataclass(frozen=True, kw_only=True)
class SlopeFit:
    """A power law y = constant * x^slope through one series.

    Attributes:
        slope: With its interval.
        constant: y at x = 1.
        local: The slopes between neighbouring x.
        r2: Share of the variance of log y explained; 1 where log y does not vary.
        points: Distinct x.
        diverged: Values left out because they are not finite.
    """

    slope: Estimate
    constant: float
    local: tuple[float, ...]
    r2: float
    points: int
    diverged: int


def slope(
    x: Any,
    y: Any,
    *,
    generator: np.random.Generator | None = None,
    exact: bool = False,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> SlopeFit:
    """Fit the slope of log y against log x by least squares, with local slopes.

    Args:
        x: Positive and distinct, (n,) with n >= 2.
        y: Positive, (n,) or (n, repeats); repeats enter by their root mean square, values that are not finite are
            left out and counted.
        generator: Source of the resamples over repeats; without one there is no interval.
        exact: y is free of sampling noise: the interval is the range of the local slopes, so that a trend in them
            (a pre-asymptotic x, a numerical floor) widens it. Needs n >= 3.
        resamples: Number of bootstrap slopes.
        level: Of the interval.

    Returns:
        The slope; with interval None and the reason where the repeats do not give one.

    Raises:
        ValueError: If shapes do not fit, x is not positive and distinct, y is not positive, or more than a tenth of
            the values or all values at one x are not finite.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if x.ndim != 1 or y.ndim not in (1, 2) or len(y) != len(x):
        raise ValueError(f"slope: expected x (n,) and y (n,) or (n, repeats), got {x.shape} and {y.shape}.")
    needed = 3 if exact else 2
    if len(np.unique(x)) < len(x) or len(x) < needed or not (np.isfinite(x) & (x > 0)).all():
        raise ValueError(f"slope: expected at least {needed} distinct positive x, got {x.tolist()}.")
    order = np.argsort(x)
    rows = y[order].reshape(len(x), -1)
    finite = np.isfinite(rows)
    diverged = int(np.sum(~finite))
    if diverged > MAX_DIVERGED * rows.size or not finite.any(axis=1).all():
        raise ValueError(f"slope: {diverged} of {rows.size} values are not finite; leave out the x where runs diverge.")
    if (rows[finite] < 0).any():
        raise ValueError(f"slope: y must be positive, got {rows[finite].min():g}.")
    squares = [np.square(row[keep]) for row, keep in zip(rows, finite, strict=True)]
    log_x, log_y = np.log(x[order]), log_errors(squares, "slope")
    weights = (log_x - log_x.mean()) / np.sum((log_x - log_x.mean()) ** 2)
    value, local = float(weights @ log_y), np.diff(log_y) / np.diff(log_x)
    interval, reason = None, ""
    if exact:
        interval = float(local.min()), float(local.max())
    elif generator is None:
        reason = "no interval was asked for"
    elif not (reason := why_no_interval(squares) or why_no_percentiles(resamples, level)):
        sample = resampled_log_errors(squares, "slope", generator, resamples) @ weights
        low, high = percentiles(sample, level)
        interval = float(low), float(high)
    residuals = log_y - log_y.mean() - value * (log_x - log_x.mean())
    return SlopeFit(
        slope=Estimate(name="slope", value=value, interval=interval, level=level, diverged=diverged, reason=reason),
        constant=float(np.exp(log_y.mean() - value * log_x.mean())),
        local=tuple(local.tolist()),
        r2=r_squared(log_y, residuals),
        points=len(x),
        diverged=diverged,
    )
