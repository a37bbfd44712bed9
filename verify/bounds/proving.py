r"""Decide a bound without a search: is its expression at least B_exact for all M, K >= 1 and all moments of a law?

B_exact bounds the misalignment of every law ([width], Cantelli's inequality), so that what lies above it is a bound. z3
decides this for expressions made of sums, products, rational powers, Max, Min and Abs: nonlinear real arithmetic, on
the closed domain (a covariance may be singular or zero). Counts are taken as real numbers, which is sound for a proof.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import sympy
from sympy import Expr, Symbol

from ...theory.certificate import B_ALIGN, B_EXACT, ODDS_EXACT
from ...theory.claims import Claim, Kind
from ...theory.consistency import MCDIARMID
from ...theory.expansion import FIXED_STEP, GAIN_MEAN
from ...theory.symbols import (
    TABLE,
    K,
    L_smooth,
    M,
    N,
    delta,
    eta,
    gain_mean,
    gain_variance,
    lambda_max,
    mu2,
    mu_Sigma_mu,
    n_samples,
    tr_Sigma,
    tr_Sigma2,
    unfold,
)
from .target import Decision

MOMENTS = (mu2, mu_Sigma_mu, tr_Sigma, tr_Sigma2, lambda_max)
LETTERS = (M, K, N, *MOMENTS, eta, L_smooth, gain_mean, gain_variance)
OPERATIONS, TERMS, ROOT, POWER = 250, 500, 4, 12
# Effort of one question in z3's own unit, the same on every machine; the wall clock is the second line of defence.
RLIMIT, PATIENT, MILLISECONDS = 100_000, 1_500_000, 1500
DIAGONAL = (1, 2, 3, 4, 8, 16, 32, 64)
FOR_ALL = "for all M, K >= 1 and all moments that a law can have"


_EXACT = "is at least B_exact, which bounds P for every law [width],"
_ODDS = "is at least the odds of B_exact, hence B_exact, which bounds P for every law [width],"
_ALIGN = "is at least B_align, which bounds P for every law [width, Theorem 1],"
_STEP = (
    "is at least Cantelli's bound on P(Y <= 0), which is at least the probability of no decrease [width, Theorem 2],"
)
STEPS: dict[tuple[str, Kind], tuple[tuple[Expr, str, int], ...]] = {
    ("misalignment", Kind.UPPER_BOUND): (
        (B_EXACT, _EXACT, RLIMIT),
        (ODDS_EXACT, _ODDS, RLIMIT),
        (B_ALIGN, _ALIGN, RLIMIT),
        (B_EXACT, _EXACT, PATIENT),
    ),
    ("no_decrease", Kind.UPPER_BOUND): ((FIXED_STEP, _STEP, PATIENT),),
    **{
        (quantity, Kind.LOWER_BOUND): ((sympy.S.Zero, "is at most 0, which no probability falls below,", PATIENT),)
        for quantity in ("misalignment", "no_decrease")
    },
    ("bound_difference", Kind.ORDERING): ((sympy.S.Zero, "is at least 0", PATIENT),),
}
"""What the expression of a bound is held against, in turn, and the effort: what lies above a bound is easier to see."""


class Unsuited(ValueError):
    """An expression on which nothing can be decided here."""


@dataclass(frozen=True, kw_only=True)
class Ordering:
    """How the expressions of two claims compare over all letters that a law can have.

    Attributes:
        claim: The first.
        other: The second.
        relation: ">=", "<=", "==" or "incomparable" (each is the smaller one somewhere).
    """

    claim: str
    other: str
    relation: str


def available() -> bool:
    """Whether z3 is installed."""
    return find_spec("z3") is not None


def decide(claim: Claim) -> Decision | None:
    """Decide a bound on the misalignment, or an ordering of two bounds.

    Args:
        claim: Of kind UPPER_BOUND (decided against B_exact), LOWER_BOUND (against 0) or ORDERING (against 0).

    Returns:
        A proof, or letters at which the sufficient condition fails: these refute nothing. None where z3 is missing,
        does not understand the expression, or gives up.
    """
    if not available():
        return None
    for known, why, effort in STEPS.get((claim.quantity.id, claim.kind), ()):
        sign = -1 if claim.kind is Kind.LOWER_BOUND else 1
        try:
            holds, hint = nonnegative(sign * (claim.expression - known), effort)
        except Unsuited:
            return None
        if holds or (holds is False and known in (B_EXACT, FIXED_STEP, 0)):
            implication = f"{claim.expression} {why} {FOR_ALL}"
            return Decision(proved=holds, implication=implication, hint=hint)
    return None


def orderings(claim: Claim, others: Iterable[Claim]) -> list[Ordering]:
    """Compare a bound with others of its kind on the same quantity; what cannot be decided is left out."""
    found = []
    for other in others:
        same = (other.quantity.id, other.kind) == (claim.quantity.id, claim.kind)
        if other.id == claim.id or not same or not available():
            continue
        try:
            above = nonnegative(claim.expression - other.expression, PATIENT)[0]
            below = nonnegative(other.expression - claim.expression, PATIENT)[0]
        except Unsuited:
            continue
        if above is None or below is None:
            continue
        relation = {(True, True): "==", (True, False): ">=", (False, True): "<="}.get((above, below), "incomparable")
        found.append(Ordering(claim=claim.id, other=other.id, relation=relation))
    return found


def decide_deviation(claim: Claim) -> Decision | None:
    """Prove an upper bound that is McDiarmid's plus terms of one sign; None for any other.

    With s = sqrt(ln(1/delta)) and r = 1/sqrt(n), both positive, the difference is a polynomial without negative terms.
    """
    if claim.kind is not Kind.UPPER_BOUND:
        return None
    s, r = sympy.symbols("s r", positive=True)
    plain = {delta: sympy.exp(-(s**2)), n_samples: r**-2}
    difference = sympy.expand(
        sympy.powdenest(sympy.expand_log((claim.expression - MCDIARMID).xreplace(plain), force=True))
    )
    terms = sympy.Add.make_args(difference)
    if not all(term.is_nonnegative for term in terms):
        return None
    implication = (
        f"{claim.expression} is at least McDiarmid's bound B/sqrt(n) (1 + sqrt(2 ln(1/delta))) for all n >= 1, "
        "B > 0 and 0 < delta < 1; that bound holds for every law [depth]"
    )
    return Decision(proved=True, implication=implication)


@functools.lru_cache(maxsize=256)
def nonnegative(expression: Expr, effort: int = RLIMIT) -> tuple[bool | None, dict[str, float] | None]:
    """Decide whether an expression is at least 0 for all letters that a law can have.

    Returns:
        (True, None), (False, letters where it is not), or (None, None) where z3 gives up.

    Raises:
        Unsuited: If the expression is none that can be decided.
    """
    expr = _exact(unfold(expression))
    if not expr.free_symbols <= set(LETTERS):
        raise Unsuited(f"{expr} has letters without a domain")
    if _degree(expr) == 0 and gain_mean not in expr.free_symbols:
        expr = expr.xreplace({mu2: sympy.S.One})
    question = _Question(expr, effort)
    if not question.is_defined():
        return None, None
    answer, point = question.ask()
    return answer, point


def _exact(expr: Expr) -> Expr:
    """Read decimals as the fractions that they spell, and refuse what is too large to be looked at."""
    if expr.count_ops() > OPERATIONS:
        raise Unsuited("too large")
    return expr.xreplace({x: sympy.Rational(str(x)) for x in expr.atoms(sympy.Float)})


def _degree(expr: Expr) -> Expr | None:
    """Degree of homogeneity in the unit of q; None if the expression has none."""
    if expr.is_number:
        return sympy.S.Zero
    if expr.is_Symbol:
        unit = TABLE[str(expr)].unit
        return sympy.Integer(unit.removeprefix("q^")) if unit.startswith("q^") else sympy.S.Zero
    if isinstance(expr, sympy.Pow):
        base = _degree(expr.base)
        return base * expr.exp if base is not None and expr.exp.is_number else None
    degrees = [degree for argument in expr.args if (degree := _degree(argument)) is not None]
    if len(degrees) < len(expr.args):
        return None
    if isinstance(expr, sympy.Mul):
        return sum(degrees, sympy.S.Zero)
    if isinstance(expr, sympy.Add | sympy.Max | sympy.Min | sympy.Abs):
        return degrees[0] if len(set(degrees)) == 1 else None
    return None


class _Question:
    """Whether ``numerator / denominator`` can be negative, with a letter of its own for each Max, Min, Abs and root."""

    def __init__(self, expr: Expr, effort: int) -> None:
        import z3

        self.effort = effort
        self.z3, self.context = z3, z3.Context()
        self.known: dict[Symbol, Any] = {}
        self.helpers: dict[Expr, Symbol] = {}
        self.definitions: list[Any] = []
        # What must not be, and how many definitions it may rest on: those of the letters inside it, never its own.
        self.forbidden: list[tuple[Any, int]] = []
        self.domain = self.moments(expr.free_symbols)
        self.numerator, _ = self.fraction(self.plain(expr))

    # From sympy to polynomials

    def plain(self, expr: Expr) -> Expr:
        """Put a letter for every Max, Min, Abs and root, with what defines it."""
        if expr.is_Rational or expr.is_Symbol:
            return expr
        if isinstance(expr, sympy.Pow):
            if not expr.exp.is_Rational or abs(expr.exp.p) > POWER or expr.exp.q > ROOT:
                raise Unsuited(f"the power {expr.exp}")
            base = self.plain(expr.base)
            return base**expr.exp if expr.exp.is_Integer else self.root(base, int(expr.exp.q)) ** int(expr.exp.p)
        arguments = [self.plain(argument) for argument in expr.args]
        if isinstance(expr, sympy.Add | sympy.Mul):
            return expr.func(*arguments)
        if isinstance(expr, sympy.Abs):
            return self.extreme([arguments[0], -arguments[0]], largest=True)
        if isinstance(expr, sympy.Max | sympy.Min):
            return self.extreme(arguments, largest=isinstance(expr, sympy.Max))
        raise Unsuited(f"{expr.func.__name__} is no function that z3 decides")

    def root(self, base: Expr, order: int) -> Expr:
        if self.is_flipped(base):
            return 1 / self.root(1 / base, order)
        key = sympy.Function("root")(base, order)
        if key not in self.helpers:
            letter = self.helpers[key] = Symbol(f"root_{len(self.helpers)}", nonnegative=True)
            top, bottom = self.fraction(base)
            self.forbidden.append((self.polynomial(top) < 0, len(self.definitions)))
            self.definitions += [self.real(letter) >= 0, self.polynomial(letter**order * bottom - top) == 0]
        return self.helpers[key]

    def extreme(self, arguments: Sequence[Expr], *, largest: bool) -> Expr:
        if any(self.is_flipped(argument) for argument in arguments):
            return 1 / self.extreme([1 / argument for argument in arguments], largest=not largest)
        key = sympy.Function("largest" if largest else "least")(*arguments)
        if key not in self.helpers:
            letter = self.helpers[key] = Symbol(f"extreme_{len(self.helpers)}", real=True)
            gaps = [self.polynomial(letter * bottom - top) for top, bottom in map(self.fraction, arguments)]
            self.definitions += [gap >= 0 if largest else gap <= 0 for gap in gaps]
            self.definitions.append(self.z3.Or([gap == 0 for gap in gaps]))
        return self.helpers[key]

    def is_flipped(self, expr: Expr) -> bool:
        """Whether an expression is to be looked at upside down: positive, and infinite where a moment vanishes.

        Min(1/x, 1/y) = 1/Max(x, y) for x, y >= 0, also where one of them is 0.
        """
        top, bottom = sympy.fraction(sympy.cancel(sympy.together(expr)))
        if bottom.is_number or self.never(self.polynomial(bottom) <= 0):
            return False
        if self.never(self.polynomial(top) <= 0) and self.never(self.polynomial(bottom) < 0):
            return True
        raise Unsuited(f"{bottom} can vanish")

    def never(self, condition: Any) -> bool:
        return self.check(condition)[0] is False

    def fraction(self, expr: Expr) -> tuple[Expr, Expr]:
        """Return numerator and denominator; the denominator is noted, for it must be positive."""
        top, bottom = sympy.fraction(sympy.cancel(sympy.together(expr)))
        if bottom.is_number and bottom.is_negative:
            top, bottom = -top, -bottom
        if not bottom.is_number:
            self.forbidden.append((self.polynomial(bottom) <= 0, len(self.definitions)))
        return top, bottom

    def polynomial(self, expr: Expr) -> Any:
        if expr.is_Rational:
            return self.z3.RealVal(str(expr), self.context)
        polynomial = sympy.Poly(expr, *sorted(expr.free_symbols, key=str))
        if len(polynomial.terms()) > TERMS or (not polynomial.domain.is_QQ and not polynomial.domain.is_ZZ):
            raise Unsuited("too large, or irrational coefficients")
        terms = []
        for powers, coefficient in polynomial.terms():
            term = self.z3.RealVal(str(coefficient), self.context)
            for letter, power in zip(polynomial.gens, powers, strict=True):
                for _ in range(power):
                    term = term * self.real(letter)
            terms.append(term)
        return self.z3.Sum(terms) if len(terms) > 1 else terms[0]

    def real(self, letter: Symbol) -> Any:
        if letter not in self.known:
            self.known[letter] = self.z3.Real(letter.name, self.context)
        return self.known[letter]

    # What holds of every law

    def moments(self, used: Iterable[Symbol]) -> list[Any]:
        """Inequalities between the letters that occur; Sigma is positive semidefinite and N x N, mu is not zero."""
        used = {M, K, mu_Sigma_mu, tr_Sigma2, *used}
        if gain_mean in used:
            used |= {mu2, tr_Sigma, eta, L_smooth}
        m = self.real(mu2) if mu2 in used else self.z3.RealVal(1, self.context)
        along, spectrum = self.real(mu_Sigma_mu), self.real(tr_Sigma2)
        found = [self.real(M) >= 1, self.real(K) >= 1, along >= 0, spectrum >= 0, m > 0]
        # mu'Sigma mu <= |mu|^2 ||Sigma||, and ||Sigma||^2 is at most the sum of all squared eigenvalues.
        found.append(along * along <= m * m * spectrum)
        if lambda_max in used:
            largest = self.real(lambda_max)
            found += [largest >= 0, along <= largest * m, largest * largest <= spectrum]
        if tr_Sigma in used:
            trace = self.real(tr_Sigma)
            found += [trace >= 0, along <= trace * m, spectrum <= trace * trace]
        if {lambda_max, tr_Sigma} <= used:
            found += [largest <= trace, spectrum <= largest * trace]
        found += [self.real(letter) > 0 for letter in (eta, L_smooth, gain_variance) if letter in used]
        if gain_mean in used:
            found.append(self.polynomial(sympy.expand(2 * M * (gain_mean - GAIN_MEAN))) == 0)
        if N in used:
            width = self.real(N)
            found.append(width >= 1)
            if tr_Sigma in used:
                found.append(trace * trace <= width * spectrum)
            if lambda_max in used:
                found.append(spectrum <= width * largest * largest)
            if {lambda_max, tr_Sigma} <= used:
                found.append(trace <= width * largest)
        return found

    # Questions to z3

    def is_defined(self) -> bool:
        """Whether the expression is real and continuous on the whole closed domain: no denominator vanishes there."""
        return all(self.check(bad, definitions=count)[0] is False for bad, count in self.forbidden)

    def ask(self) -> tuple[bool | None, dict[str, float] | None]:
        violated = self.polynomial(self.numerator) < 0
        found, point = self.check(violated)
        if found is None or not found:
            return (None if found is None else True), None
        assert point is not None
        for count in DIAGONAL:
            here, better = self.check(violated, self.real(M) == count, self.real(K) == count)
            if here:
                return False, better
        whole = [self.real(letter) == max(1, round(point[letter.name])) for letter in (M, K)]
        here, better = self.check(violated, *whole)
        return False, better if here else point

    def check(self, *conditions: Any, definitions: int | None = None) -> tuple[bool | None, dict[str, float] | None]:
        """Whether the conditions can hold together on the domain, and where."""
        z3 = self.z3
        solver = z3.SolverFor("QF_NRA", ctx=self.context)
        solver.set("rlimit", self.effort)
        solver.set("timeout", MILLISECONDS)
        solver.add(*self.domain, *self.definitions[:definitions], *conditions)
        answer = solver.check()
        if answer == z3.unknown:
            return None, None
        if answer == z3.unsat:
            return False, None
        model = solver.model()
        point = {letter.name: _float(model.eval(x, model_completion=True), z3) for letter, x in self.known.items()}
        return True, {"mu2": 1.0} | {name: value for name, value in point.items() if name in TABLE}


def _float(value: Any, z3: Any) -> float:
    # A root of a polynomial comes as an algebraic number.
    rational = value if z3.is_rational_value(value) else value.approx(20)
    return float(rational.as_fraction())
