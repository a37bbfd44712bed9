"""Fits of error surfaces: planted constants and exponents, boundaries, identifiability, intervals, judgement."""

import dataclasses
import itertools
import json
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import AUTHOR, GRID, exact, plant
from rescert.sim.rng import generator
from rescert.verify.decisions import Status
from rescert.verify.fits import Estimate, compare, fit, judge_exponent
from rescert.verify.observations import ALL_SHAPES, Observations, Window, log_errors, resampled_log_errors
from rescert.verify.surfaces import QUADRATURE, RIVALS, SUM, LogSurface, Model, Term, free_form
from scipy import optimize

LARGE = Window(name="LM >= 100, L >= 7", contains=lambda o: (o.depth * o.units >= 100) & (o.depth >= 7))


def _inside(estimate, value):
    return estimate.interval[0] <= value <= estimate.interval[1]


def _scaled(observations, c):
    return dataclasses.replace(
        observations, error=c * observations.error, limit_error=c * observations.limit_error, deviation=()
    )


# The surface as a function


@given(
    combine=st.sampled_from(["sum", "quadrature"]),
    coefficients=st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3),
    powers=st.lists(st.floats(-2, 2), min_size=3, max_size=3),
    limit=st.sampled_from([0.0, 0.1]),
)
def test_surface_and_jacobian_equal_the_formula(combine, coefficients, powers, limit):
    model = Model(
        name="m",
        combine=combine,
        terms=(
            Term("a", {"depth": "-p"}),
            Term("b", {"depth": "-r", "units": -0.5, "embed_dim": "t"}),
            Term("c", {"alpha": -1}),
        ),
    )
    cells = Observations(
        depth=[1, 2, 8], units=[1, 5, 3], embed_dim=[1, 4, 9], alpha=[1, 0.5, 2], repeat=0, error=1, limit_error=limit
    ).cells()
    L, M, D, alpha = cells.shapes.values()

    def formula(theta):
        (a, b, c), (p, r, t) = np.exp(theta[:3]), theta[3:]
        terms = np.array([a * L**-p, b * L**-r * M**-0.5 * D**t, c / alpha])
        e = terms.sum(axis=0) if combine == "sum" else np.sqrt((terms**2).sum(axis=0))
        return np.log(np.sqrt(e**2 + limit**2))

    theta, surface = np.concatenate([np.log(coefficients), powers]), LogSurface(model, cells)
    assert model.parameters == ("a", "b", "c", "p", "r", "t")
    found, jacobian = surface(theta, np.ones(3, bool))
    np.testing.assert_allclose(found, formula(theta), rtol=1e-12, atol=1e-12)
    h = 1e-5  # central differences: error h^2/6 times a third derivative of order (log 9)^3, plus eps/h
    steps = [(formula(theta + h * e) - formula(theta - h * e)) / (2 * h) for e in np.eye(6)]
    np.testing.assert_allclose(jacobian, np.column_stack(steps), atol=1e-8)


def test_a_removed_term_is_a_coefficient_of_zero():
    surface = LogSurface(QUADRATURE, exact().cells())
    theta = np.log([0.3, 0.7])
    only_b, jacobian = surface(theta, np.array([False, True]))
    L, M = surface.cells.shapes["depth"], surface.cells.shapes["units"]
    np.testing.assert_allclose(np.exp(only_b), 0.7 * np.sqrt(10 / (L * M)))
    assert (jacobian[:, 0] == 0).all()


# From runs to cells


def test_a_shape_that_the_grid_holds_twice_counts_once():
    """floor(10^linspace(0, 2.5, 10)) starts 1, 1, 3: the same jobs, hence the same records, come twice."""
    grid = np.floor(10 ** np.linspace(0, 2.5, 10))
    once = plant(generator(0, "once"), depths=AUTHOR, units=AUTHOR)
    number = {run: i for i, run in enumerate(zip(once.depth, once.units, once.repeat, strict=True))}
    order = [number[L, M, k] for L in grid for M in grid for k in range(5)]
    twice = Observations(
        **{f: getattr(once, f)[order] for f in ("depth", "units", "embed_dim", "repeat", "error")},
        deviation=[once.deviation[i] for i in order],
    )
    cells = twice.cells()
    assert (len(twice.error), len(cells), cells.runs, cells.duplicates) == (500, 81, 405, 95)
    one, two = (fit(o, QUADRATURE, generator=generator(1)) for o in (once, twice))
    assert dataclasses.replace(two, duplicates=0) == one


