"""The section of checked bounds: counterexample or proof, what was tried, the quantity against its bound."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from . import style
from .alignment import Block
from .figures import SHAPES, Picture, Row
from .style import TRUTH, label, number, plural
from .tables import Table, Words

SIGNS = {"upper-bound": "≤", "lower-bound": "≥", "identity": "=", "rate": "~"}
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
BROKEN = "#D55E00"
SIDES = {
    **dict.fromkeys(
        ("upper-bound", "lower-bound"),
        "bound, which is attained on the line and broken on the shaded side; 0 is drawn on the lower edge",
    ),
    **dict.fromkeys(("identity", "rate"), "claimed value; they agree on the line"),
}
SPREAD = 20.0  # largest ratio that a linear axis shows
REACH = 1e-12  # lower end of a logarithmic axis of probabilities


def section(results: Sequence[Row]) -> list[Block]:
    """Arrange each bound in turn."""
    return [block for number, bound in enumerate(results, start=1) for block in _bound(bound, number)]


def _bound(bound: Row, place: int) -> list[Block]:
    blocks: list[Block] = [Words(text=f"{bound['claim']}: {_said(bound)}")]
    blocks += [Words(text=f"{remark[0].upper()}{remark[1:]}.") for remark in bound["remarks"]]
    if example := bound["counterexample"]:
        caption = f"Counterexample, confirmed by {example['confirmed']}."
        if bound["stored"]:
            caption += f" Compute it again with rescert check --replay {bound['stored']}."
        rows = tuple(map(tuple, example["table"]))
        blocks.append(Table(caption=caption, header=("what", "value"), rows=rows, labels=2))
    if bound["decision"] and bound["decision"]["proved"]:
        blocks.append(Words(text=f"Decided: {bound['decision']['implication']}."))
    blocks += [Words(text=f"Open: {reason}.") for reason in bound["undecided"]]
    if bound["cases"]:
        blocks.append(picture(bound, place))
        blocks.append(extremes(bound))
    else:
        blocks.append(Words(text="No case was computed."))
    if bound["tried"]:
        blocks.append(tried(bound))
    if sharpened := bound.get("sharpen"):
        blocks.append(
            Words(
                text=f"The smallest constant c for which c times the bound was not refuted is "
                f"{number(sharpened['constant'], 6)}: the largest exact ratio of quantity and bound that was found."
            )
        )
    for key, caption in (("exponents", "Exponents, set free one by one."), ("rivals", "Rivals.")):
        if bound.get(key):
            blocks.append(_listed(bound[key], caption))
    return blocks


def _said(bound: Row) -> str:
    sign = SIGNS[bound["kind"]]
    return f"{bound['quantity']} {sign} {bound['formula']}, where {bound['quantity']} is the {bound['meaning']}."


def picture(bound: Row, place: int) -> Picture:
    """The quantity against the bound, and how near it comes, a group a family."""
    cases = bound["cases"]
    known = list(dict.fromkeys(case["family"] for case in cases))
    families = {family: COLOURS[place % len(COLOURS)] for place, family in enumerate(known)}
    height = 3.6 + 0.16 * max(0, len(families) - 6)
    figure, grid = style.panels(1, 2, width=8.8, height=height, sharex=False, sharey=False)
    against, ratios = grid[0]
    _against(against, bound, families)
    for y, family in enumerate(known):
        for case in (c for c in cases if c["family"] == family):
            ratio = case["ratio"]
            if ratio is not None and abs(ratio) < 1e6:
                face = families[family] if case["exact"] else "white"
                ratios.plot([ratio], [y], "|" if case["exact"] else "o", color=families[family], mfc=face, ms=9)
    ratios.axvline(1, color=TRUTH, lw=0.9)
    ratios.set_yticks(range(len(known)), [label(family) for family in known])
    if max((abs(case["ratio"]) for case in cases if case["ratio"] is not None), default=0) > SPREAD:
        ratios.set_xscale("symlog", linthresh=1)
    over = "bound / quantity" if bound["kind"] == "lower-bound" else "quantity / bound"
    ratios.set(ylim=(len(known) - 0.4, -0.6), xlabel=f"{over}  [1: attained; right of it: broken]")
    ratios.tick_params(axis="y", length=0)
    handles = [
        Line2D([], [], color=TRUTH, lw=0.9, label="bound attained"),
        Line2D([], [], color="#666666", marker="o", ls="", label="exact"),
        Line2D([], [], color="#666666", marker="o", mfc="white", ls="", label="sampled"),
        Line2D([], [], color=BROKEN, marker="x", mew=1.8, ms=8, ls="", label="broken"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4)
    return Picture(
        name=f"bound-{place}",
        figure=figure,
        alt=f"Scatter of the {bound['meaning']} against the bound for {plural(len(cases), 'case')}, with their ratios.",
        caption=f"Left: the quantity against the {SIDES[bound['kind']]}. Right: the ratio, a row a family. "
        "Only the tightest and the loosest of the cases tried are drawn.",
        columns=("stage", "family", "subject", "observed", "bound", "ratio", "exact"),
        rows=tuple(
            tuple(case[name] for name in ("stage", "family", "subject", "observed", "bound", "ratio", "exact"))
            for case in cases
        ),
    )


def _against(axes: Axes, bound: Row, families: dict[str, str]) -> None:
    finite = [c for c in bound["cases"] if c["bound"] is not None and abs(c["bound"]) < 1e12]
    seen = [c[side] for c in finite for side in ("observed", "bound")]
    positive = any(x > 0 for x in seen) and min(seen) >= 0
    # A probability of 0 has no place on a logarithmic axis: it is drawn on the lower edge.
    least = max(REACH, min(x for x in seen if x > 0) / 3) if positive else -float("inf")
    points = [(max(c["bound"], least), max(c["observed"], least), c) for c in finite]
    upper = bound["kind"] == "lower-bound"
    for index, (family, colour) in enumerate(families.items()):
        for x, y, case in (p for p in points if p[2]["family"] == family):
            ratio = case["ratio"]
            broken = ratio is not None and ratio > 1 + 1e-9 and bound["kind"] != "rate" and bound["counterexample"]
            if broken:
                axes.plot([x], [y], "x", color=BROKEN, ms=8, mew=1.8, zorder=4)
            else:
                face = colour if case["exact"] else "white"
                axes.plot([x], [y], SHAPES[index % len(SHAPES)], color=colour, mfc=face, ms=4.5, alpha=0.8)
    if not points:
        return
    low = min(min(x, y) for x, y, _ in points)
    high = max(max(x, y) for x, y, _ in points)
    if positive:
        axes.set(xscale="log", yscale="log")
        low, high = low / 2, high * 2
    else:
        margin = 0.08 * (high - low or 1)
        low, high = low - margin, high + margin
    axes.plot([low, high], [low, high], color=TRUTH, lw=0.9)
    if bound["kind"] in ("upper-bound", "lower-bound"):
        axes.fill_between([low, high], [low, high], low if upper else high, color="#F3DDD3", lw=0, zorder=0)
    axes.set(xlim=(low, high), ylim=(low, high), xlabel=f"bound  [{bound['kind']}]", ylabel=f"{bound['quantity']}")


def extremes(bound: Row) -> Table:
    """List the tightest and the loosest cases drawn."""
    known = sorted((c for c in bound["cases"] if c["ratio"] is not None), key=lambda c: -c["ratio"])
    tightest = {case["family"]: case for case in reversed(known)}
    chosen = [case for case in known if tightest[case["family"]] is case]
    chosen += [case for case in known[-1:] if case not in chosen]
    rows = tuple(
        (case["subject"], case["stage"], *(number(case[name], 6) for name in ("observed", "bound", "ratio")))
        for case in chosen
    )
    header = ("case", "stage", "quantity", "bound", "ratio")
    caption = "Where the bound is tightest, a case a family, and where it is loosest."
    return Table(caption=caption, header=header, rows=rows, labels=2)


def tried(bound: Row) -> Table:
    """Count what each stage of the search tried."""
    names = list(dict.fromkeys(name for counts in bound["tried"].values() for name in counts))
    rows = tuple((stage, *(number(counts.get(name)) for name in names)) for stage, counts in bound["tried"].items())
    late = "" if bound["finished"] else " The time was up before every stage was run."
    return Table(caption=f"What was tried.{late} A search is no proof.", header=("stage", *names), rows=rows)


def _listed(rows: Sequence[dict[str, Any]], caption: str) -> Table:
    names = list(rows[0])
    return Table(
        caption=caption,
        header=tuple(names),
        rows=tuple(tuple(_entry(row[name]) for name in names) for row in rows),
        labels=1,
    )


def _entry(value: Any) -> str:
    if isinstance(value, list) and len(value) == 2:
        return style.interval(value[0], value[1], 4)
    return number(value, 4) if isinstance(value, float) else style.words(value)
