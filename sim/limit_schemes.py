"""Two schemes that train an ODE whose parameters depend on the layer time s: torchdiffeq, and AB2-midpoint."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torchdiffeq import odeint

from ..theory.mean_ode import Scaling
from .particles import Particles

__all__ = ["Field", "Method", "Trajectory", "at_nodes", "check_task", "own_copy", "solve_ab2", "solve_torchdiffeq"]

Method = Literal["rk4", "midpoint"]
Slope = Callable[[int, Tensor], Tensor]
Sweep = Callable[[Slope, Tensor, int, bool], tuple[Sequence[Tensor], Tensor]]

# The methods of torchdiffeq whose stages lie on a uniform grid, and how many of its cells make up one solver step.
CELLS: dict[Method, int] = {"rk4": 3, "midpoint": 2}


class Field(Protocol):
    """The dynamics at each node of s, parameters included: what a scheme needs to know of them.

    States ``h`` and their gradients ``b`` are (D, N).
    """

    def __init__(self, particles: Particles, nodes: int, scaling: Scaling) -> None: ...

    def velocity(self, node: int, h: Tensor) -> Tensor:
        """Return h'."""
        ...

    def adjoint_velocity(self, node: int, h: Tensor, b: Tensor) -> Tensor:
        """Return b'."""
        ...

    def descend(self, node: int, h: Tensor, b: Tensor) -> None:
        """Take one gradient step in the parameters of the node."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory:
    """One training run.

    Attributes:
        outputs: h(1) (D, N) after k gradient steps, for each k recorded; NaN from the divergence on.
        losses: |h(1) - Y|^2 / (ND) after 0..steps gradient steps; NaN from the divergence on.
        diverged_at: First number of gradient steps whose loss is not finite; None if there is none.
    """

    outputs: Mapping[int, NDArray[np.float64]]
    losses: NDArray[np.float64]
    diverged_at: int | None


def solve_torchdiffeq(
    field: type[Field],
    particles: Particles,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    scaling: Scaling,
    steps: int,
    nodes: int,
    record: Collection[int] | None = None,
    method: Method = "rk4",
) -> Trajectory:
    """Train with torchdiffeq in float64: two solves a gradient step, h forward and b backward.

    Parameters live on the uniform grid of the solver's stages and are looked up by stage index, so the solver never
    sees an interpolated parameter; states between its steps come from cubic interpolation. Steps in s are fixed: a
    run that blows up ends in infinities, which are marked, and not in a failed search for a step.
    Source: spec "Solving the limit".

    Args:
        field: The dynamics.
        particles: One shared set, or one at each node; sets that differ between nodes are not smooth in s, and the
            order of the method is lost.
        X: Inputs (D, N).
        Y: Targets (D, N).
        scaling: Residual scale and step sizes; the limit does not depend on its depth and units.
        steps: Gradient steps.
        nodes: Points of the stage grid: 3n + 1 for n steps of ``rk4`` (the 3/8 rule), 2n + 1 for ``midpoint``.
        record: Numbers of gradient steps whose outputs are kept; None keeps the last.
        method: torchdiffeq's name of the solver.

    Raises:
        ValueError: For data, sizes or names out of range, or that do not fit each other.
    """
    if method not in CELLS:
        raise ValueError(f"solve_torchdiffeq: method must be one of {', '.join(CELLS)}, got {method!r}.")
    if nodes < 2 or (nodes - 1) % CELLS[method]:
        raise ValueError(
            f"solve_torchdiffeq: nodes of {method!r} must be {CELLS[method]}n + 1 with n >= 1, got {nodes}."
        )
    x, y, kept = check_task("solve_torchdiffeq", X, Y, scaling, steps, record)
    return _train(field(particles, nodes, scaling), partial(_odeint_sweep, method), x, y, steps, nodes, kept)


def solve_ab2(
    field: type[Field],
    particles: Particles,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    scaling: Scaling,
    steps: int,
    nodes: int,
    record: Collection[int] | None = None,
) -> Trajectory:
    r"""Train by the AB2-midpoint scheme in float64: one evaluation a node as in a ResNet, bias O(1 / L^2).

    .. math::
        h_0 = x + F_0(x) / (2L), \quad h_1 = h_0 + F_0 / L, \quad
        h_{l+1} = h_l + (\tfrac32 F_l - \tfrac12 F_{l-1}) / L, \quad h(1) = x + \tfrac1L \sum_l F_l

    with F_l = h' at the node s_l = (l + 1/2) / L and, but for the first half step, at h_l. The adjoint is the mirror
    image, updates happen at the same nodes. Particle sets may be shared or independent at each node. Arguments and
    source as in ``solve_torchdiffeq``.

    Raises:
        ValueError: For data or sizes out of range, or that do not fit each other.
    """
    if nodes < 1:
        raise ValueError(f"solve_ab2: nodes must be at least 1, got {nodes}.")
    x, y, kept = check_task("solve_ab2", X, Y, scaling, steps, record)
    return _train(field(particles, nodes, scaling), _ab2_sweep, x, y, steps, nodes, kept)


def at_nodes(weights: NDArray, nodes: int, scaling: Scaling) -> NDArray:
    """Return weights that are shared (P, D) or given for each node as (nodes, P, D), shared ones as a view.

    Raises:
        ValueError: If they are given for another number of nodes or another D.
    """
    if weights.ndim == 3 and len(weights) != nodes:
        raise ValueError(f"at_nodes: particles are given for {len(weights)} nodes, expected one shared set or {nodes}.")
    if weights.shape[-1] != scaling.embed_dim:
        raise ValueError(
            f"at_nodes: particles have D={weights.shape[-1]}, expected {scaling.embed_dim} of the scaling."
        )
    return np.broadcast_to(weights, (nodes, *weights.shape[-2:]))


def own_copy(weights: NDArray) -> Tensor:
    """Return a float64 copy to train."""
    return torch.from_numpy(np.array(weights, dtype=np.float64))


def check_task(
    where: str, X: ArrayLike, Y: ArrayLike, scaling: Scaling, steps: int, record: Collection[int] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], list[int]]:
    """Return X and Y in float64 and the sorted numbers of steps to record.

    Raises:
        ValueError: If they are out of range or do not fit each other.
    """
    x, y = np.array(X, dtype=np.float64), np.array(Y, dtype=np.float64)
    if x.ndim != 2 or x.shape != y.shape or 0 in x.shape:
        raise ValueError(f"{where}: X and Y must be of one shape (D, N), D and N at least 1, got {x.shape}, {y.shape}.")
    if len(x) != scaling.embed_dim:
        raise ValueError(f"{where}: X must have the D={scaling.embed_dim} rows of the scaling, got {len(x)}.")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError(f"{where}: X and Y must be finite, got {np.isnan(x + y).sum()} NaN among their entries.")
    kept = sorted({steps} if record is None else set(record))
    if steps < 0 or not kept or kept[0] < 0 or kept[-1] > steps:
        raise ValueError(f"{where}: record must name numbers of steps within 0..steps={steps}, got {kept}.")
    return x, y, kept


@torch.no_grad()
def _train(field: Field, sweep: Sweep, X: NDArray, Y: NDArray, steps: int, nodes: int, record: list[int]) -> Trajectory:
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    outputs = {k: np.full_like(X, math.nan) for k in record}
    losses = np.full(steps + 1, math.nan)
    for k in range(steps + 1):
        H, end = sweep(field.velocity, x, nodes, False)
        loss = float(torch.mean((end - y) ** 2))
        if not math.isfinite(loss):
            return Trajectory(outputs=outputs, losses=losses, diverged_at=k)
        losses[k] = loss
        if k in outputs:
            outputs[k] = end.numpy().copy()
        if k < steps:
            B, _ = sweep(partial(_adjoint_slope, field, H), (end - y) / y.numel(), nodes, True)
            for node in range(nodes):
                field.descend(node, H[node], B[node])
    return Trajectory(outputs=outputs, losses=losses, diverged_at=None)


def _adjoint_slope(field: Field, H: Sequence[Tensor], node: int, b: Tensor) -> Tensor:
    return field.adjoint_velocity(node, H[node], b)


# A sweep integrates state' = slope(node, state) from s = 0 to 1, or from 1 to 0, and returns the states at the nodes in
# the order of s, and the state at the end.
def _ab2_sweep(slope: Slope, start: Tensor, nodes: int, backward: bool) -> tuple[Sequence[Tensor], Tensor]:
    step = (-1 if backward else 1) / nodes
    order = range(nodes)[::-1] if backward else range(nodes)
    state = start + step / 2 * slope(order[0], start)
    states, total, previous = [], torch.zeros_like(start), None
    for node in order:
        states.append(state)
        F = slope(node, state)
        state = state + step * (F if previous is None else 1.5 * F - 0.5 * previous)
        total += F
        previous = F
    return states[::-1] if backward else states, start + step * total


def _odeint_sweep(
    method: Method, slope: Slope, start: Tensor, nodes: int, backward: bool
) -> tuple[Sequence[Tensor], Tensor]:
    grid = torch.linspace(0, 1, nodes, dtype=start.dtype)
    states = odeint(
        lambda s, state: slope(round(float(s) * (nodes - 1)), state),
        start,
        grid.flip(0) if backward else grid,
        method=method,
        options={"grid_constructor": lambda _f, _y0, t: t[:: CELLS[method]], "interp": "cubic"},
    )
    return states.flip(0) if backward else states, states[-1]
