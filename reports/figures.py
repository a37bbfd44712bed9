"""Figures of the report: each takes rows of a document and returns a picture with its data; nothing is fitted."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from . import style
from .style import B_ALIGN, B_EXACT, TRUTH, label
from .tables import measured, sites

Row = dict[str, Any]
FLOOR = 1e-8  # lower end of a probability axis: what lies below is drawn on it
SHAPES = "osD^P*Xph<>"
N_EFF_LABEL = r"$n_{\mathrm{eff}} = MK/(M+K+1)$  [samples]"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure, what it shows in words, and its data."""

    name: str
    figure: Figure
    alt: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def population(cell: Row) -> str:
    """Name the population of a cell, its parameters left out; all trained networks at a site are one."""
    spec = cell["population"]
    return f"ResNet at {spec['site']}" if cell["family"] == "trained" else str(spec["name"])


def _grouped(rows: Iterable[Row], key: Any) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


# P against its bounds


def _probabilities(axes: Axes, cells: Sequence[Row], x: str, shape: str = "o") -> None:
    """Draw both bounds and P; simulated P hollow with its interval, no hit as an upper limit."""
    diagonal = sorted((c for c in cells if c["M"] == c["K"]), key=lambda c: c[x])
    for bound, colour in (("b_align", B_ALIGN), ("b_exact", B_EXACT)):
        axes.plot([c[x] for c in diagonal], [c[bound] for c in diagonal], color=colour, lw=1)
        axes.plot([c[x] for c in cells], [c[bound] for c in cells], "_", color=colour, ms=7, mew=1.6)
    axes.plot(
        [c[x] for c in diagonal if c["p"] > FLOOR],
        [c["p"] for c in diagonal if c["p"] > FLOOR],
        color="#999999",
        lw=0.6,
    )
    exact = [(c[x], max(c["p"], FLOOR)) for c in cells if not c["trials"]]
    hit = [(c[x], c["p"], *c["p_interval"]) for c in cells if c["trials"] and c["misaligned"]]
    missed = [(c[x], c["p_interval"][1]) for c in cells if c["trials"] and not c["misaligned"]]
    marks: dict[str, Any] = {"color": TRUTH, "ls": "", "zorder": 3}
    if exact:
        axes.plot(*zip(*exact, strict=True), marker=shape, clip_on=False, **marks)
    if hit:
        at, p, low, high = zip(*hit, strict=True)
        axes.vlines(at, low, high, color=TRUTH, lw=0.9, zorder=2.5)
        axes.plot(at, p, marker=shape, mfc="white", mew=0.9, **marks)
    if missed:
        axes.plot(*zip(*missed, strict=True), marker="v", mfc="white", ms=6, **marks)


def _probability_axes(axes: Axes, cells: Sequence[Row]) -> None:
    shown = [c["p"] if c["p"] > 0 else c["p_interval"][1] if c["trials"] else 0 for c in cells]
    axes.set(xscale="log", yscale="log", ylim=(max(FLOOR, min([0.1, *shown]) / 2), 1.3))
    axes.minorticks_off()


def _key(simulated: bool, exact: bool, missed: bool) -> list[Line2D]:
    def mark(name: str, **options: Any) -> Line2D:
        return Line2D([], [], label=name, **options)

    handles = [
        mark(r"$B_{\mathrm{align}}$ (Theorem 1)", color=B_ALIGN, marker="_", ms=7, mew=1.6),
        mark(r"$B_{\mathrm{exact}}$ (Cantelli)", color=B_EXACT, marker="_", ms=7, mew=1.6),
    ]
    if exact:
        handles.append(mark("$P$ exact", color=TRUTH, marker="o", ls=""))
    if simulated:
        handles.append(mark("$P$ sampled, 95 % interval", color=TRUTH, marker="o", mfc="white", lw=0.9))
    if missed:
        handles.append(mark("no hit: upper limit", color=TRUTH, marker="v", mfc="white", ms=6, ls=""))
    return handles


