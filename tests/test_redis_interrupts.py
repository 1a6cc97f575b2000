"""Interrupts on Redis: what a signal handler raises, or enqueues itself, at any line of ours leaves the store usable.

A tracer stands in for the signal: it acts at a given line of the store's code, when that line is reached for the first, second or
third time, and just before a function returns. Every such point of every call pattern is tried once.
"""

from __future__ import annotations

import os
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
import redisbench
from conftest import SOAK
from laneway.core.job import Claim, Gather, Job, UniformJobs, lane_id
from laneway.core.outcome import Done, Settled
from laneway.errors import StoreUnavailable
from laneway.ids import new_id, new_ids
from laneway.store.contract import ClaimRequest, WorkerInfo
from settling import settled_alike

if redisbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(redisbench.why_not(), allow_module_level=True)

from laneway.store.redis import RedisStore

# A socket that redis-py is connecting when it is interrupted is closed by Python.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

HERE = str(Path(laneway.__file__).parent)
#: Code that a call may be interrupted in.
OURS = tuple(os.path.join(HERE, part) for part in ("store/redis/", "job.py"))
#: A call on a healthy server takes a millisecond, on a busy machine perhaps a second; one that takes so long hangs, seconds.
SOON = 5.0
BODY = b"[[1],{}]"
OFTEN = 10 if SOAK else 2
#: Patterns have much code in common: each point is tried in so many of them.
PATTERNS_EACH = 100 if SOAK else 2

Point = tuple[str, str, int, int]  #: the event, file and line, and how often it was there before
Pattern = Callable[[RedisStore], object]


#: In how many patterns each point was tried.
tried: Counter[Point] = Counter()


class Interrupt(BaseException):
    """What a signal handler raises."""


# -- call patterns -------------------------------------------------------------------------------------------------


def job(queue: str = "default", lane: str | None = None, **more: Any) -> Job:
    return Job(more.pop("id", None) or new_id(), "app.task", queue, BODY, lane, **more)


def alike(number: int) -> UniformJobs:
    ids = new_ids(number)
    return UniformJobs(Job(ids[0], "app.task", "default", BODY), ids, [BODY] * number)


def payload(lane: str) -> Job:
    return Job(lane_id("orders", lane), "orders", "orders", b"1", lane, gather=Gather())


def claim(store: RedisStore, queue: str = "default", most: int = 2) -> list[Claim]:
    return store.exchange("w", [], [ClaimRequest(queue, most)], most).claims


def settled(claims: list[Claim]) -> list[Settled]:
    return [settled_alike(one, Done(), 1, 2) for one in claims]


def push_one(store: RedisStore) -> None:
    assert store.push([job()]) == [None]


def push_many(store: RedisStore) -> None:
    assert store.begin_push(alike(3))() == [None] * 3


def push_all_kinds(store: RedisStore) -> None:
    store.push([job(), job("mail", id=f"mine-{new_id()}"), job(unique=new_id()), payload(new_id())])


def open_anew(store: RedisStore) -> None:
    store.close()
    assert store.push([job()]) == [None]


def settle_and_claim(store: RedisStore) -> None:
    store.push([job(), job()])
    first = claim(store)
    second = store.exchange("w", settled(first), [ClaimRequest("default", 2)], 2)
    assert second.refused == []
    store.exchange("w", settled(second.claims), [], 0)


def work_off_a_lane(store: RedisStore) -> None:
    lane = new_id()
    store.push([job("lanes", lane), job("lanes", lane)])
    first = claim(store, "lanes", 1)
    second = store.exchange("w", settled(first), [ClaimRequest("lanes", 1)], 1).claims
    store.exchange("w", settled(second), [], 0)


def begin_and_hear(store: RedisStore) -> None:
    store.push([job(), job()])
    first = store.begin("w", [], [ClaimRequest("default", 1)], 1)
    second = store.begin("w", [], [ClaimRequest("default", 1)], 1)
    store.begin("w", settled(first().claims + second().claims), [], 0)()


def collect(store: RedisStore) -> None:
    store.push([payload(new_id())])
    store.exchange("w", settled(claim(store, "orders")), [], 0)


def claim_and_give_back(store: RedisStore) -> None:
    store.push([job()])
    claim(store)
    store.give_back("w")


def beat(store: RedisStore) -> None:
    assert "w" in store.beat([WorkerInfo("w")])


def wait(store: RedisStore) -> None:
    store.wait(0.002)
    store.wake()
    assert store.wait(10)
    store.wait(0)


PATTERNS: list[Pattern] = [
    push_one, push_many, push_all_kinds, open_anew, settle_and_claim, work_off_a_lane, begin_and_hear, collect,
    claim_and_give_back, beat, wait,
]  # fmt: skip


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
    """Return the points of our code that a call comes to."""
    found: dict[Point, None] = {}
    for _ in range(3):  # not every call goes the same way
        traced(call, found.setdefault)
    return list(found)


def is_usable(store: RedisStore) -> None:
    """Push, claim and settle: everything works, soon, and each answer belongs to its question."""
    begun = time.monotonic()
    one = job("check")
    assert store.push([one]) == [None]
    claims = claim(store, "check", 100)
    assert [held.unit.id for held in claims] == [one.id]
    assert store.exchange("w", settled(claims), [], 0).refused == []
    assert time.monotonic() - begun < SOON


@pytest.fixture
def server() -> redisbench.Server:
    return redisbench.emptied()


