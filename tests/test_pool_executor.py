"""What the standard library promises of an Executor, and how a pool, its threads and its process end."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future
from typing import assert_type

import pytest

from laneway.errors import ConfigError
from laneway.pool import LeastBusyFirst, PoolClosed, QueueFull, RoundRobin, Shared, WorkerPool
from laneway.pool.scheduler import rest
from workbench import DEADLINE, until, wait


@pytest.fixture(params=[Shared, LeastBusyFirst, RoundRobin])
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    with WorkerPool(3, dispatch=request.param()) as made:
        yield made


class Blocked:
    """A pool of one whose worker is kept busy until the block ends."""

    def __init__(self, capacity: int = 100) -> None:
        self.pool = WorkerPool(1, capacity=capacity)
        self.go = threading.Event()
        self.began = threading.Event()

    def __enter__(self) -> WorkerPool:
        self.pool.submit(self.hold)
        wait(self.began)
        return self.pool

    def hold(self) -> None:
        self.began.set()
        wait(self.go)

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self.pool.shutdown()


# -- submit ------------------------------------------------------------------------------------------------------


def test_a_pool_is_an_executor_and_its_futures_are_futures(pool: WorkerPool) -> None:
    future = assert_type(pool.submit(int, "12", base=8), Future[int])

    assert isinstance(pool, Executor)
    assert isinstance(pool.using(block=False), Executor)
    assert isinstance(future, Future)
    assert future.result(DEADLINE) == 10


def test_every_keyword_belongs_to_the_function(pool: WorkerPool) -> None:
    def echo(**kwargs: int) -> dict[str, int]:
        return kwargs

    names = ["self", "fn", "block", "timeout", "topic", "args", "kwargs", "job", "function"]
    given = {name: number for number, name in enumerate(names)}

    assert pool.submit(echo, **given).result(DEADLINE) == given
    assert pool.using(timeout=DEADLINE).submit(echo, **given).result(DEADLINE) == given


def test_an_error_comes_back_with_its_traceback(pool: WorkerPool) -> None:
    def fail() -> None:
        raise LookupError("nothing here")

    error = pool.submit(fail).exception(DEADLINE)

    assert isinstance(error, LookupError)
    assert error.__traceback__ is not None
    assert [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)] == ["run", "fail"]


def test_submitting_to_a_pool_that_was_shut_down_raises_runtime_error(pool: WorkerPool) -> None:
    pool.shutdown()
    with pytest.raises(RuntimeError):
        pool.submit(abs, 1)
    with pytest.raises(RuntimeError):
        pool.map(abs, [1])


def test_callbacks_run_with_the_future(pool: WorkerPool) -> None:
    heard: list[Future[int]] = []
    called = threading.Event()
    future = pool.submit(abs, -1)

    future.add_done_callback(heard.append)
    future.add_done_callback(lambda _: called.set())

    wait(called)
    assert heard == [future]


def test_wait_and_as_completed_work_with_it(pool: WorkerPool) -> None:
    futures = [pool.submit(abs, -number) for number in range(20)]

    assert sorted(future.result() for future in concurrent.futures.as_completed(futures, DEADLINE)) == list(range(20))
    done, rest = concurrent.futures.wait(futures, DEADLINE)
    assert (done, rest) == (set(futures), set())


def test_wait_returns_at_the_first_exception() -> None:
    with Blocked() as pool:
        other = WorkerPool(1)
        futures = {pool.submit(abs, 1), other.submit(int, "x")}
        done, rest = concurrent.futures.wait(futures, DEADLINE, return_when=concurrent.futures.FIRST_EXCEPTION)
        other.shutdown()

    assert len(done) == len(rest) == 1


# -- cancel ------------------------------------------------------------------------------------------------------


def test_a_waiting_job_can_be_cancelled_and_never_runs() -> None:
    ran: list[int] = []
    with Blocked() as pool:
        future = pool.submit(ran.append, 1)
        assert future.cancel()
        assert future.cancel()
        done, _ = concurrent.futures.wait([future], DEADLINE)  # while the worker is still busy
        assert done == {future}

    assert ran == []
    assert future.cancelled()
    with pytest.raises(CancelledError):
        future.result()


def test_a_running_job_cannot_be_cancelled(pool: WorkerPool) -> None:
    began, go = threading.Event(), threading.Event()

    def work() -> str:
        began.set()
        wait(go)
        return "done"

    future = pool.submit(work)
    wait(began)
    assert not future.cancel()
    go.set()
    assert future.result(DEADLINE) == "done"


def test_a_cancelled_job_leaves_its_place_to_another_at_once() -> None:
    with Blocked(capacity=1) as pool:
        for _ in range(5):
            future = pool.using(block=False).submit(abs, 1)
            with pytest.raises(QueueFull):
                pool.using(block=False).submit(abs, 1)
            assert future.cancel()
        assert pool.stats()["worker_0"].queued == 0


def test_a_cancelled_jobs_place_goes_to_who_waits_for_it() -> None:
    ran: list[str] = []
    with Blocked(capacity=1) as pool:
        first = pool.submit(ran.append, "first")
        producer = threading.Thread(target=pool.submit, args=(ran.append, "second"))
        producer.start()
        until(lambda: not first.cancelled() and first.cancel())
        producer.join(DEADLINE)
        assert not producer.is_alive()

    assert ran == ["second"]


def test_shutting_down_can_cancel_what_waits() -> None:
    blocked = Blocked()
    with blocked as pool:
        futures = [pool.submit(abs, number) for number in range(10)]
        pool.shutdown(wait=False, cancel_futures=True)
        assert all(future.cancelled() for future in futures)
        blocked.go.set()
        assert pool.wait(DEADLINE)

    assert pool.stats()["worker_0"].done == 1


def test_shutting_down_can_cancel_what_stands_outside() -> None:
    returned: list[Future[int]] = []
    with Blocked(capacity=0) as pool:
        producers = [threading.Thread(target=lambda: returned.append(pool.submit(abs, 1))) for _ in range(3)]
        for producer in producers:
            producer.start()
        until(lambda: len(pool._scheduler._rows[0].gate.outside) == 3)
        pool.shutdown(wait=False, cancel_futures=True)
        for producer in producers:
            producer.join(DEADLINE)

    assert [future.cancelled() for future in returned] == [True] * 3


def test_leaving_the_block_waits_for_all_jobs() -> None:
    with WorkerPool(2) as pool:
        futures = [pool.submit(time.sleep, 0.01) for _ in range(6)]
    assert all(future.done() for future in futures)


def test_shutting_down_without_waiting_lets_jobs_finish() -> None:
    go = threading.Event()
    pool = WorkerPool(1)
    future = pool.submit(go.wait, DEADLINE)

    pool.shutdown(wait=False)

    assert not future.done()
    go.set()
    assert future.result(DEADLINE) is True
    assert pool.wait(DEADLINE)


# -- map ---------------------------------------------------------------------------------------------------------


def test_map_gives_results_in_the_order_of_its_items(pool: WorkerPool) -> None:
    second_done = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            wait(second_done)
        elif number == 1:
            second_done.set()
        return number

    assert list(pool.map(work, range(20))) == list(range(20))


def test_map_takes_items_of_several_iterables_until_the_shortest_ends(pool: WorkerPool) -> None:
    assert list(pool.map(pow, [2, 3, 4], itertools.count(2))) == [4, 27, 256]
    assert list(pool.map(abs, [])) == []


def test_map_runs_everything_even_if_nobody_looks_at_the_results(pool: WorkerPool) -> None:
    ran: list[int] = []
    pool.map(ran.append, range(50))
    pool.shutdown()
    assert sorted(ran) == list(range(50))


def test_map_raises_the_error_of_an_item_in_its_place(pool: WorkerPool) -> None:
    results = pool.map(lambda number: 1 // number, [1, 0, 1])

    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_map_gives_up_waiting_for_a_result_in_time() -> None:
    with Blocked() as pool:
        results = pool.map(abs, [1, 2], timeout=0.02)
        with pytest.raises(TimeoutError):
            next(results)


def test_map_gives_up_waiting_for_room_in_time_and_takes_its_jobs_back() -> None:
    ran: list[int] = []
    with Blocked(capacity=2) as pool:
        with pytest.raises(TimeoutError):
            pool.map(ran.append, range(10), timeout=0.02)
        assert pool.stats()["worker_0"].queued == 0

    assert ran == []


def test_map_cancels_what_waits_when_its_results_are_dropped() -> None:
    ran: list[int] = []
    blocked = Blocked()
    with blocked as pool:
        results = pool.map(ran.append, [1, 2, 3], timeout=0)
        with pytest.raises(TimeoutError):
            next(results)
        assert pool.stats()["worker_0"].queued == 0

    assert ran == []


@pytest.mark.parametrize("buffersize", [1, 2, 7])
def test_map_with_a_buffer_takes_no_more_items_than_it_needs(pool: WorkerPool, buffersize: int) -> None:
    taken = itertools.count()
    results = pool.map(abs, taken, buffersize=buffersize)

    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert next(taken) == 5 + buffersize


@pytest.mark.parametrize("buffersize", [0, -1, 1.5])
def test_a_buffer_that_is_no_number_of_jobs_is_an_error(pool: WorkerPool, buffersize: int) -> None:
    with pytest.raises(ConfigError, match="buffersize"):
        pool.map(abs, [1], buffersize=buffersize)


# -- nothing is kept alive, nothing is left ----------------------------------------------------------------------


class Thing:
    """Something that can be referred to weakly."""

    def itself(self) -> Thing:
        return self

    def fail(self) -> None:
        raise ValueError


def gone(reference: Callable[[], object]) -> bool:
    return reference() is None


def test_an_idle_pool_keeps_neither_arguments_nor_results_alive() -> None:
    with WorkerPool(1) as pool:
        thing = Thing()
        reference = weakref.ref(thing)
        future = pool.submit(thing.itself)
        assert future.result(DEADLINE) is thing
        del thing, future
        until(lambda: gone(reference))


def test_a_future_keeps_no_arguments_alive() -> None:
    with WorkerPool(1) as pool:
        thing = Thing()
        reference = weakref.ref(thing)
        future = pool.submit(lambda _: 1, thing)
        assert future.result(DEADLINE) == 1
        del thing
        until(lambda: gone(reference))


def test_a_failed_job_is_gone_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        with WorkerPool(1) as pool:
            future = pool.submit(Thing().fail)
            assert isinstance(future.exception(DEADLINE), ValueError)
            reference = weakref.ref(future)
            del future
            until(lambda: gone(reference))
    finally:
        gc.enable()


def test_a_pool_that_is_forgotten_runs_its_jobs_and_its_threads_end() -> None:
    before = set(threading.enumerate())
    ran: list[int] = []
    go = threading.Event()
    pool = WorkerPool(3, capacity=10)
    for _ in range(3):
        pool.submit(go.wait, DEADLINE)
    for number in range(5):
        pool.submit(ran.append, number)
    way_in = pool.using(block=False)

    del pool
    way_in.submit(ran.append, 5)  # somebody still has a way in
    del way_in
    gc.collect()
    go.set()

    until(lambda: set(threading.enumerate()) <= before, "the end of the threads")
    assert sorted(ran) == list(range(6))


def test_a_pool_that_was_shut_down_has_no_threads() -> None:
    before = set(threading.enumerate())
    with WorkerPool(5) as pool:
        list(pool.map(abs, range(50)))
    assert set(threading.enumerate()) <= before


def test_threads_start_only_when_there_is_something_to_do() -> None:
    before = set(threading.enumerate())
    with WorkerPool(50) as pool:
        assert set(threading.enumerate()) <= before
        pool.submit(abs, 1).result()
        assert len(set(threading.enumerate()) - before) == 1


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_a_pool_that_is_closed_in_the_middle_of_a_submit_runs_what_came_before(number: int) -> None:
    """A signal's handler may do so, or the garbage collector, in a thread that holds the pool's lock."""
    before = set(threading.enumerate())

    class Closing(Shared):
        def choose(self, number_: int, loads: Sequence[int], topic: str | None) -> int:
            if number_ == number:
                closing.close()
            return super().choose(number_, loads, topic)

    closing = WorkerPool(1, dispatch=Closing(), capacity=1)
    go = threading.Event()
    futures: list[Future[bool]] = []

    def submit() -> None:
        with contextlib.suppress(PoolClosed):
            for _ in range(5):
                futures.append(closing.submit(go.wait, DEADLINE))  # noqa: PERF401 - one by one: others look at it

    submitting = threading.Thread(target=submit, daemon=True)
    submitting.start()
    until(lambda: len(futures) > min(number, 1))
    go.set()
    submitting.join(DEADLINE)

    assert closing.wait(DEADLINE)
    assert len(futures) > number
    assert all(future.result(DEADLINE) for future in futures)
    assert set(threading.enumerate()) <= before


class NoThreads:
    """Lets no more than a number of threads start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self.left = number
        self.start = threading.Thread.start
        monkeypatch.setattr(threading.Thread, "start", lambda thread: self.begin(thread))  # noqa: PLW0108 - a function, so that it gets the thread

    def begin(self, thread: threading.Thread) -> None:
        if not self.left:
            raise RuntimeError("can't start new thread")
        self.left -= 1
        self.start(thread)


