import math
import sys
import threading
from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import enumerate_tuples, gaussian_tail_line, gaussian_tail_mp, naive_misalignment
from rescert.sim.misalignment import (
    exact_engine,
    exact_law,
    exact_law_rational,
    exact_probability,
    gaussian_tail,
    rao_blackwell,
    routes,
    simulate,
)
from rescert.sim.monte_carlo import cheapest_route
from rescert.sim.populations import Empirical, FiniteSupport, Gaussian, build
from rescert.sim.rng import generator
from scipy.stats import ks_2samp
from strategies import finite_laws


def variance_a1(m, M, K):
    """Var X by the identity of A1, from the moments."""
    return (F(1, M) + F(1, K)) * m.mu_Sigma_mu + F(1, M * K) * m.tr_Sigma2


def cantelli(variance, mu2):
    return variance / (variance + mu2**2)


def bernoulli(pi):
    return build("bernoulli", pi=pi)


FAIR = bernoulli("1/2")
FAIR_PLANE = FiniteSupport([[0, 0], [1, 0]], ["1/2", "1/2"])


# ---- exact enumeration ------------------------------------------------------------------------------------------


@given(finite_laws(), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_enumeration_obeys_the_mean_and_variance_identities_exactly(law, M, K):
    exact = exact_law_rational(law, M, K)
    assert exact.mean == law.moments.mu2
    assert exact.variance == variance_a1(law.moments, M, K)
    if law.moments.mu2:
        assert exact.p <= cantelli(exact.variance, exact.mean)


@given(finite_laws(max_dim=2), st.integers(1, 2), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_counts_agree_with_all_raw_tuples(law, M, K):
    exact = exact_law_rational(law, M, K)
    assert (exact.p, exact.mean, exact.variance) == enumerate_tuples(law.atoms, law.weights, M, K)


@given(finite_laws(), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_float_enumeration_agrees_with_rational(law, M, K):
    fast, exact = exact_law(law, M, K), exact_law_rational(law, M, K)
    assert fast.outcomes == exact.outcomes
    assert fast.p == pytest.approx(float(exact.p), rel=1e-12, abs=1e-15)
    unit = float(exact.variance) + float(exact.mean) ** 2
    assert fast.mean == pytest.approx(float(exact.mean), abs=1e-12 * (1 + unit))
    assert fast.variance == pytest.approx(float(exact.variance), abs=1e-12 * (1 + unit))


def d_align(m):
    return m.mu2**2 / max(m.mu_Sigma_mu, m.tr_Sigma2)


WRONG_BOUNDS = {  # A6: law, M = K, P, the wrong bound from the moments, its value, the rounding of that value
    "W1": (FAIR, 1, F(3, 4), lambda m: 1 / (1 + F(1, 2) * d_align(m)), F(2, 3), 0),
    "W2": (FAIR, 1, F(3, 4), lambda m: cantelli(2 * m.mu_Sigma_mu, m.mu2), F(2, 3), 0),
    "W3": (
        bernoulli("4/5"),
        1,
        F(9, 25),
        lambda m: 1 / (1 + F(1, 3) * m.mu2**2 / min(m.mu_Sigma_mu, m.tr_Sigma2)),
        0.158,
        5e-4,
    ),
    "W4": (bernoulli("99/100"), 1, F(199, 10000), lambda m: math.exp(-F(1, 3) * d_align(m) / 2), 7e-8, 5e-9),
    "W5": (FAIR, 1, F(3, 4), lambda m: 1 / (1 + F(1, 2) * d_align(m)), F(2, 3), 0),
    "W6": (FAIR_PLANE, 1, F(3, 4), lambda m: cantelli(2 * m.mu_Sigma_mu + m.tr_Sigma**2 / 2, m.mu2), F(5, 7), 0),
    "W7": (FAIR, 1, F(3, 4), lambda m: F(4, 9) * cantelli(2 * m.mu_Sigma_mu + m.tr_Sigma2, m.mu2), F(1, 3), 0),
    "W9": (
        bernoulli("3/1000"),
        16,
        0.997797,
        lambda m: cantelli(m.mu_Sigma_mu / 8 + m.tr_Sigma2 / (16 * 17), m.mu2),
        0.997771,
        5e-7,
    ),
}


@pytest.mark.parametrize("name", WRONG_BOUNDS)
def test_counterexamples_to_the_wrong_bounds(name):
    law, M, p, wrong, value, rounding = WRONG_BOUNDS[name]
    exact = exact_law_rational(law, M, M)
    bound = wrong(law.moments)
    assert exact.p > bound
    assert abs(exact.p - p) <= (0 if isinstance(p, F) else 5e-7)
    assert abs(bound - value) <= rounding
    assert exact.p <= cantelli(variance_a1(law.moments, M, M), law.moments.mu2)


@pytest.mark.parametrize(("M", "pi"), [(2, "1/5"), (4, "3/100"), (8, "1/100"), (16, "3/1000")])
def test_w9_is_violated_at_every_listed_size(M, pi):
    law = bernoulli(pi)
    wrong = cantelli(2 * law.moments.mu_Sigma_mu / M + law.moments.tr_Sigma2 / (M * (M + 1)), law.moments.mu2)
    assert exact_law_rational(law, M, M).p > wrong


@pytest.mark.parametrize(
    ("M", "eps", "w", "ratio", "places"),
    [
        (4, "1/400", "31/4", 1.068, 3),
        (8, "1/400", "75/8", 1.030, 3),
        (16, "1/2500", "367/16", 1.018, 3),
        (64, "1/40000", "1487/16", 1.0044, 4),
    ],
)
def test_the_subtle_bound_s1_is_violated_exactly(M, eps, w, ratio, places):
    law = build("rare-atom-2d", M=M, eps=eps, w=w)
    m, exact = law.moments, exact_law_rational(law, M, M)
    wrong = 1 / (1 + F(M, 2) * d_align(m))
    assert exact.p > wrong
    assert float(exact.p / wrong) == pytest.approx(ratio, abs=0.5 * 10**-places)
    assert exact_law(law, M, M).p == pytest.approx(float(exact.p), rel=1e-12)
    if M == 64:
        assert float(exact.p) == pytest.approx(3.192e-3, abs=5e-7)
        assert float(wrong) == pytest.approx(3.178e-3, abs=5e-7)


def test_rare_atom_figures_of_a1():
    law = build("rare-atom", M=16, eps="1/1000000")
    m = law.moments
    p = exact_law_rational(law, 16, 16).p
    assert float(p / cantelli(variance_a1(m, 16, 16), m.mu2)) == pytest.approx(0.99998, abs=5e-6)
    assert float(p * (1 + F(256, 33) * d_align(m))) == pytest.approx(0.96968, abs=5e-6)


@pytest.mark.parametrize(
    ("M", "eps", "ratio"),
    [(2, "1/36", 0.942), (4, "1/100", 0.952), (8, "1/400", 0.972), (16, "1/2500", 0.987), (64, "1/40000", 0.997)],
)
def test_plane_family_approaches_b_align(M, eps, ratio):
    law = build("rare-atom-2d", M=M, eps=eps)
    m = law.moments
    certificate = 1 / (1 + F(M * M, 2 * M + 1) * d_align(m))
    assert float(exact_law(law, M, M).p / certificate) == pytest.approx(ratio, abs=1e-3)


def test_ties_count_and_are_never_misjudged():
    # In floats 0.1 + 0.2 - 0.3 is not 0; here the mean of one atom of each kind is, with probability 2/9.
    law = FiniteSupport([["1/10"], ["1/5"], ["-3/10"]], ["1/3", "1/3", "1/3"])
    exact = exact_law_rational(law, 3, 1)
    assert exact_law(law, 3, 1).p == pytest.approx(float(exact.p), rel=1e-13)
    draws = simulate(law, 3, 1, 40_000, generator(0, "ties"))
    assert abs(draws.frequency - float(exact.p)) < 5 * math.sqrt(0.25 / draws.trials)
    orthogonal = FiniteSupport([["1/3", 0], [0, "1/7"]], ["1/2", "1/2"])
    assert exact_law(orthogonal, 1, 1).p == pytest.approx(0.5, rel=1e-15)  # X = 0 exactly when the atoms differ
    point = FiniteSupport([[0, 0]], [1])
    assert exact_law_rational(point, 2, 3).p == exact_law(point, 2, 3).p == 1


def test_large_sizes_stay_accurate():
    law = bernoulli("1/1000")
    for M in (64, 3000):
        miss = mp.mpf(1) - (1 - mp.mpf("0.999") ** M) ** 2
        assert exact_law(law, M, M).p == pytest.approx(float(miss), rel=1e-12)


def test_enumeration_refuses_what_it_cannot_do():
    lattice = build("lattice")
    with pytest.raises(ValueError, match=r"M=90, K=100: \d+ outcomes, above the limit of 1000000"):
        exact_law(lattice, 90, 100, max_outcomes=10**6)
    with pytest.raises(ValueError, match=r"M=8000, K=8000: \d+ count vectors, above the limit of 20000000"):
        exact_law(lattice, 8000, 8000)
    with pytest.raises(ValueError, match="above the limit of 2000000"):
        exact_law_rational(lattice, 60, 60)
    with pytest.raises(ValueError, match="2\\^53"):
        exact_law(FiniteSupport([[F(1, 10**9)], [3]], ["1/2", "1/2"]), 4, 4)
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="M must be an integer >= 1"):
            exact_law(lattice, bad, 1)
    with pytest.raises(ValueError, match="K must be an integer >= 1"):
        exact_law_rational(lattice, 1, 0)


# ---- the Gaussian contour ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("M", "K"), [(1, 1), (7, 3), (64, 64), (1, 50), (1000, 1)])
@pytest.mark.parametrize("depth", [0.01, 1.0, 4.3, 8.2, 11.5])
def test_contour_against_the_closed_form_of_one_dimension(M, K, depth):
    mean2 = depth**2 / min(M, K)
    exact = gaussian_tail_line(mean2, 1.0, M, K)
    tail = gaussian_tail(([mean2], [1.0]), M, K)
    assert abs(mp.mpf(tail.p) / exact - 1) < 1e-12
    assert tail.log_p == pytest.approx(float(mp.log(exact)), abs=1e-12)
    assert tail.p <= tail.chernoff


SPECTRA = {
    "power law": np.arange(1, 13) ** -1.0,
    "spike": np.r_[4.0, np.ones(7)],
    "singular": np.r_[1.0, 0.7, 0.2, np.zeros(3)],
}


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize(("M", "K", "scale"), [(4, 9, 0.4), (4, 9, 2.5), (16, 16, 0.6), (16, 16, 2.6)])
def test_contour_against_mpmath_on_another_contour(spectrum, M, K, scale):
    eigenvalues = SPECTRA[spectrum]
    mean2 = scale * np.linspace(0.5, 1.5, eigenvalues.size) / eigenvalues.size
    exact = gaussian_tail_mp(mean2, eigenvalues, M, K)
    tail = gaussian_tail((mean2, eigenvalues), M, K)
    assert abs(mp.mpf(tail.p) / exact - 1) < 1e-12


@pytest.mark.parametrize(("target", "scale"), [(-5, 2.2), (-16, 6.4), (-30, 11.4)])
def test_contour_keeps_its_relative_accuracy_in_the_tail(target, scale):
    eigenvalues = 1.0 + np.arange(24) / 24
    mean2 = np.full(24, scale / 24)
    exact = gaussian_tail_mp(mean2, eigenvalues, 20, 30)
    assert abs(float(mp.log10(exact)) - target) < 1
    assert abs(mp.mpf(gaussian_tail((mean2, eigenvalues), 20, 30).p) / exact - 1) < 1e-12


def test_contour_degenerate_laws():
    assert gaussian_tail(([0.0, 0.0], [1.0, 2.0]), 3, 4).p == 0.5
    assert gaussian_tail(([1.0], [0.0]), 3, 4).p == 0.0
    assert gaussian_tail(([1.0], [0.0]), 3, 4).log_p == -math.inf
    assert gaussian_tail(([0.0], [0.0]), 3, 4).p == 1.0
    far = gaussian_tail(([1e4], [1.0]), 64, 64)
    assert far.p == 0.0
    assert far.log_p == pytest.approx(float(mp.log(gaussian_tail_line(1e4, 1.0, 64, 64))), rel=1e-10)
    # A mean almost wholly without variance: exp(s |mu_0|^2) oscillates on a vertical contour.
    mean2, eigenvalues = np.array([0.1, 3.0]), np.array([1.0, 0.0])
    x = simulate(Gaussian(np.sqrt(mean2), eigenvalues), 2, 1, 200_000, generator(0, "null space"))
    p = gaussian_tail((mean2, eigenvalues), 2, 1).p
    assert abs(x.frequency - p) < 5 * math.sqrt(p * (1 - p) / x.trials)


@given(
    st.lists(st.tuples(st.floats(0, 2), st.sampled_from([0.0, 1e-3, 0.3, 1.0, 5.0])), min_size=1, max_size=6),
    st.integers(1, 40),
    st.integers(1, 40),
)
@settings(max_examples=80, deadline=None)
def test_contour_is_symmetric_scale_free_and_below_one_half(pairs, M, K):
    mean2, eigenvalues = (np.array(c) for c in zip(*pairs, strict=True))
    mean2 = np.where(mean2 < 1e-6, 0.0, mean2)
    tail = gaussian_tail((mean2, eigenvalues), M, K)
    assert gaussian_tail((mean2, eigenvalues), K, M).log_p == pytest.approx(tail.log_p, abs=1e-9, rel=1e-9)
    assert gaussian_tail((4 * mean2, 4 * eigenvalues), M, K).log_p == pytest.approx(tail.log_p, abs=1e-9, rel=1e-9)
    if mean2.any() and eigenvalues.any():
        assert tail.p <= 0.5 + 1e-12
        assert tail.p <= tail.chernoff * (1 + 1e-12)
        variance = (1 / M + 1 / K) * mean2 @ eigenvalues + eigenvalues @ eigenvalues / (M * K)
        assert tail.p <= cantelli(variance, mean2.sum()) * (1 + 1e-12)


def test_contour_bad_input():
    with pytest.raises(ValueError, match="one length"):
        gaussian_tail(([1.0, 2.0], [1.0]), 1, 1)
    with pytest.raises(ValueError, match="finite and >= 0"):
        gaussian_tail(([1.0], [-1.0]), 1, 1)
    with pytest.raises(ValueError, match="finite and >= 0"):
        gaussian_tail(([math.nan], [1.0]), 1, 1)
    with pytest.raises(ValueError, match="M must be an integer >= 1, got 0"):
        gaussian_tail(([1.0], [1.0]), 0, 1)


# ---- Monte Carlo ------------------------------------------------------------------------------------------------

GAUSSIANS = [
    build(name, dim=12, d_align=0.3)
    for name in ("gaussian-flat", "gaussian-power-law", "gaussian-spiked", "gaussian-low-rank")
]


@pytest.mark.parametrize("population", GAUSSIANS, ids=lambda p: p.name)
def test_every_gaussian_route_agrees_with_the_contour(population):
    M, K, trials = 5, 3, 60_000
    p = gaussian_tail(population, M, K).p
    m = population.moments
    variance = (1 / M + 1 / K) * m.mu_Sigma_mu + m.tr_Sigma2 / (M * K)
    for route in routes(population):
        draws = simulate(population, M, K, trials, generator(1, population.name, route), route)
        assert draws.route == route
        assert abs(draws.frequency - p) < 5 * math.sqrt(p * (1 - p) / trials), route
        assert abs(draws.mean - m.mu2) < 5 * draws.mean_error, route
        assert abs(draws.variance - variance) < 5 * draws.variance_error, route
    estimate = rao_blackwell(population, M, K, trials, generator(1, population.name, "rb"))
    assert abs(estimate.p - p) < 5 * estimate.standard_error
    assert estimate.standard_error < math.sqrt(p * (1 - p) / trials)


@pytest.mark.parametrize("name", ["lattice", "bernoulli", "rare-atom", "rare-atom-2d"])
def test_finite_laws_agree_with_enumeration(name):
    population = build(name)
    M, K, trials = 4, 6, 60_000
    exact = exact_law_rational(population, M, K)
    draws = simulate(population, M, K, trials, generator(2, name))
    p = float(exact.p)
    assert abs(draws.frequency - p) < 5 * math.sqrt(p * (1 - p) / trials)
    assert abs(draws.mean - float(exact.mean)) < 5 * math.sqrt(float(exact.variance) / trials)


@pytest.mark.parametrize("name", ["t5", "t3", "t2.1", "laplace", "sparse-spiky", "rare-huge", "skewed"])
def test_routes_agree_with_the_naive_loop(name):
    population = build(name, dim=20, d_align=0.4)
    M, K = 6, 4
    naive = naive_misalignment(population, M, K, 4_000, generator(3, name, "naive"))
    p = float((naive <= 0).mean())
    for route in routes(population):
        draws = simulate(population, M, K, 40_000, generator(3, name, route), route)
        error = math.sqrt(p * (1 - p) * (1 / naive.size + 1 / draws.trials))
        assert abs(draws.frequency - p) < 5 * error, route
        if population.moment_order > 4:
            variance = (1 / M + 1 / K) * population.moments.mu_Sigma_mu + population.moments.tr_Sigma2 / (M * K)
            assert abs(draws.mean - population.moments.mu2) < 5 * math.sqrt(variance / draws.trials), route


@pytest.mark.parametrize(("rows", "dim"), [(40, 6), (12, 30)])
def test_pool_routes_agree_with_the_naive_loop_and_the_identities(rows, dim):
    pool = Empirical(generator(4, "pool").standard_normal((rows, dim)) + 0.25)
    M, K, trials = 5, 8, 40_000
    naive = naive_misalignment(pool, M, K, 6_000, generator(4, "naive"))
    m = pool.moments
    variance = (1 / M + 1 / K) * m.mu_Sigma_mu + m.tr_Sigma2 / (M * K)
    for route in routes(pool):
        draws = simulate(pool, M, K, trials, generator(4, route), route)
        p = (naive <= 0).mean()
        assert abs(draws.frequency - p) < 5 * math.sqrt(p * (1 - p) * (1 / naive.size + 1 / trials)), route
        assert abs(draws.mean - m.mu2) < 5 * draws.mean_error, route
        assert abs(draws.variance - variance) < 5 * draws.variance_error, route


def test_a_pool_of_two_is_resampled_with_replacement():
    # A5: without replacement X = -1/2 always, P = 1; with replacement P = P(one of each) = 1/2.
    pool = Empirical([[1.0], [-0.5]])
    for route in routes(pool):
        draws = simulate(pool, 1, 1, 20_000, generator(5, route), route)
        assert abs(draws.frequency - 0.5) < 5 * math.sqrt(0.25 / draws.trials)


def test_a_planted_scale_error_of_the_sampler_is_seen():
    class Stretched(Gaussian):
        def sample_means(self, count, size, rng, dtype=np.float64):
            return super().sample_means(count, size, rng, dtype) * 1.01

    honest = build("gaussian-flat", dim=64, d_align=4.0)
    wrong = Stretched(honest.mean, honest.eigenvalues)
    draws = simulate(wrong, 64, 64, 40_000, generator(6, "stretched"), "direct-means")
    assert abs(draws.mean - honest.moments.mu2) > 5 * draws.mean_error


def test_draws_add_up_and_their_statistics_are_right():
    population = build("gaussian-flat", dim=3, d_align=2.0)
    first = simulate(population, 2, 3, 700, generator(7, "a"), "conditional")
    second = simulate(population, 2, 3, 300, generator(7, "b"), "conditional")
    both = first + second
    assert both.trials == 1000
    assert both.misaligned == first.misaligned + second.misaligned
    assert both.mean == pytest.approx(0.7 * first.mean + 0.3 * second.mean)
    other = simulate(population, 2, 3, 10, generator(7, "c"), "isotropic")
    with pytest.raises(ValueError, match="different settings"):
        _ = first + other
    one = simulate(population, 2, 3, 1, generator(7, "d"))
    assert math.isnan(one.variance)
    again = simulate(population, 2, 3, 700, generator(7, "a"), "conditional")
    assert again == first


def test_moments_do_not_cancel_at_a_large_offset():
    population = Gaussian(np.full(4, 1e4), np.full(4, 1e-2))
    m = population.moments
    draws = simulate(population, 8, 8, 20_000, generator(8, "offset"), "isotropic")
    variance = 0.25 * m.mu_Sigma_mu + m.tr_Sigma2 / 64
    assert abs(draws.variance - variance) < 5 * draws.variance_error


def test_route_follows_the_cost():
    rng = generator(9, "cost")
    assert cheapest_route(Empirical(rng.standard_normal((2048, 64))), 64, 64) == "bag-rows"
    assert cheapest_route(Empirical(rng.standard_normal((300, 1500))), 4, 4) == "bag-gram"
    assert cheapest_route(Empirical(rng.standard_normal((300, 1500))), 3000, 3000) == "counts-gemm"
    assert cheapest_route(build("gaussian-flat", dim=8, d_align=1), 4, 4) == "isotropic"
    assert cheapest_route(build("t3", dim=8, d_align=1), 4, 4) == "conditional"
    assert cheapest_route(build("laplace", dim=8, d_align=1), 4, 4) == "direct-means"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_thousands_of_draws_from_a_pool_fit_in_memory():
    pool = Empirical(generator(10, "pool").standard_normal((1000, 2000)).astype(np.float32))
    before, peak, done = _resident(), [0], threading.Event()

    def watch():
        while not done.wait(0.005):
            peak[0] = max(peak[0], _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    draws = simulate(pool, 1000, 1000, 2000, generator(10, "draws"))
    done.set()
    watcher.join()
    assert draws.route == "counts-gemm"
    assert peak[0] - before < 500 * 2**20


def _resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_simulation_bad_input():
    population, rng = build("laplace", dim=4, d_align=1.0), generator(11, "bad")
    with pytest.raises(ValueError, match="M must be an integer >= 1, got 0"):
        simulate(population, 0, 1, 10, rng)
    with pytest.raises(ValueError, match="K must be an integer >= 1, got -2"):
        simulate(population, 1, -2, 10, rng)
    with pytest.raises(ValueError, match="trials must be an integer >= 1, got 0"):
        simulate(population, 1, 1, 0, rng)
    with pytest.raises(ValueError, match="no route 'bag-rows' for population 'laplace'; it has direct-means"):
        simulate(population, 1, 1, 10, rng, "bag-rows")
    with pytest.raises(TypeError, match="'laplace' is no scale mixture"):
        rao_blackwell(population, 1, 1, 10, rng)
    with pytest.raises(ValueError, match="trials must be an integer >= 1"):
        rao_blackwell(GAUSSIANS[0], 1, 1, 0, rng)


def test_zero_covariance_and_zero_mean():
    sure = Gaussian(np.ones(3), np.zeros(3))
    for route in routes(sure):
        assert simulate(sure, 2, 2, 50, generator(12, "sure"), route).misaligned == 0
    assert rao_blackwell(sure, 2, 2, 50, generator(12, "sure")).p == 0.0
    nothing = Gaussian(np.zeros(3), np.zeros(3))
    assert simulate(nothing, 2, 2, 50, generator(12, "nothing")).misaligned == 50
    assert rao_blackwell(nothing, 2, 2, 50, generator(12, "nothing")).p == 1.0
    dead = Empirical(np.zeros((5, 3)))
    for route in routes(dead):
        assert simulate(dead, 2, 2, 50, generator(12, "dead"), route).misaligned == 50


def test_engine_choice():
    assert exact_engine(build("lattice")) == "enumeration"
    assert exact_engine(GAUSSIANS[0]) == "contour"
    assert exact_engine(build("t3", dim=2, d_align=1)) is None
    assert exact_probability(FAIR, 1, 1).p == 0.75
    assert exact_probability(GAUSSIANS[0], 2, 3).p == gaussian_tail(GAUSSIANS[0], 2, 3).p
    with pytest.raises(ValueError, match="no exact engine for population 't3'"):
        exact_probability(build("t3", dim=2, d_align=1), 1, 1)


def test_direct_and_naive_have_one_law():
    population = build("gaussian-power-law", dim=5, d_align=1.0)
    naive = naive_misalignment(population, 3, 2, 3_000, generator(13, "naive"))
    u = population.sample_means(3_000, 3, generator(13, "u"))
    v = population.sample_means(3_000, 2, generator(13, "v"))
    assert ks_2samp(naive, (u * v).sum(axis=1)).pvalue > 1e-6
