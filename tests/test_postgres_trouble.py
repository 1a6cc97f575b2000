"""PostgreSQL in trouble: nothing that was accepted is lost, errors say what to do, and workers go on soon after."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import postgresbench
from conftest import SOAK, often
from laneway import App
from laneway.errors import StoreBusy, StoreFull, StoreReadOnly, StoreUnavailable
from laneway.store.contract import ClaimRequest, WorkerInfo
from workbench import DEADLINE, SOON, until

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

import psycopg

from laneway.store.postgres import PostgresInspect, PostgresStore
from laneway.store.sql.rows import RUNNING
from postgresscene import AGAIN_WITHIN, Scene, claim, done, fails, job, restart, terminate, trouble, works


@pytest.fixture(scope="module")
def own() -> Iterator[postgresbench.Server]:
    postgresbench.server()  # or skip
    made = postgresbench.Server("max_connections=30", "superuser_reserved_connections=0")
    yield made
    made.remove()


@pytest.fixture
def server(own: postgresbench.Server) -> Iterator[postgresbench.Server]:
    """A server of our own, without tables, and with its settings as they were."""
    own.drop()
    yield own
    own.ask("ALTER ROLE postgres RESET ALL")
    own.ask("ALTER DATABASE postgres RESET ALL")


@pytest.fixture
def store(server: postgresbench.Server) -> Iterator[PostgresStore]:
    made = PostgresStore(server.url, connections=3)
    made.push([job("other")])
    yield made
    made.close()


def refuses_writes(server: postgresbench.Server) -> None:
    """Check what each verb says of a server that is read-only."""
    store = PostgresStore(server.url)
    verbs = (
        lambda: store.push([job()]),
        lambda: claim(store),
        lambda: store.beat([WorkerInfo("w")]),
        lambda: store.give_back("w"),
    )
    for verb in verbs:
        fails(verb, StoreReadOnly, "is read-only: a replica, perhaps after a failover.*use its primary's address")
    assert PostgresInspect(store).counts()
    store.close()


def test_a_server_that_is_restarted_loses_nothing(server: postgresbench.Server) -> None:
    trouble(server.url, lambda: restart(server, 0.3))


def test_a_server_that_is_killed_loses_nothing(server: postgresbench.Server) -> None:
    # Claims of jobs without a lane are not waited for: these may run again. What is in a lane must not.
    scene = trouble(server.url, lambda: restart(server, kill=True), times=often(1, 10), repeats=True)
    ran = Counter(id_ for id_, lane, *_ in scene.runs if lane)
    assert max(ran.values()) == 1


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="only with make soak")
@pytest.mark.timeout(300)
def test_a_server_that_is_away_for_a_minute_is_waited_for(server: postgresbench.Server) -> None:
    trouble(server.url, lambda: restart(server, 60.0))


def test_sessions_that_are_ended_in_the_middle_lose_nothing(server: postgresbench.Server) -> None:
    active = 0

    def happens() -> None:
        nonlocal active
        for _ in range(10):
            active += terminate(server)
            time.sleep(0.02)

    trouble(server.url, happens, times=often(2, 20))
    assert active


def test_a_frozen_server_is_waited_for(server: postgresbench.Server) -> None:
    scene = Scene(server.url, enqueue_timeout=0.5)
    with server.frozen():
        until(lambda: any("did not answer in time" in str(error) for _, error in scene.failures), "a caller that gives up")
    assert scene.again() < AGAIN_WITHIN
    scene.finish()


def test_a_standby_after_a_failover_is_read_only_until_it_is_promoted(server: postgresbench.Server) -> None:
    def fail_over() -> None:
        server.stop()
        (server.data / "standby.signal").touch()
        server.start()
        refuses_writes(server)
        server.ask("SELECT pg_promote()")

    scene = trouble(server.url, fail_over)
    assert any(isinstance(error, StoreReadOnly) for _, error in scene.failures)


def test_a_standby_shows_the_jobs_while_others_wait_in_the_inbox(server: postgresbench.Server) -> None:
    app = App(server.url)

    @app.task(name="once", unique=True)
    def once(order: int) -> None: ...

    once.enqueue(1)
    with psycopg.connect(server.url) as connection, app.transaction(connection):
        once.enqueue(2)
    app.close()
    assert server.ask("SELECT count(*) FROM laneway.inbox") == [(1,)]
    server.stop()
    (server.data / "standby.signal").touch()
    server.start()
    try:
        assert app.inspect.counts()["ready"] == 1
        assert len(app.inspect.jobs()) == 1
        assert [queue.counts["ready"] for queue in app.inspect.queues()] == [1]
        assert app.inspect.workers() == []
        assert app.stats.totals()["enqueued"] == 1
        with pytest.raises(StoreReadOnly):
            app.inspect.pause("default")
    finally:
        server.ask("SELECT pg_promote()")
    assert app.inspect.counts()["ready"] == 2
    app.close()


def test_a_server_that_takes_no_more_connections_is_waited_for(server: postgresbench.Server) -> None:
    def happens() -> None:
        terminate(server)
        with contextlib.ExitStack() as clients:
            with contextlib.suppress(psycopg.OperationalError):
                while True:
                    clients.enter_context(contextlib.closing(psycopg.connect(server.url)))
            store = PostgresStore(server.url)
            fails(lambda: store.push([job()]), StoreUnavailable, "takes no more connections.*raise its max_connections")

    trouble(server.url, happens)


# -- what the DBA has set -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(server: postgresbench.Server, table: str = "job", *, prepared: bool = False) -> Iterator[psycopg.Connection]:
    """Let somebody else have a table's lock: in an idle transaction, or in one that was prepared and forgotten."""
    with psycopg.connect(server.url, autocommit=True) as client:
        client.execute("BEGIN")
        client.execute(f"LOCK TABLE laneway.{table} IN ACCESS EXCLUSIVE MODE".encode())
        if prepared:
            client.execute("PREPARE TRANSACTION 'forgotten'")
        yield client
        client.execute("ROLLBACK PREPARED 'forgotten'" if prepared else "ROLLBACK")


