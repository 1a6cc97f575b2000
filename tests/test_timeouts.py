"""Timeouts hold: what runs too long is ended, in time, and nothing else is."""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import random
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import often
from fleetharm import Yard, open_yard, tell
from laneway import App, JobHandle, Retry, Worker
from laneway.shield import Limit, TimeIsUp
from laneway.worker.duties.watchdog import Watchdog
from test_fleet_harm import TIMED_OUT, check_neighbours
from workbench import DEADLINE, SOON, Running, burst, until, url


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as made:
        yield made


# -- in a fleet --------------------------------------------------------------------------------------------------


def test_what_yields_is_ended_within_one_and_a_half_times_its_second(yard: Yard) -> None:
    fleet = yard.start(slots=10)
    workers = set(fleet.workers)
    calls: list[tuple[str, ...]] = [
        ("endless", "spin_on"),
        ("endless_async",),
        ("endless_isolated", "spin_on"),
        ("endless_isolated", "sleep_in_c"),
        ("endless_isolated", "hold_interpreter"),
        ("endless_isolated", "swallow_everything"),
        ("endless_async_isolated",),
        ("endless_async_isolated", "sleep_in_c"),
    ]
    enqueued = time.monotonic()
    harmful = {call: yard.enqueue(*call) for call in calls}
    neighbours = [yard.enqueue("neighbour") for _ in range(40)]
    yard.until_done(neighbours)
    took: dict[tuple[str, ...], float] = {}
    too_early: list[tuple[str, ...]] = []

    for handle in harmful.values():
        yard.until_mark("endless", handle)

    def look() -> bool:
        for call, handle in harmful.items():
            if call not in took and handle.state() == "retrying":
                took[call] = time.monotonic() - yard.marks("endless", handle)[0].at
                if time.monotonic() - enqueued < 1.0:  # a busy machine may let it begin, and leave its mark much later
                    too_early.append(call)
        return len(took) == len(calls)

    until(look, "the end of all of them")

    for call, seconds in took.items():
        tell(f"{' '.join(call):45} ended after {seconds:.3f} s")
    assert too_early == []
    assert {call: seconds for call, seconds in took.items() if seconds >= SOON} == {}
    for handle in harmful.values():
        assert yard.job(handle).attempt == 1
        assert yard.error(handle) == (TIMED_OUT, "it ran longer than its timeout of 1 s")
    assert check_neighbours(yard, neighbours, set()) == 0
    assert set(fleet.workers) == workers, "a worker was replaced for something that yields"
    until(lambda: not fleet.titled("isolated"), "the end of the isolated processes")


NOT_YIELDING = {
    ("endless", "sleep_in_c"): "sleep_in_c",
    ("endless", "hold_interpreter"): "hold_interpreter",
    ("endless", "swallow_everything"): "swallow_everything",
    ("blocks_the_loop",): "sleep_in_c",
    ("swallows_cancellation",): "",  # a coroutine that waits is on no thread's stack
}


def test_what_does_not_yield_is_noticed_logged_with_its_stack_and_its_worker_replaced(yard: Yard) -> None:
    """A fleet for each, with a queue of its own: all wait for their timeouts at the same time."""
    options = ("--timeout-grace", "0.5", "--shutdown-timeout", "1", "-q")
    fleets = {call: yard.start(*options, call[-1], ready=False) for call in NOT_YIELDING}
    before = {pid for fleet in fleets.values() for pid in fleet.until_workers(2)}

    scenes = {call: yard.surround(*call, queue=call[-1]) for call in NOT_YIELDING}
    began = {call: yard.until_mark("endless", harmful) for call, (harmful, _) in scenes.items()}
    took: dict[tuple[str, ...], float] = {}

    def look() -> bool:
        for call, (harmful, _) in scenes.items():
            if call not in took and harmful.state() == "retrying":
                took[call] = time.monotonic() - began[call].at
        return len(took) == len(scenes)

    until(look, "the end of all of them")
    neighbours = [one for _, found in scenes.values() for one in found]
    yard.until_done(neighbours)

    dead = {mark.pid for mark in began.values()} & before
    assert check_neighbours(yard, neighbours, dead) <= 3 * len(scenes)
    runs = Counter(mark.job for mark in yard.marks("neighbour"))
    assert yard.app.store_inspect.totals().get("crashed", 0) == 0
    for call, (harmful, around) in scenes.items():
        tell(f"{' '.join(call):30} counted after {took[call]:.3f} s")
        fleet, pid = fleets[call], began[call].pid
        assert took[call] < SOON, call
        assert yard.job(harmful).attempt == 1, call
        kind, message = yard.error(harmful)
        assert kind == TIMED_OUT, call
        assert message.startswith("it ran longer than its timeout of 1 s"), call
        assert pid not in fleet.workers, call
        fleet.until_workers(2)
        fleet.until_said(r"a run goes on 0\.5 s after the timeout and cannot be ended alone")
        fleet.until_said(rf"\(pid {pid}\) are in ")
        assert NOT_YIELDING[call] in fleet.said, call
        assert sum(runs[one.id] > 1 for one in around) <= 3, call


