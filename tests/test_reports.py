"""The report says everything that the document says, safely, and the same way every time."""

import csv
import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from documents import SITE, cell, example, network, trained, verdict
from rescert.reports import figures, tables
from rescert.reports.build import SECTIONS, build
from rescert.reports.formulas import pieces
from rescert.reports.junit import write_junit
from rescert.reports.style import interval, number, words
from rescert.theory import registry
from rescert.verify.decisions import Status

HOSTILE = "evil <script>alert(\"1\")</script> & 'two' | `x` \x07"
VOID = {"meta", "img", "br", "link", "input", "hr"}
COUNTEREXAMPLE = {
    **{"subject": HOSTILE, "evidence": "exact", "observed": 0.30000000000000004, "expected": 0.25, "detail": "by hand"},
    **{"population": {"name": "rare-atom", "M": 4, "eps": "1/1000"}, "M": 4, "K": 5, "engine": "rational"},
    "trials": None,
}


class Page(HTMLParser):
    """Visible text, tags and attributes of a page; fails on tags that do not match."""

    def __init__(self, path):
        super().__init__()
        self.text, self.images, self._open = [], [], []
        self.links, self.tags = [], set()
        self.feed(path.read_text(encoding="utf-8"))
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        attributes = dict(attrs)
        self.links += [value for name, value in attrs if name in ("href", "src", "srcset", "data", "action")]
        if tag == "img":
            self.images.append(attributes)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] != "style":
            self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return build(example(), folder)


@pytest.fixture(scope="module")
def refuted(tmp_path_factory):
    verdicts = [
        verdict("alignment.mean", Status.PROVED),
        verdict("user.claim", Status.REFUTED, counterexample=COUNTEREXAMPLE),
        verdict(HOSTILE, Status.INCONCLUSIVE, confidence=0.9999, note=HOSTILE),
    ]
    hostile = [cell(subject=HOSTILE, family=HOSTILE)]
    return build(example(verdicts, cells=hostile, networks=[], trends=[]), tmp_path_factory.mktemp("run"))


# The page


def test_the_page_needs_nothing_else(built):
    page, source = Page(built), built.read_text(encoding="utf-8")
    assert all(link.startswith("data:image/") for link in page.links)
    assert not {"script", "link", "iframe", "object"} & page.tags
    assert not re.search(r"https?://|url\(|@import", source)
    assert '<html lang="en">' in source
    assert "<title>rescert verify" in source


def test_the_page_says_every_verdict_and_the_outcome_first(built):
    page = Page(built)
    for claim, status in (("alignment.certificate", "SUPPORTED"), ("alignment.mean", "PROVED")):
        assert re.search(rf"{re.escape(claim)} (?:(?!alignment\.).)*{status}", page.words)
    outcome = "2 claims judged: 1 proved, 1 supported, 0 refuted and 0 inconclusive (nothing sampled, preset quick"
    assert outcome in page.words
    assert page.words.index(outcome) < page.words.index("Verdicts")


def test_nothing_unspelled_is_visible(built):
    for text in (Page(built).words, (built.parent / "report.md").read_text(encoding="utf-8")):
        assert not re.search(r"\b(nan|NaN|inf|Infinity|None|null|True|False)\b", text)
        assert "∞" in text  # the upper limits of the example


def test_every_figure_has_an_alternative_text_and_its_data(built):
    page, folder = Page(built), built.parent / "figures"
    assert len(page.images) == 5
    assert all(len(image["alt"]) > 40 for image in page.images)
    names = {path.stem for path in folder.iterdir()}
    assert names == {"certificate", "tightness", "trained", "dimension", "training"}
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        ElementTree.parse(folder / f"{name}.svg")
    rows = list(csv.DictReader((folder / "certificate.csv").open(encoding="utf-8")))
    assert [row["misaligned"] for row in rows] == ["", "", "30", "0"]
    assert float(rows[1]["p"]) == 1e-12
    assert not list(built.parent.rglob("*.tmp"))


def test_markdown_lists_every_verdict_and_links_its_figures(built):
    text = (built.parent / "report.md").read_text(encoding="utf-8")
    assert "| alignment.certificate | SUPPORTED |" in text
    assert "| alignment.mean | PROVED |" in text
    for target in re.findall(r"\]\((\S+)\)", text):
        assert (built.parent / target).is_file()


