"""Marks that several figures share: points with intervals on a log axis, guides of a given slope, ordered colours."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import matplotlib
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator

from .style import number

SHAPES = "osD^vP*X"
GUIDE, FLOOR = "#777777", "#C0C0C0"
GUIDE_LINE: dict[str, Any] = {"color": GUIDE, "ls": "--", "lw": 0.9}
TINY = 1e-300  # stands for what lies below the axis
Point = tuple[float, float | None, Sequence[float] | None]


def shades(values: Iterable[float]) -> dict[float, Any]:
    """Give every distinct value a colour, dark for the smallest to light for the largest."""
    ordered = sorted(set(values))
    colours = matplotlib.colormaps["viridis"]
    return {value: colours(0.88 * place / max(len(ordered) - 1, 1)) for place, value in enumerate(ordered)}


def positive(value: float | None) -> TypeGuard[float]:
    """Say whether a number can stand on a log axis."""
    return value is not None and 0 < value < math.inf


def log_axes(axes: Axes, x: tuple[float, float] | None, y: tuple[float, float]) -> None:
    """Make the axes with given ends logarithmic; ticks at 1, 2, 5 where an axis spans little."""
    for name, ends in (("x", x), ("y", y)):
        if ends is not None:
            axes.set(**{f"{name}scale": "log", f"{name}lim": ends})
            if ends[1] < 100 * ends[0]:
                axis = getattr(axes, f"{name}axis")
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.set_major_formatter(FuncFormatter(lambda value, _: number(round(value) if value >= 1 else value)))
    axes.minorticks_off()


def points(axes: Axes, found: Iterable[Point], *, color: Any, marker: str = "o", hollow: bool = False) -> None:
    """Draw (x, y, interval); a y that is not positive as a triangle at the upper end of its interval."""
    series = list(found)
    face = "white" if hollow else color
    held = [(x, y) for x, y, _ in series if positive(y)]
    bars = [(x, max(low, TINY), high) for x, y, (low, high) in _with_interval(series) if positive(y) and positive(high)]
    above = [(x, high) for x, y, (_, high) in _with_interval(series) if not positive(y) and positive(high)]
    if bars:
        axes.vlines(*zip(*bars, strict=True), color=color, lw=0.9, zorder=2.5)
    if held:
        axes.plot(*zip(*held, strict=True), marker, color=color, mfc=face, zorder=3)
    if above:
        axes.plot(*zip(*above, strict=True), "v", color=color, mfc="white", ms=6, zorder=3)


def _with_interval(series: Iterable[Point]) -> list[tuple[float, float | None, Sequence[float]]]:
    return [(x, y, interval) for x, y, interval in series if interval is not None]


def limits(found: Iterable[Point], *more: float | None) -> tuple[float, float]:
    """Return the ends of a log axis that holds the points and ``more``; a lower end far below its point is cut off."""
    ends = [value for value in more if positive(value)]
    for _, y, interval in found:
        low, high = interval or (None, None)
        ends += [value for value in (y, high) if positive(value)]
        if positive(y) and positive(low):
            ends.append(max(low, y / 10))
    return (min(ends) / 1.5, max(ends) * 1.5) if ends else (0.1, 10.0)


def span(found: Iterable[Point]) -> tuple[float, float]:
    """Return the ends of a log axis for the x of the points."""
    return limits((x, x, None) for x, _, _ in found)


def guide(axes: Axes, found: Iterable[Point], slope: float, *, through: int = -1) -> None:
    """Draw a line of this slope through one of the positive points; it is decoration, not a fit."""
    known = sorted((x, y) for x, y, _ in found if positive(y))
    if known and known[0][0] < known[-1][0]:
        ends, (x, y) = (known[0][0], known[-1][0]), known[through]
        axes.plot(ends, [y * (end / x) ** slope for end in ends], **GUIDE_LINE, zorder=1.5)
