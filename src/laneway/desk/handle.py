"""A job's handle: what `enqueue` gives back, and what `app.job(id)` makes of an id in any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from laneway.core.job import State
from laneway.core.plain import schema_of, serializer_of
from laneway.desk.offload import is_on_a_loop, offload
from laneway.errors import BadOption, JobCancelled, JobFailed, NoResult, ResultTimeout, UnknownJob

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.desk.inspection import Explanation
    from laneway.store.inspection import JobInfo, StoredResult

__all__ = ["JobHandle", "LaneHandle", "was_created"]

R = TypeVar("R")


class JobHandle(Generic[R]):
    """One enqueued job.

    >>> from laneway import App
    >>> app = App("sqlite://")
    >>> @app.task
    ... def hello(name: str) -> None: ...
    >>> job = hello.enqueue("Ada")
    >>> job.created, job.state()
    (True, 'ready')
    """

    __slots__ = ("_app", "_keeps", "_read", "created", "id", "task")

    def __init__(
        self, app: App, id: str, task: str, created: bool | None,  # noqa: A002 - the glossary's word
        keeps: bool | None, read: Callable[[bytes], Any] = msgspec.json.decode,
    ) -> None:  # fmt: skip
        self._app = app
        self._keeps = keeps  # None: this program does not know the task
        self._read = read
        self.id = id
        self.task = task  #: its name; empty if only the job's id is known
        #: False: this job, or an equal one (`unique`), was in the store already, and nothing was added. None: that is found out
        #: when the transaction it was enqueued in has committed.
        self.created = created

    def state(self) -> State:
        """Return the job's state now; `gone` once it has finished and its result is not kept any more."""
        return self._app.store_inspect.result(self.id).state

    def info(self) -> JobInfo:
        """Return the job as it is in the store, or its record while that is kept. Raises UnknownJob if there is neither."""
        found = self._app.inspect.job(self.id)
        if found is None:
            raise UnknownJob(f"no {self} is in the store: it has finished, or never was", id=self.id)
        return found

    def result(self, timeout: float | None = None) -> R:
        """Wait for the job and return what it returned.

        Raises NoResult at once if the task keeps none, JobFailed if it died, JobCancelled if it was cancelled, and
        ResultTimeout if it has not finished after `timeout` seconds. On an event loop it is refused: there is `aresult`.
        """
        if is_on_a_loop():
            raise BadOption("result() would stop this event loop until the job has finished: write `await job.aresult()`")
        for pause in self._pauses(timeout):
            found = self._look()
            if found is not None:
                return self._read_result(found)
            time.sleep(pause)
        raise AssertionError  # pragma: no cover - _pauses never ends

    def cancel(self) -> bool:
        """Cancel the job: at once if it waits, at the next beat if it runs. Returns False if there is nothing left to cancel."""
        try:
            return self._app.inspect.cancel(self.id)
        except UnknownJob:
            return False

    def explain(self) -> Explanation:
        """Say why the job is where it is."""
        return self._app.inspect.explain(self.id)

    def as_dict(self) -> dict[str, Any]:
        """Return what a client needs in order to ask for the job later: its id, task and whether it was created."""
        return {"id": self.id, "task": self.task, "created": self.created}

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield what `as_dict` has: `dict(job)` is what web frameworks make of a value that they do not know."""
        return iter(self.as_dict().items())

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> Any:
        text, flag = {"type": "str"}, {"type": "nullable", "schema": {"type": "bool"}}
        return schema_of(cls, cls.as_dict, id=text, task=text, created=flag)

    @property
    def __pydantic_serializer__(self) -> Any:
        kind: Any = type(self)
        return serializer_of(kind)

    # -- from an event loop ----------------------------------------------------------------------------------

    async def astate(self) -> State:
        """Return the job's state now, from an event loop."""
        return await offload(self.state)

    async def ainfo(self) -> JobInfo:
        """Return the job as it is in the store, from an event loop."""
        return await offload(self.info)

    async def aresult(self, timeout: float | None = None) -> R:
        """Wait for the job on an event loop, and return what it returned. Raises what `result` raises."""
        import asyncio  # noqa: PLC0415 - loaded already: it runs this

        for pause in self._pauses(timeout):
            found = await offload(self._look)
            if found is not None:
                return self._read_result(found)
            await asyncio.sleep(pause)
        raise AssertionError  # pragma: no cover - _pauses never ends

    async def acancel(self) -> bool:
        """Cancel it, from an event loop."""
        return await offload(self.cancel)

    async def aexplain(self) -> Explanation:
        """Say why it is where it is, from an event loop."""
        return await offload(self.explain)

    # -- waiting for a result --------------------------------------------------------------------------------

    def _pauses(self, timeout: float | None) -> Generator[float]:
        """Yield how long to wait before each look, growing; raise ResultTimeout when the time is over."""
        if self._keeps is False:
            raise NoResult(f"{self.task} keeps no results: declare it with keep_result=SECONDS", id=self.id)
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        pause = 0.002
        while True:
            yield max(min(pause, deadline - time.monotonic()), 0)
            if time.monotonic() >= deadline:
                # One more look: it may have finished just in time, and a timeout of 0 is a look as well.
                yield 0
                raise ResultTimeout(f"{self} is {self.state()} after {timeout:g} s: it goes on", id=self.id)
            pause = min(pause * 1.5, 0.05)

    def _read_result(self, found: StoredResult) -> R:
        """Return a result as its task declares it, if this program knows the task; else as plain JSON values."""
        task = None if self.task else self._app.tasks.get(found.task)
        read = self._read if task is None else task.signature.decode_result
        return read(found.value)  # type: ignore[no-any-return, arg-type]

    def _look(self) -> StoredResult | None:
        """Return what is stored; None: the job has not finished. Raise the error that says why no result will come."""
        found = self._app.store_inspect.result(self.id)
        match found.state:
            case "done" if found.value is not None:
                return found
            case "dead":
                why = "" if found.error is None else f": {found.error.kind}: {found.error.message}"
                raise JobFailed(f"{self} is dead{why}", id=self.id, error=found.error)
            case "cancelled":
                raise JobCancelled(f"{self} was cancelled", id=self.id)
            case "done" | "gone":
                raise NoResult(f"{self} has finished, and its result is not kept (any more)", id=self.id)
            case _:
                return None

    def __str__(self) -> str:
        return f"{self.task or 'job'} {self.id}"

    def __repr__(self) -> str:
        return f"<JobHandle {self.task} {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


def was_created(there: str | None) -> bool | None:
    """Return what the answer of a push means: None: inserted; the id of a job that prevented it; or "": not known yet."""
    return True if there is None else False if there else None


class LaneHandle:
    """A collector's lane, into which something was enqueued."""

    __slots__ = ("_app", "lane", "queue")

    def __init__(self, app: App, queue: str, lane: str) -> None:
        self._app = app
        self.queue = queue
        self.lane = lane

    def state(self) -> State:
        """Return the lane's state: `dead` if its last payload died, `gone` if the store no longer remembers it."""
        return self._app.inspect.lane_state(self.queue, self.lane)

    def explain(self) -> Explanation:
        """Say why the lane is where it is."""
        return self._app.inspect.explain_lane(self.queue, self.lane)

    def __repr__(self) -> str:
        return f"<LaneHandle {self.queue} {self.lane}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LaneHandle) and (other.queue, other.lane) == (self.queue, self.lane)

    def __hash__(self) -> int:
        return hash((self.queue, self.lane))
