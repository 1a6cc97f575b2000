"""kill -9 at any moment of a transaction that writes a row and enqueues a job: both are there, or neither."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import postgresbench
from conftest import SOAK, often
from laneway import App
from laneway.errors import UnknownLane
from laneway.testing import wait_until
from transactbench import SEATS

PROGRAM = str(Path(__file__).with_name("transact_program.py"))
#: Outside of the soak the usual driver of each database is enough.
TRIED = SEATS if SOAK else [("sqlite", "sqlite3"), ("postgres", "psycopg")]


@pytest.mark.soak
@pytest.mark.parametrize(("store", "driver"), TRIED)
def test_rows_and_jobs_agree_wherever_the_program_is_killed(store: str, driver: str, tmp_path: Path) -> None:
    def ask(sql: str) -> list[Any]:
        if store == "postgres":
            return postgresbench.server().ask(sql)
        connection = sqlite3.connect(address, isolation_level=None, timeout=30)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    if store == "postgres":
        address = url = postgresbench.emptied().url
        ask("drop table if exists orders")
    else:
        address = str(tmp_path / "shop.db")
        url = f"sqlite:///{address}"
    app = App(url)
    app.inspect.counts()  # makes the tables
    app.close()
    ask("create table orders (id int)")
    seed = str(random.randrange(10**6))  # noqa: S311 - said below, so that a failure can be repeated

    command = [sys.executable, PROGRAM, url, address, driver, str(often(10, 300)), seed]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=often(200, 3000))
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"

    if store == "postgres":  # what was killed may still be on its way in the server
        others = "select count(*) from pg_stat_activity where backend_xid is not null"
        wait_until(lambda: ask(others) == [(0,)])
    orders = [id_ for (id_,) in ask("select id from orders order by id")]
    assert len(orders) >= often(10, 300), "each child has committed something"

    jobs: dict[str, list[int]] = {"ship": [], "once": [], "save": []}
    after: str | None = None
    while True:
        page = app.inspect.jobs(limit=1000, after=after)
        for job in page:
            if job.task != "save":
                jobs[job.task] += (job.args or [])[:1]
        after = page.next
        if after is None:
            break
    for lane in range(2):
        with contextlib.suppress(UnknownLane):  # by chance nothing of it was committed
            jobs["save"] += [msgspec.json.decode(found.body) for found in app.inspect.payloads("save", lane, limit=10_000)]
    app.close()
    assert sorted(jobs["ship"]) == orders, f"seed {seed}"
    assert sorted(jobs["once"]) == [order for order in orders if order % 3 == 0], f"seed {seed}"
    assert sorted(jobs["save"]) == [order for order in orders if order % 5 == 0], f"seed {seed}"