def test_limit_error_is_added_in_quadrature():
    clean = exact()
    seen = dataclasses.replace(clean, error=np.hypot(clean.error, 0.01))
    known = fit(dataclasses.replace(seen, limit_error=0.01), QUADRATURE)
    assert [e.value for e in known.estimates] == pytest.approx([0.236, 0.35], rel=1e-9)
    ignored = fit(seen, QUADRATURE)
    assert abs(ignored["a"].value - 0.236) > 0.01


def test_log_errors_are_unbiased_to_first_order():
    """Chi-square squares with 6 degrees, 5 repeats: the plain log mean is 1/60 low, the next order is v^2/8."""
    n, v = 40_000, 2 / 6 / 5
    squares = generator(2).chisquare(6, size=(n, 5)) / 6
    y = log_errors(list(squares), "here")
    assert abs(y.mean()) <= 5 * y.std() / math.sqrt(n) + v**2 / 4
    assert np.log(squares.mean(axis=1)).mean() / 2 < -0.014


def test_resamples_have_the_spread_of_all_possible_resamples():
    found, count = np.array([1.0, 2.0, 6.0]), 20_000
    every = [math.log(np.mean(choice)) / 2 for choice in itertools.product(found, repeat=3)]
    draws = resampled_log_errors([found], "here", generator(3), count)[:, 0]
    # The draws are at most 1.1 from their mean: the fourth moment, hence the noise of the variance, is below 1.1^4.
    assert draws.var() == pytest.approx(1.5 * np.var(every), abs=5 * 1.21 / math.sqrt(count))
    assert draws.mean() == pytest.approx(log_errors([found], "here")[0], abs=1e-12)


def test_diverged_runs_are_counted_excluded_and_block_a_verdict():
    clean = plant(generator(4))
    error = clean.error.copy()
    error[:3], error[3] = (math.nan, math.inf, 1e200), 7.0
    flagged = np.zeros(len(error), bool)
    flagged[3] = True
    few = dataclasses.replace(clean, error=error, diverged=flagged)
    found = fit(few, free_form(few, "quadrature"), generator=generator(5))
    assert (found.diverged, found.runs, found.cells, found.lost) == (4, 245, 49, 0)
    assert found.points[0].repeats == 1
    assert "1 of 49 cells have fewer than 2 repeats" in found["p"].reason
    spread = dataclasses.replace(clean, diverged=np.arange(len(error)) % 100 == 0)
    estimate = fit(spread, free_form(spread, "quadrature"), generator=generator(5))["q"]
    assert estimate.diverged == 3
    assert estimate.interval is not None
    assert judge_exponent(estimate, 0.5, 1.0) is Status.INCONCLUSIVE
    gone = fit(dataclasses.replace(clean, diverged=np.arange(len(error)) < 5), QUADRATURE)
    assert (gone.diverged, gone.cells, gone.lost) == (5, 48, 1)
    with pytest.raises(ValueError, match=r"35 of 245 runs diverged, more than 10%.*lower the step size"):
        fit(dataclasses.replace(clean, diverged=np.arange(len(error)) % 7 == 0), QUADRATURE)


# Planted constants and exponents


def test_noiseless_constants_and_exponents_come_back():
    for combine, form in (("quadrature", QUADRATURE), ("sum", SUM)):
        clean = exact()
        if combine == "sum":
            clean = dataclasses.replace(
                clean, error=0.236 / clean.depth + 0.35 * np.sqrt(10 / clean.depth / clean.units)
            )
        imposed, free = fit(clean, form), fit(clean, free_form(clean, combine))
        assert [e.value for e in imposed.estimates] == pytest.approx([0.236, 0.35], rel=1e-7)
        assert [e.value for e in free.estimates] == pytest.approx([0.236, 0.35, 1, 0.5, 0.5], rel=1e-6)
        assert imposed.r2 == pytest.approx(1)
        assert imposed.solvers_agree
        assert free.solvers_agree


