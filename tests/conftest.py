"""Fixtures that all tests share: stores to test, and a clock to set."""

from __future__ import annotations

import compileall
import contextlib
import gc
import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

import laneway
import postgresbench
import redisbench
from laneway import App
from laneway.errors import SchemaError
from laneway.store.contract import Store
from laneway.store.inspection import Inspect
from laneway.store.sqlite import SQLiteInspect, SQLiteStore
from numbers_for_models import Numbered, NumberedInspect

SOAK = bool(os.environ.get("LANEWAY_SOAK"))

# Folders of tests are in memory, where there is plenty: a disk that others keep busy would decide how long they take.
if (disk := redisbench.quick_disk()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", disk)


def often(usual: int, soaking: int) -> int:
    """Return how often something is tried: usually, or with make soak."""
    return soaking if SOAK else usual


settings.register_profile(
    "laneway", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, max_examples=often(30, 1_000)
)  # fmt: skip
settings.load_profile("laneway")


#: A busy machine may keep a server from answering for seconds: how long that may take is tested elsewhere.
PATIENCE = 30.0


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self, now: int = 1_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)


class Bench:
    """A store on the test bench: its two sides and its clock, and which of its methods is a step by hand."""

    def __init__(self, store: Store, inspect: Inspect, clock: Clock, step: str = "turn") -> None:
        self.store = store
        self.inspect = inspect
        self.clock = clock
        self.step = step


def sqlite_file(folder: Path, clock: Clock) -> Bench:
    store = SQLiteStore(folder / "jobs.db", clock=clock, dead_after=0.2)
    return Bench(store, SQLiteInspect(store), clock)


def sqlite_memory(_: Path, clock: Clock) -> Bench:
    store = SQLiteStore(clock=clock, dead_after=0.2)
    store.in_books = 1  # from the second on, queues have rows of their own
    return Bench(store, SQLiteInspect(store), clock)


def redis(_: Path, clock: Clock) -> Bench:
    from laneway.store.redis import RedisInspect, RedisStore  # noqa: PLC0415 - its driver may be missing

    store = RedisStore(redisbench.emptied().url, clock=clock, dead_after=0.2, timeout=PATIENCE, enqueue_timeout=PATIENCE)
    return Bench(store, RedisInspect(store), clock, step="change")


class ServerClock(Clock):
    """A clock of the server's: its function for the time is replaced by one that reads a table."""

    def __init__(self, *, steady: bool = False) -> None:
        self._now = self._highest = 0
        self._steady = steady  # the server's never goes back: a store notices that only after a second, and models at once

    @property
    def now(self) -> int:
        return self._now

    @now.setter
    def now(self, now: int) -> None:
        self._now, self._highest = now, max(now, self._highest)
        postgresbench.server().set_clock(self._highest if self._steady else now)


def postgres(_: Path, __: Clock) -> Bench:
    from laneway.store.postgres import PostgresInspect, PostgresStore  # noqa: PLC0415 - its driver may be missing

    store = PostgresStore(postgresbench.server().url, dead_after=0.2, timeout=PATIENCE, enqueue_timeout=PATIENCE)
    return Bench(store, PostgresInspect(store), _begin_anew(store))


_lines: dict[int, list[Any]] = {}


def _begin_anew(store: Any, *, steady: bool = False) -> Clock:
    """Empty the tables, and return the clock that the server has now.

    Connections go from one test to the next: a new one takes thirty milliseconds until the server has planned its functions.
    """
    pool, kept = store.wire.pool, _lines.setdefault(os.getpid(), [])
    if not postgresbench.server().has_tables():  # another test has dropped them
        kept.clear()
    if kept:
        pool.idle.append(kept.pop())
    else:
        store.migrate()
    close = pool.close

    def keep() -> None:
        kept.extend(line for line in pool.idle[:1] if not kept and line.is_open and line.is_quiet() and not line.in_transaction())
        pool.idle[:] = [line for line in pool.idle if line not in kept]
        close()

    pool.close = keep
    postgresbench.server().begin_anew()
    clock = ServerClock(steady=steady)
    clock.now = 1_000_000_000
    return clock


def old_store(kind: str, written: str, folder: Path, clock: Clock, *, migrate: bool = True) -> Bench:
    """A store as another version wrote it: rows or keys from a file beside the tests, byte for byte.

    `postgres-1` has the rows of `postgres` in tables of PostgreSQL's first version, where they look the same.
    """
    found = msgspec.json.decode(Path(__file__).with_name(written).read_bytes())
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(folder / "jobs.db", isolation_level=None)) as connection:
            connection.executescript("\n".join(found["sqlite"]))
        made = sqlite_file(folder, clock)
        if migrate:
            made.store.migrate()
        return made
    if kind.startswith("postgres"):
        return _old_postgres(kind, found["postgres"], clock.now, migrate=migrate)
    made = redis(folder, clock)
    for command in found["redis"]:
        redisbench.server().ask(*(part.encode("latin-1") for part in command))
    return made


