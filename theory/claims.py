"""Claims as data: what is said, of which quantity, under which assumptions, from which source, and why.

How an expression becomes a number is told in ``evaluation.py``.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

import sympy
from sympy import Expr, Symbol

from .evaluation import arguments, compiled, require, total
from .proof import Proof, Step, check
from .symbols import TABLE, latex


class Kind(StrEnum):
    """How the expression of a claim relates to its quantity."""

    IDENTITY = "identity"
    """The quantity equals the expression."""
    UPPER_BOUND = "upper-bound"
    """The quantity is at most the expression."""
    LOWER_BOUND = "lower-bound"
    """The quantity is at least the expression."""
    EQUIVALENCE = "equivalence"
    """The stated property holds exactly from the expression on."""
    ORDERING = "ordering"
    """The expression, a difference of two bounds, is nonnegative."""
    LIMIT = "limit"
    """The quantity tends to the expression."""
    RATE = "rate"
    """The quantity's law in a size: a number or a family's letters are its exponent (up to logarithms), an expression
    with constants c is the law itself, for some values of them."""


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What a claim speaks about, and the letters that an expression for it may use."""

    id: str
    meaning: str
    latex: str
    symbols: tuple[str, ...]
    unit: str = "1"

    def __post_init__(self) -> None:
        unknown = [name for name in self.symbols if name not in TABLE]
        if unknown:
            raise ValueError(f"Quantity {self.id}: no letter {', '.join(unknown)} in theory/symbols.py; register it.")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a claim comes from: a paper's id and the place in it."""

    paper: str
    place: str

    def __str__(self) -> str:
        return f"{self.paper}, {self.place}"


Steps = Callable[[Expr], tuple[Step, ...]]


@dataclass(frozen=True)
class Derivation:
    """The steps of a proof as a function of the claimed expression, and what they show: a kind of claim on a quantity.

    Of another kind or another quantity the same steps show nothing.
    """

    kind: Kind
    quantity: str
    steps: Steps

    def __call__(self, expression: Expr) -> tuple[Step, ...]:
        """Return the steps, also for use in a longer proof."""
        return self.steps(expression)


def proves(kind: Kind, quantity: str) -> Callable[[Steps], Derivation]:
    """Declare what a function of steps proves.

    Args:
        kind: Of the claim.
        quantity: Id of the quantity that the claim speaks about.
    """
    return functools.partial(Derivation, kind, quantity)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement of the theory, or a user's own.

    Attributes:
        id: Dotted name, ``<theory>.<claim>``.
        kind: How ``expression`` relates to ``quantity``.
        quantity: What is spoken about.
        expression: The bound, the right-hand side, the exponent.
        assumptions: What must hold, in words.
        source: Paper and place.
        statement: The claim in LaTeX.
        proof: The steps as a function of the expression, so that another expression faces the same steps; they count
            for the kind and the quantity that they were written for only.
    """

    id: str
    kind: Kind
    quantity: Quantity
    expression: Expr
    assumptions: tuple[str, ...]
    source: Source
    statement: str
    proof: Derivation | None = None

    def __post_init__(self) -> None:
        allowed = {TABLE[name].symbol for name in self.quantity.symbols}
        foreign = sorted(str(symbol) for symbol in self.expression.free_symbols - allowed)
        if foreign:
            raise ValueError(
                f"Claim {self.id}: quantity {self.quantity.id} knows no {', '.join(foreign)}; "
                f"use {', '.join(self.quantity.symbols)}."
            )

    def prove(self) -> Proof | None:
        """Check the proof's steps on the expression; None where there is no proof of this kind on this quantity."""
        if self.proof is None or (self.proof.kind, self.proof.quantity) != (self.kind, self.quantity.id):
            return None
        return check(self.proof(self.expression))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The underived letters that the expression depends on."""
        return arguments(self.expression)

    def function(self, *names: str) -> Callable[..., Any]:
        """Return the expression as a function of these letters, by position or keyword, for floats and arrays.

        A derived letter that is named stays an argument (``function("M", "K", "d_align")``); the others are unfolded.

        Args:
            names: The letters, in the order of the arguments.

        Raises:
            ValueError: If the expression depends on further letters.
        """
        return compiled(self.expression, names)

    def numeric(self) -> Callable[..., Any]:
        """Return the expression as a function of underived letters by keyword; letters it does not need are ignored.

        Example: ``claim.numeric()(M=64, K=64, mu2=1.0, mu_Sigma_mu=2.0, tr_Sigma=9.0, tr_Sigma2=5.0)``.

        The function raises a ValueError where a value is none that its letter can have (M = 1.5, mu2 = -1, NaN).
        """
        function = self.function(*self.arguments)

        def evaluate(**values: Any) -> Any:
            return function(**self._select(values))

        return evaluate

    def number(self, **values: int | Fraction) -> Expr:
        """Evaluate the expression at rational letters, symbolically; letters it does not need are ignored.

        Args:
            values: The underived letters as integers or fractions.

        Returns:
            The exact value, which may be irrational, infinite or undefined.

        Raises:
            TypeError: If a value is not rational, or one is missing.
            ValueError: If a value is none that its letter can have.
        """
        selected = self._select(values)
        for name, value in selected.items():
            if not isinstance(value, int | Fraction):
                raise TypeError(f"Claim {self.id}: exact() got {name} = {value!r}, expected an int or a Fraction.")
        point = {Symbol(name): sympy.Rational(*value.as_integer_ratio()) for name, value in selected.items()}
        return total(self.expression, self.arguments).xreplace(point)

    def exact(self, **values: int | Fraction) -> Fraction:
        """Evaluate the expression in rational arithmetic; letters it does not need are ignored.

        Args:
            values: The underived letters as integers or fractions.

        Returns:
            The exact value.

        Raises:
            TypeError: If a value is not rational, or one is missing.
            ValueError: If a value is none that its letter can have, or the result infinite, undefined or irrational.
        """
        result = self.number(**values)
        if not result.is_Rational:
            raise ValueError(
                f"Claim {self.id}: the expression is {result} at {_spell(self._select(values))}, "
                "not a rational number; use numeric() there."
            )
        return Fraction(int(result.p), int(result.q))

    def _select(self, values: dict[str, Any]) -> dict[str, Any]:
        unknown = [name for name in values if name not in TABLE]
        missing = [name for name in self.arguments if name not in values]
        if unknown or missing:
            raise TypeError(
                f"Claim {self.id}: expected {', '.join(self.arguments) or 'no letter'}; "
                f"missing {', '.join(missing) or 'none'}, unknown {', '.join(unknown) or 'none'}."
            )
        for name in self.arguments:
            require(f"Claim {self.id}", name, values[name])
        return {name: values[name] for name in self.arguments}


def describe(claim: Claim) -> dict[str, Any]:
    """Everything there is to say of a claim, ready for JSON; runs its proof."""
    proof = claim.prove()
    return {
        "id": claim.id,
        "kind": claim.kind.value,
        "quantity": {"id": claim.quantity.id, "meaning": claim.quantity.meaning, "latex": claim.quantity.latex},
        "formula": str(claim.expression),
        "formula_latex": latex(claim.expression),
        "letters": {str(x): TABLE[str(x)].meaning for x in sorted(claim.expression.free_symbols, key=str)},
        "assumptions": list(claim.assumptions),
        "source": str(claim.source),
        "statement": claim.statement,
        "proof": None
        if proof is None
        else {
            "holds": proof.holds,
            "steps": [dataclasses.asdict(step) for step in proof.steps],
        },
    }


def _spell(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
