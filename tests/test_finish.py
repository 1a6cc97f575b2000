"""`current_job().finish(connection)`: the user's transaction ends the job, with every kind of connection to its store."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from laneway import App, JobContext, Retry, Worker, current_job
from laneway.core.job import Claim, Payload, Unit
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.desk.task_base import TaskBase
from laneway.errors import BadOption, ClaimLost, NotSameDatabase, StoreBusy
from laneway.store.contract import ClaimRequest, JoiningStore
from laneway.transactions.receipts import TABLE
from settling import settled_alike
from test_transactions import Scene, make, ran
from transactbench import SEATS, Seat

ERROR = ErrorInfo(kind="ValueError", message="no")
OUTCOMES: list[Outcome] = [Done(), Done(b'"mine"'), Retrying(0, ERROR), Snoozed(0), Dead(ERROR, halt=True), Cancelled()]


class FinishScene:
    """A scene whose jobs are claimed and settled by hand, by a worker called w."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.app = scene, scene.app
        self.store = cast("JoiningStore", scene.app.store)
        self.play, self.seat, self.is_postgres = scene.play, scene.seat, scene.is_postgres

        @scene.app.task(name="kept", keep_result=60)
        def kept() -> str:
            return "mine"

        self.kept = kept

    def claim(self, worker: str = "w", most: int = 1) -> list[Claim]:
        return self.store.exchange(worker, [], [ClaimRequest("default", most)], most).claims

    def begin(self, task: Any = None, *args: int) -> JobContext:
        """Enqueue a job and claim it, as a worker does before it runs."""
        task = task or self.scene.ship
        task.enqueue(*(args or (() if task is self.kept else (1,))))
        [claim] = self.claim()
        return self.context(claim, task)

    def context(self, claim: Claim, task: TaskBase) -> JobContext:
        job = JobContext(claim, [], {}, {}, started=7)
        job.declared = task
        return job

    def settle(self, job: JobContext, outcome: Outcome, worker: str = "w", keep: int = 0) -> list[str]:
        """Settle, and return the ids of what may be claimed then."""
        settled = [Settled(job.claim, (outcome,), 7, 8, keep, job.finishes)]
        answer = self.store.exchange(worker, settled, [ClaimRequest("default", 5)], 5)
        assert not answer.refused
        return [claim.unit.id for claim in answer.claims]

    def connect(self) -> Any:
        if self.is_postgres:
            return pytest.importorskip("psycopg").connect(self.scene.address)
        return sqlite3.connect(self.scene.address, timeout=0)

    def finish(self, job: JobContext, *, result: object = None) -> None:
        """Finish and commit, on a connection of its own."""
        connection = self.connect()
        try:
            job.finish(connection, result)
            connection.commit()
        finally:
            connection.close()

    @property
    def totals(self) -> dict[str, int]:
        found = self.app.store_inspect.totals()
        return {name: found[name] for name in ("processed", "failed", "recovered", "cancelled", "dead") if found[name]}

    @property
    def jobs(self) -> int:
        return self.scene.jobs


async def finish(seat: Seat, job: JobContext, result: object = None) -> None:
    """Finish in the way that fits."""
    if seat.is_async:
        await job.afinish(seat.connection, result)
    else:
        job.finish(seat.connection, result)


@pytest.fixture(params=SEATS, ids="-".join)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FinishScene]:
    """Every kind of connection."""
    store, driver = request.param
    for made in make(store, driver, tmp_path):
        yield FinishScene(made)


@pytest.fixture(params=["sqlite", "postgres"])
def usual(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FinishScene]:
    """The usual connection of each store: for what does not depend on the driver."""
    for made in make(request.param, {"sqlite": "sqlite3", "postgres": "psycopg"}[request.param], tmp_path):
        yield FinishScene(made)


# -- every kind of connection --------------------------------------------------------------------------------


def test_a_commit_finishes_the_job_and_a_rollback_does_not(scene: FinishScene) -> None:
    job = scene.begin()

    async def act(seat: Seat) -> None:
        for end in (seat.rollback, seat.commit):
            await seat.begin()
            await seat.write(1)
            await finish(seat, job)
            await seat.savepoint()
            await seat.rollback_to()  # it was finished before
            assert not scene.store.is_finished(job.claim)  # for others
            await end()
            assert scene.store.is_finished(job.claim) == (end == seat.commit)

    scene.play(act)

    assert scene.store.recover("w", "killed") == []
    assert (scene.scene.orders, scene.jobs, scene.totals) == (1, 0, {"processed": 1})