def _old_postgres(kind: str, rows: list[str], now: int, *, migrate: bool) -> Bench:
    """Tables and functions as pg_dump printed them, the rows of a store, and this version's migration.

    The functions of the first version have no bodies: the migration drops them, and nobody calls them before.
    """
    from laneway.store.postgres import PostgresInspect, PostgresStore  # noqa: PLC0415 - the same

    server = postgresbench.emptied()
    if kind == "postgres-1":
        tables = "old_postgres_1.sql"
        newer, first = ("INSERT INTO laneway.meta VALUES (true, 4,", "INSERT INTO laneway.meta VALUES (true, 1,")
        rows = [row.replace(newer, first) for row in rows if "laneway.special" not in row]
    else:
        tables = "old_postgres.sql"
        rows = [*rows, "INSERT INTO laneway.origin VALUES (true, '700', 1)"]  # of another cluster, as the rows are
    server.ask("\n".join([Path(__file__).with_name(tables).read_text(encoding="utf-8"), *rows]))
    store = PostgresStore(server.url, dead_after=0.2, timeout=PATIENCE, enqueue_timeout=PATIENCE)
    with pytest.raises(SchemaError, match="run: laneway migrate"):
        store.schedules()
    if not migrate:
        return Bench(store, PostgresInspect(store), Clock(now))
    store.migrate()
    server.take_clock()
    clock = ServerClock()
    clock.now = now
    return Bench(store, PostgresInspect(store), clock)


def redis_by_number(_: Path, clock: Clock) -> Bench:
    """For models: they count claims over the whole store, and Redis over each queue."""
    url = redisbench.emptied().url
    from laneway.store.redis import RedisInspect, RedisStore  # noqa: PLC0415 - the same

    class Store(Numbered, RedisStore): ...

    class Inspect(NumberedInspect, RedisInspect): ...

    store = Store(url, clock=_steady(clock), dead_after=0.2, timeout=PATIENCE, enqueue_timeout=PATIENCE)
    return Bench(store, Inspect(store), clock)


def _steady(clock: Clock) -> Callable[[], int]:
    """Never go back: each queue of Redis has a time of its own, which does not, and a model has one for all."""
    seen = 0

    def now() -> int:
        nonlocal seen
        seen = max(seen, clock())
        return seen

    return now


def postgres_by_number(_: Path, __: Clock) -> Bench:
    """For models, as `redis_by_number`: tokens of PostgreSQL have the time in them."""
    url = postgresbench.server().url
    from laneway.store.postgres import PostgresInspect, PostgresStore  # noqa: PLC0415 - the same

    class Store(Numbered, PostgresStore): ...

    class Inspect(NumberedInspect, PostgresInspect): ...

    store = Store(url, dead_after=0.2, timeout=PATIENCE, enqueue_timeout=PATIENCE)
    return Bench(store, Inspect(store), _begin_anew(store, steady=True))


#: Every store passes the same suite: a new one is a function that makes a `Bench`, and a line here.
STORES: dict[str, Callable[[Path, Clock], Bench]] = {
    "sqlite-file": sqlite_file,
    "sqlite-memory": sqlite_memory,
    "redis": redis_by_number,
    "postgres": postgres_by_number,
}
#: The stores as they are, where models have others.
_AS_THEY_ARE = {"redis": redis, "postgres": postgres}


