r"""How d_align grows with the width N, by family of covariance spectrum and placement of the mean.

With :math:`|\mu|^2 = N^s` and moments that grow like powers of N, possibly times a logarithm,

.. math:: e_\parallel = 2s - e(\mu^\top\Sigma\mu), \quad e_2 = 2s - e(\operatorname{tr}\Sigma^2),
          \quad e_{align} = \min(e_\parallel, e_2) .

A family states its eigenvalues and its mean; the exponents are derived from them. Source: [width], growth rates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sympy
from sympy import Eq, Expr, Max, Min, Piecewise, Symbol

from .claims import Claim, Kind, Quantity, Source
from .proof import Equation, Limit, Sign, Step
from .symbols import N, a, b, c_signal, latex, mu2, s, sigma2

i = Symbol("i", integer=True, positive=True)
"""Index of an eigen-direction, from 1 to N."""


class Place(StrEnum):
    """The eigen-directions over which the mean is spread evenly."""

    ALL = "all"
    FIRST = "first"
    REST = "all-but-first"
    LAST = "last"


@dataclass(frozen=True)
class Growth:
    """Growth of a moment: N to the ``exponent``, times log N to the ``log`` (0 or 1)."""

    exponent: Expr
    log: Expr = sympy.S.Zero


def _term(expr: Expr) -> tuple[Expr, Expr]:
    """Write a term as N^p i^-c and return (p, c)."""
    powers = sympy.powsimp(expr).as_powers_dict()
    return powers.get(N, sympy.S.Zero), -powers.get(i, sympy.S.Zero)


def _sum(expr: Expr) -> Growth:
    """Growth of a sum of N^p i^-c over i <= N: compare it with its integral."""
    p, c = _term(expr)
    return Growth(p + Max(1 - c, 0), Piecewise((1, Eq(c, 1)), (0, True)))


def _single(expr: Expr, place: Place) -> Growth:
    """Growth of the term at i = 1 or at i = N."""
    p, c = _term(expr)
    return Growth(p if place is Place.FIRST else p - c)


def _larger(x: Growth, y: Growth) -> Growth:
    gap = x.exponent - y.exponent
    return Growth(Max(x.exponent, y.exponent), Piecewise((x.log, gap > 0), (y.log, gap < 0), (Max(x.log, y.log), True)))


@dataclass(frozen=True, kw_only=True)
class Family:
    """A covariance spectrum and the place of a mean with |mu|^2 = N^s.

    Attributes:
        id: Short name.
        meaning: In words.
        bulk: Eigenvalue lambda_i in ``i`` and ``N``.
        place: Where the mean lies.
        spike: Leading eigenvalue instead of the bulk's, where there is one.
    """

    id: str
    meaning: str
    bulk: Expr
    place: Place
    spike: Expr | None = None

    @property
    def eigenvalue(self) -> Expr:
        """lambda_i, the leading one included."""
        return self.bulk if self.spike is None else Piecewise((self.spike, Eq(i, 1)), (self.bulk, True))

    @property
    def mean_squared(self) -> Expr:
        """Square of the mean's coordinate i; they add up to N^s."""
        match self.place:
            case Place.ALL:
                return N ** (s - 1)
            case Place.REST:
                return Piecewise((0, Eq(i, 1)), (N**s / (N - 1), True))
            case Place.FIRST:
                return Piecewise((N**s, Eq(i, 1)), (0, True))
            case Place.LAST:
                return Piecewise((N**s, Eq(i, N)), (0, True))

    @property
    def parallel(self) -> Growth:
        """Growth of mu'Sigma mu."""
        first = self.bulk if self.spike is None else self.spike
        match self.place:
            case Place.FIRST:
                return _single(N**s * first, Place.FIRST)
            case Place.LAST:
                return _single(N**s * self.bulk, Place.LAST)
            case Place.REST:
                return _sum(N ** (s - 1) * self.bulk)
            case Place.ALL:
                return _larger(_sum(N ** (s - 1) * self.bulk), _single(N ** (s - 1) * first, Place.FIRST))

    @property
    def spectrum(self) -> Growth:
        """Growth of tr Sigma^2."""
        first = self.bulk if self.spike is None else self.spike
        return _larger(_sum(self.bulk**2), _single(first**2, Place.FIRST))

    @property
    def e_par(self) -> Expr:
        """Growth exponent of d_par."""
        return 2 * s - self.parallel.exponent

    @property
    def e_2(self) -> Expr:
        """Growth exponent of d_2."""
        return 2 * s - self.spectrum.exponent

    @property
    def e_align(self) -> Expr:
        """Growth exponent of d_align; negative where width hurts."""
        return Min(self.e_par, self.e_2)

    @property
    def log_align(self) -> Expr:
        """Power of log N that divides N^e_align."""
        par, two = Growth(-self.e_par, self.parallel.log), Growth(-self.e_2, self.spectrum.log)
        return _larger(par, two).log

    def function(self) -> Callable[..., Any]:
        """Return (eigenvalues, squared mean) as a function of arrays ``i`` and numbers ``N, a, b, s``."""
        plain = {letter: Symbol(letter.name) for letter in (i, N, a, b, s)}
        # A constant would come back as one number instead of an array as long as i.
        each = [
            Piecewise((expr.xreplace(plain), plain[i] >= 1), (0, True)) for expr in (self.eigenvalue, self.mean_squared)
        ]
        return sympy.lambdify(list(plain.values()), each, modules="numpy")


