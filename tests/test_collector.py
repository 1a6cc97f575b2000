"""Collectors at the desk and in a worker: what is declared, enqueued, handed over, and what a run means for each lane."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import redisbench
from laneway import App, Cancel, LaneFailures, LaneHandle, Retry, RetryIn, Snooze, Worker, current_job
from laneway.cli import laneway
from laneway.core.job import Claim, Payload, Unit
from laneway.desk.context import JobContext
from laneway.desk.enqueue import LaneDraft
from laneway.errors import BadArguments, BadOption, BulkError, DeclarationError, PayloadTooLarge, UnknownLane, WrongQueue
from laneway.store.inspection import LaneInfo
from workbench import ALL_DONE, Running, burst, until, url, wait

EVERY_STORE = True

Seen = list[dict[str, list[Any]]]


@dataclass
class Order:
    id: int
    version: int
    total: float = 0.0


class Strange: ...


def collecting(app: App, **options: Any) -> tuple[Any, Seen]:
    """A collector that remembers what it was called with."""
    seen: Seen = []

    def collect(lanes: dict[str, list[Any]]) -> None:
        seen.append(lanes)

    declare: Any = app.collector
    return declare(name="collect", **options)(collect), seen


def lane(app: App, name: str = "a", queue: str = "collect") -> LaneInfo:
    return app.inspect.lane(queue, name)


# -- enqueueing and handing over ---------------------------------------------------------------------------------


def test_payloads_of_a_lane_run_together_in_the_order_of_their_scores(app: App) -> None:
    collect, seen = collecting(app)

    collect.enqueue("a", "second", score=2)
    collect.enqueue("a", "first", score=1)
    collect.enqueue("b", "other")
    burst(app)

    assert sorted(seen, key=list) == [{"a": ["first", "second"]}, {"b": ["other"]}]  # lanes run side by side
    assert app.inspect.counts() == ALL_DONE
    assert app.stats.totals()["processed"] == 3


def test_without_scores_they_come_as_they_were_enqueued(app: App) -> None:
    collect, seen = collecting(app)

    for number in range(20):
        collect.enqueue("a", number)
    burst(app)

    assert seen == [{"a": list(range(20))}]


def test_equal_payloads_become_one_with_the_larger_score(app: App) -> None:
    collect, seen = collecting(app)

    collect.enqueue("a", {"x": 1, "y": 2}, score=3)
    collect.enqueue("a", "between", score=2)
    collect.enqueue("a", {"y": 2, "x": 1}, score=1)
    burst(app)

    assert seen == [{"a": ["between", {"x": 1, "y": 2}]}]


def test_the_last_of_several_states_is_the_one_that_came_last(app: App) -> None:
    collect, seen = collecting(app, merge="last")

    for lane_, scores in (("scored", (1, 2, 3)), ("plain", (None, None, None))):
        for state, score in zip(("paid", "refunded", "paid"), scores, strict=True):
            collect.enqueue(lane_, state, score=score)
    burst(app)

    assert sorted(seen, key=str) == [{"plain": ["paid"]}, {"scored": ["paid"]}]


def test_payloads_are_compared_as_they_arrive(app: App) -> None:
    seen: list[Order] = []

    @app.collector(name="collect")
    def collect(lanes: dict[str, list[Order]]) -> None:
        seen.extend(lanes["a"])

    collect.enqueue("a", Order(1, 1, 90))
    collect.enqueue("a", Order(1, 1, 90.0))
    burst(app)

    assert seen == [Order(1, 1, 90.0)]


@pytest.mark.parametrize(("max_lanes", "sizes"), [(1, [1] * 7), (3, [3, 3, 1]), (10, [7])])
def test_a_run_gets_up_to_max_lanes(app: App, max_lanes: int, sizes: list[int]) -> None:
    collect, seen = collecting(app, max_lanes=max_lanes)

    collect.enqueue_many([(f"lane-{number}", number) for number in range(7)])
    Worker(app, slots=1).run(burst=True)

    assert [len(lanes) for lanes in seen] == sizes
    assert [payloads for lanes in seen for payloads in lanes.values()] == [[number] for number in range(7)]


def test_with_max_payloads_the_rest_comes_in_the_next_run(app: App) -> None:
    collect, seen = collecting(app, max_payloads=2)

    collect.enqueue_many([("a", number) for number in range(5)])
    burst(app)

    assert seen == [{"a": [0, 1]}, {"a": [2, 3]}, {"a": [4]}]


def test_with_merge_last_only_the_newest_is_handed_over(app: App) -> None:
    collect, seen = collecting(app, merge="last")

    collect.enqueue("a", "new", score=9)
    collect.enqueue("a", "old", score=3)
    burst(app)

    assert seen == [{"a": ["new"]}]
    assert app.inspect.counts() == ALL_DONE


def test_a_payload_may_be_left_out_and_then_the_lane_just_runs(app: App) -> None:
    collect, seen = collecting(app)

    collect.enqueue("a")
    collect.enqueue("b", "something", score=1)
    collect.enqueue("b")
    collect.enqueue("c", None)
    burst(app)

    assert seen == [{"a": []}, {"b": ["something"]}, {"c": [None]}]


def test_payloads_arrive_typed(app: App) -> None:
    seen: list[Order] = []

    @app.collector(name="collect")
    def collect(lanes: dict[str, list[Order]]) -> None:
        seen.extend(lanes["order-1"])

    collect.enqueue("order-1", Order(1, 2, 90))
    burst(app)

    assert seen == [Order(1, 2, 90)]


def test_lane_and_score_can_be_functions_of_the_payload(app: App) -> None:
    seen: dict[str, list[Order]] = {}

    def lane_of(order: Order) -> int:
        return order.id

    def score_of(order: Order) -> float:
        return order.version

    @app.collector(name="collect", max_lanes=10, lane=lane_of, score=score_of)
    def collect(lanes: dict[str, list[Order]]) -> None:
        seen.update(lanes)

    assert collect.enqueue(Order(7, 3)) == LaneHandle(app, "collect", "7")
    assert collect.enqueue_many([Order(7, 1), Order(8, 1), Order(7, 2)]) == 3
    collect.enqueue(Order(7, 9), score=0)
    burst(app)

    assert seen == {"7": [Order(7, 9), Order(7, 1), Order(7, 2), Order(7, 3)], "8": [Order(8, 1)]}


def test_a_score_rule_works_beside_a_given_lane(app: App) -> None:
    def score_of(order: dict[str, int]) -> float:
        return order["version"]

    collect, seen = collecting(app, score=score_of)

    collect.enqueue("a", {"version": 2})
    collect.enqueue("a", {"version": 1})
    collect.enqueue("b")
    burst(app)

    assert seen == [{"a": [{"version": 1}, {"version": 2}]}, {"b": []}]


def test_many_payloads_each_with_lane_score_and_time(app: App) -> None:
    collect, seen = collecting(app, max_lanes=10)

    accepted = collect.enqueue_many(
        iter(
            ["a", 7, ("b",), ("b", "late", 9.0), ("b", "early", 1.0), ("c", "later", None, 60), ["d", "x", 1, timedelta(hours=1)]]
        ),
        chunk=2,
    )
    burst(app)

    assert accepted == 7
    assert seen == [{"a": [], "7": [], "b": ["early", "late"]}]
    assert [(one.lane, one.state) for one in app.inspect.lanes("collect", order="due")] == [
        ("c", "scheduled"),
        ("d", "scheduled"),
    ]


def test_calls_of_collectors_can_be_bound_and_mixed_with_tasks(app: App) -> None:
    collect, seen = collecting(app)
    ran: list[int] = []

    @app.task(name="plain")
    def plain(number: int) -> None:
        ran.append(number)

    assert app.enqueue_many([plain.bind(1), collect.bind("a", "x", score=2), plain.bind(2), collect.bind("a", "y", score=1)]) == 4
    burst(app)

    assert (sorted(ran), seen) == ([1, 2], [{"a": ["y", "x"]}])


def test_enqueueing_from_an_event_loop(app: App) -> None:
    collect, seen = collecting(app)

    async def main() -> None:
        handles = await asyncio.gather(*(collect.aenqueue("a", number, score=number) for number in range(10)))
        assert {handle.lane for handle in handles} == {"a"}

    asyncio.run(main())
    burst(app)

    assert seen == [{"a": list(range(10))}]


def test_run_after_is_for_a_lane_that_does_not_wait_yet(app: App) -> None:
    collect, _ = collecting(app)
    soon = datetime.now(UTC) + timedelta(seconds=100)

    collect.using(run_after=soon).enqueue("a", 1)
    collect.enqueue("a", 2)
    collect.using(run_after=5).enqueue("b")

    assert (lane(app).state, lane(app).size, lane(app).due_at) == ("scheduled", 2, soon)
    assert lane(app, "b").state == "scheduled"


def test_debounce_waits_for_quiet_but_not_for_ever(app: App) -> None:
    with app.testing("fake") as jobs:
        collect, seen = collecting(app, debounce=10, max_wait=25)
        for number in range(4):
            collect.enqueue("a", number)
            jobs.advance(7)
            jobs.drain()
        assert seen == [{"a": [0, 1, 2, 3]}]

        collect.enqueue("a", "calm")
        jobs.advance(9.5)
        assert jobs.drain() == 0
        jobs.advance(0.6)
        assert jobs.drain() == 1


def test_who_says_when_does_not_wait_for_quiet(app: App) -> None:
    collect, seen = collecting(app, debounce=60)

    collect.using(run_after=0).enqueue("a", 1)
    burst(app)

    assert seen == [{"a": [1]}]


def test_a_handle_knows_its_lane(app: App) -> None:
    collect, _ = collecting(app)

    handle = collect.using(run_after=60).enqueue(7)

    assert (handle.queue, handle.lane, handle.state()) == ("collect", "7", "scheduled")
    assert "due in" in str(handle.explain())
    assert app.inspect.run_lane("collect", 7)
    burst(app)
    assert handle.state() == "done"


def test_what_comes_during_a_run_is_not_swallowed(file_app: App) -> None:
    started, go_on = threading.Event(), threading.Event()
    seen: Seen = []

    @file_app.collector(name="collect")
    def collect(lanes: dict[str, list[str]]) -> None:
        seen.append(lanes)
        started.set()
        wait(go_on)

    collect.enqueue("a", "same")
    running = Running(Worker(file_app, slots=2))
    wait(started)
    collect.enqueue("a", "same")
    collect.enqueue("a", "other")
    assert (lane(file_app).state, lane(file_app).size) == ("running", 3)
    go_on.set()
    until(lambda: len(seen) == 2)
    running.worker.stop()
    running.join()

    assert seen == [{"a": ["same"]}, {"a": ["same", "other"]}]


def test_a_plain_call_just_runs(app: App) -> None:
    @app.collector
    def collect(lanes: dict[str, list[int]]) -> int:
        return sum(map(sum, lanes.values()))

    assert collect({"a": [1, 2], "b": [3]}) == 6
    assert collect.name.endswith("test_collector.test_a_plain_call_just_runs.collect")
    assert collect.queue == collect.name


# -- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "x"}, 'no option "queue"'),
        ({"max_lane": 3}, 'Did you mean "max_lanes"'),
        ({"max_lanes": 0}, "whole number from 1"),
        ({"max_payloads": True}, "whole number from 1"),
        ({"merge": "first"}, "'all', 'last'"),
        ({"lane": "order_id"}, "function of the payload"),
        ({"score": 3}, "function of the payload"),
        ({"debounce": -1}, "more than 0"),
        ({"retry": 3}, "not a policy"),
        ({"name": "has space"}, "not a name"),
        ({"name": "ä"}, "not a name for a queue"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused_where_it_is_written(app: App, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        app.collector(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_wait": 5}, "goes with debounce"),
        ({"debounce": 5, "max_wait": 4}, "cannot be shorter"),
        ({"merge": "last", "max_payloads": 3}, "the newest of all"),
    ],
)
def test_options_that_do_not_go_together(app: App, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        collecting(app, **options)


def test_a_collector_takes_lanes_and_nothing_else(app: App) -> None:
    def nothing() -> None: ...
    def two(lanes: dict[str, list[int]], other: int) -> None: ...
    def by_name(*, lanes: dict[str, list[int]]) -> None: ...
    def a_list(lanes: list[int]) -> None: ...
    def by_number(lanes: dict[int, list[int]]) -> None: ...
    def a_stream(lanes: dict[str, list[int]]) -> Generator[int]:
        yield 1

    declare: Any = app.collector
    for function in (nothing, two, by_name):
        with pytest.raises(DeclarationError, match="one argument, its lanes"):
            declare(function)
    for other in (a_list, by_number):
        with pytest.raises(DeclarationError, match=r"annotate them with dict\[str"):
            declare(other)
    with pytest.raises(DeclarationError, match="yields"):
        app.collector(a_stream)


def test_a_payload_that_cannot_travel_is_refused_at_the_declaration(app: App) -> None:
    def collect(lanes: dict[str, list[Strange]]) -> None: ...

    with pytest.raises(DeclarationError, match="Strange is not known"):
        app.collector(collect)


def test_a_collector_has_its_queue_for_itself(app: App) -> None:
    collect, _ = collecting(app)

    with pytest.raises(DeclarationError, match="belongs to the collector collect"):

        @app.task(queue="collect")
        def into_it() -> None: ...

    @app.task(name="plain")
    def plain() -> None: ...

    collect.enqueue("a")
    with pytest.raises(WrongQueue, match="collector"):
        plain.using(queue="collect").enqueue()
    assert app.inspect.count() == 1

    @app.task(name="mine", queue="reports")
    def mine() -> None: ...

    with pytest.raises(DeclarationError, match="belongs to the collector reports"):

        @app.collector(name="reports")
        def reports(lanes: dict[str, list[int]]) -> None: ...


THIS_YEAR = datetime(datetime.now(UTC).year, 1, 1, tzinfo=UTC).timestamp()  # the same in every process of a run


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ((1.5, 1), "not a key for a lane"),
        (("", 1), "not a key for a lane"),
        (("a", 1, "high"), "not a score"),
        (("a", 1, float("nan")), "not a score"),
        (("a", 1, True), "not a score"),
        (("a", 1, 2**53 + 1), "more digits"),
        (("a", 1, 10**400), "300 digits"),
        (("a", 1, THIS_YEAR * 1000), "milliseconds.*divide it by 1,000"),
        (("a", 1, THIS_YEAR * 1e6), "microseconds.*divide"),
        (("a", 1, round(THIS_YEAR * 1e3) * 10**6), "nanoseconds.*divide"),
        (("a", 1, None, THIS_YEAR), "time stamp"),
        (("a", 1, None, THIS_YEAR * 1000), "milliseconds"),
        (("a", 1, None, datetime(2030, 1, 1)), "no time zone"),
        (("a", 1, None, None, None), "not an item"),
        ((), "not an item"),
        (None, "not an item"),
        (("a", float("inf")), "JSON has no inf"),
        (("a", (1, 2)), "a tuple would arrive as a list"),
        (("a", object()), "cannot travel"),
    ],
    ids=lambda part: str(part).partition(" at 0x")[0][:40],
)  # fmt: skip
def test_a_wrong_item_is_refused_and_says_why(app: App, item: Any, words: str) -> None:
    collect, _ = collecting(app)

    with pytest.raises(BulkError, match=words) as caught:
        collect.enqueue_many([("fine", 1), item], chunk=1)

    assert (caught.value.accepted, app.inspect.count()) == (1, 1)


def test_a_payload_of_the_wrong_type_or_size_is_refused(app: App) -> None:
    @app.collector(name="collect")
    def collect(lanes: dict[str, list[Order]]) -> None: ...

    with pytest.raises(BadArguments, match="collect, payload"):
        collect.enqueue("a", "no order")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    anything, _ = collecting(App("sqlite://"))
    with pytest.raises(PayloadTooLarge, match="collect"):
        anything.enqueue("a", "x" * 1_000_001)


def test_a_rule_that_fails_is_said_where_it_was_asked(app: App) -> None:
    def lane_of(order: Any) -> str:
        return str(order.nothing)

    @app.collector(name="collect", lane=lane_of)
    def collect(lanes: dict[str, list[Order]]) -> None: ...

    with pytest.raises(BadOption, match=r"collect, lane= raised AttributeError"):
        collect.enqueue(Order(1, 1))


def test_a_collector_is_not_enqueued_by_name_as_a_task(app: App) -> None:
    collecting(app)

    with pytest.raises(BadOption, match=r"collect\.enqueue\(lane, payload\)"):
        app.enqueue("collect", "a")


# -- what a run means --------------------------------------------------------------------------------------------


def failing(app: App, errors: Sequence[Any], **options: Any) -> tuple[Any, Seen]:
    """A collector whose runs raise what is given, one after another, and then succeed."""
    seen: Seen = []
    left = list(errors)

    def collect(lanes: dict[str, list[Any]]) -> None:
        seen.append(lanes)
        if left and (error := left.pop(0)) is not None:
            raise error

    declare: Any = app.collector
    return declare(name="collect", **{"retry": Retry(times=2, backoff=0), **options})(collect), seen


def test_a_failed_run_comes_again_with_what_gathered_meanwhile(app: App) -> None:
    collect, seen = failing(app, [ValueError("no")], retry=Retry(times=2, backoff=60))

    collect.enqueue("a", 1)
    burst(app)

    found = lane(app)
    assert (found.state, found.attempts, found.size) == ("retrying", 1, 1)
    assert found.error is not None
    assert (found.error.kind, found.error.message) == ("ValueError", "no")
    collect.enqueue("a", 2)
    assert lane(app).due_at == found.due_at
    app.inspect.run_lane("collect", "a")
    burst(app)
    assert seen == [{"a": [1]}, {"a": [1, 2]}]
    assert app.stats.totals() == {"enqueued": 2, "processed": 2, "failed": 1, "retried": 1, "dead": 0}


def test_when_no_retry_is_left_the_payload_that_arrived_first_dies_and_the_rest_begins_anew(app: App) -> None:
    died: list[tuple[str | None, list[Any], int, str]] = []
    collect, seen = failing(app, [ValueError(str(number)) for number in range(3)])

    @app.on_death
    def told(job: JobContext, error: BaseException) -> None:
        died.append((job.lane, job.args, job.attempt, str(error)))

    collect.enqueue_many([("a", "first", 2), ("a", "second", 1)])
    burst(app)

    assert seen == [{"a": ["second", "first"]}] * 3 + [{"a": ["second"]}]
    assert died == [("a", ["first"], 3, "2")]
    (dead,) = app.inspect.jobs("dead")
    assert (dead.lane, dead.args, dead.score, dead.attempt) == ("a", ["first"], 2.0, 3)
    assert [error.message for error in dead.errors] == ["0", "1", "2"]
    assert app.inspect.retry(dead.id)
    burst(app)
    assert seen[-1] == {"a": ["first"]}
    assert app.inspect.counts() == ALL_DONE


def test_where_only_the_newest_is_tried_all_of_the_lane_die_together(app: App) -> None:
    collect, seen = failing(app, [ValueError("no")] * 3, merge="last")

    collect.enqueue_many([("a", number, number) for number in range(4)])
    burst(app)

    assert seen == [{"a": [3]}] * 3
    assert sorted(job.args or [] for job in app.inspect.jobs("dead")) == [[0], [1], [2], [3]]
    assert app.inspect.retry_all("dead") == 4
    burst(app)
    assert seen[3:] == [{"a": [3]}]
    assert app.inspect.counts() == ALL_DONE


def test_a_lane_that_died_and_was_done_later_is_done(app: App) -> None:
    collect, _ = failing(app, [ValueError("no")], retry=Retry(times=0))

    handle = collect.enqueue("a", 1)
    burst(app)
    assert handle.state() == "dead"
    assert "gave up" in str(handle.explain()) or "dead" in str(handle.explain())
    collect.enqueue("a", 2)
    burst(app)

    assert handle.state() == "done"
    assert "finished" in str(handle.explain())
    assert LaneHandle(app, "collect", "never").state() == "gone"
    with pytest.raises(UnknownLane):
        LaneHandle(app, "collect", "never").explain()


def test_collectors_retry_25_times_unless_they_say_otherwise(app: App) -> None:
    collect, _ = collecting(app)
    assert collect.retry.times == 25


def test_lane_failures_fail_only_those_lanes(app: App) -> None:
    failures = LaneFailures(
        {"b": ValueError("b is bad"), "c": "in words", "d": Snooze(60), "e": Cancel("enough"), 6: RetryIn(30)}
    )
    collect, seen = failing(app, [failures], max_lanes=10, retry=Retry(times=1, backoff=90))

    collect.enqueue_many(["a", "b", "c", "d", "e", "6"])
    burst(app)

    assert len(seen) == 1
    found = {one.lane: (one.state, one.attempts) for one in app.inspect.lanes("collect")}
    assert found == {"b": ("retrying", 1), "c": ("retrying", 1), "d": ("scheduled", 0), "6": ("retrying", 1)}
    assert (error := lane(app, "c").error) is not None
    assert error.message == "in words"
    totals = app.stats.totals()
    assert (totals["processed"], totals["failed"]) == (1, 3)


def test_lane_failures_of_strangers_fail_the_run(app: App) -> None:
    collect, _ = failing(
        app, [LaneFailures({"zzz": ValueError("?"), "b": ValueError("mine")})], max_lanes=10, retry=Retry(backoff=60)
    )

    collect.enqueue_many(["a", "b"])
    burst(app)

    messages = {one.lane: one.error.message for one in app.inspect.lanes("collect") if one.error is not None}
    assert messages == {"a": "LaneFailures names lanes that are not in this run: zzz", "b": "mine"}


def test_snooze_and_cancel_hold_for_all_lanes_of_a_run(app: App) -> None:
    collect, seen = failing(app, [Snooze(60), Cancel("enough")], max_lanes=10)

    collect.enqueue_many(["a", "b"])
    burst(app)
    assert [(one.lane, one.state, one.attempts) for one in app.inspect.lanes("collect", order="name")] == [
        ("a", "scheduled", 0), ("b", "scheduled", 0),
    ]  # fmt: skip
    assert app.inspect.run_lanes("collect") == 2
    burst(app)

    assert len(seen) == 2
    assert app.inspect.counts() == ALL_DONE


def test_lanes_of_one_run_have_attempts_of_their_own(app: App) -> None:
    collect, _ = failing(app, [ValueError(), ValueError()], max_lanes=10, retry=Retry(times=1, backoff=0))

    collect.enqueue("old", 1)
    Worker(app, slots=1).run(burst=True)
    # The first failure was old's alone; it came again at once, alone, and died of the second.
    assert app.inspect.count("dead") == 1

    app2 = App("sqlite://")
    both, seen = failing(app2, [LaneFailures({"old": "x"}), ValueError("both")], max_lanes=10, retry=Retry(times=1, backoff=60))
    both.enqueue("old", 1)
    burst(app2)
    app2.inspect.run_lane("collect", "old")
    both.enqueue("young", 2)
    burst(app2)
    assert seen[-1] == {"old": [1], "young": [2]}
    assert [(job.lane, job.attempt) for job in app2.inspect.jobs("dead")] == [("old", 2)]
    assert (lane(app2, "young").state, lane(app2, "young").attempts) == ("retrying", 1)


def test_current_job_says_which_lanes(app: App) -> None:
    seen: list[tuple[Any, ...]] = []

    @app.collector(name="collect", max_lanes=2)
    def collect(lanes: dict[str, list[int]]) -> None:
        job = current_job()
        seen.append((job.task, job.queue, job.lanes, job.lane, job.payloads, job.attempt))
        job.progress(1, 2)
        job.log("half")

    collect.enqueue_many([("a", 1), ("b", 2), ("c", 3)])
    Worker(app, slots=1).run(burst=True)

    assert seen == [
        ("collect", "collect", ("a", "b"), None, {"a": [1], "b": [2]}, 1),
        ("collect", "collect", ("c",), "c", {"c": [3]}, 1),
    ]


def test_the_old_name_of_payloads_works_and_warns(app: App) -> None:
    seen: list[Any] = []

    @app.collector(name="collect")
    def collect(lanes: dict[str, list[int]]) -> None:
        with pytest.warns(DeprecationWarning, match="payloads"):
            seen.append(current_job().batch)

    collect.enqueue("a", 1)
    burst(app)

    assert seen == [{"a": [1]}]


def test_middlewares_see_the_collector_and_its_payloads(app: App) -> None:
    told: list[Any] = []

    @app.client_middleware
    def client(draft: LaneDraft) -> Generator[None]:
        told.append(("client", draft.task, draft.lane, draft.payload, draft.args))
        assert (draft.id[:2], draft.queue, draft.kwargs, draft.priority, draft.retry, draft.expires) == (
            "l-", "collect", {}, 0, None, None,
        )  # fmt: skip
        draft.headers["trace"] = "x"
        if draft.lane == "rename":
            draft.lane = "renamed"
        yield

    @app.middleware
    def around(job: JobContext) -> Generator[None]:
        told.append((job.task, job.payloads))
        yield
        told.append("after")

    collect, _ = collecting(app)
    assert collect.enqueue("rename", 1).lane == "renamed"
    burst(app)

    assert told == [("client", "collect", "rename", 1, (1,)), ("collect", {"renamed": [1]}), "after"]


def test_an_async_collector_runs_on_the_event_loop(app: App) -> None:
    seen: Seen = []

    @app.middleware
    async def around(job: JobContext) -> AsyncGenerator[None]:
        assert job.lanes == ("a",)
        yield

    @app.collector(name="collect", timeout=0.05, retry=Retry(times=0))
    async def collect(lanes: dict[str, list[int]]) -> None:
        seen.append(lanes)
        await asyncio.sleep(0 if lanes["a"] == [1] else 30)

    collect.enqueue("a", 1)
    burst(app)
    collect.enqueue("a", 2)
    burst(app)

    assert seen == [{"a": [1]}, {"a": [2]}]
    (dead,) = app.inspect.jobs("dead")
    assert dead.errors[-1].kind == "laneway.errors.JobTimeout"


def test_a_run_that_takes_too_long_is_a_failure_of_its_lanes(file_app: App) -> None:
    @file_app.collector(name="collect", timeout=0.1, retry=Retry(times=0), max_lanes=5)
    def collect(lanes: dict[str, list[int]]) -> None:
        while True:
            pass

    collect.enqueue_many([("a", 1), ("b", 2)])
    burst(file_app)

    assert [(job.lane, job.errors[-1].kind) for job in file_app.inspect.jobs("dead")] == [
        ("a", "laneway.errors.JobTimeout"), ("b", "laneway.errors.JobTimeout"),
    ]  # fmt: skip


def test_an_isolated_batch_that_crashes_kills_only_the_payload_to_blame(tmp_path: Path) -> None:
    app = App(url(tmp_path))
    done = tmp_path / "done"

    @app.collector(name="collect", isolate=True, max_lanes=5)
    def collect(lanes: dict[str, list[int]]) -> None:
        if "bad" in lanes and 13 in lanes["bad"]:
            os._exit(9)
        with done.open("a") as file:
            file.writelines(f"{name}\n" for name in lanes)

    collect.enqueue_many([("a", 1), ("bad", 13), ("bad", 14), ("c", 3)])
    Worker(app, slots=1).run(burst=True)

    assert sorted(done.read_text().split()) == ["a", "bad", "c"]
    (dead,) = app.inspect.jobs("dead")
    assert (dead.lane, dead.args, dead.errors[-1].kind) == ("bad", [13], "laneway.errors.JobCrashed")
    assert app.inspect.counts() == {**ALL_DONE, "dead": 1}
    app.close()


def test_an_isolated_batch_with_lane_failures(tmp_path: Path) -> None:
    app = App(url(tmp_path))

    @app.collector(name="collect", isolate=True, max_lanes=5, retry=Retry(times=1, backoff=60))
    def collect(lanes: dict[str, list[int]]) -> None:
        raise LaneFailures({"b": ValueError("only b")})

    collect.enqueue_many([("a", 1), ("b", 2)])
    Worker(app, slots=1).run(burst=True)

    assert [(one.lane, one.attempts) for one in app.inspect.lanes()] == [("b", 1)]
    app.close()


def test_a_payload_that_cannot_be_read_dies_alone(app: App, caplog: pytest.LogCaptureFixture) -> None:
    died: list[tuple[str | None, list[Any]]] = []

    @app.on_death
    def told(job: JobContext) -> None:
        died.append((job.lane, job.args))

    loose = App("sqlite://")
    loose.swap_stores((app.store, app.store_inspect))

    @loose.collector(name="collect")
    def sent(lanes: dict[str, list[Any]]) -> None: ...

    seen: Seen = []

    @app.collector(name="collect", max_lanes=10)
    def collect(lanes: dict[str, list[Order]]) -> None:
        seen.append(lanes)

    sent.enqueue("a", {"id": 1, "version": 1}, score=1)
    sent.enqueue("b", {"id": 2, "version": 1}, score=1)
    sent.enqueue("b", "garbage", score=2)
    sent.enqueue("b", 7, score=3)
    sent.enqueue("c", "garbage")
    with caplog.at_level(logging.CRITICAL, "laneway"):
        burst(app)

    assert seen == [{"a": [Order(1, 1)]}, {"b": [Order(2, 1)]}]
    dead = sorted((job.lane, str(job.args)) for job in app.inspect.jobs("dead"))
    assert dead == [("b", "['garbage']"), ("b", "[7]"), ("c", "['garbage']")]
    assert {lane for lane, _ in died} == {"b", "c"}


def test_lanes_of_a_collector_nobody_knows_wait_for_one_who_does(app: App, caplog: pytest.LogCaptureFixture) -> None:
    collect, _ = collecting(app)
    collect.enqueue_many([("a", 1), ("a", 2), ("b", 3)])
    stranger = App("sqlite://")
    stranger.swap_stores((app.store, app.store_inspect))

    @stranger.task
    def other() -> None: ...

    with caplog.at_level(logging.CRITICAL, "laneway"):
        burst(stranger)

    assert [(one.state, one.attempts, one.size) for one in app.inspect.lanes(order="name")] == [
        ("scheduled", 0, 2),
        ("scheduled", 0, 1),
    ]
    assert "no task named" not in caplog.text


def test_a_collector_that_became_a_task_says_so(app: App, caplog: pytest.LogCaptureFixture) -> None:
    collect, _ = collecting(app)
    collect.enqueue("a", 1)
    changed = App("sqlite://")
    changed.swap_stores((app.store, app.store_inspect))

    @changed.task(name="collect", queue="elsewhere")
    def task() -> None: ...

    with caplog.at_level(logging.CRITICAL, "laneway"):
        burst(changed)

    (dead,) = app.inspect.jobs("dead")
    assert "a collector's, and collect is a task here" in dead.errors[-1].message
    assert dead.args == [1]


# -- looking and acting ------------------------------------------------------------------------------------------


def test_lanes_are_listed_in_every_order_and_direction(app: App) -> None:
    collect, _ = collecting(app)
    collect.enqueue_many([("late", 1, 1, 60), ("late", 2), ("late", 3), ("soon", 1, 1, 30), ("now", 1), ("now", 2)])

    names = {
        order: [one.lane for one in app.inspect.lanes("collect", order=order)]
        for order in ("size", "due", "name", "-size", "-name")
    }

    assert names["size"] == ["late", "now", "soon"]
    assert names["due"] == ["now", "soon", "late"]
    assert names["name"] == ["late", "now", "soon"]
    assert names["-name"] == ["soon", "now", "late"]
    assert names["-size"][0] == "soon"
    page = app.inspect.lanes("collect", order="due", limit=2)
    assert [one.lane for one in page] == ["now", "soon"]
    assert [one.lane for one in app.inspect.lanes("collect", order="due", limit=2, after=page.next)] == ["late"]


def test_a_lane_can_be_looked_into_and_its_oldest_dropped(app: App) -> None:
    collect, seen = collecting(app)
    collect.enqueue_many([("a", "x", 1), ("a", "y", 2)])

    assert [(one.value, one.score, one.running) for one in app.inspect.payloads("collect", "a")] == [
        ("x", 1, False),
        ("y", 2, False),
    ]
    assert (dropped := app.inspect.drop_oldest("collect", "a")) is not None
    assert dropped.value == "x"
    burst(app)
    assert seen == [{"a": ["y"]}]
    for act in (app.inspect.drop_oldest, app.inspect.payloads):
        with pytest.raises(UnknownLane):
            act("collect", "a")


def test_a_lane_can_be_dropped_and_unknown_ones_are_said_to_be(app: App) -> None:
    collect, _ = collecting(app)
    collect.enqueue_many([("a", "x"), ("a", "y"), ("b", "z")])

    assert app.inspect.drop_lane("collect", "a") == 1
    assert [one.lane for one in app.inspect.lanes()] == ["b"]
    for act in (app.inspect.lane, app.inspect.run_lane, app.inspect.drop_lane, app.inspect.explain_lane):
        with pytest.raises(UnknownLane, match='in a lane "a" of queue collect'):
            act("collect", "a")


def test_all_that_fails_can_be_killed_or_deleted(app: App) -> None:
    collect, _ = failing(app, [LaneFailures({"a": "x", "b": "y"})] * 2, max_lanes=10, retry=Retry(backoff=60))
    collect.enqueue_many([("a", 1), ("a", 2), ("b", 3), ("c", 4)])
    burst(app)
    collect.using(run_after=60).enqueue("fresh", 5)

    assert app.inspect.count(failing=True) == 2
    assert app.inspect.kill_all(failing=True, queue="collect", lane="a") == 1
    assert sorted(job.args or [] for job in app.inspect.jobs("dead")) == [[1], [2]]
    assert app.inspect.delete_all(failing=True, queue="collect") == 1
    assert [one.lane for one in app.inspect.lanes()] == ["fresh"]
    assert app.inspect.retry_all("dead", queue="collect") == 2
    assert lane(app).size == 2


def test_a_lane_of_plain_jobs_is_listed_too(app: App) -> None:
    @app.task(name="charge", lane="customer", retry=Retry(times=3, backoff=60))
    def charge(customer: int) -> None:
        raise ValueError("no")

    for _ in range(3):
        charge.enqueue(7)
    burst(app)

    (found,) = app.inspect.lanes()
    assert (found.lane, found.collects, found.size, found.state, found.attempts) == ("7", False, 3, "retrying", 1)
    assert "attempt 1 failed" in str(app.inspect.explain_lane("default", 7))
    assert app.inspect.run_lane("default", 7)
    assert app.inspect.drop_lane("default", 7) == 3
    assert app.inspect.counts() == ALL_DONE


# -- lanes of tasks ----------------------------------------------------------------------------------------------


def test_a_lane_can_be_a_function_of_the_arguments(app: App) -> None:
    def lane_of(customer: int, cents: int = 0, *, region: str = "eu") -> str:
        return f"{region}-{customer}"

    @app.task(name="charge", lane=lane_of)
    def charge(customer: int, cents: int = 5, *, region: str = "us") -> None: ...

    charge.enqueue(7)
    charge.enqueue(8, region="asia")
    charge.using(lane="mine").enqueue(9)

    assert [job.lane for job in app.inspect.jobs()] == ["us-7", "asia-8", "mine"]


def test_a_lane_function_that_does_not_fit_is_refused(app: App) -> None:
    def one(a: int) -> Any:
        return [a] if a else 1 / a

    with pytest.raises(DeclarationError, match=r"lane= is called with the task's arguments .*: it takes \(a: 'int'\)"):

        @app.task(name="t", lane=one)
        def t(a: int, b: int) -> None: ...

    @app.task(name="u", lane=one)
    def u(a: int) -> None: ...

    with pytest.raises(BadOption, match=r"u, lane=: \[1\] is not a key"):
        u.enqueue(1)
    with pytest.raises(BadOption, match="u, lane= raised ZeroDivisionError"):
        u.enqueue(0)


def test_with_halt_on_death_a_dead_job_keeps_its_lane(app: App) -> None:
    ran: list[int] = []
    broken = True

    @app.task(name="charge", lane="customer", retry=Retry(times=0), halt_on_death=True)
    def charge(customer: int, number: int) -> None:
        ran.append(number)
        if number == 1 and broken:
            raise ValueError("no")

    for number in range(1, 4):
        charge.enqueue(7, number)
    charge.enqueue(8, 9)
    burst(app)

    assert sorted(ran) == [1, 9]
    assert app.inspect.counts() == {**ALL_DONE, "dead": 1, "blocked": 2}
    (halted,) = app.inspect.lanes()
    assert (halted.state, halted.size) == ("dead", 3)
    (blocked, *_) = app.inspect.jobs("blocked")
    assert "halts the lane" in str(app.inspect.explain(blocked.id))
    assert "is halted until then" in str(app.inspect.explain_lane("default", 7))
    broken = False
    assert app.inspect.retry(halted.head)
    burst(app)
    assert ran[-3:] == [1, 2, 3]


def test_a_halted_lane_goes_on_when_its_dead_job_is_deleted(app: App) -> None:
    ran: list[int] = []

    @app.task(name="charge", lane="customer", retry=Retry(times=0), halt_on_death=True)
    def charge(customer: int, number: int) -> None:
        ran.append(number)
        if number == 1:
            raise ValueError("no")

    charge.enqueue(7, 1)
    charge.enqueue(7, 2)
    burst(app)
    app.inspect.delete(lane(app, "7", "default").head)
    burst(app)

    assert ran == [1, 2]
    assert app.inspect.counts() == ALL_DONE


# -- counting ----------------------------------------------------------------------------------------------------


class Storm:
    """Workers, and threads that push, on one store; all that happens is counted outside it as well."""

    LANES = ("a", "b", "c", "d")
    BAD, ENOUGH = 13, 14  # numbers that fail, or cancel, the run of their lane

    def __init__(self, where: str) -> None:
        self.where = where
        self.counted: Counter[str] = Counter()
        self._guard = threading.Lock()
        self._chance = random.Random(1)  # noqa: S311 - nothing secret about it

    def count(self, name: str, number: int = 1) -> None:
        with self._guard:
            self.counted[name] += number

    def draw(self) -> float:
        with self._guard:
            return self._chance.random()

    def declare(self, app: App) -> Any:
        @app.on_death
        def told(job: JobContext, error: BaseException) -> None:
            self.count("dead")

        @app.collector(name="collect", max_lanes=2, max_payloads=5, retry=Retry(times=1, backoff=0))
        def collect(lanes: dict[str, list[int]]) -> None:
            failures: dict[str | int, BaseException | str] = {}
            for given in current_job().claim.units:
                lane, number, chance = str(given.lane), len(given.payloads), self.draw()
                if self.BAD in lanes[lane] or chance < 0.1:
                    failures[lane] = "no"
                    self.count("failed")
                elif self.ENOUGH in lanes[lane]:
                    failures[lane] = Cancel("enough")
                    self.count("cancelled", number)
                elif chance < 0.2:
                    failures[lane] = Snooze(0)
                else:
                    self.count("processed", number)
            if failures:
                raise LaneFailures(failures)

        return collect

    def push(self, times: int) -> None:
        app = App(self.where)
        collect = self.declare(app)
        for _ in range(times):
            calls = [
                (self.LANES[int(self.draw() * 4)], int(self.draw() * 16), int(self.draw() * 9) if self.draw() < 0.5 else None)
                for _ in range(int(1 + self.draw() * 4))
            ]
            if len(calls) > 1:
                assert collect.enqueue_many(calls) == len(calls)
            elif self.draw() < 0.3:
                collect.enqueue(calls[0][0])
            else:
                collect.enqueue(*calls[0][:2], score=calls[0][2])
            self.count("enqueued", len(calls))
        app.close()


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_after_a_storm_the_totals_are_what_was_counted_outside(kind: str, tmp_path: Path) -> None:
    where = url(tmp_path) if kind == "sqlite" else redisbench.emptied().url
    storm, app = Storm(where), App(where)
    workers = [App(where), App(where)]
    for one in workers:
        storm.declare(one)
    running = [Running(Worker(one, slots=2)) for one in workers]
    with ThreadPoolExecutor(3) as threads:
        pushing = [threads.submit(storm.push, 100) for _ in range(3)]
        while not all(pushed.done() for pushed in pushing):
            for lane_ in Storm.LANES:
                with contextlib.suppress(UnknownLane):
                    storm.count("dropped", app.inspect.drop_oldest("collect", lane_) is not None)
            app.inspect.retry_all("dead")
    for pushed in pushing:
        pushed.result()
    until(lambda: app.inspect.counts() == {**ALL_DONE, "dead": app.inspect.count("dead")}, "the end of all lanes")
    for worker in running:
        worker.worker.stop()
        worker.join()

    totals, counted = app.store_inspect.totals(), storm.counted
    names = ("enqueued", "processed", "failed", "dead", "cancelled")
    assert {name: totals[name] for name in names} == {name: counted[name] for name in names}
    gone = counted["processed"] + counted["cancelled"] + counted["dropped"]
    assert totals["merged"] == counted["enqueued"] - gone - app.inspect.count("dead")
    assert all(totals[name] for name in (*names, "merged")), f"this showed too little: {totals}"
    figures = app.stats.queues()["collect"]
    assert {name: getattr(figures, name) for name in names} == {name: totals[name] for name in names}
    status = json.loads(CliRunner().invoke(laneway, ["status", "--json", "--store", where]).stdout)
    assert status["totals"] == app.stats.totals() == {name: totals[name] for name in app.stats.totals()}
    for one in (app, *workers):
        one.close()


def test_the_attempt_of_a_run_is_the_highest_of_its_lanes() -> None:
    units = tuple(
        Unit(lane, lane, attempt, 0, 0, payloads=(Payload(b"1", 1.0),)) for lane, attempt in [("a", 1), ("b", 3), ("c", 2)]
    )
    job = JobContext(Claim(7, "orders", "sync", units), [{}], {}, {})
    assert (job.attempt, job.lanes, job.lane, job.ids) == (3, ("a", "b", "c"), None, ("a", "b", "c"))
