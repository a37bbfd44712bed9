r"""The proofs of the rate claims: each is a function of the claimed expression and returns steps to check.

What they take for granted is in the assumptions of the claims, and proved in the papers: error recursions over the
layers with constants that do not depend on the sizes (Lipschitz blocks, bounded moments), and units independent of each
other, exactly at initialisation and in the limit afterwards. From there on, every power is derived.
"""

import sympy
from sympy import Expr, Integer, Rational, Symbol, exp, sqrt

from . import mean_ode as net
from .claims import Kind, proves
from .proof import Equation, Limit, Sign, Step
from .shapes import BEST_EMBED_DIM
from .symbols import D, L, P_budget, alpha, c_bias, c_embed, c_lazy, c_noise, sigma_v
from .symbols import M_units as M

# Bound letters: growth of an error over the depth and over the steps, local errors, a layer, a factor, a rate.
_C, _A, _kappa, _tau, _t, _lam, _x, _y = sympy.symbols("C A kappa tau t lambda x y", positive=True)
_l, _k = sympy.symbols("l k", integer=True, nonnegative=True)
_a_1, _a_2 = sympy.symbols("a_1 a_2", real=True)


def _accumulated(local: Expr, growth: Expr, steps: Expr) -> Expr:
    """What e' = growth e + local makes of e = 0."""
    return local * (growth**steps - 1) / (growth - 1)


def _recursion(what: str, local: Expr, growth: Expr, step: Symbol) -> tuple[Step, ...]:
    error = _accumulated(local, growth, step)
    return (
        Equation(f"{what}: starts at 0", error.subs(step, 0), Integer(0)),
        Equation(f"{what}: solves the recursion", error.subs(step, step + 1), growth * error + local),
    )


# One Euler step is off by at most kappa / L^2, kappa = sup |h''| / 2, and passes an error on times 1 + C / L at most.
_EULER = (_kappa / L**2, 1 + _C / L)
_BIAS = _accumulated(*_EULER, L)
_C_BIAS = _kappa * (exp(_C) - 1) / _C
# A unit adds alpha v sigma(p) / (LM), centred, v of variance sigma_v^2 = D, sigma(p) of mean square tau; the variances
# of M independent units add up, and so do those of the layers, each passed on times (1 + C / L)^2 at most.
_UNIT = (alpha**2 * sigma_v**2 * _tau).subs(sigma_v, sqrt(D))
_NOISE = (_UNIT / (L**2 * M), (1 + _C / L) ** 2)
_VARIANCE = _accumulated(*_NOISE, L)
_C_NOISE_2 = _tau * (exp(2 * _C) - 1) / (2 * _C)
# Where a linearisation is off by kappa / alpha in every velocity.
_LINEAR = (_kappa / (alpha * L), 1 + _C / L)
_LINEARISATION = _accumulated(*_LINEAR, L)


def _bias() -> tuple[Step, ...]:
    x, order = _accumulated(_x / L, 1 + _A, _k), _x * ((1 + _A) ** _k - 1) / _A
    return (
        *_recursion("errors of a pass over the layers", *_EULER, _l),
        *_recursion("errors over the k steps, each fed by a pass", _x / L, 1 + _A, _k),
        Equation("a fixed number of steps keeps the order of the pass", x, order / L),
    )


@proves(Kind.RATE, "bias_exponent")
def bias_exponent(exponent: Expr) -> tuple[Step, ...]:
    """1/L from above by the recursion of errors, and attained by a linear block."""
    euler = exp(_lam) - (1 + _lam / L) ** L
    return (
        *_bias(),
        Limit("the bound has the claimed order", _BIAS * L**-exponent, L, sympy.oo, _C_BIAS),
        Limit("and h' = lambda h attains it", euler * L**-exponent, L, sympy.oo, _lam**2 * exp(_lam) / 2),
    )


def _fluctuation() -> tuple[Step, ...]:
    return (
        *_recursion("variance of the state over the layers", *_NOISE, _l),
        Limit("its limit, times LM / D", _VARIANCE * L * M / D, L, sympy.oo, alpha**2 * _C_NOISE_2),
        Equation("the sum over l of independent terms, for C = 0", _NOISE[0] * L, _UNIT / (L * M)),
    )


@proves(Kind.RATE, "variance_depth_exponent")
def variance_depth(exponent: Expr) -> tuple[Step, ...]:
    """The standard deviation in L: L layers, each with variance 1 / L^2."""
    value = D / M * alpha**2 * _C_NOISE_2
    return (*_fluctuation(), Limit("square of the claim", _VARIANCE * L ** (-2 * exponent), L, sympy.oo, value))


def _power(what: str, letter: Symbol, exponent: Expr) -> Step:
    ratio = sympy.simplify(_VARIANCE.subs(letter, _t * letter) / _VARIANCE)
    return Equation(f"t times {what}: the square of the claim", ratio, _t ** (2 * exponent))


@proves(Kind.RATE, "variance_width_exponent")
def variance_width(exponent: Expr) -> tuple[Step, ...]:
    """The standard deviation in M: a mean of M independent units."""
    return (*_fluctuation(), _power("the units", M, exponent))


