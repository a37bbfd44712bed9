"""The command line: parse, call one function a job, print, map the outcome to an exit code."""

import contextlib
import functools
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .version import VERSION

if TYPE_CHECKING:
    from .sim.records import Run

app = typer.Typer(
    name="rescert",
    help="Certificates for width, depth and hidden width of residual networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
USAGE_ERROR, DEFECT, INTERRUPTED = 2, 70, 130
READABLE = 72  # columns of a terminal below which a table folds every cell
STYLES = {"PROVED": "bold green", "SUPPORTED": "green", "REFUTED": "bold red", "INCONCLUSIVE": "yellow"}

Seed = Annotated[int, typer.Option(min=0, help="Root of every random stream; the same seed gives the same verdicts.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda[:i], for trained networks.")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Worker processes (default: one a core).")]
Cluster = Annotated[str | None, typer.Option(help="Address of a Dask scheduler to run the jobs on.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one strict JSON document and nothing else.")]
Junit = Annotated[Path | None, typer.Option(help="Also write the verdicts as JUnit XML, a test case a claim.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table; the exit code tells.")]
Out = Annotated[Path | None, typer.Option(help="Run folder (default: rescert-runs/<time>-<job>).")]


def _reported(command: Callable[..., None]) -> Callable[..., None]:
    """Turn errors of use into one line on standard error and exit code 2, an interruption into 130."""

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except KeyboardInterrupt as interruption:
            where = interruption.args[0] if interruption.args else "RUN"
            _complain(f"interrupted; what was finished is kept: go on with `rescert resume {where}`.")
            raise typer.Exit(INTERRUPTED) from None
        except (ValueError, OSError, RuntimeError, ModuleNotFoundError) as error:
            # An error of another package's own type is a defect to be seen whole, not bad input.
            if isinstance(error, RuntimeError) and not type(error).__module__.startswith("rescert."):
                raise
            if os.environ.get("RESCERT_TRACEBACK"):
                raise
            _complain(str(error))
            raise typer.Exit(USAGE_ERROR) from None

    return wrapped


def _version(value: bool) -> None:
    if value:
        typer.echo(f"rescert {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
@_reported
def verify(
    suites: Annotated[list[str] | None, typer.Argument(help="Suites to run (default: all).")] = None,
    preset: Annotated[str, typer.Option(help="quick, paper or full.")] = "quick",
    out: Out = None,
    seed: Seed = 0,
    device: Device = "auto",
    jobs: Jobs = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
    junit: Junit = None,
    quiet: Quiet = False,
) -> None:
    """Judge every claim of the theory against exact computation, simulation and trained networks."""
    from .verify.suites import select

    _check_ends(cluster, junit)
    run = _create("verify", out, preset, seed, device, suites=select(suites or []))
    _judge(run, jobs, cluster, as_json, junit, quiet)


@app.command()
@_reported
def rates(
    preset: Annotated[str, typer.Option(help="quick, paper or full.")] = "quick",
    limit_error: Annotated[
        float | None, typer.Option(help="Standard error to reach for the limit (default: the preset's), as in 1e-4.")
    ] = None,
    out: Out = None,
    seed: Seed = 0,
    device: Device = "auto",
    jobs: Jobs = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
    junit: Junit = None,
    quiet: Quiet = False,
) -> None:
    """Fit how fast finite networks approach their limit in depth, units and dimension, against the theory's rates."""
    if limit_error is not None and not 0 < limit_error < math.inf:
        raise ValueError(f"--limit-error: expected a positive, finite number such as 1e-4, got {limit_error}.")
    _check_ends(cluster, junit)
    run = _create("rates", out, preset, seed, device, limit_error=limit_error)
    _judge(run, jobs, cluster, as_json, junit, quiet)


@app.command()
@_reported
def check(
    bound: Annotated[
        str | None,
        typer.Argument(help="A bound as text, or a Python file with claims; after `--` it may begin with a minus."),
    ] = None,
    of: Annotated[str, typer.Option("--of", help="What the bound is on; --list shows all.")] = "misalignment",
    kind: Annotated[
        str | None, typer.Option(help="upper-bound, lower-bound, identity or rate (default: the quantity's first).")
    ] = None,
    budget: Annotated[float, typer.Option(help="Seconds for the search of each bound.")] = 60.0,
    sharpen: Annotated[
        bool, typer.Option("--sharpen", help="Look for the smallest constant c for which c times the bound stands.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show the quantities and their letters.")] = False,
    replay: Annotated[Path | None, typer.Option(help="Compute a stored counterexample again.")] = None,
    out: Out = None,
    seed: Seed = 0,
    jobs: Jobs = None,
    as_json: AsJson = False,
    junit: Junit = None,
    quiet: Quiet = False,
) -> None:
    """Check a bound of your own: a proof, a counterexample to verify by hand, or how hard it was tried."""
    if sum((bound is not None, listed, replay is not None)) != 1:
        raise ValueError("check: give one of a bound, --list or --replay FILE; as in `rescert check '1/d_align'`.")
    if listed:
        _list_quantities(as_json)
        return
    if not 0 < budget < math.inf:
        raise ValueError(f"--budget: expected a positive, finite number of seconds, got {budget}.")
    _check_ends(None, junit)
    from .verify.bounds.ask import stated

    options = {
        "seed": seed,
        "bound": bound,
        "of": of,
        "kind": kind,
        "budget": budget,
        "sharpen": sharpen,
        "replay": None if replay is None else str(replay.absolute()),
    }
    stated(options)  # a bound that cannot be read leaves no folder behind
    _judge_bounds(_run_folder("check", out, options), jobs, as_json, junit, quiet)


@app.command()
@_reported
def resume(
    run: Annotated[Path, typer.Argument(help="Folder of an interrupted run.")],
    jobs: Jobs = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
    junit: Junit = None,
    quiet: Quiet = False,
) -> None:
    """Go on with an interrupted run: finished jobs are kept, only what is missing is computed."""
    from .sim.records import Run

    _check_ends(cluster, junit)
    found = Run.open(run)
    if found.job == "check":
        _judge_bounds(found, jobs, as_json, junit, quiet)
    else:
        _judge(found, jobs, cluster, as_json, junit, quiet)


@app.command()
@_reported
def report(run: Annotated[Path, typer.Argument(help="Folder of a finished run.")], as_json: AsJson = False) -> None:
    """Redraw the report of a finished run from its records and verdicts."""
    from .reports.build import build
    from .sim.records import Run
    from .verify import document

    found = document.read(Run.open(run).path)
    page = build(found, run)
    typer.echo(document.dumps(found) if as_json else str(page))


@app.command()
@_reported
def claims(
    claim: Annotated[str | None, typer.Argument(help="One claim, with formula, source and proof.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the claims of the theory, or print one with its proof."""
    from .theory import registry
    from .theory.claims import describe
    from .verify.bounds.proving import orderings

    if claim is not None:
        asked = registry.find(claim)
        found = describe(asked)
        found["orderings"] = [
            {"relation": item.relation, "other": item.other} for item in orderings(asked, registry.claims())
        ]
        _print_json(found) if as_json else _print_claim(found)
    elif as_json:
        _print_json([describe(item) for item in registry.claims()])
    else:
        table = _columns("claim", "kind", "formula", "source")
        for item in registry.claims():
            table.add_row(item.id, item.kind, escape(str(item.expression)), escape(str(item.source)))
        Console(highlight=False).print(table)


def _print_json(found: Any) -> None:
    typer.echo(json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False))


def _print_claim(found: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{found['id']}[/bold]  ({found['kind']}; {escape(found['source'])})")
    rows = [
        ("of", found["quantity"]["meaning"]),
        ("formula", found["formula"]),
        ("statement", found["statement"]),
        *(("assumes", assumption) for assumption in found["assumptions"]),
        *((letter, meaning) for letter, meaning in found["letters"].items()),
    ]
    for name, text in rows:
        console.print(f"  {name:<12} {escape(text)}")
    for ordering in found["orderings"]:
        compared = "compares with" if ordering["relation"] == "incomparable" else ordering["relation"]
        console.print(f"  {compared:<12} {ordering['other']}  [dim](for all letters that a law can have, by z3)[/dim]")
    if found["proof"] is None:
        console.print("  proof        none on record: judged by computation")
        return
    console.print(f"  proof        {'[green]holds[/green]' if found['proof']['holds'] else '[red]fails[/red]'}")
    for number, step in enumerate(found["proof"]["steps"], start=1):
        mark = "[green]holds[/green]" if step["holds"] else "[red]FAILS[/red]"
        console.print(f"  {number:>3}. {mark} {escape(step['text'])} [dim]({step['rule']})[/dim]")
        console.print(f"             [dim]{escape(step['formula'])}[/dim]")
        if step["leftover"]:
            console.print(f"             [red]{escape(step['leftover'])}[/red]")


def _create(job: str, out: Path | None, preset: str, seed: int, device: str, **options: Any) -> "Run":
    from .sim.training import resolve_device
    from .verify.suites import PRESETS

    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}; expected one of {', '.join(PRESETS)}.")
    options |= {"preset": preset, "seed": seed, "device": str(resolve_device(device))}
    return _run_folder(job, out, options)


def _run_folder(job: str, out: Path | None, options: dict[str, Any]) -> "Run":
    from .sim.records import Run

    return Run.create(out or Path("rescert-runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{job}", job=job, options=options)


def _check_ends(cluster: str | None, junit: Path | None) -> None:
    """Find out before the work, not after it, whether its end can be reached."""
    if junit is not None and (junit.is_dir() or not junit.absolute().parent.is_dir()):
        raise ValueError(f"--junit {junit}: expected a file in a folder that exists.")
    if cluster is not None:
        from .sim.sweep import check_cluster

        check_cluster(cluster)


def _judge(run: "Run", jobs: int | None, cluster: str | None, as_json: bool, junit: Path | None, quiet: bool) -> None:
    """Run or go on with a run of suites."""
    from .verify import suites

    needed = ("preset", "seed", "device", "limit_error" if run.job == "rates" else "suites")
    _require_options(run, needed)

    def work(on_progress: Any, show: Any) -> dict[str, Any]:
        context = suites.Context(
            run=run,
            preset=run.options["preset"],
            seed=run.options["seed"],
            device=run.options["device"],
            limit_error=run.options.get("limit_error"),
            workers=jobs or os.cpu_count() or 1,
            cluster=cluster,
            on_progress=on_progress,
            on_verdict=lambda verdict: show(_line(verdict)),
        )
        return suites.verify(context, ["hidden-width"] if run.job == "rates" else run.options["suites"])

    def lines(found: dict[str, Any]) -> Iterator[Any]:
        yield _table(found)
        for verdict in found["verdicts"]:
            for line in _remarks(verdict):
                yield f"{verdict['claim']}: {escape(line)}"
        if run.job == "rates":
            yield from _exponents(found)

    _carry_out(run, work, lines, as_json, junit, quiet)


def _judge_bounds(run: "Run", jobs: int | None, as_json: bool, junit: Path | None, quiet: bool) -> None:
    """Check the bounds of a run, from the start."""
    from .verify.bounds import check as bounds

    _require_options(run, ("seed", "bound", "of", "kind", "budget", "sharpen", "replay"))

    def work(on_progress: Any, show: Any) -> dict[str, Any]:
        return bounds.run(run, workers=jobs or os.cpu_count() or 1, on_progress=on_progress)

    _carry_out(run, work, _findings, as_json, junit, quiet)


def _require_options(run: "Run", needed: tuple[str, ...]) -> None:
    missing = [name for name in needed if name not in run.options]
    if missing:
        raise ValueError(f"{run.path / 'run.json'}: options lack {', '.join(missing)}; start again in another folder.")


def _carry_out(
    run: "Run",
    work: Callable[[Any, Any], dict[str, Any]],
    lines: Callable[[dict[str, Any]], Iterator[Any]],
    as_json: bool,
    junit: Path | None,
    quiet: bool,
) -> None:
    """Do the work, write its report, print what it found, exit by its verdicts."""
    from .reports.build import build
    from .reports.junit import write_junit
    from .verify import document

    silent = quiet or as_json
    console = Console(highlight=False)
    if not silent:
        Console(stderr=True, highlight=False).print(f"run: {escape(str(run.path))}", soft_wrap=True)
    with _progress(silent) as (on_progress, show):
        try:
            found = work(on_progress, show)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(run.path) from None
        page = build(found, run.path)
    if as_json:
        typer.echo(document.dumps(found))
    elif not quiet:
        for line in lines(found):
            console.print(line, soft_wrap=isinstance(line, str))
        console.print(f"report: {escape(str(page))}", soft_wrap=True)
    if junit is not None:
        write_junit(found, junit)
    code = document.exit_code(found)
    if code:
        raise typer.Exit(code)


@contextlib.contextmanager
def _progress(silent: bool) -> Iterator[tuple[Any, Any]]:
    """Yield (on_progress, show): bars on standard error when that is a terminal, and a way to print above them."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=silent or not console.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def on_progress(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield on_progress, (lambda line: None) if silent else bars.console.print


def _columns(*names: str) -> Table:
    table = Table(box=None, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold", no_wrap=name == "claim" and Console().width >= READABLE)
    return table


def _line(verdict: Any) -> str:
    return f"[{STYLES[verdict.status]}]{verdict.status:<12}[/] {verdict.claim}"


def _table(found: dict[str, Any]) -> Table:
    bounds = any(verdict["tightness"] for verdict in found["verdicts"])
    table = _columns("claim", "verdict", "evidence", "confidence", *(["tightest"] if bounds else []))
    for verdict in found["verdicts"]:
        tightness = verdict["tightness"]
        table.add_row(
            verdict["claim"],
            f"[{STYLES[verdict['status']]}]{verdict['status']}[/]",
            ", ".join(verdict["evidence"]),
            f"{verdict['confidence']:.6g}",
            *(["" if tightness is None else f"{tightness['ratio']:.4f}"] if bounds else []),
        )
    return table


def _exponents(found: dict[str, Any]) -> Iterator[str]:
    """Spell the exponents, numbers first: what they are of is too long for a column."""
    from .reports import rate_tables, tables

    results = tables.restored(found)["hidden_width"]
    known = rate_tables.exponents(results["exponents"], results["level"])
    yield f"[dim]{known.caption}[/]"
    yield f"[bold]{'verdict':<14}{'estimate':>8}{'interval':>22}{'theory':>15}  what[/]"
    for what, _, window, verdict, k, estimate, interval, theory in known.rows:
        numbers = escape(f"{estimate:>8}{interval:>22}{theory:>15}")
        where = escape(f"{what}; k = {k}; {window}")
        yield f"[{STYLES.get(verdict, 'dim')}]{verdict:<14}[/]{numbers}  {where}"


def _findings(found: dict[str, Any]) -> Iterator[Any]:
    """What became of each bound, the counterexample first."""
    for verdict, bound in zip(found["verdicts"], found["bounds"], strict=True):
        sign = {"upper-bound": "<=", "lower-bound": ">=", "identity": "=", "rate": "~"}[bound["kind"]]
        style = STYLES[verdict["status"]]
        name = "" if bound["claim"] == "yours" else f"{escape(bound['claim'])}: "
        yield f"[{style}]{verdict['status']}[/]  {name}{bound['quantity']} {sign} {escape(bound['formula'])}"
        if example := bound["counterexample"]:
            yield f"counterexample, confirmed by {example['confirmed']}:"
            table = Table(box=None, show_header=False, padding=(0, 2))
            for what, value in example["table"]:
                table.add_row(escape(what), escape(value))
            yield table
            if bound["stored"]:
                yield f"again: rescert check --replay {escape(bound['stored'])}"
        if verdict["note"]:
            yield f"{escape(verdict['note'])}"
        for remark in bound["remarks"]:
            yield f"note: {escape(remark)}"
        if tried := [_counted(*item) for item in bound["tried"].items() if any(item[1].values())]:
            yield "tried: " + escape("; ".join(tried))
        if verdict["tightness"]:
            ratio, subject = verdict["tightness"]["ratio"], verdict["tightness"]["subject"]
            times = "infinitely many times" if ratio is None else f"{ratio:.6g} of"
            yield f"tightest: {times} the bound, {escape(subject)}"
        if sharpened := bound.get("sharpen"):
            yield f"smallest constant that stands: {sharpened['constant']:.6g} (times the bound, on everything tried)"
        sampled = "nothing was sampled" if verdict["confidence"] == 1 else f"confidence: {verdict['confidence']:.6g}"
        yield sampled


def _counted(stage: str, counts: dict[str, int]) -> str:
    return f"{stage}: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _list_quantities(as_json: bool) -> None:
    from .theory.symbols import TABLE
    from .verify.bounds.statement import letters
    from .verify.bounds.targets import targets

    found: list[dict[str, Any]] = [
        {
            "id": target.name,
            "meaning": target.quantity.meaning,
            "kinds": [kind.value for kind in target.kinds],
            "letters": {
                spelled: {"meaning": TABLE[symbol.name].meaning, "unit": TABLE[symbol.name].unit}
                for spelled, symbol in letters(target.quantity, target.spellings).items()
            },
        }
        for target in targets().values()
    ]
    if as_json:
        _print_json(found)
        return
    console = Console(highlight=False)
    for item in found:
        console.print(f"[bold]{item['id']}[/bold]  {escape(item['meaning'])} ({', '.join(item['kinds'])})")
        table = Table(box=None, show_header=False, padding=(0, 2))
        for name, about in item["letters"].items():
            table.add_row(name, f"\\[{about['unit']}]", escape(about["meaning"]))
        console.print(table)


def _remarks(verdict: dict[str, Any]) -> list[str]:
    """What the table has no room for: the counterexample, and what stayed undecided."""
    lines, example = [], verdict["counterexample"]
    if example:
        sides = " against ".join("?" if x is None else f"{x:.6g}" for x in (example["observed"], example["expected"]))
        lines.append(f"{example['subject']}: {sides}; {example['detail']}")
    return [*lines, verdict["note"]] if verdict["note"] else lines


def _complain(message: str) -> None:
    Console(stderr=True, highlight=False).print(f"rescert: {escape(message)}", soft_wrap=True)


def main() -> None:
    """Run the command line; a defect of rescert must not look like exit code 1, a refuted claim."""
    try:
        app()
    except Exception:
        traceback.print_exc()
        sys.exit(DEFECT)
