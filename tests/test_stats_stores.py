"""Statistics beside the contract: how much room they take, who closes when many could, and how they came into old stores."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import redisbench
from conftest import Clock
from laneway.core.buckets import Figures, Gauge, Report, step_of
from laneway.core.job import Job
from laneway.errors import StoreError, StoreUnavailable
from laneway.ids import new_id
from laneway.store.redis import RedisInspect, RedisStore
from laneway.store.redis.statistics import Statistics
from laneway.store.redis.wire import Command, Wire
from laneway.store.sqlite import SQLiteInspect, SQLiteStore, schema
from laneway.store.statistics import DAY, KEEP, LEVELS, MINUTE, TEN, Level

SECOND = 1_000_000
Pair = tuple[SQLiteStore | RedisStore, SQLiteInspect | RedisInspect]


@pytest.fixture
def clock() -> Clock:
    return Clock(1000 * DAY)


@pytest.fixture(params=["sqlite", "redis"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Pair]:
    made: Pair
    if request.param == "sqlite":
        store = SQLiteStore(tmp_path / "jobs.db", clock=clock)
        made = store, SQLiteInspect(store)
    else:
        other = RedisStore(redisbench.emptied().url, clock=clock)
        made = other, RedisInspect(other)
    yield made
    made[0].close()


def report(number: int, worker: str = "w", tasks: int = 1, jobs: int = 1) -> Report:
    steps = {step_of(3**n): jobs for n in range(20)}
    series = {("default", f"task-{n}"): Figures(processed=jobs, runs=steps, waits=steps) for n in range(tasks)}
    return Report(worker=worker, number=number, series=series, gauge=Gauge(samples=1, busy=1, slots=1))


def push(store: SQLiteStore | RedisStore, number: int = 1) -> None:
    store.push([Job(new_id(), "app.task", "default", b"[[],{}]") for _ in range(number)])


def sizes(store: SQLiteStore | RedisStore) -> dict[str, int]:
    """How many of everything there are."""
    if isinstance(store, SQLiteStore):
        with store.database.reading() as connection:
            names = [name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")]
            return {name: connection.execute(f"select count(*) from {name}").fetchone()[0] for name in names}  # noqa: S608
    found: dict[str, int] = {}
    for key in redisbench.server().all_keys():
        kind = redisbench.server().ask("TYPE", key)
        how = {b"hash": "HLEN", b"list": "LLEN", b"zset": "ZCARD", b"set": "SCARD"}.get(kind)
        found[key] = redisbench.server().ask(how, key) if how else 1
    return found


def figures(inspect: SQLiteInspect | RedisInspect, name: str = "processed", level: Level = DAY, number: int = 366) -> int:
    kept = inspect.figures(level, number, "total")
    return sum(getattr(one, name) for bucket in kept.buckets.values() for one in bucket.series.values())


# -- room --------------------------------------------------------------------------------------------------------


def test_the_room_does_not_grow_with_jobs_nor_with_time(pair: Pair, clock: Clock) -> None:
    store, numbers = pair[0], itertools.count(1)

    def go_on(hours: int, jobs: int) -> dict[str, int]:
        for number in itertools.islice(numbers, hours * 60):
            store.record(report(number, f"w{number % 7}", jobs=jobs))
            clock.advance(60)
        return sizes(store)

    before = go_on(27, 1)
    after = go_on(3, 1_000_000)

    assert {name: size - before.get(name, 0) for name, size in after.items() if size > before.get(name, 0) + 5} == {}
    kept = {level: KEEP[level] // level + 3 for level in LEVELS}
    if isinstance(store, SQLiteStore):
        assert after["laneway_figures"] <= kept[MINUTE] + 25 + 3
        assert after["laneway_report"] <= 3
    else:
        assert after["laneway:{store}:figures:60"] <= kept[MINUTE]
        assert after["laneway:{store}:figures:10"] <= 25


def test_a_bucket_has_so_many_bytes_whatever_the_number_of_jobs(pair: Pair, clock: Clock) -> None:
    store, _ = pair
    lengths: list[int] = []
    for jobs in (1, 10**3, 10**6, 10**9):
        store.record(report(jobs, tasks=25, jobs=jobs))
        clock.advance(60)
        store.record(Report(worker="w", number=jobs + 1))
        if isinstance(store, SQLiteStore):
            with store.database.reading() as connection:
                lengths.append(connection.execute("select max(length(figures)) from laneway_figures").fetchone()[0])
        else:
            lengths.append(max(map(len, redisbench.server().ask("HVALS", "laneway:{store}:figures:60"))))
    assert lengths[-1] < 25 * (20 + 150 + 2 * 200)


def test_what_arrived_is_added_up_though_nobody_works(pair: Pair, clock: Clock) -> None:
    store, inspect = pair
    for _ in range(100):
        push(store)
        clock.advance(10)

    assert figures(inspect, "enqueued") == 100
    found = sizes(store)
    assert found.get("laneway_arrived", found.get("laneway:{default:0}:arrived", 0)) <= 40
    assert figures(inspect, "enqueued") == figures(inspect, "enqueued", TEN, 101) == 100


# -- many at once ------------------------------------------------------------------------------------------------


def test_many_who_push_and_report_at_once_are_counted_once(pair: Pair, clock: Clock) -> None:
    store, inspect = pair
    others = [store if isinstance(store, SQLiteStore) else RedisStore(store.wire.url, clock=clock) for _ in range(4)]
    moving = threading.Lock()
    troubles: list[BaseException] = []

    def work(name: str, mine: SQLiteStore | RedisStore) -> None:
        try:
            for number in range(1, 101):
                mine.record(report(number, name))
                push(mine)
                with moving:
                    clock.advance(1.7)
        except BaseException as error:  # noqa: BLE001 - it is shown below
            troubles.append(error)

    threads = [threading.Thread(target=work, args=(f"w{n}", other)) for n, other in enumerate(others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert troubles == []
    for level in (MINUTE, DAY):
        assert figures(inspect, "processed", level) == 400
        assert figures(inspect, "enqueued", level) == 400
    for other in others:
        other.close()


def test_who_closes_late_counts_nothing_again(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RedisStore(redisbench.emptied().url, clock=clock)
    late = clock.now + 20 * SECOND
    clock.advance(30)
    push(store, 5)
    clock.advance(60)
    with monkeypatch.context() as slow:  # what is added up has not been forgotten yet
        slow.setattr(Statistics, "_forget_arrived", lambda *_: None)
        store.record(report(1))
    assert figures(RedisInspect(store), "enqueued") == 5

    store.statistics._close(late)

    assert figures(RedisInspect(store), "enqueued") == 5
    store.close()


class Cut:
    """Lets a Redis store's process die before it asks something."""

    def __init__(self, wire: Wire, word: str) -> None:
        self._wire = wire
        self._word = word

    def ask(self, command: Command) -> object:
        self._die_of([command])
        return self._wire.ask(command)

    def ask_all(self, commands: list[Command]) -> object:
        self._die_of(commands)
        return self._wire.ask_all(commands)

    def _die_of(self, commands: list[Command]) -> None:
        if any(self._word in map(str, command) for command in commands):
            raise StoreUnavailable("killed")


