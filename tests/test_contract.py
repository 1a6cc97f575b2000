"""The store's contract, for every store.

`STORES` in conftest lists them: a new store is one line there. What only one store has is tested beside it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

import pytest

from conftest import Bench, Clock
from laneway import life
from laneway.errors import NotFound, UnknownJob, UnknownQueue
from laneway.job import Claim, Job, new_id
from laneway.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.store.contract import Exchange, Slot, Store, Want, WorkerInfo
from laneway.store.inspect import Filter, Inspect

ERROR = ErrorInfo(kind="ValueError", message="no")
SECOND = 1_000_000


def job(id_: str | None = None, *, lane: str | None = None, queue: str = "default", priority: int = 0, delay: float = 0) -> Job:
    return Job(id_ or new_id(), "app.task", queue, b"[[1],{}]", lane, priority, round(delay * SECOND))


def claim(store: Store, limit: int = 10, worker: str = "w", queues: Sequence[str] = ("default",)) -> list[Claim]:
    return store.exchange(worker, [], [Want(queue, limit) for queue in queues], limit).claims


def settle(store: Store, claims: Sequence[Claim], outcome: Outcome, worker: str = "w", limit: int = 0) -> Exchange:
    settled = [Settled(claim, outcome, 1, 2) for claim in claims]
    return store.exchange(worker, settled, [Want("default", limit)], limit)


def ids(claims: Sequence[Claim]) -> list[str]:
    return [claim.job.id for claim in claims]


class TestPush:
    def test_a_job_arrives_as_it_was_sent(self, store: Store, inspect: Inspect) -> None:
        sent = job("a", lane="order-7")

        assert store.push([sent]) == [True]

        found = inspect.job("a")
        assert found is not None
        assert (found.task, found.queue, found.lane, found.state, found.attempt) == ("app.task", "default", "order-7", "ready", 0)
        assert (found.args, found.kwargs, found.body) == ([1], {}, sent.body)
        assert claim(store)[0].job == sent

    def test_an_id_that_is_still_in_the_store_changes_nothing(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a")])

        assert store.push([job("b"), job("a", queue="other"), job("c")]) == [True, False, True]

        assert inspect.counts()["ready"] == 3
        assert inspect.totals()["enqueued"] == 3

    def test_an_id_twice_in_one_push_counts_once(self, store: Store, inspect: Inspect) -> None:
        assert store.push([job("a"), job("a", lane="x")]) == [True, False]
        assert inspect.counts()["ready"] == 1

    def test_an_id_can_come_again_when_its_job_has_finished(self, store: Store) -> None:
        store.push([job("a")])
        settle(store, claim(store), Done())

        assert store.push([job("a")]) == [True]
        assert ids(claim(store)) == ["a"]

    def test_a_slot_of_a_schedule_fires_once(self, store: Store, inspect: Inspect) -> None:
        assert store.push([job()], Slot("nightly", at=100)) == [True]
        assert store.push([job()], Slot("nightly", at=100)) == [False]
        assert store.push([job()], Slot("nightly", at=99)) == [False]
        assert store.push([job()], Slot("nightly", at=101)) == [True]
        assert store.push([job()], Slot("hourly", at=100)) == [True]
        assert inspect.counts()["ready"] == 3

    def test_nothing_is_a_push_too(self, store: Store) -> None:
        assert store.push([]) == []


class TestOrder:
    def test_priority_then_due_then_place(self, store: Store, clock: Clock) -> None:
        store.push([job("late", delay=2), job("first"), job("second"), job("urgent", priority=5), job("idle", priority=-5)])
        clock.advance(3)
        store.push([job("urgent-2", priority=5)])

        assert ids(claim(store)) == ["urgent", "urgent-2", "first", "second", "late", "idle"]

    def test_what_is_due_later_is_not_claimed_before(self, store: Store, clock: Clock) -> None:
        store.push([job("a", delay=5), job("urgent", delay=7, priority=100)])

        answer = store.exchange("w", [], [Want("default", 9)], 9)

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

    def test_steps_are_served_in_order_within_the_limit(self, store: Store) -> None:
        store.push([job(f"{queue}{n}", queue=queue) for n in range(5) for queue in "ab"])

        answer = store.exchange("w", [], [Want("a", 2), Want("b", 1), Want("a", 9), Want("b", 9)], 5)

        assert ids(answer.claims) == ["a0", "a1", "b0", "a2", "a3"]
        assert answer.more
        assert answer.loads == {"a": 1, "b": 4}

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
        assert (ids(again), again[0].attempt) == (["x0"], 2)

    def test_a_snoozed_head_keeps_its_place_and_its_attempt(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        settle(store, claim(store), Snoozed(10 * SECOND))

        assert claim(store) == []
        assert inspect.counts()["scheduled"] == 1
        clock.advance(10)
        again = claim(store)
        assert (ids(again), again[0].attempt) == (["x0"], 1)

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

    def test_at_most_a_thousand_are_parked_in_one_call(self, store: Store, inspect: Inspect) -> None:
        store.push([job(lane="x") for _ in range(2500)])
        store.push([job("other", lane="y")])

        head = store.exchange("w", [], [Want("default", 2)], 2)
        assert (len(head.claims), head.more, inspect.counts()["blocked"]) == (1, True, 1000)
        second = store.exchange("w", [], [Want("default", 1)], 1)
        third = store.exchange("w", [], [Want("default", 1)], 1)
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


class TestClaims:
    def test_a_claim_belongs_to_one_worker(self, store: Store) -> None:
        store.push([job("a")])

        assert ids(claim(store, worker="ann")) == ["a"]
        assert claim(store, worker="bob") == []

    def test_a_stranger_cannot_settle(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a")])
        held = claim(store, worker="ann")

        assert settle(store, held, Done(), worker="bob").refused == ["a"]
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

    @pytest.mark.parametrize("outcome", [Done(), Retrying(0, ERROR), Snoozed(0), Dead(ERROR), Cancelled()], ids=lambda o: o.name)
    def test_settling_twice_is_refused_and_changes_nothing(self, store: Store, inspect: Inspect, outcome: Outcome) -> None:
        store.push([job("a", lane="x"), job("b", lane="x")])
        held = claim(store)
        settle(store, held, outcome)
        before = (inspect.counts(), inspect.totals()["failed"])

        assert settle(store, held, outcome).refused == ["a"]
        assert (inspect.counts(), inspect.totals()["failed"]) == before

    def test_giving_back_keeps_place_lane_due_and_attempts(self, store: Store, inspect: Inspect) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x"), job("a")])
        settle(store, claim(store, limit=1), Retrying(0, ERROR))
        held = claim(store)

        assert sorted(store.give_back("w")) == sorted(ids(held)) == ["a", "x0"]

        assert inspect.counts()["ready"] == 2
        again = claim(store)
        assert (ids(again), [c.attempt for c in again]) == (["x0", "a"], [2, 1])

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

        answer = store.exchange("w", [Settled(c, Done()) for c in held], [Want("one", 1)], 1)

        assert (answer.refused, answer.claims, answer.loads) == ([], [], {"one": 0, "two": 0})

    def test_a_limit_of_nothing_claims_nothing(self, store: Store) -> None:
        store.push([job("a")])

        answer = store.exchange("w", [], [Want("default", 5)], 0)

        assert (answer.claims, answer.more) == ([], True)


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

    def test_a_dead_job_can_be_replayed_at_a_new_place(self, store: Store, inspect: Inspect) -> None:
        store.push([job("x0", lane="x"), job("x1", lane="x")])
        settle(store, claim(store), Dead(ERROR))

        assert inspect.retry("x0")

        first = claim(store)
        assert ids(first) == ["x1"]
        again = settle(store, first, Done(), limit=1).claims
        assert (ids(again), again[0].attempt) == (["x0"], 1)

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

    def test_results_are_kept_as_long_as_asked(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("a")])
        settle(store, claim(store), Done(b"42", keep=10 * SECOND))

        assert (inspect.result("a").state, inspect.result("a").value) == ("done", b"42")
        clock.advance(10)
        assert (inspect.result("a").state, inspect.result("a").value) == ("done", None)
        assert inspect.result("never").state == "gone"


class TestAsking:
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
        for act in (inspect.cancel, inspect.delete, inspect.retry):
            with pytest.raises(UnknownJob, match="no job"):
                act("nobody")

    def test_a_paused_queue_is_not_claimed_from(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("later", delay=5)])
        inspect.pause("default", paused=True)

        answer = store.exchange("w", [], [Want("default", 5)], 5)
        assert (answer.claims, answer.more, answer.next_due, answer.loads) == ([], False, None, {})
        inspect.pause("default", paused=False)
        assert ids(claim(store)) == ["a"]

    def test_a_queue_nobody_knows_cannot_be_paused(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", queue="billing")])

        with pytest.raises(UnknownQueue, match='Did you mean "billing"'):
            inspect.pause("biling", paused=True)

    def test_a_queue_that_is_declared_can_be_paused_before_its_first_job(self, store: Store, inspect: Inspect) -> None:
        inspect.pause("billing", paused=True, declared=["billing"])
        store.push([job("a", queue="billing")])

        assert claim(store, queues=["billing"]) == []

    def test_what_a_run_tells_is_kept_with_its_job(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("b")])
        a, b = claim(store)
        store.give_back("w", keep=[a.token])

        told = b'{"progress":[3,10],"log":["one","two"]}'
        store.note([("a", a.token, told), ("b", b.token, told)])

        found = [inspect.job("a"), inspect.job("b")]
        assert [(j.progress, j.log) for j in found if j is not None] == [((3, 10), ["one", "two"]), (None, [])]


class TestLooking:
    def test_jobs_are_found_by_state_queue_task_and_lane(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", lane="x"), job("b", lane="x"), job("c", queue="mail"), job("d", delay=9)])
        claim(store)

        def found(**which: str) -> list[str]:
            return [j.id for j in inspect.jobs(Filter(**which), 10, None)]

        assert found() == ["a", "b", "c", "d"]
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

    def test_recent_runs_are_the_last_thousand_newest_first(self, store: Store, inspect: Inspect) -> None:
        store.push([job(f"j{n:04}") for n in range(1500)])
        while held := claim(store, limit=200):
            settle(store, held, Done())

        recent = inspect.recent(5000)
        assert len(recent) == 1000
        assert [run.id for run in recent[:2]] == ["j1499", "j1498"]
        assert (recent[0].task, recent[0].queue, recent[0].outcome, recent[0].started) == ("app.task", "default", "done", 1)
        assert inspect.result("j1499").state == "done"
        assert inspect.result("j0001").state == "gone"

    def test_totals_count_what_happened(self, store: Store, inspect: Inspect) -> None:
        store.push([job("done"), job("retried"), job("dies"), job("cancelled")])
        held = claim(store)
        outcomes: list[Outcome] = [Done(), Retrying(0, ERROR), Dead(ERROR), Cancelled()]
        for claimed, outcome in zip(held, outcomes, strict=True):
            settle(store, [claimed], outcome)
        store.record({"crashed": 2})
        store.record({"crashed": 1})

        totals = inspect.totals()

        expected = {"enqueued": 4, "processed": 1, "failed": 2, "retried": 1, "dead": 1, "cancelled": 1, "crashed": 3}
        assert {name: totals[name] for name in expected} == expected
        assert [(run.id, run.outcome) for run in inspect.recent(10)] == [
            ("cancelled", "cancelled"), ("dies", "dead"), ("retried", "retrying"), ("done", "done"),
        ]  # fmt: skip


class TestWorkers:
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
        me, other = life.here(), life.here()
        started, _ = life._process(child)
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
        me = life.here()
        before = WorkerInfo(id="before", host=me.host, boot=me.boot, pid=me.pid, started=me.started - 1)
        store.beat([me, before])

        assert store.dead_workers() == ["before"]

    def test_elsewhere_a_beat_that_stands_still_is_dead_after_a_while(self, store: Store) -> None:
        there = WorkerInfo(id="there", host="elsewhere", boot="another")
        here = life.here()
        deadline = time.monotonic() + 10
        store.beat([there])
        while (dead := store.dead_workers()) == []:
            store.beat([here])
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert dead == ["there"]

    def test_a_worker_that_never_beat_is_found_by_its_claims(self, store: Store) -> None:
        store.push([job("a")])
        claim(store, worker="silent")
        deadline = time.monotonic() + 10
        while store.dead_workers() != ["silent"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def test_an_observer_that_did_not_look_judges_nobody(self) -> None:
        now = [0.0]
        observer = life.Observer(dead_after=15, clock=lambda: now[0])
        there = WorkerInfo(id="there", host="elsewhere", boot="another")
        assert observer.dead([(there, 1)]) == []

        now[0] += 3600  # frozen for an hour
        assert observer.dead([(there, 1)]) == []
        for _ in range(3):
            now[0] += 5
            last = observer.dead([(there, 1)])
        assert last == ["there"]
        assert observer.dead([(there, 2)]) == []


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
    return {claim.job.id: claim.lost for claim in claims}


class TestWaiting:
    def test_a_push_ends_the_wait(self, store: Store) -> None:
        assert_woken(store, lambda: store.push([job("a")]))

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

    def test_an_earlier_job_ends_the_wait_for_a_later_one_and_a_later_does_not(self, store: Store) -> None:
        store.push([job(delay=100)])
        quiet(store)
        store.push([job(delay=200)])
        assert not rung(store)
        store.push([job(delay=50)])
        assert rung(store)


def quiet(store: Store) -> None:
    """Listen, and let what has rung so far fade."""
    claim(store, limit=1)
    while store.wait(0.01):
        claim(store, limit=1)


def rung(store: Store) -> bool:
    """Say whether the bell itself rang, whatever else has changed."""
    return bool(store.bell.rang())  # type: ignore[attr-defined]


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
