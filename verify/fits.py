"""Fits of error surfaces by least squares on logarithms, intervals from the repeats, and their judgement."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from .decisions import Status
from .observations import (
    ALL_SHAPES,
    SHAPE,
    Array,
    Cells,
    Observations,
    Window,
    log_errors,
    percentiles,
    r_squared,
    resampled_log_errors,
    why_no_interval,
    why_no_percentiles,
)
from .surfaces import QUADRATURE, RIVALS, SUM, LogSurface, Model, Optimum, free_form, minimise

RESAMPLES = 400
LEVEL = 0.95
MAX_FAILED = 0.05
# Two solvers on one problem that differ by more than this have not found the same minimum.
AGREEMENT = 1e-3


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A fitted number.

    Attributes:
        name: As in the model.
        value: None where the data leave it undefined (the exponent of a term that vanished).
        interval: None where there is none; ``reason`` says why.
        level: Of the interval.
        diverged: Runs that are missing from the fit because they diverged.
        reason: What is missing, or what to beware of.
    """

    name: str
    value: float | None
    interval: tuple[float, float] | None
    level: float = LEVEL
    diverged: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class FitPoint:
    """A cell and the fitted surface there; ``fitted`` includes the limit's own error, as ``observed`` does."""

    depth: float
    units: float
    embed_dim: float
    alpha: float
    repeats: int
    observed: float
    fitted: float
    band: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A model fitted to the cells of a window.

    Attributes:
        model: Its name.
        combine: "sum" or "quadrature".
        window: Its name.
        estimates: One a parameter.
        cells: Distinct shapes fitted.
        runs: Distinct runs, diverged ones included.
        diverged: Runs left out.
        duplicates: Entries that repeated a run.
        lost: Shapes in the window none of whose runs is left.
        residual: Standard deviation of the residual logarithms.
        aic: n log(RSS/n) + 2 (parameters + 1); only differences on the same cells have a meaning.
        r2: Share of the variance of the log errors that the model explains.
        condition: Condition number of the Jacobian in (log coefficients, exponents); None where a term vanished, since
            its columns are then 0.
        solvers_agree: Whether Levenberg-Marquardt and a trust-region solver found the same parameters.
        resamples: Bootstrap fits behind the intervals.
        failed: Resamples whose fit did not converge, left out.
        points: The cells.
    """

    model: str
    combine: str
    window: str
    estimates: tuple[Estimate, ...]
    cells: int
    runs: int
    diverged: int
    duplicates: int
    lost: int
    residual: float
    aic: float
    r2: float
    condition: float | None
    solvers_agree: bool
    resamples: int
    failed: int
    points: tuple[FitPoint, ...]

    def __getitem__(self, name: str) -> Estimate:
        """Return the estimate of a parameter.

        Raises:
            KeyError: If the model has none of that name.
        """
        for estimate in self.estimates:
            if estimate.name == name:
                return estimate
        raise KeyError(f"Fit of {self.model}: no parameter {name!r}; it has {[e.name for e in self.estimates]}.")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Fits to the same cells, best first, with their AIC above the best."""

    window: str
    fits: tuple[Fit, ...]
    delta_aic: tuple[float, ...]


