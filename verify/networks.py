"""A really trained network as a job: train, probe activation gradients on held-out data, estimate, resample.

The unit of sampling is one image and the gradient at a site is taken flattened (channels x height x width). The
held-out pool is then a population of its own, with moments known exactly: the theorem applies to draws from it with
replacement whatever the network is. What the pool says of the distribution behind it is the intervals' business.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from ..models import data, gradients
from ..models.cifar_resnet import CifarResNet
from ..sim.finite_laws import Empirical
from ..sim.monte_carlo import simulate
from ..sim.rng import generator, torch_generator
from ..sim.training import train
from .certificates import alignment_interval, certificate, direct_certificate
from .estimators import GramSummary, estimate, gram_summary

BATCH = 128


def measure(params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train one ResNet and measure the alignment of its activation gradients.

    Args:
        params: ``data`` and ``pool`` (see ``data.load``), ``sizes`` (train, probe, test counts), ``depth``, ``width``,
            ``steps``, ``batch_size``, ``lr``, ``optimiser``, ``device``, ``sites`` (module names), ``grid`` (pairs
            M, K), ``trials`` a cell, ``level`` of the one-sided limits, ``direct`` (pairs M, K for the
            distribution-free certificate).
        seed: Root of the streams of initialisation, batches, split and resampling.

    Returns:
        Losses and accuracy, and for each site the status, estimates, limits and misalignment counts.
    """
    parts = data.split(data.load(params["data"], pool=params["pool"]), params["sizes"], generator(seed, "split"))
    width = params["width"]
    model = CifarResNet(
        params["depth"],
        width=width,
        classes=parts.train.classes,
        channels=parts.train.x.shape[1],
        generator=torch_generator(seed, "init", str(width)),
    )
    trained = train(
        model,
        parts,
        steps=params["steps"],
        batch_size=params["batch_size"],
        lr=params["lr"],
        optimiser=params["optimiser"],
        rng=generator(seed, "batches", str(width)),
        device=params["device"],
    )
    summary: dict[str, Any] = {
        "width": width,
        "parameters": sum(p.numel() for p in model.parameters()),
        "data": parts.train.name,
        "content_hash": parts.probe.content_hash,
        "overlap": parts.overlap,
        "diverged": trained.diverged,
        "device": trained.device,
        "losses": [round(float(loss), 6) for loss in trained.losses],
        "probe_loss": None if trained.probe is None else trained.probe.loss,
        "probe_accuracy": None if trained.probe is None else trained.probe.accuracy,
        "sites": {},
    }
    if trained.diverged:
        return summary
    found = gradients.collect(model, params["sites"], parts.probe.batches(BATCH))
    for site in params["sites"]:
        measured = found.pop(site)
        entry: dict[str, Any] = {"status": measured.status.value, "reason": measured.reason}
        if measured.values is not None:
            Q = measured.values.numpy()
            entry |= {"nonfinite": measured.n_nonfinite, "zero": measured.n_zero}
            entry |= _site(Q, params, seed, site, str(width))
        summary["sites"][site] = entry
    return summary


def _site(Q: np.ndarray, params: dict[str, Any], seed: int, *path: str) -> dict[str, Any]:
    level, grid = params["level"], [tuple(pair) for pair in params["grid"]]
    summary = gram_summary(Q, block=512)
    interval = alignment_interval(summary, level)
    pool = Empirical(Q)
    gram = pool.gram.numpy()
    return {
        "n": len(Q),
        "dim": Q.shape[1],
        "estimates": dataclasses.asdict(estimate(summary)),
        "interval": dataclasses.asdict(interval),
        "pool_moments": pool_moments(summary),
        "cells": [_cell(pool, M, K, params["trials"], generator(seed, "pool", *path, M, K)) for M, K in grid],
        "certificates": [
            {
                "M": M,
                "K": K,
                **dataclasses.asdict(certificate(interval, M, K)),
                **_direct(gram, M, K, level, seed, path),
            }
            for M, K in _pairs(params["direct"])
        ],
    }


def _pairs(grid: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    return [(int(M), int(K)) for M, K in grid]


def _cell(pool: Empirical, M: int, K: int, trials: int, rng: np.random.Generator) -> dict[str, Any]:
    draws = simulate(pool, M, K, trials, rng)
    return {"M": M, "K": K, "trials": draws.trials, "misaligned": draws.misaligned, "route": draws.route}


def pool_moments(summary: GramSummary) -> dict[str, float | None]:
    """Return the moments of the pool as a population: exact, with 1/n for the covariance, not an estimate."""
    return {
        "mu2": summary.mean_sq_norm,
        "mu_Sigma_mu": float(np.mean(summary.mean_projections**2)),
        "tr_Sigma": float(np.mean(summary.sq_norms)),
        "tr_Sigma2": float(np.sum(summary.row_squares)) / summary.n**2,
        "lambda_max": None,
    }


def _direct(gram: np.ndarray, M: int, K: int, level: float, seed: int, path: tuple[str, ...]) -> dict[str, Any]:
    if len(gram) < M + K:
        return {"direct_upper": None, "direct_reason": f"needs at least {M + K} samples, the pool has {len(gram)}"}
    rng = generator(seed, "direct", *path, M, K)
    found = direct_certificate(gram, M, K, rng, level=level, from_gram=True)
    return {"direct_upper": found.upper, "direct_estimate": found.p_hat, "groups": found.groups, "floor": found.floor}


def width_trend(networks: Sequence[dict[str, Any]], sites: Sequence[str], level: float = 0.95) -> list[dict[str, Any]]:
    """Fit log d_align against log width at each site, over widths and seeds.

    The interval is Student's over the scatter of the networks, so that it carries what a seed changes; the intervals
    of single networks do not. An estimate that is not positive, or infinite, has no logarithm: a site with one gets no
    slope. The intervals of all sites hold together (Bonferroni).

    Args:
        networks: Results of ``measure``.
        sites: Site names.
        level: Two-sided level at which the intervals of all sites hold.

    Returns:
        For each site ``slope``, ``interval``, ``points`` and what they say: "grows", "falls" or "undecided".
    """
    trends = []
    for site in sites:
        found = [
            (n["width"], n["sites"][site]) for n in networks if n["sites"].get(site, {}).get("status") == "measured"
        ]
        width = np.array([w for w, _ in found])
        d_align = np.array([entry["estimates"]["d_align"] for _, entry in found])
        usable = np.isfinite(d_align) & (d_align > 0)
        trend: dict[str, Any] = {"site": site, "level": level, "points": len(found), "slope": None, "interval": None}
        if lost := int(np.sum(~usable)):
            trend["reading"] = f"undecided: {lost} of {len(found)} estimates of d_align are not positive and finite"
        elif len(found) < 3 or len(set(width)) < 2:
            trend["reading"] = (
                f"undecided: {len(found)} networks do not make a trend, at least 3 at 2 widths are needed"
            )
        else:
            fit = stats.linregress(np.log(width), np.log(d_align))
            half = float(stats.t.isf((1 - level) / 2 / len(sites), len(found) - 2)) * float(fit.stderr)
            low, high = float(fit.slope) - half, float(fit.slope) + half
            trend |= {"slope": float(fit.slope), "interval": [low, high]}
            if half == 0:
                trend["reading"] = "undecided: the networks do not scatter, so that there is no interval"
            else:
                trend["reading"] = "grows" if low > 0 else "falls" if high < 0 else "undecided: the interval holds 0"
        trends.append(trend)
    return trends
