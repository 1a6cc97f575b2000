"""A program that threads, forks and signals tear at while it enqueues; and a worker for its jobs. Run by test_storm.py.

Arguments: `enqueue` or `work`, the store's URL, a file for evidence, how many seconds, a seed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from types import FrameType

from laneway import App, Worker
from laneway.errors import StoreUnavailable

warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads is what this program is about

_, ROLE, URL, EVIDENCE, SECONDS, SEED = sys.argv
END = time.time() + float(SECONDS)
LEAST = 100  # moves, however slow the machine is
raging = False  # whoever is interrupted now notices it
moves = 0

app = App(URL, enqueue_timeout=30)
evidence = os.open(EVIDENCE, os.O_WRONLY | os.O_APPEND)
chance = random.Random(SEED)  # noqa: S311 - a storm is no secret


class Interrupt(BaseException):
    """What the handler raises."""


def tell(what: str, text: object) -> None:
    os.write(evidence, f"{what} {text}\n".encode())
    if what == "error":
        faulthandler.dump_traceback()  # what the other threads do just then


@app.task
def work() -> None:
    from laneway import current_job  # noqa: PLC0415 - only a worker needs it

    tell("done", current_job().id)


def enqueue() -> None:
    tell("accepted", work.enqueue().id)


def look() -> None:
    app.inspect.counts()


def strike(_: int, __: FrameType | None) -> None:
    if not raging:
        return
    if chance.random() < 0.5:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Interrupt
    signal.setitimer(signal.ITIMER_REAL, 10 ** chance.uniform(-4, -2.3))
    try:
        enqueue()
    except StoreUnavailable as error:
        # It has interrupted its own thread in the middle of a write, or handlers have interrupted each other.
        if "this very thread" not in str(error) and "this thread itself" not in str(error):
            raise
        tell("nested", "")


def watch(seconds: float) -> None:
    """Tell where this process hangs, should it."""

    def look_after() -> None:
        time.sleep(seconds)
        tell("error", f"process {os.getpid()} hangs")
        faulthandler.dump_traceback()
        os._exit(3)

    threading.Thread(target=look_after, daemon=True).start()


def in_child() -> None:
    if os.fork():
        return
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        watch(60)
        for _ in range(chance.randrange(5)):
            enqueue()
        code = 0
    except StoreUnavailable as error:
        # The handler interrupted what we do before a fork: then a child must be refused.
        tell("refused" if "forked" in str(error) else "error", error)
        code = 0
    except BaseException as error:  # noqa: BLE001 - a child must tell and end
        tell("error", f"in a child: {type(error).__name__}: {error}")
    finally:
        os._exit(code)


def hand_on() -> None:
    """End, and go on in a child, as a daemon does that forks twice."""
    if os.fork():
        os._exit(0)
    start_threads()


def start_threads() -> None:
    watch(END - time.time() + 60)
    for _ in range(3):
        threading.Thread(target=beside, daemon=True).start()


def beside() -> None:
    try:
        while time.time() < END:
            enqueue()
            look()
    except BaseException as error:  # noqa: BLE001 - a thread must tell
        tell("refused" if "forked" in str(error) else "error", f"in a thread: {type(error).__name__}: {error}")


def storm() -> None:
    enqueue()  # imports what it needs: an import that is interrupted is Python's trouble
    look()
    global END, raging  # noqa: PLW0603 - from now, however long it took to start
    END = time.time() + float(SECONDS)
    signal.signal(signal.SIGALRM, strike)
    start_threads()
    while goes_on():
        with contextlib.suppress(Interrupt):  # one more, while the first is told of
            try:
                raging = True
                move()
            except Interrupt:
                tell("interrupted", "")
            finally:
                raging = False
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    last = threading.Thread(target=enqueue)
    last.start()
    last.join(60)
    enqueue()
    tell("ended", os.getpid())


MOVES: list[Callable[[], None]] = [enqueue] * 20 + [look] * 5 + [in_child] * 4 + [hand_on]


def goes_on() -> bool:
    return time.time() < END or moves < LEAST


def move() -> None:
    global moves  # noqa: PLW0603 - a child goes on counting
    try:
        while goes_on():
            moves += 1
            signal.setitimer(signal.ITIMER_REAL, 10 ** chance.uniform(-5, -2.3))
            chance.choice(MOVES)()
            reap()
    except StoreUnavailable as error:
        end_if_refused(error)
        tell("error", error)


def end_if_refused(error: BaseException) -> None:
    """End if this process is a child that goes on, and must not: the handler interrupted what is done before a fork."""
    if isinstance(error, StoreUnavailable) and "forked" in str(error):
        tell("refused", error)
        tell("ended", os.getpid())
        os._exit(0)


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    if ROLE == "work":
        Worker(app, slots=2).run()
    else:
        try:
            storm()
        except BaseException as error:  # noqa: BLE001 - the process that ends here may be nobody's child
            end_if_refused(error)  # it was forked at the very end
            tell("error", f"in the main thread: {traceback.format_exc()!r}")
        os._exit(0)
