"""The hidden width in the report and on the command line: everything the document says, missing parts in words."""

import csv
import json
import math
import re
from importlib import resources
from xml.etree import ElementTree

import jsonschema
import pytest
import rate_documents as made
from documents import verdict
from rescert import cli
from rescert.reports import hidden_width, marks, phase_figures, rate_figures, rate_tables, slope_figures, tables
from rescert.reports.build import build
from rescert.reports.figures import Picture
from rescert.sim.records import Run
from rescert.verify import suites
from rescert.verify.decisions import Status
from typer.testing import CliRunner

SCHEMA = json.loads((resources.files("rescert.reports") / "schema" / "verify.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
LISTS = ("limits", "cells", "fits", "exponents", "noiseless", "lazy", "chaos", "phase", "training")
FIGURES = {
    *("exponents", "error-D10-k10", "parts-D10-k10", "error-dimension"),
    *("noiseless", "lazy", "chaos", "phase-diagram", "resnet-training"),
}
HOSTILE = "evil <script>alert(1)</script> & $x^ | `y` \x07"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    found = made.results(steps=(10,), dims=(10, 31))
    return build(made.rates_document(found=found), tmp_path_factory.mktemp("run"))


def rows_of(picture):
    return [dict(zip(picture.columns, row, strict=True)) for row in picture.rows]


def lines_of(axes, marker):
    return [line for line in axes.lines if line.get_marker() == marker]


# The document


@pytest.mark.parametrize(
    "changes", [{}, {name: [] for name in LISTS}, {"phase": [made.phase_row(10, 1.0, 10) | {"output_std": math.nan}]}]
)
def test_documents_that_fit(changes):
    VALIDATOR.validate(made.rates_document(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"level": 95},
        {"cells": [made.cell(1, 1) | {"depth": 0}]},
        {"cells": [made.cell(1, 1, alpha=0.0)]},
        {"cells": [{key: item for key, item in made.cell(1, 1).items() if key != "diverged"}]},
        {"exponents": [made.exponent("x", 1.0, 0.1, 1.0, 0.1, status="VERIFIED")]},
        {"phase": [made.phase_row(10, 1.0, 10) | {"phase": "chaotic"}]},
        {"chaos": [{"LM": 4, "correlation": 0.1, "interval": [0.1]}]},
    ],
)
def test_documents_that_do_not(changes):
    assert not VALIDATOR.is_valid(made.rates_document(**changes))


# The page


def test_every_figure_has_an_alternative_text_and_its_data(built):
    folder, page = built.parent / "figures", built.read_text(encoding="utf-8")
    assert {path.stem for path in folder.iterdir()} == FIGURES
    for name in FIGURES:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        ElementTree.parse(folder / f"{name}.svg")
        assert list(csv.DictReader((folder / f"{name}.csv").open(encoding="utf-8")))
        assert f"figures/{name}.csv" in page
    assert all(len(text) > 40 for text in re.findall(r'<img [^>]*alt="([^"]*)"', page))


def test_the_page_says_exponents_rivals_limits_and_how_to_repeat(built):
    said = " ".join((built.parent / "report.md").read_text(encoding="utf-8").split())
    assert "| sd over L | rates.variance\\_depth | LM &gt;= 100, L &gt;= 7 | SUPPORTED | 10 | −0.5009 |" in said
    assert r"a = 0.143 \[0.136, 0.15\]; b = 0.111 \[0.105, 0.117\] | 0 |" in said
    assert "| a/L + b D/M | quadrature | a = 0.143; b = 0.111 | 220 |" in said
    assert "| D = 10, α = 1, k = 10 | yes | 0.0001 | 9·10⁻⁵ | 6·10⁻⁶ |" in said
    assert "The limit at D = 31, α = 1 missed its target error." in said
    assert "3 of 9 cells have fewer than 2 repeats: sd over D (k = 10, LM &gt;= 100, L &gt;= 7)." in said
    assert "| p: L in a/L | rates.depth\\_width, rates.embed\\_dim | all shapes | REFUTED | 100 | 0.72 |" in said
    assert "| q: M in the fluctuation | rates.depth\\_width | all shapes | reported only | 100 | 0.47 |" in said
    assert "hold all together with a confidence of 99.9 %" in said
    assert "rescert rates --preset quick --limit-error 0.0001 --seed 7 --device cpu" in said
    assert not re.search(r"\b(nan|NaN|inf|Infinity|None|null|True|False)\b", said)


def test_missing_parts_are_said_and_nothing_is_drawn():
    blocks = hidden_width.section(made.results() | {name: [] for name in LISTS})
    assert all(isinstance(block, tables.Words) for block in blocks)
    said = " ".join(block.text for block in blocks)
    for part in ("exponent", "error surface", "rivals", "Bias and variance", "dimension D", "without noise", "lazy"):
        assert part in said
    for part in ("correlation", "phase diagram", "losses", "No limit", "No run of a finite network diverged"):
        assert part in said


def test_hostile_text_stays_text(tmp_path):
    found = {name: [] for name in LISTS} | {
        "exponents": [made.exponent(HOSTILE, 1.0, None, None, None, "INCONCLUSIVE", window=HOSTILE, claim=HOSTILE)],
        "cells": [made.cell(L, 4) for L in (1, 2, 4)],
        "fits": [made.comparison([made.cell(L, 4) for L in (1, 2, 4)], HOSTILE, 10)],
        "lazy": [{"init": HOSTILE, "alphas": [1, 4], "errors": [0.1, 0.01], "slope": None, "interval": None}],
    }
    page = build(made.rates_document(**found), tmp_path)
    for text in (page.read_text(encoding="utf-8"), (page.parent / "report.md").read_text(encoding="utf-8")):
        assert "<script>" not in text
        assert "&lt;script&gt;" in text


# The error surface


def test_the_surface_keeps_the_data_of_every_cell_and_window():
    found = made.results()
    picture = rate_figures.surfaces(found["cells"], found["fits"], found["limits"])[0]
    rows = rows_of(picture)
    assert len(rows) == 2 * 9
    inside = [row for row in rows if row["window"] == made.LARGE and row["fitted"] is not None]
    assert {(row["depth"], row["units"]) for row in inside} == {(10, 10), (10, 100), (100, 1), (100, 10), (100, 100)}
    for row in rows:
        cell = next(c for c in found["cells"] if all(c[name] == row[name] for name in ("depth", "units", "k")))
        assert (row["error"], row["repeats"], row["limit_error"]) == (cell["error"], 5, 9e-5)
    assert all(row["band_low"] < row["fitted"] < row["band_high"] for row in inside)


def test_each_step_is_held_against_the_limit_that_knows_it():
    cells = [made.cell(L, 10, k) for k in (10, 100) for L in (1, 10, 100)]
    limit = made.results(dims=(10,))["limits"][0]
    found = [limit | {"standard_error": {str(k): error}} for k, error in ((10, 1e-4), (100, 2e-4))]
    errors = [{row["limit_error"] for row in rows_of(p)} for p in rate_figures.surfaces(cells, [], found)]
    assert errors == [{1e-4}, {2e-4}]


def test_the_surface_drawn_is_the_best_one_with_a_band():
    cells = [made.cell(L, M) for L in made.QUICK for M in made.QUICK]
    best = made.fit(cells, made.ALL, 10, model="rival", aic=-9.0, intervals=False)
    second = made.fit(cells, made.ALL, 10, model="theory")
    fits = [{"k": 10, "window": made.ALL, "fits": [best, second], "delta_aic": [0.0, 9.0]}]
    (picture,) = rate_figures.surfaces(cells, fits, [])
    assert {row["model"] for row in rows_of(picture)} == {"theory"}
    (picture,) = rate_figures.surfaces(cells, [fits[0] | {"fits": [best]}], [])
    assert {row["model"] for row in rows_of(picture)} == {"rival"}
    (picture,) = rate_figures.surfaces(cells, [], [])
    assert {row["model"] for row in rows_of(picture)} == {None}


def test_a_shape_whose_runs_all_diverged_is_crossed_not_averaged():
    gone = dict.fromkeys(("error", "error_interval", "squared_bias", "squared_bias_error", "variance"))
    cells = [made.cell(L, 10) for L in (1, 10, 100)] + [made.cell(1000, 10, diverged=5, **gone)]
    (picture,) = rate_figures.surfaces(cells, [], [])
    crosses = lines_of(picture.figure.axes[0], "x")
    assert [list(line.get_xdata()) for line in crosses] == [[1000]]
    assert "every run of the shape diverged (1 shape)" in picture.caption
    table = rate_tables.diverged(cells, [])
    assert table.rows == (("error surface", "1000", "10", "10", "1", "1", "10", "5 of 5"),)
    assert len(rate_figures.parts(cells)[0].rows) == 3


def test_groups_that_differ_in_dimension_alpha_or_scale_are_told_apart():
    changes = ({}, {"embed_dim": 31}, {"alpha": 4.0}, {"S": 4.0}, {"k": 100})
    cells = [made.cell(L, 10) | change for change in changes for L in (1, 10, 100)]
    names = [picture.name for picture in rate_figures.surfaces(cells, [], [])]
    assert names == ["error-D10-k10", "error-D31-k10", "error-D10-S4-k10", "error-D10-alpha4-k10", "error-D10-k100"]


def test_a_squared_bias_not_told_from_zero_is_an_upper_limit():
    cells = [made.cell(L, 10, squared_bias=1e-4, squared_bias_error=error) for L, error in ((1, 1e-5), (2, 2e-4))]
    (picture,) = rate_figures.parts([*cells, made.cell(4, 10, squared_bias=-1e-5, squared_bias_error=3e-5)])
    triangles = lines_of(picture.figure.axes[1], "v")
    assert [list(line.get_ydata()) for line in triangles] == [pytest.approx([3e-4, 2e-5])]


def test_the_dimension_needs_two_values_at_one_shape():
    assert rate_figures.dimension([made.cell(4, 4, dim=10), made.cell(8, 4, dim=31)]) is None
    picture = rate_figures.dimension([made.cell(4, 4, dim=dim) for dim in (10, 31)])
    assert [row["embed_dim"] for row in rows_of(picture)] == [10, 31]


# Exponents


def test_exponents_far_from_the_theory_point_beyond_the_edge():
    found = [
        made.exponent("far", 3.0, 0.1, -1.0, 0.1, "REFUTED"),
        made.exponent("alone", 3.0, None, None, None, "INCONCLUSIVE"),
        made.exponent("nothing", None, None, -1.0, 0.1, "INCONCLUSIVE", k=None) | {"interval": None},
    ]
    picture = slope_figures.exponents(found)
    values, distances = picture.figure.axes
    assert [list(line.get_xdata()) for line in lines_of(distances, ">")] == [[slope_figures.REACH]]
    assert [list(line.get_xdata()) for line in lines_of(values, "X")] == [[3.0]]
    assert [label.get_text() for label in values.get_yticklabels()][2] == f"nothing, {made.LARGE}"
    table = rate_tables.exponents(found, 0.95)
    assert [row[-3:] for row in table.rows] == [
        ("3", "[2.9, 3.1]", "−1 ± 0.1"),
        ("3", "–", "–"),
        ("–", "–", "−1 ± 0.1"),
    ]


def test_a_correlation_that_is_not_positive_is_an_upper_limit():
    picture = slope_figures.chaos(made.results()["chaos"])
    (axes,) = picture.figure.axes
    assert [list(line.get_ydata()) for line in lines_of(axes, "v")] == [[0.0016]]
    assert rows_of(picture)[2] == {"LM": 1024, "correlation": -0.0002, "low": -0.002, "high": 0.0016}


def test_local_slopes_stand_beside_their_depth():
    rows = rows_of(slope_figures.noiseless(made.results()["noiseless"]))
    assert [row["local_slope_from_the_depth_before"] for row in rows[:4]] == [None, -1.0005, -1.0005, -1.0005]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1e6), (0.02, 0.3)])
