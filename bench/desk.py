"""What the desk offers beside what it costs: awaited enqueues, tasks that keep their results, enqueues in transactions.

make bench ARGS="awaited kept transaction redis_awaited redis_kept"
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

from any_store import drained, each
from harness import Table, alternate, rate
from laneway import App
from raw_redis import AOF, served

SINGLE = 2_000
JOBS = 20_000


def _awaited(on: str, url: str) -> None:
    """Enqueue one after the other: from plain code, and awaited on an event loop."""
    app = App(url)

    @app.task
    def nothing(number: int) -> None: ...

    async def one_by_one() -> None:
        for number in range(SINGLE):
            await nothing.aenqueue(number)

    async def together() -> None:
        await asyncio.gather(*(nothing.aenqueue(number) for number in range(SINGLE)))

    nothing.enqueue(0)
    plain, awaited, gathered = alternate(
        lambda: rate(SINGLE, lambda: each(nothing.enqueue, range(SINGLE))),
        lambda: rate(SINGLE, lambda: asyncio.run(one_by_one())),
        lambda: rate(SINGLE, lambda: asyncio.run(together())),
    )
    table = Table(f"enqueues{on}, jobs per second", "", "laneway", "ratio")
    table.row("enqueue(), one after the other", plain, 1.0)
    table.row("await aenqueue(), one after the other", awaited, awaited / plain)
    table.row(f"{SINGLE:,} gathered", gathered, gathered / plain)
    app.close()


def _kept(on: str, url: str) -> None:
    """No-op jobs through 10 slots, of a task that keeps nothing and of one that keeps its results."""
    app = App(url)

    @app.task(name="forgets")
    def forgets(number: int) -> int:
        return number

    @app.task(name="keeps", keep_result=3600)
    def keeps(number: int) -> int:
        return number

    def of(enqueue_many: Callable[[list[tuple[int]]], int]) -> float:
        enqueue_many([(number,) for number in range(JOBS)])
        return drained(app, JOBS)

    nothing, kept = alternate(lambda: of(forgets.enqueue_many), lambda: of(keeps.enqueue_many))
    table = Table(f"results{on}, jobs per second", "", "laneway", "ratio")
    table.row("nothing is kept", nothing, 1.0)
    table.row("keep_result=3600", kept, kept / nothing)
    app.close()


def transaction(where: Path) -> None:
    """A row of the user's and its job: as one transaction, and as two."""
    app = App(f"sqlite:///{where}/shop.db")
    connection = sqlite3.connect(where / "shop.db")
    connection.execute("create table orders (id integer primary key, total integer)")

    @app.task
    def ship(order: int) -> None: ...

    def write(number: int) -> None:
        connection.execute("insert into orders (total) values (?)", (number,))
        connection.commit()

    def together(number: int) -> None:
        with app.transaction(connection):
            connection.execute("insert into orders (total) values (?)", (number,))
            ship.enqueue(number)
        connection.commit()

    def apart(number: int) -> None:
        write(number)
        ship.enqueue(number)

    ship.enqueue(0)
    connection.execute("pragma synchronous = normal")  # as the store's own connection
    alone, one, two = alternate(*(
        partial(rate, SINGLE, partial(each, side, range(SINGLE))) for side in (write, together, apart)
    ))  # fmt: skip
    table = Table("a row and its job, per second", "", "laneway", "ratio")
    table.row("the row alone", alone, alone / two)
    table.row("one transaction", one, one / two)
    table.row("two: the row, then enqueue()", two, 1.0)
    connection.close()
    app.close()


def awaited(where: Path) -> None:
    """On SQLite."""
    _awaited("", f"sqlite:///{where}/awaited.db")


def kept(where: Path) -> None:
    """On SQLite."""
    _kept("", f"sqlite:///{where}/kept.db")


def redis_awaited(where: Path) -> None:
    """On Redis."""
    with served(where, *AOF) as server:
        _awaited(" on Redis", server.url)


def redis_kept(where: Path) -> None:
    """On Redis."""
    with served(where, *AOF) as server:
        _kept(" on Redis", server.url)


PARTS = {part.__name__: part for part in (awaited, kept, transaction)}
ON_REDIS = {part.__name__: part for part in (redis_awaited, redis_kept)}
