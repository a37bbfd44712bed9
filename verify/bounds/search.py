"""The search for a law that breaks a bound on the misalignment, in stages from the exact and extremal to the sampled.

Units of work are of fixed size and come in a fixed order; the first one in that order that finds a violation wins. So
the result depends on neither the number of workers nor their speed: time only cuts the tail off.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, TimeoutError
from functools import partial
from typing import Any

from ...sim.sweep import _processes
from ...theory.claims import Claim, Kind
from . import laws, stages, tightness
from .continuous import ALPHA
from .counterexample import confirm
from .enclosure import with_fractions
from .laws import Size
from .screen import screen_of
from .stages import Unit
from .tally import Role, Tally
from .target import Case, Counterexample, Effort, Searched

SHOWN_CASES = 400
EXAMPLES, STEPS, MOVES = 150, 8, 400
REFINED_SIZES, STARTS = 40, 6
# Share of the time after which no unit of a stage is begun, so that every stage has its turn.
SHARE = {"random laws": 0.5, "refined laws": 0.8, "Gaussian laws": 0.9, "sampled laws": 1.0}
# A worker that is in the middle of a unit when the time is up may finish it.
GRACE = 2.0
# Seconds in which workers are born; with less than that left nothing is begun.
BIRTH = 3.0


def search(claim: Claim, effort: Effort, hint: Mapping[str, float] | None = None) -> Searched:
    """Look for a law of q, with M and K, that breaks a bound on P(X <= 0) or a formula for it.

    Args:
        claim: Upper bound, lower bound or identity on the misalignment.
        effort: Seed, time, workers, and whether to go on after a violation.
        hint: Letters near which to look first, as from z3.

    Raises:
        ValueError: If the claim is of another kind or another quantity.
    """
    if claim.kind not in (Kind.UPPER_BOUND, Kind.LOWER_BOUND, Kind.IDENTITY) or claim.quantity.id != "misalignment":
        raise ValueError(
            f"search: claim {claim.id} is a {claim.kind} of {claim.quantity.id}; "
            "expected an upper bound, a lower bound or an identity of misalignment."
        )
    return _Search(with_fractions(claim), effort, hint).run()


class _Search:
    def __init__(self, claim: Claim, effort: Effort, hint: Mapping[str, float] | None) -> None:
        self.claim, self.effort, self.hint = claim, effort, hint
        self.began = time.monotonic()
        self.tallies: dict[str, Tally] = {}
        self.found: Counterexample | None = None
        self.finished = True

    def run(self) -> Searched:
        """Run the stages until one finds a violation, or all of them to sharpen."""
        self.here()
        for stage, units in (
            ("random laws", self.random),
            ("refined laws", self.refined),
            ("Gaussian laws", self.gaussian),
            ("sampled laws", self.sampled),
        ):
            if self.over:
                break
            self.stage(stage, units())
        return self.result()

    @property
    def over(self) -> bool:
        """Whether a violation was found that is enough."""
        return self.found is not None and not self.effort.sharpen

    def add(self, tally: Tally) -> None:
        """Take in what a unit found."""
        self.tallies.setdefault(tally.stage, Tally(stage=tally.stage)).add(tally)

    def confirm(self, tally: Tally) -> None:
        """Turn a unit's violation into the counterexample, unless there is one."""
        if self.found is not None or tally.violation is None:
            return
        self.found = confirm(self.claim, tally.violation, simplify=True)
        if self.found is None:
            self.tallies[tally.stage].undecided.append(f"a violation was seen but not confirmed: {tally.violation}")

    # Stages

    def here(self) -> None:
        """Run what is quick in this process: the laws of the hint, and the extremal ones at every size.

        All of it is run all the same when a violation turns up, for the picture, and for the smallest M + K.
        """
        screen = screen_of(self.claim)
        units: list[Callable[[], Tally]] = []
        if self.hint:
            units += [partial(stages.near_hint, screen, self.hint, size) for size in laws.near(self.hint)]
        units += [partial(stages.extremal_laws, screen, size) for size in laws.sizes(self.claim, self.hint)]
        broken: list[Tally] = []
        for done, unit in enumerate(units):
            self.effort.on_progress("extremal laws", done, len(units))
            if self.late(1.0):
                self.finished = False
                break
            tally = unit()
            self.add(tally)
            broken += [tally] if tally.violation else []
        for tally in sorted(broken, key=_samples):
            self.confirm(tally)
        self.effort.on_progress("extremal laws", len(units), len(units))

    def random(self) -> list[Unit]:
        """Units of random laws."""
        return [("random laws", {"index": i, "examples": EXAMPLES}) for i in range(self.scaled(16))]

    def refined(self) -> list[Unit]:
        """Units that improve the best laws so far."""
        finite = [case for case in self.ranked("near") if case.where["population"]["name"] == "finite"]
        units: list[Unit] = []
        sizes: dict[Size, list[dict[str, Any]]] = {}
        for case in finite:
            spec = case.where["population"]
            if len(spec["atoms"]) == 2:
                for size in _neighbours(case.where["M"], case.where["K"]):
                    starts = sizes.setdefault(size, [])
                    if len(starts) < STARTS:
                        starts.append({"atoms": spec["atoms"], "weights": spec["weights"]})
        chosen = list(sizes.items())[: self.scaled(REFINED_SIZES)]
        units += [("refined pairs", {"starts": starts, "size": size, "rounds": STEPS}) for size, starts in chosen]
        starts = [case.where for case in finite if _climbable(case.where)][: self.scaled(12)]
        units += [("climbed", {"index": i, "start": where, "steps": MOVES}) for i, where in enumerate(starts)]
        return units

    def gaussian(self) -> list[Unit]:
        """Units of Gaussian laws."""
        return [("Gaussian laws", {"places": chunk}) for chunk in _chunks(laws.gaussian(), 8)]

    def sampled(self) -> list[Unit]:
        """Units of laws that only draws can judge, and of pools."""
        if self.claim.kind is Kind.IDENTITY:
            return []
        places = [*laws.heavy(), *laws.pools(self.effort.seed)]
        return [("sampled laws", {"places": chunk, "tests": len(places)}) for chunk in _chunks(places, 20)]

    # Machinery

    def stage(self, stage: str, units: Sequence[Unit]) -> None:
        """Run the units of a stage on worker processes, settled in their order."""
        self.effort.on_progress(stage, 0, len(units))
        done = 0
        for tally in self.in_order(units, SHARE[stage]):
            done += 1
            self.effort.on_progress(stage, done, len(units))
            self.add(tally)
            self.confirm(tally)
            if self.over:
                return
        self.finished &= done == len(units)

    def in_order(self, units: Sequence[Unit], share: float) -> Iterator[Tally]:
        """Yield what the units found, in their order; none is begun after its share of the time."""
        if self.left(share) < BIRTH or not units:
            return
        with _processes(self.effort.workers) as pool:
            waiting, flying = deque(units), deque[Future[Tally]]()
            try:
                while waiting or flying:
                    while waiting and len(flying) < 2 * self.effort.workers and not self.late(share):
                        flying.append(pool.submit(stages.run, self.claim, self.effort.seed, waiting.popleft()))
                    if not flying:
                        return
                    try:
                        yield flying[0].result(timeout=max(0.0, self.left(share)) + GRACE)
                    except TimeoutError:
                        return
                    flying.popleft()
            finally:
                for future in flying:
                    future.cancel()

    def left(self, share: float) -> float:
        """Seconds until a share of the time is over."""
        return self.began + share * self.effort.seconds - time.monotonic()

    def late(self, share: float) -> bool:
        """Whether it is over."""
        return self.left(share) <= 0

    def scaled(self, units: int) -> int:
        """So many units in a minute."""
        return max(1, round(units * self.effort.seconds / 60))

    # The result

    def ranked(self, role: Role) -> list[Case]:
        """The cases of a role, highest score first and of equal ones the simplest."""
        kept = [
            (-round(score, 9), case.where["M"] + case.where["K"], len(case.subject), place, case)
            for place, (score, case) in enumerate(kept for tally in self.tallies.values() for kept in tally.best(role))
        ]
        return [case for *_, case in sorted(kept, key=lambda entry: entry[:-1])]

    def shown(self, tightest: Sequence[Case]) -> tuple[Case, ...]:
        """For the picture: the tightest of all, the nearest of each family and size, the loosest of each family."""
        loose = {(case.stage, case.family): case for case in reversed(self.ranked("loose"))}
        first = [*tightest[:1], *(case for case in self.ranked("near") if case not in tightest[:1])]
        return (*first[: SHOWN_CASES - len(loose)], *loose.values())

    def result(self) -> Searched:
        """Put together what the stages found."""
        undecided = [reason for tally in self.tallies.values() for reason in tally.undecided]
        count = sum(tally.undefined[0] for tally in self.tallies.values())
        if count:
            first = next(tally.undefined[1] for tally in self.tallies.values() if tally.undefined[0])
            undecided.append(f"the expression is no finite real number in {count} cases, the first of them {first}")
        tightest = [tightness.polished(self.claim, case) for case in self.ranked("tightest")]
        sampled = any(tally.counts["draws"] for tally in self.tallies.values())
        return Searched(
            counterexample=self.found,
            cases=self.shown(tightest),
            tightest=tightest[0] if tightest else None,
            tried={name: dict(tally.counts) for name, tally in self.tallies.items() if tally.counts},
            undecided=tuple(undecided),
            confidence=1 - ALPHA if sampled else 1.0,
            finished=self.finished,
            results={"sharpen": tightness.constant(self.claim, tightest)} if self.effort.sharpen else {},
        )


def _samples(tally: Tally) -> int:
    assert tally.violation is not None
    return tally.violation["M"] + tally.violation["K"]


def _neighbours(M: int, K: int) -> Iterator[Size]:
    steps = ((0, 0), (1, 1), (-1, -1), (1, 0), (0, 1))
    yield from ((M + d, K + e) for d, e in steps if min(M + d, K + e) >= 1)


def _climbable(where: Mapping[str, Any]) -> bool:
    return laws.affordable(max(3, len(where["population"]["atoms"])), where["M"], where["K"])


def _chunks(items: Sequence[Any], count: int) -> list[Sequence[Any]]:
    """Deal items out, so that dear ones are spread."""
    return [items[i::count] for i in range(count) if items[i::count]]
