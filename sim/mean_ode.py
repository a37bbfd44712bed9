"""The Neural Mean ODE with training: the limit of deep ResNets, to a stated error.

The error norm, here and wherever a network is compared with its limit, is the root mean square over the D x N entries
of the output: O(1) for O(1) outputs whatever D and N, and the norm in which the constants of the spec hold.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..theory.mean_ode import Scaling
from . import limit_schemes
from .ensembles import Descent, DType, train_parameters
from .limit_schemes import Trajectory, at_nodes, check_task, own_copy
from .particles import Init, Particles, copies, draw_particles

__all__ = ["Limit", "MeanField", "limit", "rms", "solve_ab2", "solve_fast", "solve_torchdiffeq"]

FIRST_ROUND = 4  # runs whose spread plans the rest
BIAS_POINTS = 2**9


class MeanField:
    r"""The Neural Mean ODE: P particles (u, v) at each node of s stand for the law of the units.

    .. math::
        h' = \alpha E[v \tanh(u \cdot h / D)], \quad
        b' = -\tfrac{\alpha}{D} E[u \operatorname{sech}^2(u \cdot h / D)\, v \cdot b],

    and each particle steps by ``-(eta eta_u / (alpha D)) sum_n h_n sech^2(u . h_n / D) (v . b_n)`` in u and by
    ``-(eta eta_v / alpha) sum_n b_n tanh(u . h_n / D)`` in v. Source: [hidden-width], spec "Equations".
    """

    def __init__(self, particles: Particles, nodes: int, scaling: Scaling) -> None:
        self.U, self.V = (own_copy(at_nodes(weights, nodes, scaling)) for weights in (particles.U, particles.V))
        self.D, self.scale = scaling.embed_dim, scaling.alpha / self.U.shape[1]
        self.step_u, self.step_v = scaling.step_u, scaling.step_v

    def velocity(self, node: int, h: Tensor) -> Tensor:
        """Return h'."""
        return self.scale * (self.V[node].T @ torch.tanh(self.U[node] @ h / self.D))

    def adjoint_velocity(self, node: int, h: Tensor, b: Tensor) -> Tensor:
        """Return b'."""
        gate = 1 - torch.tanh(self.U[node] @ h / self.D) ** 2
        return -self.scale / self.D * (self.U[node].T @ (gate * (self.V[node] @ b)))

    def descend(self, node: int, h: Tensor, b: Tensor) -> None:
        """Take one gradient step in the particles of the node."""
        T = torch.tanh(self.U[node] @ h / self.D)
        Q = (1 - T**2) * (self.V[node] @ b)
        self.U[node] -= self.step_u * (Q @ h.T)
        self.V[node] -= self.step_v * (T @ b.T)


solve_ab2 = partial(limit_schemes.solve_ab2, MeanField)
solve_torchdiffeq = partial(limit_schemes.solve_torchdiffeq, MeanField)