def test_fit_finds_the_minimum_that_a_search_without_gradient_finds():
    runs = plant(generator(6))
    cells = runs.cells()
    y = log_errors(cells.squares, "here")
    L, M = cells.shapes["depth"], cells.shapes["units"]

    def cost(theta):
        return np.sum((np.log(np.hypot(np.exp(theta[0]) / L, np.exp(theta[1]) * np.sqrt(10 / L / M))) - y) ** 2)

    search = optimize.minimize(cost, [-1, -1], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14})
    found = fit(runs, QUADRATURE)
    assert [e.value for e in found.estimates] == pytest.approx(np.exp(search.x), rel=1e-6)
    n = len(y)
    assert found.aic == pytest.approx(n * math.log(search.fun / n) + 2 * 3)
    assert found.r2 == pytest.approx(1 - search.fun / np.sum((y - y.mean()) ** 2))


def test_quadrature_is_told_from_sum_and_the_rivals_are_rejected():
    """The author's constants at 40 repeats; free exponents stay with the truth, all shapes and window."""
    runs = plant(generator(7), repeats=40, depths=AUTHOR, units=AUTHOR)
    for comparison in compare(runs, generator=generator(8), windows=(ALL_SHAPES, LARGE), resamples=100):
        delta = {(f.model, f.combine): d for f, d in zip(comparison.fits, comparison.delta_aic, strict=True)}
        assert delta[QUADRATURE.name, "quadrature"] < 6
        assert delta[SUM.name, "sum"] > 10
        assert all(delta[rival.name, rival.combine] > 10 for rival in RIVALS)
        free = next(f for f in comparison.fits if "p" in [e.name for e in f.estimates] and f.combine == "quadrature")
        for name, truth in {"a": 0.236, "b": 0.35, "p": 1, "q": 0.5, "r": 0.5}.items():
            # Five standard errors: ten intervals at .95 would not all hold.
            (low, high), found = free[name].interval, free[name].value
            assert abs(found - truth) <= 5 / (2 * 1.96) * (high - low), (comparison.window, free[name])
        biased = next(f for f in comparison.fits if (f.model, f.combine) == (SUM.name, "sum"))
        assert biased["a"].interval[1] < 0.2


@pytest.mark.parametrize(("planted", "status"), [(1.0, Status.SUPPORTED), (2.0, Status.REFUTED), (1.2, None)])
def test_judgement_of_the_depth_exponent_has_power(planted, status):
    runs = plant(generator(9), a=3.0, p=planted, repeats=20)
    found = judge_exponent(fit(runs, free_form(runs, "quadrature"), generator=generator(10))["p"], 1.0, 0.1)
    assert found is status if status else found is not Status.SUPPORTED


@pytest.mark.parametrize(("planted", "status"), [(0.5, Status.SUPPORTED), (1.0, Status.REFUTED)])
def test_judgement_of_the_dimension_exponent_has_power(planted, status):
    runs = plant(generator(11), t=planted, dims=(4.0, 16.0, 64.0), depths=GRID[:4], units=GRID[:4])
    model = free_form(runs, "quadrature")
    assert "t" in model.exponents
    found = fit(runs, model, generator=generator(12))["t"]
    assert judge_exponent(found, 0.5, 0.05) is status


@pytest.mark.parametrize(
    ("interval", "diverged", "status"),
    [
        ((0.95, 1.05), 0, Status.SUPPORTED),
        ((0.9, 1.1), 0, Status.SUPPORTED),
        ((0.95, 1.2), 0, Status.INCONCLUSIVE),
        ((1.05, 1.2), 0, Status.INCONCLUSIVE),
        ((1.11, 1.2), 0, Status.REFUTED),
        ((0.5, 0.89), 0, Status.REFUTED),
        ((0.5, 0.89), 1, Status.INCONCLUSIVE),
        (None, 0, Status.INCONCLUSIVE),
    ],
)
def test_judgement_has_three_values(interval, diverged, status):
    estimate = Estimate(name="p", value=1.0, interval=interval, diverged=diverged)
    assert judge_exponent(estimate, 1.0, 0.1) is status


