"""From a claim to a verdict: look at the bound, decide it if possible, search for a counterexample."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...sim.records import Run, versions
from ...theory.claims import Claim, Kind
from ...theory.symbols import TABLE, latex
from .. import document
from ..decisions import Evidence, Status, Verdict
from . import proving, statement, targets
from .ask import bound, look, stated, stored
from .target import Case, Counterexample, Decision, Effort, Searched

# A proved bound is held against numbers all the same, for its tightness and against a mistake of ours.
GLANCE = 5.0
NO_PROOF = "not refuted by anything tried; this is no proof"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    """What became of one bound.

    Attributes:
        claim: As it was judged.
        verdict: With what was tried and the tightest case.
        decision: What could be decided without a search, or None.
        searched: What the search found.
        remarks: What the eye caught before the search, as in a bound whose units do not cancel.
    """

    claim: Claim
    verdict: Verdict
    decision: Decision | None
    searched: Searched
    remarks: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Everything a report shows, JSON-able."""
        claim, searched = self.claim, self.searched
        return {
            "claim": claim.id,
            "quantity": claim.quantity.id,
            "meaning": claim.quantity.meaning,
            "kind": claim.kind.value,
            "formula": str(claim.expression),
            "formula_latex": latex(claim.expression),
            "quantity_latex": claim.quantity.latex,
            "letters": {str(x): TABLE[str(x)].meaning for x in sorted(claim.expression.free_symbols, key=str)},
            "decision": None if self.decision is None else dataclasses.asdict(self.decision),
            "remarks": list(self.remarks),
            "tried": {stage: dict(counts) for stage, counts in searched.tried.items()},
            "finished": searched.finished,
            "undecided": list(searched.undecided),
            "cases": [_case(case, claim.kind) for case in searched.cases],
            "tightest": None if searched.tightest is None else _case(searched.tightest, claim.kind),
            "counterexample": None if searched.counterexample is None else dataclasses.asdict(searched.counterexample),
            **searched.results,
        }


