"""Tables of the report, and the readings of a document that tables and figures share. Nothing is computed here."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .style import ABSENT, interval, number, plural, words

STATUSES = ("PROVED", "SUPPORTED", "REFUTED", "INCONCLUSIVE")
EVIDENCE = ("symbolic", "exact", "simulation", "trained")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells spelled out; the first ``labels`` columns are text, the others numbers."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1


@dataclass(frozen=True, kw_only=True)
class Words:
    """A paragraph, also for a part that is missing."""

    text: str


def restored(document: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with the numbers that strict JSON had to leave out, as ``document["nonfinite"]`` names them."""
    reasons = document.get("nonfinite", {})

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: walk(item, f"{path}.{key}" if path else key) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return float(reasons[path]) if value is None and path in reasons else value

    return {key: item if key == "nonfinite" else walk(item, key) for key, item in document.items()}


# Verdicts


def sentence(document: dict[str, Any]) -> str:
    """Say the outcome of the run in one sentence."""
    verdicts = document["verdicts"]
    if not verdicts:
        return "No claim was judged."
    counts = {status: sum(v["status"] == status for v in verdicts) for status in STATUSES}
    parts = [f"{count} {status.lower()}" for status, count in counts.items()]
    known = [v["confidence"] for v in verdicts if v["confidence"] is not None]
    text = f"{plural(len(verdicts), 'claim')} judged: {', '.join(parts[:-1])} and {parts[-1]}"
    details = ["nothing sampled"] if known and min(known) == 1 else []
    details += [f"confidence at least {number(min(known), 6)}"] if known and min(known) < 1 else []
    details += [f"preset {document['options']['preset']}"] if "preset" in document["options"] else []
    details.append(f"seed {document['seed']}")
    return f"{text} ({', '.join(details)})."


def ordered(verdicts: Sequence[dict[str, Any]], known: Sequence[str]) -> list[dict[str, Any]]:
    """Put what failed or stayed open first, then the claims in the order of the theory, then those not known to it."""
    urgent = {"REFUTED": 0, "INCONCLUSIVE": 1}
    place = {claim: number for number, claim in enumerate(known)}
    return sorted(verdicts, key=lambda v: (urgent.get(v["status"], 2), place.get(v["claim"], len(place))))


def compared(example: dict[str, Any]) -> str:
    """Say by how much a counterexample misses."""
    return f"{number(example.get('observed'), 8)} against {number(example.get('expected'), 8)}"


def repeat(document: dict[str, Any]) -> str:
    """Spell the command that repeats the run."""
    options = document["options"]
    order = ("of", "kind", "budget", "sharpen", "replay", "preset", "limit_error", "seed", "device")
    named = []
    for name in order:
        if options.get(name) is None or options[name] is False:
            continue
        value = [] if options[name] is True else [shlex.quote(str(options[name]))]
        named.append(" ".join([f"--{name.replace('_', '-')}", *value]))
    # A bound may begin with a minus sign.
    stated = ["--", shlex.quote(options["bound"])] if options.get("bound") else []
    return " ".join(["rescert", document["job"], *options.get("suites", ()), *named, *stated])


def counterexample(verdict: dict[str, Any]) -> list[tuple[str, str]]:
    """Return everything needed to see a counterexample again, by name."""
    names = {"subject": "where", "expected": "the claim says"}
    return [
        (names.get(key, key), words(item)) for key, item in verdict["counterexample"].items() if item not in (None, "")
    ]


def tried(verdicts: Sequence[dict[str, Any]]) -> Table:
    """Count the checks of every claim by evidence and status."""
    rows = []
    for verdict in verdicts:
        counts = [
            ", ".join(f"{count} {status.lower()}" for status, count in verdict["tried"].get(mode, {}).items()) or ABSENT
            for mode in EVIDENCE
        ]
        rows.append((verdict["claim"], *counts))
    return Table(
        caption="Checks by evidence and outcome.",
        header=("claim", *EVIDENCE),
        rows=tuple(rows),
        labels=1 + len(EVIDENCE),
    )


def undecided(verdicts: Sequence[dict[str, Any]]) -> Table | Words:
    """Name the claims with undecided checks."""
    rows = tuple((v["claim"], v["status"], v["note"]) for v in verdicts if v["note"])
    if not rows:
        return Words(text="Every check was decided.")
    return Table(caption="Claims with undecided checks.", header=("claim", "verdict", "note"), rows=rows, labels=3)


def run(document: dict[str, Any]) -> Table:
    """List seed, options, versions, devices and error budgets."""
    suites = {key: item for key, item in document.items() if isinstance(item, dict) and "error_budget" in item}
    devices = sorted({n["device"] for item in suites.values() for n in item.get("networks", ()) if n.get("device")})
    rows = [("repeat with", repeat(document)), ("seed", str(document["seed"]))]
    rows += [(f"option {name}", words(item)) for name, item in document["options"].items() if name != "seed"]
    rows += [(f"error budget, {name}", _budget(item["error_budget"])) for name, item in suites.items()]
    rows += [("networks trained on", ", ".join(devices))] if devices else []
    if document.get("wall_seconds") is not None:
        rows.append(("wall time", f"{number(document['wall_seconds'])} s"))
    rows += [(name, words(item)) for name, item in document["versions"].items()]
    rows += [("document format", str(document["format"])), ("run folder", document["out"])]
    return Table(caption="How this run was made.", header=("what", "value"), rows=tuple(rows), labels=2)


def _budget(budget: dict[str, Any]) -> str:
    return (
        f"{number(budget['alpha'])} for any wrong decision, shared equally by {plural(budget['tests'], 'sampled test')}"
    )


