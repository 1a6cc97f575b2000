"""What a pool costs beside the standard library's, by its ways to dispatch; and what many queues cost a worker.

make bench ARGS="pool busy_queues redis_busy_queues"
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness import Table, alternate, rate
from laneway import App, Worker
from laneway.pool import LeastBusyFirst, RoundRobin, Shared, Topic, WorkerPool
from load import calm, noise
from raw_redis import served

SIZE, SLOTS = 10, 10
SUBMITTED, ASKED, MANY = 20_000, 5_000, 20_000
DISPATCH = {"Shared": Shared(), "LeastBusyFirst": LeastBusyFirst(), "RoundRobin": RoundRobin(), "Topic": Topic(["mail", "img"])}
QUEUES = (1, 10, 50)


def nothing() -> None:
    """What the jobs of a pool do."""


def pool(_: Path) -> None:
    """Submit and hear the result: all at once, with a short line, and one after the other."""
    with ExitStack() as ending:
        standard = ending.enter_context(ThreadPoolExecutor(SIZE))
        roomy: dict[str, Executor] = {"ThreadPoolExecutor": standard}
        short: dict[str, Executor] = {}
        for name, policy in DISPATCH.items():
            for pools, capacity in ((roomy, SUBMITTED), (short, None)):
                made = ending.enter_context(WorkerPool(SIZE, dispatch=policy, capacity=capacity))
                pools[f"WorkerPool, {name}"] = made.using(topic="mail") if name == "Topic" else made
        everyone = [(name, executor) for pools in (roomy, short) for name, executor in pools.items()]
        together = alternate(*(_together(executor) for _, executor in everyone))
        one_by_one = alternate(*(_one_by_one(executor) for executor in roomy.values()))
    table = Table(f"{SIZE} threads, jobs that do nothing, per second", "", "together", "of standard", "one by one", "of standard")
    for place, name in enumerate(roomy):
        figures = (together[place], one_by_one[place])
        table.row(name, figures[0], figures[0] / together[0], figures[1], figures[1] / one_by_one[0])
    for name, figure in zip(short, together[len(roomy) :], strict=True):
        table.row(f"{name}, {SIZE} may wait", figure, figure / together[0])
    print(f"    {noise()}")


def _together(executor: Executor) -> Callable[[], float]:
    """Submit many, then hear of all."""

    def measure() -> float:
        calm()
        return rate(SUBMITTED, lambda: [each.result() for each in [executor.submit(nothing) for _ in range(SUBMITTED)]])

    return measure


def _one_by_one(executor: Executor) -> Callable[[], float]:
    """Submit one, hear of it, submit the next."""

    def measure() -> float:
        calm()
        return rate(ASKED, lambda: [executor.submit(nothing).result() for _ in range(ASKED)])

    return measure


def busy_queues(where: Path) -> None:
    """As many no-op jobs in 1 queue as in 10 and in 50, on SQLite."""
    _busy_queues("SQLite", [f"sqlite:///{where / f'{number}.db'}" for number in QUEUES])


def redis_busy_queues(where: Path) -> None:
    """As many no-op jobs in 1 queue as in 10 and in 50, on Redis."""
    with ExitStack() as ending:
        _busy_queues("Redis", [ending.enter_context(served(where / str(number))).url for number in QUEUES])


def _busy_queues(store: str, urls: list[str]) -> None:
    apps = [App(url) for url in urls]
    sides = [_queues(app, queues, way) for app, queues in zip(apps, QUEUES, strict=True) for way in ("even", "adaptive")]
    figures = alternate(*sides)
    table = Table(
        f"{MANY} no-op jobs over queues, one worker with {SLOTS} slots, {store}", "", "even", "of 1", "adaptive", "of 1"
    )
    for place, queues in enumerate(QUEUES):
        even, adaptive = figures[2 * place], figures[2 * place + 1]
        table.row(f"{queues} queue{'s' * (queues > 1)}", even, even / figures[0], adaptive, adaptive / figures[1])
    print(f"    {noise()}")
    for app in apps:
        assert sum(app.inspect.counts().values()) == 0
        app.close()


def _queues(app: App, queues: int, balance: str) -> Callable[[], float]:
    def one(number: int) -> None: ...

    tasks: list[Any] = [app.task(name=f"{balance}-{n}", queue=f"{balance}-{n}")(one) for n in range(queues)]

    def measure() -> float:
        for task in tasks:
            task.enqueue_many((n,) for n in range(MANY // queues))
        calm()
        return rate(MANY, lambda: Worker(app, slots=SLOTS, balance=balance).run(burst=True))

    return measure


PARTS = {part.__name__: part for part in (pool, busy_queues)}
ON_REDIS = {part.__name__: part for part in (redis_busy_queues,)}
