"""Interrupts on PostgreSQL: what a signal handler raises, or enqueues itself, at any line of ours leaves the store usable.

A tracer stands in for the signal, as in the tests on Redis: it acts at a given line of the store's code, and just before a
function returns. Usually some of these points are tried, and all of them with make soak.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import laneway
import postgresbench
from conftest import SOAK, often
from laneway.core.job import Gather, Job, lane_id
from laneway.core.outcome import Snoozed
from laneway.errors import StoreUnavailable
from laneway.store.contract import ClaimRequest, WorkerInfo
from settling import settled_alike

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

from laneway.store.postgres import PostgresInspect, PostgresStore
from postgresscene import claim, done, job

HERE = str(Path(laneway.__file__).parent)
#: Code that a call may be interrupted in.
OURS = tuple(os.path.join(HERE, part) for part in ("store/postgres/", "store/sql/store.py"))
#: A call on a healthy server takes milliseconds; one that takes so long hangs, seconds.
SOON = 5.0
#: How often a line counts that is reached again and again in one call.
OFTEN = often(2, 10)
#: So many points of each pattern are tried.
POINTS = often(8, 100_000)

Point = tuple[str, str, int, int]  #: the event, file and line, and how often it was there before
Pattern = Callable[[PostgresStore], object]

#: Points that were tried in a pattern before.
tried: Counter[Point] = Counter()


class Interrupt(BaseException):
    """What a signal handler raises."""


# -- call patterns -------------------------------------------------------------------------------------------------


def push_one(store: PostgresStore) -> None:
    assert store.push([job()]) == [None]


def push_all_kinds(store: PostgresStore) -> None:
    payload = Job(lane_id("orders", "l"), "orders", "orders", b"1", "l", gather=Gather())
    store.push([job(), job("mail", "lane"), payload])


def open_anew(store: PostgresStore) -> None:
    store.close()
    assert store.push([job()]) == [None]


def settle_and_claim(store: PostgresStore) -> None:
    store.push([job(lane="a"), job()])
    first = claim(store, most=2)
    second = store.exchange("w", done(first), [ClaimRequest("default", 2)], 2)
    assert second.refused == []
    store.exchange("w", done(second.claims), [], 0)


def snooze(store: PostgresStore) -> None:
    store.push([job(lane="a")])
    later = [settled_alike(one, Snoozed(0), 1, 2) for one in claim(store)]
    assert store.exchange("w", later, [], 0).refused == []


def give_back(store: PostgresStore) -> None:
    store.push([job()])
    claim(store)
    store.give_back("w")


def beat(store: PostgresStore) -> None:
    assert "w" in store.beat([WorkerInfo("w")])


def wait(store: PostgresStore) -> None:
    store.wait(0.002)
    store.wake()
    assert store.wait(10)
    store.wait(0)


def look(store: PostgresStore) -> None:
    assert PostgresInspect(store).counts()


PATTERNS: list[Pattern] = [push_one, push_all_kinds, open_anew, settle_and_claim, snooze, give_back, beat, wait, look]


# -- interrupting --------------------------------------------------------------------------------------------------


def traced(call: Callable[[], object], act: Callable[[Point], None]) -> None:
    """Call something, and act at each point of our code that it comes to."""
    seen: Counter[tuple[str, str, int]] = Counter()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(OURS):
            return None
        # A generator that is thrown away returns as well, and what is raised then is lost.
        if event == "line" or (event == "return" and frame.f_code.co_name != "<genexpr>"):
            here = (event, file, frame.f_lineno)
            seen[here] += 1
            if seen[here] <= OFTEN:
                act((*here, seen[here]))
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)


def points(call: Callable[[], object]) -> list[Point]:
    """Return some of the points of our code that a call comes to, new ones first."""
    found: dict[Point, None] = {}
    for _ in range(3):  # not every call goes the same way
        traced(call, found.setdefault)
    shuffled = random.Random(7).sample(list(found), len(found))  # noqa: S311 - no secret
    chosen = sorted(shuffled, key=tried.__getitem__)[:POINTS]
    tried.update(chosen)
    return chosen


def is_usable(store: PostgresStore) -> None:
    """Push, claim and settle: everything works, soon, and each answer belongs to its question."""
    begun = time.monotonic()
    one = job("check", "lane")
    assert store.push([one]) == [None]
    claims = claim(store, "check", 100)
    assert [held.unit.id for held in claims] == [one.id]
    assert store.exchange("w", done(claims), [], 0).refused == []
    assert time.monotonic() - begun < SOON


@pytest.fixture(scope="module")
def server() -> postgresbench.Server:
    return postgresbench.emptied()


@pytest.fixture
def store(server: postgresbench.Server) -> Iterator[PostgresStore]:
    made = PostgresStore(server.url, connections=3, timeout=2 * SOON, enqueue_timeout=2 * SOON)
    yield made
    made.close()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_exception_at_any_line_leaves_the_store_usable(
    store: PostgresStore, server: postgresbench.Server, pattern: Pattern
) -> None:
    pattern(store)
    where = points(lambda: pattern(store))
    raised = 0
    with ThreadPoolExecutor(1) as other_thread:
        for point in where:

            def interrupt(here: Point, point: Point = point) -> None:
                if here == point:
                    raise Interrupt(point)

            try:
                traced(lambda: pattern(store), interrupt)
            except Interrupt:
                raised += 1
            try:
                is_usable(store)
                other_thread.submit(is_usable, store).result(4 * SOON)
            except BaseException as error:
                raise AssertionError(f"not usable after an exception at {point}") from error
            assert len(store.wire.pool) <= 3
    assert raised > 0.4 * len(where) > 3  # not every call comes to all of them
    left = server.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'laneway' AND state LIKE 'idle in%'")
    assert left == [(0,)], "a transaction was left open"


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_enqueue_by_a_signal_handler_at_any_line_works_or_fails_at_once_and_harms_no_call(
    server: postgresbench.Server, pattern: Pattern, connections: int
) -> None:
    store = PostgresStore(server.url, connections=connections, timeout=4 * SOON, enqueue_timeout=4 * SOON)
    pattern(store)
    accepted: set[str] = set()
    refused: list[str] = []
    chance = random.Random(7)  # noqa: S311 - no secret

    def enqueue(_: Point) -> None:
        if chance.random() > often(1, 5) / 5:
            return
        begun = time.monotonic()
        one = job("handler")
        try:
            assert store.push([one]) == [None]
            accepted.add(one.id)
        except StoreUnavailable as error:
            refused.append(str(error))
        assert time.monotonic() - begun < SOON

    traced(lambda: pattern(store), enqueue)

    is_usable(store)
    assert all("in use by this thread itself" in text for text in refused)
    assert connections == 1 or not refused
    found: set[str] = set()
    while claims := claim(store, "handler", 1000):
        found |= {held.unit.id for held in claims}
        store.exchange("w", done(claims), [], 0)
    assert found == accepted != set()
    store.close()


# -- real signals --------------------------------------------------------------------------------------------------

HOSTILE = """
import signal, sys, threading, time
from laneway.core.job import Job
from laneway.ids import new_id
from laneway.core.outcome import Done, Settled
from laneway.store.contract import ClaimRequest
from laneway.store.postgres import PostgresStore