def test_ticks_of_a_log_axis_say_enough(low, high):
    figure, ((axes,),) = phase_figures.style.panels(1, 1, width=4, height=3)
    marks.log_axes(axes, None, (low, high))
    figure.draw_without_rendering()
    shown = [t.get_text() for t in axes.get_yticklabels() if low <= t.get_position()[1] <= high]
    assert len(shown) >= 3
    assert all(shown)


def test_an_exponent_that_bears_on_several_claims_is_listed_once():
    found = [made.exponent("x", 1.0, 0.1, 1.0, 0.2, None, claim=claim) for claim in ("a.b", "a.c")]
    other = made.exponent("x", 1.1, 0.1, 1.0, 0.2, None, claim="a.c")
    assert [row["claim"] for row in rate_tables.distinct([*found, other])] == ["a.b, a.c", "a.c"]
    assert len(slope_figures.exponents([*found, other]).rows) == 3


def test_a_confidence_is_not_rounded_up_to_certainty():
    assert rate_tables.percent(0.999999) == "99.9999 %"


# Phase diagram and training


def test_the_phase_diagram_marks_what_was_drawn_and_what_diverged():
    found = made.results()["phase"]
    picture = phase_figures.phase(found)
    legend = {text.get_text() for text in picture.figure.legends[0].get_texts()}
    assert {"drawn by the author", "maximal local updates", "lazy", "small residual", "unstable"} <= legend
    assert [t.get_text() for t in picture.figure.axes[0].texts] == ["4/10"]
    assert "drawn by the author, not derived" in picture.caption
    assert len(picture.rows) == len(found)