def test_neighbours_of_a_run_that_does_not_yield_may_end_first(yard: Yard) -> None:
    fleet = yard.start("--timeout-grace", "0.3", processes=1, slots=2)
    neighbour = yard.enqueue("hold", "go")
    yard.until_mark("holding", neighbour)
    (old,) = fleet.workers

    harmful = yard.enqueue("endless", "sleep_in_c")
    fleet.until_said("cannot be ended alone")
    until(lambda: len(fleet.workers) == 2, "a new worker beside the old one")
    later = [yard.enqueue("neighbour") for _ in range(10)]
    yard.until_done(later)
    assert (harmful.state(), neighbour.state()) == ("running", "running")
    yard.gate("go").touch()

    yard.until_done([neighbour])
    yard.until_state(harmful, "retrying")
    assert old not in fleet.workers
    assert len(yard.marks("holding", neighbour)) == 1
    assert old not in {mark.pid for mark in yard.marks("neighbour")}


def test_an_event_loop_that_stands_still_without_a_timeout_is_told_of_and_goes_on(yard: Yard) -> None:
    path = yard.write(
        "import time\n"
        "from pathlib import Path\n"
        "def stand_still() -> None:\n"
        f"    while not Path({str(yard.gate('go'))!r}).exists(): time.sleep(0.01)\n"
        "@app.task\n"
        "async def block() -> None:\n"
        "    stand_still()\n"
    )
    fleet = yard.start("--timeout-grace", "0.2", app_name=str(path), processes=1)
    (worker,) = fleet.workers

    harmful = yard.enqueue("app.block")
    fleet.until_said("its event loop is blocked")
    fleet.until_said("in stand_still")
    yard.gate("go").touch()

    yard.until_done([harmful])
    assert fleet.workers == [worker]


# -- the exception strikes anywhere ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["file", "memory"])
def test_a_timeout_inside_the_store_leaves_the_store_whole(tmp_path: Path, place: str) -> None:
    """Many threads enqueue in a tight loop until their time is up, again and again."""
    app = App(url(tmp_path) if place == "file" else "sqlite://")
    accepted = Counter[str]()  # by job: what enqueue has returned for

    @app.task(queue="later")
    def child() -> None: ...

    @app.task(timeout=0.004, retry=Retry(times=0))
    def produce(name: str) -> None:
        while True:
            child.enqueue()
            accepted[name] += 1

    rounds = 200
    produce.enqueue_many((str(n),) for n in range(rounds))
    burst(app, 8, queues=["default"])

    totals = app.store_inspect.totals()
    pushed = totals["enqueued"] - rounds
    sure = sum(accepted.values())
    tell(f"{place}: {rounds} timeouts among {pushed} enqueues")
    assert app.inspect.counts()["dead"] == rounds
    assert {job.errors[-1].kind for job in app.inspect.jobs("dead", limit=1000)} == {TIMED_OUT}
    assert sure <= pushed <= sure + rounds  # each may have been struck after its commit
    assert app.inspect.counts()["ready"] == pushed
    child.enqueue()  # no lock is held
    burst(app, 4, queues=["later"])
    assert app.inspect.counts()["ready"] == 0
    assert app.store_inspect.totals()["processed"] == pushed + 1
    app.close()
    if place == "file":
        with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


class Unraisable:
    """Its destructor ends only by an exception, which Python then ignores."""

    def __del__(self) -> None:
        spin(math.inf)


