"""A first look at a bound: what it is at letters that real laws have, before anything is searched."""

import math
from collections.abc import Mapping
from typing import Any

import mpmath
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...theory.claims import Claim, Kind
from ...theory.evaluation import compiled
from ...theory.symbols import TABLE
from .high_precision import precise
from .target import Points
from .text import BoundError

COUNTS = (1, 1, 2, 3, 4, 8, 16, 64, 256, 1000, 10_000)
DIGITS = 4
# Points that are looked at twice: floats overflow, cancel, and take roots of numbers just below zero.
LOOKS = 128
ROUNDING = 1e-12
# Of a law beside one without noise, where an expression may be 0/0: variances as multiples of 1 and of |mu|^2.
TINY = 2.0**-200

# Squared entries of the mean, eigenvalues, M and K: no noise, none along the mean, N = 1, all the same, one only.
_CORNERS = (
    ([1], [0], 1, 1),
    ([1, 0], [0, 1], 1, 1),
    ([1], [1], 1, 1),
    ([1, 1], [1, 1], 1, 1),
    ([1, 0], [1, 0], 4, 4),
    ([1] * 8, [1] * 8, 100, 100),
    ([1, 0, 0], [0, 0, 0], 3, 2),
    ([1], [1], 1, 10_000),
    ([1], [1], 10_000, 1),
)


