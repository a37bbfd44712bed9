"""Claims on growth exponents: proved, refuted with a point and its sums, or left open, on every spectrum."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from rescert.theory.claims import Claim, Kind, Source
from rescert.theory.families import FAMILIES
from rescert.theory.symbols import TABLE, a, b, s
from rescert.verify.bounds import growth_search
from rescert.verify.bounds.growth_search import GRID, RANGES, confirm, derived, search
from rescert.verify.bounds.spectrum_growth import TARGETS, decide, letters
from rescert.verify.bounds.target import Effort
from rescert.verify.growth import TOLERANCE
from sympy import Max, Min, Rational, exp, log, sqrt

BY_NAME = {target.name.removeprefix("d_align_growth."): target for target in TARGETS}


def claimed(family, expression, kind=Kind.RATE):
    return Claim(
        id="user.bound",
        kind=kind,
        quantity=BY_NAME[family].quantity,
        expression=sympy.sympify(expression),
        assumptions=(),
        source=Source(paper="user", place="text"),
        statement="",
    )


def looked_for(claim, **effort):
    decision = decide(claim)
    return search(claim, Effort(**effort), decision and decision.hint)


def test_there_is_one_target_a_spectrum_with_its_letters():
    assert list(BY_NAME) == list(FAMILIES)
    found = {name: target.quantity.symbols for name, target in BY_NAME.items()}
    assert found["flat"] == ("s",)
    assert found["power_top"] == ("a", "s")
    assert found["spike_aligned"] == ("b", "s")


@pytest.mark.parametrize("name", FAMILIES)
def test_points_are_values_of_the_letters(name):
    drawn = BY_NAME[name].points(np.random.default_rng(0), 50)
    assert tuple(drawn) == BY_NAME[name].quantity.symbols
    assert all(len(values) == 50 and (key == "s" or (values >= 0).all()) for key, values in drawn.items())


@pytest.mark.parametrize("name", FAMILIES)
def test_the_exponent_of_the_paper_is_proved_and_bounds_around_it(name):
    true = FAMILIES[name].stated
    assert decide(claimed(name, true)).proved
    assert decide(claimed(name, true, Kind.UPPER_BOUND)).proved
    assert decide(claimed(name, true, Kind.LOWER_BOUND)).proved
    assert decide(claimed(name, true + Rational(1, 4), Kind.UPPER_BOUND)).proved
    assert decide(claimed(name, true - Rational(1, 4), Kind.LOWER_BOUND)).proved


# Each with the point of simplest numbers at which it is wrong by more than sums can hide.
WRONG = {
    "flat: width never hurts": claimed("flat", s),
    "flat: only the trace": claimed("flat", 2 * s - 1),
    "flat: linear": claimed("flat", 1),
    "power_spread: no trace": claimed("power_spread", s + 1 - Max(1 - a, 0)),
    "power_spread: wrong place of the regime": claimed("power_spread", Min(s + Min(a, 1), 2 * s - Max(1 - a, 0))),
    "power_spread: right at a = 1 only": claimed("power_spread", Min(s + a, 2 * s - Max(1 - 2 * a, 0))),
    "power_top: as for the mean spread out": claimed("power_top", FAMILIES["power_spread"].stated),
    "power_bottom: no gain at the bottom": claimed("power_bottom", FAMILIES["power_top"].stated),
    "spike_aligned: the spike counts once": claimed("spike_aligned", Min(s - b, 2 * s - Max(b, 1))),
    "spike_orthogonal: as for the mean on it": claimed("spike_orthogonal", FAMILIES["spike_aligned"].stated),
    "spike_orthogonal: the spike forgotten": claimed("spike_orthogonal", Min(s, 2 * s - 1)),
    "flat: upper bound too low": claimed("flat", s - 1, Kind.UPPER_BOUND),
    "flat: lower bound from the mean": claimed("flat", s, Kind.LOWER_BOUND),
    "power_top: decimals": claimed("power_top", 0.9 * Min(s, 2 * s - Max(1 - 2 * a, 0))),
    "spike_aligned: beyond z3": claimed("spike_aligned", Min(s - b, 2 * s - log(exp(2) + exp(2 * b)) / 2)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_exponent_is_refuted_at_a_point_that_anyone_can_sum(name):
    claim = WRONG[name]
    assert not (decision := decide(claim)) or not decision.proved
    found = looked_for(claim, seconds=20)
    example = found.counterexample
    assert example is not None
    assert example == looked_for(claim, seconds=20).counterexample
    assert confirm(claim, example.where) == example
    point = {key: Fraction(text) for key, text in example.where.items()}
    true, value = Fraction(example.observed), float(sympy.sympify(example.bound))
    assert all(x.denominator <= 8 for x in point.values())
    wrong = {Kind.RATE: true != value, Kind.UPPER_BOUND: true > value, Kind.LOWER_BOUND: true < value}
    assert wrong[claim.kind]
    # The sums in the table, added up here one by one, grow with the derived exponent and not with the claimed one.
    family, table = claim.quantity.id.removeprefix("d_align_growth."), dict(example.table)
    few = RANGES[0][:2]
    sums = [by_hand(family, width, **{key: float(x) for key, x in point.items()}) for width in few]
    assert sums == pytest.approx([float(table[f"d_align at N = {width}"]) for width in few], rel=1e-5)
    for key, text in table.items():
        if key.startswith("slope of log"):
            assert abs(float(text) - true) <= TOLERANCE < abs(float(text) - value)


def by_hand(family, width, a=0.0, b=0.0, s=0.0):
    """d_align from the words of the family."""
    index = range(1, width + 1)
    values = [i**-a if family.startswith("power") else 1.0 for i in index]
    if family.startswith("spike"):
        values[0] = float(width) ** b
    places = {"top": [0], "aligned": [0], "bottom": [width - 1], "orthogonal": range(1, width)}
    mean = places.get(family.split("_")[-1], range(width))
    along = math.fsum(values[i] for i in mean) / len(mean) * width**s
    return width ** (2 * s) / max(along, math.fsum(v * v for v in values))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("widths", [RANGES[0], pytest.param(RANGES[1], marks=pytest.mark.slow)])
def test_sums_follow_the_derived_exponent_in_every_regime(name, widths, monkeypatch):
    monkeypatch.setattr(growth_search, "RANGES", (widths,))
    found = search(claimed(name, FAMILIES[name].stated), Effort(seconds=60), None)
    assert found.finished
    assert found.counterexample is None
    assert not found.undecided
    assert len(found.cases) == math.prod(len(GRID[letter]) for letter in letters(FAMILIES[name]))
    assert max(abs(case.observed - case.bound) for case in found.cases) <= TOLERANCE


def test_a_true_exponent_that_z3_cannot_read_is_supported_not_proved():
    claim = claimed("flat", log(exp(s) + exp(2 * s - 1)), Kind.UPPER_BOUND)
    assert decide(claim) is None
    found = looked_for(claim, seconds=20)
    assert found.counterexample is None
    assert found.finished
    assert not found.undecided


def test_a_difference_too_small_for_the_sums_is_left_open():
    claim = claimed("flat", Min(s, 2 * s - 1) + Rational(1, 100))
    found = looked_for(claim, seconds=20)
    assert not decide(claim).proved
    assert found.counterexample is None
    assert "do not tell them apart" in found.undecided[0]


def test_a_claim_wrong_in_a_corner_that_no_grid_has_is_never_called_right():
    corner = Max(0, Min(a - Rational(13, 10), Rational(14, 10) - a))
    found = looked_for(claimed("power_top", FAMILIES["power_top"].stated + corner), seconds=20)
    assert found.counterexample is not None or found.undecided


def test_an_exponent_without_a_value_is_left_open():
    found = search(claimed("flat", sqrt(s)), Effort(seconds=0), None)
    assert found.undecided
    assert "no real number" in found.undecided[0]


def test_out_of_time_is_said():
    found = search(claimed("flat", Min(s, 2 * s - 1)), Effort(seconds=0), None)
    assert not found.finished
    assert not found.cases


NUMBERS = st.fractions(min_value=-2, max_value=2, max_denominator=4)
LINEAR = st.builds(lambda x, y, z: Rational(x) * a + Rational(y) * s + Rational(z), NUMBERS, NUMBERS, NUMBERS)


@settings(max_examples=30, deadline=None)
@given(first=LINEAR, second=LINEAR, kind=st.sampled_from(BY_NAME["flat"].kinds))
def test_decisions_agree_with_exact_evaluation(first, second, kind):
    family = FAMILIES["power_spread"]
    claim = claimed("power_spread", Max(Min(first, second), family.stated) if kind is Kind.UPPER_BOUND else first, kind)
    decision = decide(claim)
    axes = [[Fraction(n, 4) for n in range(low, 9)] for low in (0, -8)]
    holds = {
        Kind.RATE: lambda value, true: value == true,
        Kind.UPPER_BOUND: lambda value, true: true <= value,
        Kind.LOWER_BOUND: lambda value, true: true >= value,
    }[kind]

    def value(expression, point):
        return expression.xreplace({TABLE[k].symbol: Rational(x) for k, x in point.items()})

    every = [dict(zip("as", p, strict=True)) for p in itertools.product(*axes)][::11]
    wrong = [p for p in every if not holds(value(claim.expression, p), derived(family, p))]
    if decision.proved:
        assert not wrong
    else:
        hint = {key: Fraction(x) for key, x in decision.hint.items()}
        gap = value(claim.expression, hint) - derived(family, hint)
        assert not holds(value(claim.expression, hint), derived(family, hint)) or abs(gap) < 1e-9


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"a": "1"}, "expected a, s"),
        ({"a": "1", "s": "1", "b": "1"}, "expected a, s"),
        ({"a": "one", "s": "1"}, "expected fractions"),
        ({"a": "1/0", "s": "1"}, "expected fractions"),
        ({"a": None, "s": "1"}, "expected fractions"),
        ({"a": "-1", "s": "1"}, "a = -1, expected at least 0"),
    ],
)
def test_a_place_that_is_none_is_refused(where, message):
    with pytest.raises(ValueError, match=message):
        confirm(claimed("power_top", s), where)


def test_a_place_where_the_claim_is_right_gives_no_counterexample():
    assert confirm(claimed("flat", s), {"s": "2"}) is None


def test_a_quantity_without_a_spectrum_is_refused():
    claim = Claim(
        id="user.other",
        kind=Kind.RATE,
        quantity=BY_NAME["flat"].quantity.__class__(id="other", meaning="", latex="", symbols=("s",)),
        expression=s,
        assumptions=(),
        source=Source(paper="user", place="text"),
        statement="",
    )
    with pytest.raises(ValueError, match="no spectrum 'other'"):
        decide(claim)