def collect_slowly(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        spin(math.inf)


@pytest.mark.parametrize("place", ["destructor", "garbage collector"])
def test_a_timeout_that_python_ignores_strikes_again(tmp_path: Path, place: str) -> None:
    app = App(url(tmp_path))

    @app.task(timeout=0.05, retry=Retry(times=0))
    def endless() -> None:
        if place == "destructor":
            Unraisable()
        else:
            gc.callbacks.append(collect_slowly)
            try:
                gc.collect()
            finally:
                gc.callbacks.remove(collect_slowly)
        spin(math.inf)

    endless.enqueue_many(() for _ in range(5))
    burst(app, 1)

    assert [job.errors[-1].kind for job in app.inspect.jobs("dead")] == [TIMED_OUT] * 5
    app.close()


@pytest.mark.parametrize("call", ["enqueue", "inspect"])
def test_a_run_that_is_always_inside_the_store_is_ended_in_time(tmp_path: Path, call: str) -> None:
    app = App(url(tmp_path))
    took: list[float] = []

    @app.task(queue="later")
    def child() -> None: ...

    @app.task(timeout=0.1, retry=Retry(times=0))
    def look(name: str) -> None:
        since = time.monotonic()
        try:
            while True:
                child.enqueue() if call == "enqueue" else app.inspect.counts()
        finally:
            took.append(time.monotonic() - since)

    look.enqueue_many((str(n),) for n in range(16))
    burst(app, 4, queues=["default"])

    tell(f"{call}: a timeout of 0.1 s, ended after at most {max(took):.3f} s")
    assert max(took) < SOON
    assert {job.errors[-1].kind for job in app.inspect.jobs("dead", limit=1000)} == {TIMED_OUT}
    app.inspect.counts()  # no lock is held
    app.close()


def test_a_timeout_inside_the_log_does_not_lock_it(tmp_path: Path) -> None:
    """The log is shared with the worker: one that is locked for ever stops everybody."""
    app = App(url(tmp_path))
    log = logging.getLogger("harm")
    log.propagate = False
    rounds = 150

    @app.task(timeout=0.004, retry=Retry(times=0))
    def talk(name: str) -> None:
        while True:
            log.error("%s talks", name)

    talk.enqueue_many((str(n),) for n in range(rounds))
    with (tmp_path / "log").open("w") as out:
        handler = logging.StreamHandler(out)
        log.addHandler(handler)
        try:
            running = Running(Worker(app, 8), burst=True)
            end = time.monotonic() + DEADLINE
            while app.inspect.counts()["dead"] < rounds and time.monotonic() < end:
                time.sleep(0.05)
            lock = handler.lock
            assert lock is not None
            assert lock.acquire(timeout=DEADLINE), "the log is locked for ever"
            lock.release()
            running.join()
        finally:
            log.removeHandler(handler)
    assert app.inspect.counts()["dead"] == rounds
    app.close()


KNOTS = """
import gc, random, threading
from laneway import shield

class Knot: ...

def tie() -> None:
    knot = Knot()
    knot.me, knot.local = knot, threading.local()
    knot.local.value = 1

chance = random.Random(1)
for _ in range(3000):
    gc.set_threshold(chance.randrange(2, 12))
    for _ in range(chance.randrange(3)):
        tie()
    limit = shield.Limit()
    limit.down()
    try:
        limit.strike()
        while True:
            len("")
    except shield.TimeIsUp:
        limit.lift()
"""


def test_a_strike_amid_a_garbage_collection_does_not_stop_the_interpreter() -> None:
    """Garbage that is collected while Python looks at all threads may wait for a lock that Python holds itself: gh-106883."""
    subprocess.run([sys.executable, "-c", KNOTS], check=True, timeout=DEADLINE)


def spin(end: float) -> None:
    """Be busy. In a function of its own: in Python 3.13.0 an exception at a loop's turn passes by a `try` of that function."""
    while time.perf_counter() < end:
        pass


def run_limited(watchdog: Watchdog, chance: random.Random) -> str:
    """Compute for about as long as a limit allows, as the worker runs a job."""
    limit = Limit()
    try:
        try:
            watchdog.begin(limit, chance.uniform(0, 0.000_4))
            end = time.perf_counter() + chance.uniform(0, 0.002)
            spin(end)
        finally:
            watchdog.end(limit)
    except TimeIsUp:
        watchdog.end(limit)
        return "struck"
    return "in time"


@contextlib.contextmanager
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.000_05)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.soak
def test_the_exception_never_leaks_into_what_the_thread_does_next() -> None:
    """Limits that end at about the same moment as what they limit, many hundred times in several threads."""
    times = often(300, 5_000)
    watchdog = Watchdog()
    ends = Counter[str]()
    leaked: list[BaseException] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - no secret
        try:
            for _ in range(times):
                ends[run_limited(watchdog, chance)] += 1
                for _ in range(20):
                    len(str(seed))  # where a late one would strike
        except BaseException as error:  # noqa: BLE001 - what must not happen
            leaked.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
    watchdog.stop(1.0)

    tell(f"limits: {dict(ends)}")
    assert leaked == []
    assert not any(thread.is_alive() for thread in threads)
    assert min(ends["struck"], ends["in time"]) > times // 5, "the test does not test what it says"


