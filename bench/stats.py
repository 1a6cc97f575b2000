"""What statistics cost: time per job, with and without them; and bytes for 25 tasks over a year, with what reading takes.

make bench ARGS="stats_noop stats_enqueue stats_size"
"""

from __future__ import annotations

import contextlib
import gc
import random
import shutil
import statistics
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from unittest import mock

from harness import Table, percentile
from laneway import App, Worker
from laneway.core.buckets import Figures, Gauge, Report, step_of
from laneway.core.error_groups import fault_of
from laneway.core.outcome import ErrorInfo
from laneway.desk.stats import Stats
from laneway.events import RunsSettled
from laneway.store.inspection import Inspect
from laneway.store.redis import RedisInspect, RedisStore, scripts
from laneway.store.sqlite import SQLiteInspect, SQLiteStore
from laneway.store.statistics import DAY, TEN
from laneway.worker.duties.stats_reporter import StatsReporter
from raw_redis import missing, served

SLOTS, RUNS, MANY, FEW, ROUNDS = 10, 60_000, 10_000, 2_000, 16
TASKS, HOURS = 25, 25


class _Silent(StatsReporter):
    """Counts and tells nothing."""

    def count(self, event: RunsSettled) -> None: ...
    def tick(self) -> None: ...


def _nothing(*_: object) -> None:
    """Do it."""


@contextlib.contextmanager
def without() -> Generator[None]:
    """Let nothing be counted: neither what arrives nor what becomes of it."""
    with (
        mock.patch("laneway.worker.session.StatsReporter", _Silent),
        mock.patch("laneway.store.sqlite.turn.SQLiteTurn.arrive", _nothing),
    ):
        yield


def _compare(table: Table, name: str, prepare: Callable[[], object], work: Callable[[], int], off: Callable[[], int]) -> None:
    """Let both take many short turns, the first of each pair changing, and compare the turns that nobody disturbed.

    A few percent are less than what another program on the machine does to a turn: so it is the fastest quarter that counts.
    """
    on: list[tuple[float, float]] = []
    silent: list[tuple[float, float]] = []
    for number in range(ROUNDS):
        sides = [(on, work), (silent, off)]
        for times, side in sides if number % 2 else sides[::-1]:
            prepare()
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            jobs = side()
            times.append(((time.perf_counter() - wall) / jobs, (time.process_time() - cpu) / jobs))
    wall_on, cpu_on = (percentile(list(column), 0.25) for column in zip(*on, strict=True))
    wall_off, cpu_off = (percentile(list(column), 0.25) for column in zip(*silent, strict=True))
    percents = [f"{100 * share:+.1f} %" for share in (wall_on / wall_off - 1, cpu_on / cpu_off - 1)]
    table.row(name, 1 / wall_off, 1 / wall_on, *percents, f"{1e6 * (cpu_on - cpu_off):+.2f}")


def stats_noop(where: Path) -> None:
    """No-op jobs through a worker with 10 slots."""
    table = Table("no-op jobs through one worker, per second", "", "off", "on", "time", "CPU", "CPU µs/job")

    def compare(name: str, url: str) -> None:
        app = App(url)

        @app.task(name="plain")
        def plain(number: int, text: str) -> None: ...

        def enqueue() -> None:
            plain.enqueue_many((n, "welcome") for n in range(RUNS))

        def run() -> int:
            Worker(app, slots=SLOTS).run(burst=True)
            return RUNS

        def silent() -> int:
            with without():
                return run()

        _compare(table, name, enqueue, run, silent)
        app.close()

    compare("SQLite", f"sqlite:///{where / 'jobs.db'}")
    if not missing():
        with served(where) as server:
            compare("Redis", server.url)


def _without_scripts(url: str, where: Path) -> App:
    """An app on Redis whose scripts count nothing that arrives."""
    folder = where / "lua"
    shutil.copytree(Path(scripts.__file__).with_name("lua"), folder)
    part = folder / "_arrived.lua"
    text = part.read_text(encoding="utf-8")
    head = text[: text.index("local function arrive")]
    part.write_text(f"{head}local function arrive() end\n", encoding="utf-8")
    scripts.script.cache_clear()
    with mock.patch.object(scripts, "_FOLDER", folder):
        app = App(url)
        app.store.schedules()
    scripts.script.cache_clear()
    return app


def _enqueue(app: App, *, bulk: bool) -> Callable[[], int]:
    task = app.tasks["plain"]

    def many() -> int:
        return task.enqueue_many((n, "welcome") for n in range(MANY))

    def one_by_one() -> int:
        for n in range(FEW):
            task.enqueue(n, "welcome")
        return FEW

    return many if bulk else one_by_one


