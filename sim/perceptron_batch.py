"""The descent of many ResNets of one shape as batched torch products: any device, and the cross-check of the kernel."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["BatchedDescent"]


class BatchedDescent:
    """Gradient descent of R networks at once, by the equations of ``sim.ensembles``.

    Shapes: weights ``(L, R, D, M)`` in the dtype given; states ``(R, D, N)`` and adjoints in float64.

    Args:
        weights: (U, V) of each network, (L, D, M), copied.
        X: Inputs, (D, N).
        Y: Targets, (D, N).
        alpha: Residual scale.
        rates: (eta eta_u / alpha, eta eta_v / alpha).
        midpoint: Layers by Adams-Bashforth 2 at midpoints instead of Euler.
        device: Where to compute.
    """

    def __init__(
        self,
        weights: list[tuple[NDArray, NDArray]],
        X: NDArray,
        Y: NDArray,
        *,
        alpha: float,
        rates: tuple[float, float],
        midpoint: bool,
        device: torch.device,
    ) -> None:
        self._U, self._V = (
            torch.from_numpy(np.stack(group, axis=1)).to(device) for group in zip(*weights, strict=True)
        )
        L, R, _, M = self._U.shape
        self._x, self._y = (torch.tensor(A, dtype=torch.float64, device=device).expand(R, -1, -1) for A in (X, Y))
        self._ds, self._rates, self._midpoint = alpha / (L * M), rates, midpoint
        self._forward()

    @property
    def output(self) -> NDArray[np.float64]:
        """Outputs as they are now, (R, D, N)."""
        return self._output.cpu().numpy().copy()

    def advance(self, steps: int) -> NDArray[np.float64]:
        """Take ``steps`` steps; the loss after each, (R, steps), NaN after one that is not finite."""
        losses = torch.empty((len(self._x), steps), dtype=torch.float64, device=self._x.device)
        for k in range(steps):
            self._backward()
            self._forward()
            losses[:, k] = (self._output - self._y).square().mean(dim=(1, 2))
        return losses.cpu().numpy()

    def update_rms(self, r: int, U: NDArray, V: NDArray) -> tuple[float, float]:
        """Root mean square of the change of the weights of network r since they were ``U`` and ``V``."""
        changes = (now[:, r].cpu().numpy() - before for now, before in ((self._U, U), (self._V, V)))
        rms_u, rms_v = (math.sqrt(np.square(change, dtype=float).mean()) for change in changes)
        return rms_u, rms_v

    def _activations(self, layer: int, h: Tensor) -> Tensor:
        return torch.tanh(self._U[layer].mT @ (h / h.shape[1]).to(self._U.dtype))

    def _forward(self) -> None:
        L, ds = len(self._U), self._ds
        self._states: list[Tensor] = []
        h = output = self._x
        if self._midpoint:
            h = h + ds / 2 * (self._V[0] @ self._activations(0, h))
        F_before = None
        for layer in range(L):
            self._states.append(h)
            F = (self._V[layer] @ self._activations(layer, h)).double()
            output = output + ds * F
            h = h + ds * (F if F_before is None else 1.5 * F - 0.5 * F_before)
            F_before = F if self._midpoint else None
        self._output = output

    def _backward(self) -> None:
        L, D, ds = len(self._U), self._x.shape[1], self._ds / self._x.shape[1]
        b = (self._output - self._y) / self._y[0].numel()
        if self._midpoint:
            G, *_ = self._adjoint_field(L - 1, b)
            b = b + ds / 2 * G
        G_before = None
        for layer in reversed(range(L)):
            G, Q, T = self._adjoint_field(layer, b)
            h_step, b_step = -self._rates[0] / D * self._states[layer], -self._rates[1] * b
            self._U[layer] += h_step.to(Q.dtype) @ Q.mT
            self._V[layer] += b_step.to(T.dtype) @ T.mT
            b = b + ds * (G if G_before is None else 1.5 * G - 0.5 * G_before)
            G_before = G if self._midpoint else None

    def _adjoint_field(self, layer: int, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """U_l Q, Q and T at a layer."""
        T = self._activations(layer, self._states[layer])
        Q = (1 - T.square()) * (self._V[layer].mT @ b.to(T.dtype))
        return (self._U[layer] @ Q).double(), Q, T