def test_a_pool_that_gets_no_thread_says_so_and_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    system = NoThreads(monkeypatch, 0)
    with WorkerPool(2, capacity=0) as pool:
        for _ in range(5):
            with pytest.raises(RuntimeError, match="can't start"):
                pool.using(block=False).submit(abs, 1)
        system.left = 2
        assert pool.using(block=False).submit(abs, -1).result(DEADLINE) == 1

    assert sum(stats.done for stats in pool.stats().values()) == 1


def test_a_pool_that_gets_fewer_threads_than_it_wants_makes_do_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    NoThreads(monkeypatch, 1)
    with WorkerPool(3) as pool:
        assert list(pool.map(abs, range(30))) == list(range(30))

    assert sorted(stats.done for stats in pool.stats().values()) == [0, 0, 30]


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
def test_who_is_interrupted_while_waiting_for_room_leaves_no_job_behind(request: pytest.FixtureRequest) -> None:
    ran: list[int] = []
    struck = threading.Event()

    def strike(number: int, frame: object) -> None:
        if not struck.is_set():
            struck.set()
            raise KeyboardInterrupt

    # A shell that runs the tests in the background lets them ignore it.
    before = signal.signal(signal.SIGINT, strike)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with Blocked(capacity=0) as pool:

        def interrupt() -> None:
            until(lambda: len(pool._scheduler._rows[0].gate.outside) == 1)
            # A signal that comes in the moment before Python waits for a lock is noticed when it has the lock: so one more.
            os.kill(os.getpid(), signal.SIGINT)
            while not struck.wait(0.05):
                os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            pool.submit(ran.append, 1)
        thread.join()

    assert ran == []


