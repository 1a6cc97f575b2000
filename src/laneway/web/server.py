"""The server of `laneway dashboard`: uvicorn, with limits on what a client can hold before it has given its credentials.

A connection takes a file descriptor, and a process has few of them. So there is a limit on connections. When one more comes, the
server closes the oldest one that has not sent a whole request, of the client address that has the most such connections. A client
that sends its request at once is answered, however many others send half of one. Clients that are being answered stay connected,
and so do those that listen to the live stream.

A request's head and its body have a time-out, and so has a client that reads nothing of its answer. What can happen thousands of
times in a minute is logged once, and a minute later with a count.

Where the dashboard is mounted into another program, these limits are that program's server's.

Enters: an ASGI app.  Leaves: a `uvicorn.Server`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["GRACE", "Server"]

#: The most connections; and the file descriptors that are left for the store, for files, and for connections that were just
#: accepted.
MOST = 600
SPARE = 200
#: The connections that are accepted in one turn of the event loop, so that others can be closed before more come; and those that
#: wait in the kernel meanwhile.
AT_ONCE = 64
BACKLOG = 2048
#: How long a client may take for a request's head, and then for its body, seconds. A body has a megabyte at most.
HEAD = 10.0
BODY = 30.0
#: A client that reads nothing of its answer for this long is cut off, seconds.
STALLED = 10.0
#: A client that still gets an answer when the server ends may read it for this long, seconds. Live streams end within one.
GRACE = 3
#: How often one kind of line is logged, seconds.
AGAIN = 60.0
#: No more files, or no memory for a socket's buffers.
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger("laneway.web")


class ClientConnection(H11Protocol):
    """One connection, and what it waits for: a request's head, its body, or a client that does not read its answer.

    While it waits for its client it may be closed for another connection.
    """

    door: Door

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._site: Any = self.app
        self.app = self._answer
        self._ended: Any = None  # the request whose answering has ended, completely or not
        self._stalls = False
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None
        self.waits_for = ""  #: head, body or reader; empty: a whole request is being answered

    @property
    def peer(self) -> str:
        """The client's address."""
        return self.client[0] if self.client else ""

    def cut(self) -> None:
        """Close the connection at once, whatever was not sent."""
        self.transport.abort()

    # -- as asyncio and uvicorn call it ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.door.enter(self)
        self._note()
        self.door.keep_limit()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waiting."""
        self.door.leave(self)
        self._wait_for("")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._note()

    def pause_writing(self) -> None:
        """Wait until the client has read more."""
        super().pause_writing()
        self._stalls = True
        self._note()

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._stalls = False
        self._note()

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        cycle = self.cycle
        try:
            await self._site(scope, receive, send)
        finally:
            self._ended = cycle
            self.loop.call_soon(self._note)

    # -- time-outs -------------------------------------------------------------------------------------------

    def _note(self) -> None:
        """Look what it waits for now. Bytes that trickle in do not prolong a time-out: it begins when that changes."""
        cycle: Any = self.cycle
        if self not in self.connections:
            return
        if cycle is None or cycle.response_complete:
            self._wait_for("reader" if self._stalls else "head")
        elif self._stalls or self._ended is cycle:
            self._wait_for("reader")
        else:
            self._wait_for("body" if cycle.more_body else "")

    def _wait_for(self, what: str) -> None:
        if what != self.waits_for:
            self.waits_for = what
            self.door.sort(self)
            self._start_timer()

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.waits_for:
            self._unsent = self.transport.get_write_buffer_size()
            seconds = {"head": HEAD, "body": BODY, "reader": STALLED}[self.waits_for]
            self._timer = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        if 0 < self.transport.get_write_buffer_size() < self._unsent:
            self._start_timer()  # the client is slow, and reads on
        else:
            self.cut()


class Door:
    """Keeps the number of connections within a limit."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._inside: set[ClientConnection] = set()
        self._waiting: dict[str, dict[ClientConnection, None]] = {}  # by client address, each the oldest first

    def enter(self, one: ClientConnection) -> None:
        """Count a connection."""
        self._inside.add(one)

    def leave(self, one: ClientConnection) -> None:
        """Count it no more."""
        self._inside.discard(one)
        self._forget(one)

    def sort(self, one: ClientConnection) -> None:
        """Note that a connection waits for its client, or does so no more."""
        self._forget(one)
        if one.waits_for and one in self._inside:
            self._waiting.setdefault(one.peer, {})[one] = None

    def keep_limit(self) -> None:
        """Close one connection if there is one too many. If all others are being answered, that is the new one."""
        if len(self._inside) > self.most:
            log.warning("more than %d connections: closing the oldest that have not sent a whole request", self.most)
            self.make_room(1)

    def make_room(self, number: int) -> None:
        """Close this many connections that wait for their client."""
        for _ in range(number):
            if not self._waiting:
                return
            most = max(self._waiting, key=lambda peer: len(self._waiting[peer]))
            oldest = next(iter(self._waiting[most]))
            self.leave(oldest)
            oldest.cut()

    def _forget(self, one: ClientConnection) -> None:
        waiting = self._waiting.get(one.peer, {})
        waiting.pop(one, None)
        if not waiting:
            self._waiting.pop(one.peer, None)


class Server(uvicorn.Server):
    """Serves until a signal, and then calls `ending`, which ends the live streams."""

    def __init__(self, site: Any, ending: Callable[[], None]) -> None:
        door = self.door = Door(_most())
        self._ending = ending
        # A client address in a proxy's header proves nothing, so it never gives access.
        super().__init__(
            uvicorn.Config(
                site, http=type("ClientConnection", (ClientConnection,), {"door": door}), loop="asyncio", ws="none",
                log_config=None, access_log=False, proxy_headers=False, server_header=False, lifespan="off", backlog=AT_ONCE,
                timeout_graceful_shutdown=GRACE,
            )
        )  # fmt: skip

    def handle_exit(self, sig: int, frame: object) -> None:  # noqa: ARG002 - as uvicorn calls it
        """End; at the second signal at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._ending()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, and log in moderation."""
        asyncio.get_running_loop().set_exception_handler(self._complain)
        with ExitStack() as stack:
            for logger in (log, logging.getLogger("uvicorn.error")):
                once = _Once(logger)
                logger.addFilter(once)
                stack.callback(logger.removeFilter, once)
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            log.error("no connection can be accepted: %s. Closing those that have not sent a whole request", error.strerror)
            self.door.make_room(AT_ONCE)
        else:
            loop.default_exception_handler(context)


def _most() -> int:
    """Return how many connections this process can have."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if allowed == resource.RLIM_INFINITY else min(MOST, max(allowed - SPARE, 16))


class _Once(logging.Filter):
    """Lets one line of a kind through in a while, and says afterwards how many it held back."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._logger = logger
        self._loop = asyncio.get_running_loop()
        self._held_back: dict[object, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a line is the first of its kind."""
        kind = (record.levelno, record.msg, record.exc_info and record.exc_info[0])
        if kind in self._held_back:
            self._held_back[kind] += 1
            return False
        self._held_back[kind] = 0
        said = f"{record.getMessage().strip()} (%d times more)"
        self._loop.call_soon_threadsafe(self._loop.call_later, AGAIN, self._log_repeats, kind, record.levelno, said)
        return True

    def _log_repeats(self, kind: object, level: int, said: str) -> None:
        number = self._held_back.pop(kind, 0)
        if number:
            self._logger.handle(self._logger.makeRecord(self._logger.name, level, "", 0, said, (number,), None))
