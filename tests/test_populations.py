import json
import math
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rescert.sim.laws import EigenLaw
from rescert.sim.normals import standard_normal
from rescert.sim.populations import CONTINUOUS, Empirical, FiniteSupport, Gaussian, build, names
from rescert.sim.rng import generator
from scipy import stats
from strategies import finite_laws

DISCRETE = ("lattice", "bernoulli", "rare-atom", "rare-atom-2d")
POOL = generator(0, "pool").standard_normal((60, 7)) + 0.5


def zoo():
    for name in CONTINUOUS:
        yield build(name, dim=9, d_align=1.5)
    for name in DISCRETE:
        yield build(name)
    yield Empirical(POOL)


POPULATIONS = list(zoo())
by_name = pytest.mark.parametrize("population", POPULATIONS, ids=lambda p: p.name)


def five_sigma(values, expected):
    """The mean of independent values, with finite variance, is the expected one."""
    error = values.std() / math.sqrt(len(values))
    assert abs(values.mean() - expected) <= 5 * error + 1e-12 * (1 + abs(expected))


def mean_and_covariance(population):
    if isinstance(population, EigenLaw):
        return population.mean, np.diag(population.eigenvalues)
    if isinstance(population, Empirical):
        return POOL.mean(axis=0), np.cov(POOL.T, bias=True)
    atoms, weights = np.array(population.atoms, dtype=float), np.array(population.weights, dtype=float)
    mu = weights @ atoms
    return mu, (atoms - mu).T @ np.diag(weights) @ (atoms - mu)


@by_name
def test_samples_have_the_stated_moments(population):
    mu, S = mean_and_covariance(population)
    m = population.moments
    stated = [float(x) for x in (m.mu2, m.mu_Sigma_mu, m.tr_Sigma, m.tr_Sigma2, m.lambda_max)]
    assert stated == pytest.approx([mu @ mu, mu @ S @ mu, np.trace(S), np.sum(S**2), np.linalg.eigvalsh(S)[-1]])
    q = population.sample(40_000, generator(1, population.name))
    assert q.shape == (40_000, population.dim)
    assert q.dtype == np.float64
    for i in range(population.dim):
        if population.moment_order > 2.5:  # at 2.1 the variance of q is seen too slowly; its quantiles are tested below
            five_sigma(q[:, i], mu[i])
        for j in range(i + 1):
            if population.moment_order > 4:
                five_sigma((q[:, i] - mu[i]) * (q[:, j] - mu[j]), S[i, j])


@by_name
@pytest.mark.parametrize("size", [1, 2, 7])
def test_direct_means_have_the_law_of_means_of_samples(population, size):
    # Two-sample Kolmogorov-Smirnov along random directions: sound whatever the moments; ties make it conservative.
    count = 3_000
    slow = population.sample(count * size, generator(2, population.name, size)).reshape(count, size, -1).mean(axis=1)
    for dtype in (np.float64, np.float32):
        fast = population.sample_means(count, size, generator(3, population.name, size), dtype)
        assert fast.dtype == dtype
        assert fast.shape == (count, population.dim)
        for direction in np.vstack([np.eye(population.dim)[0], generator(4).standard_normal((3, population.dim))]):
            a, b = np.round(slow @ direction, 5), np.round(fast @ direction, 5)
            assert stats.ks_2samp(a, b, method="asymp").pvalue > 1e-6
        # The coordinates must also depend on each other as they should (one scale a row, loud rows).
        a, b = np.round(np.square(slow).sum(axis=1), 5), np.round(np.square(fast).sum(axis=1, dtype=np.float64), 5)
        assert stats.ks_2samp(a, b, method="asymp").pvalue > 1e-6