@pytest.mark.parametrize("word", ["HKEYS", "HDEL", "HGET"])
def test_who_dies_while_it_closes_loses_and_repeats_nothing(clock: Clock, word: str) -> None:
    server = redisbench.emptied()
    store, dying = RedisStore(server.url, clock=clock), RedisStore(server.url, clock=clock)
    dying.statistics._wire = Cut(dying.wire, word)  # type: ignore[assignment]  # pyright: ignore
    push(store, 5)
    store.record(report(1))
    clock.advance(60)

    with pytest.raises(StoreError):
        dying.record(report(1, "other"))
    clock.advance(6)  # then somebody else may
    store.record(report(2))
    clock.advance(60)
    push(store, 2)
    store.record(report(3))

    inspect = RedisInspect(store)
    for level in LEVELS:
        assert figures(inspect, "enqueued", level, 100) == 7
        assert figures(inspect, "processed", level, 100) == 4
    for one in (store, dying):
        one.close()


# -- old stores --------------------------------------------------------------------------------------------------


def tables(path: Path) -> dict[str, str]:
    with sqlite3.connect(path) as connection:
        found = dict(connection.execute("select name, sql from sqlite_schema where sql is not null").fetchall())
    connection.close()
    return {name: "".join(sql.split()) for name, sql in found.items()}  # a column that was added stands on the same line


def test_a_store_of_version_1_gets_statistics_by_migrating(tmp_path: Path, clock: Clock) -> None:
    old = tmp_path / "old.db"
    written = msgspec.json.decode(Path(__file__).with_name("old_jobs.json").read_bytes())["sqlite"]
    with sqlite3.connect(old) as connection:
        connection.executescript("\n".join(written))
        for name in ("figures", "report", "arrived", "reporter", "fault", "learned"):
            connection.execute(f"drop table laneway_{name}")
        connection.execute("delete from laneway_job")
        connection.execute("update laneway_meta set version = 1, books = cast('{}' as blob), tail = x''")
    connection.close()
    store, new = SQLiteStore(old, clock=clock), SQLiteStore(tmp_path / "new.db", clock=clock)
    new.migrate()

    store.migrate()

    push(store, 3)
    store.record(report(1))
    assert figures(SQLiteInspect(store), "enqueued") == 3
    assert tables(old) == tables(tmp_path / "new.db")
    assert schema.VERSION == 6
    for one in (store, new):
        one.close()
