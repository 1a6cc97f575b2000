"""Our database: subscribers, and what they owe. SQLite or PostgreSQL; it is the source of truth.

LANEWAY_URL says where jobs are, and BILLING_DATABASE where the books are: in the same database, unless jobs are in Redis. Without
either they are in a new file, for this run.
"""

# ruff: noqa: S608 - a statement has as many question marks as there are customers

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any


def _new_file() -> str:
    folder = tempfile.mkdtemp(prefix="laneway-billing-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return f"sqlite:///{folder}/billing.db"


# Programs that this one starts have the same.
STORE = os.environ.get("LANEWAY_URL") or _new_file()
DATABASE = os.environ.get("BILLING_DATABASE") or (_new_file() if STORE.startswith("redis") else STORE)
os.environ.update(LANEWAY_URL=STORE, BILLING_DATABASE=DATABASE)
IS_SQLITE = DATABASE.startswith("sqlite:")
#: Jobs are rows of this database too; else they go by an outbox.
SAME_DATABASE = DATABASE == STORE
#: What is left out on purpose, to see what it is good for: key, charged-at or conflict. See run.py.
WITHOUT = os.environ.get("BILLING_WITHOUT", "")

MONTH, TODAY, NEXT_MONTH = "2026-11", "2026-11-01", "2026-12-01"

_ID = "integer primary key" if IS_SQLITE else "bigint generated always as identity primary key"
_ONCE_A_MONTH = "" if WITHOUT == "conflict" else ", unique (customer, month)"
_ON_CONFLICT = "" if WITHOUT == "conflict" else "on conflict (customer, month) do nothing"
TABLES = (
    "create table subscriptions (customer integer primary key, cents integer not null, next_charge_on text not null)",
    f"""create table invoices (id {_ID}, customer integer not null, month text not null, cents integer not null,
        charged_at text, receipt text{_ONCE_A_MONTH})""",
    "create index invoices_outstanding on invoices (id) where charged_at is null",
    "create table sweeps (added integer not null)",
)

_of_thread = threading.local()
#: SQLite has one writer at a time. Threads of one process wait here, and not in SQLite, which looks again only now and then.
_writer = threading.Lock()


def ask(conn: Any, sql: str, values: Sequence[object] = ()) -> list[Any]:
    """Run a statement and return its rows."""
    found = conn.execute(sql if IS_SQLITE else sql.replace("?", "%s"), values)
    return found.fetchall() if found.description else []


@contextmanager
def transaction() -> Iterator[Any]:
    """Give a connection in a transaction: committed at the end of the block, rolled back after an exception."""
    if IS_SQLITE:
        with _writer:
            yield from _transaction("begin immediate")
    else:
        yield from _transaction("begin")


def _transaction(begin: str) -> Iterator[Any]:
    conn = _connection()
    conn.execute(begin)
    try:
        yield conn
    except BaseException:
        with suppress(Exception):  # the server is gone, and the transaction with it
            conn.execute("rollback")
        raise
    conn.execute("commit")


def _connection() -> Any:
    """Return this thread's connection; a new one if the server has ended the last."""
    conn = getattr(_of_thread, "conn", None)
    if conn is None or (not IS_SQLITE and conn.closed):
        conn = _of_thread.conn = _connect()
    return conn


def _connect() -> Any:
    if IS_SQLITE:
        conn = sqlite3.connect(DATABASE.removeprefix("sqlite:///"), timeout=30, isolation_level=None)
        conn.execute("pragma journal_mode = wal")
        conn.execute("pragma synchronous = normal")
        return conn
    import psycopg  # noqa: PLC0415 - with SQLite it need not be there

    return psycopg.connect(DATABASE, autocommit=True, connect_timeout=10)


# -- subscriptions ---------------------------------------------------------------------------------------------------


def create(subscriptions: Iterable[tuple[int, int]]) -> None:
    """Make the tables, with these customers and what each pays a month."""
    rows = [(customer, cents, TODAY) for customer, cents in subscriptions]
    insert = "insert into subscriptions values (?, ?, ?)"
    with transaction() as conn:
        for statement in TABLES:
            conn.execute(statement)
        (conn if IS_SQLITE else conn.cursor()).executemany(insert if IS_SQLITE else insert.replace("?", "%s"), rows)


def due() -> list[tuple[int, int]]:
    """Return the customers whose next charge is due, and what they pay."""
    sql = "select customer, cents from subscriptions where next_charge_on <= ? order by customer"
    return [(customer, cents) for customer, cents in ask(_connection(), sql, [TODAY])]


def price(customer: int) -> int:
    """Return what a customer pays a month."""
    return int(ask(_connection(), "select cents from subscriptions where customer = ?", [customer])[0][0])


def move_on(conn: Any, customers: Sequence[int]) -> None:
    """Note that this month's charge of these customers is being seen to."""
    ask(conn, f"update subscriptions set next_charge_on = ? where customer in ({_marks(customers)})", [NEXT_MONTH, *customers])


# -- invoices --------------------------------------------------------------------------------------------------------


def make_invoices(conn: Any, customers: Sequence[int]) -> list[int]:
    """Make this month's invoices of these customers, and return their numbers: none for a customer who has one already."""
    made = ask(
        conn,
        f"""insert into invoices (customer, month, cents)
            select customer, ?, cents from subscriptions where customer in ({_marks(customers)}) order by customer
            {_ON_CONFLICT} returning id, customer""",
        [MONTH, *customers],
    )
    if made:
        move_on(conn, [customer for _, customer in made])
    return sorted(number for number, _ in made)


def invoice(number: int) -> tuple[int, int, str | None]:
    """Return an invoice's customer and amount, and when it was charged."""
    customer, cents, charged_at = ask(_connection(), "select customer, cents, charged_at from invoices where id = ?", [number])[0]
    return customer, cents, charged_at


def mark_charged(number: int, receipt: str) -> None:
    """Note that an invoice was charged."""
    with transaction() as conn:
        ask(
            conn,
            "update invoices set charged_at = current_timestamp, receipt = ? where id = ? and charged_at is null",
            [receipt, number],
        )


def outstanding(limit: int) -> list[int]:
    """Return the invoices that are not charged yet, the oldest first."""
    found = ask(_connection(), "select id from invoices where charged_at is null order by id limit ?", [limit])
    return [number for (number,) in found]


def note_sweep(added: int) -> None:
    """Note how many jobs a sweep has added."""
    with transaction() as conn:
        ask(conn, "insert into sweeps values (?)", [added])


def swept() -> int:
    """Return how many jobs all sweeps have added."""
    return int(ask(_connection(), "select coalesce(sum(added), 0) from sweeps")[0][0])


def everything() -> tuple[list[Any], list[Any]]:
    """Return all subscriptions, and all invoices, for who audits them."""
    conn = _connection()
    invoices = ask(conn, "select id, customer, cents, charged_at, receipt from invoices order by id")
    return ask(conn, "select customer, cents, next_charge_on from subscriptions"), invoices


def progress() -> tuple[int, int]:
    """Return how many invoices there are, and how many of them are not charged yet."""
    counted = "select (select count(*) from invoices), (select count(*) from invoices where charged_at is null)"
    invoices, uncharged = ask(_connection(), counted)[0]
    return invoices, uncharged


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
