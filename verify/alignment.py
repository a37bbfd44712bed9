"""The alignment suite: the width theory held against proof, exact laws, simulation and trained networks."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..sim.laws import Moments, Population
from ..sim.monte_carlo import Draws
from ..sim.populations import CONTINUOUS, build
from ..sim.records import Job, Record
from ..sim.sweep import run_jobs
from ..theory import registry
from ..theory.claims import Claim
from .alignment_presets import EXTREMAL, PRESETS, NetworkStudy, Preset
from .checks import Cell, check_bound, judge, prove
from .decisions import Check, ErrorBudget, Evidence, Status, Verdict, clopper_pearson, conclude
from .networks import width_trend
from .suites import Context, SuiteResult

IDENTITY_SIZES, IDENTITY_DIM = (16, 24), 16
B_EXACT, B_ALIGN = "alignment.cantelli", "alignment.certificate"

# From jobs to cells


def exact_cells(preset: Preset) -> dict[Job, Callable[[Record], Cell]]:
    """The cells decided without sampling: extremal laws in fractions, Gaussian laws by the contour."""
    jobs: dict[Job, Callable[[Record], Cell]] = {}
    for spec, sizes in EXTREMAL:
        for M, K in sizes:
            jobs[_exact_job(spec, M, K, "rational")] = functools.partial(_exact_cell, build(**spec), M, K)
    for population in continuous(preset, gaussian=True):
        for M, K in preset.sizes:
            jobs[_exact_job(population.spec, M, K, "contour")] = functools.partial(_exact_cell, population, M, K)
    return jobs


def _exact_job(spec: dict[str, Any], M: int, K: int, engine: str) -> Job:
    params = {"population": spec, "M": M, "K": K, "engine": engine}
    return Job(function="rescert.sim.cells:exact", params=params, seed=0, label=f"{spec['name']} {engine}")


def _exact_cell(population: Population, M: int, K: int, record: Record) -> Cell:
    known = {name: record.result[name] for name in ("p", "mean", "variance") if name in record.result}
    values = {name: Fraction(value) if isinstance(value, str) else value for name, value in known.items()}
    return _cell(population, M, K, Evidence.EXACT, record.result["engine"], **values)


def _cell(population: Population, M: int, K: int, evidence: Evidence, engine: str, **known: Any) -> Cell:
    spec = population.spec
    settings = ", ".join(f"{name}={value}" for name, value in spec.items() if name != "name")
    return Cell(
        evidence=evidence,
        subject=f"{population.name} ({settings})",
        family=population.family,
        spec=spec,
        dim=population.dim,
        M=M,
        K=K,
        moments=population.moments,
        engine=engine,
        **known,
    )


def continuous(preset: Preset, *, gaussian: bool) -> list[Population]:
    """The continuous populations of a preset: the Gaussian ones, or the others."""
    chosen = [name for name in CONTINUOUS if name.startswith("gaussian") == gaussian]
    return [build(name, dim=N, d_align=d) for name in chosen for N in preset.dims for d in preset.d_aligns]


def identity_populations() -> list[Population]:
    """Light-tailed populations: only there does the variance of X come with a standard error worth its name."""
    every = (build(name, dim=IDENTITY_DIM, d_align=0.25) for name in CONTINUOUS)
    return [population for population in every if population.moment_order == math.inf]


@dataclass
class Simulated:
    """A simulated cell that grows by rounds until its claims are decided."""

    population: Population
    M: int
    K: int
    draws: Draws | None = None

    def job(self, trials: int, number: int, seed: int) -> Job:
        """Return the job of the next round."""
        params = {"population": self.population.spec, "M": self.M, "K": self.K, "trials": trials, "round": number}
        return Job(
            function="rescert.sim.cells:simulated",
            params=params,
            seed=seed,
            label=f"{self.population.name} M={self.M} K={self.K}",
            cost=trials * self.population.dim,
        )

    def add(self, record: Record) -> None:
        """Pool the draws of a round."""
        new = Draws(**{**record.result, "sums": tuple(record.result["sums"])})
        self.draws = new if self.draws is None else self.draws + new

    @property
    def cell(self) -> Cell:
        """What is known so far."""
        assert self.draws is not None
        return _cell(
            self.population,
            self.M,
            self.K,
            Evidence.SIMULATION,
            self.draws.route,
            misaligned=self.draws.misaligned,
            trials=self.draws.trials,
        )


def simulate_until_decided(
    pending: Sequence[Simulated], bounds: Sequence[Claim], preset: Preset, context: Context, budget: ErrorBudget
) -> list[Cell]:
    """Draw in rounds; a cell stops as soon as every bound on it is decided (the e-processes allow every look)."""
    open_cells = list(pending)
    for number, trials in enumerate(preset.rounds):
        jobs = [cell.job(trials, number, context.seed) for cell in open_cells]
        for cell, record in zip(open_cells, _run(jobs, context, f"simulation, round {number + 1}"), strict=True):
            cell.add(record)
        open_cells = [
            cell
            for cell in open_cells
            if any(check_bound(claim, cell.cell, budget).status is Status.INCONCLUSIVE for claim in bounds)
        ]
        if not open_cells:
            break
    return [cell.cell for cell in pending]


def identity_cells(preset: Preset, context: Context) -> list[Cell]:
    """Many draws at one (M, K) a population, for the mean and the variance of X."""
    cells = [Simulated(population, *IDENTITY_SIZES) for population in identity_populations()]
    jobs = [cell.job(preset.identity_trials, 0, context.seed) for cell in cells]
    for cell, record in zip(cells, _run(jobs, context, "mean and variance"), strict=True):
        cell.add(record)
    return [dataclasses.replace(cell.cell, draws=cell.draws) for cell in cells]


def network_jobs(study: NetworkStudy, context: Context) -> list[Job]:
    """One job a width and seed; the widest first, since they take longest."""
    shared = {name: value for name, value in dataclasses.asdict(study).items() if name not in ("widths", "seeds")}
    return [
        Job(
            function="rescert.verify.networks:measure",
            params={**shared, "width": width, "device": context.device},
            seed=context.seed + repeat,
            label=f"ResNet-{study.depth} width {width:g} seed {context.seed + repeat}",
            cost=1e12 * width**2,
        )
        for width in study.widths
        for repeat in range(study.seeds)
    ]


def network_cells(record: Record) -> list[Cell]:
    """The (M, K) cells of a trained network, its held-out pool being the population."""
    cells = []
    for site, found in record.result["sites"].items():
        if found["status"] != "measured":
            continue
        moments = Moments(**found["pool_moments"])
        name = f"ResNet width {record.params['width']:g} seed {record.seed} at {site}"
        spec = {"name": "trained", "record": record.key, "width": record.params["width"], "site": site}
        cells += [
            Cell(
                evidence=Evidence.TRAINED,
                subject=name,
                family="trained",
                spec=spec,
                dim=found["dim"],
                M=drawn["M"],
                K=drawn["K"],
                moments=moments,
                engine=drawn["route"],
                misaligned=drawn["misaligned"],
                trials=drawn["trials"],
            )
            for drawn in found["cells"]
        ]
    return cells


def _run(jobs: Sequence[Job], context: Context, stage: str) -> list[Record]:
    return run_jobs(
        jobs,
        context.run.store,
        workers=context.workers,
        cluster=context.cluster,
        executor=context.executor,
        on_progress=lambda done, total, label: context.on_progress(stage, done, total),
    )


# The suite


def run(context: Context, claims: Sequence[Claim] | None = None, preset: Preset | None = None) -> SuiteResult:
    """Judge the claims of the width theory.

    Args:
        context: The run.
        claims: What to judge instead of the registered claims ``alignment.*`` and ``spectra.*``.
        preset: What to run instead of the preset that the context names.

    Returns:
        Verdicts, and the cells, networks and trends behind them.
    """
    preset = preset or PRESETS[context.preset]
    chosen = list(claims or (*registry.claims("alignment."), *registry.claims("spectra.")))
    bounds = [claim for claim in chosen if claim.quantity.id == "misalignment"]
    simulated = [
        Simulated(population, M, K) for population in continuous(preset, gaussian=False) for M, K in preset.sizes
    ]
    study = preset.networks
    trained_cells = len(study.widths) * study.seeds * len(study.sites) * len(study.grid)
    budget = ErrorBudget(tests=max(1, len(bounds)) * (len(simulated) + trained_cells) + 2 * len(identity_populations()))
    verdicts: list[Verdict] = []

    def settle(claim: Claim, checks: list[Check]) -> None:
        verdict = conclude(claim.id, checks, budget, bound=claim in bounds)
        verdicts.append(verdict)
        context.on_verdict(verdict)

    proofs: dict[str, list[Check]] = {}
    for number, claim in enumerate(chosen):
        proofs[claim.id] = prove(claim)
        context.on_progress("proofs", number + 1, len(chosen))
    exact = exact_cells(preset)
    cells = [
        make(record) for make, record in zip(exact.values(), _run(list(exact), context, "exact laws"), strict=True)
    ]
    cells += identity_cells(preset, context)
    waiting = []
    for claim in chosen:
        if claim in bounds:
            waiting.append(claim)
        else:
            settle(claim, proofs[claim.id] + judge(claim, cells, budget))
    cells = [cell for cell in cells if cell.draws is None]
    cells += simulate_until_decided(simulated, bounds, preset, context, budget)
    networks = _run(network_jobs(study, context), context, "trained networks")
    cells += [cell for record in networks for cell in network_cells(record)]
    for claim in waiting:
        settle(claim, proofs[claim.id] + judge(claim, cells, budget))
    return SuiteResult(
        verdicts=verdicts,
        results={
            "error_budget": {"alpha": budget.alpha, "tests": budget.tests},
            "cells": [_row(cell) for cell in cells],
            "networks": [record.result | {"seed": record.seed, "key": record.key} for record in networks],
            "trends": width_trend([record.result for record in networks], study.sites),
        },
    )


def _row(cell: Cell) -> dict[str, Any]:
    """One cell as the report shows it, with both bounds beside the truth."""
    letters = {"M": cell.M, "K": cell.K}
    return {
        "evidence": cell.evidence.value,
        "subject": cell.subject,
        "family": cell.family,
        "dim": cell.dim,
        "M": cell.M,
        "K": cell.K,
        "n_eff": float(registry.find("alignment.n_eff").numeric()(**letters)),
        "p": float(cell.observed),
        "trials": cell.trials or None,
        "misaligned": cell.misaligned if cell.trials else None,
        "p_interval": clopper_pearson(cell.misaligned, cell.trials) if cell.trials else None,
        "engine": cell.engine,
        "b_exact": float(cell.value(registry.find(B_EXACT))),
        "b_align": float(cell.value(registry.find(B_ALIGN))),
    }