def _legend(figure: Figure, cells: Sequence[Row]) -> None:
    sampled = [c for c in cells if c["trials"]]
    handles = _key(
        simulated=any(c["misaligned"] for c in sampled),
        exact=len(sampled) < len(cells),
        missed=any(not c["misaligned"] for c in sampled),
    )
    figure.legend(handles=handles, loc="outside upper left", ncols=3)


CELL_COLUMNS = (
    *("family", "subject", "evidence", "engine", "dim", "M", "K", "n_eff"),
    *("p", "p_low", "p_high", "misaligned", "trials", "b_exact", "b_align"),
)


def _cell_row(cell: Row) -> tuple[Any, ...]:
    low, high = cell["p_interval"] or (None, None)
    return tuple({**cell, "p_low": low, "p_high": high}[name] for name in CELL_COLUMNS)


def certificate(cells: Sequence[Row]) -> Picture:
    """P, B_exact and B_align over n_eff, a panel a population family (trained networks have their own figure)."""
    families = _grouped((c for c in cells if c["family"] != "trained"), lambda c: c["family"])
    chosen = [cell for family in families.values() for cell in family]
    rows = math.ceil(len(families) / 2)
    figure, grid = style.panels(rows, 2, width=8.4, height=0.5 + 3.4 * rows, sharex=False, sharey=False)
    panels = [axes for row in grid for axes in row]
    for axes, (family, members) in zip(panels, families.items(), strict=False):
        names = list(dict.fromkeys(map(population, members)))
        shapes = {name: SHAPES[number % len(SHAPES)] for number, name in enumerate(names)}
        for group in _grouped(members, lambda c: c["subject"]).values():
            _probabilities(axes, group, "n_eff", shapes[population(group[0])])
        _probability_axes(axes, members)
        axes.set(title=label(family), xlabel=N_EFF_LABEL, ylabel=r"$P(\mu_M^{\top} g_K \leq 0)$")
        handles = [Line2D([], [], color=TRUTH, marker=shapes[n], ls="", mfc="#BBBBBB", label=label(n)) for n in names]
        axes.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(-0.05, -0.17),
            ncols=3,
            fontsize=7.5,
            handletextpad=0.1,
            columnspacing=1,
        )
    reach = [cell["n_eff"] for cell in chosen]
    for axes in panels:
        axes.set_xlim(min(reach) / 1.3, max(reach) * 1.3)
    for axes in panels[len(families) :]:
        axes.remove()
    _legend(figure, chosen)
    below = sum(c["p"] < FLOOR and not c["trials"] for c in chosen)
    note = f" {style.plural(below, 'exact value')} below 10⁻⁸ lie on the axis." if below else ""
    return Picture(
        name="certificate",
        figure=figure,
        alt="Misalignment probability with both bounds over the effective number of samples, "
        f"one panel each for {', '.join(families)}.",
        caption="Certificate against truth. The shape of a point tells the population, filled points are exact, hollow "
        "ones are sampled with a 95 % Clopper-Pearson interval; a triangle is the upper end of that interval where no "
        f"draw was misaligned. Lines join M = K.{note}",
        columns=CELL_COLUMNS,
        rows=tuple(map(_cell_row, chosen)),
    )