class Interrupt(BaseException): ...

store = PostgresStore(sys.argv[1], connections=6, timeout=20, enqueue_timeout=20)
ends = time.monotonic() + float(sys.argv[2])
raised, failed = 0, []
hostile = False

def handler(*_):
    if hostile:
        raise Interrupt

def work(worker, queue):
    one = Job(new_id(), "app.task", queue, b"[[1],{}]", "lane")
    assert store.push([one]) == [None]
    claims = store.exchange(worker, [], [ClaimRequest(queue, 5)], 5).claims
    assert all(claim.queue == queue for claim in claims), "an answer of somebody else"
    assert claims or worker == "main"  # an interrupted claim may hold the lane
    store.exchange(worker, [Settled(claim, (Done(),), 1, 2) for claim in claims], [], 0)
    return claims

def busy(number):
    try:
        while time.monotonic() < ends:
            work(f"w{number}", f"q{number}")
    except BaseException as error:
        failed.append(error)

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
threads = [threading.Thread(target=busy, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
while time.monotonic() < ends:
    try:
        hostile = True
        try:
            work("main", "mine")
        finally:
            hostile = False
    except Interrupt:
        raised += 1
signal.setitimer(signal.ITIMER_REAL, 0)
for thread in threads:
    thread.join()
store.give_back("main")
assert work("main", "mine")
assert not failed, failed
assert raised > 10, raised
print("raised", raised)
"""


def test_a_signal_handler_that_raises_all_the_time_harms_no_other_thread(server: postgresbench.Server) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", HOSTILE, server.url, "20" if SOAK else "1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-2000:])
    assert ended.stdout.startswith("raised")
