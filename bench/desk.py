"""What the desk offers beside what it costs: awaited enqueues, tasks that keep their results.

make bench ARGS="awaited kept redis_awaited redis_kept"
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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


PARTS = {part.__name__: part for part in (awaited, kept)}
ON_REDIS = {part.__name__: part for part in (redis_awaited, redis_kept)}
