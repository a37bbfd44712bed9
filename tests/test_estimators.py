"""Gram U-statistics against their definition over distinct tuples, in rational numbers."""

import math
import tracemalloc
from dataclasses import fields
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rescert.verify.estimators import (
    MomentEstimates,
    Moments,
    estimate,
    gram_summary,
    gram_summary_from_gram,
    leave_one_out,
)

MOMENTS = [field.name for field in fields(Moments)]


def dot(u, v):
    return sum((a * b for a, b in zip(u, v, strict=True)), Fraction(0))


def moments_ref(rows):
    """The five U-statistics from their definition: means over tuples of distinct indices."""
    rows = [[Fraction(float(x)) if not isinstance(x, Fraction) else x for x in row] for row in rows]
    n = len(rows)
    G = [[dot(u, v) for v in rows] for u in rows]

    def mean(order, kernel):
        return sum((kernel(*index) for index in permutations(range(n), order)), Fraction(0)) / math.perm(n, order)

    U1 = mean(2, lambda i, j: G[i][j])
    U2 = mean(2, lambda i, j: G[i][j] ** 2)
    U3 = mean(3, lambda i, j, k: G[i][j] * G[j][k])
    U4 = mean(4, lambda i, j, k, m: G[i][j] * G[k][m])
    trace = sum((G[i][i] for i in range(n)), Fraction(0)) / n
    return {"mu2": U1, "mu4": U4, "mu_Sigma_mu": U3 - U4, "tr_Sigma": trace - U1, "tr_Sigma2": U2 - 2 * U3 + U4}


def moments_of_law(atoms, weights):
    """Exact moments of a law on finitely many atoms."""
    dim = range(len(atoms[0]))
    mu = [sum(w * q[i] for q, w in zip(atoms, weights, strict=True)) for i in dim]
    Sigma = [
        [sum(w * (q[i] - mu[i]) * (q[j] - mu[j]) for q, w in zip(atoms, weights, strict=True)) for j in dim]
        for i in dim
    ]
    mu2 = dot(mu, mu)
    return {
        "mu2": mu2,
        "mu4": mu2**2,
        "mu_Sigma_mu": dot(mu, [dot(row, mu) for row in Sigma]),
        "tr_Sigma": sum(Sigma[i][i] for i in dim),
        "tr_Sigma2": sum(Sigma[i][j] ** 2 for i in dim for j in dim),
    }


def gradients(n, dim, offset=0.0, seed=0):
    """Skewed rows with a sloping spectrum and a mean of size 0.5 sqrt(dim), moved by ``offset`` in every coordinate."""
    rng = np.random.default_rng(seed)
    scale = 1 / np.sqrt(1 + np.arange(dim))
    return offset + 0.5 + scale * (rng.standard_exponential((n, dim)) - 1)


def relative_errors(got, want):
    return {name: abs(float(Fraction(getattr(got, name)) / Fraction(want[name]) - 1)) for name in MOMENTS}


