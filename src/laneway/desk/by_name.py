"""Enqueueing by name: for programs that do not have the task's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from laneway.core.codec import Codec
from laneway.desk.enqueue import Draft
from laneway.desk.handle import JobHandle, was_created
from laneway.desk.options import JobOptions, check_bound, check_job_options, check_task_options
from laneway.desk.signature import Signature
from laneway.desk.task import Bound, Task, Using, is_task
from laneway.desk.task_base import TaskBase
from laneway.errors import BadOption, UnknownTask, did_you_mean

if TYPE_CHECKING:
    from laneway.desk.app import App

__all__ = ["UsingByName", "any_signature"]


def any_signature(codecs: Codec) -> Signature:
    """Return the signature of a task whose code is elsewhere: it takes anything."""
    return Signature(_any_call, codecs, "app.enqueue", advice="Pass what JSON has.")


class UsingByName:
    """An app and the options for the next enqueue by name; `app.using(...)` makes one."""

    def __init__(self, app: App, options: Mapping[str, Any], any_call: Signature) -> None:
        self._app = app
        self._options = options
        self._any_call = any_call

    def using(self, **options: Unpack[JobOptions]) -> UsingByName:
        """Add options: queue, lane, priority, run_after, retry, expires, unique_until, id, connection."""
        check_job_options("app.using()", options)
        return UsingByName(self._app, {**self._options, **options}, self._any_call)

    def enqueue(self, task: str, /, *args: Any, check: bool = True, **kwargs: Any) -> JobHandle[Any]:
        """Enqueue by name. An app with tasks refuses names it does not know; `check=False` sends anyway."""
        known = self._known(task, check=check)
        if known is not None:
            return known.enqueue(*args, **kwargs)
        draft = self._draft(task, args, kwargs)
        return self._handle(draft, self._app.desk.enqueue(self._app.store, draft))

    async def aenqueue(self, task: str, /, *args: Any, check: bool = True, **kwargs: Any) -> JobHandle[Any]:
        """Enqueue by name from an event loop; calls of one turn of the loop share a round trip."""
        known = self._known(task, check=check)
        if known is not None:
            return await known.aenqueue(*args, **kwargs)
        draft = self._draft(task, args, kwargs)
        return self._handle(draft, await self._app.desk.aenqueue(self._app.store, draft))

    def bind(self, task: str, /, *args: Any, check: bool = True, **kwargs: Any) -> Bound:
        """Return a call by name as a value, for `app.enqueue_many`."""
        known = self._known(task, check=check)
        if known is not None:
            return known.bind(*args, **kwargs)
        options = check_job_options("app.using()", self._options)
        check_bound("app.using()", options)
        return Bound(task, lambda args, kwargs: self._draft(task, args, kwargs), args, kwargs, options)

    def _known(self, task: str, *, check: bool) -> Using[..., Any] | None:
        """Return the task with these options if the app declares it; raise what is wrong with the name."""
        if isinstance(task, TaskBase):
            raise BadOption("app.enqueue takes a task's name: for a task itself write TASK.enqueue(…)")
        check_task_options("app.enqueue", {"name": task})
        tasks = self._app.declared
        declared = tasks.get(task)
        if is_task(declared):
            found: Task[..., Any, Any] = declared
            return found.using(**self._options)
        if declared is not None:
            raise BadOption(f'"{task}" is a collector, and enqueues lanes: write {declared.__name__}.enqueue(lane, payload)')
        if tasks and check:
            raise UnknownTask(
                f'no task named "{task}" is registered here.{did_you_mean(task, tasks)} '
                f"Known: {len(tasks)} tasks. To send it to a program that knows it, add check=False",
                task=task,
            )
        return None

    def _draft(self, task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Draft:
        options = check_job_options("app.using()", self._options)
        return Draft(task, self._any_call.named(task), None, args, kwargs, "default", 0, options)

    def _handle(self, draft: Draft, there: str | None) -> JobHandle[Any]:
        return JobHandle(self._app, there or draft.id, draft.task, was_created(there), None)


def _any_call(*args: Any, **kwargs: Any) -> None:
    """Take anything."""
