"""Events: what happened to runs and workers, as values.

The worker that sends an event does not know its listeners: the log, a terminal, statistics, an app's own functions, metrics,
traces. A listener gets one kind of event, in the thread where it happened. An error in a listener is logged and goes no further.

Enters: events.  Leaves: calls of listeners.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from laneway.core.outcome import Dead, Outcome, Settled
from laneway.logs import log

if TYPE_CHECKING:
    from laneway.desk.context import JobContext

__all__ = [
    "Death", "Event", "Events", "RunCrashed", "RunEnded", "RunFailed", "RunStarted", "RunsSettled", "WorkerCrashed",
    "WorkerStarted", "WorkerStopped",
]  # fmt: skip


class Event(msgspec.Struct, frozen=True):
    """Something happened."""


class RunStarted(Event, frozen=True):
    """A job's code, or a collector's, is about to be called."""

    job: JobContext


class RunEnded(Event, frozen=True):
    """A run is over."""

    job: JobContext
    outcomes: Sequence[Outcome]  #: one for each unit
    started: int  #: microseconds, by this machine's clock
    finished: int


class RunFailed(Event, frozen=True):
    """A run raised an error, and will be tried again: the job, or some lanes of a collector."""

    job: JobContext
    outcomes: Sequence[Outcome]
    error: BaseException


class RunCrashed(Event, frozen=True):
    """The process of an isolated run ended without an outcome."""

    job: JobContext
    said: str  #: how the process ended, and what comes next


class Death(Event, frozen=True):
    """A job died, or a payload of a collector."""

    job: JobContext
    outcome: Dead
    error: BaseException
    ran: bool  #: False: it died before it could run


class RunsSettled(Event, frozen=True):
    """A store has taken the outcomes of runs, except for units that this worker no longer holds."""

    settled: Sequence[Settled]
    refused: Sequence[str]  #: ids of units


class WorkerStarted(Event, frozen=True):
    """A worker is about to claim its first job."""

    worker: object


class WorkerStopped(Event, frozen=True):
    """A worker has ended what it ran."""

    worker: object


class WorkerCrashed(Event, frozen=True):
    """A worker ends because of an internal error."""

    error: BaseException


E = TypeVar("E", bound=Event)


class Events:
    """The listeners of an app, or of one of its workers, by kind of event."""

    def __init__(self, app: Events | None = None) -> None:
        self._app = app
        self._listeners: dict[type[Event], tuple[Callable[[Any], object], ...]] = {}
        #: The kinds of events that may have a listener, here or in other workers of the app: of no others need one be created.
        self.heard: set[type[Event]] = set() if app is None else app.heard

    def listen(self, kind: type[E], listener: Callable[[E], object], *, first: bool = False) -> None:
        """Call a function at each event of a kind, from now on; adding it twice has no effect.

        With `first` it is called before those that listen already, such as the log.
        """
        self.heard.add(kind)
        others = self._listeners.get(kind, ())
        if listener not in others:
            self._listeners[kind] = (listener, *others) if first else (*others, listener)

    def silence(self, kind: type[Event]) -> None:
        """Remove all listeners of a kind of event: no worker of the app creates such an event any more."""
        self._listeners.pop(kind, None)
        self.heard.discard(kind)

    def tell(self, event: Event) -> None:
        """Call all listeners of this kind of event, a worker's before its app's."""
        kind = type(event)
        for listener in self._listeners.get(kind, ()):
            try:
                listener(event)
            except BaseException:  # noqa: BLE001 - SystemExit in a user's function must not end the worker either
                log.exception("%s raised", getattr(listener, "__qualname__", listener))
        if self._app is not None and kind in self._app._listeners:
            self._app.tell(event)
