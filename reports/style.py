"""How the report looks and spells: one palette (Okabe-Ito), one set of figure settings, one way to write numbers."""

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe-Ito; a colour means one thing on the whole page.
TRUTH, B_EXACT, B_ALIGN, GRID = "#000000", "#0072B2", "#E69F00", "#D9D9D9"
WIDTHS = ("#56B4E9", "#009E73", "#CC79A7", "#D55E00")
ABSENT = "–"

# Any, for matplotlib types its keys one by one.
SETTINGS: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "figure.dpi": 100,
    "savefig.facecolor": "white",
    # Reproducible bytes: ids of an SVG come from its content, glyphs are drawn as paths.
    "svg.hashsalt": "rescert",
    "svg.fonttype": "path",
}
PNG_DPI = 160


@contextmanager
def settings() -> Iterator[None]:
    """Draw and save with the report's settings, whatever a user's matplotlibrc says, and put those back."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def panels(
    rows: int, columns: int, *, width: float, height: float, sharex: bool = True, sharey: bool = True
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure of ``rows`` x ``columns`` panels; width and height in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False)
    return figure, [list(row) for row in axes]


def settle(figure: Figure) -> None:
    """Lay a finished figure out, once for all formats."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def label(text: str) -> str:
    """Let a name stand in a figure as it is: no mathematics in it, nothing that a font cannot draw."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text).replace("$", r"\$")


def svg(figure: Figure) -> bytes:
    """Serialise as SVG, the same bytes for the same figure."""
    return _save(figure, "svg", metadata={"Date": None, "Creator": None})


def png(figure: Figure) -> bytes:
    """Serialise as PNG, the same bytes for the same figure."""
    return _save(figure, "png", metadata={"Software": None}, dpi=PNG_DPI)


def _save(figure: Figure, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with settings():
        figure.savefig(buffer, format=form, **options)
    return buffer.getvalue()


def number(value: float | int | None, digits: int = 3) -> str:
    """Spell a number for a table; a missing one is a dash and a non-finite one is a word."""
    if value is None:
        return ABSENT
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(value)
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    spelled = f"{mantissa}·10{_superscript(int(exponent))}" if exponent else mantissa
    return spelled.replace("-", "−")


def _superscript(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    """Spell an interval."""
    return ABSENT if low is None and high is None else f"[{number(low, digits)}, {number(high, digits)}]"


def plural(count: int, noun: str, many: str = "") -> str:
    """Spell a count with its noun."""
    return f"{number(count)} {noun if count == 1 else many or noun + 's'}"


def words(value: Any) -> str:
    """Spell a value of options, populations and counterexamples: floats to the bit, no null."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else number(value)
    if isinstance(value, dict):
        return ", ".join(f"{key} = {words(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(words(item) for item in value)
    return str(value)