def test_a_savepoint_that_is_rolled_back_takes_the_mark_along(scene: FinishScene) -> None:
    if scene.seat.is_async and not hasattr(scene.seat, "drivers"):
        pytest.skip("as the plain driver")
    job = scene.begin()

    async def act(seat: Seat) -> None:
        await seat.begin()
        await seat.write(1)
        await seat.savepoint()
        await finish(seat, job)
        await seat.rollback_to()
        await seat.commit()

    scene.play(act)

    assert scene.store.recover("w", "killed") == [job.id]


def test_a_claim_that_was_lost_raises_inside_the_transaction(scene: FinishScene) -> None:
    job = scene.begin()
    scene.store.recover("w", "frozen")
    [again] = scene.claim("v")

    async def act(seat: Seat) -> None:
        await seat.begin()
        await seat.write(1)
        with pytest.raises(ClaimLost, match="roll your transaction back") as raised:
            await finish(seat, job)
        assert (raised.value.id, raised.value.token, raised.value.reason) == (job.id, job.token, "taken")
        await seat.rollback()
        await seat.begin()
        await finish(seat, scene.context(again, scene.scene.ship))  # who has it now can
        await seat.commit()

    scene.play(act)
    assert scene.store.recover("v", "killed") == []


def test_autocommit_and_the_other_form_are_refused(scene: FinishScene) -> None:
    job = scene.begin()

    async def act(seat: Seat) -> None:
        with pytest.raises(BadOption, match=r"autocommit mode.* the end of the job would not be one transaction"):
            await finish(seat, job)
        if seat.is_async:
            with pytest.raises(BadOption, match="is for an event loop"):
                job.finish(seat.connection)
        else:
            with pytest.raises(BadOption, match="is not for an event loop"):
                await job.afinish(seat.connection)

    scene.play(act, autocommit=True)
    assert not scene.store.is_finished(job.claim)


# -- what becomes of the job ---------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_it_is_done_whatever_the_run_says_and_its_lane_goes_on_then(usual: FinishScene, outcome: Outcome) -> None:
    job = usual.begin()
    behind = usual.scene.ship.enqueue(1)
    usual.finish(job)
    assert usual.claim("v") == []  # it has not left
    assert usual.app.inspect.counts()["running"] == 1

    assert usual.settle(job, outcome) == [behind.id]

    assert (usual.totals, usual.jobs) == ({"processed": 1}, 1)
    assert [(run.id, run.outcome) for run in usual.app.stats.recent()] == [(job.id, "done")]


def test_many_that_are_settled_together_leave_whether_finished_or_not(usual: FinishScene) -> None:
    usual.scene.plain.enqueue_many([(n,) for n in range(12)])
    claims = usual.claim(most=12)
    for claim in claims[::5]:
        usual.finish(usual.context(claim, usual.scene.plain))

    settled = [settled_alike(claim, Done(), 7, 8) for claim in claims]
    assert usual.store.exchange("w", settled, [], 0).refused == []

    assert (usual.totals, usual.jobs) == ({"processed": 12}, 0)


def test_given_back_or_recovered_it_is_done_and_its_lane_goes_on(usual: FinishScene) -> None:
    for verb in (usual.store.give_back, lambda worker: usual.store.recover(worker, "killed")):
        job = usual.begin()
        behind = usual.scene.ship.enqueue(1)
        assert usual.claim("v") == []
        usual.finish(job)

        assert verb("w") == []

        [claim] = usual.claim("v")
        assert (claim.unit.id, claim.lost) == (behind.id, "")
        usual.settle(usual.context(claim, usual.scene.ship), Done(), "v")

    assert (usual.totals, usual.jobs) == ({"processed": 4}, 0)


def test_what_a_user_asked_for_before_wins_and_afterwards_comes_too_late(usual: FinishScene) -> None:
    for mark in ("cancel", "delete", "kill"):
        job = usual.begin()
        getattr(usual.app.inspect, mark)(job.id)
        with pytest.raises(ClaimLost, match=f"asked to {mark} it") as raised:
            usual.finish(job)
        assert raised.value.reason == mark
        usual.settle(job, Snoozed(0))

        job = usual.begin()
        usual.finish(job)
        assert getattr(usual.app.inspect, mark)(job.id) is False
        usual.store.recover("w", "killed")

    assert usual.totals == {"processed": 3, "cancelled": 1, "dead": 1}


def test_it_is_finished_once(usual: FinishScene) -> None:
    job, connection = usual.begin(), usual.connect()
    for end in (connection.rollback, connection.commit):
        job.finish(connection)  # after a rollback it may be called again
        with pytest.raises(BadOption, match="finished already: finish\\(\\) was called before"):
            job.finish(connection)
        if usual.is_postgres:  # which has aborted the transaction
            connection.rollback()
            job.finish(connection)
        end()
    with pytest.raises(BadOption, match="after a rollback it may be called again"):
        job.finish(connection)
    connection.close()


