"""Formulas for a page without scripts: the mathematics of a LaTeX statement as small drawings, its words as text."""

import re
from dataclasses import dataclass

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

EM = 250  # units of a drawing: a thirtieth of a pixel on a screen
_FONT = FontProperties(math_fontfamily="stix")
_LETTER = dict(zip((1, 2, 3, 4, 79), "MLQCZ", strict=True))
_WORDS = re.compile(r"\\text\{([^{}]*)\}|\\quad(?![a-zA-Z])")
# What matplotlib's mathtext spells otherwise than LaTeX: names, and the braces that \frac must have.
_NAMES = {
    r"\tfrac": r"\frac",
    r"\le": r"\leq",
    r"\ge": r"\geq",
    r"\iff": r"\Leftrightarrow",
    r"\top": "⊤",
    r"\parallel": r"\Vert",
}
_NAME = re.compile("|".join(re.escape(name) + "(?![a-zA-Z])" for name in _NAMES))
_BARE_NUMERATOR = re.compile(r"\\frac\s*(\w)")
_BARE_DENOMINATOR = re.compile(r"(\\frac\{\w\})\s*(\w)")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Words, or a formula drawn as an SVG path: ``text`` is then its source. Lengths in em, ``drop`` below the line."""

    text: str
    path: str = ""
    view_box: str = ""
    width: str = ""
    height: str = ""
    drop: str = ""


def pieces(latex: str) -> list[Piece]:
    """Split a LaTeX statement into words and formulas, which follow each other and wrap like words.

    A formula that cannot be drawn becomes words: its LaTeX source.
    """
    found: list[Piece] = []
    position = 0
    for match in _WORDS.finditer(latex):
        _add(found, latex[position : match.start()])
        if match[1] and match[1].strip():
            found.append(Piece(text=match[1].strip()))
        position = match.end()
    _add(found, latex[position:])
    return found


def _add(found: list[Piece], latex: str) -> None:
    source = re.sub(r"^(\\ |\s)+|(\\ |\s)+$", "", latex)
    if not source:
        return
    if set(source) <= set(".,;:)") and found and not found[-1].path:
        found[-1] = Piece(text=found[-1].text + source)
    else:
        found.append(_drawn(source))


def _drawn(source: str) -> Piece:
    spelled = _NAME.sub(lambda match: _NAMES[match[0]], source)
    spelled = _BARE_DENOMINATOR.sub(r"\1{\2}", _BARE_NUMERATOR.sub(r"\\frac{\1}", spelled))
    try:
        drawing = TextPath((0, 0), f"${spelled}$", size=EM, prop=_FONT)
    except ValueError:
        return Piece(text=source)
    box = drawing.get_extents()
    left, right = int(box.x0) - 5, int(box.x1) + 5
    bottom, top = int(box.y0) - 5, int(box.y1) + 5
    steps = []
    for points, code in drawing.iter_segments(simplify=False):
        # An SVG's y axis points down.
        numbers = [f"{round(float(x) * sign)}" for x, sign in zip(points, (1, -1) * (len(points) // 2), strict=True)]
        steps.append(_LETTER[int(code)] + ("" if code == 79 else " ".join(numbers)))
    return Piece(
        text=source,
        path="".join(steps),
        view_box=f"{left} {-top} {right - left} {top - bottom}",
        width=f"{(right - left) / EM:.3f}",
        height=f"{(top - bottom) / EM:.3f}",
        drop=f"{bottom / EM:.3f}",
    )
