"""A bound as text: parsed by Python's ``ast``, built into sympy by hand, refused before it can cost anything.

The language: integers and decimals (exact rationals), the letters of the quantity, ``+ - * / **``, unary minus, and
``sqrt exp log min max abs normal_cdf erf erfc gamma`` (also Min, Max, Abs). Nothing is ever
evaluated as code.
"""

import ast
import difflib
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

import sympy
from sympy import Expr, Symbol

LENGTH, DEPTH, NODES = 4000, 60, 800
DIGITS = 60  # of a number as written
EXPONENT = 200  # largest numerator or denominator of a numeric exponent
SIZE = 4000  # bits that a number may have
WINDOW = 72


class BoundError(ValueError):
    """A text that is no bound: one line of what is wrong, and below it the place with a caret."""

    def __init__(self, message: str, text: str = "", column: int | None = None) -> None:
        super().__init__(message if column is None else f"{message}\n{_pointed(text, column)}")


def _pointed(text: str, column: int) -> str:
    start = max(0, min(column - WINDOW // 2, len(text) - WINDOW))
    shown = "".join(c if c.isprintable() else "?" for c in text[start : start + WINDOW])
    return f"  {shown}\n  {' ' * (column - start)}^"


FUNCTIONS: dict[str, tuple[Callable[..., Expr], int, int]] = {
    "sqrt": (sympy.sqrt, 1, 1),
    "exp": (sympy.exp, 1, 1),
    "log": (sympy.log, 1, 1),
    "erf": (sympy.erf, 1, 1),
    "gamma": (sympy.gamma, 1, 1),
    "abs": (sympy.Abs, 1, 1),
    "min": (sympy.Min, 1, 8),
    "max": (sympy.Max, 1, 8),
    "erfc": (sympy.erfc, 1, 1),
    # By erfc and not by 1 + erf, which is 0 for floats in the lower tail.
    "normal_cdf": (lambda x: sympy.erfc(-x / sympy.sqrt(2)) / 2, 1, 1),
}
"""By name: what builds it, fewest and most arguments."""
SPELLINGS = {"Min": "min", "Max": "max", "Abs": "abs"}
CONSTANTS = {"pi": sympy.pi, "E": sympy.E}
OPERATORS: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def parse(text: str, letters: Mapping[str, Symbol]) -> Expr:
    """Build the expression that a text states.

    Args:
        text: In the language above.
        letters: The names that it may use, with their symbols.

    Raises:
        BoundError: For anything else, with a caret at the place.
    """
    if not isinstance(text, str):
        raise BoundError(f"bound: expected text, got {type(text).__name__}.")
    if len(text) > LENGTH:
        raise BoundError(f"bound: {len(text)} characters, at most {LENGTH} are read; shorten it.")
    odd = next((place for place, c in enumerate(text) if not c.isascii() or c == "\0"), None)
    if odd is not None:
        raise BoundError(f"bound: {text[odd]!r} is no ASCII character; spell letters as in `--list`.", text, odd)
    line = " ".join(text.splitlines()) if "\n" in text else text
    line = line.strip()
    if not line:
        raise BoundError("bound: empty text; expected an expression such as 1/(1 + n_eff*d_align).")
    try:
        tree = ast.parse(line, mode="eval")
        count = sum(1 for _ in ast.walk(tree))
    except SyntaxError as error:
        column = (error.offset or 1) - 1
        raise BoundError(f"bound: {error.msg}.", line, min(max(column, 0), len(line))) from None
    except (RecursionError, MemoryError, ValueError):
        raise BoundError("bound: nested too deeply to be read; write it flatter.") from None
    if count > NODES:
        raise BoundError(f"bound: {count} parts, at most {NODES} are read; shorten it.")
    return _Builder(line, letters).build(tree.body, 0)


class _Builder:
    def __init__(self, text: str, letters: Mapping[str, Symbol]) -> None:
        self.text, self.letters = text, letters

    def error(self, node: ast.AST, message: str) -> BoundError:
        return BoundError(f"bound: {message}", self.text, getattr(node, "col_offset", 0))

    def build(self, node: ast.expr, depth: int) -> Expr:
        if depth > DEPTH:
            raise self.error(node, f"nested deeper than {DEPTH}; write it flatter, or in parts.")
        match node:
            case ast.Constant():
                return self.number(node)
            case ast.Name():
                return self.name(node)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                value = self.build(node.operand, depth + 1)
                return -value if isinstance(node.op, ast.USub) else value
            case ast.BinOp():
                return self.chain(node, depth)
            case ast.Call():
                return self.call(node, depth)
        kind = type(node).__name__.lower()
        raise self.error(node, f"{kind} is not in the language: numbers, letters, + - * / ** and functions are.")

    def chain(self, node: ast.BinOp, depth: int) -> Expr:
        """A sum of many terms nests to the left as deep as it is long: followed without a call each."""
        links: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp):
            links.append(first)
            first = first.left
        value = self.build(first, depth + 1)
        for link in reversed(links):
            right = self.build(link.right, depth + 1)
            if isinstance(link.op, ast.Pow):
                value = self.power(link, value, right)
            elif type(link.op) in OPERATORS:
                value = self.sound(link, OPERATORS[type(link.op)](value, right))
            else:
                hint = "write ** for powers" if isinstance(link.op, ast.BitXor) else "use + - * / **"
                raise self.error(link.right, f"an operator that is not in the language; {hint}.")
        return value

    def number(self, node: ast.Constant) -> Expr:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise self.error(node, f"{node.value!r:.40} is no real number.")
        written = ast.get_source_segment(self.text, node) or ""
        if isinstance(node.value, int):
            if len(written) > DIGITS:
                raise self.error(node, f"a number of {len(written)} digits; at most {DIGITS} are read.")
            return sympy.Integer(node.value)
        mantissa, _, exponent = written.replace("_", "").lower().partition("e")
        if len(mantissa) > DIGITS or abs(int(exponent or 0)) > 300:
            raise self.error(node, f"{written:.40} is out of range; at most {DIGITS} digits and e+-300 are read.")
        exact = Fraction(written.replace("_", ""))
        return sympy.Rational(exact.numerator, exact.denominator)

    def name(self, node: ast.Name) -> Expr:
        if node.id in self.letters:
            return self.letters[node.id]
        if node.id in CONSTANTS:
            return CONSTANTS[node.id]
        lower = {known.lower(): known for known in self.letters}
        near = difflib.get_close_matches(node.id.lower(), lower, n=1, cutoff=0.5)
        hint = f"did you mean {lower[near[0]]}? " if near else ""
        if node.id in FUNCTIONS or node.id in SPELLINGS:
            raise self.error(node, f"{node.id} is a function; write {node.id}(...).")
        raise self.error(node, f"unknown letter {node.id:.40}; {hint}Known: {', '.join(self.letters)}.")

    def power(self, node: ast.BinOp, base: Expr, exponent: Expr) -> Expr:
        if exponent.is_Rational:
            top = max(abs(int(exponent.p)), int(exponent.q))
            if top > EXPONENT or (base.is_Rational and _bits(base) * top > SIZE):
                raise self.error(node.right, f"a power too large to be taken; exponents up to {EXPONENT} are read.")
        elif exponent.is_number and base.is_number and abs(exponent.evalf(8)) > EXPONENT:
            raise self.error(node.right, f"a power too large to be taken; exponents up to {EXPONENT} are read.")
        return self.sound(node, base**exponent)

    def call(self, node: ast.Call, depth: int) -> Expr:
        if not isinstance(node.func, ast.Name):
            raise self.error(node, "only the functions of the language can be called.")
        name = SPELLINGS.get(node.func.id, node.func.id)
        if name not in FUNCTIONS:
            near = difflib.get_close_matches(name, FUNCTIONS, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}? " if near else ""
            raise self.error(node, f"unknown function {name:.40}; {hint}Known: {', '.join(FUNCTIONS)}.")
        function, fewest, most = FUNCTIONS[name]
        if node.keywords or not fewest <= len(node.args) <= most or any(isinstance(a, ast.Starred) for a in node.args):
            wanted = "one argument" if most == 1 else f"{fewest} to {most} arguments"
            raise self.error(node, f"{name} takes {wanted}, got {len(node.args) + len(node.keywords)}.")
        arguments = [self.build(argument, depth + 1) for argument in node.args]
        if name == "gamma" and arguments[0].is_number and not abs(arguments[0].evalf(8)) <= EXPONENT:
            raise self.error(node, f"gamma of a number beyond {EXPONENT} is too large.")
        # sympy compares the arguments of a maximum pairwise, which may take minutes: left as written.
        symbolic = name in ("min", "max") and not all(argument.is_Rational for argument in arguments)
        return self.sound(node, function(*arguments, evaluate=False) if symbolic else function(*arguments))

    def sound(self, node: ast.expr, value: Expr) -> Expr:
        if value.has(sympy.zoo, sympy.nan, sympy.oo, sympy.S.NegativeInfinity):
            raise self.error(node, "this has no finite value.")
        if value.has(sympy.I) or (value.is_number and value.is_real is False):
            raise self.error(node, "this is no real number.")
        if value.is_Rational and _bits(value) > SIZE:
            raise self.error(node, f"a number of more than {SIZE} bits.")
        if value.is_Pow and value.exp.is_Rational and max(abs(int(value.exp.p)), int(value.exp.q)) > EXPONENT:
            raise self.error(node, f"a power too large to be taken; exponents up to {EXPONENT} are read.")
        return value


def _bits(value: Expr) -> int:
    return max(int(value.p).bit_length(), int(value.q).bit_length())
