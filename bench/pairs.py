"""Two versions of Laneway against each other: pairs of rounds, one of each, and how sure the ratio is.

    python bench/pairs.py OTHER [ROW …] [--pairs 9]

OTHER is a checkout of another version, with its own `.venv`. Each round is a process of its own with a store of its own. A row
shows the medians, the median of the pairs' ratios (this version / the other), and where that lies with 95 %. Rows use the public
API alone, so that they run on both sides. More is better: latencies, memory and times to start count inversely.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import raw_postgres
from harness import Table, folder, percentile, rate
from laneway import App, Worker
from raw_redis import AOF, missing, served

HERE = Path(__file__).resolve().parent.parent


# -- one round, in a process of its own ------------------------------------------------------------------------------


class Round:
    """An app on a store that is empty; each row returns its figure."""

    def __init__(self, url: str) -> None:
        app = self.app = App(url, enqueue_timeout=60)
        self.url = url

        @app.task
        def nothing(number: int) -> None: ...

        @app.task(lane="key")
        def laned(key: int) -> None: ...

        @app.collector(max_lanes=50)
        def collected(lanes: dict[str, list[int]]) -> None: ...

        self.nothing, self.laned, self.collected = nothing, laned, collected

    def _work(self, number: int) -> float:
        return rate(number, lambda: Worker(self.app, slots=10).run(burst=True))

    def noop(self, number: int = 30_000) -> float:
        self.nothing.enqueue_many([(n,) for n in range(number)])
        return self._work(number)

    def lanes(self, number: int = 20_000, keys: int = 1000) -> float:
        self.laned.enqueue_many([(n % keys,) for n in range(number)])
        return self._work(number)

    def hot(self) -> float:
        return self.lanes(4000, 1)

    def queues(self, number: int = 20_000) -> float:
        for queue in range(50):
            self.nothing.using(queue=f"q{queue}").enqueue_many([(n,) for n in range(number // 50)])
        return self._work(number)

    def collectors(self, number: int = 20_000) -> float:
        self.collected.enqueue_many([(f"lane {n % 2000}", n) for n in range(number)])
        return self._work(number)

    def bulk(self, number: int = 100_000) -> float:
        return rate(number, lambda: self.nothing.enqueue_many([(n,) for n in range(number)]))

    def single(self, number: int = 4000) -> float:
        self.nothing.enqueue(0)
        return rate(number, lambda: [self.nothing.enqueue(n) for n in range(number)])

    def idle(self, number: int = 150) -> float:
        """One by the median time from an enqueue to the run of its job, in a worker that has nothing else to do."""
        ran, took = threading.Event(), list[float]()

        @self.app.task
        def stamp(begun: float) -> None:
            took.append(time.perf_counter() - begun)
            ran.set()

        worker = Worker(self.app, slots=2)
        thread = threading.Thread(target=worker.run)
        thread.start()
        for _ in range(number):
            time.sleep(0.005)
            ran.clear()
            stamp.enqueue(time.perf_counter())
            assert ran.wait(10)
        worker.stop()
        thread.join()
        return 1 / percentile(took, 0.5)

    def memory(self) -> float:
        """Workers of one MB."""
        self.noop(5000)
        return 1000 / resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def start(self, number: int = 5) -> float:
        command = [sys.executable, "-c", "import sys; from laneway import App; App(sys.argv[1]).enqueue('t')", self.url]
        return rate(number, lambda: [subprocess.run(command, check=True) for _ in range(number)])


ROWS = ("noop", "lanes", "hot", "queues", "collectors", "bulk", "single", "idle", "memory", "start")


# -- pairs -----------------------------------------------------------------------------------------------------------


def round_of(checkout: Path, row: str, store: str) -> float:
    """Measure one round of a version."""
    with folder() as where, contextlib.ExitStack() as stack:
        url = f"sqlite:///{where / 'jobs.db'}"
        if store == "redis":
            url = stack.enter_context(served(where / "redis", *AOF)).url
        elif store == "postgres":
            url = f"{stack.enter_context(raw_postgres.served()).url}?timeout=60"
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        command = [str(checkout / ".venv/bin/python"), __file__, "--measure", row, url]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=where, env=environment)
        return float(done.stdout.split()[-1])


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return where the median of such ratios lies with 95 %, by drawing from them again and again."""
    chance = random.Random(1)  # noqa: S311 - a benchmark is no secret
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1949]


def compare(other: Path, rows: list[str], pairs: int) -> None:
    table = Table("this version / the other", "row", "other", "this", "ratio", "95 % from", "to")
    stores = ["sqlite", *([] if missing() else ["redis"])]
    if (other / "src/laneway/store/postgres").is_dir() and not raw_postgres.missing():
        stores.append("postgres")
    for name in rows:
        row, _, store = name.partition("@")
        for one in [store] if store else stores:
            figures: list[tuple[float, float]] = []
            for number in range(pairs):
                sides = (other, HERE) if number % 2 else (HERE, other)
                found = {side: round_of(side, row, one) for side in sides}
                figures.append((found[other], found[HERE]))
            ratios = [new / old for old, new in figures]
            old, new = (statistics.median(side) for side in zip(*figures, strict=True))
            table.row(f"{row}@{one}", old, new, statistics.median(ratios), *interval(ratios))


if __name__ == "__main__":
    if sys.argv[1] == "--measure":
        print(getattr(Round(sys.argv[3]), sys.argv[2])())
        sys.exit()
    parser = argparse.ArgumentParser()
    parser.add_argument("other", type=Path)
    parser.add_argument("rows", nargs="*", default=list(ROWS))
    parser.add_argument("--pairs", type=int, default=9)
    given = parser.parse_args()
    compare(given.other.resolve(), given.rows, given.pairs)
