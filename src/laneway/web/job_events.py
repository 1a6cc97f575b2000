"""A job's events: its status whenever that changes, until the job has ended.

All listeners of an app share one look at the jobs they listen to, twice a second, one job after the other in one thread: a
thousand listeners of one job cost one call of the store, and a store that is slow is asked less often.

Enters: an app and a job's id.  Leaves: a stream of events.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any, cast

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from laneway.desk.app import App
from laneway.errors import UnknownJob
from laneway.present.job_status import job_status
from laneway.web.live import Listeners, SharedLook, Stream, event
from laneway.web.refused import refusal_of
from laneway.web.threads import in_thread

__all__ = ["JobStream", "follow"]

#: The time between two looks at the jobs, seconds.
EVERY = 0.5
#: A listener without an event for this long is sent an empty line, seconds: proxies close idle connections.
SILENCE = 15.0
#: The id of the last event. A browser that comes back with it has got all events.
LAST = "ended"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
#: What was asked to come back by itself does so after this, milliseconds.
AGAIN = b"retry: 1000\n\n"


class Follower(Listeners):
    """The jobs of an app that have listeners."""

    def __init__(self, app: App) -> None:
        super().__init__()
        self._app = weakref.ref(app)
        self._jobs: Counter[str] = Counter()
        self._look = SharedLook(self._ask, EVERY)

    async def _ask(self) -> object:
        return await in_thread(self._read)

    def _read(self) -> dict[str, dict[str, Any] | None]:
        """Return the status of every job that has listeners; None: nothing is known of it any more."""
        app = self._app()
        assert app is not None  # noqa: S101 - the stream that asks holds it
        found: dict[str, dict[str, Any] | None] = {}
        for id_ in tuple(self._jobs):
            try:
                found[id_] = job_status(app, id_)
            except UnknownJob:
                found[id_] = None
        return found

    async def events(self, first: dict[str, Any]) -> AsyncGenerator[bytes]:
        """Yield a job's status, and every other one, until it has ended."""
        id_, shown, number = first["id"], first, 0
        self._jobs[id_] += 1
        try:
            yield AGAIN + _event(shown)
            said = time.monotonic()
            while not shown["ended"]:
                look = await self._look.newer(number)
                number = look.number
                if look.trouble is not None:
                    yield event(refusal_of(look.trouble).document, "trouble")
                    said = time.monotonic()
                    continue
                seen = cast("dict[str, dict[str, Any] | None]", look.seen)
                if id_ in seen and (now := seen[id_] or _gone(shown)) != shown:
                    shown, said = now, time.monotonic()
                    yield _event(shown)
                elif time.monotonic() - said > SILENCE:
                    said = time.monotonic()
                    yield b":\n\n"
        finally:
            self._jobs[id_] -= 1
            if not self._jobs[id_]:
                del self._jobs[id_]


def _gone(shown: dict[str, Any]) -> dict[str, Any]:
    """Return the last status of a job that has left, and of which nothing is kept."""
    return {**shown, "state": "gone", "ended": True}


def _event(status: dict[str, Any]) -> bytes:
    return event(status, id_=LAST if status["ended"] else "")


#: One for each app, as long as the app is there.
_followers: weakref.WeakKeyDictionary[App, Follower] = weakref.WeakKeyDictionary()


class JobStream(Stream):
    """One listener's stream of a job's events."""

    def __init__(self, app: App, follower: Follower, first: dict[str, Any]) -> None:
        super().__init__(follower, follower.events(first), HEADERS)
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events; to a browser that has heard the last one nothing, in the way that keeps it from asking again."""
        if (b"last-event-id", LAST.encode()) in scope["headers"]:
            await Response(status_code=204)(scope, receive, send)
            return
        await super().__call__(scope, receive, send)


async def follow(app: App, id_: str, task: str = "") -> JobStream:
    """Return the events of a job. Raises UnknownJob, errors of the store, and Refused if too many listen."""
    follower = _followers.get(app)
    if follower is None:
        follower = _followers[app] = Follower(app)
    follower.check_room()
    return JobStream(app, follower, await in_thread(lambda: job_status(app, id_, task)))
