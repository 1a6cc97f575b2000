"""A job's handle: what `enqueue` returns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from laneway.core.job import State
from laneway.errors import JobCancelled, JobFailed, NoResult, ResultTimeout, UnknownJob

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.desk.inspection import Explanation

__all__ = ["JobHandle", "LaneHandle"]

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
        self, app: App, id: str, task: str, created: bool,  # noqa: A002 - the glossary's word
        keeps: bool | None, read: Callable[[bytes], Any] = msgspec.json.decode,
    ) -> None:  # fmt: skip
        self._app = app
        self._keeps = keeps  # None: the task is not known here
        self._read = read
        self.id = id
        self.task = task
        #: False: this job, or an equal one (`unique`), was in the store already, and nothing was inserted.
        self.created = created

    def state(self) -> State:
        """Return the job's state; `gone` once it finished too long ago for the store to remember."""
        return self._app.store_inspect.result(self.id).state

    def result(self, timeout: float | None = None) -> R:
        """Wait for the job and return what it returned.

        Raises NoResult at once if the task keeps none, JobFailed if it died, JobCancelled if it was cancelled, and
        ResultTimeout if it has not finished after `timeout` seconds.
        """
        if self._keeps is False:
            raise NoResult(f"{self.task} keeps no results: declare it with keep_result=SECONDS", id=self.id)
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.002
        while True:
            found = self._app.store_inspect.result(self.id)
            match found.state:
                case "done" if found.value is not None:
                    return self._read(found.value)  # type: ignore[no-any-return]
                case "dead":
                    why = "" if found.error is None else f": {found.error.kind}: {found.error.message}"
                    raise JobFailed(f"{self.task} {self.id} is dead{why}", id=self.id, error=found.error)
                case "cancelled":
                    raise JobCancelled(f"{self.task} {self.id} was cancelled", id=self.id)
                case "done" | "gone":
                    raise NoResult(f"{self.task} {self.id} has finished, and its result is not kept (any more)", id=self.id)
                case _:
                    left = float("inf") if deadline is None else deadline - time.monotonic()
                    if left <= 0:
                        raise ResultTimeout(f"{self.task} {self.id} is {found.state} after {timeout:g} s: it goes on", id=self.id)
                    time.sleep(min(pause, left))
                    pause = min(pause * 1.5, 0.05)

    def cancel(self) -> bool:
        """Cancel the job: at once if it waits, at the next beat if it runs. Returns False if there is nothing left to cancel."""
        try:
            return self._app.inspect.cancel(self.id)
        except UnknownJob:
            return False

    def explain(self) -> Explanation:
        """Say why the job is where it is."""
        return self._app.inspect.explain(self.id)

    def __repr__(self) -> str:
        return f"<JobHandle {self.task} {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


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