ATOMS = [(Fraction(1), Fraction(2)), (Fraction(-3, 2), Fraction(1)), (Fraction(1, 4), Fraction(-1, 2))]
WEIGHTS = {
    "equal": [Fraction(1, 3)] * 3,
    "unequal": [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)],
}


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("n", [4, 5])
def test_exactly_unbiased_over_all_samples(n, weights):
    """The expectation over all 3^n samples: exact for the rational definition, to rounding for the code."""
    truth = moments_of_law(ATOMS, weights)
    exact = dict.fromkeys(MOMENTS, Fraction(0))
    computed = dict.fromkeys(MOMENTS, 0.0)
    for index in product(range(3), repeat=n):
        probability = math.prod((weights[i] for i in index), start=Fraction(1))
        reference = moments_ref([ATOMS[i] for i in index])
        got = estimate(gram_summary(np.array([ATOMS[i] for i in index], dtype=float)))
        for name in MOMENTS:
            exact[name] += probability * reference[name]
            computed[name] += float(probability) * getattr(got, name)
            assert getattr(got, name) == pytest.approx(float(reference[name]), rel=1e-12, abs=1e-12)
    assert exact == truth
    assert computed == pytest.approx({name: float(value) for name, value in truth.items()}, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(4, 7).flatmap(
        lambda n: st.integers(1, 5).flatmap(
            lambda dim: st.lists(st.lists(st.integers(-9, 9), min_size=dim, max_size=dim), min_size=n, max_size=n)
        )
    )
)
def test_equals_tuple_definition_from_rows_and_from_gram(rows):
    Q = np.array(rows, dtype=float)
    reference = moments_ref(rows)
    # Rounding is relative to the largest term, of size (max |q|^2)^(1 or 2).
    size = max(1.0, float((Q**2).sum(axis=1).max()))
    for got in (estimate(gram_summary(Q)), estimate(gram_summary_from_gram(Q @ Q.T))):
        for name in MOMENTS:
            unit = size if name in ("mu2", "tr_Sigma") else size**2
            assert getattr(got, name) == pytest.approx(float(reference[name]), abs=1e-13 * unit)


@pytest.mark.parametrize(("n", "dim"), [(8, 1), (8, 2), (8, 30)])
def test_large_mean_costs_no_digits(n, dim):
    """At a mean offset of 1e4 every moment keeps 9 digits against the rational truth of the same doubles."""
    Q = gradients(n, dim, offset=1e4)
    assert max(relative_errors(estimate(gram_summary(Q)), moments_ref(Q)).values()) <= 1e-9


def test_offset_check_can_fail():
    """The raw formula on the same rows loses tr Sigma^2 altogether."""
    Q = gradients(8, 30, offset=1e4)
    A = Q @ Q.T
    np.fill_diagonal(A, 0)
    r, n = A.sum(axis=1), len(A)
    S1, R2, F = r.sum(), r @ r, (A**2).sum()
    U2, U3 = F / math.perm(n, 2), (R2 - F) / math.perm(n, 3)
    raw = U2 - 2 * U3 + (S1**2 - 4 * R2 + 2 * F) / math.perm(n, 4)
    truth = float(moments_ref(Q)["tr_Sigma2"])
    assert abs(raw / truth - 1) > 0.1


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize(("n", "dim"), [(5, 1), (9, 2), (30, 4), (8, 40)])
def test_leave_one_out_equals_recomputation(n, dim, offset):
    Q = gradients(n, dim, offset)
    summary, without = gram_summary(Q), leave_one_out(gram_summary(Q))
    sigma2 = estimate(summary).tr_Sigma
    for i in range(n):
        again = estimate(gram_summary(np.delete(Q, i, axis=0)))
        for name in MOMENTS:
            # An estimate near zero is judged against the size of the terms that cancel in it.
            unit = {"mu2": sigma2, "tr_Sigma": sigma2, "mu_Sigma_mu": sigma2 * again.plug_in.mu2}.get(name, sigma2**2)
            assert getattr(without, name)[i] == pytest.approx(getattr(again, name), rel=1e-10, abs=1e-13 * unit)


def test_leave_one_out_matches_rational_definition():
    Q = gradients(7, 3, offset=1e4)
    without = leave_one_out(gram_summary(Q))
    for i in range(7):
        reference = moments_ref(np.delete(Q, i, axis=0))
        for name in MOMENTS:
            assert float(Fraction(getattr(without, name)[i]) / reference[name] - 1) == pytest.approx(0, abs=1e-9)


def vectors(summary):
    estimates, without = estimate(summary), leave_one_out(summary)
    return np.concatenate(
        [[getattr(estimates, name)] for name in MOMENTS] + [getattr(without, name) for name in MOMENTS]
    )