def run(program: str) -> str:
    """Run a program to its end and return what it printed."""
    start = "import os, sys, threading, time\nfrom laneway.pool import *\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", start + program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_program_that_never_shuts_its_pool_down_still_ends_and_its_jobs_are_run() -> None:
    program = """
pool = WorkerPool(2, capacity=10)
idle = WorkerPool(2)
idle.submit(abs, 1).result()
for number in range(8):
    pool.submit(lambda number=number: (time.sleep(0.01), os.write(1, b"%d " % number)))
"""
    assert sorted(run(program).split()) == [str(number) for number in range(8)]


def test_a_job_that_submits_while_the_program_ends_is_told_that_the_pool_is_closed() -> None:
    program = """
pool = WorkerPool(1)
def work():
    try:
        while True:
            pool.submit(abs, 1)
            time.sleep(0.001)
    except RuntimeError as error:
        print(type(error).__name__)
pool.submit(work)
"""
    assert run(program) == "PoolClosed\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_an_empty_pool_that_works() -> None:
    program = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is what we are here for
go = threading.Event()
ran = []
pool = WorkerPool(2, RoundRobin(), capacity=3)
pool.submit(abs, 1).result()
for _ in range(2): pool.submit(go.wait)
waiting = [pool.submit(ran.append, "parent's") for _ in range(3)]
child = os.fork()
if not child:
    assert [tuple(map(stats.__getitem__, ("queued", "busy", "done"))) for stats in pool.stats().values()] == [(0, 0, 0)] * 2
    assert sorted(pool.map(abs, range(20))) == list(range(20))
    pool.shutdown()
    assert ran == []
    print("child", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
go.set()
pool.shutdown()
print(*ran)
"""
    assert run(program).splitlines() == ["child", "parent's parent's parent's"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_a_job_forks_runs_none_of_its_parents_jobs() -> None:
    program = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
pool = WorkerPool(1, capacity=3)
began, go = threading.Event(), threading.Event()
def work():
    began.set()
    go.wait()
    return os.fork()
forked = pool.submit(work)
began.wait()
pool.submit(os.write, 1, b"ran ")
go.set()
child = forked.result()
pool.shutdown()
assert child and os.waitpid(child, 0)[1] == 0
print("once", flush=True)
"""
    assert run(program) == "ran once\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_an_idle_pool_has_no_threads_while_its_program_forks_and_works_on_both_sides() -> None:
    program = """
pool, silent = WorkerPool(3, RoundRobin()), WorkerPool(2)
assert list(pool.map(abs, range(6))) == list(range(6))
read, write = os.pipe()
child = os.fork()  # under -W error Python 3.12 and later complain here about threads
if not child:
    assert list(pool.map(abs, range(6))) == list(range(6))
    os.write(write, b"child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert sum(stats.done for stats in pool.stats().values()) == 6, "the parent has forgotten what it did"
assert list(pool.map(abs, range(6))) == list(range(6))
assert sum(stats.done for stats in pool.stats().values()) == 12
pool.shutdown()
print(os.read(read, 9).decode(), seen)
"""
    counts = "import os, threading\nseen = []\nos.register_at_fork(before=lambda: seen.append(threading.active_count()))\n"
    done = subprocess.run(  # hooks run in reverse: this one comes after the pool's
        [sys.executable, "-W", "error", "-c", counts + "from laneway.pool import *\n" + program],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "child [1]\n", "")


def test_a_fork_does_not_wait_for_a_job_or_a_callback() -> None:
    go = threading.Event()
    with WorkerPool(2) as pool:
        working = pool.submit(go.wait, DEADLINE)
        calling = pool.submit(abs, 1)
        calling.add_done_callback(lambda _: go.wait(DEADLINE))
        began = time.monotonic()
        rest()
        took = time.monotonic() - began
        go.set()
        assert working.result(DEADLINE)
    assert took < DEADLINE
    assert pool.wait(DEADLINE)


def test_a_worker_loads_neither_futures_nor_an_event_loop_for_its_hand_over() -> None:
    wanted = "{'laneway.pool.thread_queue', 'concurrent.futures', 'asyncio'}"
    program = f"import sys, laneway.worker.executors; print(sorted({wanted} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "['laneway.pool.thread_queue']\n"


def test_the_front_door_does_not_load_the_pool() -> None:
    program = (
        "import sys, laneway; from laneway import App; print('laneway.pool' in sys.modules, 'concurrent.futures' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False False\n"
