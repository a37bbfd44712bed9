"""The alignment claims against exact enumeration, hand values, and planted mistakes."""

import dataclasses
from collections import Counter
from fractions import Fraction as F
from itertools import product
from math import comb, inf, isqrt

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from rescert.theory import registry
from rescert.theory.alignment import B_EXACT, CLAIMS, VARIANCE, samples_needed
from rescert.theory.symbols import TABLE, K, M, N, d_2, d_align, d_par, mu2, mu_Sigma_mu, tr_Sigma, tr_Sigma2

PROVED = [claim for claim in registry.claims() if claim.proof is not None]
MEAN, VARIANCE_CLAIM, CANTELLI, CERTIFICATE, ORDERING = CLAIMS[:5]


# An oracle: finite laws of rational atoms, enumerated one sample after the other


def mean_law(atoms, samples):
    """The law of the mean of ``samples`` draws, by convolution; atoms as {vector: weight}."""
    total = {tuple(F(0) for _ in next(iter(atoms))): F(1)}
    for _ in range(samples):
        new: Counter = Counter()
        for (x, p), (q, w) in product(total.items(), atoms.items()):
            new[tuple(a + b for a, b in zip(x, q, strict=True))] += p * w
        total = new
    return {tuple(a / samples for a in x): p for x, p in total.items()}


def alignment_law(atoms, m, k):
    """The law of X = mu_M . g_K."""
    law: Counter = Counter()
    for (u, p), (v, w) in product(mean_law(atoms, m).items(), mean_law(atoms, k).items()):
        law[sum(a * b for a, b in zip(u, v, strict=True))] += p * w
    return law


def moments(atoms):
    """Moments from the covariance matrix, element by element."""
    dim = range(len(next(iter(atoms))))
    mu = [sum(w * q[i] for q, w in atoms.items()) for i in dim]
    sigma = [[sum(w * q[i] * q[j] for q, w in atoms.items()) - mu[i] * mu[j] for j in dim] for i in dim]
    return {
        "N": len(mu),
        "mu2": sum(x * x for x in mu),
        "mu_Sigma_mu": sum(mu[i] * sigma[i][j] * mu[j] for i in dim for j in dim),
        "tr_Sigma": sum(sigma[i][i] for i in dim),
        "tr_Sigma2": sum(sigma[i][j] ** 2 for i in dim for j in dim),
    }


def misalignment(atoms, m, k):
    return sum(p for x, p in alignment_law(atoms, m, k).items() if x <= 0)


def bernoulli(pi):
    return {(F(1),): F(pi), (F(0),): 1 - F(pi)}


def rare_atom_misalignment(m, eps, w2=F(0)):
    """P(X <= 0) at M = K for the atoms (1, 0) and (-(M - 1), w), by the numbers j, k of rare ones among M.

    The means are (1 - j, j w / M), so that X = (1 - j)(1 - k) + j k w^2 / M^2.
    """
    weights = [comb(m, j) * eps**j * (1 - eps) ** (m - j) for j in range(m + 1)]
    return sum(
        weights[j] * weights[k]
        for j in range(m + 1)
        for k in range(m + 1)
        if (1 - j) * (1 - k) + j * k * w2 / m**2 <= 0
    )


def rare_atom_moments(m, eps, w2=F(0)):
    """The moments of that law: Sigma = eps (1 - eps) d d', with d = (-M, w)."""
    spread, along, length = eps * (1 - eps), -m * (1 - m * eps) + w2 * eps, m**2 + w2
    return {
        "mu2": (1 - m * eps) ** 2 + w2 * eps**2,
        "mu_Sigma_mu": spread * along**2,
        "tr_Sigma2": (spread * length) ** 2,
    }


fractions = st.fractions(min_value=-3, max_value=3, max_denominator=4)


@st.composite
def laws(draw):
    dim = draw(st.integers(1, 3))
    vectors = draw(st.lists(st.tuples(*[fractions] * dim), min_size=1, max_size=3, unique=True))
    weights = draw(st.lists(st.integers(1, 9), min_size=len(vectors), max_size=len(vectors)))
    return {q: F(w, sum(weights)) for q, w in zip(vectors, weights, strict=True)}


@settings(deadline=None, max_examples=60)
@given(atoms=laws(), m=st.integers(1, 3), k=st.integers(1, 3))
def test_the_claims_hold_for_enumerated_laws(atoms, m, k):
    law = alignment_law(atoms, m, k)
    letters = {"M": m, "K": k, **moments(atoms)}
    mean = sum(x * p for x, p in law.items())
    assert MEAN.exact(**letters) == mean
    assert VARIANCE_CLAIM.exact(**letters) == sum((x - mean) ** 2 * p for x, p in law.items())
    p = sum(weight for x, weight in law.items() if x <= 0)
    assert p <= CANTELLI.exact(**letters) <= CERTIFICATE.exact(**letters) <= 1
    assert ORDERING.exact(**letters) == CERTIFICATE.exact(**letters) - CANTELLI.exact(**letters)


