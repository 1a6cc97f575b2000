"""Enqueueing in the user's transaction on PostgreSQL: levels, two-phase, open transactions, and by SQL alone."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

import postgresbench
from laneway import App, Worker
from laneway.core.job import Job
from laneway.core.outcome import Dead, Done, ErrorInfo, Settled, Snoozed
from laneway.errors import SchemaError, StoreBusy, StoreMoved, StoreReadOnly, StoreUnavailable, WrongQueue
from laneway.testing import wait_until
from settling import settled_alike

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

import psycopg
from psycopg import IsolationLevel

from laneway.store.contract import ClaimRequest, Store
from laneway.store.moving import copy_store, side_of
from laneway.store.sql import actions

ran: list[Any] = []


class Shop:
    """An app with its tasks, on a new store."""

    def __init__(self) -> None:
        self.server = postgresbench.renewed()
        self.app = app = App(self.server.url)
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

        @app.collector(name="save")
        def save(lanes: dict[str, list[int]]) -> None:
            ran.append(lanes)

        self.ship, self.once, self.both, self.save = ship, once, both, save

    def connect(self, **options: Any) -> psycopg.Connection:
        return psycopg.connect(self.server.url, **options)

    def enqueue_each(self, connection: psycopg.Connection, order: int) -> None:
        with self.app.transaction(connection):
            self.ship.enqueue(order)
            self.once.enqueue(order)
            self.save.enqueue("a", order)

    @property
    def jobs(self) -> int:
        return sum(self.app.inspect.counts().values())


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    made.app.close()


# -- transactions of any kind --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", list(IsolationLevel))
def test_every_isolation_level_will_do(shop: Shop, level: IsolationLevel) -> None:
    with shop.connect() as connection:
        connection.isolation_level = level
        connection.execute("select 1")  # its snapshot is taken now
        shop.once.enqueue(1)
        shop.ship.enqueue(2)
        shop.enqueue_each(connection, 1)
        connection.commit()
    assert shop.jobs == 4  # an equal one was there
    Worker(shop.app).run(burst=True)
    assert sorted(ran, key=str) == [(1, 0), (2, 0), 1, {"a": [1]}]


def test_serializable_transactions_that_only_enqueue_do_not_fail_each_other(shop: Shop) -> None:
    shop.ship.enqueue(0)
    with shop.connect() as one, shop.connect() as two:
        one.isolation_level = two.isolation_level = IsolationLevel.SERIALIZABLE
        for order in range(20):
            for connection in (one, two):
                with shop.app.transaction(connection):
                    shop.ship.using(run_after=order).enqueue(order)
                    shop.once.enqueue(order)
            one.commit()
            two.commit()
    assert shop.jobs == 1 + 40 + 20


def test_an_old_snapshot_does_not_enqueue_into_a_store_that_was_closed_since(shop: Shop) -> None:
    shop.ship.enqueue(1)
    other = App("sqlite://")
    with shop.connect() as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.execute("select * from laneway.queue")
        copy_store(side_of(shop.app.store, shop.server.url), side_of(other.store, "sqlite:///other.db"))
        with pytest.raises(psycopg.errors.SerializationFailure):
            shop.ship.using(connection=connection).enqueue(2)
        connection.rollback()
        with pytest.raises(StoreMoved):
            shop.ship.using(connection=connection).enqueue(2)
        connection.rollback()
        with pytest.raises(psycopg.Error, match="a copy has closed the store"):
            connection.execute("""select laneway.enqueue('{"task": "ship", "unique": "u"}')""")
    other.close()


def test_a_copy_takes_along_what_waits_in_the_inbox(shop: Shop) -> None:
    other = App("sqlite://")
    with shop.connect() as connection:
        shop.enqueue_each(connection, 1)
        connection.commit()
    copy_store(side_of(shop.app.store, shop.server.url), side_of(other.store, "sqlite:///other.db"))
    assert sum(other.inspect.counts().values()) == 3
    other.close()


def test_two_phase_jobs_are_there_when_the_prepared_transaction_commits(shop: Shop) -> None:
    shop.ship.enqueue(0)
    for end, expected in (("rollback", 1), ("commit", 4)):
        with shop.connect() as connection:
            connection.tpc_begin(connection.xid(1, end, "shop"))
            shop.enqueue_each(connection, 1)
            connection.tpc_prepare()
            assert shop.jobs == 1
            getattr(connection, f"tpc_{end}")()
        assert shop.jobs == expected


def test_a_read_only_transaction_says_so(shop: Shop) -> None:
    with shop.connect() as connection:
        connection.read_only = True
        with pytest.raises(StoreReadOnly, match="your transaction is read-only"):
            shop.ship.using(connection=connection).enqueue(1)


def test_an_aborted_transaction_says_what_the_driver_says(shop: Shop) -> None:
    with shop.connect() as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("select 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            shop.ship.using(connection=connection).enqueue(1)
        connection.rollback()
        shop.ship.using(connection=connection).enqueue(1)
    assert shop.jobs == 1


# -- others while it is open ---------------------------------------------------------------------------------


@pytest.fixture
def waits(shop: Shop) -> Iterator[Callable[[], list[str]]]:
    """Says which sessions have waited for a lock for a second, by the server's log: what waits does so for longer."""
    log, begun = shop.server.log, shop.server.log.stat().st_size
    shop.server.ask("ALTER ROLE postgres SET log_lock_waits = on")

    def found() -> list[str]:
        with log.open("rb") as file:
            file.seek(begun)
            return [line for line in file.read().decode().splitlines() if "still waiting for" in line]

    yield found
    shop.server.ask("ALTER ROLE postgres RESET log_lock_waits")


