"""The outbox: rows of the user's transaction become jobs of a store elsewhere, whatever the database and the driver."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import postgresbench
import redisbench
from conftest import SOAK
from laneway import App, Retry
from laneway.core.instant import SECOND
from laneway.errors import BadOption, ConfigError, NoOutbox, NotSameDatabase, SchemaError
from laneway.outbox.relay import aged
from laneway.outbox.status import check_outbox
from laneway.store.inspection import JobInfo
from laneway.transactions.job_json import read_job, write_job
from outboxbench import Box
from transactbench import POSTGRES, SEATS, SQLITE, Seat, play

#: Each driver inserts by the same steps as in other transactions: outside of the soak a plain and an async one of each is enough.
TRIED = SEATS if SOAK else [("sqlite", "sqlite3"), ("sqlite", "aiosqlite"), ("postgres", "psycopg"), ("postgres", "asyncpg"),
                            ("postgres", "django")]  # fmt: skip
KINDS = ("sqlite", "postgres")


def declare(app: App) -> dict[str, Any]:
    @app.task(name="ship", lane="order")
    def ship(order: int, step: int = 0) -> None: ...

    @app.task(name="once", unique=True, unique_until="end")
    def once(order: int) -> None: ...

    @app.task(name="plain", queue="mail", expires=3600)
    def plain(*args: Any) -> None: ...

    @app.collector(name="save")
    def save(lanes: dict[str, list[int]]) -> None: ...

    return {"ship": ship, "once": once, "plain": plain, "save": save}


@pytest.fixture(params=KINDS)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    made = Box(request.param, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(("kind", "driver"), TRIED)
def test_rows_go_with_the_transaction_of_every_driver(kind: str, driver: str, tmp_path: Path) -> None:
    box = Box(kind, tmp_path)
    tasks = declare(box.app)
    seat: Seat = (POSTGRES if kind == "postgres" else SQLITE)[driver](box.address)

    async def act() -> None:
        await seat.open()
        for order, end in ((1, seat.commit), (2, seat.rollback), (3, seat.commit)):
            await seat.begin()
            async with seat.block(box.app):
                await seat.write(order)
                found = await seat.enqueue(tasks["ship"], order)
                assert found.created is None
                assert await seat.enqueue_many(tasks["plain"], [(order, 1), (order, 2)]) == 2
                await seat.enqueue(tasks["save"], "lane", order)
            await end()
        await seat.close()

    play(seat, act())

    assert (box.status.waiting, box.app.inspect.counts()["ready"]) == (8, 0)
    assert box.carry() == 8
    assert box.status.waiting == 0
    assert sorted(job.args[0] for job in box.app.inspect.jobs(task="ship") if job.args) == [1, 3]
    assert sorted(job.args for job in box.app.inspect.jobs(task="plain") if job.args) == [[1, 1], [1, 2], [3, 1], [3, 2]]
    assert [found.body for found in box.app.inspect.payloads("save", "lane")] == [b"1", b"3"]
    box.close()


@pytest.mark.parametrize("kind", KINDS)
def test_one_call_can_go_with_a_connection(kind: str, tmp_path: Path) -> None:
    box = Box(kind, tmp_path)
    tasks = declare(box.app)
    connection = box.connect()

    assert tasks["ship"].using(connection=connection).enqueue(1).created is None
    box.app.using(connection=connection, queue="other").enqueue("ship", 2)
    connection.commit()
    tasks["ship"].using(connection=connection).enqueue(3)
    connection.rollback()

    assert box.carry() == 2
    assert sorted((job.queue, job.args) for job in box.app.inspect.jobs()) == [("default", [1]), ("other", [2])]
    connection.close()
    box.close()


def test_a_job_is_as_if_it_had_been_enqueued_at_the_store(box: Box) -> None:
    tasks = declare(box.app)

    @box.app.middleware
    def trace(job: Any) -> Iterator[None]:
        job.headers["trace"] = "abc"
        yield

    calls: dict[str, Callable[..., Any]] = {
        "lane": lambda **o: tasks["ship"].using(**o).enqueue(7, step=2),
        "unique": lambda **o: tasks["once"].using(**o).enqueue(7),
        "later": lambda **o: tasks["plain"].using(run_after=3600, retry=Retry(times=2), **o).enqueue("ä", None),
        "first": lambda **o: tasks["plain"].using(priority=50, queue="q:1", expires=60, **o).enqueue(),
        "name": lambda **o: box.app.using(lane="x", **o).enqueue("ship", 9),
    }
    connection = box.connect()
    direct = {name: look(box.app, call(id=f"direct-{name}").id) for name, call in calls.items()}
    box.app.inspect.delete_all()

    for name, call in calls.items():
        call(id=f"boxed-{name}", connection=connection)
    connection.commit()
    connection.close()
    assert box.carry() == len(calls)

    assert {name: look(box.app, f"boxed-{name}") for name in calls} == direct


def stands(app: App, id_: str) -> JobInfo:
    """A job that must be there."""
    found = app.inspect.job(id_)
    assert found is not None
    return found


def look(app: App, id_: str) -> Any:
    found = stands(app, id_)
    same = (found.task, found.queue, found.lane, found.priority, found.state, found.args, found.kwargs, found.body)
    assert found.expires_at is None or (found.expires_at - found.due_at).total_seconds() > 0
    return (*same, found.expires_at is None, round((found.due_at - found.enqueued_at).total_seconds()))


def test_a_unique_key_is_judged_when_the_row_is_relayed(box: Box) -> None:
    tasks = declare(box.app)
    connection = box.connect()
    with box.app.transaction(connection):
        handles = [tasks["once"].enqueue(1), tasks["once"].enqueue(1)]
    connection.commit()
    connection.close()

    assert [one.created for one in handles] == [None, None]
    box.carry()
    assert [job.id for job in box.app.inspect.jobs()] == [handles[0].id]


def test_delay_and_expiry_count_from_the_enqueue(box: Box) -> None:
    tasks = declare(box.app)
    connection = box.connect()
    with box.app.transaction(connection):
        tasks["plain"].using(run_after=100, id="soon").enqueue()
        tasks["plain"].using(run_after=50, id="due").enqueue()
        tasks["plain"].using(expires=30, id="over").enqueue()
    connection.commit()
    connection.close()
    box.ask("update laneway_outbox set made = made - 60000000")

    box.carry()

    soon, due, over = (stands(box.app, id_) for id_ in ("soon", "due", "over"))
    assert 30 < (soon.due_at - soon.enqueued_at).total_seconds() <= 40
    assert due.state == "ready"
    assert over.expires_at is not None
    assert (over.expires_at - over.due_at).total_seconds() < 0.001


def test_the_age_of_a_job_with_a_moment_counts_from_that_moment() -> None:
    job = read_job('{"task": "t", "run_after": "1970-01-01T00:01:40Z", "expires": 60}')

    assert job.at == 100 * SECOND
    assert aged(job, 500 * SECOND, now=120 * SECOND).expires == 40 * SECOND
    assert aged(job, 500 * SECOND, now=90 * SECOND).expires == 60 * SECOND


# -- what must be true ---------------------------------------------------------------------------------------------


def test_without_an_outbox_another_database_is_refused(tmp_path: Path) -> None:
    app = App(redisbench.emptied().url)
    tasks = declare(app)
    connection = sqlite3.connect(tmp_path / "shop.db")

    with pytest.raises(NotSameDatabase, match=r"name an outbox in yours, App\(…, outbox=URL\)"), app.transaction(connection):
        pass
    with pytest.raises(NotSameDatabase):
        tasks["ship"].using(connection=connection).enqueue(1)
    connection.close()
    app.close()


def test_a_connection_to_another_database_than_the_outbox_is_refused(box: Box, tmp_path: Path) -> None:
    tasks = declare(box.app)
    elsewhere: Any
    if box.is_postgres:
        import psycopg  # noqa: PLC0415 - it may be missing

        box.ask("drop database if exists elsewhere")
        box.ask("create database elsewhere")
        elsewhere = psycopg.connect(box.address.rpartition("/")[0] + "/elsewhere")
        elsewhere.execute("create table laneway_outbox (job text)")
    else:
        elsewhere = sqlite3.connect(tmp_path / "elsewhere.db")
        elsewhere.execute("create table laneway_outbox (job text)")

    with pytest.raises(NotSameDatabase), box.app.transaction(elsewhere):
        tasks["ship"].enqueue(1)
    elsewhere.close()
    assert box.status.waiting == 0


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_tables_the_error_says_how_to_make_them(kind: str, tmp_path: Path) -> None:
    box = Box(kind, tmp_path, tables=False)
    tasks = declare(box.app)
    connection = box.connect()

    with pytest.raises(NoOutbox, match="laneway outbox init --sql"), box.app.transaction(connection):
        tasks["ship"].enqueue(1)
    connection.close()
    with pytest.raises(SchemaError, match="laneway outbox init"):
        box.carry()
    assert box.app.outbox is not None
    found = check_outbox(box.app.outbox)
    assert (found.level, "laneway outbox init" in found.found) == ("problem", True)
    box.close()


def test_autocommit_is_refused(box: Box) -> None:
    tasks = declare(box.app)
    connection = box.connect()
    if box.is_postgres:
        connection.autocommit = True
    else:
        connection.isolation_level = None

    with pytest.raises(BadOption, match="autocommit"), box.app.transaction(connection):
        tasks["ship"].enqueue(1)
    connection.close()


def test_to_make_the_tables_twice_changes_nothing(box: Box) -> None:
    before = box.status.source
    box.database.create()
    assert box.status.source == before


def test_the_role_of_a_web_program_needs_no_right_but_insert(tmp_path: Path) -> None:
    import psycopg  # noqa: PLC0415 - it may be missing

    box = Box("postgres", tmp_path)
    for statement in ("drop role if exists web", "create role web login", "grant insert on laneway_outbox to web"):
        box.ask(statement)
    web = App(box.app.url, outbox=box.url.replace("postgres@", "web@").replace("user=postgres", "user=web"))
    connection = psycopg.connect(web.outbox.url)  # type: ignore[union-attr]
    assert connection.execute("select current_user").fetchone() == ("web",)

    with web.transaction(connection):
        declare(web)["ship"].enqueue(1)
        web.enqueue_many([web.declared["ship"].bind(2), web.declared["save"].bind("lane", 3)])  # type: ignore[attr-defined]
    connection.commit()
    connection.close()

    assert box.carry() == 3
    box.ask("drop owned by web")
    box.ask("drop role web")
    web.close()
    box.close()


def test_a_two_phase_transaction_can_enqueue(tmp_path: Path) -> None:
    box = Box("postgres", tmp_path)
    if postgresbench.server().ask("show max_prepared_transactions") == [("0",)]:
        pytest.skip("this server has no two-phase transactions")
    tasks = declare(box.app)
    connection = box.connect()
    connection.tpc_begin("laneway-outbox")
    with box.app.transaction(connection):
        tasks["ship"].enqueue(1)
    connection.tpc_prepare()
    assert box.carry() == 0
    connection.tpc_commit()
    connection.close()

    assert box.carry() == 1
    box.close()


@pytest.mark.parametrize(
    ("outbox", "why"),
    [
        ("redis://localhost", "an outbox is in SQLite or PostgreSQL"),
        ("sqlite://", "a database in memory"),
        ("shop.db", "is not a store's URL"),
        ("sqlite:///jobs.db", "is the store itself"),
        (7, "use the address"),
    ],
)
def test_an_outbox_that_cannot_be_is_refused_where_the_app_is_made(outbox: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        App("sqlite:///jobs.db", outbox=outbox)


def test_the_outbox_can_be_set_outside_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWAY_OUTBOX", "sqlite:///shop.db")
    found = App("sqlite:///jobs.db").outbox
    assert found is not None
    assert (found.kind, found.path) == ("sqlite", "shop.db")
    assert App("sqlite:///jobs.db", outbox=None).outbox is None


def test_under_test_the_outbox_takes_no_part(box: Box) -> None:
    tasks = declare(box.app)
    connection = box.connect()
    with box.app.testing("fake") as jobs, box.app.transaction(connection):
        tasks["ship"].enqueue(1)
        assert len(jobs.enqueued()) == 1
    connection.close()
    assert box.status.waiting == 0


# -- rows as text --------------------------------------------------------------------------------------------------


def test_a_row_that_people_write_needs_a_task_alone(box: Box) -> None:
    box.ask("""insert into laneway_outbox (job) values ('{"task": "ship", "args": [7], "kwargs": {"step": 1}, "lane": 7}')""")
    box.carry()
    [found] = box.app.inspect.jobs()
    assert (found.task, found.queue, found.lane, found.args, found.kwargs) == ("ship", "default", "7", [7], {"step": 1})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "truncated"),
        ("[]", "object"),
        ("{}", "task"),
        ('{"task": ""}', "task: name the task"),
        ('{"task": "a", "quue": "b"}', "quue"),
        ('{"task": "a", "queue": "not here"}', "not a name for a queue"),
        ('{"task": "a", "lane": ""}', "not a key for a lane"),
        ('{"task": "a", "lane": "b", "priority": 1}', "lane and priority together"),
        ('{"task": "a", "priority": 101}', "not a priority"),
        ('{"task": "a", "id": "b c"}', "not an id"),
        ('{"task": "a", "run_after": -1}', "run_after"),
        ('{"task": "a", "run_after": "tomorrow"}', "tomorrow"),
        ('{"task": "a", "expires": 0}', "expires"),
        ('{"task": "a", "unique": ""}', "unique"),
        ('{"task": "a", "args": {}}', "args"),
        ('{"task": "a", "kwargs": []}', "kwargs"),
        ('{"task": "a", "body": "no json"}', "malformed"),
        ('{"task": "a", "gather": {}, "body": "1"}', "lane"),
        ('{"task": "a", "args": ["%s"]}' % ("x" * 1_000_001), "at most 1,000,000"),
        ('{"task": "a", "args": %s}' % ("[" * 200 + "]" * 200), "levels"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_job_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_job(text)


def test_a_job_survives_its_text() -> None:
    job = read_job('{"task": "a", "args": [1], "unique": "k", "unique_until": "end", "expires": 1.5, "run_after": 0.25}')
    assert read_job(write_job(job)) == job
