"""Figures of the error surface: finite networks against their limit, over depth, units and embedding dimension."""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from . import style
from .figures import Picture, Row
from .marks import FLOOR, GUIDE_LINE, Point, guide, limits, log_axes, points, positive, shades, span
from .style import label

SIZES = {"depth": "$L$  [blocks]", "units": "$M$  [units a block]"}
LETTER = {"depth": "L", "units": "M", "embed_dim": "D"}
SHAPE = ("depth", "units", "embed_dim", "alpha")
CELL_COLUMNS = (*SHAPE, "S", "k", "repeats", "diverged", "error", "error_low", "error_high")
PART_COLUMNS = (*SHAPE, "S", "k", "repeats", "squared_bias", "squared_bias_error", "variance")


def surfaces(cells: Sequence[Row], fits: Sequence[Row], found: Sequence[Row]) -> list[Picture]:
    """The error over L and over M with the fitted surface, a picture each k, D, alpha and S with at least 3 shapes."""
    known = [c for c in cells if c["error"] is not None or c["diverged"]]
    groups = _series(known, lambda c: (c["embed_dim"], c["alpha"], c["S"], c["k"]))
    return [_surface(group, fits, found) for group in groups if len(group) >= 3]


def parts(cells: Sequence[Row]) -> list[Picture]:
    """Variance and squared bias of the output apart, a picture each k, D, alpha and S with at least 3 shapes."""
    known = [c for c in cells if c["variance"] is not None and c["squared_bias"] is not None]
    groups = _series(known, lambda c: (c["embed_dim"], c["alpha"], c["S"], c["k"]))
    return [_parts(group) for group in groups if len(group) >= 3]


def dimension(cells: Sequence[Row]) -> Picture | None:
    """The variance of the output over D, a panel each k and a line each shape; None where D does not vary."""
    known = [c for c in cells if positive(c["variance"])]
    lines = _series(known, lambda c: (c["k"], c["depth"], c["units"], c["alpha"], c["S"]))
    lines = [line for line in lines if len({c["embed_dim"] for c in line}) >= 2]
    if not lines:
        return None
    steps = sorted({line[0]["k"] for line in lines})
    figure, grid = style.panels(1, len(steps), width=1.6 + 3.3 * len(steps), height=3.2)
    colours = shades(line[0]["depth"] * line[0]["units"] for line in lines)
    chosen = [c for line in lines for c in line]
    everything: list[Point] = [(c["embed_dim"], c["variance"], None) for c in chosen]
    for axes, k in zip(grid[0], steps, strict=True):
        for line in (line for line in lines if line[0]["k"] == k):
            series: list[Point] = sorted((c["embed_dim"], c["variance"], None) for c in line)
            first = line[0]
            name = f"L = {first['depth']:g}, M = {first['units']:g}{_extra(first)}"
            color = colours[first["depth"] * first["units"]]
            axes.plot(*zip(*((x, y) for x, y, _ in series), strict=True), "o-", color=color, lw=0.8, label=name)
            guide(axes, series, 1)
        axes.set(title=f"k = {k}", xlabel="$D$  [entries of the state]")
        log_axes(axes, span(everything), limits(everything))
    grid[0][0].set_ylabel("variance over repeats")
    names = {line.get_label(): line for axes in grid[0] for line in axes.lines if str(line.get_label())[0] != "_"}
    handles = [*names.values(), Line2D([], [], label="slope 1 (guide)", **GUIDE_LINE)]
    figure.legend(handles=handles, loc="outside right upper", fontsize=7.5)
    return Picture(
        name="error-dimension",
        figure=figure,
        alt=f"Variance of the output over the embedding dimension D, for {style.plural(len(lines), 'series')}.",
        caption="Dependence on D: variance of an output entry over repeats. The theory's fluctuation √(D/(LM)) is "
        "slope 1 here; the guides are not fitted.",
        columns=PART_COLUMNS,
        rows=tuple(tuple(c[name] for name in PART_COLUMNS) for c in chosen),
    )