def moment_points(rng: np.random.Generator, count: int) -> Points:
    """Draw M, K, N and the moments of laws that exist: a random spectrum and a random mean each.

    The first are laws at the edge. Spectra and squared means are small integers times powers of 2, so that the moments
    are exact in float64: a root of tr(Sigma)^2 - tr(Sigma^2), say, is real at every point.
    """
    rows = [_moments(*_CORNERS[i]) if i < len(_CORNERS) else _law(rng) for i in range(count)]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _law(rng: np.random.Generator) -> dict[str, float]:
    N = int(rng.choice([1, 2, 3, 8, 64]))
    index = np.arange(1, N + 1)
    spectra = (
        np.ones(N),
        4096 // index ** rng.choice([1, 2]),
        np.where(index == 1, 2 ** rng.integers(1, 20), 1),
        (index <= max(1, N // 4)) * 1,
        (index == 1) * 1,
        rng.integers(0, 9, N),
    )
    squares = (np.ones(N), (index == 1) * 1, (index == N) * 1, 1 + rng.integers(0, 9, N))
    signal, unit = 2.0 ** rng.integers(-12, 13), 4.0 ** rng.integers(-10, 11)
    M, K = (int(n) for n in rng.choice(COUNTS, 2))
    return _moments(
        signal * unit * squares[rng.integers(len(squares))],
        unit * spectra[rng.integers(len(spectra))],
        M,
        K if rng.random() < 0.5 else M,
    )


def _moments(squares: ArrayLike, spectrum: ArrayLike, M: int, K: int) -> dict[str, float]:
    m2, eigenvalues = np.asarray(squares, dtype=float), np.asarray(spectrum, dtype=float)
    return {
        "M": float(M),
        "K": float(K),
        "N": float(len(m2)),
        "mu2": float(m2.sum()),
        "mu_Sigma_mu": float(m2 @ eigenvalues),
        "tr_Sigma": float(eigenvalues.sum()),
        "tr_Sigma2": float(eigenvalues @ eigenvalues),
        "lambda_max": float(eigenvalues.max()),
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
    """Look at an expression at these points: in floats, and in hundreds of digits where those find something.

    Args:
        claim: The bound.
        points: Underived letters, arrays of one length.
        limits: Lowest and highest value that the quantity can have at all.

    Returns:
        Remarks, as on a bound on a pure number that changes with the unit of q.

    Raises:
        BoundError: If the expression is complex, undefined or infinite at a point, beyond what the quantity can be on
            the side where it bounds, or says nothing anywhere. An expression that is undefined where a variance is zero
            is remarked on if it has a sound value beside that point.
    """
    missing = [name for name in claim.arguments if name not in points]
    if missing:
        raise BoundError(f"{claim.id}: no values of {', '.join(missing)} to look at.")
    values = _values(claim, points)
    lowest = -math.inf if claim.kind is Kind.LOWER_BOUND else limits[0]
    highest = math.inf if claim.kind is Kind.UPPER_BOUND else limits[1]
    with np.errstate(invalid="ignore"):
        sound = np.isfinite(values) & (values >= lowest) & (values <= highest)
    remarks: dict[str, None] = {}
    faults: list[tuple[int, str]] = []
    for place in np.flatnonzero(~sound)[:LOOKS]:
        point = {name: float(x[place]) for name, x in points.items()}
        value = precise(claim, point)
        vanishing = [name for name in claim.arguments if point[name] == 0]
        if mpmath.isnan(value) and vanishing and not _fault(precise(claim, _beside(point)), lowest, highest):
            remarks[f"undefined where {' = '.join(vanishing)} = 0: nothing is said there"] = None
        elif fault := _fault(value, lowest, highest):
            rank, what = fault
            faults.append((rank, f"{mpmath.nstr(value, DIGITS)} at {_spelled(claim, point)}: {what}"))
    if faults:
        raise BoundError(f"{claim.id}: the expression is {min(faults, key=lambda found: found[0])[1]}.")
    _require_content(claim, values, points, limits)
    return (*remarks, *_units(claim, values, points))


def _fault(value: Any, lowest: float, highest: float) -> tuple[int, str] | None:
    """What is wrong with a value, the worst with the lowest rank; None if nothing is."""
    if mpmath.isnan(value) or mpmath.im(value) != 0:
        return 0, "undefined, or no real number"
    if value < lowest:
        return 1, f"below {lowest:g}, which the quantity never is"
    if value > highest:
        return 1, f"above {highest:g}, which the quantity never is"
    return (2, "infinite") if mpmath.isinf(value) else None


def _beside(point: Mapping[str, float]) -> dict[str, float]:
    """The moments of a law beside one with no variance, or with none along the mean."""
    mu2, N = point.get("mu2", 1.0), point.get("N", 1.0)
    near = {"mu_Sigma_mu": TINY * mu2, "tr_Sigma": TINY * N, "tr_Sigma2": TINY**2 * N, "lambda_max": TINY}
    return {name: value or near.get(name, 0.0) for name, value in point.items()}


def _require_content(claim: Claim, values: NDArray[np.float64], points: Points, limits: tuple[float, float]) -> None:
    """Check that a bound is sharper somewhere than what holds of the quantity anyway."""
    if claim.kind is Kind.UPPER_BOUND:
        sharpest, limit, what = np.argmin(np.where(np.isnan(values), np.inf, values)), limits[1], "at least"
        idle = np.all((values >= limit) | np.isnan(values))
    elif claim.kind is Kind.LOWER_BOUND:
        sharpest, limit, what = np.argmax(np.where(np.isnan(values), -np.inf, values)), limits[0], "at most"
        idle = np.all((values <= limit) | np.isnan(values))
    else:
        return
    if not idle or not math.isfinite(limit):
        return
    value = precise(claim, {name: float(x[sharpest]) for name, x in points.items()})
    if value >= limit if claim.kind is Kind.UPPER_BOUND else value <= limit:
        raise BoundError(
            f"{claim.id}: vacuous: {what} {limit:g} at every law looked at, as {claim.quantity.id} always is; "
            "it holds and says nothing."
        )


def _values(claim: Claim, points: Points) -> NDArray[np.float64]:
    length = len(next(iter(points.values())))
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(claim.numeric()(**{name: points[name] for name in claim.arguments}))
    except (ArithmeticError, AttributeError, NameError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BoundError(f"{claim.id}: {claim.expression} cannot be evaluated ({what}).") from None
    real = np.where(found.imag == 0, found.real, np.nan).astype(np.float64)
    return np.broadcast_to(real, (length,))


def _spelled(claim: Claim, point: Mapping[str, float]) -> str:
    """The letters at a point, derived ones that the expression uses included."""
    underived = {name: point[name] for name in claim.arguments}
    derived = {
        name: float(compiled(TABLE[name].symbol, tuple(underived))(**underived))
        for name in claim.quantity.symbols
        if TABLE[name].definition is not None and TABLE[name].symbol in claim.expression.free_symbols
    }
    return ", ".join(f"{name} = {value:.{DIGITS}g}" for name, value in (derived | underived).items()) or "every point"


def _units(claim: Claim, values: NDArray[np.float64], points: Points) -> tuple[str, ...]:
    """Whether a bound on a pure number changes when q is measured in another unit."""
    units = {name: TABLE[name].unit for name in claim.arguments}
    powers = {name: int(unit.removeprefix("q^")) for name, unit in units.items() if unit.startswith("q^")}
    if claim.quantity.unit != "1" or not powers:
        return ()
    scaled = {name: x * 2.0 ** powers.get(name, 0) for name, x in points.items()}
    with np.errstate(all="ignore"):
        change = np.abs(_values(claim, scaled) - values) / (np.abs(values) + np.finfo(float).tiny)
    most = int(np.argmax(np.where(np.isfinite(change), change, 0)))
    if not change[most] > ROUNDING:
        return ()
    one, other = (precise(claim, {name: float(x[most]) for name, x in p.items()}) for p in (points, scaled))
    if mpmath.almosteq(one, other, rel_eps=ROUNDING):
        return ()
    return ("the bound changes when q is measured in another unit, and the quantity does not: check its units",)
