"""The dashboard as an ASGI app: its routes, and what an unexpected error looks like.

It runs alone (`laneway dashboard`) or is mounted into another program under any prefix. It opens nothing before the first
request, closes nothing of the app it is given, and needs no lifespan.

Enters: an app, and a check of its users.  Leaves: an ASGI app.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

try:
    from starlette.applications import Starlette
except ModuleNotFoundError as error:
    raise ModuleNotFoundError('the dashboard needs the extra "web": pip install "laneway[web]"', name=error.name) from None
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from laneway.desk.app import App
from laneway.errors import ConfigError
from laneway.settings import UNSET, Secret, Settings
from laneway.web.access import Access, Auth
from laneway.web.actions import ACTIONS
from laneway.web.api import QUERIES
from laneway.web.endpoint import HEADERS, Endpoint, handler, refuse
from laneway.web.health import Pulse
from laneway.web.pages.acts import PAGE_ACTIONS
from laneway.web.pages.mount import is_for_people, page_routes, show_refusal
from laneway.web.redact import Redactor
from laneway.web.refused import Refused
from laneway.web.site import SHORT, Site

__all__ = ["ENDPOINTS", "dashboard"]

#: Everything that can be asked for, except the live stream, which is a stream of answers.
ENDPOINTS: tuple[Endpoint, ...] = (*QUERIES, *ACTIONS, *PAGE_ACTIONS)
LIVE = "/api/v1/live"


def dashboard(
    app: App, *, auth: Auth | None = None, read_only: bool = False, user: str | None = UNSET, password: str | None = UNSET,
    token: str | None = UNSET, redact: tuple[str, ...] = UNSET, health_lag: float = UNSET, health_stall: float = UNSET,
    open_health: bool = False, secret: str | None = None,
) -> Starlette:  # fmt: skip
    """Return an app's dashboard as an ASGI app.

    It is closed to all but this machine, unless there are credentials (`user` and `password`, `token`; else what is set outside,
    see `laneway.settings`) or `auth`: a function, sync or async, of the request that returns None, "read" or "act". With
    `read_only` no user may act. Values whose keys have a word of `redact` in them are not shown. /healthz fails when a due job
    waits for more than `health_lag` seconds (300), or nothing is claimed for `health_stall` seconds (60) although work is due;
    with `open_health` every client may ask it, and gets no reasons. Programs of several processes with `auth` alone need the same
    `secret` in each, for what browsers show with an action.
    """
    if not isinstance(app, App):
        raise ConfigError(f"dashboard({app!r}): give it your App")
    around = Settings()
    said = {
        "dashboard_user": user, "dashboard_password": password, "dashboard_token": token, "dashboard_redact": redact,
        "health_lag": health_lag, "health_stall": health_stall,
    }  # fmt: skip
    found: dict[str, Any] = {name: around.find(name, code=value).value for name, value in said.items()}
    access = Access(
        auth=auth, read_only=read_only, user=found["dashboard_user"], password=_text(found["dashboard_password"]),
        token=_text(found["dashboard_token"]), secret=secret,
    )  # fmt: skip
    pulse = Pulse(found["health_lag"], found["health_stall"])
    site = Site(app, access, Redactor(found["dashboard_redact"]), pulse, open_health=open_health)
    routes = [Route(one.path, handler(site, one), methods=[one.method]) for one in ENDPOINTS]
    made = Starlette(
        routes=[*routes, Route(LIVE, _live(site), methods=["GET"]), *page_routes(site)],
        exception_handlers={HTTPException: _show_error, Exception: _show_error},
    )
    made.router.redirect_slashes = False
    made.state.laneway = site
    return made


def _text(secret: Secret | str | None) -> str | None:
    return secret.text if isinstance(secret, Secret) else secret


def _live(site: Site) -> Callable[[Request], Awaitable[Response]]:
    async def live(request: Request) -> Response:
        try:
            await site.access.caller(request)
            return await site.live.once(HEADERS) if request.scope.get(SHORT) else site.live.stream(HEADERS)
        except Refused as refused:
            return refuse(refused)

    return live


async def _show_error(request: Request, error: Exception) -> Response:
    refused = _refusal(request, error)
    return await show_refusal(request, refused) if is_for_people(request) else refuse(refused)


def _refusal(request: Request, error: Exception) -> Refused:
    if not isinstance(error, HTTPException):
        return Refused(500, "internal", f"{type(error).__name__}: a mistake of Laneway's own; the program's log has it all")
    headers = error.headers or {}
    if error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        return Refused(405, "wrong_method", f"{request.method} does nothing here: use {allowed}", headers)
    if error.status_code == 404:
        return Refused(404, "not_found", "there is nothing at this address: docs/web.md lists what there is")
    return Refused(error.status_code, "bad_request", error.detail, headers)
