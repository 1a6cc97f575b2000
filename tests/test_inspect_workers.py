"""Who works here: what `inspect.workers` shows, and what can be asked of a worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from conftest import Clock
from laneway import App
from laneway.core.instant import SECOND, as_datetime
from laneway.core.job import Claim, Gather, Job, lane_id
from laneway.core.outcome import Done, ErrorInfo, Outcome, Retrying, Snoozed
from laneway.errors import NotFound, UnknownWorker
from laneway.store.contract import ClaimRequest, Store, WorkerInfo
from laneway.store.inspection import Inspect, RunningJob, WorkerStatus
from laneway.store.workers import read_worker
from settling import settled_alike

ERROR = ErrorInfo(kind="ValueError", message="no")


def claimed(store: Store, *ids: str, worker: str = "w", lane: str | None = None) -> list[Claim]:
    """Push jobs and claim them for a worker."""
    store.push([Job(id_, "app.task", "mail", b"[[],{}]", lane) for id_ in ids])
    return store.exchange(worker, [], [ClaimRequest("mail", len(ids))], len(ids)).claims


def only(inspect: Inspect) -> WorkerStatus:
    [worker] = inspect.workers()
    return worker


# -- what is shown -----------------------------------------------------------------------------------------------


def test_where_nobody_works_nobody_is_shown(inspect: Inspect) -> None:
    assert inspect.workers() == []


def test_a_worker_is_shown_as_it_said_at_its_last_beat(store: Store, inspect: Inspect, clock: Clock) -> None:
    beat = WorkerInfo(
        id="w", host="node-1", boot="b", pid=4711, started=99, queues=("mail", "billing"), slots=25, version="1.2",
        tasks=("mail.send", "mail.sort"), since=clock() - 90 * SECOND, fleet="f", rss=50_000_000, pss=20_000_000, phase="quiet",
        balance="weighted (mail 3, billing 1)",
    )  # fmt: skip
    store.beat([WorkerInfo("w")])
    store.beat([beat])

    clock.advance(1.5)

    assert only(inspect) == WorkerStatus(
        id="w", host="node-1", pid=4711, fleet="f", version="1.2", queues=("mail", "billing"), slots=25, phase="quiet",
        tasks=("mail.send", "mail.sort"), started_at=as_datetime(beat.since), uptime=91.5,
        last_beat=as_datetime(clock() - 1_500_000), beat_age=1.5, rss=50_000_000, pss=20_000_000, jobs=[],
        balance="weighted (mail 3, billing 1)",
    )  # fmt: skip


def test_every_beat_is_noted_by_the_stores_clock(store: Store, inspect: Inspect, clock: Clock) -> None:
    store.beat([WorkerInfo("w")])
    for _ in range(2):
        clock.advance(3)
        assert only(inspect).beat_age == 3.0
        store.beat([WorkerInfo("w")])
        assert (only(inspect).last_beat, only(inspect).beat_age) == (as_datetime(clock()), 0.0)


def test_a_worker_whose_clock_is_ahead_has_just_started(store: Store, inspect: Inspect, clock: Clock) -> None:
    store.beat([WorkerInfo("w", since=clock() + 60 * SECOND)])

    assert only(inspect).uptime == 0.0


def test_workers_are_sorted_by_host_pid_and_id(store: Store, inspect: Inspect) -> None:
    names = [("b", 1, "z"), ("a", 20, "x"), ("a", 3, "y"), ("a", 3, "c")]
    store.beat([WorkerInfo(id_, host=host, pid=pid) for host, pid, id_ in names])

    assert [(worker.host, worker.pid, worker.id) for worker in inspect.workers()] == sorted(names)


def test_a_recovered_worker_is_shown_no_more(store: Store, inspect: Inspect) -> None:
    store.beat([WorkerInfo("w")])
    claimed(store, "a")
    store.recover("w", "killed by signal 9")

    assert inspect.workers() == []


@pytest.mark.parametrize("said", [b'{"id":"w","slots":3}', b'{"id":"w","slots":3,"of_tomorrow":[1]}'])
def test_a_worker_of_another_version_is_read_as_far_as_it_goes(said: bytes) -> None:
    worker = read_worker("w", said)

    assert (worker.slots, worker.balance) == (3, "")


# -- what it holds -----------------------------------------------------------------------------------------------


def test_a_worker_is_shown_with_what_it_holds(store: Store, inspect: Inspect, clock: Clock) -> None:
    [runs] = claimed(store, "runs", lane="order-7")
    [waits] = claimed(store, "waits")
    store.beat([WorkerInfo("w", runs=((runs.token, clock()),))])
    started = clock()
    clock.advance(1)
    [fresh] = claimed(store, "fresh")

    assert only(inspect).jobs == [
        RunningJob("runs", "app.task", "mail", "order-7", runs.token, as_datetime(started)),
        RunningJob("waits", "app.task", "mail", None, waits.token, None),
        RunningJob("fresh", "app.task", "mail", None, fresh.token, None),
    ]


@pytest.mark.parametrize("outcome", [Done(), Snoozed(0), Retrying(0, ERROR)], ids=lambda o: o.name)
def test_a_run_that_has_ended_since_the_last_beat_is_shown_no_more(store: Store, inspect: Inspect, outcome: Outcome) -> None:
    ended, goes_on = claimed(store, "ended", "goes on")
    store.beat([WorkerInfo("w", runs=((ended.token, 1), (goes_on.token, 2)))])

    store.exchange("w", [settled_alike(ended, outcome)], [], 0)

    assert [job.id for job in only(inspect).jobs] == ["goes on"]


def test_a_job_that_was_claimed_anew_has_not_started(store: Store, inspect: Inspect) -> None:
    [before] = claimed(store, "a")
    store.beat([WorkerInfo("w", runs=((before.token, 1),))])

    [again] = store.exchange("w", [settled_alike(before, Snoozed(0))], [ClaimRequest("mail", 1)], 1).claims

    assert [(job.token, job.started_at) for job in only(inspect).jobs] == [(again.token, None)]


def test_a_workers_runs_are_counted_by_queue_and_a_collectors_lanes_as_one(store: Store, inspect: Inspect) -> None:
    payloads = [Job(lane_id("sync", lane), "app.sync", "sync", b"1", lane, gather=Gather()) for lane in ("a", "b", "c")]
    store.push([*payloads, *(Job(f"j{n}", "app.task", "mail", b"[[],{}]") for n in range(2))])
    store.exchange("w", [], [ClaimRequest("mail", 2), ClaimRequest("sync", 1, lanes=3)], 3)

    worker = only(inspect)

    assert len(worker.jobs) == 5
    assert (worker.busy, worker.busy_by_queue) == (3, {"mail": 2, "sync": 1})


def test_what_was_fetched_ahead_takes_no_slot_of_its_queue(store: Store, inspect: Inspect) -> None:
    store.push([Job(f"{queue}{n}", "app.task", queue, b"[[],{}]") for queue in ("mail", "sync") for n in range(5)])
    claims = store.exchange("w", [], [ClaimRequest("mail", 5), ClaimRequest("sync", 5)], 10).claims
    fetched = WorkerInfo("w", slots=4)
    store.beat([fetched])
    assert (only(inspect).held, only(inspect).busy, sum(only(inspect).busy_by_queue.values())) == (10, 4, 4)

    told = [(claim.token, 1) for claim in claims if claim.queue == "sync"][1:]
    store.beat([replace(fetched, runs=tuple(told))])

    assert only(inspect).busy_by_queue == {"sync": 4}


def test_everybody_has_its_own_jobs(store: Store, inspect: Inspect) -> None:
    store.beat([WorkerInfo("ann"), WorkerInfo("bob"), WorkerInfo("cyd")])
    claimed(store, "a", "b", worker="ann")
    claimed(store, "c", worker="bob")

    held = {worker.id: [job.id for job in worker.jobs] for worker in inspect.workers()}
    assert held == {"ann": ["a", "b"], "bob": ["c"], "cyd": []}


def test_a_worker_that_never_beat_is_known_by_its_jobs(store: Store, inspect: Inspect) -> None:
    claimed(store, "a", worker="silent")

    worker = only(inspect)

    assert (worker.id, worker.host, worker.pid, [job.id for job in worker.jobs]) == ("silent", "", 0, ["a"])
    assert (worker.started_at, worker.uptime, worker.last_beat, worker.beat_age) == (None, None, None, None)


# -- what is asked of it -----------------------------------------------------------------------------------------


def test_a_worker_can_be_asked_to_be_quiet_and_to_stop(app: App) -> None:
    app.store.beat([WorkerInfo("w"), WorkerInfo("other")])
    [other, worker] = app.inspect.workers()

    app.inspect.quiet(worker)
    app.inspect.stop("w")

    heard = app.store.beat([WorkerInfo("w"), WorkerInfo("other")])
    assert heard["w"].commands == ("quiet", "stop")
    assert heard[other.id].commands == ()


@pytest.mark.parametrize("ask", ["quiet", "stop"])
def test_a_worker_that_nobody_knows_cannot_be_asked(app: App, ask: str) -> None:
    app.store.beat([WorkerInfo("w")])
    [worker] = app.inspect.workers()
    app.store.recover("w", "killed by signal 9")

    for gone in (worker, "w"):
        with pytest.raises(UnknownWorker, match='no worker "w"') as caught:
            getattr(app.inspect, ask)(gone)
        assert isinstance(caught.value, NotFound)
        assert "\n" not in str(caught.value)
        assert caught.value.id == "w"  # type: ignore[attr-defined]


# -- in a fleet --------------------------------------------------------------------------------------------------

SHOP = """
import time
from laneway import App

