"""From text to an expression: Python's grammar with a whitelist, built into sympy objects by hand.

Nothing is evaluated that the text could make large: lengths, depths, digits, exponents, arguments of min and max, and
the size of the expression over a common denominator are limited, each before the work that it bounds.
"""

import ast
import difflib
import math
import re
import warnings
from collections.abc import Callable, Mapping
from fractions import Fraction

import sympy
from sympy import Expr, Rational, Symbol

from .size import require_small

MAX_LENGTH = 10_000
MAX_NODES = 200
MAX_DEPTH = 40
MAX_DIGITS = 300
MAX_POWER = 64
MAX_CHOICES = 12
MAX_GAMMA = 100
MAX_TOWER = 2
MAX_DEGREE = 2
# sympy tells a constant from 0 by a hundred digits.
TINY = 1e-100
WINDOW = 72

_UNREADABLE = re.compile(r"[^A-Za-z0-9_ .,+\-*/()]")
COMPLEX = "this is complex: the root or the logarithm of a negative number"
_HINTS = {"^": "write ** for powers", "=": "write the bound alone, without a relation", "\N{MINUS SIGN}": "write -"}
_DECIMAL = re.compile(r"(\d*)\.?(\d*)(?:[eE][+-]?0*(\d*))?")
_SUMS, _PRODUCTS = (ast.Add, ast.Sub), (ast.Mult, ast.Div)
_BAD = (sympy.zoo, sympy.oo, -sympy.oo, sympy.nan)
_NODES: tuple[type, ...] = (sympy.Add, sympy.Mul, sympy.Pow, Rational, Symbol, sympy.Max, sympy.Min, sympy.Abs)
_NODES += (sympy.exp, sympy.log, sympy.erf, sympy.erfc, sympy.gamma, type(sympy.pi), type(sympy.E))