def trained(cells: Sequence[Row], networks: Sequence[Row]) -> Picture:
    """P against both bounds over M = K, a row of panels a site and a column a width."""
    own = [cell for cell in cells if cell["family"] == "trained"]
    by_network = _grouped(own, lambda c: (c["population"]["record"], c["population"]["site"]))
    places, widths = sites(networks), sorted({n["width"] for n in networks if not n["diverged"]})
    figure, grid = style.panels(
        len(places), len(widths), width=max(4.2, 1 + 1.9 * len(widths)), height=0.9 + 1.8 * len(places)
    )
    chosen: list[Row] = []
    for site, line in zip(places, grid, strict=True):
        for width, axes in zip(widths, line, strict=True):
            found = [n for n, _ in measured(networks, site) if n["width"] == width]
            groups = [by_network[n["key"], site] for n in found]
            for group in groups:
                _probabilities(axes, group, "M")
                chosen += group
            if not groups:
                axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color="#666666")
            if line is grid[0]:
                axes.set_title(f"width {width:g}")
            if line is grid[-1]:
                axes.set_xlabel("$M = K$  [images]")
        line[0].set_ylabel(f"{label(site)}\n" + r"$P(\mu_M^{\top} g_K \leq 0)$")
    for line in grid:
        for axes in line:
            _probability_axes(axes, chosen)
    _legend(figure, chosen)
    return Picture(
        name="trained",
        figure=figure,
        alt="Misalignment frequency of trained networks with both bounds over M = K, "
        f"for sites {', '.join(places)} and widths {', '.join(f'{w:g}' for w in widths)}.",
        caption="Trained networks: frequency of misalignment in draws with replacement from the held-out gradients, "
        "against the bounds at the exact moments of that pool. Sampling unit: one image, its gradient flattened "
        "(channels × height × width).",
        columns=CELL_COLUMNS,
        rows=tuple(map(_cell_row, chosen)),
    )


# Tightness


def tightness(cells: Sequence[Row]) -> Picture:
    """The largest P / B of each population, for both bounds."""
    families = _grouped(cells, lambda c: c["family"])
    rows: list[tuple[Any, ...]] = []
    labels: list[tuple[float, str]] = []
    count = sum(len({population(c) for c in members}) for members in families.values())
    figure, grid = style.panels(1, 1, width=7.2, height=1.1 + 0.2 * (count + 1.2 * len(families)))
    axes, y = grid[0][0], 0.0
    for family, members in families.items():
        labels.append((y, family))
        y += 1
        for name, group in _grouped(members, population).items():
            labels.append((y, name))
            for bound, colour, shape, shift in (("b_align", B_ALIGN, "s", 0.14), ("b_exact", B_EXACT, "o", -0.14)):
                positive = [c for c in group if c[bound]]
                if not positive:
                    continue
                top = max(positive, key=lambda c: c["p"] / c[bound])
                ratio = top["p"] / top[bound]
                low, high = (end / top[bound] for end in top["p_interval"] or (top["p"], top["p"]))
                axes.plot([low, high], [y + shift] * 2, color=colour, lw=1)
                axes.plot([ratio], [y + shift], shape, color=colour, mfc="white" if top["trials"] else colour, ms=4.5)
                rows.append(
                    (family, name, bound, ratio, low, high, top["subject"], top["M"], top["K"], top["evidence"])
                )
            y += 1
        y += 0.3
    axes.axvline(1, color=TRUTH, lw=0.8)
    axes.set_yticks([position for position, _ in labels], [label(name) for _, name in labels])
    bold = set(map(label, families))
    for text in axes.get_yticklabels():
        text.set_fontweight("bold" if text.get_text() in bold else "normal")
    axes.set(ylim=(y, -0.7), xlim=(0, None), xlabel="largest $P / B$ over the grid  [1 = bound attained]")
    axes.tick_params(axis="y", length=0)
    handles = [
        Line2D([], [], color=B_EXACT, marker="o", ls="", label=r"$P / B_{\mathrm{exact}}$"),
        Line2D([], [], color=B_ALIGN, marker="s", ls="", label=r"$P / B_{\mathrm{align}}$"),
        Line2D([], [], color="#666666", marker="o", mfc="white", lw=1, label="sampled, 95 % interval"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=3)
    return Picture(
        name="tightness",
        figure=figure,
        alt=f"Dot plot of the largest ratio of misalignment probability to bound for {count} populations.",
        caption="Tightness: how much of each bound the truth uses at most. Filled points are exact. The interval is "
        "that of the one cell shown; being the largest of many, a sampled ratio tends to lie high.",
        columns=("family", "population", "bound", "ratio", "low", "high", "subject", "M", "K", "evidence"),
        rows=tuple(rows),
    )
