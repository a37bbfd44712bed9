"""Each kind of step accepts what is true and says what is left over of what is not."""

import re

import pytest
import sympy
from rescert.theory.proof import Equation, Identify, Limit, Proof, Sign, check

x, y = sympy.symbols("x y", positive=True)
z = sympy.Symbol("z", nonnegative=True)
r, q = sympy.symbols("r q", real=True)
n = sympy.Symbol("n", integer=True, positive=True)

TRUE = [
    Equation("binomial", (x + y) ** 2, x**2 + 2 * x * y + y**2),
    Equation("partial fractions", 1 / x + 1 / (x + 1), (2 * x + 1) / (x * (x + 1))),
    Equation("root", (x + sympy.sqrt(x)) * (x - sympy.sqrt(x)), x**2 - x),
    Sign("coefficients", (x + z) / (x * y), "positive"),
    Sign("both negative", (-x - z) / (-y), "positive"),
    Sign("zero is allowed", z * x, "nonnegative"),
    Sign("square of a difference", (r - q) ** 2 / (1 + r**2), "nonnegative"),
    Sign("an integer is at least 1", n**2 - n, "nonnegative"),
    Limit("at infinity", n / (n + 1), n, sympy.oo, sympy.S.One),
    Limit("from above", sympy.sin(x) / x, x, sympy.S.Zero, sympy.S.One),
    Identify("variance", (r - q) ** 2, (r,), ((sympy.S.One, sympy.S.One), (r, q), (r**2, q**2 + x)), x),
]
FALSE = [
    (Equation("binomial", (x + y) ** 2, x**2 + x * y + y**2), "leaves x\\*y"),
    (Equation("a thousandth", x * sympy.Rational(1001, 1000), x), "leaves x/1000"),
    (Sign("difference", x - y, "nonnegative"), "-y"),
    (Sign("not positive at z = 0", z * x, "positive"), "x\\*z"),
    (Sign("denominator", x / (x - y), "nonnegative"), "-y|-x"),
    (Sign("denominator may vanish", x / z, "nonnegative"), "z"),
    (Sign("a real number", r, "nonnegative"), "r"),
    (Sign("n - 2", n - 2, "nonnegative"), "-1"),
    (Limit("wrong value", n / (n + 1), n, sympy.oo, sympy.Rational(1, 2)), "limit is 1"),
    (Limit("undecided", n**r, n, sympy.oo, sympy.S.One), "limit is undecided"),
    (Identify("unknown", r * q, (r,), ((r**2, x),), q * x), "no moment is named for r"),
    (Identify("wrong total", 2 * r**2, (r,), ((r**2, x),), x), "leaves x"),
]


@pytest.mark.parametrize("step", TRUE, ids=lambda step: step.text)
def test_a_true_step_holds(step):
    result = step.check()
    assert result.holds, result.leftover
    assert result.leftover == ""


@pytest.mark.parametrize(("step", "leftover"), FALSE, ids=lambda item: getattr(item, "text", None))
def test_a_false_step_says_what_is_left(step, leftover):
    result = step.check()
    assert not result.holds
    assert re.search(leftover, result.leftover), result.leftover


def test_one_false_step_sinks_a_proof_and_the_others_are_still_checked():
    proof = check([TRUE[0], FALSE[0][0], TRUE[3]])
    assert not proof.holds
    assert [step.holds for step in proof.steps] == [True, False, True]
    assert [step.text for step in proof.failures] == ["binomial"]


def test_no_step_is_no_proof():
    assert not Proof(steps=()).holds