@pytest.mark.parametrize(("n", "dim"), [(23, 4), (23, 60)])
def test_block_size_changes_nothing(n, dim):
    Q = gradients(n, dim)
    whole = vectors(gram_summary(Q, block=n))
    from_gram = vectors(gram_summary_from_gram(Q @ Q.T, block=n))
    for block in (1, 3, 7):
        np.testing.assert_allclose(vectors(gram_summary(Q, block=block)), whole, rtol=1e-12)
        np.testing.assert_allclose(vectors(gram_summary_from_gram(Q @ Q.T, block=block)), from_gram, rtol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_feature_and_tile_routes_agree(offset):
    """Zero columns change no statistic, but they push a narrow matrix from the Q'Q route to the tiles of QQ'."""
    Q = gradients(40, 5, offset)
    padded = np.hstack([Q, np.zeros((40, 50))])
    np.testing.assert_allclose(vectors(gram_summary(padded, block=7)), vectors(gram_summary(Q, block=7)), rtol=1e-11)


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(5, 40),
    dim=st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
    power=st.integers(-60, 60),
)
def test_laws_of_symmetry(n, dim, seed, power):
    """Dimensions ignore the scale of Q, the order of rows and an orthogonal change of coordinates; tr Sigma^2 >= 0."""
    Q = gradients(n, dim, seed=seed)
    rng = np.random.default_rng(seed)
    base = estimate(gram_summary(Q))
    scaled = estimate(gram_summary(Q * 2.0**power))
    assert (scaled.d_par, scaled.d_2) == (base.d_par, base.d_2)  # a power of two scales without rounding
    assert base.tr_Sigma2 >= 0
    assert base.d_align == min(base.d_par, base.d_2)
    rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    for other in (Q[rng.permutation(n)], Q @ rotation):
        got = estimate(gram_summary(other))
        size = base.plug_in.mu2 + base.plug_in.tr_Sigma
        for name in MOMENTS:
            unit = size if name in ("mu2", "tr_Sigma") else size**2
            assert getattr(got, name) == pytest.approx(getattr(base, name), abs=1e-12 * unit)


def test_float32_is_accumulated_in_float64_and_tensors_are_accepted():
    Q = gradients(50, 6, offset=1e3).astype(np.float32)
    wide = vectors(gram_summary(Q.astype(np.float64)))
    np.testing.assert_allclose(vectors(gram_summary(Q)), wide, rtol=1e-13)
    np.testing.assert_allclose(vectors(gram_summary(torch.from_numpy(Q))), wide, rtol=1e-13)


@pytest.mark.parametrize(("n", "dim"), [(8192, 512), (2048, 1024)])
def test_memory_stays_below_a_widened_copy(n, dim):
    """Neither a float64 copy of Q nor an n x n matrix is ever held: blocks, their temporaries, and N x N if narrow."""
    Q = np.random.default_rng(0).standard_normal((n, dim), dtype=np.float32)
    tracemalloc.start()
    gram_summary(Q, block=256)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.75 * n * dim * 8


def test_negative_estimate_is_reported_as_such():
    """Atoms +1 and -1 in equal number: |mu|^2 is estimated as -1/(n-1), and the dimension is 0."""
    Q = np.array([[1.0], [-1.0]] * 4)
    got = estimate(gram_summary(Q))
    assert got.mu2 == pytest.approx(-1 / 7)
    assert (got.d_par, got.d_2, got.d_align) == (0, 0, 0)
    assert not got.degenerate


def test_nonpositive_mu_Sigma_mu_is_flagged_and_kept():
    """Spread orthogonal to the mean: mu'Sigma mu = 0 is estimated below zero on some samples, never lost."""
    rng = np.random.default_rng(3)
    flagged = 0
    for _ in range(40):
        Q = np.hstack([np.ones((12, 1)), rng.standard_normal((12, 6))])
        got = estimate(gram_summary(Q))
        assert got.mu_Sigma_mu_nonpositive == (got.mu_Sigma_mu <= 0)
        assert (got.d_par == math.inf) == (got.mu_Sigma_mu_nonpositive and got.mu2 > 0)
        assert not math.isnan(got.d_align)
        flagged += got.mu_Sigma_mu_nonpositive
    assert 0 < flagged < 40