def sessions(server: postgresbench.Server) -> int:
    return int(server.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'laneway'")[0][0])


@pytest.mark.parametrize("prepared", [False, True])
def test_a_transaction_that_holds_a_lock_for_long_makes_calls_fail_in_time_and_piles_up_no_sessions(
    server: postgresbench.Server, store: PostgresStore, prepared: bool
) -> None:
    with locked(server, prepared=prepared):
        says = "a lock was not free in time.*lock timeout.*laneway doctor"
        assert fails(lambda: store.push([job()]), StoreBusy, says) < SOON
        for _ in range(often(3, 20)):
            with pytest.raises(StoreUnavailable, match="did not answer in time"):  # perhaps before anything was sent
                store.push([job()], timeout=0.1)
        until(lambda: sessions(server) <= 3, "the end of sessions that nobody waits for")
    works(store)


def test_a_lock_on_the_counts_costs_no_claims(server: postgresbench.Server, store: PostgresStore) -> None:
    store.push([job()])
    store.wire.timeout = 0.5
    with locked(server, "books"):
        [held] = claim(store)
    assert store.exchange("w", done([held]), [], 0).refused == []


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="only with make soak")
def test_a_transaction_of_a_process_that_is_frozen_ends_and_holds_up_nobody(
    server: postgresbench.Server, store: PostgresStore
) -> None:
    store.push([job("x", "lane")])
    [held] = claim(store, "x")
    frozen = PostgresStore(server.url)

    def freeze() -> None:
        with frozen.turn() as turn:
            turn.hold([held.unit.id])
            time.sleep(12)
            turn.hold([held.unit.id])

    thread = threading.Thread(target=lambda: fails(freeze, StoreUnavailable, "idle-in-transaction timeout", written=None))
    thread.start()
    time.sleep(0.5)
    fails(lambda: store.recover("w", "it is frozen"), StoreBusy, "a lock was not free in time")
    until(lambda: not server.ask("SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"), "the end of it")
    assert store.recover("w", "it is frozen") == [held.unit.id]
    thread.join(DEADLINE)
    frozen.close()