def test_a_claim_is_lost_even_if_the_next_run_has_finished_the_job(usual: FinishScene) -> None:
    lost = usual.begin()
    usual.store.recover("w", "frozen")
    [again] = usual.claim("v")
    usual.finish(usual.context(again, usual.scene.ship))

    with pytest.raises(ClaimLost, match="roll your transaction back"):
        usual.finish(lost)


@pytest.mark.parametrize(
    "outcome", [Done(b'"mine"'), Retrying(0, ERROR), Cancelled(), None], ids=["done", "retrying", "cancelled", "killed"]
)
def test_the_record_has_the_result_that_finish_was_given(usual: FinishScene, outcome: Outcome | None) -> None:
    job = usual.begin(usual.kept)
    usual.finish(job, result="given")

    if outcome is None:
        usual.store.recover("w", "killed")
    else:
        usual.settle(job, outcome, keep=60_000_000)

    handle, info = usual.app.job(job.id), usual.app.inspect.job(job.id)
    assert (handle.state(), handle.result(timeout=1)) == ("done", "given")
    assert info is not None
    assert (info.attempt, info.worker) == (1, "w")


def test_after_a_rollback_the_record_has_what_the_run_returned(usual: FinishScene) -> None:
    job, connection = usual.begin(usual.kept), usual.connect()
    job.finish(connection, "given")
    connection.rollback()
    connection.close()

    usual.settle(job, Done(b'"mine"'), keep=60_000_000)

    handle = usual.app.job(job.id)
    assert (handle.state(), handle.result(timeout=1), usual.totals) == ("done", "mine", {"processed": 1})


def test_a_result_that_cannot_be_kept_is_refused_where_it_is_given(usual: FinishScene) -> None:
    job, connection = usual.begin(usual.kept), usual.connect()
    with pytest.raises(TypeError, match="object"):
        job.finish(connection, object())
    connection.close()
    assert usual.store.recover("w", "killed") == [job.id]


def test_effect_receipt_follow_up_and_end_are_one_commit(usual: FinishScene) -> None:
    usual.scene._ask("drop table if exists laneway_receipt")
    for statement in TABLE:
        usual.scene._ask(statement)
    job, connection = usual.begin(), usual.connect()
    for end in (connection.rollback, connection.commit):
        with job.once(connection) as first, usual.app.transaction(connection):
            connection.execute("insert into orders values (1)")
            usual.scene.ship.enqueue(1, 2)
            job.finish(connection)
        end()
        assert first
        assert (usual.scene.orders, usual.jobs) == ((0, 1) if end == connection.rollback else (1, 2))
    connection.close()

    [follow_up] = usual.settle(job, Done())
    assert follow_up != job.id  # it waited for the end of this one: they have a lane
    assert usual.totals == {"processed": 1}


# -- refused ---------------------------------------------------------------------------------------------------


def test_another_database_is_refused_and_the_error_names_once(usual: FinishScene, tmp_path: Path) -> None:
    job, memory = usual.begin(), App("sqlite://")
    elsewhere = App("redis://127.0.0.1:1/0")
    tasks = [app.task(name="away")(lambda: None) for app in (memory, elsewhere)]
    contexts = [usual.context(job.claim, task) for task in tasks]
    other = sqlite3.connect(tmp_path / "other.db")
    mine = usual.connect()
    pairs = [(other, job), *((connection, one) for connection in (other, mine) for one in contexts)]
    for connection, one in pairs:
        with pytest.raises(NotSameDatabase, match=r"cannot finish its jobs.*current_job\(\)\.once\(connection\)"):
            one.finish(connection)
    other.close()
    mine.close()
    assert not usual.store.is_finished(job.claim)


def test_a_collectors_run_is_refused() -> None:
    claim = Claim(1, "save", "save", (Unit("l", "x", 1, 5, 5, payloads=[Payload(b"1", 1.0)]),))
    job = JobContext(claim, [{"x": [1]}], {}, {})

    with pytest.raises(BadOption, match=r"is a collector: .* on conflict do update"):
        job.finish(sqlite3.connect(":memory:"))


def test_on_sqlite_an_open_finish_holds_the_file_as_every_write_does(tmp_path: Path) -> None:
    for made in make("sqlite", "sqlite3", tmp_path):
        scene = FinishScene(made)
        other = App(made.url + "?timeout=0.2")
        job, connection = scene.begin(), scene.connect()
        job.finish(connection)
        with pytest.raises(StoreBusy):
            other.store.recover("w", "killed")
        connection.commit()
        assert other.store.recover("w", "killed") == []

        job, reader = scene.begin(), scene.connect()
        reader.execute("begin")
        reader.execute("select count(*) from orders").fetchall()
        scene.scene.plain.enqueue()
        with pytest.raises(StoreBusy, match="begin immediate"):
            job.finish(reader)
        reader.close()
        connection.close()
        other.close()


