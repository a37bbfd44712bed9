"""What can be checked: a quantity, how a bound on it is decided and searched, and how a counterexample is confirmed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...theory.claims import Claim, Kind, Quantity

Points = dict[str, NDArray[np.float64]]
"""Values of underived letters by name, all of one length: where an expression is looked at before any search."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How hard to try.

    Attributes:
        seed: Root of every random stream; the same seed gives the same counterexample.
        seconds: Wall time after which no further stage or batch is begun.
        workers: Worker processes.
        sharpen: Go on after a violation, towards the largest ratio of quantity and bound.
        on_progress: Called with (stage, done, total).
    """

    seed: int = 0
    seconds: float = 60.0
    workers: int = 1
    sharpen: bool = False
    on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One situation in which a quantity was compared with its bound.

    Attributes:
        stage: Of the search.
        family: Group for pictures and tables.
        subject: The situation in a line.
        where: JSON-able, enough to compute it again.
        observed: The quantity, or its estimate.
        bound: The expression there.
        exact: Whether ``observed`` has no sampling error.
    """

    stage: str
    family: str
    subject: str
    where: dict[str, Any]
    observed: float
    bound: float
    exact: bool

    def ratio(self, kind: Kind) -> float:
        """How near the bound is: 1 where it is attained, more where it is violated."""
        over, under = (self.bound, self.observed) if kind is Kind.LOWER_BOUND else (self.observed, self.bound)
        if under == 0:
            return 1.0 if over == 0 else math.copysign(math.inf, over)
        return over / under


@dataclass(frozen=True, kw_only=True)
class Counterexample:
    """A case that breaks a bound, shrunk and confirmed.

    Attributes:
        subject: The case in a line.
        where: As of a case; ``Target.confirm(claim, where)`` computes it again.
        observed: The quantity: an exact fraction, a decimal enclosure, or an interval.
        bound: The expression there, likewise.
        confirmed: How: "exact fractions", "interval arithmetic" or "fresh draws".
        confidence: 1 unless it rests on draws.
        table: What a person needs to check it by hand: (what, value) in reading order.
    """

    subject: str
    where: dict[str, Any]
    observed: str
    bound: str
    confirmed: str
    confidence: float = 1.0
    table: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What a search found.

    Attributes:
        counterexample: The confirmed violation, if there is one.
        cases: For the picture: the tightest cases of each family and stage, at most some hundreds.
        tightest: The case with the largest ratio, of all that were tried.
        tried: Stage -> what was tried there, as counts ("laws", "cells", "exact", "draws").
        undecided: Why the search leaves the claim open, in words; empty if everything tried was decided.
        confidence: That every decision is right; 1 if nothing was sampled.
        finished: Whether every stage was run within the time.
        results: Anything else the report shows, JSON-able.
    """

    counterexample: Counterexample | None = None
    cases: tuple[Case, ...] = ()
    tightest: Case | None = None
    tried: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    undecided: tuple[str, ...] = ()
    confidence: float = 1.0
    finished: bool = True
    results: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A bound that is decided without any search.

    Attributes:
        proved: Whether it holds. If not, ``hint`` may say where to look; that is no refutation.
        implication: What was decided, in words and symbols.
        hint: Letters at which the sufficient condition fails, or None.
    """

    proved: bool
    implication: str
    hint: dict[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Target:
    """A quantity that can be checked. A new one is one registration in ``targets.py``.

    Attributes:
        quantity: What a claim speaks about, and the letters it may use.
        kinds: The kinds of claim that the search can break; the first is the default.
        points: Draws letters that some real case has, to look at an expression before the search.
        home: Module, below this package, with the two functions of the search: ``search`` and ``confirm``. It is
            imported when they are first called, for it may need what a glance at an expression does not.
        decide: Tries to prove the claim, or to learn where it could fail; None if it can say nothing.
        spellings: Names in text that mean another letter here, as in {"M": "M_units"}.
        limits: Lowest and highest value that the quantity can have at all; a bound beyond the first is an error, one
            beyond the second everywhere is vacuous.
    """

    quantity: Quantity
    kinds: tuple[Kind, ...]
    points: Callable[[np.random.Generator, int], Points]
    home: str
    decide: Callable[[Claim], Decision | None] | None = None
    spellings: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[float, float] = (-math.inf, math.inf)

    @property
    def name(self) -> str:
        """The quantity's id, as ``--of`` takes it."""
        return self.quantity.id

    def search(self, claim: Claim, effort: Effort, hint: dict[str, float] | None = None) -> Searched:
        """Look for a counterexample, first near the letters of ``hint``."""
        return self._home.search(claim, effort, hint)

    def confirm(self, claim: Claim, where: dict[str, Any]) -> Counterexample | None:
        """Compute a case again; a counterexample if it breaks the claim.

        Raises:
            ValueError: If ``where`` is none that the search of this quantity writes.
        """
        return self._home.confirm(claim, where)

    @property
    def _home(self) -> Any:
        return import_module(f".{self.home}", __package__)
