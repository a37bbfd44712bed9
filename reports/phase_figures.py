"""Figures of training at finite size: the phase diagram over the initial scale, and the losses."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..theory.phase_diagram import ORDER_ONE, Phase, regime
from . import style
from .figures import Picture, Row
from .marks import SHAPES, limits, log_axes, points, positive, shades, span
from .style import TRUTH

TINTS = {Phase.SMALL_RESIDUAL: "#E9F0F6", Phase.MAXIMAL: "#E2F0E9", Phase.LAZY: "#FFF4D9", Phase.UNSTABLE: "#F6DFD8"}
BREAKDOWN: dict[str, Any] = {"color": "#a83f00", "ls": ":", "lw": 1.3}
DRAWN: dict[str, Any] = {"color": TRUTH, "ls": "--", "lw": 0.9}
MEASURES = (("output_std", "drawn_output_std"), ("rms_change_U", "drawn_change_U"))
PHASE_COLUMNS = (
    *("depth", "units", "embed_dim", "k", "S", "output_std", "drawn_output_std", "rms_change_U", "drawn_change_U"),
    *("phase", "diverged", "repeats"),
)
BLOWN_UP = 1e3  # losses above this multiple of the first ones are cut off
NAMED = 12  # shapes that a legend holds


def phase(found: Sequence[Row]) -> Picture:
    """Spread of the output and change of U over S, a row of panels each shape, the phases shaded."""
    shapes = sorted({_shape(row) for row in found})
    figure, grid = style.panels(len(shapes), 2, width=8.8, height=1.0 + 2.5 * len(shapes), sharex=True, sharey=False)
    steps = shades(row["k"] for row in found)
    for line, shape in zip(grid, shapes, strict=True):
        own = sorted((row for row in found if _shape(row) == shape), key=lambda row: row["S"])
        D, L, M = shape
        breakdown = regime(L, M, D, sigma_v=math.sqrt(D)).breakdown
        for axes, (measured, drawn) in zip(line, MEASURES, strict=True):
            ends = limits([(row["S"], row[measured], None) for row in own], *(row[drawn] for row in own))
            _shaded(axes, breakdown)
            for place, (k, color) in enumerate(steps.items()):
                series = [row for row in own if row["k"] == k]
                said = [row for row in series if positive(row[drawn])]
                axes.plot([row["S"] for row in said], [row[drawn] for row in said], **DRAWN)
                marks = [(row["S"], row[measured], None) for row in series]
                points(axes, marks, color=color, marker=SHAPES[place % len(SHAPES)])
            _diverged(axes, own)
            log_axes(axes, span((row["S"], None, None) for row in found), (ends[0], ends[1] * 3))
        line[0].set(title=f"D = {D}, L = {L}, M = {M}", ylabel="standard deviation of the output")
        line[1].set_ylabel("r.m.s. change of $U$")
    for axes in grid[-1]:
        axes.set_xlabel(r"$S = \alpha\sigma_v/\sqrt{D}$  [critical = 1]")
    handles: list[Any] = [
        *(
            Line2D([], [], color=color, marker=SHAPES[place % len(SHAPES)], ls="", label=f"measured, k = {k}")
            for place, (k, color) in enumerate(steps.items())
        ),
        Line2D([], [], label="drawn by the author", **DRAWN),
        Line2D([], [], label=r"breakdown of the theory, $S = \sqrt{LM/D}$", **BREAKDOWN),
        *(Patch(color=tint, label=name.value) for name, tint in TINTS.items()),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, fontsize=8)
    return Picture(
        name="phase-diagram",
        figure=figure,
        alt="Standard deviation of the output and root mean square change of U over the initial residual scale S, for "
        f"{style.plural(len(shapes), 'shape')}, against the formulas drawn by the author, with the phases shaded and "
        "the scale of the breakdown.",
        caption="Phase diagram over S, the initial residual scale over the critical one. The dashed curves were drawn "
        "by the author, not derived: the left one for k = 10, the right one for k = 50. Numbers at the top: diverged "
        "runs of all, after the most steps. The theory gives orders, so the edges of the phases are no sharp "
        "predictions.",
        columns=PHASE_COLUMNS,
        rows=tuple(tuple(row[name] for name in PHASE_COLUMNS) for row in found),
    )


def _shape(row: Row) -> tuple[int, int, int]:
    return row["embed_dim"], row["depth"], row["units"]


def _shaded(axes: Axes, breakdown: float) -> None:
    edges = (1e-9, 1 / ORDER_ONE, min(ORDER_ONE, breakdown), breakdown, 1e9)
    for left, right, tint in zip(edges[:-1], edges[1:], TINTS.values(), strict=True):
        axes.axvspan(left, max(left, right), color=tint, lw=0, zorder=0)
    axes.axvline(breakdown, **BREAKDOWN)


def _diverged(axes: Axes, rows: Sequence[Row]) -> None:
    """Write how many runs diverged at each S after the most steps."""
    last = {row["S"]: row for row in sorted(rows, key=lambda row: row["k"])}
    for S, row in last.items():
        if row["diverged"]:
            text = f"{row['diverged']}/{row['repeats']}"
            place: dict[str, Any] = {
                "transform": axes.get_xaxis_transform(),
                "ha": "center",
                "va": "top",
                "rotation": 90,
            }
            axes.text(S, 0.97, text, fontsize=6.5, color=BREAKDOWN["color"], **place)


def training(found: Sequence[Row]) -> Picture:
    """Loss against steps, a panel each D and a line each shape; every run has at least one loss."""
    dims = sorted({row["embed_dim"] for row in found})
    figure, grid = style.panels(1, len(dims), width=max(6.4, 2 + 2.6 * len(dims)), height=3.2)
    shapes = sorted({(row["depth"] * row["units"], row["depth"], row["units"]) for row in found})
    colours = shades(range(len(shapes)))
    looks: dict[Any, dict[str, Any]] = {
        shape: {"color": colours[place], "ls": ("-", "--", ":")[place % 3], "lw": 1.1 if len(shapes) <= NAMED else 0.6}
        for place, shape in enumerate(shapes)
    }
    losses = [loss for row in found for loss in row["losses"] if positive(loss)]
    top = BLOWN_UP * max((row["losses"][0] for row in found if positive(row["losses"][0])), default=1)
    ends = limits((0, min(loss, top), None) for loss in losses)
    for axes, dim in zip(grid[0], dims, strict=True):
        for row in (row for row in found if row["embed_dim"] == dim):
            look = looks[row["depth"] * row["units"], row["depth"], row["units"]]
            axes.plot(range(len(row["losses"])), row["losses"], **look)
        axes.set(title=f"D = {dim:g}", xlabel="step k")
        log_axes(axes, None, ends)
    grid[0][0].set_ylabel("mean squared error")
    every = math.ceil(len(shapes) / NAMED)
    named = shapes[::every]
    handles = [Line2D([], [], label=f"L = {L:g}, M = {M:g}", **looks[size, L, M]) for size, L, M in named]
    figure.legend(handles=handles, loc="outside right upper", fontsize=7.5)
    return Picture(
        name="resnet-training",
        figure=figure,
        alt=f"Training loss against steps for {style.plural(len(shapes), 'shape')} of finite networks.",
        caption="Training curves of finite networks: loss |h − y|²/(ND) of all data after k full-batch steps, "
        "mean over the runs that did not diverge, a line a shape, dark to light with LM"
        f"{'' if every == 1 else ' (not all are named)'}. Losses that are not finite are not drawn.",
        columns=("depth", "units", "embed_dim", "step", "loss"),
        rows=tuple(
            (row["depth"], row["units"], row["embed_dim"], step, loss)
            for row in found
            for step, loss in enumerate(row["losses"])
        ),
    )
