"""The store's contract for collectors, for every store: the table in `laneway.store.contract`, line by line.

A lane here is named by a letter, its payloads are numbers: `gives(claim) == {"a": [1, 2]}`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import STORES, Bench, Clock, old_store
from laneway.core.instant import as_datetime
from laneway.core.job import Claim, Gather, Job, lane_id, payload_id
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.errors import NotFound, UnknownJob, WrongQueue
from laneway.ids import new_id
from laneway.store.contract import ClaimRequest, Exchange, Occurrence, Store, WorkerInfo
from laneway.store.inspection import Filter, Inspect, JobInfo, LaneInfo
from laneway.store.paging import LANE_ORDERS
from settling import settled_alike
from test_contract import assert_woken

ERROR = ErrorInfo(kind="ValueError", message="no")
SECOND = 1_000_000
QUEUE = "orders"


def pay(
    lane: str, value: object = 1, *, score: float | None = None, delay: float = 0, at: int = 0, quiet: float = 0,
    longest: float = 0, queue: str = QUEUE, task: str = "app.sync", headers: str = "",
) -> Job:  # fmt: skip
    """A payload for a lane; None is one that was left out."""
    gather = Gather(score, round(quiet * SECOND), round(longest * SECOND), headers)
    return Job(lane_id(queue, lane), task, queue, encode(value), lane, 0, round(delay * SECOND), at, gather=gather)


def encode(value: object) -> bytes:
    return b"" if value is None else msgspec.json.encode(value)


def plain(id_: str | None = None, *, queue: str = "default", lane: str | None = None, delay: int = 0) -> Job:
    return Job(id_ or new_id(), "app.task", queue, b"[[],{}]", lane, delay=delay)


def claim(
    store: Store, limit: int = 10, *, lanes: int = 1, payloads: int = 0, worker: str = "w", queue: str = QUEUE
) -> list[Claim]:
    return store.exchange(worker, [], [ClaimRequest(queue, limit, lanes, payloads)], limit).claims


def settle(store: Store, claims: Sequence[Claim], *outcomes: Outcome, worker: str = "w", limit: int = 0) -> Exchange:
    """Settle claims: with one outcome for all their lanes, or with one for each."""
    settled = [Settled(claim, (outcomes if len(outcomes) > 1 else outcomes * len(claim.units)), 1, 2) for claim in claims]
    return store.exchange(worker, settled, [ClaimRequest(QUEUE, limit)], limit)


def gives(claims: Sequence[Claim]) -> dict[str, list[object]]:
    """What runs were given, by lane."""
    return {str(lane.lane): [read(payload.body) for payload in lane.payloads] for claim in claims for lane in claim.units}


def read(body: bytes) -> object:
    return msgspec.json.decode(body) if body else None


def trace(*names: object) -> str:
    """Headers of equal payloads that were merged."""
    return "\n".join(f'{{"trace":"{name}"}}' for name in names)


def carries(claims: Sequence[Claim], lane: str = "a") -> list[tuple[object, str]]:
    """The payloads of a lane in a run, with their headers."""
    [unit] = [unit for claim in claims for unit in claim.units if unit.lane == lane]
    return [(read(payload.body), payload.headers) for payload in unit.payloads]


def again(store: Store, clock: Clock, after: float = 0) -> dict[str, list[object]]:
    """What the next run is given."""
    clock.advance(after)
    return gives(claim(store))


def stands(inspect: Inspect, lane: str = "a") -> JobInfo:
    """A lane that must be there."""
    found = inspect.job(lane_id(QUEUE, lane))
    assert found is not None
    return found


def there(inspect: Inspect, lane: str = "a") -> bool:
    return inspect.job(lane_id(QUEUE, lane)) is not None


def dead(inspect: Inspect, value: object, lane: str = "a") -> JobInfo:
    """A dead payload that must be there."""
    found = inspect.job(payload_id(QUEUE, lane, encode(value)))
    assert found is not None
    assert found.state == "dead"
    return found


def states(inspect: Inspect) -> dict[str, int]:
    """The counts that are not 0."""
    return {state: number for state, number in inspect.counts().items() if number}


def totals(inspect: Inspect, *names: str) -> list[int]:
    found = inspect.totals()
    return [found[name] for name in names]


def holding(inspect: Inspect, lane: str = "a") -> list[tuple[object, bool]]:
    """A lane's payloads, each with whether it runs."""
    return [(read(payload.body), payload.running) for payload in inspect.payloads(QUEUE, lane, 100, None)]


class TestPush:
    def test_a_payload_makes_its_lane_wait(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        assert store.push([pay("a", {"id": 7})]) == [None]

        found = stands(inspect)
        assert (found.id, found.task, found.queue, found.lane, found.state) == (
            lane_id(QUEUE, "a"), "app.sync", QUEUE, "a", "ready",
        )  # fmt: skip
        assert (found.attempt, found.payloads, found.score, found.args, found.kwargs) == (0, 1, None, [], {})
        assert (found.enqueued_at, found.due_at) == (as_datetime(clock()), as_datetime(clock()))
        assert (states(inspect), totals(inspect, "enqueued")) == ({"ready": 1}, [1])

    def test_a_run_is_given_all_payloads_of_its_lane_by_score(self, store: Store, clock: Clock) -> None:
        store.push([pay("a", 3, score=3.5), pay("a", 1, score=-1), pay("b", 9), pay("a", 2, score=2)])

        first, second = claim(store)

        assert (gives([first]), gives([second])) == ({"a": [1, 2, 3]}, {"b": [9]})
        [lane] = first.units
        assert [payload.score for payload in lane.payloads] == [-1, 2, 3.5]
        assert (lane.id, lane.attempt, lane.enqueued, lane.due) == (lane_id(QUEUE, "a"), 1, clock(), clock())
        assert (first.task, first.queue, first.lost, first.collects) == ("app.sync", QUEUE, "", True)
        assert (lane.lane, lane.body) == ("a", b"")

    def test_without_a_score_they_come_in_the_order_of_arrival(self, store: Store, clock: Clock) -> None:
        values = list(range(100))
        random.Random(7).shuffle(values)  # noqa: S311 - any order will do
        store.push([pay("a", value) for value in values[:50]])
        clock.advance(-1)  # the store's now does not go back
        store.push([pay("a", value) for value in values[50:]])

        [only] = claim(store)

        scores = [payload.score for payload in only.units[0].payloads]
        assert gives([only]) == {"a": values}
        assert len(set(scores)) == 100
        assert abs(scores[0] - clock.now / SECOND) < 2

    def test_given_scores_that_tie_go_by_arrival(self, store: Store) -> None:
        store.push([pay("a", 2, score=1), pay("a", 1, score=1)])
        store.push([pay("a", 0, score=1)])

        assert gives(claim(store)) == {"a": [2, 1, 0]}

    def test_equal_payloads_become_one_with_the_larger_score(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1, score=5), pay("a", 2, score=3), pay("a", 1, score=2)])
        store.push([pay("a", 2, score=1), pay("a", 3, score=4), pay("a", 1, score=9)])

        assert stands(inspect).payloads == 3
        [only] = claim(store)
        assert [(read(payload.body), payload.score) for payload in only.units[0].payloads] == [(2, 3), (3, 4), (1, 9)]

    @pytest.mark.parametrize("scores", [(1, 2, 3), (None, None, None)], ids=["given", "left out"])
    @pytest.mark.parametrize("together", [True, False])
    def test_a_state_that_comes_back_is_the_newest(self, store: Store, scores: tuple[float | None, ...], together: bool) -> None:
        states = [pay("a", name, score=score) for name, score in zip(("paid", "refunded", "paid"), scores, strict=True)]
        for pushed in [states] if together else [[one] for one in states]:
            store.push(pushed)

        assert gives(claim(store)) == {"a": ["refunded", "paid"]}

    def test_of_equal_payloads_the_earlier_arrival_breaks_ties(self, store: Store) -> None:
        store.push([pay("a", 1, score=1), pay("a", 2, score=5), pay("b", 1, score=1), pay("b", 2, score=1)])
        store.push([pay("a", 1, score=5), pay("b", 1, score=1)])

        assert gives(claim(store)) == {"a": [1, 2], "b": [1, 2]}

    def test_a_payload_that_was_left_out_is_one_as_well(self, store: Store) -> None:
        store.push([pay("a", None), pay("a", None), pay("b", 1), pay("b", None)])

        assert gives(claim(store)) == {"a": [None], "b": [1, None]}

    def test_pushing_twice_with_given_scores_changes_nothing(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1, score=1), pay("b", 2, score=2)])
        clock.advance(1)
        store.push([pay("a", 1, score=1), pay("b", 2, score=2)])

        assert (states(inspect), stands(inspect).payloads) == ({"ready": 2}, 1)
        assert totals(inspect, "enqueued", "merged") == [4, 2]
        [first, second] = claim(store)
        assert (gives([first, second]), first.unit.due, second.unit.due) == (
            {"a": [1], "b": [2]},
            clock() - SECOND,
            clock() - SECOND,
        )

    def test_the_same_lane_in_two_queues_is_two_lanes(self, store: Store) -> None:
        store.push([pay("a", 1), pay("a", 2, queue="mail")])

        assert gives(claim(store)) == {"a": [1]}
        assert gives(claim(store, queue="mail")) == {"a": [2]}

    def test_a_lane_is_due_when_it_was_given(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1, delay=5), pay("b", 2, at=clock() + 9 * SECOND), pay("c", 3, at=clock() - SECOND)])

        assert states(inspect) == {"scheduled": 2, "ready": 1}
        assert again(store, clock) == {"c": [3]}
        assert store.exchange("w", [], [ClaimRequest(QUEUE, 1)], 1).next_due == 5 * SECOND
        assert again(store, clock, 5) == {"a": [1]}
        assert again(store, clock, 4) == {"b": [2]}

    def test_a_lane_that_waits_keeps_its_time_and_its_attempts(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1, delay=5), pay("b", 1)])
        settle(store, claim(store), Retrying(7 * SECOND, ERROR))

        store.push([pay("a", 2), pay("b", 2), pay("a", 3, delay=60)])

        assert states(inspect) == {"scheduled": 1, "retrying": 1}
        assert totals(inspect, "enqueued") == [5]
        assert again(store, clock, 5) == {"a": [1, 2, 3]}
        clock.advance(2)
        [only] = claim(store)
        assert (gives([only]), only.unit.attempt) == ({"b": [1, 2]}, 2)

    def test_in_one_push_the_first_one_says_when_the_lane_is_due(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1, delay=5), pay("a", 2), pay("b", 1), pay("b", 2, delay=5)])

        assert again(store, clock) == {"b": [1, 2]}
        assert totals(inspect, "enqueued") == [4]

    def test_an_occurrence_of_a_schedule_fires_once(self, store: Store, inspect: Inspect) -> None:
        assert store.push([pay("a")], Occurrence("nightly", at=100)) == [None]
        assert store.push([pay("b")], Occurrence("nightly", at=100)) == [""]
        assert states(inspect) == {"ready": 1}
        assert store.push([pay("b")], Occurrence("nightly", at=101)) == [None]

    def test_jobs_and_payloads_can_come_together_for_different_queues(self, store: Store, inspect: Inspect) -> None:
        store.push([plain("x")])

        assert store.push([plain("y"), pay("a", 1), plain("x"), pay("a", 2), plain("z")]) == [None, None, "x", None, None]

        assert {queue.name: queue.collects for queue in inspect.queues()} == {"default": False, QUEUE: True}
        assert [queue.counts["ready"] for queue in inspect.queues()] == [3, 1]

    def test_a_push_ends_the_wait(self, store: Store) -> None:
        assert_woken(store, lambda: store.push([pay("a")]))


