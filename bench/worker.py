"""How fast one worker is, beside a raw sqlite3 loop in the same run.

make bench ARGS="noop queues waiting idle collectors"
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import any_store
from any_store import BODY, drained
from harness import Table, alternate, rate
from laneway import App
from laneway.clock import now_micros
from laneway.ids import new_id
from raw import Raw

SLOTS = 10


def noop(where: Path) -> None:
    """Jobs that do nothing, through 10 slots; the raw loop claims and settles 10 at a time."""
    table = Table("no-op jobs through one worker with 10 slots, per second", "", "jobs/s", "of raw")
    raw = Raw(where / "raw.db")
    app = App(f"sqlite:///{where / 'jobs.db'}")

    @app.task
    def plain(number: int, text: str) -> None: ...

    @app.task
    async def on_loop(number: int, text: str) -> None: ...

    @app.task(lane="lane")
    def in_lane(lane: int, text: str) -> None: ...

    def of_raw() -> float:
        raw.push([(new_id(), now_micros(), BODY) for _ in range(20_000)])
        return rate(20_000, lambda: raw.drain(SLOTS, now_micros()))

    def of_plain() -> float:
        plain.enqueue_many((n, "welcome") for n in range(20_000))
        return drained(app)

    def of_async() -> float:
        on_loop.enqueue_many((n, "welcome") for n in range(20_000))
        return drained(app)

    def of_lane() -> float:
        in_lane.enqueue_many((7, "welcome") for _ in range(5_000))
        return drained(app, 5_000)

    def of_lanes() -> float:
        in_lane.enqueue_many((n % 1000, "welcome") for n in range(20_000))
        return drained(app)

    base, *figures = alternate(of_raw, of_plain, of_async, of_lane, of_lanes)
    table.row("raw sqlite3 loop, 10 at a time", base)
    for name, figure in zip(("plain", "async", "one hot lane", "1,000 lanes"), figures, strict=True):
        table.row(name, figure, figure / base)
    assert sum(app.inspect.counts().values()) == 0
    app.close()


def queues(where: Path) -> None:
    """Jobs that do nothing, in one queue and in many."""
    table = Table("no-op jobs through one worker with 10 slots, by the number of queues, per second", "", "jobs/s", "of one")
    numbers = (1, 50, 1000)

    def of(number: int) -> float:
        app = App(f"sqlite:///{where / f'{number}.db'}")

        @app.task
        def plain(number: int) -> None: ...

        for queue in range(number):
            plain.using(queue=f"queue-{queue}").enqueue_many((n,) for n in range(20_000 // number))
        figure = drained(app)
        app.close()
        return figure

    one, *figures = alternate(*(partial(of, number) for number in numbers))
    for number, figure in zip(numbers, (one, *figures), strict=True):
        table.row(f"{number:,} queues" if number > 1 else "one queue", figure, figure / one)


def waiting(where: Path) -> None:
    """2,000 jobs that wait 50 ms, on 25 slots."""
    any_store.waiting("", f"sqlite:///{where / 'jobs.db'}")


def idle(where: Path) -> None:
    """From enqueue to start in an idle worker of another process; and how late a scheduled job starts."""
    any_store.idle("", f"sqlite:///{where / 'jobs.db'}")


def collectors(where: Path) -> None:
    """No-op runs of collectors through 5 slots."""
    any_store.collectors("", f"sqlite:///{where / 'alone.db'}", f"sqlite:///{where / 'beside.db'}")


PARTS = {part.__name__: part for part in (noop, queues, waiting, idle, collectors)}