def check(
    claim: str | Claim,
    *,
    of: str = "misalignment",
    kind: str | Kind | None = None,
    seconds: float = 60.0,
    seed: int = 0,
    workers: int | None = None,
    sharpen: bool = False,
    on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Checked:
    """Check a bound of your own.

    Args:
        claim: Text in the letters of the quantity, or a claim.
        of: The quantity that a text speaks about; a claim brings its own.
        kind: Of a text; default is the quantity's first.
        seconds: Wall time for the search.
        seed: Root of every random stream.
        workers: Processes (default: one a core).
        sharpen: Look for the smallest constant c for which c times the bound is not refuted.
        on_progress: Called with (stage, done, total).

    Returns:
        The verdict, with the counterexample if there is one.

    Raises:
        ValueError: If the bound cannot be read, has no sound value somewhere, or says nothing.
    """
    effort = Effort(
        seed=seed,
        seconds=seconds,
        workers=workers or os.cpu_count() or 1,
        sharpen=sharpen,
        on_progress=on_progress,
    )
    return judge(bound(claim, of, kind) if isinstance(claim, str) else claim, effort)


def judge(claim: Claim, effort: Effort) -> Checked:
    """Look at a claim, decide it or search, and conclude; arguments, result and errors as in :func:`check`."""
    target = targets.find(claim.quantity.id)
    remarks = look(claim, effort.seed)
    if target.decide and not proving.available():
        remarks += ("z3 is not installed, so that nothing was decided before the search: pip install 'rescert[check]'",)
    effort.on_progress("deciding", 0, 1)
    decision = target.decide(claim) if target.decide else None
    effort.on_progress("deciding", 1, 1)
    if decision and decision.proved and not effort.sharpen:
        effort = dataclasses.replace(effort, seconds=min(effort.seconds, GLANCE))
    searched = target.search(claim, effort, decision.hint if decision else None)
    return Checked(
        claim=claim,
        verdict=conclude(claim, decision, searched),
        decision=decision,
        searched=searched,
        remarks=remarks,
    )


def conclude(claim: Claim, decision: Decision | None, searched: Searched) -> Verdict:
    """Combine a decision and a search; a confirmed counterexample refutes even a proof: then a person must look."""
    exact = sum(counts.get("exact", 0) for counts in searched.tried.values())
    sampled = sum(counts.get("cells", 0) for counts in searched.tried.values()) - exact
    tried: dict[str, dict[str, int]] = {}
    if decision and decision.proved:
        tried[Evidence.SYMBOLIC.value] = {Status.PROVED.value: 1}
    found = searched.counterexample
    for evidence, count in ((Evidence.EXACT, exact), (Evidence.SIMULATION, sampled)):
        if count > 0:
            tried[evidence.value] = {Status.SUPPORTED.value: count}
    if found is not None:
        # How many more of the cases tried break it was not counted.
        tried = {_evidence(found).value: {Status.REFUTED.value: 1}}
    confidence, note = searched.confidence, ""
    if found is not None:
        status, confidence = Status.REFUTED, found.confidence
    elif decision and decision.proved:
        status, note, confidence = Status.PROVED, decision.implication, 1.0
    elif searched.undecided or not exact + sampled:
        status, note = Status.INCONCLUSIVE, "; ".join(searched.undecided) or "nothing was tried within the time"
    else:
        status = Status.SUPPORTED
        note = NO_PROOF if searched.finished else f"{NO_PROOF}; the time was up before every stage was run"
    tightest = searched.tightest
    ratio = None if tightest is None or claim.kind not in (Kind.UPPER_BOUND, Kind.LOWER_BOUND) else tightest
    return Verdict(
        claim=claim.id,
        status=status,
        evidence=tuple(mode for mode in Evidence if mode.value in tried),
        confidence=confidence,
        tried=tried,
        tightness=None if ratio is None else {"ratio": ratio.ratio(claim.kind), "subject": ratio.subject},
        counterexample=None if found is None else _spelled(found),
        note=note,
    )


def _spelled(found: Counterexample) -> dict[str, Any]:
    return {
        "subject": found.subject,
        "evidence": _evidence(found).value,
        "observed": _float(found.observed),
        "expected": _float(found.bound),
        "detail": f"{found.observed} against {found.bound}, confirmed by {found.confirmed}",
        **found.where,
    }


def _evidence(found: Counterexample) -> Evidence:
    return Evidence.EXACT if found.confidence == 1 else Evidence.SIMULATION


def _float(text: str) -> float | None:
    """A fraction or a decimal as a float; None for anything else, as in an interval."""
    top, _, bottom = text.partition("/")
    try:
        return float(int(top) / int(bottom)) if bottom else float(top)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None


def _case(case: Case, kind: Kind) -> dict[str, Any]:
    return dataclasses.asdict(case) | {"ratio": case.ratio(kind)}


# A run of the command


def run(
    run: Run, *, workers: int = 1, on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None
) -> dict[str, Any]:
    """Check every bound of a run and write the run's document, and each counterexample beside it.

    Args:
        run: With the options of ``rescert check``.
        workers: Processes.
        on_progress: Called with (stage, done, total).

    Returns:
        The document, as ``document.read`` would give it.
    """
    options = run.options
    if options["replay"] is not None:
        claim, where = stored(Path(options["replay"]))
        found = [replayed(claim, where)]
    else:
        effort = Effort(
            seed=options["seed"],
            seconds=options["budget"],
            workers=workers,
            sharpen=options["sharpen"],
            on_progress=on_progress,
        )
        found = [judge(claim, effort) for claim in stated(options)]
    rows = []
    for checked in found:
        name = "counterexample.json" if len(found) == 1 else f"counterexample-{checked.claim.id}.json"
        kept = _keep(checked, run.path / name) if checked.searched.counterexample else None
        rows.append(checked.as_dict() | {"stored": kept})
    built = document.build(
        job=run.job,
        options=options,
        versions=versions(),
        out=run.path,
        verdicts=[checked.verdict for checked in found],
        results={"bounds": rows},
    )
    document.write(built, run.path)
    return built


def _keep(checked: Checked, path: Path) -> str | None:
    """Store a counterexample for a replay; None for an expression that has no spelling in text."""
    try:
        stated = statement.as_json(checked.claim)
    except statement.BoundError:
        return None
    assert checked.searched.counterexample is not None
    content = {"format": 1, "claim": stated, "counterexample": dataclasses.asdict(checked.searched.counterexample)}
    path.write_text(document.dumps(content) + "\n", encoding="utf-8")
    return str(path)


def replayed(claim: Claim, where: dict[str, Any]) -> Checked:
    """Compute a stored counterexample again: REFUTED if it breaks the bound, INCONCLUSIVE if it does not."""
    found = targets.find(claim.quantity.id).confirm(claim, where)
    searched = Searched(
        counterexample=found,
        tried={"replay": {"cells": 1, "exact": int(found is None or found.confidence == 1)}},
        undecided=() if found else ("the stored case does not break the bound",),
    )
    return Checked(claim=claim, verdict=conclude(claim, None, searched), decision=None, searched=searched)
