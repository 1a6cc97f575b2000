"""PostgreSQL behind PgBouncer in transaction mode: a session is ours for one transaction, and then another client's."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import postgresbench
from laneway.errors import StoreUnavailable
from settling import settled_alike

if postgresbench.pooler_why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.pooler_why_not(), allow_module_level=True)

import psycopg

from laneway.core.job import Gather, Job, lane_id
from laneway.core.outcome import Snoozed
from laneway.store.contract import ClaimRequest
from laneway.store.postgres import PostgresInspect, PostgresStore
from postgresscene import claim, done, fails, job, restart, terminate, trouble, works
from workbench import SOON


@pytest.fixture(scope="module")
def own() -> Iterator[postgresbench.Server]:
    postgresbench.server()  # or skip
    made = postgresbench.Server("max_connections=30")
    yield made
    made.remove()


@pytest.fixture
def server(own: postgresbench.Server) -> postgresbench.Server:
    own.drop()
    return own


@pytest.fixture
def pooler(server: postgresbench.Server) -> Iterator[postgresbench.Pooler]:
    made = postgresbench.Pooler(server, "default_pool_size=3", "server_login_retry=0.2")
    yield made
    made.remove()


def test_every_verb_works_and_prepared_statements_are_given_up_by_themselves(pooler: postgresbench.Pooler) -> None:
    stores = [PostgresStore(pooler.url, schema=name, timeout=20, enqueue_timeout=20) for name in ("laneway", "laneway", "other")]

    def use(number: int) -> None:
        store, queue, worker = stores[number % 3], f"q{number}", f"w{number}"
        for turn in range(4):
            payload = Job(lane_id("c" + queue, "l"), "c" + queue, "c" + queue, b"1", "l", gather=Gather())
            mine = [job(queue, "l"), job(queue)]
            assert store.push(mine if turn % 2 else mine[::-1]) == [None, None]
            store.push([payload])
            wants = [ClaimRequest(queue, 5), ClaimRequest("c" + queue, 5)]
            claims = store.exchange(worker, [], wants, 5).claims
            assert {one.queue for one in claims} == {queue, "c" + queue}
            assert {one.unit.id for one in claims} == {mine[0].id, mine[1].id, payload.id}
            later = [settled_alike(one, Snoozed(0), 1, 2) for one in claims]
            assert store.exchange(worker, later, [], 0).refused == []
            again = store.exchange(worker, [], wants, 5).claims
            assert store.exchange(worker, done(again), wants, 5).refused == []
            assert store.recover(worker, "it ended") == []

    with ThreadPoolExecutor(9) as pool:
        list(pool.map(use, range(9)))
    for store in stores:
        counts = PostgresInspect(store).counts()
        assert sum(counts.values()) == 0, counts
        store.close()


def test_a_pooler_that_cuts_loses_nothing(pooler: postgresbench.Pooler) -> None:
    def cut() -> None:
        pooler.stop(kill=True)
        time.sleep(0.2)
        pooler.start()

    trouble(pooler.url, cut, times=2)


def test_a_server_that_is_killed_behind_a_pooler_loses_nothing(
    pooler: postgresbench.Pooler, server: postgresbench.Server
) -> None:
    trouble(pooler.url, lambda: restart(server, kill=True), repeats=True)


def test_a_crash_that_a_pooler_hides_is_noticed() -> None:
    """What was settled a moment before may be running again, and nobody else would take it from a worker that lives."""
    server = postgresbench.Server("wal_writer_delay=10s")
    pooler = postgresbench.Pooler(server, "server_login_retry=0.2")
    store = PostgresStore(pooler.url, timeout=20, enqueue_timeout=20)
    mine = job()
    store.push([mine])
    [held] = claim(store)
    works(store)  # a commit that waits for the disk: the claim is on it, too
    assert store.exchange("w", done([held]), [], 0).refused == []
    restart(server, kill=True)

    with pytest.raises(StoreUnavailable, match="started anew"):
        store.exchange("w", [], [ClaimRequest("default", 1)], 1)
    assert store.give_back("w") == [mine.id]
    assert [again.unit.id for again in claim(store)] == [mine.id]
    store.close()
    pooler.remove()
    server.remove()


def test_sessions_that_are_ended_behind_a_pooler_lose_nothing(pooler: postgresbench.Pooler, server: postgresbench.Server) -> None:
    def happens() -> None:
        for _ in range(5):
            terminate(server)
            time.sleep(0.02)

    trouble(pooler.url, happens)


def test_a_pooler_without_a_free_session_is_named(server: postgresbench.Server) -> None:
    narrow = postgresbench.Pooler(server, "default_pool_size=1", "query_wait_timeout=1")
    store = PostgresStore(narrow.url, enqueue_timeout=5)
    works(store)
    with psycopg.connect(narrow.url) as client:
        client.execute("SELECT 1")  # a transaction: it has the only session
        fails(lambda: store.push([job()]), StoreUnavailable, "query_wait_timeout", written=None)
    works(store)
    store.close()
    narrow.remove()


@pytest.mark.parametrize("direct", [False, True])
def test_a_sleeper_is_woken_soon(pooler: postgresbench.Pooler, server: postgresbench.Server, direct: bool) -> None:
    """By looking often at first, then less; or, with an address past the pooler, by a notification."""
    store = PostgresStore(pooler.url, listen=server.url if direct else None)
    works(store)
    awake: list[float] = []

    def sleep() -> None:
        while not claim(store):
            store.wait(SOON)
        awake.append(time.monotonic())

    thread = threading.Thread(target=sleep)
    thread.start()
    time.sleep(0.3)
    pushed = time.monotonic()
    PostgresStore(pooler.url).push([job()])
    thread.join(SOON)
    assert awake[0] - pushed < SOON / 2
    assert store.bell._polls is not direct
    store.close()
