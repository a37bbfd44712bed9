"""The Neural Tangent ODE: what the Neural Mean ODE becomes in the lazy regime, as alpha grows."""

from functools import partial

import torch
from torch import Tensor

from ..theory.mean_ode import Scaling
from . import limit_schemes
from .limit_schemes import at_nodes, own_copy
from .particles import Particles

__all__ = ["TangentField", "solve_ab2", "solve_torchdiffeq"]


class TangentField:
    r"""The linearisation at the initial particles (u, v); (p, q) is alpha times their displacement.

    .. math::
        h' &= E[q\, \sigma + v\, \sigma' (p \cdot h) / D], \\
        b' &= -\tfrac1D E[u (\sigma'\, q \cdot b + \sigma'' (p \cdot h) (v \cdot b) / D) + p\, \sigma'\, v \cdot b],

    sigma = tanh and its derivatives at u . h / D; p steps by ``-(eta eta_u / D) sum_n h_n sigma' (v . b_n)`` and q by
    ``-eta eta_v sum_n b_n sigma``. Valid for initial laws with E[v tanh(u . h / D)] = 0 for every h, as all of
    ``draw_particles`` are. It does not depend on the alpha of the scaling. Source: [hidden-width], spec "Equations".
    """

    def __init__(self, particles: Particles, nodes: int, scaling: Scaling) -> None:
        self.U, self.V = (own_copy(at_nodes(weights, nodes, scaling)) for weights in (particles.U, particles.V))
        self.dU, self.dV = torch.zeros_like(self.U), torch.zeros_like(self.V)
        _, self.P, self.D = self.U.shape
        # A step of the displacement times alpha: the alpha of the scaling cancels.
        self.step_u, self.step_v = scaling.alpha * scaling.step_u, scaling.alpha * scaling.step_v

    def velocity(self, node: int, h: Tensor) -> Tensor:
        """Return h'."""
        T = torch.tanh(self.U[node] @ h / self.D)
        moved = (1 - T**2) * (self.dU[node] @ h) / self.D
        return (self.dV[node].T @ T + self.V[node].T @ moved) / self.P

    def adjoint_velocity(self, node: int, h: Tensor, b: Tensor) -> Tensor:
        """Return b'."""
        T = torch.tanh(self.U[node] @ h / self.D)
        gate = 1 - T**2
        Vb = self.V[node] @ b
        bent = -2 * T * gate * (self.dU[node] @ h) / self.D * Vb
        total = self.U[node].T @ (gate * (self.dV[node] @ b) + bent) + self.dU[node].T @ (gate * Vb)
        return -total / (self.D * self.P)

    def descend(self, node: int, h: Tensor, b: Tensor) -> None:
        """Take one gradient step in the displacements of the node."""
        T = torch.tanh(self.U[node] @ h / self.D)
        self.dU[node] -= self.step_u * (((1 - T**2) * (self.V[node] @ b)) @ h.T)
        self.dV[node] -= self.step_v * (T @ b.T)


solve_ab2 = partial(limit_schemes.solve_ab2, TangentField)
solve_torchdiffeq = partial(limit_schemes.solve_torchdiffeq, TangentField)
