"""Mounting the pages: their addresses, the users that may see them, and the page that is shown instead of one that cannot be.

Each request takes one snapshot of the store, for the frame; then the page's function is asked, and its template written, all in
one thread. What goes wrong is a page as well, with the status that the API would answer.

Enters: requests of browsers.  Leaves: HTML, and static files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

import laneway as front
from laneway.errors import LanewayError
from laneway.logs import visible
from laneway.present.snapshot import Snapshot
from laneway.web.endpoint import HEADERS, refuse
from laneway.web.pages.errors import errors
from laneway.web.pages.filters import FILTERS, link_from
from laneway.web.pages.frame import PageFrame, frame_of, framed
from laneway.web.pages.history import history
from laneway.web.pages.job import job
from laneway.web.pages.jobs import jobs
from laneway.web.pages.lanes import lane, lanes
from laneway.web.pages.overview import overview
from laneway.web.pages.schedules import schedules
from laneway.web.pages.workers import workers
from laneway.web.refused import Refused, refusal_of
from laneway.web.request import WebRequest
from laneway.web.site import Site
from laneway.web.threads import in_thread

__all__ = ["PAGES", "PageRoute", "is_for_people", "page_routes", "show_refusal"]

HERE = Path(__file__).parent.parent

#: What a page may load: our own scripts, styles and drawings, and nothing else.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {**HEADERS, "Content-Security-Policy": POLICY, "Content-Type": "text/html; charset=utf-8"}
#: Of static files. They are asked for each time, and not sent again if they are the same.
STATIC_HEADERS = {**HEADERS, "Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}


@dataclass(frozen=True, slots=True)
class PageRoute:
    """One page."""

    path: str
    here: str  #: the entry of the nav it belongs to
    template: str
    values: Callable[[WebRequest, Snapshot], Mapping[str, Any]]  #: blocks


def _of(function: Callable[[WebRequest], Mapping[str, Any]]) -> Callable[[WebRequest, Snapshot], Mapping[str, Any]]:
    """Return the function of a page that needs no more than what was asked."""
    return lambda ask, _: function(ask)


PAGES = (
    PageRoute("/", "", "overview.html", overview),
    PageRoute("/jobs", "jobs", "jobs.html", _of(jobs)),
    PageRoute("/jobs/{id}", "jobs", "job.html", _of(job)),
    PageRoute("/errors", "errors", "errors.html", _of(errors)),
    PageRoute("/lanes", "lanes", "lanes.html", _of(lanes)),
    PageRoute("/lane", "lanes", "lane.html", _of(lane)),
    PageRoute("/workers", "workers", "workers.html", _of(workers)),
    PageRoute("/schedules", "schedules", "schedules.html", _of(schedules)),
    PageRoute("/history", "history", "history.html", _of(history)),
)


def page_routes(site: Site) -> list[BaseRoute]:
    """Return the routes of all pages, and of what they load."""
    pages = [Route(page.path, _handler(site, page), methods=["GET"]) for page in PAGES]
    return [*pages, Mount("/static", _Static(directory=HERE / "static"))]


class _Static(StaticFiles):
    """Scripts, styles and drawings. They hold no secrets: a page that refuses a visitor needs them as well."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Send a file, or say that there is none."""
        try:
            if not path.isprintable():
                raise HTTPException(404)
            response = await super().get_response(path, scope)
        except HTTPException as error:
            return refuse(Refused(error.status_code, "not_found", "there is no such file"))
        response.headers.update(STATIC_HEADERS)
        return response


def _handler(site: Site, page: PageRoute) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        try:
            caller = await site.access.caller(request)
        except Refused as refused:
            return await show_refusal(request, refused)
        root = request.scope.get("root_path", "")
        ask = WebRequest(site, caller, request.path_params, dict(request.query_params), root)
        return await in_thread(lambda: _shown(ask, page))

    return handle


def _shown(ask: WebRequest, page: PageRoute) -> Response:
    frame = framed(ask, page.here)
    try:
        seen, health = ask.site.snapshot()
        frame = frame_of(ask, page.here, seen, health)
        return _write(page.template, 200, frame, page.values(ask, seen))
    except (Refused, LanewayError) as error:
        return _write_refusal(frame, refusal_of(error))


# -- what cannot be shown ----------------------------------------------------------------------------------------


def is_for_people(request: Request) -> bool:
    """Return whether the client would rather read a page than JSON."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return not path.startswith("/api/") and "text/html" in request.headers.get("accept", "")


async def show_refusal(request: Request, refused: Refused) -> Response:
    """Return a refusal as a page; with links to other pages for a visitor that is let in."""
    site: Site = request.app.state.laneway
    root = request.scope.get("root_path", "")
    try:
        caller = await site.access.caller(request)
        frame = framed(WebRequest(site, caller, {}, {}, root), "?")
    except Refused:
        frame = PageFrame("?", (), (), "unknown", (), None, "", front.__version__, root)
    return await in_thread(lambda: _write_refusal(frame, refused))


TITLES = {
    401: "Please log in",
    403: "Not for you",
    404: "Not here",
    422: "That cannot be asked",
    500: "A mistake of Laneway's own",
    503: "The store does not answer",
}


def _write_refusal(frame: PageFrame, refused: Refused) -> Response:
    values = {"status": refused.status, "headline": TITLES.get(refused.status, "That did not work"), "message": refused.message}
    return _write("refused.html", refused.status, frame, values, refused.headers)


# -- writing -----------------------------------------------------------------------------------------------------


def _seen(value: Any) -> Any:
    """Return what a template writes, with control characters escaped: another program may have chosen a task's name."""
    return visible(value, keep="\n\t") if type(value) is str else value


_templates = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True, auto_reload=False, cache_size=-1, finalize=_seen,
)  # fmt: skip
_templates.filters.update(FILTERS)


def _write(
    template: str, status: int, frame: PageFrame, values: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Response:
    text = _templates.get_template(template).render(**values, frame=frame, link=link_from(frame.root))
    return Response(text, status, {**PAGE_HEADERS, **(headers or {})})
