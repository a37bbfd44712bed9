"""The claims on how d_align grows with the width N, and their proofs: the rules of ``families.py`` checked by limits.

Source: [width], growth rates.
"""

from itertools import product

import sympy
from sympy import Expr, Min, Symbol

from . import families
from .claims import Claim, Kind, Quantity, Source, proves
from .families import FAMILIES, Family, Growth, Place, i
from .proof import Equation, Limit, Sign, Step
from .symbols import N, c_signal, latex, mu2, sigma2

GROWTH = Quantity(
    id="d_align_growth",
    meaning="exponent of the growth of d_align with the width N",
    latex=r"\lim_{N \to \infty} \log d_{\mathrm{align}} / \log N",
    symbols=("a", "b", "s"),
)


_x, _c, _k = sympy.symbols("x c k", positive=True)


def _integral(c: Expr, end: Expr) -> Expr:
    """The integral of x^-c from 1 to ``end``."""
    return sympy.log(end) if c == 1 else (end ** (1 - c) - 1) / (1 - c)


# Where i^-c is summed to N: c, and what the bounds of the sum tend to, each over the growth of the sum.
_REGIMES = ((1 - _k, 1 / _k, 1 / _k), (sympy.S.One,) * 3, (1 + _k, 2**-_k / _k, 1 + 1 / _k))


def _sum_steps(expr: Expr) -> list[Step]:
    """A sum of N^p i^-c from 1, or from 2, to N lies between positive multiples of the growth that ``sum_growth`` says.

    Over N^p it is at least the integral of x^-c from 2 to N + 1, and at most 1 plus that from 1 to N.
    """
    p, c = families.as_powers(expr)
    growth = families.sum_growth(expr)
    # A c without letters is 0: the first regime at k = 1.
    regimes = _REGIMES if c.free_symbols else [tuple(x.subs(_k, 1 - c) for x in _REGIMES[0])]
    steps: list[Step] = [
        Sign("x^-c does not increase: integrals enclose sums", -sympy.diff(_x**-_c, _x), "nonnegative")
    ]
    for value, least, most in regimes:
        at = {letter: sympy.solve(c - value, letter)[0] for letter in c.free_symbols}
        scale = N**p / (N ** growth.exponent.subs(at) * sympy.log(N) ** growth.log.subs(at))  # p holds no letter of c
        low, high = _integral(value, N + 1) - _integral(value, sympy.Integer(2)), 1 + _integral(value, N)
        what = f"sum of {expr}, exponent of i: -({value})"
        steps += [
            Equation(f"antiderivative of x^-({value})", sympy.diff(_integral(value, _x), _x), _x**-value),
            Limit(f"{what}, from below", sympy.expand(low * scale), N, sympy.oo, least),
            Limit(f"{what}, from above", sympy.expand(high * scale), N, sympy.oo, most),
        ]
    return steps


def _single_step(expr: Expr, place: Place) -> Step:
    alone = expr.subs(i, 1 if place is Place.FIRST else N)
    return Equation(f"the {place} term of {expr}", alone, N ** families.term_growth(expr, place).exponent)


def _larger_steps() -> list[Step]:
    """The larger of two growths is that of their sum, whichever is ahead and with or without logarithms."""
    u = Symbol("u", real=True)
    steps: list[Step] = []
    for ahead, x_log, y_log in product((_k, sympy.S.Zero, -_k), (0, 1), (0, 1)):
        x, y = Growth(u + ahead, sympy.Integer(x_log)), Growth(u, sympy.Integer(y_log))
        values = [N**growth.exponent * sympy.log(N) ** growth.log for growth in (x, y, families.larger(x, y))]
        ratio = sympy.expand((values[0] + values[1]) / values[2])
        text = f"{values[0]} + {values[1]} grows like its larger term"
        steps.append(Limit(text, ratio, N, sympy.oo, sympy.Integer(2 if values[0] == values[1] else 1)))
    return steps


def _rate(family: Family) -> Claim:
    @proves(Kind.RATE, GROWTH.id)
    def proof(exponent: Expr) -> tuple[Step, ...]:
        steps = _larger_steps()
        for expr, place in (*family.parallel, *family.spectrum):
            steps += _sum_steps(expr) if place is Place.ALL else [_single_step(expr, place)]
        if family.place is Place.REST:
            steps.append(Limit("N^s / (N - 1) grows like N^(s-1)", N / (N - 1), N, sympy.oo, sympy.S.One))
        return (*steps, Equation("min of 2s less the exponents of the two sums", exponent, family.e_align))

    return Claim(
        id=f"spectra.{family.id}",
        kind=Kind.RATE,
        quantity=GROWTH,
        expression=family.stated,
        assumptions=(f"spectrum: {family.meaning}", "|mu|^2 = N^s; the exponents do not depend on N"),
        source=Source(paper="[width]", place="growth rates of d_align"),
        statement=rf"d_{{\mathrm{{align}}}} = N^{{e + o(1)}}, \quad e = {latex(family.stated)}"
        r"\quad (e < 0: \text{ width hurts})",
        proof=proof,
    )


@proves(Kind.LOWER_BOUND, "alignment_dimension")
def _bounded_proof(bound: Expr) -> tuple[Step, ...]:
    """With eigenvalues lambda = sigma^2 - r and |mu|^2 = cN + p, slacks nonnegative."""
    m_i = Symbol("m_i", real=True)
    r, p, lam = sympy.symbols("r p lambda", nonnegative=True)
    x, y = sympy.symbols("x y", positive=True)
    d_par_bound, d_2_bound = c_signal * N / sigma2, c_signal**2 * N / sigma2**2
    signal = c_signal * N + p
    return (
        Sign("mu'Sigma mu <= sigma^2 |mu|^2, term by term", m_i**2 * (lam + r) - m_i**2 * lam, "nonnegative"),
        Sign("tr Sigma^2 <= N sigma^4, term by term", (lam + r) ** 2 - lam**2, "nonnegative"),
        Sign(
            "d_par >= c N / sigma^2, where sigma^2 |mu|^2 = mu'Sigma mu + r",
            (mu2**2 / x - d_par_bound).subs(sigma2, (x + r) / mu2).subs(mu2, signal),
            "nonnegative",
        ),
        Sign(
            "d_2 >= c^2 N / sigma^4, where N sigma^4 = tr Sigma^2 + r",
            (mu2**2 / y - d_2_bound).subs(sigma2, sympy.sqrt((y + r) / N)).subs(mu2, signal),
            "nonnegative",
        ),
        Equation("the smaller of the two", bound, N * Min(d_par_bound / N, d_2_bound / N)),
    )


CLAIMS = (
    *(_rate(family) for family in FAMILIES.values()),
    Claim(
        id="spectra.bounded",
        kind=Kind.LOWER_BOUND,
        quantity=Quantity(
            id="alignment_dimension",
            meaning="effective alignment dimension",
            latex=r"d_{\mathrm{align}}",
            symbols=("N", "c_signal", "sigma2", "mu2", "mu_Sigma_mu", "tr_Sigma2", "lambda_max"),
        ),
        expression=N * Min(c_signal / sigma2, c_signal**2 / sigma2**2),
        assumptions=("|mu|^2 >= c N", "every eigenvalue of Sigma is at most sigma^2"),
        source=Source(paper="[width]", place="d_align = Omega(N) under a bounded spectrum"),
        statement=r"d_{\mathrm{align}} \ge N \min\!\left(\tfrac{c}{\sigma^2}, \tfrac{c^2}{\sigma^4}\right)",
        proof=_bounded_proof,
    ),
)
