"""The store's contract for outboxes: jobs with numbers are taken once, whoever brings them, and however late."""

from __future__ import annotations

from laneway.core.job import Gather, Job, lane_id
from laneway.core.outcome import Done
from laneway.errors import WrongQueue
from laneway.store.contract import ClaimRequest, Store
from laneway.store.inspection import Inspect
from settling import settled_alike
from test_contract import claim, ids, job, settle, states


def payload(text: str, queue: str = "collector") -> Job:
    return Job(lane_id(queue, "lane"), queue, queue, f'"{text}"'.encode(), "lane", gather=Gather())


def test_a_number_is_taken_once_also_when_its_job_has_finished(store: Store, inspect: Inspect) -> None:
    rows = [(5, job("a")), (6, job("b"))]
    assert store.relay("box", rows) == [None, None]
    settle(store, claim(store), Done())

    assert store.relay("box", rows) == ["", ""]

    assert states(inspect) == {}
    assert store.taken("box") == 6


def test_what_is_above_the_highest_number_is_taken(store: Store) -> None:
    store.relay("box", [(5, job("a")), (6, job("b"))])

    assert store.relay("box", [(4, job("x")), (6, job("y")), (7, job("c")), (9, job("d"))]) == ["", "", None, None]

    assert ids(claim(store)) == ["a", "b", "c", "d"]
    assert store.taken("box") == 9


def test_each_queue_and_each_outbox_has_its_own_number(store: Store) -> None:
    assert store.taken("box") == 0
    store.relay("box", [(5, job(queue="first")), (9, job(queue="second"))])

    assert store.relay("box", [(6, job(queue="first")), (9, job(queue="second"))]) == [None, ""]
    assert store.relay("other", [(1, job(queue="first"))]) == [None]
    assert (store.taken("box"), store.taken("other"), store.taken("none")) == (9, 1, 0)


def test_jobs_of_a_lane_keep_their_order(store: Store) -> None:
    rows = [(number, job(str(number), lane="one")) for number in range(1, 6)]
    store.relay("box", rows[:2])
    store.relay("box", rows)

    found = []
    for _ in rows:
        [held] = claim(store, limit=1)
        found += held.ids
        settle(store, [held], Done())
    assert found == ["1", "2", "3", "4", "5"]


def test_ids_and_unique_keys_prevent_as_in_a_push(store: Store) -> None:
    store.push([job("here", queue="far"), job("first", unique="k", queue="far")])

    rows = [(1, job("here")), (2, job("second", unique="k")), (3, job("new")), (4, job("new")), (5, job("u", unique="v")),
            (6, job("w", unique="v"))]  # fmt: skip
    assert store.relay("box", rows) == ["here", "first", None, "new", None, "u"]

    assert ids(claim(store)) == ["new", "u"]


def test_an_id_that_was_used_before_is_new_and_its_record_is_forgotten(store: Store, inspect: Inspect) -> None:
    store.push([job("a", queue="far"), job("b")])
    far = store.exchange("w", [], [ClaimRequest("far", 1), ClaimRequest("default", 1)], 2).claims
    store.exchange("w", [settled_alike(one, Done(b"1"), 1, 2, 60) for one in far], [], 0)
    assert {one.state for one in (inspect.job("a"), inspect.job("b")) if one} == {"done"}

    assert store.relay("box", [(1, job("a")), (2, job("b"))]) == [None, None]

    assert {one.state for one in (inspect.job("a"), inspect.job("b")) if one} == {"ready"}


def test_payloads_are_taken_once(store: Store, inspect: Inspect) -> None:
    rows = [(1, payload("a")), (2, payload("b"))]
    assert store.relay("box", rows) == [None, None]
    assert store.relay("box", [*rows, (3, payload("c"))]) == ["", "", None]

    assert inspect.totals()["enqueued"] == 3
    [held] = claim(store, queues=["collector"])
    assert [one.body for one in held.unit.payloads] == [b'"a"', b'"b"', b'"c"']


def test_a_queue_of_the_other_kind_refuses_its_own_rows_alone(store: Store, inspect: Inspect) -> None:
    store.push([job(queue="tasks"), payload("x", "collected")])

    answers = store.relay("box", [(1, job()), (2, payload("a", "tasks")), (3, job(queue="collected")), (4, job())])

    assert [isinstance(answer, WrongQueue) for answer in answers] == [False, True, True, False]
    assert {answer.queue for answer in answers if isinstance(answer, WrongQueue)} == {"tasks", "collected"}
    assert (answers[0], answers[3]) == (None, None)
    assert states(inspect) == {"ready": 4}


def test_of_both_kinds_in_one_new_queue_the_first_counts(store: Store) -> None:
    answers = store.relay("box", [(1, job(queue="q")), (2, payload("a", "q")), (3, job(queue="q"))])

    assert answers[::2] == [None, None]
    assert isinstance(answers[1], WrongQueue)


def test_nothing_is_no_error(store: Store) -> None:
    assert store.relay("box", []) == []


def test_delay_and_expiry_are_as_in_a_push(store: Store, inspect: Inspect) -> None:
    store.relay("box", [(1, job("later", delay=60)), (2, job("soon", expires=60))])

    assert states(inspect) == {"ready": 1, "scheduled": 1}
