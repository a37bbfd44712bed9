"""Verdicts as JUnit XML, a test case a claim, for continuous integration systems."""

import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from . import tables
from .style import words

# What XML 1.0 cannot hold, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(document: dict[str, Any], path: Path) -> None:
    """Write the verdicts: REFUTED is a failure, INCONCLUSIVE an error, for undecided is not passed.

    Args:
        document: A run's document.
        path: The file to write; its folder must exist.

    Raises:
        FileNotFoundError: If the folder of ``path`` does not exist.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"--junit {path}: no folder {path.parent}; create it, or name a file in another folder."
        )
    verdicts = tables.restored(document)["verdicts"]
    counts = {
        "tests": str(len(verdicts)),
        "failures": str(sum(v["status"] == "REFUTED" for v in verdicts)),
        "errors": str(sum(v["status"] == "INCONCLUSIVE" for v in verdicts)),
    }
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": _text(f"rescert {document['job']}"), **counts})
    for verdict in verdicts:
        theory, _, name = verdict["claim"].rpartition(".")
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": _text(f"rescert.{theory}".rstrip(".")), "name": _text(name)}
        )
        if verdict["status"] == "REFUTED":
            example = verdict["counterexample"] or {}
            message = f"{words(example.get('subject'))}: {tables.compared(example)}"
            failure = ElementTree.SubElement(case, "failure", {"type": "REFUTED", "message": _text(message)})
            failure.text = _text("\n".join(f"{key}: {item}" for key, item in tables.counterexample(verdict)))
        elif verdict["status"] == "INCONCLUSIVE":
            note = verdict["note"] or "no check bore on the claim"
            ElementTree.SubElement(case, "error", {"type": "INCONCLUSIVE", "message": _text(note)})
        bore = f"evidence: {words(verdict['evidence']) or 'none'}; tried: {words(verdict['tried'])}"
        ElementTree.SubElement(case, "system-out").text = _text(f"{verdict['status']}; {bore}")
    temporary = path.with_name(f"{path.name}.tmp")
    ElementTree.ElementTree(root).write(temporary, encoding="utf-8", xml_declaration=True)
    os.replace(temporary, path)


def _text(value: str) -> str:
    return _FORBIDDEN.sub("\ufffd", value)
