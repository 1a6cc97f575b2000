"""Finishing in the user's transaction on PostgreSQL: nobody waits for one that is open, however long, prepared or lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import postgresbench
from laneway import App, JobContext, Worker, current_job
from laneway.core.job import Claim
from laneway.core.outcome import Done, ErrorInfo, Outcome, Retrying, Settled
from laneway.errors import ClaimLost, SchemaError, StoreBusy, StoreReadOnly, StoreUnavailable
from laneway.testing import wait_until
from settling import settled_alike

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

import psycopg
from psycopg import IsolationLevel

from laneway.store.contract import ClaimRequest, WorkerInfo
from laneway.store.postgres import PostgresStore

FAILED = Retrying(0, ErrorInfo(kind="ValueError", message="no"))


class Shop:
    """A store with jobs of one lane, claimed by hand, and a user's connection."""

    def __init__(self) -> None:
        self.server = postgresbench.renewed()
        self.app = app = App(self.server.url)

        @app.task(name="ship", lane="order")
        def ship(order: int) -> None: ...

        self.ship, self.store = ship, app.store

    def connect(self, **options: Any) -> psycopg.Connection:
        return psycopg.connect(self.server.url, **options)

    def claim(self, worker: str = "w", most: int = 9) -> list[Claim]:
        return self.store.exchange(worker, [], [ClaimRequest("default", most)], most).claims

    def begin(self, order: int = 1) -> JobContext:
        self.ship.enqueue(order)
        [claim] = self.claim()
        return self.context(claim)

    def context(self, claim: Claim) -> JobContext:
        job = JobContext(claim, [], {}, {}, started=7)
        job.declared = self.ship
        return job

    def settled(self, *jobs: JobContext, outcome: Outcome, keep: int = 0) -> list[Settled]:
        return [settled_alike(job.claim, outcome, 7, 8, keep) for job in jobs]


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    made.app.close()


def finishing(settled: list[Settled], *jobs: JobContext) -> list[Settled]:
    """As the worker of runs settles them that have called finish."""
    tokens = [job.token for job in jobs]
    return [Settled(one.claim, one.outcomes, one.started, one.finished, one.keep, one.claim.token in tokens) for one in settled]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize(("outcome", "keep"), [(Done(), 0), (Done(), 60_000_000), (FAILED, 0)], ids=["done", "kept", "failed"])
def test_settling_beside_an_open_finish_waits_for_that_job_alone(shop: Shop, commits: bool, outcome: Outcome, keep: int) -> None:
    job, beside, rolled_back = shop.begin(1), shop.begin(2), shop.begin(3)
    with closing(shop.connect()) as connection:
        job.finish(connection)
        settled = finishing(shop.settled(job, beside, rolled_back, outcome=outcome, keep=keep), job, rolled_back)
        answer = shop.store.exchange("w", settled, [], 0)
        assert (answer.refused, answer.later) == ([], frozenset({job.token}))
        (connection.commit if commits else connection.rollback)()

    answer = shop.store.exchange("w", settled[:1], [], 0)

    assert (answer.refused, answer.later) == ([], frozenset())
    retried = outcome is FAILED
    assert shop.app.inspect.counts()["retrying"] + shop.app.inspect.counts()["ready"] == 2 * retried + (retried and not commits)
    assert (job.id in [found.id for found in shop.app.inspect.jobs()]) == (retried and not commits)


def test_a_claim_that_is_gone_is_refused_and_not_settled_later(shop: Shop) -> None:
    job = shop.begin()
    shop.store.recover("w", "frozen")

    answer = shop.store.exchange("w", finishing(shop.settled(job, outcome=Done()), job), [], 0)

    assert (answer.refused, answer.later) == ([job.id], frozenset())


def test_others_go_on_beside_an_open_finish(shop: Shop) -> None:
    job = shop.begin()
    with closing(shop.connect()) as connection:
        job.finish(connection)
        behind, beside = shop.ship.enqueue(1), shop.ship.enqueue(2)
        assert [claim.unit.id for claim in shop.claim("v")] == [beside.id]
        assert behind.state() == "blocked"
        shop.store.note([(job.id, job.token, b'{"progress":[1,2]}')])  # is not written, and does not wait
        assert shop.store.beat([]) == {}
        connection.commit()
    assert shop.store.exchange("w", shop.settled(job, outcome=Done()), [], 0).refused == []
    assert [claim.unit.id for claim in shop.claim("v")] == [behind.id]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("prepared", [True, False])
def test_recovery_leaves_what_an_open_transaction_finishes_until_that_ends(shop: Shop, commits: bool, prepared: bool) -> None:
    job, beside = shop.begin(1), shop.begin(2)
    with closing(shop.connect()) as connection:
        job.finish(connection)
        if prepared:
            connection.execute("prepare transaction 'mine'")
            connection.commit()

        assert shop.store.recover("w", "killed") == [beside.id]
        assert [claim.unit.id for claim in shop.claim("v")] == [beside.id]
        assert "w" in [worker.id for worker in shop.app.inspect.workers()]  # it is found dead again

        if prepared:
            connection.autocommit = True
            connection.execute("commit prepared 'mine'" if commits else "rollback prepared 'mine'")
        else:
            (connection.commit if commits else connection.rollback)()

    assert shop.store.recover("w", "killed") == ([] if commits else [job.id])
    assert "w" not in [worker.id for worker in shop.app.inspect.workers()]
    assert shop.app.store_inspect.totals()["processed"] == commits


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("act", ["cancel", "delete", "kill"])
def test_an_action_waits_for_an_open_finish_and_yields_to_its_commit(shop: Shop, act: str, commits: bool) -> None:
    job = shop.begin()
    done: list[bool] = []
    with closing(shop.connect()) as connection:
        job.finish(connection)
        acting = threading.Thread(target=lambda: done.append(getattr(shop.app.inspect, act)(job.id)))
        acting.start()
        wait_until(lambda: shop.server.ask("select 1 from pg_locks where not granted") != [])
        (connection.commit if commits else connection.rollback)()
    acting.join()

    assert done == [not commits]
    assert shop.store.beat([WorkerInfo("w")])["w"].marks == ({} if commits else {job.id: act})


