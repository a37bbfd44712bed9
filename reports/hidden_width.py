"""The section of the hidden width: what the rates of the theory say, against finite networks and their limit."""

from collections.abc import Callable
from typing import Any

from . import phase_figures, rate_figures, rate_tables, slope_figures
from .alignment import Block
from .tables import Words


def section(results: dict[str, Any]) -> list[Block]:
    """Arrange the results of the suite, missing parts said in words."""
    cells, fits, limits = results["cells"], results["fits"], results["limits"]
    exponents, level = results["exponents"], results["level"]
    blocks: list[Block] = [Words(text=f"Data seed of the figures and tables below: {results['data_seed']}.")]
    if exponents:
        blocks += [slope_figures.exponents(exponents), rate_tables.exponents(exponents, level)]
        blocks += rate_tables.reasons(exponents)
    else:
        blocks.append(Words(text="No exponent was fitted."))
    surfaces = rate_figures.surfaces(cells, fits, limits)
    blocks += surfaces or [Words(text="No error surface was measured: no k, D, α and S with at least 3 shapes.")]
    blocks += rate_tables.rivals(fits) or [Words(text="No error surface was fitted, so no rivals are compared.")]
    blocks += rate_figures.parts(cells) or [Words(text="Bias and variance were not told apart.")]
    dimension = rate_figures.dimension(cells)
    blocks.append(dimension or Words(text="The document holds no networks that differ in the dimension D only."))
    series: tuple[tuple[str, Callable[[Any], Block], str], ...] = (
        ("noiseless", slope_figures.noiseless, "The term 1/L was not measured without noise."),
        ("lazy", slope_figures.lazy, "The distance from the lazy limit was not measured."),
        ("chaos", slope_figures.chaos, "The correlation between units was not measured."),
        ("phase", phase_figures.phase, "No phase diagram was measured."),
        ("training", phase_figures.training, "No losses were kept."),
        ("limits", rate_tables.limits, "No limit was computed."),
    )
    kept = results | {"training": [row for row in results["training"] if row["losses"]]}
    blocks += [draw(kept[key]) if kept[key] else Words(text=missing) for key, draw, missing in series]
    blocks += rate_tables.breakdowns(results.get("breakdown", ()))
    blocks += rate_tables.missed(limits)
    return [*blocks, rate_tables.diverged(cells, results["phase"])]
