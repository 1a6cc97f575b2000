"""A task: a function with its policy, and every way to enqueue it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeGuard, TypeVar, Unpack, cast

from laneway.core.job import Job
from laneway.desk.enqueue import AnyDraft, Draft, LaneDraft
from laneway.desk.handle import JobHandle, was_created
from laneway.desk.options import JobOptions, check_bound, check_job_options
from laneway.desk.signature import Signature
from laneway.desk.task_base import INTROSPECTION_LOCK, TaskBase, single_parameters
from laneway.errors import BadArguments, BadOption, DeclarationError
from laneway.ids import new_ids
from laneway.locks import this_frame

if TYPE_CHECKING:
    from laneway.desk.app import App

__all__ = ["Bound", "Task", "Using", "is_task"]

P = ParamSpec("P")
C = TypeVar("C")  # what a plain call returns
R = TypeVar("R")  # what the job returns


class Using(Generic[P, R]):
    """A task and the options for the next enqueue; `task.using(...)` makes one."""

    def __init__(self, task: Task[P, Any, R], options: Mapping[str, Any]) -> None:
        self._task = task
        self._options = options

    def using(self, **options: Unpack[JobOptions]) -> Using[P, R]:
        """Set options for the next enqueue: queue, lane, priority, run_after, retry, expires, unique_until, id, connection.

        >>> from laneway import App
        >>> app = App("sqlite://")
        >>> @app.task
        ... def hello(name: str) -> None: ...
        >>> hello.using(run_after=60, id="hello-ada").enqueue("Ada").state()
        'scheduled'
        """
        where = f"{self._task.name}.using()"
        checked = {**self._options, **check_job_options(where, options)}
        if ("lane" in checked or self._task.lane is not None) and checked.get("priority", self._task.priority):
            raise BadOption(
                f"{where}: lane and priority together: a lane is in order, so its jobs have no priority. Leave one out."
            )
        return Using(self._task, checked)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue a job with these arguments."""
        draft = self._draft(args, kwargs)
        there = self._task.app.desk.enqueue(self._task.app.store, draft)
        return self._task.handle(draft.id, there)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue from an event loop; jobs enqueued in the same turn of the loop share one round trip."""
        draft = self._draft(args, kwargs)
        there = await self._task.app.desk.aenqueue(self._task.app.store, draft)
        return self._task.handle(draft.id, there)

    def enqueue_many(self, calls: Iterable[tuple[Any, ...]], *, chunk: int = 1000) -> int:
        """Enqueue a job for each tuple of positional arguments; return how many were accepted.

        Any iterable works; only a chunk or two of it are in memory at a time.
        """
        if "id" in self._options:
            raise BadOption(f"{self._task.name}.using(id=…).enqueue_many: one id is for one job")
        desk, store = self._task.app.desk, self._task.app.store
        if desk.middlewares:
            return desk.enqueue_many(store, (self._draft(self._args(call), {}) for call in calls), chunk, self._connection)
        return desk.enqueue_calls(store, calls, chunk, self._seal, self._connection)

    async def aenqueue_many(self, calls: Iterable[tuple[Any, ...]] | AsyncIterable[tuple[Any, ...]], *, chunk: int = 1000) -> int:
        """Enqueue a job for each tuple of arguments, from an event loop; return how many were accepted."""
        app = self._task.app
        return await app.desk.aenqueue_many(app.store, partial(self.enqueue_many, chunk=chunk), calls, chunk, self._connection)

    @property
    def _connection(self) -> Any:
        return self._options.get("connection")

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Bound:
        """Return the call as a value, for `app.enqueue_many` and `app.schedule`."""
        check_bound(f"{self._task.name}.using()", self._options)
        return Bound(self._task.name, self._draft, args, kwargs, self._options)

    def _draft(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Draft:
        task = self._task
        return Draft(
            task.name,
            task.signature,
            task.lane,
            args,
            kwargs,
            task.queue,
            task.priority,
            self._options,
            task.unique,
            task.expires,
            task.unique_until,
        )

    def _seal(self, calls: Sequence[object]) -> Sequence[Job]:
        nothing: dict[str, Any] = {}
        whole = [(self._args(call), nothing) for call in calls]
        return self._draft(*whole[0]).seal_all(whole, new_ids(len(whole)))

    def _args(self, call: object) -> tuple[Any, ...]:
        if not isinstance(call, tuple):
            name = self._task.name
            raise BadArguments(f"{name}.enqueue_many: {call!r} is not a tuple of arguments; for one argument write (x,)")
        return cast("tuple[Any, ...]", call)


class Bound:
    """A call of a task or collector as a value: `app.enqueue_many(send_email.bind(u) for u in users)`."""

    __slots__ = ("_args", "_draft", "_kwargs", "options", "task")

    def __init__(
        self,
        task: str,
        draft: Callable[[tuple[Any, ...], Mapping[str, Any]], AnyDraft],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        self.task = task  #: its name
        self.options = options  #: those of `using`, checked
        self._draft = draft
        self._args = args
        self._kwargs = kwargs

    def draft(self) -> AnyDraft:
        """Return a new draft of the call."""
        return self._draft(self._args, self._kwargs)

    @staticmethod
    def seal_all(bounds: Sequence[Bound]) -> Sequence[Job]:
        """Return a job for each, in order. Calls of one task with the same options are sealed together."""
        together: dict[object, list[int]] = {}
        for number, bound in enumerate(bounds):
            together.setdefault(bound._draft, []).append(number)
        ids = new_ids(len(bounds))
        jobs: dict[int, Job] = {}
        for numbers in together.values():
            draft = bounds[numbers[0]].draft()
            if isinstance(draft, LaneDraft) or draft.is_named:
                jobs.update((number, bounds[number].draft().seal()) for number in numbers)
                continue
            mine = bounds if len(numbers) == len(bounds) else [bounds[number] for number in numbers]
            calls = [(bound._args, bound._kwargs) for bound in mine]
            sealed = draft.seal_all(calls, [ids[number] for number in numbers])
            if mine is bounds:
                return sealed
            jobs.update(zip(numbers, sealed, strict=True))
        return [jobs[number] for number in range(len(bounds))]


class Task(TaskBase, Using[P, R], Generic[P, C, R]):
    """A declared function with its policy. Calling it just runs it; enqueueing it is `using()` without options."""

    def __init__(self, app: App, function: Callable[P, C], options: Mapping[str, Any]) -> None:
        super().__init__(app, function, options)
        self._task, self._options = self, {}
        self.lane: str | Callable[..., object] | None = options.get("lane")
        self.priority: int = options.get("priority", 0)
        self.unique: bool | str = options.get("unique", False)
        self.unique_until: str = options.get("unique_until", "claim")
        self.expires: float | None = options.get("expires")
        self.catch_up: str = options.get("catch_up", "one")
        self._signature: Signature | None = None
        self._check()
        self._check_schedule(options)
        if "unique_until" in options and not self.unique:
            raise DeclarationError(f"{self.name}: unique_until= goes with unique=")

    def _check(self) -> None:
        """Find mistakes at the declaration."""
        if self.lane is not None and self.priority:
            raise DeclarationError(f"{self.name}: lane and priority together: a lane is in order, so its jobs have no priority")
        taking_one = single_parameters(self.function)
        for option, parameter in (("lane", self.lane), ("unique", self.unique)):
            if isinstance(parameter, str) and parameter not in taking_one:
                known = ", ".join(taking_one) or "none"
                raise DeclarationError(f'{self.name}: {option}="{parameter}" names no parameter; there are: {known}')
        try:
            signature = self.signature
        except DeclarationError as error:
            # A name that is defined further down is known when the task is first used.
            if not isinstance(error.__cause__, NameError):
                raise
        else:
            if callable(self.lane) and (trouble := signature.misfit(self.lane)):
                raise DeclarationError(f"{self.name}: lane= is called with the task's arguments {signature}: {trouble}")

    def _check_schedule(self, options: Mapping[str, Any]) -> None:
        if "schedule" not in options:
            alone = [name for name in ("timezone", "catch_up") if name in options]
            if alone:
                raise DeclarationError(f"{self.name}: {alone[0]}= goes with schedule=")
            return
        from laneway.core.cron import read_schedule  # noqa: PLC0415 - most tasks have none, and time zones take a while to load

        try:
            self.schedule = read_schedule(options["schedule"], options.get("timezone"))
        except ValueError as error:
            raise DeclarationError(f"{self.name}, {error}") from None
        try:
            inspect.signature(self.function).bind()
        except TypeError:
            raise DeclarationError(
                f"{self.name} has a schedule, and runs without arguments: give all its parameters defaults, or schedule calls of "
                f"it with app.schedule({self.__name__}.bind(…), …)"
            ) from None

    @property
    def signature(self) -> Signature:
        """The task's parameters, ready to pack and unpack calls."""
        if self._signature is None:
            with INTROSPECTION_LOCK.held(this_frame()):
                self._signature = self._signature or Signature(self.function, self.app.codecs, self.name)
        return self._signature

    def prepare(self) -> None:
        """Read the annotations."""
        with contextlib.suppress(DeclarationError):
            _ = self.signature

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Run the function in this thread, without a job."""
        return cast(C, self.function(*args, **kwargs))

    def handle(self, id_: str, there: str | None) -> JobHandle[R]:
        """Return the handle of a job that was pushed; `there` is the id of the existing job that prevented it."""
        keeps = self.keep_result is not None
        return JobHandle(self.app, there or id_, self.name, was_created(there), keeps, self.signature.decode_result)


def is_task(declared: object) -> TypeGuard[Task[..., Any, Any]]:
    """Say whether something is a task."""
    return isinstance(declared, Task)