def test_who_waits_for_a_lock_is_noted(shop: Shop, waits: Callable[[], list[str]]) -> None:
    shop.ship.enqueue(1)
    with shop.connect() as connection:
        connection.execute("lock table laneway.job")
        with pytest.raises(StoreBusy):
            shop.ship.enqueue(2)
    assert len(waits()) == 1


def test_an_open_transaction_holds_up_nobody(shop: Shop, waits: Callable[[], list[str]]) -> None:
    with shop.connect() as connection, shop.connect() as other:
        for queue in ("new", "default"):  # a queue that nobody has seen yet
            with shop.app.transaction(connection):
                shop.ship.using(queue=queue).enqueue(1)
            connection.execute("select laneway.enqueue(%s)", ('{"task": "ship", "args": [1], "queue": "newer"}',))
        shop.enqueue_each(connection, 1)
        shop.enqueue_each(other, 1)
        other.commit()
        shop.once.enqueue(1)
        shop.save.enqueue("a", 2)
        for queue in ("new", "newer", "default"):
            shop.ship.using(queue=queue).enqueue(2)
        Worker(shop.app, queues=["new", "newer", "default", "save"]).run(burst=True)
        assert waits() == []
        assert sorted(ran, key=str) == [(1, 0), (2, 0), (2, 0), (2, 0), 1, {"a": [1, 2]}]


def test_two_transactions_with_one_id_wait_for_each_other_and_are_told(shop: Shop) -> None:
    with shop.connect() as one, shop.connect() as two:
        assert shop.ship.using(connection=one, id="mine").enqueue(1).created is True
        with pytest.raises(StoreBusy, match="another open transaction has a job with the same id"):
            shop.ship.using(connection=two, id="mine").enqueue(1)
        two.rollback()
        one.commit()
        assert shop.ship.using(connection=two, id="mine").enqueue(1).created is False
    assert shop.jobs == 1


def test_a_new_queue_that_only_sql_has_named_is_found_by_a_worker(shop: Shop) -> None:
    shop.server.ask("select 1")
    worker = Worker(shop.app, queues=["fresh"])
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_until(shop.app.inspect.workers)
        shop.server.ask("select laneway.enqueue(%s)", '{"task": "ship", "args": [1], "queue": "fresh"}')
        wait_until(lambda: ran == [(1, 0)])
    finally:
        worker.stop()
        thread.join()


