"""The backend of Django's tasks: each is a task of Laneway's, with the name of its function.

A task that Django's decorator makes is declared in the project's app at once, so that workers know it. Its jobs go through the
same queues as all others, take part in transactions, and are shown by the dashboard. Their records are Django's results; they are
kept for a day, or for as long as `OPTIONS = {"KEEP_RESULT": seconds}` says.

Enters: Django's tasks and calls.  Leaves: jobs, and records of them as Django's results.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, overload

import msgspec
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.utils import timezone
from django.utils.module_loading import import_string

from laneway.contrib.django.interface import (
    AnyContext,
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    TaskError,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
    task_finished,
    task_started,
)
from laneway.contrib.django.project import ProjectApp, project_app
from laneway.core.outcome import Cancelled, Dead, Done
from laneway.core.retry import Retry
from laneway.desk.context import JobContext, current_job
from laneway.desk.handle import JobHandle
from laneway.errors import LanewayError
from laneway.ids import moment_of
from laneway.store.error_history import WORKER_LOST
from laneway.store.inspection import JobInfo

__all__ = ["LanewayBackend", "LanewayTask", "task"]

#: How long results are kept, seconds.
KEEP_RESULT = 86400
#: The state of a job, as Django's result says it.
STATUS = {
    "running": TaskResultStatus.RUNNING,
    "done": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LanewayTask(AnyTask):
    """A task of Django's, with the options of Laneway's that Django has none for. See `@app.task` for what they mean."""

    lane: str | Callable[..., str | int] | None = None
    halt_on_death: bool = False
    unique: bool | str = False
    unique_until: Literal["claim", "end"] = "claim"
    retry: Retry | None = None  #: None: a run that fails is not repeated, as Django's tasks are by default
    timeout: float | None = None
    isolate: bool = False
    expires: float | timedelta | None = None

    def __post_init__(self) -> None:
        AnyTask.__post_init__(self)
        _declare(self)

    def using(self, *, run_after: datetime | timedelta | None = None, **changes: Any) -> LanewayTask:
        """Return the task with other options. `run_after` may be a time from now."""
        if isinstance(run_after, timedelta):
            run_after = timezone.now() + run_after
        changes["run_after"] = run_after
        return dataclasses.replace(self, **{name: value for name, value in changes.items() if value is not None})


def task(function: Callable[..., Any] | None = None, *, backend: str = "default", **options: Any) -> Any:
    """Declare a task as `django.tasks.task` does, with Laneway's options: `@task(lane="customer_id", retry=Retry(times=3))`."""

    def declare(function: Callable[..., Any]) -> LanewayTask:
        return LanewayTask(func=function, backend=backend, **options)

    return declare if function is None else declare(function)


