"""The search for shapes at which no constants let an error law hold.

REFUTED rests on :func:`error_laws.nearest`: at a few shapes, no constants bring the law within a tolerance of the
measured intervals; and again on other data, with other weights and another solution of the limit. How a law fares that
escapes is told in ``rate_fits.py``.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from ...sim.records import Store
from ...sim.rng import generator
from ...theory.claims import Claim
from ..surfaces import Model
from .error_laws import Nearest, model, nearest, readings, values, varied
from .error_measurements import SAMPLES, STEPS, Errors, Shape, grid, measure, repeats
from .rate_fits import judge
from .target import Case, Counterexample, Effort, Searched

# A law may be off by this factor: terms of higher order, and constants that depend on the data, which depend on D.
TOLERANCE = 1.15
# Probability that some interval of a measurement misses its error.
ALPHA = 1e-4
# Weights of all repeats of a shape: at a first look, for the fit, and where few shapes are measured again.
WORK = {"first look": 2**21, "fit": 2**24}
WORK_AGAIN = 2**24
SIZES = {"L": "depth", "M": "units", "D": "embed_dim", "alpha": "alpha"}


def search(claim: Claim, effort: Effort, hint: dict[str, float] | None) -> Searched:
    """Measure errors on a grid of shapes and hold the law against them.

    Args:
        claim: Of kind RATE on ``resnet_error``.
        effort: Seed, seconds and workers.
        hint: Not used: only measurements bear on a law.

    Raises:
        ValueError: If the law is no sum of monomials with constants of their own, or too many runs diverge.
    """
    stop = time.monotonic() + effort.seconds
    law = model(claim)
    shapes = grid(varied(law))
    tried: dict[str, dict[str, int]] = {}
    found, undecided = None, list[str]()
    with _store() as folder, Store(folder) as store:
        for stage, work in WORK.items():
            if found or (tried and time.monotonic() > stop):
                break
            errors = measure(
                {shape: repeats(shape, work) for shape in shapes},
                store,
                seed=effort.seed,
                data_seed=_seed(effort, "data"),
                alpha=ALPHA,
                workers=effort.workers,
                on_progress=_progress(effort, stage),
            )
            tried[stage] = {"cells": len(errors.error), "draws": errors.cells.runs}
            undecided = []
            if (best := _best(law, errors)).factor > TOLERANCE:
                networks = [_network(errors.shapes[i], WORK_AGAIN) for i in _deciding(law, errors)]
                where = {name: _seed(effort, stage, name) for name in ("seed", "data_seed")} | {"networks": networks}
                found = _again(claim, where, effort.workers, _progress(effort, f"{stage}, again"))
                tried[f"{stage}, again"] = {"cells": len(networks), "draws": sum(n["repeats"] for n in networks)}
                if not found:
                    undecided = [f"off by a factor {best.factor:.2f} at some shapes, which other data do not confirm"]
    judged = judge(
        law, errors, generator(effort.seed, "resnet_error", "fit"), tolerance=TOLERANCE, alpha=ALPHA, stop=stop
    )
    if errors.cells.diverged:
        undecided.append(f"{errors.cells.diverged} of {errors.cells.runs} runs diverged")
    cases = _cases(errors, judged.predicted)
    return Searched(
        counterexample=found,
        cases=cases,
        tightest=max(cases, key=lambda case: abs(math.log(case.observed / case.bound))),
        tried=tried,
        undecided=(*undecided, *judged.undecided),
        confidence=1 - ALPHA,
        finished=judged.finished and (found is not None or len(tried) >= len(WORK)),
        results={
            "tolerance": TOLERANCE,
            "nearest": [{"reading": one.law.combine, "factor": one.factor} for one in _nearest(law, errors)],
            **judged.results,
        },
    )


def confirm(claim: Claim, where: dict[str, Any]) -> Counterexample | None:
    """Measure shapes again; a counterexample if no constants let the law hold at all of them.

    Args:
        claim: Of kind RATE on ``resnet_error``.
        where: ``seed``, ``data_seed`` and ``networks``, a list of ``L``, ``M``, ``D``, ``alpha`` and ``repeats``.

    Raises:
        ValueError: For anything else, or if too many runs diverge.
    """
    return _again(claim, where, min(2, os.cpu_count() or 1), lambda done, total, label: None)


def _again(
    claim: Claim, where: dict[str, Any], workers: int, on_progress: Callable[[int, int, str], object]
) -> Counterexample | None:
    law, plan = model(claim), _plan(where)
    seeds = {name: where[name] for name in ("seed", "data_seed")}
    with _store() as folder, Store(folder) as store:
        errors = measure(plan, store, **seeds, alpha=ALPHA, workers=workers, on_progress=on_progress)
    best = _best(law, errors)
    if not best.factor > TOLERANCE:
        return None
    nearest_law = values(best.law, best.constants, errors.cells.shapes)
    shown = [
        f"{e:.4g} in [{low:.4g}, {high:.4g}]"
        for e, low, high in zip(errors.error, errors.low, errors.high, strict=True)
    ]
    worst = best.deciding[0]
    constants = ", ".join(f"{name} = {value:.4g}" for name, value in best.constants.items())
    rows = [
        (f"error at {shape}, {plan[shape]} networks", f"{text}; law {value:.4g}")
        for shape, text, value in zip(errors.shapes, shown, nearest_law, strict=True)
    ]
    return Counterexample(
        subject="; ".join(map(str, errors.shapes)),
        where=where,
        observed=f"[{errors.low[worst]:.4g}, {errors.high[worst]:.4g}]",
        bound=f"{nearest_law[worst]:.4g}",
        confirmed="fresh draws",
        confidence=1 - ALPHA,
        table=(
            ("law", f"{law.name}, terms added {'as written' if best.law.combine == 'sum' else 'in quadrature'}"),
            ("data", f"{SAMPLES} samples, {STEPS} gradient steps, data seed {where['data_seed']}"),
            *rows,
            ("constants that come nearest", constants),
            ("the law is off, even so, by a factor", f"{best.factor:.3f} (declared tolerance {TOLERANCE})"),
        ),
    )


def _nearest(law: Model, errors: Errors) -> list[Nearest]:
    return [nearest(reading, errors.cells.shapes, errors.low, errors.high) for reading in readings(law)]


def _best(law: Model, errors: Errors) -> Nearest:
    """The reading of the law that comes nearer: to refute it is to refute both."""
    return min(_nearest(law, errors), key=lambda one: one.factor)


def _deciding(law: Model, errors: Errors) -> list[int]:
    return sorted({index for one in _nearest(law, errors) for index in one.deciding})


def _cases(errors: Errors, predicted: Any) -> tuple[Case, ...]:
    return tuple(
        Case(
            stage="fit",
            family=f"D = {shape.embed_dim}, alpha = {shape.alpha:g}",
            subject=str(shape),
            where=_network(shape, WORK_AGAIN),
            observed=float(error),
            bound=float(value),
            exact=False,
        )
        for shape, error, value in zip(errors.shapes, errors.error, predicted, strict=True)
    )


def _network(shape: Shape, work: int) -> dict[str, Any]:
    return dict(zip(SIZES, shape, strict=True)) | {"repeats": repeats(shape, work)}


def _plan(where: dict[str, Any]) -> dict[Shape, int]:
    try:
        seeds = [where[name] for name in ("seed", "data_seed")]
        plan = {Shape(*(n[name] for name in SIZES)): n["repeats"] for n in where["networks"]}
    except (KeyError, TypeError):
        plan, seeds = {}, []
    counts = [x for shape, count in plan.items() for x in (*shape[:3], count)]
    sound = all(type(x) is int for x in (*seeds, *counts)) and all(x >= 0 for x in seeds)
    if not (plan and sound and min(counts) >= 1 and min(plan.values()) >= 2 and all(s.alpha > 0 for s in plan)):
        raise ValueError(
            "resnet_error: expected seed, data_seed and networks, a list of "
            f"{', '.join(SIZES)} and repeats (at least 2), got {str(where)[:200]}."
        )
    return plan


def _seed(effort: Effort, *path: str) -> int:
    return int(generator(effort.seed, "resnet_error", *path).integers(2**31))


def _progress(effort: Effort, stage: str) -> Callable[[int, int, str], object]:
    return lambda done, total, label: effort.on_progress(stage, done, total)


def _store() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="rescert-check-")
