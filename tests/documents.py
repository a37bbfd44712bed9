"""The document of a verification run, made up by hand: small, complete and quick to draw."""

import copy
import math
from pathlib import Path

from rescert.verify import document
from rescert.verify.decisions import Evidence, Status, Verdict

SITE = "layer1.0"
MOMENTS = {"mu2": 1.0, "mu_Sigma_mu": 2.0, "tr_Sigma": 9.0, "tr_Sigma2": 5.0, "lambda_max": 2.0}
INTERVAL = {
    **{"level": 0.95, "n": 50, "d_par": 0.5, "d_2": 0.2, "d_align": 0.2, "lower_par": 0.3, "lower_2": 0.1},
    **{"lower_align": 0.1, "upper_align": math.inf, "b_exact_pair": (0.3, 0.1)},
    **{"unresolved_par": False, "unresolved_2": False, "degenerate": False},
}


def cell(**changes):
    """One exact cell; ``trials`` and ``misaligned`` make it a simulated one."""
    row = {
        **{"evidence": "exact", "subject": "gaussian-flat (dim=64, d_align=0.25)", "family": "Gaussian", "dim": 64},
        **{"M": 4, "K": 4, "n_eff": 16 / 9, "p": 0.02, "trials": None, "misaligned": None, "p_interval": None},
        **{"engine": "contour", "b_exact": 0.2, "b_align": 0.6, "population": {"name": "gaussian-flat", "dim": 64}},
    }
    if "trials" in changes:
        row |= {"evidence": "simulation", "family": "heavy tails", "subject": "t3 (dim=64)", "engine": "direct-means"}
        row["population"] = {"name": "t3", "dim": 64}
    return row | changes


def network(width, **changes):
    """One measured network with one site, the limits of which are partly infinite."""
    certificates = [
        {"M": 1, "K": 1, "level": 0.95, "b_align_upper": 0.9, "b_exact_upper": 0.8, "direct_upper": 0.6},
        {"M": 64, "K": 64, "level": 0.95, "b_align_upper": 0.5, "b_exact_upper": 0.3, "direct_upper": None}
        | {"direct_reason": "needs at least M + K = 128 samples, the pool has 50"},
    ]
    site = {"status": "measured", "reason": None, "nonfinite": 0, "zero": 0, "n": 50, "dim": 8, "estimates": {}}
    site |= {"interval": dict(INTERVAL), "pool_moments": MOMENTS, "cells": [], "certificates": certificates}
    found = {
        **{"width": width, "parameters": 1234, "data": "digits:train", "content_hash": "ab", "overlap": 0},
        **{"diverged": False, "device": "cpu", "losses": [2.3, 2.1], "probe_loss": 2.2, "probe_accuracy": 0.25},
        **{"sites": {SITE: site}, "seed": 0, "key": f"key{width:g}"},
    }
    return found | changes


def trained(width, **changes):
    """The cell of a trained network in the grid."""
    where = {"subject": f"ResNet width {width:g} seed 0 at {SITE}", "family": "trained", "evidence": "trained"}
    where["population"] = {"name": "trained", "record": f"key{width:g}", "site": SITE}
    return cell(trials=100, misaligned=20, p=0.2, p_interval=(0.12, 0.3)) | where | changes


def verdict(claim, status=Status.SUPPORTED, **changes):
    """One verdict."""
    fields = {"evidence": (Evidence.EXACT,), "confidence": 1.0, "tried": {"exact": {"SUPPORTED": 2}}}
    return Verdict(claim=claim, status=status, **(fields | changes))


def example(verdicts=None, **changes):
    """A complete small document; ``changes`` replace parts of the alignment results."""
    results = {
        "error_budget": {"alpha": 1e-4, "tests": 12},
        "cells": [
            cell(),
            cell(M=64, K=64, n_eff=4096 / 129, p=1e-12, b_exact=0.01, b_align=0.1),
            cell(trials=1000, misaligned=30, p=0.03, p_interval=(0.02, 0.04)),
            cell(trials=1000, misaligned=0, p=0.0, p_interval=(0.0, 0.0037), M=16, K=16, n_eff=256 / 33),
            trained(0.25),
            trained(0.5),
        ],
        "networks": [network(0.25), network(0.5)],
        "trends": [
            {"site": SITE, "level": 0.95, "points": 2, "slope": None, "interval": None, "reading": "undecided: too few"}
        ],
    }
    return document.build(
        job="verify",
        options={"suites": ["alignment"], "preset": "quick", "seed": 7, "device": "cpu"},
        versions={"rescert": "0.1.0", "python": "3.11"},
        out=Path("runs/example"),
        verdicts=[verdict("alignment.certificate"), verdict("alignment.mean", Status.PROVED)]
        if verdicts is None
        else verdicts,
        results={"alignment": copy.deepcopy(results | changes)},
    )
