"""The suites by name, and the one function that runs them into a run folder."""

import difflib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ..sim.records import Run, versions
from . import document
from .decisions import Verdict

PRESETS = ("quick", "paper", "full")

# Cheapest first: verdicts are printed as they come.
SUITES: dict[str, str] = {"alignment": "rescert.verify.alignment", "hidden-width": "rescert.verify.rates"}


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a suite needs to know of its run, and how it reports back.

    Attributes:
        run: The run folder with its store.
        preset: One of ``PRESETS``.
        seed: The root of every random stream.
        workers: Worker processes.
        cluster: Address of a Dask scheduler, or None.
        executor: Any executor to use instead of either.
        device: "auto", "cpu" or "cuda[:i]", for trained networks.
        limit_error: Standard error to reach for the limit of the hidden width; None leaves it to the preset.
        on_progress: Called with (stage, done, total).
        on_verdict: Called with each verdict as it is reached.
    """

    run: Run
    preset: str = "quick"
    seed: int = 0
    workers: int = 1
    cluster: str | None = None
    executor: Executor | None = None
    device: str = "auto"
    limit_error: float | None = None
    on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None
    on_verdict: Callable[[Verdict], None] = lambda verdict: None


@dataclass(frozen=True, kw_only=True)
class SuiteResult:
    """The verdicts of a suite and the figures behind them, JSON-able."""

    verdicts: list[Verdict]
    results: dict[str, Any]


def select(names: Sequence[str]) -> list[str]:
    """Return the suites to run, all of them when none is named, in the order of ``SUITES``.

    Raises:
        ValueError: For an unknown name, with the nearest ones.
    """
    for name in names:
        if name not in SUITES:
            near = difflib.get_close_matches(name, SUITES, n=3, cutoff=0.3) or list(SUITES)
            raise ValueError(f"unknown suite {name!r}; did you mean {', '.join(near)}?")
    return [name for name in SUITES if not names or name in names]


def verify(context: Context, suites: Sequence[str]) -> dict[str, Any]:
    """Run the suites and write the run's document.

    Args:
        context: The run and how to report progress.
        suites: Names from ``SUITES``.

    Returns:
        The document, as ``document.read`` would give it.
    """
    verdicts: list[Verdict] = []
    results: dict[str, Any] = {}
    for name in select(suites):
        result: SuiteResult = import_module(SUITES[name]).run(context)
        verdicts += result.verdicts
        results[name.replace("-", "_")] = result.results
    built = document.build(
        job=context.run.job,
        options=context.run.options,
        versions=versions(),
        out=context.run.path,
        verdicts=verdicts,
        results=results,
    )
    document.write(built, context.run.path)
    return built