class TestKinds:
    def test_a_collectors_queue_takes_no_jobs(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a")])

        with pytest.raises(WrongQueue, match="collector") as caught:
            store.push([plain("fine"), plain("wrong", queue=QUEUE)])

        assert caught.value.queue == QUEUE
        assert states(inspect) == {"ready": 1}

    def test_a_queue_that_had_jobs_and_is_a_collectors_now_takes_none(self, store: Store) -> None:
        store.push([plain(new_id(), queue=QUEUE)])
        store.push([plain(new_id(), queue="other")])
        settle(store, claim(store), Done())
        store.push([pay("a")])

        with pytest.raises(WrongQueue):
            store.push([plain(new_id(), queue=QUEUE)])

    @pytest.mark.parametrize("others", [[], [pay("a", queue="fine")]])
    def test_a_queue_with_jobs_takes_no_payloads(self, store: Store, inspect: Inspect, others: list[Job]) -> None:
        store.push([plain("x", queue=QUEUE)])

        with pytest.raises(WrongQueue, match="of its own"):
            store.push([*others, pay("a")], Occurrence("nightly", at=100))

        assert (states(inspect), store.schedules().last) == ({"ready": 1}, {})

    def test_one_push_cannot_bring_both(self, store: Store, inspect: Inspect) -> None:
        with pytest.raises(WrongQueue):
            store.push([plain("x", queue=QUEUE), pay("a")])

        assert states(inspect) == {}

    @pytest.mark.parametrize("where", ["running", "dead", "scheduled"])
    def test_it_is_so_as_long_as_anything_is_in_it(self, store: Store, inspect: Inspect, where: str) -> None:
        store.push([pay("a", delay=60 if where == "scheduled" else 0)])
        held = claim(store)
        if where == "dead":
            settle(store, held, Dead(ERROR))

        with pytest.raises(WrongQueue):
            store.push([plain("x", queue=QUEUE)])
        assert states(inspect) == {where: 1}

    def test_a_queue_that_is_empty_changes_its_kind(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a")])
        settle(store, claim(store), Done())

        assert store.push([plain("x", queue=QUEUE)]) == [None]

        assert [queue.collects for queue in inspect.queues()] == [False]
        [held] = claim(store)
        assert (held.ids, held.collects) == (["x"], False)
        store.exchange("w", [settled_alike(held, Done())], [], 0)
        assert store.push([pay("a")]) == [None]
        assert gives(claim(store)) == {"a": [1]}


class TestClaims:
    def test_a_run_has_up_to_so_many_lanes_oldest_due_first(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        for lane in "abcde":
            store.push([pay(lane, lane)])
            clock.advance(1)

        first, second = claim(store, limit=2, lanes=2)

        assert [[lane.lane for lane in held.units] for held in (first, second)] == [["a", "b"], ["c", "d"]]
        assert first.token != second.token
        assert (first.unit.id, second.unit.id) == (lane_id(QUEUE, "a"), lane_id(QUEUE, "c"))
        assert (first.unit.due, first.unit.enqueued) == (clock() - 5 * SECOND,) * 2
        assert states(inspect) == {"ready": 1, "running": 4}
        assert {(stands(inspect, lane).worker, stands(inspect, lane).token) for lane in "ab"} == {("w", first.token)}

    def test_the_limit_counts_runs(self, store: Store) -> None:
        store.push([pay(f"l{n}", n) for n in range(10)])

        answer = store.exchange("w", [], [ClaimRequest(QUEUE, 5, 3), ClaimRequest(QUEUE, 5, 1)], 2)

        assert [len(held.units) for held in answer.claims] == [3, 3]
        assert (answer.more, answer.loads) == (True, {QUEUE: 4})
        rest = store.exchange("w", [], [ClaimRequest(QUEUE, 1, 3), ClaimRequest(QUEUE, 5, 1)], 9)
        assert ([len(held.units) for held in rest.claims], rest.more) == ([3, 1], False)

    def test_about_a_thousand_lanes_are_claimed_in_one_call(self, store: Store, inspect: Inspect) -> None:
        store.push([pay(f"l{n}", n) for n in range(2300)])

        answers = [store.exchange("w", [], [ClaimRequest(QUEUE, 1000, 10)], 1000) for _ in range(3)]

        taken = [sum(len(held.units) for held in answer.claims) for answer in answers]
        assert all(900 <= number <= 1100 for number in taken[:2])
        assert answers[0].more
        assert not answers[2].more
        assert (sum(taken), states(inspect)) == (2300, {"running": 2300})

    def test_a_claim_belongs_to_one_worker(self, store: Store) -> None:
        store.push([pay("a")])

        assert gives(claim(store, worker="ann")) == {"a": [1]}
        assert claim(store, worker="bob") == []

    def test_each_lane_of_a_run_has_its_own_attempt(self, store: Store, clock: Clock) -> None:
        store.push([pay("b")])
        held = claim(store)
        store.push([pay("a")])
        settle(store, held, Retrying(SECOND, ERROR))
        clock.advance(1)

        [both] = claim(store, lanes=2)

        assert [(lane.lane, lane.attempt) for lane in both.units] == [("a", 1), ("b", 2)]

    def test_lanes_of_different_tasks_do_not_run_together(self, store: Store) -> None:
        store.push([pay("a"), pay("b", task="app.old"), pay("c", task="app.old")])

        claims = claim(store, lanes=9)

        assert [(held.task, [lane.lane for lane in held.units]) for held in claims] == [
            ("app.sync", ["a"]), ("app.old", ["b", "c"]),
        ]  # fmt: skip

    def test_lanes_that_do_not_run_together_make_no_more_runs_than_wanted(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a"), pay("b", task="app.old"), pay("c")])

        assert gives(claim(store, limit=1, lanes=9)) == {"a": [1]}
        assert states(inspect) == {"ready": 2, "running": 1}

    def test_a_lane_that_lost_its_claim_runs_alone(self, store: Store, clock: Clock) -> None:
        for lane in "abc":
            store.push([pay(lane)])
            clock.advance(1)
        claims = claim(store)
        store.recover("w", "killed by signal 11", {claims[1].token: "crash"})

        found = claim(store, lanes=9)

        assert sorted((held.lost, [lane.lane for lane in held.units]) for held in found if held.lost) == [("crash", ["b"])]
        assert sorted(str(lane.lane) for held in found for lane in held.units if not held.lost) == ["a", "c"]

    @pytest.mark.parametrize("how", ["given back", "recovered"])
    def test_why_a_claim_was_lost_is_remembered_until_a_run_has_ended(self, store: Store, how: str) -> None:
        store.push([pay("a"), pay("b")])
        [held] = claim(store, limit=1)
        store.recover("w", "killed by signal 11", {held.token: "crash"})
        claim(store)

        if how == "recovered":
            store.recover("w", "killed by signal 9")
        else:
            store.give_back("w")

        assert sorted((found.lost, [lane.lane for lane in found.units]) for found in claim(store, lanes=9)) == [
            ("", ["b"]), ("crash", ["a"]),
        ]  # fmt: skip

    def test_of_a_run_that_was_lost_every_lane_runs_alone_next(self, store: Store) -> None:
        store.push([pay(lane) for lane in "abc"])
        [held] = claim(store, lanes=9)

        assert sorted(store.recover("w", "killed", {held.token: "timeout"})) == sorted(lane_id(QUEUE, lane) for lane in "abc")

        suspects = claim(store, lanes=9)
        assert [(found.lost, len(found.units)) for found in suspects] == [("timeout", 1)] * 3
        settle(store, suspects, Retrying(0, ERROR))
        assert [(found.lost, len(found.units)) for found in claim(store, lanes=9)] == [("", 3)]

    def test_a_paused_queue_is_not_claimed_from(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a")])
        inspect.pause(QUEUE, paused=True)

        assert claim(store) == []

    def test_a_queue_that_is_paused_before_its_first_payload_holds_it(self, store: Store, inspect: Inspect) -> None:
        inspect.pause(QUEUE, paused=True)
        store.push([pay("a")])

        assert claim(store) == []
        inspect.pause(QUEUE, paused=False)
        assert len(claim(store)) == 1

    def test_a_stranger_cannot_settle(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a"), pay("b")])
        held = claim(store, lanes=2, worker="ann")

        answer = settle(store, held, Done(), worker="bob")

        assert answer.refused == [lane_id(QUEUE, "a"), lane_id(QUEUE, "b")]
        assert (states(inspect), totals(inspect, "refused", "processed")) == ({"running": 2}, [2, 0])

    @pytest.mark.parametrize(
        "outcome", [Done(), Retrying(0, ERROR), Snoozed(0), Dead(ERROR), Cancelled()], ids=lambda outcome: outcome.name
    )
    def test_settling_twice_is_refused_and_changes_nothing(self, store: Store, inspect: Inspect, outcome: Outcome) -> None:
        store.push([pay("a", 1), pay("a", 2)])
        held = claim(store)
        store.push([pay("a", 3)])
        settle(store, held, outcome)
        before = (inspect.counts(), holding(inspect), totals(inspect, "failed", "dead", "processed", "cancelled"))

        assert settle(store, held, outcome).refused == [lane_id(QUEUE, "a")]
        assert (inspect.counts(), holding(inspect), totals(inspect, "failed", "dead", "processed", "cancelled")) == before

    def test_an_old_token_cannot_settle(self, store: Store) -> None:
        store.push([pay("a")])
        old = claim(store)
        store.give_back("w")
        new = claim(store)

        assert settle(store, old, Done()).refused == [lane_id(QUEUE, "a")]
        assert settle(store, new, Done()).refused == []

    def test_a_lane_that_left_and_came_again_is_another(self, store: Store) -> None:
        store.push([pay("a", 1)])
        old = claim(store)
        settle(store, old, Done())
        store.push([pay("a", 2)])
        new = claim(store)

        assert settle(store, old, Done()).refused == [lane_id(QUEUE, "a")]
        assert (gives(new), settle(store, new, Done()).refused) == ({"a": [2]}, [])

    def test_what_the_worker_knows_it_keeps(self, store: Store) -> None:
        store.push([pay("a"), pay("b"), pay("c")])
        known, unheard = claim(store, lanes=2)

        assert store.give_back("w", keep=[known.token]) == [lane_id(QUEUE, "c")]

        assert settle(store, [known], Done()).refused == []
        assert settle(store, [unheard], Done()).refused == [lane_id(QUEUE, "c")]

    def test_what_a_run_tells_is_kept_with_its_lanes(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a"), pay("b"), pay("c")])
        [held] = claim(store, limit=1, lanes=2)

        store.note([(held.unit.id, held.token, b'{"progress":[1,2],"log":["hi"]}')])

        assert [(stands(inspect, lane).progress, stands(inspect, lane).log) for lane in "abc"] == [
            ((1, 2), ["hi"]), ((1, 2), ["hi"]), (None, []),
        ]  # fmt: skip


class TestPortions:
    """`ClaimRequest.payloads`: some of a lane."""

    def test_those_with_the_lowest_scores_are_taken_and_the_rest_is_due_now(
        self, store: Store, inspect: Inspect, clock: Clock
    ) -> None:
        store.push([pay("a", n, score=-n) for n in range(5)])
        clock.advance(1)

        first = claim(store, payloads=2)

        assert gives(first) == {"a": [4, 3]}
        assert holding(inspect) == [(4, True), (3, True), (2, False), (1, False), (0, False)]
        assert (stands(inspect).payloads, states(inspect), totals(inspect, "enqueued")) == (5, {"running": 1}, [5])
        assert claim(store) == []
        settle(store, first, Done())
        assert (stands(inspect).due_at, stands(inspect).attempt, states(inspect)) == (as_datetime(clock()), 0, {"ready": 1})
        rest = claim(store, payloads=2)
        assert (gives(rest), rest[0].unit.enqueued) == ({"a": [2, 1]}, clock() - SECOND)
        settle(store, rest, Done())
        assert gives(claim(store, payloads=2)) == {"a": [0]}

    def test_where_there_are_no_more_nothing_is_left(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", n) for n in range(2)])

        settle(store, claim(store, payloads=2), Done())

        assert (states(inspect), totals(inspect, "enqueued", "processed")) == ({}, [2, 2])

    @pytest.mark.parametrize("payloads", [1, 2, 0])
    def test_what_failed_is_merged_with_the_rest(self, store: Store, inspect: Inspect, clock: Clock, payloads: int) -> None:
        store.push([pay("a", n, score=n) for n in range(5)])
        held = claim(store, payloads=2)
        store.push([pay("a", 0, score=0.5), pay("a", 9, score=-9), pay("a", 1, score=-1)])

        settle(store, held, Retrying(5 * SECOND, ERROR))

        assert (states(inspect), stands(inspect).attempt) == ({"retrying": 1}, 1)
        everything: list[object] = [9, 0, 1, 2, 3, 4]
        clock.advance(5)
        assert gives(claim(store, payloads=payloads)) == {"a": everything[: payloads or None]}

    def test_it_goes_for_each_lane(self, store: Store) -> None:
        store.push([pay(lane, n) for n in range(3) for lane in "ab"])

        [both] = claim(store, lanes=2, payloads=2)

        assert gives([both]) == {"a": [0, 1], "b": [0, 1]}


class TestOutcomes:
    """The table, line by line, each with and without payloads that came during the run."""

    def test_a_lane_that_is_deleted_while_it_runs_leaves_no_run_behind(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a")])
        held = claim(store)
        inspect.delete(lane_id(QUEUE, "a"))

        settle(store, held, Retrying(0, ERROR))

        assert inspect.recent(9) == []
        assert sum(inspect.counts().values()) == 0

    def test_a_lane_that_snoozes_after_it_failed_is_not_retrying(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a")])
        settle(store, claim(store), Retrying(0, ERROR))
        settle(store, claim(store), Snoozed(SECOND))

        assert (stands(inspect).state, states(inspect)) == ("scheduled", {"scheduled": 1})

    def test_what_comes_during_a_run_gathers_for_the_next(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1)])
        held = claim(store)
        started = clock()
        clock.advance(1)

        store.push([pay("a", 2, delay=5), pay("a", 1)])
        store.push([pay("a", 3)])

        assert (states(inspect), stands(inspect).payloads, totals(inspect, "enqueued", "merged")) == ({"running": 1}, 4, [4, 0])
        assert stands(inspect).enqueued_at == as_datetime(started)
        assert holding(inspect) == [(1, True), (2, False), (1, False), (3, False)]
        assert claim(store) == []
        clock.advance(1)
        settle(store, held, Done())
        found = stands(inspect)
        assert (found.state, found.attempt, found.errors) == ("scheduled", 0, [])
        assert (found.enqueued_at, found.due_at) == (as_datetime(started + SECOND), as_datetime(started + 6 * SECOND))
        assert again(store, clock, 3) == {}
        assert again(store, clock, 1) == {"a": [2, 1, 3]}

    def test_done_without_more_and_the_lane_is_gone(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1), pay("b", 2), pay("b", 3)])

        assert settle(store, claim(store, lanes=2), Done()).refused == []

        assert (states(inspect), there(inspect)) == ({}, False)
        assert totals(inspect, "enqueued", "processed", "failed") == [3, 3, 0]
        assert [(run.id, run.task, run.queue, run.lane, run.outcome, run.started, run.finished) for run in inspect.recent(9)] == [
            (lane_id(QUEUE, lane), "app.sync", QUEUE, lane, "done", 1, 2) for lane in "ba"
        ]
        store.push([pay("b", 4)])
        assert gives(claim(store)) == {"b": [4]}

    def test_done_after_failures_begins_anew_with_what_gathered(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1)])
        settle(store, claim(store), Retrying(0, ERROR))
        held = claim(store)
        store.push([pay("a", 2)])

        settle(store, held, Done())

        assert (stands(inspect).attempt, stands(inspect).errors, stands(inspect).state) == (0, [], "ready")
        [only] = claim(store)
        assert (gives([only]), only.unit.attempt) == ({"a": [2]}, 1)

    def test_what_gathered_knows_nothing_of_the_run_before(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1)])
        [held] = claim(store)
        store.recover("w", "killed by signal 11", {held.token: "crash"})
        [held] = claim(store)
        store.note([(held.unit.id, held.token, b'{"progress":[1,2],"log":["hi"]}')])
        store.push([pay("a", 2)])

        settle(store, [held], Done())

        assert (stands(inspect).progress, stands(inspect).log, stands(inspect).errors) == (None, [], [])
        assert [found.lost for found in claim(store)] == [""]

    @pytest.mark.parametrize("more", [[], [pay("a", 2, score=2)], [pay("a", 2, score=2, delay=60)]], ids=["", "more", "later"])
    def test_retrying_is_merged_at_the_failed_ones_time(
        self, store: Store, inspect: Inspect, clock: Clock, more: list[Job]
    ) -> None:
        store.push([pay("a", 1, score=1), pay("a", 3, score=3)])
        held = claim(store)
        store.push(more)

        settle(store, held, Retrying(10 * SECOND, ERROR))

        found = stands(inspect)
        assert (found.state, found.attempt, found.due_at) == ("retrying", 1, as_datetime(clock() + 10 * SECOND))
        assert [(error.message, error.attempt) for error in found.errors] == [("no", 1)]
        assert (found.enqueued_at, totals(inspect, "failed", "retried")) == (as_datetime(clock()), [1, 1])
        assert again(store, clock, 9) == {}
        clock.advance(1)
        [only] = claim(store)
        assert (gives([only]), only.unit.attempt) == ({"a": [1, *([2] if more else []), 3]}, 2)
        assert [run.outcome for run in inspect.recent(9)] == ["retrying"]
        settle(store, [only], Done())  # nothing gathers any more
        assert (states(inspect), there(inspect)) == ({}, False)

    def test_merging_keeps_the_larger_score_and_the_earlier_arrival_wherever_they_were(
        self, store: Store, inspect: Inspect
    ) -> None:
        store.push([pay("a", 1, score=1), pay("a", 2, score=5), pay("a", 3, score=3)])
        held = claim(store)
        store.push([pay("a", 1, score=9), pay("a", 2, score=2), pay("a", 4, score=3), pay("a", 3, score=3)])

        settle(store, held, Retrying(0, ERROR))

        [only] = claim(store)
        assert [(read(p.body), p.score) for p in only.units[0].payloads] == [(3, 3), (4, 3), (2, 5), (1, 9)]
        assert totals(inspect, "enqueued", "merged") == [7, 3]

    @pytest.mark.parametrize("number", [3, 1500])
    def test_what_gathered_during_a_large_run_or_a_small_one_is_merged_alike(
        self, store: Store, inspect: Inspect, number: int
    ) -> None:
        store.push([pay("a", n, score=n) for n in range(number)])
        held = claim(store)
        store.push([pay("a", 0, score=number), pay("a", 1, score=-1), pay("a", "new", score=0.5)])

        settle(store, held, Retrying(0, ERROR))

        assert (stands(inspect).payloads, totals(inspect, "merged")) == (number + 1, [2])
        assert gives(claim(store)) == {"a": ["new", *range(1, number), 0]}

    @pytest.mark.parametrize("more", [[], [pay("a", 2, delay=60)]], ids=["", "later"])
    def test_snoozed_is_merged_and_counts_no_attempt(self, store: Store, inspect: Inspect, clock: Clock, more: list[Job]) -> None:
        store.push([pay("a", 1)])
        settle(store, claim(store), Retrying(0, ERROR))
        held = claim(store)
        store.push(more)

        settle(store, held, Snoozed(10 * SECOND))

        assert (states(inspect), stands(inspect).attempt) == ({"scheduled": 1}, 1)
        clock.advance(10)
        [only] = claim(store)
        assert (gives([only]), only.unit.attempt) == ({"a": [1, *([2] if more else [])]}, 2)

    @pytest.mark.parametrize("more", [[], [pay("a", 2, delay=60)]], ids=["", "later"])
    @pytest.mark.parametrize("how", ["given back", "recovered"])
    def test_a_run_that_did_not_end_is_merged_as_it_was(
        self, store: Store, inspect: Inspect, clock: Clock, how: str, more: list[Job]
    ) -> None:
        store.push([pay("a", 1)])
        settle(store, claim(store), Retrying(0, ERROR))
        clock.advance(1)
        claim(store)
        store.push(more)

        if how == "recovered":
            assert store.recover("w", "killed by signal 9") == [lane_id(QUEUE, "a")]
        else:
            assert store.give_back("w") == [lane_id(QUEUE, "a")]

        found = stands(inspect)
        assert (found.state, found.attempt, found.due_at) == ("ready", 1, as_datetime(clock() - SECOND))
        assert [error.kind for error in found.errors] == ["ValueError"] + ["worker lost"] * (how == "recovered")
        assert totals(inspect, "recovered") == [int(how == "recovered")]
        assert again(store, clock) == {"a": [1, *([2] if more else [])]}

    @pytest.mark.parametrize("more", [[], [pay("a", 2, delay=5)]], ids=["", "later"])
    def test_cancelled_drops_the_run_and_what_gathered_goes_on(
        self, store: Store, inspect: Inspect, clock: Clock, more: list[Job]
    ) -> None:
        store.push([pay("a", 1)])
        settle(store, claim(store), Retrying(0, ERROR))
        held = claim(store)
        store.push(more)

        settle(store, held, Cancelled("no more"))

        assert totals(inspect, "cancelled", "processed") == [1, 0]
        assert [run.outcome for run in inspect.recent(9)] == ["cancelled", "retrying"]
        assert states(inspect) == ({"scheduled": 1} if more else {})
        clock.advance(5)
        found = claim(store)
        assert (gives(found), [held.unit.attempt for held in found]) == (({"a": [2]}, [1]) if more else ({}, []))

    def test_each_lane_has_its_own_outcome(self, store: Store, inspect: Inspect) -> None:
        store.push([pay(lane) for lane in "abcde"])
        held = claim(store, lanes=5)

        answer = settle(store, held, Done(), Retrying(SECOND, ERROR), Snoozed(SECOND), Dead(ERROR), Cancelled())

        assert answer.refused == []
        assert states(inspect) == {"retrying": 1, "scheduled": 1, "dead": 1}
        assert [there(inspect, lane) for lane in "abcde"] == [False, True, True, False, False]
        assert totals(inspect, "processed", "failed", "retried", "dead", "cancelled") == [1, 2, 1, 1, 1]
        assert [(run.lane, run.outcome) for run in inspect.recent(9)] == [
            ("e", "cancelled"), ("d", "dead"), ("b", "retrying"), ("a", "done"),
        ]  # fmt: skip

    def test_one_outcome_alone_is_meant_for_all_lanes(self, store: Store, inspect: Inspect) -> None:
        store.push([pay(lane) for lane in "ab"])
        [held] = claim(store, lanes=5)

        store.exchange("w", [settled_alike(held, Retrying(SECOND, ERROR))], [], 0)

        assert states(inspect) == {"retrying": 2}

    def test_lanes_that_are_not_held_any_more_are_refused_and_the_others_settled(self, store: Store, inspect: Inspect) -> None:
        store.push([pay(lane) for lane in "abc"])
        first = claim(store, lanes=3)
        settle(store, first, Done(), Retrying(0, ERROR), Done())
        second = claim(store)  # b, with another token
        store.push([pay("a")])
        third = claim(store, worker="other")

        answer = settle(store, [*first, *second], Done())

        assert answer.refused == [lane_id(QUEUE, lane) for lane in "abc"]
        assert (gives(third), states(inspect)) == ({"a": [1]}, {"running": 1})

    def test_many_done_at_once_with_some_that_gathered(self, store: Store, inspect: Inspect) -> None:
        store.push([pay(f"l{n}", n) for n in range(100)])
        held = claim(store, limit=100, lanes=3)
        store.push([pay("l3", "more"), pay("l50", "more")])
        inspect.cancel(lane_id(QUEUE, "l70"))

        answer = settle(store, held, Done(), limit=5)

        assert (answer.refused, gives(answer.claims)) == ([], {"l3": ["more"], "l50": ["more"]})
        assert (states(inspect), totals(inspect, "processed", "enqueued", "cancelled")) == ({"running": 2}, [100, 102, 0])

    def test_a_lane_that_goes_on_may_be_claimed_in_the_same_step(self, store: Store) -> None:
        store.push([pay("a", 1)])
        held = claim(store)
        store.push([pay("a", 2)])

        answer = settle(store, held, Done(), limit=1)

        assert (gives(answer.claims), answer.more) == ({"a": [2]}, False)

    @pytest.mark.parametrize("outcome", [Retrying(SECOND, ERROR), Dead(ERROR), Cancelled()], ids=lambda outcome: outcome.name)
    def test_another_lane_may_be_claimed_in_the_same_step(self, store: Store, outcome: Outcome) -> None:
        store.push([pay("a"), pay("b")])

        assert gives(settle(store, claim(store, limit=1), outcome, limit=9).claims) == {"b": [1]}


class TestDeath:
    def test_the_rest_of_a_lane_is_counted_once(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([plain("first")])  # on SQLite the second queue, and those after it, have counts of their own
        store.push([pay("a", 1)])
        settle(store, claim(store), Dead(ERROR))
        store.push([pay("a", 1), pay("a", 2), pay("b", 3, delay=10)])
        held = claim(store)
        clock.advance(5)  # nothing has become due, and nobody has looked at the queue since

        settle(store, held, Dead(ERROR))  # its equal is dead already

        assert states(inspect) == {"ready": 2, "scheduled": 1, "dead": 1}

    def test_one_of_the_run_is_dead_and_the_rest_goes_on_at_once(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1, score=1), pay("a", 2, score=2)])
        settle(store, claim(store), Retrying(0, ERROR))
        held = claim(store)
        store.push([pay("a", 0, score=0, delay=60)])
        clock.advance(3)

        settle(store, held, Dead(ErrorInfo("OSError", "gone")))

        found = dead(inspect, 1)
        assert (found.task, found.queue, found.lane, found.score, found.payloads) == ("app.sync", QUEUE, "a", 1, None)
        assert (found.args, found.kwargs, found.attempt, found.due_at) == ([1], {}, 2, as_datetime(clock()))
        assert [(error.kind, error.attempt) for error in found.errors] == [("ValueError", 1), ("OSError", 2)]
        rest = stands(inspect)
        assert (rest.state, rest.attempt, rest.due_at, rest.errors) == ("ready", 0, as_datetime(clock()), [])
        assert states(inspect) == {"ready": 1, "dead": 1}
        assert totals(inspect, "failed", "dead", "retried") == [2, 1, 1]
        assert [run.outcome for run in inspect.recent(9)] == ["dead", "retrying"]
        [only] = claim(store)
        assert (gives([only]), only.unit.attempt) == ({"a": [0, 2]}, 1)

    def test_a_lane_with_nothing_left_is_gone(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1)])

        settle(store, claim(store), Dead(ERROR))

        assert (there(inspect), states(inspect)) == (False, {"dead": 1})
        assert inspect.result(payload_id(QUEUE, "a", b"1")).state == "dead"

    def test_a_payload_that_was_left_out_can_die(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", None)])

        settle(store, claim(store), Dead(ERROR))

        assert (dead(inspect, None).args, dead(inspect, None).kwargs) == ([], {})
        assert inspect.retry(dead(inspect, None).id)
        assert gives(claim(store)) == {"a": [None]}

    def test_what_came_again_during_the_run_goes_on(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1)])
        held = claim(store)
        store.push([pay("a", 1, delay=60)])

        settle(store, held, Dead(ERROR))

        assert (states(inspect), stands(inspect).due_at) == ({"ready": 1, "dead": 1}, as_datetime(clock()))
        assert gives(claim(store)) == {"a": [1]}

    def test_named_payloads_die_in_its_stead(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", n, score=n) for n in range(4)])
        held = claim(store)
        store.push([pay("a", 7)])

        settle(store, held, Dead(ERROR, payloads=(b"2", b"1", b"unheard of", b"7")))

        assert [dead(inspect, n).score for n in (1, 2)] == [1, 2]
        assert (states(inspect), totals(inspect, "dead", "failed")) == ({"ready": 1, "dead": 2}, [2, 1])
        assert gives(claim(store)) == {"a": [0, 3, 7]}

    def test_the_one_that_arrived_first_dies_whatever_its_score(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1, score=5), pay("a", 2, score=1), pay("a", 3, score=9)])

        [held] = claim(store)
        settle(store, [held], Dead(ERROR))

        [lane] = held.units
        assert (gives([held]), read(lane.payloads[lane.first].body)) == ({"a": [2, 1, 3]}, 1)
        assert (dead(inspect, 1).score, gives(claim(store))) == (5, {"a": [2, 3]})

    @pytest.mark.parametrize("score", [None, 100])
    def test_one_that_is_sent_again_and_again_dies_before_its_neighbours(
        self, store: Store, inspect: Inspect, score: float | None
    ) -> None:
        store.push([pay("a", "bad", score=score), pay("a", "good", score=score)])

        for again in range(1, 4):
            held = claim(store)
            store.push([pay("a", "bad", score=score and score + again)])
            settle(store, held, Retrying(0, ERROR))
        held = claim(store)
        settle(store, held, Dead(ERROR))

        assert gives(held) == {"a": ["good", "bad"]}
        assert (dead(inspect, "bad").state, gives(claim(store))) == ("dead", {"a": ["good"]})

    def test_a_replayed_payload_dies_before_those_that_came_after_its_death(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", "bad", score=1)])
        settle(store, claim(store), Dead(ERROR))
        store.push([pay("a", "good", score=0)])
        assert inspect.retry(dead(inspect, "bad").id)

        held = claim(store)
        settle(store, held, Dead(ERROR))

        assert gives(held) == {"a": ["good", "bad"]}
        assert (dead(inspect, "bad").state, gives(claim(store))) == ("dead", {"a": ["good"]})

    def test_if_none_of_those_named_is_in_the_run_the_first_to_arrive_dies(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", n, score=n) for n in range(2)])
        held = claim(store)

        settle(store, held, Dead(ERROR, payloads=(b"9",)))

        assert dead(inspect, 0).score == 0
        assert gives(claim(store)) == {"a": [1]}

    def test_with_a_portion_one_of_the_portion_dies(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", n, score=n) for n in range(4)])
        held = claim(store, payloads=2)
        store.push([pay("a", -1, score=-1)])

        settle(store, held, Dead(ERROR))

        assert dead(inspect, 0).score == 0
        assert gives(claim(store)) == {"a": [-1, 1, 2, 3]}

    def test_a_payload_that_dies_again_is_one_with_the_larger_score_and_the_newest_errors(
        self, store: Store, inspect: Inspect, clock: Clock
    ) -> None:
        for number, score in enumerate((5, 7, 3)):
            store.push([pay("a", 1, score=score)])
            settle(store, claim(store), Dead(ErrorInfo("E", str(number))))
            clock.advance(1)

        found = dead(inspect, 1)
        assert (found.score, [error.message for error in found.errors]) == (7, ["2"])
        assert (found.due_at, found.enqueued_at) == (as_datetime(clock() - SECOND), as_datetime(clock() - 3 * SECOND))
        assert (states(inspect), totals(inspect, "enqueued", "dead", "merged")) == ({"dead": 1}, [3, 3, 2])

    def test_dead_payloads_beyond_the_limit_are_forgotten_oldest_first(self, bench: Bench) -> None:
        bench.store.dead_max = 2  # type: ignore[attr-defined]
        for n in range(4):
            bench.store.push([pay("a", n)])
            settle(bench.store, claim(bench.store), Dead(ERROR))
            bench.clock.advance(1)

        assert [found.args for found in bench.inspect.jobs(Filter(state="dead"), 10, None)] == [[2], [3]]
        assert states(bench.inspect) == {"dead": 2}

    def test_a_replayed_payload_makes_its_lane_wait(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1, score=7)])
        settle(store, claim(store), Retrying(0, ERROR))
        settle(store, claim(store), Dead(ERROR))
        clock.advance(1)

        assert inspect.retry(dead(inspect, 1).id)

        assert (states(inspect), totals(inspect, "enqueued", "dead")) == ({"ready": 1}, [1, 1])
        found = stands(inspect)
        assert (found.attempt, found.due_at, found.enqueued_at) == (0, as_datetime(clock()), as_datetime(clock()))
        [only] = claim(store)
        assert (gives([only]), only.unit.attempt, only.units[0].payloads[0].score) == ({"a": [1]}, 1, 7)

    @pytest.mark.parametrize("how", ["later", "retrying"])
    def test_a_replayed_payload_makes_a_lane_that_waits_due(self, store: Store, inspect: Inspect, clock: Clock, how: str) -> None:
        store.push([pay("a", 1, score=2)])
        settle(store, claim(store), Dead(ERROR))
        store.push([pay("a", 2, score=1, delay=60 if how == "later" else 0), pay("a", 1, score=3)])
        if how == "retrying":
            settle(store, claim(store), Retrying(60 * SECOND, ERROR))

        assert inspect.retry(dead(inspect, 1).id)

        assert (states(inspect), stands(inspect).attempt, stands(inspect).due_at) == ({"ready": 1}, 0, as_datetime(clock()))
        [only] = claim(store)
        assert [(read(p.body), p.score) for p in only.units[0].payloads] == [(2, 1), (1, 3)]
        assert (only.unit.attempt, totals(inspect, "enqueued", "merged")) == (1, [3, 1])

    @pytest.mark.parametrize("more", [[], [pay("a", 2, delay=60)]], ids=["", "later"])
    def test_a_replayed_payload_gathers_while_its_lane_runs(
        self, store: Store, inspect: Inspect, clock: Clock, more: list[Job]
    ) -> None:
        store.push([pay("a", 1, score=1)])
        settle(store, claim(store), Dead(ERROR))
        store.push([pay("a", 3)])
        held = claim(store)
        store.push(more)
        clock.advance(1)

        assert inspect.retry(dead(inspect, 1).id)

        assert (states(inspect), totals(inspect, "enqueued")) == ({"running": 1}, [2 + len(more)])
        settle(store, held, Done())
        assert (states(inspect), stands(inspect).due_at) == ({"ready": 1}, as_datetime(clock()))
        assert stands(inspect).enqueued_at == as_datetime(clock() - SECOND * len(more))
        assert gives(claim(store)) == {"a": [1, *([2] if more else [])]}

    def test_a_dead_payload_can_be_deleted_and_nothing_else(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1)])
        settle(store, claim(store), Dead(ERROR))
        id_ = dead(inspect, 1).id

        assert [inspect.cancel(id_), inspect.kill(id_), inspect.reschedule(id_, 0, 0)] == [False, False, False]
        assert inspect.delete(id_)
        assert (inspect.job(id_), states(inspect)) == (None, {})


