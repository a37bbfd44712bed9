"""The hidden width of a verification document, made up by hand after the measured figures of the spec."""

import copy
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
from documents import verdict
from rescert.theory.phase_diagram import regime
from rescert.verify import document
from rescert.verify.decisions import Evidence, Status
from rescert.verify.fits import Estimate, Fit, FitPoint

BIAS, NOISE = {10: 0.143, 100: 0.236}, {10: 0.111, 100: 0.092}
ALL, LARGE = "all shapes", "LM >= 100, L >= 7"
QUICK, PAPER = (1, 10, 100), (1, 3, 6, 12, 25, 46, 88, 166, 316)


def law(k, depth, units, dim=10):
    """Squared bias and variance of an output entry."""
    return (BIAS[k] / depth) ** 2, NOISE[k] ** 2 * dim / (depth * units)


def cell(depth, units, k=10, dim=10, repeats=5, rng=None, **changes):
    """One shape; ``rng`` makes it scatter as repeats do."""
    squared, variance = law(k, depth, units, dim)
    spread = 1 / math.sqrt(10 * repeats)
    scatter = 1.0 if rng is None else math.exp(spread * rng.standard_normal())
    error = math.sqrt(squared + variance) * scatter
    row = {
        **{"depth": depth, "units": units, "embed_dim": dim, "alpha": 1.0, "S": 1.0, "k": k, "repeats": repeats},
        **{"diverged": 0, "error": error, "error_interval": [error * (1 - 2 * spread), error * (1 + 2 * spread)]},
        **{"squared_bias": squared + (scatter - 1) * variance, "squared_bias_error": variance / repeats},
        "variance": variance * scatter,
    }
    return row | changes


def fit(cells, window, k, model="a/L + b sqrt(D/(LM))", combine="quadrature", aic=0.0, intervals=True):
    """One fitted model with its points, and its bands if there are intervals."""
    reason = "" if intervals else "a rival: no interval was asked for"

    def estimate(name, value):
        interval = (0.95 * value, 1.05 * value) if intervals else None
        return Estimate(name=name, value=value, interval=interval, reason=reason)

    def point(c):
        fitted = math.sqrt(sum(law(k, c["depth"], c["units"], c["embed_dim"])))
        shape = {name: float(c[name]) for name in ("depth", "units", "embed_dim", "alpha")}
        band = (0.95 * fitted, 1.06 * fitted) if intervals else None
        return FitPoint(**shape, repeats=c["repeats"], observed=c["error"], fitted=fitted, band=band)

    points = tuple(point(c) for c in cells)
    facts = {"model": model, "combine": combine, "window": window, "cells": len(points), "runs": 5 * len(points)}
    counts = {
        "diverged": 0,
        "duplicates": 0,
        "resamples": 400,
        "failed": 0,
        "lost": 0,
        "solvers_agree": True,
        "condition": 12.0,
    }
    estimates = estimate("a", BIAS[k]), estimate("b", NOISE[k])
    return asdict(Fit(**facts, **counts, residual=0.05, aic=aic, r2=0.998, estimates=estimates, points=points))


def comparison(cells, window, k):
    """The forms of the theory and two rivals."""
    fits = [
        fit(cells, window, k, aic=-300.0),
        fit(cells, window, k, combine="sum", aic=-275.0),
        fit(cells, window, k, model="b sqrt(D/(LM))", combine="sum", aic=-185.0, intervals=False),
        fit(cells, window, k, model="a/L + b D/M", aic=-80.0, intervals=False),
    ]
    return {"k": k, "window": window, "fits": fits, "delta_aic": [one["aic"] + 300 for one in fits]}


def exponent(
    what, estimate, half, theory, tolerance, status="SUPPORTED", k=10, window=LARGE, claim="rates.depth_width"
):
    """One row of the forest plot."""
    interval = None if half is None else [estimate - half, estimate + half]
    reason = "" if half is not None else "3 of 9 cells have fewer than 2 repeats"
    return {
        **{"claim": claim, "what": what, "k": k, "window": window, "estimate": estimate, "interval": interval},
        **{"theory": theory, "tolerance": tolerance, "status": status, "reason": reason},
    }


def phase_row(D, S, k, depth=1000, units=10):
    """One point of the phase diagram, off the drawn formula by a factor; the largest scales diverge in part."""
    expected = regime(depth, units, D, sigma_v=S * math.sqrt(D))
    diverged = 4 if k == 50 and 2 * expected.breakdown < S else 0
    return {
        **{"depth": depth, "units": units, "embed_dim": D, "k": k, "S": S, "phase": expected.phase.value},
        **{"output_std": expected.output_std * (0.9 if k == 10 else 0.6), "drawn_output_std": expected.output_std},
        **{"rms_change_U": expected.rms_change_of_U * k / 50, "drawn_change_U": expected.rms_change_of_U},
        **{"diverged": diverged, "repeats": 10},
    }