@pytest.fixture(params=STORES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    # The contract is for the store as it is.
    made = _AS_THEY_ARE.get(request.param, STORES[request.param])(tmp_path, Clock())
    yield made
    made.store.close()


@pytest.fixture(scope="session", autouse=True)
def no_server_outlives_the_tests() -> Iterator[None]:
    yield
    redisbench.stop_all()
    postgresbench.stop_all()


@pytest.fixture
def store(bench: Bench) -> Store:
    return bench.store


@pytest.fixture
def inspect(bench: Bench) -> Inspect:
    return bench.inspect


@pytest.fixture
def clock(bench: Bench) -> Clock:
    return bench.clock


def rung(store: Store) -> bool:
    """Return whether the bell itself ends a wait. It is shorter than the time until a waiting store looks for other changes."""
    if isinstance(store, SQLiteStore):
        store.bell._changed = lambda: False  # SQLite looks at once
    return store.wait(0.2)


#: Deaths are logged with their exceptions, and pytest keeps what is logged.
_logged: list[TracebackType] = []


def _note(record: logging.LogRecord) -> bool:
    if record.exc_info and record.exc_info[2] is not None:
        _logged.append(record.exc_info[2])
    return True


logging.getLogger("laneway").addFilter(_note)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Let go of what the frames of logged exceptions hold: else a store of one test is closed by chance in the next."""
    while _logged:
        traceback.clear_frames(_logged.pop())


#: Files that take two seconds and more, the longest first: begun last, the others would be idle while they run.
SLOW = (
    "cli", "hostile", "browser_pages", "migrating", "deploy", "django_shop", "contract", "browser_live", "django",
    "contract_collect", "redis_hosts", "timeouts", "job_events", "deploy_systemd", "wsgi", "fastapi_orders", "django_6",
    "postgres_restore",
    "fleet_life", "fleet_kill", "billing", "copy_live", "fleet_frozen", "browser_acts", "postgres_trouble", "redis",
    "lifespan", "redis_trouble", "fleet_harm", "shops", "copy", "web_live", "timetable", "outbox_killed",
    "hostile_postgres", "web_server", "worker_trouble", "urls", "browser_hostile", "desk", "stats_fleet", "codec",
    "worker_balance", "postgres_stress", "isolate", "minimum", "sqlite", "cli_demo", "once_killed", "postgres_poolers",
    "collector", "cli_parts", "transactions", "redis_interrupts", "postgres_fleet", "docs", "finish_killed", "model",
    "contrib_sentry", "contract_stats", "typing", "pages", "balance", "redis_exchange", "kept_schedules", "forks",
    "postgres_transactions", "browser_ear", "cli_lanes", "worker_bad_input", "storm", "finish", "probes", "stats",
    "contract_finished", "old_stores", "web_metrics", "worker_stop", "enqueue_many", "doctor_postgres", "pages_lists", "web_fuzz",
    "public", "transactions_killed", "model_collect", "inspect_workers", "worker_jobs", "contrib_otel", "postgres",
    "handles", "web_api", "pool_executor", "fleet_collect", "web_access", "doctor", "testing", "contract_unique_until",
    "postgres_interrupts", "retry", "schedules", "doctor_redis", "reference", "sqlite_interrupts", "look_lists",
    "cli_settings", "once", "postgres_migrate", "postgres_finish", "desk_options", "plan", "stats_stores", "web_actions",
    "collect_evidence", "job", "postgres_plans",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Compile our modules once: tests start hundreds of programs, which may be told to write down nothing that they compile.

    What pytest makes of modules is kept as well: to find the assertions in all of them takes seconds in each process.
    A shell lets what it starts in the background ignore Ctrl-C, and so would all programs that the tests start.
    """
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    sys.dont_write_bytecode = False
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(laneway.__file__).parent, quiet=2)
        compileall.compile_dir(Path(__file__).parent, maxlevels=0, rx=re.compile("/test_"), quiet=2)
        if config.getoption("numprocesses", None):
            _rewrite_assertions()


def _rewrite_assertions() -> None:
    """Let two processes find the assertions in new files, where each that runs tests would do so for itself."""
    folder = Path(__file__).parent
    known = {kept.name.partition(".")[0]: kept.stat().st_mtime for kept in folder.glob("__pycache__/test_*-pytest-*.pyc")}
    new = [str(file) for file in sorted(folder.glob("test_*.py")) if known.get(file.stem, 0.0) < file.stat().st_mtime]
    if len(new) > 20:  # a few take less than two processes do to start
        look = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
        for one in [subprocess.Popen([*look, *new[half::2]], stdout=subprocess.DEVNULL) for half in (0, 1)]:
            one.wait()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let make soak try many more examples of what is true for all of them."""
    if isinstance(item, pytest.Function) and is_hypothesis_test(item.function):
        item.add_marker("soak")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests stay until the end: no search for garbage needs to look at them, neither on the way nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = _once(items)
    places = {f"test_{name}": place for place, name in enumerate(SLOW)}
    # A file that is not listed is short or new: before the last ones it does no harm either way.
    items.sort(key=lambda item: places.get(item.path.stem, len(SLOW) // 2))


#: The stores of `app`, where a test asks for all of them.
APP_STORES = ("sqlite", "redis")
#: What a module says as EVERY_STORE whose tests need all their parameters on the first store, and on another only the first; a
#: single test says `every_store(ONCE)`.
ONCE = "once"


def _once(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Leave out the parameters that a module does not want to see again on another store."""
    seen: set[tuple[object, object]] = set()
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and ONCE in (
            getattr(item.module, "EVERY_STORE", None), *(said for mark in item.iter_markers("every_store") for said in mark.args)
        ):  # fmt: skip
            store = item.callspec.params.get("app", APP_STORES[0])
            if store != APP_STORES[0] and (item.function, store) in seen:
                continue
            seen.add((item.function, store))
        yield item


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of a module that says EVERY_STORE run on every kind of store; in other modules those with the mark.

    What is above the stores sees them through their interfaces, which the contract suite proves on each: there one store is
    enough, and what is marked shows that the others fit in.
    """
    everywhere = getattr(metafunc.module, "EVERY_STORE", False) or metafunc.definition.get_closest_marker("every_store")
    if "app" in metafunc.fixturenames and everywhere:
        metafunc.parametrize("app", APP_STORES, indirect=True)


@pytest.fixture
def app(request: pytest.FixtureRequest) -> Iterator[App]:
    """An app on a store in memory; or on Redis, where a module asks for every store."""
    made = App("sqlite://" if getattr(request, "param", "sqlite") == "sqlite" else redisbench.emptied().url)
    yield made
    made.close()


@pytest.fixture
def file_app(tmp_path: Path) -> Iterator[App]:
    """An app on a store in a file."""
    made = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield made
    made.close()
