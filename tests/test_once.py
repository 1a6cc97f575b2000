"""`current_job().once(connection)`: a receipt in the user's transaction, with every kind of connection, and with every store."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Clock
from laneway import App, current_job
from laneway.core.job import Claim, Job, Payload, Unit
from laneway.core.outcome import Dead, Done, Retrying, Snoozed
from laneway.desk.context import JobContext
from laneway.errors import BadOption, NoReceipts
from laneway.store.contract import ClaimRequest, Store
from laneway.store.inspection import Inspect
from laneway.testing import wait_until
from laneway.transactions.receipts import EACH, KEPT_DAYS, TABLE, Once
from settling import settled_alike
from test_contract import ERROR, settle
from test_transactions import Scene, make
from transactbench import SEATS, Seat


def context(id_: str = "a", enqueued: int = 5, attempt: int = 1) -> JobContext:
    unit = Unit(id_, None, attempt, enqueued, enqueued)
    return JobContext(Claim(attempt, "default", "t", (unit,)), [], {}, {})


async def enter(seat: Seat, job: JobContext, name: str = "") -> bool:
    """Enter a block in the way that fits, and leave it."""
    if seat.is_async:
        async with job.once(seat.connection, name) as first:
            return first
    with job.once(seat.connection, name) as first:
        return first


def create(scene: Scene) -> None:
    scene._ask("drop table if exists laneway_receipt")
    for statement in TABLE:
        scene._ask(statement)


@pytest.fixture(params=SEATS, ids="-".join)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """Every kind of connection, to a database with the table."""
    store, driver = request.param
    for made in make(store, driver, tmp_path):
        create(made)
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
def usual(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """The usual connection of each database: for what does not depend on the driver."""
    for made in make(request.param, {"sqlite": "sqlite3", "postgres": "psycopg"}[request.param], tmp_path):
        create(made)
        yield made


# -- every kind of connection ------------------------------------------------------------------------------------


def test_the_first_that_commits_is_the_only_one(scene: Scene) -> None:
    found: list[bool] = []

    async def act(seat: Seat) -> None:
        for end in (seat.rollback, seat.commit, seat.commit, seat.rollback):
            await seat.begin()
            found.append(await enter(seat, context()))
            if found[-1]:
                await seat.write(1)
            await end()

    scene.play(act)

    assert (found, scene.orders) == ([True, True, False, False], 1)


def test_names_and_jobs_are_told_apart(scene: Scene) -> None:
    async def act(seat: Seat) -> None:
        await seat.begin()
        assert [await enter(seat, context(), name) for name in ("mail", "bill", "mail")] == [True, True, False]
        assert await enter(seat, context("b"))
        assert await enter(seat, context(enqueued=6))  # the same id, used again
        assert not await enter(seat, context("b", attempt=7))
        await seat.commit()

    scene.play(act)


def test_autocommit_is_refused(scene: Scene) -> None:
    async def act(seat: Seat) -> None:
        with pytest.raises(BadOption, match=r"autocommit mode.* its receipt would not be one transaction"):
            await enter(seat, context())

    scene.play(act, autocommit=True)

    assert scene._ask("select count(*) from laneway_receipt")[0][0] == 0


def test_the_table_is_asked_for_and_not_made(scene: Scene) -> None:
    scene._ask("drop table laneway_receipt")

    async def act(seat: Seat) -> None:
        await seat.begin()
        with pytest.raises(NoReceipts, match="create table laneway_receipt") as raised:
            await enter(seat, context())
        await seat.rollback()
        for statement in str(raised.value).partition("once(): ")[2].split("; "):  # the remedy helps
            scene._ask(statement)
        await seat.begin()
        assert await enter(seat, context())
        await seat.rollback()

    scene.play(act)


def test_the_other_form_is_refused(scene: Scene) -> None:
    async def act(seat: Seat) -> None:
        await seat.begin()
        once = context().once(seat.connection)
        if seat.is_async:
            with pytest.raises(BadOption, match="write `async with`"):
                once.__enter__()
        else:
            with pytest.raises(BadOption, match="write `with`"):
                await once.__aenter__()
        await seat.rollback()

    scene.play(act)


def test_a_savepoint_that_is_rolled_back_takes_the_receipt_along(scene: Scene) -> None:
    if scene.seat.is_async and not hasattr(scene.seat, "drivers"):
        pytest.skip("as the plain driver")

    async def act(seat: Seat) -> None:
        await seat.begin()
        await seat.write(1)
        await seat.savepoint()
        assert await enter(seat, context())
        await seat.rollback_to()
        assert await enter(seat, context())
        await seat.commit()

    scene.play(act)


# -- what does not depend on the driver --------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
def test_of_two_runs_at_once_the_second_waits_for_the_first_ones_transaction(usual: Scene, commits: bool) -> None:
    found: list[bool] = []
    begun = threading.Event()

    def connect() -> Any:
        if usual.is_postgres:
            return pytest.importorskip("psycopg").connect(usual.address)
        return sqlite3.connect(usual.address, timeout=60, isolation_level="IMMEDIATE", check_same_thread=False)

    def second() -> None:
        with other, context(attempt=2).once(other) as first:
            found.append(first)

    one, other = connect(), connect()
    if not usual.is_postgres:
        other.set_trace_callback(lambda _: begun.set())
    thread = threading.Thread(target=second)
    try:
        with context().once(one) as first:
            assert first
            one.execute("insert into orders values (1)")
            thread.start()
            if usual.is_postgres:
                waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%laneway_receipt%'"
                wait_until(lambda: usual._ask(waits) == [(1,)])
            else:
                assert begun.wait(30)
            assert (found, thread.is_alive()) == ([], True)
        (one.commit if commits else one.rollback)()
        thread.join(60)
    finally:
        one.close()
        other.close()

    assert (found, usual.orders) == ([not commits], int(commits))


def test_old_receipts_are_removed_some_at_a_time_by_one_of_a_hundred(usual: Scene) -> None:
    day, now = 86_400_000_000, 2_000_000_000_000_000
    usual._ask("delete from laneway_receipt")
    old = ", ".join(f"('old{n}', {n})" for n in range(1500))
    usual._ask(f"insert into laneway_receipt values {old}, ('new', {now * 2})")  # noqa: S608 - numbers of ours
    names = [f"n{n}" for n in range(1000)]
    trims = [name for name in names if int(Once(context().claim, sqlite3.connect(":memory:"), name)._key, 16) % EACH == 0]
    others = [name for name in names if name not in trims]
    assert 1 < len(trims) < 50
    left: list[int] = []

    async def act(seat: Seat) -> None:
        for name in (others[0], trims[0], trims[0], trims[1]):
            await seat.begin()
            await enter(seat, context(), name)
            await seat.commit()
            left.append(usual._ask("select count(*) from laneway_receipt where key like 'old%'")[0][0])

    usual.play(act)

    assert left == [1500, 500, 500, 0]
    assert usual._ask("select count(*) from laneway_receipt")[0][0] == 4
    assert KEPT_DAYS * day < now


def test_a_collectors_run_is_refused() -> None:
    claim = Claim(1, "save", "save", (Unit("l", "x", 1, 5, 5, payloads=[Payload(b"1", 1.0)]),))
    job = JobContext(claim, [{"x": [1]}], {}, {})

    with pytest.raises(BadOption, match=r"is a collector: .* on conflict do update"):
        job.once(sqlite3.connect(":memory:"))


def test_a_database_that_is_not_known_is_refused() -> None:
    class Connection:
        vendor = "mysql"

    Connection.__module__, Connection.__name__ = "django.db", "BaseDatabaseWrapper"

    with pytest.raises(BadOption, match="leads to mysql: receipts need SQLite or PostgreSQL"), context().once(Connection()):
        pass


def test_a_task_uses_it_where_tests_run_it() -> None:
    app, conn, found = App("sqlite://"), sqlite3.connect(":memory:"), list[bool]()
    for statement in TABLE:
        conn.execute(statement)

    @app.task
    def charge() -> None:
        with conn, current_job().once(conn) as first:
            found.append(first)

    with app.testing("fake") as jobs:
        charge.enqueue()
        jobs.drain()
        charge.enqueue()
        jobs.drain()
    assert found == [True, True]  # two jobs


# -- every store -------------------------------------------------------------------------------------------------


def test_each_run_of_a_job_finds_the_receipt_of_the_others(store: Store, inspect: Inspect, clock: Clock) -> None:
    conn = sqlite3.connect(":memory:")
    for statement in TABLE:
        conn.execute(statement)

    def run(claim: Claim) -> bool:
        with JobContext(claim, [], {}, {}).once(conn) as first:
            conn.commit()
            return first

    def claim(worker: str = "w") -> Claim:
        clock.advance(1)
        [found] = store.exchange(worker, [], [ClaimRequest("default", 1)], 1).claims
        return found

    store.push([Job("a", "t", "default", b"[[],{}]", lane="x")])
    frozen = claim()
    store.recover("w", "killed")
    second = claim("v")
    assert (run(second), run(frozen)) == (True, False)

    settle(store, [second], Retrying(0, ERROR), "v")
    third = claim()
    settle(store, [third], Snoozed(0))
    fourth = claim()
    settle(store, [fourth], Dead(ERROR))
    inspect.retry("a")
    replayed = claim()
    assert [run(each) for each in (third, fourth, replayed)] == [False] * 3

    store.exchange("w", [settled_alike(replayed, Done(), 1, 2)], [], 0)
    store.push([Job("a", "t", "default", b"[[],{}]", lane="x")])
    assert run(claim())  # another job, with an id that was free again