def fit(
    observations: Observations,
    model: Model,
    *,
    generator: np.random.Generator | None = None,
    window: Window = ALL_SHAPES,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Fit:
    r"""Fit a model to root mean square errors per cell by least squares on logarithms.

    .. math:: \min_\theta \sum_c \left(\log \sqrt{e_\theta(c)^2 + \delta_c^2} - y_c\right)^2

    with y_c the log error of cell c and delta_c the standard error of the limit there. Every cell counts once.
    Coefficients are nonnegative; one of 0 is reported as such and leaves the exponents of its term undefined.
    Intervals are percentiles of refits to log errors resampled within each cell; they are conditional on the limit
    and assume that the repeats of different cells are independent. At a nominal .95 they cover .91 to .94 of the time
    with 3 repeats and .93 to .96 from 5 on (planted data). Without a generator, with fewer than 2 repeats in a cell or
    none that differ, or with too few resamples for the level, the estimates come with interval None and the reason.

    Args:
        observations: The runs.
        model: What to fit.
        generator: Source of the resamples; None asks for no interval.
        window: Which shapes to fit.
        resamples: Number of bootstrap fits.
        level: Of the intervals.

    Returns:
        The fit.

    Raises:
        ValueError: If more than a tenth of the runs diverged, or the shapes cannot tell the parameters apart.
    """
    cells = window.of(observations).cells()
    return _fit(cells, model, window.name, _draws(cells, generator, resamples, level), level)


def _draws(cells: Cells, generator: np.random.Generator | None, resamples: int, level: float) -> Array | str:
    """Resampled log errors, or the reason why there are none."""
    if resamples < 1 or not 0 < level < 1:
        raise ValueError(f"fit: expected resamples >= 1 and a level in (0, 1), got {resamples} and {level}.")
    if generator is None:
        return "no interval was asked for"
    reason = why_no_interval(cells.squares) or why_no_percentiles(resamples, level)
    return reason or resampled_log_errors(cells.squares, "fit", generator, resamples)


def _fit(cells: Cells, model: Model, window: str, draws: Array | str, level: float) -> Fit:
    where = f"fit of {model.name} ({window})"
    y, surface = log_errors(cells.squares, where), LogSurface(model, cells)
    surface.require_identifiable(y, where)
    trials = [(minimise(surface, y, start, tolerance=1e-12), start) for start in surface.starts(y)]
    best, start = min(trials, key=lambda trial: trial[0].cost)
    values = best.values(surface)
    second = minimise(surface, y, start, method="trf", tolerance=1e-12).values(surface)
    log_fitted, jacobian = surface(best.theta, best.active)
    refits = [] if isinstance(draws, str) else _refits(surface, draws, best)
    sample = np.array([refit.values(surface) for refit in refits])
    failed = 0 if isinstance(draws, str) else len(draws) - len(refits)
    reason = draws if isinstance(draws, str) else ""
    if failed > MAX_FAILED * (failed + len(refits)):
        reason = f"{failed} of {failed + len(refits)} resampled fits did not converge"
    bands = None
    if not reason:
        surfaces = np.exp([surface(refit.theta, refit.active)[0] for refit in refits])
        bands = percentiles(surfaces, level).T.tolist()
    n, residuals = len(cells), log_fitted - y
    # Data without noise leave residuals of rounding only, possibly none at all.
    mean_square = max(float(residuals @ residuals) / n, np.finfo(float).eps ** 2)
    return Fit(
        model=model.name,
        combine=model.combine,
        window=window,
        estimates=tuple(
            _estimate(name, float(values[i]), sample[:, i] if len(sample) else sample, level, reason, cells.diverged)
            for i, name in enumerate(model.parameters)
        ),
        cells=n,
        runs=cells.runs,
        diverged=cells.diverged,
        duplicates=cells.duplicates,
        lost=cells.lost,
        residual=math.sqrt(mean_square),
        aic=_aic(best.cost, n, model),
        r2=r_squared(y, residuals),
        condition=float(np.linalg.cond(jacobian)) if best.active.all() else None,
        solvers_agree=bool(np.allclose(values, second, rtol=AGREEMENT, atol=AGREEMENT * 1e-3, equal_nan=True)),
        resamples=len(refits),
        failed=failed,
        points=tuple(_point(cells, c, y[c], log_fitted[c], bands[c] if bands else None) for c in range(n)),
    )


def _point(cells: Cells, c: int, log_observed: float, log_fitted: float, band: list[float] | None) -> FitPoint:
    return FitPoint(
        **{column: float(cells.shapes[column][c]) for column in SHAPE},
        repeats=len(cells.squares[c]),
        observed=math.exp(log_observed),
        fitted=math.exp(log_fitted),
        band=None if band is None else (band[0], band[1]),
    )


def _refits(surface: LogSurface, draws: Array, best: Optimum) -> list[Optimum]:
    """Refit from the estimate, a vanished term from a small but visible share."""
    J = len(best.active)
    exponents = np.where(np.isfinite(best.values(surface)[J:]), best.theta[J:], 0.5)
    visible = surface.balanced(surface(best.theta, best.active)[0], exponents)
    start = np.concatenate([np.where(best.active, best.theta[:J], visible[:J] - 4), exponents])
    refits = (minimise(surface, y, start) for y in draws)
    return [refit for refit in refits if refit.converged]


def _estimate(name: str, value: float, sample: Array, level: float, reason: str, diverged: int) -> Estimate:
    interval = None
    undefined = float(np.mean(np.isnan(sample))) if len(sample) else 0.0
    if math.isnan(value):
        reason = "its term vanished from the fit"
    elif not reason and undefined > (1 - level) / 2:
        reason = f"its term vanishes in {undefined:.0%} of the resamples"
    elif not reason:
        low, high = percentiles(sample, level)
        interval = float(low), float(high)
        reason = "at the boundary 0: the interval is one-sided" if value == 0 else ""
    return Estimate(
        name=name,
        value=None if math.isnan(value) else value,
        interval=interval,
        level=level,
        diverged=diverged,
        reason=reason,
    )


def compare(
    observations: Observations,
    *,
    generator: np.random.Generator,
    imposed: Sequence[Model] = (QUADRATURE, SUM),
    rivals: Sequence[Model] = RIVALS,
    windows: Sequence[Window] = (ALL_SHAPES,),
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> tuple[Comparison, ...]:
    """Fit, in each window, the free exponents and the forms and rivals that impose them.

    The free forms are always among the fits: an imposed exponent is a model to compare, never a finding. All models of
    a window share its resamples; rivals come without intervals.

    Returns:
        One comparison a window.

    Raises:
        ValueError: As ``fit``.
    """
    found = []
    for window in windows:
        inside = window.of(observations)
        cells = inside.cells()
        draws = _draws(cells, generator, resamples, level)
        free = [free_form(inside, combine) for combine in ("quadrature", "sum")]
        fits = [_fit(cells, model, window.name, draws, level) for model in (*free, *imposed)]
        fits += [_fit(cells, model, window.name, "a rival: no interval was asked for", level) for model in rivals]
        fits.sort(key=lambda one: one.aic)
        delta = tuple(one.aic - fits[0].aic for one in fits)
        found.append(Comparison(window=window.name, fits=tuple(fits), delta_aic=delta))
    return tuple(found)


def aic_difference(
    observations: Observations,
    claimed: Sequence[Model],
    rivals: Sequence[Model],
    *,
    generator: np.random.Generator,
    window: Window = ALL_SHAPES,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> tuple[Estimate, Model]:
    """AIC of the best of ``claimed`` above that of the best of ``rivals``, and that rival.

    The interval is normal, with the spread of the difference between refits of the two to log errors resampled within
    each cell: positive throughout, the rival describes the surface better beyond the scatter of the repeats.

    Raises:
        ValueError: As ``fit``.
    """
    cells = window.of(observations).cells()
    y = log_errors(cells.squares, f"AIC ({window.name})")
    one, other = (_least_aic(models, cells, y) for models in (claimed, rivals))

    def estimate(interval: tuple[float, float] | None, reason: str = "") -> Estimate:
        value = one.aic - other.aic
        return Estimate(name="AIC", value=value, interval=interval, level=level, diverged=cells.diverged, reason=reason)

    if reason := why_no_interval(cells.squares):
        return estimate(None, reason), other.model
    draws = resampled_log_errors(cells.squares, "AIC", generator, resamples)
    changes = np.array([one.refitted(drawn) - other.refitted(drawn) for drawn in draws])
    half = float(stats.norm.isf((1 - level) / 2) * changes.std(ddof=1))
    value = one.aic - other.aic
    return estimate((value - half, value + half)), other.model


@dataclass(frozen=True, kw_only=True, eq=False)
class _Contender:
    model: Model
    surface: LogSurface
    best: Optimum
    aic: float

    def refitted(self, y: Array) -> float:
        """Return the AIC after a fit to other log errors of the same cells, from the estimate."""
        return _aic(minimise(self.surface, y, self.best.theta).cost, len(y), self.model)


def _least_aic(models: Sequence[Model], cells: Cells, y: Array) -> _Contender:
    found = []
    for model in models:
        surface = LogSurface(model, cells)
        surface.require_identifiable(y, f"AIC of {model.name}")
        best = min((minimise(surface, y, s, tolerance=1e-12) for s in surface.starts(y)), key=lambda one: one.cost)
        found.append(_Contender(model=model, surface=surface, best=best, aic=_aic(best.cost, len(y), model)))
    return min(found, key=lambda contender: contender.aic)


def _aic(cost: float, n: int, model: Model) -> float:
    # Data without noise leave residuals of rounding only, possibly none at all.
    return n * math.log(max(2 * cost / n, np.finfo(float).eps ** 2)) + 2 * (len(model.parameters) + 1)


def judge_exponent(estimate: Estimate, predicted: float, tolerance: float) -> Status:
    """Judge a fitted exponent two-sided against a prediction and a tolerance declared beforehand.

    An interval inside predicted +- tolerance supports, one clear of it refutes. Without an interval, or when runs
    diverged (those left over are a choice), nothing is decided.

    Raises:
        ValueError: If the tolerance is negative or a number is not finite.
    """
    if not (math.isfinite(predicted) and math.isfinite(tolerance) and tolerance >= 0):
        raise ValueError(f"judge_exponent: expected finite numbers, tolerance >= 0, got {predicted} +- {tolerance}.")
    if estimate.interval is None or estimate.diverged:
        return Status.INCONCLUSIVE
    low, high = estimate.interval
    if predicted - tolerance <= low and high <= predicted + tolerance:
        return Status.SUPPORTED
    return Status.REFUTED if high < predicted - tolerance or predicted + tolerance < low else Status.INCONCLUSIVE
