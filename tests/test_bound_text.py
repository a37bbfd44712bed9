"""The language of bounds: what it reads, what it refuses, and that nothing in it can hang."""

import contextlib
import time

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from rescert.theory.evaluation import arguments, total
from rescert.theory.symbols import TABLE, unfold
from rescert.verify.bounds.size import _Count
from rescert.verify.bounds.text import FUNCTIONS, BoundError, parse

NAMES = ["M", "K", "N", "n_eff", "d_par", "d_2", "d_align", "mu2", "mu_Sigma_mu", "tr_Sigma", "tr_Sigma2", "lambda_max"]
LETTERS = {name: TABLE[name].symbol for name in NAMES}
M, K, d = LETTERS["M"], LETTERS["K"], LETTERS["d_align"]

numbers = st.one_of(
    st.integers(0, 10**6).map(str),
    st.decimals(0, 1000, places=4, allow_nan=False).map(lambda x: f"{x:f}"),
    st.sampled_from(["1e-3", "2.5e2", "1_000", ".5"]),
)
atoms = st.one_of(numbers, st.sampled_from(NAMES))


def grown(inner):
    unary = st.builds("{}({})".format, st.sampled_from(["sqrt", "exp", "log", "erf", "abs", "-", "normal_cdf"]), inner)
    binary = st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/"]), inner)
    powers = st.builds("({})**{}".format, inner, st.integers(-3, 3).map(lambda n: f"({n})"))
    extremes = st.builds("{}({}, {})".format, st.sampled_from(["min", "max", "Min", "Max"]), inner, inner)
    return st.one_of(unary, binary, powers, extremes)


expressions = st.recursive(atoms, grown, max_leaves=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1/(1 + M*K/(M+K+1)*d_align)", 1 / (1 + M * K / (M + K + 1) * d)),
        ("0.2", sympy.Rational(1, 5)),
        ("1e-3*M", M / 1000),
        ("-d_align**-2", -(d**-2)),
        ("max(1, Min(M, K))", sympy.Max(1, sympy.Min(M, K))),
        ("normal_cdf(0)", sympy.Rational(1, 2)),
        ("sqrt(4)", sympy.Integer(2)),
        ("gamma(5)", sympy.Integer(24)),
        ("Abs(M - K)", sympy.Abs(M - K)),
        (" 1 +\n M ", 1 + M),
    ],
)
def test_what_a_text_means(text, expected):
    assert sympy.simplify(parse(text, LETTERS) - expected) == 0


@given(expressions)
@settings(max_examples=150, deadline=2000)
def test_what_is_printed_reads_back(text):
    try:
        expression = parse(text, LETTERS)
    except BoundError:
        return
    again = parse(str(expression), LETTERS)
    assert again == expression or sympy.expand(again - expression) == 0


words = st.sampled_from(
    [*NAMES, *FUNCTIONS, *"()+-*/,.0123456789", "**", "(", ")", "e", "1e9", "**-", "9**", " ", "lambda", "if", "j"]
)


@given(st.one_of(st.text(max_size=200), st.lists(words, max_size=60).map("".join), expressions))
@settings(max_examples=600, deadline=2000)
def test_any_text_is_read_or_refused_in_one_way(text):
    with contextlib.suppress(BoundError):
        parse(text, LETTERS)


rational = st.recursive(
    st.sampled_from(["M", "K", "mu2", "n_eff", "d_2", "2", "(1/3)"]),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("({})**{}".format, inner, st.sampled_from(["2", "3", "(-1)", "(-2)"])),
    ),
    max_leaves=8,
)


@given(rational)
@settings(max_examples=150, deadline=None)
def test_the_counted_size_bounds_the_terms_over_a_common_denominator(text):
    try:
        expression = unfold(parse(text, LETTERS))
    except BoundError:
        return
    counted = _Count().ratio(expression)
    above, below = (sympy.expand(part) for part in sympy.fraction(sympy.together(expression)))
    assert len(sympy.Add.make_args(above)) <= counted.terms
    assert len(sympy.Add.make_args(below)) <= counted.denominator.terms


@pytest.mark.parametrize(
    "text",
    [
        "1/(1 + n_eff*d_par) + 1/(1 + n_eff*d_2) + 1/(1 + d_align*min(M, K)/2)",
        "+".join(f"1/({k} + n_eff*d_align)" for k in range(1, 5)),
        "(1 - 1/(1 + n_eff*d_align))**5",
        "exp(-0.333*n_eff*d_align)/(1 + exp(-0.333*n_eff*d_align)) + 1/(1 + n_eff*d_align)",
        "sqrt(1 - 1/(1 + n_eff*d_align)**2)/(1 + M)**0.37",
    ],
)
def test_what_people_write_is_small_enough_and_evaluates_fast(text):
    expression = parse(text, LETTERS)
    start = time.process_time()
    total(expression, arguments(expression))
    assert time.process_time() - start < 2


