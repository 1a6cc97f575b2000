"""Enqueueing in the user's transaction: on every store that can, with every kind of connection."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import postgresbench
from laneway import App, Worker
from laneway.errors import BadOption, NotSameDatabase, StoreBusy, WrongQueue
from laneway.store.contract import ClaimRequest
from laneway.testing import wait_until
from transactbench import POSTGRES, SEATS, SQLITE, Seat, play

ran: list[Any] = []


class Scene:
    """An app, its store's database with a table of the user's, and a connection there."""

    def __init__(self, store: str, driver: str, folder: Path, *, bare: bool = False) -> None:
        self.is_postgres = store == "postgres"
        if self.is_postgres:
            server = postgresbench.emptied() if bare else postgresbench.renewed()
            server.ask("drop table if exists orders")
            server.ask("create table orders (id int)")
            self.address = self.url = server.url
        else:
            self.address = str(folder / "shop.db")
            self.url = f"sqlite:///{self.address}"
            self._ask("create table orders (id)")
        self.app = App(self.url)
        self.seat: Seat = (POSTGRES if self.is_postgres else SQLITE)[driver](self.address)
        self.declare(self.app)

    def declare(self, app: App) -> None:
        ran.clear()

        @app.task(name="ship", lane="order")
        def ship(order: int, step: int = 0) -> None:
            ran.append((order, step))

        @app.task(name="once", unique=True)
        def once(order: int) -> None:
            ran.append(order)

        @app.task(name="both", unique="step", lane="order")
        def both(order: int, step: int) -> None:
            ran.append((order, step))

        @app.task(name="plain")
        def plain(*args: Any) -> None:
            ran.append(args)

        @app.collector(name="save")
        def save(lanes: dict[str, list[int]]) -> None:
            ran.append(lanes)

        self.ship, self.once, self.both, self.plain, self.save = ship, once, both, plain, save

    def _ask(self, sql: str) -> list[Any]:
        if self.is_postgres:
            return postgresbench.server().ask(sql)
        connection = sqlite3.connect(self.address, isolation_level=None)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    @property
    def orders(self) -> int:
        """How many rows of the user's are there for others."""
        return int(self._ask("select count(*) from orders")[0][0])

    @property
    def jobs(self) -> int:
        """How many jobs are there for others."""
        return sum(self.app.inspect.counts().values())

    def play(self, act: Callable[[Seat], Awaitable[None]], *, autocommit: bool = False) -> None:
        """Let a user act on the connection."""

        async def scene() -> None:
            await self.seat.open(autocommit=autocommit)
            try:
                await act(self.seat)
            finally:
                await self.seat.close()

        play(self.seat, scene())


def make(store: str, driver: str, tmp_path: Path, *, bare: bool = False) -> Iterator[Scene]:
    made = Scene(store, driver, tmp_path, bare=bare)
    yield made
    made.app.close()


@pytest.fixture(params=SEATS, ids="-".join)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """Every kind of connection."""
    store, driver = request.param
    yield from make(store, driver, tmp_path)


@pytest.fixture(params=SEATS, ids="-".join)
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """Every kind of connection, where the store has no tables yet."""
    store, driver = request.param
    yield from make(store, driver, tmp_path, bare=True)