class BoundError(ValueError):
    """A bound that cannot be read, or has no sound value: what is wrong, and the place with a caret below."""

    @classmethod
    def at(cls, text: str, column: int, message: str) -> "BoundError":
        """Return the error for one place of a text of one line, of which at most 72 columns are shown."""
        start = max(0, min(column - WINDOW // 2, len(text) - WINDOW))
        shown = "".join(c if c.isprintable() else "?" for c in text[start : start + WINDOW])
        return cls(f"bound: {message}.\n  {shown}\n  {' ' * (column - start)}^")


def normal_cdf(x: Expr) -> Expr:
    """The standard normal distribution function; not by 1 + erf, which is 0 for floats in the lower tail."""
    return sympy.erfc(-x / sympy.sqrt(2)) / 2


def _abs(x: Expr) -> Expr:
    # Where sympy does not know that x is real, it would bring in conjugates.
    return sympy.Abs(x) if x.is_extended_real else sympy.Abs(x, evaluate=False)


FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "sqrt": sympy.sqrt,
    "exp": sympy.exp,
    "log": sympy.log,
    "min": sympy.Min,
    "max": sympy.Max,
    "abs": _abs,
    "normal_cdf": normal_cdf,
    "erf": sympy.erf,
    "erfc": sympy.erfc,
    "gamma": sympy.gamma,
    "Min": sympy.Min,
    "Max": sympy.Max,
    "Abs": _abs,
}
CONSTANTS: dict[str, Expr] = {"pi": sympy.pi, "E": sympy.E}


def parse(text: str, letters: Mapping[str, Symbol]) -> Expr:
    """Read an expression.

    Numbers are exact: 0.2 is the fraction 1/5. What sympy prints of an expression of this language reads as the same
    expression; therefore pi and E are known too, unless they are letters.

    Args:
        text: Numbers, letters, ``+ - * / **``, parentheses, and the functions of ``FUNCTIONS``.
        letters: The symbol of each name that may be used.

    Raises:
        BoundError: If the text is anything else, has no finite real value, or is larger than the limits of this module.
        TypeError: If it is no text.
    """
    if not isinstance(text, str):
        raise TypeError(f"parse: expected text, got {type(text).__name__}.")
    if len(text) > MAX_LENGTH:
        raise BoundError.at(text, MAX_LENGTH, f"the bound has {len(text)} characters, at most {MAX_LENGTH} are read")
    text = re.sub(r"[\t\r\n]", " ", text).strip(" ")
    if not text:
        raise BoundError("bound: empty text; expected an expression such as 1/(1 + n_eff*d_align).")
    if found := _UNREADABLE.search(text):
        hint = _HINTS.get(found[0], "only letters, numbers, . , + - * / ** and parentheses are read")
        raise BoundError.at(text, found.start(), f"unexpected character {found[0]!a}; {hint}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        column, why = min(max((error.offset or 1) - 1, 0), len(text)), error.msg.partition(":")[0]
        raise BoundError.at(text, column, f"cannot be read here ({why}); products are written with *") from None
    except (MemoryError, RecursionError, ValueError):
        raise BoundError.at(text, 0, "nested too deeply to be read") from None
    return _Reader(text, letters).expression(tree)


class _Reader:
    def __init__(self, text: str, letters: Mapping[str, Symbol]) -> None:
        self.text, self.letters, self.choices = text, letters, 0

    def expression(self, tree: ast.expr) -> Expr:
        nodes = sum(isinstance(node, ast.expr) for node in ast.walk(tree))
        if nodes > MAX_NODES:
            raise self.error(tree, f"the bound has {nodes} parts, at most {MAX_NODES} are read")
        value = self.read(tree, 0)
        self.require_small(tree, value)
        strange = next((part for part in sympy.preorder_traversal(value) if not isinstance(part, _NODES)), None)
        if strange is not None:
            raise self.error(tree, f"the bound simplifies to an expression with {type(strange).__name__}")
        return value

    def error(self, node: ast.expr, message: str) -> BoundError:
        return BoundError.at(self.text, node.col_offset, message)

    def read(self, node: ast.expr, depth: int) -> Expr:
        if depth > MAX_DEPTH:
            raise self.error(node, f"nested more than {MAX_DEPTH} deep")
        match node:
            case ast.Constant():
                value = self.number(node)
            case ast.Name():
                value = self.letter(node)
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                value = sympy.Add(*self.terms(node, depth + 1))
            case ast.BinOp(op=ast.Mult() | ast.Div()) | ast.UnaryOp(op=ast.USub()):
                value = sympy.Mul(*self.factors(node, depth + 1))
            case ast.UnaryOp(op=ast.UAdd()):
                return self.read(node.operand, depth + 1)
            case ast.BinOp(op=ast.Pow()):
                value = self.power(node.right, self.read(node.left, depth + 1), self.read(node.right, depth + 1))
            case ast.Call():
                value = self.call(node, depth + 1)
            case ast.BinOp(op=ast.FloorDiv()):
                raise self.error(node.right, "// is not read; write / for division")
            case _:
                raise self.error(
                    node, f"{type(node).__name__} is not read; only numbers, letters, + - * / ** and functions are"
                )
        return self.sound(node, value)

    def terms(self, node: ast.expr, depth: int) -> list[Expr]:
        """The terms of a sum; a long chain nests to the left and is followed by a loop."""
        found = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, _SUMS):
            term = self.read(node.right, depth)
            found.append(-term if isinstance(node.op, ast.Sub) else term)
            node = node.left
        return [self.read(node, depth), *reversed(found)]

    def factors(self, node: ast.expr, depth: int) -> list[Expr]:
        """The factors of a product, all at once: multiplied two by two, sympy would distribute 2*(M + K)*N."""
        if depth > MAX_DEPTH:
            raise self.error(node, f"nested more than {MAX_DEPTH} deep")
        found: list[Expr] = []
        while True:
            match node:
                case ast.BinOp(op=ast.Mult()):
                    found.append(self.read(node.right, depth))
                    node = node.left
                case ast.BinOp(op=ast.Div()):
                    below = self.factors(node.right, depth + 1)
                    found += (self.power(node.right, factor, sympy.S.NegativeOne) for factor in reversed(below))
                    node = node.left
                case ast.UnaryOp(op=ast.USub()):
                    found.append(sympy.S.NegativeOne)
                    node = node.operand
                case _:
                    return [self.read(node, depth), *reversed(found)]

    def number(self, node: ast.Constant) -> Expr:
        spelled = self.text[node.col_offset : node.end_col_offset].replace("_", "")
        parts = _DECIMAL.fullmatch(spelled)
        if type(node.value) not in (int, float) or not parts:
            raise self.error(node, f"{spelled[:20]} is no number in decimals")
        whole, fraction, exponent = (part or "" for part in parts.groups())
        if len(whole) + len(fraction) + int(exponent[:6] or "0") > MAX_DIGITS:
            raise self.error(node, f"a number of more than {MAX_DIGITS} digits")
        return Rational(Fraction(spelled))

    def letter(self, node: ast.Name) -> Expr:
        if node.id in self.letters:
            return self.letters[node.id]
        if node.id in CONSTANTS:
            return CONSTANTS[node.id]
        if node.id in FUNCTIONS:
            raise self.error(node, f"{node.id} is a function; write {node.id}(...)")
        raise self.error(node, f"unknown letter {_nearest(node.id, self.letters)} Known: {', '.join(self.letters)}")

    def call(self, node: ast.Call, depth: int) -> Expr:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name is None or name in self.letters or name in CONSTANTS:
            raise self.error(node, f"{name or 'this'} is no function; products are written with *")
        if name not in FUNCTIONS:
            raise self.error(node, f"unknown function {_nearest(name, FUNCTIONS)} Known: {', '.join(FUNCTIONS)}")
        for keyword in node.keywords:
            raise self.error(keyword.value, f"{name} takes no named argument")
        choice = name.lower() in ("min", "max")
        if (len(node.args) < 2) if choice else (len(node.args) != 1):
            expected = "two or more arguments" if choice else "one argument"
            raise self.error(node, f"{name} takes {expected}, got {len(node.args)}")
        self.choices += len(node.args) if choice else 0
        if self.choices > MAX_CHOICES:
            raise self.error(node, f"more than {MAX_CHOICES} arguments of min and max")
        arguments = [self.read(argument, depth) for argument in node.args]
        if name == "exp":
            self.require_exponent(node, arguments[0])
        if name == "gamma" and arguments[0].is_Rational and abs(arguments[0]) > MAX_GAMMA:
            raise self.error(node, f"gamma of a number beyond {MAX_GAMMA}")
        return FUNCTIONS[name](*arguments)

    def power(self, place: ast.expr, base: Expr, exponent: Expr) -> Expr:
        """Return base ** exponent, unless it would be large."""
        if exponent.is_negative and not base.free_symbols and abs(base.evalf(15)) < TINY:
            raise self.error(place, "division by zero")
        if not exponent.is_Rational:
            if not _degree(exponent) <= MAX_DEGREE or any(abs(x) > MAX_POWER for x in exponent.atoms(sympy.Number)):
                limits = f"at most degree {MAX_DEGREE} in the letters, and numbers up to {MAX_POWER}"
                raise self.error(place, f"a power too large to be taken: {limits}")
        elif base.is_Rational:
            if _digits(base) * abs(exponent) > MAX_DIGITS or _digits(exponent) > 6:
                raise self.error(place, f"a power too large to be taken: more than {MAX_DIGITS} digits")
        elif abs(exponent) > MAX_POWER or _digits(exponent) > 6:
            raise self.error(
                place, f"a power too large to be taken: exponents go to {MAX_POWER}, with at most 6 digits"
            )
        if exponent is not sympy.S.NegativeOne:
            self.require_small(place, base)
        return base**exponent

    def require_exponent(self, place: ast.expr, argument: Expr) -> None:
        """Hold the argument of exp to the limits of a power where it holds a logarithm: exp(9*log(M)) is M**9."""
        for term in sympy.Add.make_args(argument):
            factors = sympy.Mul.make_args(term)
            for factor in factors:
                if isinstance(factor, sympy.log):
                    self.power(place, factor.args[0], sympy.Mul(*(other for other in factors if other is not factor)))

    def require_small(self, place: ast.expr, value: Expr) -> None:
        try:
            require_small(value)
        except ValueError as error:
            raise self.error(place, str(error)) from None

    def sound(self, node: ast.expr, value: Expr) -> Expr:
        """Return a value that is finite, real if it is a constant, and made of numbers that can be printed.

        Raises:
            BoundError: If it is not, at the node that first made it so.
        """
        if not isinstance(node, ast.BinOp | ast.Call):
            return value
        if value.has(*_BAD):
            raise self.error(node, "this is infinite or undefined")
        if any(_digits(x) > MAX_DIGITS for x in value.atoms(Rational)):
            raise self.error(node, f"a number of more than {MAX_DIGITS} digits")
        if _tower(value) > MAX_TOWER:
            raise self.error(node, f"exponentials nested more than {MAX_TOWER} deep")
        if value.has(sympy.I):
            raise self.error(node, COMPLEX)
        if value.free_symbols or value.is_Rational:
            return value
        known = value.evalf(15)
        if known.has(sympy.I):
            raise self.error(node, COMPLEX)
        if not known.is_Number or not abs(known) < 10.0**MAX_DIGITS:
            raise self.error(node, f"this constant is {sympy.N(known, 4)!s}, expected at most {MAX_DIGITS} digits")
        return value


def _nearest(name: str, known: Mapping[str, object]) -> str:
    """Spell an unknown name, with the known one that it is likely to stand for."""
    by_case = {other.lower(): other for other in known}
    near = [by_case[name.lower()]] if name.lower() in by_case else difflib.get_close_matches(name[:40], known, n=1)
    return f"{name:.40}; did you mean {near[0]}?" if near else f"{name:.40};"


def _digits(x: Rational) -> float:
    """Digits of the longer part of a fraction; 0 for 0, 1 and -1, whose powers stay as they are."""
    return max(abs(int(x.p)), int(x.q)).bit_length() * math.log10(2) if x.q != 1 or abs(x.p) > 1 else 0.0


def _degree(expr: Expr) -> float:
    """The degree in letters; infinite for an exponential, a power with letters in its exponent, or gamma."""
    if isinstance(expr, sympy.exp | sympy.gamma):
        return math.inf
    if expr.is_Pow:
        return abs(expr.exp) * _degree(expr.base) if expr.exp.is_Rational else math.inf
    degrees = [_degree(part) for part in expr.args]
    return sum(degrees) if expr.is_Mul else max(degrees, default=float(expr.is_Symbol))


def _tower(expr: Expr) -> int:
    """How many exponentials, powers with letters in the exponent, or gammas stand in one another."""
    height = max((_tower(part) for part in expr.args), default=0)
    grows = isinstance(expr, sympy.exp | sympy.gamma) or (expr.is_Pow and bool(expr.exp.free_symbols))
    return height + grows