@pytest.mark.parametrize("nu", [5.0, 3.0, 2.1])
def test_t_has_its_quantiles_and_covariance_by_construction(nu):
    # Sample variances say little at nu = 2.1. A coordinate is sqrt((nu - 2) / nu) T_nu, and Var T_nu = nu / (nu - 2).
    population = build(f"t{nu:g}", dim=4, d_align=0.0)
    assert population.moment_order == nu
    coordinate = population.sample(20_000, generator(5, "t", int(10 * nu)))[:, 1]
    assert stats.kstest(coordinate / math.sqrt((nu - 2) / nu), stats.t(nu).cdf).pvalue > 1e-6
    assert population.moments.tr_Sigma == 4


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("dim", [1, 2, 37])
@pytest.mark.parametrize("d_align", [0.0, 1e-4, 1.0, 50.0])
def test_d_align_is_met_exactly(name, dim, d_align):
    m = build(name, dim=dim, d_align=d_align).moments
    if d_align == 0:
        assert m.mu2 == m.mu_Sigma_mu == 0
    else:
        assert min(m.mu2**2 / m.mu_Sigma_mu, m.mu2**2 / m.tr_Sigma2) == pytest.approx(d_align, rel=1e-12)
    assert m.tr_Sigma > 0
    assert m.lambda_max <= m.tr_Sigma * (1 + 1e-12)


def test_low_rank_is_singular():
    population = build("gaussian-low-rank", dim=16, d_align=1.0)
    assert np.count_nonzero(population.eigenvalues) == 4
    assert not np.ptp(population.sample(50, generator(6))[:, 4:], axis=0).any()


@given(finite_laws())
@settings(max_examples=60, deadline=None)
def test_rational_moments_agree_with_the_covariance_matrix(law):
    pairs = list(zip(law.weights, law.atoms, strict=True))
    size = range(law.dim)
    mu = [sum(w * a[i] for w, a in pairs) for i in size]
    S = [[sum(w * a[i] * a[j] for w, a in pairs) - mu[i] * mu[j] for j in size] for i in size]
    m = law.moments
    assert m.mu2 == sum(x * x for x in mu)
    assert m.mu_Sigma_mu == sum(mu[i] * S[i][j] * mu[j] for i in size for j in size)
    assert m.tr_Sigma == sum(S[i][i] for i in size)
    assert m.tr_Sigma2 == sum(S[i][j] ** 2 for i in size for j in size)
    largest = np.linalg.eigvalsh(np.array(S, dtype=float))[-1]
    assert m.lambda_max == pytest.approx(largest, abs=1e-12 * (1 + largest))
    again = build(**json.loads(json.dumps(law.spec)))
    assert (again.atoms, again.weights, again.moments) == (law.atoms, law.weights, law.moments)


@pytest.mark.parametrize("shape", [(60, 7), (7, 60), (2, 1)])
def test_pool_moments_are_those_of_the_pool(shape):
    rows = generator(7, *shape).standard_normal(shape) + 0.3
    mu, S = rows.mean(axis=0), np.atleast_2d(np.cov(rows.T, bias=True))
    m = Empirical(rows).moments
    assert m.mu2 == pytest.approx(mu @ mu)
    assert m.mu_Sigma_mu == pytest.approx(mu @ S @ mu)
    assert m.tr_Sigma == pytest.approx(np.trace(S))
    assert m.tr_Sigma2 == pytest.approx(np.sum(S**2))
    assert m.lambda_max == pytest.approx(np.linalg.eigvalsh(S)[-1])


def test_pool_counts_are_with_replacement():
    counts = Empirical(POOL).sample_counts(500, 200, generator(8))
    assert (counts.sum(axis=1) == 200).all()
    five_sigma(counts[:, 3].astype(float), 200 / 60)
    assert counts.max() > 5


@by_name
def test_spec_is_json_and_builds_the_same_population(population):
    spec = json.loads(json.dumps(population.spec))
    again = build(**spec, **({"pool": POOL} if spec["name"] == "empirical" else {}))
    assert again.spec == population.spec
    assert again.moments == population.moments
    assert (again.name, again.family, again.dim) == (population.name, population.family, population.dim)
    assert np.array_equal(again.sample(5, generator(9)), population.sample(5, generator(9)))


def test_general_gaussian_round_trip():
    population = Gaussian(np.array([1.0, -2.0]), np.array([0.5, 0.0]))
    again = build(**json.loads(json.dumps(population.spec)))
    assert again.moments == population.moments


def test_names_and_families():
    assert len(names()) >= 14
    assert {p.family for p in POPULATIONS} == {
        "Gaussian", "heavy tails", "sparse and skewed", "finite support", "extremal", "measured",
    }  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 5, 2**16, 2**16 + 3])
def test_float32_normals_have_every_size(size):
    assert standard_normal((size,), generator(10), np.float32).shape == (size,)