@proves(Kind.RATE, "dimension_exponent")
def dimension(exponent: Expr) -> tuple[Step, ...]:
    """The standard deviation in D: an entry of V has variance D."""
    return (*_fluctuation(), _power("the dimension", D, exponent))


def _sum_of(rate: Expr, terms: dict[Symbol, tuple[Expr, Expr]]) -> tuple[Step, ...]:
    """The rate is a sum of a term for each constant, and each term is what its error tends to."""
    alone = {c: rate.subs({other: 0 for other in terms if other != c}) for c in terms}
    steps: list[Step] = [Equation("the rate is the sum of its terms", rate, sum(alone.values(), Integer(0)))]
    for c, (error, value) in terms.items():
        steps.append(Limit(f"the term of {c}", error / alone[c].subs(c, value), L, sympy.oo, Integer(1)))
    gap = (_x + _y) ** 2 - (_x**2 + _y**2)
    return (*steps, Sign("root mean squares add to at most their sum", gap, "nonnegative"))


def _noise_term(scale: Expr) -> tuple[Expr, Expr]:
    return sqrt(_VARIANCE), sqrt(_C_NOISE_2) * scale


@proves(Kind.RATE, "output_error")
def depth_width(rate: Expr) -> tuple[Step, ...]:
    """1/L + 1/sqrt(LM): bias and fluctuation at alpha = 1, with sqrt(D) in the constant."""
    error, value = _noise_term(sqrt(D))
    terms = {c_bias: (_BIAS, _C_BIAS), c_noise: (error.subs(alpha, 1), value)}
    return (*_bias(), *_fluctuation(), *_sum_of(rate, terms))


@proves(Kind.RATE, "output_error")
def embed_dim(rate: Expr) -> tuple[Step, ...]:
    """1/L + sqrt(D)/sqrt(LM): the same with constants that do not depend on D."""
    error, value = _noise_term(Integer(1))
    terms = {c_bias: (_BIAS, _C_BIAS), c_noise: (error.subs(alpha, 1), value)}
    return (*_bias(), *_fluctuation(), *_sum_of(rate, terms))


# Taylor's formula for the activation at p_0 + dp / alpha, with a bounded remainder.
_s, _s_1, _s_2, _s_3 = sympy.symbols("s s_1 s_2 s_3", real=True)
_TAYLOR = _s + _s_1 * net.dp / alpha + _s_2 * net.dp**2 / (2 * alpha**2) + _s_3 * net.dp**3 / alpha**3
_VELOCITY = alpha * (net.v_0 + net.dv / alpha) * _TAYLOR
_TANGENT = net.dv * _s + net.v_0 * _s_1 * net.dp
_SECOND = net.dv * _s_1 * net.dp + net.v_0 * _s_2 * net.dp**2 / 2


def _linearised() -> tuple[Step, ...]:
    tangent = net.TANGENT_VELOCITY.subs(net.sigma(net.p_0).diff(net.p_0), _s_1).subs(net.sigma(net.p_0), _s)
    return (
        Equation("the tangent velocity, with s = sigma(p_0)", tangent, _TANGENT),
        Limit("it is the limit, E[v_0 s] = 0 left out", _VELOCITY - alpha * net.v_0 * _s, alpha, sympy.oo, _TANGENT),
    )


def _beyond_tangent(power: Expr) -> Expr:
    return sympy.expand((_VELOCITY - alpha * net.v_0 * _s - _TANGENT) * alpha**-power)


@proves(Kind.RATE, "lazy_exponent")
def lazy_slope(exponent: Expr) -> tuple[Step, ...]:
    """1/alpha: the second-order term of a product of two displacements."""
    beyond = _beyond_tangent(exponent)
    return (*_linearised(), Limit("the next term has the claimed order", beyond, alpha, sympy.oo, _SECOND))


def _displaced(expr: Expr) -> Expr:
    """Write a formula of the network in the initial values and alpha times the displacements."""
    now = {net.u: net.u_0 + net.du / alpha, net.v: net.v_0 + net.dv / alpha, net.g: net.g_0 + net.dg / alpha}
    return expr.subs(now).subs(net.sigma(net.p).diff(net.p), _s_1).subs(net.sigma(net.p), _s)


def _mirrored(expr: Expr) -> Expr:
    """Reflect v_0, du and alpha. Both p_0 + dp / alpha and the activation at it stay, and <v, b> changes its sign."""
    flip = {x: -x for x in (net.v_0, net.g_0, net.du, alpha)}
    return _displaced(expr).subs(flip, simultaneous=True)


