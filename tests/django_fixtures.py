"""The fixtures of tests with a Django project: `place`, `jobs` and `six`. Loaded as a plugin, by modules that say so."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import postgresbench
import redisbench
from djangobench import ROOT, empty_shop, empty_template, in_postgres
from redisbench import free_port

SIX = runpy.run_path(str(ROOT / "scripts" / "django6"))


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A shop's database: how its programs find it. SQLite, unless a test says otherwise."""
    if getattr(request, "param", "sqlite") == "sqlite":
        (tmp_path / "shop.sqlite3").write_bytes(empty_shop())
        yield {"SHOP_FOLDER": str(tmp_path)}
        return
    server, name = postgresbench.server(), f"shop_{os.getpid()}_{free_port()}"
    server.ask(f"CREATE DATABASE {name} TEMPLATE {empty_template()}")
    yield in_postgres(name)
    server.ask(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def six() -> str:
    """A Python that has Django 6."""
    folder = Path(sys.prefix, "django6")  # made by make test
    made = subprocess.run(
        [sys.executable, SIX["__file__"], str(folder)], capture_output=True, text=True, timeout=580, check=False
    )
    if made.returncode == SIX["NO_PYTHON"]:
        pytest.skip("Django 6 needs Python 3.12, and there is none here")
    if made.returncode == SIX["UNREACHABLE"]:
        why = f"no package index can be reached: {made.stderr.strip().splitlines()[-1:]}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.fixture
def jobs() -> str:
    """A store elsewhere."""
    if why := redisbench.why_not():
        pytest.skip(why)
    return redisbench.emptied().url