_FLAT = sympy.S.One
_POWER = i**-a

FAMILIES = {
    family.id: family
    for family in (
        Family(id="flat", meaning="all eigenvalues 1", bulk=_FLAT, place=Place.ALL),
        Family(id="power_spread", meaning="lambda_i = i^-a, mean spread evenly", bulk=_POWER, place=Place.ALL),
        Family(id="power_top", meaning="lambda_i = i^-a, mean on the top direction", bulk=_POWER, place=Place.FIRST),
        Family(id="power_bottom", meaning="lambda_i = i^-a, mean on the last one", bulk=_POWER, place=Place.LAST),
        Family(
            id="spike_aligned",
            meaning="lambda_1 = N^b, others 1, mean on it",
            bulk=_FLAT,
            spike=N**b,
            place=Place.FIRST,
        ),
        Family(
            id="spike_orthogonal",
            meaning="lambda_1 = N^b, others 1, mean off it",
            bulk=_FLAT,
            spike=N**b,
            place=Place.REST,
        ),
    )
}

GROWTH = Quantity(
    id="d_align_growth",
    meaning="exponent of the growth of d_align with the width N",
    latex=r"\lim_{N \to \infty} \log d_{\mathrm{align}} / \log N",
    symbols=("a", "b", "s"),
)


def _power_sums() -> tuple[Step, ...]:
    """The sum of i^-c lies between its integrals to N + 1 and to N, plus 1: growth N^max(1-c, 0), log N at c = 1."""
    x, c, k = sympy.symbols("x c k", positive=True)
    integral = (x**k - 1) / k
    return (
        Sign("i^-c decreases: sums of it lie between integrals", -sympy.diff(x**-c, x), "positive"),
        Equation("antiderivative for c = 1 - k", sympy.diff(integral, x), x ** (k - 1)),
        Limit("c = 1 - k: from above", sympy.log(1 + integral) / sympy.log(x), x, sympy.oo, k),
        Limit("c = 1 - k: from below", sympy.log(integral.subs(x, x + 1)) / sympy.log(x), x, sympy.oo, k),
        Limit("c = 1: log N, below every power", sympy.log(sympy.log(x)) / sympy.log(x), x, sympy.oo, sympy.S.Zero),
        Limit("c = 1 + k: bounded", 1 + integral.subs(k, -k), x, sympy.oo, 1 + 1 / k),
    )


def _rate(family: Family) -> Claim:
    def proof(exponent: Expr) -> tuple[Step, ...]:
        e_par, e_2 = 2 * s - family.parallel.exponent, 2 * s - family.spectrum.exponent
        return (*_power_sums(), Equation("min of 2s less the exponents of the two sums", exponent, Min(e_par, e_2)))

    return Claim(
        id=f"spectra.{family.id}",
        kind=Kind.RATE,
        quantity=GROWTH,
        expression=family.e_align,
        assumptions=(f"spectrum: {family.meaning}", "|mu|^2 = N^s; the exponents do not depend on N"),
        source=Source(paper="[width]", place="growth rates of d_align"),
        statement=rf"d_{{\mathrm{{align}}}} = N^{{e + o(1)}}, \quad e = {latex(family.e_align)}"
        r"\quad (e < 0: \text{ width hurts})",
        proof=proof,
    )


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