def test_the_breakdown_stands_where_the_theory_puts_it():
    picture = phase_figures.phase([made.phase_row(10, S, 10, depth=100, units=9) for S in (0.1, 1.0, 100.0)])
    dotted = [line for line in picture.figure.axes[0].lines if line.get_linestyle() == ":"]
    assert [line.get_xdata()[0] for line in dotted] == [pytest.approx(math.sqrt(90))]


def test_losses_that_blow_up_leave_the_others_visible():
    losses = ([1.0, 0.5], [1.0, 1e200], [1.0, math.inf])
    found = [{"depth": L, "units": 1, "embed_dim": 2, "losses": one} for L, one in enumerate(losses, start=1)]
    picture = phase_figures.training(found)
    low, high = picture.figure.axes[0].get_ylim()
    assert low < 0.5
    assert high < 1e4
    assert picture.rows[-1] == (3, 1, 2, 1, math.inf)


# The command line


@pytest.fixture
def asked(monkeypatch):
    """Replace the suites by the made-up document, and keep what they were asked for."""
    calls = []

    def verify(context, names):
        calls.append((context, list(names)))
        return made.rates_document() | {"job": context.run.job}

    monkeypatch.setattr(suites, "verify", verify)
    monkeypatch.setattr("rescert.reports.build.build", lambda found, folder: folder / "report" / "index.html")
    return calls


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def test_rates_runs_the_study_and_prints_the_exponents(asked, tmp_path):
    done = run("rates", "--out", tmp_path / "run", "--limit-error", "1e-3", "--seed", "3", "--device", "cpu")
    assert done.exit_code == 0, done.output
    ((context, names),) = asked
    assert (names, context.limit_error, context.seed, context.preset) == (["hidden-width"], 1e-3, 3, "quick")
    said = " ".join(done.stdout.split())
    for expected in ("a confidence of 99.9 %", "estimate", "−0.5009", "report:", "index.html"):
        assert expected in said
    about = Run.open(tmp_path / "run")
    assert about.job == "rates"
    assert about.options == {"limit_error": 1e-3, "preset": "quick", "seed": 3, "device": "cpu"}