class TestAsking:
    @pytest.mark.parametrize("action", ["cancel", "delete", "kill"])
    def test_a_lane_that_waits_ends_at_once(self, store: Store, inspect: Inspect, clock: Clock, action: str) -> None:
        store.push([pay("a", 1, score=1), pay("a", 2, score=2), pay("b", 3)])
        settle(store, claim(store, limit=1), Retrying(9 * SECOND, ERROR))

        assert getattr(inspect, action)(lane_id(QUEUE, "a"))

        assert not there(inspect)
        assert states(inspect) == ({"ready": 1, "dead": 2} if action == "kill" else {"ready": 1})
        assert totals(inspect, "cancelled", "dead", "failed") == [2 * (action == "cancel"), 2 * (action == "kill"), 1]
        if action == "kill":
            found = dead(inspect, 2)
            assert ([error.kind for error in found.errors], found.attempt, found.score) == (["ValueError", "killed"], 1, 2)
        assert [run.outcome for run in inspect.recent(9)] == ["cancelled"] * (action == "cancel") + ["retrying"]
        store.push([pay("a", 4)])
        clock.advance(9)
        assert gives(claim(store, limit=1, lanes=2)) == {"b": [3], "a": [4]}

    @pytest.mark.parametrize("action", ["cancel", "delete", "kill"])
    @pytest.mark.parametrize("end", ["retrying", "snoozed", "dead", "cancelled", "given back", "recovered"])
    def test_what_runs_ends_with_its_run_and_what_comes_later_goes_on(
        self, store: Store, inspect: Inspect, clock: Clock, action: str, end: str
    ) -> None:
        store.push([pay("a", 1), pay("a", 2)])
        held = claim(store)
        store.push([pay("a", 3), pay("a", 4)])

        assert getattr(inspect, action)(lane_id(QUEUE, "a"))

        killed = 2 * (action == "kill")
        assert (stands(inspect).payloads, stands(inspect).mark, states(inspect).get("dead", 0)) == (2, action, killed)
        assert store.beat([WorkerInfo("w")])["w"].marks == {lane_id(QUEUE, "a"): action}
        store.push([pay("a", 1, delay=5), pay("a", 5)])
        self.end(store, held, end)
        found = stands(inspect)
        assert (found.state, found.attempt, found.mark, found.due_at) == ("scheduled", 0, None, as_datetime(clock() + 5 * SECOND))
        assert inspect.counts()["dead"] == 2 * killed
        assert totals(inspect, "dead", "cancelled", "failed") == [2 * killed, 4 * (action == "cancel"), 0]
        if action == "kill":
            assert [error.kind for error in dead(inspect, 1).errors] == ["killed"]
        assert again(store, clock, 5) == {"a": [1, 5]}

    @pytest.mark.parametrize("action", ["cancel", "delete", "kill"])
    @pytest.mark.parametrize("end", ["retrying", "given back"])
    def test_with_nothing_later_the_lane_is_gone(self, store: Store, inspect: Inspect, action: str, end: str) -> None:
        store.push([pay("a", 1)])
        held = claim(store)
        getattr(inspect, action)(lane_id(QUEUE, "a"))

        self.end(store, held, end)

        assert (there(inspect), states(inspect)) == (False, {"dead": 1} if action == "kill" else {})
        assert totals(inspect, "cancelled", "dead") == [int(action == "cancel"), int(action == "kill")]

    def test_where_nothing_gathers_only_the_run_is_cancelled(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1)])
        held = claim(store)
        inspect.cancel(lane_id(QUEUE, "a"))
        settle(store, held, Retrying(0, ERROR))

        assert [(run.outcome, run.started) for run in inspect.recent(9)] == [("cancelled", 1)]

    @pytest.mark.parametrize("action", ["cancel", "delete", "kill"])
    def test_a_run_that_was_done_before_it_heard_is_done(self, store: Store, inspect: Inspect, action: str) -> None:
        store.push([pay("a", 1)])
        held = claim(store)
        getattr(inspect, action)(lane_id(QUEUE, "a"))
        store.push([pay("a", 2)])

        assert settle(store, held, Done()).refused == []

        assert (states(inspect), stands(inspect).mark) == ({"ready": 1}, None)
        assert totals(inspect, "processed", "cancelled", "dead") == [1, 0, 0]
        assert gives(claim(store)) == {"a": [2]}

    def test_a_kill_ends_a_run_as_dead_in_the_recent_runs(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1)])
        held = claim(store)
        inspect.kill(lane_id(QUEUE, "a"))
        settle(store, held, Retrying(0, ERROR))

        assert [(run.outcome, run.started) for run in inspect.recent(9)] == [("dead", 1)]

    def test_what_gathers_has_not_failed_though_its_lane_has(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1)])
        settle(store, claim(store), Retrying(0, ERROR))
        claim(store)
        clock.advance(1)
        store.push([pay("a", 2)])

        inspect.kill(lane_id(QUEUE, "a"))

        found = dead(inspect, 2)
        assert ([error.kind for error in found.errors], found.attempt) == (["killed"], 0)
        assert found.enqueued_at == as_datetime(clock())
        store.push([pay("a", 3)])
        clock.advance(1)
        inspect.cancel(lane_id(QUEUE, "a"))
        assert [(run.outcome, run.enqueued, run.started) for run in inspect.recent(1)] == [("cancelled", clock() - SECOND, 0)]
        store.give_back("w")
        assert (there(inspect), totals(inspect, "cancelled", "dead")) == (False, [2, 1])

    @staticmethod
    def end(store: Store, held: Sequence[Claim], how: str) -> None:
        outcomes: dict[str, Outcome] = {
            "retrying": Retrying(0, ERROR), "snoozed": Snoozed(0), "dead": Dead(ERROR), "cancelled": Cancelled(),
        }  # fmt: skip
        if how == "given back":
            store.give_back("w")
        elif how == "recovered":
            store.recover("w", "killed by signal 9")
        else:
            assert settle(store, held, outcomes[how]).refused == []

    @pytest.mark.parametrize("how", ["later", "retrying", "snoozed"])
    def test_a_lane_that_waits_can_be_made_due(self, store: Store, inspect: Inspect, how: str) -> None:
        store.push([pay("a", 1, delay=60 if how == "later" else 0)])
        if how != "later":
            settle(store, claim(store), Retrying(60 * SECOND, ERROR) if how == "retrying" else Snoozed(60 * SECOND))

        assert inspect.retry(lane_id(QUEUE, "a"))

        assert states(inspect) == {"ready": 1}
        assert not inspect.retry(lane_id(QUEUE, "a"))
        [only] = claim(store)
        assert only.unit.attempt == (2 if how == "retrying" else 1)
        assert not inspect.retry(lane_id(QUEUE, "a"))

    @pytest.mark.parametrize("how", ["ready", "later", "retrying"])
    def test_a_lane_that_waits_can_be_rescheduled(self, store: Store, inspect: Inspect, clock: Clock, how: str) -> None:
        store.push([pay("a", 1, delay=60 if how == "later" else 0)])
        if how == "retrying":
            settle(store, claim(store), Retrying(60 * SECOND, ERROR))

        assert inspect.reschedule(lane_id(QUEUE, "a"), 5 * SECOND, 0)

        assert states(inspect) == {"retrying" if how == "retrying" else "scheduled": 1}
        assert (stands(inspect).due_at, stands(inspect).attempt) == (as_datetime(clock() + 5 * SECOND), int(how == "retrying"))
        clock.advance(5)
        claim(store)
        assert not inspect.reschedule(lane_id(QUEUE, "a"), 0, 0)

    def test_a_lane_that_is_not_there_is_an_error_that_says_so(self, inspect: Inspect) -> None:
        with pytest.raises(UnknownJob):
            inspect.cancel(lane_id(QUEUE, "a"))

    def test_all_that_match_are_acted_upon(self, store: Store, inspect: Inspect) -> None:
        store.push([pay(lane, n) for lane in "abcd" for n in (1, 2)])
        settle(store, claim(store, limit=1), Dead(ERROR))  # a has one left
        settle(store, claim(store, limit=1), Retrying(9 * SECOND, ERROR))  # b

        assert inspect.act_all("reschedule", Filter(state="retrying"), 60 * SECOND) == 1
        assert inspect.act_all("retry", Filter(queue=QUEUE)) == 2  # b, and a's dead one
        assert states(inspect) == {"ready": 4}
        assert inspect.act_all("kill", Filter(lane="c")) == 1
        assert inspect.act_all("cancel", Filter(task="app.sync", lane="d")) == 1
        assert states(inspect) == {"ready": 2, "dead": 2}
        assert stands(inspect).payloads == 2

    def test_what_has_failed_is_found(self, store: Store, inspect: Inspect) -> None:
        store.push([pay(lane) for lane in "abc"] + [plain("x"), plain("y")])
        settle(store, claim(store, limit=2), Retrying(0, ERROR))
        claim(store, limit=1)
        store.exchange("v", [settled_alike(c, Retrying(0, ERROR)) for c in claim(store, 1, queue="default", worker="v")], [], 0)
        store.push([pay("d", 1)])
        settle(store, [held for held in claim(store) if held.unit.lane == "d"], Dead(ERROR))

        found = inspect.jobs(Filter(failing=True), 10, None)

        assert sorted(found_.lane or found_.id for found_ in found) == ["a", "b", "x"]
        assert inspect.count(Filter(failing=True, queue=QUEUE)) == 2
        assert inspect.count(Filter(failing=True, state="dead")) == 0

    def test_clearing_removes_what_waits(self, store: Store, inspect: Inspect) -> None:
        store.push([pay(lane, n) for lane in "abc" for n in (1, 2)])
        settle(store, claim(store, limit=1), Dead(ERROR))
        held = claim(store, limit=1)
        store.push([pay(str(held[0].unit.lane), 3)])

        assert inspect.clear(QUEUE) == 2

        assert states(inspect) == {"running": 1, "dead": 1}
        settle(store, held, Done())
        assert list(gives(claim(store)).values()) == [[3]]