@pytest.fixture(params=["sqlite", "postgres"])
def usual(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """The usual connection of each store: for what does not depend on the driver."""
    yield from make(request.param, {"sqlite": "sqlite3", "postgres": "psycopg"}[request.param], tmp_path)


# -- every kind of connection --------------------------------------------------------------------------------


def test_a_job_is_there_when_the_transaction_commits(bare: Scene) -> None:
    scene = bare

    async def act(seat: Seat) -> None:
        await seat.begin()
        async with seat.block(scene.app):
            await seat.write(1)
            job = await seat.enqueue(scene.ship, 1)
            assert job.created is True
        if scene.is_postgres:
            assert (scene.orders, scene.jobs) == (0, 0)
        await seat.commit()
        assert (scene.orders, scene.jobs) == (1, 1)
        assert scene.app.inspect.job(job.id) is not None

    scene.play(act)


def test_a_rollback_leaves_neither_row_nor_job(scene: Scene) -> None:
    async def act(seat: Seat) -> None:
        await seat.begin()
        async with seat.block(scene.app):
            await seat.enqueue(scene.ship, 1)
            await seat.write(1)
            await seat.enqueue(scene.once, 1)
            await seat.enqueue(scene.save, "a", 1)
        await seat.rollback()
        assert (scene.orders, scene.jobs) == (0, 0)

    scene.play(act)


def test_a_rollback_to_a_savepoint_takes_what_came_after_it(scene: Scene) -> None:
    async def act(seat: Seat) -> None:
        await seat.begin()
        async with seat.block(scene.app):
            await seat.write(1)
            await seat.enqueue(scene.plain, "before")
            await seat.savepoint()
            await seat.enqueue(scene.plain, "inside")
            await seat.enqueue(scene.once, 1)
            await seat.rollback_to()
            await seat.enqueue(scene.plain, "after")
        await seat.commit()

    scene.play(act)
    Worker(scene.app, slots=1).run(burst=True)
    assert ran == [("before",), ("after",)]


def test_one_call_takes_part_by_its_option(scene: Scene) -> None:
    async def act(seat: Seat) -> None:
        await seat.begin()
        job = await seat.enqueue(scene.ship.using(connection=seat.connection, run_after=60), 1)
        await seat.enqueue_many(scene.plain.using(connection=seat.connection), [(1,), (2,)])
        await seat.enqueue(scene.save.using(connection=seat.connection), "a", 1)
        await seat.enqueue(scene.app.using(connection=seat.connection), "ship", 2)
        await seat.rollback()
        assert scene.jobs == 0
        await seat.begin()
        job = await seat.enqueue(scene.ship.using(connection=seat.connection, run_after=60), 1)
        await seat.commit()
        assert job.state() == "scheduled"

    scene.play(act)


def test_autocommit_is_refused_with_the_remedy(scene: Scene) -> None:
    async def act(seat: Seat) -> None:
        with pytest.raises(BadOption, match=r"autocommit mode.*Begin one first"):
            async with seat.block(scene.app):
                await seat.enqueue(scene.ship, 1)
        with pytest.raises(BadOption, match="autocommit mode"):
            await seat.enqueue(scene.ship.using(connection=seat.connection), 1)
        assert scene.jobs == 0

    scene.play(act, autocommit=True)


def test_a_call_of_the_other_kind_is_refused(scene: Scene) -> None:
    async def act(seat: Seat) -> None:
        await seat.begin()
        task = scene.ship.using(connection=seat.connection)
        if seat.is_async:
            with pytest.raises(BadOption, match="is for an event loop"):
                task.enqueue(1)
            with pytest.raises(BadOption, match="is for an event loop"), scene.app.transaction(seat.connection):
                pass
        else:
            with pytest.raises(BadOption, match="is not for an event loop"):
                await task.aenqueue(1)
            with pytest.raises(BadOption, match="is not for an event loop"):
                await task.aenqueue_many([(1,)])
            with pytest.raises(BadOption, match="is not for an event loop"):
                async with scene.app.transaction(seat.connection):
                    pass
        await seat.rollback()
        assert scene.jobs == 0

    scene.play(act)


def test_jobs_of_a_transaction_run_in_the_order_of_the_calls(scene: Scene) -> None:
    async def act(seat: Seat) -> None:
        await seat.begin()
        async with seat.block(scene.app):
            await seat.enqueue(scene.ship, 7, 1)
            await seat.enqueue(scene.both, 7, 2)
            await seat.enqueue(scene.both, 7, 2)
            await seat.enqueue(scene.ship, 7, 3)
            assert await seat.enqueue_many(scene.ship, [(7, 4), (7, 5)]) == 2
            await seat.enqueue(scene.ship, 7, 6)
        await seat.commit()

    scene.play(act)
    Worker(scene.app, 1).run(burst=True)
    assert ran == [(7, step) for step in range(1, 7)]


def test_equal_jobs_and_payloads_of_a_transaction_become_one(scene: Scene) -> None:
    created: list[bool | None] = []

    async def act(seat: Seat) -> None:
        await seat.begin()
        async with seat.block(scene.app):
            created.extend([(await seat.enqueue(scene.once, 1)).created for _ in range(2)])
            for payload in (3, 1, 3):
                await seat.enqueue(scene.save, "a", payload)
        await seat.commit()

    scene.play(act)
    assert created == ([None, None] if scene.is_postgres else [True, False])
    assert scene.jobs == 2
    Worker(scene.app, 1).run(burst=True)
    assert sorted(ran, key=str) == [1, {"a": [1, 3]}]


def test_large_bodies_and_any_text_make_the_trip(scene: Scene) -> None:
    texts = ["x" * 900_000, "100% ? $1 :a %s \\ \" ' \u2028 \0 \U0001f600", "ä" * 1000]

    async def act(seat: Seat) -> None:
        await seat.begin()
        async with seat.block(scene.app):
            for text in texts:
                await seat.enqueue(scene.plain, text)
            assert await seat.enqueue_many(scene.plain, [(str(number),) for number in range(1100)]) == 1100
        await seat.commit()

    scene.play(act)
    found = [(job.args or [""])[0] for job in scene.app.inspect.jobs(limit=2000)]
    assert sorted(found) == sorted([*texts, *map(str, range(1100))])


def test_another_database_is_refused_and_the_error_names_the_ways_out(scene: Scene, tmp_path: Path) -> None:
    if scene.is_postgres:
        server = postgresbench.server()
        server.ask("drop database if exists other")
        server.ask("create database other")
        scene.seat.address = server.url.rpartition("/")[0] + "/other"
    else:
        scene.seat.address = str(tmp_path / "other.db")
    memory = App("sqlite://")

    @memory.task
    def forget() -> None: ...

    async def act(seat: Seat) -> None:
        for task in (scene.ship.using(connection=seat.connection), scene.once.using(connection=seat.connection)):
            await seat.begin()
            with pytest.raises(NotSameDatabase, match=r"outbox=.*enqueue after your commit"):
                await seat.enqueue(task, 1)
            await seat.rollback()
        await seat.begin()
        with pytest.raises(NotSameDatabase, match="the store in memory"):
            await seat.enqueue(forget.using(connection=seat.connection))
        await seat.rollback()
        assert scene.jobs == 0

    scene.play(act)
    memory.close()


def test_a_worker_runs_it_soon_after_the_commit(scene: Scene) -> None:
    done = threading.Event()

    @scene.app.task
    def tell() -> None:
        done.set()

    async def act(seat: Seat) -> None:
        await seat.begin()
        async with seat.block(scene.app):
            await seat.enqueue(tell)
        if scene.is_postgres:  # an open one holds up nobody
            scene.plain.enqueue("beside")
            wait_until(lambda: ran == [("beside",)])
        assert not done.is_set()
        await seat.commit()
        assert done.wait(5)

    worker = Worker(scene.app)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_until(scene.app.inspect.workers)
        scene.play(act)
    finally:
        worker.stop()
        thread.join()


# -- what does not depend on the driver ----------------------------------------------------------------------


def test_all_options_hold_in_a_transaction(usual: Scene) -> None:
    async def act(seat: Seat) -> None:
        async with seat.block(usual.app):
            usual.plain.using(priority=-5).enqueue("low")
            usual.plain.using(priority=5).enqueue("high")
            usual.plain.using(queue="other").enqueue("other")
            usual.plain.using(run_after=3600, expires=10, id="mine").enqueue("later")
            again = usual.plain.using(id="mine").enqueue("again")
            usual.app.enqueue("plain", "by name")
            usual.app.enqueue_many([usual.plain.bind("bound"), usual.ship.bind(1, 1)])
            assert (again.id, again.created) == ("mine", False)
        await seat.commit()

    usual.play(act)
    later = usual.app.inspect.job("mine")
    assert later is not None
    assert later.state == "scheduled"
    Worker(usual.app, slots=1).run(burst=True)
    assert ran.index(("high",)) < ran.index(("by name",)) < ran.index(("low",))
    assert sorted(ran, key=str) == sorted([("high",), ("low",), ("other",), ("by name",), ("bound",), (1, 1)], key=str)


def test_payloads_of_a_transaction_have_their_scores_and_wait_as_others_do(usual: Scene) -> None:
    @usual.app.collector(name="quiet", debounce=60)
    def quiet(lanes: dict[str, list[int]]) -> None: ...

    async def act(seat: Seat) -> None:
        async with seat.block(usual.app):
            quiet.enqueue("a", 1)
            usual.save.using(run_after=60).enqueue("b", 1)
            usual.save.enqueue("c", 1, score=2)
            usual.save.enqueue("c", 2, score=1)
        await seat.commit()

    usual.play(act)
    Worker(usual.app, 1).run(burst=True)
    assert (ran, usual.app.inspect.counts()["scheduled"]) == ([{"c": [2, 1]}], 2)


def test_a_unique_key_of_a_transaction_is_free_when_its_job_is_claimed(usual: Scene) -> None:
    async def act(seat: Seat) -> None:
        async with seat.block(usual.app):
            usual.once.enqueue(1)
        await seat.commit()

    for number in (1, 2):
        usual.play(act)
        assert usual.jobs == number
        assert len(usual.app.store.exchange("w", [], [ClaimRequest("default", 2)], 2).claims) == 1


def test_blocks_may_be_nested_and_the_innermost_counts(usual: Scene) -> None:
    async def act(seat: Seat) -> None:
        with usual.app.transaction(seat.connection):
            with usual.app.transaction(seat.connection):
                usual.plain.enqueue(1)
            usual.plain.enqueue(2)
        await seat.rollback()
        usual.plain.enqueue(3)
        assert usual.jobs == 1

    usual.play(act)


def test_another_app_and_another_thread_take_no_part(usual: Scene) -> None:
    other = App("sqlite://")

    @other.task
    def apart() -> None: ...

    async def act(seat: Seat) -> None:
        with usual.app.transaction(seat.connection):
            apart.enqueue()
            thread = threading.Thread(target=usual.plain.enqueue, args=("thread",))
            thread.start()
            thread.join()
            usual.plain.enqueue("block")
        await seat.rollback()
        assert (usual.jobs, sum(other.inspect.counts().values())) == (1, 1)

    usual.play(act)
    other.close()


def test_a_block_that_has_ended_takes_nothing_more(usual: Scene) -> None:
    async def act() -> None:
        seat = {"sqlite": SQLITE["aiosqlite"], "postgres": POSTGRES["asyncpg"]}["postgres" if usual.is_postgres else "sqlite"](
            usual.address
        )
        await seat.open()
        await seat.begin()
        ended = asyncio.Event()

        async def late() -> None:
            await ended.wait()
            await usual.plain.aenqueue("late")

        async with seat.block(usual.app):
            task = asyncio.create_task(late())
            await asyncio.gather(*(usual.plain.aenqueue(n) for n in range(5)))
        ended.set()
        with pytest.raises(BadOption, match="block that has ended"):
            await task
        await seat.commit()
        await seat.close()

    asyncio.run(act())
    assert usual.jobs == 5


def test_in_a_test_of_the_users_the_jobs_are_where_the_test_looks(usual: Scene) -> None:
    async def act(seat: Seat) -> None:
        with usual.app.testing("fake") as jobs:
            with usual.app.transaction(seat.connection):
                usual.plain.enqueue(1)
            usual.plain.using(connection=seat.connection).enqueue(2)
            assert len(jobs.enqueued(usual.plain)) == 2

    usual.play(act)


def test_what_fails_leaves_the_transaction_as_it_was_or_aborted(usual: Scene) -> None:
    usual.save.enqueue("a", 1)

    async def act(seat: Seat) -> None:
        with usual.app.transaction(seat.connection):
            await seat.write(1)
            with pytest.raises(WrongQueue, match="save"):
                usual.plain.using(queue="save").enqueue(1)
            usual.plain.enqueue(2)
        await seat.commit()

    usual.play(act)
    assert (usual.orders, usual.jobs) == (1, 2)


def test_a_bound_call_has_no_connection(usual: Scene) -> None:
    async def act(seat: Seat) -> None:
        for task in (usual.plain, usual.save, usual.app):
            with pytest.raises(BadOption, match="a bound call has none"):
                task.using(connection=seat.connection).bind("plain")

    usual.play(act)


def test_what_is_no_connection_is_refused(usual: Scene) -> None:
    with pytest.raises(BadOption, match=r"builtins.int is not a connection that Laneway knows: give"):
        usual.app.transaction(3)


def test_middlewares_are_around_it(usual: Scene) -> None:
    seen: list[str] = []

    @usual.app.client_middleware
    def note(draft: Any) -> Iterator[None]:
        seen.append("before")
        yield
        seen.append("after")

    async def act(seat: Seat) -> None:
        with usual.app.transaction(seat.connection):
            usual.plain.enqueue(1)
            usual.plain.enqueue_many([(2,), (3,)])
        await seat.commit()

    usual.play(act)
    assert seen == ["before", "after"] + ["before"] * 2 + ["after"] * 2
    assert usual.jobs == 3


# -- SQLite --------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Scene]:
    yield from make("sqlite", "sqlite3", tmp_path)


def test_a_transaction_that_has_read_and_is_out_of_date_says_begin_immediate(file: Scene) -> None:
    async def act(seat: Seat) -> None:
        await seat.execute("begin")
        seat.connection.execute("select count(*) from orders").fetchall()
        file.plain.enqueue("others write")
        with pytest.raises(StoreBusy, match="begin immediate"):
            file.plain.using(connection=seat.connection).enqueue(1)
        await seat.rollback()
        await seat.execute("begin immediate")
        file.plain.using(connection=seat.connection).enqueue(2)
        await seat.commit()
        assert file.jobs == 3

    file.plain.enqueue("tables")
    file.play(act)


def test_a_connection_without_a_timeout_waits_for_the_lock_all_the_same(file: Scene) -> None:
    file.plain.enqueue("tables")
    holder = sqlite3.connect(file.address, isolation_level=None, check_same_thread=False)
    holder.execute("begin immediate")
    threading.Timer(0.3, holder.rollback).start()

    async def act(seat: Seat) -> None:
        file.plain.using(connection=seat.connection).enqueue(1)
        await seat.commit()

    file.play(act)
    assert file.jobs == 2
    holder.close()


def test_a_lock_that_is_not_free_in_time_says_who_holds_it(file: Scene) -> None:
    file.plain.enqueue("tables")
    app = App(file.url, enqueue_timeout=0.1)
    holder = sqlite3.connect(file.address, isolation_level=None)
    holder.execute("begin immediate")

    @app.task
    def wait() -> None: ...

    async def act(seat: Seat) -> None:
        with pytest.raises(StoreBusy, match="is held by"):
            wait.using(connection=seat.connection).enqueue()

    file.play(act)
    holder.close()
    app.close()


def test_an_explicit_transaction_on_a_connection_in_autocommit_is_one(file: Scene) -> None:
    async def act(seat: Seat) -> None:
        await seat.execute("begin immediate")
        with file.app.transaction(seat.connection):
            file.plain.enqueue(1)
        await seat.rollback()
        assert file.jobs == 0

    file.plain.enqueue("tables")
    Worker(file.app).run(burst=True)
    file.play(act, autocommit=True)


def test_the_tables_are_made_before_the_users_first_write(file: Scene) -> None:
    async def act(seat: Seat) -> None:
        with file.app.transaction(seat.connection):
            await seat.write(1)
            file.plain.enqueue(1)
        await seat.commit()

    file.play(act)
    assert (file.orders, file.jobs) == (1, 1)


def test_a_file_that_is_held_and_has_no_tables_says_what_to_do(file: Scene) -> None:
    app = App(f"{file.url}?timeout=0.2")

    @app.task
    def first() -> None: ...

    async def act(seat: Seat) -> None:
        await seat.write(1)
        with pytest.raises(StoreBusy, match="run laneway migrate once"):
            first.using(connection=seat.connection).enqueue()

    file.play(act)
    app.close()


def test_a_scoped_session_is_the_session_it_stands_for(tmp_path: Path) -> None:
    orm = pytest.importorskip("sqlalchemy.orm")
    awaited = pytest.importorskip("sqlalchemy.ext.asyncio")
    pytest.importorskip("aiosqlite")
    app = App(f"sqlite:///{tmp_path}/shop.db")
    engine = pytest.importorskip("sqlalchemy").create_engine(app.url)
    session = orm.scoped_session(orm.sessionmaker(engine))
    for end in (session.commit, session.rollback):
        with app.transaction(session):
            app.enqueue("ship")
            end()  # inside of the block: workers are woken at its end
    session.remove()
    engine.dispose()

    async def act() -> None:
        engine = awaited.create_async_engine(app.url.replace("sqlite:", "sqlite+aiosqlite:"))
        session = awaited.async_scoped_session(awaited.async_sessionmaker(engine), scopefunc=asyncio.current_task)
        for end in (session.commit, session.rollback):
            async with app.transaction(session):
                await app.aenqueue("ship")
                await end()
        await session.remove()
        await engine.dispose()

    asyncio.run(act())
    assert app.inspect.counts()["ready"] == 2
    app.close()


def test_no_driver_is_imported_that_the_program_does_not_use() -> None:
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    program = (
        "import sqlite3, sys; from laneway import App; app = App('sqlite:///jobs.db'); c = sqlite3.connect('jobs.db')\n"
        "with app.transaction(c): app.enqueue('a')\n"
        "c.commit(); print(sorted({'psycopg', 'asyncpg', 'sqlalchemy', 'django', 'aiosqlite', 'asyncio'} & {*sys.modules}))"
    )
    folder = os.environ.get("PYTEST_DEBUG_TEMPROOT", "/tmp")  # noqa: S108 - it is a test
    import tempfile  # noqa: PLC0415

    with tempfile.TemporaryDirectory(dir=folder) as place:
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60, cwd=place)
    assert done.stdout == "[]\n"