@pytest.mark.parametrize(
    ("job", "options", "names", "limit_error"),
    [
        ("rates", {"limit_error": 1e-3}, ["hidden-width"], 1e-3),
        ("rates", {"limit_error": None}, ["hidden-width"], None),
        ("verify", {"suites": ["alignment"]}, ["alignment"], None),
    ],
)
def test_resume_goes_on_with_either_job(asked, tmp_path, job, options, names, limit_error):
    options |= {"preset": "paper", "seed": 1, "device": "cpu"}
    Run.create(tmp_path / "run", job=job, options=options)
    done = run("resume", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["job"] == job
    ((context, asked_names),) = asked
    assert (asked_names, context.limit_error, context.preset) == (names, limit_error, "paper")


@pytest.mark.parametrize(("status", "code"), [(Status.SUPPORTED, 0), (Status.INCONCLUSIVE, 3), (Status.REFUTED, 1)])
def test_the_exit_code_tells_the_outcome(asked, monkeypatch, tmp_path, status, code):
    example = {"subject": "s", "evidence": "simulation", "observed": 1.0, "expected": 0.5, "detail": ""}
    one = verdict("rates.lazy", status, counterexample=example if status is Status.REFUTED else None)
    monkeypatch.setattr(suites, "verify", lambda context, names: made.rates_document([one]))
    done = run("rates", "--out", tmp_path / "run", "--quiet", "--device", "cpu")
    assert (done.exit_code, done.stdout) == (code, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--limit-error", "0"), "--limit-error: expected a positive, finite number such as 1e-4, got 0.0."),
        (("--limit-error", "inf"), "--limit-error: expected a positive, finite number such as 1e-4, got inf."),
        (("--preset", "quik"), "unknown preset 'quik'; expected one of quick, paper, full."),
        (("--device", "tpu"), "tpu"),
    ],
)
def test_bad_use_is_one_error_and_exit_code_2(asked, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = run("rates", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not asked
    assert list(tmp_path.iterdir()) == []


def test_pictures_are_told_apart_by_name():
    found = made.results()
    names = [block.name for block in hidden_width.section(found) if isinstance(block, Picture)]
    assert len(names) == len(set(names))
