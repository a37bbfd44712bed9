r"""Many finite ResNets of two-layer perceptrons trained by full-batch gradient descent, a job a network.

.. math:: H_{l+1} = H_l + \frac{\alpha}{LM} V_l \tanh(U_l^\top H_l / D), \quad l = 0, \dots, L - 1

With the loss :math:`|H_L - Y|^2 / (ND)`, a step of gradient descent on half of it is

.. math::
    B_L &= (H_L - Y) / (ND), \quad
    Q_l = \tanh'(U_l^\top H_l / D) * (V_l^\top B_{l+1}), \quad
    B_l = B_{l+1} + \frac{\alpha}{LMD} U_l Q_l, \\
    U_l &\leftarrow U_l - \frac{\eta \eta_u}{\alpha D} H_l Q_l^\top, \quad
    V_l \leftarrow V_l - \frac{\eta \eta_v}{\alpha} B_{l+1} \tanh(U_l^\top H_l / D)^\top,

the gradient times :math:`\eta \eta_u LM / \alpha^2`. Source: [hidden-width], section 2; Neural Mean ODE as L M grows.
"""

import importlib.util
import math
import operator
from collections import defaultdict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Descent",
    "FiniteJob",
    "FiniteRun",
    "Shape",
    "data",
    "init_parameters",
    "train_ensemble",
    "train_finite",
    "train_parameters",
]

Scheme = Literal["euler", "ab2"]
Engine = Literal["numba", "torch"]
DType = Literal["float32", "float64"]
Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Depth L, units M of each block and embedding dimension D of a ResNet, all at least 1."""

    depth: int
    units: int
    embed_dim: int

    def __post_init__(self) -> None:
        for name in ("depth", "units", "embed_dim"):
            value = operator.index(getattr(self, name))
            if value < 1:
                raise ValueError(f"Shape: {name} must be at least 1, got {value}.")
            object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True, eq=False)
class Descent:
    """What is done to a network, whatever its depth and number of units.

    Attributes:
        X: Inputs, (D, N).
        Y: Targets, (D, N).
        steps: Steps of gradient descent, K.
        eta: Step size.
        eta_u: Step scale of U; None is D.
        eta_v: Step scale of V; None is D.
        alpha: Residual scale, positive.
        record: Steps within 0..K after which to keep the output and the change of the weights; K is added.
        scheme: "euler", the ResNet; "ab2", layers as nodes (l + 1/2)/L of Adams-Bashforth 2, whose bias to the limit
            is O(1/L^2) instead of O(1/L).
    """

    X: Array
    Y: Array
    steps: int
    eta: float = 1.0
    eta_u: float | None = None
    eta_v: float | None = None
    alpha: float = 1.0
    record: Collection[int] = ()
    scheme: Scheme = "euler"

    def __post_init__(self) -> None:
        X, Y = np.asarray(self.X, float), np.asarray(self.Y, float)
        if X.ndim != 2 or X.shape != Y.shape or X.size == 0:
            raise ValueError(f"Descent: X and Y must both be (D, N), not empty, got {X.shape} and {Y.shape}.")
        if not (np.isfinite(X).all() and np.isfinite(Y).all()):
            raise ValueError("Descent: X and Y must be finite.")
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise ValueError(f"Descent: alpha must be positive, got {self.alpha}; a lazy network has a large alpha.")
        if operator.index(self.steps) < 0:
            raise ValueError(f"Descent: steps must be at least 0, got {self.steps}.")
        record = sorted({operator.index(k) for k in (*self.record, self.steps)})
        if not all(0 <= k <= self.steps for k in record):
            raise ValueError(f"Descent: record must lie within 0..steps={self.steps}, got {record[0]}..{record[-1]}.")
        if self.scheme not in ("euler", "ab2"):
            raise ValueError(f"Descent: scheme must be 'euler' or 'ab2', got {self.scheme!r}.")
        for name, value in (("X", X), ("Y", Y), ("record", tuple(record))):
            object.__setattr__(self, name, value)

    @property
    def rates(self) -> tuple[float, float]:
        """(eta eta_u / alpha, eta eta_v / alpha)."""
        D = self.X.shape[0]
        eta_u, eta_v = (D if scale is None else scale for scale in (self.eta_u, self.eta_v))
        return self.eta * eta_u / self.alpha, self.eta * eta_v / self.alpha


@dataclass(frozen=True, kw_only=True, eq=False)
class FiniteJob:
    """One network to train: its shape, where its weights come from, and the descent.

    Attributes:
        shape: Of the network; its D is that of the data.
        descent: What to do.
        rng: Source of the initial weights, of this job alone: then the order of the jobs does not matter.
        sigma_u: Standard deviation of the entries of U; None is sqrt(D).
        sigma_v: Of V.
        dtype: "float32" or "float64". The draws are the same.
    """

    shape: Shape
    descent: Descent
    rng: np.random.Generator
    sigma_u: float | None = None
    sigma_v: float | None = None
    dtype: DType = "float32"

    def __post_init__(self) -> None:
        if self.shape.embed_dim != len(self.descent.X):
            raise ValueError(
                f"FiniteJob: embed_dim={self.shape.embed_dim} does not fit data of shape {self.descent.X.shape}; "
                "X and Y must be (embed_dim, samples)."
            )
        _require_dtype(self.dtype)

    def parameters(self) -> tuple[Array, Array]:
        """Draw the initial weights."""
        return init_parameters(self.shape, self.rng, sigma_u=self.sigma_u, sigma_v=self.sigma_v, dtype=self.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class FiniteRun:
    """A network's training.

    Attributes:
        shape: Of the network.
        outputs: Step to output, (D, N), at the steps recorded.
        losses: |H_L - Y|^2 / (ND) after 0..K steps; NaN after the first value that is not finite.
        update_rms: "U" and "V" to step to root mean square of the change since initialisation.
        engine: What computed it.
        dtype: Of the weights.
    """

    shape: Shape
    outputs: dict[int, NDArray[np.float64]]
    losses: NDArray[np.float64]
    update_rms: dict[str, dict[int, float]]
    engine: str
    dtype: str

    @property
    def diverged(self) -> bool:
        """Whether a loss is not finite: such a run is to be counted, not averaged."""
        return not np.isfinite(self.losses).all()


def data(embed_dim: int, samples: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw inputs and targets with independent standard normal entries.

    The project's fixed data set is ``data(10, 10, np.random.default_rng(2))``.

    Args:
        embed_dim: D.
        samples: N.
        rng: Source of the entries: X first.

    Returns:
        X and Y, both (D, N).
    """
    X, Y = rng.standard_normal((2, embed_dim, samples))
    return X, Y


