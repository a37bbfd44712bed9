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
from .error_laws import DEGREES, Nearest, model, nearest, readings, values, varied
from .error_measurements import LARGEST, SAMPLES, STEPS, Care, Errors, Shape, grid, measure
from .rate_fits import judge
from .target import Case, Counterexample, Effort, Searched

# A law may be off by this factor, for terms of higher order; and by more over D, since another D is other data with
# other constants, and over alpha, where the fluctuation is less small. On ten data sets the law of the theory came
# within .96 over L and M, 1.06 over D, 1.03 over alpha and 1.11 over both.
TOLERANCE, MORE = 1.15, {"embed_dim": 0.05, "alpha": 0.05}
# Probability that some interval of a measurement misses its error.
ALPHA = 1e-4
STAGES = {"first look": Care(weights=2**21, limit_error=8e-4), "fit": Care(weights=2**24, limit_error=4e-4)}
# Where few shapes are measured again.
AGAIN = Care(weights=2**24, limit_error=6e-4)
SIZES = {"L": "depth", "M": "units", "D": "embed_dim", "alpha": "alpha"}


def tolerance(law: Model) -> float:
    """Factor by which a law may be off at some shape before it is refuted."""
    return TOLERANCE + sum(MORE.get(column, 0.0) for column in varied(law))


