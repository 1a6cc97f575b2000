"""The worker: runs jobs in a program's own process."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from laneway.core.job import check_queue
from laneway.errors import ConfigError
from laneway.worker.balance import Policy, choose
from laneway.worker.duties.link import FleetLink
from laneway.worker.event_loop import check_loop
from laneway.worker.session import Session

if TYPE_CHECKING:
    from laneway.desk.app import App

__all__ = ["Worker"]

#: How often computing threads release the interpreter lock, seconds; at Python's own 5 ms they starve the others.
SWITCH_INTERVAL = 0.0005


class Worker:
    """Runs an app's jobs in this process, `slots` at a time.

    >>> from laneway import App
    >>> app = App("sqlite://")
    >>> @app.task
    ... def hello(name: str) -> None:
    ...     print("Hello,", name)
    >>> _ = hello.enqueue("Ada")
    >>> Worker(app).run(burst=True)
    Hello, Ada

    `queues` are the queues to serve, all by default; with weights, such as {"critical": 6, "default": 3}, busy ones share the
    slots by them. Otherwise `balance` says how: "even", "adaptive" (by what waits, above all to queues whose jobs wait for I/O),
    "strict" (in the order given), or a function of the slots and of what waits in each queue.

    `loop` is the event loop of async tasks: "asyncio", or "uvloop" with the extra of that name.

    `run` returns after `stop`, after SIGTERM or SIGINT (in the main thread), or, with `burst`, when nothing is due and its slots
    are empty. A stop lets running jobs end for `shutdown_timeout` seconds.

    A worker beats from a thread of its own program. So a worker whose job holds the interpreter lock for longer than the app's
    `dead_after` is declared dead by workers on other hosts, and a run that does not yield cannot be ended: `laneway worker` has
    other processes for that.
    """

    def __init__(
        self, app: App, slots: int = 25, queues: Sequence[str] | Mapping[str, float] | None = None, *,
        balance: str | Policy | None = None, shutdown_timeout: float = 25.0, beat: float = 3.0, loop: str = "asyncio",
    ) -> None:  # fmt: skip
        if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= 10_000:
            raise ConfigError(f"slots={slots!r}: use a whole number from 1")
        if isinstance(queues, str):
            raise ConfigError(f"queues={queues!r}: use a list of names, queues=[{queues!r}]")
        if queues is not None and not len(queues):
            raise ConfigError("queues=[]: name at least one, or leave it out to serve all")
        for name, value, least in (("shutdown_timeout", shutdown_timeout, 0.0), ("beat", beat, 0.01)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < float("inf"):
                raise ConfigError(f"{name}={value!r}: use seconds from {least:g}")
        try:
            self.queues = None if queues is None else tuple(check_queue(queue) for queue in queues)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._policy = choose(balance, self.queues, queues if isinstance(queues, Mapping) else {})
        self.app = app
        self.loop = check_loop(loop)
        self.slots = slots
        self.shutdown_timeout = shutdown_timeout
        self._beat_every = beat
        self._running = threading.Lock()
        self._stopping = False
        self._session: Session | None = None

    def stop(self) -> None:
        """Claim nothing more, let running jobs end, and return from `run`. From any thread, at any time."""
        self._stopping = True
        if self._session is not None:
            self._session.stop("stop")

    def run(self, burst: bool = False) -> None:
        """Work until stopped; with `burst` until there is nothing to do."""
        self.run_in(None, burst=burst)

    def run_in(self, fleet: FleetLink | None, *, burst: bool = False) -> None:
        """Work as part of a fleet, or alone."""
        if not self._running.acquire(blocking=False):
            raise ConfigError("this worker runs already: make another one")
        before = sys.getswitchinterval()
        try:
            sys.setswitchinterval(SWITCH_INTERVAL)
            with self._signals(alone=fleet is None):
                self._session = Session(
                    self,
                    self.app,
                    self.slots,
                    self.queues,
                    self.shutdown_timeout,
                    self._beat_every,
                    fleet,
                    self._policy,
                    self.loop,
                )
                if self._stopping and not self._session.stopping:
                    self._session.stop("stop")  # it was told to before there was a session
                self._session.run(burst)
        finally:
            sys.setswitchinterval(before)
            self._stopping = False
            self._session = None
            self._running.release()

    @contextmanager
    def _signals(self, *, alone: bool) -> Generator[None]:
        """Stop on SIGTERM and SIGINT; a second one ends at once. Only the main thread can handle signals.

        In a fleet a signal may have been meant for all its processes: only its supervisor counts them.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, _: FrameType | None) -> None:
            if self._stopping and alone:
                raise KeyboardInterrupt
            self._stopping = True
            if self._session is not None:
                self._session.stop(signal.Signals(number).name)

        before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
