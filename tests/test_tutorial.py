"""Every command of the tutorial is run, and prints what the tutorial shows."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).resolve().parents[1] / "verify" / "bounds" / "tutorial.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def steps():
    """Pairs of a shell block and the output that follows it; a Python block names its file in the first line."""
    blocks = BLOCK.findall(TUTORIAL.read_text())
    for place, (kind, content) in enumerate(blocks):
        if kind == "python":
            name = content.splitlines()[0].removeprefix("# ")
            yield "file", name, content
        if kind == "sh":
            following = blocks[place + 1] if place + 1 < len(blocks) else ("", "")
            yield "command", content.strip(), following[1] if following[0] == "text" else ""


def agrees(shown, printed):
    """As in a doctest: white space is free, and three dots stand for anything."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(shown, printed, flags)


def test_the_tutorial_prints_what_it_shows(tmp_path):
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
    }
    commands = 0
    for kind, text, shown in steps():
        if kind == "file":
            (tmp_path / text).write_text(shown)
            continue
        done = subprocess.run(
            shlex.split(text), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode in (0, 1), (text, done.stderr)
        assert agrees(shown, done.stdout), f"{text}\nprinted:\n{done.stdout}\nshown:\n{shown}"
        commands += 1
    assert commands >= 4


def test_the_comparison_can_fail():
    assert agrees("a ... c\n", "a b c\n")
    assert not agrees("REFUTED\n", "SUPPORTED\n")


@pytest.mark.parametrize("verdict", ["REFUTED", "SUPPORTED", "PROVED"])
def test_the_tutorial_goes_from_wrong_to_right(verdict):
    assert verdict in TUTORIAL.read_text()