# Proofs, and that they can fail


@pytest.mark.parametrize("claim", PROVED, ids=lambda claim: claim.id)
def test_every_proof_holds(claim):
    proof = claim.prove()
    assert proof.holds, proof.failures


def planted(expression):
    """Wrong versions: a coefficient off by a per cent, in front, added, or on any letter; any moment dropped."""
    yield "scaled", expression * sympy.Rational(101, 100)
    yield "shrunk", expression * sympy.Rational(99, 100)
    yield "shifted", expression + sympy.Rational(1, 100)
    for symbol in sorted(expression.free_symbols, key=str):
        yield f"{symbol} scaled", expression.xreplace({symbol: symbol * sympy.Rational(101, 100)})
        if symbol in (mu_Sigma_mu, tr_Sigma2):
            yield f"{symbol} dropped", expression.xreplace({symbol: sympy.S.Zero})


MISTAKES = [
    pytest.param(claim, wrong, id=f"{claim.id}: {name}")
    for claim in PROVED
    for name, wrong in planted(claim.expression)
]


@pytest.mark.parametrize(("claim", "wrong"), MISTAKES)
def test_a_planted_coefficient_makes_the_proof_fail(claim, wrong):
    proof = dataclasses.replace(claim, expression=wrong).prove()
    assert not proof.holds
    assert all(step.leftover for step in proof.failures)


def certificate_with(n_eff, dimension=d_align):
    return 1 / (1 + n_eff * dimension)


n_eff = M * K / (M + K + 1)
WRONG_BOUNDS = {
    "W1 n_eff = MK/(M+K)": (CERTIFICATE, certificate_with(M * K / (M + K)), bernoulli(F(1, 2)), 1, F(2, 3)),
    "W2 no tr Sigma^2 term": (CANTELLI, B_EXACT.subs(tr_Sigma2, 0), bernoulli(F(1, 2)), 1, F(2, 3)),
    "W3 max for min": (CERTIFICATE, certificate_with(n_eff, sympy.Max(d_par, d_2)), bernoulli(F(4, 5)), 1, F(3, 19)),
    "W5 n_eff = min(M,K)/2": (CERTIFICATE, certificate_with(sympy.Min(M, K) / 2), bernoulli(F(1, 2)), 1, F(2, 3)),
    "W6 (tr Sigma)^2/N": (
        CANTELLI,
        B_EXACT.subs(tr_Sigma2, tr_Sigma**2 / N),
        {(F(0), F(0)): F(1, 2), (F(1), F(0)): F(1, 2)},
        1,
        F(5, 7),
    ),
    "W7 unimodal 4/9": (CERTIFICATE, certificate_with(n_eff) * sympy.Rational(4, 9), bernoulli(F(1, 2)), 1, F(1, 3)),
    "W9 tr Sigma^2/(M(K+1)), M = 2": (
        CANTELLI,
        B_EXACT.subs(tr_Sigma2, tr_Sigma2 * K / (K + 1)),
        bernoulli(F(1, 20)),
        2,
        None,
    ),
}


@pytest.mark.parametrize("name", WRONG_BOUNDS)
def test_a_wrong_bound_has_no_proof_and_a_counterexample(name):
    claim, expression, atoms, m, expected = WRONG_BOUNDS[name]
    wrong = dataclasses.replace(claim, expression=expression)
    value = wrong.exact(M=m, K=m, **moments(atoms))
    assert not wrong.prove().holds
    assert misalignment(atoms, m, m) > value
    assert expected is None or value == expected


def test_an_exponential_bound_has_no_proof_and_a_counterexample():
    wrong = dataclasses.replace(CERTIFICATE, expression=sympy.exp(-n_eff * d_align / 2))
    atoms = bernoulli(F(99, 100))
    assert not wrong.prove().holds
    assert misalignment(atoms, 1, 1) == F(199, 10000)
    assert float(wrong.numeric()(M=1, K=1, **{x: float(v) for x, v in moments(atoms).items()})) < 1e-7


# Equality and sharpness


def test_the_fair_coin_attains_theorem_1():
    atoms = bernoulli(F(1, 2))
    letters = {"M": 1, "K": 1, **moments(atoms)}
    assert misalignment(atoms, 1, 1) == CANTELLI.exact(**letters) == CERTIFICATE.exact(**letters) == F(3, 4)


