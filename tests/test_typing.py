"""The typed API: what mypy and pyright accept, and what they flag."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ACCEPTED = Path("tests/typing/accepted.py")
FLAGGED = Path("tests/typing/flagged.py")

#: Errors by file name and line.
Errors = dict[str, dict[int, str]]


def run(*arguments: str) -> str:
    """Run a checker over both files, with the project's settings."""
    command = [sys.executable, "-m", *arguments, str(ACCEPTED), str(FLAGGED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def mypy() -> Errors:
    cache = ROOT / ".mypy_cache" / "tests"  # the project's own may be in use
    found: Errors = defaultdict(dict)
    for line in run("mypy", "--strict", "--cache-dir", str(cache), "--hide-error-context", "--no-pretty").splitlines():
        if match := re.fullmatch(r"(.+?):(\d+)(?::\d+)?: error: (.*)", line):
            found[Path(match[1]).name][int(match[2])] = match[3]
    return found


@pytest.fixture(scope="module")
def pyright() -> Errors:
    found: Errors = defaultdict(dict)
    for entry in json.loads(run("pyright", "--outputjson"))["generalDiagnostics"]:
        assert entry["severity"] == "error", entry
        found[Path(entry["file"]).name][entry["range"]["start"]["line"] + 1] = entry["message"]
    return found


def marked() -> set[int]:
    lines = (ROOT / FLAGGED).read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# flagged")}


def check(found: dict[int, str]) -> None:
    """Compare what was flagged with what is marked."""
    assert marked()
    assert {number: text for number, text in found.items() if number not in marked()} == {}, "flagged, but right"
    assert marked() - set(found) == set(), "wrong, but not flagged"


def test_mypy_accepts_correct_uses_and_infers_their_types(mypy: Errors) -> None:
    assert mypy[ACCEPTED.name] == {}


def test_pyright_accepts_correct_uses_and_infers_their_types(pyright: Errors) -> None:
    assert pyright[ACCEPTED.name] == {}


def test_mypy_flags_exactly_the_wrong_lines(mypy: Errors) -> None:
    check(mypy[FLAGGED.name])


def test_pyright_flags_exactly_the_wrong_lines(pyright: Errors) -> None:
    check(pyright[FLAGGED.name])