HOSTILE = {
    "tower": "9**9**9**9",
    "big power": "2**10000",
    "power of powers": "((M**200)**200)**200",
    "huge factorial": "gamma(10**9)",
    "nested factorial": "gamma(gamma(gamma(5)))",
    "huge exponent": "1e99999999",
    "tiny exponent": "1e-99999999",
    "many digits": "1" * 3000,
    "deep brackets": "(" * 1900 + "1" + ")" * 1900,
    "deep minus": "-" * 3900 + "1",
    "a megabyte": "1+" * 500_000 + "1",
    "many terms": "1" + "+M" * 1900,
    "many arguments": "max(" + ",".join(["M"] * 500) + ")",
    "attribute": "M.__class__.__bases__",
    "import": "__import__('os').system('true')",
    "call of a call": "exp(1)(2)",
    "lambda": "(lambda: 1)()",
    "walrus": "(M := 2)",
    "comparison": "M < K < N",
    "condition": "M if K else N",
    "text": "'M'",
    "f-string": "f'{M}'",
    "subscript": "M[0]",
    "list": "[M, K]",
    "complex": "1j",
    "truth": "True",
    "none": "None",
    "keyword": "exp(x=1)",
    "star": "max(*M)",
    "caret": "M^2",
    "floor": "M//2",
    "look-alike": "М + 1",
    "null": "M\0",
    "pole": "1/0",
    "logarithm of zero": "log(0)",
    "root of a negative": "sqrt(-1)",
    "cube root of a negative": "(-8)**(1/3)",
    "hidden pole": "1/(M - M)",
    "statement": "import os",
    "nothing": "   ",
    "many digits of a float": "1e" + "9" * 5000,
    "power in disguise": "exp(1000000000*log(10))",
    "letter to a power in disguise": "exp(1000*log(M))",
    "exponential of a billion": "exp(10**9)",
    "exponential of e to the hundred": "exp(exp(100))",
    "exponentials of exponentials": "exp(exp(exp(M)))",
    "tower of letters": "M**K**N",
    "large exponent in letters": "2**(10**9*M)",
    "coefficient to a power": "((10**200*M)**60)**60",
    "many terms expanded": "(M + K + N + mu2 + tr_Sigma + lambda_max)**60",
    "many terms in a function": "erf((M + K + N + mu2 + tr_Sigma + lambda_max)**60)",
    "many terms below a root": "((M + K + N + mu2 + tr_Sigma)**60*(M + 1)**60)**(1/3)",
    "many denominators": "+".join(f"1/(M + {i}*K)" for i in range(1, 20)),
    "high degrees in many letters": "(1 + M**64*K + K**64*N + N**64*mu2)/(M**63*K**64 + N**32*mu2**63 + mu2**64*K)",
    "many digits in exponents": "(1 + exp(0.123456*M) + exp(0.654321*K))/(1 + exp(0.123457*M) + exp(0.777777*K))",
    "deep roots": "sqrt(" * 60 + "M" + ")" * 60,
    "million minus": "-" * 9000 + "1",
    "long name": "a" * 9000,
    "full-width": "ｅｘｐ(M)",
    "hidden zero": "1/(sqrt(2)*sqrt(3) - sqrt(6))",
    "zero to a negative power": "0**-1",
    "ellipsis": "...",
    "hexadecimal": "0x10",
    "logical": "M and K",
    "two bounds": "M, K",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_refused_at_once(text):
    start = time.process_time()
    with pytest.raises(BoundError, match=r"^bound: ") as refusal:
        parse(text, LETTERS)
    assert time.process_time() - start < 1
    message, *place = str(refusal.value).split("\n")
    assert len(message) < 300
    assert not place or (len(place) == 2 and place[1].strip() == "^")


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("1 + dalign", "did you mean d_align?", 4),
        ("Mu2", "did you mean mu2?", 0),
        ("M + m", "did you mean M?", 4),
        ("1 + squirt(M)", "did you mean sqrt?", 4),
        ("sqrt + 1", "sqrt is a function", 0),
        ("M ^ 2", r"write \*\* for powers", 2),
    ],
)
def test_an_error_points_at_the_place_and_names_the_nearest(text, message, column):
    with pytest.raises(BoundError, match=message) as refusal:
        parse(text, LETTERS)
    assert str(refusal.value).split("\n")[2].index("^") == column + 2


def test_a_long_text_is_shown_around_the_place():
    with pytest.raises(BoundError, match="unknown letter nope") as refusal:
        parse("M + " * 60 + "nope", LETTERS)
    _, shown, caret = str(refusal.value).split("\n")
    assert shown[caret.index("^") :] == "nope"
    assert len(shown) <= 74
