"""The proofs of the claims on a fixed step: functions of the claimed expression that return steps to check."""

import sympy
from sympy import Expr

from .alignment_proofs import mean
from .certificate import MEAN
from .claims import Kind, proves
from .proof import Equation, Identify, Sign, Step
from .symbols import L_smooth, M, eta, gain_mean, gain_variance, mu2, tr_Sigma, unfold

# An entry of the mean and of the diagonal of Sigma, mu_M . g_K, |mu_M|^2 and a value of Y; a slack and two positives.
_m, _S, _X, _square, _y = sympy.symbols("m_i S_ii X u2 y", real=True)
_slack = sympy.Symbol("z", nonnegative=True)
_g, _t, _s = sympy.symbols("g t s", positive=True)


def _gain(alignment: Expr, square: Expr) -> Expr:
    """Y from X = mu_M . g_K and |mu_M|^2; likewise their expectations, for Y is linear in them."""
    return alignment - eta * L_smooth / 2 * square


def _change() -> tuple[Step, ...]:
    """The loss changes by at most -eta Y on the way from 0 to -eta mu_M."""
    # The slope at s is at most the one at 0 plus L times the distance gone, times the speed: eta |mu_M| each.
    slope = -eta * _X + L_smooth * eta**2 * _square * _s
    return (
        Equation(
            "smoothness bounds the slope along the segment; it adds up to -eta Y",
            sympy.integrate(slope, (_s, 0, 1)),
            -eta * _gain(_X, _square),
        ),
        Equation(
            "a loss g . theta + (L/2) |theta|^2 attains it",
            -eta * _X + L_smooth / 2 * eta**2 * _square,
            -eta * _gain(_X, _square),
        ),
    )


@proves(Kind.IDENTITY, "gain_mean")
def mean_gain(value: Expr) -> tuple[Step, ...]:
    """E Y, coordinate by coordinate, for every N."""
    own = _m**2 + _S / M
    return (
        *mean(MEAN),
        Equation("E u_i^2 from M equal and M(M-1) independent pairs", (_m**2 * M**2 + _S * M) / M**2, own),
        Identify(
            "E Y = sum_i (m_i^2 - (eta L / 2) E u_i^2)",
            _gain(_m**2, own),
            (_m, _S),
            ((_m**2, mu2), (_S, tr_Sigma)),
            unfold(value),
        ),
    )


@proves(Kind.EQUIVALENCE, "gaining_step")
def step_range(largest: Expr) -> tuple[Step, ...]:
    """E Y is a positive multiple of the distance to the largest step."""
    slope = L_smooth / 2 * (mu2 + tr_Sigma / M)
    value = _gain(mu2, mu2 + tr_Sigma / M)
    return (
        *mean_gain(value),
        Equation("E Y as a multiple of the largest step minus eta", value, slope * (largest - eta)),
        Sign("the multiple is positive", slope, "positive"),
    )


@proves(Kind.UPPER_BOUND, "no_decrease")
def fixed_step(bound: Expr) -> tuple[Step, ...]:
    """No decrease needs Y <= 0, and Cantelli's quadratic bounds the probability of that."""
    majorant = ((_g + _t - _y) / (_g + _t)) ** 2
    risk = (gain_variance + _t**2) / (_g + _t) ** 2
    return (
        *_change(),
        Sign("a quadratic that is nonnegative everywhere", majorant, "nonnegative"),
        Sign("and at least 1 at y = -z <= 0: it majorises 1{y <= 0}", majorant.subs(_y, -_slack) - 1, "nonnegative"),
        Identify(
            "expectation of its numerator, for a mean g > 0",
            (_g + _t - _y) ** 2,
            (_y,),
            ((sympy.S.One, sympy.S.One), (_y, _g), (_y**2, gain_variance + _g**2)),
            gain_variance + _t**2,
        ),
        Equation(
            "the bound on P(Y <= 0) at t = Var Y / g, for E Y = g > 0",
            risk.subs(_t, gain_variance / _g),
            bound.subs(gain_mean, _g),
        ),
        Equation("and for E Y = -z <= 0 it says nothing", bound.subs(gain_mean, -_slack), sympy.S.One),
    )