# Boundaries and ill conditioning


def test_a_coefficient_of_zero_is_reported_as_zero():
    every = [plant(generator(13, k), a=0.0) for k in range(12)]
    bounded = [runs for runs in every if fit(runs, QUADRATURE)["a"].value == 0]
    # Half of all data sets have their minimum at the boundary: none or all of 12 happens once in 2000.
    assert 0 < len(bounded) < 12
    runs = bounded[0]
    imposed = fit(runs, QUADRATURE, generator=generator(14))
    low, high = imposed["a"].interval
    assert imposed["a"].value == low == 0 < high < 0.1
    assert imposed.condition is None
    assert "at the boundary 0" in imposed["a"].reason
    assert _inside(imposed["b"], 0.35)
    free = fit(runs, free_form(runs, "quadrature"), generator=generator(14))
    undefined = free["p"]
    assert undefined.interval is None
    assert "vanish" in undefined.reason
    assert judge_exponent(undefined, 1.0, 0.5) is Status.INCONCLUSIVE
    assert _inside(free["q"], 0.5)


def test_a_noiseless_zero_is_exactly_zero():
    found = fit(exact(b=0.0), QUADRATURE)
    assert found["b"].value == 0.0
    assert found["a"].value == pytest.approx(0.236)


@pytest.mark.parametrize("model", [SUM, QUADRATURE], ids=lambda model: model.combine)
def test_ill_conditioning_is_reported_and_survived(model):
    """C26, a : b = 10^4: the second term is at most 1/400 of the first, its square 1/160000."""
    rng = generator(15)
    runs = plant(rng, a=1.0, b=1e-4, repeats=40)
    if model is SUM:
        error = (1 / runs.depth + 1e-4 * np.sqrt(10 / runs.depth / runs.units)) * (
            1 + 1e-4 * rng.standard_normal(len(runs.error))
        )
        runs = dataclasses.replace(runs, error=error)
    found = fit(runs, model, generator=generator(16))
    assert found["a"].value == pytest.approx(1.0, rel=1e-4)
    low, high = found["b"].interval
    assert low <= 1e-4 <= high < 1e-3
    # Of the quadrature the second term may vanish altogether, and says so.
    assert (found.condition is None) == (found["b"].value == 0)
    assert found.condition is None or found.condition > 1e3
    assert found.failed == 0
    assert found.solvers_agree


def test_well_conditioned_fits_say_so():
    assert fit(plant(generator(17)), QUADRATURE).condition < 10


# Identifiability and too little data


@pytest.mark.parametrize(
    ("depths", "units", "message"),
    [
        ([10.0], GRID, r"cannot find .*\bp\b.* from 7 shapes: depth is 10 throughout, vary it"),
        ([1.0], GRID, r"cannot find .*\bp\b.*depth is 1 throughout"),
        (GRID, [10.0], r"cannot find .*\bb\b.*\bq\b.* from 7 shapes: units is 10 throughout"),
    ],
)
def test_one_depth_or_one_unit_count_only(depths, units, message):
    runs = plant(generator(18), depths=np.array(depths), units=np.array(units))
    with pytest.raises(ValueError, match=message):
        fit(runs, free_form(runs, "quadrature"))
    with pytest.raises(ValueError, match=message):
        compare(runs, generator=generator(19))


def test_depth_and_units_confounded():
    runs = plant(generator(20))
    diagonal = runs.where(runs.depth == runs.units)
    with pytest.raises(ValueError, match="cannot find r, q from 7 shapes: depth and units vary together"):
        fit(diagonal, free_form(diagonal, "quadrature"))
    with pytest.raises(ValueError, match="cannot find a, b from 7 shapes: depth and units vary together"):
        fit(diagonal, SUM)
    few = runs.where((runs.depth < 10) & (runs.units < 10))
    with pytest.raises(ValueError, match="4 distinct shapes for the 5 parameters a, b, p, r, q; add shapes"):
        fit(few, free_form(few, "sum"))


