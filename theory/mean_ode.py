r"""What the hidden-width theory speaks about: the finite D-M-L residual network, its limit, and how both are scaled.

A network of L blocks of M units carries a state h in R^D; a unit holds u, v in R^D, and p = <u, h> / D. On N data
points (columns of H; B is the gradient of half the loss |H_L - Y|^2 / (ND)):

.. math::
    H_{l+1} &= H_l + \tfrac{\alpha}{LM} V_l\,\sigma(P_l), \quad P_l = U_l^\top H_l / D, \quad H_0 = X \\
    B_l &= B_{l+1} + \tfrac{\alpha}{LMD} U_l Q_l, \quad Q_l = \sigma'(P_l) \odot V_l^\top B_{l+1}, \quad
    B_L = (H_L - Y) / (ND) \\
    U_l &\leftarrow U_l - \tfrac{\eta\eta_u}{\alpha D} H_l Q_l^\top, \quad
    V_l \leftarrow V_l - \tfrac{\eta\eta_v}{\alpha} B_{l+1}\,\sigma(P_l)^\top

The update is a gradient step on half the loss, of size :math:`\eta\eta_u LM/\alpha^2` for U and likewise for V. The
loss itself, or 1 / alpha for 1 / alpha^2, is a different dynamics. As L grows, for every M, blocks become the time s
in [0, 1] and units become particles (U, V)(s):

.. math::
    h' = \alpha E[V \sigma(\langle U, h\rangle / D)], \quad
    b' = -\tfrac{\alpha}{D} E[U \sigma'(\langle U, h\rangle / D) \langle V, b\rangle],
    \quad h(0) = x, \ b(1) = (h(1) - y) / (ND),

the Neural Mean ODE, with the same update at each (s, particle), summed over the data. For alpha without bound, and
displacements dU, dV of the particles multiplied by alpha, it becomes the Neural Tangent ODE, linear in (dU, dV).

Each is stated below for one unit, one data point and one coordinate. Source: [hidden-width]; embeddings: [all-shapes].
"""

import math
import operator
from dataclasses import dataclass
from typing import Self

import sympy
from sympy import Expr, sqrt

from .symbols import D, L, N_data, S_scale, alpha, eta, eta_u, eta_v, sigma_u, sigma_v, unfold
from .symbols import M_units as M

sigma = sympy.Function("sigma", real=True)
"""The activation."""

h, b, u, v = sympy.symbols("h b u v", real=True)
"""A coordinate of the state, of its gradient, and of a unit's input and output weights."""
p, g = sympy.symbols("p g", real=True)
"""Pre-activation <u, h> / D and <v, b>."""
u_0, v_0, p_0, g_0 = sympy.symbols("u_0 v_0 p_0 g_0", real=True)
"""The same before training (p_0 and g_0 at today's h and b)."""
du, dv, dp, dg = sympy.symbols("du dv dp dg", real=True)
"""alpha times the displacement of u and v; dp = <du, h> / D and dg = <dv, b>."""

# What multiplies a block's sum over units, forward and backward, and what multiplies an update's sum over data points.
RESIDUAL = alpha / (L * M)
RESIDUAL_BACKWARD = RESIDUAL / D
LOSS_GRADIENT = 1 / (N_data * D)
STEP_U = eta * eta_u / (alpha * D)
STEP_V = eta * eta_v / alpha
# The same updates as gradient steps on half the loss.
GRADIENT_STEP_U = eta * eta_u * L * M / alpha**2
GRADIENT_STEP_V = eta * eta_v * L * M / alpha**2

# The Neural Mean ODE: h' and b' are expectations over particles, the updates sums over data points.
VELOCITY = alpha * v * sigma(p)
ADJOINT_VELOCITY = -alpha / D * u * sigma(p).diff(p) * g
DELTA_U = -STEP_U * h * sigma(p).diff(p) * g
DELTA_V = -STEP_V * b * sigma(p)

# The Neural Tangent ODE, where E[v_0 sigma(p_0)] = 0.
TANGENT_VELOCITY = dv * sigma(p_0) + v_0 * sigma(p_0).diff(p_0) * dp
TANGENT_ADJOINT_VELOCITY = (
    -(u_0 * (sigma(p_0).diff(p_0) * dg + sigma(p_0).diff(p_0, 2) * dp * g_0) + du * sigma(p_0).diff(p_0) * g_0) / D
)
TANGENT_DELTA_U = -eta * eta_u / D * h * sigma(p_0).diff(p_0) * g_0
TANGENT_DELTA_V = -eta * eta_v * b * sigma(p_0)