class TestDebounce:
    def test_a_lane_is_put_off_until_it_is_quiet(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        for n in range(4):
            store.push([pay("a", n, quiet=5)])
            assert stands(inspect).due_at == as_datetime(clock() + 5 * SECOND)
            clock.advance(4)

        assert (states(inspect), totals(inspect, "enqueued")) == ({"scheduled": 1}, [4])
        assert again(store, clock, 0.999) == {}
        assert again(store, clock, 0.001) == {"a": [0, 1, 2, 3]}

    def test_but_not_for_longer_than_it_may(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        for n in range(4):
            store.push([pay("a", n, quiet=5, longest=9)])
            clock.advance(3)

        assert stands(inspect).due_at == as_datetime(clock() - 3 * SECOND)
        assert gives(claim(store)) == {"a": [0, 1, 2, 3]}

    def test_the_first_one_too_waits_no_longer_than_it_may(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1, quiet=5, longest=2)])

        assert stands(inspect).due_at == as_datetime(clock() + 2 * SECOND)

    def test_it_is_never_due_earlier_than_it_was(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1, delay=60), pay("b", 1, quiet=60)])
        store.push([pay("a", 2, quiet=5), pay("b", 2, quiet=5)])

        assert [stands(inspect, lane).due_at for lane in "ab"] == [as_datetime(clock() + 60 * SECOND)] * 2

    def test_a_time_that_was_given_is_meant(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1, quiet=5, delay=1), pay("b", 1, quiet=5, at=clock() + SECOND), pay("c", 1)])
        store.push([pay("a", 2, quiet=5, delay=9), pay("c", 2, quiet=5, at=clock() - SECOND)])

        assert [stands(inspect, lane).due_at for lane in "abc"] == [as_datetime(clock() + n * SECOND) for n in (1, 1, 0)]

    def test_a_lane_that_is_ready_is_put_off_too(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1)])
        clock.advance(3)
        store.push([pay("a", 2, quiet=5)])

        assert (states(inspect), stands(inspect).due_at) == ({"scheduled": 1}, as_datetime(clock() + 5 * SECOND))
        assert again(store, clock, 5) == {"a": [1, 2]}

    def test_in_one_push_as_one_after_the_other(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1), pay("a", 2, quiet=5), pay("a", 3, quiet=3)])

        assert stands(inspect).due_at == as_datetime(clock() + 5 * SECOND)

    def test_a_lane_that_has_failed_is_not_put_off(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1)])
        settle(store, claim(store), Retrying(2 * SECOND, ERROR))

        store.push([pay("a", 2, quiet=5)])

        assert (states(inspect), stands(inspect).due_at) == ({"retrying": 1}, as_datetime(clock() + 2 * SECOND))

    def test_what_gathers_is_put_off_by_its_own_first_payload(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1)])
        settle(store, claim(store), Retrying(0, ERROR))
        held = claim(store)
        clock.advance(100)
        began = clock()
        for n in range(2, 6):
            store.push([pay("a", n, quiet=5, longest=9)])
            clock.advance(3)

        settle(store, held, Done())

        assert (stands(inspect).due_at, stands(inspect).state) == (as_datetime(began + 9 * SECOND), "ready")
        assert gives(claim(store)) == {"a": [2, 3, 4, 5]}

    def test_what_gathers_and_is_due_stays_due_when_more_comes(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1)])
        held = claim(store)
        began = clock()
        for n in (2, 3):
            store.push([pay("a", n)])
            clock.advance(5)

        settle(store, held, Done())

        assert stands(inspect).due_at == as_datetime(began)

    def test_an_earlier_lane_ends_the_wait_for_a_later_one(self, store: Store) -> None:
        store.push([pay("a", quiet=100)])
        assert store.exchange("w", [], [ClaimRequest(QUEUE, 1)], 1).next_due == 100 * SECOND
        assert_woken(store, lambda: store.push([pay("b", quiet=50)]))