# -- order ---------------------------------------------------------------------------------------------------


def claimed(store: Store, worker: str, *, most: int = 10) -> list[Any]:
    return store.exchange(worker, [], [ClaimRequest("default", most)], most).claims


def test_a_job_of_the_inbox_comes_before_those_that_were_enqueued_after_its_commit(shop: Shop) -> None:
    store = shop.app.store
    with shop.connect() as connection:
        with shop.app.transaction(connection):
            first = shop.both.enqueue(7, 1)
        connection.commit()
    second = shop.ship.enqueue(7, 2)
    [claim] = claimed(store, "w")
    assert claim.unit.id == first.id
    assert shop.app.inspect.job(second.id) is not None


def test_only_what_comes_behind_one_of_the_inbox_in_its_lane_goes_there_too(shop: Shop) -> None:
    shop.ship.enqueue(0)
    with shop.connect() as connection, shop.app.transaction(connection):
        shop.both.enqueue(7, 1)
        beside = [shop.ship.enqueue(8), shop.ship.using(queue="other").enqueue(7)]
        assert [shop.ship.enqueue(7, 2).created, *(job.created for job in beside)] == [None, True, True]
        assert connection.execute("select count(*) from laneway.inbox").fetchall() == [(2,)]
        many = [("a", "x", None), ("b", "x", "u"), ("c", "x", None), ("d", "y", None), ("d", None, None), ("e", None, "v")]
        text = json.dumps([{"task": "ship", "id": id_, "lane": lane, "unique": key} for id_, lane, key in many])
        rows = connection.execute("select id, created from laneway.enqueue(%s)", (text,)).fetchall()
        assert rows == [("a", True), ("b", None), ("c", None), ("d", True), ("d", False), ("e", None)]
        assert connection.execute("select count(*) from laneway.inbox").fetchall() == [(5,)]


def test_so_it_does_when_the_lane_is_handed_on(shop: Shop) -> None:
    from laneway.core.outcome import Done  # noqa: PLC0415 - for this one

    store = shop.app.store
    shop.ship.enqueue(7, 0)
    [head] = claimed(store, "w", most=1)
    with shop.connect() as connection:
        with shop.app.transaction(connection):
            first = shop.both.enqueue(7, 1)
        connection.commit()
    shop.ship.enqueue(7, 2)
    shop.ship.enqueue(7, 3)
    assert claimed(store, "v") == []  # they are parked behind the head
    with shop.connect() as connection:
        with shop.app.transaction(connection):
            shop.both.enqueue(7, 4)
        connection.commit()
    store.exchange("w", [Settled(head, (Done(),), 0, 0)], [], 0)
    [claim] = claimed(store, "v")
    assert claim.unit.id == first.id


@pytest.mark.parametrize("settled", [0, 1, 2])
def test_it_is_not_overtaken_either_if_it_leaves_the_inbox_during_the_exchange(shop: Shop, settled: int) -> None:
    store = shop.app.store
    waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
    for order in (7, 8)[:settled]:
        shop.ship.enqueue(order)
    heads = claimed(store, "w")
    assert len(heads) == settled
    with shop.connect() as connection, shop.connect() as pause:
        with shop.app.transaction(connection):
            first = shop.both.enqueue(7, 1)
        second = shop.ship.enqueue(7, 2)
        connection.commit()
        pause.execute("select from laneway.job where id = %s for update", (second.id,))
        found: list[str] = []

        def exchange() -> None:
            outcomes = [Settled(head, (Done(),), 0, 0) for head in heads]
            answer = store.exchange("w", outcomes, [ClaimRequest("default", 5)], 5)
            found.extend(claim.unit.id for claim in answer.claims)

        thread = threading.Thread(target=exchange)
        thread.start()
        wait_until(lambda: bool(shop.server.ask(waiting)) or not thread.is_alive())
        with store.turn():  # type: ignore[attr-defined]  # empties the inbox first
            pass
        pause.rollback()
        thread.join()
    assert found == [first.id]


