"""A job of a pool: a call and the future of its result, in one.

Cancelling a job that has not started takes it out of its queue at once, which makes room for another job.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from laneway.pool.scheduler import Admission, Scheduler, WorkerQueue

__all__ = ["PoolJob"]

T = TypeVar("T")


class PoolJob(Future[T]):
    """What `submit` returns."""

    def __init__(self, scheduler: Scheduler, topic: str | None, function: Callable[..., T], args: Any, kwargs: Any) -> None:
        super().__init__()
        self.topic = topic
        self.row: WorkerQueue | None = None  # the line it has joined
        self.gate: Admission | None = None  # the gate where it waits outside
        self.let_in: Callable[[], object] | None = None  # wakes the caller that waits outside with it
        self._scheduler = scheduler
        self._call: tuple[Callable[..., T], Any, Any] | None = (function, args, kwargs)

    def take(self) -> tuple[Callable[..., T], Any, Any]:
        """Take the call out, once. A reference to the future does not keep the arguments alive."""
        call, self._call = self._call, None
        assert call is not None  # noqa: S101 - only the worker that starts the job calls it
        return call

    def cancel(self) -> bool:
        """Cancel it, unless it runs or has run."""
        if not super().cancel():
            return False
        if self._scheduler.take_out(self):
            self._call = None
            self.set_running_or_notify_cancel()  # for `wait` and `as_completed`, which are notified only then
        return True
