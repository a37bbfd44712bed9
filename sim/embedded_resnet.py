r"""Many ResNets of one shape between linear ends, trained at once with torch: states and weights stay in reach.

.. math::
    H_0 = W_E X, \quad y = W_U^\top H_L / D, \quad B_L = W_U (y - Y) / (N d_{in} D)

and, in between, the ResNet of ``ensembles`` at alpha = eta = 1 with step scales D. W_E = 1 and W_U = D, the default,
is the ResNet without ends. Source: [all-shapes]; spec of the hidden width, "With embedding".
"""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

__all__ = ["EmbeddedDescent"]


class EmbeddedDescent:
    """Gradient descent of R networks whose ends are random and fixed, in the dtype of the weights.

    Args:
        U: Input weights (L, R, M, D), copied.
        V: Output weights, alike.
        X: Inputs (d_in, N).
        Y: Targets, alike.
        embed: W_E (D, d_in); None is the identity.
        unembed: W_U (D, d_in); None is D times the identity.

    Raises:
        ValueError: If the shapes do not fit each other.
    """

    def __init__(
        self,
        U: ArrayLike,
        V: ArrayLike,
        X: ArrayLike,
        Y: ArrayLike,
        *,
        embed: ArrayLike | None = None,
        unembed: ArrayLike | None = None,
    ) -> None:
        self.U, self.V = (torch.from_numpy(np.array(weights)) for weights in (U, V))
        self.L, self.R, self.M, self.D = self.U.shape
        X, self.Y = (torch.tensor(np.asarray(A), dtype=self.U.dtype) for A in (X, Y))
        eye = np.eye(self.D)
        ends = (eye if embed is None else embed, self.D * eye if unembed is None else unembed)
        W_E, self.W_U = (torch.tensor(np.asarray(W), dtype=self.U.dtype) for W in ends)
        if (
            self.V.shape != self.U.shape
            or X.shape != self.Y.shape
            or not W_E.shape
            == self.W_U.shape
            == (
                self.D,
                len(X),
            )
        ):
            raise ValueError(
                f"EmbeddedDescent: U {tuple(self.U.shape)}, V {tuple(self.V.shape)}, X {tuple(X.shape)}, "
                f"Y {tuple(self.Y.shape)} and ends {tuple(W_E.shape)}, {tuple(self.W_U.shape)} do not fit."
            )
        self.start = (W_E @ X).expand(self.R, -1, -1)

    @property
    def state(self) -> Tensor:
        """H_L as it is now, (R, D, N)."""
        return self._forward()[-1]

    def _forward(self) -> list[Tensor]:
        H = [self.start]
        for U, V in zip(self.U, self.V, strict=True):
            H.append(torch.baddbmm(H[-1], V.mT, torch.tanh(U @ H[-1] / self.D), alpha=1 / (self.L * self.M)))
        return H

    def advance(self, steps: int) -> None:
        """Take gradient steps in U and V."""
        for _ in range(steps):
            H = self._forward()
            B = self.W_U @ (self.W_U.mT @ H[-1] / self.D - self.Y) / (self.Y.numel() * self.D)
            for layer in reversed(range(self.L)):
                T = torch.tanh(self.U[layer] @ H[layer] / self.D)
                Q = (1 - T**2) * (self.V[layer] @ B)
                G = self.U[layer].mT @ Q
                # Steps eta eta_u / D = 1 and eta eta_v = D.
                self.U[layer] -= Q @ H[layer].mT
                self.V[layer] -= self.D * (T @ B.mT)
                B = B + G / (self.L * self.M * self.D)