class LanewayBackend(BaseTaskBackend):
    """Enqueues Django's tasks as jobs of Laneway's."""

    task_class = LanewayTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: AnyTask, args: Any, kwargs: Any) -> Any:
        """Enqueue a call. Inside of `atomic()` it takes part in the transaction."""
        self._check(task)
        args, kwargs = _plain(list(args)), _plain(kwargs)
        handle = _using(task).enqueue(*args, **kwargs)
        result = self._enqueued(task, handle, args, kwargs)
        task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: AnyTask, args: Any, kwargs: Any) -> Any:
        """Enqueue a call from an event loop."""
        self._check(task)
        args, kwargs = _plain(list(args)), _plain(kwargs)
        handle = await _using(task).aenqueue(*args, **kwargs)
        result = self._enqueued(task, handle, args, kwargs)
        await task_enqueued.asend(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """Return what is known about a job: while it waits and runs, and as long as its record is kept."""
        app = project_app()
        info = app.inspect.job(str(result_id))
        value = app.job(info.id).result(timeout=0) if info is not None and info.state == "done" else None
        return self._known(result_id, info, value)

    async def aget_result(self, result_id: str) -> AnyResult:
        """Return what is known about a job, from an event loop."""
        app = project_app()
        info = await app.ainspect.job(str(result_id))
        value = await app.job(info.id).aresult(timeout=0) if info is not None and info.state == "done" else None
        return self._known(result_id, info, value)

    def check(self, **_: Any) -> list[CheckMessage]:
        """Say what is wrong with the settings."""
        if apps.is_installed("laneway.contrib.django"):
            return []
        return [Error('add "laneway.contrib.django" to INSTALLED_APPS: workers find the tasks through it', id="laneway.E003")]

    def _check(self, task: AnyTask) -> None:
        """Refuse a task that no worker could find: validation runs when it is made, before it has its name."""
        self.validate_task(task)
        try:
            found = import_string(task.module_path)
        except ImportError:
            found = None
        if getattr(found, "func", None) is not task.func:
            raise InvalidTask(f"{task.module_path} is not the name of this task: a worker imports it by that name")

    def _enqueued(self, task: AnyTask, handle: JobHandle[Any], args: list[Any], kwargs: dict[str, Any]) -> AnyResult:
        return AnyResult(
            task=task, id=handle.id, status=TaskResultStatus.READY, enqueued_at=_enqueued_at(handle.id), started_at=None,
            last_attempted_at=None, finished_at=None, args=args, kwargs=kwargs, backend=self.alias, errors=[], worker_ids=[],
        )  # fmt: skip

    def _known(self, result_id: str, info: JobInfo | None, value: object) -> AnyResult:
        found = None if info is None else _task_of(info.task)
        if info is None or found is None:
            raise TaskResultDoesNotExist(result_id)
        result = AnyResult(
            task=found, id=info.id, status=STATUS.get(info.state, TaskResultStatus.READY), enqueued_at=_enqueued_at(info.id),
            started_at=_local(info.started_at) or _failed(info, 0),
            last_attempted_at=_local(info.started_at) or _failed(info, -1),
            finished_at=_local(info.finished_at or (info.due_at if info.state == "dead" else None)),
            args=info.args or [], kwargs=info.kwargs or {}, backend=self.alias, worker_ids=_workers(info),
            errors=[TaskError(exception_class_path=_path(one.kind), traceback=one.traceback) for one in info.errors],
        )  # fmt: skip
        object.__setattr__(result, "_return_value", value)
        return result


def _plain(values: Any) -> Any:
    """Return arguments as JSON has them, or raise TypeError."""
    try:
        return normalize_json(values)
    except TypeError as error:
        raise TypeError(f"{error}: arguments are JSON. Of a model pass the primary key, and let the task load it") from None


def _workers(info: JobInfo) -> list[str]:
    """Return the worker of each attempt. Those of a job's last ten failures are known, others are empty."""
    failed = {error.attempt: error.worker for error in info.errors if error.kind != WORKER_LOST}
    known = [failed.get(attempt + 1, "") for attempt in range(info.attempt)]
    if info.state == "done":
        known.pop()
    return [*known, info.worker or ""] if info.state in ("running", "done") else known


def _failed(info: JobInfo, which: int) -> datetime | None:
    """Return when the first or last attempt failed that is known: of a job that did not end well nothing else is kept."""
    return _moment(info.errors[which].at) if info.errors and info.errors[which].at else None


def _path(kind: str) -> str:
    """Return where an exception's class can be imported from. Of another error, such as a lost worker, it is RunError."""
    if not kind.replace(".", "").isidentifier():
        return "laneway.errors.RunError"
    return kind if "." in kind else f"builtins.{kind}"


# -- a task of Django's as one of Laneway's ----------------------------------------------------------------------------


def _declare(task: LanewayTask) -> None:
    """Declare a task of Django's in the app. `using()` makes more of the kind: they are known already."""
    app, name = project_app(), task.module_path
    known = app.known(name)
    if known is not None and getattr(known.function, "django_function", None) is task.func:
        return
    options: dict[str, Any] = {
        "name": name, "queue": task.queue_name, "priority": task.priority, "retry": task.retry or Retry(times=0),
        "keep_result": task.get_backend().options.get("KEEP_RESULT", KEEP_RESULT),
    }  # fmt: skip
    for option in ("halt_on_death", "unique", "timeout", "isolate", "expires"):
        if value := getattr(task, option):
            options[option] = value
    if task.unique:
        options["unique_until"] = task.unique_until
    if task.lane is not None:
        options["lane"] = _lane(task)
    try:
        app.task(**options)(_runner(task))
    except LanewayError as error:
        raise InvalidTask(str(error)) from None
    if not _signalled.get(app):
        _signalled[app] = True
        app.middleware(_send_signals)
        app.middleware(_asend_signals)


_signalled: dict[ProjectApp, bool] = {}


def _lane(task: LanewayTask) -> Callable[..., object]:
    """Return a function of the arguments that gives the lane: the runner's own parameters have no names."""
    if callable(task.lane):
        return task.lane
    signature, name = inspect.signature(task.func), str(task.lane)
    if name not in signature.parameters:
        raise InvalidTask(f'{task.module_path}, lane="{name}": it has no such parameter')

    def lane(*args: Any, **kwargs: Any) -> object:
        bound = signature.bind(*([None] if task.takes_context else []), *args, **kwargs)
        bound.apply_defaults()
        return bound.arguments[name]

    return lane


def _runner(task: LanewayTask) -> Callable[..., Any]:
    """Return the function that a worker calls: with plain JSON values, as Django's tasks are."""
    function = task.func

    def context() -> list[AnyContext]:
        return [AnyContext(task_result=_running(task, current_job()))] if task.takes_context else []

    def run(*args: Any, **kwargs: Any) -> Any:
        return normalize_json(function(*context(), *args, **kwargs))

    async def arun(*args: Any, **kwargs: Any) -> Any:
        return normalize_json(await function(*context(), *args, **kwargs))

    made: Any = arun if inspect.iscoroutinefunction(function) else run
    functools.update_wrapper(made, function)
    del made.__wrapped__  # its parameters are any
    made.__annotations__ = {}
    made.django_function, made.django_task = function, task
    return made  # type: ignore[no-any-return]


def _using(task: AnyTask) -> Any:
    known: Any = project_app().known(task.module_path)
    if known is None:
        raise InvalidTask(f"{task.module_path} was declared for another backend, and no worker of this one would know it")
    options: dict[str, Any] = {"queue": task.queue_name}
    if task.priority:
        options["priority"] = task.priority
    if task.run_after is not None:
        options["run_after"] = task.run_after if timezone.is_aware(task.run_after) else timezone.make_aware(task.run_after)
    return known.using(**options)


def _task_of(name: str) -> LanewayTask | None:
    """Return the task of Django's that has a name."""
    known = project_app().declared.get(name)
    found: LanewayTask | None = None if known is None else getattr(known.function, "django_task", None)
    return found


# -- around a run ------------------------------------------------------------------------------------------------------


def _running(task: LanewayTask, job: JobContext) -> AnyResult:
    """Return Django's result of a job that runs here."""
    started = _moment(job.started)
    return AnyResult(
        task=task, id=job.id, status=TaskResultStatus.RUNNING, enqueued_at=_enqueued_at(job.id), started_at=started,
        last_attempted_at=started, finished_at=None, args=list(job.args), kwargs=dict(job.kwargs), backend=task.backend,
        errors=[], worker_ids=[f"{socket.gethostname()}:{os.getpid()}"] * job.attempt,
    )  # fmt: skip


def _moment(micros: int) -> datetime:
    return _local(datetime.fromtimestamp(micros / 1e6, UTC))


def _enqueued_at(job: str) -> datetime:
    """Return when a job got its id: what was returned by `enqueue` and what is found later are equal."""
    return _moment(moment_of(job))


@overload
def _local(moment: datetime) -> datetime: ...
@overload
def _local(moment: datetime | None) -> datetime | None: ...
def _local(moment: datetime | None) -> datetime | None:
    """Return a moment as this project has them: without a time zone where `USE_TZ` is False."""
    return moment if moment is None or settings.USE_TZ else timezone.make_naive(moment)


def _ended(task: LanewayTask, job: JobContext, error: BaseException | None) -> AnyResult | None:
    """Return Django's result of a run that is the last one; None: it will be repeated."""
    outcome = job.outcome
    if not isinstance(outcome, Done | Dead | Cancelled):
        return None
    errors = [] if error is None else [project_app().hooks.describe(error)]
    status = TaskResultStatus.SUCCESSFUL if isinstance(outcome, Done) else TaskResultStatus.FAILED
    result = dataclasses.replace(
        _running(task, job), status=status, finished_at=timezone.now(),
        errors=[TaskError(exception_class_path=_path(one.kind), traceback=one.traceback) for one in errors],
    )  # fmt: skip
    if isinstance(outcome, Done) and outcome.result is not None:
        object.__setattr__(result, "_return_value", msgspec.json.decode(outcome.result))
    return result


def _mine(job: JobContext, *, is_async: bool) -> LanewayTask | None:
    """Return the task of Django's that a job runs, if it is of this kind."""
    known = project_app().known(job.task)
    found: LanewayTask | None = None if known is None else getattr(known.function, "django_task", None)
    return found if found is not None and inspect.iscoroutinefunction(found.func) is is_async else None


def _send_signals(job: JobContext) -> Iterator[None]:
    """Send Django's signals around a run."""
    task = _mine(job, is_async=False)
    if task is None:
        yield
        return
    sender = type(task.get_backend())
    task_started.send(sender, task_result=_running(task, job))
    try:
        yield
    except BaseException as error:
        if result := _ended(task, job, error):
            task_finished.send(sender, task_result=result)  # inside of the except: receivers ask for the exception
        raise
    if result := _ended(task, job, None):
        task_finished.send(sender, task_result=result)


async def _asend_signals(job: JobContext) -> AsyncIterator[None]:
    """Send Django's signals around a run on the event loop."""
    task = _mine(job, is_async=True)
    if task is None:
        yield
        return
    sender = type(task.get_backend())
    await task_started.asend(sender, task_result=_running(task, job))
    try:
        yield
    except BaseException as error:
        if result := _ended(task, job, error):
            await task_finished.asend(sender, task_result=result)
        raise
    if result := _ended(task, job, None):
        await task_finished.asend(sender, task_result=result)