def test_how_to_repeat_the_run_is_said(built):
    said = Page(built).words
    assert "rescert verify alignment --preset quick --seed 7 --device cpu" in said
    assert "shared equally by 12 sampled tests" in said
    assert "one image, gradient flattened" in said
    assert "No direct limit at M, K = 64, 64: needs at least M + K = 128 samples" in said


def test_the_same_document_gives_the_same_bytes(built, tmp_path):
    again = build(example(), tmp_path)
    for path in sorted(built.parent.rglob("*.*")):
        assert path.read_bytes() == (again.parent / path.relative_to(built.parent)).read_bytes(), path.name


def test_a_counterexample_is_shown_to_the_last_bit(refuted):
    for text in (Page(refuted).words, (refuted.parent / "report.md").read_text(encoding="utf-8")):
        assert "Counterexample to" in text
        assert "0.30000000000000004" in text
        assert "name = rare-atom, M = 4, eps = 1/1000" in text
        assert "by hand" in text


def test_what_failed_or_stayed_open_stands_first(refuted):
    said = Page(refuted).words
    assert said.index("REFUTED") < said.index("INCONCLUSIVE") < said.index("PROVED")


def test_hostile_text_stays_text(refuted):
    page = Page(refuted)
    assert "script" not in page.tags
    assert '<script>alert("1")</script>' in page.words
    markdown = (refuted.parent / "report.md").read_text(encoding="utf-8")
    assert "<script>" not in markdown
    rows = [line for line in markdown.splitlines() if "INCONCLUSIVE" in line and "claims judged" not in line]
    assert all(len(re.findall(r"(?<!\\)\|", row)) in (4, 6, 7) for row in rows)


# Parts that are missing


def test_a_run_without_networks_says_so(refuted):
    page = Page(refuted)
    assert "No network was trained." in page.words
    assert len(page.images) == 2


def test_networks_that_failed_are_said_and_drawn_around(tmp_path):
    refused = {SITE: {"status": "refused", "reason": "not a tensor"}}
    networks = [
        network(0.25, diverged=True, sites={}, losses=[2.3, math.nan], probe_loss=None, probe_accuracy=None),
        network(0.5, sites=refused),
        network(1.0),
        network(2.0),
    ]
    networks[2]["sites"][SITE]["interval"] |= {"d_align": -0.01, "lower_align": 0.0, "upper_align": 0.0}
    networks[3]["sites"][SITE]["nonfinite"] = 3
    zero = {"misaligned": 0, "p": 0.0, "p_interval": (0.0, 0.036)}
    page = Page(build(example(networks=networks, cells=[trained(1, **zero), trained(2, **zero)]), tmp_path))
    assert "The network of width 0.25, seed 0 diverged; it was not measured." in page.words
    assert f"Site {SITE} of the network of width 0.5, seed 0 was not measured (refused: not a tensor)." in page.words
    assert "3 gradients with non-finite entries were left out" in page.words
    assert "No population was computed or simulated." in page.words
    assert "−0.01" in page.words
    assert "undefined" in page.words


def test_when_no_site_was_measured_there_is_no_empty_panel(tmp_path):
    networks = [network(0.25, diverged=True, sites={}, losses=[])]
    page = Page(build(example([], networks=networks, cells=[], trends=[]), tmp_path))
    assert page.images == []
    assert "No claim was judged." in page.words
    assert "No trained network was measured at any site." in page.words


def test_a_document_without_suites(tmp_path):
    found = {key: item for key, item in example().items() if key not in SECTIONS}
    assert "No suite left results to show." in Page(build(found, tmp_path)).words


def test_the_key_of_the_figure_names_only_what_is_there():
    def labels(cells):
        legend = figures.certificate(cells).figure.legends[0]
        return {text.get_text() for text in legend.get_texts()}

    exact, hit = cell(), cell(trials=10, misaligned=1, p=0.1, p_interval=(0.0, 0.4))
    missed = cell(trials=10, misaligned=0, p=0.0, p_interval=(0.0, 0.3))
    assert "no hit: upper limit" in labels([exact, missed])
    assert "no hit: upper limit" not in labels([exact, hit])
    assert "$P$ exact" not in labels([hit, missed])


def test_a_cell_without_a_hit_is_drawn_at_its_upper_limit():
    missed = cell(trials=10, misaligned=0, p=0.0, p_interval=(0.0, 0.3))
    axes = figures.certificate([missed]).figure.axes[0]
    triangle = next(line for line in axes.lines if line.get_marker() == "v")
    assert list(triangle.get_ydata()) == [0.3]


