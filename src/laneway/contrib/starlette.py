"""Starlette: the store opens and closes with the web program, and clients see the status of their jobs.

Needs the extra `web`. What FastAPI has beside is in `laneway.contrib.fastapi`. See docs/fastapi.md.

Enters: requests.  Leaves: the status of jobs, as documents and as streams of events.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, TypeVar

try:
    from starlette.exceptions import HTTPException
except ModuleNotFoundError as error:
    raise ModuleNotFoundError('this needs the extra "web": pip install "laneway[web]"', name=error.name) from None
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from laneway.desk.app import App
from laneway.desk.task import Task
from laneway.errors import LanewayError, StoreUnavailable
from laneway.present import job_status as present
from laneway.web import dashboard
from laneway.web.job_events import follow
from laneway.web.refused import Refused, refusal_of
from laneway.web.threads import in_thread

__all__ = ["dashboard", "job_events", "job_routes", "job_status", "lifespan"]

T = TypeVar("T")
#: Any program's lifespan: a function of the program that returns a context manager.
OwnLifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]

log = logging.getLogger("laneway.web")


def lifespan(jobs: App, own: OwnLifespan | None = None) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan that opens the store before the first request and closes it after the last, with your own inside of it.

    Requests find the app as `request.state.laneway`. The program starts even if the store is away: it is opened when it is
    first used.
    """

    @asynccontextmanager
    async def around(program: Any) -> AsyncGenerator[dict[str, Any]]:
        await in_thread(lambda: _open(jobs))
        try:
            async with nullcontext() if own is None else own(program) as state:
                yield {"laneway": jobs, **(state or {})}
        finally:
            if not jobs.desk.is_tested:  # a test looks at its store later
                await in_thread(jobs.close)

    return around


def _open(jobs: App) -> None:
    try:
        jobs.inspect.counts()
    except StoreUnavailable as error:
        log.warning("the store could not be opened, and will be when it is used: %s", error)


async def job_status(jobs: App | Task[..., Any, Any], id: str) -> dict[str, Any]:  # noqa: A002 - the glossary's word
    """Return the status of a job, as plain values: its state, progress, result and errors.

    With a task in place of the app, only a job of that task is found. One that is not is a 404, a store that is away a 503.
    """
    app, task = _meant(jobs)
    return await _answered(in_thread(lambda: present.job_status(app, id, task)))


async def job_events(jobs: App | Task[..., Any, Any], id: str) -> Response:  # noqa: A002
    """Return a stream of server-sent events: the job's status now, and with every change, until it has ended.

    It ends as well when the client leaves, and after a minute: an `EventSource` comes back by itself.
    """
    app, task = _meant(jobs)
    return await _answered(follow(app, id, task))


def job_routes(jobs: App | Task[..., Any, Any]) -> list[Route]:
    """Return routes for a `Mount`: `/{id}`, the status of a job, and `/{id}/events`, its events."""

    async def status(request: Request) -> Response:
        return JSONResponse(await job_status(jobs, request.path_params["id"]), headers={"Cache-Control": "no-store"})

    async def events(request: Request) -> Response:
        return await job_events(jobs, request.path_params["id"])

    return [Route("/{id}", status), Route("/{id}/events", events)]


def _meant(jobs: App | Task[..., Any, Any]) -> tuple[App, str]:
    """Return an app, and the name of the task that was given in its place, if one was."""
    return (jobs, "") if isinstance(jobs, App) else (jobs.app, jobs.name)


async def _answered(call: Awaitable[T]) -> T:
    """Await a call; what Laneway raises becomes an answer: not found, or the store is away."""
    try:
        return await call
    except (LanewayError, Refused) as error:
        refused = refusal_of(error)
        raise HTTPException(refused.status, refused.message, dict(refused.headers)) from error
