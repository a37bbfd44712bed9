"""Trained networks as jobs: what is measured, what is refused, and the trend over widths."""

import math

import numpy as np
import pytest
from rescert.sim.finite_laws import Empirical
from rescert.verify.estimators import gram_summary
from rescert.verify.networks import measure, pool_moments, width_trend

PARAMS = {
    **{"data": "digits", "pool": 1, "sizes": (600, 400, 300), "depth": 8, "width": 0.25, "steps": 4, "batch_size": 32},
    **{"lr": 1e-3, "optimiser": "adamw", "device": "cpu", "sites": ("layer1.0", "layer3.0"), "grid": ((1, 1), (8, 8))},
    **{"trials": 200, "level": 0.95, "direct": ((1, 1), (300, 300))},
}


@pytest.fixture(scope="module")
def measured():
    return measure(PARAMS, 3)


def test_a_network_is_measured_at_every_site(measured):
    assert set(measured["sites"]) == set(PARAMS["sites"])
    assert len(measured["losses"]) == PARAMS["steps"]
    for site in measured["sites"].values():
        assert site["status"] == "measured"
        assert [cell["trials"] for cell in site["cells"]] == [200, 200]
        small, large = site["certificates"]
        assert 0 < small["direct_upper"] <= 1
        assert large["direct_upper"] is None
        assert large["direct_reason"] == "needs at least 600 samples, the pool has 400"


def test_the_same_seed_gives_the_same_network(measured):
    assert measure(PARAMS, 3) == measured
    assert measure(PARAMS, 4) != measured


def test_divergence_is_said_and_nothing_is_measured():
    found = measure(PARAMS | {"lr": 1e30, "optimiser": "sgd"}, 0)
    assert found["diverged"]
    assert found["sites"] == {}


@pytest.mark.parametrize("shape", [(30, 50), (60, 7)])
def test_pool_moments_are_those_of_the_pool_as_a_population(shape):
    pool = np.random.default_rng(0).standard_normal(shape) + 0.3
    exact, found = Empirical(pool).moments.as_dict(), pool_moments(gram_summary(pool))
    for name in ("mu2", "mu_Sigma_mu", "tr_Sigma", "tr_Sigma2"):
        assert found[name] == pytest.approx(exact[name], rel=1e-12)


def _networks(values, widths=(0.25, 0.5, 1.0, 2.0)):
    return [
        {"width": width, "sites": {"a": {"status": "measured", "estimates": {"d_align": value}}}}
        for width, value in zip(widths, values, strict=True)
    ]


def _trend(values):
    return width_trend(_networks(values), ["a"])[0]


@pytest.mark.parametrize(("power", "reading"), [(1.0, "grows"), (-1.0, "falls")])
def test_a_trend_is_read_either_way(power, reading):
    noise = np.exp([0.05, -0.04, 0.03, -0.05])
    trend = _trend(np.array([0.25, 0.5, 1.0, 2.0]) ** power * noise)
    assert trend["reading"] == reading
    assert trend["interval"][0] < power < trend["interval"][1]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_an_estimate_without_a_logarithm_is_counted_not_dropped(bad):
    trend = _trend([1.0, 2.0, bad, 4.0])
    assert trend["slope"] is None
    assert trend["reading"] == "undecided: 1 of 4 estimates of d_align are not positive and finite"


def test_no_scatter_is_no_evidence():
    assert _trend([1.0, 2.0, 4.0, 8.0])["reading"].startswith("undecided: the networks do not scatter")


def test_sites_share_one_level():
    noise = np.exp([0.3, -0.2, 0.1, -0.3])
    networks = _networks(np.array([0.25, 0.5, 1.0, 2.0]) * noise)
    for network in networks:
        network["sites"]["b"] = network["sites"]["a"]
    one, two = width_trend(networks, ["a"])[0], width_trend(networks, ["a", "b"])[0]
    assert two["interval"][0] < one["interval"][0]