def stats_enqueue(where: Path) -> None:
    """Enqueueing, one by one and in bulk."""
    table = Table("enqueueing, per second", "", "off", "on", "time", "CPU", "CPU µs/job")

    def compare(name: str, on: App, off: App) -> None:
        for app in (on, off):

            @app.task(name="plain")
            def plain(number: int, text: str) -> None: ...

        for way, bulk in (("one by one", False), ("enqueue_many", True)):
            work, less = _enqueue(on, bulk=bulk), _enqueue(off, bulk=bulk)

            def silent(less: Callable[[], int] = less) -> int:
                with without():
                    return less()

            _compare(table, f"{name}, {way}", lambda: on.inspect.clear("default"), work, silent)
        on.close()
        off.close()

    url = f"sqlite:///{where / 'jobs.db'}"
    compare("SQLite", App(url), App(url))
    if not missing():
        with served(where) as server:
            compare("Redis", App(server.url), _without_scripts(server.url, where))


def _report(number: int, jobs: int, chance: random.Random) -> Report:
    """What a worker tells after a busy stretch, with times as they are: some short, a few very long."""
    series: dict[tuple[str, str], Figures] = {}
    for task in range(TASKS):
        figures = Figures(processed=jobs, failed=jobs // 50, retried=jobs // 60, dead=jobs // 300)
        for _ in range(min(jobs, 300)):
            run, wait = chance.lognormvariate(9 + task / 8, 1.0), chance.lognormvariate(7, 1.5)
            for steps, value in ((figures.runs, run), (figures.waits, wait)):
                step = step_of(int(value))
                steps[step] = steps.get(step, 0) + max(jobs // 300, 1)
            figures.run_time += int(run)
            figures.wait_time += int(wait)
        series[f"queue-{task % 5}", f"shop.tasks.task_number_{task:02}"] = figures
    return Report(worker="w", number=number, series=series, gauge=Gauge(10, 40, 10, 60_000_000, 4.0))


def _fill(record: Callable[[Report], None], clock: list[int]) -> None:
    """A year: each day something, the last day and hour without a gap, and all the failures that are kept."""
    chance = random.Random(1)  # noqa: S311 - chance that can be had again
    reports = [_report(0, 100, chance) for _ in range(20)]
    number = 0

    def tell(report: Report) -> None:
        nonlocal number
        number += 1
        record(Report(worker="w", number=number, series=report.series, gauge=report.gauge, faults=report.faults))

    busy = _report(0, 100_000, chance)
    for _ in range(366):
        tell(busy)
        clock[0] += DAY
    for n in range(HOURS * 180):
        tell(reports[n % len(reports)])
        clock[0] += TEN if n > HOURS * 180 - 120 else 2 * TEN
    for n in range(500):
        text = 30 * '  File "/srv/shop/x.py", line 7, in f\n    f()\n' + f'  File "/srv/shop/tasks.py", line {n}, in charge\n'
        error = ErrorInfo("shop.errors.CardRefused", f"the card was refused by bank {n}", text)
        tell(Report(faults=(fault_of(error, "0" * 20, "shop.tasks.charge", "default"),)))
    clock[0] += 3 * TEN
    tell(reports[0])


def _reads(table: Table, inspect: Inspect, store: Any) -> None:
    stats = Stats(lambda: inspect, lambda: store)
    asked: dict[str, Callable[[], object]] = {
        "series(1000)": stats.series,
        "series(1000, by_task)": lambda: stats.series(by_task=True),
        "minutes(24)": stats.minutes,
        "minutes(24, by_task)": lambda: stats.minutes(by_task=True),
        "history(365, by_task)": lambda: stats.history(by_task=True),
        "tasks(3600)": stats.tasks,
        "errors(100)": stats.errors,
    }
    for name, ask in asked.items():
        took: list[float] = []
        for _ in range(5):
            begun = time.perf_counter()
            ask()
            took.append(time.perf_counter() - begun)
        table.row(f"  {name}, ms", 1000 * statistics.median(took))


def stats_size(where: Path) -> None:
    """What 25 tasks leave in a year, and how long it takes to read it."""
    table = Table(f"{TASKS} tasks over a year, 500 kinds of failures", "", "KiB")
    clock = [20_000 * DAY]
    path = where / "jobs.db"
    store = SQLiteStore(path, clock=lambda: clock[0])
    _fill(store.record, clock)
    with store.database.writing as connection:
        pages, free = (connection.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
        size = connection.execute("pragma page_size").fetchone()[0]
    table.row("SQLite, the whole file", pages * size / 1024)
    table.row("  of these in use", (pages - free) * size / 1024)
    _reads(table, SQLiteInspect(store), store)
    store.close()
    if not missing():
        with served(where) as server:
            clock[0] = 20_000 * DAY
            kept = RedisStore(server.url, clock=lambda: clock[0])
            _fill(kept.record, clock)
            keys = kept.wire.ask(("KEYS", "*"))
            sizes = {key: kept.wire.ask(("MEMORY", "USAGE", key, "SAMPLES", "0")) for key in keys}
            table.row("Redis, all keys", sum(sizes.values()) / 1024)
            for key, used in sorted(sizes.items(), key=lambda pair: -pair[1])[:4]:
                table.row(f"  {key.decode()}", used / 1024)
            _reads(table, RedisInspect(kept), kept)
            kept.close()


PARTS = {"stats_noop": stats_noop, "stats_enqueue": stats_enqueue, "stats_size": stats_size}