# Networks


def network(found: dict[str, Any]) -> str:
    """Name a trained network."""
    return f"width {found['width']:g}, seed {found['seed']}"


def sites(networks: Iterable[dict[str, Any]]) -> list[str]:
    """Return the sites probed in any network, in order."""
    return list(dict.fromkeys(site for found in networks for site in found["sites"]))


def measured(networks: Iterable[dict[str, Any]], site: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return (network, entry) for each network measured at a site."""
    found = ((n, n["sites"].get(site, {})) for n in networks)
    return [(n, entry) for n, entry in found if entry.get("status") == "measured"]


def gaps(networks: Iterable[dict[str, Any]]) -> list[Words]:
    """Say which networks diverged and which sites were not measured, and why."""
    said = []
    for found in networks:
        if found["diverged"]:
            said.append(f"The network of {network(found)} diverged; it was not measured.")
        for site, entry in found["sites"].items():
            if entry["status"] != "measured":
                reason = f": {entry['reason']}" if entry["reason"] else ""
                said.append(
                    f"Site {site} of the network of {network(found)} was not measured ({entry['status']}{reason})."
                )
            elif entry.get("nonfinite"):
                said.append(
                    f"At site {site} of the network of {network(found)}, {plural(entry['nonfinite'], 'gradient')} "
                    "with non-finite entries were left out."
                )
    return [Words(text=text) for text in said]


def trained(networks: Sequence[dict[str, Any]]) -> Table:
    """List the networks with size, data and held-out result."""
    rows = tuple(
        (
            network(n),
            n["data"],
            number(n["parameters"]),
            number(len(n["losses"])),
            number(n["losses"][-1] if n["losses"] else None),
            number(n["probe_loss"]),
            ABSENT if n["probe_accuracy"] is None else f"{n['probe_accuracy']:.1%}",
            number(n["overlap"]),
        )
        for n in networks
    )
    header = ("network", "data", "parameters", "steps", "last loss", "held-out loss", "held-out accuracy", "copies")
    caption = "Networks. Losses are cross entropies in nats; copies counts held-out images that also occur elsewhere."
    return Table(caption=caption, header=header, rows=rows, labels=2)


def _entries(networks: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    return [(site, found, entry) for site in sites(networks) for found, entry in measured(networks, site)]


def dimensions(networks: Sequence[dict[str, Any]]) -> Table:
    """List the estimated dimensions at every site."""
    rows = []
    for site, found, entry in _entries(networks):
        d = entry["interval"]
        size = (number(entry["n"]), number(entry["dim"]))
        values = (number(d["d_par"]), number(d["d_2"]), number(d["d_align"]))
        rows.append((site, network(found), *size, *values, interval(d["lower_align"], d["upper_align"])))
    levels = ", ".join(f"{level:.0%}" for level in sorted({e["interval"]["level"] for _, _, e in _entries(networks)}))
    header = ("site", "network", "samples n", "N", "d_par", "d_2", "d_align", "limits of d_align")
    caption = f"Alignment dimensions: limits one-sided at {levels}. Negative estimates are left as they are."
    return Table(caption=caption, header=header, rows=tuple(rows), labels=2)


def certificates(networks: Sequence[dict[str, Any]]) -> list[Table | Words]:
    """List what the samples alone certify: limits by moments, and the direct limit."""
    limits = [c for _, _, entry in _entries(networks) for c in entry["certificates"]]
    if not limits:
        return [Words(text="No certificate was drawn from data.")]
    grid = sorted({(c["M"], c["K"]) for c in limits})
    rows = []
    for site, found, entry in _entries(networks):
        known = {(c["M"], c["K"]): c for c in entry["certificates"]}
        rows.append((site, network(found), *(_limits(known.get(pair)) for pair in grid)))
    levels = ", ".join(f"{level:.0%}" for level in sorted({c["level"] for c in limits}))
    caption = (
        f"Certificates from data, one-sided at {levels} each. For each M, K: upper limit of B_exact / of B_align "
        "(by moments, asymptotic in n) / of P itself (direct, valid for any law and any n)."
    )
    header = ("site", "network", *(f"M, K = {M}, {K}" for M, K in grid))
    missing = [c for c in limits if c["direct_upper"] is None]
    reasons = dict.fromkeys(f"No direct limit at M, K = {c['M']}, {c['K']}: {c['direct_reason']}." for c in missing)
    return [Table(caption=caption, header=header, rows=tuple(rows), labels=2), *(Words(text=text) for text in reasons)]


def _limits(found: dict[str, Any] | None) -> str:
    if found is None:
        return ABSENT
    return " / ".join(number(found[name], 4) for name in ("b_exact_upper", "b_align_upper", "direct_upper"))


def trends(found: Sequence[dict[str, Any]]) -> list[Words]:
    """Say how d_align changes with width, whichever way."""
    said = []
    for trend in found:
        reading = trend["reading"]
        start = f"At {trend['site']}, "
        start += (
            f"the trend of d_align with width is {reading}"
            if reading.startswith("undecided")
            else f"d_align {reading} with width"
        )
        if trend["slope"] is not None:
            start += (
                f"; slope of log d_align against log width {number(trend['slope'])}, {trend['level']:.0%} interval "
                f"{interval(*trend['interval'])} over {plural(trend['points'], 'network')}"
            )
        said.append(Words(text=f"{start}."))
    if found:
        said.append(
            Words(
                text="The networks are compared after equally many steps, at the different losses tabled below: width "
                "and stage of training change together here. [width] reports growth of d_align with width for "
                "ResNet-20 on CIFAR; the intervals above say how far that is seen in this run."
            )
        )
    return said
