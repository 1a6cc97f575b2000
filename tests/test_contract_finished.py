"""Finished jobs: what every store keeps of a job whose task keeps its results, and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from conftest import Bench, Clock
from laneway.core.instant import as_datetime
from laneway.core.job import Claim, Gather, Job, lane_id
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Snoozed
from laneway.errors import UnknownJob
from laneway.ids import new_id
from laneway.store.contract import ClaimRequest, Store
from laneway.store.inspection import Filter, Inspect, JobInfo, Page
from settling import settled_alike

ERROR = ErrorInfo(kind="ValueError", message="no")
SECOND = 1_000_000
HOUR = 3600 * SECOND
DONE = Done(b"42")


def job(id_: str, lane: str | None = None, queue: str = "default", task: str = "app.task", **more: object) -> Job:
    return Job(id_, task, queue, b"[[1],{}]", lane, **more)  # type: ignore[arg-type]


def claim(store: Store, limit: int = 100, worker: str = "w", queues: Sequence[str] = ("default", "mail")) -> list[Claim]:
    return store.exchange(worker, [], [ClaimRequest(queue, limit) for queue in queues], limit).claims


def settle(store: Store, claims: Sequence[Claim], outcome: Outcome, keep: int = HOUR, worker: str = "w") -> list[str]:
    settled = [settled_alike(one, outcome, 5 * SECOND, 7 * SECOND, keep) for one in claims]
    return store.exchange(worker, settled, [], 0).refused


def finish(store: Store, *jobs: Job, outcome: Outcome = DONE, keep: int = HOUR) -> None:
    """Push jobs, and let them end."""
    store.push(jobs)
    assert settle(store, claim(store), outcome, keep) == []


def found(inspect: Inspect, id_: str) -> JobInfo:
    info = inspect.job(id_)
    assert info is not None
    return info


def listed(inspect: Inspect, state: str = "done", **which: object) -> list[str]:
    page = inspect.jobs(Filter(state=state, **which), 1000, None)  # type: ignore[arg-type]
    return [info.id for info in page]


class TestRecords:
    def test_a_finished_job_is_found_with_all_that_was_known_of_it(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("a", lane="x", priority=0)])
        settle(store, claim(store), Retrying(0, ERROR))
        clock.advance(1)
        [held] = claim(store)
        store.note([("a", held.token, b'{"progress":[1.0,2.0],"log":["half"]}')])
        settle(store, [held], Done(b'{"paid":true}'))

        info = found(inspect, "a")

        assert (info.state, info.task, info.queue, info.lane, info.args) == ("done", "app.task", "default", "x", [1])
        assert (info.attempt, info.worker, info.token, info.holds, info.mark) == (2, "w", None, False, None)
        assert [(e.kind, e.attempt) for e in info.errors] == [("ValueError", 1)]
        assert (info.progress, info.log) == ((1.0, 2.0), ["half"])
        assert (info.started_at, info.finished_at) == (as_datetime(5 * SECOND), as_datetime(7 * SECOND))
        assert info.enqueued_at < as_datetime(held.unit.due + 1)
        assert (inspect.result("a").state, inspect.result("a").value) == ("done", b'{"paid":true}')
        assert inspect.result("a").task == "app.task"

    def test_a_run_whose_end_is_not_known_ended_now(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("a")])
        [held] = claim(store)
        clock.advance(3)
        store.exchange("w", [settled_alike(held, DONE, keep=HOUR)], [], 0)

        assert found(inspect, "a").finished_at == as_datetime(clock())

    def test_its_priority_and_place_are_those_of_the_job(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a", priority=7)])
        before = found(inspect, "a")
        settle(store, claim(store), Done(b"1"))

        after = found(inspect, "a")

        assert (after.priority, after.place_at, after.enqueued_at) == (7, before.place_at, before.enqueued_at)

    @pytest.mark.parametrize("number", [1, 3, 12, 1500])
    def test_many_at_once(self, store: Store, inspect: Inspect, number: int) -> None:
        ids = [f"j{n:04}" for n in range(number)]
        store.push([job(id_) for id_ in ids])
        held = claim(store, number)
        settle(store, held, Done(b"1"))

        assert sorted(info.id for info in inspect.jobs(Filter(state="done"), 10_000, None)) == ids

    def test_jobs_without_it_pay_and_leave_nothing(self, store: Store, inspect: Inspect) -> None:
        finish(store, job("a"), job("b"), keep=0)

        assert inspect.job("a") is None
        assert listed(inspect) == []
        assert inspect.count(Filter(state="done")) == 0

    def test_kept_and_others_in_one_exchange(self, store: Store, inspect: Inspect) -> None:
        store.push([job(id_) for id_ in "abcdefghijkl"])
        held = claim(store)
        settled = [settled_alike(one, Done(b"1"), 1, 2, HOUR if n % 3 else 0) for n, one in enumerate(held)]
        store.exchange("w", settled, [], 0)

        assert sorted(listed(inspect)) == [one.unit.id for n, one in enumerate(held) if n % 3]

    def test_only_the_holder_leaves_a_record(self, store: Store, inspect: Inspect) -> None:
        store.push([job(id_) for id_ in "abcdefghij"])
        held = claim(store)
        store.give_back("w", keep=[one.token for one in held[1:]])

        assert settle(store, held, Done(b"1")) == ["a"]

        assert listed(inspect) == list("bcdefghij")
        assert found(inspect, "a").state == "ready"
        [again] = claim(store, worker="v")
        assert settle(store, held[:1], Done(b"2")) == ["a"]
        assert found(inspect, "a").state == "running"
        settle(store, [again], Done(b"3"), worker="v")
        assert (inspect.result("a").value, found(inspect, "a").worker) == (b"3", "v")

    def test_a_repeated_settle_is_refused_and_changes_nothing(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a")])
        held = claim(store)
        settle(store, held, Done(b"1"))

        assert settle(store, held, Done(b"2")) == ["a"]
        assert inspect.result("a").value == b"1"

    def test_counts_know_nothing_of_them(self, store: Store, inspect: Inspect) -> None:
        finish(store, job("a"), job("b", lane="x"))
        store.push([job("c", lane="x")])

        assert {state: n for state, n in inspect.counts().items() if n} == {"ready": 1}
        assert [info.id for info in inspect.jobs(Filter(), 10, None)] == ["c"]
        assert (inspect.count(Filter()), inspect.count(Filter(task="app.task"))) == (1, 1)

    def test_their_lanes_go_on(self, store: Store) -> None:
        store.push([job("a", lane="x"), job("b", lane="x"), job("c", lane="x")])
        order = []
        while held := claim(store):
            order += [one.unit.id for one in held]
            settle(store, held, Done(b"1"))
        assert order == ["a", "b", "c"]


class TestCancelled:
    def test_a_run_that_was_cancelled_leaves_a_record(self, store: Store, inspect: Inspect) -> None:
        finish(store, job("a"), outcome=Cancelled("not wanted"))

        info = found(inspect, "a")

        assert (info.state, info.attempt, info.worker) == ("cancelled", 0, "w")
        assert (inspect.result("a").state, inspect.result("a").value) == ("cancelled", None)
        assert (listed(inspect, "cancelled"), listed(inspect, "done")) == (["a"], [])

    @pytest.mark.parametrize("outcome", [Retrying(0, ERROR), Dead(ERROR), Snoozed(0)], ids=lambda outcome: outcome.name)
    def test_so_does_one_that_was_asked_to(self, store: Store, inspect: Inspect, outcome: Outcome) -> None:
        store.push([job("a")])
        held = claim(store)
        assert inspect.cancel("a")
        settle(store, held, outcome)

        assert found(inspect, "a").state == "cancelled"

    def test_a_job_that_was_deleted_leaves_none(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a")])
        held = claim(store)
        inspect.delete("a")
        settle(store, held, Cancelled())

        assert inspect.job("a") is None

    @pytest.mark.parametrize("outcome", [Retrying(0, ERROR), Dead(ERROR), Snoozed(0)], ids=lambda outcome: outcome.name)
    def test_what_has_not_ended_has_none(self, store: Store, inspect: Inspect, outcome: Outcome) -> None:
        finish(store, job("a"), outcome=outcome)

        assert found(inspect, "a").finished_at is None
        assert listed(inspect) == listed(inspect, "cancelled") == []


class TestLife:
    def test_a_record_is_kept_as_long_as_its_result(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        finish(store, job("a"), keep=10 * SECOND)
        clock.advance(9)
        assert found(inspect, "a").state == "done"
        clock.advance(1)

        assert inspect.job("a") is None
        assert listed(inspect) == []
        assert inspect.count(Filter(state="done")) == 0
        with pytest.raises(UnknownJob):
            inspect.delete("a")

    def test_others_make_room(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        finish(store, job("long"), keep=HOUR)
        finish(store, *[job(f"s{n}") for n in range(5)], keep=SECOND)
        clock.advance(2)
        finish(store, job("new"), keep=SECOND)

        assert listed(inspect) == ["long", "new"]

    def test_a_new_job_takes_the_place_of_its_record(self, store: Store, inspect: Inspect) -> None:
        finish(store, job("a"), job("b"))
        assert store.push([job("a")]) == [None]

        assert (found(inspect, "a").state, listed(inspect)) == ("ready", ["b"])
        inspect.cancel("a")
        assert inspect.job("a") is None
        assert inspect.result("a").state == "cancelled"

    @pytest.mark.parametrize("number", [1, 5])
    def test_in_another_queue_as_well(self, store: Store, inspect: Inspect, number: int) -> None:
        ids = [f"j{n}" for n in range(number)]
        finish(store, *[job(id_, queue="mail") for id_ in ids], job("stays", queue="mail"))
        store.push([job(id_) for id_ in ids])

        assert listed(inspect) == ["stays"]
        inspect.act_all("delete", Filter(state="ready"))
        assert [inspect.job(id_) for id_ in ids] == [None] * number

    def test_many_new_jobs_take_the_places_of_theirs(self, store: Store, inspect: Inspect) -> None:
        jobs = [job(f"j{n}") for n in range(20)]
        finish(store, *jobs)
        store.push(jobs[:10])

        assert sorted(listed(inspect)) == sorted(one.id for one in jobs[10:])

    def test_beside_one_that_is_not_taken_others_take_the_places_of_theirs(self, store: Store, inspect: Inspect) -> None:
        finish(store, job("a"), job("b"))
        store.push([job("there")])

        assert store.push([job("a"), job("there"), job("b")]) == [None, "there", None]
        for id_ in "ab":
            inspect.delete(id_)
        assert (inspect.job("a"), inspect.job("b")) == (None, None)

    def test_a_job_that_is_not_taken_leaves_the_record(self, store: Store, inspect: Inspect) -> None:
        finish(store, job("a"))
        store.push([job("first", unique="k")])
        assert store.push([job("a", unique="k")]) == ["first"]

        assert found(inspect, "a").state == "done"

    def test_ids_that_the_desk_made(self, store: Store, inspect: Inspect) -> None:
        made = new_id()
        finish(store, job(made))
        assert found(inspect, made).state == "done"
        finish(store, job(made), outcome=Done(b"2"))  # a push whose answer was lost comes again
        assert (listed(inspect), inspect.result(made).value) == ([made], b"2")


class TestActions:
    def test_it_can_be_deleted_and_nothing_else(self, store: Store, inspect: Inspect) -> None:
        finish(store, job("a"))

        assert [inspect.retry("a"), inspect.cancel("a"), inspect.kill("a"), inspect.reschedule("a", 0, 0)] == [False] * 4
        assert found(inspect, "a").state == "done"
        assert inspect.delete("a")
        assert inspect.job("a") is None
        assert inspect.result("a").value is None

    @pytest.mark.parametrize("action", ["retry", "cancel", "kill", "reschedule"])
    def test_many_cannot_be_acted_on_either(self, store: Store, inspect: Inspect, action: str) -> None:
        finish(store, job("a"), job("b"))

        assert inspect.act_all(action, Filter(state="done")) == 0
        assert listed(inspect) == ["a", "b"]

    def test_many_are_deleted(self, store: Store, inspect: Inspect) -> None:
        finish(store, job("a"), job("b", task="app.other"), job("c"))
        store.push([job("d")])

        assert inspect.act_all("delete", Filter(state="done", task="app.task")) == 2
        assert (listed(inspect), found(inspect, "d").state) == (["b"], "ready")

    def test_actions_on_all_jobs_leave_them(self, store: Store, inspect: Inspect) -> None:
        finish(store, job("a"))
        store.push([job("b")])

        assert inspect.act_all("delete", Filter(task="app.task")) == 1
        assert inspect.clear("default") == 0
        assert listed(inspect) == ["a"]


class TestLists:
    def some(self, store: Store) -> None:
        for n in range(6):
            finish(store, job(f"j{n}", lane=f"l{n % 2}", queue=("default", "mail")[n % 2], task=f"app.t{n % 3}"))

    def test_by_queue_task_lane_and_ids(self, store: Store, inspect: Inspect) -> None:
        self.some(store)

        assert sorted(listed(inspect, queue="mail")) == ["j1", "j3", "j5"]
        assert sorted(listed(inspect, task="app.t0")) == ["j0", "j3"]
        assert sorted(listed(inspect, lane="l1")) == ["j1", "j3", "j5"]
        assert sorted(listed(inspect, ids=("j2", "j9"))) == ["j2"]
        assert inspect.count(Filter(state="done", task="app.t0")) == 2
        assert listed(inspect, failing=True) == []

    def test_by_error(self, store: Store, inspect: Inspect) -> None:
        store.push([job("a"), job("b")])
        held = claim(store)
        settle(store, held[:1], Retrying(0, ERROR))
        settle(store, [*claim(store), held[1]], Done(b"1"))

        assert listed(inspect, error="Value") == ["a"]

    @pytest.mark.parametrize("newest", [False, True])
    def test_page_by_page(self, bench: Bench, newest: bool) -> None:
        store, inspect = bench.store, bench.inspect
        ids = [f"j{n}" for n in range(7)]
        for n, id_ in enumerate(ids):
            store.push([job(id_, queue=("default", "mail")[n % 2])])
            [held] = claim(store)
            store.exchange("w", [settled_alike(held, Done(b"1"), n, n + 1, HOUR)], [], 0)
        pages: list[list[str]] = []
        after: str | None = None
        while True:
            page: Page = inspect.jobs(Filter(state="done"), 3, after, newest)
            pages.append([info.id for info in page])
            after = page.next
            if after is None:
                break

        assert [id_ for ids_ in pages for id_ in ids_] == (ids[::-1] if newest else ids)
        assert [info.id for info in inspect.jobs(Filter(state="done"), 2, "j3", newest)] == (
            ["j2", "j1"] if newest else ["j4", "j5"]
        )

    def test_with_a_limit_to_what_is_examined(self, store: Store, inspect: Inspect) -> None:
        finish(store, *[job(f"j{n:03}", task="app.rare" if n == 90 else "app.task") for n in range(100)])
        seen, after = list[str](), None
        for _ in range(200):
            page = inspect.jobs(Filter(state="done", task="app.rare", look=10), 5, after)
            seen += [info.id for info in page]
            after = page.next
            if after is None:
                break
        assert seen == ["j090"]


def test_a_collectors_run_leaves_no_record(store: Store, inspect: Inspect) -> None:
    store.push([Job(lane_id("orders", "x"), "app.sync", "orders", b"1", "x", gather=Gather())])
    [held] = store.exchange("w", [], [ClaimRequest("orders", 1)], 1).claims
    assert settle(store, [held], Done(b"null"), keep=0) == []
    assert listed(inspect) == []
