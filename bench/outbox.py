"""How fast rows of an outbox become jobs on Redis, beside a raw loop that reads, pushes and deletes; how soon after the commit.

make bench ARGS="outbox outbox_postgres"

ROWS: how many are carried over, 100,000 by default. Both sides carry 1,000 at a time. The raw loop gives no numbers and checks
none: after a kill it pushes some twice. It knows no lanes either: jobs go into a hash and a zset.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from harness import Table, alternate, judge, percentile, rate
from laneway import App, Worker
from laneway.outbox.database import open_database
from laneway.outbox.relay import AT_ONCE, Relay
from raw_postgres import served as served_postgres
from raw_redis import AOF, served

ROWS = int(os.environ.get("ROWS", "100000"))
#: Rows for which the time from the commit to the start of the job is taken.
FEW = int(os.environ.get("FEW", "40"))
#: Rows a second that a relay has to carry.
BAR = 20_000


class UserDatabase:
    """A database of the user's, by its own driver."""

    mark = "?"

    def __init__(self, url: str, connection: Any) -> None:
        self.url = url
        self.connection = connection

    def fill(self, number: int) -> None:
        """Insert rows."""
        cursor = self.connection.cursor()
        text = '{{"id":"{0:020x}","task":"app.ship","queue":"default","body":"[[{0}],{{}}]","lane":"customer-{1}"}}'
        cursor.executemany(
            f"insert into laneway_outbox (job) values ({self.mark})",  # noqa: S608 - a mark of ours
            [(text.format(n, n % 1000),) for n in range(number)],
        )
        self.connection.commit()

    def carry_raw(self, client: Any) -> None:
        """Read, push and delete, until nothing is left."""
        cursor = self.connection.cursor()
        while rows := cursor.execute(f"select seq, job from laneway_outbox order by seq limit {AT_ONCE}").fetchall():  # noqa: S608
            pipe = client.pipeline(transaction=True)
            pipe.hset("raw:body", mapping={str(seq): job for seq, job in rows})
            pipe.zadd("raw:due", {str(seq): seq for seq, _ in rows})
            pipe.execute()
            marks = (rows[0][0], rows[-1][0])
            cursor.execute(f"delete from laneway_outbox where seq between {self.mark} and {self.mark}", marks)  # noqa: S608
            self.connection.commit()


class OnPostgres(UserDatabase):
    """PostgreSQL."""

    mark = "%s"


@contextlib.contextmanager
def on_sqlite(where: Path) -> Iterator[UserDatabase]:
    """Give an SQLite file."""
    connection = sqlite3.connect(where / "shop.db")
    yield UserDatabase(f"sqlite:///{where}/shop.db", connection)
    connection.close()


@contextlib.contextmanager
def on_postgres(where: Path) -> Iterator[UserDatabase]:
    """Give a PostgreSQL server as it comes."""
    del where
    with served_postgres() as server, psycopg.connect(server.url) as connection:
        yield OnPostgres(server.url, connection)


def _carry(what: str, user: UserDatabase, where: Path) -> None:
    with served(where / "redis", *AOF) as server:
        app = App(server.url, outbox=user.url)
        assert app.outbox is not None
        database = open_database(app.outbox)
        database.create()

        def relayed() -> float:
            user.fill(ROWS)
            relay = Relay(database, lambda: app.store)

            def all_rows() -> None:
                while relay.step().carried:
                    pass

            found = rate(ROWS, all_rows)
            relay.step()
            relay.release()
            server.client.flushall()
            app.store.close()
            return found

        def raw() -> float:
            user.fill(ROWS)
            found = rate(ROWS, lambda: user.carry_raw(server.client))
            server.client.flushall()
            return found

        ours, theirs = alternate(relayed, raw, rounds=3 if ROWS <= 200_000 else 1)
        table = Table(f"outbox in {what} to Redis, {ROWS:,} rows, per second", "", "laneway", "ratio")
        table.row("raw: read, push, delete", theirs, 1.0)
        table.row("the relay", ours, ours / theirs)
        judge("rows a second", ours, least=BAR)
        _soon(app, user)
        app.close()
        database.close()


def _soon(app: App, user: UserDatabase) -> None:
    """Measure from a commit to the start of the job, in an idle worker."""
    started = threading.Event()

    @app.task(name="app.soon")
    def soon() -> None:
        started.set()

    worker = Worker(app, slots=2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    took: list[float] = []
    for _ in range(FEW):
        time.sleep(1.3)  # it is idle again
        started.clear()
        with app.transaction(user.connection):
            soon.enqueue()
        user.connection.commit()
        begun = time.perf_counter()
        started.wait(10)
        took.append((time.perf_counter() - begun) * 1000)
    worker.stop()
    thread.join()
    table = Table("from the commit to the start of its job, idle, ms", "", "median", "95 %")
    table.row("the relay", statistics.median(took), percentile(took, 0.95))
    judge("95 %", percentile(took, 0.95), most=250)


def outbox(where: Path) -> None:
    """From SQLite."""
    with on_sqlite(where) as user:
        _carry("SQLite", user, where)


def outbox_postgres(where: Path) -> None:
    """From PostgreSQL."""
    with on_postgres(where) as user:
        _carry("PostgreSQL", user, where)


ON_REDIS = {outbox.__name__: outbox}
ON_POSTGRES = {outbox_postgres.__name__: outbox_postgres}
