"""A bound from its text to its verdict, as a function and as a command."""

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
import rescert
from rescert.theory.claims import Kind
from rescert.verify.bounds import check, targets
from rescert.verify.bounds.statement import BoundError
from rescert.verify.bounds.target import Case, Counterexample, Decision, Searched
from rescert.verify.decisions import Evidence, Status

RESCERT = Path(sys.executable).with_name("rescert")
SCHEMA = json.loads((resources.files("rescert.reports") / "schema" / "verify.schema.json").read_text(encoding="utf-8"))
WRONG = "1/(1 + M*K/(M+K)*d_align)"
RIGHT = "1/(1 + n_eff*d_align)"


def command(*arguments, cwd):
    return subprocess.run(
        [RESCERT, "check", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=200, check=False
    )


# Conclusions

CLAIM = check.bound(RIGHT)
CASE = Case(stage="s", family="f", subject="case", where={}, observed=0.5, bound=1.0, exact=True)
BROKEN = Counterexample(
    subject="case", where={"M": 1}, observed="3/4", bound="2/3", confirmed="exact fractions", table=(("P", "3/4"),)
)
TRIED = {"stage": {"laws": 3, "cells": 5, "exact": 4, "draws": 100}}


def test_nothing_tried_is_inconclusive():
    verdict = check.conclude(CLAIM, None, Searched())
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.evidence == ()


def test_what_holds_is_supported_and_says_that_it_is_no_proof():
    verdict = check.conclude(CLAIM, None, Searched(tried=TRIED, tightest=CASE, confidence=0.999))
    assert (verdict.status, verdict.confidence) == (Status.SUPPORTED, 0.999)
    assert verdict.tried == {"exact": {"SUPPORTED": 4}, "simulation": {"SUPPORTED": 1}}
    assert verdict.tightness == {"ratio": 0.5, "subject": "case"}
    assert "no proof" in verdict.note


def test_a_search_cut_short_says_so():
    assert "time was up" in check.conclude(CLAIM, None, Searched(tried=TRIED, finished=False)).note


def test_what_stays_open_is_inconclusive():
    verdict = check.conclude(CLAIM, None, Searched(tried=TRIED, undecided=("undefined at M = 3",)))
    assert (verdict.status, verdict.note) == (Status.INCONCLUSIVE, "undefined at M = 3")


def test_a_hint_is_no_proof():
    hint = Decision(proved=False, implication="below B_exact at M = 2", hint={"M": 2.0})
    assert check.conclude(CLAIM, hint, Searched(tried=TRIED)).status is Status.SUPPORTED


def test_a_counterexample_beats_a_proof():
    proof = Decision(proved=True, implication="at least B_exact")
    assert check.conclude(CLAIM, proof, Searched(tried=TRIED)).status is Status.PROVED
    verdict = check.conclude(CLAIM, proof, Searched(tried=TRIED, counterexample=BROKEN))
    assert verdict.status is Status.REFUTED
    assert verdict.counterexample["observed"] == 0.75
    assert verdict.evidence == (Evidence.EXACT,)
    assert verdict.tried == {"exact": {"REFUTED": 1}}


@pytest.mark.parametrize(("kind", "expected"), [(Kind.UPPER_BOUND, 0.5), (Kind.LOWER_BOUND, 2.0), (Kind.IDENTITY, 0.5)])
def test_the_ratio_is_above_one_where_a_bound_is_broken(kind, expected):
    assert CASE.ratio(kind) == expected


# From text to verdict


def test_a_wrong_bound_gets_a_counterexample_that_can_be_replayed():
    found = rescert.check(WRONG, seconds=20, workers=1)
    assert found.verdict.status is Status.REFUTED
    example = found.searched.counterexample
    assert (example.observed, example.bound, example.confirmed) == ("3/4", "2/3", "exact fractions")
    assert check.replayed(found.claim, example.where).verdict.status is Status.REFUTED
    assert check.replayed(check.bound(RIGHT), example.where).verdict.status is Status.INCONCLUSIVE


def test_the_certificate_is_proved_and_its_tightest_case_known():
    found = rescert.check(RIGHT, seconds=20, workers=1)
    assert found.verdict.status is Status.PROVED
    assert found.verdict.tightness["ratio"] == pytest.approx(1)
    assert "B_exact" in found.decision.implication


def test_a_claim_on_another_kind_is_refused():
    with pytest.raises(ValueError, match="rate: a claim on misalignment can be of kind upper-bound"):
        check.bound(RIGHT, kind="rate")
    with pytest.raises(ValueError, match="did you mean misalignment"):
        targets.find("misalinment")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 - d_align", "below 0"),
        ("log(d_align)", "below 0|infinite"),
        ("sqrt(d_align - 1)", "no real number"),
        ("1/(d_align - d_align*M/M + mu_Sigma_mu)", "infinite"),
        ("2 + M", "vacuous"),
    ],
)
def test_a_bound_without_sound_values_is_an_error_that_names_the_point(text, message):
    with pytest.raises(BoundError, match=message):
        rescert.check(text)


def test_every_registered_target_has_its_search():
    for target in targets.targets().values():
        assert callable(target._home.search)
        assert callable(target._home.confirm)


# The command


def test_the_command_refutes_stores_and_replays(tmp_path):
    done = command("--json", "--out", "run", "--budget", "20", "--", WRONG, cwd=tmp_path)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    assert found["verdicts"][0]["status"] == "REFUTED"
    page = (tmp_path / "run" / "report" / "index.html").read_text()
    assert "confirmed by exact fractions" in page
    again = command("--replay", "run/counterexample.json", "--out", "again", cwd=tmp_path)
    assert again.returncode == 1
    assert "3/4" in again.stdout


def test_a_file_of_claims(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from rescert import bound\n"
        f"wrong = bound('{WRONG}', id='draft.wrong')\n"
        f"right = bound('{RIGHT}', id='draft.right')\n"
    )
    done = command("mine.py", "--out", "run", "--json", "--budget", "20", cwd=tmp_path)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert {v["claim"]: v["status"] for v in found["verdicts"]} == {"draft.wrong": "REFUTED", "draft.right": "PROVED"}
    assert (tmp_path / "run" / "counterexample-draft.wrong.json").is_file() or (
        tmp_path / "run" / "counterexample.json"
    ).is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1/(1+n_eff*dalign)",), "did you mean d_align?"),
        (("__import__('os').system('true')",), "bound: "),
        (("9**9**9**9",), "power too large"),
        (("1/(1+n_eff*d_align)", "--of", "misalinment"), "did you mean misalignment"),
        (("1/(1+n_eff*d_align)", "--kind", "rate"), "can be of kind"),
        (("1/(1+n_eff*d_align)", "--budget", "-1"), "--budget"),
        (("--", "-d_align"), "below 0"),
        (("nowhere.py",), "no such file"),
        (("--replay", "nowhere.json"), "nowhere.json"),
        ((), "give one of a bound"),
    ],
)
def test_bad_input_is_exit_code_2_and_leaves_nothing_behind(tmp_path, arguments, message):
    done = command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_quantities_are_listed(tmp_path):
    found = json.loads(command("--list", "--json", cwd=tmp_path).stdout)
    letters = next(item for item in found if item["id"] == "misalignment")["letters"]
    expected = [
        "M",
        "K",
        "N",
        "n_eff",
        "d_par",
        "d_2",
        "d_align",
        "mu2",
        "mu_Sigma_mu",
        "tr_Sigma",
        "tr_Sigma2",
        "lambda_max",
    ]
    assert sorted(letters) == sorted(expected)
    assert letters["mu2"]["unit"] == "q^2"