def search(claim: Claim, effort: Effort, hint: dict[str, float] | None = None) -> Searched:
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
        for stage, care in STAGES.items():
            if found or (tried and time.monotonic() > stop):
                break
            errors = measure(
                {shape: care.repeats(shape) for shape in shapes},
                store,
                limit_error=care.limit_error,
                seed=effort.seed,
                data_seed=_seed(effort, "data"),
                alpha=ALPHA,
                workers=effort.workers,
                on_progress=_progress(effort, stage),
            )
            tried[stage] = {"cells": len(errors.error), "draws": errors.cells.runs}
            undecided = []
            if (best := _best(law, errors)).factor > tolerance(law):
                networks = [_network(errors.shapes[i]) for i in _deciding(law, errors)]
                where = {name: _seed(effort, stage, name) for name in ("seed", "data_seed")} | {"networks": networks}
                found = confirmed(claim, where, effort.workers, _progress(effort, f"{stage}, again"))
                tried[f"{stage}, again"] = {"cells": len(networks), "draws": sum(n["repeats"] for n in networks)}
                if not found:
                    undecided = [f"off by a factor {best.factor:.2f} at some shapes, which other data do not confirm"]
    judged = judge(
        law, errors, generator(effort.seed, "resnet_error", "fit"), tolerance=tolerance(law), alpha=ALPHA, stop=stop
    )
    if not found and "fit" not in tried:
        undecided.append("there was time for a first look only")
    if errors.cells.diverged:
        undecided.append(f"{errors.cells.diverged} of {errors.cells.runs} runs diverged")
    seeds = {"seed": effort.seed, "data_seed": _seed(effort, "data")}
    cases = tuple(
        Case(
            stage=stage,
            family=f"D = {shape.embed_dim}, alpha = {shape.alpha:g}",
            subject=str(shape),
            where=seeds | {"networks": [_network(shape)]},
            observed=float(error),
            bound=float(value),
            exact=False,
        )
        for shape, error, value in zip(errors.shapes, errors.error, judged.predicted, strict=True)
    )
    return Searched(
        counterexample=found,
        cases=cases,
        tightest=max(cases, key=lambda case: abs(math.log(case.observed / case.bound))),
        tried=tried,
        undecided=() if found else (*undecided, *judged.undecided),
        confidence=1 - ALPHA,
        finished=judged.finished and (found is not None or "fit" in tried),
        results={
            "tolerance": tolerance(law),
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
    return confirmed(claim, where, min(2, os.cpu_count() or 1), lambda done, total, label: None)


def confirmed(
    claim: Claim, where: dict[str, Any], workers: int, on_progress: Callable[[int, int, str], object]
) -> Counterexample | None:
    """Do what ``confirm`` does, on so many processes."""
    law, plan = model(claim), _plan(where)
    seeds = {name: where[name] for name in ("seed", "data_seed")}
    with _store() as folder, Store(folder) as store:
        errors = measure(
            plan, store, limit_error=AGAIN.limit_error, **seeds, alpha=ALPHA, workers=workers, on_progress=on_progress
        )
    best = _best(law, errors)
    if not best.factor > tolerance(law):
        return None
    nearest_law = values(best.law, best.constants, errors.cells.shapes)
    worst = best.deciding[0]
    return Counterexample(
        subject="; ".join(map(str, errors.shapes)),
        where=where,
        observed=f"[{errors.low[worst]:.4g}, {errors.high[worst]:.4g}]",
        bound=f"{nearest_law[worst]:.4g}",
        confirmed="fresh draws",
        confidence=1 - ALPHA,
        table=(
            ("law", law.name),
            ("data", f"{SAMPLES} samples, {STEPS} gradient steps, data seed {where['data_seed']}"),
            *(
                (f"e{i}: error at {shape}", f"{e:.4g} in [{low:.4g}, {high:.4g}], {plan[shape]} networks")
                for i, (shape, e, low, high) in enumerate(
                    zip(errors.shapes, errors.error, errors.low, errors.high, strict=True), start=1
                )
            ),
            *(row for one in _nearest(law, errors) for row in _witness(one, errors)),
        ),
    )


def _witness(one: Nearest, errors: Errors) -> list[tuple[str, str]]:
    """What shows that no constants will do: an inequality between values of the law that the errors break."""
    p = DEGREES[one.law.combine]
    power = "" if p == 1 else f"^{p}"
    greater, smaller = (
        " + ".join(f"{weight:.4g} e{i + 1}{power}" for i, weight in side.items()) for side in (one.greater, one.smaller)
    )
    least = sum(weight * errors.low[i] ** p for i, weight in one.greater.items())
    nearest_law = ", ".join(f"{value:.4g}" for value in values(one.law, one.constants, errors.cells.shapes))
    reading = "as written" if p == 1 else "in quadrature"
    return [
        (f"the law, terms added {reading}, for all constants", f"{greater} <= {smaller}"),
        ("but by the ends of the intervals", f"{least:.4g} against 1"),
        ("hence off, at some shape, by a factor", f"{one.factor:.3f}; declared tolerance {tolerance(one.law):g}"),
        ("the law where it comes nearest", nearest_law),
        ("with", ", ".join(f"{name} = {value:.4g}" for name, value in one.constants.items())),
    ]


def _nearest(law: Model, errors: Errors) -> list[Nearest]:
    return [nearest(reading, errors.cells.shapes, errors.low, errors.high) for reading in readings(law)]


def _best(law: Model, errors: Errors) -> Nearest:
    """The reading of the law that comes nearer: to refute it is to refute both."""
    return min(_nearest(law, errors), key=lambda one: one.factor)


def _deciding(law: Model, errors: Errors) -> list[int]:
    return sorted({index for one in _nearest(law, errors) for index in one.deciding})


def _network(shape: Shape) -> dict[str, Any]:
    return dict(zip(SIZES, shape, strict=True)) | {"repeats": AGAIN.repeats(shape)}


def _plan(where: dict[str, Any]) -> dict[Shape, int]:
    try:
        seeds = [where[name] for name in ("seed", "data_seed")]
        plan = {Shape(*(n[name] for name in SIZES)): n["repeats"] for n in where["networks"]}
    except (KeyError, TypeError):
        plan, seeds = {}, []
    sound = all(
        all(type(x) is int and x >= 1 for x in (*shape[:3], count)) and count >= 2 and shape.alpha > 0
        for shape, count in plan.items()
    )
    if not (plan and sound and all(type(x) is int for x in seeds) and max(s.weights for s in plan) <= LARGEST):
        raise ValueError(
            "resnet_error: expected seed, data_seed and networks, a list of "
            f"{', '.join(SIZES)} (LMD at most {LARGEST}) and repeats (at least 2), got {str(where)[:200]}."
        )
    return plan


def _seed(effort: Effort, *path: str) -> int:
    return int(generator(effort.seed, "resnet_error", *path).integers(2**31))


def _progress(effort: Effort, stage: str) -> Callable[[int, int, str], object]:
    return lambda done, total, label: effort.on_progress(stage, done, total)


def _store() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="rescert-check-")
