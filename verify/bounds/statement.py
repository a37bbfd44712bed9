"""Stating a bound: from text, from a Python file, and to and from the JSON of a stored counterexample."""

import importlib.util
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import sympy

from ...theory.claims import Claim, Kind, Quantity, Source
from ...theory.symbols import TABLE, latex
from .text import BoundError, parse

__all__ = ["BoundError", "as_json", "bound", "from_json", "letters", "load"]

SIGNS = {Kind.UPPER_BOUND: r"\le", Kind.LOWER_BOUND: r"\ge", Kind.IDENTITY: "=", Kind.RATE: r"\sim"}
EXAMPLE = 'mine = rescert.bound("1/(n_eff*d_align)", id="draft.mine")'


def letters(quantity: Quantity, spellings: Mapping[str, str]) -> dict[str, Any]:
    """Return the names that a text on a quantity may use, with their symbols.

    Args:
        quantity: What the text speaks about.
        spellings: Names that mean another letter here; they hide the letter of that name.
    """
    hidden = {*spellings, *spellings.values()}
    own = {name: TABLE[name].symbol for name in quantity.symbols if name not in hidden}
    return own | {name: TABLE[letter].symbol for name, letter in spellings.items()}


def bound(
    text: str,
    *,
    quantity: Quantity,
    kind: Kind = Kind.UPPER_BOUND,
    spellings: Mapping[str, str] | None = None,
    id: str = "yours",
    assumptions: Iterable[str] = (),
) -> Claim:
    """State a bound as text.

    Args:
        text: In the language of ``text.py``.
        quantity: What it is on.
        kind: How it relates to the quantity.
        spellings: As for :func:`letters`.
        id: Its name in verdicts.
        assumptions: In words; nothing is checked against them.

    Returns:
        A claim without a proof.

    Raises:
        BoundError: If the text cannot be read.
    """
    expression = parse(text, letters(quantity, spellings or {}))
    return Claim(
        id=id,
        kind=kind,
        quantity=quantity,
        expression=expression,
        assumptions=tuple(assumptions),
        source=Source(paper="yours", place="as stated"),
        statement=f"{quantity.latex} {SIGNS[kind]} {latex(expression)}",
    )


def load(path: Path) -> tuple[Claim, ...]:
    """Run a Python file and return the claims in it, in order, each once, lists and tuples of claims included.

    A proof that a claim brings along is dropped: its steps are the user's, and only ours count.

    Raises:
        BoundError: If there is no such file, it fails, or holds no claim or two of one id.
    """
    path = path.absolute()
    if not path.is_file():
        raise BoundError(f"{path}: no such file; a bound is text such as '1/(n_eff*d_align)', or a Python file.")
    if path.suffix != ".py":
        raise BoundError(f"{path}: expected a Python file, whose name ends in .py.")
    spec = importlib.util.spec_from_file_location(f"rescert_bounds_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    # A dataclass of the file looks its module up by name.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        what = str(error).splitlines()[0] if str(error) else "no message"
        raise BoundError(f"{path}, line {line}: {type(error).__name__}: {what}") from error
    finally:
        del sys.modules[spec.name]
        sys.path.remove(str(path.parent))
    found: dict[int, Claim] = {}
    for value in vars(module).values():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, Claim):
                found.setdefault(id(item), replace(item, proof=None))
    if not found:
        raise BoundError(f"{path}: no claim in it; write one as in `{EXAMPLE}`.")
    names = [claim.id for claim in found.values()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BoundError(f"{path}: {', '.join(twice)} names two claims; give each its own id.")
    return tuple(found.values())


def as_json(claim: Claim) -> dict[str, Any]:
    """Write a claim as plain data; decimals as the fractions that they spell.

    Raises:
        BoundError: If its expression is outside the language of text, as a Piecewise of a user's file is.
    """
    decimals = {x: sympy.Rational(str(x)) for x in claim.expression.atoms(sympy.Float)}
    expression = claim.expression.xreplace(decimals)
    text = str(expression)
    try:
        again = parse(text, letters(claim.quantity, {}))
    except BoundError:
        again = sympy.nan
    # What is printed as -(M - K) is read as K - M.
    if again != expression and sympy.expand(again - expression) != 0:
        raise BoundError(f"{claim.id}: {text:.60} is no expression of text; a replay needs the file it came from.")
    return {"id": claim.id, "quantity": claim.quantity.id, "kind": claim.kind.value, "expression": text}


def from_json(data: Mapping[str, Any], quantities: Mapping[str, Quantity]) -> Claim:
    """Read a claim that :func:`as_json` wrote.

    Raises:
        BoundError: If it is none.
    """
    try:
        quantity, kind = quantities[data["quantity"]], Kind(data["kind"])
        return bound(data["expression"], quantity=quantity, kind=kind, id=str(data["id"]))
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, BoundError):
            raise
        raise BoundError(f"claim: {type(error).__name__} {error}; expected what `rescert check` stores.") from None