class TestLooking:
    def test_a_lane_is_one_job_of_its_queue(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1), pay("a", 2), pay("b", 3, delay=5)])
        store.push([plain("x")])

        listed = inspect.jobs(Filter(queue=QUEUE), 10, None)

        assert [(found.lane, found.payloads, found.state) for found in listed] == [("a", 2, "ready"), ("b", 1, "scheduled")]
        [other] = inspect.jobs(Filter(queue="default"), 10, None)
        assert (other.payloads, other.score) == (None, None)
        assert [inspect.count(Filter(queue=QUEUE, state=state)) for state in ("ready", "scheduled", "dead")] == [1, 1, 0]
        assert {queue.name: queue.collects for queue in inspect.queues()} == {QUEUE: True, "default": False}

    def test_a_worker_shows_the_lanes_it_holds(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a"), pay("b")])
        store.beat([WorkerInfo("w")])
        [held] = claim(store, lanes=2)

        [worker] = inspect.workers()

        assert sorted((job.id, job.lane, job.token) for job in worker.jobs) == sorted(
            (lane_id(QUEUE, lane), lane, held.token) for lane in "ab"
        )

    def test_how_a_lane_stands(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1)])
        id_ = lane_id(QUEUE, "a")
        seen = [inspect.result(id_).state]
        held = claim(store)
        seen.append(inspect.result(id_).state)
        settle(store, held, Retrying(SECOND, ERROR))
        seen.append(inspect.result(id_).state)
        assert inspect.result(id_).error is not None
        inspect.retry(id_)
        settle(store, claim(store), Done())

        assert [*seen, inspect.result(id_).state] == ["ready", "running", "retrying", "done"]