def test_a_job_of_the_inbox_is_not_stranded_behind_where_its_lane_begins(shop: Shop) -> None:
    """While the holder of a lane is cancelled, a job for the lane is committed that was enqueued before the others."""
    store = shop.app.store
    head = shop.ship.enqueue(7)
    [claim] = claimed(store, "w")
    with shop.connect() as connection:
        with shop.app.transaction(connection):
            first = shop.both.enqueue(7, 1)
        second = shop.ship.enqueue(7, 2)
        assert claimed(store, "v") == []  # parked behind the head
        store.exchange("w", [Settled(claim, (Snoozed(60_000_000),), 0, 0)], [], 0)
        time.sleep(0.06)  # the time at which no push was open is noted once in 50 ms
        with store.turn() as turn:  # type: ignore[attr-defined]  # as a cancel does
            connection.commit()
            turn.hold((head.id,))
            assert actions._act(turn, turn.find("find", id=head.id), actions._cancel)
    ids: list[str] = []
    for _ in range(6):
        for claim in claimed(store, "w"):
            ids.append(claim.unit.id)
            assert claimed(store, "v") == []  # parks what is due
            store.exchange("w", [Settled(claim, (Done(),), 0, 0)], [], 0)
    assert sorted(ids) == sorted([first.id, second.id])


def test_each_unique_job_joins_once_whoever_lets_it(shop: Shop) -> None:
    shop.ship.enqueue(0)
    apps = [App(shop.server.url) for _ in range(3)]
    stop = threading.Event()

    def look(app: App) -> None:
        while not stop.is_set():
            app.inspect.counts()

    threads = [threading.Thread(target=look, args=(app,)) for app in apps]
    for thread in threads:
        thread.start()
    with shop.connect() as connection:
        for order in range(100):
            with shop.app.transaction(connection):
                shop.once.enqueue(order % 50)
                shop.save.enqueue(str(order % 10), order)
            connection.commit()
    stop.set()
    for thread, app in zip(threads, apps, strict=True):
        thread.join()
        app.close()
    assert shop.jobs == 1 + 50 + 10
    Worker(shop.app).run(burst=True)
    lanes = [run for run in ran if isinstance(run, dict)]
    assert sorted(order for lane in lanes for payloads in lane.values() for order in payloads) == list(range(100))
    assert shop.server.ask("select count(*) from laneway.inbox") == [(0,)]


@pytest.mark.parametrize("how", ["desk", "SQL"])
def test_a_key_until_the_end_is_kept_by_the_inbox(shop: Shop, how: str) -> None:
    shop.ship.enqueue(0)
    [_] = shop.app.store.exchange("v", [], [ClaimRequest("default", 1)], 1).claims

    def enqueue() -> None:
        with shop.connect() as connection:
            if how == "SQL":
                job = {"task": "once", "args": [1], "unique": "k", "unique_until": "end"}
                connection.execute("select laneway.enqueue(%s)", (json.dumps(job),))
            else:
                shop.once.using(connection=connection, unique_until="end").enqueue(1)

    enqueue()
    assert shop.jobs == 2  # it has joined
    held = shop.app.store.exchange("w", [], [ClaimRequest("default", 5)], 5).claims
    enqueue()
    assert (len(held), shop.jobs) == (1, 2)  # it runs, and prevents the second

    shop.app.store.exchange("w", [settled_alike(held[0], Done(), 1, 2)], [], 0)
    enqueue()
    assert shop.jobs == 2