def test_without_repeats_there_is_an_estimate_but_no_interval():
    single = fit(plant(generator(21), repeats=1), QUADRATURE, generator=generator(22))
    assert single["a"].value > 0
    assert single["a"].interval is None
    assert single["a"].reason == "49 of 49 cells have fewer than 2 repeats"
    assert fit(exact(), QUADRATURE, generator=generator(22))["a"].reason == "the repeats of every cell are identical"
    assert fit(exact(), QUADRATURE)["a"].reason == "no interval was asked for"
    assert single.points[0].band is None
    far = fit(plant(generator(21)), QUADRATURE, generator=generator(22), level=0.999)
    assert far["a"].interval is None
    assert far["a"].reason == "400 resamples give no interval of level 0.999: 1999 do"


# Laws


@settings(max_examples=10, deadline=None)
@given(c=st.floats(1e-6, 1e6), seed=st.integers(0, 2**32))
def test_scaling_the_errors_scales_constants_and_leaves_exponents(c, seed):
    runs = dataclasses.replace(plant(generator(seed), repeats=20), limit_error=np.array(1e-3))
    model = free_form(runs, "quadrature")
    one, scaled = (fit(o, model, generator=generator(seed), resamples=39) for o in (runs, _scaled(runs, c)))
    for before, after in zip(one.estimates, scaled.estimates, strict=True):
        factor = c if before.name in "ab" else 1.0
        assert after.value == pytest.approx(factor * before.value, rel=1e-4)
        # Refits stop at a relative change of 1e-8 in the sum of squares, hence 1e-4 of a standard error and more.
        assert after.interval == pytest.approx([factor * end for end in before.interval], rel=1e-2)


def test_the_generator_determines_the_fit_and_results_are_json():
    runs = plant(generator(23))
    one, two, other = (fit(runs, QUADRATURE, generator=generator(s), resamples=50) for s in (24, 24, 25))
    assert one == two
    assert one["a"].interval != other["a"].interval
    assert [e.value for e in one.estimates] == [e.value for e in other.estimates]
    comparison = compare(runs, generator=generator(24), resamples=39)[0]
    text = json.dumps(dataclasses.asdict(comparison), allow_nan=False)
    assert json.loads(text)["fits"][0]["points"][0]["depth"] == 3.0


def test_the_order_of_the_runs_does_not_matter():
    runs = plant(generator(26))
    shuffled = generator(27).permutation(len(runs.error))
    other = Observations(
        **{f: getattr(runs, f)[shuffled] for f in ("depth", "units", "embed_dim", "repeat", "error")},
    )
    one, two = (fit(o, QUADRATURE, generator=generator(28), resamples=39) for o in (runs, other))
    assert one == two


def test_bands_cover_the_planted_surface():
    runs = plant(generator(29), repeats=20)
    points = fit(runs, QUADRATURE, generator=generator(30)).points
    truth = [math.hypot(0.236 / p.depth, 0.35 * math.sqrt(10 / p.depth / p.units)) for p in points]
    inside = [p.band[0] <= t <= p.band[1] for p, t in zip(points, truth, strict=True)]
    # All bands hang on two numbers: they hold together or fail together.
    assert np.mean(inside) > 0.8
    assert all(p.band[0] <= p.fitted <= p.band[1] for p in points)


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [3, 10])
def test_bootstrap_intervals_cover(repeats):
    """Nominal .95, at least .90 of 300 data sets for each constant."""
    hits = np.zeros(2)
    for seed in range(300):
        runs = plant(generator(seed, "coverage"), repeats=repeats)
        found = fit(runs, QUADRATURE, generator=generator(seed, "resamples"), resamples=200)
        hits += [_inside(found["a"], 0.236), _inside(found["b"], 0.35)]
    assert (hits / 300 >= 0.90).all(), hits / 300


