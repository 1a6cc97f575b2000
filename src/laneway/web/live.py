"""Live: server-sent events, one snapshot of the store a second, whoever listens.

There is no ticker of its own that somebody would have to start and stop. Every listener sleeps until the next snapshot is due;
the first to wake takes it, in a thread, and all send it. So the store is asked once a second with a thousand listeners, and not
at all with none. Nothing is queued: a listener sends what is newest, and one that takes nothing for a while is dropped.

Enters: a function that asks the store.  Leaves: events.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import anyio
import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from laneway.errors import LanewayError
from laneway.web.refused import Refused, refusal_of

__all__ = ["Live", "Stream"]

#: So often the store is asked, seconds.
EVERY = 1.0
#: A listener that takes nothing for so long is dropped, seconds.
SLOW = 5.0
#: A stream ends after so long, seconds: a browser comes back by itself and is asked again who it is. A server that ends waits for
#: its streams, and must not wait for ever.
LONG = 60.0
#: So many may listen at a time.
MOST = 500
#: A browser that was told once, without a stream, asks again after so long, milliseconds. Pages worry after 2.5 seconds.
AGAIN = 2000
#: While another listener asks the store, one looks so often whether it has an answer.
PATIENCE = 0.02


@dataclass(frozen=True, slots=True)
class LiveFrame:
    """What was seen, as an event."""

    number: int
    data: bytes


class Live:
    """What all listeners share."""

    def __init__(self, ask: Callable[[], Awaitable[object]]) -> None:
        self._ask = ask
        self._frame = LiveFrame(0, b"")
        self._asking = False
        self._next = 0.0
        self.listeners = 0
        self.closed = False

    def stream(self, headers: Mapping[str, str]) -> Stream:
        """Return a stream of events, or refuse one more listener."""
        if self.listeners >= MOST:
            raise Refused(503, "busy", f"{MOST} listen already: close a page, or try again later", {"Retry-After": "10"})
        return Stream(self, headers)

    async def once(self, headers: Mapping[str, str]) -> Response:
        """Return a stream of one event, for a server that cannot keep streams open. A browser asks for the next by itself."""
        if time.monotonic() >= self._next:  # nobody waits for another that asks: it may be on an event loop that has ended
            await self._refresh()
        data = b"retry: %d\n%b" % (AGAIN, self._frame.data)
        return Response(data, headers={**headers, "Content-Type": "text/event-stream; charset=utf-8"})

    def close(self) -> None:
        """Let all listeners go: the server ends."""
        self.closed = True

    async def newer(self, than: int) -> LiveFrame:
        """Return what was seen after this; at first (0) what others saw last, if that is not old."""
        while True:
            fresh = time.monotonic() < self._next
            if self._frame.number > than and (than or fresh):
                return self._frame
            if not fresh and not self._asking:
                await self._refresh()
                return self._frame
            await anyio.sleep(PATIENCE if self._asking else max(self._next - time.monotonic(), 0.0))

    async def _refresh(self) -> None:
        self._asking = True
        begun = time.monotonic()
        try:
            name, document = "figures", await self._ask()
        except LanewayError as error:
            name, document = "trouble", refusal_of(error).document
        finally:
            self._asking = False  # if this listener leaves in the middle, the next one asks
            self._next = max(begun + EVERY, time.monotonic() + EVERY / 2)  # a slow store is not asked without a break
        number = self._frame.number + 1
        self._frame = LiveFrame(
            number, b"id: %d\nevent: %b\ndata: %b\n\n" % (number, name.encode(), msgspec.json.encode(document))
        )


class Stream(Response):
    """One listener's answer."""

    def __init__(self, live: Live, headers: Mapping[str, str]) -> None:
        super().__init__(None, headers={**headers, "Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._live = live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the listener leaves, is too slow, or has listened for long."""
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        self._live.listeners += 1
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_until_gone, receive, group.cancel_scope)
                with anyio.move_on_after(LONG):
                    await self._send(send)
                with anyio.move_on_after(SLOW):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                group.cancel_scope.cancel()
        finally:
            self._live.listeners -= 1

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        number = 0
        while True:
            frame = await self._live.newer(number)
            with anyio.move_on_after(SLOW) as patience:
                await send({"type": "http.response.body", "body": frame.data, "more_body": True})
            if patience.cancelled_caught or self._live.closed:
                return
            number = frame.number


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