def test_a_dead_job_is_replayed_without_its_key_if_another_takes_that_at_the_same_moment(shop: Shop) -> None:
    store = shop.app.store
    store.push([Job("a", "t", "default", b"[[],{}]", unique="k", until_end=True)])
    [held] = store.exchange("w", [], [ClaimRequest("default", 1)], 1).claims
    store.exchange("w", [settled_alike(held, Dead(ErrorInfo(kind="E", message="no")), 1, 2)], [], 0)
    found: list[bool] = []
    with shop.connect() as other:
        other.execute(  # as a push does that has not committed
            "insert into laneway.job (seq, id, queue, task, rank, place, due, state, enqueued, unique_key, body) "
            "values (nextval('laneway.seq'), 'b', 'default', 't', 0, 1, 1, 1, 1, 'k', '')"
        )
        thread = threading.Thread(target=lambda: found.append(shop.app.inspect.retry("a")))
        thread.start()
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%end_key%'"
        wait_until(lambda: shop.server.ask(waits) == [(1,)])
        other.commit()
    thread.join(30)
    assert found == [True]
    a, b = shop.app.inspect.job("a"), shop.app.inspect.job("b")
    assert a is not None
    assert b is not None
    assert (a.state, a.unique, b.unique) == ("ready", False, True)


def test_a_queue_of_the_other_kind_is_refused(shop: Shop) -> None:
    shop.save.enqueue("a", 1)
    with shop.connect() as connection:
        with pytest.raises(WrongQueue):
            shop.once.using(connection=connection, queue="save").enqueue(1)
        with pytest.raises(psycopg.Error, match="save"):
            connection.execute("select laneway.enqueue(%s)", ('{"task": "a", "queue": "save"}',))
        connection.rollback()
        with pytest.raises(psycopg.Error, match="save"):
            connection.execute("select laneway.enqueue(%s)", ('{"task": "a", "queue": "save", "unique": "u"}',))


# -- by SQL alone --------------------------------------------------------------------------------------------


def test_a_trigger_enqueues(shop: Shop) -> None:
    shop.ship.enqueue(0)
    shop.server.ask("drop table if exists triggers")
    shop.server.ask("create table triggers (id int)")
    shop.server.ask("""create or replace function on_order() returns trigger language plpgsql as $$ begin
        perform laneway.enqueue(json_build_object('task', 'ship', 'args', json_build_array(new.id), 'lane', new.id)::text);
        return new; end $$""")
    shop.server.ask("create trigger enqueues after insert on triggers for each row execute function on_order()")
    with shop.connect() as connection:
        connection.execute("insert into triggers values (5), (6)")
        connection.rollback()
        connection.execute("insert into triggers values (7), (8)")
    Worker(shop.app).run(burst=True)
    assert sorted(ran) == [(0, 0), (7, 0), (8, 0)]


