"""A proof is a list of steps as data; sympy checks each of them, and a wrong coefficient makes one fail."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import sympy
from sympy import Expr, Symbol

from .symbols import latex


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What became of one step; ``leftover`` says what is missing where it fails."""

    rule: str
    text: str
    formula: str
    holds: bool
    leftover: str = ""


class Step(Protocol):
    """Anything that can be checked; a value, so that it can be looked up."""

    def check(self) -> StepResult:
        """Decide the step."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The checked steps of one claim."""

    steps: tuple[StepResult, ...]

    @property
    def holds(self) -> bool:
        """Whether there is at least one step and every step holds."""
        return bool(self.steps) and all(step.holds for step in self.steps)

    @property
    def failures(self) -> tuple[StepResult, ...]:
        """The steps that do not hold."""
        return tuple(step for step in self.steps if not step.holds)


def check(steps: Iterable[Step]) -> Proof:
    """Check every step, also those after a failure."""
    return Proof(steps=tuple(_checked(step) for step in steps))


@functools.lru_cache(maxsize=1024)
def _checked(step: Step) -> StepResult:
    """Steps are values: lemmas that several proofs share are checked once a process."""
    return step.check()


def _normal(expr: Expr) -> Expr:
    """Bring a rational expression over one reduced denominator (roots and minima count as letters)."""
    return sympy.cancel(sympy.together(expr))


@dataclass(frozen=True)
class Equation:
    """``lhs = rhs`` identically: their difference cancels to zero."""

    text: str
    lhs: Expr
    rhs: Expr

    def check(self) -> StepResult:
        """Cancel the difference."""
        residual = _normal(self.lhs - self.rhs)
        return StepResult(
            rule="equation",
            text=self.text,
            formula=f"{latex(self.lhs)} = {latex(self.rhs)}",
            holds=residual == 0,
            leftover="" if residual == 0 else f"the difference leaves {residual}",
        )


def _shift_integers(expr: Expr) -> Expr:
    """Write every positive integer as 1 + (nonnegative integer), so that M - 1 counts as nonnegative."""
    integers = [x for x in expr.free_symbols if x.is_integer and x.is_positive]
    return expr.xreplace({x: 1 + Symbol(f"{x.name}_less_1", integer=True, nonnegative=True) for x in integers})


def _monomials(expr: Expr) -> list[Expr]:
    return list(sympy.Add.make_args(sympy.expand(expr)))


def _wrong_terms(expr: Expr, sign: str) -> list[Expr]:
    """Return the monomials that keep a polynomial from having the sign (the empty list: it has it)."""
    terms = _monomials(expr)
    wrong = [term for term in terms if not term.is_nonnegative]
    if wrong or sign == "nonnegative" or any(term.is_positive for term in terms):
        return wrong
    return terms


@dataclass(frozen=True)
class Sign:
    """``expr`` is positive or nonnegative because its letters are: no coefficient has the wrong sign."""

    text: str
    expr: Expr
    sign: Literal["positive", "nonnegative"]

    def check(self) -> StepResult:
        """Look at the coefficients of the numerator and of the denominator, nothing numeric."""
        numerator, denominator = map(_shift_integers, sympy.fraction(_normal(self.expr)))
        if _wrong_terms(denominator, "positive"):
            numerator, denominator = -numerator, -denominator
        wrong = _wrong_terms(denominator, "positive") or _wrong_terms(numerator, self.sign)
        # A square of a real expression has cross terms of both signs: sympy's own assumptions see it whole.
        holds = not wrong or getattr(self.expr, f"is_{self.sign}") is True
        relation = ">" if self.sign == "positive" else r"\ge"
        return StepResult(
            rule="sign",
            text=self.text,
            formula=f"{latex(self.expr)} {relation} 0",
            holds=holds,
            leftover="" if holds else f"not {self.sign} for sure: {', '.join(map(str, wrong))}",
        )


@dataclass(frozen=True)
class Limit:
    """``expr`` tends to ``value`` as ``variable`` tends to ``point`` (from above where finite)."""

    text: str
    expr: Expr
    variable: Symbol
    point: Expr
    value: Expr

    def check(self) -> StepResult:
        """Take the limit and compare; one that sympy cannot decide fails."""
        try:
            limit = sympy.limit(self.expr, self.variable, self.point)
        except NotImplementedError:
            limit = sympy.nan
        residual = _normal(limit - self.value)
        arrow = rf"{latex(self.variable)} \to {latex(self.point)}"
        return StepResult(
            rule="limit",
            text=self.text,
            formula=rf"\lim_{{{arrow}}} {latex(self.expr)} = {latex(self.value)}",
            holds=residual == 0,
            leftover="" if residual == 0 else f"the limit is {'undecided' if limit is sympy.nan else limit}",
        )


@dataclass(frozen=True)
class Identify:
    r"""A sum or expectation of a polynomial, monomial by monomial.

    ``expr`` is expanded in ``letters``; each monomial in them stands for the named moment in ``moments`` (for example
    :math:`\sum_{ij} m_i m_j S_{ij} = \mu^\top\Sigma\mu`); the moments with their coefficients must add up to ``value``.
    A monomial without a name fails the step.
    """

    text: str
    expr: Expr
    letters: tuple[Symbol, ...]
    moments: tuple[tuple[Expr, Expr], ...]
    value: Expr

    def check(self) -> StepResult:
        """Expand, look every monomial up, add, compare."""
        names = dict(self.moments)
        total, unknown = sympy.S.Zero, []
        for term in _monomials(self.expr):
            coefficient, monomial = term.as_independent(*self.letters, as_Add=False)
            if monomial in names:
                total += coefficient * names[monomial]
            else:
                unknown.append(monomial)
        residual = _normal(total - self.value)
        reasons = [f"no moment is named for {', '.join(map(str, unknown))}"] if unknown else []
        reasons += [f"the difference leaves {residual}"] if residual != 0 else []
        return StepResult(
            rule="identify",
            text=self.text,
            formula=rf"{latex(self.expr)} \mapsto {latex(self.value)}",
            holds=not reasons,
            leftover="; ".join(reasons),
        )