def solve_fast(
    particles: Particles,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    scaling: Scaling,
    steps: int,
    nodes: int,
    record: Collection[int] | None = None,
) -> Trajectory:
    """Train as ``solve_ab2`` does, on the engine of the finite networks and in the dtype of the particles.

    Raises:
        ValueError: For data or sizes out of range, or that do not fit each other.
    """
    x, y, kept = check_task("solve_fast", X, Y, scaling, steps, record)
    U, V = (at_nodes(weights, nodes, scaling).swapaxes(1, 2) for weights in (particles.U, particles.V))
    descent = Descent(
        X=x,
        Y=y,
        steps=steps,
        eta=scaling.eta,
        eta_u=scaling.eta_u,
        eta_v=scaling.eta_v,
        alpha=scaling.alpha,
        record=kept,
        scheme="ab2",
    )
    run = train_parameters(U, V, descent)
    return Trajectory(
        outputs={k: run.outputs.get(k, np.full_like(x, math.nan)) for k in kept},
        losses=run.losses,
        diverged_at=int(np.argmin(np.isfinite(run.losses))) if run.diverged else None,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Limit:
    """The trained limit as a mean over independent runs, with what is known of its error.

    Attributes:
        outputs: Mean of h(1) (D, N) over the runs that did not diverge, for each k recorded; NaN if none is left.
        standard_error: Of that mean, in the RMS norm over entries, for each k; NaN for fewer than two runs.
        bias_estimate: Discretisation error in s, in the same norm, by Richardson extrapolation on tied particles.
        runs: Runs averaged.
        diverged: Runs that diverged: left out, and the limit then does not count as reached.
        nodes: Nodes of s.
        particles: Particles at each node.
        target_error: What was asked for.
        reached: Whether every standard error and bias is within ``target_error`` and no run diverged.
    """

    outputs: Mapping[int, NDArray[np.float64]]
    standard_error: Mapping[int, float]
    bias_estimate: Mapping[int, float]
    runs: int
    diverged: int
    nodes: int
    particles: int
    target_error: float
    reached: bool

    def __str__(self) -> str:
        """State in one line what was reached."""
        worst, bias = (np.max([*errors.values()]) for errors in (self.standard_error, self.bias_estimate))
        return (
            f"limit {'within' if self.reached else 'NOT within'} {self.target_error:.1e}: standard error {worst:.1e}, "
            f"bias about {bias:.1e} (RMS over entries, worst k), {self.runs} runs averaged, {self.diverged} diverged, "
            f"{self.nodes} nodes x {self.particles} particles"
        )


def rms(difference: ArrayLike) -> float:
    """Return the root mean square of the entries: the error norm."""
    return float(np.sqrt(np.mean(np.square(difference))))


def limit(
    X: ArrayLike,
    Y: ArrayLike,
    *,
    scaling: Scaling,
    steps: int,
    rng: np.random.Generator,
    record: Collection[int] | None = None,
    target_error: float = 1e-4,
    init: Init = "symmetric",
    nodes: int = 128,
    particles: int = 2**14,
    max_runs: int = 64,
    threads: int = 1,
    dtype: DType = "float32",
) -> Limit:
    """Average independent AB2 runs until the standard error reaches ``target_error`` or ``max_runs`` are spent.

    Each run draws its own particles at each node: shared sets would leave a noise of order 1/sqrt(P) instead of
    1/sqrt(nodes P). The spread of the first runs plans the rest, so the number of runs, and with it the result, does
    not depend on ``threads``. Source: spec "Solving the limit".

    Args:
        X: Inputs (D, N).
        Y: Targets (D, N).
        scaling: Residual scale, initial scales and step sizes; its depth and units do not matter here.
        steps: Gradient steps.
        rng: Source of the particles; each run has its own child.
        record: Numbers of gradient steps whose outputs are wanted; None wants the last.
        target_error: In the RMS norm over entries.
        init: Law of the units, see ``draw_particles``.
        nodes: Nodes of s.
        particles: Particles at each node.
        max_runs: The budget.
        threads: Runs at a time.
        dtype: Of the particles; float32 costs about 5e-7 where the trajectory is not chaotic.

    Raises:
        ValueError: For data, sizes or scales out of range, or that do not fit each other.
    """
    if not 0 < target_error < math.inf:
        raise ValueError(f"limit: target_error must be positive and finite, got {target_error}.")
    if max_runs < 2 or nodes < 2 or threads < 1:
        raise ValueError(
            "limit: max_runs and nodes must be at least 2 (for a standard error and a bias), threads at least 1, got "
            f"{max_runs}, {nodes} and {threads}."
        )
    x, y, kept = check_task("limit", X, Y, scaling, steps, record)
    draw = partial(draw_particles, embed_dim=len(x), init=init, sigma_u=scaling.sigma_u, sigma_v=scaling.sigma_v)
    few = copies(init) * 2 ** max(BIAS_POINTS.bit_length() - 1, len(x).bit_length())
    bias = _bias(draw(rng, particles=min(few, particles)), x, y, scaling, steps, nodes, kept)

    def run(child: np.random.Generator) -> Trajectory:
        drawn = draw(child, particles=particles, nodes=nodes, dtype=dtype)
        return solve_fast(drawn, x, y, scaling=scaling, steps=steps, nodes=nodes, record=kept)

    children, done, wanted = rng.spawn(max_runs), list[Trajectory](), min(FIRST_ROUND, max_runs)
    with ThreadPoolExecutor(threads) as pool:
        while True:
            done += pool.map(run, children[len(done) : wanted])
            finite = [trajectory.outputs for trajectory in done if trajectory.diverged_at is None]
            error = {k: _standard_error([outputs[k] for outputs in finite]) for k in kept}
            worst = max(error.values())
            if len(finite) < len(done) or worst <= target_error or len(done) == max_runs:
                break
            wanted = min(max(len(done) + 1, math.ceil(len(done) * (worst / target_error) ** 2)), max_runs)
    return Limit(
        outputs={k: np.mean([outputs[k] for outputs in finite] or [x * math.nan], axis=0) for k in kept},
        standard_error=error,
        bias_estimate=bias,
        runs=len(finite),
        diverged=len(done) - len(finite),
        nodes=nodes,
        particles=particles,
        target_error=target_error,
        reached=len(finite) == len(done) and all(size <= target_error for size in (worst, *bias.values())),
    )


def _bias(
    tied: Particles, X: NDArray, Y: NDArray, scaling: Scaling, steps: int, nodes: int, record: list[int]
) -> dict[int, float]:
    fine, coarse = (
        solve_fast(tied, X, Y, scaling=scaling, steps=steps, nodes=count, record=record).outputs
        for count in (nodes, nodes // 2)
    )
    # The error is c / L^2: between L' and L it falls by (L / L')^2.
    return {k: rms(fine[k] - coarse[k]) / ((nodes / (nodes // 2)) ** 2 - 1) for k in record}


def _standard_error(runs: Sequence[NDArray]) -> float:
    return rms(np.std(runs, axis=0, ddof=1)) / math.sqrt(len(runs)) if len(runs) > 1 else math.nan