def test_the_fields_by_sql(shop: Shop) -> None:
    job = {"task": "ship", "kwargs": {"order": 1}, "queue": "q", "lane": "l", "run_after": 60, "expires": 5, "unique": "u"}
    shop.ship.enqueue(0)
    [(id_, created)] = shop.server.ask("select * from laneway.enqueue(%s)", json.dumps({**job, "id": "i"}))
    assert (id_, created) == ("i", None)
    found = shop.app.inspect.job("i")
    assert found is not None
    assert (found.task, found.queue, found.lane, found.state, found.kwargs) == ("ship", "q", "l", "scheduled", {"order": 1})
    rows = shop.server.ask("select * from laneway.enqueue(%s)", json.dumps([{"task": "a", "id": "x"}, {"task": "a", "id": "x"}]))
    assert rows == [("x", True), ("x", False)]
    [(made, _)] = shop.server.ask("""select * from laneway.enqueue('{"task": "a", "run_after": "2999-01-31T12:00:00Z"}')""")
    later = shop.app.inspect.job(made)
    assert later is not None
    assert later.due_at.isoformat() == "2999-01-31T12:00:00+00:00"
    [(made, _)] = shop.server.ask("""select * from laneway.enqueue('{"task": "a", "priority": 5}')""")
    urgent = shop.app.inspect.job(made)
    assert urgent is not None
    assert urgent.priority == 5


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("3", "takes a job as JSON"),
        ("[3]", "3 is no job"),
        ("{}", "task: name the task"),
        ('{"task": "a", "arguments": []}', 'has no field "arguments"; it has: task'),
        ('{"task": "a", "args": {}}', "args: use an array"),
        ('{"task": "a", "kwargs": []}', "kwargs: use an object"),
        ('{"task": "a", "queue": "a b"}', "queue: use"),
        ('{"task": "a", "id": "a b"}', "id: use"),
        ('{"task": "a", "lane": ""}', "lane: use"),
        ('{"task": "a", "priority": 101}', "priority: use"),
        ('{"task": "a", "lane": "l", "priority": 1}', "lane and priority together"),
        ('{"task": "a", "run_after": -1}', "run_after: use seconds"),
        ('{"task": "a", "expires": 0}', "expires: use seconds"),
        ('{"task": "a", "unique": "u", "unique_until": "start"}', 'unique_until: use "claim" or "end"'),
        ('{"task": "a", "unique_until": "end"}', "unique_until goes with unique"),
        ('{"task": "a b"}', "task: name the task"),
        (f'{{"task": "a", "lane": "{"l" * 501}"}}', "lane: use"),
        ('{"task": "a", "unique": ""}', "unique: use"),
        (f'{{"task": "a", "unique": "{"u" * 501}"}}', "unique: use"),
        ('{"task": "a", "run_after": true}', "run_after: use seconds"),
        ('{"task": "a", "expires": "1"}', "expires: use seconds"),
        (f'{{"task": "a", "args": ["{"a" * 1_000_000}"]}}', "larger than 1,000,000 bytes"),
        ('{"version": 99, "jobs": []}', "this program wants 99"),
    ],
)
def test_what_is_no_job_by_sql(shop: Shop, job: str, said: str) -> None:
    shop.app.inspect.counts()
    with closing(shop.connect()) as connection, pytest.raises(psycopg.Error, match=said):
        connection.execute("select laneway.enqueue(%s)", (job,))


def test_a_role_needs_only_the_right_to_enqueue(shop: Shop) -> None:
    shop.ship.enqueue(0)
    server = shop.server
    server.ask("do $$ begin create role clerk login; exception when duplicate_object then null; end $$")
    url = server.url.replace(f"{postgresbench.USER}@", "clerk@")
    with closing(psycopg.connect(url)) as connection:
        with pytest.raises(StoreUnavailable, match="grant usage on schema laneway"):
            shop.ship.using(connection=connection).enqueue(1)
        connection.rollback()
        server.ask("grant usage on schema laneway to clerk")
        server.ask("grant execute on function laneway.enqueue(text) to clerk")
        shop.enqueue_each(connection, 1)
        connection.commit()
    assert shop.jobs == 4
    shop.app.store.migrate()
    server.ask("drop owned by clerk; drop role clerk")


def test_functions_of_another_version_are_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.ship.enqueue(0)
    monkeypatch.setattr("laneway.store.postgres.joining.VERSION", 99)
    with shop.connect() as connection, pytest.raises(SchemaError, match="this program wants 99"):
        shop.ship.using(connection=connection).enqueue(1)


def test_a_schema_of_another_name(shop: Shop) -> None:
    shop.server.drop("jobs")
    app = App(f"{shop.server.url}?schema=jobs")

    @app.task(unique=True)
    def once() -> None: ...

    with shop.connect() as connection:
        with app.transaction(connection):
            once.enqueue()
        connection.commit()
    assert sum(app.inspect.counts().values()) == 1
    app.close()
    shop.server.drop("jobs")


def test_a_server_that_was_started_anew_is_the_same_one(shop: Shop) -> None:
    server = postgresbench.Server()
    try:
        app = App(server.url)

        @app.task
        def work() -> None: ...

        for expected in (1, 2):
            with psycopg.connect(server.url) as connection:
                work.using(connection=connection).enqueue()
            assert sum(app.inspect.counts().values()) == expected
            server.stop()
            server.start()
        app.close()
    finally:
        server.remove()
