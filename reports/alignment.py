"""The section of the alignment suite: what the width theory says, against what was found."""

from typing import Any

from . import figures, network_figures, tables
from .figures import Picture
from .tables import Table, Words

Block = Picture | Table | Words


def section(results: dict[str, Any]) -> list[Block]:
    """Arrange the results of the suite, missing parts said in words."""
    cells, networks = results["cells"], results["networks"]
    blocks: list[Block] = []
    if any(cell["family"] != "trained" for cell in cells):
        blocks.append(figures.certificate(cells))
    else:
        blocks.append(Words(text="No population was computed or simulated."))
    if cells:
        blocks.append(figures.tightness(cells))
    if not networks:
        return [*blocks, Words(text="No network was trained.")]
    blocks += tables.gaps(networks)
    if any(cell["family"] == "trained" for cell in cells):
        blocks += [
            figures.trained(cells, networks),
            network_figures.dimension(networks),
            *tables.trends(results["trends"]),
        ]
    else:
        blocks.append(Words(text="No trained network was measured at any site."))
    if any(network["losses"] for network in networks):
        blocks.append(network_figures.training(networks))
    blocks.append(tables.trained(networks))
    if any(tables.measured(networks, site) for site in tables.sites(networks)):
        blocks += [tables.dimensions(networks), *tables.certificates(networks)]
    return blocks