def test_a_lock_timeout_of_the_dba_is_no_more_than_a_pause(server: postgresbench.Server) -> None:
    PostgresStore(server.url).migrate()
    server.ask("ALTER ROLE postgres SET lock_timeout = '20ms'")
    store = PostgresStore(server.url)
    with locked(server) as client:
        timer = threading.Timer(0.3, client.execute, ["ROLLBACK"])
        timer.start()
        assert store.push([job()]) == [None]
        timer.join()
    works(store)
    store.close()


def test_a_statement_timeout_of_the_dba_is_named(server: postgresbench.Server) -> None:
    PostgresStore(server.url).migrate()
    server.ask("ALTER ROLE postgres SET statement_timeout = '100ms'")
    store = PostgresStore(server.url)
    with locked(server):
        says = "ended the statement.*statement timeout.*Nothing was written: raise the statement_timeout of this user"
        for verb in (lambda: store.push([job()]), lambda: claim(store), lambda: store.give_back("w")):
            fails(verb, StoreBusy, says)
    works(store)
    store.close()


def test_serializable_as_the_default_changes_nothing(server: postgresbench.Server) -> None:
    server.ask("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'")
    scene = trouble(server.url, lambda: None)
    assert not scene.failures
    store = PostgresStore(server.url, connections=1)
    with store.wire.lend() as line:
        line.ask("set default_transaction_isolation = 'repeatable read'")  # as a pooler would lend it
    fails(lambda: store.push([job()]), StoreUnavailable, "another level than READ COMMITTED.*repeatable read")
    store.close()


def test_a_database_that_is_set_read_only_is_waited_for(server: postgresbench.Server) -> None:
    def happens() -> None:
        server.ask("ALTER DATABASE postgres SET default_transaction_read_only = on")
        terminate(server)
        refuses_writes(server)
        with psycopg.connect(server.url, autocommit=True) as client:
            client.execute("SET default_transaction_read_only = off")
            client.execute("ALTER DATABASE postgres RESET default_transaction_read_only")

    scene = trouble(server.url, happens)
    assert {type(error) for _, error in scene.failures} <= {StoreReadOnly, StoreUnavailable}


def test_a_commit_that_fails_after_all_was_answered_is_an_error(server: postgresbench.Server, store: PostgresStore) -> None:
    code = "BEGIN RAISE EXCEPTION 'not today' USING ERRCODE = '58030'; END"
    server.ask(f"CREATE FUNCTION laneway.no() RETURNS trigger LANGUAGE plpgsql AS $$ {code} $$")
    when = "AFTER INSERT ON laneway.job DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
    server.ask(f"CREATE CONSTRAINT TRIGGER no {when} EXECUTE FUNCTION laneway.no()")
    for queue in ("default", "other"):
        fails(lambda queue=queue: store.push([job(queue)]), StoreUnavailable, "not today.*see its log")  # type: ignore[misc]
    assert PostgresInspect(store).counts()["ready"] == 1
    server.ask("DROP TRIGGER no ON laneway.job")
    works(store)


@pytest.fixture
def small_disk(server: postgresbench.Server) -> Iterator[str]:
    """A folder with room for 4 MB."""
    folder = Path(server.folder, "small")
    folder.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder], capture_output=True, check=False)  # noqa: S607
    if mounted.returncode:
        pytest.skip("mounts nothing here")
    postgresbench._give(folder)
    yield str(folder)
    server.drop()
    server.ask("DROP TABLESPACE IF EXISTS small")
    subprocess.run(["umount", folder], check=True)  # noqa: S607


