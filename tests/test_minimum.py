"""The oldest versions that pyproject.toml allows are enough: a few tests of each dependency run with exactly those."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "minimum"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

#: Cron, the command line and its live view, stored bytes that cannot be read, the web and frameworks; and Redis, if it is here.
TESTS = [
    "tests/test_cron.py", "tests/test_cli_parts.py", "tests/test_stats_figures.py", "tests/test_web_actions.py",
    "tests/test_contrib_fastapi.py", "tests/test_contrib_flask.py", "tests/test_redis.py", "-k",
    "test_cron or live_view or no_task_uses or no_bucket or cannot_be_used or harms_nobody or fastapi or flask or dashboard",
]  # fmt: skip


@pytest.mark.skipif(not SCRIPT["BUILT"], reason="not all of the oldest versions were built for this Python")
@pytest.mark.timeout(900)
def test_the_oldest_versions_are_enough() -> None:
    folder = Path(sys.prefix, "minimum")  # made by make test: to install them takes five times as long as to use them
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, SCRIPT["__file__"], str(folder), "-q", "-p", "no:cacheprovider", *TESTS],
        env=env, capture_output=True, text=True, timeout=880, check=False,
    )  # fmt: skip
    if done.returncode == SCRIPT["UNREACHABLE"]:
        why = f"no package index can be reached: {done.stderr.strip().splitlines()[-1:]}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 50


def test_every_dependency_says_from_which_version_on() -> None:
    oldest: Callable[[], list[str]] = SCRIPT["oldest"]
    assert [one for one in oldest() if not re.fullmatch(r"[a-z0-9-]+(\[[a-z]+\])?==\d+(\.\d+)+", one)] == []
    assert len(oldest()) == len(set(oldest()))


def test_all_is_every_extra() -> None:
    extras = set(PROJECT["optional-dependencies"])
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert set(re.findall(r"\[(.*)\]", everything)[0].split(",")) == extras - {"all"}


def test_whatever_is_installed_is_used() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    names = {re.split(r"\W", one)[0] for one in SCRIPT["oldest"]()}
    uses = r"^\s*(?:import|from) {0}(_sdk)?\b|import_module\(\"{0}\"\)"
    assert {name for name in names if not re.search(uses.format(name), code, re.MULTILINE)} == set()
