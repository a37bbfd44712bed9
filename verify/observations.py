"""Errors of finite networks against their limit: one entry a run, grouped into cells, one a distinct shape."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SHAPE = ("depth", "units", "embed_dim", "alpha")
LETTERS = dict(zip(SHAPE, ("L", "M", "D", "alpha"), strict=True))
MAX_DIVERGED = 0.1
# The same run listed twice may have been computed on two machines, hence not to the bit.
SAME_RUN = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Observations:
    """Runs of finite networks and how far each ended from the limit; scalars stand for all runs alike.

    Attributes:
        depth: L, the number of blocks.
        units: M, the units of a block.
        embed_dim: D, the embedding dimension.
        repeat: Which repeat of its shape a run is. The same shape and repeat listed twice is one run.
        error: Root mean square over the output entries of (output - limit). A run whose error is not finite, or too
            large to be squared, counts as diverged.
        diverged: Runs that the simulation marked as diverged.
        alpha: The residual scale.
        limit_error: Standard error of the limit, in the units of ``error``.
        deviation: Output minus limit of each run, flat, with as many entries as the runs of its cell; empty where
            only errors are known.

    Raises:
        ValueError: If the lengths differ, a shape is below 1, alpha or an error is negative, or there is no run.
    """

    depth: Array
    units: Array
    embed_dim: Array
    repeat: Array
    error: Array
    diverged: NDArray[np.bool_] = field(default_factory=lambda: np.array(False))
    alpha: Array = field(default_factory=lambda: np.array(1.0))
    limit_error: Array = field(default_factory=lambda: np.array(0.0))
    deviation: tuple[Array, ...] = ()

    def __post_init__(self) -> None:
        flat = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self) if f.name != "deviation"}
        runs = max((array.size for array in flat.values()), default=0)
        if not all(array.size for array in flat.values()):
            raise ValueError("Observations: no run given; pass at least one.")
        for name, array in flat.items():
            if array.ndim > 1 or array.size not in (1, runs):
                raise ValueError(
                    f"Observations: {name} has shape {array.shape}, expected one entry for each of {runs}."
                )
            kind = bool if name == "diverged" else float
            object.__setattr__(self, name, np.broadcast_to(array.astype(kind).reshape(-1), runs))
        object.__setattr__(self, "deviation", tuple(np.asarray(d, dtype=float).reshape(-1) for d in self.deviation))
        if len(self.deviation) not in (0, runs):
            raise ValueError(f"Observations: {len(self.deviation)} deviations for {runs} runs; pass one a run.")
        for name in ("depth", "units", "embed_dim"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        self._require("alpha", self.alpha > 0, "positive")
        self._require("repeat", np.isfinite(self.repeat), "finite")
        self._require("limit_error", (self.limit_error >= 0) & np.isfinite(self.limit_error), "finite and at least 0")
        with np.errstate(over="ignore", invalid="ignore"):
            unusable = ~np.isfinite(np.square(self.error))
        object.__setattr__(self, "diverged", self.diverged | unusable)
        self._require("error", self.diverged | (self.error >= 0), "at least 0")

    def _require(self, name: str, holds: NDArray[np.bool_], expected: str) -> None:
        if not holds.all():
            run = int(np.argmin(holds))
            raise ValueError(f"Observations: {name} must be {expected}, got {getattr(self, name)[run]:g} in run {run}.")

    @classmethod
    def from_deviations(cls, deviation: Sequence[Any], **columns: Any) -> Self:
        """Build observations whose error is the root mean square of each deviation (output - limit)."""
        flat = tuple(np.asarray(entries, dtype=float).reshape(-1) for entries in deviation)
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.array([np.sqrt(np.mean(np.square(entries))) for entries in flat])
        return cls(error=error, deviation=flat, **columns)

    def where(self, chosen: NDArray[np.bool_]) -> Self:
        """Return the runs for which ``chosen`` is true."""
        columns = {f.name: getattr(self, f.name)[chosen] for f in fields(self) if f.name != "deviation"}
        kept = tuple(d for d, keep in zip(self.deviation, chosen, strict=True) if keep) if self.deviation else ()
        return type(self)(**columns, deviation=kept)

    def cells(self) -> "Cells":
        """Group the runs by shape, each run once, without those that diverged.

        Raises:
            ValueError: If one run is listed with two errors, more than a tenth of the runs diverged, or the
                deviations of a cell differ in length.
        """
        keys = np.column_stack([*(getattr(self, name) for name in SHAPE), self.repeat])
        _, first, same = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        again = self.error[first][same.reshape(-1)]
        conflict = np.flatnonzero(~np.isclose(self.error, again, rtol=SAME_RUN, atol=0, equal_nan=True))
        if len(conflict):
            i = conflict[0]
            raise ValueError(
                f"Observations: run {i} has the shape and repeat of an earlier one, but error {self.error[i]:g} "
                f"instead of {again[i]:g}; give further repeats of a shape their own numbers."
            )
        kept = first[~self.diverged[first]]
        diverged = len(first) - len(kept)
        if diverged > MAX_DIVERGED * len(first):
            raise ValueError(
                f"Observations: {diverged} of {len(first)} runs diverged, more than {MAX_DIVERGED:.0%}: no fit of the "
                "others would be representative; lower the step size or leave out the shapes that diverge."
            )
        shapes, owner = np.unique(keys[kept, : len(SHAPE)], axis=0, return_inverse=True)
        members = [kept[owner.reshape(-1) == cell] for cell in range(len(shapes))]
        return Cells(
            shapes=dict(zip(SHAPE, shapes.T, strict=True)),
            squares=tuple(np.square(self.error[runs]) for runs in members),
            limit_error=np.array([np.sqrt(np.mean(np.square(self.limit_error[runs]))) for runs in members]),
            deviations=tuple(self._stacked(runs) for runs in members) if self.deviation else (),
            runs=len(first),
            diverged=diverged,
            duplicates=len(keys) - len(first),
            lost=len(np.unique(keys[:, : len(SHAPE)], axis=0)) - len(shapes),
        )

    def _stacked(self, runs: NDArray[np.intp]) -> Array:
        rows = [self.deviation[run] for run in runs]
        lengths = {len(row) for row in rows}
        if len(lengths) != 1:
            raise ValueError(f"Observations: the deviations of one shape have {sorted(lengths)} entries; expected one.")
        return np.stack(rows)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A named choice of shapes, as a predicate on ``Observations`` that gives a mask over its runs."""

    name: str
    contains: Callable[[Observations], NDArray[np.bool_]]

    def of(self, observations: Observations) -> Observations:
        """Return the runs inside the window.

        Raises:
            ValueError: If there is none.
        """
        chosen = np.broadcast_to(self.contains(observations), observations.error.shape)
        if not chosen.any():
            raise ValueError(f"Window {self.name!r}: none of the {len(chosen)} runs lies inside; widen it.")
        return observations.where(chosen)


