"""Slopes, variance exponents, and bias apart from variance, on planted data."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from planted import EFFECTIVE, GRID, plant
from rescert.sim.rng import generator
from rescert.verify.decisions import Status
from rescert.verify.fits import judge_exponent
from rescert.verify.fluctuations import bias_variance, variance_exponents
from rescert.verify.observations import Observations, Window
from rescert.verify.slopes import slope
from scipy import stats

X = np.geomspace(8, 1024, 12)


def _at_least(hits, trials, probability):
    """Whether a hit rate is compatible with at least this coverage (one-sided, 1e-4)."""
    return hits >= stats.binom.ppf(1e-4, trials, probability)


# Slopes


def test_an_exact_power_law_comes_back():
    found = slope(X[::-1], 3 * X[::-1] ** -1.5, exact=True)
    assert found.slope.value == pytest.approx(-1.5, abs=1e-12)
    assert found.slope.interval == pytest.approx((-1.5, -1.5), abs=1e-12)
    assert found.constant == pytest.approx(3)
    assert found.local == pytest.approx([-1.5] * 11)
    assert found.r2 == pytest.approx(1)
    assert slope(X, np.full(12, 2.0)).r2 == pytest.approx(1)


def test_local_slopes_show_a_floor_and_widen_the_exact_interval():
    """1/L + floor: the fitted slope is close to -1, but the local slopes say that the last points are not."""
    found = slope(X, np.hypot(1 / X, 2e-3), exact=True)
    assert found.local[0] == pytest.approx(-1, abs=1e-3)
    assert found.slope.interval[1] > -0.4
    assert judge_exponent(found.slope, -1.0, 0.05) is Status.INCONCLUSIVE
    assert judge_exponent(slope(X[:6], np.hypot(1 / X[:6], 2e-3), exact=True).slope, -1.0, 0.05) is Status.SUPPORTED


@pytest.mark.parametrize(("planted", "status"), [(-1.0, Status.SUPPORTED), (-0.5, Status.REFUTED)])
def test_slope_judgement_has_power(planted, status):
    rng = generator(0)
    y = X[:, None] ** planted * np.exp(0.05 * rng.standard_normal((12, 8)))
    found = slope(X, y, generator=rng)
    assert judge_exponent(found.slope, -1.0, 0.1) is status
    assert slope(X, y, generator=generator(1)) == slope(X, y, generator=generator(1))


def test_slope_intervals_cover():
    trials = 400
    hits = 0
    for seed in range(trials):
        rng = generator(seed, "slope")
        y = X[:, None] ** -0.7 * np.sqrt(rng.chisquare(6, size=(12, 5)) / 6)
        low, high = slope(X, y, generator=rng).slope.interval
        hits += low <= -0.7 <= high
    assert _at_least(hits, trials, 0.9), hits / trials


def test_slopes_without_repeats_and_with_diverged_values():
    assert slope(X, 1 / X).slope.reason == "no interval was asked for"
    assert slope(X, 1 / X, generator=generator(2)).slope.reason == "12 of 12 cells have fewer than 2 repeats"
    y = np.tile(1 / X[:, None], 5) * np.exp(0.01 * generator(3).standard_normal((12, 5)))
    y[0, 0] = math.inf
    found = slope(X, y, generator=generator(4))
    assert found.diverged == found.slope.diverged == 1
    assert found.slope.interval is not None
    assert judge_exponent(found.slope, -1.0, 0.5) is Status.INCONCLUSIVE
    y[1:8, 0] = math.nan
    with pytest.raises(ValueError, match="8 of 60 values are not finite"):
        slope(X, y)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 2], [1, 2, 3], r"expected x \(n,\) and y \(n,\) or \(n, repeats\), got \(2,\) and \(3,\)"),
        ([1], [1], "at least 2 distinct positive x"),
        ([1, 1], [1, 2], "at least 2 distinct positive x"),
        ([0, 1], [1, 2], "at least 2 distinct positive x"),
        ([1, 2], [1, -2], "y must be positive, got -2"),
        ([1, 2], [1, 0], "1 of 2 cells hold an error of exactly 0"),
        ([1, 2], [1, math.nan], "1 of 2 values are not finite"),
    ],
)
def test_bad_slopes(x, y, message):
    with pytest.raises(ValueError, match=message):
        slope(x, y)


# Variance exponents


@pytest.mark.parametrize("repeats", [3, 20])
def test_planted_variance_exponents_are_covered(repeats):
    trials, truth = 100, {"scale": 0.35 * math.sqrt(10), "q": -0.5, "r": -0.5}
    hits, entries, dispersion = dict.fromkeys(truth, 0), [], []
    for seed in range(trials):
        found = variance_exponents(plant(generator(seed, "variance"), repeats=repeats))
        entries.append(found.effective_entries)
        dispersion.append(found.dispersion)
        for name, value in truth.items():
            low, high = found[name].interval
            hits[name] += low <= value <= high
    assert all(_at_least(hit, trials, 0.95) for hit in hits.values()), hits
    if repeats == 20:
        assert np.mean(entries) == pytest.approx(EFFECTIVE, rel=0.05)
        # 46 degrees of freedom a data set; Satterthwaite's law is not the exact one.
        assert np.mean(dispersion) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("planted", "status"), [(0.5, Status.SUPPORTED), (1.0, Status.REFUTED)])
def test_variance_judgement_has_power(planted, status):
    found = variance_exponents(plant(generator(5), q=planted, repeats=40))
    assert judge_exponent(found["q"], -0.5, 0.05) is status
    assert judge_exponent(found["r"], -0.5, 0.05) is Status.SUPPORTED


def test_the_dimension_can_be_a_column_and_a_bent_law_shows():
    runs = plant(generator(6), dims=(4.0, 16.0, 64.0), repeats=10)
    found = variance_exponents(runs, ("units", "depth", "embed_dim"))
    assert found["t"].interval[0] <= 0.5 <= found["t"].interval[1]
    assert found.dispersion < 2
    bent = dataclasses.replace(
        runs, deviation=[d / (1 + 9 / L) for d, L in zip(runs.deviation, runs.depth, strict=True)]
    )
    assert variance_exponents(bent, ("units", "depth", "embed_dim")).dispersion > 2


def test_one_entry_is_one_chi_square():
    """With a single output entry nothing is approximated: it amounts to itself."""
    runs = plant(generator(7), repeats=10)
    single = Observations.from_deviations(
        [d[:1] for d in runs.deviation], **{f: getattr(runs, f) for f in ("depth", "units", "embed_dim", "repeat")}
    )
    assert variance_exponents(single).effective_entries == pytest.approx(1)


def test_too_little_for_variance_exponents():
    runs = plant(generator(8), repeats=3)
    errors_only = dataclasses.replace(runs, deviation=())
    with pytest.raises(ValueError, match=r"the runs carry errors only; build them with Observations.from_deviations"):
        variance_exponents(errors_only)
    with pytest.raises(ValueError, match="49 of 49 cells have fewer than 3 repeats"):
        variance_exponents(runs.where(runs.repeat < 2))
    with pytest.raises(ValueError, match="cannot find scale, r from 7 shapes; vary units, depth"):
        variance_exponents(runs.where(runs.depth == 12))
    with pytest.raises(ValueError, match="cannot find q, r from 7 shapes"):
        variance_exponents(runs.where(runs.depth == runs.units))
    with pytest.raises(ValueError, match="cannot find scale, q, r from 2 shapes"):
        variance_exponents(runs.where((runs.depth == 3) & (runs.units < 10)))
    with pytest.raises(ValueError, match="no column width; use units, depth, embed_dim, alpha"):
        variance_exponents(runs, ("width",))
    tied = dataclasses.replace(runs, deviation=[np.ones(3)] * len(runs.error))
    with pytest.raises(ValueError, match="49 of 49 cells do not vary over their repeats"):
        variance_exponents(tied)
    ragged = dataclasses.replace(runs, deviation=[np.ones(2 + k % 2) for k in range(len(runs.error))])
    with pytest.raises(ValueError, match=r"the deviations of one shape have \[2, 3\] entries"):
        variance_exponents(ragged)


# Bias and variance


@pytest.mark.parametrize("repeats", [2, 3])
def test_squared_bias_and_variance_are_unbiased_by_enumeration(repeats):
    """Entry one is -1 or 2, entry two 0 or 4, each alike: bias .5 and 2, variance 2.25 and 4."""
    outcomes = [np.array(pair, float) for pair in itertools.product((-1, 2), (0, 4))]
    found = []
    for runs in itertools.product(outcomes, repeat=repeats):
        observations = Observations.from_deviations(
            runs, depth=3, units=5, embed_dim=2, repeat=np.arange(repeats), limit_error=0.5
        )
        found += bias_variance(observations)
    assert np.mean([cell.squared_bias for cell in found]) == pytest.approx((0.25 + 4) / 2 - 0.25)
    assert np.mean([cell.variance for cell in found]) == pytest.approx((2.25 + 4) / 2)
    assert min(cell.squared_bias for cell in found) < 0
    assert (found[0].squared_bias_error is None) == (repeats == 2)


def test_bias_variance_equals_the_definition_and_the_jackknife():
    runs = plant(generator(9), repeats=6, depths=GRID[:2], units=GRID[:2])
    cells = bias_variance(runs)
    assert [(c.depth, c.units) for c in cells] == [(3, 3), (3, 6), (6, 3), (6, 6)]
    d = np.stack(runs.deviation[:6])

    def unbiased(rows):
        return np.mean(rows.mean(axis=0) ** 2) - rows.var(axis=0, ddof=1).mean() / len(rows)

    left_out = [unbiased(np.delete(d, i, axis=0)) for i in range(6)]
    assert cells[0].squared_bias == pytest.approx(unbiased(d))
    assert cells[0].squared_bias_error == pytest.approx(math.sqrt(5 / 6 * np.sum((left_out - np.mean(left_out)) ** 2)))
    json.dumps([dataclasses.asdict(c) for c in cells], allow_nan=False)


def test_without_bias_the_squared_bias_is_negative_about_half_the_time():
    runs = plant(generator(10), a=0.0, repeats=5)
    cells = bias_variance(runs)
    negative = sum(cell.squared_bias < 0 for cell in cells)
    # A centred quadratic form is skew: below its mean in somewhat more than half of the cases.
    assert 0.3 < negative / len(cells) < 0.9
    total = sum(c.squared_bias / c.variance for c in cells)
    # Var of the mean of pairs: 2 / (R) / effective entries in units of the variance.
    assert abs(total) < 5 * math.sqrt(len(cells) * 2 / 20 / EFFECTIVE)


def test_bias_variance_needs_repeats_and_respects_the_window():
    runs = plant(generator(11), repeats=2)
    assert len(bias_variance(runs, window=Window(name="deep", contains=lambda o: o.depth > 40))) == 21
    with pytest.raises(ValueError, match=r"bias_variance \(all shapes\): 49 of 49 cells have fewer than 2 repeats"):
        bias_variance(runs.where(runs.repeat == 0))