@pytest.mark.slow
def test_bootstrap_intervals_of_free_exponents_cover():
    hits, truth = np.zeros(5), {"a": 1.0, "b": 0.35, "p": 1.0, "r": 0.5, "q": 0.5}
    for seed in range(400):
        runs = plant(generator(seed, "coverage"), a=1.0)
        found = fit(runs, free_form(runs, "quadrature"), generator=generator(seed, "resamples"), resamples=200)
        hits += [_inside(found[name], value) for name, value in truth.items()]
    assert (hits / 400 >= 0.90).all(), hits / 400


@pytest.mark.slow
def test_400_resamples_of_100_cells_take_seconds():
    grid = np.geomspace(3, 300, 10).round()
    runs = plant(generator(31), depths=grid, units=grid)
    start = time.process_time()
    found = fit(runs, free_form(runs, "quadrature"), generator=generator(32))
    assert (found.cells, found.resamples + found.failed) == (100, 400)
    assert time.process_time() - start < 10


# Bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": [0, 1]}, "depth must be at least 1, got 0 in run 0"),
        ({"units": [3, 0.5]}, "units must be at least 1, got 0.5 in run 1"),
        ({"embed_dim": [math.nan, 1]}, "embed_dim must be at least 1, got nan"),
        ({"alpha": [1, 0]}, "alpha must be positive, got 0 in run 1"),
        ({"error": [0.1, -0.1]}, "error must be at least 0, got -0.1 in run 1"),
        ({"limit_error": -1}, "limit_error must be finite and at least 0, got -1"),
        ({"repeat": [0, math.inf]}, "repeat must be finite, got inf"),
        ({"error": [0.1, 0.2, 0.3]}, r"depth has shape \(2,\), expected one entry for each of 3"),
        ({"error": [[0.1, 0.2]]}, r"error has shape \(1, 2\), expected one entry"),
        ({"error": []}, "no run given"),
        ({"deviation": [[1.0]]}, "1 deviations for 2 runs"),
        ({"depth": [1, 1]}, "run 1 has the shape and repeat of an earlier one, but error 0.2 instead of 0.1"),
    ],
)
def test_bad_observations(change, message):
    columns = {"depth": [1, 2], "units": 3, "embed_dim": 4, "repeat": 0, "error": [0.1, 0.2]} | change
    with pytest.raises(ValueError, match=message):
        Observations(**columns).cells()


def test_bad_fits():
    runs = plant(generator(33), repeats=2)
    with pytest.raises(ValueError, match="Window 'none': none of the 98 runs lies inside; widen it"):
        fit(runs, SUM, window=Window(name="none", contains=lambda o: o.depth < 0))
    with pytest.raises(ValueError, match="1 of 49 cells hold an error of exactly 0"):
        fit(dataclasses.replace(runs, error=np.where(np.arange(98) == 0, 0, runs.error)), SUM)
    with pytest.raises(ValueError, match=r"resamples >= 1 and a level in \(0, 1\), got 0 and 0.95"):
        fit(runs, SUM, resamples=0)
    with pytest.raises(ValueError, match=r"got 400 and 1.5"):
        fit(runs, SUM, level=1.5)
    with pytest.raises(KeyError, match="no parameter 'z'"):
        fit(runs, SUM)["z"]
    with pytest.raises(ValueError, match=r"tolerance >= 0, got 1.0 \+- -0.1"):
        judge_exponent(Estimate(name="p", value=1.0, interval=None), 1.0, -0.1)


def test_bad_models():
    with pytest.raises(ValueError, match="combine must be 'sum' or 'quadrature', got 'product'"):
        Model(name="m", terms=SUM.terms, combine="product")
    with pytest.raises(ValueError, match="no column width; use depth, units, embed_dim, alpha"):
        Model(name="m", terms=(Term("a", {"width": -1}),))
    for terms in ((), (Term("a", {"depth": -1}), Term("a", {"units": -1})), (Term("a", {"depth": "a"}),)):
        with pytest.raises(ValueError, match="every term needs a coefficient of its own"):
            Model(name="m", terms=terms)