def test_a_population_whose_bound_is_zero_has_no_tightness():
    picture = figures.tightness(
        [cell(b_exact=0.0, b_align=0.0, p=0.0), cell(subject="t3 (dim=64)", population={"name": "t3", "dim": 64})]
    )
    assert {row[1] for row in picture.rows} == {"t3"}


def test_trends_are_told_whichever_way_they_go():
    def said(reading):
        trend = {"site": SITE, "level": 0.95, "points": 8, "slope": -0.5, "interval": [-0.7, -0.3], "reading": reading}
        return tables.trends([trend])[0].text

    assert "d_align falls with width" in said("falls")
    assert "d_align grows with width" in said("grows")
    assert "the trend of d_align with width is undecided: the interval holds 0" in said(
        "undecided: the interval holds 0"
    )
    assert "−0.5, 95% interval [−0.7, −0.3] over 8 networks" in said("falls")


# Formulas and numbers


@pytest.mark.parametrize("claim", registry.claims(), ids=lambda claim: claim.id)
def test_every_statement_of_the_theory_can_be_drawn(claim):
    found = pieces(claim.statement)
    assert any(piece.path for piece in found)
    assert not [piece.text for piece in found if not piece.path and "\\" in piece.text]


def test_a_formula_that_cannot_be_drawn_keeps_its_source():
    assert [(p.text, p.path) for p in pieces(r"\undefinedmacro{x} \text{ for every } \alpha_{")] == [
        (r"\undefinedmacro{x}", ""),
        ("for every", ""),
        (r"\alpha_{", ""),
    ]


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (None, "–"),
        (math.nan, "undefined"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (1234, "1234"),
        (12345, "12\u202f345"),
        (-0.25, "−0.25"),
        (1e-12, "1·10⁻¹²"),
    ],
)
def test_numbers(value, spelled):
    assert number(value) == spelled


def test_intervals_and_words():
    assert interval(0.0, math.inf) == "[0, ∞]"
    assert interval(None, None) == "–"
    assert words({"a": [1, None], "b": True, "c": 0.1}) == "a = 1, –, b = yes, c = 0.1"


def test_nonfinite_numbers_come_back_where_they_were():
    found = example()
    assert found["alignment"]["networks"][0]["sites"][SITE]["interval"]["upper_align"] is None
    restored = tables.restored(found)
    assert restored["alignment"]["networks"][0]["sites"][SITE]["interval"]["upper_align"] == math.inf
    assert restored["alignment"]["cells"][0]["trials"] is None


# JUnit


def test_junit_counts_and_says_why(tmp_path):
    verdicts = [
        verdict("alignment.mean", Status.PROVED),
        verdict("alignment.certificate"),
        verdict("user.claim", Status.REFUTED, counterexample=COUNTEREXAMPLE),
        verdict(HOSTILE, Status.INCONCLUSIVE, note=HOSTILE),
    ]
    write_junit(example(verdicts), tmp_path / "junit.xml")
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    for element in (root, root[0]):
        assert [element.get(name) for name in ("tests", "failures", "errors")] == ["4", "1", "1"]
    cases = root.findall("./testsuite/testcase")
    assert (cases[0].get("classname"), cases[0].get("name")) == ("rescert.alignment", "mean")
    assert [len(case.findall("failure")) for case in cases] == [0, 0, 1, 0]
    assert [len(case.findall("error")) for case in cases] == [0, 0, 0, 1]
    failure = cases[2].find("failure")
    assert "0.3 against 0.25" in failure.get("message")
    assert "observed: 0.30000000000000004" in failure.text
    assert "population: name = rare-atom, M = 4, eps = 1/1000" in failure.text
    assert '<script>alert("1")</script>' in cases[3].find("error").get("message")
    assert [path.name for path in tmp_path.iterdir()] == ["junit.xml"]


def test_junit_of_nothing(tmp_path):
    write_junit(example([]), tmp_path / "junit.xml")
    assert ElementTree.parse(tmp_path / "junit.xml").getroot().get("tests") == "0"


def test_junit_needs_its_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"--junit .*no folder .*missing; create it"):
        write_junit(example(), tmp_path / "missing" / "junit.xml")
