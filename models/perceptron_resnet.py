"""The D-M-L residual network of the mean-ODE theory: blocks that sum over M units, at residual scale alpha / (L M)."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["PerceptronBlock", "PerceptronResNet"]

Activation = Literal["tanh", "relu", "gelu"]
BlockFactory = Callable[[int], nn.Module]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": F.relu, "gelu": F.gelu}


class PerceptronBlock(nn.Module):
    r"""A perceptron with one hidden layer, summed over its units.

    .. math:: F(h) = \sum_{j=1}^M V_j \, \sigma(\langle U_j, h \rangle / D)

    Shapes: ``h (..., D)`` to ``(..., D)``; parameters ``U, V (D, M)``. Their entries are normal with deviation
    ``sigma_u``, ``sigma_v`` (None is sqrt(D)), drawn from ``generator`` on its device.
    """

    def __init__(
        self,
        units: int,
        embed_dim: int,
        *,
        activation: Activation = "tanh",
        sigma_u: float | None = None,
        sigma_v: float | None = None,
        generator: torch.Generator,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"PerceptronBlock: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}."
            )
        self.activation = ACTIVATIONS[activation]
        self.U, self.V = (
            nn.Parameter(
                (math.sqrt(embed_dim) if sigma is None else sigma)
                * torch.randn(embed_dim, units, generator=generator, device=generator.device, dtype=dtype)
            )
            for sigma in (sigma_u, sigma_v)
        )

    def forward(self, h: Tensor) -> Tensor:
        """Return the sum over units."""
        return self.activation(h @ self.U / len(self.U)) @ self.V.mT


class PerceptronResNet(nn.Module):
    r"""Residual network without embedding, of perceptron blocks or others.

    .. math:: h_{l+1} = h_l + \frac{\alpha}{LM} F_l(h_l), \quad l = 0, \dots, L - 1

    Shapes: ``x (..., D)`` to ``(..., D)``. Source: [hidden-width], section 2.

    Args:
        depth: Number of blocks, L.
        units: Units of each block, M.
        embed_dim: D.
        activation: Of the perceptrons: "tanh", "relu" or "gelu".
        alpha: Residual scale: 1 for maximal local updates, large for lazy training.
        generator: Source of the initial weights.
        block: Makes block l in place of a perceptron: a module (..., D) to (..., D) that sums over its M units.
        dtype: Of perceptron weights; None is torch's default.

    Raises:
        ValueError: For a size below 1, alpha <= 0 or an unknown activation.
    """

    def __init__(
        self,
        depth: int,
        units: int,
        embed_dim: int,
        *,
        activation: Activation = "tanh",
        alpha: float = 1.0,
        generator: torch.Generator,
        block: BlockFactory | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if min(depth, units, embed_dim) < 1:
            raise ValueError(
                f"PerceptronResNet: depth, units and embed_dim must be at least 1, got {depth}, {units}, {embed_dim}."
            )
        if not (math.isfinite(alpha) and alpha > 0):
            raise ValueError(f"PerceptronResNet: alpha must be positive, got {alpha}.")

        def perceptron(_: int) -> nn.Module:
            return PerceptronBlock(units, embed_dim, activation=activation, generator=generator, dtype=dtype)

        self.depth, self.units, self.embed_dim, self.alpha = depth, units, embed_dim, alpha
        self.blocks = nn.ModuleList(map(block or perceptron, range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the state after the last block."""
        if x.shape[-1] != self.embed_dim:
            raise ValueError(f"PerceptronResNet: x must end in embed_dim={self.embed_dim}, got {tuple(x.shape)}.")
        h = x
        for block in self.blocks:
            h = h + self.alpha / (self.depth * self.units) * block(h)
        return h

    def step_groups(
        self, eta: float = 1.0, *, eta_u: float | None = None, eta_v: float | None = None
    ) -> list[dict[str, Any]]:
        r"""Return parameter groups for ``torch.optim.SGD`` with the step sizes of the theory.

        .. math:: \eta \eta_u L M / \alpha^2 \text{ for U}, \quad \eta \eta_v L M / \alpha^2 \text{ for all others}

        They belong to half the mean squared error. ``eta_u`` and ``eta_v`` are D unless given.
        """
        scale = eta * self.depth * self.units / self.alpha**2
        eta_u, eta_v = (self.embed_dim if value is None else value for value in (eta_u, eta_v))
        named = list(self.named_parameters())
        inputs = [p for name, p in named if name.endswith(".U")]
        others = [p for name, p in named if not name.endswith(".U")]
        groups = [{"params": inputs, "lr": scale * eta_u}, {"params": others, "lr": scale * eta_v}]
        return [group for group in groups if group["params"]]
