"""The dashboard as a view of Django's, under ASGI and WSGI: Django finds the user of a request, and the dashboard answers it.

The dashboard is an ASGI app. The view gives it the request, and returns what it sends; a stream goes on as long as the browser
listens. Under WSGI a stream would keep a thread of the server for each open page: there it ends after one event, and the browser
asks again.

Enters: a request.  Leaves: a response.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from laneway.contrib.django.project import project_app, read_settings

__all__ = ["dashboard"]


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
    return await _answer(request, rest, user.get_username())


def _login_url() -> str:
    from django.urls import NoReverseMatch, reverse  # noqa: PLC0415 - the project's addresses must be loaded

    try:
        return reverse("admin:login")
    except NoReverseMatch:
        return str(settings.LOGIN_URL)


async def _answer(request: HttpRequest, rest: str, user: str) -> HttpResponseBase:
    """Ask the dashboard; return its answer, or its stream."""
    from laneway.web.exchange import DashboardCall, http_scope  # noqa: PLC0415 - it needs an extra

    path, meta, streams = request.path, request.META, isinstance(request, ASGIRequest)
    scope = http_scope(
        method=request.method or "GET", scheme=request.scheme or "http", root=path[: len(path) - len(rest)].rstrip("/"),
        path=path, query=meta.get("QUERY_STRING", ""), headers=request.headers.items(), client=meta.get("REMOTE_ADDR") or "",
        user=user, short=not streams,
    )  # fmt: skip
    exchange = DashboardCall(_site(), scope, [request.body])
    status, pairs = await exchange.begin()
    headers = {name: value for name, value in pairs if name != "content-length"}  # Django says it
    if streams and headers.get("content-type", "").startswith("text/event-stream"):
        return StreamingHttpResponse(exchange.parts(), status=status, headers=headers)
    return HttpResponse(b"".join([part async for part in exchange.parts()]), status=status, headers=headers)
