"""The error of networks against their limit over depth and units: exponents, forms and tables."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ..sim.records import Job
from .fits import Estimate, aic_difference, compare
from .fluctuations import bias_variance
from .observations import Observations, Window, resampled_log_errors, why_no_interval
from .rate_frame import (
    LEVEL,
    Exponent,
    Findings,
    Frame,
    Outcome,
    fluctuations,
    grid_jobs,
    observed,
    widened,
)
from .slopes import slope
from .surfaces import QUADRATURE, RIVALS, SUM, Model


def surface_jobs(frame: Frame) -> list[Job]:
    """The limit of each grid, and its networks."""
    size, jobs = frame.preset.limit, []
    for grid in frame.preset.surfaces:
        cost = 16.0 * size.nodes * size.particles * grid.steps
        for D, alpha in itertools.product(grid.embed_dims, grid.alphas):
            shared = {"embed_dim": D, "alpha": alpha, "steps": grid.steps, "record": grid.record, **asdict(size)}
            jobs.append(frame.job("limit", f"limit D={D}, {grid.steps} steps", cost * D, **shared))
        jobs += grid_jobs(frame, grid)
    return jobs


def surface_findings(frame: Frame, outcomes: Sequence[Outcome]) -> Findings:
    """The error against the limit over L and M, bias and fluctuation apart, and single units."""
    found = Findings(tables={name: [] for name in ("limits", "cells", "fits", "training")})
    for grid in frame.preset.surfaces:
        mine = [o for o in outcomes if o["steps"] == grid.steps]
        limits = [o for o in mine if "nodes" in o.record.params]
        networks = [o for o in mine if "nodes" not in o.record.params]
        found.tables["limits"] += [_limit_row(o) for o in limits]
        found.tables["training"] += [
            {name: o[name] for name in ("depth", "units", "embed_dim")} | {"losses": o.record.result["losses"]}
            for o in networks
        ]
        for k in grid.record:
            exact = {(o["embed_dim"], o["alpha"]): (o.arrays[f"output_{k}"], _limit_error(o, k)) for o in limits}
            observations = observed(networks, k, exact)
            judged = grid.judged and k == grid.record[-1]
            found.tables["cells"] += cell_rows(networks, observations, k, frame)
            found.exponents.extend(
                fluctuations(
                    observations,
                    {"depth": "variance_depth", "units": "variance_width"},
                    _without_small(frame),
                    frame,
                    k,
                    "the standard deviation of the output",
                    judged=judged,
                )
            )
            if 1 in grid.units:
                found.exponents.append(_single_unit(observations, frame, k, judged=judged))
            # Before the last step recorded the bias may be too small to be seen beside the fluctuation.
            if k == grid.record[-1]:
                _compare(observations, frame, k, found, judged=judged)
            if judged:
                found.surfaces[k] = observations
    return found


def _limit_error(outcome: Outcome, k: int) -> float:
    result = outcome.record.result
    return math.hypot(result["standard_error"][str(k)], result["bias_estimate"][str(k)])


def _limit_row(outcome: Outcome) -> dict[str, Any]:
    result = dict(outcome.record.result)
    return {
        "embed_dim": outcome["embed_dim"],
        "alpha": outcome["alpha"],
        "bias": result.pop("bias_estimate"),
        **result,
    }


def _single_unit(observations: Observations, frame: Frame, k: int, *, judged: bool) -> Exponent:
    # Few repeats of few entries: depths below 10 are far from any law at M = 1.
    alone = observations.where((observations.units == 1) & (observations.depth >= frame.preset.window[0]))
    cells = alone.cells()
    repeats = max(len(squares) for squares in cells.squares)
    rows = np.full((len(cells), repeats), np.nan)
    for row, squares in zip(rows, cells.squares, strict=True):
        row[: len(squares)] = np.sqrt(squares)
    fitted = slope(cells.shapes["depth"], rows, generator=frame.random(f"single {k}"), level=LEVEL)
    return Exponent(
        key="single_unit",
        what="exponent of L in the error at M = 1",
        k=k,
        window=f"M = 1, L >= {frame.preset.window[0]}",
        estimate=widened(fitted.slope, frame.level),
        judged=judged,
        one_sided=True,
    )


def _compare(observations: Observations, frame: Frame, k: int, found: Findings, *, judged: bool) -> None:
    for comparison in compare(
        observations,
        generator=frame.random(f"surface {k}"),
        windows=(_surface_window(frame), Window(name="all shapes", contains=lambda o: np.array(True))),
        resamples=frame.preset.resamples,
    ):
        rows = [asdict(fit) for fit in comparison.fits]
        found.tables["fits"].append(
            {"k": k, "window": comparison.window, "fits": rows, "delta_aic": list(comparison.delta_aic)}
        )
        free = next(fit for fit in comparison.fits if "p" in {e.name for e in fit.estimates} and fit.combine != "sum")
        for name, key in (("p", "surface_bias"), ("r", "surface_depth"), ("q", "surface_width")):
            estimate = widened(free[name], frame.level)
            found.exponents.append(
                Exponent(
                    key=key,
                    what=f"free exponent {name} of the error surface",
                    k=k,
                    window=comparison.window,
                    estimate=_negated(estimate),
                    judged=judged and comparison.window != "all shapes",
                )
            )


def _negated(estimate: Estimate) -> Estimate:
    """The exponent of a size from that of its inverse."""
    interval = None if estimate.interval is None else (-estimate.interval[1], -estimate.interval[0])
    value = None if estimate.value is None else -estimate.value
    return replace(estimate, value=value, interval=interval)


def against_rivals(observations: Observations, claimed: Model, frame: Frame) -> tuple[Estimate, str]:
    """AIC of the claimed surface, the better of sum and quadrature, above the best rival's; and that rival.

    The rivals impose exponents too: a free form beats every imposed one once the data show the next order.
    """
    difference, rival = aic_difference(
        observations,
        [replace(claimed, combine=combine) for combine in ("quadrature", "sum")],
        [rival for rival in (QUADRATURE, SUM, *RIVALS) if _law(rival) != _law(claimed)],
        generator=frame.random("claimed"),
        window=_surface_window(frame),
        resamples=frame.preset.resamples,
        level=frame.level,
    )
    return difference, f"{rival.name} ({rival.combine})"


def _law(model: Model) -> set[frozenset[tuple[str, float | str]]]:
    """The powers of L and M of every term; D is the same throughout a surface."""
    return {frozenset((c, p) for c, p in term.powers.items() if p and c != "embed_dim") for term in model.terms}


def cell_rows(outcomes: Sequence[Outcome], observations: Observations, k: int, frame: Frame) -> list[dict[str, Any]]:
    """One row a shape: error, bias and variance over the runs that did not diverge, and how many did."""
    cells = observations.cells()
    squares = cells.squares
    intervals: list[tuple[float, float] | None] = [None] * len(cells)
    if not why_no_interval(squares):
        tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
        draws = resampled_log_errors(squares, "cells", frame.random(f"cells {k}"), 400)
        intervals = [(float(low), float(high)) for low, high in np.exp(np.quantile(draws, tails, axis=0)).T]
    apart: Sequence[Any] = bias_variance(observations) if min(map(len, squares)) > 1 else [None] * len(cells)
    diverged = {
        (o["depth"], o["units"], o["embed_dim"], o["alpha"]): sum(o.record.result["diverged"]) for o in outcomes
    }
    rows = []
    for c, (interval, split) in enumerate(zip(intervals, apart, strict=True)):
        L, M, D, alpha = (float(cells.shapes[name][c]) for name in ("depth", "units", "embed_dim", "alpha"))
        rows.append(
            {
                "depth": int(L),
                "units": int(M),
                "embed_dim": int(D),
                "alpha": alpha,
                "S": alpha,
                "k": k,
                "repeats": len(squares[c]),
                "diverged": diverged[L, M, D, alpha],
                "error": float(np.sqrt(squares[c].mean())),
                "error_interval": interval,
                "squared_bias": split and split.squared_bias,
                "squared_bias_error": split and split.squared_bias_error,
                "variance": split and split.variance,
            }
        )
    return rows


def _without_small(frame: Frame) -> Window:
    L, M = frame.preset.window
    return Window(name=f"L >= {L}, M >= {M}", contains=lambda o: (o.depth >= L) & (o.units >= M))


def _surface_window(frame: Frame) -> Window:
    L, LM = frame.preset.surface_window
    return Window(name=f"L >= {L}, LM >= {LM}", contains=lambda o: (o.depth >= L) & (o.depth * o.units >= LM))