@settings(deadline=None, max_examples=30)
@given(pi=st.fractions(min_value=F(1, 100), max_value=1, max_denominator=100))
def test_every_coin_attains_b_exact(pi):
    attained = registry.find("alignment.attained").exact(pi_atom=pi)
    atoms = bernoulli(pi)
    assert misalignment(atoms, 1, 1) == attained == CANTELLI.exact(M=1, K=1, **moments(atoms))


def test_the_rare_atom_counts_agree_with_enumeration():
    for m, eps in product((1, 2, 3), (F(1, 7), F(2, 5))):
        atoms = Counter({(F(1),): 1 - eps}) + Counter({(F(1 - m),): eps})
        assert misalignment(atoms, m, m) == rare_atom_misalignment(m, eps)
        assert {name: moments(atoms)[name] for name in rare_atom_moments(m, eps)} == rare_atom_moments(m, eps)


def test_b_exact_is_reached_by_a_rare_atom():
    eps = F(1, 10**6)
    p, letters = rare_atom_misalignment(16, eps), {"M": 16, "K": 16, **rare_atom_moments(16, eps)}
    assert float(p / CANTELLI.exact(**letters)) == pytest.approx(0.99998, abs=5e-6)
    assert float(p / CERTIFICATE.exact(**letters)) == pytest.approx(0.96968, abs=5e-6)
    limit = registry.find("alignment.sharp_align").exact(M=16)
    assert limit == F(32, 33)
    assert registry.find("alignment.sharp").exact() == 1


@pytest.mark.parametrize(
    ("m", "root", "ratio"), [(2, 6, 0.9468), (4, 10, 0.9536), (8, 20, 0.9723), (16, 50, 0.9873), (64, 200, 0.9967)]
)
def test_b_align_is_nearly_reached_in_the_plane(m, root, ratio):
    """With w^2 = (M (1 - M eps) - r M^2) / (eps + r), r^2 = eps (1 - eps), d_par = d_2: B_align is B_exact."""
    eps = F(1, root**2)
    r = F(isqrt(10**40 * (root**2 - 1)), 10**20 * root**2)
    w2 = (m * (1 - m * eps) - r * m**2) / (eps + r)
    letters = {"M": m, "K": m, **rare_atom_moments(m, eps, w2)}
    bound = CERTIFICATE.exact(**letters)
    assert float(CANTELLI.exact(**letters) / bound) == pytest.approx(1, rel=1e-15)
    assert float(rare_atom_misalignment(m, eps, w2) / bound) == pytest.approx(ratio, abs=5e-5)


@pytest.mark.parametrize(
    ("m", "eps", "w", "ratio"),
    [
        (4, F(1, 400), F(31, 4), 1.068),
        (8, F(1, 400), F(75, 8), 1.030),
        (16, F(1, 2500), F(367, 16), 1.018),
        (64, F(1, 40000), F(1487, 16), 1.0044),
    ],
)
def test_the_subtle_wrong_n_eff_falls_in_the_plane(m, eps, w, ratio):
    """S1: n_eff = MK/(M+K) is wrong for every M = K, at 64 by 0.44 % only."""
    wrong = dataclasses.replace(CERTIFICATE, expression=certificate_with(M * K / (M + K)))
    value = wrong.exact(M=m, K=m, **rare_atom_moments(m, eps, w**2))
    assert float(rare_atom_misalignment(m, eps, w**2) / value) == pytest.approx(ratio, abs=5e-4)


# Samples needed, and what B_align gives away

positive = st.fractions(min_value=F(1, 50), max_value=50, max_denominator=50)
target = st.fractions(min_value=F(1, 100), max_value=F(99, 100), max_denominator=100)


def b_align(m, k, dimension):
    return 1 / (1 + F(m * k, m + k + 1) * dimension)


@given(p=target, dimension=positive)
def test_samples_needed_is_the_first_that_suffices(p, dimension):
    m = samples_needed(p, dimension)
    assert b_align(m, m, dimension) <= p
    assert m == 1 or b_align(m - 1, m - 1, dimension) > p


@given(p=target, dimension=positive, k=st.integers(1, 60))
def test_samples_needed_at_a_given_k(p, dimension, k):
    m = samples_needed(p, dimension, k)
    if m is None:
        assert k * dimension <= (1 - p) / p
        assert b_align(10**12, k, dimension) > p
    else:
        assert k * dimension > (1 - p) / p
        assert b_align(m, k, dimension) <= p
        assert m == 1 or b_align(m - 1, k, dimension) > p