# -- in a worker -------------------------------------------------------------------------------------------------


class Works:
    """Tasks that finish in a transaction, and how often each ran."""

    def __init__(self, scene: FinishScene) -> None:
        self.scene, self.app = scene, scene.app
        self.died: list[str] = []
        self.seen: list[Outcome | None] = []
        ran.clear()

        @scene.app.middleware
        def look(job: JobContext) -> Any:
            try:
                yield
            finally:
                self.seen.append(job.outcome)

        @scene.app.on_death
        def on_death(job: JobContext, error: BaseException) -> None:
            self.died.append(job.task)

    def write(self, *, commits: bool = True) -> None:
        """Write an order and finish."""
        ran.append(current_job().attempt)
        connection = self.scene.connect()
        try:
            connection.execute("insert into orders values (1)")
            current_job().finish(connection)
            (connection.commit if commits else connection.rollback)()
        finally:
            connection.close()

    def run(self) -> None:
        Worker(self.app, slots=1).run(burst=True)


@pytest.mark.parametrize("commits", [True, False])
def test_what_the_code_raises_afterwards_counts_only_after_a_rollback(usual: FinishScene, commits: bool) -> None:
    works = Works(usual)

    @usual.app.task(retry=Retry(times=1, backoff=[0]), keep_result=60)
    def charge() -> None:
        works.write(commits=commits)
        raise ValueError("afterwards")

    job = charge.enqueue()
    works.run()

    assert (ran, usual.scene.orders) == (([1], 1) if commits else ([1, 2], 0))
    assert job.state() == ("done" if commits else "dead")
    assert usual.totals == ({"processed": 1} if commits else {"failed": 2, "dead": 1})
    assert works.died == ([] if commits else [charge.name])
    assert [type(outcome) for outcome in works.seen] == ([Done] if commits else [Retrying, Dead])


def test_a_run_that_is_over_its_time_after_the_commit_is_done(usual: FinishScene) -> None:
    works, never = Works(usual), threading.Event()

    @usual.app.task(timeout=0.2, retry=Retry(times=3, backoff=[0]))
    def charge() -> None:
        works.write()
        while not never.wait(0.01):
            pass

    charge.enqueue()
    works.run()

    assert (ran, usual.scene.orders, usual.totals, usual.jobs) == ([1], 1, {"processed": 1}, 0)


def test_a_result_that_cannot_be_kept_does_not_matter_once_it_is_finished(usual: FinishScene) -> None:
    works = Works(usual)

    @usual.app.task(keep_result=60)
    def charge() -> object:
        works.write()
        return object()

    job = charge.enqueue()
    works.run()

    assert (job.state(), works.died) == ("done", [])
    assert job.result(timeout=1) is None


def test_a_run_that_lost_its_claim_has_no_effect_and_is_no_failure(usual: FinishScene) -> None:
    works = Works(usual)

    @usual.app.task(retry=Retry(times=0))
    def charge() -> None:
        usual.app.inspect.cancel(current_job().id)
        works.write()

    charge.enqueue()
    works.run()

    assert (ran, usual.scene.orders, usual.totals, usual.jobs) == ([1], 0, {"cancelled": 1}, 0)
    assert works.died == []


def test_an_isolated_run_that_crashes_after_the_commit_is_not_repeated(usual: FinishScene, tmp_path: Path) -> None:
    works = Works(usual)

    @usual.app.task(isolate=True)
    def charge() -> None:
        with (tmp_path / "runs").open("a") as runs:
            runs.write("run ")
        works.write()
        os.kill(os.getpid(), signal.SIGKILL)

    charge.enqueue()
    works.run()

    assert (usual.scene.orders, usual.totals, usual.jobs, works.died) == (1, {"processed": 1}, 0, [])
    assert (tmp_path / "runs").read_text() == "run "


# -- in tests --------------------------------------------------------------------------------------------------------


def test_in_tests_the_run_itself_counts_with_the_result_of_finish() -> None:
    app, conn = App("sqlite:///nowhere/shop.db"), sqlite3.connect(":memory:")

    @app.task(keep_result=60)
    def charge(fails: bool) -> str:
        current_job().finish(conn, result="given")
        if fails:
            raise ValueError("afterwards")
        return "mine"

    with app.testing("fake") as jobs:
        good, bad = charge.enqueue(False), charge.enqueue(True)
        jobs.drain(errors="keep")
        assert (good.result(timeout=1), bad.state()) == ("given", "retrying")
        with jobs.running(charge), pytest.raises(BadOption, match="autocommit mode"):
            current_job().finish(sqlite3.connect(":memory:", isolation_level=None))
        with jobs.running("somebody.elses"):
            current_job().finish(conn)
    conn.close()
