"""The proofs of the alignment claims: functions of the claimed expression that return steps to check.

Each declares the kind and the quantity that it proves something of.
"""

from itertools import product

import sympy
from sympy import Expr, Integer, Rational, Symbol

from . import symbols as letters
from .certificate import B_ALIGN, B_EXACT, D_2, D_PAR, MEAN, N_EFF, ODDS_ALIGN, ODDS_EXACT, VARIANCE
from .claims import Kind, proves
from .proof import Equation, Identify, Limit, Sign, Step
from .symbols import K, M, d_2, d_align, d_par, eps, mu2, mu_Sigma_mu, o_target, p_target, pi_atom, tr_Sigma2, unfold

# Bound letters of the proofs: coordinates of the mean, an entry of Sigma, points of the line, slacks.
_m_i, _m_j, _S_ij, _x = sympy.symbols("m_i m_j S_ij x", real=True)
_y, _gap = sympy.symbols("y delta", nonnegative=True)
_t, _v, _r = sympy.symbols("t v r", positive=True)

# d_align = min(d_par, d_2), by cases. In the moments, so that singular covariances (mu'Sigma mu = 0) are covered ...
_MOMENT_CASES = (
    ("d_par <= d_2", {mu_Sigma_mu: tr_Sigma2 + _gap}),
    ("d_2 <= d_par", {tr_Sigma2: mu_Sigma_mu + _gap}),
)
# ... and in the dimensions, where both are finite.
_CASES = (
    ("d_par <= d_2", {d_par: d_align, d_2: d_align + _gap}),
    ("d_2 <= d_par", {d_par: d_align + _gap, d_2: d_align}),
)


def _by_case(expr: Expr) -> list[tuple[str, Expr]]:
    """Write an expression in the moments, the larger of the two that make d_align as the smaller plus a gap."""
    return [(name, unfold(expr).subs(case)) for name, case in _MOMENT_CASES]


def _second_moment_of_mean(samples: Expr) -> Expr:
    """E u_i u_j of a mean of ``samples`` vectors: equal pairs and independent pairs counted."""
    return (samples * (_m_i * _m_j + _S_ij) + samples * (samples - 1) * _m_i * _m_j) / samples**2


@proves(Kind.IDENTITY, "alignment_mean")
def mean(value: Expr) -> tuple[Step, ...]:
    """E X: a sum over coordinates of products of means."""
    text = "E X = sum_i E u_i E v_i = sum_i m_i^2, by independence"
    return (Identify(text, _m_i * _m_i, (_m_i,), ((_m_i**2, mu2),), unfold(value)),)


@proves(Kind.IDENTITY, "alignment_variance")
def variance(value: Expr) -> tuple[Step, ...]:
    """Var X from a scalar identity for the summand of E X^2, so for every N and every covariance."""
    u, v = _m_i * _m_j + _S_ij / M, _m_i * _m_j + _S_ij / K
    moments = (
        (_m_i**2 * _m_j**2, mu2**2),
        (_m_i * _m_j * _S_ij, mu_Sigma_mu),
        (_S_ij**2, tr_Sigma2),
    )
    return (
        Equation("E u_i u_j from M equal and M(M-1) independent pairs", _second_moment_of_mean(M), u),
        Equation("E v_i v_j likewise", _second_moment_of_mean(K), v),
        Identify(
            "E X^2 = sum_ij E u_i u_j E v_i v_j = Var X + (E X)^2, for every N",
            u * v,
            (_m_i, _m_j, _S_ij),
            moments,
            unfold(value) + MEAN**2,
        ),
    )


@proves(Kind.UPPER_BOUND, "misalignment")
def cantelli(bound: Expr) -> tuple[Step, ...]:
    """B_exact: the expectation of a quadratic above the indicator of x <= 0, the best one of its kind."""
    majorant = ((MEAN + _t - _x) / (MEAN + _t)) ** 2
    risk = (_v + _t**2) / (MEAN + _t) ** 2
    return (
        *mean(MEAN),
        *variance(VARIANCE),
        Sign("a quadratic that is nonnegative everywhere", majorant, "nonnegative"),
        Sign("and at least 1 at x = -y <= 0: it majorises 1{x <= 0}", majorant.subs(_x, -_y) - 1, "nonnegative"),
        Identify(
            "expectation of its numerator, with variance v",
            (MEAN + _t - _x) ** 2,
            (_x,),
            ((sympy.S.One, sympy.S.One), (_x, MEAN), (_x**2, _v + MEAN**2)),
            _v + _t**2,
        ),
        Equation(
            "no t does better than v / E X: the excess is a square",
            (_v + _t**2) * (_v + MEAN**2) - _v * (MEAN + _t) ** 2,
            (_v - _t * MEAN) ** 2,
        ),
        Equation("the bound at t = v / E X", risk.subs(_t, _v / MEAN), _v / (_v + MEAN**2)),
        Equation("with v = Var X", unfold(bound), VARIANCE / (VARIANCE + MEAN**2)),
    )


