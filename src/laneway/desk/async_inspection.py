"""What `app.ainspect` offers: every method of `app.inspect`, awaited on an event loop, which goes on meanwhile."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec, TypeVar

from laneway.desk.inspection import Inspection
from laneway.desk.offload import offload

__all__ = ["AsyncInspection"]

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(method: Callable[Concatenate[Inspection, P], T]) -> Callable[Concatenate[AsyncInspection, P], Awaitable[T]]:
    async def call(self: AsyncInspection, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await offload(method, self.inspect, *args, **kwargs)

    functools.update_wrapper(call, method)
    return call


class AsyncInspection:
    """Look at jobs, lanes and queues, and act on them, from an event loop."""

    def __init__(self, inspect: Inspection) -> None:
        self.inspect = inspect

    counts = _awaited(Inspection.counts)
    jobs = _awaited(Inspection.jobs)
    count = _awaited(Inspection.count)
    job = _awaited(Inspection.job)
    explain = _awaited(Inspection.explain)
    retry = _awaited(Inspection.retry)
    cancel = _awaited(Inspection.cancel)
    delete = _awaited(Inspection.delete)
    kill = _awaited(Inspection.kill)
    reschedule = _awaited(Inspection.reschedule)
    retry_all = _awaited(Inspection.retry_all)
    cancel_all = _awaited(Inspection.cancel_all)
    delete_all = _awaited(Inspection.delete_all)
    kill_all = _awaited(Inspection.kill_all)
    reschedule_all = _awaited(Inspection.reschedule_all)
    queues = _awaited(Inspection.queues)
    pause = _awaited(Inspection.pause)
    resume = _awaited(Inspection.resume)
    clear = _awaited(Inspection.clear)
    schedules = _awaited(Inspection.schedules)
    set_schedule = _awaited(Inspection.set_schedule)
    drop_schedule = _awaited(Inspection.drop_schedule)
    pause_schedule = _awaited(Inspection.pause_schedule)
    resume_schedule = _awaited(Inspection.resume_schedule)
    run_schedule = _awaited(Inspection.run_schedule)
    workers = _awaited(Inspection.workers)
    quiet = _awaited(Inspection.quiet)
    stop = _awaited(Inspection.stop)
    examine = _awaited(Inspection.examine)
    lanes = _awaited(Inspection.lanes)
    lane = _awaited(Inspection.lane)
    payloads = _awaited(Inspection.payloads)
    run_lane = _awaited(Inspection.run_lane)
    run_lanes = _awaited(Inspection.run_lanes)
    drop_oldest = _awaited(Inspection.drop_oldest)
    drop_lane = _awaited(Inspection.drop_lane)
    explain_lane = _awaited(Inspection.explain_lane)
    lane_state = _awaited(Inspection.lane_state)
