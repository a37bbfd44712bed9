r"""The phase diagram of two-layer-perceptron blocks: what a network of some shape and initial scale does in training.

One number decides, the initial residual scale over the critical one :math:`S = \alpha\sigma_v/\sqrt{D}`, against 1
and against :math:`\sqrt{LM/D}`, where the fluctuation of the output, :math:`S \sqrt{D/(LM)}`, is of order 1. Step
scales are those of ``Scaling.initial_scale``, which keep the first updates of order 1. Source: [hidden-width].
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from sympy import Min, Rational, sqrt

from .mean_ode import require_shape
from .symbols import D, L, S_scale
from .symbols import M_units as M

BREAKDOWN = sqrt(L * M / D)
"""S of an output fluctuation of order 1. Measured: not sharp, 3 to 5 times later or not at all in range (spec)."""

OUTPUT_STD = ((Rational(1, 20) + Rational(3, 10) * S_scale) * sqrt(D) + Rational(2, 5)) / sqrt(L * M)
"""Standard deviation of an output entry over initialisations. Drawn by the author, not derived; for k = 10 steps."""
CHANGE_OF_U = Min(3, 3 / S_scale)
"""Root mean square change of an entry of U, not relative to it. Drawn by the author, not derived; for k = 50 steps."""

ORDER_ONE = math.sqrt(10)
"""The theory speaks of orders and leaves constants open: within half a decade of 1, S counts as 1."""


class Phase(StrEnum):
    """What becomes of training as the network grows."""

    MAXIMAL = "maximal local updates"
    """S of order 1: updates of order 1 in every unit, and an initial residual of order 1."""
    LAZY = "lazy"
    """1 << S << sqrt(LM/D): units move by 1/S of their size; the limit is the Neural Tangent ODE."""
    SMALL_RESIDUAL = "small residual"
    """S << 1: updates are maximal as well, but the initial residual is not seen: the limit is that of V = 0."""
    UNSTABLE = "unstable"
    """S >= sqrt(LM/D): the output fluctuates by its own size, and there is no limit."""


@dataclass(frozen=True, kw_only=True)
class Regime:
    """A point of the phase diagram.

    Attributes:
        phase: Its phase.
        S: Initial residual scale over the critical one.
        breakdown: The S from which the network counts as unstable, sqrt(LM/D).
        output_std: Standard deviation of an output entry expected at k = 10 (``OUTPUT_STD``).
        rms_change_of_U: Root mean square change of an entry of U expected at k = 50 (``CHANGE_OF_U``).
    """

    phase: Phase
    S: float
    breakdown: float
    output_std: float
    rms_change_of_U: float


def regime(depth: int, units: int, embed_dim: int, sigma_v: float, alpha: float = 1.0) -> Regime:
    """Return the phase of a network and the magnitudes expected there.

    Args:
        depth: L.
        units: M.
        embed_dim: D.
        sigma_v: Standard deviation of the entries of V at initialisation; 0 starts from the identity.
        alpha: Residual scale.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is below 1, sigma_v negative or alpha not positive.
    """
    require_shape("regime", depth=depth, units=units, embed_dim=embed_dim)
    if not 0 <= sigma_v < math.inf:
        raise ValueError(f"regime: sigma_v must be at least 0 and finite, got {sigma_v}.")
    if not 0 < alpha < math.inf:
        raise ValueError(f"regime: alpha must be positive and finite, got {alpha}.")
    S = alpha * sigma_v / math.sqrt(embed_dim)
    shape = {L: depth, M: units, D: embed_dim}
    breakdown = float(BREAKDOWN.subs(shape))
    return Regime(
        phase=_phase(S, breakdown),
        S=S,
        breakdown=breakdown,
        output_std=float(OUTPUT_STD.subs({**shape, S_scale: S})),
        rms_change_of_U=float(CHANGE_OF_U.subs(S_scale, S)) if S else 3.0,
    )


def _phase(scale: float, breakdown: float) -> Phase:
    if scale >= breakdown:
        return Phase.UNSTABLE
    if scale > ORDER_ONE:
        return Phase.LAZY
    return Phase.MAXIMAL if scale >= 1 / ORDER_ONE else Phase.SMALL_RESIDUAL