@proves(Kind.UPPER_BOUND, "misalignment")
def certificate(bound: Expr) -> tuple[Step, ...]:
    """B_align: in odds, the two terms of B_exact are at most the larger one times its combined weight."""
    return (
        *cantelli(B_EXACT),
        Equation("odds of B_exact in d_par and d_2", B_EXACT / (1 - B_EXACT), unfold(ODDS_EXACT)),
        *(
            Sign(f"odds can only grow to 1 / (n_eff d_align), case {name}", growth, "nonnegative")
            for name, growth in _by_case(ODDS_ALIGN - ODDS_EXACT)
        ),
        Equation("the bound with these odds", unfold(bound), unfold(ODDS_ALIGN / (1 + ODDS_ALIGN))),
    )


@proves(Kind.ORDERING, "bound_difference")
def ordering(difference: Expr) -> tuple[Step, ...]:
    """B_align - B_exact >= 0, and = 0 only for d_par = d_2."""
    in_odds = (ODDS_ALIGN - ODDS_EXACT) / ((1 + ODDS_ALIGN) * (1 + ODDS_EXACT))
    by_case = _by_case(in_odds)
    return (
        Equation("the difference in terms of the odds", unfold(difference), unfold(in_odds)),
        *(Sign(f"nonnegative in case {name}", value, "nonnegative") for name, value in by_case),
        *(
            Sign(f"a positive multiple of the gap, case {name}", sympy.cancel(value / _gap), "positive")
            for name, value in by_case
        ),
    )


@proves(Kind.IDENTITY, "effective_samples")
def n_eff(count: Expr) -> tuple[Step, ...]:
    """n_eff: where it comes from, that it increases, and its limits."""
    weights = 1 / M + 1 / K + 1 / (M * K)
    return (
        Equation("1 / n_eff adds the weights of the two terms of Var X", 1 / unfold(count), weights),
        Sign("increasing in M (and in K, by symmetry)", sympy.diff(unfold(count), M), "positive"),
        Limit("M when K has no limit", unfold(count), K, sympy.oo, M),
        Limit("half of M = K, for many samples", unfold(count).subs(K, M) / M, M, sympy.oo, Rational(1, 2)),
    )


@proves(Kind.EQUIVALENCE, "samples_needed")
def samples(count: Expr) -> tuple[Step, ...]:
    """The least M = K: the positive root of a quadratic, with t = o / d_align."""
    needed = o_target / d_align
    return (
        _target_reached(),
        Equation(
            "n_eff - t at M = K, over one denominator",
            N_EFF.subs(K, M) - _t,
            (M**2 - 2 * _t * M - _t) / (2 * M + 1),
        ),
        Equation("the count is a root: it and its conjugate multiply to -t", count * (2 * needed - count), -needed),
        Sign("the count is the positive root, the other one negative", count, "positive"),
    )


def _target_reached() -> Step:
    at_t = B_ALIGN.subs(letters.n_eff, o_target / d_align)
    return Equation("B_align, decreasing in n_eff, is p at n_eff = t", unfold(at_t, keep=("d_align",)), p_target)


@proves(Kind.EQUIVALENCE, "samples_needed_given_K")
def samples_given_K(count: Expr) -> tuple[Step, ...]:
    """The least M at a given K: linear, and out of reach for K <= t."""
    needed = o_target / d_align
    return (
        _target_reached(),
        Equation("n_eff - t as a multiple of M - count", N_EFF - needed, (K - needed) * (M - count) / (M + K + 1)),
        Sign("t >= K: n_eff stays below t for every M", (K + _gap) - N_EFF, "positive"),
    )