@proves(Kind.RATE, "lazy_symmetric_exponent")
def lazy_slope_symmetric(exponent: Expr) -> tuple[Step, ...]:
    """1/alpha^2: reflecting v_0 and alpha at once leaves the dynamics as it is, so the output is even in alpha."""
    eps = 1 / alpha
    even = _a_1 * eps + _a_2 * eps**2
    p = net.p_0 + net.dp / alpha
    return (
        Equation("the pre-activation stays", p.subs({net.dp: -net.dp, alpha: -alpha}, simultaneous=True), p),
        Equation("the velocity stays", _mirrored(net.VELOCITY), _displaced(net.VELOCITY)),
        Equation("the adjoint stays", _mirrored(net.ADJOINT_VELOCITY), _displaced(net.ADJOINT_VELOCITY)),
        Equation("the update of dv stays", _mirrored(alpha * net.DELTA_V), _displaced(alpha * net.DELTA_V)),
        Equation("that of du changes its sign", _mirrored(alpha * net.DELTA_U), -_displaced(alpha * net.DELTA_U)),
        Equation("twice the odd part of the output", even - even.subs(alpha, -alpha), 2 * _a_1 * eps),
        Limit("without it", even.subs(_a_1, 0) * alpha**-exponent, alpha, sympy.oo, _a_2),
    )


@proves(Kind.RATE, "tangent_error")
def lazy(rate: Expr) -> tuple[Step, ...]:
    """1/alpha + 1/L + alpha/sqrt(LM) at fixed D."""
    terms = {
        c_lazy: (_LINEARISATION, _C_BIAS),
        c_bias: (_BIAS, _C_BIAS),
        c_noise: _noise_term(sqrt(D)),
    }
    return (
        *lazy_slope(Integer(-1)),
        *_recursion("errors of the linearised pass over the layers", *_LINEAR, _l),
        *_bias(),
        *_fluctuation(),
        *_sum_of(rate, terms),
    )


@proves(Kind.EQUIVALENCE, "critical_residual_scale")
def critical_scale(scale: Expr) -> tuple[Step, ...]:
    r"""Power counting of a first step, for one data point with |h|^2 = D, |h - y|^2 = D, sigma' = 1 and any step size.

    A step of size ``_x`` moves the pre-activations by an RMS of delta and, to first order, half the loss by
    ``_x`` |grad|^2; the network can stand a move of order 1 only.
    """
    rho = Symbol("rho", positive=True)
    b2 = D * (net.LOSS_GRADIENT**2).subs(net.N_data, 1)
    g2 = sigma_v**2 * b2
    per_unit = (net.RESIDUAL / D) ** 2 * D * g2
    gradient2 = L * M * per_unit
    delta = _x * (net.RESIDUAL / D) * D / D * sqrt(g2)
    move = _x * gradient2
    full = sympy.solve(delta - 1, _x)[0]
    at_rho = {sigma_v: rho * L * M / alpha}
    most = sympy.solve(move - 1, _x)[0]
    return (
        Equation("E <v, b>^2, with |b|^2 = 1/D", g2, sigma_v**2 / D),
        Equation("move of the pre-activations", delta, _x * alpha * sigma_v / (L * M * D ** Rational(3, 2))),
        Equation("move of the loss", move, _x * (alpha * sigma_v) ** 2 / (L * M * D**2)),
        Equation("delta = 1 moves the loss by rho over the claim", move.subs(_x, full).subs(at_rho), rho / scale),
        Equation("a move of 1 gives delta = the claim over rho", delta.subs(_x, most).subs(at_rho), scale / rho),
    )


@proves(Kind.RATE, "best_shape_exponent")
def best_shape(exponent: Expr) -> tuple[Step, ...]:
    """P^(-1/6): a lower bound for every shape by weighted means, and shapes that reach it."""
    noise, embed = c_noise * D / sqrt(P_budget), c_embed / sqrt(D)
    constant = 3 * c_noise ** Rational(1, 3) * (c_embed / 2) ** Rational(2, 3)
    root, half_root = noise ** Rational(1, 3), (embed / 2) ** Rational(1, 3)
    steps: list[Step] = [
        Equation("the fluctuation at LMD = P", c_noise * sqrt(D / (L * M)).subs(L, P_budget / (M * D)), noise),
        Equation("weighted means", _x**3 + 2 * _y**3 - 3 * _x * _y**2, (_x - _y) ** 2 * (_x + 2 * _y)),
        Sign("with equality at x = y only", (_x - _y) ** 2 * (_x + 2 * _y), "nonnegative"),
        Equation("x^3 + 2 y^3 is the bound without its 1/L", root**3 + 2 * half_root**3, noise + embed),
        Equation("3 x y^2 holds no D: no shape does better", 3 * root * half_root**2, constant * P_budget**exponent),
    ]
    d = BEST_EMBED_DIM
    steps.append(Equation("x = y at the best D", noise.subs(D, d), embed.subs(D, d) / 2))
    for name, units in (("M = 1, L = P / D", Integer(1)), ("M = D, L = P / D^2", d)):
        bound = c_bias * units * d / P_budget + (noise + embed).subs(D, d)
        limit = sympy.expand(sympy.powsimp(sympy.expand(bound * P_budget**-exponent)))
        steps.append(Limit(f"{name} reach it", limit, P_budget, sympy.oo, constant))
    least = sympy.diff(c_bias * M * D / P_budget, M)
    steps.append(Sign("fewer units, more layers: the bias shrinks", least, "positive"))
    return tuple(steps)