@pytest.mark.parametrize("row", [[0.1, -0.7, 1e5 / 3], [1 / 3]], ids=["N=3", "N=1"])
@pytest.mark.parametrize("n", [4, 1000])
def test_identical_rows_are_degenerate(n, row):
    Q = np.tile(row, (n, 1))
    for summary in (gram_summary(Q), gram_summary_from_gram(Q @ Q.T)):
        got = estimate(summary)
        assert got.degenerate
        assert (got.tr_Sigma, got.tr_Sigma2, got.mu_Sigma_mu) == (0, 0, 0)
        assert got.mu2 == pytest.approx(np.dot(row, row), rel=1e-12)
        assert got.d_align == got.plug_in.d_align == math.inf


def test_all_zero_rows_have_dimension_zero():
    for summary in (gram_summary(np.zeros((6, 3))), gram_summary_from_gram(np.zeros((6, 6)))):
        got = estimate(summary)
        assert got.degenerate
        assert (got.mu2, got.d_par, got.d_2, got.d_align) == (0, 0, 0, 0)


def test_small_spread_on_a_large_mean_is_not_taken_for_none():
    Q = gradients(20, 3, offset=0.0) * 1e-9 + 1e4
    assert not estimate(gram_summary(Q)).degenerate


def test_orthonormal_rows_have_no_estimate_of_tr_Sigma2():
    """(q_i - q_j).(q_k - q_l) = 0 for distinct unit vectors: the U-statistic is exactly zero, not rounding noise."""
    got = estimate(gram_summary(np.eye(9)))
    assert got.tr_Sigma2_nonpositive
    assert got.tr_Sigma2 == 0
    assert got.tr_Sigma == pytest.approx(1)


def flat_gaussian(rng, n, mu2, dim=1000):
    Q = rng.standard_normal((n, dim))
    Q[:, 0] += math.sqrt(mu2)
    return Q


@pytest.mark.parametrize(("n", "mixed", "full"), [(64, 17.0, 1.01), (256, 3.2, 0.64)])
def test_plug_in_bias(n, mixed, full):
    """Spec alignment A2, flat N = 1000, |mu|^2 = 5: plug-in d_2 is 17 times too large, or, both plugged in, hidden."""
    rng, d_2 = np.random.default_rng(n), 25 / 1000
    inflation = (1 + 1000 / (n * 5)) ** 2
    deflation = 1000 / (1000 + 1000**2 / (n - 1))
    assert (inflation, inflation * deflation) == pytest.approx((mixed, full), rel=0.01)
    got = [estimate(gram_summary(flat_gaussian(rng, n, 5.0))) for _ in range(40)]
    for values, predicted in (
        ([e.plug_in.mu4 / e.tr_Sigma2 / d_2 for e in got], inflation),
        ([e.plug_in.d_2 / d_2 for e in got], inflation * deflation),
    ):
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        # 1 %: the prediction is a ratio of means, and the square of a mean where the mean of a square belongs.
        assert np.mean(values) == pytest.approx(predicted, abs=5 * error + 0.01 * predicted)
    unbiased = [e.mu2 for e in got]
    assert np.mean(unbiased) == pytest.approx(5, abs=5 * np.std(unbiased, ddof=1) / math.sqrt(40))


def test_plug_in_claims_signal_in_pure_noise():
    """With mu = 0, plug-in d_par is tr(Sigma)^2 / (n tr Sigma^2), here N/n; the unbiased one is 0 half of the time."""
    rng, n = np.random.default_rng(1), 64
    got = [estimate(gram_summary(flat_gaussian(rng, n, 0.0))) for _ in range(40)]
    plug_in = [e.plug_in.d_par for e in got]
    # q_bar and the sample covariance are independent: E 1/chi^2 adds (n-1)/(n-3).
    predicted = 1000 / n * (n - 1) / (n - 3)
    assert np.mean(plug_in) == pytest.approx(predicted, abs=5 * np.std(plug_in, ddof=1) / math.sqrt(40))
    zero = sum(e.d_align == 0 for e in got)
    assert abs(zero - 20) <= 5 * math.sqrt(40) / 2


