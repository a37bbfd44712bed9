"""Figures of exponents: the series whose slopes are claimed, and all exponents beside the theory's."""

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from . import rate_tables, style
from .figures import Picture, Row
from .marks import GUIDE_LINE, SHAPES, Point, guide, limits, log_axes, points, shades, span
from .style import TRUTH, interval, label, number

# Colours as in the page's style sheet; None is an exponent that is reported only.
STATUS = {"SUPPORTED": "#00694e", "REFUTED": "#a83f00", "INCONCLUSIVE": "#5f5f5f", None: "#9a9a9a"}
MARKERS = {"SUPPORTED": "o", "REFUTED": "X", "INCONCLUSIVE": "s", None: "d"}
REACH = 4.0  # tolerances shown on either side of the theory's exponent


def exponents(found: Sequence[Row]) -> Picture:
    """Every exponent with its interval: beside the theory's value, and its distance from it in tolerances."""
    drawn = rate_tables.distinct(found)
    names = [textwrap.fill(label(_exponent(row)), 46) for row in drawn]
    lines = sum(name.count("\n") for name in names)
    figure, grid = style.panels(1, 2, width=8.8, height=1.1 + 0.26 * len(drawn) + 0.12 * lines, sharex=False)
    values, distances = grid[0]
    distances.axvspan(-1, 1, color="#DDE8E3", lw=0)
    distances.axvline(0, color=TRUTH, lw=0.8)
    for y, row in enumerate(drawn):
        color, marker = STATUS[row["status"]], MARKERS[row["status"]]
        theory, tolerance = row["theory"], row["tolerance"]
        if theory is not None:
            width = tolerance or 0
            values.plot([theory - width, theory + width], [y, y], color="#DDE8E3", lw=9, solid_capstyle="butt")
            values.plot([theory], [y], "|", color=TRUTH, ms=12, mew=1.3)
        if row["interval"] is not None:
            values.plot(row["interval"], [y, y], color=color, lw=1.3)
        if row["estimate"] is None:
            continue
        hollow: dict[str, Any] = {"mfc": "white"} if row["interval"] is None else {}
        values.plot([row["estimate"]], [y], marker, color=color, ms=5.5, **hollow)
        if theory is not None and tolerance:
            ends = [(end - theory) / tolerance for end in row["interval"] or ()]
            if ends:
                distances.plot([min(max(end, -REACH), REACH) for end in ends], [y, y], color=color, lw=1.3)
            at = (row["estimate"] - theory) / tolerance
            shape = marker if abs(at) <= REACH else ">" if at > 0 else "<"
            distances.plot(
                [min(max(at, -REACH), REACH)], [y], shape, color=color, ms=5.5, clip_on=False, zorder=3, **hollow
            )
    values.set_yticks(range(len(drawn)), names, linespacing=0.95)
    values.set(ylim=(len(drawn) - 0.4, -0.6), xlabel="exponent")
    for axes in grid[0]:
        axes.tick_params(axis="y", length=0)
    distances.set(xlim=(-REACH, REACH), xlabel="(exponent − theory) / tolerance")
    handles: list[Any] = [
        Line2D([], [], color=TRUTH, marker="|", ms=10, mew=1.3, ls="", label="theory"),
        Patch(color="#DDE8E3", label="tolerance"),
        *(
            Line2D([], [], color=STATUS[name], marker=MARKERS[name], lw=1.3, label=(name or "reported only").lower())
            for name in STATUS
            if any(row["status"] == name for row in drawn)
        ),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=6)
    return Picture(
        name="exponents",
        figure=figure,
        alt=f"Forest plot of {style.plural(len(drawn), 'exponent')} with intervals beside the value of the theory, and "
        "their distance from it in units of the tolerance.",
        caption="Exponents: every one is fitted, none imposed. Left: estimate and interval beside the theory's value "
        f"with the tolerance declared beforehand. Right: the same, centred and scaled by the tolerance, cut at "
        f"{REACH:g} tolerances (arrows lie beyond). A hollow mark has no interval; an exponent that bears on several "
        "claims is drawn once.",
        columns=(
            *("claim", "what", "k", "window", "estimate", "low", "high", "theory", "tolerance", "status", "reason"),
        ),
        rows=tuple(
            (
                *(row[name] for name in ("claim", "what", "k", "window", "estimate")),
                *(row["interval"] or (None, None)),
                *(row[name] for name in ("theory", "tolerance", "status", "reason")),
            )
            for row in found
        ),
    )


def _exponent(row: Row) -> str:
    where = [f"k = {row['k']}"] if row["k"] is not None else []
    what = row["what"].removeprefix("exponent of ")
    return ", ".join([what, *where, *([row["window"]] if row["window"] else [])])


