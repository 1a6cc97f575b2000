"""The store's contract, for every store.

`STORES` in conftest lists them: a new store is a function there, see "A new store" in docs/design.md. What only one store has is
tested beside it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from conftest import Bench, Clock, rung
from laneway.core.buckets import Report
from laneway.core.instant import as_datetime
from laneway.core.job import Claim, Gather, Job, lane_id
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.errors import ConfigError, NotFound, UnknownJob, UnknownQueue
from laneway.ids import new_id
from laneway.store import liveness
from laneway.store.contract import ClaimRequest, Exchange, Occurrence, Schedules, Store, WorkerInfo
from laneway.store.inspection import Filter, Inspect, JobInfo, Page
from laneway.store.two_steps import begin_exchange
from settling import settled_alike

ERROR = ErrorInfo(kind="ValueError", message="no")
SECOND = 1_000_000
#: Jobs that are found in different ways.
KINDS: dict[str, dict[str, Any]] = {
    "a job": {}, "a lane": {"lane": "z"}, "urgent": {"priority": 5}, "idle": {"priority": -5},
}  # fmt: skip


def job(
    id_: str | None = None, *, lane: str | None = None, queue: str = "default", priority: int = 0, delay: float = 0,
    unique: str | None = None, expires: float = 0, task: str = "app.task", until_end: bool = False,
) -> Job:  # fmt: skip
    return Job(
        id_ or new_id(), task, queue, b"[[1],{}]", lane, priority, round(delay * SECOND), unique=unique,
        expires=round(expires * SECOND), until_end=until_end,
    )  # fmt: skip


def claim(store: Store, limit: int = 10, worker: str = "w", queues: Sequence[str] = ("default",)) -> list[Claim]:
    return store.exchange(worker, [], [ClaimRequest(queue, limit) for queue in queues], limit).claims


def settle(store: Store, claims: Sequence[Claim], outcome: Outcome, worker: str = "w", limit: int = 0, keep: int = 0) -> Exchange:
    settled = [settled_alike(claim, outcome, 1, 2, keep) for claim in claims]
    return store.exchange(worker, settled, [ClaimRequest("default", limit)], limit)


def ids(claims: Sequence[Claim]) -> list[str]:
    return [claim.unit.id for claim in claims]


def states(inspect: Inspect) -> dict[str, int]:
    """The counts that are not 0."""
    return {state: number for state, number in inspect.counts().items() if number}


def await_loads(store: Store, loads: dict[str, int]) -> None:
    """Wait until the store says these depths: they may be a moment old."""
    deadline = time.monotonic() + 10
    while (found := store.exchange("w", [], [], 0).loads) != loads:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def stands(inspect: Inspect, id_: str) -> JobInfo:
    """A job that must be there."""
    found = inspect.job(id_)
    assert found is not None
    return found


class TestPush:
    def test_a_job_arrives_as_it_was_sent(self, store: Store, inspect: Inspect) -> None:
        sent = job("a", lane="order-7")

        assert store.push([sent]) == [None]

        found = inspect.job("a")
        assert found is not None
        assert (found.task, found.queue, found.lane, found.state, found.attempt) == ("app.task", "default", "order-7", "ready", 0)
        assert (found.args, found.kwargs, found.body) == ([1], {}, sent.body)
        [held] = claim(store)
        assert (held.task, held.queue, held.ids) == (sent.task, sent.queue, [sent.id])
        assert (held.unit.lane, held.unit.body, held.collects) == (sent.lane, sent.body, False)

    @pytest.mark.parametrize(
        "options", [{}, {"delay": 60}, {"lane": "x", "priority": 3}, {"expires": 60}, {"delay": 60, "expires": 5, "unique": "k"}]
    )
    def test_it_makes_no_difference_whether_an_id_was_chosen(
        self, store: Store, inspect: Inspect, clock: Clock, options: dict[str, Any]
    ) -> None:
        ids_ = [new_id(), new_id(), "chosen"]  # into a queue that is new, and one that is known
        found: list[dict[str, Any]] = []
        for number, id_ in enumerate(ids_):
            key = {"unique": f"k{number}"} if "unique" in options else {}
            assert store.push([job(id_, **{**options, **key})]) == [None]
            found.append({name: value for name, value in stands(inspect, id_).as_dict().items() if name not in ("id", "unique")})

        assert found[0] == found[1] == found[2]
        assert states(inspect) == {"scheduled" if "delay" in options else "ready": 3}
        clock.advance(options.get("delay", 0))
        for _ in ids_:
            settle(store, claim(store), Done())
        assert states(inspect) == {}

    def test_jobs_of_one_push_have_each_what_is_their_own(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        soon = clock.now + 40 * SECOND
        kinds: list[dict[str, Any]] = [
            {}, {"task": "app.other"}, {"queue": "mail"}, {"lane": "x"}, {"priority": 5}, {"delay": 60 * SECOND}, {"at": soon},
            {"expires": 30 * SECOND}, {"body": b"[[2],{}]"}, {},
        ]  # fmt: skip
        sent = [replace(job(new_id()), **kind) for kind in kinds]

        def as_it_stands(jobs: Sequence[Job]) -> list[dict[str, Any]]:
            found = [stands(inspect, one.id).as_dict() for one in jobs]
            return [{name: value for name, value in one.items() if name != "id"} for one in found]

        assert store.push(sent) == [None] * len(sent)
        alone = [replace(one, id=new_id()) for one in sent]
        for one in alone:
            store.push([one])
        assert as_it_stands(sent) == as_it_stands(alone)

    def test_of_a_lane_nobody_comes_first_because_the_clock_was_set_back(self, store: Store, clock: Clock) -> None:
        pushed = [new_id() for _ in range(3)]
        for id_, seconds in zip(pushed, (10, -5, 0), strict=True):
            store.push([job(id_, lane="x")])
            clock.advance(seconds)
        clock.advance(10)

        claimed: list[str] = []
        while held := claim(store):
            claimed += ids(held)
            settle(store, held, Done())
        assert claimed == pushed

    def test_an_id_that_is_still_in_the_store_changes_nothing(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a")])

        assert store.push([job("b"), job("a", queue="other"), job("c")]) == [None, "a", None]

        assert inspect.counts()["ready"] == 3
        assert inspect.totals()["enqueued"] == 3

    def test_an_id_twice_in_one_push_counts_once(self, store: Store, inspect: Inspect) -> None:
        assert store.push([job("a"), job("a", lane="x")]) == [None, "a"]
        assert inspect.counts()["ready"] == 1

    def test_an_id_can_come_again_when_its_job_has_finished(self, store: Store) -> None:
        store.push([job("a")])
        settle(store, claim(store), Done())

        assert store.push([job("a")]) == [None]
        assert ids(claim(store)) == ["a"]

    def test_an_occurrence_of_a_schedule_fires_once(self, store: Store, inspect: Inspect) -> None:
        assert store.push([job()], Occurrence("nightly", at=100)) == [None]
        assert store.push([job()], Occurrence("nightly", at=100)) == [""]
        assert store.push([job()], Occurrence("nightly", at=99)) == [""]
        assert store.push([job()], Occurrence("nightly", at=101)) == [None]
        assert store.push([job()], Occurrence("hourly", at=100)) == [None]
        assert inspect.counts()["ready"] == 3

    def test_nothing_is_a_push_too(self, store: Store) -> None:
        assert store.push([]) == []


class TestSchedules:
    def test_where_nothing_has_fired_nothing_is_known(self, store: Store, clock: Clock) -> None:
        assert store.schedules() == Schedules(clock(), {}, {})

    def test_it_is_known_up_to_where_a_schedule_has_fired(self, store: Store, clock: Clock) -> None:
        store.push([job()], Occurrence("nightly", at=100))
        store.push([job()], Occurrence("nightly", at=90))
        store.push([], Occurrence("hourly", at=7))
        clock.advance(1)

        assert store.schedules() == Schedules(clock(), {"nightly": 100, "hourly": 7}, {})

    def test_a_slot_that_is_advanced_without_jobs_has_fired(self, store: Store, inspect: Inspect) -> None:
        assert store.push([], Occurrence("nightly", at=100)) == []

        assert store.push([job()], Occurrence("nightly", at=100)) == [""]
        assert states(inspect) == {}

    def test_the_slots_of_a_paused_schedule_are_skipped(self, store: Store, inspect: Inspect) -> None:
        store.push([job()], Occurrence("nightly", at=100))
        inspect.pause_schedule("nightly", paused=True, by="ann")

        assert store.push([job(), job()], Occurrence("nightly", at=200)) == ["", ""]

        assert states(inspect) == {"ready": 1}
        assert (store.schedules().last, store.schedules().paused) == ({"nightly": 200}, {"nightly": "ann"})

    def test_a_resumed_schedule_goes_on_with_what_comes_after(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        inspect.pause_schedule("nightly", paused=True)
        clock.advance(10)  # nobody pushes meanwhile
        inspect.pause_schedule("nightly", paused=False)

        assert store.push([job("passed")], Occurrence("nightly", at=clock())) == [""]
        assert store.push([job("next")], Occurrence("nightly", at=clock() + 1)) == [None]
        assert store.schedules().paused == {}

    def test_a_resumed_schedule_goes_on_where_workers_are_though_the_clock_was_set_back(
        self, store: Store, inspect: Inspect, clock: Clock
    ) -> None:
        store.push([job("a")])
        now = store.schedules().now
        inspect.pause_schedule("nightly", paused=True)
        clock.advance(-3600)
        inspect.pause_schedule("nightly", paused=False)

        assert store.push([job("passed")], Occurrence("nightly", at=now - SECOND)) == [""]
        assert store.push([job("next")], Occurrence("nightly", at=now + 1)) == [None]

    def test_a_schedule_that_never_fired_can_be_paused(self, store: Store, inspect: Inspect) -> None:
        inspect.pause_schedule("nightly", paused=True)

        assert (store.schedules().last, store.schedules().paused) == ({}, {"nightly": ""})
        assert store.push([job()], Occurrence("nightly", at=100)) == [""]
        assert store.push([job()], Occurrence("hourly", at=100)) == [None]

    def test_who_paused_first_is_remembered(self, store: Store, inspect: Inspect) -> None:
        inspect.pause_schedule("nightly", paused=True, by="ann")
        inspect.pause_schedule("nightly", paused=True, by="bob")

        assert store.schedules().paused == {"nightly": "ann"}

    def test_to_resume_what_is_not_paused_changes_nothing(self, store: Store, inspect: Inspect) -> None:
        store.push([], Occurrence("nightly", at=100))
        inspect.pause_schedule("nightly", paused=False)
        inspect.pause_schedule("unheard of", paused=False)

        assert store.schedules().last == {"nightly": 100}

    def test_an_occurrence_whose_job_was_prevented_has_fired(self, store: Store) -> None:
        store.push([job("a", queue="other", unique="k"), job("named", queue="other")])
        for at, prevented in ((100, job("b", unique="k")), (200, job("named"))):
            assert store.push([prevented], Occurrence("nightly", at=at)) == [{"b": "a"}.get(prevented.id, "named")]
            assert store.schedules().last == {"nightly": at}
            assert store.push([job("late")], Occurrence("nightly", at=at)) == [""]


class TestKeptSchedules:
    def test_what_is_kept_is_read_as_it_was_written_and_begins_now(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        entry = bytes(range(256))
        inspect.set_schedule("nightly ü/?", entry)

        assert store.schedules() == Schedules(clock(), {"nightly ü/?": clock()}, {}, {"nightly ü/?": entry})
        assert store.push([job()], Occurrence("nightly ü/?", clock(), entry)) == [""]
        assert store.push([job()], Occurrence("nightly ü/?", clock() + 1, entry)) == [None]

    def test_it_begins_where_workers_are_though_the_clock_was_set_back(
        self, store: Store, inspect: Inspect, clock: Clock
    ) -> None:
        store.push([job("a")])
        now = store.schedules().now
        clock.advance(-3600)
        inspect.set_schedule("nightly", b"1")

        assert store.push([job("passed")], Occurrence("nightly", now - SECOND, b"1")) == [""]
        assert store.push([job("next")], Occurrence("nightly", now + 1, b"1")) == [None]

    def test_an_occurrence_of_it_fires_once(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        inspect.set_schedule("nightly", b"1")
        at = clock() + SECOND

        assert store.push([job()], Occurrence("nightly", at, b"1")) == [None]
        assert store.push([job()], Occurrence("nightly", at, b"1")) == [""]
        assert store.push([], Occurrence("nightly", at + 5, b"1")) == []
        assert store.push([job()], Occurrence("nightly", at + 5, b"1")) == [""]
        assert store.schedules().last == {"nightly": at + 5}

    def test_a_collectors_payload_comes_once_too(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        inspect.set_schedule("hourly", b"1")
        payload = Job(lane_id("sync", "a"), "sync", "sync", b"1", "a", gather=Gather())

        assert store.push([payload], Occurrence("hourly", clock() + 1, b"0")) == [""]
        assert store.push([payload], Occurrence("hourly", clock() + 1, b"1")) == [None]
        assert store.push([payload], Occurrence("hourly", clock() + 1, b"1")) == [""]
        assert inspect.totals()["enqueued"] == 1

    def test_one_that_was_replaced_fires_no_more_and_the_new_one_begins_now(
        self, store: Store, inspect: Inspect, clock: Clock
    ) -> None:
        inspect.set_schedule("nightly", b"1")
        clock.advance(10)
        inspect.set_schedule("nightly", b"2")

        assert store.push([job()], Occurrence("nightly", clock() + 1, b"1")) == [""]
        assert store.push([job()], Occurrence("nightly", clock(), b"2")) == [""]
        assert store.schedules().last == {"nightly": clock()}
        assert store.push([job()], Occurrence("nightly", clock() + 1, b"2")) == [None]

    def test_what_has_fired_does_not_fire_again_after_it_was_replaced(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        inspect.set_schedule("nightly", b"1")
        ahead = clock() + 60 * SECOND
        store.push([job()], Occurrence("nightly", ahead, b"1"))
        inspect.set_schedule("nightly", b"2")

        assert store.push([job()], Occurrence("nightly", ahead, b"2")) == [""]
        assert store.push([job()], Occurrence("nightly", ahead + 1, b"2")) == [None]

    def test_one_that_was_dropped_fires_no_more_and_nothing_is_known_of_it(
        self, store: Store, inspect: Inspect, clock: Clock
    ) -> None:
        inspect.set_schedule("nightly", b"1")
        store.push([job()], Occurrence("nightly", clock() + 1, b"1"))
        inspect.pause_schedule("nightly", paused=True, by="ann")

        assert inspect.drop_schedule("nightly")
        assert store.push([job()], Occurrence("nightly", clock() + 2, b"1")) == [""]
        assert store.push([], Occurrence("nightly", clock() + 3, b"1")) == []
        assert store.schedules() == Schedules(clock(), {}, {})
        assert not inspect.drop_schedule("nightly")

    def test_a_declared_one_cannot_be_dropped(self, store: Store, inspect: Inspect) -> None:
        store.push([], Occurrence("nightly", 100))

        assert not inspect.drop_schedule("nightly")
        assert store.schedules().last == {"nightly": 100}

    def test_one_that_is_paused_stays_so_when_it_is_replaced(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        inspect.set_schedule("nightly", b"1")
        inspect.pause_schedule("nightly", paused=True, by="ann")
        inspect.set_schedule("nightly", b"2")

        assert store.schedules().paused == {"nightly": "ann"}
        assert store.push([job()], Occurrence("nightly", clock() + 1, b"2")) == [""]
        inspect.pause_schedule("nightly", paused=False)
        assert store.push([job()], Occurrence("nightly", clock() + 2, b"2")) == [None]


class TestUnique:
    def test_an_equal_job_that_waits_stands_for_the_new_one(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", unique="k")])

        assert store.push([job("b", unique="k", queue="mail"), job("c", unique="l"), job("d")]) == ["a", None, None]

        assert [j.id for j in inspect.jobs(Filter(), 10, None)] == ["a", "c", "d"]
        assert (inspect.totals()["enqueued"], inspect.counts()["ready"]) == (3, 3)
        assert [stands(inspect, id_).unique for id_ in "acd"] == [True, True, False]

    def test_one_that_is_scheduled_or_parked_waits_too(self, store: Store) -> None:
        store.push([job("later", unique="k", delay=60), job("x0", lane="x"), job("x1", lane="x", unique="l")])
        claim(store)

        assert store.push([job(unique="k"), job(unique="l")]) == ["later", "x1"]

    def test_it_ends_at_the_claim_so_that_a_change_during_the_run_is_not_swallowed(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", unique="k"), job("x", unique="l", lane="x")])
        claim(store)

        assert store.push([job("b", unique="k"), job("y", unique="l", lane="x")]) == [None, None]

        assert not stands(inspect, "a").unique
        assert ids(claim(store)) == ["b"]

    def test_of_two_equal_jobs_in_one_push_the_first_is_taken(self, store: Store, inspect: Inspect) -> None:
        assert store.push([job("a", unique="k"), job("b", unique="k"), job("a", unique="k")]) == [None, "a", "a"]
        assert inspect.counts()["ready"] == 1

    @pytest.mark.parametrize("queue", ["default", "new"])
    @pytest.mark.parametrize("keys", [("z", "a"), ("z", None), (None, "a")])
    def test_of_two_jobs_with_one_id_the_first_is_taken_whatever_their_keys(
        self, store: Store, inspect: Inspect, keys: Sequence[str | None], queue: str
    ) -> None:
        store.push([job("known")])

        first, second = [job("a", unique=key, queue=queue) for key in keys]
        assert store.push([first, replace(second, priority=9)]) == [None, "a"]

        assert (stands(inspect, "a").priority, stands(inspect, "a").unique) == (0, keys[0] is not None)

    def test_of_two_equal_jobs_with_ids_of_their_own_the_first_is_taken(self, store: Store) -> None:
        assert store.push([job("b", unique="k"), job("a", unique="k"), job("c")]) == [None, "b", None]

    def test_each_hears_of_the_job_that_was_there_when_it_came(self, store: Store) -> None:
        store.push([job("old", unique="o")])

        answers = store.push([
            job("a", unique="k"), job("b", unique="k"), job("b"), job("b", unique="k"),
            job("old", unique="new"), job("c", unique="new"), job("old", unique="k"),
        ])  # fmt: skip

        assert answers == [None, "a", None, "b", "old", None, "old"]

    @pytest.mark.parametrize("action", ["cancel", "delete", "kill"])
    def test_a_job_that_is_ended_by_hand_stands_in_nobodys_way(self, store: Store, inspect: Inspect, action: str) -> None:
        store.push([job("a", unique="k")])

        assert getattr(inspect, action)("a")

        assert store.push([job("b", unique="k")]) == [None]

    def test_a_job_that_expired_stands_in_nobodys_way(self, store: Store, clock: Clock) -> None:
        store.push([job("a", unique="k", expires=1)])
        clock.advance(2)
        assert claim(store) == []

        assert store.push([job("b", unique="k")]) == [None]

    @pytest.mark.parametrize("how", ["given back", "recovered", "snoozed", "replayed"])
    def test_a_job_that_comes_back_has_no_key(self, store: Store, inspect: Inspect, how: str) -> None:
        store.push([job("a", unique="k")])
        held = claim(store)
        match how:
            case "given back":
                store.give_back("w")
            case "recovered":
                store.recover("w", "killed by signal 9")
            case "snoozed":
                settle(store, held, Snoozed(0))
            case _:
                settle(store, held, Dead(ERROR))
                inspect.retry("a")

        assert store.push([job("b", unique="k")]) == [None]
        assert states(inspect) == {"ready": 2}

    @pytest.mark.parametrize("end", ["claimed again", "cancel", "delete", "kill"])
    def test_a_job_that_comes_back_leaves_the_key_to_the_equal_job_behind_it(
        self, store: Store, inspect: Inspect, end: str
    ) -> None:
        store.push([job("a", unique="k")])
        claim(store)
        store.push([job("b", unique="k")])
        store.give_back("w")

        if end == "claimed again":
            assert ids(claim(store, 1)) == ["a"]
        else:
            assert getattr(inspect, end)("a")

        assert store.push([job("c", unique="k")]) == ["b"]

    def test_a_rescheduled_job_keeps_its_key(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", unique="k")])
        inspect.reschedule("a", 60 * SECOND, 0)

        assert store.push([job("b", unique="k")]) == ["a"]


class TestOrder:
    def test_priority_then_due_then_place(self, store: Store, clock: Clock) -> None:
        store.push([job("late", delay=2), job("first"), job("second"), job("urgent", priority=5), job("idle", priority=-5)])
        clock.advance(3)
        store.push([job("urgent-2", priority=5)])

        assert ids(claim(store)) == ["urgent", "urgent-2", "first", "second", "late", "idle"]

    def test_of_those_that_are_due_at_the_same_time_the_first_by_place_is_claimed(self, store: Store, clock: Clock) -> None:
        store.push([job("delayed", delay=10), job("retried")])
        settle(store, claim(store), Retrying(10 * SECOND, ERROR))
        clock.advance(10)

        assert ids(claim(store)) == ["retried", "delayed"]

    def test_what_is_due_later_is_not_claimed_before(self, store: Store, clock: Clock) -> None:
        store.push([job("a", delay=5), job("urgent", delay=7, priority=100)])

        answer = store.exchange("w", [], [ClaimRequest("default", 9)], 9)

        assert (answer.claims, answer.more, answer.next_due) == ([], False, 5 * SECOND)
        clock.advance(5)
        assert ids(claim(store)) == ["a"]

    def test_an_absolute_time_is_the_later_of_it_and_now(self, store: Store, clock: Clock) -> None:
        past = Job("past", "t", "default", b"[[],{}]", at=clock() - SECOND)
        future = Job("future", "t", "default", b"[[],{}]", at=clock() + SECOND)
        store.push([future, past])

        assert ids(claim(store)) == ["past"]
        clock.advance(1)
        assert ids(claim(store)) == ["future"]

    def test_of_many_that_are_settled_together_each_comes_to_what_its_run_meant(self, bench: Bench) -> None:
        outcomes: list[Outcome] = [Done(), Retrying(SECOND, ERROR), Done(), Dead(ERROR), Snoozed(SECOND), Cancelled()] * 5
        store = bench.store
        store.push([job(f"{n:02}", lane=f"lane-{n % 10}" if n % 2 else None) for n in range(30)])
        held = [*claim(store, 30), *claim(store, 30)]
        assert len(held) == 20  # of each lane the first
        of = {found.unit.id: outcomes[int(found.unit.id)] for found in held}

        answer = store.exchange("w", [Settled(found, (of[found.unit.id],), 1, 2) for found in held], [], 0)

        assert answer.refused == []
        for id_, outcome in of.items():
            found = bench.inspect.job(id_)
            state = {Retrying: "retrying", Dead: "dead", Snoozed: "scheduled"}.get(type(outcome))
            assert (found and found.state) == state, id_
        counted = Counter(type(outcome) for outcome in of.values())
        totals = bench.inspect.totals()
        assert [totals[name] for name in ("processed", "retried", "dead", "cancelled")] == [
            counted[kind] for kind in (Done, Retrying, Dead, Cancelled)
        ]
        runs = Counter(run.outcome for run in bench.inspect.recent(99))
        assert runs == {kind.name: counted[kind] for kind in (Done, Retrying, Dead, Cancelled)}

    def test_the_next_that_is_due_is_the_first_of_all_priorities_and_queues(self, store: Store) -> None:
        store.push([job(priority=5, delay=10), job(delay=100), job(queue="a", delay=50), job(queue="b", delay=7)])

        def next_due(*queues: str) -> int | None:
            return store.exchange("w", [], [ClaimRequest(queue, 9) for queue in queues], 9).next_due

        assert next_due("default") == 10 * SECOND
        assert next_due("a") == 50 * SECOND
        assert next_due("a", "default") == next_due("default", "a") == 10 * SECOND
        assert next_due("a", "b", "default") == next_due("b", "a") == 7 * SECOND

    def test_nothing_is_due_next_where_nothing_waits(self, store: Store) -> None:
        store.push([job("a"), job("b", queue="other")])
        wants = [ClaimRequest("default", 9), ClaimRequest("other", 9)]
        held = store.exchange("w", [], wants, 9).claims
        for settled in ([], [settled_alike(one, Done(), 1, 2) for one in held]):
            answer = store.exchange("w", settled, wants, 9)
            assert (answer.claims, answer.more, answer.next_due) == ([], False, None)

    def test_a_retry_is_the_next_that_is_due(self, store: Store) -> None:
        store.push([job("a")])
        settle(store, claim(store), Retrying(10 * SECOND, ERROR))

        assert store.exchange("w", [], [ClaimRequest("default", 9)], 9).next_due == 10 * SECOND

    def test_with_the_next_of_a_lane_it_is_said_when_others_are_due(self, store: Store) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x"), job("later", delay=60)])

        answer = settle(store, claim(store), Done(), limit=9)

        assert (ids(answer.claims), answer.more, answer.next_due) == (["x1"], False, 60 * SECOND)

    def test_depths_are_exact_for_a_worker_that_gets_nothing_and_soon_for_others(self, store: Store) -> None:
        store.push([job("a"), job("b"), job(queue="mail")])
        assert ids(claim(store)) == ["a", "b"]
        store.push([job(queue="mail")])

        answer = store.exchange("w", [], [ClaimRequest("default", 9)], 9)

        assert (answer.claims, answer.more, answer.loads) == ([], False, {"default": 0, "mail": 2})
        store.push([job("c")])
        await_loads(store, {"default": 1, "mail": 2})

    def test_depths_of_twenty_queues_are_those_of_each(self, store: Store, inspect: Inspect) -> None:
        queues = [f"q{n:02}" for n in range(20)]
        for n, queue in enumerate(queues):
            store.push([job(f"{queue}-{k}", queue=queue) for k in range(n)])
        assert ids(claim(store, limit=3, queues=queues)) == ["q01-0", "q02-0", "q02-1"]

        await_loads(store, {queue: n for n, queue in enumerate(queues) if n > 2} | {"q01": 0, "q02": 0})

        held = claim(store, limit=99, queues=["q19", "q03"])
        assert sorted(ids(held)) == sorted([f"q19-{k}" for k in range(19)] + [f"q03-{k}" for k in range(3)])
        store.exchange("w", [settled_alike(one, Done(), 1, 2) for one in held], [], 0)
        assert states(inspect) == {"ready": sum(range(4, 19)), "running": 3}
        await_loads(
            store, {queue: n for n, queue in enumerate(queues) if 3 < n < 19} | dict.fromkeys(["q01", "q02", "q03", "q19"], 0)
        )

    def test_steps_are_served_in_order_within_the_limit(self, store: Store) -> None:
        store.push([job(f"{queue}{n}", queue=queue) for n in range(5) for queue in "ab"])

        answer = store.exchange(
            "w", [], [ClaimRequest("a", 2), ClaimRequest("b", 1), ClaimRequest("a", 9), ClaimRequest("b", 9)], 5
        )

        assert ids(answer.claims) == ["a0", "a1", "b0", "a2", "a3"]
        assert answer.more
        assert answer.loads == {"a": 1, "b": 4}

    @pytest.mark.parametrize("goes_on", [False, True])
    @pytest.mark.parametrize("left", [None, "a job", "a lane", "urgent", "idle"])
    def test_more_is_said_if_something_is_due_and_not_claimed(
        self, store: Store, inspect: Inspect, goes_on: bool, left: str | None
    ) -> None:
        """With the next of a lane, or without. What runs, is due later, or is in another queue does not count."""
        store.push([job("x0", lane="x"), job("x1", lane="x")] if goes_on else [job("x0")])
        store.push([job("runs"), job("runs too", lane="y"), job("and this", priority=5)])
        held = {found.unit.id: found for found in claim(store)}
        assert held.keys() == {"x0", "runs", "runs too", "and this"}
        for queue, delay in (("default", 60), ("other", 0), ("paused", 0)):
            kinds = [kind for name, kind in KINDS.items() if not (goes_on and delay and name == "urgent")]  # these come first
            store.push([job(queue=queue, delay=delay, **kind) for kind in kinds])
        inspect.pause("paused", True)
        if not goes_on:
            store.push([job("x1")])
        if left is not None:
            store.push([job(left, **KINDS[left])])

        settled = [settled_alike(held["x0"], Done())]
        answer = store.exchange("w", settled, [ClaimRequest("default", 1), ClaimRequest("paused", 1)], 1)

        assert ids(answer.claims) == (["urgent"] if left == "urgent" else ["x1"])
        assert (answer.more, answer.next_due) == ((True, None) if left else (False, 60 * SECOND))

    @pytest.mark.parametrize("expires", [0, 60])
    def test_a_job_in_a_lane_comes_before_those_of_lower_priority(self, store: Store, expires: float) -> None:
        store.push([job("idle", priority=-5, expires=expires), job("in a lane", lane="x")])
        assert ids(claim(store)) == ["in a lane", "idle"]

        store.push([job("idle too", priority=-5), job("in another", lane="y"), job("urgent", priority=5, expires=expires)])
        assert ids(claim(store)) == ["urgent", "in another", "idle too"]

    def test_a_walk_over_lanes_leaves_what_is_due_later_as_it_is(self, store: Store, inspect: Inspect) -> None:
        store.push([job("x0", lane="x")])
        held = claim(store)
        store.push([job("x1", lane="x", delay=60), job("y0", lane="y"), job("y1", lane="y", delay=60)])

        assert ids(claim(store)) == ["y0"]
        assert states(inspect) == {"running": 2, "scheduled": 2}
        answer = settle(store, held, Done(), limit=9)
        assert (answer.claims, answer.more, answer.next_due) == ([], False, 60 * SECOND)

    @pytest.mark.parametrize("first", ["urgent", "due before"])
    def test_the_next_of_a_lane_comes_with_others_though_none_waited_behind_it(self, store: Store, first: str) -> None:
        store.push([job("x0", lane="x")])
        if first == "due before":
            store.push([job(first)])
        held = [found for found in claim(store, 1) if found.unit.id == "x0"]
        store.push([job("x1", lane="x"), *([job(first, priority=5)] if first == "urgent" else [])])

        answer = settle(store, held, Done(), limit=9)

        assert (ids(answer.claims), answer.more) == ([first, "x1"], False)

    def test_the_next_of_a_lane_comes_before_what_is_due_after_it(self, store: Store) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        held = claim(store)
        store.push([job("y0", lane="y"), job("plain")])

        answer = settle(store, held, Done(), limit=9)

        assert (ids(answer.claims), answer.more) == (["x1", "y0", "plain"], False)

    def test_lanes_of_several_queues_go_on_each_in_its_own(self, bench: Bench) -> None:
        store = bench.store
        store.push([job(f"{queue}{n}", lane="x", queue=queue) for queue in "abc" for n in range(3)])
        store.push([job("plain", queue="d")])
        held = claim(store, 9, queues="dabc")
        assert ids(held) == ["plain", "a0", "b0", "c0"]

        settled = [settled_alike(found, Done(), 1, 2) for found in reversed(held)]
        answer = store.exchange("w", settled, [ClaimRequest("a", 9), ClaimRequest("b", 9)], 9)

        assert ids(answer.claims) == ["a1", "b1"]
        counts = {
            queue.name: {state: number for state, number in queue.counts.items() if number} for queue in bench.inspect.queues()
        }
        assert counts == {
            "a": {"running": 1, "blocked": 1}, "b": {"running": 1, "blocked": 1}, "c": {"ready": 1, "blocked": 1}, "d": {},
        }  # fmt: skip
        assert Counter(run.id for run in bench.inspect.recent(99)) == Counter(["a0", "b0", "c0", "plain"])
        assert bench.inspect.totals()["processed"] == 4
        assert ids(claim(store, 9, queues="abcd")) == ["c1"]

    def test_of_lanes_that_go_on_no_more_are_claimed_than_wanted(self, store: Store, inspect: Inspect) -> None:
        store.push([job(f"{lane}{n}", lane=lane) for n in range(2) for lane in "abc"])

        answer = settle(store, claim(store), Done(), limit=2)

        assert (ids(answer.claims), answer.more) == (["a1", "b1"], True)
        assert states(inspect) == {"running": 2, "ready": 1}

    def test_a_job_without_a_lane_is_settled_beside_one_of_a_lane(self, store: Store, inspect: Inspect) -> None:
        store.push([job("plain"), *[job(f"a{n}", lane="a") for n in range(2)]])

        answer = settle(store, claim(store), Done(), limit=1)

        assert (ids(answer.claims), answer.refused, states(inspect)) == (["a1"], [], {"running": 1})
        assert inspect.totals()["processed"] == 2

    @pytest.mark.parametrize(("most", "limit"), [(0, 5), (5, 0)])
    def test_a_lane_goes_on_though_its_next_job_is_not_wanted(
        self, store: Store, inspect: Inspect, most: int, limit: int
    ) -> None:
        store.push([job(f"a{n}", lane="a") for n in range(2)])
        settled = [settled_alike(one, Done(), 1, 2) for one in claim(store)]

        answer = store.exchange("w", settled, [ClaimRequest("default", most)], limit)

        assert (answer.claims, answer.more, states(inspect)) == ([], True, {"ready": 1})

    def test_a_lane_does_not_go_on_for_a_worker_that_does_not_hold_it(self, store: Store, inspect: Inspect) -> None:
        store.push([job(f"a{n}", lane="a") for n in range(2)])
        held = claim(store)

        for _ in range(2):
            answer = settle(store, held, Done(), worker="v", limit=5)
            assert (ids(answer.claims), answer.refused, states(inspect)) == ([], ["a0"], {"running": 1, "blocked": 1})
        assert (inspect.totals()["refused"], inspect.totals()["processed"]) == (2, 0)
        assert ids(settle(store, held, Done(), limit=5).claims) == ["a1"]
        assert settle(store, held, Done(), limit=5).refused == ["a0"]

    @pytest.mark.parametrize("other", ["urgent", "idle", "a job", "of another lane", "of the lane"])
    def test_a_lane_goes_on_beside_other_jobs(self, store: Store, inspect: Inspect, other: str) -> None:
        store.push([job("a0", lane="a"), job("a1", lane="a")])
        held = claim(store)
        options: dict[str, dict[str, Any]] = {"of another lane": {"lane": "b"}, "of the lane": {"lane": "a"}}
        store.push([job("other", **(options | KINDS)[other])])

        answer = settle(store, held, Done(), limit=2)

        expected = {"urgent": ["other", "a1"], "of the lane": ["a1"]}.get(other, ["a1", "other"])
        assert (ids(answer.claims), answer.more) == (expected, False)
        assert states(inspect) == ({"running": 1, "blocked": 1} if other == "of the lane" else {"running": 2})

    @pytest.mark.parametrize("kind", ["the next of its lane", "itself, once more"])
    def test_what_may_follow_a_settled_job_is_claimed_in_the_order_of_the_wants(self, store: Store, kind: str) -> None:
        store.push([job(f"a{n}", lane="x", queue="a") for n in range(2)])
        store.push([job("b0", queue="b")])
        held = claim(store, 2, queues="a")  # the other is parked

        outcome: Outcome = Done() if "next" in kind else Snoozed(0)
        wants = [ClaimRequest("a", 1), ClaimRequest("b", 1)]
        answer = store.exchange("w", [settled_alike(one, outcome, 1, 2) for one in held], wants, 1)

        assert (ids(answer.claims), answer.more) == (["a1" if "next" in kind else "a0"], True)

    def test_the_time_until_the_next_job_counts_from_this_exchange(self, store: Store, clock: Clock) -> None:
        store.push([job("later", delay=10), job("now", queue="other")])
        held = claim(store, 1, queues=("other", "default"))
        clock.advance(0.01)  # not long enough for a store to ask anew what it remembers of queues

        answer = store.exchange("w", [settled_alike(one, Done(), 1, 2) for one in held], [ClaimRequest("default", 1)], 0)

        assert answer.next_due == 10 * SECOND - 10_000

    def test_what_has_just_become_due_in_another_queue_is_more(self, store: Store, clock: Clock) -> None:
        store.push([job("a"), job("b"), job("soon", queue="other", delay=0.01)])
        wants = [ClaimRequest("default", 1), ClaimRequest("other", 1)]
        held = store.exchange("w", [], wants, 1).claims
        clock.advance(0.02)

        answer = store.exchange("w", [settled_alike(one, Done(), 1, 2) for one in held], wants, 1)

        assert (ids(answer.claims), answer.more) == (["b"], True)

    def test_its_now_goes_back_by_a_second_at_most(self, store: Store, clock: Clock) -> None:
        store.push([job("a")])
        before = store.schedules().now

        clock.advance(-3600)
        seen = [store.schedules().now]
        store.push([job("b")])
        seen.append(store.schedules().now)

        assert min(seen) >= before - SECOND

    def test_time_does_not_go_back(self, store: Store, clock: Clock) -> None:
        store.push([job("a", lane="x")])
        clock.advance(-3600)
        store.push([job("b", lane="x")])

        first = claim(store)
        assert ids(first) == ["a"]
        assert ids(settle(store, first, Done(), limit=1).claims) == ["b"]


class TestLanes:
    def test_jobs_of_one_lane_run_one_at_a_time_in_order(self, store: Store, inspect: Inspect) -> None:
        store.push([job(f"{lane}{n}", lane=lane) for n in range(3) for lane in "xy"])
        seen = [claim(store)]
        while seen[-1]:
            seen.append(settle(store, seen[-1], Done(), limit=10).claims)

        assert [ids(claims) for claims in seen] == [["x0", "y0"], ["x1", "y1"], ["x2", "y2"], []]
        assert sum(inspect.counts().values()) == 0

    def test_jobs_without_a_lane_are_not_held_up(self, store: Store) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x"), job("a"), job("b")])

        assert ids(claim(store)) == ["x0", "a", "b"]

    def test_the_same_lane_in_two_queues_is_two_lanes(self, store: Store) -> None:
        store.push([job("a", lane="x", queue="one"), job("b", lane="x", queue="two")])

        assert ids(claim(store, queues=["one", "two"])) == ["a", "b"]

    def test_a_retrying_head_blocks_only_its_lane(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x"), job("y0", lane="y")])
        head = claim(store, limit=1)
        settle(store, head, Retrying(10 * SECOND, ERROR))

        assert ids(claim(store)) == ["y0"]
        assert inspect.counts() == {"scheduled": 0, "ready": 0, "retrying": 1, "blocked": 1, "running": 1, "dead": 0}
        clock.advance(10)
        again = claim(store)
        assert (ids(again), again[0].unit.attempt) == (["x0"], 2)

    def test_a_snoozed_head_keeps_its_place_and_its_attempt(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        settle(store, claim(store), Snoozed(10 * SECOND))

        assert claim(store) == []
        assert inspect.counts()["scheduled"] == 1
        clock.advance(10)
        again = claim(store)
        assert (ids(again), again[0].unit.attempt) == (["x0"], 1)

    @pytest.mark.parametrize("most", [0, 1])
    def test_what_waited_behind_a_snoozed_head_comes_before_jobs_that_are_due_later(
        self, store: Store, clock: Clock, most: int
    ) -> None:
        store.push([job("x0", lane="x"), job("y0", lane="y")])
        settle(store, claim(store), Snoozed(10 * SECOND))
        store.push([job("x1", lane="x"), job("y1", lane="y")])
        assert claim(store) == []
        clock.advance(10)
        store.push([job("later")])
        heads = claim(store, 2)
        assert ids(heads) == ["x0", "y0"]

        wants = [ClaimRequest("default", most)] if most else []
        claimed = store.exchange("w", [settled_alike(head, Done()) for head in heads], wants, most).claims

        assert ids(claimed + claim(store)) == ["x1", "y1", "later"]

    def test_a_job_that_snoozes_after_it_failed_is_not_retrying(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a")])
        settle(store, claim(store), Retrying(0, ERROR))
        settle(store, claim(store), Snoozed(SECOND))

        assert (stands(inspect, "a").state, states(inspect)) == ("scheduled", {"scheduled": 1})

    @pytest.mark.parametrize("outcome", [Done(), Dead(ERROR), Cancelled("no")], ids=lambda outcome: outcome.name)
    def test_every_exit_hands_the_lane_on_in_the_same_step(self, store: Store, outcome: Outcome) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        head = claim(store)

        assert ids(settle(store, head, outcome, limit=1).claims) == ["x1"]

    @pytest.mark.parametrize("action", ["cancel", "delete"])
    def test_a_waiting_head_that_is_ended_hands_the_lane_on(self, store: Store, inspect: Inspect, action: str) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        settle(store, claim(store), Retrying(100 * SECOND, ERROR), limit=5)

        assert getattr(inspect, action)("x0")

        assert ids(claim(store)) == ["x1"]

    @pytest.mark.parametrize("action", ["cancel", "delete"])
    def test_a_parked_job_that_is_ended_leaves_the_line(self, store: Store, inspect: Inspect, action: str) -> None:
        store.push([job(f"x{n}", lane="x") for n in range(3)])
        head = claim(store)

        assert getattr(inspect, action)("x1")

        assert ids(settle(store, head, Done(), limit=5).claims) == ["x2"]

    def test_a_delayed_job_joins_its_lane_when_due_and_holds_nobody_until_then(self, store: Store, clock: Clock) -> None:
        store.push([job("x-later", lane="x", delay=60), job("x-now", lane="x")])

        now = claim(store)
        assert ids(now) == ["x-now"]
        clock.advance(60)
        assert claim(store) == []
        assert ids(settle(store, now, Done(), limit=5).claims) == ["x-later"]

    def test_the_next_holds_the_lane_though_not_yet_claimed(self, store: Store, inspect: Inspect) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        settle(store, claim(store), Done())
        inspect.pause("default", paused=True)
        store.push([job("x2", lane="x")])
        inspect.pause("default", paused=False)

        assert ids(claim(store)) == ["x1"]

    @pytest.mark.parametrize("action", ["cancel", "delete"])
    def test_a_next_that_is_ended_before_its_claim_hands_the_lane_on(self, store: Store, inspect: Inspect, action: str) -> None:
        store.push([job(f"x{n}", lane="x") for n in range(3)])
        settle(store, claim(store), Done())  # x1 is next: it holds the lane, and nobody has claimed it

        assert getattr(inspect, action)("x1")

        assert ids(claim(store)) == ["x2"]

    def test_the_next_of_a_lane_comes_after_what_is_due_before_it(self, store: Store, clock: Clock) -> None:
        store.push([job("x0", lane="x")])
        head = claim(store)
        for next_one in (job("plain"), job("x1", lane="x")):
            clock.advance(1)
            store.push([next_one])
        claim(store, worker="other")  # plain; x1 is parked
        store.give_back("other")

        first = settle(store, head, Done(), limit=1).claims

        assert (ids(first), ids(claim(store))) == (["plain"], ["x1"])

    def test_behind_many_that_are_parked_no_more_are_claimed_than_wanted(self, store: Store, inspect: Inspect) -> None:
        store.push([job(lane="x") for _ in range(6)])
        head = claim(store, limit=1)
        store.push([job(f"y{n}", lane=f"y{n}" if n % 2 else None) for n in range(30)])

        assert ids(claim(store, limit=2)) == ["y0", "y1"]
        assert states(inspect) == {"running": 2 + len(head), "blocked": 5, "ready": 28}

    def test_at_most_a_thousand_are_parked_in_one_call(self, store: Store, inspect: Inspect) -> None:
        store.push([job(lane="x") for _ in range(2500)])
        store.push([job("other", lane="y")])

        head = store.exchange("w", [], [ClaimRequest("default", 2)], 2)
        assert (len(head.claims), head.more, inspect.counts()["blocked"]) == (1, True, 1000)
        second = store.exchange("w", [], [ClaimRequest("default", 1)], 1)
        third = store.exchange("w", [], [ClaimRequest("default", 1)], 1)
        assert (second.claims, second.more) == ([], True)
        assert (ids(third.claims), third.more, inspect.counts()["blocked"]) == (["other"], False, 2499)

    def test_a_hot_lane_starves_nobody(self, store: Store, clock: Clock) -> None:
        store.push([job(f"hot{n}", lane="hot") for n in range(3)])
        running = claim(store, limit=1)
        store.push([job("plain")])
        turns = 0
        while ids(running) != ["plain"]:
            turns += 1
            clock.advance(1)
            store.push([job(lane="hot")])
            running = settle(store, running, Done(), limit=1).claims
        assert turns == 3  # the two that came before it, then it


class TestExpiry:
    @pytest.mark.parametrize("place", range(3))
    def test_a_job_that_is_too_old_to_start_is_cancelled_and_the_walk_goes_on(
        self, store: Store, inspect: Inspect, clock: Clock, place: int
    ) -> None:
        jobs = [job("fresh", expires=60), job("plain")]
        jobs.insert(place, job("old", expires=5))
        store.push(jobs)
        clock.advance(5.000001)

        answer = store.exchange("w", [], [ClaimRequest("default", 3)], 3)

        assert (ids(answer.claims), answer.more) == (["fresh", "plain"], False)
        assert (states(inspect), inspect.totals()["cancelled"]) == ({"running": 2}, 1)
        assert inspect.result("old").state == "cancelled"
        assert [(run.id, run.outcome, run.started, run.finished) for run in inspect.recent(5)] == [
            ("old", "cancelled", 0, clock())
        ]

    def test_at_its_very_end_it_may_start(self, store: Store, clock: Clock) -> None:
        store.push([job("a", expires=5)])
        clock.advance(5)

        assert ids(claim(store)) == ["a"]

    def test_it_is_counted_from_its_place(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("later", delay=60, expires=5)])
        assert stands(inspect, "later").expires_at == as_datetime(clock() + 65 * SECOND)
        clock.advance(64)

        assert ids(claim(store)) == ["later"]

    def test_until_a_claim_meets_it_it_waits(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("a", expires=1), job("b")])
        clock.advance(2)

        assert states(inspect) == {"ready": 2}
        assert store.exchange("w", [], [ClaimRequest("default", 1)], 0).more
        assert states(inspect) == {"ready": 2}

    @pytest.mark.parametrize("how", ["retrying", "snoozed", "recovered"])
    @pytest.mark.parametrize("lane", [None, "x"])
    def test_a_job_that_has_started_is_never_too_old(
        self, store: Store, inspect: Inspect, clock: Clock, how: str, lane: str | None
    ) -> None:
        store.push([job("a", expires=5, lane=lane)])
        held = claim(store)
        if how == "recovered":
            store.recover("w", "killed by signal 9")
        else:
            settle(store, held, Retrying(0, ERROR) if how == "retrying" else Snoozed(0))
        assert stands(inspect, "a").expires_at is None
        clock.advance(60)

        again = claim(store)
        assert ids(again) == ["a"]
        store.give_back("w")
        assert ids(claim(store)) == ["a"]

    @pytest.mark.parametrize("lane", [None, "x"])
    def test_a_job_that_was_given_back_has_not_started(self, store: Store, clock: Clock, lane: str | None) -> None:
        store.push([job("a", expires=5, lane=lane), job("b", lane=lane)])
        claim(store)
        store.give_back("w")
        clock.advance(6)

        assert ids(claim(store)) == ["b"]

    def test_a_replayed_job_is_wanted_whenever(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("a", expires=5)])
        inspect.kill("a")
        clock.advance(6)
        inspect.retry("a")

        assert ids(claim(store)) == ["a"]

    def test_a_lane_goes_on_behind_those_that_are_too_old(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("x0", lane="x"), *(job(f"x{n}", lane="x", expires=5) for n in (1, 2, 3)), job("x4", lane="x")])
        store.push([job("y0", lane="y", expires=5), job("y1", lane="y")])
        head = claim(store, limit=1)
        claim(store, worker="other", limit=1)  # y0; the rest of x is parked
        store.give_back("other")
        clock.advance(6)
        settle(store, head, Done())

        assert states(inspect) == {"ready": 3, "blocked": 3}
        assert ids(claim(store)) == ["x4", "y1"]
        assert (states(inspect), inspect.totals()["cancelled"]) == ({"running": 2}, 4)

    def test_behind_those_that_are_too_old_one_that_may_still_start_is_next(self, store: Store, clock: Clock) -> None:
        store.push([job("x0", lane="x"), *(job(f"x{n}", lane="x", expires=expires) for n, expires in ((1, 5), (2, 5), (3, 60)))])
        head = claim(store)
        clock.advance(6)

        assert ids(settle(store, head, Done(), limit=5).claims) == ["x3"]

    def test_with_a_holder_its_followers_leave_though_the_claim_has_its_fill(
        self, store: Store, inspect: Inspect, clock: Clock
    ) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x", expires=5)])
        head = claim(store)
        store.push([job("plain")])
        clock.advance(1)
        store.push([job("x2", lane="x", expires=5), job("x3", lane="x")])
        other = claim(store, worker="other")  # plain; x2 and x3 are parked
        store.give_back("other")
        clock.advance(10)
        settle(store, head, Done())

        assert (ids(other), ids(claim(store, limit=1))) == (["plain"], ["plain"])
        assert (inspect.job("x1"), inspect.job("x2"), stands(inspect, "x3").holds) == (None, None, True)

    def test_a_lane_whose_jobs_are_all_too_old_is_free(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job(f"x{n}", lane="x", expires=5) for n in range(4)])
        claim(store)
        store.give_back("w")
        clock.advance(6)
        store.push([job("x4", lane="x")])

        assert ids(claim(store)) == ["x4"]
        assert states(inspect) == {"running": 1}

    def test_at_most_a_thousand_are_passed_over_in_one_call(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job(expires=5) for _ in range(2500)])
        store.push([job("fresh")])
        clock.advance(6)

        answers = [store.exchange("w", [], [ClaimRequest("default", 1)], 1) for _ in range(3)]

        assert [(ids(answer.claims), answer.more) for answer in answers] == [([], True), ([], True), (["fresh"], False)]
        assert (inspect.totals()["cancelled"], len(inspect.recent(5000))) == (2500, 1000)

    def test_at_most_a_thousand_of_a_lane_are_passed_over_in_one_call(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("head", lane="x")])
        store.push([job(lane="x", expires=5) for _ in range(2500)])
        store.push([job("fresh", lane="x")])
        head = claim(store, limit=1)
        while claim(store) or inspect.counts()["ready"]:
            pass
        clock.advance(6)
        settle(store, head, Done())

        answers, gone = [], []
        for _ in range(3):
            answers.append(store.exchange("w", [], [ClaimRequest("default", 1)], 1))
            gone.append(inspect.totals()["cancelled"])

        assert [(ids(answer.claims), answer.more) for answer in answers] == [([], True), ([], True), (["fresh"], False)]
        assert (gone, states(inspect)) == ([1000, 2000, 2500], {"running": 1})

    def test_holders_of_many_lanes_that_are_too_old_are_passed_over(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        lanes = [f"lane-{n}" for n in range(300)]
        store.push([job(f"{lane}-a", lane=lane) for lane in lanes])
        store.push([job(f"{lane}-b", lane=lane, expires=5) for lane in lanes])
        store.push([job(f"{lane}-c", lane=lane) for lane in lanes])
        heads = claim(store, limit=400)
        clock.advance(6)
        settle(store, heads, Done())

        assert ids(claim(store, limit=400)) == [f"{lane}-c" for lane in lanes]
        assert inspect.totals()["cancelled"] == 300


class TestClaims:
    def test_a_claim_belongs_to_one_worker(self, store: Store) -> None:
        store.push([job("a")])

        assert ids(claim(store, worker="ann")) == ["a"]
        assert claim(store, worker="bob") == []

    @pytest.mark.parametrize("outcome", [Done(), Retrying(0, ERROR)], ids=lambda outcome: outcome.name)
    def test_a_stranger_cannot_settle(self, store: Store, inspect: Inspect, outcome: Outcome) -> None:
        store.push([job("a")])
        held = claim(store, worker="ann")

        assert settle(store, held, outcome, worker="bob").refused == ["a"]
        assert inspect.counts()["running"] == 1
        assert inspect.totals()["refused"] == 1

    def test_an_old_token_cannot_settle(self, store: Store) -> None:
        store.push([job("a")])
        old = claim(store)
        store.give_back("w")
        new = claim(store)

        assert new[0].token > old[0].token
        assert settle(store, old, Done()).refused == ["a"]
        assert settle(store, new, Done()).refused == []

    @pytest.mark.parametrize("outcome", [Done(), Retrying(0, ERROR)], ids=lambda outcome: outcome.name)
    def test_nor_can_it_beside_new_ones(self, store: Store, inspect: Inspect, outcome: Outcome) -> None:
        store.push([job("a"), job("b")])
        old, _ = claim(store)
        store.give_back("w")
        _, new = claim(store)

        assert settle(store, [old, new], outcome).refused == ["a"]
        assert inspect.counts()["running"] == 1

    @pytest.mark.parametrize("outcome", [Done(), Retrying(0, ERROR), Snoozed(0), Dead(ERROR), Cancelled()], ids=lambda o: o.name)
    def test_settling_twice_is_refused_and_changes_nothing(self, store: Store, inspect: Inspect, outcome: Outcome) -> None:
        store.push([job("a", lane="x"), job("b", lane="x")])
        held = claim(store)
        settle(store, held, outcome)
        before = (inspect.counts(), inspect.totals()["failed"])

        assert settle(store, held, outcome).refused == ["a"]
        assert (inspect.counts(), inspect.totals()["failed"]) == before

    def test_a_success_that_comes_twice_in_one_exchange_counts_once(self, store: Store, inspect: Inspect) -> None:
        store.push([job(lane="x"), job(lane="x"), job(lane="x")])
        held = claim(store)

        settle(store, [*held, *held], Done())

        assert (states(inspect), inspect.totals()["processed"]) == ({"ready": 1, "blocked": 1}, 1)

    @pytest.mark.parametrize("number", [4, 20])
    def test_of_many_successes_those_that_are_not_held_are_refused_and_the_others_settled(
        self, store: Store, inspect: Inspect, number: int
    ) -> None:
        store.push([job(f"{n:02}", lane=f"lane-{n}" if n % 2 else None) for n in range(number)])
        held = claim(store, limit=number)
        store.push([job(lane=f"lane-{n}") for n in range(1, number, 2)])
        assert claim(store) == []
        assert states(inspect) == {"running": number, "blocked": number // 2}
        store.give_back("w", keep=[one.token for one in held[1:-1]])

        assert settle(store, held, Done()).refused == [held[0].unit.id, held[-1].unit.id]

        totals = inspect.totals()
        assert (totals["processed"], totals["refused"]) == (number - 2, 2)
        assert states(inspect) == {"ready": 1 + number // 2, "blocked": 1}  # the lanes of those that were settled go on
        assert sorted(run.id for run in inspect.recent(99)) == ids(held[1:-1])

    def test_tokens_grow_for_a_job_for_a_lane_and_for_a_worker(self, store: Store) -> None:
        store.push([job(lane="x"), job(lane="x"), job(queue="mail"), job(queue="other")])
        [first] = claim(store, worker="ann")
        store.give_back("ann")
        [again] = claim(store, worker="bob")
        [following] = settle(store, [again], Done(), worker="bob", limit=1).claims
        assert first.token < again.token < following.token

        others = claim(store, worker="bob", queues=["mail", "other"])

        assert len(others) == 2
        assert min(one.token for one in others) > following.token

    @pytest.mark.parametrize("outcome", [Done(), Retrying(0, ERROR)], ids=lambda outcome: outcome.name)
    def test_what_a_transaction_may_have_finished_is_settled_at_once_if_none_is_open(
        self, store: Store, inspect: Inspect, outcome: Outcome
    ) -> None:
        store.push([job("a", lane="x"), job("b")])
        settled = [Settled(one, (outcome,), 1, 2, finishes=True) for one in claim(store)]

        answers = [store.exchange("w", settled, [], 0) for _ in range(2)]

        assert [(sorted(answer.refused), answer.later) for answer in answers] == [([], frozenset()), (["a", "b"], frozenset())]
        assert inspect.counts()["running"] == 0

    @pytest.mark.parametrize("body", [b"", b"7", b"[[1]", b"\xff\x00", b"[" * 20_000], ids=len)
    @pytest.mark.parametrize("lane", [None, "x"])
    def test_what_is_no_job_is_claimed_says_why_and_its_lane_goes_on(
        self, store: Store, inspect: Inspect, lane: str | None, body: bytes
    ) -> None:
        store.push([replace(job("bad", lane=lane), body=body), job("next", lane=lane)])

        bad, *others = claim(store)
        others += settle(store, [bad], Dead(ERROR), limit=5).claims

        assert (bad.unit.id, bad.unit.body, bool(bad.garbage)) == ("bad", body, True)
        assert [(one.unit.id, one.garbage) for one in others] == [("next", "")]
        dead = stands(inspect, "bad")
        assert (dead.state, dead.body, dead.args) == ("dead", body, None)

    @pytest.mark.parametrize("number", [1, 2])
    @pytest.mark.parametrize("priority", [0, 5])
    def test_what_comes_to_others_of_its_priority_is_counted_once(self, store: Store, priority: int, number: int) -> None:
        for _ in range(3):
            store.push([job(priority=priority) for _ in range(number)])

        assert store.exchange("w", [], [ClaimRequest("default", 0)], 0).loads == {"default": 3 * number}

    def test_what_goes_back_to_others_of_its_priority_is_counted_once(self, store: Store) -> None:
        store.push([job(priority=5), job(priority=5)])
        claim(store, 1)
        store.give_back("w")

        await_loads(store, {"default": 2})

    def test_giving_back_keeps_place_lane_due_and_attempts(self, store: Store, inspect: Inspect) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x"), job("a")])
        settle(store, claim(store, limit=1), Retrying(0, ERROR))
        held = claim(store)

        assert sorted(store.give_back("w")) == sorted(ids(held)) == ["a", "x0"]

        assert inspect.counts()["ready"] == 2
        again = claim(store)
        assert (ids(again), [c.unit.attempt for c in again]) == (["x0", "a"], [2, 1])

    def test_what_the_worker_knows_it_keeps(self, store: Store) -> None:
        store.push([job("a"), job("b")])
        held = claim(store)

        assert store.give_back("w", keep=[held[0].token]) == ["b"]
        assert settle(store, held[:1], Done()).refused == []

    def test_a_claim_made_in_a_lost_exchange_goes_back_even_if_the_job_is_known(self, store: Store) -> None:
        store.push([job("a")])
        held = claim(store)
        settle(store, held, Retrying(0, ERROR), limit=1)  # it was claimed again, and the answer got lost

        assert store.give_back("w", keep=[held[0].token]) == ["a"]
        assert settle(store, held, Retrying(0, ERROR)).refused == ["a"]
        assert ids(claim(store)) == ["a"]

    def test_an_exchange_can_settle_and_claim_many_queues(self, store: Store) -> None:
        store.push([job("a", queue="one"), job("b", queue="two")])
        held = claim(store, queues=["one", "two", "three"])

        answer = store.exchange("w", [settled_alike(c, Done()) for c in held], [ClaimRequest("one", 1)], 1)

        assert (answer.refused, answer.claims, answer.loads) == ([], [], {"one": 0, "two": 0})

    def test_many_successes_of_several_queues_leave_each_its_own(self, store: Store, inspect: Inspect) -> None:
        names = ("one", "two")
        store.push([job(queue=name, lane=f"{name}-{n}") for name in names for n in range(5)])
        held = claim(store, queues=names)
        store.push([job(f"next-{name}", queue=name, lane=f"{name}-0") for name in names])
        assert claim(store, queues=names) == []

        settle(store, held, Done())

        assert [(queue.name, queue.counts["ready"], queue.counts["running"]) for queue in inspect.queues()] == [
            ("one", 1, 0), ("two", 1, 0)
        ]  # fmt: skip
        assert (inspect.totals()["processed"], len(inspect.recent(99))) == (10, 10)

    def test_an_exchange_that_fails_changes_nothing(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("b")])
        done, retrying = claim(store)
        outcomes = [settled_alike(done, Done(), 1, 2), settled_alike(retrying, Retrying(0, ErrorInfo(object(), "")), 1, 2)]  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            store.exchange("w", outcomes, [], 0)

        store.push([job("c")])

        assert states(inspect) == {"running": 2, "ready": 1}

    def test_a_limit_of_nothing_claims_nothing(self, store: Store) -> None:
        store.push([job("a")])

        answer = store.exchange("w", [], [ClaimRequest("default", 5)], 0)

        assert (answer.claims, answer.more) == ([], True)


class TestBegun:
    def test_what_was_begun_is_answered_when_it_is_heard(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("b"), job("c")])
        held = claim(store, 2)

        answer = begin_exchange(store, "w", [settled_alike(one, Done(), 1, 2) for one in held], [ClaimRequest("default", 5)], 5)()

        assert (answer.refused, ids(answer.claims), answer.more) == ([], ["c"], False)
        assert states(inspect) == {"running": 1}

    def test_two_are_done_in_the_order_in_which_they_were_begun(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", lane="l"), job("b", lane="l"), job("c")])
        [head, plain] = claim(store)

        first = begin_exchange(store, "w", [settled_alike(head, Done(), 1, 2)], [], 0)
        second = begin_exchange(store, "w", [settled_alike(plain, Done(), 1, 2)], [ClaimRequest("default", 5)], 5)
        answers = [first(), second()]

        assert [ids(answer.claims) for answer in answers] == [[], ["b"]]
        assert [answer.refused for answer in answers] == [[], []]
        assert states(inspect) == {"running": 1}

    def test_what_is_settled_by_both_is_refused_by_the_second(self, store: Store) -> None:
        store.push([job("a"), job("b")])
        held = [settled_alike(one, Done(), 1, 2) for one in claim(store)]

        answers = [hear() for hear in (begin_exchange(store, "w", held, [], 0), begin_exchange(store, "w", held[1:], [], 0))]

        assert [answer.refused for answer in answers] == [[], ["b"]]


class TestFailures:
    def test_errors_are_kept_with_the_job(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a")])
        for number in range(12):
            settle(store, claim(store), Retrying(0, ErrorInfo(kind="E", message=str(number))))
        settle(store, claim(store), Dead(ErrorInfo(kind="E", message="last", traceback="line 1")))

        found = inspect.job("a")
        assert found is not None
        assert (found.state, found.attempt) == ("dead", 13)
        assert [error.message for error in found.errors] == [*map(str, range(3, 12)), "last"]
        assert found.errors[-1].attempt == 13
        assert found.errors[-1].traceback == "line 1"

    def test_errors_name_the_worker_of_their_run(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("b")])
        settle(store, claim(store, 1, worker="w1"), Retrying(0, ERROR), "w1")
        claim(store, worker="w2")
        store.recover("w2", "it was killed")
        settle(store, claim(store, worker="w3"), Dead(ERROR), "w3")

        found = [inspect.job(one) for one in ("a", "b")]
        assert [[error.worker for error in one.errors] for one in found if one] == [["w1", "w2", "w3"], ["w2", "w3"]]

    def test_a_dead_job_can_be_replayed_at_a_new_place(self, store: Store, inspect: Inspect) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        settle(store, claim(store), Dead(ERROR))

        assert inspect.retry("x0")

        first = claim(store)
        assert ids(first) == ["x1"]
        again = settle(store, first, Done(), limit=1).claims
        assert (ids(again), again[0].unit.attempt) == (["x0"], 1)

    @pytest.mark.parametrize("lane", [None, "x"])
    def test_only_what_failed_and_waits_for_later_can_be_retried(self, store: Store, inspect: Inspect, lane: str | None) -> None:
        store.push([job("a", lane=lane), job("b", delay=60)])
        settle(store, claim(store), Retrying(0, ERROR))

        assert (inspect.retry("a"), inspect.retry("b")) == (False, False)
        assert states(inspect) == {"ready": 1, "scheduled": 1}
        settle(store, claim(store), Snoozed(60 * SECOND))
        assert inspect.retry("a") == (lane is not None)  # it holds up its lane

    def test_a_waiting_retry_can_be_made_due(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a")])
        settle(store, claim(store), Retrying(100 * SECOND, ERROR))

        assert inspect.retry("a")
        assert ids(claim(store)) == ["a"]
        assert not inspect.retry("a")

    def test_dead_jobs_beyond_the_limit_are_forgotten_oldest_first(self, bench: Bench) -> None:
        bench.store.dead_max = 3  # type: ignore[attr-defined]
        bench.store.push([job(f"j{n}") for n in range(5)])
        for held in claim(bench.store):
            bench.clock.advance(1)
            settle(bench.store, [held], Dead(ERROR))

        assert [j.id for j in bench.inspect.jobs(Filter(state="dead"), 10, None)] == ["j2", "j3", "j4"]
        assert bench.inspect.counts()["dead"] == 3

    def test_dead_jobs_are_forgotten_after_their_days(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("old")])
        settle(store, claim(store), Dead(ERROR))
        clock.advance(31 * 24 * 3600)

        store.beat([WorkerInfo("w")])

        assert inspect.counts()["dead"] == 0

    @pytest.mark.parametrize("act", ["retry", "reschedule", "retry lane", "replay", "kill", "cancel"])
    def test_what_is_made_due_by_hand_is_counted_once(self, bench: Bench, act: str) -> None:
        store, inspect, clock = bench.store, bench.inspect, bench.clock
        store.push([job("first"), job("later", queue="mail", delay=100), job("failed", queue="mail"), job("dies", queue="mail")])
        store.push([Job(lane_id("sync", "x"), "t", "sync", b"1", "x", gather=Gather(quiet=100 * SECOND))])
        held = {one.unit.id: one for one in claim(store, queues=["mail"])}
        settle(store, [held["failed"]], Retrying(50 * SECOND, ERROR))
        settle(store, [held["dies"]], Dead(ERROR))
        clock.advance(1)  # nothing has become due, and other queues were not looked at since
        store.push([job("second")])
        before = inspect.counts()

        acts: dict[str, Callable[[], bool]] = {
            "retry": lambda: inspect.retry("failed"), "reschedule": lambda: inspect.reschedule("later", 0, 0),
            "retry lane": lambda: inspect.retry(lane_id("sync", "x")), "replay": lambda: inspect.retry("dies"),
            "kill": lambda: inspect.kill("later"), "cancel": lambda: inspect.cancel("failed"),
        }  # fmt: skip
        assert acts[act]()

        moved = {
            "retry": ("retrying", "ready"), "reschedule": ("scheduled", "ready"), "retry lane": ("scheduled", "ready"),
            "replay": ("dead", "ready"), "kill": ("scheduled", "dead"), "cancel": ("retrying", None),
        }[act]  # fmt: skip
        after = {state: number - (state == moved[0]) + (state == moved[1]) for state, number in before.items()}
        assert inspect.counts() == after
        clock.advance(200)
        due = {"scheduled": 0, "retrying": 0, "ready": after["scheduled"] + after["retrying"] + after["ready"]}
        assert inspect.counts() == {**after, **due}

    @pytest.mark.parametrize("act", ["cancel", "delete", "kill"])
    def test_what_became_due_by_itself_is_counted_once(self, bench: Bench, act: str) -> None:
        store, inspect = bench.store, bench.inspect
        store.push([job("failed")])
        settle(store, claim(store), Retrying(5 * SECOND, ERROR))
        store.push([job("later", delay=5), job("waits", delay=5)])
        bench.clock.advance(5)

        for id_ in ("failed", "later"):
            getattr(inspect, act)(id_)

        assert states(inspect) == {"ready": 1} | ({"dead": 2} if act == "kill" else {})

    @pytest.mark.parametrize("outcome", [Done(), Retrying(0, ERROR), Dead(ERROR), Cancelled()], ids=lambda outcome: outcome.name)
    def test_a_run_began_and_ended_when_its_worker_says_so(self, store: Store, inspect: Inspect, outcome: Outcome) -> None:
        store.push([job("a")])
        settle(store, claim(store), outcome)

        assert [(run.outcome, run.started, run.finished) for run in inspect.recent(9)] == [(outcome.name, 1, 2)]

    def test_results_are_kept_as_long_as_asked(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("a")])
        settle(store, claim(store), Done(b"42"), keep=10 * SECOND)

        assert (inspect.result("a").state, inspect.result("a").value) == ("done", b"42")
        clock.advance(10)
        assert (inspect.result("a").state, inspect.result("a").value) == ("done", None)
        assert inspect.result("never").state == "gone"

    def test_a_long_traceback_comes_back_as_it_was(self, store: Store, inspect: Inspect) -> None:
        lines = [f'  File "app.py", line {n}, in café\n    step({n})\n' for n in range(400)]
        errors = [ErrorInfo("E", str(n), "".join(lines[: n * 100])) for n in range(5)]
        store.push([job("a")])
        for error in errors[:-1]:
            settle(store, claim(store), Retrying(0, error))
        settle(store, claim(store), Dead(errors[-1]))

        found = stands(inspect, "a").errors

        assert [(e.kind, e.message, e.traceback, e.attempt) for e in found] == [
            ("E", e.message, e.traceback, n) for n, e in enumerate(errors, 1)
        ]
        assert {type(e) for e in found} == {ErrorInfo}
        assert inspect.result("a").error == found[-1]


class TestHalting:
    def halt(self, store: Store, number: int = 4) -> None:
        """Push a lane whose first job dies and halts it; the next is parked, the others are not met yet."""
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        settle(store, claim(store, limit=2), Dead(ERROR, halt=True), limit=2)
        store.push([job(f"x{n}", lane="x") for n in range(2, number)])

    def test_a_dead_head_keeps_its_lane(self, store: Store, inspect: Inspect) -> None:
        self.halt(store)
        store.push([job("y", lane="y"), job("a"), job("m", lane="x", queue="mail")])

        assert ids(claim(store, queues=["default", "mail"])) == ["y", "a", "m"]

        found = stands(inspect, "x0")
        assert (found.state, found.holds, found.attempt, [e.message for e in found.errors]) == ("dead", True, 1, ["no"])
        holder = inspect.lane_holder("default", "x")
        assert holder is not None
        assert holder.id == "x0"
        assert states(inspect) == {"dead": 1, "blocked": 3, "running": 3}
        assert [inspect.totals()[name] for name in ("dead", "failed")] == [1, 1]

    def test_replayed_it_goes_on_where_it_was(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        self.halt(store)
        place = stands(inspect, "x0").place_at
        clock.advance(5)
        claim(store)

        assert inspect.retry("x0")

        assert states(inspect) == {"ready": 1, "blocked": 3}
        found = stands(inspect, "x0")
        assert (found.place_at, found.due_at, found.attempt, found.holds) == (place, as_datetime(clock()), 0, True)
        running = claim(store)
        assert (ids(running), running[0].unit.attempt) == (["x0"], 1)
        seen = []
        while running:
            seen += ids(running)
            running = settle(store, running, Done(), limit=5).claims
        assert seen == ["x0", "x1", "x2", "x3"]

    def test_deleted_it_lets_its_lane_go_on(self, store: Store, inspect: Inspect) -> None:
        self.halt(store)

        assert inspect.delete("x0")

        assert states(inspect) == {"ready": 3}
        assert ids(claim(store)) == ["x1"]

    def test_it_is_dead_as_others_are(self, store: Store, inspect: Inspect) -> None:
        self.halt(store)

        assert [inspect.cancel("x0"), inspect.kill("x0"), inspect.reschedule("x0", 0, 0)] == [False, False, False]
        assert (stands(inspect, "x0").holds, states(inspect)) == (True, {"dead": 1, "ready": 2, "blocked": 1})

    def test_it_can_halt_its_lane_again(self, store: Store, inspect: Inspect) -> None:
        self.halt(store)
        inspect.retry("x0")

        settle(store, claim(store), Dead(ERROR, halt=True), limit=5)

        assert states(inspect) == {"dead": 1, "blocked": 3}

    def test_replayed_and_put_off_it_keeps_its_lane(self, store: Store, inspect: Inspect) -> None:
        self.halt(store)
        inspect.retry("x0")

        assert inspect.reschedule("x0", 60 * SECOND, 0)

        assert claim(store) == []
        assert (stands(inspect, "x0").holds, states(inspect)) == (True, {"scheduled": 1, "blocked": 3})

    def test_without_a_lane_there_is_nothing_to_halt(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("b")])
        settle(store, claim(store, limit=1), Dead(ERROR, halt=True))

        assert (stands(inspect, "a").holds, ids(claim(store))) == (False, ["b"])
        place = stands(inspect, "a").place_at
        assert inspect.retry("a")
        assert stands(inspect, "a").place_at >= place

    @pytest.mark.parametrize("when", ["waiting", "running"])
    def test_who_is_killed_by_hand_halts_nothing(self, store: Store, inspect: Inspect, when: str) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        held = claim(store)
        if when == "waiting":
            settle(store, held, Retrying(SECOND, ERROR), limit=2)
        assert inspect.kill("x0")
        if when == "running":
            settle(store, held, Dead(ERROR, halt=True))

        assert (stands(inspect, "x0").holds, ids(claim(store))) == (False, ["x1"])

    def test_it_is_not_forgotten_with_others(self, bench: Bench) -> None:
        bench.store.dead_max = 1  # type: ignore[attr-defined]
        self.halt(bench.store)
        for n in range(3):
            bench.clock.advance(1)
            bench.store.push([job(f"d{n}")])
            settle(bench.store, [held for held in claim(bench.store) if held.unit.lane is None], Dead(ERROR))

        assert [found.id for found in bench.inspect.jobs(Filter(state="dead"), 9, None)] == ["x0"]
        assert states(bench.inspect) == {"dead": 1, "blocked": 3}
        bench.clock.advance(31 * 24 * 3600)
        bench.store.beat([WorkerInfo("w")])
        assert stands(bench.inspect, "x0").holds

    def test_all_that_halt_can_be_replayed_at_once(self, store: Store, inspect: Inspect) -> None:
        self.halt(store)
        store.push([job("d")])
        settle(store, [held for held in claim(store) if held.unit.id == "d"], Dead(ERROR))

        assert inspect.act_all("retry", Filter(state="dead")) == 2

        assert ids(claim(store)) == ["x0", "d"]


class TestAsking:
    def test_the_last_job_of_a_priority_can_be_cancelled_while_others_are_due_later(self, store: Store, inspect: Inspect) -> None:
        store.push([job("later", delay=60), job("urgent", priority=5)])

        assert inspect.cancel("urgent")

        assert store.exchange("w", [], [ClaimRequest("default", 9)], 9).next_due == 60 * SECOND

    def test_a_running_job_that_is_cancelled_is_marked_until_it_ends(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a")])
        held = claim(store)

        assert inspect.cancel("a")

        for _ in range(2):
            assert store.beat([WorkerInfo("w")])["w"].marks == {"a": "cancel"}
        settle(store, held, Retrying(0, ERROR))
        assert sum(inspect.counts().values()) == 0
        assert inspect.result("a").state == "cancelled"

    @pytest.mark.parametrize("end", ["fails", "goes back"])
    def test_a_running_job_that_is_deleted_leaves_no_trace(self, store: Store, inspect: Inspect, end: str) -> None:
        store.push([job("a", lane="x"), job("b", lane="x")])
        held = claim(store)
        assert inspect.delete("a")

        if end == "fails":
            settle(store, held, Retrying(0, ERROR))
        else:
            store.give_back("w")

        assert inspect.result("a").state == "gone"
        assert inspect.recent(10) == []
        assert ids(claim(store)) == ["b"]

    def test_a_job_that_was_done_before_it_heard_is_done(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", lane="x"), job("b", lane="x")])
        held = claim(store)
        inspect.cancel("a")

        answer = settle(store, held, Done(), limit=1)

        assert (answer.refused, ids(answer.claims)) == ([], ["b"])
        assert inspect.result("a").state == "done"

    def test_a_cancelled_job_does_not_come_back_when_its_worker_dies(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", lane="x"), job("b", lane="x")])
        claim(store)
        inspect.cancel("a")

        store.recover("w", "killed by signal 9")

        assert ids(claim(store)) == ["b"]

    def test_a_dead_job_can_be_deleted_but_not_cancelled(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a")])
        settle(store, claim(store), Dead(ERROR))

        assert not inspect.cancel("a")
        assert inspect.delete("a")
        assert inspect.job("a") is None

    def test_a_job_that_is_not_there_is_an_error_that_says_so(self, inspect: Inspect) -> None:
        for act in (inspect.cancel, inspect.delete, inspect.retry, inspect.kill, lambda id_: inspect.reschedule(id_, 0, 0)):
            with pytest.raises(UnknownJob, match="no job"):
                act("nobody")

    def test_a_paused_queue_is_not_claimed_from(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("later", delay=5)])
        inspect.pause("default", paused=True)

        answer = store.exchange("w", [], [ClaimRequest("default", 5)], 5)
        assert (answer.claims, answer.more, answer.next_due, answer.loads) == ([], False, None, {})
        inspect.pause("default", paused=False)
        assert ids(claim(store)) == ["a"]

    def test_a_queue_nobody_knows_cannot_be_resumed(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", queue="billing")])

        with pytest.raises(UnknownQueue, match='Did you mean "billing"'):
            inspect.pause("biling", paused=False)

    def test_a_queue_can_be_paused_before_its_first_job(self, store: Store, inspect: Inspect) -> None:
        inspect.pause("billing", paused=True, by="ann")
        assert [(queue.name, queue.paused, queue.paused_by) for queue in inspect.queues()] == [("billing", True, "ann")]
        store.push([job("a", queue="billing")])

        assert claim(store, queues=["billing"]) == []
        inspect.pause("billing", paused=False)
        assert ids(claim(store, queues=["billing"])) == ["a"]

    def test_it_is_remembered_who_paused_a_queue_and_since_when(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("a")])
        inspect.pause("default", paused=True, by="ann")
        paused = as_datetime(clock())
        clock.advance(60)
        inspect.pause("default", paused=True, by="bob")

        [queue] = inspect.queues()
        assert (queue.paused, queue.paused_by, queue.paused_at) == (True, "ann", paused)
        inspect.pause("default", paused=False, by="bob")
        [queue] = inspect.queues()
        assert (queue.paused, queue.paused_by, queue.paused_at) == (False, "", None)

    def test_what_a_run_tells_is_kept_with_its_job(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("b")])
        a, b = claim(store)
        store.give_back("w", keep=[a.token])

        told = b'{"progress":[3,10],"log":["one","two"]}'
        store.note([("a", a.token, told), ("b", b.token, told)])

        found = [inspect.job("a"), inspect.job("b")]
        assert [(j.progress, j.log) for j in found if j is not None] == [((3, 10), ["one", "two"]), (None, [])]


class TestKilling:
    def test_a_waiting_job_is_dead_at_once(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("a", unique="k", expires=5), job("later", delay=60), job("b")])
        clock.advance(1)

        assert inspect.kill("a")
        assert inspect.kill("later")

        found = stands(inspect, "a")
        assert (found.state, found.attempt, found.due_at) == ("dead", 0, as_datetime(clock()))
        assert found.errors == [ErrorInfo("killed", "killed by hand", at=clock())]
        assert (found.unique, found.expires_at) == (False, None)
        assert states(inspect) == {"ready": 1, "dead": 2}
        assert (inspect.totals()["dead"], inspect.totals()["failed"]) == (2, 0)

    def test_its_lane_goes_on(self, store: Store, inspect: Inspect) -> None:
        store.push([job(f"x{n}", lane="x") for n in range(4)])
        settle(store, claim(store), Retrying(100 * SECOND, ERROR), limit=5)

        assert inspect.kill("x1")  # parked
        assert inspect.kill("x0")  # the holder

        assert states(inspect) == {"ready": 1, "blocked": 1, "dead": 2}
        assert ids(claim(store)) == ["x2"]
        assert [e.kind for e in stands(inspect, "x0").errors] == ["ValueError", "killed"]
        assert stands(inspect, "x0").attempt == 1

    @pytest.mark.parametrize("outcome", [Retrying(0, ERROR), Snoozed(0), Dead(ERROR), Cancelled()], ids=lambda o: o.name)
    def test_a_running_job_is_dead_when_its_run_has_ended(self, store: Store, inspect: Inspect, outcome: Outcome) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        held = claim(store)

        assert inspect.kill("x0")

        assert store.beat([WorkerInfo("w")])["w"].marks == {"x0": "kill"}
        assert stands(inspect, "x0").state == "running"
        assert ids(settle(store, held, outcome, limit=1).claims) == ["x1"]
        found = stands(inspect, "x0")
        assert (found.state, found.mark, [e.kind for e in found.errors]) == ("dead", None, ["killed"])
        assert [(run.id, run.outcome, run.started) for run in inspect.recent(5)] == [("x0", "dead", 1)]
        assert [inspect.totals()[name] for name in ("dead", "failed", "retried", "cancelled")] == [1, 0, 0, 0]

    def test_a_job_that_was_done_before_it_heard_is_done(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a")])
        held = claim(store)
        inspect.kill("a")

        settle(store, held, Done())

        assert (inspect.result("a").state, inspect.totals()["dead"]) == ("done", 0)

    @pytest.mark.parametrize("how", ["given back", "recovered"])
    def test_a_run_that_did_not_end_does_not_come_back(self, store: Store, inspect: Inspect, how: str) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        claim(store)
        inspect.kill("x0")

        if how == "recovered":
            store.recover("w", "killed by signal 9")
        else:
            store.give_back("w")

        assert (stands(inspect, "x0").state, [e.kind for e in stands(inspect, "x0").errors]) == ("dead", ["killed"])
        assert ids(claim(store)) == ["x1"]

    def test_a_dead_job_cannot_be_killed_but_replayed(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a")])
        inspect.kill("a")

        assert not inspect.kill("a")
        assert inspect.retry("a")
        [again] = claim(store)
        assert (again.unit.id, again.unit.attempt) == ("a", 1)


class TestRescheduling:
    def test_a_waiting_job_is_due_at_another_time(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("a"), job("b", delay=60), job("c", delay=60)])

        assert inspect.reschedule("a", 10 * SECOND, 0)
        assert inspect.reschedule("b", 0, clock() + 20 * SECOND)
        assert inspect.reschedule("c", 0, 0)

        assert states(inspect) == {"scheduled": 2, "ready": 1}
        found = [(stands(inspect, id_).due_at, stands(inspect, id_).place_at) for id_ in "abc"]
        assert found == [(as_datetime(clock() + after * SECOND),) * 2 for after in (10, 20, 0)]
        assert ids(claim(store)) == ["c"]
        clock.advance(20)
        assert ids(claim(store)) == ["a", "b"]

    def test_in_its_lane_it_stands_behind_who_came_before_its_new_time(
        self, store: Store, inspect: Inspect, clock: Clock
    ) -> None:
        store.push([job(f"x{n}", lane="x") for n in range(3)])

        assert inspect.reschedule("x0", 0, 0)
        assert inspect.reschedule("x1", 60 * SECOND, 0)

        head = claim(store)
        assert ids(head) == ["x2"]
        assert ids(settle(store, head, Done(), limit=1).claims) == ["x0"]
        clock.advance(60)
        assert claim(store, worker="other") == []
        assert states(inspect) == {"blocked": 1, "running": 1}

    def test_a_parked_job_leaves_its_lanes_line(self, store: Store, inspect: Inspect) -> None:
        store.push([job(f"x{n}", lane="x") for n in range(3)])
        head = claim(store)

        assert inspect.reschedule("x1", 60 * SECOND, 0)

        assert states(inspect) == {"scheduled": 1, "blocked": 1, "running": 1}
        assert ids(settle(store, head, Done(), limit=5).claims) == ["x2"]

    @pytest.mark.parametrize("how", ["never claimed", "given back"])
    def test_a_holder_that_never_started_lets_the_next_go_first(
        self, store: Store, inspect: Inspect, clock: Clock, how: str
    ) -> None:
        store.push([job(f"x{n}", lane="x") for n in range(3)])
        head = claim(store)
        claim(store)  # the others are parked
        if how == "given back":
            store.give_back("w")
        else:
            settle(store, head, Done())
        holder = inspect.lane_holder("default", "x")
        assert holder is not None

        assert inspect.reschedule(holder.id, 60 * SECOND, 0)

        again = claim(store)
        assert ids(again) == ["x1" if how == "given back" else "x2"]
        assert not stands(inspect, holder.id).holds
        settle(store, again, Done())
        clock.advance(60)
        assert holder.id in ids(claim(store)) or how == "given back"

    @pytest.mark.parametrize("how", ["retrying", "snoozed", "recovered"])
    def test_one_that_has_started_keeps_its_place_and_its_lane(
        self, store: Store, inspect: Inspect, clock: Clock, how: str
    ) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x"), job("a")])
        held = claim(store)
        place = stands(inspect, "x0").place_at
        if how == "recovered":
            store.recover("w", "killed by signal 9")
        else:
            settle(store, held, Retrying(5 * SECOND, ERROR) if how == "retrying" else Snoozed(5 * SECOND))

        assert inspect.reschedule("x0", 60 * SECOND, 0)
        assert inspect.reschedule("a", 90 * SECOND, 0)

        assert states(inspect) == {"retrying" if how == "retrying" else "scheduled": 2, "blocked": 1}
        assert (stands(inspect, "x0").place_at, stands(inspect, "x0").holds) == (place, True)
        clock.advance(59)
        assert claim(store) == []
        clock.advance(1)
        assert ids(claim(store)) == ["x0"]

    def test_how_long_it_may_wait_is_counted_from_its_new_place(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("a", expires=5)])

        inspect.reschedule("a", 60 * SECOND, 0)

        assert stands(inspect, "a").expires_at == as_datetime(clock() + 65 * SECOND)
        clock.advance(65)
        assert ids(claim(store)) == ["a"]

    def test_a_replayed_job_has_not_started(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("a")])
        settle(store, claim(store), Retrying(0, ERROR))
        settle(store, claim(store), Dead(ERROR))
        inspect.retry("a")

        assert inspect.reschedule("a", 60 * SECOND, 0)
        assert stands(inspect, "a").place_at == as_datetime(clock() + 60 * SECOND)

    def test_what_runs_or_is_dead_is_not_rescheduled(self, store: Store, inspect: Inspect) -> None:
        store.push([job("dead"), job("runs")])
        inspect.kill("dead")
        claim(store)

        assert not inspect.reschedule("dead", 0, 0)
        assert not inspect.reschedule("runs", 0, 0)

    def test_who_waits_hears_of_a_job_that_became_due(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", delay=60)])
        assert_woken(store, lambda: inspect.reschedule("a", 0, 0))

    def test_who_waits_hears_of_a_job_that_is_due_sooner(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", delay=60), job("b", delay=90)])
        quiet(store)
        inspect.reschedule("b", 80 * SECOND, 0)
        assert not rung(store)
        inspect.reschedule("b", 50 * SECOND, 0)
        assert rung(store)

    @pytest.mark.parametrize(("priority", "afters"), [(-5, (50, 90)), (0, (50, 90)), (0, (90, 50))])
    def test_who_waits_hears_of_the_sooner_of_two_that_wait_again(
        self, store: Store, priority: int, afters: tuple[int, int]
    ) -> None:
        store.push([job(), job(priority=priority), job(priority=priority, delay=60)])
        held = zip(claim(store), afters, strict=True)
        again = [settled_alike(one, Retrying(after * SECOND, ERROR), 1, 2) for one, after in held]
        assert_woken(store, lambda: store.exchange("w", again, [], 0))


class TestMany:
    def test_all_that_match_are_changed_and_counted(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("b", queue="mail"), job("c", delay=60), job("d", task="app.other"), job("e")])
        inspect.kill("e")

        assert inspect.act_all("cancel", Filter(queue="default", task="app.task")) == 2  # a, c; e is dead
        assert sorted(j.id for j in inspect.jobs(Filter(), 10, None)) == ["b", "d", "e"]
        assert inspect.act_all("retry", Filter()) == 1
        assert inspect.act_all("reschedule", Filter(queue="default"), 60 * SECOND) == 2
        assert states(inspect) == {"scheduled": 2, "ready": 1}
        assert inspect.act_all("kill", Filter(state="scheduled")) == 2
        assert inspect.act_all("delete", Filter()) == 3
        assert (states(inspect), inspect.totals()["cancelled"], inspect.totals()["dead"]) == ({}, 2, 3)

    def test_those_that_fail_can_be_changed_alone(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("b"), job("c")])
        settle(store, claim(store, limit=1), Retrying(0, ERROR))
        inspect.kill("c")

        assert inspect.act_all("cancel", Filter(failing=True)) == 1
        assert sorted(j.id for j in inspect.jobs(Filter(), 10, None)) == ["b", "c"]

    @pytest.mark.parametrize("action", ["cancel", "delete", "kill"])
    def test_what_runs_is_marked(self, store: Store, inspect: Inspect, action: str) -> None:
        store.push([job("a"), job("b"), job("c")])
        claim(store, limit=2)

        assert inspect.act_all(action, Filter()) == 3
        assert store.beat([WorkerInfo("w")])["w"].marks == {"a": action, "b": action}

    @pytest.mark.parametrize("action", ["cancel", "delete", "kill", "reschedule"])
    def test_a_whole_lane_can_go(self, store: Store, inspect: Inspect, action: str) -> None:
        store.push([job(f"x{n}", lane="x") for n in range(1200)])
        head = claim(store)
        store.give_back("w")
        assert states(inspect) == {"ready": 200, "blocked": 1000}

        assert inspect.act_all(action, Filter(lane="x")) == 1200

        after = {"kill": {"dead": 1200}, "reschedule": {"ready": 1200}}.get(action, {})
        assert (ids(head), states(inspect), inspect.lane_holder("default", "x")) == (["x0"], after, None)

    def test_only_some_are_changed_in_one_turn_and_others_get_theirs(
        self, bench: Bench, store: Store, inspect: Inspect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.push([job(f"j{n}") for n in range(1200)])
        lengths: list[int] = []

        def between() -> None:
            """What somebody else does before each turn."""
            lengths.append(inspect.count(Filter(state="ready")))
            if len(lengths) == 2:
                claim(store, limit=1)  # j500, before its turn
                store.push([job("new")])

        before_each_step(bench, monkeypatch, between)

        assert inspect.act_all("cancel", Filter(state="ready")) == 1199
        assert lengths == [1200, 700, 201]
        assert [(j.id, j.state, j.mark) for j in inspect.jobs(Filter(), 10, None)] == [
            ("j500", "running", None), ("new", "ready", None),
        ]  # fmt: skip

    def test_what_came_to_match_meanwhile_is_not_touched(
        self, bench: Bench, store: Store, inspect: Inspect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.push([job(f"j{n}") for n in range(502)])
        inspect.act_all("kill", Filter(ids=tuple(f"j{n}" for n in range(501))))
        before_each_step(bench, monkeypatch, lambda: inspect.kill("j501"))

        assert inspect.act_all("retry", Filter(state="dead")) == 501
        assert [j.id for j in inspect.jobs(Filter(state="dead"), 10, None)] == ["j501"]

    def test_what_nobody_can_do_is_said_so(self, inspect: Inspect) -> None:
        with pytest.raises(ConfigError, match='Did you mean "retry"'):
            inspect.act_all("retri", Filter())

    def test_clearing_a_queue_leaves_what_runs_and_what_is_dead(self, store: Store, inspect: Inspect) -> None:
        store.push([job("dead"), job("x0", lane="x"), job("x1", lane="x"), job("r"), job("s", delay=9), job("m", queue="mail")])
        inspect.kill("dead")
        held = claim(store, limit=2)
        settle(store, held[1:], Retrying(60 * SECOND, ERROR))
        claim(store)
        store.push([job("ready", priority=3), job("x2", lane="x")])
        assert states(inspect) == {"scheduled": 1, "ready": 3, "retrying": 1, "blocked": 1, "running": 1, "dead": 1}

        assert inspect.clear("default") == 5

        assert sorted((j.id, j.state) for j in inspect.jobs(Filter(), 10, None)) == [
            ("dead", "dead"),
            ("m", "ready"),
            ("x0", "running"),
        ]
        assert states(inspect) == {"ready": 1, "running": 1, "dead": 1}
        assert (inspect.totals()["cancelled"], inspect.clear("default"), inspect.clear("unheard of")) == (0, 0, 0)
        assert settle(store, held[:1], Done()).refused == []

    def test_a_cleared_lane_is_free(self, store: Store, inspect: Inspect) -> None:
        store.push([job(f"x{n}", lane="x") for n in range(3)])
        settle(store, claim(store), Retrying(60 * SECOND, ERROR), limit=5)

        assert inspect.clear("default") == 3

        store.push([job("x3", lane="x")])
        assert ids(claim(store)) == ["x3"]


def before_each_step(bench: Bench, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen before each step by hand, but not before its own."""
    step, inside = getattr(bench.store, bench.step), [False]

    def watched(*arguments: object) -> object:
        if not inside[0]:
            inside[0] = True
            act()
            inside[0] = False
        return step(*arguments)

    monkeypatch.setattr(bench.store, bench.step, watched)