def results(grid=QUICK, steps=(10, 100), dims=(10, 31, 100), scales=5):
    """The results of the suite; a finer grid for a look at it as a user would see it."""
    rng = np.random.default_rng(0)
    cells = [cell(L, M, k, rng=rng) for k in steps for L in grid for M in grid]
    cells += [cell(100, 10, steps[0], dim=dim, rng=rng) for dim in dims if dim != 10]
    own = {k: [c for c in cells if c["k"] == k and c["embed_dim"] == 10] for k in steps}
    large = {k: [c for c in found if c["depth"] * c["units"] >= 100 and c["depth"] >= 7] for k, found in own.items()}
    lazy = [("symmetric in V", -2.0, [-2.001, -1.999]), ("asymmetric", -1.0, [-1.02, -0.99])]
    depths, alphas = [64, 128, 256, 512], [1, 4, 16, 64, 256]
    return {
        "limits": [
            {
                **{"embed_dim": dim, "alpha": 1.0, "target_error": 1e-4, "runs": 10, "diverged": 0, "nodes": 128},
                **{"standard_error": {str(k): 9e-5 * dim / 10 for k in steps}, "bias": {str(k): 6e-6 for k in steps}},
                **{"particles": 16384, "reached": dim == 10},
            }
            for dim in dims
        ],
        "cells": cells,
        "fits": [comparison(found[k], name, k) for k in steps for name, found in ((ALL, own), (LARGE, large))],
        "exponents": [
            exponent("p: L in a/L", 1.03, 0.13, 1.0, 0.2, k=100),
            exponent("p: L in a/L", 0.72, 0.05, 1.0, 0.2, "REFUTED", k=100, window=ALL),
            exponent("p: L in a/L", 0.72, 0.05, 1.0, 0.2, "REFUTED", k=100, window=ALL, claim="rates.embed_dim"),
            exponent("q: M in the fluctuation", 0.47, 0.05, 0.5, 0.05, None, k=100, window=ALL),
            exponent("r: L in the fluctuation", 0.5025, 0.013, 0.5, 0.05, k=100),
            exponent("sd over L", -0.5009, 0.0025, -0.5, 0.015, claim="rates.variance_depth"),
            exponent("sd over M", -0.5011, 0.0027, -0.5, 0.015, claim="rates.variance_width"),
            exponent("sd over D", 0.43, None, 0.5, 0.1, "INCONCLUSIVE", claim="rates.dimension"),
            exponent("noiseless bias over L", -1.0005, 0.0006, -1.0, 0.005, claim="rates.bias_exponent", window=""),
            exponent("lazy slope", -2.0, 0.001, -2.0, 0.05, claim="rates.lazy_slope_symmetric", k=None, window=""),
        ],
        "noiseless": [
            {
                "k": k,
                "depths": depths,
                "errors": [BIAS[k] / L for L in depths],
                "slope": -1.0005,
                "local": [-1.0005] * 3,
            }
            for k in steps
        ],
        "lazy": [
            {"init": name, "alphas": alphas, "errors": [0.1 * a**slope for a in alphas], "slope": slope}
            | {"interval": interval}
            for name, slope, interval in lazy
        ],
        "chaos": [
            {"LM": 64, "correlation": 0.011, "interval": [0.007, 0.015]},
            {"LM": 256, "correlation": 0.003, "interval": [0.001, 0.005]},
            {"LM": 1024, "correlation": -0.0002, "interval": [-0.002, 0.0016]},
        ],
        "phase": [
            phase_row(dim, S, k) for dim in dims for S in np.geomspace(0.05, 100, scales).tolist() for k in (10, 50)
        ],
        "training": [
            {"depth": L, "units": M, "embed_dim": dim, "losses": [0.5 * math.exp(-n / (20 + M)) for n in range(100)]}
            for dim in dims[:2]
            for L, M in ((10, 10), (100, 10), (100, 100))
        ],
        "level": 0.999,
        "data_seed": 2,
    }


def rates_document(verdicts=None, found=None, **changes):
    """A complete document of ``rescert rates``; ``changes`` replace parts of the results."""
    judged = [
        verdict("rates.depth_width", evidence=(Evidence.SIMULATION,), confidence=0.9999),
        verdict("rates.best_shape", Status.PROVED, evidence=(Evidence.SYMBOLIC,)),
    ]
    return document.build(
        job="rates",
        options={"limit_error": 1e-4, "preset": "quick", "seed": 7, "device": "cpu"},
        versions={"rescert": "0.1.0", "python": "3.11"},
        out=Path("runs/rates"),
        verdicts=judged if verdicts is None else verdicts,
        results={"hidden_width": copy.deepcopy((found or results()) | changes)},
    )