def _series(cells: Sequence[Row], key: Callable[[Row], Any]) -> list[list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for cell in sorted(cells, key=lambda c: (c["k"], c["alpha"], c["S"], c["embed_dim"], c["units"], c["depth"])):
        groups.setdefault(key(cell), []).append(cell)
    return list(groups.values())


def _extra(cell: Row) -> str:
    return "".join(f", {name} = {cell[key]:g}" for name, key in (("α", "alpha"), ("S", "S")) if cell[key] != 1)


def _named(cell: Row) -> tuple[str, str]:
    """The file name and the title of a group of cells."""
    extra = "".join(f"-{key}{cell[key]:g}" for key in ("alpha", "S") if cell[key] != 1)
    return f"D{cell['embed_dim']:g}{extra}-k{cell['k']}", f"D = {cell['embed_dim']:g}, k = {cell['k']}{_extra(cell)}"


# The error and its surface


def _drawn_fit(fits: Sequence[Row]) -> Row:
    """The best fit by AIC among those with a band, else the best; fits come best first."""
    banded = [fit for fit in fits if any(point["band"] for point in fit["points"])]
    return (banded or list(fits))[0]


def _surface(cells: Sequence[Row], fits: Sequence[Row], found: Sequence[Row]) -> Picture:
    first = cells[0]
    same = [limit for limit in found if (limit["embed_dim"], limit["alpha"]) == (first["embed_dim"], first["alpha"])]
    floor = next((e for limit in same if (e := limit["standard_error"].get(str(first["k"])))), None)
    windows: list[tuple[str, Row | None, dict[tuple[float, float], Row]]] = []
    for fitted in (f for f in fits if f["k"] == first["k"] and f["fits"]):
        best = _drawn_fit(fitted["fits"])
        inside = {
            (point["depth"], point["units"]): point
            for point in best["points"]
            if (point["embed_dim"], point["alpha"]) == (first["embed_dim"], first["alpha"])
        }
        if inside and first["S"] == 1:
            windows.append((fitted["window"], best, inside))
    windows = windows or [("", None, {})]
    figure, grid = style.panels(len(windows), 2, width=8.8, height=0.7 + 3.1 * len(windows), sharex=False)
    marks: list[Point] = [(0, c["error"], c["error_interval"]) for c in cells]
    bottom, top = limits(marks, floor)
    rows: list[tuple[Any, ...]] = []
    for line, (window, fit, inside) in zip(grid, windows, strict=True):
        for axes, (x, other) in zip(line, (("depth", "units"), ("units", "depth")), strict=True):
            _lines(axes, cells, inside, x, other, outside=fit is not None, top=top)
            if floor:
                axes.axhspan(bottom, floor, color=FLOOR, alpha=0.4, lw=0)
            log_axes(axes, span((c[x], None, None) for c in cells), (bottom, top))
            axes.tick_params(labelleft=True)
        line[0].set(
            title=f"window: {label(window)}" if fit else "no surface was fitted at this k",
            ylabel="error  [r.m.s. of the output]",
        )
        if fit:
            line[1].set_title(f"surface: {label(fit['model'])} ({fit['combine']})")
        rows += [_surface_row(cell, window, fit, inside.get((cell["depth"], cell["units"]))) for cell in cells]
    for axes, text in zip(grid[-1], SIZES.values(), strict=True):
        axes.set_xlabel(text)
    figure.legend(handles=_surface_key(any(fit for _, fit, _ in windows), floor), loc="outside upper left", ncols=4)
    name, title = _named(first)
    gone = sum(c["error"] is None for c in cells)
    notes = f" Crosses at the top: every run of the shape diverged ({style.plural(gone, 'shape')})." if gone else ""
    if any(fit for _, fit, _ in windows):
        notes += (
            " The surface is the best by AIC among the forms fitted with intervals; hollow points lie outside its "
            "window and took no part in the fit."
        )
    return Picture(
        name=f"error-{name}",
        figure=figure,
        alt=f"Error of finite networks over depth L, a line each M, and over units M, a line each L, at {title}, "
        + (
            f"with the fitted surface and its band; windows: {', '.join(window for window, _, _ in windows)}."
            if windows[0][1]
            else "no surface was fitted at this k."
        ),
        caption=f"Distance of finite networks from their limit at {title}. Points: root mean square over repeats and "
        f"output entries, with its 95 % interval.{notes}"
        + (f" Grey: below the standard error of the limit itself, {style.number(floor)}." if floor else ""),
        columns=(*CELL_COLUMNS, "limit_error", "window", "model", "combine", "fitted", "band_low", "band_high"),
        rows=tuple((*row[: len(CELL_COLUMNS)], floor, *row[len(CELL_COLUMNS) :]) for row in rows),
    )


def _lines(
    axes: Axes,
    cells: Sequence[Row],
    inside: dict[tuple[float, float], Row],
    x: str,
    other: str,
    *,
    outside: bool,
    top: float,
) -> None:
    """Draw the points and the surface over ``x``, a colour each value of ``other``."""
    colours = shades(c[other] for c in cells)
    for value, color in colours.items():
        line = [c for c in cells if c[other] == value]
        for hollow in (False, True):
            chosen = [c for c in line if hollow == (outside and (c["depth"], c["units"]) not in inside)]
            points(axes, [(c[x], c["error"], c["error_interval"]) for c in chosen], color=color, hollow=hollow)
        gone = [c[x] for c in line if c["error"] is None]
        if gone:
            axes.plot(gone, [top] * len(gone), "x", color=color, clip_on=False, zorder=4)
        fitted = sorted((p for p in inside.values() if p[other] == value), key=lambda p: p[x])
        axes.plot([p[x] for p in fitted], [p["fitted"] for p in fitted], color=color, lw=1)
        banded = [p for p in fitted if p["band"]]
        if banded:
            low, high = zip(*(p["band"] for p in banded), strict=True)
            axes.fill_between([p[x] for p in banded], low, high, color=color, alpha=0.3, lw=0)
    handles = [Line2D([], [], marker="o", color=color, label=f"{value:g}") for value, color in colours.items()]
    axes.legend(handles=handles, title=LETTER[other], loc="upper left", bbox_to_anchor=(1, 1.02), fontsize=7)


def _surface_key(fitted: bool, floor: float | None) -> list[Any]:
    handles: list[Any] = [Line2D([], [], color="#444444", marker="o", ls="", label="measured, 95 % interval")]
    if fitted:
        handles += [
            Line2D([], [], color="#444444", lw=1, label="fitted surface"),
            Patch(color="#444444", alpha=0.3, lw=0, label="its band"),
        ]
    if floor:
        handles.append(Patch(color=FLOOR, alpha=0.4, lw=0, label="error of the limit"))
    return handles


def _surface_row(cell: Row, window: str, fit: Row | None, point: Row | None) -> tuple[Any, ...]:
    low, high = cell["error_interval"] or (None, None)
    values = {**cell, "error_low": low, "error_high": high}
    if fit is None:
        return (*(values[name] for name in CELL_COLUMNS), *[None] * 6)
    surface = (None, None, None) if point is None else (point["fitted"], *(point["band"] or (None, None)))
    return (*(values[name] for name in CELL_COLUMNS), window, fit["model"], fit["combine"], *surface)


# Bias and variance


def _parts(cells: Sequence[Row]) -> Picture:
    figure, grid = style.panels(1, 2, width=8.8, height=3.4, sharex=False, sharey=False)
    colours = shades(c["units"] for c in cells)
    variances: list[Point] = [(c["depth"] * c["units"], c["variance"], None) for c in cells]
    biases: list[Point] = [(c["depth"], *_squared_bias(c)) for c in cells]
    widest = [point for c, point in zip(cells, biases, strict=True) if c["units"] == max(colours)]
    panels = ((variances, variances, -1, -1), (biases, widest, -2, 0))
    for axes, (found, guided, slope, through) in zip(grid[0], panels, strict=True):
        for units, color in colours.items():
            own = [point for c, point in zip(cells, found, strict=True) if c["units"] == units]
            points(axes, own, color=color)
        guide(axes, guided, slope, through=through)
        log_axes(axes, span(found), limits(found))
    grid[0][0].set(title="variance (guide: slope −1)", xlabel="$LM$  [units]", ylabel="variance over repeats")
    grid[0][1].set(title="squared bias (guide: slope −2)", xlabel=SIZES["depth"], ylabel="squared bias")
    handles = [Line2D([], [], marker="o", ls="", color=color, label=f"{value:g}") for value, color in colours.items()]
    grid[0][1].legend(handles=handles, title="M", loc="upper left", bbox_to_anchor=(1, 1.02), fontsize=7)
    name, title = _named(cells[0])
    return Picture(
        name=f"parts-{name}",
        figure=figure,
        alt=f"Variance of the output over LM and its squared bias over L, a colour each M, at {title}.",
        caption=f"Bias and variance apart at {title}, means over the output entries. The squared bias has the variance "
        "of its own mean taken out, bars are one standard error; a triangle is the upper end of a bar that reaches 0. "
        "Guides are not fitted: they run through the last variance, and through the first bias at the largest M.",
        columns=PART_COLUMNS,
        rows=tuple(tuple(c[column] for column in PART_COLUMNS) for c in cells),
    )


def _squared_bias(cell: Row) -> tuple[float | None, tuple[float, float] | None]:
    value, error = cell["squared_bias"], cell["squared_bias_error"]
    if value is None or error is None:
        return value, None
    return value if value > error else None, (value - error, value + error)