class TestLooking:
    def test_jobs_are_found_by_state_queue_task_and_lane(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", lane="x"), job("b", lane="x"), job("c", queue="mail"), job("d", delay=9)])
        claim(store)

        def found(**which: Any) -> list[str]:
            return [j.id for j in inspect.jobs(Filter(**which), 10, None)]

        assert sorted(found()) == ["a", "b", "c", "d"]
        assert found(state="running") == ["a"]
        assert found(state="blocked") == ["b"]
        assert found(state="ready") == ["c"]
        assert found(state="scheduled") == ["d"]
        assert found(queue="mail") == ["c"]
        assert found(lane="x") == ["a", "b"]
        assert found(task="other") == []

    def test_pages_go_on_where_they_ended(self, store: Store, inspect: Inspect) -> None:
        store.push([job(f"j{n}") for n in range(5)])

        first = inspect.jobs(Filter(), 2, None)
        second = inspect.jobs(Filter(), 2, first.next)
        last = inspect.jobs(Filter(), 2, second[-1].id)

        assert [[j.id for j in page] for page in (first, second, last)] == [["j0", "j1"], ["j2", "j3"], ["j4"]]
        assert last.next is None
        with pytest.raises(NotFound, match=r"page\.next"):
            inspect.jobs(Filter(), 2, "nobody")

    def test_pages_go_the_other_way_too(self, store: Store, inspect: Inspect) -> None:
        store.push([job(f"j{n}", queue="default" if n != 3 else "mail") for n in range(6)])

        def page(after: str | None) -> Page:
            return inspect.jobs(Filter(queue="default"), 2, after, newest=True)

        first = page(None)
        store.push([job("newer")])
        second = page(first.next)
        last = page(second[-1].id)

        assert [[j.id for j in page] for page in (first, second, last)] == [["j5", "j4"], ["j2", "j1"], ["j0"]]
        assert last.next is None

    @pytest.mark.parametrize("newest", [False, True])
    @pytest.mark.parametrize("state", [None, "ready", "scheduled", "retrying", "blocked", "running", "dead", "waiting"])
    def test_pages_of_any_size_show_every_job_of_a_state_once(
        self, store: Store, inspect: Inspect, state: str | None, newest: bool
    ) -> None:
        store.push([job(f"r{n}", priority=n % 3) for n in range(7)])
        held = claim(store, limit=6)
        settle(store, held[:2], Dead(ERROR))
        settle(store, held[2:4], Retrying(60 * SECOND, ERROR))
        store.push([job(f"s{n}", delay=9 + n % 2, queue="default" if n % 2 else "mail") for n in range(5)])
        store.push([job(f"x{n}", lane=f"lane-{n % 2}", queue="lanes") for n in range(6)])
        claim(store, queues=["lanes"])
        store.push([job(f"p{n}", priority=n, queue="mail") for n in range(3)])
        everybody = [info.id for info in inspect.jobs(Filter(state=state), 100, None, newest)]

        for size in (1, 2, 3):
            for by_id in (False, True):
                found: list[str] = []
                page = inspect.jobs(Filter(state=state), size, None, newest)
                found += [info.id for info in page]
                while page.next is not None:
                    page = inspect.jobs(Filter(state=state), size, page[-1].id if by_id else page.next, newest)
                    found += [info.id for info in page]
                assert found == everybody
        assert everybody
        assert len(everybody) == len(set(everybody)) == inspect.count(Filter(state=state))

    @pytest.mark.parametrize("newest", [False, True])
    def test_a_page_that_is_not_to_look_at_many_may_be_short_and_goes_on(
        self, store: Store, inspect: Inspect, newest: bool
    ) -> None:
        store.push([job(f"j{n:03}", task="rare" if n % 40 == 7 else "app.task") for n in range(5_000)])
        which = Filter(task="rare", look=1_000)
        pages = [inspect.jobs(which, 1_000, None, newest)]
        while (after := pages[-1].next) is not None:
            pages.append(inspect.jobs(which, 1_000, after, newest))

        assert len(pages) > 1
        everybody = [info.id for info in inspect.jobs(Filter(task="rare"), 1_000, None, newest)]
        assert [info.id for page in pages for info in page] == everybody
        assert len(everybody) == 125
        assert len(inspect.jobs(Filter(look=10), 100, None)) == 100

    def test_jobs_are_found_by_their_last_error_and_by_their_ids(self, store: Store, inspect: Inspect) -> None:
        store.push([job(id_) for id_ in "abcd"])
        errors = [ErrorInfo("smtp.Refused", "no such user: ann%"), ErrorInfo("OSError", "disk full"), ErrorInfo("OSError", "bye")]
        for held, error in zip(claim(store, limit=3), errors, strict=True):
            settle(store, [held], Dead(error))
        inspect.retry("c")
        settle(store, claim(store)[1:], Retrying(0, ErrorInfo("ValueError", "bye")))

        def found(**which: Any) -> list[str]:
            assert inspect.count(Filter(**which)) == len(inspect.jobs(Filter(**which), 10, None))
            return sorted(j.id for j in inspect.jobs(Filter(**which), 10, None))

        assert found(error="Refused") == ["a"]
        assert found(error="ann%") == ["a"]
        assert found(error="OSError") == ["b"]  # c's last one is another
        assert found(error="Error") == ["b", "c"]
        assert found(error="bye", state="dead") == []
        assert found(ids=("a", "d", "nobody")) == ["a", "d"]
        assert found(ids=("a", "d"), state="dead") == ["a"]
        assert found(ids=()) == []
        assert found(failing=True) == ["c"]
        assert inspect.act_all("retry", Filter(state="dead", error="smtp")) == 1
        assert stands(inspect, "a").state == "ready"

    def test_jobs_are_counted(self, store: Store, inspect: Inspect) -> None:
        store.push([job(queue=queue) for queue in ("a", "b", "b")])

        assert [inspect.count(which) for which in (Filter(), Filter(queue="b"), Filter(state="dead"))] == [3, 2, 0]

    def test_a_lanes_holder_and_its_line_are_shown(self, store: Store, inspect: Inspect) -> None:
        store.push([*(job(f"x{n}", lane="x") for n in range(4)), job("y", lane="y"), job("m", lane="x", queue="mail"), job("a")])
        head = claim(store, limit=1)
        claim(store, limit=2)  # y, a: the rest of x is parked

        holder = inspect.lane_holder("default", "x")

        assert holder is not None
        assert (holder.id, holder.holds, holder.state) == ("x0", True, "running")
        assert [stands(inspect, id_).holds for id_ in ("x1", "y", "m", "a")] == [False, True, False, False]
        assert [inspect.parked_before(id_) for id_ in ("x0", "x1", "x2", "x3", "m", "a", "nobody")] == [0, 0, 1, 2, 0, 0, 0]
        settle(store, head, Done())
        holder = inspect.lane_holder("default", "x")
        assert holder is not None
        assert (holder.id, holder.state, inspect.parked_before("x3")) == ("x1", "ready", 1)
        assert inspect.lane_holder("mail", "x") is None

    def test_a_job_is_ready_from_its_very_microsecond_on(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("now")])
        store.push([job("a microsecond later", delay=0.000001)])

        assert (inspect.counts()["ready"], inspect.counts()["scheduled"]) == (1, 1)
        clock.now += 1
        assert (inspect.counts()["ready"], inspect.counts()["scheduled"]) == (2, 0)
        assert len(claim(store)) == 2

    def test_queues_are_listed_with_their_counts(self, store: Store, inspect: Inspect) -> None:
        store.push([job(queue="b"), job(queue="a", delay=1)])
        inspect.pause("a", paused=True)

        listed = [(q.name, q.paused, {s: n for s, n in q.counts.items() if n}) for q in inspect.queues()]

        assert listed == [("a", True, {"scheduled": 1}), ("b", False, {"ready": 1})]

    @pytest.mark.parametrize("outcome", [Done(), Cancelled()])
    def test_recent_runs_are_the_last_thousand_newest_first(self, store: Store, inspect: Inspect, outcome: Outcome) -> None:
        store.push([job(f"j{n:04}") for n in range(1500)])
        while held := claim(store, limit=200):
            settle(store, held, outcome)

        recent = inspect.recent(5000)
        assert len(recent) == 1000
        assert [run.id for run in recent[:2]] == ["j1499", "j1498"]
        assert (recent[0].task, recent[0].queue, recent[0].outcome, recent[0].started) == ("app.task", "default", outcome.name, 1)
        assert inspect.result("j1499").state == outcome.name
        assert inspect.result("j0001").state == "gone"

    def test_totals_count_what_happened(self, store: Store, inspect: Inspect) -> None:
        store.push([job("done"), job("retried"), job("dies"), job("cancelled")])
        held = claim(store)
        outcomes: list[Outcome] = [Done(), Retrying(0, ERROR), Dead(ERROR), Cancelled()]
        for claimed, outcome in zip(held, outcomes, strict=True):
            settle(store, [claimed], outcome)
        store.record(Report(counters={"crashed": 2}))
        store.record(Report(counters={"crashed": 1}))

        totals = inspect.totals()

        expected = {"enqueued": 4, "processed": 1, "failed": 2, "retried": 1, "dead": 1, "cancelled": 1, "crashed": 3}
        assert {name: totals[name] for name in expected} == expected
        assert [(run.id, run.outcome) for run in inspect.recent(10)] == [
            ("cancelled", "cancelled"), ("dies", "dead"), ("retried", "retrying"), ("done", "done"),
        ]  # fmt: skip

    def test_a_job_that_is_cancelled_before_it_runs_is_a_run_that_never_started(self, store: Store, inspect: Inspect) -> None:
        store.push([job("plain"), job("laned", lane='l"1', task="app.other", queue="mail")])
        assert inspect.cancel("plain")
        assert inspect.cancel("laned")

        runs = [(run.id, run.task, run.queue, run.lane, run.outcome, run.started) for run in inspect.recent(9)]

        assert sorted(runs) == [
            ("laned", "app.other", "mail", 'l"1', "cancelled", 0), ("plain", "app.task", "default", None, "cancelled", 0),
        ]  # fmt: skip

    @pytest.mark.parametrize("after", ["seq:²", "seq:" + "9" * 30, "seq:", "seq:x"])
    def test_a_place_that_no_page_gave_is_not_found(self, inspect: Inspect, after: str) -> None:
        with pytest.raises(NotFound, match=r"page\.next"):
            inspect.jobs(Filter(), 10, after)

    def test_a_queue_lags_as_long_as_its_oldest_due_job_has_waited(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        def lag() -> float:
            [queue] = inspect.queues()
            return queue.lag

        store.push([job("later", delay=60)])
        clock.advance(1)
        assert lag() == 0
        store.push([job("a"), job("b", delay=2, priority=5), job("c", lane="x")])
        clock.advance(3)
        assert lag() == 3
        held = claim(store)
        assert (len(held), lag()) == (3, 0)
        settle(store, held[:1], Retrying(10 * SECOND, ERROR))
        clock.advance(14)
        assert lag() == 4


class TestWorkers:
    def test_a_worker_is_named_until_its_last_claim_is_back(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("b", lane="x")])
        claim(store, worker="silent")
        back: list[str] = []
        deadline = time.monotonic() + 10
        while len(back) < 2:
            assert time.monotonic() < deadline
            for dead in store.dead_workers():
                back += store.recover(dead, "killed")
            time.sleep(0.01)

        assert (sorted(back), store.dead_workers(), store.recover("silent", "killed")) == (["a", "b"], [], [])
        assert inspect.totals()["recovered"] == 2

    def test_a_dead_workers_claims_are_ready_again_and_marked(self, store: Store, inspect: Inspect) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        store.beat([WorkerInfo("w")])
        held = claim(store)

        assert store.recover("w", "killed by signal 9") == ["x0"]

        found = inspect.job("x0")
        assert found is not None
        assert (found.state, found.attempt) == ("ready", 0)
        assert [(error.kind, error.message) for error in found.errors] == [("worker lost", "killed by signal 9")]
        assert settle(store, held, Done()).refused == ["x0"]
        assert ids(claim(store, worker="other")) == ["x0"]
        assert inspect.totals()["recovered"] == 1

    def test_a_worker_hears_that_it_was_taken_for_dead(self, store: Store) -> None:
        assert not store.beat([WorkerInfo("w")])["w"].known  # nobody knew it yet
        assert store.beat([WorkerInfo("w")])["w"].known
        store.recover("w", "its beat stood still")

        assert not store.beat([WorkerInfo("w")])["w"].known

    def test_commands_are_heard_once(self, store: Store, inspect: Inspect) -> None:
        store.beat([WorkerInfo("w")])
        assert inspect.tell("w", "quiet")
        assert inspect.tell("w", "stop")
        assert not inspect.tell("nobody", "stop")

        assert store.beat([WorkerInfo("w")])["w"].commands == ("quiet", "stop")
        assert store.beat([WorkerInfo("w")])["w"].commands == ()

    def test_a_process_that_is_gone_is_dead_at_once(self, store: Store) -> None:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(reader, 1)
            os._exit(0)
        me, other = liveness.this_worker(), liveness.this_worker()
        started, _ = liveness._process(child)
        theirs = WorkerInfo(id=other.id, host=other.host, boot=other.boot, pid=child, started=started)
        store.beat([me, theirs])
        assert store.dead_workers() == []

        os.write(writer, b"x")
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it is a zombie now

        assert store.dead_workers() == [theirs.id]
        os.waitpid(child, 0)
        assert store.dead_workers() == [theirs.id]
        os.close(reader)
        os.close(writer)

    def test_a_pid_that_was_used_again_is_another_process(self, store: Store) -> None:
        me = liveness.this_worker()
        before = WorkerInfo(id="before", host=me.host, boot=me.boot, pid=me.pid, started=me.started - 1)
        store.beat([me, before])

        assert store.dead_workers() == ["before"]

    def test_elsewhere_a_beat_that_stands_still_is_dead_after_a_while(self, store: Store) -> None:
        there = WorkerInfo(id="there", host="elsewhere", boot="another")
        here = liveness.this_worker()
        deadline = time.monotonic() + 10
        store.beat([there])
        while (dead := store.dead_workers()) == []:
            store.beat([here])
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert dead == ["there"]

    def test_a_worker_that_comes_back_is_judged_anew(self, store: Store) -> None:
        there = WorkerInfo(id="there", host="elsewhere", boot="another")
        deadline = time.monotonic() + 10
        store.beat([there])
        while store.dead_workers() != ["there"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        store.recover("there", "its beat stood still")

        assert not store.beat([there])["there"].known  # as often as it had beaten when it was last seen

        assert store.dead_workers() == []

    @pytest.mark.parametrize("refused", [False, True])
    def test_a_worker_that_never_beat_is_found_by_its_claims(self, store: Store, refused: bool) -> None:
        store.push([job("a")])
        held = claim(store, worker="silent")
        if refused:
            store.recover("silent", "frozen")
            assert ids(settle(store, held, Done(), worker="silent", limit=1).claims) == ["a"]
        deadline = time.monotonic() + 10
        while store.dead_workers() != ["silent"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        store.recover("silent", "killed")
        assert store.dead_workers() == []

    def test_an_observer_that_did_not_look_judges_nobody(self) -> None:
        now = [0.0]
        observer = liveness.Observer(dead_after=15, clock=lambda: now[0])
        there = WorkerInfo(id="there", host="elsewhere", boot="another")
        assert observer.dead([(there, 1)]) == []

        now[0] += 3600  # frozen for an hour
        assert observer.dead([(there, 1)]) == []
        for _ in range(3):
            now[0] += 5
            last = observer.dead([(there, 1)])
        assert last == ["there"]
        assert observer.dead([(there, 2)]) == []

    def test_an_ended_worker_of_a_fleet_is_left_to_its_supervisor_while_that_lives(self) -> None:
        now = [0.0]
        observer = liveness.Observer(dead_after=15, clock=lambda: now[0])
        me = liveness.this_worker(fleet="f")
        ended = replace(me, id="ended", started=me.started - 1)
        assert observer.dead([(me, 1), (ended, 1)]) == []  # its supervisor knows why it ended
        assert observer.dead([(replace(me, fleet="g"), 2), (ended, 1)]) == ["ended"]
        for beat in range(4):  # the supervisor did not do its part
            now[0] += 5
            last = observer.dead([(me, 2 + beat), (ended, 1)])
        assert last == ["ended"]

    def test_an_observer_that_did_not_recover_a_worker_knows_another_beat_by_its_time(self) -> None:
        now = [0.0]
        observer = liveness.Observer(dead_after=15, clock=lambda: now[0])
        there = WorkerInfo(id="there", host="elsewhere", boot="another")
        dead: list[str] = []
        while not dead:
            now[0] += 5
            dead = observer.dead([(there, (3, 1_000))])
        assert now[0] >= 15
        assert observer.dead([(there, (3, 20_000))]) == []  # somebody else recovered it, and it is back


class TestLostClaims:
    def test_a_first_claim_follows_no_lost_one(self, store: Store) -> None:
        store.push([job("a")])

        assert words(claim(store)) == {"a": ""}

    def test_the_next_claim_says_why_the_one_before_was_lost(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("b"), job("c")])
        a, b, _ = claim(store)

        store.recover("w", "killed by signal 11", {a.token: "crash", b.token: "timeout"})

        found = [inspect.job(id_) for id_ in "abc"]
        assert [[e.message for e in j.errors] for j in found if j is not None] == [["killed by signal 11"]] * 3
        assert words(claim(store, worker="other")) == {"a": "crash", "b": "timeout", "c": ""}

    def test_a_job_that_is_lost_for_no_reason_of_its_own_keeps_the_word(self, store: Store) -> None:
        lose(store, "a", "crash")
        claim(store)

        store.recover("w", "killed by signal 9")

        assert words(claim(store)) == {"a": "crash"}

    def test_a_job_that_is_lost_again_has_the_last_word(self, store: Store) -> None:
        lose(store, "a", "crash")
        [again] = claim(store)

        store.recover("w", "its timeout was over", {again.token: "timeout"})

        assert words(claim(store)) == {"a": "timeout"}

    def test_giving_back_keeps_the_word(self, store: Store) -> None:
        lose(store, "a", "crash")
        claim(store)

        store.give_back("w")

        assert words(claim(store)) == {"a": "crash"}

    def test_a_word_for_a_claim_that_is_not_held_is_passed_over(self, store: Store) -> None:
        store.push([job("settled"), job("others"), job("mine")])
        [settled] = claim(store, limit=1)
        settle(store, [settled], Retrying(0, ERROR))
        [others] = claim(store, limit=1, worker="other")
        claim(store)

        store.recover("w", "killed", {settled.token: "crash", others.token: "crash", 10**6: "crash"})
        store.give_back("other")

        assert words(claim(store)) == {"settled": "", "others": "", "mine": ""}

    @pytest.mark.parametrize("outcome", [Retrying(0, ERROR), Snoozed(0)], ids=lambda outcome: outcome.name)
    def test_a_run_that_came_to_an_end_is_no_suspect_any_more(self, store: Store, outcome: Outcome) -> None:
        lose(store, "a", "crash")

        settle(store, claim(store), outcome)

        assert words(claim(store)) == {"a": ""}

    @pytest.mark.parametrize("outcome", [Done(), Cancelled()], ids=lambda outcome: outcome.name)
    def test_a_job_that_left_leaves_no_word_for_the_next_with_its_id(self, store: Store, outcome: Outcome) -> None:
        lose(store, "a", "crash")
        settle(store, claim(store), outcome)

        store.push([job("a")])

        assert words(claim(store)) == {"a": ""}

    def test_a_replayed_job_begins_anew(self, store: Store, inspect: Inspect) -> None:
        lose(store, "a", "crash")
        settle(store, claim(store), Dead(ERROR))

        assert inspect.retry("a")

        assert words(claim(store)) == {"a": ""}

    def test_the_word_stays_with_its_job_and_not_with_its_lane(self, store: Store) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        [head] = claim(store)
        store.recover("w", "killed by signal 11", {head.token: "crash"})

        again = claim(store)
        assert words(again) == {"x0": "crash"}
        assert words(settle(store, again, Done(), limit=1).claims) == {"x1": ""}

    @pytest.mark.parametrize("action", ["cancel", "delete"])
    def test_a_suspect_that_was_to_be_ended_does_not_come_back(self, store: Store, inspect: Inspect, action: str) -> None:
        store.push([job("a")])
        [held] = claim(store)
        assert getattr(inspect, action)("a")

        store.recover("w", "killed by signal 11", {held.token: "crash"})

        assert inspect.job("a") is None


def lose(store: Store, id_: str, word: str) -> None:
    """Push a job whose first claim is lost, with a word."""
    store.push([job(id_)])
    [held] = claim(store)
    store.recover("w", "killed by signal 11", {held.token: word})


def words(claims: Sequence[Claim]) -> dict[str, str]:
    return {claim.unit.id: claim.lost for claim in claims}


class TestWaiting:
    def test_a_push_ends_the_wait(self, store: Store) -> None:
        assert_woken(store, lambda: store.push([job("a")]))
        settle(store, claim(store), Done())  # from now on the queue is known
        quiet(store)
        store.push([job("b")])
        assert rung(store)

    def test_a_lane_that_goes_on_ends_the_wait_of_others(self, store: Store) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        held = claim(store)
        assert_woken(store, lambda: settle(store, held, Done()))

    def test_wake_ends_the_wait(self, store: Store) -> None:
        assert_woken(store, store.wake)

    def test_a_wake_before_the_wait_is_not_lost(self, store: Store) -> None:
        quiet(store)
        store.wake()
        assert store.wait(10)

    def test_nothing_between_exchange_and_wait_is_missed(self, store: Store) -> None:
        quiet(store)
        assert claim(store) == []
        store.push([job("a")])
        assert store.wait(10)

    def test_everybody_who_waits_is_woken(self, store: Store) -> None:
        quiet(store)
        woken: list[bool] = []
        threads = [threading.Thread(target=lambda: woken.append(store.wait(30))) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        store.push([job("a")])
        for thread in threads:
            thread.join(10)
        assert woken == [True] * 3

    def test_a_wait_ends_in_time(self, store: Store) -> None:
        quiet(store)
        before = time.monotonic()
        assert not store.wait(0.05)
        assert time.monotonic() - before >= 0.049

    @pytest.mark.parametrize("number", [1, 3])
    def test_an_earlier_job_ends_the_wait_for_a_later_one_and_a_later_does_not(self, store: Store, number: int) -> None:
        store.push([job(delay=100)])
        quiet(store)
        store.push([job(delay=200) for _ in range(number)])
        assert not rung(store)
        store.push([job(delay=50) for _ in range(number)])
        assert rung(store)


def quiet(store: Store) -> None:
    """Listen, and let what has rung so far fade."""
    claim(store, limit=1)
    while store.wait(0.01):
        claim(store, limit=1)


def assert_woken(store: Store, act: object) -> None:
    quiet(store)
    woken = threading.Event()

    def wait() -> None:
        if store.wait(30):
            woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    act()  # type: ignore[operator]
    thread.join(10)
    assert woken.is_set()


# -- only what is meant --------------------------------------------------------------------------------------------


class TestOnlyThat:
    """What is done to one job, lane or queue leaves all others as they are."""

    def test_a_lane_that_goes_on_lets_out_its_own_next(self, bench: Bench) -> None:
        store = bench.store
        store.push([job("b0", lane="b"), job("b1", lane="b"), job("a0", lane="a"), job("a1", lane="a")])
        store.push([job("c0", lane="a", queue="other"), job("c1", lane="a", queue="other")])
        held = {found.unit.id: found for found in claim(store, 9, queues=("default", "other"))}
        assert held.keys() == {"a0", "b0", "c0"}

        settle(store, [held["a0"]], Done())

        assert [bench.inspect.job(id_).state for id_ in ("a1", "b1", "c1")] == ["ready", "blocked", "blocked"]  # type: ignore[union-attr]
        assert ids(claim(store, 9, queues=("default", "other"))) == ["a1"]

    def test_what_is_too_old_in_one_lane_takes_nobody_of_another_along(self, bench: Bench) -> None:
        store = bench.store
        store.push(
            [job("b0", lane="b"), job("b1", lane="b", expires=5), job("a0", lane="a", expires=5), job("a1", lane="a", expires=5)]
        )
        store.push([job("c0", lane="a", queue="other"), job("c1", lane="a", queue="other", expires=5)])
        claim(store, 9, queues=("default", "other"))
        store.give_back("w")
        bench.clock.advance(6)

        claim(store, 9)

        assert bench.inspect.totals()["cancelled"] == 2
        assert [bench.inspect.job(id_) is not None for id_ in ("a0", "a1", "b1", "c1")] == [False, False, True, True]

    def test_what_is_too_old_behind_a_holder_is_counted_as_it_waits(self, bench: Bench) -> None:
        store = bench.store
        store.push([job("a0", lane="a", expires=5)])
        claim(store)
        store.give_back("w")
        store.push([job("a1", lane="a", expires=5)])  # ready: no claim has met it
        bench.clock.advance(6)

        assert claim(store) == []

        assert (states(bench.inspect), bench.inspect.totals()["cancelled"]) == ({}, 2)

    def test_a_mark_is_for_one_run_and_heard_by_its_worker(self, bench: Bench) -> None:
        store = bench.store
        store.push([job("a"), job("b"), job("c")])
        claim(store, 2)
        claim(store, 1, worker="v")
        store.beat([WorkerInfo("w"), WorkerInfo("v")])

        bench.inspect.cancel("a")

        heard = store.beat([WorkerInfo("w"), WorkerInfo("v")])
        assert (heard["w"].marks, heard["v"].marks) == ({"a": "cancel"}, {})
        assert [bench.inspect.job(id_).mark for id_ in "abc"] == ["cancel", None, None]  # type: ignore[union-attr]

    def test_a_note_is_kept_with_its_own_run(self, bench: Bench) -> None:
        bench.store.push([job("a"), job("b")])
        first, second = claim(bench.store)

        bench.store.note([("a", first.token, b'{"log":["here"]}')])

        assert [bench.inspect.job(found.unit.id).log for found in (first, second)] == [["here"], []]  # type: ignore[union-attr]

    def test_the_key_of_one_job_ends_with_its_claim_and_not_that_of_another(self, store: Store) -> None:
        store.push([job("a", unique="a"), job("b", unique="b")])
        claim(store, 1)

        assert store.push([job("c", unique="a"), job("d", unique="b")]) == [None, "b"]

    def test_what_becomes_due_is_counted_in_its_own_queue_and_once(self, bench: Bench) -> None:
        bench.store.push(
            [job(queue="a", delay=5), job(queue="b", delay=5), job(queue="b", delay=5, priority=3), job(queue="b", delay=9)]
        )
        bench.clock.advance(6)
        bench.store.exchange("w", [], [ClaimRequest("a", 0), ClaimRequest("b", 0)], 0)

        counts = {queue.name: (queue.counts["ready"], queue.counts["scheduled"]) for queue in bench.inspect.queues()}
        assert counts == {"a": (1, 0), "b": (2, 1)}
