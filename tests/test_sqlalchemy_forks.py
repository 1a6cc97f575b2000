"""Engines of SQLAlchemy in programs that fork, as docs/sqlalchemy.md has it: parent and child each write rows and jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import postgresbench
from laneway import App

pytest.importorskip("sqlalchemy")

PROGRAM = """
import os, sys
from sqlalchemy import create_engine, text
from laneway import App
from laneway.errors import StoreUnavailable

url, recipe = sys.argv[1:]
jobs = App(url)
engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
if recipe == "before":
    os.register_at_fork(before=engine.dispose)
elif recipe == "child":
    os.register_at_fork(after_in_child=lambda: engine.dispose(close=False))

def write(first):
    for number in range(first, first + 20):
        with engine.connect() as connection, jobs.transaction(connection):
            connection.execute(text(f"insert into forked values ({number})"))
            jobs.enqueue("ship", number, check=False)
            connection.commit()

with engine.begin() as connection:
    connection.execute(text("create table forked (id integer primary key)"))
write(0)
children = []
for first in (100, 200):
    child = os.fork()
    if child == 0:
        try:
            if recipe == "none":
                jobs.enqueue("ship", first, check=False)
            write(first)
        except StoreUnavailable as error:
            print(f"refused: {error}\\n", end="", flush=True)  # in one piece: the other child writes there too
            os._exit(3)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(4)
        os._exit(0)
    children.append(child)
write(300)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
with engine.connect() as connection:
    print(len(connection.execute(text("select id from forked")).all()), jobs.inspect.counts()["ready"])
"""


def run(url: str, recipe: str) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LANEWAY_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, recipe], env=clean, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("database", "recipe"), [("sqlite", "before"), ("postgres", "before"), ("postgres", "child")])
def test_parent_and_children_write_rows_and_jobs_after_a_fork(database: str, recipe: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db" if database == "sqlite" else postgresbench.renewed().url
    try:
        assert run(url, recipe) == ["[0, 0]", "80 80"]
    finally:
        if database == "postgres":
            postgresbench.server().ask("drop table if exists forked")


def test_a_file_that_was_open_over_a_fork_is_refused_before_anything_is_lost(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    *refused, codes, counted = run(url, "none")
    assert (codes, counted) == ("[3, 3]", "40 40")
    assert all(line.startswith("refused: ") for line in refused)
    app = App(url)
    assert app.inspect.counts()["ready"] == 40
    app.close()
