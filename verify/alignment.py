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
from ..theory.claims import Claim, Kind
from .alignment_presets import EXTREMAL, PRESETS, NetworkStudy, Preset
from .checks import Cell, judge, prove
from .decisions import Check, ErrorBudget, Evidence, Status, Verdict, clopper_pearson, conclude
from .networks import width_trend
from .suites import Context, SuiteResult

IDENTITY_SIZES, IDENTITY_DIM = (16, 24), 16
B_EXACT, B_ALIGN = "alignment.cantelli", "alignment.certificate"
MOMENTS = ("alignment_mean", "alignment_variance")

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
            draws=self.draws,
        )


def simulate_until_decided(
    pending: Sequence[Simulated],
    rounds: Sequence[int],
    undecided: Callable[[Cell], bool],
    context: Context,
    stage: str,
) -> list[Cell]:
    """Draw in rounds; a cell stops as soon as nothing about it is undecided."""
    still_open = list(pending)
    for number, trials in enumerate(rounds):
        jobs = [cell.job(trials, number, context.seed) for cell in still_open]
        for cell, record in zip(still_open, _run(jobs, context, f"{stage}, round {number + 1}"), strict=True):
            cell.add(record)
        still_open = [cell for cell in still_open if undecided(cell.cell)]
        if not still_open:
            break
    return [cell.cell for cell in pending]


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
    identities = [claim for claim in chosen if claim.quantity.id in MOMENTS]
    populations = continuous(preset, gaussian=False) if bounds else []
    simulated = [Simulated(population, M, K) for population in populations for M, K in preset.sizes]
    study = preset.networks
    trained_cells = len(study.widths) * study.seeds * len(study.sites) * len(study.grid)
    moments = [Simulated(population, *IDENTITY_SIZES) for population in identity_populations() if identities]
    # The e-processes may be looked at after every round; the intervals of mean and variance pay for each look.
    looks_at_moments = len(identities) * len(moments) * len(preset.identity_rounds)
    budget = ErrorBudget(tests=max(1, len(bounds) * (len(simulated) + trained_cells) + looks_at_moments))

    def undecided(claims: Sequence[Claim], cell: Cell) -> bool:
        checks = (check for claim in claims for check in judge(claim, [cell], budget))
        return any(check.status is Status.INCONCLUSIVE for check in checks)

    verdicts: list[Verdict] = []

    def settle(claim: Claim, checks: list[Check]) -> None:
        verdict = conclude(claim.id, checks, budget, bound=claim.kind is Kind.UPPER_BOUND)
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
    looks = simulate_until_decided(
        moments, preset.identity_rounds, functools.partial(undecided, identities), context, "mean and variance"
    )
    for claim in chosen:
        if claim not in bounds:
            settle(claim, proofs[claim.id] + judge(claim, cells + looks, budget))
    cells += simulate_until_decided(
        simulated, preset.rounds, functools.partial(undecided, bounds), context, "misalignment"
    )
    networks = _run(network_jobs(study, context), context, "trained networks")
    cells += [cell for record in networks for cell in network_cells(record)]
    for claim in bounds:
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
        "population": cell.spec,
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
