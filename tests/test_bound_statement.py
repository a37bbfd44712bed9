"""Bounds from text, from a file and from JSON."""

import dataclasses
import sys

import pytest
import sympy
from rescert.theory import alignment_proofs, registry
from rescert.theory.alignment import MISALIGNMENT
from rescert.theory.claims import Kind
from rescert.theory.symbols import d_align
from rescert.verify.bounds import statement
from rescert.verify.bounds.statement import BoundError

FILE = """
from rescert import Claim, Kind, bound, find_claim
import dataclasses
wrong = bound("1/(1 + d_align)", id="draft.wrong")
several = [dataclasses.replace(find_claim("alignment.cantelli"), id="draft.proved"), wrong]
"""

NEIGHBOUR = """
from __future__ import annotations
from dataclasses import dataclass
from rescert import bound
from rescert_neighbour_of_a_bound import SCALE

@dataclass
class Note:
    text: str

mine = bound(f"{SCALE}/d_align", id="draft.scaled")
"""


def test_a_bound_is_a_claim_without_proof():
    claim = statement.bound("1/(n_eff*d_align)", quantity=MISALIGNMENT, kind=Kind.LOWER_BOUND, id="mine")
    assert (claim.id, claim.kind, claim.proof) == ("mine", Kind.LOWER_BOUND, None)
    assert r"\ge" in claim.statement


def test_a_spelling_hides_the_letter_of_its_name():
    found = statement.letters(registry.find("rates.depth_width").quantity, {"M": "M_units"})
    assert found["M"].name == "M_units"
    assert "M_units" not in found


def test_a_file_gives_its_claims_once_and_in_order_without_their_proofs(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    claims = statement.load(path)
    assert [claim.id for claim in claims] == ["draft.wrong", "draft.proved"]
    assert all(claim.proof is None for claim in claims)
    assert registry.find("alignment.cantelli").proof is alignment_proofs.cantelli


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1\n", "no claim in it"),
        ("x = 1\ny = 1 / 0\n", r"line 2: ZeroDivisionError"),
        ("x = (\n", r"line 1: SyntaxError"),
        ("import sys\nsys.exit(3)\n", r"line 2: SystemExit: 3"),
        ("raise ValueError('two\\nlines')\n", r"line 1: ValueError: two$"),
        ("from rescert import bound\nbound('1 + dalign')\n", "line 2: BoundError: bound: unknown letter"),
        ("from rescert import bound\na = bound('d_2')\nb = bound('d_par')\n", "names two claims"),
    ],
)
def test_a_file_that_cannot_serve_is_one_line(tmp_path, content, message):
    path = tmp_path / "mine.py"
    path.write_text(content)
    with pytest.raises(BoundError, match=message) as refusal:
        statement.load(path)
    assert "\n" not in str(refusal.value)


def test_no_such_file(tmp_path):
    with pytest.raises(BoundError, match="no such file"):
        statement.load(tmp_path / "nowhere.py")
    (tmp_path / "bound.txt").write_text(FILE)
    with pytest.raises(BoundError, match=r"expected a Python file, whose name ends in \.py"):
        statement.load(tmp_path / "bound.txt")


def test_a_file_may_import_its_neighbours_and_define_dataclasses(tmp_path):
    (tmp_path / "rescert_neighbour_of_a_bound.py").write_text("SCALE = 2\n")
    path = tmp_path / "mine.py"
    path.write_text(NEIGHBOUR)
    before = list(sys.path), set(sys.modules)
    (claim,) = statement.load(path)
    assert claim.expression == 2 / d_align
    assert sys.path == before[0]
    assert set(sys.modules) - before[1] <= {"rescert_neighbour_of_a_bound"}


def test_json_gives_the_claim_back():
    claim = statement.bound("Max(1, sqrt(d_par))/exp(d_2)", quantity=MISALIGNMENT, id="mine")
    again = statement.from_json(statement.as_json(claim), {"misalignment": MISALIGNMENT})
    assert again == claim


@pytest.mark.parametrize(
    "claim",
    [c for c in registry.claims("alignment") if c.quantity == MISALIGNMENT],
    ids=lambda claim: claim.id,
)
def test_json_keeps_the_bounds_of_the_theory(claim):
    again = statement.from_json(statement.as_json(claim), {"misalignment": MISALIGNMENT})
    assert (again.id, again.kind, again.expression) == (claim.id, claim.kind, claim.expression)


def test_json_reads_decimals_as_the_fractions_that_they_spell():
    claim = dataclasses.replace(statement.bound("d_2", quantity=MISALIGNMENT), expression=0.1 * d_align)
    again = statement.from_json(statement.as_json(claim), {"misalignment": MISALIGNMENT})
    assert again.expression == d_align / 10


def test_json_of_an_expression_without_a_spelling_is_refused():
    d = registry.find("alignment.certificate").expression
    odd = statement.bound("d_2", quantity=MISALIGNMENT)
    piecewise = sympy.Piecewise((d, d < 1), (1, True))
    with pytest.raises(BoundError, match=r"no expression of text; a replay needs the file"):
        statement.as_json(dataclasses.replace(odd, expression=piecewise))


@pytest.mark.parametrize(
    "data", [{}, {"quantity": "x"}, {"quantity": "misalignment", "kind": "no", "expression": "1"}, 3]
)
def test_broken_json_is_refused(data):
    with pytest.raises(BoundError, match="rescert check"):
        statement.from_json(data, {"misalignment": MISALIGNMENT})
