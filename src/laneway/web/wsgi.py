"""The dashboard for programs that speak WSGI: Flask, Pyramid, Bottle, any server such as gunicorn.

Each request has an event loop of its own, in the thread that the server gives it. So nothing is left between requests that a fork
could break, and what the program keeps for a request in context variables is there for `auth=` too. Threads of such servers are
few: the stream of live figures is one event, after which the browser asks again; an action that takes long is waited for.

>>> from laneway import App
>>> from laneway.web import dashboard
>>> site = as_wsgi(dashboard(App("sqlite://")))

Enters: an environ.  Leaves: a status, headers and a body.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.types import ASGIApp

from laneway.web.exchange import DashboardCall, http_scope

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["as_wsgi"]

#: The bytes of a body that are read at a time.
PORTION = 1 << 16
#: Answers with these have no body, and say nothing of its length.
EMPTY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


def as_wsgi(site: ASGIApp) -> WSGIApplication:
    """Return what `dashboard()` returned as a WSGI app, for a server or to be mounted below any path.

    `auth=` finds the environ of a request in `request.scope["wsgi"]`; the log of actions has its REMOTE_USER.
    """
    turn = threading.Lock() if _has_greenlets() else None

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        root, rest = _text(environ.get("SCRIPT_NAME", "")).rstrip("/"), _text(environ.get("PATH_INFO", ""))
        query: str = environ.get("QUERY_STRING", "")
        if root and not rest:  # links in the pages begin below it
            start_response("308 Permanent Redirect", [("Location", f"{quote(root)}/{'?' if query else ''}{query}")])
            return []
        scope = http_scope(
            method=environ["REQUEST_METHOD"], scheme=environ["wsgi.url_scheme"], root=root, path=root + rest, query=query,
            headers=_headers(environ), client=environ.get("REMOTE_ADDR", ""), user=environ.get("REMOTE_USER", ""),
            http_version=environ.get("SERVER_PROTOCOL", "HTTP/1.1").removeprefix("HTTP/"), short=True,
        )  # fmt: skip
        with turn or contextlib.nullcontext():
            status, headers, body = asyncio.run(_answered(site, {**scope, "wsgi": environ}, _parts(environ)))
        if status not in EMPTY and "content-length" not in dict(headers):
            headers.append(("content-length", str(len(body))))
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return application


async def _answered(
    site: ASGIApp, scope: dict[str, Any], body: Iterator[bytes]
) -> tuple[int, list[tuple[str, str]], bytes]:  # fmt: skip
    exchange = DashboardCall(site, scope, body)
    status, headers = await exchange.begin()
    return status, headers, b"".join([part async for part in exchange.parts()])


def _has_greenlets() -> bool:
    """Return whether gevent makes threads: they are one to the kernel, which can have one event loop at a time."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def _text(path: str) -> str:
    """Return a path of an environ: there each character is a byte."""
    return path.encode("latin-1", "replace").decode(errors="replace")


def _headers(environ: WSGIEnvironment) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name[5:].replace("_", "-"), value
        elif name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
            yield name.replace("_", "-"), value


def _parts(environ: WSGIEnvironment) -> Iterator[bytes]:
    """Yield the body of a request. Without a length it is read to its end only if the server says that there is one."""
    stream = environ["wsgi.input"]
    length: str = environ.get("CONTENT_LENGTH") or ""
    if not length.isdecimal():
        while environ.get("wsgi.input_terminated") and (part := stream.read(PORTION)):
            yield part
        return
    left = int(length)
    while left > 0 and (part := stream.read(min(left, PORTION))):
        left -= len(part)
        yield part
