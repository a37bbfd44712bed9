"""What is asked: bounds from text, from a Python file or from a stored counterexample, each looked at first.

Nothing heavy is imported here: a bound that cannot be read is an error at once.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...sim.rng import generator
from ...theory.claims import Claim, Kind
from . import statement, targets
from .domain import examine
from .target import Target

POINTS = 512


def bound(text: str, of: str = "misalignment", kind: str | Kind | None = None, *, id: str = "yours") -> Claim:
    """Read a bound on the quantity ``of`` from text."""
    target = targets.find(of)
    return statement.bound(text, quantity=target.quantity, spellings=target.spellings, kind=_kind(target, kind), id=id)


def _kind(target: Target, kind: str | Kind | None) -> Kind:
    if kind is None:
        return target.kinds[0]
    if kind not in target.kinds:
        known = ", ".join(target.kinds)
        raise ValueError(f"--kind {kind}: a claim on {target.name} can be of kind {known}.")
    return Kind(kind)


def look(claim: Claim, seed: int = 0) -> tuple[str, ...]:
    """Look at a claim at some hundred points, before anything is spent on it.

    Returns:
        Remarks.

    Raises:
        ValueError: If it can be no bound on its quantity.
    """
    target = targets.find(claim.quantity.id)
    _kind(target, claim.kind)
    return examine(claim, target.points(generator(seed, "points"), POINTS), target.limits)


def stated(options: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Read the bounds that a run is about, and look at them: from text, a Python file, or a stored counterexample.

    Raises:
        ValueError: If they cannot be read or be no bounds; OSError if a file cannot be read.
    """
    if options["replay"] is not None:
        return (stored(Path(options["replay"]))[0],)
    text = options["bound"]
    if text.endswith(".py"):
        claims = statement.load(Path(text))
    else:
        claims = (bound(text, options["of"], options["kind"]),)
    for claim in claims:
        look(claim, options["seed"])
    return claims


def stored(source: Path) -> tuple[Claim, dict[str, Any]]:
    """Read a stored counterexample: the claim that it broke, and the case.

    Raises:
        ValueError: If the file holds none; OSError if it cannot be read.
    """
    where = f"--replay {source}"
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{where}: not valid JSON ({error}).") from error
    if not isinstance(content, dict) or content.get("format") != 1:
        raise ValueError(f"{where}: expected a counterexample.json of `rescert check`, format 1.")
    quantities = {name: target.quantity for name, target in targets.targets().items()}
    try:
        return statement.from_json(content["claim"], quantities), dict(content["counterexample"]["where"])
    except (KeyError, TypeError):
        raise ValueError(f"{where}: the document lacks its claim or its counterexample.") from None
