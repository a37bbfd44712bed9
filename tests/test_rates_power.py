"""Negative controls of the hidden width: planted exponents must come out REFUTED, the right ones never."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest
from rescert.sim.records import Run
from rescert.theory import registry
from rescert.theory.claims import Kind
from rescert.theory.symbols import D, L, alpha, c_bias, c_embed, c_lazy, c_noise
from rescert.theory.symbols import M_units as M
from rescert.verify import rates
from rescert.verify.decisions import Status
from rescert.verify.rate_presets import (
    PRESETS,
    ChaosStudy,
    EmbeddedStudy,
    Grid,
    LazyStudy,
    LimitStudy,
    NoiselessStudy,
)
from rescert.verify.suites import Context
from sympy import Integer, Rational, sqrt

REDUCED = dataclasses.replace(
    PRESETS["quick"],
    surfaces=(Grid(depths=(7, 14, 60), units=(1, 16, 64, 512), repeats=10),),
    dims=Grid(depths=(8, 16), units=(64,), embed_dims=(16, 32, 64), repeats=6),
    lazy_grid=Grid(depths=(32, 128), units=(64, 128), alphas=(4.0, 8.0), repeats=8),
    critical=Grid(depths=(16, 64), units=(64, 128), embed_dims=(10, 20, 40), steps=1, record=(1,), repeats=4),
    limit=LimitStudy(target_error=2e-3, nodes=32, particles=2048),
    noiseless=NoiselessStudy(depths=(32, 64, 128), nodes=256, particles=32),
    lazy=LazyStudy(alphas=(16.0, 64.0, 256.0), particles={"symmetric": 32, "skewed": 48}, nodes=8),
    chaos=ChaosStudy(shapes=((4, 2), (4, 4), (8, 8)), repeats=5000),
    embedded=EmbeddedStudy(
        depths=(4, 8),
        units=(16, 32),
        embed_dims=(16, 32, 64),
        doublings=(16, 32, 64, 128),
        doubling_shape=(4, 64),
        tied_depths=(16, 32, 64),
        repeats=8,
        embeddings=24,
        late_embeddings=4,
    ),
    resamples=40,
)


def run(folder, claims, *, seed=0, preset=REDUCED):
    """Judge claims in this process."""
    options = {"suites": ["hidden-width"], "preset": "reduced", "seed": seed}
    with ThreadPoolExecutor(1) as executor:
        context = Context(run=Run.create(folder, job="verify", options=options), seed=seed, executor=executor)
        return rates.run(context, claims=claims, preset=preset)


def planted(claim_id, expression):
    """A registered claim with another expression."""
    return dataclasses.replace(registry.find(claim_id), expression=expression)


WRONG = {
    "bias 1/L^2": planted("rates.bias_exponent", Integer(-2)),
    "bias 1/sqrt(L)": planted("rates.bias_exponent", Rational(-1, 2)),
    "fluctuation L^(-1/4)": planted("rates.variance_depth", Rational(-1, 4)),
    "fluctuation 1/L": planted("rates.variance_depth", Integer(-1)),
    "fluctuation M^(-1/4)": planted("rates.variance_width", Rational(-1, 4)),
    "dimension D": planted("rates.dimension", Integer(1)),
    "lazy 1/alpha^2 without symmetry": planted("rates.lazy_slope", Integer(-2)),
    "lazy 1/alpha with symmetry": planted("rates.lazy_slope_symmetric", Integer(-1)),
    "chaos 1/(LM)^2": planted("rates.chaos", Integer(-2)),
    "best shape P^(-1/4)": planted("rates.best_shape", Rational(-1, 4)),
    "1/L^2 + 1/sqrt(LM)": planted("rates.depth_width", c_bias / L**2 + c_noise / sqrt(L * M)),
    "1/sqrt(LM) alone": planted("rates.depth_width", c_noise / sqrt(L * M)),
    "1/L + 1/sqrt(M)": planted("rates.depth_width", c_bias / L + c_noise / sqrt(M)),
    "1/(LM) + 1/sqrt(LM)": planted("rates.depth_width", c_bias / (L * M) + c_noise / sqrt(L * M)),
    "1/L + 1/L^3": planted("rates.depth_width", c_bias / L + c_noise / L**3),
    "1/L + 1/M": planted("rates.depth_width", c_bias / L + c_noise / M),
    "chaos 1/sqrt(LM)": planted("rates.chaos", Rational(-1, 2)),
    "no chaos": planted("rates.chaos", Integer(0)),
    "lazy 1/sqrt(alpha)": planted("rates.lazy_slope", Rational(-1, 2)),
    "1/L + D/sqrt(LM)": planted("rates.embed_dim", c_bias / L + c_noise * D / sqrt(L * M)),
    "1/alpha + 1/L + alpha^2/sqrt(LM)": planted(
        "rates.lazy", c_lazy / alpha + c_bias / L + c_noise * alpha**2 / sqrt(L * M)
    ),
    "1/alpha^2 + 1/L + alpha/sqrt(LM)": planted(
        "rates.lazy", c_lazy / alpha**2 + c_bias / L + c_noise * alpha / sqrt(L * M)
    ),
    "critical scale D/(LM)": planted("rates.critical_scale", D / (L * M)),
    "critical scale sqrt(D/(LM))": planted("rates.critical_scale", sqrt(D / (L * M))),
    "1/L + sqrt(D/(LM)) + 1/D": planted("rates.all_shapes", c_bias / L + c_noise * sqrt(D / (L * M)) + c_embed / D),
    "1/L + 1/sqrt(LM) + 1/sqrt(D)": planted("rates.all_shapes", c_bias / L + c_noise / sqrt(L * M) + c_embed / sqrt(D)),
}


# What no study varies must be neither supported nor refuted by silence.
UNMEASURED = {
    "D/L": planted("rates.embed_dim", c_bias * D / L + c_noise * sqrt(D / (L * M))),
    "embedding 1/(M sqrt(D))": planted(
        "rates.all_shapes", c_bias / L + c_noise * sqrt(D / (L * M)) + c_embed / (M * sqrt(D))
    ),
    "a term 1/M": planted("rates.depth_width", c_bias / L + c_noise / sqrt(L * M) + 1 / M),
    "a lower bound": dataclasses.replace(registry.find("rates.depth_width"), kind=Kind.LOWER_BOUND),
}
UNMEASURED = {name: dataclasses.replace(claim, proof=None) for name, claim in UNMEASURED.items()}

RIGHT = {claim.id: dataclasses.replace(claim, proof=None) for claim in registry.claims("rates.")}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Verdicts on all planted claims, and on the right ones without their proofs: they share their simulations."""
    every = WRONG | UNMEASURED | RIGHT
    claims = [dataclasses.replace(claim, id=name) for name, claim in every.items()]
    return {verdict.claim: verdict for verdict in run(tmp_path_factory.mktemp("planted") / "run", claims).verdicts}


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_exponent_is_refuted(judged, name):
    verdict = judged[name]
    assert verdict.status is Status.REFUTED
    example = verdict.counterexample
    assert example["evidence"] in ("exact", "simulation")
    assert example["subject"]
    assert example["observed"] != example["expected"]


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_claim_has_lost_its_proof(name):
    proof = WRONG[name].prove()
    assert proof is None or not proof.holds


@pytest.mark.parametrize("name", UNMEASURED)
def test_what_nothing_bears_on_stays_open(judged, name):
    verdict = judged[name]
    assert verdict.status is Status.INCONCLUSIVE
    assert "measure" in verdict.note


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_claim_is_not_refuted_without_its_proof(judged, name):
    assert judged[name].status is not Status.REFUTED


def test_what_is_computed_without_noise_supports(judged):
    exact = ("rates.bias_exponent", "rates.lazy_slope_symmetric", "rates.lazy_slope", "rates.best_shape")
    assert {judged[name].status for name in exact} == {Status.SUPPORTED}


@pytest.mark.slow
def test_no_false_refutation_on_twenty_seeds(tmp_path):
    for seed in range(20):
        result = run(tmp_path / str(seed), list(RIGHT.values()), seed=seed)
        statuses = {verdict.claim: verdict.status for verdict in result.verdicts}
        assert Status.REFUTED not in statuses.values(), (seed, statuses)