@pytest.fixture
def store(server: redisbench.Server) -> Iterator[RedisStore]:
    made = RedisStore(server.url, connections=3, timeout=2 * SOON, enqueue_timeout=2 * SOON)
    yield made
    made.close()


@pytest.fixture
def other_thread() -> Iterator[Callable[[Callable[[], object]], object]]:
    """Do something in another thread."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda work: pool.submit(work).result(20)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_exception_at_any_line_leaves_the_store_usable(
    store: RedisStore, server: redisbench.Server, other_thread: Callable[[Callable[[], object]], object], pattern: Pattern
) -> None:
    pattern(store)
    found = sorted(points(lambda: pattern(store)), key=tried.__getitem__)
    where = found[: max(sum(tried[point] < PATTERNS_EACH for point in found), 25)]
    tried.update(where)
    raised = 0

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
            other_thread(lambda: is_usable(store))
        except BaseException as error:
            raise AssertionError(f"not usable after an exception at {point}") from error
        assert len(store.wire.pool) <= 3

    assert raised > 0.5 * len(where) > 10  # not every call comes to all of them
    clients = server.ask("CLIENT", "LIST").decode().splitlines()
    assert len([client for client in clients if "cmd=client" not in client]) <= 3 + 1  # the bell's own


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_enqueue_by_a_signal_handler_at_any_line_works_or_fails_at_once_and_harms_no_call(
    server: redisbench.Server, pattern: Pattern, connections: int
) -> None:
    if pattern is begin_and_hear and connections == 1:
        pytest.skip("needs two connections itself")
    # Longer than all handlers of a call take together on a busy machine: each shows by itself that it does not wait.
    store = RedisStore(server.url, connections=connections, timeout=20 * SOON, enqueue_timeout=20 * SOON)
    pattern(store)
    accepted: set[str] = set()
    refused: list[str] = []

    def enqueue(_: Point) -> None:
        begun = time.monotonic()
        one = job("handler")
        try:
            assert store.push([one]) == [None]
            accepted.add(one.id)
        except StoreUnavailable as error:
            refused.append(str(error))
        assert time.monotonic() - begun < SOON

    for _ in range(OFTEN):
        traced(lambda: pattern(store), enqueue)

    is_usable(store)
    assert all("in use by this thread itself" in text for text in refused)
    assert connections == 1 or not refused
    found: set[str] = set()
    while claims := claim(store, "handler", 1000):
        found |= {held.unit.id for held in claims}
    assert found == accepted != set()
    store.close()


# -- real signals --------------------------------------------------------------------------------------------------

HOSTILE = """
import signal, sys, threading, time
from laneway.core.job import Job
from laneway.ids import new_id
from laneway.core.outcome import Done, Settled
from laneway.store.contract import ClaimRequest
from laneway.store.redis import RedisStore

class Interrupt(BaseException): ...

store = RedisStore(sys.argv[1], connections=6)
ends = time.monotonic() + float(sys.argv[2])
raised, failed = 0, []
hostile = False

def handler(*_):
    if hostile:
        raise Interrupt

def work(worker, queue):
    one = Job(new_id(), "app.task", queue, b"[[1],{}]")
    assert store.push([one]) == [None]
    claims = store.exchange(worker, [], [ClaimRequest(queue, 5)], 5).claims
    assert claims and all(claim.queue == queue for claim in claims), "an answer of somebody else"
    store.exchange(worker, [Settled(claim, (Done(),), 1, 2) for claim in claims], [], 0)
    return claims

def busy(number):
    try:
        while time.monotonic() < ends:
            work(f"w{number}", f"q{number}")
    except BaseException as error:
        failed.append(error)

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
threads = [threading.Thread(target=busy, args=(number,)) for number in range(4)]
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
work("main", "mine")
assert not failed, failed
assert raised > 50, raised
print("raised", raised)
"""


def run(program: str, *arguments: str) -> str:
    """Run a program in a process of its own, which a bug may end; return what it printed."""
    command = [sys.executable, "-X", "faulthandler", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


def test_a_signal_handler_that_raises_all_the_time_harms_no_other_thread(server: redisbench.Server) -> None:
    assert run(HOSTILE, server.url, "20" if SOAK else "2").startswith("raised")


#: Long numbers take long to pack: most signals come just then.
PACKING = """
import signal, sys
from laneway.errors import StoreError
from laneway.core.job import Gather, Job, lane_id
from laneway.store.redis import RedisStore

class Interrupt(BaseException): ...

def handler(*_):
    if hostile:
        raise Interrupt

store = RedisStore(sys.argv[1])
jobs = [Job(lane_id("q", str(n)), "q", "q", b"1", str(n), gather=Gather(quiet=10**4000)) for n in range(300)]
hostile, raised = False, 0
signal.signal(signal.SIGALRM, handler)
for n in range(20):
    signal.setitimer(signal.ITIMER_REAL, 0.001 * (n % 20 + 1))
    try:
        hostile = True
        try:
            store.push(jobs)
        finally:
            hostile = False
    except (Interrupt, StoreError) as error:
        raised += isinstance(error, Interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0)
assert store.push([Job("a", "t", "other", b"[[],{}]")]) == [None]
print("raised", raised)
"""


def test_a_signal_handler_may_raise_while_hiredis_packs_a_command(server: redisbench.Server) -> None:
    """hiredis packs a number by calling Python, and does not expect that this fails: the process would end."""
    raised = int(run(PACKING, server.url).split()[1])
    assert raised > 5