@settings(deadline=None, max_examples=40)
@given(p=target, dimension=positive, k=st.integers(1, 60))
def test_samples_needed_agrees_with_the_claims(p, dimension, k):
    equal = registry.find("alignment.samples_needed").function("p_target", "d_align")
    m = samples_needed(p, dimension)
    value = float(equal(float(p), float(dimension)))
    assert m - 1 - 1e-9 * m <= value <= m * (1 + 1e-9) or m == 1
    given_k = registry.find("alignment.samples_needed_given_K")
    if k * dimension > (1 - p) / p:
        # |mu|^2 = d and both moments d give d_align = d.
        exact = given_k.exact(K=k, p_target=p, mu2=dimension, mu_Sigma_mu=dimension, tr_Sigma2=dimension)
        assert samples_needed(p, dimension, k) == -(-exact // 1)


def test_a_case_of_equality_is_decided_exactly():
    """M = K = 1: n_eff = 1/3, so d_align = 1 gives B_align = 3/4 exactly."""
    assert samples_needed(F(3, 4), 1) == 1
    assert samples_needed(F(3, 4) - F(1, 10**30), 1) == 2
    assert samples_needed(F(1, 2), F(1, 10), 10) is None
    assert samples_needed(F(1, 2), F(1, 10) + F(1, 10**20), 10) == 11 * 10**19


def test_a_float_at_the_boundary_counts_as_the_boundary():
    """At p = 1/100 and d = 1 no M suffices for K = 99; .01 is a little above 1/100."""
    for p, d, k in ((0.01, 1.0, 99), (0.01, 1, 99), (F(1, 100), 1.0, 99), (0.1, 0.3, 30), (0.001, 0.01, 99900)):
        assert samples_needed(p, d, k) is None
    assert samples_needed(F(0.01), 1, 99) == 4755801206503243775
    assert samples_needed(0.01, 1.0, 100) == samples_needed(F(1, 100), 1, 100) == 9999
    assert samples_needed(0.01, 1.0 + 1e-9, 99) > 10**9


def test_samples_needed_at_the_ends():
    assert samples_needed(0.1, 0.0) is None
    assert samples_needed(0.1, inf) == 1
    assert samples_needed(0.05, 1e-4) == samples_needed(F(0.05), F(1e-4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "target must lie strictly between 0 and 1, got 0"),
        ((1.5, 1), "got 1.5"),
        ((0.1, -1), "d_align must be at least 0, got -1"),
        ((0.1, float("nan")), "got nan"),
        ((0.1, 1, 0), "sample count must be at least 1, got 0"),
    ],
)
def test_samples_needed_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        samples_needed(*arguments)


@settings(deadline=None, max_examples=40)
@given(m=st.integers(1, 100), k=st.integers(1, 100), mu2=positive, along=positive, spectrum=positive)
def test_odds_loss_is_the_ratio_of_the_odds(m, k, mu2, along, spectrum):
    letters = {"M": m, "K": k, "mu2": mu2, "mu_Sigma_mu": along, "tr_Sigma2": spectrum}
    loss = registry.find("alignment.odds_loss").exact(**letters)
    align, exact = CERTIFICATE.exact(**letters), CANTELLI.exact(**letters)
    assert loss == (align / (1 - align)) / (exact / (1 - exact))
    assert 1 <= loss <= m + k + 1


def test_weak_signal_and_flat_spectrum_of_the_spec():
    """N = 1024, M = K = 64, tau = |mu|^2 / sd(X) = 2: B_exact = .20 and B_align = .97."""
    norm = sympy.Symbol("norm", positive=True)
    variance = VARIANCE.subs({M: 64, K: 64, mu_Sigma_mu: norm, tr_Sigma2: 1024})
    (solution,) = [x for x in sympy.solve(norm**2 - 4 * variance, norm) if x.is_positive]
    letters = {"M": 64, "K": 64, "mu2": float(solution), "mu_Sigma_mu": float(solution), "tr_Sigma2": 1024.0}
    assert float(CANTELLI.numeric()(**letters)) == pytest.approx(0.2, abs=1e-12)
    assert float(CERTIFICATE.numeric()(**letters)) == pytest.approx(0.97, abs=5e-3)


def test_the_table_defines_d_align_as_the_smaller_dimension():
    definition = TABLE["d_align"].definition
    for along, spectrum in product((1, 2, 3), repeat=2):
        values = {mu2: 5, mu_Sigma_mu: along, tr_Sigma2: spectrum}
        assert definition.subs(values) == min(sympy.Rational(25, along), sympy.Rational(25, spectrum))
