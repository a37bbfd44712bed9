"""Figures of the trained networks themselves: their alignment dimension and their training."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D

from . import style
from .figures import Picture, Row
from .style import TRUTH, WIDTHS, label
from .tables import measured, sites


def dimension(networks: Sequence[Row]) -> Picture:
    """d_align with its limits against width, a panel a site."""
    places = [site for site in sites(networks) if measured(networks, site)]
    figure, grid = style.panels(1, len(places), width=max(4.2, 1 + 2.6 * len(places)), height=3.0)
    rows: list[tuple[Any, ...]] = []
    entries = {site: measured(networks, site) for site in places}
    limits = [e["interval"] for found in entries.values() for _, e in found]
    points = [i["d_align"] for i in limits if 0 < i["d_align"] < math.inf] or [1.0]
    ends = [*points, *(e for i in limits for e in (i["lower_align"], i["upper_align"]) if 0 < e < math.inf)]
    # One very uncertain network must not squeeze all the others.
    bottom, top = max(min(ends), min(points) / 100) / 1.5, min(max(ends), max(points) * 100) * 1.5
    seeds = sorted({n["seed"] for n in networks})
    shifts = {seed: 1.08 ** (k - (len(seeds) - 1) / 2) for k, seed in enumerate(seeds)}
    for site, axes in zip(places, grid[0], strict=True):
        for network, entry in entries[site]:
            found, width, at = entry["interval"], network["width"], network["width"] * shifts[network["seed"]]
            low, high = found["lower_align"], found["upper_align"]
            axes.plot([at] * 2, [min(max(end, bottom), top) for end in (low, high)], color=TRUTH, lw=1)
            for beyond, shape, edge in ((low < bottom, "v", bottom), (high > top, "^", top)):
                if beyond:
                    axes.plot([at], [edge], shape, color=TRUTH, mfc="white", ms=5, clip_on=False, zorder=3)
            if 0 < found["d_align"] < math.inf:
                axes.plot([at], [found["d_align"]], "o", color=TRUTH, ms=4.5)
            rows.append((site, width, network["seed"], entry["n"], found["d_align"], low, high, found["level"]))
        axes.set(title=label(site), xlabel="width multiplier", xscale="log", yscale="log", ylim=(bottom, top))
        widths = sorted({network["width"] for network, _ in entries[site]})
        axes.set_xlim(widths[0] / 1.4, widths[-1] * 1.4)
        axes.set_xticks(widths, [f"{w:g}" for w in widths])
        axes.minorticks_off()
    grid[0][0].set_ylabel(r"$d_{\mathrm{align}}$  (dimensionless)")
    return Picture(
        name="dimension",
        figure=figure,
        alt=f"Effective alignment dimension with limits against the width multiplier, at sites {', '.join(places)}.",
        caption="d_align against width: estimate with lower and upper limit, each one-sided at its level; seeds stand "
        "side by side. A triangle at an edge marks a limit beyond it, zero and infinity included; an estimate that is "
        "not positive has no point. Sampling unit: one image, gradient flattened.",
        columns=("site", "width", "seed", "n", "d_align", "lower", "upper", "level"),
        rows=tuple(rows),
    )


def training(networks: Sequence[Row]) -> Picture:
    """Mini-batch loss against steps."""
    figure, grid = style.panels(1, 1, width=6.4, height=2.9)
    axes, widths = grid[0][0], sorted({n["width"] for n in networks})
    looks: dict[float, dict[str, Any]] = {
        width: {"color": WIDTHS[k % len(WIDTHS)], "ls": ("-", "--", ":")[k // len(WIDTHS) % 3], "lw": 1.1}
        for k, width in enumerate(widths)
    }
    for network in networks:
        steps = range(len(network["losses"]))
        axes.plot(steps, network["losses"], **looks[network["width"]])
    axes.set(xlabel="step", ylabel="mini-batch loss  [nats]")
    handles = [Line2D([], [], label=f"width {width:g}", **looks[width]) for width in widths]
    figure.legend(handles=handles, loc="outside right upper")
    return Picture(
        name="training",
        figure=figure,
        alt=f"Training loss against steps for widths {', '.join(f'{w:g}' for w in widths)}.",
        caption="Training curves: cross entropy of each mini-batch before its step, a line a network.",
        columns=("width", "seed", "step", "loss"),
        rows=tuple((n["width"], n["seed"], step, loss) for n in networks for step, loss in enumerate(n["losses"])),
    )