ALL_SHAPES = Window(name="all shapes", contains=lambda observations: np.array(True))


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """Distinct shapes in sorted order, each with the runs that it keeps.

    Attributes:
        shapes: The columns of ``SHAPE``, one entry a cell.
        squares: Squared errors of each cell's runs.
        limit_error: Standard error of the limit, one entry a cell.
        deviations: Output minus limit, (repeats, entries) a cell; empty where only errors are known.
        runs: Distinct runs, diverged ones included.
        diverged: Runs left out because they diverged.
        duplicates: Entries left out because the same run was listed before.
        lost: Shapes none of whose runs is left.
    """

    shapes: dict[str, Array]
    squares: tuple[Array, ...]
    limit_error: Array
    deviations: tuple[Array, ...]
    runs: int
    diverged: int
    duplicates: int
    lost: int

    def __len__(self) -> int:
        return len(self.squares)


def log_errors(squares: Sequence[Array], where: str) -> Array:
    r"""Return the logarithm of each cell's root mean square error, corrected for the bias of the logarithm.

    .. math:: y = \tfrac12 \left(\log \bar s + \hat v / 2\right), \qquad \hat v = \frac{\mathrm{var}(s)}{R \bar s^2}

    since E log(mean of R squares s) = log E s - v/2 to first order in the relative variance v of the mean. Bias and
    fluctuation add in E s, so that the mean of squares, not of logarithms, is what a surface describes.

    Raises:
        ValueError: If an error is exactly 0, which has no logarithm.
    """
    zeros = sum(bool((cell == 0).any()) for cell in squares)
    if zeros:
        raise ValueError(f"{where}: {zeros} of {len(squares)} cells hold an error of exactly 0; leave them out.")

    def one(cell: Array) -> float:
        mean, repeats = cell.mean(), len(cell)
        relative = cell.var(ddof=1) / (repeats * mean**2) if repeats > 1 else 0.0
        return float(np.log(mean) + relative / 2) / 2

    return np.array([one(cell) for cell in squares])


def resampled_log_errors(squares: Sequence[Array], where: str, generator: np.random.Generator, resamples: int) -> Array:
    """Draw log errors, (resamples, cells), from the spread of the repeats within each cell.

    Repeats are drawn with replacement in every cell on its own; the drawn log means are centred on the estimate and
    stretched by sqrt(R/(R-1)), since R draws out of R repeats have the variance (R-1)/R of what they imitate.
    """
    centre = log_errors(squares, where)
    draws = np.empty((resamples, len(squares)))
    for cell, found in enumerate(squares):
        R = len(found)
        logs = np.log(found[generator.integers(R, size=(resamples, R))].mean(axis=1)) / 2
        draws[:, cell] = centre[cell] + (logs - logs.mean()) * np.sqrt(R / (R - 1))
    return draws


def why_no_interval(squares: Sequence[Array]) -> str:
    """Say why the repeats give no interval, or return ""."""
    few = sum(len(cell) < 2 for cell in squares)
    if few:
        return f"{few} of {len(squares)} cells have fewer than 2 repeats"
    return "the repeats of every cell are identical" if all(np.ptp(cell) == 0 for cell in squares) else ""


def r_squared(y: Array, residuals: Array) -> float:
    """Return the share of the variance of y explained, 1 where y does not vary."""
    spread = float(np.sum((y - y.mean()) ** 2))
    return 1 - float(residuals @ residuals) / spread if spread > 0 else 1.0


def percentiles(sample: Array, level: float) -> Array:
    """Return the ends of the central interval over the first axis, NaN left out.

    The k-th of B sorted draws stands for the quantile k/(B+1): numpy's default would cut the tails short.
    """
    return np.nanquantile(sample, [(1 - level) / 2, (1 + level) / 2], axis=0, method="weibull")


def why_no_percentiles(resamples: int, level: float) -> str:
    """Say that the resamples do not reach as far out as the level, or return ""."""
    needed = math.ceil(2 / (1 - level) - 1e-9) - 1
    return f"{resamples} resamples give no interval of level {level:g}: {needed} do" if resamples < needed else ""
