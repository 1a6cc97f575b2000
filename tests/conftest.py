"""Fixtures that all tests share: stores to test, and a clock to set."""

from __future__ import annotations

import compileall
import contextlib
import logging
import os
import re
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import msgspec
import pytest
from hypothesis import HealthCheck, settings

import laneway
import redisbench
from laneway import App
from laneway.store.contract import Store
from laneway.store.inspection import Inspect
from laneway.store.sqlite import SQLiteInspect, SQLiteStore

settings.register_profile("laneway", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("laneway")

SOAK = bool(os.environ.get("LANEWAY_SOAK"))

# Folders of tests are in memory, where there is plenty: a disk that others keep busy would decide how long they take.
if (disk := redisbench.quick_disk()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", disk)


def often(usual: int, soaking: int) -> int:
    """Return how often something is tried: usually, or with make soak."""
    return soaking if SOAK else usual


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
    store.lately = 0.0
    return Bench(store, SQLiteInspect(store), clock)


def redis(_: Path, clock: Clock) -> Bench:
    from laneway.store.redis import RedisInspect, RedisStore  # noqa: PLC0415 - its driver may be missing

    store = RedisStore(redisbench.emptied().url, clock=clock, dead_after=0.2, timeout=PATIENCE, enqueue_timeout=PATIENCE)
    return Bench(store, RedisInspect(store), clock, step="change")


def old_store(kind: str, written: str, folder: Path, clock: Clock, *, migrate: bool = True) -> Bench:
    """A store as another version wrote it: rows or keys from a file beside the tests, byte for byte."""
    found = msgspec.json.decode(Path(__file__).with_name(written).read_bytes())
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(folder / "jobs.db", isolation_level=None)) as connection:
            connection.executescript("\n".join(found["sqlite"]))
        made = sqlite_file(folder, clock)
        if migrate:
            made.store.migrate()
        return made
    made = redis(folder, clock)
    for command in found["redis"]:
        redisbench.server().ask(*(part.encode("latin-1") for part in command))
    return made


def redis_by_number(_: Path, clock: Clock) -> Bench:
    """For models: they count claims over the whole store, and Redis over each queue."""
    url = redisbench.emptied().url
    from redisnumbers import NumberedInspect, NumberedStore  # noqa: PLC0415 - the same

    store = NumberedStore(url, clock=clock, dead_after=0.2, timeout=PATIENCE, enqueue_timeout=PATIENCE)
    return Bench(store, NumberedInspect(store), clock)


#: Every store passes the same suite: a new one is one line here.
STORES: dict[str, Callable[[Path, Clock], Bench]] = {
    "sqlite-file": sqlite_file,
    "sqlite-memory": sqlite_memory,
    "redis": redis_by_number,
}


@pytest.fixture(params=STORES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    # The contract is for the store as it is.
    made = (redis if request.param == "redis" else STORES[request.param])(tmp_path, Clock())
    yield made
    made.store.close()


@pytest.fixture(scope="session", autouse=True)
def no_server_outlives_the_tests() -> Iterator[None]:
    yield
    redisbench.stop_all()


@pytest.fixture
def store(bench: Bench) -> Store:
    return bench.store


@pytest.fixture
def inspect(bench: Bench) -> Inspect:
    return bench.inspect


@pytest.fixture
def clock(bench: Bench) -> Clock:
    return bench.clock


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


#: Files that take long, the longest first: begun last, the others would be idle while they run.
SLOW = (
    "hostile", "cli", "browser_pages", "worker_balance", "timeouts", "fleet_life", "browser_live", "browser_acts", "model",
    "fleet_kill", "redis_trouble", "redis_hosts", "balance", "browser_hostile", "redis_interrupts", "worker_trouble", "redis",
    "redis_exchange", "web_server", "model_collect", "contract", "stats_fleet", "cli_demo", "worker_bad_input",
    "fleet_frozen", "isolate", "lifespan", "fleet_harm", "web_access", "codec", "contract_collect", "web_live", "urls",
    "pages", "desk", "sqlite_interrupts", "pages_lists", "look_lists", "docs", "cli_lanes", "sqlite", "collector",
    "worker_runs", "stats_stores", "contract_stats", "fleet_collect",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Compile our modules once: tests start hundreds of programs, which may be told to write down nothing that they compile.

    What pytest makes of modules is kept as well: to find the assertions in all of them takes seconds in each process.
    """
    sys.dont_write_bytecode = False
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(laneway.__file__).parent, quiet=2)
        compileall.compile_dir(Path(__file__).parent, maxlevels=0, rx=re.compile("/test_"), quiet=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = _once(items)
    places = {f"test_{name}": place for place, name in enumerate(SLOW)}
    items.sort(key=lambda item: places.get(item.path.stem, len(SLOW)))


#: The stores of `app`, where a test asks for all of them.
APP_STORES = ("sqlite", "redis")
#: What a module says as EVERY_STORE whose tests need all their parameters on the first store, and on another only the first.
ONCE = "once"


def _once(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Leave out the parameters that a module does not want to see again on another store."""
    seen: set[tuple[object, object]] = set()
    for item in items:
        if isinstance(item, pytest.Function) and getattr(item.module, "EVERY_STORE", None) == ONCE and hasattr(item, "callspec"):
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