@pytest.mark.soak
def test_jobs_after_one_that_timed_out_are_not_struck(tmp_path: Path) -> None:
    """Jobs that end at about their timeout, and the jobs that run after them on those threads."""
    app = App(url(tmp_path))
    innocent = Counter[str]()

    @app.task(timeout=0.001, retry=Retry(times=0))
    def close_call(micros: int) -> None:
        end = time.perf_counter() + micros / 1_000_000
        while time.perf_counter() < end:
            pass

    @app.task(retry=Retry(times=0))
    def bystander(name: str) -> None:
        for _ in range(50):
            str(name)
        innocent[name] += 1

    number = often(400, 6_000)
    chance = random.Random(7)  # noqa: S311 - no secret
    calls: list[Any] = []
    for n in range(number):
        calls += [close_call.bind(chance.randrange(300, 2500)), bystander.bind(str(n))]
    app.enqueue_many(calls)
    burst(app, 4)

    dead = app.inspect.jobs("dead", limit=10_000)
    tell(f"close calls: {len(dead)} of {number} timed out")
    assert {job.errors[-1].kind for job in dead} == {TIMED_OUT}
    assert {job.task.rpartition(".")[2] for job in dead} == {"close_call"}
    assert len(innocent) == number
    assert set(innocent.values()) == {1}
    assert app.store_inspect.totals()["processed"] == 2 * number - len(dead)
    app.close()


def test_the_error_of_a_timeout_shows_where_it_struck(tmp_path: Path) -> None:
    app = App(url(tmp_path))

    @app.task(timeout=0.05, retry=Retry(times=0))
    def work() -> None:
        def dig_deep() -> None:
            while True:
                pass

        dig_deep()

    handle: JobHandle[None] = work.enqueue()
    burst(app)

    found = app.inspect.job(handle.id)
    assert found is not None
    assert "in dig_deep" in found.errors[-1].traceback
    app.close()


def test_a_timeout_is_no_exception_that_code_catches_by_habit_and_finally_runs(tmp_path: Path) -> None:
    app = App(url(tmp_path))
    seen: list[str] = []

    @app.task(timeout=0.05, retry=Retry(times=0))
    def work() -> None:
        try:
            while True:
                with contextlib.suppress(Exception):
                    while True:
                        pass
        finally:
            seen.append("cleaned up")

    work.enqueue()
    burst(app)

    assert seen == ["cleaned up"]
    assert app.inspect.counts()["dead"] == 1
    app.close()


def test_a_job_without_a_timeout_costs_no_watchdog(tmp_path: Path) -> None:
    app = App(url(tmp_path))
    before = set(threading.enumerate())
    names: list[str] = []

    @app.task
    def work() -> None:
        names.extend(thread.name for thread in threading.enumerate() if thread not in before)

    work.enqueue()
    running = Running(Worker(app, 1), burst=True)
    running.join()

    assert names
    assert "laneway-watchdog" not in names
    app.close()


def test_a_program_can_be_traced_after_a_run_was_ended() -> None:
    """Debuggers and coverage trace. Python 3.11 never got past the first line of a traced function."""
    code = """
        import sys, threading
        from laneway import shield

        def run():
            limit = shield.Limit()
            try:
                limit.down()
                limit.strike()
                for _ in range(10):
                    str(limit)
            except shield.TimeIsUp:
                print("ended")
            limit.lift()

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        seen = []
        sys.settrace(lambda frame, event, _: seen.append(event))
        (lambda: None)()
        sys.settrace(None)
        print(seen)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "ended\n['call']\n"
