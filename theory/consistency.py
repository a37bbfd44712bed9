r"""How far the empirical cross-gradient is from its mean.

The cross-gradient of a zero-output block W phi is C = E[q phi^T]; its estimate is the mean of n independent samples,
each of Frobenius norm at most B. Source: [depth], finite-sample bounds; McDiarmid's inequality for the norm of a mean:

.. math:: P\left(\|\hat C - C\|_F \ge \tfrac{B}{\sqrt n}\left(1 + \sqrt{2\ln(1/\delta)}\right)\right) \le \delta .

One sample moves the mean by at most 2B/n, and the expected norm is at most B / sqrt(n).
"""

from sympy import log, sqrt

from .claims import Claim, Kind, Quantity, Source
from .symbols import B_norm, delta, n_samples

CROSS_GRADIENT_ERROR = Quantity(
    id="cross_gradient_error",
    meaning="norm deviation of the empirical cross-gradient that is reached or exceeded with probability at most delta",
    latex=r"\|\hat C - C\|_F",
    symbols=("n_samples", "B_norm", "delta"),
)

MCDIARMID = B_norm / sqrt(n_samples) * (1 + sqrt(2 * log(1 / delta)))

CLAIM = Claim(
    id="consistency.bounded_differences",
    kind=Kind.UPPER_BOUND,
    quantity=CROSS_GRADIENT_ERROR,
    expression=MCDIARMID,
    assumptions=("the n samples are independent and identically distributed", "|q| |phi| <= B", "0 < delta < 1"),
    source=Source(paper="[depth]", place="finite-sample bound, by McDiarmid's inequality"),
    statement=r"\|\hat C - C\|_F < \frac{B}{\sqrt n}\left(1 + \sqrt{2\ln(1/\delta)}\right)"
    r" \text{ with probability at least } 1 - \delta",
)
