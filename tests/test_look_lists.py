"""Lists of jobs and lanes: they mean the same however few are meant among all, on every store; and few cost little."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import cast

import pytest

import redisbench
from conftest import Clock, often
from laneway import App
from laneway.core.instant import SECOND
from laneway.core.job import STATES, Gather, Job, lane_id
from laneway.core.outcome import Dead, Done, ErrorInfo, Outcome, Retrying, Snoozed
from laneway.errors import UnknownLane
from laneway.store.contract import ClaimRequest, Store
from laneway.store.inspection import Filter, Inspect, JobInfo, LaneInfo
from laneway.store.paging import LANE_ORDERS
from laneway.store.sqlite.store import SQLiteStore
from settling import settled_alike

ERROR = ErrorInfo(kind="ValueError", message="no")
#: Of very different sizes, as queues are.
SIZES = {"big": 60, "middle": 9, "old": 2, "empty": 0}


def fill(store: Store, clock: Clock, chance: random.Random) -> None:
    """Fill a store with jobs in all states, and let some time go by with nobody writing."""
    names = [queue for queue, size in SIZES.items() for _ in range(size)]
    chance.shuffle(names)
    for number, queue in enumerate(names):
        lane = chance.choice([None, None, "a", "b"])
        priority = 0 if lane else chance.choice([0, 0, 5])
        delay = chance.choice([0, 0, 0, SECOND, 60 * SECOND])
        store.push([Job(f"j{number:03}", "app.task", queue, b"[[],{}]", lane, priority, delay)])
    wants = [ClaimRequest(queue, 9) for queue in SIZES]
    claims = store.exchange("w", [], wants, 25).claims
    later, much_later = clock() + SECOND, clock() + 60 * SECOND
    outcomes: list[Outcome] = [Done(), Dead(ERROR), Retrying(later, ERROR), Retrying(much_later, ERROR), Snoozed(later)]
    over = [settled_alike(claim, chance.choice(outcomes), 1, 2) for claim in claims if chance.random() < 0.7]
    store.exchange("w", over, wants, 3)
    clock.advance(2)


def listed(inspect: Inspect, which: Filter, newest: bool) -> list[str]:
    """Return the ids on all pages."""
    found, after = list[str](), None
    for _ in range(100):
        page = inspect.jobs(which, 7, after, newest)
        found += [job.id for job in page]
        if (after := page.next) is None:
            return found
    raise AssertionError("a list without end")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(often(2, 40)))
def test_a_list_by_state_and_queue_is_a_part_of_the_list_of_all(store: Store, inspect: Inspect, clock: Clock, seed: int) -> None:
    fill(store, clock, random.Random(seed))  # noqa: S311 - the same in every run
    everything: dict[bool, list[JobInfo]] = {newest: list(inspect.jobs(Filter(), 1000, None, newest)) for newest in (False, True)}

    for state, queue, newest in itertools.product((None, *STATES), (None, *SIZES, "unknown"), (False, True)):
        meant = [job.id for job in everything[newest] if state in (None, job.state) and queue in (None, job.queue)]
        which = Filter(state=state, queue=queue)
        assert listed(inspect, which, newest) == meant, (state, queue, newest)
        assert inspect.count(which) == len(meant), (state, queue)


@pytest.mark.parametrize(
    "which", [Filter(queue="old"), Filter(queue="old", state="ready"), Filter(queue="unknown"), Filter(state="dead")]
)
def test_few_jobs_are_found_without_going_through_all(file_app: App, which: Filter) -> None:
    store = cast("SQLiteStore", file_app.store)
    store.push([Job(f"o{n}", "app.task", "old", b"[[],{}]") for n in range(3)])
    store.push([Job(f"b{n}", "app.task", "big", b"[[],{}]") for n in range(5000)])
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    with store.database.reading() as connection:
        connection.set_progress_handler(step, 100)
    file_app.store_inspect.jobs(which, 50, None)

    assert steps < 20  # 2,000 steps of SQLite's machine; a walk over all takes ten times as many


def lanes_of(jobs: Sequence[JobInfo]) -> list[tuple[str, str, int, str, str, int]]:
    """Return what the lanes are, by their jobs: queue, lane, size, and of the head its id, state and attempts."""
    lanes: dict[tuple[str, str], list[JobInfo]] = {}
    for job in jobs:
        if job.lane is not None and (job.state != "dead" or job.holds):
            lanes.setdefault((job.queue, job.lane), []).append(job)
    heads = {key: min(found, key=lambda job: (not job.holds, job.place_at)) for key, found in lanes.items()}
    return sorted((*key, len(lanes[key]), head.id, head.state, head.attempt) for key, head in heads.items())


@pytest.mark.parametrize("seed", range(4))
def test_lanes_are_what_their_jobs_have_in_common(store: Store, inspect: Inspect, clock: Clock, seed: int) -> None:
    fill(store, clock, random.Random(seed))  # noqa: S311 - the same in every run
    expected = lanes_of(inspect.jobs(Filter(), 1000, None))

    for order in (*LANE_ORDERS, "-size", "-due"):
        found, after = list[LaneInfo](), None
        for _ in range(10):
            page = inspect.lanes(None, order, 3, after)
            found += page
            if (after := page.next) is None:
                break

        what = [(one.queue, one.lane, one.size, one.head, one.state, one.attempts) for one in found]
        assert sorted(what) == expected, order
        assert any(one.size > 1 for one in found)
        big = [one.lane for one in inspect.lanes("big", order, 10, None)]
        assert big == [one.lane for one in found if one.queue == "big"], order


@pytest.mark.parametrize(("order", "lanes"), [("size", ["c", "b", "a"]), ("-size", ["a", "b", "c"])])
def test_a_collectors_lanes_are_ordered_by_their_payloads(store: Store, inspect: Inspect, order: str, lanes: list[str]) -> None:
    for size, lane in enumerate("abc", start=1):
        payloads = [Job(lane_id("sync", lane), "app.sync", "sync", b"%d" % n, lane, gather=Gather()) for n in range(size)]
        store.push(payloads)
    store.exchange("w", [], [ClaimRequest("sync", 1)], 1)  # what runs counts, too

    found = inspect.lanes(None, order, 10, None)

    assert [one.lane for one in found] == lanes
    assert sorted(one.size for one in found) == [1, 2, 3]
    assert [one.size for one in inspect.lanes("sync", "name", 1, None, "b")] == [2]


def test_in_a_very_long_queue_a_lane_is_found_by_its_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laneway.store.redis.queries.MANY", 5)
    app = App(redisbench.emptied().url)
    app.store.push([Job(f"a{n}", "app.task", "mail", b"[[],{}]", "a") for n in range(4)])
    app.store.push([Job(f"b{n}", "app.task", "mail", b"[[],{}]", "b") for n in range(4)])
    app.store.exchange("w", [], [ClaimRequest("mail", 2)], 2)  # both have a holder, and the others are parked as they are met

    found = {lane: app.inspect.lane("mail", lane) for lane in "ab"}

    assert {lane: (one.head, one.size) for lane, one in found.items()} == {"a": ("a0", 4), "b": ("b0", 4)}
    with pytest.raises(UnknownLane):
        app.inspect.lane("mail", "c")
    app.close()
