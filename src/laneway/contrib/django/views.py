"""The dashboard as a view of Django's, under ASGI and WSGI: Django says who asks, and the dashboard answers.

The dashboard is an ASGI app. The view gives it the request, and returns what it sends; a stream goes on as long as the browser
listens. Under WSGI a stream would keep a thread of the server for each open page, so there are none: pages show how things stood
when they were loaded.

Enters: a request.  Leaves: a response.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any, Literal
from urllib.parse import quote

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from laneway.contrib.django.project import project_app, read_settings

__all__ = ["dashboard"]

#: The dashboard's stream of what changes.
LIVE = "api/v1/live"


@functools.cache
def _site() -> Any:
    from laneway.web import dashboard as make  # noqa: PLC0415 - it needs an extra

    return make(project_app(), auth=_may, secret=settings.SECRET_KEY)


def _may(_: object) -> Literal["act"]:
    """Let the request in: the view has asked Django."""
    return "act"


@csrf_exempt  # the dashboard checks tokens of its own
async def dashboard(request: HttpRequest, rest: str = "") -> HttpResponseBase:
    """Show the dashboard to those who may see it; others are asked to log in."""
    user: Any = await request.auser()
    permission = read_settings().permission
    if not (user.is_active and (await user.ahas_perm(permission) if permission else getattr(user, "is_staff", False))):
        if user.is_authenticated:
            raise PermissionDenied("the dashboard is for the staff" if permission is None else f"it needs {permission}")
        return redirect_to_login(request.get_full_path(), _login_url())
    streams = isinstance(request, ASGIRequest)
    if rest == LIVE and not streams:
        return HttpResponse(status=204)  # a browser does not ask again
    return await Exchange(request, rest, user).answer()


def _login_url() -> str:
    from django.urls import NoReverseMatch, reverse  # noqa: PLC0415 - the project's addresses must be loaded

    try:
        return reverse("admin:login")
    except NoReverseMatch:
        return str(settings.LOGIN_URL)


class Exchange:
    """One request to the ASGI app, and its response."""

    def __init__(self, request: HttpRequest, rest: str, user: Any) -> None:
        path = request.path
        self._scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.scheme,
            "path": path,
            "raw_path": quote(path).encode(),
            "root_path": path[: len(path) - len(rest)].rstrip("/"),
            "query_string": request.META.get("QUERY_STRING", "").encode("latin-1"),
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()],
            "client": (request.META.get("REMOTE_ADDR") or "", 0),
            "server": None,
            "user": _Name(user.get_username()),
        }
        self._body = request.body
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=16)
        self._gone = asyncio.Event()
        self._asked = False

    async def answer(self) -> HttpResponseBase:
        """Run the app until it has answered, or until its stream begins."""
        running = asyncio.create_task(self._run())
        try:
            start = await self._next(running)
        except BaseException:  # or the browser is gone
            running.cancel()
            raise
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
        headers.pop("content-length", None)
        if headers.get("content-type", "").startswith("text/event-stream"):
            return StreamingHttpResponse(self._parts(running), status=start["status"], headers=headers)
        body = b"".join([part async for part in self._parts(running)])
        return HttpResponse(body, status=start["status"], headers=headers)

    async def _run(self) -> None:
        await _site()(self._scope, self._receive, self._sent.put)

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _next(self, running: asyncio.Task[None]) -> dict[str, Any]:
        """Return what the app sends next; an error of the app is raised here."""
        sent = asyncio.ensure_future(self._sent.get())
        try:
            await asyncio.wait({sent, running}, return_when=asyncio.FIRST_COMPLETED)
            if not sent.done() and self._sent.empty():
                await running
                raise RuntimeError("the dashboard ended without an answer")
            return await sent
        finally:
            sent.cancel()

    async def _parts(self, running: asyncio.Task[None]) -> AsyncIterator[bytes]:
        try:
            more = True
            while more:
                part = await self._next(running)
                more = bool(part.get("more_body"))
                yield part.get("body", b"")
            await running
        finally:  # or the browser is gone
            self._gone.set()
            running.cancel()


class _Name:
    """Who asks, as the dashboard's log of actions shows it."""

    def __init__(self, name: str) -> None:
        self.display_name = name
