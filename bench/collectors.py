"""How fast one worker is with collectors, on an SQLite file: no-op runs through 5 slots. `make bench ARGS="collectors"`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from harness import Table, alternate, rate
from laneway import App, Worker

SLOTS = 5
MANY = 20_000
WAITING = 100_000


def collectors(where: Path) -> None:
    """Lanes of one payload, one and ten to a run; payloads that gather; and the same beside lanes that wait."""
    table = Table("collectors through one worker with 5 slots, per second", "", "lanes/s", "payloads/s")
    app = App(f"sqlite:///{where / 'jobs.db'}")

    @app.collector(name="one", max_lanes=1)
    def one(lanes: dict[str, list[int]]) -> None: ...

    @app.collector(name="ten", max_lanes=10)
    def ten(lanes: dict[str, list[int]]) -> None: ...

    def measured(send: Callable[[Iterable[tuple[str, int]]], int], lanes: int) -> Callable[[], float]:
        def work() -> float:
            send((f"order-{number % lanes}", number) for number in range(MANY))
            return rate(MANY, lambda: Worker(app, slots=SLOTS, queues=["one", "ten"]).run(burst=True))

        return work

    runs = [
        ("20,000 lanes of one payload, max_lanes=1", measured(one.enqueue_many, MANY), 1),
        ("20,000 lanes of one payload, max_lanes=10", measured(ten.enqueue_many, MANY), 1),
        ("20,000 payloads over 1,000 lanes, max_lanes=10", measured(ten.enqueue_many, 1000), MANY // 1000),
        ("20,000 payloads in one lane", measured(one.enqueue_many, 1), MANY),
    ]
    figures = alternate(*(work for _, work, _ in runs))
    for (name, _, gathered), figure in zip(runs, figures, strict=True):
        table.row(name, figure / gathered, figure)
    _beside_waiting(table, app, ten.using(run_after=3600).enqueue_many, runs[1][1])
    app.close()


def _beside_waiting(table: Table, app: App, fill: Callable[[Iterable[tuple[str, int]]], int], work: Callable[[], float]) -> None:
    before = alternate(work)[0]
    fill((f"later-{number}", number) for number in range(WAITING))
    table.row("max_lanes=10 beside 100,000 lanes that wait", after := alternate(work)[0], after)
    assert app.inspect.counts()["scheduled"] == WAITING
    print(f"    that is {after / before:.2f} of what it was without them")


PARTS = {"collectors": collectors}
