"""Errors of finite ResNets against their limits, measured on a grid of shapes with intervals that hold together."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from ...sim.records import Job, Store
from ...sim.sweep import run_jobs
from ..observations import SHAPE, Array, Cells, Observations, log_errors
from ..rate_frame import Outcome, observed

STEPS, SAMPLES = 10, 10
DEPTHS, UNITS = (8, 24, 72), (8, 64, 512, 4096, 16384)
# What a law does not speak of stays at the first of its values.
EMBED_DIMS, ALPHAS = (10, 25, 60), (1.0, 4.0, 16.0)
# Weights of a network's U: larger shapes are left out.
LARGEST = 8_000_000
# Up to here the error is a small one: beyond, it saturates and no law holds.
SMALL = 0.5
REPEATS = (3, 32)
LIMIT = {"nodes": 64, "particles": 1024, "max_runs": 64}


class Shape(NamedTuple):
    """A network's sizes, in the order of ``SHAPE``."""

    depth: int
    units: int
    embed_dim: int
    alpha: float

    def __str__(self) -> str:
        text = f"L = {self.depth}, M = {self.units}, D = {self.embed_dim}"
        return text if self.alpha == 1 else f"{text}, alpha = {self.alpha:g}"

    @property
    def weights(self) -> int:
        """Entries of U."""
        return self.depth * self.units * self.embed_dim


def grid(varied: Iterable[str]) -> list[Shape]:
    """Shapes over L and M, and over D and alpha where they are to vary: one of them far, or both a step.

    A residual scale beyond 1 is left out where alpha sqrt(D / (LM)) is not small.
    """
    embed_dims = EMBED_DIMS if "embed_dim" in varied else EMBED_DIMS[:1]
    alphas = ALPHAS if "alpha" in varied else ALPHAS[:1]
    every = [
        Shape(L, M, D, alpha)
        for (i, D), (j, alpha) in itertools.product(enumerate(embed_dims), enumerate(alphas))
        for L, M in itertools.product(DEPTHS, UNITS)
        if i + j <= 2
    ]
    return [
        shape
        for shape in every
        if shape.weights <= LARGEST
        and (shape.alpha == 1 or shape.alpha * math.sqrt(shape.embed_dim / (shape.depth * shape.units)) <= SMALL)
    ]


@dataclass(frozen=True, kw_only=True)
class Care:
    """How well to measure.

    Attributes:
        weights: Of all repeats of a shape: few repeats of a large one, whose error hardly fluctuates.
        limit_error: Of the limit at the first D; it grows with D, as the errors do that are measured against it.
    """

    weights: int
    limit_error: float

    def repeats(self, shape: Shape) -> int:
        """Initialisations of a shape."""
        return int(np.clip(self.weights // shape.weights, *REPEATS))


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Measured errors, one entry a shape, sorted.

    Attributes:
        observations: The runs.
        cells: The runs by shape.
        error: Root mean square over entries and repeats.
        low: End of an interval for the error.
        high: The other end.
    """

    observations: Observations
    cells: Cells
    error: Array
    low: Array
    high: Array

    @property
    def shapes(self) -> list[Shape]:
        """In the order of the entries."""
        columns = (self.cells.shapes[name] for name in SHAPE)
        return [Shape(int(L), int(M), int(D), float(a)) for L, M, D, a in zip(*columns, strict=True)]


def measure(
    plan: Mapping[Shape, int],
    store: Store,
    *,
    limit_error: float,
    seed: int,
    data_seed: int,
    alpha: float,
    workers: int,
    on_progress: Callable[[int, int, str], object] = lambda done, total, label: None,
) -> Errors:
    """Train networks, solve the limit of each D and residual scale, and compare.

    An interval of the logarithm of the error is the normal one of the mean of the squares, with the larger of the
    shape's own relative variance and the mean of all: few repeats may happen to agree. The limit's error is added at
    both ends (triangle inequality).

    Args:
        plan: Repeats of each shape, at least 2.
        store: Keeps limits and networks for a further call.
        limit_error: Of the limit at the first D, see ``Care``.
        seed: Root of the weights and of the limit's particles.
        data_seed: Of inputs and targets.
        alpha: Probability that some interval misses its error.
        workers: Processes.
        on_progress: Called with (jobs done, all, label).

    Raises:
        SweepError: If a job fails.
        ValueError: If more than a tenth of the runs diverged.
    """
    shared = {"samples": SAMPLES, "steps": STEPS, "record": [STEPS], "data_seed": data_seed}

    def job(function: str, label: str, cost: float, **params: Any) -> Job:
        return Job(f"rescert.sim.rate_jobs:{function}", shared | params, seed, label=label, cost=cost)

    limits = []
    for D, scale in dict.fromkeys((shape.embed_dim, shape.alpha) for shape in plan):
        sizes = {"embed_dim": D, "alpha": scale, "target_error": limit_error * D / EMBED_DIMS[0], **LIMIT}
        limits.append(job("limit", f"limit at D = {D}, alpha = {scale:g}", math.inf, **sizes))
    networks = [
        job("finite", str(shape), shape.weights * count, **shape._asdict(), repeats=count)
        for shape, count in plan.items()
    ]
    records = run_jobs([*limits, *networks], store, workers=workers, on_progress=on_progress)
    outcomes = [Outcome(record=record, arrays=store.arrays(record.key)) for record in records]
    exact = {(o["embed_dim"], o["alpha"]): _limit(o) for o in outcomes[: len(limits)]}
    observations = observed(outcomes[len(limits) :], STEPS, exact)
    cells = observations.cells()
    relative = np.array([squares.var(ddof=1) / squares.mean() ** 2 for squares in cells.squares])
    counts = np.array([len(squares) for squares in cells.squares])
    half = float(stats.norm.isf(alpha / 2 / len(cells))) / 2 * np.sqrt(np.maximum(relative, relative.mean()) / counts)
    error = np.exp(log_errors(cells.squares, "resnet_error"))
    return Errors(
        observations=observations,
        cells=cells,
        error=error,
        low=np.maximum(error * np.exp(-half) - cells.limit_error, 0.0),
        high=error * np.exp(half) + cells.limit_error,
    )


def _limit(outcome: Outcome) -> tuple[Array, float]:
    result, k = outcome.record.result, str(STEPS)
    return outcome.arrays[f"output_{STEPS}"], math.hypot(result["standard_error"][k], result["bias_estimate"][k])