def test_float32_normals_are_normal_and_independent():
    z = standard_normal((400, 1000), generator(11), np.float32)
    assert z.dtype == np.float32
    assert np.isfinite(z).all()
    flat = z.ravel().astype(np.float64)
    assert stats.kstest(flat, "norm").pvalue > 1e-6
    for order, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)):
        five_sigma(flat**order, moment)
    for beyond in (3.0, 4.0):  # the tail, both sides
        p = 2 * stats.norm.sf(beyond)
        assert abs((np.abs(flat) > beyond).sum() - flat.size * p) < 5 * math.sqrt(flat.size * p)
    # Pairs from one Box-Muller transform lie half a piece apart: they must be uncorrelated, squares too.
    piece = flat[: 2**16].reshape(2, -1)
    for power in (1, 2):
        assert abs(np.corrcoef(piece**power)[0, 1]) < 5 / math.sqrt(piece.shape[1])


ERRORS = [
    ({"name": "gausian-flat"}, "unknown population 'gausian-flat'; nearest: gaussian-flat"),
    ({"name": "t5", "dim": 0, "d_align": 1}, "dim must be an integer >= 1, got 0"),
    ({"name": "t5", "dim": 2.5, "d_align": 1}, "dim must be an integer >= 1, got 2.5"),
    ({"name": "t5", "dim": 2, "d_align": -1}, "d_align must be finite and >= 0 .* got -1"),
    ({"name": "t5", "dim": 2, "d_align": math.nan}, "d_align must be finite"),
    ({"name": "t5", "dim": 2}, "missing parameter d_align; it takes dim, d_align"),
    ({"name": "t5", "dim": 2, "d_align": 1, "nu": 3}, "unknown parameter nu; it takes dim, d_align"),
    ({"name": "lattice", "dim": 0}, "dim must be an integer >= 1"),
    ({"name": "bernoulli", "pi": 1}, "pi must lie strictly between 0 and 1, got 1"),
    ({"name": "bernoulli", "pi": "half"}, "'half' is no rational number"),
    ({"name": "rare-atom", "M": 0}, "M must be an integer >= 1, got 0"),
    ({"name": "rare-atom-2d", "M": 8, "eps": "1/4"}, "take eps below 1/64"),
    ({"name": "finite", "atoms": [[0], [1]], "weights": ["1/2", "1/3"]}, "sum to 1, got .* with sum 5/6"),
    ({"name": "finite", "atoms": [[0], [1]], "weights": ["3/2", "-1/2"]}, "weights must be positive"),
    ({"name": "finite", "atoms": [[0], [1, 2]], "weights": ["1/2", "1/2"]}, "same number >= 1"),
    ({"name": "finite", "atoms": [[0]], "weights": ["1/2", "1/2"]}, "one weight an atom"),
    ({"name": "gaussian", "mean": [1.0], "eigenvalues": [-1.0]}, "eigenvalues >= 0"),
    ({"name": "gaussian", "mean": [1.0], "eigenvalues": [1.0, 2.0]}, "equal vectors"),
    ({"name": "empirical", "pool": [[1.0, 2.0]]}, r"samples >= 2, dim >= 1\), got shape \(1, 2\)"),
    ({"name": "empirical", "pool": [[1.0], [math.nan]]}, r"1 of 2 rows hold NaN or infinity \(first: row 1\)"),
    ({"name": "empirical", "pool": [[math.inf], [1.0]]}, "NaN or infinity"),
    ({"name": "empirical", "pool": [[1.0], [2.0]], "sha256": "0" * 64}, "the pool has hash"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), ERRORS)
def test_bad_parameters_are_one_line_errors(spec, message):
    with pytest.raises(ValueError, match=message) as caught:
        build(**spec)
    assert "\n" not in str(caught.value)


def test_floats_are_no_exact_rationals():
    with pytest.raises(TypeError, match=r"got the float 0\.2; write an exact rational such as '1/5'"):
        build("bernoulli", pi=0.2)


def test_fractions_and_integers_are_accepted():
    assert FiniteSupport([[F(1, 3), 2]], [1]).atoms == ((F(1, 3), F(2)),)


@given(st.integers(1, 40), st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_blocks_of_scales_do_not_change_shape(count, size):
    population = build("t3", dim=3, d_align=0.0)
    scales = population.mean_scale2(count, size, generator(12, count, size))
    assert scales.shape == (count,)
    assert (scales > 0).all()