CRITICAL_SIGMA_V = sqrt(D) / alpha
"""The standard deviation of V at which S = 1: only there do the initial residual and the updates both count."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    r"""The sizes of a network and every constant of its initialisation and training.

    alpha and sigma_v act through their product: :math:`(\alpha, \sigma_v, \eta_u, \eta_v)` and
    :math:`(1, \alpha\sigma_v, \eta_u/\alpha^2, \eta_v)` are the same dynamics, of alpha V for V.

    Attributes:
        depth: L.
        units: M, hidden units a block.
        embed_dim: D.
        alpha: Residual scale.
        eta: Step size.
        eta_u: Step scale of U.
        eta_v: Step scale of V.
        sigma_u: Standard deviation of the entries of U at initialisation.
        sigma_v: Standard deviation of the entries of V at initialisation; 0 starts from the identity.
    """

    depth: int
    units: int
    embed_dim: int
    alpha: float = 1.0
    eta: float = 1.0
    eta_u: float
    eta_v: float
    sigma_u: float
    sigma_v: float

    def __post_init__(self) -> None:
        require_shape("Scaling", depth=self.depth, units=self.units, embed_dim=self.embed_dim)
        if not 0 < self.alpha < math.inf:
            raise ValueError(f"Scaling: alpha must be positive and finite, got {self.alpha}.")
        for name in ("eta", "eta_u", "eta_v", "sigma_u", "sigma_v"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"Scaling: {name} must be at least 0 and finite, got {getattr(self, name)}.")

    @classmethod
    def critical(cls, *, depth: int, units: int, embed_dim: int, alpha: float = 1.0, eta: float = 1.0) -> Self:
        """The authors' scaling: U and V entries of std sqrt(D), step scales D. alpha = 1 is critical, alpha >> 1 lazy.

        Source: [hidden-width], figure of the rates.
        """
        require_shape("Scaling.critical", depth=depth, units=units, embed_dim=embed_dim)
        step, std = float(embed_dim), math.sqrt(embed_dim)
        shape = {"depth": depth, "units": units, "embed_dim": embed_dim}
        return cls(**shape, alpha=alpha, eta=eta, eta_u=step, eta_v=step, sigma_u=std, sigma_v=std)

    @classmethod
    def initial_scale(cls, *, depth: int, units: int, embed_dim: int, S: float, eta: float = 1.0) -> Self:
        r"""The authors' phase diagram: alpha = 1, sigma_v = S sqrt(D), eta_u = D min(1, D / sigma_v^2), eta_v = D.

        From S = 1 on this is ``critical`` with alpha = S. Source: [hidden-width], phase diagram.
        """
        require_shape("Scaling.initial_scale", depth=depth, units=units, embed_dim=embed_dim)
        if not 0 <= S < math.inf:
            raise ValueError(f"Scaling.initial_scale: S must be at least 0 and finite, got {S}.")
        step, std = float(embed_dim), math.sqrt(embed_dim)
        shape = {"depth": depth, "units": units, "embed_dim": embed_dim}
        return cls(**shape, eta=eta, eta_u=step / max(1.0, S) ** 2, eta_v=step, sigma_u=std, sigma_v=S * std)

    @property
    def residual(self) -> float:
        """What multiplies V_l sigma(P_l): alpha / (LM)."""
        return self._value(RESIDUAL)

    @property
    def residual_backward(self) -> float:
        """What multiplies U_l Q_l: alpha / (LMD)."""
        return self._value(RESIDUAL_BACKWARD)

    @property
    def step_u(self) -> float:
        """What multiplies H_l Q_l': eta eta_u / (alpha D)."""
        return self._value(STEP_U)

    @property
    def step_v(self) -> float:
        """What multiplies B_{l+1} sigma(P_l)': eta eta_v / alpha."""
        return self._value(STEP_V)

    @property
    def gradient_step_u(self) -> float:
        """Step size of U on half the loss, for autograd: eta eta_u LM / alpha^2."""
        return self._value(GRADIENT_STEP_U)

    @property
    def gradient_step_v(self) -> float:
        """Step size of V on half the loss, for autograd: eta eta_v LM / alpha^2."""
        return self._value(GRADIENT_STEP_V)

    @property
    def S(self) -> float:
        """Initial residual scale over the critical one: alpha sigma_v / sqrt(D)."""
        return self._value(S_scale)

    def _value(self, constant: Expr) -> float:
        values = {L: self.depth, M: self.units, D: self.embed_dim, alpha: self.alpha, eta: self.eta}
        values |= {eta_u: self.eta_u, eta_v: self.eta_v, sigma_u: self.sigma_u, sigma_v: self.sigma_v}
        return float(unfold(constant).subs(values))


@dataclass(frozen=True, kw_only=True)
class Embedding:
    r"""Random, fixed ends of a network: h_0 = W_E x and y = W_U' h / D. Source: [all-shapes].

    Between the ends it is the dynamics above at the critical scaling with :math:`b = B/D`: half the loss
    :math:`|y - Y|^2 / (N d_{in})` has the gradient :math:`b(1) = W_U (y - Y) / (N d_{in} D)` in h(1).

    Attributes:
        input_dim: Entries of x.
        output_dim: Entries of y.
    """

    input_dim: int
    output_dim: int

    def __post_init__(self) -> None:
        require_shape("Embedding", input_dim=self.input_dim, output_dim=self.output_dim)

    @property
    def embed_std(self) -> float:
        """Standard deviation of the entries of W_E: the state starts with entries of size 1."""
        return 1 / math.sqrt(self.input_dim)

    @property
    def unembed_std(self) -> float:
        """Standard deviation of the entries of W_U."""
        return math.sqrt(self.output_dim)


def require_shape(where: str, **sizes: int) -> None:
    """Refuse sizes that are not integers of at least 1.

    Args:
        where: Name of the caller, for the message.
        sizes: The sizes by name.

    Raises:
        TypeError: If one is not an integer.
        ValueError: If one is below 1.
    """
    for name, size in sizes.items():
        try:
            operator.index(size)
        except TypeError:
            raise TypeError(f"{where}: {name} must be an integer, got {size!r}.") from None
        if size < 1:
            raise ValueError(f"{where}: {name} must be at least 1, got {size}.")
