"""How fast one worker is with collectors, on an SQLite file: no-op runs through 5 slots. `make bench ARGS="collectors"`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness import Table, alternate, rate
from laneway import App, Worker
from laneway.collector import Collector

SLOTS = 5
MANY = 20_000
WAITING = 100_000


def collectors(where: Path) -> None:
    """Lanes of one payload, one and ten to a run; payloads that gather; and the same beside lanes that wait for later."""
    alone, beside = _Bench(where / "alone.db"), _Bench(where / "beside.db")
    beside.ten.using(run_after=3600).enqueue_many((f"later-{number}", number) for number in range(WAITING))
    rows = [
        ("20,000 lanes of one payload, max_lanes=1", alone.work(alone.one, MANY), 1),
        ("20,000 lanes of one payload, max_lanes=10", alone.work(alone.ten, MANY), 1),
        ("the same beside 100,000 lanes that wait", beside.work(beside.ten, MANY), 1),
        ("20,000 payloads over 1,000 lanes, max_lanes=10", alone.work(alone.ten, 1000), MANY // 1000),
        ("20,000 payloads in one lane", alone.work(alone.one, 1), MANY),
    ]
    figures = alternate(*(work for _, work, _ in rows))
    table = Table("collectors through one worker with 5 slots, per second", "", "lanes/s", "payloads/s")
    for (name, _, gathered), figure in zip(rows, figures, strict=True):
        table.row(name, figure / gathered, figure)
    print(f"    beside 100,000 waiting lanes: {figures[2] / figures[1]:.2f} of what it is without them")
    assert sum(alone.app.inspect.counts().values()) == 0
    assert beside.app.inspect.counts()["scheduled"] == WAITING
    for bench in (alone, beside):
        bench.app.close()


class _Bench:
    """A store and two collectors that do nothing."""

    def __init__(self, path: Path) -> None:
        self.app = App(f"sqlite:///{path}")

        @self.app.collector(name="one", max_lanes=1)
        def one(lanes: dict[str, list[int]]) -> None: ...

        @self.app.collector(name="ten", max_lanes=10)
        def ten(lanes: dict[str, list[int]]) -> None: ...

        self.one, self.ten = one, ten

    def work(self, collector: Collector[int, None], lanes: int) -> Callable[[], float]:
        """Enqueue many payloads over some lanes, and return how fast they run."""

        def measure() -> float:
            collector.enqueue_many((f"order-{number % lanes}", number) for number in range(MANY))
            return rate(MANY, lambda: Worker(self.app, slots=SLOTS).run(burst=True))

        return measure


PARTS = {"collectors": collectors}