class TestPayloads:
    def test_they_are_listed_in_pages_what_runs_first(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", n, score=-n) for n in range(5)])
        held = claim(store)
        store.push([pay("a", n, score=-n) for n in range(3, 9)])

        pages = [inspect.payloads(QUEUE, "a", 4, None)]
        while pages[-1].next is not None:
            pages.append(inspect.payloads(QUEUE, "a", 4, pages[-1].next))

        found = [(p.value, p.score, p.running) for page in pages for p in page]
        assert found == [(n, -n, True) for n in (4, 3, 2, 1, 0)] + [(n, -n, False) for n in (8, 7, 6, 5, 4, 3)]
        assert [len(page) for page in pages] == [4, 4, 3]
        settle(store, held, Done())
        assert [p.value for p in inspect.payloads(QUEUE, "a", 9, None)] == [8, 7, 6, 5, 4, 3]
        assert [p.value for p in inspect.payloads(QUEUE, "a", 9, pages[1].next)] == [5, 4, 3]

    def test_ties_are_paged_too(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", n, score=0.1) for n in range(9)])
        found: list[object] = []
        page = inspect.payloads(QUEUE, "a", 2, None)
        found += [p.value for p in page]
        while page.next is not None:
            page = inspect.payloads(QUEUE, "a", 2, page.next)
            found += [p.value for p in page]

        assert found == list(range(9))

    def test_where_there_is_no_lane_there_are_none(self, store: Store, inspect: Inspect) -> None:
        store.push([plain("x", lane="a")])

        assert inspect.payloads(QUEUE, "a", 9, None) == []
        assert inspect.payloads("default", "a", 9, None) == []
        assert inspect.payloads(QUEUE, "a", 9, None).next is None

    def test_a_place_that_is_none_is_an_error_that_says_so(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a")])
        for after in ("nonsense", "", "[]", '["a",{},1]'):
            with pytest.raises(NotFound, match="next"):
                inspect.payloads(QUEUE, "a", 9, after)
            with pytest.raises(NotFound, match="next"):
                inspect.lanes(QUEUE, "lag", 9, after)

    def test_the_oldest_that_does_not_run_can_be_dropped(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", n, score=-n) for n in range(3)])

        dropped = inspect.drop_oldest(QUEUE, "a")

        assert dropped is not None
        assert (dropped.value, dropped.score, dropped.running, stands(inspect).payloads) == (2, -2, False, 2)
        held = claim(store)
        assert inspect.drop_oldest(QUEUE, "a") is None
        store.push([pay("a", n, score=n) for n in (7, 5)])
        assert [p and p.value for p in (inspect.drop_oldest(QUEUE, "a") for _ in range(3))] == [5, 7, None]
        assert stands(inspect).payloads == 2
        store.push([pay("a", 9, delay=3)])  # it gathers anew
        settle(store, held, Done())
        assert (states(inspect), stands(inspect).due_at) == ({"scheduled": 1}, as_datetime(clock() + 3 * SECOND))

    def test_what_is_left_of_those_that_gather_goes_on(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1)])
        held = claim(store)
        store.push([pay("a", n) for n in (2, 3, 4)])

        inspect.drop_oldest(QUEUE, "a")

        assert gives(settle(store, held, Done(), limit=1).claims) == {"a": [3, 4]}

    def test_a_lane_whose_last_one_is_dropped_is_gone(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1, delay=5), pay("b", 2)])

        assert inspect.drop_oldest(QUEUE, "a") is not None
        assert inspect.drop_oldest(QUEUE, "a") is None

        assert (there(inspect), states(inspect), totals(inspect, "cancelled")) == (False, {"ready": 1}, [0])
        assert inspect.recent(9) == []

    def test_only_a_collectors_lane_has_something_to_drop(self, store: Store, inspect: Inspect) -> None:
        store.push([plain("x", lane="a"), pay("a", 1)])
        settle(store, claim(store), Dead(ERROR))

        assert inspect.drop_oldest("default", "a") is None
        assert inspect.drop_oldest(QUEUE, "a") is None
        assert states(inspect) == {"ready": 1, "dead": 1}


