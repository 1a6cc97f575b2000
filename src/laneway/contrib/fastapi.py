"""FastAPI: the status of jobs as typed endpoints, their events, the app as a dependency, the dashboard behind your own users.

Needs the extra `fastapi`. What is not FastAPI's own is in `laneway.contrib.starlette`. See docs/fastapi.md.

Enters: requests.  Leaves: models and streams that the OpenAPI schema knows.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Annotated, Any, Generic, TypeVar, cast, overload

try:
    from fastapi import APIRouter, Depends, Request
    from pydantic import BaseModel
    from pydantic.errors import PydanticSchemaGenerationError
except ModuleNotFoundError as error:
    raise ModuleNotFoundError('this needs the extra "fastapi": pip install "laneway[fastapi]"', name=error.name) from None
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from laneway import web
from laneway.contrib import starlette
from laneway.contrib.starlette import job_events, lifespan
from laneway.core.job import State
from laneway.desk.app import App
from laneway.desk.signature import hints_of
from laneway.desk.task import Task

__all__ = [
    "JobError", "JobProgress", "Jobs", "JobStatus", "dashboard", "get_jobs", "job_events", "job_routes", "job_status",
    "lifespan",
]  # fmt: skip

R = TypeVar("R")

METHODS = ["GET", "HEAD", "POST"]
#: What the schema says of a stream.
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events, each with a JobStatus",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


# -- the app -----------------------------------------------------------------------------------------------------


def get_jobs(request: Request) -> App:
    """Return the app that `lifespan` has opened: a dependency."""
    found = getattr(request.state, "laneway", None)
    if not isinstance(found, App):
        raise RuntimeError("no Laneway app is here: write FastAPI(lifespan=lifespan(jobs)), and in tests `with TestClient(api)`")
    return found


#: The app as a parameter of an endpoint: `async def start(jobs: Jobs)`.
Jobs = Annotated[App, Depends(get_jobs)]


# -- the status of a job -----------------------------------------------------------------------------------------


class JobProgress(BaseModel):
    """How far a job is, as it has reported."""

    done: float
    total: float


class JobError(BaseModel):
    """A failed attempt of a job."""

    attempt: int
    at: datetime | None
    kind: str
    message: str


class JobStatus(BaseModel, Generic[R]):
    """The status of a job. `JobStatus[Receipt]` says what its task returns."""

    id: str
    task: str
    state: State
    ended: bool
    attempt: int
    progress: JobProgress | None
    result: R | None
    errors: list[JobError]
    enqueued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


#: The status of a job of any task.
AnyStatus = JobStatus[Any]


class Trouble(BaseModel):
    """Why there is no answer."""

    detail: str


@overload
async def job_status(jobs: App, id: str) -> JobStatus[Any]: ...
@overload
async def job_status(jobs: Task[..., Any, R], id: str) -> JobStatus[R]: ...
async def job_status(jobs: App | Task[..., Any, Any], id: str) -> JobStatus[Any]:  # noqa: A002 - the glossary's word
    """Return the status of a job: its state, progress, result and errors.

    With a task in place of the app, only a job of that task is found. One that is not is a 404, a store that is away a 503.
    """
    found = await starlette.job_status(jobs, id)
    model = _model(jobs)
    if isinstance(jobs, Task) and model is not AnyStatus and found["result"] is not None:
        found["result"] = jobs.signature.decode_result(jobs.app.codecs.encode(found["result"]))
    return model.model_validate(found)


def job_routes(jobs: App | Task[..., Any, Any]) -> APIRouter:
    """Return a router: `/{id}`, the status of a job, and `/{id}/events`, its events. Give `include_router` your dependencies."""
    model = _model(jobs)
    router = APIRouter(responses={404: {"model": Trouble, "description": "there is no such job (any more)"}})

    @router.get("/{id}", summary="The status of a job", response_model=model)
    async def job_status_by_id(id: str) -> JobStatus[Any]:  # noqa: A002
        return await job_status(jobs, id)

    @router.get("/{id}/events", summary="The status of a job, with every change", response_class=Response, responses=EVENTS)
    async def job_events_by_id(id: str) -> Response:  # noqa: A002
        return await job_events(jobs, id)

    return router


def _model(jobs: App | Task[..., Any, Any]) -> type[JobStatus[Any]]:
    """Return the model for what a task returns; for an app, or a type that pydantic does not know, that of anything."""
    if isinstance(jobs, App):
        return AnyStatus
    returned: Any = hints_of(jobs.function, jobs.name).get("return", Any)
    try:
        return cast("type[JobStatus[Any]]", JobStatus.__class_getitem__(returned))
    except PydanticSchemaGenerationError:
        return AnyStatus


# -- the dashboard -----------------------------------------------------------------------------------------------


def dashboard(jobs: App, auth: Callable[..., Any], **options: Any) -> APIRouter:
    """Return the dashboard as a router, behind your own users: `include_router(dashboard(jobs, auth), prefix="/jobs")`.

    `auth` is a dependency: it returns "act", "read", or None for those who may not; or a pair of that and the user's name, for
    the audit. It may raise what dependencies raise. The options are those of `laneway.web.dashboard`.
    """
    site: ASGIApp = web.dashboard(jobs, auth=_said, **options)
    router = APIRouter()

    @router.api_route("/{rest:path}", methods=METHODS, include_in_schema=False)
    async def show_dashboard(rest: str, said: Any = Depends(auth)) -> Response:  # noqa: B008 - as FastAPI has it
        return _Mounted(site, rest, said)

    return router


def _said(request: Request) -> Any:
    return request.scope["laneway.may"]


class _Mounted(Response):
    """What the dashboard answers."""

    def __init__(self, site: ASGIApp, rest: str, said: Any) -> None:
        super().__init__()
        self._site, self._rest, self._said = site, rest, said

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the dashboard answer, as if it were mounted where the router is."""
        root, path = scope.get("root_path", "").rstrip("/"), scope["path"]
        inner = path.removeprefix(root) if path.startswith(f"{root}/") else path  # a proxy may have taken it away
        mounted = root + inner.removesuffix(self._rest).rstrip("/")
        below: dict[str, Any] = {"path": root + inner, "root_path": mounted, "path_params": {}}
        said: object = self._said
        may, name = cast("tuple[Any, str]", said) if isinstance(said, tuple) else (said, "")
        user = {"user": SimpleNamespace(display_name=name)} if name else {}
        await self._site({**scope, **below, **user, "laneway.may": may}, receive, send)