app = App("sqlite:///jobs.db")

@app.task(queue="critical")
def look() -> None:
    end = time.monotonic() + 20
    while not (found := [worker.balance for worker in app.inspect.workers() if worker.balance]) and time.monotonic() < end:
        time.sleep(0.02)
    print(found, flush=True)
"""


@pytest.mark.parametrize(
    ("options", "balance"),
    [
        (["-q", "critical:6,low:0.5"], "weighted (critical 6, low 0.5)"),
        (["-q", "critical,low", "--balance", "strict"], "strict"),
        ([], "even"),
    ],
)
def test_a_fleet_tells_what_deals_its_workers_slots(tmp_path: Path, options: list[str], balance: str) -> None:
    (tmp_path / "app.py").write_text(SHOP)
    env = {name: value for name, value in os.environ.items() if not name.startswith("LANEWAY_")}
    enqueue = [sys.executable, "-m", "laneway", "enqueue", "app.look"]
    subprocess.run(enqueue, cwd=tmp_path, env=env, check=True, timeout=60, capture_output=True)

    command = [sys.executable, "-m", "laneway", "worker", "--burst", *options]
    done = subprocess.run(command, cwd=tmp_path, env=env, check=True, timeout=60, capture_output=True, text=True)

    assert done.stdout.strip() == str([balance])
