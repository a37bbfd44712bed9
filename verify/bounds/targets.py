"""Every quantity that can be checked, by the id of ``--of``. A new one registers here; tutorial.md shows how."""

import difflib
import functools
import math

from ...theory.alignment import MISALIGNMENT
from ...theory.claims import Kind
from ...theory.consistency import CROSS_GRADIENT_ERROR
from ...theory.expansion import NO_DECREASE
from . import domain, proving, resnet_error, spectrum_growth
from .target import Target


@functools.cache
def targets() -> dict[str, Target]:
    """Return the registered targets by name."""
    registered = (
        Target(
            quantity=MISALIGNMENT,
            kinds=(Kind.UPPER_BOUND, Kind.LOWER_BOUND, Kind.IDENTITY),
            points=domain.moment_points,
            home="misalignment",
            decide=proving.decide,
            limits=(0.0, 1.0),
        ),
        Target(
            quantity=NO_DECREASE,
            kinds=(Kind.UPPER_BOUND, Kind.LOWER_BOUND),
            points=domain.step_points,
            home="no_decrease",
            decide=proving.decide,
            limits=(0.0, 1.0),
        ),
        Target(
            quantity=CROSS_GRADIENT_ERROR,
            kinds=(Kind.UPPER_BOUND,),
            points=domain.deviation_points,
            home="cross_gradient",
            decide=proving.decide_deviation,
            spellings={"n": "n_samples", "B": "B_norm"},
            limits=(0.0, math.inf),
        ),
        *spectrum_growth.TARGETS,
        resnet_error.TARGET,
    )
    return {target.name: target for target in registered}


def find(name: str) -> Target:
    """Return the target of a quantity.

    Raises:
        ValueError: If there is none; the message names the nearest.
    """
    known = targets()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}?" if near else f"expected one of {', '.join(known)}."
        raise ValueError(f"no quantity {name!r} can be checked; {hint} `rescert check --list` explains them.")
    return known[name]