class TestLanes:
    def fill(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        """Lanes of all kinds: two of a collector (a, b); of jobs one with a line (x), two waiting (y, z), one halted (h)."""
        store.push([pay("b", n) for n in range(3)])
        settle(store, claim(store), Retrying(10 * SECOND, ERROR))
        clock.advance(1)
        store.push([plain(f"x{n}", lane="x") for n in range(4)] + [plain("lane-less")])
        store.exchange("w", [], [ClaimRequest("default", 3)], 3)
        clock.advance(1)
        store.push([pay("a", n) for n in range(2)])
        store.push([plain("h0", lane="h", queue="mail"), plain("h1", lane="h", queue="mail")])
        [head] = claim(store, 1, queue="mail")
        store.exchange("w", [settled_alike(head, Dead(ERROR, halt=True))], [ClaimRequest("mail", 1)], 1)
        store.push([plain("y1", lane="y", queue="mail"), plain("y2", lane="y", queue="mail")])
        store.push([plain("z", lane="z", queue="mail", delay=60 * SECOND)])
        clock.advance(2)

    def test_every_lane_that_has_something_to_do_is_shown(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        self.fill(store, inspect, clock)
        store.push([pay("gone", 1)])
        settle(store, claim(store, lanes=9), Dead(ERROR))  # a has one left, gone has none

        found = {lane.lane: lane for lane in inspect.lanes(None, "name", 99, None)}

        assert list(found) == ["a", "b", "h", "x", "y", "z"]
        assert {name: (lane.queue, lane.state, lane.size, lane.attempts, lane.collects) for name, lane in found.items()} == {
            "a": (QUEUE, "ready", 1, 0, True), "b": (QUEUE, "retrying", 3, 1, True), "h": ("mail", "dead", 2, 1, False),
            "x": ("default", "running", 4, 0, False), "y": ("mail", "ready", 2, 0, False),
            "z": ("mail", "scheduled", 1, 0, False),
        }  # fmt: skip
        assert [found[name].head for name in "abhxyz"] == [lane_id(QUEUE, "a"), lane_id(QUEUE, "b"), "h0", "x0", "y1", "z"]
        assert {found[name].task for name in "ab"} == {"app.sync"}
        assert {found[name].task for name in "hxyz"} == {"app.task"}
        assert [(error and error.message) for error in (found[name].error for name in "abhxyz")] == [None, "no", "no"] + [
            None
        ] * 3
        assert [found[name].lag for name in "abhxyz"] == [0, 0, 2, 3, 2, 0]
        assert found["z"].due_at == as_datetime(clock() + 58 * SECOND)

    def test_one_can_be_asked_for(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        self.fill(store, inspect, clock)
        store.push([pay("x", 1)])

        assert names(inspect.lanes("default", "lag", 9, None, "x")) == ["x"]
        assert [(lane.queue, lane.collects) for lane in inspect.lanes(None, "lag", 9, None, "x")] == [
            ("default", False), (QUEUE, True),
        ]  # fmt: skip
        assert inspect.lanes("default", "lag", 9, None, "a") == []
        assert inspect.lanes("unheard of", "lag", 9, None) == []

    @pytest.mark.parametrize("order", [sign + order for order in LANE_ORDERS for sign in ("", "-")])
    def test_in_any_order_and_in_pages(self, store: Store, inspect: Inspect, clock: Clock, order: str) -> None:
        self.fill(store, inspect, clock)

        whole = inspect.lanes(None, order, 99, None)

        assert (sorted(names(whole)), whole.next) == (list("abhxyz"), None)
        assert keys(whole, order) == sorted(keys(whole, order))
        for size in (1, 2, 4):
            page = inspect.lanes(None, order, size, None)
            found = names(page)
            while page.next is not None:
                page = inspect.lanes(None, order, size, page.next)
                found += names(page)
            assert found == names(whole)
        assert names(inspect.lanes("mail", order, 99, None)) == [name for name in names(whole) if name in "hyz"]

    def test_pages_by_lag_go_on_though_time_does(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay(f"l{9 - n}", n, delay=n) for n in range(6)])
        clock.advance(2)
        page = inspect.lanes(None, "lag", 2, None)
        found = names(page)
        while page.next is not None:
            clock.advance(1)
            page = inspect.lanes(None, "lag", 2, page.next)
            found += names(page)

        assert found == ["l9", "l8", "l4", "l5", "l6", "l7"]  # the last four had no lag when it began

    def test_an_order_that_is_none_is_an_error_that_says_so(self, inspect: Inspect) -> None:
        with pytest.raises(ValueError, match="lag"):
            inspect.lanes(None, "colour", 9, None)

    def test_the_head_is_who_holds_the_lane_else_who_is_next(self, store: Store, inspect: Inspect) -> None:
        store.push([plain(f"x{n}", lane="x") for n in range(3)])
        assert [lane.head for lane in inspect.lanes(None, "lag", 9, None)] == ["x0"]
        held = claim(store, 9, queue="default")
        assert [lane.head for lane in inspect.lanes(None, "lag", 9, None)] == ["x0"]
        store.exchange("w", [settled_alike(held[0], Done())], [], 0)

        assert [(lane.head, lane.size) for lane in inspect.lanes(None, "lag", 9, None)] == [("x1", 2)]


def names(lanes: Sequence[LaneInfo]) -> list[str]:
    return [lane.lane for lane in lanes]


def keys(lanes: Sequence[LaneInfo], order: str) -> list[Any]:
    """What lanes are ordered by, as values that grow; ties by queue and name."""
    values: dict[str, Callable[[LaneInfo], float]] = {
        "lag": lambda lane: -lane.lag, "size": lambda lane: -lane.size, "attempts": lambda lane: -lane.attempts,
        "due": lambda lane: lane.due_at.timestamp(), "name": lambda lane: ord(lane.lane),
    }  # fmt: skip
    value, sign = values[order.removeprefix("-")], -1 if order.startswith("-") else 1
    return [(sign * value(lane), lane.queue, lane.lane) for lane in lanes]


# -- only what is meant -------------------------------------------------------------------------------------------


class TestOnlyThat:
    """What is done to one lane, or to one payload, leaves all others as they are."""

    def test_a_lane_that_is_claimed_in_part_is_the_only_one_that_runs(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1), pay("a", 2), pay("b", delay=5), plain("x")])

        claim(store, payloads=1)

        found = [stands(inspect, "a"), stands(inspect, "b"), inspect.job("x")]
        assert [one and one.state for one in found] == ["running", "scheduled", "ready"]

    def test_a_lane_that_is_put_off_is_the_only_one_with_another_time(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("a", 1, quiet=5), pay("b", delay=3), plain("x", delay=4 * SECOND)])
        began = clock()
        clock.advance(1)

        store.push([pay("a", 2, quiet=5)])

        found = [stands(inspect, "a"), stands(inspect, "b"), inspect.job("x")]
        assert [one and one.due_at for one in found] == [as_datetime(began + after * SECOND) for after in (6, 3, 4)]

    def test_sides_are_joined_in_one_lane_and_stay_apart_in_another(self, store: Store, inspect: Inspect) -> None:
        store.push([pay(lane, n, score=n) for lane in "ab" for n in (1, 2)])
        held = claim(store)
        store.push([pay(lane, n, score=score) for lane in "ab" for n, score in ((3, 3), (1, 4))])

        settle(store, held[:1], Snoozed(0))

        assert holding(inspect, "a") == [(2, False), (3, False), (1, False)]
        assert holding(inspect, "b") == [(1, True), (2, True), (3, False), (1, False)]
        assert totals(inspect, "merged") == [1]

    def test_each_outcome_is_for_its_own_lane_whichever_came_first(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([pay("b", delay=2), pay("a", delay=1)])
        clock.advance(2)
        held = claim(store, lanes=2)
        assert list(gives(held)) == ["a", "b"]

        settle(store, held, Retrying(SECOND, ERROR), Snoozed(SECOND))

        assert [stands(inspect, lane).attempt for lane in "ab"] == [1, 0]

    def test_of_payloads_with_one_score_one_goes(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", n, score=1) for n in range(4)])

        inspect.drop_oldest(QUEUE, "a")
        settle(store, claim(store), Dead(ERROR))

        assert dead(inspect, 1).score == 1
        assert gives(claim(store)) == {"a": [2, 3]}

    def test_one_of_the_run_dies_though_one_that_gathers_arrived_before(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1, score=2), pay("a", 2, score=1)])

        settle(store, claim(store, payloads=1), Dead(ERROR))

        assert dead(inspect, 2).score == 1
        assert gives(claim(store)) == {"a": [1]}

    def test_a_page_of_payloads_has_those_of_its_own_lane(self, store: Store, inspect: Inspect) -> None:
        store.push([pay(lane, f"{lane}{n}", score=n) for n in range(3) for lane in "abc"])
        first = inspect.payloads(QUEUE, "b", 1, None)

        assert [p.value for p in inspect.payloads(QUEUE, "b", 9, first.next)] == ["b1", "b2"]


# -- whatever the order of arrival ----------------------------------------------------------------------------------

scored = st.tuples(st.integers(0, 9), st.floats(-5, 5).map(lambda score: round(score, 1)))
arrivals = st.lists(st.tuples(st.sampled_from("ab"), scored), max_size=30)


@pytest.mark.parametrize("name", STORES)
def test_how_payloads_are_cut_and_ordered_does_not_change_what_is_handed_over(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=100 if name.endswith("memory") else 10)
    @given(arrivals, st.randoms(use_true_random=False), st.integers(1, 10), st.booleans())
    def run(given_: list[tuple[str, tuple[int, float]]], chance: random.Random, size: int, during: bool) -> None:
        # Ties go by arrival, so scores are made different.
        payloads = [
            pay(lane, value, score=score + n / 1000, headers=trace(n % 4) if n % 3 else "")
            for n, (lane, (value, score)) in enumerate(given_)
        ]
        shuffled = [*payloads, *payloads[:3]]
        chance.shuffle(shuffled)
        handed = []
        for jobs, most in ((payloads, 1000), (shuffled, size)):
            bench = STORES[name](tmp_path_factory.mktemp("merge"), Clock())
            try:
                for start in range(0, len(jobs), most):
                    held = claim(bench.store) if during else []
                    bench.store.push(jobs[start : start + most])
                    settle(bench.store, held, Retrying(0, ERROR))  # merging after a run that failed comes to the same
                claims = claim(bench.store)
                units = [unit for held in claims for unit in held.units]
                handed.append({unit.lane: [(p.body, p.score, {*p.headers.split("\n")}) for p in unit.payloads] for unit in units})
            finally:
                bench.store.close()
        assert handed[0] == handed[1]

    run()


