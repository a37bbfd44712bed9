"""From a document to its report: one self-contained page, Markdown, and every figure with its data."""

import base64
import csv
import io
import os
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ..theory import registry
from . import alignment, bounds, hidden_width, style, tables
from .figures import Picture
from .formulas import Piece, pieces

# One entry a suite: its key in the document, the heading, and what arranges its results.
SECTIONS: dict[str, tuple[str, Callable[[Any], list[alignment.Block]]]] = {
    "alignment": ("Alignment: the width certificate", alignment.section),
    "hidden_width": ("Hidden width: finite networks against the Neural Mean ODE", hidden_width.section),
    "bounds": ("Bounds of your own", bounds.section),
}
INLINE_SVG = 300_000  # bytes above which a figure goes into the page as PNG
_MARKDOWN = re.compile(r"([\\`*_\[\]|#])")


def build(document: dict[str, Any], folder: Path) -> Path:
    """Write ``folder/report``: index.html, report.md and figures/ with SVG, PNG and CSV.

    The same document gives the same bytes. Each file appears whole or not at all.

    Args:
        document: A run's document, as ``verify.document`` reads it.
        folder: The run folder.

    Returns:
        The path of index.html.
    """
    known = tables.restored(document)
    known["verdicts"] = tables.ordered(known["verdicts"], list(registry.CLAIMS))
    target = Path(folder) / "report"
    (target / "figures").mkdir(parents=True, exist_ok=True)
    with style.settings():
        sections = [
            (title, [_rendered(block) for block in arrange(known[key])])
            for key, (title, arrange) in SECTIONS.items()
            if key in known
        ]
    for block in (block for _, blocks in sections for block in blocks):
        if isinstance(block, Drawn):
            for form, content in block.files.items():
                _write(target / "figures" / f"{block.picture.name}.{form}", content)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": style.number, "md": markdown, "words": style.words}
    environment.tests["drawn"] = lambda block: isinstance(block, Drawn)
    environment.tests["table"] = lambda block: isinstance(block, tables.Table)
    shown = {
        "document": known,
        "sentence": tables.sentence(known),
        "refuted": [v for v in known["verdicts"] if v["counterexample"]],
        "statements": {v["claim"]: statement(v["claim"]) for v in known["verdicts"]},
        "compared": tables.compared,
        "counterexample": tables.counterexample,
        "repeat": tables.repeat(known),
        "sections": sections,
        "record": [
            tables.tried(known["verdicts"]),
            # The note of a checked bound says what its verdict means.
            *([] if known["job"] == "check" else [tables.undecided(known["verdicts"])]),
            tables.run(known),
        ],
    }
    _write(target / "report.md", environment.get_template("report.md.j2").render(shown).encode())
    page = target / "index.html"
    _write(page, environment.get_template("report.html.j2").render(shown).encode())
    return page


class Drawn:
    """A picture as files, and as an address that needs no other file."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        style.settle(picture.figure)
        self.files = {"svg": style.svg(picture.figure), "png": style.png(picture.figure), "csv": _csv(picture)}

    @property
    def address(self) -> Markup:
        """The figure as a data URI."""
        form, kind = ("svg", "svg+xml") if len(self.files["svg"]) < INLINE_SVG else ("png", "png")
        return Markup(f"data:image/{kind};base64,{base64.b64encode(self.files[form]).decode()}")


def _rendered(block: alignment.Block) -> Drawn | alignment.Block:
    return Drawn(block) if isinstance(block, Picture) else block


def statement(claim: str) -> list[Piece]:
    """Return a registered claim's statement ready to be shown; nothing for a claim of someone else."""
    return pieces(registry.CLAIMS[claim].statement) if claim in registry.CLAIMS else []


def markdown(text: Any) -> str:
    """Escape text for Markdown, tables and embedded HTML included."""
    escaped = str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(_MARKDOWN.sub(r"\\\1", escaped).split())


def _csv(picture: Picture) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(picture.columns)
    writer.writerows(picture.rows)
    return text.getvalue().encode()


def _template(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)
