"""One request to the dashboard from a program that is not an ASGI server: a view of a web framework, or an app of WSGI.

The dashboard is an ASGI app. `http_scope` says what was asked, in its words; a `DashboardCall` gives it the request, and takes
what it sends: the head first, then the body part by part, as long as the client reads.

Enters: a request, in parts.  Leaves: a status, headers, and the parts of a body.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from starlette.types import ASGIApp

from laneway.web.site import SHORT

__all__ = ["DashboardCall", "http_scope"]

log = logging.getLogger("laneway.web")


def http_scope(
    *, method: str, scheme: str, root: str, path: str, query: str, headers: Iterable[tuple[str, str]], client: str, user: str,
    http_version: str = "1.1", short: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return what ASGI says of a request. `path` begins with `root`, where the dashboard is mounted.

    `short`: the server has few threads, and the next request may come to another process, so that no answer may take long.
    """
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": http_version,
        "method": method,
        "scheme": scheme,
        "path": path,
        "raw_path": quote(path).encode(),
        "root_path": root,
        "query_string": query.encode("latin-1"),
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        "client": (client, 0),
        "server": None,
        "user": SimpleNamespace(display_name=user),  # as the dashboard's log of actions shows who asks
        SHORT: short,
    }


class DashboardCall:
    """One request, and its answer."""

    def __init__(self, site: ASGIApp, scope: dict[str, Any], body: Iterable[bytes]) -> None:
        self._site = site
        self._scope = scope
        self._body = iter(body)
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=16)
        self._gone = asyncio.Event()
        self._read = False
        self._running: asyncio.Task[None]

    async def begin(self) -> tuple[int, list[tuple[str, str]]]:
        """Ask; return the status and the headers of the answer."""
        self._running = asyncio.create_task(self._run())
        try:
            start = await self._next()
        except BaseException:  # or the client is gone
            self._running.cancel()
            raise
        return start["status"], [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body. Must be read to its end, or closed."""
        try:
            more = True
            while more:
                part = await self._next()
                more = bool(part.get("more_body"))
                yield part.get("body", b"")
            await self._end()
        finally:  # or the client is gone
            self._gone.set()
            self._running.cancel()

    async def _run(self) -> None:
        await self._site(self._scope, self._receive, self._sent.put)  # type: ignore[arg-type]

    async def _receive(self) -> dict[str, Any]:
        if not self._read:
            part = next(self._body, b"")
            self._read = not part
            return {"type": "http.request", "body": part, "more_body": bool(part)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _next(self) -> dict[str, Any]:
        """Return what the dashboard sends next; an error that leaves no answer is raised here."""
        sent = asyncio.ensure_future(self._sent.get())
        try:
            await asyncio.wait({sent, self._running}, return_when=asyncio.FIRST_COMPLETED)
            if not sent.done() and self._sent.empty():
                await self._running
                raise RuntimeError("the dashboard ended without an answer")
            return await sent
        finally:
            sent.cancel()

    async def _end(self) -> None:
        try:
            await self._running
        except Exception:  # it was answered with status 500: a server would only log it
            log.exception("%s %s has failed", self._scope["method"], self._scope["path"])