def test_a_full_disk_is_an_error_and_what_fits_again_is_taken(
    server: postgresbench.Server, store: PostgresStore, small_disk: str
) -> None:
    server.ask(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    server.ask("ALTER TABLE laneway.job SET TABLESPACE small")
    accepted = 0

    def fill() -> None:
        nonlocal accepted
        while accepted < 1000:
            store.push([job("big", body=os.urandom(20_000))])
            accepted += 1

    fails(fill, StoreFull, "has no room left.*No space left on device.*Nothing was written")
    assert PostgresInspect(store).counts()["ready"] == accepted + 1
    subprocess.run(["mount", "-o", "remount,size=16m", small_disk], check=True)  # noqa: S607
    works(store)
    assert len(claim(store, "big", 1000)) == accepted


# -- many ----------------------------------------------------------------------------------------------------------


def at_once(number: int, work: Callable[[int], None]) -> None:
    """Let threads begin something at the same moment, and wait for all of them; raise what one of them has raised."""
    together = threading.Barrier(number)

    def begin(n: int) -> None:
        together.wait(DEADLINE)
        work(n)

    with ThreadPoolExecutor(number) as pool:
        list(pool.map(begin, range(number)))


#: The most connections that a server takes as it comes, and its table of locks.
AS_IT_COMES = ("max_connections=100", "max_prepared_transactions=0")
QUEUES = [f"q{number:03}" for number in range(1000)]


def wants_of(number: int, most: int) -> list[ClaimRequest]:
    """Return what a worker wants of a thousand queues, each beginning with others."""
    return [ClaimRequest(queue, most) for queue in QUEUES[number * 15 :] + QUEUES[: number * 15]]


@contextlib.contextmanager
def stores_on(*options: str) -> Iterator[list[PostgresStore]]:
    """Give 64 workers a store each, on a server of their own."""
    postgresbench.server()  # or skip
    server = postgresbench.Server(*options)
    stores = [PostgresStore(server.url, connections=1, timeout=DEADLINE, enqueue_timeout=DEADLINE) for _ in range(64)]
    try:
        yield stores
        for store in stores:
            store.close()
    finally:
        server.remove()


def test_64_workers_and_1000_queues_have_room_in_the_servers_table_of_locks() -> None:
    found: Counter[str] = Counter()
    with stores_on(*AS_IT_COMES) as stores:
        stores[0].push([job(queue, f"l{n % often(2, 20)}") for queue in QUEUES for n in range(often(2, 60))])

        def work(number: int) -> None:
            for _ in range(often(1, 20)):
                held = stores[number].exchange(f"w{number}", [], wants_of(number, 25), 25).claims
                found.update(one.unit.id for one in held)
                assert stores[number].exchange(f"w{number}", done(held), [], 0).refused == []

        at_once(64, work)
        assert PostgresInspect(stores[0]).counts()["running"] == 0
    assert set(found.values()) == {1}
    assert len(found) == 64 * 25 * often(1, 20)


def test_lanes_that_cannot_be_claimed_do_not_fill_the_servers_table_of_locks(
    server: postgresbench.Server, store: PostgresStore
) -> None:
    """A worker that looks at a lane has its lock: of many lanes whose jobs run it must not look at all in one step."""
    lanes = [f"l{number}" for number in range(400)]
    store.push([job(lane=lane) for lane in lanes])
    server.ask("UPDATE laneway.job SET state = %s, holds = 1, worker = 'busy', token = seq WHERE lane IS NOT NULL", RUNNING)
    store.push([job(lane=lane) for lane in lanes])
    looks = 0
    more = True
    while more:
        with store.turn() as turn:
            epoch = store._exchanges._epoch(turn.line, "w")
            asked = store._exchanges._request([], [ClaimRequest("default", 10)], 10)
            answer = turn.line.ask(*store._exchanges._call("w", epoch, asked))
            claims, _, more, _ = store._exchanges._heard(answer, asked)
            assert claims == []
            mine = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
            assert turn.line.ask(mine)[0][0] <= 64 + 64 + 2
        looks += 1
    assert looks < 10, "each step passes by many"
