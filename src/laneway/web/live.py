"""Live: server-sent events, one look at the store a second, for all listeners together.

It has no thread that would have to be started and stopped. Every listener sleeps until the next look is due;
the first to wake takes it, in a thread, and all send it. So the store is asked once a second with a thousand listeners, and not
at all with none. Nothing is queued: a listener sends what is newest, and one that takes nothing for a while is dropped.

Enters: a function that asks the store.  Leaves: events.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from laneway.errors import LanewayError
from laneway.web.refused import Refused, refusal_of

__all__ = ["Listeners", "Live", "SharedLook", "Stream", "event"]

#: The time between two looks at the store, seconds.
EVERY = 1.0
#: A listener that reads nothing for this long is dropped, seconds.
SLOW = 5.0
#: A stream ends after this time, seconds: a browser comes back by itself and is asked again who it is. A server that ends waits
#: for its streams, and must not wait for ever.
LONG = 60.0
#: The most listeners at a time.
MOST = 500
#: A browser that got an answer without a stream asks again after this time, milliseconds. Pages worry after 2.5 seconds.
AGAIN = 2000
#: While another listener asks the store: the time between two looks for its answer, seconds.
PATIENCE = 0.02


def event(document: object, name: str = "", id_: str = "") -> bytes:
    """Return a document as an event of a stream.

    >>> event({"state": "done"}, id_="1")
    b'id: 1\\ndata: {"state":"done"}\\n\\n'
    """
    fields = (("id", id_), ("event", name))
    head = "".join(f"{field}: {value}\n" for field, value in fields if value)
    return b"%bdata: %b\n\n" % (head.encode(), msgspec.json.encode(document))


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """What was seen; with an error in place of it, if the store was away."""

    number: int
    seen: object = None
    trouble: LanewayError | None = None


class SharedLook:
    """One look at the store, shared by all listeners that wait for it."""

    def __init__(self, ask: Callable[[], Awaitable[object]], every: float | None = None) -> None:
        self._ask = ask
        self._every = every  # seconds; None: as often as the dashboard
        self._last = LiveAnswer(0)
        self._asking = False
        self._next = 0.0

    async def newer(self, than: int) -> LiveAnswer:
        """Return what was seen after this; at first (0) what others saw last, if that is not old."""
        while True:
            fresh = time.monotonic() < self._next
            if self._last.number > than and (than or fresh):
                return self._last
            if not fresh and not self._asking:
                await self._refresh()
                return self._last
            await anyio.sleep(PATIENCE if self._asking else max(self._next - time.monotonic(), 0.0))

    async def latest(self) -> LiveAnswer:
        """Return what was seen last, if that is not old, else ask. Others that ask may be on an event loop that has ended."""
        if time.monotonic() >= self._next:
            await self._refresh()
        return self._last

    async def _refresh(self) -> None:
        self._asking = True
        begun, every = time.monotonic(), self._every or EVERY
        number, seen, trouble = self._last.number + 1, None, None
        try:
            seen = await self._ask()
        except LanewayError as error:
            trouble = error
        finally:
            self._asking = False  # if this listener leaves in the middle, the next one asks
            self._next = max(begun + every, time.monotonic() + every / 2)  # a slow store is not asked without a break
        self._last = LiveAnswer(number, seen, trouble)


class Listeners:
    """The number of listeners, limited."""

    def __init__(self) -> None:
        self.listeners = 0
        self.closed = False

    def check_room(self) -> None:
        """Refuse one more listener if there are too many."""
        if self.listeners >= MOST:
            raise Refused(503, "busy", f"{MOST} listen already: close a page, or try again later", {"Retry-After": "10"})

    def close(self) -> None:
        """Let all listeners go: the server ends."""
        self.closed = True


class Live(Listeners):
    """The dashboard's figures, for all its listeners."""

    def __init__(self, ask: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._look = SharedLook(ask)
        self._sent = (0, b"")

    def stream(self, headers: Mapping[str, str]) -> Stream:
        """Return a stream of events, or refuse one more listener."""
        self.check_room()
        return Stream(self, self._events(), headers)

    async def once(self, headers: Mapping[str, str]) -> Response:
        """Return a stream of one event, for a server that cannot keep streams open. A browser asks for the next by itself."""
        data = b"retry: %d\n%b" % (AGAIN, self._event(await self._look.latest()))
        return Response(data, headers={**headers, "Content-Type": "text/event-stream; charset=utf-8"})

    async def _events(self) -> AsyncGenerator[bytes]:
        number = 0
        while True:
            look = await self._look.newer(number)
            number = look.number
            yield self._event(look)

    def _event(self, look: LiveAnswer) -> bytes:
        """Return a look as an event, which is encoded once for all."""
        if self._sent[0] != look.number:
            name, document = ("figures", look.seen) if look.trouble is None else ("trouble", refusal_of(look.trouble).document)
            self._sent = (look.number, event(document, name, str(look.number)))
        return self._sent[1]


class Stream(Response):
    """One listener's answer."""

    def __init__(self, among: Listeners, events: AsyncGenerator[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(None, headers={**headers, "Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._among = among
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until they end, or the listener leaves, is too slow, or has listened for long."""
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        self._among.listeners += 1
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_until_gone, receive, group.cancel_scope)
                with anyio.move_on_after(LONG):
                    await self._send(send)
                with anyio.move_on_after(SLOW):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                group.cancel_scope.cancel()
        finally:
            self._among.listeners -= 1

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self._events) as events:
            async for data in events:
                with anyio.move_on_after(SLOW) as patience:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                if patience.cancelled_caught or self._among.closed:
                    return


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
