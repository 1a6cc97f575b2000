"""kill -9 around the commit of a receipt: each order is written exactly once, with every store."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import postgresbench
import redisbench
from conftest import SOAK, often
from laneway import App
from laneway.transactions.receipts import TABLE
from transactbench import SEATS

PROGRAM = str(Path(__file__).with_name("once_program.py"))
#: Which store, which database of the user's, and which driver. In the soak all drivers, with a store elsewhere.
TRIED = [("redis", *seat) for seat in SEATS] if SOAK else [("redis", "sqlite", "sqlite3"), ("redis", "postgres", "psycopg")]
TRIED += [("sqlite", "sqlite", "aiosqlite"), ("postgres", "postgres", "asyncpg"), ("postgres", "sqlite", "sqlite3")]


class Database:
    """The user's, with its tables."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.server = postgresbench.server() if kind == "postgres" else None
        self.address = str(folder / "shop.db") if self.server is None else self.server.url
        for name in ("orders", "laneway_receipt"):
            self.ask(f"drop table if exists {name}")
        for statement in ("create table orders (id int)", *TABLE):
            self.ask(statement)

    def ask(self, sql: str) -> list[Any]:
        if self.server is not None:
            return self.server.ask(sql)
        connection = sqlite3.connect(self.address, isolation_level=None, timeout=30)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


def url_of(store: str, folder: Path) -> str:
    """A new store's."""
    if store == "sqlite":
        return f"sqlite:///{folder / 'store.db'}"
    return redisbench.emptied().url if store == "redis" else postgresbench.emptied().url


@pytest.mark.parametrize(("store", "kind", "driver"), TRIED)
def test_each_order_is_written_once_wherever_its_worker_is_killed(store: str, kind: str, driver: str, tmp_path: Path) -> None:
    url, database = url_of(store, tmp_path), Database(kind, tmp_path)
    app, number = App(url), often(1, 25)
    app.enqueue_many(app.using().bind("charge", n) for n in range(number))
    again = ""

    for dies in ("write", "commit") * number + ("never",):
        command = [sys.executable, PROGRAM, url, database.address, driver, dies]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == (0 if dies == "never" else -9), done.stderr
        again += done.stdout
        for worker in app.inspect.workers():
            app.store.recover(worker.id, "killed by signal 9")

    assert database.ask("select id, count(*) from orders group by id order by id") == [(n, 1) for n in range(number)]
    assert "again" in again, "a run came after one that had committed"
    assert sum(app.inspect.counts().values()) == 0
    app.close()