def test_an_action_beside_a_finish_that_stays_open_says_what_to_do(shop: Shop) -> None:
    job = shop.begin()
    assert isinstance(shop.store, PostgresStore)
    shop.store.wire.timeout = 2.5
    with closing(shop.connect()) as connection:
        job.finish(connection)
        with pytest.raises(StoreBusy, match="`laneway doctor` names the transaction that holds it"):
            shop.app.inspect.cancel(job.id)
        connection.commit()
    assert shop.store.exchange("w", finishing(shop.settled(job, outcome=Done()), job), [], 0).refused == []


def test_giving_back_waits_neither_for_what_is_kept_nor_for_others(shop: Shop) -> None:
    kept, given = shop.begin(1), shop.begin(2)
    shop.ship.enqueue(3)
    [theirs] = shop.claim("v")
    with closing(shop.connect()) as connection:
        kept.finish(connection)
        shop.context(theirs).finish(connection)
        assert shop.store.give_back("w", keep=[kept.token]) == [given.id]


def test_a_connection_that_dies_gives_its_job_back(shop: Shop) -> None:
    job = shop.begin()
    connection = shop.connect()
    job.finish(connection)
    shop.server.ask(f"select pg_terminate_backend({connection.info.backend_pid})")
    wait_until(lambda: shop.store.recover("w", "killed") == [job.id])
    connection.close()


def test_a_frozen_run_commits_though_its_worker_was_declared_dead_meanwhile(shop: Shop) -> None:
    job = shop.begin()
    with closing(shop.connect()) as connection:
        job.finish(connection)
        assert shop.store.recover("w", "its beat stood still") == []
        connection.commit()  # it wakes up

    assert shop.store.exchange("w", shop.settled(job, outcome=Done()), [], 0).refused == []
    assert shop.app.store_inspect.totals()["processed"] == 1


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_every_isolation_level_will_do_and_a_lost_claim_is_an_error_there_too(shop: Shop, level: IsolationLevel) -> None:
    with closing(shop.connect()) as connection:
        connection.isolation_level = level
        job = shop.begin()
        job.finish(connection)
        connection.commit()
        assert shop.store.recover("w", "killed") == []

        job = shop.begin()
        connection.execute("select 1 from laneway.job")
        shop.store.recover("w", "frozen")
        with pytest.raises((ClaimLost, psycopg.errors.SerializationFailure)):
            job.finish(connection)
        connection.rollback()
    [claim] = shop.claim("v")
    assert claim.unit.id == job.id


def test_two_transactions_of_one_run_do_not_both_finish_it(shop: Shop) -> None:
    job = shop.begin()
    with closing(shop.connect()) as one, closing(shop.connect()) as other:
        job.finish(one)
        with pytest.raises(StoreBusy, match="on another connection, is about to finish the same job"):
            job.finish(other)
        other.rollback()
        one.commit()


def test_rights_to_the_function_are_enough_and_the_error_names_them(shop: Shop) -> None:
    job = shop.begin()
    ask = shop.server.ask
    ask("drop role if exists web")
    ask("create role web login")
    try:
        address = psycopg.conninfo.make_conninfo(shop.server.url, user="web")
        ask("grant usage on schema laneway to web")
        ask("grant execute on function pg_control_system() to web")
        with closing(psycopg.connect(address)) as connection:
            with pytest.raises(StoreUnavailable, match=r"may not finish in .* execute on function laneway\.finish\(text\)"):
                job.finish(connection)
            connection.rollback()
            ask("grant execute on function laneway.finish(text) to web")
            connection.execute("set transaction read only")
            with pytest.raises(StoreReadOnly, match="finish in one that may write"):
                job.finish(connection)
            connection.rollback()
            job.finish(connection)
            connection.commit()
        assert shop.store.recover("w", "killed") == []
    finally:
        ask("drop owned by web")
        ask("drop role web")


def test_a_worker_settles_when_the_transaction_has_ended_that_its_run_left_open(shop: Shop) -> None:
    connection = shop.connect()
    returned = threading.Event()

    @shop.app.task(name="leave-open")
    def leave_open() -> None:
        current_job().finish(connection)
        returned.set()

    worker = Worker(shop.app, slots=1)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        job = leave_open.enqueue()
        assert returned.wait(30)
        beside = shop.ship.enqueue(1)  # is not held up
        wait_until(lambda: beside.state() in ("gone", "done"))
        assert job.state() == "running"
        connection.commit()
        wait_until(lambda: job.state() in ("gone", "done"))
    finally:
        worker.stop()
        thread.join()
        connection.close()
    assert shop.app.store_inspect.totals()["processed"] == 2


def test_functions_of_another_version_are_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    job = shop.begin()
    monkeypatch.setattr("laneway.store.postgres.joining.VERSION", 99)
    with shop.connect() as connection, pytest.raises(SchemaError, match="this program wants 99"):
        job.finish(connection)