def init_parameters(
    shape: Shape,
    rng: np.random.Generator,
    *,
    sigma_u: float | None = None,
    sigma_v: float | None = None,
    dtype: DType = "float64",
) -> tuple[Array, Array]:
    """Draw U and V, both (L, D, M), with independent centred normal entries of deviation ``sigma_u``, ``sigma_v``.

    Args:
        shape: Of the network.
        rng: Source: all of U, then all of V, drawn in float64 whatever the dtype.
        sigma_u: None is sqrt(D).
        sigma_v: None is sqrt(D).
        dtype: Of the result.

    Raises:
        ValueError: For another dtype.
    """
    _require_dtype(dtype)
    U, V = (
        (rng.standard_normal((shape.depth, shape.embed_dim, shape.units)) * sigma).astype(dtype, copy=False)
        for sigma in (math.sqrt(shape.embed_dim) if sigma is None else sigma for sigma in (sigma_u, sigma_v))
    )
    return U, V


def train_finite(
    shape: Shape,
    X: Array,
    Y: Array,
    *,
    steps: int,
    rng: np.random.Generator,
    eta: float = 1.0,
    eta_u: float | None = None,
    eta_v: float | None = None,
    alpha: float = 1.0,
    sigma_u: float | None = None,
    sigma_v: float | None = None,
    dtype: DType = "float32",
    record: Collection[int] = (),
    scheme: Scheme = "euler",
    engine: Engine | None = None,
    device: str = "cpu",
) -> FiniteRun:
    """Draw one network and train it. The arguments are those of ``FiniteJob``, ``Descent`` and ``train_ensemble``.

    Raises:
        ValueError: For data that do not fit the shape, alpha <= 0, an unknown option, or CUDA where there is none.
    """
    descent = Descent(
        X=X, Y=Y, steps=steps, eta=eta, eta_u=eta_u, eta_v=eta_v, alpha=alpha, record=record, scheme=scheme
    )
    job = FiniteJob(shape=shape, descent=descent, rng=rng, sigma_u=sigma_u, sigma_v=sigma_v, dtype=dtype)
    return train_ensemble([job], engine=engine, device=device)[0]


def train_parameters(
    U: Array, V: Array, descent: Descent, *, engine: Engine | None = None, device: str = "cpu"
) -> FiniteRun:
    """Train a network from given weights, (L, D, M), in their dtype; they are not changed.

    Args:
        U: Input weights.
        V: Output weights.
        descent: What to do.
        engine: As in ``train_ensemble``.
        device: As in ``train_ensemble``.

    Raises:
        ValueError: If the weights do not fit each other or the data.
    """
    if U.ndim != 3 or U.shape != V.shape or U.shape[1] != len(descent.X) or U.dtype != V.dtype:
        raise ValueError(
            f"train_parameters: U and V must both be (L, D, M) of one dtype with D={len(descent.X)} as in the data, "
            f"got {U.shape} {U.dtype} and {V.shape} {V.dtype}."
        )
    _require_dtype(str(U.dtype))
    return _train(_choose_engine(engine, device), device, [(U, V)], descent)[0]


