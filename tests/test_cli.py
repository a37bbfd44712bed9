"""The command line as a user meets it: exit codes, streams, errors, interruption."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RESCERT = Path(sys.executable).with_name("rescert")


def rescert(*arguments, **options):
    return subprocess.run(
        [RESCERT, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False, **options
    )


def test_version_and_help_need_no_heavy_library(tmp_path):
    probe = (
        "import sys\nimport rescert.cli as cli\n"
        "loaded = {'torch', 'sympy', 'scipy', 'numpy', 'matplotlib', 'sklearn'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", probe], check=True, cwd=tmp_path)
    done = rescert("--version", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("rescert ")
    assert rescert("--help", cwd=tmp_path).returncode == 0


def test_claims_lists_and_shows(tmp_path):
    listed = json.loads(rescert("claims", "--json", cwd=tmp_path).stdout)
    assert "alignment.certificate" in [claim["id"] for claim in listed]
    shown = rescert("claims", "alignment.certificate", cwd=tmp_path)
    assert shown.returncode == 0
    for expected in ("1/(d_align*n_eff + 1)", "[width], Theorem 1", "assumes", "holds"):
        assert expected in shown.stdout
    assert "FAILS" not in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("claims", "alignment.certificat"), "did you mean alignment.certificate"),
        (("verify", "alignmnet"), "unknown suite 'alignmnet'; did you mean alignment?"),
        (("verify", "--preset", "quik"), "unknown preset 'quik'; expected one of quick, paper, full"),
        (("verify", "--device", "tpu"), "tpu"),
        (("verify", "--jobs", "0"), "--jobs"),
        (("report", "nowhere"), "nowhere"),
        (("resume", "nowhere"), "nowhere"),
        (("verify", "--seed", "x"), "--seed"),
    ],
)
def test_bad_use_is_one_error_and_exit_code_2(tmp_path, arguments, message):
    done = rescert(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = rescert("verify", "--out", tmp_path / "file" / "run")
    assert done.returncode == 2
    assert "cannot make a run folder here" in done.stderr


def test_a_run_of_another_version_is_refused(tmp_path):
    about = {"format": 1, "rescert": "99.0.0", "job": "verify", "options": {}, "created": ""}
    (tmp_path / "run.json").write_text(json.dumps(about))
    done = rescert("resume", tmp_path)
    assert done.returncode == 2
    assert "written by rescert 99.0.0" in done.stderr


def test_a_finished_run_without_verdicts_says_how_to_go_on(tmp_path):
    options = {"suites": ["alignment"], "preset": "quick", "seed": 0, "device": "cpu"}
    from rescert.sim.records import Run

    Run.create(tmp_path / "run", job="verify", options=options)
    done = rescert("report", tmp_path / "run")
    assert done.returncode == 2
    assert "rescert resume" in done.stderr


def test_a_killed_run_keeps_what_it_finished(tmp_path):
    """kill -9 in the middle; a second start of the same command finds the records."""
    from rescert.sim.records import Run

    out = tmp_path / "run"
    command = [RESCERT, "verify", "--out", str(out), "--jobs", "1", "--device", "cpu"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (out / "records.sqlite").exists():
            time.sleep(0.1)
        while time.monotonic() < deadline and len(Run.open(out).store.records()) < 5:
            time.sleep(0.2)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stderr.close()
    kept = {record.key: record.finished for record in Run.open(out).store.records()}
    assert len(kept) >= 5
    assert not (out / "verdicts.json").exists()
    again = subprocess.Popen(
        [RESCERT, "resume", str(out), "--jobs", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and len(Run.open(out).store.records()) <= len(kept):
            time.sleep(0.2)
    finally:
        os.killpg(again.pid, signal.SIGKILL)
        again.wait()
    after = {record.key: record.finished for record in Run.open(out).store.records()}
    assert len(after) > len(kept)
    assert {key: after[key] for key in kept} == kept


def test_interruption_is_130_and_resumable(tmp_path):
    out = tmp_path / "run"
    child = subprocess.Popen(
        [RESCERT, "verify", "--out", str(out), "--jobs", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (out / "records.sqlite").exists():
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "rescert resume" in stderr
    assert "\r" not in stderr
    assert stdout == "" or "PROVED" in stdout


def test_the_readme_example_runs_and_prints_what_it_says(capsys):
    text = (Path(__file__).resolve().parents[1] / "README.md").read_text()
    code, printed = text.split("```python\n")[1].split("```\n\n```text\n")
    exec(code, {})
    assert capsys.readouterr().out == printed.split("```")[0]
