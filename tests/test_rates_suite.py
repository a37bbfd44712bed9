"""The hidden-width suite: its jobs against references, its judgement on given numbers, and what it does with losses."""

import dataclasses
import json
import math

import numpy as np
import pytest
from rescert.sim import rate_jobs
from rescert.sim.embedded_resnet import EmbeddedDescent
from rescert.sim.ensembles import data
from rescert.sim.records import Record
from rescert.theory import registry
from rescert.theory.symbols import L, c_bias, c_noise
from rescert.theory.symbols import M_units as M
from rescert.verify import rates
from rescert.verify.decisions import Evidence, Status
from rescert.verify.fits import Estimate
from rescert.verify.rate_frame import Exponent, Frame, Outcome, regressed, slope_over_repeats
from rescert.verify.rate_presets import PRESETS, TOLERANCES, Grid
from rescert.verify.rate_studies import STUDIES, breakdowns, correlation
from rescert.verify.rates import judge, power, probed, surface, terms
from resnet_oracle import NumpyResNet
from sympy import sqrt
from test_rates_power import REDUCED, run

DATA = {"samples": 10, "data_seed": 2}
VARIANCE = [registry.find("rates.variance_depth")]

# ---------------------------------------------------------------- jobs


def test_networks_without_ends_are_those_of_the_reference():
    rng = np.random.default_rng(0)
    U, V = math.sqrt(10) * rng.standard_normal((2, 4, 10, 6))
    X, Y = data(10, 10, np.random.default_rng(2))
    networks = EmbeddedDescent(*(W.transpose(0, 2, 1)[:, None] for W in (U, V)), X, Y)
    networks.advance(5)
    outputs, _ = NumpyResNet(U, V, X, Y).train(5)
    np.testing.assert_allclose(networks.state[0], outputs[5], atol=1e-12)


def test_networks_with_ends_descend_along_the_gradient_of_half_the_loss():
    """One step against finite differences: U moves by eta eta_u L M times the gradient, at D = eta_u."""
    rng = np.random.default_rng(1)
    D, d, depth, units = 3, 2, 2, 2
    U, V = rng.standard_normal((2, depth, 1, units, D))
    X, Y = rng.standard_normal((2, d, 4))
    W_E, W_U = rng.standard_normal((2, D, d))

    def loss(U, V):
        state = EmbeddedDescent(U, V, X, Y, embed=W_E, unembed=W_U).state[0].numpy()
        return np.sum((W_U.T @ state / D - Y) ** 2) / (2 * Y.size)

    networks = EmbeddedDescent(U, V, X, Y, embed=W_E, unembed=W_U)
    networks.advance(1)
    for which, after in ((0, networks.U.numpy()), (1, networks.V.numpy())):
        for index in np.ndindex(U.shape):
            shifted = [[U.copy(), V.copy()] for _ in range(2)]
            shifted[0][which][index] += 1e-6
            shifted[1][which][index] -= 1e-6
            slope = (loss(*shifted[0]) - loss(*shifted[1])) / 2e-6
            assert after[index] - (U, V)[which][index] == pytest.approx(-D * depth * units * slope, abs=1e-7)


def test_ends_that_do_not_fit_are_refused():
    U = np.zeros((1, 1, 2, 3))
    with pytest.raises(ValueError, match="do not fit"):
        EmbeddedDescent(U, U, np.zeros((2, 4)), np.zeros((2, 4)))


def test_embeddings_of_different_dimension_share_their_rows():
    params = DATA | {"depth": 1, "units": 2, "input_dim": 4, "steps": 0, "embedding": 1, "tied": False}
    # Untrained networks: the embedding plus a residual of order 1 that differs; its mean over repeats is 0.
    params["repeats"] = 4000
    small, large = (rate_jobs.embedded(params | {"embed_dim": D}, 0).arrays["state"] for D in (3, 6))
    error = small.std(axis=0) / math.sqrt(len(small)) + large[:, :3].std(axis=0) / math.sqrt(len(large))
    assert np.all(np.abs(small.mean(axis=0) - large[:, :3].mean(axis=0)) < 5 * error)
    assert np.ptp(small.mean(axis=0)) > 1


def test_repeats_of_a_shape_do_not_depend_on_how_many_there_are():
    params = DATA | {"depth": 3, "units": 4, "embed_dim": 10, "alpha": 1.0, "steps": 2, "record": [2]}
    few, many = (rate_jobs.finite(params | {"repeats": R}, 0).arrays["output_2"] for R in (2, 4))
    np.testing.assert_array_equal(few, many[:2])


def test_correlation_is_the_mean_over_pairs():
    rng = np.random.default_rng(0)
    moved = rng.standard_normal((50_000, 4)) + rng.standard_normal((50_000, 1))
    assert correlation(moved) == pytest.approx(0.5, abs=5 / math.sqrt(50_000))
    equal = moved / moved.std(axis=0)
    pairs = np.corrcoef(equal.T)[np.triu_indices(4, 1)]
    assert correlation(equal) == pytest.approx(pairs.mean(), abs=1e-12)


