"""Negative controls: a planted mistake must come out REFUTED in the same pipeline that supports the right claims."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest
import sympy
from rescert.sim import laws
from rescert.sim.records import Run
from rescert.theory import registry
from rescert.theory.symbols import (
    K,
    M,
    N,
    c_signal,
    d_2,
    d_align,
    d_par,
    mu2,
    mu_Sigma_mu,
    o_target,
    pi_atom,
    s,
    sigma2,
    tr_Sigma2,
)
from rescert.verify import alignment
from rescert.verify.alignment_presets import PRESETS
from rescert.verify.decisions import Status
from rescert.verify.suites import Context

REDUCED = dataclasses.replace(
    PRESETS["quick"],
    dims=(8,),
    sizes=((1, 1), (4, 4), (16, 16)),
    rounds=(5_000, 20_000),
    identity_rounds=(400_000,),
    networks=dataclasses.replace(PRESETS["quick"].networks, seeds=0),
)
CORE = ("alignment.mean", "alignment.variance", "alignment.cantelli", "alignment.certificate")


def _run(folder, claims, *, seed=0, preset=REDUCED):
    run = Run.create(folder, job="verify", options={"suites": ["alignment"], "preset": "reduced", "seed": seed})
    with ThreadPoolExecutor(1) as executor:
        context = Context(run=run, seed=seed, executor=executor, device="cpu")
        result = alignment.run(context, claims=claims, preset=preset)
    return {verdict.claim: verdict for verdict in result.verdicts}


def _planted(claim_id, expression):
    return dataclasses.replace(registry.find(claim_id), expression=expression)


WRONG = {
    "variance with M + K for MK": _planted("alignment.variance", (1 / M + 1 / K) * mu_Sigma_mu + tr_Sigma2 / (M + K)),
    "variance without tr(Sigma^2)": _planted("alignment.variance", (1 / M + 1 / K) * mu_Sigma_mu),
    "variance 5 % too large": _planted(
        "alignment.variance", ((1 / M + 1 / K) * mu_Sigma_mu + tr_Sigma2 / (M * K)) * 21 / 20
    ),
    "mean with a factor": _planted("alignment.mean", mu2 * 103 / 100),
    "n_eff = MK/(M+K)": _planted("alignment.certificate", 1 / (1 + M * K / (M + K) * d_align)),
    "B_exact without tr(Sigma^2)": _planted(
        "alignment.cantelli",
        (1 / M + 1 / K) * mu_Sigma_mu / ((1 / M + 1 / K) * mu_Sigma_mu + mu2**2),
    ),
    "Bernoulli: 1 - pi": _planted("alignment.attained", 1 - pi_atom),
    "growth of a flat spectrum": _planted("spectra.flat", s),
    "n_eff: weights 1/M + 1/K": _planted("alignment.n_eff", M * K / (M + K)),
    "samples: t + sqrt(t^2 + 2t)": _planted(
        "alignment.samples_needed",
        o_target / d_align + sympy.sqrt((o_target / d_align) ** 2 + 2 * o_target / d_align),
    ),
    "samples at a given K: K for K + 1": _planted(
        "alignment.samples_needed_given_K", o_target * K / (K * d_align - o_target)
    ),
    "odds loss with M + K": _planted("alignment.odds_loss", (M + K) / ((M + K) * d_align / d_par + d_align / d_2)),
    "B_exact missed by 1 %": _planted("alignment.sharp", sympy.Rational(99, 100)),
    "B_align: M / (M + 1)": _planted("alignment.sharp_align", M / (M + 1)),
    "bounded spectrum: max for min": _planted(
        "spectra.bounded", N * sympy.Max(c_signal / sigma2, c_signal**2 / sigma2**2)
    ),
    "n_eff four times too large": _planted("alignment.certificate", 1 / (1 + 4 * M * K / (M + K + 1) * d_align)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_claim_is_refuted_with_a_counterexample(tmp_path, name):
    claim = WRONG[name]
    verdict = _run(tmp_path, [claim])[claim.id]
    assert verdict.status is Status.REFUTED
    example = verdict.counterexample
    assert example["evidence"] == "exact"
    assert example["observed"] != example["expected"]
    assert example["subject"]
    assert not claim.prove().holds


def test_the_counterexample_to_n_eff_is_the_one_to_check_by_hand(tmp_path):
    """Fair {0, 1} at M = K = 1: P = 3/4, and MK/(M+K) says 2/3."""
    claim = WRONG["n_eff = MK/(M+K)"]
    example = _run(tmp_path, [claim])[claim.id].counterexample
    assert (example["M"], example["K"]) == (1, 1)
    assert example["population"] == {"name": "bernoulli", "pi": "1/2"}
    assert example["detail"] == "P = 3/4 against 2/3"


@pytest.mark.parametrize("law", [laws.Laplace, laws.Skewed, laws.SparseSpiky])
def test_a_sampler_one_percent_off_is_caught(tmp_path, monkeypatch, law):
    true = law.noise_means
    monkeypatch.setattr(law, "noise_means", lambda self, *args: true(self, *args) * 1.01)
    preset = dataclasses.replace(REDUCED, identity_rounds=PRESETS["quick"].identity_rounds, rounds=(2_000,))
    verdict = _run(tmp_path, [registry.find("alignment.variance")], preset=preset)["alignment.variance"]
    assert verdict.status is Status.REFUTED
    assert verdict.counterexample["evidence"] == "simulation"


def test_the_right_claims_are_proved(tmp_path):
    verdicts = _run(tmp_path, [registry.find(claim) for claim in CORE])
    assert {verdict.status for verdict in verdicts.values()} == {Status.PROVED}


@pytest.mark.slow
def test_no_false_refutation_on_fifty_seeds(tmp_path):
    """Without their proofs, so that the computed evidence alone decides."""
    claims = [dataclasses.replace(registry.find(claim), proof=None) for claim in CORE]
    for seed in range(50):
        verdicts = _run(tmp_path / str(seed), claims, seed=seed)
        statuses = {claim: verdict.status for claim, verdict in verdicts.items()}
        assert Status.REFUTED not in statuses.values(), (seed, statuses)