class TestHeaders:
    def test_they_travel_with_their_payload(self, store: Store, inspect: Inspect) -> None:
        store.push(
            [pay("a", 1, headers=trace(1)), pay("a", 2), pay("a", None, headers=trace(3)), pay("b", 1, headers=trace("ä\u2028"))]
        )

        held = claim(store)

        assert carries(held) == [(1, trace(1)), (2, ""), (None, trace(3))]
        assert carries(held, "b") == [(1, trace("ä\u2028"))]
        assert [payload.body for payload in inspect.payloads(QUEUE, "a", 9, None)] == [b"1", b"2", b""]

    def test_equal_payloads_have_those_of_all_each_once_the_earliest_first(self, store: Store) -> None:
        store.push([pay("a", 1), pay("a", 1, headers=trace(1)), pay("a", 1, headers=trace(2)), pay("b", 1)])
        store.push([pay("a", 1, headers=trace(1)), pay("a", 1), pay("a", 1, headers=trace(3)), pay("b", 1, headers=trace(4))])
        store.push([pay("a", 1, headers=trace(2)), pay("b", 1, headers=trace(4)), pay("b", 1, score=9e12)])

        held = claim(store)

        assert carries(held) == [(1, trace(1, 2, 3))]
        assert carries(held, "b") == [(1, trace(4))]

    def test_a_merge_that_changes_nothing_else_adds_them(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1, score=9, headers=trace(1))])

        store.push([pay("a", 1, score=5, headers=trace(2))])

        [held] = claim(store)
        assert (held.unit.payloads[0].score, carries([held])) == (9, [(1, trace(1, 2))])
        assert totals(inspect, "enqueued", "merged") == [2, 1]

    @pytest.mark.parametrize("end", ["retry", "snooze", "give_back", "recover"])
    @pytest.mark.parametrize(("ran", "gathered"), [(1, 0), (1, 3), (3, 1), (1001, 1), (1, 1001)])
    def test_what_comes_back_keeps_them_and_is_joined_with_what_gathered(
        self, store: Store, clock: Clock, end: str, ran: int, gathered: int
    ) -> None:
        filler = [pay("a", f"more {n}", score=n + 10) for n in range(1, 1001)]
        store.push([pay("a", 0, score=1, headers=trace(1, 2)), *filler[: ran - 1]])
        held = claim(store)
        if gathered:
            store.push([pay("a", 0, score=0, headers=trace(2, 3)), *filler[: gathered - 1]])

        if end == "retry":
            settle(store, held, Retrying(0, ERROR))
        elif end == "snooze":
            settle(store, held, Snoozed(0))
        elif end == "give_back":
            store.give_back("w")
        else:
            store.recover("w", "killed")

        clock.advance(1)
        back = carries(claim(store))
        assert back[0] == (0, trace(1, 2, 3) if gathered else trace(1, 2))
        assert len(back) == max(ran, gathered)
        assert not any(headers for _, headers in back[1:])

    def test_sides_are_joined_with_them_where_only_one_has_any(self, store: Store) -> None:
        store.push([pay("a", 1, headers=trace(1)), pay("a", 2), pay("a", 3, headers=trace(3))])
        held = claim(store)
        store.push([pay("a", 2, headers=trace(2)), pay("a", 1), pay("a", 4, headers=trace(4))])

        settle(store, held, Snoozed(0))

        assert sorted(carries(claim(store)), key=str) == [(1, trace(1)), (2, trace(2)), (3, trace(3)), (4, trace(4))]

    def test_a_portion_has_its_own_and_the_rest_keeps_its(self, store: Store) -> None:
        store.push([pay("a", n, score=n, headers=trace(n)) for n in range(5)])

        held = claim(store, payloads=2)
        assert carries(held) == [(0, trace(0)), (1, trace(1))]
        store.push([pay("a", 1, score=1, headers=trace("late")), pay("a", 4, score=4, headers=trace("late"))])
        settle(store, held, Retrying(0, ERROR))

        held = claim(store, payloads=3)
        assert carries(held) == [(0, trace(0)), (1, trace(1, "late")), (2, trace(2))]
        settle(store, held, Done())
        assert carries(claim(store)) == [(3, trace(3)), (4, trace(4, "late"))]

    def test_they_end_with_a_run_that_is_done(self, store: Store) -> None:
        store.push([pay("a", 1, headers=trace(1))])
        held = claim(store)
        store.push([pay("a", 1, headers=trace(2))])

        settle(store, held, Done())

        assert carries(claim(store)) == [(1, trace(2))]

    @pytest.mark.parametrize("end", [Dead(ERROR), Dead(ERROR, payloads=(b"1",)), "kill", "kill what waits"])
    def test_they_end_with_the_death_of_a_payload(self, store: Store, inspect: Inspect, end: Dead | str) -> None:
        store.push([pay("a", 1, score=1, headers=trace(1))])
        if isinstance(end, Dead):
            store.push([pay("a", 2, score=2, headers=trace(2))])
        held = claim(store) if end != "kill what waits" else []
        if isinstance(end, Dead):
            settle(store, held, end)
        else:
            assert inspect.kill(lane_id(QUEUE, "a"))
            settle(store, held, Snoozed(0))
        died = dead(inspect, 1)
        assert died.args == [1]

        assert inspect.retry(died.id)

        assert carries(claim(store)) == ([(1, ""), (2, trace(2))] if isinstance(end, Dead) else [(1, "")])

    def test_a_replayed_payload_takes_over_those_of_its_equal(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1, headers=trace(1))])
        settle(store, claim(store), Dead(ERROR))
        store.push([pay("a", 1, headers=trace(2))])

        assert inspect.retry(dead(inspect, 1).id)

        assert carries(claim(store)) == [(1, trace(2))]

    def test_the_oldest_is_dropped_without_them(self, store: Store, inspect: Inspect) -> None:
        store.push([pay("a", 1, headers=trace(1)), pay("a", 2, headers=trace(2))])

        dropped = inspect.drop_oldest(QUEUE, "a")

        assert dropped is not None
        assert (dropped.body, carries(claim(store))) == (b"1", [(2, trace(2))])

    @pytest.mark.parametrize("together", [True, False])
    def test_very_many_are_cut_off_at_the_latest(self, store: Store, together: bool) -> None:
        each = [pay("a", 1, headers=trace(f"{n:089}")) for n in range(100)]  # 101 bytes each
        if together:
            store.push(each)
        else:
            for one in each:
                store.push([one])
        whole = trace(*[f"{n:089}" for n in range(39)])
        assert len(whole) == 3977

        held = claim(store)
        assert carries(held) == [(1, whole)]

        store.push([pay("a", 1, headers=trace("x")), pay("a", 1, headers=trace("y"))])
        settle(store, held, Snoozed(0))
        assert carries(claim(store)) == [(1, whole + "\n" + trace("x"))]

    def test_one_that_is_long_stays_whole_and_alone(self, store: Store) -> None:
        store.push([pay("a", 1, headers=trace("x" * 9000)), pay("a", 2, headers=trace("ä" * 1995))])

        store.push([pay("a", 1, headers=trace("y")), pay("a", 2, headers=trace("y"))])

        assert carries(claim(store)) == [(1, trace("x" * 9000)), (2, trace("ä" * 1995))]

    def test_whatever_they_are_they_come_back_as_they_were(self, store: Store) -> None:
        strange = ["7", "[]", "{", '{"a":1}', "\ufffd", "{" * 5000, "not JSON\n\n{}"]
        store.push([pay("a", n, headers=headers) for n, headers in enumerate(strange)])

        assert carries(claim(store)) == list(enumerate(strange))


# -- stores of before --------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A store as Laneway wrote it while the smaller score counted, in PostgreSQL the last version: rows and keys, byte for byte.

    Lane a waits: `paid` 1, `refunded` 2, and `paid` 3, which was merged; not in PostgreSQL. Lane b is run by `w`: `x` 5, `y` 1;
    since then came `x` 9 and `z` 6. Lane c is gone, and its payload `bad` 7 is dead.
    """
    made = old_store(request.param, "old_collectors.json", tmp_path, Clock(1_002 * SECOND))
    yield made
    made.store.close()


def test_what_waits_in_a_store_of_before_keeps_its_meaning_and_merges_by_the_new_rule(old: Bench) -> None:
    store, inspect = old.store, old.inspect
    assert states(inspect) == {"ready": 1, "running": 1, "dead": 1}
    assert holding(inspect, "a") == [("paid", False), ("refunded", False)]
    assert holding(inspect, "b") == [("y", True), ("x", True), ("z", False), ("x", False)]
    enqueued, processed = totals(inspect, "enqueued", "processed")

    store.push([pay("a", "paid", score=3)])

    assert totals(inspect, "enqueued", "merged", "processed") == [enqueued + 1, 1, processed]
    assert gives(claim(store, worker="v")) == {"a": ["refunded", "paid"]}


def test_what_ran_in_a_store_of_before_goes_on_by_the_new_rule(old: Bench) -> None:
    store, inspect = old.store, old.inspect

    assert store.recover("w", "killed") == [lane_id(QUEUE, "b")]

    [held] = [one for one in claim(store) if one.units[0].lane == "b"]
    assert [(read(p.body), p.score) for p in held.units[0].payloads] == [("y", 1), ("z", 6), ("x", 9)]
    settle(store, [held], Dead(ERROR))
    assert (dead(inspect, "x", "b").score, gives(claim(store))) == (9, {"b": ["y", "z"]})


def test_what_is_dead_in_a_store_of_before_goes_back_with_its_score_and_dies_first(old: Bench) -> None:
    store, inspect = old.store, old.inspect
    store.push([pay("c", "good", score=1)])

    assert inspect.retry(dead(inspect, "bad", "c").id)

    [held] = [one for one in claim(store) if one.units[0].lane == "c"]
    assert [(read(p.body), p.score) for p in held.units[0].payloads] == [("good", 1), ("bad", 7)]
    settle(store, [held], Dead(ERROR))
    assert (dead(inspect, "bad", "c").score, gives(claim(store))) == (7, {"c": ["good"]})


def test_payloads_of_a_store_of_before_have_no_headers_and_get_those_of_new_equals(old: Bench) -> None:
    store = old.store
    store.push([pay("a", "paid", score=3, headers=trace(1)), pay("b", "x", headers=trace(2))])
    store.recover("w", "killed")

    held = claim(store)

    assert carries(held) == [("refunded", ""), ("paid", trace(1))]
    assert carries(held, "b") == [("y", ""), ("z", ""), ("x", trace(2))]