def test_chaos_job_finds_independent_units_before_training():
    params = DATA | {"depth": 2, "units": 2, "embed_dim": 10, "steps": 1, "repeats": 50}
    moved = rate_jobs.chaos(params, 0).arrays["moved"]
    assert moved.shape == (50, 4)
    assert (moved > 0).all()


# ---------------------------------------------------------------- judgement


def _exponent(low, high, **changes):
    estimate = Estimate(name="slope", value=(low + high) / 2, interval=(low, high), **changes)
    return Exponent(key="bias", what="", k=1, window="", estimate=estimate)


@pytest.mark.parametrize(
    ("low", "high", "two_sided", "one_sided"),
    [
        (-1.01, -0.99, Status.SUPPORTED, Status.SUPPORTED),
        (-1.3, -1.2, Status.REFUTED, Status.SUPPORTED),
        (-0.8, -0.7, Status.REFUTED, Status.REFUTED),
        (-1.2, -0.99, Status.INCONCLUSIVE, Status.SUPPORTED),
        (-1.2, -0.8, Status.INCONCLUSIVE, Status.INCONCLUSIVE),
    ],
)
def test_an_upper_bound_is_refuted_on_the_slow_side_only(low, high, two_sided, one_sided):
    exponent = _exponent(low, high)
    assert judge(exponent, -1.0, 0.05) is two_sided
    assert judge(dataclasses.replace(exponent, one_sided=True), -1.0, 0.05) is one_sided


@pytest.mark.parametrize("one_sided", [False, True])
def test_diverged_runs_block_a_decision(one_sided):
    exponent = dataclasses.replace(_exponent(-1.01, -0.99, diverged=1), one_sided=one_sided)
    assert judge(exponent, -1.0, 0.05) is Status.INCONCLUSIVE


def test_laws_are_read_from_their_expressions():
    claim = registry.find("rates.embed_dim")
    found = terms(claim.expression)
    assert {name: [power(term, x) for x in ("L", "M_units", "D")] for name, term in found.items()} == {
        "c_bias": [-1, 0, 0],
        "c_noise": [-0.5, -0.5, 0.5],
    }
    assert ("dimension", 0.5) in probed(claim)
    assert not [key for key, _ in probed(registry.find("rates.depth_width")) if key == "dimension"]
    assert {term.coefficient: term.powers["depth"] for term in surface(claim).terms} == {"c_bias": -1, "c_noise": -0.5}
    with pytest.raises(ValueError, match="no power of L"):
        power(1 / (1 + L), "L")


def test_a_missing_term_is_seen():
    claim = dataclasses.replace(registry.find("rates.depth_width"), expression=c_noise / sqrt(L * M))
    assert ("bias", None) in probed(claim)
    assert ("variance_depth", -0.5) in probed(claim)
    assert terms(c_bias / L + c_noise).keys() == {"c_bias", "c_noise"}


def test_every_exponent_has_a_tolerance_and_a_study():
    keys = {key for claim in registry.claims("rates.") for key, _ in probed(claim)}
    assert keys <= TOLERANCES.keys()
    assert keys - {"best_shape"} == {key for keys in rates.MEASURED_BY.values() for key in keys}


def test_regression_covers_known_exponents_and_names_what_does_not_vary():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        L, M = (x.ravel() for x in np.meshgrid([8.0, 16.0, 32.0], [4.0, 8.0, 16.0]))
        y = 3 * L**-1 * M**0.5 * np.exp(0.1 * rng.standard_normal(9))
        low, high = regressed({"L": L, "M": M}, y, 0.9)["L"].interval
        inside += low <= -1 <= high
    assert abs(inside - 180) < 5 * math.sqrt(200 * 0.9 * 0.1)
    with pytest.raises(ValueError, match="exponent of L; vary it"):
        regressed({"L": [8.0] * 9, "M": M}, y, 0.9)


# ---------------------------------------------------------------- the suite


def test_one_depth_cannot_give_the_exponent_of_depth(tmp_path):
    preset = dataclasses.replace(REDUCED, surfaces=(Grid(depths=(12,), units=(16, 32, 64, 128), repeats=3),))
    with pytest.raises(ValueError, match=r"variance_exponents .*cannot find .*r.*vary .*depth"):
        run(tmp_path / "run", VARIANCE, preset=preset)


def test_a_diverged_run_is_counted_and_never_averaged(tmp_path, monkeypatch):
    train = rate_jobs.train_ensemble

    def one_diverges(jobs, **options):
        runs = train(jobs, **options)
        if jobs[0].shape.units == 64 and jobs[0].shape.depth == 14:
            runs[0] = dataclasses.replace(runs[0], losses=np.append(runs[0].losses[:-1], math.nan))
        return runs

    monkeypatch.setattr(rate_jobs, "train_ensemble", one_diverges)
    claims = [dataclasses.replace(VARIANCE[0], proof=None)]
    result = run(tmp_path / "run", claims)
    (cell,) = (c for c in result.results["cells"] if (c["depth"], c["units"]) == (14, 64))
    assert (cell["diverged"], cell["repeats"]) == (1, 9)
    assert math.isfinite(cell["error"])
    assert math.isfinite(cell["variance"])
    assert result.verdicts[0].status is Status.INCONCLUSIVE
    assert "1 runs diverged" in result.verdicts[0].note


