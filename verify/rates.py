"""The hidden-width suite: error laws, exponents and scales held against trained networks and their limits."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sympy
from sympy import Expr, Symbol

from ..sim.records import Job
from ..sim.rng import generator
from ..sim.sweep import run_jobs
from ..theory import registry
from ..theory.claims import Claim, Kind
from ..theory.rates import FIXED_D
from ..theory.shapes import best_shape, bound
from ..theory.symbols import TABLE
from .checks import prove
from .decisions import Check, ErrorBudget, Evidence, Status, Verdict, conclude
from .fits import Estimate, judge_exponent
from .observations import SHAPE
from .rate_frame import Exponent, Findings, Frame, Outcome
from .rate_presets import PRESETS, Preset
from .rate_studies import STUDIES
from .rate_surfaces import against_rivals
from .suites import Context, SuiteResult
from .surfaces import Model, Term

COLUMNS = dict(zip(("L", "M_units", "D", "alpha"), SHAPE, strict=True))
MEASURED_KINDS = (Kind.RATE, Kind.EQUIVALENCE)
BUDGETS = tuple(10**n for n in range(6, 11))

# What bears on each term of a law: its constant, a letter, and the exponent measured of it.
PROBES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "output_error": (
        ("c_bias", "L", "bias"),
        ("c_noise", "L", "variance_depth"),
        ("c_noise", "M_units", "variance_width"),
        ("c_noise", "D", "dimension"),
        ("c_noise", "L", "single_unit"),
        ("c_bias", "L", "surface_bias"),
        ("c_noise", "L", "surface_depth"),
        ("c_noise", "M_units", "surface_width"),
    ),
    "tangent_error": (
        ("c_lazy", "alpha", "lazy"),
        ("c_bias", "L", "lazy_bias"),
        ("c_noise", "alpha", "lazy_scale"),
        ("c_noise", "L", "lazy_depth"),
        ("c_noise", "M_units", "lazy_width"),
    ),
    "state_error": (
        ("c_bias", "L", "embedded_bias"),
        ("c_noise", "L", "embedded_depth"),
        ("c_noise", "M_units", "embedded_width"),
        ("c_noise", "D", "embedded_fluctuation"),
        ("c_embed", "D", "embedded_dimension"),
    ),
    "critical_residual_scale": (
        ("", "L", "critical_depth"),
        ("", "M_units", "critical_width"),
        ("", "D", "critical_dimension"),
    ),
}
# The study that measures an exponent; phase bears on no claim and is drawn.
MEASURED_BY = {
    "noiseless": ("bias", "lazy_bias"),
    "lazy": ("lazy", "lazy_symmetric"),
    "chaos": ("chaos",),
    "critical": ("critical_depth", "critical_width", "critical_dimension"),
    "embedded": (
        "embedded_bias",
        "embedded_depth",
        "embedded_width",
        "embedded_fluctuation",
        "embedded_dimension",
    ),
    "dimension": ("dimension",),
    "lazy_grid": ("lazy_scale", "lazy_depth", "lazy_width"),
    "surface": (
        "variance_depth",
        "variance_width",
        "single_unit",
        "surface_bias",
        "surface_depth",
        "surface_width",
    ),
}

# From a claim to the exponents it asserts


def terms(expression: Expr) -> dict[str, Expr]:
    """Split a law into its terms by their constants c; "" holds a term without one."""
    found = {}
    for term in sympy.Add.make_args(sympy.expand(expression)):
        constants = [str(x) for x in term.free_symbols if str(x).startswith("c_")]
        found[constants[0] if constants else ""] = term
    return found


def power(term: Expr, letter: str) -> float:
    """Return the exponent of a letter in a monomial.

    Raises:
        ValueError: If the term is no monomial in that letter.
    """
    x: Symbol = TABLE[letter].symbol
    found = sympy.simplify(x * sympy.diff(sympy.log(term), x))
    if not found.is_number:
        raise ValueError(f"power: {term} is no power of {letter}; a law is a sum of monomials.")
    return float(found)


def probed(claim: Claim) -> list[tuple[str, float | None]]:
    """List the exponents that bear on a claim with the values it asserts, None where it has no such term."""
    if claim.expression.is_number:
        return [(claim.quantity.id.removesuffix("_exponent"), float(claim.expression))]
    found = terms(claim.expression)
    fixed_D = any(FIXED_D in assumption for assumption in claim.assumptions)
    return [
        (key, power(found[constant], letter) if constant in found else None)
        for constant, letter, key in PROBES.get(claim.quantity.id, ())
        if not (letter == "D" and fixed_D)
    ]


def unmeasured(claim: Claim) -> str:
    """Say what of a claim no measurement bears on; empty if nothing is left out.

    A law is measured letter by letter in each of its terms: a term, or a letter in one, that no study varies would
    otherwise be supported by silence.
    """
    wanted = Kind.EQUIVALENCE if claim.quantity.id == "critical_residual_scale" else Kind.RATE
    if claim.kind is not wanted:
        return f"a claim of kind {claim.kind} on this quantity is not measured, only {wanted}"
    if claim.expression.is_number:
        return ""
    probes = {(constant, letter) for constant, letter, _ in PROBES.get(claim.quantity.id, ())}
    seen: set[str] = set()
    for term in sympy.Add.make_args(sympy.expand(claim.expression)):
        constants = [str(x) for x in term.free_symbols if str(x).startswith("c_")] or [""]
        constant = constants[0]
        if len(constants) > 1 or constant in seen or constant not in {known for known, _ in probes}:
            return f"no measurement bears on the term {term}"
        seen.add(constant)
        for letter in COLUMNS:
            if (constant, letter) not in probes and power(term, letter) != 0:
                return f"no measurement bears on {letter} in the term {term}"
    return ""


def surface(claim: Claim) -> Model:
    """Return a law as a model to fit."""
    return Model(
        name=claim.id,
        terms=tuple(
            Term(constant, {column: power(term, letter) for letter, column in COLUMNS.items()})
            for constant, term in terms(claim.expression).items()
        ),
    )


# Judging


def judge(exponent: Exponent, expected: float, tolerance: float) -> Status:
    """Judge a measured exponent by its interval; of an upper bound only the slow side can refute."""
    status = judge_exponent(exponent.estimate, expected, tolerance)
    if not exponent.one_sided or exponent.estimate.interval is None or exponent.estimate.diverged:
        return status
    low, high = exponent.estimate.interval
    if high <= expected + tolerance:
        return Status.SUPPORTED
    return Status.REFUTED if low > expected + tolerance else Status.INCONCLUSIVE


def check_exponent(claim: Claim, exponent: Exponent, expected: float | None, tolerance: float) -> Check:
    """Hold one exponent of a claim against one measurement."""
    estimate = exponent.estimate
    if expected is None:
        status, detail = Status.REFUTED, "measured, but the claim has no such term"
    else:
        status, detail = judge(exponent, expected, tolerance), _spell(estimate, tolerance)
    return Check(
        claim=claim.id,
        evidence=exponent.evidence,
        status=status,
        subject=f"{exponent.what}{'' if exponent.k is None else f', k = {exponent.k}'}; {exponent.window}",
        observed=estimate.value,
        expected=expected,
        detail=detail,
        where={"exponent": exponent.key, "k": exponent.k, "window": exponent.window, "tolerance": tolerance},
    )


def _spell(estimate: Estimate, tolerance: float) -> str:
    if estimate.interval is None:
        return estimate.reason
    low, high = estimate.interval
    allowed = f", tolerance {tolerance:g}" if tolerance else ""
    lost = f", {estimate.diverged} runs diverged" if estimate.diverged else ""
    return f"interval [{low:.4f}, {high:.4f}]{allowed}{lost}"


def check_surface(claim: Claim, findings: Findings, frame: Frame) -> list[Check]:
    """Hold the form of a claimed error surface against the forms that the theory excludes."""
    checks = []
    for k, observations in findings.surfaces.items():
        difference, rival = against_rivals(observations, surface(claim), frame)
        checks.append(
            Check(
                claim=claim.id,
                evidence=Evidence.SIMULATION,
                status=_by_sign(difference),
                subject=f"form of the error surface, k = {k}",
                observed=difference.value,
                expected=0.0,
                detail=f"AIC above that of the best rival, {rival}; {_spell(difference, 0.0)}",
                where={"k": k, "rival": rival},
            )
        )
    return checks


def _by_sign(difference: Estimate) -> Status:
    """The claimed law must fit better than every law that the theory excludes: a difference clear of 0 decides."""
    if difference.interval is None or difference.diverged:
        return Status.INCONCLUSIVE
    low, high = difference.interval
    return Status.REFUTED if low > 0 else Status.SUPPORTED if high < 0 else Status.INCONCLUSIVE


def check_best_shape(claim: Claim, tolerance: float) -> Check:
    """Hold the claimed exponent against the exact minimum over all shapes at growing budgets."""
    values = [bound(best_shape(budget)) for budget in BUDGETS]
    local = np.diff(np.log(values)) / np.diff(np.log(BUDGETS))
    estimate = Estimate(name="slope", value=float(local.mean()), interval=(float(local.min()), float(local.max())))
    exponent = Exponent(
        key="best_shape",
        what="exponent of P in the least bound",
        k=None,
        window=f"P = {BUDGETS[0]:.0e} to {BUDGETS[-1]:.0e}",
        estimate=estimate,
        evidence=Evidence.EXACT,
    )
    return check_exponent(claim, exponent, float(claim.expression), tolerance)


# The suite


def run(context: Context, claims: Sequence[Claim] | None = None, preset: Preset | None = None) -> SuiteResult:
    """Judge the claims ``rates.*``.

    Every interval that decides has its share of one error budget (Bonferroni over the judged exponents); tolerances
    are those of the preset. Proofs count as in every suite: a measurement can refute a proved claim, not weaken it.

    Args:
        context: The run.
        claims: What to judge instead of the registered claims; only the studies that bear on them are run.
        preset: What to run instead of the preset that the context names.

    Returns:
        Verdicts, and the tables behind them.

    Raises:
        ValueError: If a grid cannot tell the exponents apart that it is to measure.
    """
    preset = preset or with_limit_error(context.preset, context.limit_error)
    chosen = list(claims or registry.claims("rates."))
    wanted = {key for claim in chosen for key, _ in probed(claim)}
    names = [name for name in STUDIES if wanted & {*MEASURED_BY.get(name, ())} or (name == "phase" and claims is None)]
    # One decision an exponent, and one on the form of the surface.
    decisions = 1 + sum(map(len, MEASURED_BY.values()))
    budget = ErrorBudget(alpha=preset.alpha, tests=len(preset.data_seeds) * decisions)
    frames = [
        Frame(
            preset=preset,
            data_seed=data_seed,
            seed=context.seed,
            level=1 - budget.per_test,
            random=functools.partial(generator, context.seed, "rates", data_seed),
        )
        for data_seed in preset.data_seeds
    ]
    proofs = {}
    for number, claim in enumerate(chosen):
        proofs[claim.id] = prove(claim)
        context.on_progress("proofs", number + 1, len(chosen))
    found = [dict(zip(names, _measure(context, frame, names), strict=True)) for frame in frames]
    measured = [
        exponent
        if len(frames) == 1
        else dataclasses.replace(exponent, window=f"{exponent.window}; data {frame.data_seed}")
        for frame, studies in zip(frames, found, strict=True)
        for study in studies.values()
        for exponent in study.exponents
    ]
    verdicts: list[Verdict] = []
    rows: list[dict[str, Any]] = []
    for claim in chosen:
        checks = list(proofs[claim.id])
        if gap := unmeasured(claim):
            checks.append(_undecided(claim, gap))
        for key, expected in probed(claim) if claim.kind in MEASURED_KINDS else ():
            for exponent in (e for e in measured if e.key == key):
                check = check_exponent(claim, exponent, expected, preset.tolerances[key])
                rows.append(_row(check, exponent, preset.tolerances[key]))
                if exponent.judged:
                    checks.append(check)
        if claim.quantity.id == "output_error" and claim.kind in MEASURED_KINDS:
            for frame, studies in zip(frames, found, strict=True):
                checks += check_surface(claim, studies["surface"], frame)
        if claim.quantity.id == "best_shape_exponent":
            checks.append(check_best_shape(claim, preset.tolerances["best_shape"]))
        verdicts.append(conclude(claim.id, checks, budget, bound=False))
        context.on_verdict(verdicts[-1])
    tables: dict[str, list] = {name: [] for name in TABLES}
    for study in found[0].values():
        for name, table in study.tables.items():
            tables[name] += table
    return SuiteResult(
        verdicts=verdicts,
        results={
            **tables,
            "exponents": rows,
            "level": budget.confidence,
            "error_budget": {"alpha": budget.alpha, "tests": budget.tests},
            "data_seed": preset.data_seeds[0],
        },
    )


TABLES = ("limits", "cells", "fits", "noiseless", "lazy", "chaos", "phase", "breakdown", "training")


def _measure(context: Context, frame: Frame, names: Sequence[str]) -> Iterator[Findings]:
    jobs: dict[str, list[Job]] = {name: STUDIES[name].jobs(frame) for name in names}
    records = iter(
        run_jobs(
            list(itertools.chain.from_iterable(jobs.values())),
            context.run.store,
            workers=context.workers,
            cluster=context.cluster,
            executor=context.executor,
            on_progress=lambda done, total, label: context.on_progress(f"data {frame.data_seed}", done, total),
        )
    )
    for name in names:
        outcomes = [
            Outcome(record=record, arrays=context.run.store.arrays(record.key))
            for record in itertools.islice(records, len(jobs[name]))
        ]
        yield STUDIES[name].findings(frame, outcomes)


def _undecided(claim: Claim, reason: str) -> Check:
    return Check(
        claim=claim.id, evidence=Evidence.SIMULATION, status=Status.INCONCLUSIVE, subject="measurements", detail=reason
    )


def _row(check: Check, exponent: Exponent, tolerance: float) -> dict[str, Any]:
    """One exponent beside the theory's, as the report shows it; status None where it is not judged."""
    reason = exponent.estimate.reason
    low, high = exponent.estimate.interval or (-math.inf, math.inf)
    inside = check.expected is None or low <= check.expected <= high
    if exponent.judged and check.status is Status.SUPPORTED and not (inside or exponent.one_sided):
        beyond = "off the theory's value by more than its scatter, by less than the tolerance"
        reason = f"{reason}; {beyond}" if reason else beyond
    if not exponent.judged:
        reason = f"reported, not judged{': ' if reason else ''}{reason}"
    return {
        "claim": check.claim,
        "what": exponent.what,
        "k": exponent.k,
        "window": exponent.window,
        "estimate": exponent.estimate.value,
        "interval": exponent.estimate.interval,
        "theory": check.expected,
        "tolerance": tolerance,
        "status": check.status.value if exponent.judged else None,
        "reason": reason,
    }


def with_limit_error(preset: str, target_error: float | None) -> Preset:
    """Return a preset with another target error of the limit, for ``rescert rates --limit-error``."""
    chosen = PRESETS[preset]
    if target_error is None:
        return chosen
    if not 0 < target_error < math.inf:
        raise ValueError(f"limit error must be positive and finite, got {target_error}.")
    return dataclasses.replace(chosen, limit=dataclasses.replace(chosen.limit, target_error=target_error))