def train_ensemble(
    jobs: Sequence[FiniteJob], *, threads: int = 1, engine: Engine | None = None, device: str = "cpu"
) -> list[FiniteRun]:
    """Train every job; the result does not depend on ``threads``.

    Args:
        jobs: In the order of the result. Each has a generator of its own.
        threads: Jobs that run at a time, one thread each ("numba"); "torch" trains all jobs of one shape and descent
            as one batch and has threads of its own.
        engine: "numba", or "torch", also for CUDA; None is numba on a CPU if it is installed.
        device: "auto", "cpu" or "cuda[:i]".

    Raises:
        ValueError: If two jobs share a generator, or for an option that cannot be met.
    """
    if threads < 1:
        raise ValueError(f"train_ensemble: threads must be at least 1, got {threads}.")
    if len({id(job.rng) for job in jobs}) < len(jobs):
        raise ValueError("train_ensemble: two jobs share a generator; give each its own, as by sim.rng.generator.")
    chosen = _choose_engine(engine, device)
    batches = defaultdict(list)
    for index, job in enumerate(jobs):
        batches[(id(job.descent), job.shape, job.dtype) if chosen == "torch" else index].append(index)

    def train(batch: list[int]) -> list[FiniteRun]:
        return _train(chosen, device, [jobs[index].parameters() for index in batch], jobs[batch[0]].descent)

    def cost(batch: list[int]) -> int:
        shape, descent = jobs[batch[0]].shape, jobs[batch[0]].descent
        return shape.depth * shape.units * shape.embed_dim * descent.X.shape[1] * descent.steps

    # The dearest first, or the last one to start would run on alone.
    order = sorted(batches.values(), key=cost, reverse=True)
    with ThreadPoolExecutor(threads if chosen == "numba" else 1) as pool:
        trained = list(pool.map(train, order))
    runs = {
        index: run
        for batch, results in zip(order, trained, strict=True)
        for index, run in zip(batch, results, strict=True)
    }
    return [runs[index] for index in range(len(jobs))]


class _Descending(Protocol):
    """R networks in the course of a descent."""

    @property
    def output(self) -> NDArray[np.float64]:
        """Outputs as they are now, (R, D, N)."""

    def advance(self, steps: int) -> NDArray[np.float64]:
        """Take steps; the loss after each, (R, steps), NaN after one that is not finite."""

    def update_rms(self, r: int, U: Array, V: Array) -> tuple[float, float]:
        """Root mean square of the change of network r since its weights were U and V."""


def _train(engine: Engine, device: str, weights: list[tuple[Array, Array]], descent: Descent) -> list[FiniteRun]:
    running = _start(engine, device, weights, descent)
    losses = np.full((len(weights), descent.steps + 1), np.nan)
    losses[:, 0] = np.square(running.output - descent.Y).mean(axis=(1, 2))
    runs = [
        FiniteRun(
            shape=Shape(depth=U.shape[0], units=U.shape[2], embed_dim=U.shape[1]),
            losses=losses[r],
            outputs={},
            update_rms={"U": {}, "V": {}},
            engine=engine,
            dtype=str(U.dtype),
        )
        for r, (U, _) in enumerate(weights)
    ]
    for start, stop in pairwise((0, *descent.record)):
        if np.isfinite(losses[:, start]).any():
            losses[:, start + 1 : stop + 1] = running.advance(stop - start)
        failed = np.logical_or.accumulate(~np.isfinite(losses[:, : stop + 1]), axis=1)
        losses[:, 1 : stop + 1][failed[:, :-1]] = np.nan
        for r in np.flatnonzero(np.isfinite(losses[:, stop])).tolist():
            runs[r].outputs[stop] = running.output[r]
            runs[r].update_rms["U"][stop], runs[r].update_rms["V"][stop] = running.update_rms(r, *weights[r])
    return runs


def _start(engine: Engine, device: str, weights: list[tuple[Array, Array]], descent: Descent) -> _Descending:
    X, Y, midpoint = descent.X, descent.Y, descent.scheme == "ab2"
    if engine == "numba":
        from .perceptron_kernel import CompiledDescent

        ((U, V),) = weights
        return CompiledDescent(U, V, X, Y, alpha=descent.alpha, rates=descent.rates, midpoint=midpoint)
    from .perceptron_batch import BatchedDescent
    from .training import resolve_device

    place = resolve_device(device)
    return BatchedDescent(weights, X, Y, alpha=descent.alpha, rates=descent.rates, midpoint=midpoint, device=place)


def _choose_engine(engine: Engine | None, device: str) -> Engine:
    if engine not in (None, "numba", "torch"):
        raise ValueError(f"engine must be 'numba', 'torch' or None, got {engine!r}.")
    on_cpu = device == "cpu"
    if not on_cpu:
        from .training import resolve_device

        on_cpu = resolve_device(device).type == "cpu"
    compiled = importlib.util.find_spec("numba") is not None
    if engine == "numba" and not (on_cpu and compiled):
        reason = "is not installed" if on_cpu else f"has no kernel for {device!r}"
        raise ValueError(f"engine 'numba' {reason}; take 'torch', or None to have one chosen.")
    return engine or ("numba" if on_cpu and compiled else "torch")


def _require_dtype(dtype: str) -> None:
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {dtype!r}.")
