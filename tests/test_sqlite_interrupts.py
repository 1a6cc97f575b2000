"""An exception at any line of the SQLite store, as a signal's handler raises it, leaves the store usable."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest

import laneway
from laneway import App
from laneway.core.job import Job
from laneway.core.outcome import Done
from laneway.errors import StoreBusy
from laneway.ids import new_id
from laneway.store.contract import ClaimRequest, WorkerInfo
from laneway.store.sqlite import SQLiteInspect, SQLiteStore
from settling import settled_alike
from workbench import SOON

#: What is interrupted between opening a file and keeping it is closed by the interpreter.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

OURS = str(Path(laneway.__file__).parent)
WANT = [ClaimRequest("default", 5)]


class Interrupt(BaseException):
    """What a signal's handler raises."""


class Tracer:
    """Raises at one line of ours, counted from the beginning; without a number it only counts."""

    def __init__(self, at: int = -1) -> None:
        self.at = at
        self.lines = 0
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise Interrupt
        return self


def lines_of(work: Callable[[], object], at: int = -1) -> Tracer:
    """Do something, interrupted at a line."""
    tracer, before = Tracer(at), sys.gettrace()
    sys.settrace(tracer)
    try:
        with contextlib.suppress(Interrupt):
            work()
    finally:
        sys.settrace(before)
    return tracer


def job() -> Job:
    return Job(id=new_id(), task="t", queue="default", body=b"[[],{}]")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "jobs.db", timeout=1.0, enqueue_timeout=1.0)
    made.push([job()])
    yield made
    made.close()


def push(store: SQLiteStore) -> object:
    return store.push([job()])


def exchange(store: SQLiteStore) -> object:
    claims = store.exchange("w", [], WANT, 5).claims
    return store.exchange("w", [settled_alike(claim, Done()) for claim in claims], WANT, 1)


def open_and_push(store: SQLiteStore) -> object:
    store.close()
    return store.push([job()])


def give_back(store: SQLiteStore) -> object:
    return store.give_back("w")


def beat(store: SQLiteStore) -> object:
    return store.beat([WorkerInfo("w")])


def wait(store: SQLiteStore) -> object:
    store.bell.ring()
    return store.wait(0) or store.wait(0)


def look(store: SQLiteStore) -> object:
    return SQLiteInspect(store).counts()


VERBS = (push, exchange, open_and_push, give_back, beat, wait, look)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_a_store_stays_usable_whatever_line_is_interrupted(
    store: SQLiteStore, tmp_path: Path, verb: Callable[..., object]
) -> None:
    verb(store)
    lines = lines_of(lambda: verb(store)).lines + 5
    assert lines > 20
    other = SQLiteStore(tmp_path / "jobs.db", timeout=1.0)  # as another process: with connections and lock files of its own
    with ThreadPoolExecutor(1) as pool:
        for at in range(1, lines):
            tracer = lines_of(lambda: verb(store), at)
            try:
                # A thread of the same program that comes first, in every second turn.
                if at % 2:
                    pool.submit(use, store).result()
                use(store)
                pool.submit(use, store).result()
                use(other)
            except StoreBusy as error:
                pytest.fail(f"interrupted at {tracer.where}: {error}")
    other.close()


def use(store: SQLiteStore) -> None:
    """Do all that a program does."""
    assert store.push([job()]) == [None]
    claims = store.exchange("x", [], WANT, 5).claims
    assert claims
    assert store.exchange("x", [settled_alike(claim, Done()) for claim in claims], [], 0).refused == []
    store.wait(0)
    SQLiteInspect(store).counts()


def test_a_thread_that_is_interrupted_while_it_stands_in_line_holds_up_nobody(store: SQLiteStore) -> None:
    lines = 60
    for at in range(1, lines):
        inside, over = threading.Event(), threading.Event()

        def hold(inside: threading.Event = inside, over: threading.Event = over) -> None:
            with store.turn():
                inside.set()
                over.wait(20)

        holder = threading.Thread(target=hold)
        holder.start()
        inside.wait(20)
        timer = threading.Timer(0.002, over.set)  # most lines of waiting come before
        timer.start()
        lines_of(lambda: push(store), at)
        over.set()
        holder.join(20)
        timer.join()
        assert store.push([job()]) == [None]
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(store.push, [job()]).result(20) == [None]


def test_a_signal_while_waiting_in_line_leaves_no_dead_waiter(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "jobs.db", timeout=20, enqueue_timeout=20)
    inside, over = threading.Event(), threading.Event()

    def hold() -> None:
        with store.turn():
            inside.set()
            over.wait(20)

    def strike(_: int, __: FrameType | None) -> None:
        raise Interrupt

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(20)
    before = signal.signal(signal.SIGALRM, strike)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupt):
            store.push([job()])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    over.set()
    holder.join(20)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(store.push, [job()]).result(20) == [None]
    assert store.push([job()]) == [None]
    store.close()


def test_an_enqueue_in_a_signal_handler_that_interrupts_a_write_fails_at_once(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}", enqueue_timeout=2 * SOON)
    app.enqueue("first")
    refused: list[tuple[str, float]] = []

    def handler(_: int, __: FrameType | None) -> None:
        began = time.monotonic()
        try:
            app.enqueue("handler")
        except StoreBusy as error:
            refused.append((str(error), time.monotonic() - began))

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with cast("SQLiteStore", app.store).turn():
            signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)

    ((why, took),) = refused
    assert "signal handler" in why
    assert took < SOON  # it does not wait for the interrupted write, which cannot end meanwhile
    assert app.inspect.counts()["ready"] == 2
    app.close()


def test_a_thread_that_ended_with_the_lock_does_not_keep_it(store: SQLiteStore) -> None:
    def take_and_end() -> None:
        store.turn().__enter__()

    thread = threading.Thread(target=take_and_end)
    thread.start()
    thread.join(20)

    assert store.push([job()]) == [None]
