"""A first look at a bound: what it is at letters that real laws have, before anything is searched."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...theory.claims import Claim, Kind
from ...theory.evaluation import compiled
from ...theory.symbols import TABLE
from .target import Points
from .text import BoundError

COUNTS = (1, 1, 2, 3, 4, 8, 16, 64, 256, 1000, 10_000)
CORNERS = 6
DIGITS = 4
# Rounding of the moments of a law in float64, far above it.
SLACK = 1e-9


def moment_points(rng: np.random.Generator, count: int) -> Points:
    """Draw M, K, N and the moments of laws that exist: a random spectrum and a random mean each.

    The first ``CORNERS`` are laws at the edge: no noise at all, no noise along the mean, N = 1, M = K = 1.
    """
    rows = [_corner(i) if i < CORNERS else _law(rng) for i in range(count)]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _corner(place: int) -> dict[str, float]:
    one, two = np.ones(1), np.array([1.0, 0.0])
    mean, spectrum = (
        (one, np.zeros(1)),
        (two, np.array([0.0, 1.0])),
        (one, one),
        (two, np.ones(2)),
        (two, np.array([1.0, 0.0])),
        (np.ones(8) / 8, np.ones(8)),
    )[place]
    M = K = (1, 1, 1, 1, 4, 100)[place]
    return _moments(mean, spectrum, M, K)


def _law(rng: np.random.Generator) -> dict[str, float]:
    N = int(rng.choice([1, 2, 3, 8, 64]))
    index = np.arange(1, N + 1)
    spectrum = (np.ones(N), index**-1.0, np.where(index == 1, float(N), 1.0), (index <= max(1, N // 4)) * 1.0)[
        rng.integers(4)
    ]
    direction = (np.ones(N), (index == 1) * 1.0, (index == N) * 1.0, rng.standard_normal(N))[rng.integers(4)]
    direction = direction / np.linalg.norm(direction)
    unit, signal = 10 ** rng.uniform(-3, 3), 10 ** rng.uniform(-2, 2)
    M, K = (int(n) for n in rng.choice(COUNTS, 2))
    return _moments(unit * signal * direction, unit**2 * spectrum, M, K if rng.random() < 0.5 else M)


def _moments(mean: NDArray, spectrum: NDArray, M: int, K: int) -> dict[str, float]:
    square = mean**2
    return {
        "M": float(M),
        "K": float(K),
        "N": float(len(mean)),
        "mu2": float(square.sum()),
        "mu_Sigma_mu": float(square @ spectrum),
        "tr_Sigma": float(spectrum.sum()),
        "tr_Sigma2": float(spectrum @ spectrum),
        "lambda_max": float(spectrum.max()),
    }


def step_points(rng: np.random.Generator, count: int) -> Points:
    """Draw letters of a fixed step on Gaussian laws, for which the moments of Y have a closed form.

    With c = eta L / 2 and independent Gaussian means, Var Y = Var X - 4 c mu'Sigma mu / M + c^2 Var |mu_M|^2.
    """
    p = moment_points(rng, count)
    p = {name: x[p["tr_Sigma"] > 0] for name, x in p.items()}
    size = len(p["M"])
    p["L_smooth"] = 10 ** rng.uniform(-1, 1, size)
    largest = 2 * p["mu2"] / (p["mu2"] + p["tr_Sigma"] / p["M"])
    p["eta"] = largest / p["L_smooth"] * rng.choice([0.01, 0.3, 0.9, 1.0, 2.0], size)
    c = p["eta"] * p["L_smooth"] / 2
    alignment = (1 / p["M"] + 1 / p["K"]) * p["mu_Sigma_mu"] + p["tr_Sigma2"] / (p["M"] * p["K"])
    norm = 4 * p["mu_Sigma_mu"] / p["M"] + 2 * p["tr_Sigma2"] / p["M"] ** 2
    p["gain_mean"] = p["mu2"] - c * (p["mu2"] + p["tr_Sigma"] / p["M"])
    p["gain_variance"] = alignment - 4 * c * p["mu_Sigma_mu"] / p["M"] + c**2 * norm
    return p


def deviation_points(rng: np.random.Generator, count: int) -> Points:
    """Draw the letters of a norm deviation."""
    return {
        "n_samples": rng.choice([1.0, 2, 3, 10, 100, 10_000], count),
        "B_norm": 10 ** rng.uniform(-3, 3, count),
        "delta": rng.choice([1e-6, 1e-3, 0.05, 0.1, 0.5, 0.9], count),
    }


def examine(claim: Claim, points: Points, limits: tuple[float, float]) -> tuple[str, ...]:
    """Look at an expression at these points.

    Args:
        claim: The bound.
        points: Underived letters, arrays of one length.
        limits: Lowest and highest value that the quantity can have at all.

    Returns:
        Remarks, as on a bound on a pure number that changes with the unit of q.

    Raises:
        BoundError: If the expression is complex, undefined or infinite at a point, beyond what the quantity can be on
            the side where it bounds, or says nothing anywhere.
    """
    names = tuple(name for name in claim.arguments if name in points)
    missing = [name for name in claim.arguments if name not in points]
    if missing:
        raise BoundError(f"{claim.id}: no values of {', '.join(missing)} to look at.")
    values = _values(claim, {name: points[name] for name in names})
    if np.iscomplexobj(values):
        _refuse(claim, np.abs(values.imag) > 0, values, points, "no real number")
    _refuse(claim, np.isnan(values), values, points, "undefined, or no real number")
    lowest, highest = limits
    if claim.kind is Kind.UPPER_BOUND:
        _refuse(claim, values < lowest - SLACK, values, points, f"below {lowest:g}, which no value is")
        if np.all(values >= highest) and math.isfinite(highest):
            raise BoundError(
                f"{claim.id}: at least {highest:g} at every law looked at: "
                f"vacuous, for {claim.quantity.id} never exceeds {highest:g}."
            )
    if claim.kind is Kind.LOWER_BOUND:
        _refuse(claim, values > highest + SLACK, values, points, f"above {highest:g}, which no value reaches")
        if np.all(values <= lowest) and math.isfinite(lowest):
            raise BoundError(
                f"{claim.id}: at most {lowest:g} at every law looked at: "
                f"vacuous, for {claim.quantity.id} is never below {lowest:g}."
            )
    if claim.kind is Kind.IDENTITY:
        outside = (values < lowest - SLACK) | (values > highest + SLACK)
        _refuse(claim, outside, values, points, f"outside [{lowest:g}, {highest:g}], where the quantity always is")
    _refuse(claim, np.isinf(values), values, points, "infinite")
    return _units(claim, values, {name: points[name] for name in names})


def _values(claim: Claim, letters: Points) -> NDArray[Any]:
    length = len(next(iter(letters.values()))) if letters else 1
    try:
        with np.errstate(all="ignore"):
            found = claim.numeric()(**letters)
    except (ArithmeticError, TypeError, NameError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise BoundError(f"{claim.id}: {claim.expression} cannot be evaluated ({what}).") from None
    return np.broadcast_to(np.asarray(found), (length,))


def _refuse(claim: Claim, bad: NDArray[np.bool_], values: NDArray[Any], points: Points, what: str) -> None:
    if not bad.any():
        return
    place = int(np.argmax(bad))
    at = _spelled(claim, points, place)
    raise BoundError(f"{claim.id}: the expression is {values[place]:.{DIGITS}g} at {at}: {what}.")


def _spelled(claim: Claim, points: Points, place: int) -> str:
    """The letters at a point, derived ones that the expression uses included."""
    underived = {name: points[name][place] for name in claim.arguments}
    derived = {
        name: float(compiled(TABLE[name].symbol, tuple(underived))(**underived))
        for name in claim.quantity.symbols
        if TABLE[name].definition is not None and TABLE[name].symbol in claim.expression.free_symbols
    }
    return ", ".join(f"{name} = {value:.{DIGITS}g}" for name, value in (derived | underived).items())


def _units(claim: Claim, values: NDArray[Any], letters: Points) -> tuple[str, ...]:
    """Whether a bound on a pure number changes when q is measured in another unit."""
    powers = {name: int(unit.removeprefix("q^")) for name in letters if (unit := TABLE[name].unit).startswith("q^")}
    if claim.quantity.unit != "1" or not powers:
        return ()
    scaled = _values(claim, {name: x * 2.0 ** powers.get(name, 0) for name, x in letters.items()})
    with np.errstate(all="ignore"):
        same = np.isclose(np.asarray(scaled, float), np.asarray(values, float), rtol=1e-9)
    if same.all():
        return ()
    return ("the bound changes when q is measured in another unit, and the quantity does not: check its units",)
