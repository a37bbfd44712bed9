"""The studies behind the hidden-width claims: their jobs, and the exponents and tables that come out of them."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from ..sim.records import Job
from ..theory.phase_diagram import regime
from .decisions import Evidence
from .fits import Estimate
from .observations import LETTERS, Array, Observations, Window
from .rate_frame import (
    LEVEL,
    Exponent,
    Findings,
    Frame,
    Outcome,
    fluctuations,
    grid_jobs,
    observed,
    regressed,
    slope_over_repeats,
)
from .rate_presets import EmbeddedStudy
from .rate_surfaces import cell_rows, surface_findings, surface_jobs
from .slopes import slope

RESAMPLED_CORRELATIONS = 200
BROKEN = 3.0
CHOSEN_STEPS = "the exponent drifts with k; the k that decides was chosen after pilot runs and speaks for itself alone"


def noiseless_jobs(frame: Frame) -> list[Job]:
    """At the critical scale and in the lazy regime."""
    size = asdict(frame.preset.noiseless)
    cost = 20.0 * sum(size["depths"]) * size["particles"] * size["steps"]
    return [
        frame.job("noiseless", f"noiseless, alpha={alpha:g}", cost, embed_dim=10, alpha=alpha, **size)
        for alpha in (1.0, 16.0)
    ]


def lazy_jobs(frame: Frame) -> list[Job]:
    """One a law of the units."""
    size = frame.preset.lazy
    shared = {"embed_dim": 10, "alphas": size.alphas, "nodes": size.nodes, "steps": size.steps}
    return [
        frame.job("lazy", f"lazy limit, {init}", 1e9, init=init, particles=particles, **shared)
        for init, particles in size.particles.items()
    ]


def chaos_jobs(frame: Frame) -> list[Job]:
    """One a shape."""
    size = frame.preset.chaos
    shared = {"embed_dim": 10, "repeats": size.repeats, "steps": size.steps}
    return [
        frame.job("chaos", f"chaos L={L} M={M}", 30.0 * L * M * size.repeats, depth=L, units=M, **shared)
        for L, M in size.shapes
    ]


def embedded_jobs(frame: Frame) -> list[Job]:
    """Told apart by their parameters: tied units, the fluctuation grid, the doublings of D after few and more steps."""
    size = frame.preset.embedded
    L_wide, M_wide = size.doubling_shape

    def job(L: int, M: int, D: int, repeats: int, embedding: int, *, tied: bool, steps: int = size.steps) -> Job:
        shape = {"depth": L, "units": M, "embed_dim": D, "input_dim": 10, "steps": steps}
        cost = 2.0 * L * M * D * repeats * steps
        label = f"embedded L={L} M={M} D={D}"
        return frame.job("embedded", label, cost, **shape, repeats=repeats, embedding=embedding, tied=tied)

    depths = (*size.tied_depths, 2 * size.tied_depths[-1])
    return [
        *(job(L, 64, 16, 1, 0, tied=True) for L in depths),
        *(
            job(L, M, D, size.repeats, 0, tied=False)
            for L, M, D in itertools.product(size.depths, size.units, size.embed_dims)
        ),
        *(
            job(L_wide, M_wide, D, size.pairs, e, tied=False, steps=steps)
            for steps, count in _doubled(size).items()
            for D, e in itertools.product(size.doublings, range(1, count + 1))
        ),
    ]


def phase_jobs(frame: Frame) -> list[Job]:
    """One a scale and D."""
    size = frame.preset.phase
    shared = {"depth": size.depth, "units": size.units, "steps": size.steps, "record": size.record}
    cost = float(size.depth * size.units * size.steps * size.repeats)
    return [
        frame.job("finite", f"phase D={D} S={S:.2g}", cost * D, embed_dim=D, S=S, repeats=size.repeats, **shared)
        for D, S in itertools.product(size.embed_dims, size.scales)
    ]


def dimension_findings(frame: Frame, outcomes: Sequence[Outcome]) -> Findings:
    """The fluctuation against D; its shapes have no limit of their own, and the variance needs none."""
    k = frame.preset.dims.record[-1]
    window = Window(name="M >= D", contains=lambda o: o.units >= o.embed_dim)
    names = {"embed_dim": "dimension"} | ({"depth": "dimension_depth"} if len(frame.preset.dims.depths) > 1 else {})
    exponents = fluctuations(observed(outcomes, k, {}), names, window, frame, k, "the standard deviation of the output")
    unknown = dict.fromkeys(("error", "error_interval", "squared_bias", "squared_bias_error"))
    cells = [row | unknown for row in cell_rows(outcomes, observed(outcomes, k, {}), k, frame)]
    return Findings(exponents=exponents[:1], tables={"cells": cells})


def lazy_grid_findings(frame: Frame, outcomes: Sequence[Outcome]) -> Findings:
    """The fluctuation in the lazy regime against alpha, L and M."""
    k = frame.preset.lazy_grid.record[-1]
    names = {"alpha": "lazy_scale", "depth": "lazy_depth", "units": "lazy_width"}
    window = Window(name="alpha sqrt(D/(LM)) < 1", contains=lambda o: o.alpha**2 * o.embed_dim < o.depth * o.units)
    what = "the standard deviation of the output, alpha >> 1"
    return Findings(exponents=fluctuations(observed(outcomes, k, {}), names, window, frame, k, what))


def noiseless_findings(frame: Frame, outcomes: Sequence[Outcome]) -> Findings:
    """The bias without noise, by local slopes."""
    found = Findings(tables={"noiseless": []})
    for outcome in outcomes:
        for k in outcome["record"]:
            errors = outcome.record.result["errors"][str(k)]
            fitted = slope(outcome["depths"], errors, exact=True)
            lazy = outcome["alpha"] != 1
            found.exponents.append(
                Exponent(
                    key="lazy_bias" if lazy else "bias",
                    what=f"exponent of L in the error with tied units, alpha = {outcome['alpha']:g}",
                    k=k,
                    window=f"L = {outcome['depths'][0]} to {outcome['depths'][-1]}",
                    estimate=fitted.slope,
                    evidence=Evidence.EXACT,
                )
            )
            if not lazy:
                found.tables["noiseless"].append(
                    {"k": k, "depths": outcome["depths"], "errors": errors, "slope": fitted.slope.value}
                    | {"local": list(fitted.local)}
                )
    return found


def lazy_findings(frame: Frame, outcomes: Sequence[Outcome]) -> Findings:
    """The distance of the mean ODE from the tangent ODE against alpha."""
    found = Findings(tables={"lazy": []})
    for outcome in outcomes:
        alphas, errors, init = outcome["alphas"], outcome.record.result["errors"], outcome["init"]
        fitted = slope(alphas, errors, exact=True)
        found.tables["lazy"].append(
            {"init": init, "alphas": alphas, "errors": errors, "slope": fitted.slope.value}
            | {"interval": fitted.slope.interval}
        )
        found.exponents.append(
            Exponent(
                key="lazy_symmetric" if init == "symmetric" else "lazy",
                what=f"exponent of alpha in the distance of the two limits, {init} law",
                k=outcome["steps"],
                window=f"alpha = {alphas[0]:g} to {alphas[-1]:g}",
                estimate=fitted.slope,
                evidence=Evidence.EXACT,
            )
        )
    return found


def correlation(moved: Array) -> float:
    """Mean correlation over pairs of columns: (variance of the sum / sum of the variances - 1) / (columns - 1)."""
    single = moved.var(axis=0, ddof=1).sum()
    return float((moved.sum(axis=1).var(ddof=1) / single - 1) / (moved.shape[1] - 1))


def chaos_findings(frame: Frame, outcomes: Sequence[Outcome]) -> Findings:
    """How the correlation between units falls with their number."""
    sizes = np.array([o["depth"] * o["units"] for o in outcomes], dtype=float)
    draws = np.empty((len(outcomes), RESAMPLED_CORRELATIONS))
    values = np.array([correlation(o.arrays["moved"]) for o in outcomes])
    for row, outcome in zip(draws, outcomes, strict=True):
        moved, random = outcome.arrays["moved"], frame.random(f"chaos {outcome['depth']} {outcome['units']}")
        row[:] = [correlation(moved[random.integers(len(moved), size=len(moved))]) for _ in row]
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    rows = [
        {"LM": int(size), "correlation": float(value), "interval": np.quantile(row, tails).tolist()}
        for size, value, row in zip(sizes, values, draws, strict=True)
    ]
    estimate = Estimate(
        name="slope", value=None, interval=None, level=frame.level, reason="a correlation cannot be told from 0"
    )
    if len(sizes) < 2:
        raise ValueError("chaos: cannot find the exponent of LM from one shape; vary LM.")
    if values.min() > 0 and draws.min() > 0:
        relative = draws.std(axis=1, ddof=1) / values
        x = np.log(sizes)
        weights = 1 / relative**2
        centred = x - weights @ x / weights.sum()
        value = float(weights * centred @ np.log(values) / (weights @ centred**2))
        half = float(stats.norm.isf((1 - frame.level) / 2)) / math.sqrt(weights @ centred**2)
        estimate = Estimate(name="slope", value=value, interval=(value - half, value + half), level=frame.level)
    exponent = Exponent(
        key="chaos",
        what="exponent of LM in the correlation of |dU|^2 between units",
        k=outcomes[0]["steps"],
        window=f"LM = {sizes.min():g} to {sizes.max():g}",
        estimate=estimate,
    )
    return Findings(exponents=[exponent], tables={"chaos": rows})


def critical_findings(frame: Frame, outcomes: Sequence[Outcome]) -> Findings:
    r"""The critical scale from one infinitesimal step of U at S = 1.

    With a = rms(dU) / eta (which is rms of the change of the pre-activations, up to a constant) and c = -(change of the
    loss) / eta, the step that moves pre-activations by 1 changes the loss by c/a. a grows like S and c like S^2, so
    that both are 1 at S = a/c, which is alpha sigma_v / (LM) = (a/c) sqrt(D) / (LM).
    """
    columns: dict[str, list[float]] = {name: [] for name in ("depth", "units", "embed_dim")}
    scales = []
    for o in outcomes:
        result = o.record.result
        a, c = np.mean(result["update_rms"]["U"]["1"]), -np.mean(result["loss_change"])
        scales.append(a / c * math.sqrt(o["embed_dim"]) / (o["depth"] * o["units"]))
        for name, values in columns.items():
            values.append(o[name])
    names = {"depth": "critical_depth", "units": "critical_width", "embed_dim": "critical_dimension"}
    fitted = regressed(columns, scales, frame.level)
    return Findings(
        exponents=[
            Exponent(
                key=names[column],
                what=f"exponent of {LETTERS[column]} in the critical residual scale",
                k=1,
                window=f"{len(scales)} shapes",
                estimate=estimate,
            )
            for column, estimate in fitted.items()
        ]
    )


def embedded_findings(frame: Frame, outcomes: Sequence[Outcome]) -> Findings:
    """Each of the three terms of networks with embedding, by what leaves the other two out."""
    size, k = frame.preset.embedded, frame.preset.embedded.steps
    tied = {o["depth"]: o.arrays["state"] for o in outcomes if o["tied"]}
    free = [o for o in outcomes if not o["tied"]]
    distances = [math.sqrt(np.mean((tied[L] - tied[2 * L]) ** 2)) for L in size.tied_depths]
    exponents = [
        Exponent(
            key="embedded_bias",
            what="exponent of L in the distance of L from 2L with tied units and embedding",
            k=k,
            window=f"L = {size.tied_depths[0]} to {2 * size.tied_depths[-1]}",
            estimate=slope(size.tied_depths, distances, exact=True).slope,
            evidence=Evidence.EXACT,
        )
    ]
    grid = [o for o in free if o["embedding"] == 0]
    runs = [(o, r, state) for o in grid for r, state in enumerate(o.arrays["state"])]
    columns: dict[str, Any] = {name: [o[name] for o, _, _ in runs] for name in ("depth", "units", "embed_dim")}
    observations = Observations.from_deviations([s for _, _, s in runs], repeat=[r for _, r, _ in runs], **columns)
    names = {"depth": "embedded_depth", "units": "embedded_width", "embed_dim": "embedded_fluctuation"}
    window = Window(name=f"one embedding, D >= {min(size.embed_dims)}", contains=lambda o: np.array(True))
    what = "the standard deviation of the last hidden state"
    exponents += fluctuations(observations, names, window, frame, k, what)
    dims = [D for D in size.doublings if 2 * D in size.doublings]
    for steps, count in _doubled(size).items():
        states = {
            (o["embed_dim"], o["embedding"]): o.arrays["state"] for o in free if o["embedding"] and o["steps"] == steps
        }
        squares = [
            [_squared_distance(states[D, e], states[2 * D, e][:, :D]) for e in range(1, count + 1)] for D in dims
        ]
        estimate = slope_over_repeats(dims, np.array(squares), frame.level)
        exponents.append(
            Exponent(
                key="embedded_dimension",
                what="exponent of D in the distance of D from 2D on shared embedding rows, fluctuation taken out",
                k=steps,
                window=f"D = {dims[0]} to {2 * dims[-1]}",
                estimate=replace(estimate, reason="; ".join(filter(None, (estimate.reason, CHOSEN_STEPS)))),
                judged=steps == size.steps,
            )
        )
    return Findings(exponents=exponents)


def _doubled(size: EmbeddedStudy) -> dict[int, int]:
    """Number of embeddings whose D is doubled, by gradient steps."""
    return {size.late_steps: size.late_embeddings, size.steps: size.embeddings}


def _squared_distance(one: Array, other: Array) -> float:
    """Estimate |E one - E other|^2 without bias from repeats, as a mean over entries."""
    d = (one - other).reshape(len(one), -1)
    G = d @ d.T / d.shape[1]
    return float((G.sum() - np.trace(G)) / (len(d) * (len(d) - 1)))


def phase_findings(frame: Frame, outcomes: Sequence[Outcome]) -> Findings:
    """Magnitudes over the initial scale beside those drawn by the author; described, not judged."""
    rows = []
    for o, k in ((outcome, k) for outcome in outcomes for k in outcome["record"]):
        finished = ~np.array(o.record.result["diverged"])
        kept = o.arrays[f"output_{k}"][finished]
        expected = regime(o["depth"], o["units"], o["embed_dim"], sigma_v=o["S"] * math.sqrt(o["embed_dim"]))
        change = np.array(o.record.result["update_rms"]["U"][str(k)])[finished]
        rows.append(
            {name: o[name] for name in ("depth", "units", "embed_dim", "S")}
            | {
                "k": k,
                "output_std": float(np.sqrt(kept.var(axis=0, ddof=1).mean())) if len(kept) > 1 else None,
                "drawn_output_std": expected.output_std,
                "rms_change_U": float(np.sqrt(np.mean(change**2))) if len(change) else None,
                "drawn_change_U": expected.rms_change_of_U,
                "phase": expected.phase.value,
                "diverged": sum(o.record.result["diverged"]),
                "repeats": len(o.record.result["diverged"]),
            }
        )
    return Findings(tables={"phase": rows, "breakdown": breakdowns(rows)})


def breakdowns(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where training really breaks down in each shape, after the most steps, beside the theory's order sqrt(LM/D).

    Broken means that a run diverged, or that U moved more than ``BROKEN`` times the size drawn by the author;
    ``observed`` is the smallest such S, None if there is none up to ``largest``.
    """
    found = []
    for shape in dict.fromkeys((row["depth"], row["units"], row["embed_dim"]) for row in rows):
        mine = [row for row in rows if (row["depth"], row["units"], row["embed_dim"]) == shape]
        k = max(row["k"] for row in mine)
        last = sorted((row for row in mine if row["k"] == k), key=lambda row: row["S"])
        broken = (
            row["S"] for row in last if row["diverged"] or (row["rms_change_U"] or 0.0) > BROKEN * row["drawn_change_U"]
        )
        L, M, D = shape
        found.append(
            {"depth": L, "units": M, "embed_dim": D, "k": k, "theory": math.sqrt(L * M / D)}
            | {"observed": next(broken, None), "largest": last[-1]["S"], "factor": BROKEN}
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Study:
    """What to compute, and what to make of it."""

    jobs: Callable[[Frame], list[Job]]
    findings: Callable[[Frame, Sequence[Outcome]], Findings]


STUDIES = {
    "noiseless": Study(jobs=noiseless_jobs, findings=noiseless_findings),
    "lazy": Study(jobs=lazy_jobs, findings=lazy_findings),
    "chaos": Study(jobs=chaos_jobs, findings=chaos_findings),
    "critical": Study(
        jobs=lambda frame: grid_jobs(frame, frame.preset.critical, eta=1e-6, train_v=False), findings=critical_findings
    ),
    "embedded": Study(jobs=embedded_jobs, findings=embedded_findings),
    "dimension": Study(jobs=lambda frame: grid_jobs(frame, frame.preset.dims), findings=dimension_findings),
    "lazy_grid": Study(jobs=lambda frame: grid_jobs(frame, frame.preset.lazy_grid), findings=lazy_grid_findings),
    "surface": Study(jobs=surface_jobs, findings=surface_findings),
    "phase": Study(jobs=phase_jobs, findings=phase_findings),
}
