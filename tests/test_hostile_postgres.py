"""Somebody else wrote into the tables of a PostgreSQL store: as test_hostile, for what these tables let in."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest

import postgresbench
from conftest import often
from laneway import App
from laneway.core.job import Job
from laneway.errors import StoreError
from test_hostile import BLOBS, TEXTS, complaints, fill, open_shop
from webdesk import Shop

#: What a column of each type lets in. Texts are always UTF-8 there, without NUL.
VALUES: dict[str, tuple[Any, ...]] = {
    "text": tuple(text.replace(b"\x00", b"").decode(errors="replace") for text in TEXTS),
    "bytea": BLOBS,
    "bigint": (2**63 - 1, -(2**63), 7, 0, 10**17),
    "integer": (2**31 - 1, -(2**31), 7, 0),
    "smallint": (2**15 - 1, -(2**15), 7, 0),
    "double precision": (1e308, -1e308, float("inf"), float("nan")),
    "boolean": (True, False),
    "jsonb": ("null", "7", "[]", '{"processed": "x", "done": -1}', '"' + "x" * 1000 + '"'),
}
#: Without these there is no store: its version, what numbers the rows, and the books (so are the counts).
ROOTS = {("meta", "version"), ("job", "seq"), ("payload", "seq"), ("ledger", "totals"), ("books", "totals")}
#: In so many steps all columns are damaged; with make soak one of each table at a time.
STEPS = often(4, 24)


class Damaged:
    """A server with a filled store, which can be damaged and restored."""

    def __init__(self) -> None:
        self.server = postgresbench.emptied()
        self.url = self.server.url
        self.filled: Shop = fill(self.url)
        self.number = len(self.filled.app.inspect.jobs(limit=1000))
        self.filled.app.close()
        ask = self.server.ask
        self.tables = [name for (name,) in ask("select tablename from pg_tables where schemaname = 'laneway'")]
        ask("drop schema if exists kept cascade")
        ask("create schema kept")
        for table in self.tables:
            ask(f"create table kept.{table} as table laneway.{table}")
        self.columns = {
            table: [
                (name, kind)
                for name, kind in ask(
                    "select column_name, data_type from information_schema.columns where table_schema = 'laneway' "
                    "and table_name = %s and is_identity = 'NO'",
                    table,
                )
                if (table, name) not in ROOTS and kind in VALUES and (table, kind) != ("counted", "bigint")
            ]
            for table in self.tables
        }

    def restore(self) -> None:
        with self.server.asking() as ask:
            ask(f"truncate {', '.join(f'laneway.{table}' for table in self.tables)}")
            for table in self.tables:
                ask(f"insert into laneway.{table} overriding system value select * from kept.{table}")  # noqa: S608 - our own names

    def damage(self, table: str, column: str, kind: str) -> None:
        """Write another value into a column of each row that lets it in."""
        import psycopg  # noqa: PLC0415 - a missing driver skips tests, and breaks no others

        values = itertools.cycle(VALUES[kind])
        update = f"update laneway.{table} set {column} = %s::{kind} where ctid = %s::tid"  # noqa: S608
        with self.server.asking() as ask:
            for (row,) in ask(f"select ctid::text from laneway.{table}"):  # noqa: S608
                with contextlib.suppress(psycopg.errors.IntegrityError, psycopg.errors.ProgramLimitExceeded):
                    ask(update, next(values), row)


@pytest.fixture(scope="module")
def postgres() -> Damaged:
    return Damaged()


@pytest.mark.soak
@pytest.mark.parametrize("step", range(STEPS))
def test_whatever_stands_in_the_rows_can_be_looked_at(postgres: Damaged, step: int) -> None:
    damaged = [(table, *column) for table, columns in postgres.columns.items() for column in columns[step::STEPS]]
    assert damaged
    postgres.restore()
    for one in damaged:
        postgres.damage(*one)
    shop = open_shop(postgres.url, postgres.filled)
    found = complaints(shop, 0, commands=step == 0)
    shop.app.close()
    assert not found, "\n".join([*found, f"damaged: {damaged}"])


@pytest.mark.parametrize("table", ["ledger", "books"])
def test_books_that_cannot_be_read_are_told_in_one_line(postgres: Damaged, table: str) -> None:
    postgres.restore()
    postgres.server.ask("insert into laneway.ledger (at, totals) values (1, '{}')")  # it may have been added up already
    postgres.damage(table, "totals", "jsonb")
    app = App(postgres.url)
    with pytest.raises(StoreError, match="complains"):
        app.stats.totals()
    app.close()


def test_a_row_of_the_ledger_without_its_words_does_not_keep_it_from_being_added_up(postgres: Damaged) -> None:
    postgres.restore()
    for row in ("(at, number) values (1, 7)", "(at, arrived) values (1, 7)", "(at, queue, arrived) values (1, 'mail', 7)"):
        postgres.server.ask(f"insert into laneway.ledger {row}")
    from laneway.store.postgres.statements import VERSION  # noqa: PLC0415 - psycopg may be missing

    app = App(postgres.url)
    app.store.push([Job(id="one-more", queue="mail", task="login", body=b"[[],{}]")])
    postgres.server.ask(f"select laneway.fold_v{VERSION}(10, 1000)")
    assert "mail" in [queue.name for queue in app.inspect.queues()]
    app.close()
