r"""Theorem 2 for a fixed step: when a step along the training direction lowers the held-out loss.

Insert a zero-output block and let R be the held-out loss as a function of its parameters, with gradient g_K at zero. If
R is L-smooth on the segment from 0 to - eta mu_M,

.. math:: R(-\eta\mu_M) \le R(0) - \eta Y, \qquad Y = \mu_M^\top g_K - \tfrac{\eta L}{2} |\mu_M|^2,

with equality for losses that are quadratic with curvature L, so that P(Y <= 0) is the least upper bound on the
probability of no decrease. The step is fixed before the held-out data are seen: alignment alone (mu_M . g_K > 0) then
does not suffice. Source: [width], Theorem 2. The paper's optimisation and generalisation events, training after the
insertion and fresh samples, are not part of these claims.
"""

from sympy import Max

from . import expansion_proofs as proofs
from .alignment import IID
from .claims import Claim, Kind, Quantity, Source
from .symbols import L_smooth, M, eta, gain_mean, gain_variance, mu2, tr_Sigma

SMOOTH = "the held-out loss is L-smooth on the segment of the step"
FIXED = "the step size eta does not depend on the held-out data"
VARYING = "Sigma is not zero"

NO_DECREASE = Quantity(
    id="no_decrease",
    meaning="probability that a step of fixed size eta along the training direction does not lower the held-out loss",
    latex=r"P(R(-\eta\mu_M) \ge R(0))",
    symbols=(
        *("M", "K", "N", "n_eff", "d_par", "d_2", "d_align"),
        *("mu2", "mu_Sigma_mu", "tr_Sigma", "tr_Sigma2", "lambda_max"),
        *("eta", "L_smooth", "gain_mean", "gain_variance"),
    ),
)

GAIN_MEAN = mu2 - eta * L_smooth / 2 * (mu2 + tr_Sigma / M)
LARGEST_STEP = 2 / L_smooth * mu2 / (mu2 + tr_Sigma / M)
FIXED_STEP = gain_variance / (gain_variance + Max(gain_mean, 0) ** 2)

CLAIM = Claim(
    id="expansion.fixed_step",
    kind=Kind.UPPER_BOUND,
    quantity=NO_DECREASE,
    expression=FIXED_STEP,
    assumptions=(IID, SMOOTH, FIXED, VARYING),
    source=Source(paper="[width]", place="Theorem 2, for a step fixed beforehand, by Cantelli's inequality"),
    statement=r"P(R(-\eta\mu_M) \ge R(0)) \le P(Y \le 0) \le"
    r" \frac{\operatorname{Var} Y}{\operatorname{Var} Y + (E\,Y)_+^2}",
    proof=proofs.fixed_step,
)

CLAIMS = (
    Claim(
        id="expansion.gain_mean",
        kind=Kind.IDENTITY,
        quantity=Quantity(
            id="gain_mean",
            meaning="mean of the gain that is sure, per step size",
            latex=r"E\,Y",
            symbols=("M", "mu2", "tr_Sigma", "eta", "L_smooth"),
            unit="q^2",
        ),
        expression=GAIN_MEAN,
        assumptions=(IID, FIXED),
        source=Source(paper="[width]", place="Theorem 2, for a step fixed beforehand"),
        statement=r"E\,Y = |\mu|^2 - \tfrac{\eta L}{2}\left(|\mu|^2 + \operatorname{tr}\Sigma / M\right)",
        proof=proofs.mean_gain,
    ),
    Claim(
        id="expansion.step_range",
        kind=Kind.EQUIVALENCE,
        quantity=Quantity(
            id="gaining_step",
            meaning="the step size below which the gain is positive on average",
            latex=r"\eta_{\max}",
            symbols=("M", "mu2", "tr_Sigma", "L_smooth"),
        ),
        expression=LARGEST_STEP,
        assumptions=(IID, FIXED),
        source=Source(paper="[width]", place="Theorem 2, for a step fixed beforehand"),
        statement=r"E\,Y > 0 \iff \eta < \frac{2}{L} \frac{|\mu|^2}{|\mu|^2 + \operatorname{tr}\Sigma / M}",
        proof=proofs.step_range,
    ),
    CLAIM,
)