def test_matches_more_precise_arithmetic_on_realistic_sizes():
    """mpmath, 40 digits, raw formulas, at n = 60 and a mean offset of 1e4."""
    mpmath = pytest.importorskip("mpmath")
    Q = gradients(60, 12, offset=1e4)
    n = len(Q)
    with mpmath.workdps(40):
        A = mpmath.matrix(Q.tolist())
        A = A * A.T
        trace = mpmath.fsum(A[i, i] for i in range(n))
        for i in range(n):
            A[i, i] = 0
        r = [mpmath.fsum(A[i, j] for j in range(n)) for i in range(n)]
        S1, R2 = mpmath.fsum(r), mpmath.fsum(x * x for x in r)
        F = mpmath.fsum(A[i, j] ** 2 for i in range(n) for j in range(n))
        U1, U2, U3 = S1 / math.perm(n, 2), F / math.perm(n, 2), (R2 - F) / math.perm(n, 3)
        U4 = (S1**2 - 4 * R2 + 2 * F) / math.perm(n, 4)
        truth = [U1, U4, U3 - U4, trace / n - U1, U2 - 2 * U3 + U4]
        got = estimate(gram_summary(Q))
        errors = [float(abs(mpmath.mpf(getattr(got, name)) / t - 1)) for name, t in zip(MOMENTS, truth, strict=True)]
    assert max(errors) <= 1e-9


@pytest.mark.parametrize(
    ("Q", "message"),
    [
        (np.array([[1.0, np.nan], [1, 2], [3, 4], [np.inf, 1], [0, 0]]), r"2 of 5 rows hold NaN.*first at index 0"),
        (np.vstack([np.ones((6, 2)), [[1, -np.inf]]]), r"1 of 7 rows hold NaN.*first at index 6"),
        (np.ones((3, 2)), r"at least 4 samples are needed, got 3"),
        (np.ones(8), r"must be 2-D.*got shape \(8,\)"),
        (np.ones((8, 2, 2)), r"must be 2-D.*got shape \(8, 2, 2\)"),
        (np.ones((8, 0)), r"at least one column, got shape \(8, 0\)"),
    ],
)
def test_bad_rows(Q, message):
    with pytest.raises(ValueError, match=message) as caught:
        gram_summary(Q)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("G", "message"),
    [
        (np.ones((5, 4)), r"must be square, got shape \(5, 4\)"),
        (np.ones(5), r"must be square, got shape \(5,\)"),
        (np.arange(25.0).reshape(5, 5), r"must be symmetric, got \|G - G'\| up to 16"),
        (-np.eye(5), r"nonnegative diagonal, got -1"),
        (np.full((5, 5), np.nan), r"5 of 5 rows hold NaN.*first at index 0"),
        (np.eye(3), r"at least 4 samples are needed, got 3"),
    ],
)
def test_bad_gram(G, message):
    with pytest.raises(ValueError, match=message):
        gram_summary_from_gram(G)


def test_other_bad_input():
    with pytest.raises(ValueError, match=r"gram_summary: block must be at least 1, got 0"):
        gram_summary(np.eye(5), block=0)
    with pytest.raises(ValueError, match=r"gram_summary_from_gram: block must be at least 1, got -2"):
        gram_summary_from_gram(np.eye(5), block=-2)
    with pytest.raises(ValueError, match=r"leave_one_out: at least 5 samples are needed, got 4"):
        leave_one_out(gram_summary(np.eye(4)))
    with pytest.raises(TypeError, match=r"entries must be real numbers, got dtype complex128"):
        gram_summary(np.eye(5) * 1j)


def test_estimates_carry_their_sample():
    got = estimate(gram_summary(gradients(6, 3)))
    assert isinstance(got, MomentEstimates)
    assert (got.n, got.dim) == (6, 3)
    assert estimate(gram_summary_from_gram(np.eye(6))).dim is None
