"""A Django project for tests: the example and its database, and programs that look at it, each in a process of its own.

Test modules load `django_fixtures` as a plugin, and then have a place, a store elsewhere, and a Python with Django 6.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import postgresbench
from conftest import SOAK

__all__ = ["SHOP", "empty_shop", "empty_template", "environment", "in_postgres", "looked", "only_long", "ran", "run"]

ROOT = Path(__file__).parent.parent
SHOP = ROOT / "examples" / "django_shop"
PATHS = os.pathsep.join(str(path) for path in (ROOT / "src", SHOP, ROOT / "tests"))


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a project's programs."""
    ours = ("LANEWAY_", "PG", "SHOP_", "DJANGO_", "PYTEST_", "PYTHONDONTWRITEBYTECODE")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**clean, "PYTHONPATH": PATHS, "DJANGO_SETTINGS_MODULE": "shop.settings", **more}


def run(*command: str, python: str = sys.executable, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [python, "-W", "error", *command], env=environment(**more), capture_output=True, text=True, timeout=120, check=False,
        cwd=SHOP,
    )  # fmt: skip


def ran(*command: str, python: str = sys.executable, **more: str) -> str:
    """Run a program that ends well; return what it says."""
    done = run(*command, python=python, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def looked(what: str, *, python: str = sys.executable, **more: str) -> Any:
    """Return what the program beside sees."""
    with tempfile.NamedTemporaryFile() as answer:
        more = {"DJANGO_SETTINGS_MODULE": "django_desk.settings", **more}
        ran("-m", "django_desk.program", what, answer.name, python=python, **more)
        return json.loads(Path(answer.name).read_text(encoding="utf-8"))


@functools.cache
def empty_shop() -> bytes:
    """A shop's database of SQLite, with its tables."""
    with tempfile.TemporaryDirectory() as folder:
        ran("-m", "django", "migrate", SHOP_FOLDER=folder)
        return Path(folder, "shop.sqlite3").read_bytes()


def in_postgres(name: str) -> dict[str, str]:
    """Return how programs find a database of PostgreSQL."""
    port = str(postgresbench.server().port)
    return {"SHOP_DATABASE": "postgresql", "PGHOST": "127.0.0.1", "PGPORT": port, "PGUSER": "postgres", "PGDATABASE": name}


@functools.cache
def empty_template() -> str:
    """A shop's database of PostgreSQL, with its tables, for others to be made of."""
    postgresbench.server().ask("CREATE DATABASE shop_template")
    ran("-m", "django", "migrate", **in_postgres("shop_template"))
    return "shop_template"


only_long = [pytest.mark.soak, pytest.mark.skipif(not SOAK, reason="make soak runs it")]
