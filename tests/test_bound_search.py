"""The search for a law that breaks a bound: its engines against slow ones, its order, its hints, its time."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from bound_claims import SOURCE, breaks, claim, only_from
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import enumerate_tuples
from rescert.sim.enumeration import exact_law_rational
from rescert.sim.finite_laws import FiniteSupport
from rescert.sim.populations import build
from rescert.theory.alignment import B_ALIGN, B_EXACT, CLAIMS, MISALIGNMENT
from rescert.theory.claims import Claim, Kind
from rescert.theory.symbols import K, M, N, d_2, d_align, d_par, lambda_max, mu2, mu_Sigma_mu, n_eff, tr_Sigma2
from rescert.verify.bounds import counterexample, extremal, laws, stages
from rescert.verify.bounds import search as search_module
from rescert.verify.bounds.exact_case import FiniteCase
from rescert.verify.bounds.misalignment import confirm, search
from rescert.verify.bounds.screen import Screen, float_letters
from rescert.verify.bounds.tally import Tally, finite, pairs
from rescert.verify.bounds.target import Effort
from rescert.verify.bounds.two_atoms import TwoAtoms
from strategies import finite_laws
from sympy import Float, Max, Min, Rational, exp, sqrt

W1 = 1 / (1 + M * K / (M + K) * d_align)


def two(a, b, eps, denominator=1):
    return TwoAtoms(
        common=np.array([a]),
        rare=np.array([b]),
        denominator=np.array([denominator]),
        weights=(Fraction(eps),),
        weight=np.array([0]),
    )


# Engines

entries = st.tuples(st.integers(-6, 6), st.integers(-6, 6))


@given(entries, entries, st.fractions(Fraction(1, 50), Fraction(49, 50)), st.integers(1, 4), st.integers(1, 4))
def test_two_atoms_agree_with_tuples(a, b, eps, m, k):
    laws_ = two(a, b, eps, denominator=3)
    p = laws_.misalignment(m, k)[0]
    law = laws_.law(0)
    assert math.isclose(p, enumerate_tuples(law.atoms, law.weights, m, k)[0], rel_tol=1e-11, abs_tol=1e-15)
    exact = law.moments.as_dict()
    for name, value in laws_.letters().items():
        assert math.isclose(value[0], exact[name], rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize(("m", "k"), [(1, 1), (16, 16), (64, 7), (1000, 1000), (1, 1000)])
def test_grid_of_two_atoms_agrees_with_fractions(m, k):
    grid = extremal.extremal(m, k)
    p = grid.misalignment(m, k)
    for i in range(0, len(grid), len(grid) // (3 if m + k > 1000 else 40)):
        assert math.isclose(p[i], FiniteCase(law=grid.law(i), M=m, K=k).p, rel_tol=1e-10)


@settings(deadline=None)
@given(finite_laws(), st.integers(1, 4), st.integers(1, 4))
def test_exact_case_agrees_with_the_rational_enumeration(law, m, k):
    case = FiniteCase(law=law, M=m, K=k)
    assert case.p == exact_law_rational(law, m, k).p
    assert sum((weight for *_, weight in case.outcomes()), Fraction()) == case.p
    assert len(list(case.outcomes())) == case.counted[0] <= case.counted[1]
    assert all(x <= 0 for _, _, x, _ in case.outcomes())


def test_exact_case_agrees_with_tuples():
    law = build("lattice", dim=3)
    assert FiniteCase(law=law, M=3, K=2).p == enumerate_tuples(law.atoms, law.weights, 3, 2)[0]


def test_integers_beyond_64_bits_are_no_trouble():
    law = FiniteSupport([[10**12, 1], [-(10**12), 10**11]], ["1/3", "2/3"])
    assert FiniteCase(law=law, M=3, K=3).p == exact_law_rational(law, 3, 3).p


def test_extremal_grid_holds_the_laws_of_the_spec():
    # [width] spec, A6: exact ratios to W1 at M = K.
    for m, ratio in ((4, 1.068), (8, 1.030), (16, 1.018), (64, 1.0044)):
        grid = extremal.extremal(m, m)
        screen = Screen(claim(W1))
        bound = screen.values({"M": m, "K": m, "N": grid.dim, **grid.letters()})
        assert screen.ratio(grid.misalignment(m, m), bound).max() >= ratio - 5e-4


def test_hinted_laws_have_the_moments_of_the_hint():
    hint = {"M": 5.0, "K": 5.0, "d_par": 3.0, "d_2": 4.0}
    letters = extremal.hinted(hint, 5, 5).letters()
    near = np.isclose(letters["mu2"] ** 2 / letters["mu_Sigma_mu"], 3.0, rtol=0.1)
    near &= np.isclose(letters["mu2"] ** 2 / letters["tr_Sigma2"], 4.0, rtol=0.1)
    assert near.sum() > 20
    assert extremal.hinted({"M": 5.0, "K": 5.0}, 5, 5) is None


@given(st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_zero_mean_laws_are_not_tried(seed):
    size = tuple(int(x) for x in np.random.default_rng(seed).integers(1, 9, size=2))
    assert (extremal.extremal(*size).letters()["mu2"] > 0).all()
    assert all(law.moments.mu2 > 0 for law in laws.several_atoms(*size))


# Judging a case


@pytest.mark.parametrize(
    ("kind", "p", "bound", "ratio", "suspect"),
    [
        (Kind.UPPER_BOUND, 0.5, 0.25, 2.0, True),
        (Kind.UPPER_BOUND, 0.25, 0.5, 0.5, False),
        (Kind.UPPER_BOUND, 0.5, 0.5, 1.0, True),
        (Kind.UPPER_BOUND, 0.0, 0.0, 1.0, False),
        (Kind.UPPER_BOUND, 0.1, 0.0, math.inf, True),
        (Kind.UPPER_BOUND, 0.0, -0.1, math.inf, True),
        (Kind.UPPER_BOUND, 1.0, 1.0, 1.0, False),
        (Kind.UPPER_BOUND, 0.3, math.inf, 0.0, False),
        (Kind.LOWER_BOUND, 0.5, 0.25, 0.5, False),
        (Kind.LOWER_BOUND, 0.0, 0.25, math.inf, True),
        (Kind.LOWER_BOUND, 0.0, 0.0, 1.0, False),
        (Kind.LOWER_BOUND, 0.0, -1.0, 0.0, False),
        (Kind.LOWER_BOUND, 0.25, 0.5, 2.0, True),
        (Kind.IDENTITY, 0.25, 0.5, 2.0, True),
        (Kind.IDENTITY, 0.5, 0.25, 2.0, True),
        (Kind.IDENTITY, 0.0, 0.0, 1.0, False),
        (Kind.IDENTITY, 0.0, 0.5, math.inf, True),
    ],
)
def test_ratio_and_doubt(kind, p, bound, ratio, suspect):
    screen = Screen(claim(B_EXACT, kind))
    assert float(screen.ratio(p, bound)) == ratio
    assert bool(screen.suspect(p, bound)) is suspect


def test_guide_does_not_climb_to_where_everything_is_one():
    screen = Screen(claim(B_EXACT))
    assert float(screen.guide(0.999, 0.9999)) == pytest.approx(0.1)
    assert float(screen.guide(0.001, 0.002)) == pytest.approx(0.5)
    assert float(screen.guide(0.9, 0.3)) == pytest.approx(3.0)


@pytest.mark.parametrize(("expression", "depends"), [(B_ALIGN, False), (1 / (1 + mu2), True), (M / (M + K), False)])
def test_units_are_noticed(expression, depends):
    assert Screen(claim(expression)).depends_on_units() is depends


def test_equality_is_decided_in_fractions():
    fair = FiniteCase(law=build("bernoulli"), M=1, K=1)
    for wrong, broken in ((B_EXACT, False), (B_EXACT * (1 - Rational(1, 10**15)), True), (B_ALIGN, False)):
        tally = Tally(stage="test")
        finite(tally, Screen(claim(wrong)), fair)
        assert (tally.violation is not None) is broken


def test_a_case_without_a_value_is_counted_and_leaves_the_claim_open(few_sizes):
    tally = Tally(stage="test")
    finite(tally, Screen(claim(sqrt(1 - d_align))), FiniteCase(law=build("bernoulli", pi="9/10"), M=1, K=1))
    assert tally.undefined == (1, "0 with 1/10, 1 with 9/10; M=1, K=1")
    pairs(tally, Screen(claim(1 + sqrt(d_2 - 1))), extremal.extremal(2, 2), 2, 2)
    assert tally.undefined[0] > 50
    found = search(claim(1 + sqrt(1 - d_align)), Effort(seconds=0.5))
    assert any("no finite real number" in reason for reason in found.undecided)


def test_overflow_of_floats_is_no_missing_value():
    # exp(1e6) / (1 + exp(1e6)) is NaN in floats and 1 to a million digits in truth.
    tally = Tally(stage="test")
    big = exp(1000 * n_eff) / (1 + exp(1000 * n_eff))
    finite(tally, Screen(claim(big)), FiniteCase(law=build("bernoulli"), M=64, K=64))
    assert tally.undefined == (0, "")
    assert tally.violation is None


# The whole search


@pytest.fixture
def few_sizes(monkeypatch):
    """The first stage at a few sizes only, to be quick."""
    monkeypatch.setattr(laws, "SIZES", ((1, 1), (2, 2), (2, 1), (16, 16)))


def late_stages(monkeypatch):
    """Switch the first stage off, which would find everything."""
    monkeypatch.setattr(stages, "extremal_laws", lambda screen, size: Tally(stage="extremal laws"))


def coin(pi):
    return {"population": build("bernoulli", pi=pi).spec, "M": 1, "K": 1}


def found_by_units(bound, seed, unit):
    """Units that take their time: the third and the fifth find something, the fifth at once."""
    index = unit[1]["index"]
    time.sleep(0.02 * (index == 2) + 0.01 * (index % 2))
    return Tally(stage="random laws", violation={2: coin("1/2"), 4: coin("1/3")}.get(index))


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_the_first_unit_in_order_wins(monkeypatch, workers):
    late_stages(monkeypatch)
    monkeypatch.setattr(search_module, "_processes", ThreadPoolExecutor)
    monkeypatch.setattr(stages, "run", found_by_units)
    monkeypatch.setattr(counterexample, "shrink", lambda screen, case: case)
    found = search(claim(W1), Effort(workers=workers)).counterexample
    assert found.where["population"]["weights" if "weights" in found.where["population"] else "pi"] == "1/2"


def test_an_unconfirmed_violation_leaves_the_claim_open_and_the_search_running(monkeypatch):
    late_stages(monkeypatch)
    monkeypatch.setattr(search_module, "_processes", ThreadPoolExecutor)
    monkeypatch.setattr(stages, "run", lambda *_: Tally(stage="random laws", violation=coin("1/2")))
    found = search(claim(B_EXACT), Effort(workers=2))
    assert found.counterexample is None
    assert found.finished
    assert any("seen but not confirmed" in reason for reason in found.undecided)


@pytest.mark.slow
def test_same_seed_same_counterexample_whatever_the_workers(monkeypatch):
    late_stages(monkeypatch)
    first, second = (search(claim(W1), Effort(seed=3, seconds=60.0, workers=workers)) for workers in (1, 2))
    assert first.counterexample == second.counterexample
    assert first.counterexample is not None
    assert breaks(claim(W1), first.counterexample.where)
    assert "random laws" in first.tried


def test_units_do_not_depend_on_the_order_of_work():
    unit = ("random laws", {"index": 2, "examples": 25})
    bound = claim(B_ALIGN)
    one = stages.run(bound, 0, unit)
    stages.run(bound, 1, unit)
    again = stages.run(bound, 0, unit)
    assert one == again
    assert one != stages.run(bound, 1, unit)


def test_a_hint_leads_to_what_the_grid_does_not_hold(few_sizes):
    # Wrong by 2 % at M = K = 41 and nowhere else; no whole number of the expression says so.
    off = exp(-40 * ((M - Rational(82, 2) - Rational(1, 10**6)) ** 2 + (K - M) ** 2))
    wrong = claim(B_EXACT * (1 - off / 50))
    assert (41, 41) not in laws.sizes(claim(B_EXACT))
    found = search(
        wrong, Effort(seconds=20.0), {"M": 40.7, "K": 41.2, "mu2": 1.0, "mu_Sigma_mu": 0.1, "tr_Sigma2": 0.02}
    )
    assert found.counterexample is not None
    assert (found.counterexample.where["M"], found.counterexample.where["K"]) == (41, 41)
    assert "hint" in found.tried


def test_numbers_in_the_expression_are_sizes():
    assert {(36, 36), (37, 37), (38, 38), (74, 74)} <= set(laws.sizes(claim(B_EXACT * Min(1, Max(M - 37, 0)))))


@pytest.mark.parametrize(
    ("expression", "kind", "constant"),
    [(B_EXACT, Kind.UPPER_BOUND, 1.0), (2 * B_ALIGN, Kind.UPPER_BOUND, 0.5), (W1, Kind.UPPER_BOUND, 1.35)],
)
def test_sharpening_gives_the_constant_of_the_tightest_case(few_sizes, expression, kind, constant):
    found = search(claim(expression, kind), Effort(seconds=2.0, sharpen=True))
    sharpened = found.results["sharpen"]["constant"]
    assert sharpened == constant if constant <= 1 else sharpened > constant
    assert found.tightest.ratio(kind) == pytest.approx(sharpened, rel=1e-9)
    case = found.results["sharpen"]["where"]
    assert not breaks(claim(expression * Rational(sharpened) * (1 + Rational(1, 10**12))), case)


def test_sharpening_a_bound_of_zero_gives_no_constant(few_sizes):
    found = search(claim(Max(0, B_EXACT - Rational(1, 2))), Effort(seconds=2.0, sharpen=True))
    assert found.counterexample is not None
    assert found.results["sharpen"]["constant"] is None


def test_time_is_kept_and_said():
    found = search(claim(B_EXACT), Effort(seconds=0.01))
    assert not found.finished
    assert found.counterexample is None


def test_what_was_tried_is_told():
    stages_seen = []
    found = search(
        claim(W1), Effort(seconds=20.0, on_progress=lambda stage, done, total: stages_seen.append((stage, done, total)))
    )
    assert stages_seen[0] == ("extremal laws", 0, stages_seen[0][2])
    assert all(0 <= done <= total for _, done, total in stages_seen)
    counts = found.tried["extremal laws"]
    assert counts["exact"] == counts["cells"] >= counts["laws"] > 50_000
    assert 50 < len(found.cases) <= 400
    assert {case.family for case in found.cases} >= {
        "Bernoulli",
        "rare atom",
        "rare atom in the plane",
        "symmetric pairs",
    }
    assert {case.where["M"] for case in found.cases} >= {1, 4, 64, 1000}
    assert found.tightest == max(found.cases, key=lambda case: round(case.ratio(Kind.UPPER_BOUND), 9))
    assert found.confidence == 1.0
    assert min(case.ratio(Kind.UPPER_BOUND) for case in found.cases) < 0.1


@pytest.mark.parametrize("other", [CLAIMS[0], CLAIMS[4]])
def test_other_claims_are_refused(other):
    with pytest.raises(ValueError, match="expected an upper bound, a lower bound or an identity of misalignment"):
        search(other, Effort())


def test_decimals_are_read_as_fractions(few_sizes):
    half = Claim(
        id="half",
        kind=Kind.UPPER_BOUND,
        quantity=MISALIGNMENT,
        expression=Float("0.1") * 10 * B_EXACT,
        assumptions=(),
        source=SOURCE,
        statement="",
    )
    assert search(half, Effort(seconds=2.0)).counterexample is None


def test_subtle_bounds_need_the_plane():
    # W1 from M = K = 4 on holds for all laws on the line that the grid has; the plane breaks it.
    screen, grid = Screen(claim(only_from(4, W1, B_ALIGN))), extremal.extremal(4, 4)
    line, plane = grid.take(grid.dim == 1), grid.take(grid.dim == 2)
    for some, broken in ((line, False), (plane, True)):
        tally = Tally(stage="test")
        pairs(tally, screen, some, 4, 4)
        assert (tally.violation is not None) is broken


def test_screen_evaluates_as_the_claim_does():
    law = build("lattice", dim=2)
    letters = float_letters(law, 3, 5)
    for expression in (B_EXACT, B_ALIGN, Max(d_par, N), exp(-mu_Sigma_mu / tr_Sigma2)):
        case = SimpleNamespace(law=law, M=3, K=5)
        assert Screen(claim(expression)).at(case) == pytest.approx(float(claim(expression).numeric()(**letters)))


def test_gaussian_stage_finds_what_only_many_dimensions_break():
    # In one dimension this is B_exact; the largest eigenvalue stands for the whole spectrum.
    variance = (1 / M + 1 / K) * mu_Sigma_mu + lambda_max**2 / (M * K)
    wrong = claim(variance / (variance + mu2**2))
    tally = stages.run(wrong, 0, ("Gaussian laws", {"places": laws.gaussian()[::7]}))
    assert tally.violation["population"]["name"] == "gaussian"
    assert tally.counts["exact"] == tally.counts["cells"] > 100
    assert confirm(wrong, tally.violation) is not None
    assert stages.run(claim(B_EXACT), 0, ("Gaussian laws", {"places": laws.gaussian()[::7]})).violation is None


def test_sampled_stage_spends_an_error_budget():
    places = [*laws.heavy()[::11], *laws.pools(0)[::9]]
    unit = ("sampled laws", {"places": places, "tests": len(places)})
    wrong = claim(B_EXACT / 4)
    tally = stages.run(wrong, 0, unit)
    assert tally.counts["draws"] >= 20_000 * tally.counts["cells"] > 0
    assert confirm(wrong, tally.violation) is not None
    calm = stages.run(claim(B_EXACT), 0, unit)
    assert calm.violation is None
    assert all(not case.exact for _, case in calm.cases.values())


def test_lower_bounds_are_held_against_draws_too():
    places = laws.heavy()[:6]
    for bound, broken in ((Rational(99, 100), True), (Rational(1, 100) * B_EXACT, False)):
        tally = stages.run(claim(bound, Kind.LOWER_BOUND), 0, ("sampled laws", {"places": places, "tests": 6}))
        assert (tally.violation is not None) is broken


def test_refinement_finds_the_plane_from_a_poor_start():
    start = {"atoms": [["1", "0"], ["-1/2", "1"]], "weights": ["9/10", "1/10"]}
    wrong = claim(only_from(2, W1, B_ALIGN))
    tally = stages.run(wrong, 0, ("refined pairs", {"starts": [start], "size": (2, 2), "rounds": 8}))
    assert breaks(wrong, tally.violation)


def test_climbing_raises_the_ratio():
    start = {"population": build("lattice", dim=2).spec, "M": 2, "K": 2}
    reached = []
    for steps in (0, 120):
        tally = stages.run(claim(B_ALIGN), 0, ("climbed", {"index": 0, "start": start, "steps": steps}))
        reached.append(tally.best("tightest")[0][0])
    assert reached[0] + 0.1 < reached[1] <= 1