def test_results_are_json_with_every_table(tmp_path):
    result = run(tmp_path / "run", VARIANCE)
    found = json.loads(json.dumps(result.results))
    keys = {"limits", "cells", "fits", "exponents", "noiseless", "lazy", "chaos", "phase", "breakdown", "training"}
    assert keys | {"level", "data_seed", "error_budget"} == found.keys()
    grid = REDUCED.surfaces[0]
    assert len(found["cells"]) == len(grid.depths) * len(grid.units) * len(grid.record)
    assert all(len(row["losses"]) == grid.steps + 1 for row in found["training"])
    assert result.verdicts[0].status is Status.PROVED
    assert Evidence.SIMULATION in result.verdicts[0].evidence
    (row,) = (row for row in found["exponents"] if row["status"] is not None)
    assert row["interval"][0] < row["estimate"] < row["interval"][1]


def test_a_proved_claim_that_the_data_refute_is_refuted(tmp_path, monkeypatch):
    """A wrong law planted in the data, not in the claim."""
    finite = rate_jobs.finite

    def shallow(params, seed):
        found = finite(params, seed)
        for output in found.arrays.values():
            output *= params["depth"] ** 0.25
        return found

    monkeypatch.setattr(rate_jobs, "finite", shallow)
    (verdict,) = run(tmp_path / "run", VARIANCE).verdicts
    assert verdict.status is Status.REFUTED
    assert verdict.counterexample["observed"] == pytest.approx(-0.25, abs=0.1)


def test_phases_are_drawn_beside_the_formulas(tmp_path):
    preset = dataclasses.replace(
        REDUCED,
        phase=dataclasses.replace(REDUCED.phase, depth=100, embed_dims=(10,), scales=(0.1, 1.0, 3.0, 1e4), repeats=4),
    )
    frame = Frame(preset=preset, data_seed=2, seed=0, level=0.95, random=lambda name: np.random.default_rng(0))
    study = STUDIES["phase"]
    outcomes = []
    for job in study.jobs(frame):
        result = rate_jobs.finite(job.params, job.seed)
        record = record_of(job, result)
        outcomes.append(Outcome(record=record, arrays=result.arrays))
    rows = [row for row in study.findings(frame, outcomes).tables["phase"] if row["k"] == 10]
    for row in rows[:3]:
        assert row["diverged"] == 0
        assert row["output_std"] == pytest.approx(row["drawn_output_std"], rel=0.5)
    last = rows[-1]
    assert last["phase"].startswith("unstable")
    assert last["repeats"] == 4
    assert (last["output_std"] is None) == (last["repeats"] - last["diverged"] < 2)


def record_of(job, result):
    """The record that the store would hold."""
    return Record(
        key=job.key,
        function=job.function,
        params=job.params,
        seed=job.seed,
        result=result.values,
        versions={},
        device="cpu",
        wall_seconds=0.0,
        finished="",
    )


def test_limit_error_is_an_option():
    assert rates.with_limit_error("quick", None) is PRESETS["quick"]
    assert rates.with_limit_error("paper", 1e-3).limit.target_error == 1e-3
    with pytest.raises(ValueError, match="positive and finite, got -1"):
        rates.with_limit_error("quick", -1.0)


def test_the_papers_grid_holds_every_size_once():
    author = np.unique(np.floor(10 ** np.linspace(0, 2.5, 10))).astype(int)
    (small, large) = PRESETS["paper"].surfaces
    assert small.depths == small.units == large.depths == tuple(author)


def test_breakdown_is_where_a_run_diverges_or_moves_too_far():
    def row(S, *, diverged=0, change=1.0):
        shape = {"depth": 100, "units": 4, "embed_dim": 4, "k": 10}
        return shape | {"S": S, "diverged": diverged, "rms_change_U": change, "drawn_change_U": min(3.0, 3.0 / S)}

    quiet = [row(1.0), row(3.0, change=1.0), row(10.0, change=0.3)]
    assert breakdowns(quiet)[0]["observed"] is None
    assert breakdowns(quiet)[0]["theory"] == 10.0
    assert breakdowns([*quiet, row(30.0, change=0.31)])[0]["observed"] == 30.0
    assert breakdowns([*quiet, row(20.0, diverged=1, change=None)])[0]["observed"] == 20.0


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_repeats_without_scatter_certify_nothing(columns):
    found = slope_over_repeats([1.0, 2.0, 4.0], np.repeat([[1.0], [0.5], [0.25]], columns, axis=1), 0.95)
    assert found.interval is None
    assert "repeats" in found.reason