@proves(Kind.IDENTITY, "odds_loss")
def odds_loss(ratio: Expr) -> tuple[Step, ...]:
    """What B_align gives away in odds, and the sharp range of it."""
    steps: list[Step] = [Equation("ratio of the odds", unfold(ratio), unfold(ODDS_ALIGN / ODDS_EXACT))]
    for name, case in _CASES:
        value = unfold(ratio, keep=("d_align", "d_par", "d_2")).subs(case)
        steps.append(Sign(f"at least 1, case {name}", value - 1, "nonnegative"))
        steps.append(Sign(f"at most M + K + 1, case {name}", M + K + 1 - value, "nonnegative"))
    extreme = ratio.subs({d_par: _r * d_align, d_2: d_align})
    steps.append(Limit("M + K + 1 is approached as d_par / d_2 grows", extreme, _r, sympy.oo, M + K + 1))
    return tuple(steps)


def _moments_of_atoms(atoms: dict[Expr, Expr]) -> dict[Symbol, Expr]:
    """Moments of a law on the line (N = 1), given as value to weight."""
    mean = sum(value * weight for value, weight in atoms.items())
    variance = sum(value**2 * weight for value, weight in atoms.items()) - mean**2
    return {mu2: mean**2, mu_Sigma_mu: mean**2 * variance, tr_Sigma2: variance**2}


@proves(Kind.IDENTITY, "misalignment_bernoulli")
def attained(probability: Expr) -> tuple[Step, ...]:
    """Equality for Bernoulli laws at M = K = 1, by enumeration."""
    atoms = {Integer(0): 1 - pi_atom, Integer(1): pi_atom}
    misaligned = sum(atoms[u] * atoms[v] for u, v in product(atoms, atoms) if u * v <= 0)
    moments = {M: 1, K: 1, **_moments_of_atoms(atoms)}
    half, fair = Rational(1, 2), Rational(3, 4)
    return (
        Equation("the four outcomes of (u, v), those with uv <= 0 added up", misaligned, probability),
        Equation("B_exact at the moments of the law", B_EXACT.subs(moments), probability),
        Equation("for the fair law: 3/4", probability.subs(pi_atom, half), fair),
        Equation("and B_align is 3/4 as well", unfold(B_ALIGN).subs(moments).subs(pi_atom, half), fair),
    )


def _rare_atom() -> tuple[Expr, Expr, Expr]:
    """P(X <= 0), B_exact and B_align for the atoms 1 and -(M - 1), the latter with weight eps, at M = K.

    With j rare atoms among M samples the mean is 1 - j: X > 0 needs none on both sides, or at least two on both.
    """
    none, one = (1 - eps) ** M, M * eps * (1 - eps) ** (M - 1)
    misaligned = 1 - none**2 - (1 - none - one) ** 2
    moments = {K: M, **_moments_of_atoms({Integer(1): 1 - eps, 1 - M: eps})}
    # Here d_2 / d_par = mu2 / variance is large for small eps, so that d_align is d_par.
    align = unfold(B_ALIGN.subs(d_align, d_par)).subs(moments)
    return misaligned, B_EXACT.subs(moments), align


def _rare_atom_mean() -> Step:
    j = Symbol("j", integer=True, nonnegative=True)
    return Equation("the mean of M samples with j rare ones", ((M - j) - j * (M - 1)) / M, 1 - j)


@proves(Kind.LIMIT, "tightness_rare_atom")
def sharp(ratio: Expr) -> tuple[Step, ...]:
    """B_exact is reached in the limit by the rare-atom law."""
    misaligned, exact, _ = _rare_atom()
    return (
        _rare_atom_mean(),
        Limit("P(X <= 0) / eps", misaligned / eps, eps, Integer(0), 2 * M),
        Limit("B_exact / eps", exact / eps, eps, Integer(0), 2 * M),
        Equation("hence the ratio", ratio, (2 * M) / (2 * M)),
    )


@proves(Kind.LIMIT, "tightness_rare_atom_align")
def sharp_align(ratio: Expr) -> tuple[Step, ...]:
    """B_align is reached up to 2M / (2M + 1) by the rare-atom law."""
    misaligned, _, align = _rare_atom()
    moments = _moments_of_atoms({Integer(1): 1 - eps, 1 - M: eps})
    return (
        _rare_atom_mean(),
        Limit("d_par / d_2 vanishes: d_align is d_par", (D_PAR / D_2).subs(moments), eps, Integer(0), Integer(0)),
        Limit("P(X <= 0) / eps", misaligned / eps, eps, Integer(0), 2 * M),
        Limit("B_align / eps", align / eps, eps, Integer(0), 2 * M + 1),
        Equation("hence the ratio", ratio, 2 * M / (2 * M + 1)),
    )
