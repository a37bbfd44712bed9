"""The one document of a run: strict JSON with verdicts and job-specific results, written once, read by the reports."""

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

from .decisions import Status, Verdict

DOCUMENT_FORMAT = 1
FILE = "verdicts.json"


class DocumentError(RuntimeError):
    """A run folder whose verdicts are missing or unreadable."""


def strict(value: Any, path: str = "") -> tuple[Any, dict[str, str]]:
    """Replace non-finite numbers by None and say which they were.

    Args:
        value: Nested dicts, lists and scalars.
        path: Where ``value`` stands, as in "verdicts[3].tightness.ratio".

    Returns:
        The cleaned value and a map from path to "nan", "inf" or "-inf".
    """
    if isinstance(value, dict):
        parts = {str(key): strict(item, f"{path}.{key}" if path else str(key)) for key, item in value.items()}
        return {key: item for key, (item, _) in parts.items()}, _merge(found for _, found in parts.values())
    if isinstance(value, (list, tuple)):
        items = [strict(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return [item for item, _ in items], _merge(found for _, found in items)
    if isinstance(value, float) and not math.isfinite(value):
        return None, {path: str(float(value))}
    return value, {}


def _merge(parts: Any) -> dict[str, str]:
    return {path: name for part in parts for path, name in part.items()}


def build(
    *, job: str, options: dict[str, Any], versions: dict[str, str], out: Path, verdicts: list[Verdict], results: dict
) -> dict[str, Any]:
    """Assemble the document of a finished run; ``results`` holds one entry a suite beside the verdicts.

    Non-finite numbers become null; ``nonfinite`` maps their paths to what they were.
    """
    document: dict[str, Any] = {
        "format": DOCUMENT_FORMAT,
        "job": job,
        "seed": options["seed"],
        "options": options,
        "versions": versions,
        "out": str(out),
        "report": str(out / "report" / "index.html"),
        "verdicts": [
            {
                **dataclasses.asdict(verdict),
                "status": verdict.status.value,
                "evidence": [e.value for e in verdict.evidence],
            }
            for verdict in verdicts
        ],
        **results,
    }
    cleaned, reasons = strict(document)
    cleaned["nonfinite"] = reasons
    return cleaned


def dumps(document: Any) -> str:
    """Serialise as strict JSON, non-finite numbers refused."""
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)


def write(document: dict[str, Any], folder: Path) -> Path:
    """Write the document whole or not at all, and return its path."""
    target = folder / FILE
    temporary = target.with_suffix(".tmp")
    temporary.write_text(dumps(document) + "\n", encoding="utf-8")
    os.replace(temporary, target)
    return target


def read(folder: Path) -> dict[str, Any]:
    """Read the document of a finished run.

    Raises:
        DocumentError: If there is none, it is broken, or it has another format.
    """
    path = folder / FILE
    if not path.is_file():
        raise DocumentError(f"{path}: no verdicts there; finish the run with `rescert resume {folder}`.")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DocumentError(f"{path}: not valid JSON ({error}); rebuild it with `rescert resume {folder}`.") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found == DOCUMENT_FORMAT and not _complete(document):
        raise DocumentError(f"{path}: parts of the document are missing; rebuild it with `rescert resume {folder}`.")
    if found != DOCUMENT_FORMAT:
        raise DocumentError(
            f"{path}: document format {found!r}, this version reads {DOCUMENT_FORMAT}; "
            f"rebuild it with `rescert resume {folder}`."
        )
    return document


def _complete(document: dict[str, Any]) -> bool:
    fields = {field.name for field in dataclasses.fields(Verdict)}
    verdicts = document.get("verdicts")
    return (
        {"job", "seed", "options", "versions", "out", "report"} <= document.keys()
        and isinstance(verdicts, list)
        and all(isinstance(verdict, dict) and fields <= verdict.keys() for verdict in verdicts)
    )


def exit_code(document: dict[str, Any]) -> int:
    """Return 1 if a claim was refuted, 3 if one stayed inconclusive, else 0."""
    found = {verdict["status"] for verdict in document["verdicts"]}
    if Status.REFUTED in found:
        return 1
    return 3 if Status.INCONCLUSIVE in found or not found else 0
