"""Tables of the hidden width: exponents, rival models, the limit and its error, and what diverged."""

from collections.abc import Sequence
from typing import Any

from .figures import Row
from .style import ABSENT, interval, number, plural
from .tables import Table, Words


def distinct(found: Sequence[Row]) -> list[Row]:
    """Return each exponent once, with all claims that it bears on in the same way."""
    claims: dict[tuple[Any, ...], tuple[Row, list[str]]] = {}
    for row in found:
        same = tuple(repr(item) for key, item in row.items() if key != "claim")
        claims.setdefault(same, (row, []))[1].append(row["claim"])
    return [row | {"claim": ", ".join(claim for claim in held if claim)} for row, held in claims.values()]


def exponents(found: Sequence[Row], level: float) -> Table:
    """List every exponent beside the theory's, with its verdict."""
    rows = tuple(
        (
            row["what"],
            row["claim"] or ABSENT,
            row["window"] or ABSENT,
            row["status"] or "reported only",
            number(row["k"]),
            number(row["estimate"], 5),
            interval(*_ends(row), 5),
            _with_tolerance(row),
        )
        for row in distinct(found)
    )
    header = ("what", "claims", "window", "verdict", "k", "estimate", "interval", "theory")
    caption = f"Exponents. The intervals that decide hold all together with a confidence of {percent(level)}."
    return Table(caption=caption, header=header, rows=rows, labels=4)


def percent(level: float) -> str:
    """Spell a confidence, never rounded up to 100 %."""
    return f"{100 * level:.8g} %"


def _ends(row: Row) -> tuple[float | None, float | None]:
    low, high = row["interval"] or (None, None)
    return low, high


def _with_tolerance(row: Row) -> str:
    if row["theory"] is None:
        return ABSENT
    return number(row["theory"], 4) + (f" ± {number(row['tolerance'])}" if row["tolerance"] else "")


def reasons(found: Sequence[Row]) -> list[Words]:
    """Say what exponents lack, or what to beware of, each reason with all that it concerns."""
    said: dict[str, list[str]] = {}
    for row in distinct(found):
        if row["reason"]:
            where = [f"k = {row['k']}"] if row["k"] is not None else []
            where += [row["window"]] if row["window"] else []
            said.setdefault(row["reason"], []).append(row["what"] + (f" ({', '.join(where)})" if where else ""))
    return [Words(text=f"{reason[0].upper()}{reason[1:]}: {'; '.join(what)}.") for reason, what in said.items()]


def rivals(fits: Sequence[Row]) -> list[Table]:
    """List the models fitted to the same cells, best first, a table each k and window."""
    return [_rivals(found) for found in fits if found["fits"]]


def _rivals(found: Row) -> Table:
    rows = tuple(
        (
            fit["model"],
            fit["combine"],
            "; ".join(_estimate(estimate) for estimate in fit["estimates"]),
            number(delta, 4),
            number(fit["r2"], 4),
            number(fit["residual"]),
        )
        for fit, delta in zip(found["fits"], found["delta_aic"], strict=True)
    )
    best = found["fits"][0]
    lost = f", {plural(best['diverged'], 'diverged run')} left out" if best["diverged"] else ""
    levels = sorted({e["level"] for fit in found["fits"] for e in fit["estimates"] if e["interval"]})
    intervals = f" Intervals, each at {' and '.join(map(percent, levels))}, where asked for." if levels else ""
    caption = (
        f"Rival models at k = {found['k']}, window {found['window']}: {plural(best['cells'], 'shape')}, "
        f"{plural(best['runs'], 'run')}{lost}. ΔAIC above the best.{intervals} "
        "The residual is the standard deviation of the natural logarithm."
    )
    header = ("model", "terms add in", "estimates", "ΔAIC", "R²", "residual")
    return Table(caption=caption, header=header, rows=rows, labels=3)


def _estimate(estimate: Row) -> str:
    value = "undefined" if estimate["value"] is None else number(estimate["value"])
    return f"{estimate['name']} = {value}" + (f" {interval(*estimate['interval'])}" if estimate["interval"] else "")


def limits(found: Sequence[Row]) -> Table:
    """List the limits with their standard errors, a row each D, alpha and k."""
    rows = tuple(
        (
            f"D = {row['embed_dim']:g}, α = {row['alpha']:g}, k = {k}",
            _reached(row["reached"]),
            number(row["target_error"]),
            number(error),
            number(row["bias"].get(k)),
            number(row["runs"]),
            number(row["diverged"]),
            f"{number(row['nodes'])} × {number(row['particles'])}",
        )
        for row in found
        for k, error in row["standard_error"].items()
    )
    header = ("limit", "target reached", "target", "standard error", "bias", "runs", "diverged", "nodes × particles")
    caption = (
        "The limit (Neural Mean ODE) and its own error: standard error of the mean of independent runs, and the bias "
        "of its discretisation. Both are root mean squares over the output. Diverged runs are left out of the mean."
    )
    return Table(caption=caption, header=header, rows=rows, labels=2)


def _reached(reached: bool | None) -> str:
    return ABSENT if reached is None else "yes" if reached else "no"


def missed(found: Sequence[Row]) -> list[Words]:
    """Say which limits did not come as close as was asked."""
    return [
        Words(text=f"The limit at D = {row['embed_dim']:g}, α = {row['alpha']:g} missed its target error.")
        for row in found
        if row["reached"] is False
    ]


def breakdowns(found: Sequence[Row]) -> list[Words]:
    """Say where training broke down, beside where the theory puts its order."""
    said = []
    for row in found:
        seen = (
            f"from S = {number(row['observed'])} on"
            if row["observed"] is not None
            else f"nowhere up to S = {number(row['largest'])}"
        )
        said.append(
            Words(
                text=f"Breakdown at L = {row['depth']}, M = {row['units']}, D = {row['embed_dim']}, k = {row['k']}: "
                f"seen {seen} (a run diverged, or U moved more than {number(row['factor'])} times the drawn size); "
                f"the theory puts its order at sqrt(LM/D) = {number(row['theory'])}."
            )
        )
    return said


def diverged(cells: Sequence[Row], phase: Sequence[Row]) -> Table | Words:
    """List the finite networks some runs of which diverged."""
    rows = []
    for name, found in (("error surface", cells), ("phase diagram", phase)):
        for row in (row for row in found if row["diverged"]):
            sizes = tuple(number(row[key]) for key in ("depth", "units", "embed_dim"))
            last: tuple[Any, ...] = (number(row.get("alpha")), number(row["S"]), number(row["k"]))
            rows.append((name, *sizes, *last, f"{number(row['diverged'])} of {number(row['repeats'])}"))
    if not rows:
        return Words(text="No run of a finite network diverged.")
    header = ("part", "L", "M", "D", "α", "S", "k", "diverged")
    caption = "Diverged runs: counted here, left out of every mean and fit."
    return Table(caption=caption, header=header, rows=tuple(rows), labels=1)
