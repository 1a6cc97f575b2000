"""Event loops: which kind, and where they run.

A worker has one in a thread of its own, for its async tasks and lifespans. A process for one run, and a test, have one in the
thread that waits for it. Both start on first use, and a process that has nothing async never loads asyncio.

Enters: coroutines.  Leaves: what they return.
"""

from __future__ import annotations

import contextvars
import importlib
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from laneway.errors import ConfigError, did_you_mean
from laneway.logs import log
from laneway.settings import LOOPS

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    Loops = Callable[[], asyncio.AbstractEventLoop]

__all__ = ["LoopThread", "OwnLoop", "check_loop", "load_loop"]

T = TypeVar("T")


def check_loop(name: str) -> str:
    """Return the name of a kind of event loop, or raise ConfigError if there is none here."""
    if name not in LOOPS:
        raise ConfigError(f'loop={name!r}: use "asyncio" or "uvloop".{did_you_mean(str(name), LOOPS)}')
    if name == "uvloop":
        load_loop(name)
    return name


def load_loop(name: str) -> Loops:
    """Return the function that makes an event loop of this kind."""
    if name == "uvloop":
        try:
            return cast("Loops", importlib.import_module("uvloop").new_event_loop)
        except ImportError:
            raise ConfigError('uvloop is not installed: pip install "laneway[uvloop]"') from None
    import asyncio  # noqa: PLC0415 - it takes longer to load than all of Laneway

    return asyncio.new_event_loop


class LoopThread:
    """An event loop in a thread of its own. It starts when it is first used."""

    def __init__(self, kind: str = "asyncio", crash: Callable[[BaseException], None] | None = None) -> None:
        self._kind = kind
        self._crash = crash or _show
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._called: set[Future[Any]] = set()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop."""
        import asyncio  # noqa: PLC0415

        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop or self._open())
        self._called.add(future)
        future.add_done_callback(self._called.discard)
        return future

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and return its result."""
        return self.call(coroutine).result()

    @property
    def is_free(self) -> bool:
        """Whether nothing of ours runs on the loop."""
        return not self._called

    def close(self, timeout: float = 1.0) -> None:
        """End the loop; coroutines that still run are left where they are."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout)
            self._loop = self._thread = None

    def _open(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = load_loop(self._kind)()
        self._thread = threading.Thread(target=self._run_loop, args=(loop,), name="laneway-seats", daemon=True)
        self._thread.start()
        return loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio  # noqa: PLC0415

        asyncio.set_event_loop(loop)
        while True:
            try:
                loop.run_forever()
                break
            except (SystemExit, KeyboardInterrupt) as error:
                # Raised by a task that a job made: asyncio lets it through after telling the awaiting coroutine.
                log.warning("%s in a task that a job started: the event loop goes on", type(error).__name__)
            except BaseException as error:  # noqa: BLE001 - an internal error: jobs' errors are outcomes
                self._crash(error)
                return
        if self.is_free:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


def _show(error: BaseException) -> None:
    log.error("the event loop failed", exc_info=error)


class OwnLoop:
    """An event loop in the thread that waits for it: it turns only then. It starts when it is first used."""

    def __init__(self, kind: str = "asyncio") -> None:
        self._kind = kind
        self._runner: asyncio.Runner | None = None

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, and return its result."""
        if self._runner is None:
            import asyncio  # noqa: PLC0415

            self._runner = asyncio.Runner(loop_factory=load_loop(self._kind))
        return self._runner.run(coroutine, context=contextvars.copy_context())

    def close(self) -> None:
        """End the loop, and cancel what still runs on it."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
