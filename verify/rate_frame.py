"""What the studies of the hidden width share: exponents as they are measured, jobs, and how both are made."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import stats

from ..sim.records import Job, Record
from .decisions import Evidence
from .fits import Estimate
from .fluctuations import variance_exponents
from .observations import LETTERS, Array, Observations, Window
from .rate_presets import Grid, Preset

LEVEL = 0.95  # of intervals that are shown; those that decide have their share of the error budget


@dataclass(frozen=True, kw_only=True)
class Exponent:
    """A measured exponent, before any claim is held against it.

    Attributes:
        key: Name, as in the tolerances of the presets.
        what: In words.
        k: Gradient steps; None where none are taken.
        window: Which shapes or sizes.
        estimate: With the interval that decides.
        evidence: EXACT where nothing was sampled.
        judged: False where it is reported only.
        one_sided: An upper bound is claimed: a faster fall is no refutation.
    """

    key: str
    what: str
    k: int | None
    window: str
    estimate: Estimate
    evidence: Evidence = Evidence.SIMULATION
    judged: bool = True
    one_sided: bool = False


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What a study found; ``surfaces`` are the cells that a claimed error surface can be fitted to, by k."""

    exponents: list[Exponent] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    surfaces: dict[int, Observations] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The record of a job and its arrays."""

    record: Record
    arrays: Mapping[str, np.ndarray]

    def __getitem__(self, name: str) -> Any:
        """Return a parameter of the job."""
        return self.record.params[name]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Preset, seeds and level that all studies of one data set share; ``random`` gives the streams of the resamples."""

    preset: Preset
    data_seed: int
    seed: int
    level: float
    random: Callable[[str], np.random.Generator]

    def job(self, function: str, label: str, cost: float, **params: Any) -> Job:
        """Return a job on this data set."""
        params |= {"samples": self.preset.samples, "data_seed": self.data_seed}
        return Job(function=f"rescert.sim.rate_jobs:{function}", params=params, seed=self.seed, label=label, cost=cost)


def grid_jobs(frame: Frame, grid: Grid, **extra: Any) -> list[Job]:
    """One a shape."""
    shapes = itertools.product(grid.depths, grid.units, grid.embed_dims, grid.alphas)
    return [
        frame.job(
            "finite",
            f"L={L} M={M} D={D} alpha={alpha:g}, {grid.steps} steps",
            float(L * M * D * grid.steps * grid.repeats),
            depth=L,
            units=M,
            embed_dim=D,
            alpha=alpha,
            steps=grid.steps,
            record=grid.record,
            repeats=grid.repeats,
            **extra,
        )
        for L, M, D, alpha in shapes
    ]


def observed(outcomes: Iterable[Outcome], k: int, limits: Mapping[tuple, tuple[Array, float]]) -> Observations:
    """Runs less their limit where there is one; those that diverged are NaN, and counted."""
    columns: dict[str, list[float]] = {n: [] for n in ("depth", "units", "embed_dim", "alpha", "repeat", "limit_error")}
    deviations = []
    for outcome in outcomes:
        exact, error = limits.get((outcome["embed_dim"], outcome["alpha"]), (0.0, 0.0))
        for repeat, output in enumerate(outcome.arrays[f"output_{k}"]):
            deviations.append(output - exact)
            for name in ("depth", "units", "embed_dim", "alpha"):
                columns[name].append(outcome[name])
            columns["repeat"].append(repeat)
            columns["limit_error"].append(error)
    return Observations.from_deviations(deviations, **columns)


def fluctuations(
    observations: Observations,
    names: Mapping[str, str],
    window: Window,
    frame: Frame,
    k: int,
    what: str,
    *,
    judged: bool = True,
) -> list[Exponent]:
    """Exponents of the standard deviation over repeats; ``names`` maps columns to keys."""
    fitted = variance_exponents(observations, tuple(names), window=window, level=frame.level)
    return [
        Exponent(
            key=key,
            what=f"exponent of {LETTERS[column]} in {what}",
            k=k,
            window=window.name,
            estimate=estimate,
            judged=judged,
        )
        for (column, key), estimate in zip(names.items(), fitted.estimates[1:], strict=True)
    ]


def widened(estimate: Estimate, level: float) -> Estimate:
    """Carry a bootstrap interval of the level ``LEVEL`` to a higher one: too few resamples reach that far out."""
    if estimate.interval is None or estimate.value is None:
        return estimate
    stretch = float(stats.norm.isf((1 - level) / 2) / stats.norm.isf((1 - LEVEL) / 2))
    low, high = (estimate.value + stretch * (end - estimate.value) for end in estimate.interval)
    reason = f"bootstrap at {LEVEL:.0%}, carried on by normal quantiles"
    return replace(estimate, interval=(low, high), level=level, reason=reason)


def regressed(columns: Mapping[str, Sequence[float]], y: Sequence[float], level: float) -> dict[str, Estimate]:
    """Fit log y = c + sum of exponent * log column by least squares, with Student intervals from the residuals.

    Raises:
        ValueError: If a column does not vary, or there are too few points.
    """
    fixed = [name for name, values in columns.items() if len(set(values)) < 2]
    if fixed or len(y) < len(columns) + 3:
        raise ValueError(f"regressed: cannot find the exponent of {', '.join(fixed or columns)}; vary it more.")
    X = np.column_stack([np.ones(len(y)), *(np.log(values) for values in columns.values())])
    beta, *_ = np.linalg.lstsq(X, np.log(y), rcond=None)
    free = len(y) - X.shape[1]
    residual = np.log(y) - X @ beta
    errors = np.sqrt(np.diag(np.linalg.inv(X.T @ X)) * float(residual @ residual) / free)
    half = float(stats.t.isf((1 - level) / 2, free)) * errors
    return {
        name: Estimate(name=name, value=float(b), interval=(float(b - h), float(b + h)), level=level)
        for name, b, h in zip(columns, beta[1:], half[1:], strict=True)
    }


def slope_over_repeats(x: Sequence[float], squares: Array, level: float) -> Estimate:
    """Fit the slope of log sqrt(mean of squares) in log x, with a jackknife over the columns, which the rows share."""
    centred = np.log(x) - np.mean(np.log(x))
    weights = centred / (centred @ centred)
    n = squares.shape[1]
    if n < 3:
        reason = f"{n} repeats give no interval, at least 3 are needed"
        return Estimate(name="slope", value=None, interval=None, level=level, reason=reason)
    means = np.column_stack([squares.mean(axis=1), (squares.sum(axis=1, keepdims=True) - squares) / (n - 1)])
    if not (means > 0).all():
        return Estimate(name="slope", value=None, interval=None, level=level, reason="a distance drowns in noise")
    slopes = weights @ np.log(means) / 2
    value = float(slopes[0])
    if np.ptp(slopes[1:]) == 0:
        reason = "the repeats do not differ: they say nothing of their scatter"
        return Estimate(name="slope", value=value, interval=None, level=level, reason=reason)
    half = float(stats.t.isf((1 - level) / 2, n - 1)) * math.sqrt((n - 1) * float(slopes[1:].var()))
    return Estimate(name="slope", value=value, interval=(value - half, value + half), level=level)