def noiseless(found: Sequence[Row]) -> Picture:
    """The error over L where all layers hold the same units."""
    figure, grid = style.panels(1, 1, width=5.8, height=3.2)
    axes, colours = grid[0][0], shades(row["k"] for row in found)
    series: list[list[Point]] = [
        [(x, y, None) for x, y in zip(row["depths"], row["errors"], strict=True)] for row in found
    ]
    for place, (row, line) in enumerate(zip(found, series, strict=True)):
        marker = SHAPES[place % len(SHAPES)]
        guide(axes, line, -1)
        points(axes, line, color=colours[row["k"]], marker=marker)
        name = f"k = {row['k']}: slope {number(row['slope'], 5)}"
        axes.plot([], [], marker, color=colours[row["k"]], label=name)
    everything = [point for line in series for point in line]
    log_axes(axes, span(everything), limits(everything))
    axes.set(xlabel="$L$  [blocks]", ylabel="error  [r.m.s. of the output]")
    axes.plot([], [], label="slope −1 (guide)", **GUIDE_LINE)
    figure.legend(loc="outside right upper")
    return Picture(
        name="noiseless",
        figure=figure,
        alt="Error over depth of networks with the same units in every layer, a line each k, falling like 1/L.",
        caption="The term 1/L without noise: networks whose layers all hold the same units, against the limit of those "
        "units. Slopes are fitted; the guides run through the last point.",
        columns=("k", "depth", "error", "slope", "local_slope_from_the_depth_before"),
        rows=tuple(
            (row["k"], depth, error, row["slope"], local)
            for row in found
            for depth, error, local in zip(row["depths"], row["errors"], [None, *row["local"]], strict=True)
        ),
    )


def lazy(found: Sequence[Row]) -> Picture:
    """The distance of the limit from its lazy limit over alpha."""
    figure, grid = style.panels(1, 1, width=6.6, height=3.2)
    axes, colours = grid[0][0], shades(range(len(found)))
    series: list[list[Point]] = [
        [(x, y, None) for x, y in zip(row["alphas"], row["errors"], strict=True)] for row in found
    ]
    for place, (row, line) in enumerate(zip(found, series, strict=True)):
        marker = SHAPES[place % len(SHAPES)]
        points(axes, line, color=colours[place], marker=marker)
        low, high = row["interval"] or (None, None)
        name = f"{label(row['init'])}:\nslope {number(row['slope'], 4)} {interval(low, high, 4)}"
        axes.plot([], [], marker, color=colours[place], label=name)
        if row["slope"] is not None:
            guide(axes, line, min((-1, -2), key=lambda slope: abs(slope - row["slope"])))
    everything = [point for line in series for point in line]
    log_axes(axes, span(everything), limits(everything))
    axes.set(xlabel=r"$\alpha$  (dimensionless)", ylabel="distance  [r.m.s. of the output]")
    axes.plot([], [], label="slope −1 or −2,\nthe nearer (guide)", **GUIDE_LINE)
    figure.legend(loc="outside right upper")
    return Picture(
        name="lazy",
        figure=figure,
        alt="Distance of the Neural Mean ODE from the Neural Tangent ODE over the residual scale alpha, a line each of "
        f"the initial laws {', '.join(row['init'] for row in found)}.",
        caption="Lazy limit: distance of the Neural Mean ODE from the Neural Tangent ODE of the same particles. The "
        "theory's 1/α is an upper bound, which a reflection that leaves the initial law as it is sharpens to 1/α².",
        columns=("init", "alpha", "error", "slope", "slope_low", "slope_high"),
        rows=tuple(
            (row["init"], alpha, error, row["slope"], *(row["interval"] or (None, None)))
            for row in found
            for alpha, error in zip(row["alphas"], row["errors"], strict=True)
        ),
    )


def chaos(found: Sequence[Row]) -> Picture:
    """The correlation between units over LM."""
    figure, grid = style.panels(1, 1, width=5.8, height=3.0)
    axes = grid[0][0]
    line: list[Point] = [(row["LM"], row["correlation"], row["interval"]) for row in found]
    guide(axes, line, -1)
    points(axes, line, color=TRUTH)
    log_axes(axes, span(line), limits(line))
    axes.set(xlabel="$LM$  [units]", ylabel="correlation of two units")
    handles = [
        Line2D([], [], color=TRUTH, marker="o", lw=0.9, label="measured"),
        Line2D([], [], label="slope −1 (guide)", **GUIDE_LINE),
    ]
    figure.legend(handles=handles, loc="outside right upper")
    return Picture(
        name="chaos",
        figure=figure,
        alt="Correlation between two units over the number of units LM, with intervals, falling like 1/(LM).",
        caption="Propagation of chaos: correlation over initialisations of the squared displacement of two units, mean "
        "over pairs. A triangle is the upper end of the interval where the estimate is not positive.",
        columns=("LM", "correlation", "low", "high"),
        rows=tuple((row["LM"], row["correlation"], *(row["interval"] or (None, None))) for row in found),
    )
