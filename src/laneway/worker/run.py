"""Running: a claim becomes an outcome.

A pipe of small steps over one `Execution`: find the task, read the arguments, go through the middlewares, call. The result or
error is judged (`verdicts`) and becomes an outcome: a job's code may raise anything, and must affect no other job.

Enters: a `Claim`.  Leaves: a `Settled`.
"""

from __future__ import annotations

import contextvars
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from laneway.core.instant import micros
from laneway.core.job import Claim
from laneway.core.outcome import Dead, Done, Outcome, Settled
from laneway.core.retry import Retry, with_stored
from laneway.desk.collector import is_collector
from laneway.desk.context import NO_RESOURCES, JobContext, running_job
from laneway.desk.hooks import Hooks
from laneway.desk.middleware import aaround, around
from laneway.desk.task import is_task
from laneway.desk.task_base import TaskBase
from laneway.errors import BadArguments, GarbageError, JobCrashed, JobTimeout
from laneway.events import Events, RunCrashed, RunEnded, RunStarted
from laneway.logs import log
from laneway.shield import Limit, TimeIsUp, mend_log
from laneway.worker import collector_run
from laneway.worker.board import ASYNC, IN_THREAD, ISOLATED, Board
from laneway.worker.duties.watchdog import Watchdog
from laneway.worker.forks import forks
from laneway.worker.freshness import Freshness, clock
from laneway.worker.isolate import IsolatedEnd, Isolation
from laneway.worker.shares.kinds import Kinds
from laneway.worker.verdicts import (
    CANCELLED,
    GO_BACK,
    NEVER_AGAIN,
    NO_HEADERS,
    ONE_DONE,
    Meant,
    Verdict,
    Verdicts,
    for_each,
    timed_out,
    too_long,
)  # fmt: skip

if TYPE_CHECKING:
    import asyncio

    from laneway.worker.event_loop import LoopThread, OwnLoop

__all__ = ["Execution", "Runner"]

#: One in this many short jobs is measured.
SAMPLE = 64
#: How many crashes of its own process a job may cause before it is dead.
CRASHES = 3


class Execution(msgspec.Struct):
    """One run of a claim, as the steps of the pipe know it."""

    claim: Claim
    started: int  #: microseconds, by this machine's clock
    where: int = IN_THREAD  #: where it runs: see `board`
    job: JobContext = cast("JobContext", None)  #: this and the next two are set when the run begins
    task: TaskBase = cast("TaskBase", None)
    policy: Retry = cast("Retry", None)
    spoilt: dict[str, Dead] = {}  #: units of the claim that take no part in the run, and their outcomes, by id
    meant: Meant = ()  #: an outcome for each unit of the claim, once known
    failure: BaseException | None = None  #: what the task's code raised inside the middlewares,
    expected: Verdict | None = None  #: and what it means if they raise nothing else


class Runner:
    """Runs claims of an app's tasks."""

    def __init__(
        self, tasks: Mapping[str, TaskBase], hooks: Hooks, flush_notes: Callable[[JobContext], None],
        board: Board | None = None, isolation: Isolation | None = None, freshness: Freshness | None = None,
        events: Events | None = None, resources: Mapping[str, Any] = NO_RESOURCES,
    ) -> None:  # fmt: skip
        self._tasks = tasks
        self._hooks = hooks
        self._events = events or hooks.events
        self._heard = self._events.heard
        self._verdicts = Verdicts(tasks, hooks)
        self._flush_notes = flush_notes
        self._board = board or Board(1)
        self._isolation = isolation
        self._resources = resources
        self.watchdog = Watchdog()
        self.running: dict[int, JobContext] = {}  # by token
        self._freshness = freshness or Freshness()
        self.kinds: Kinds | None = None  # gets the CPU time of runs
        self.all_measured = True  # or some of them, where jobs are short
        self._until_measured = 0
        self._home = forks.depth

    def run(self, claim: Claim) -> Settled:
        """Run a claim in this thread."""
        run = Execution(claim, time.time_ns() // 1000)
        self._prepare(run)
        if not run.meant:
            if run.task.isolate or claim.lost:
                run.meant = self._call_specially(run)
            elif self.kinds is not None and (self.all_measured or self._until_measured <= 0):
                run.meant = self._call_measured(self.kinds, run)
            else:
                # An empty context: a job does not see what the previous one on this thread has set.
                self._until_measured -= 1
                run.meant = contextvars.Context().run(self._call, run)
        return self._finish(run)

    def run_alone(self, claim: Claim, loop: OwnLoop | LoopThread) -> Settled:
        """Run a claim and wait for its end, whether its task is async or not."""
        task = self._tasks.get(claim.task)
        return self.run(claim) if task is None or not task.is_async else loop.wait(self.arun(claim))

    def fail(self, claim: Claim, error: BaseException) -> Settled:
        """Settle a claim whose code could not be called, as if it had raised this error."""
        run = Execution(claim, time.time_ns() // 1000)
        self._prepare(run)
        if not run.meant:
            run.meant = self._failed(run, error)
        return self._finish(run)

    async def arun(self, claim: Claim) -> Settled:
        """Run a claim of an async task on this event loop."""
        run = Execution(claim, time.time_ns() // 1000, ASYNC)
        self._prepare(run)
        if not run.meant:
            run.meant = await self._acall(run)
        return self._finish(run)

    # -- before the call -------------------------------------------------------------------------------------

    def _prepare(self, run: Execution) -> None:
        """Find the task, read the arguments and begin; or set the outcome if that fails."""
        claim, fresh = run.claim, self._freshness
        if claim.token <= fresh.fence or clock() - fresh.spoken > fresh.limit:
            # For claims before the fence the log has a line already.
            level = logging.DEBUG if claim.token <= fresh.fence else logging.WARNING
            why = "the worker was suspended or cut off from its store: the claim goes back without a run"
            log.log(level, "job %s: %s", claim.unit.id, why)
            run.meant = for_each(claim, GO_BACK)
            return
        task, unit = self._tasks.get(claim.task), claim.units[0]
        if claim.garbage or task is None:
            run.meant = self._send_events(self._verdicts.unstartable(claim))
        elif unit.payloads or not is_task(task):
            self._prepare_collector(run, task)
        else:
            try:
                args, kwargs, options = task.signature.open(unit.body)
                policy, headers = _read_options(options, task.retry) if options else (task.retry, NO_HEADERS)
            except BaseException as error:  # noqa: BLE001 - a user's codec may raise anything
                run.meant = self._send_events(self._verdicts.unreadable(claim, error))
                return
            self._begin(run, JobContext(claim, args, kwargs, headers, run.started, self._resources), task, policy)

    def _prepare_collector(self, run: Execution, task: TaskBase) -> None:
        """Prepare a run of a collector's lanes."""
        claim = run.claim
        if not is_collector(task) or not claim.collects:
            run.meant = self._send_events(self._verdicts.wrong_kind(claim, task))
            return
        read = collector_run.open_run(task, claim)
        for unit in claim.units:
            if (dead := read.spoilt.get(unit.id)) is not None:
                died = self._verdicts.lane_died(claim, unit, dead, BadArguments(dead.error.message), ran=False)
                self._send_events(Verdict((), tuple(died)))
        if not read.lanes:
            run.meant = collector_run.for_all(claim, (), read.spoilt)
            return
        run.spoilt = read.spoilt
        job = JobContext(read.claim, [read.lanes], {}, NO_HEADERS, run.started, self._resources)
        self._begin(run, job, task, task.retry)

    def _begin(self, run: Execution, job: JobContext, task: TaskBase, policy: Retry) -> None:
        """Register the start of a run."""
        run.job, run.task, run.policy, job.declared = job, task, policy, task
        claim = job.claim
        if (task.isolate or claim.lost) and run.where == IN_THREAD and self._is_isolated(run):
            run.where, job.finishes = ISOLATED, not claim.collects  # the worker cannot see whether that process calls `finish`
        deadline = 0 if task.timeout is None else time.monotonic_ns() // 1000 + micros(task.timeout)
        job.row = self._board.enter(claim.token, job.started, deadline, run.where)
        self.running[claim.token] = job
        if RunStarted in self._heard:
            self._events.tell(RunStarted(job))

    # -- the call --------------------------------------------------------------------------------------------

    def _call(self, run: Execution) -> Meant:
        job, task = run.job, run.task
        running_job.set(job)
        try:
            if task.timeout is not None:
                verdict = self._call_limited(run, task.timeout)
            elif not self._hooks.middlewares:
                verdict = self._verdicts.done(job, task, task.function(*job.args, **job.kwargs))
            else:
                verdict = self._call_inside(run)
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of a job's code end that job alone
            return self._failed(run, error)
        return self._send_events(verdict) if verdict.events else verdict.meant

    def _call_inside(self, run: Execution) -> Verdict:
        """Call a task inside the middlewares, which see the outcome behind their `yield`."""
        job, task = run.job, run.task
        with around(self._hooks.middlewares, (job,)):
            try:
                return self._expect(run, self._verdicts.done(job, task, task.function(*job.args, **job.kwargs)))
            except BaseException as error:
                self._expect_failure(run, timed_out(task, error) if isinstance(error, TimeIsUp) else error)
                raise

    def _expect(self, run: Execution, verdict: Verdict, failure: BaseException | None = None) -> Verdict:
        """Show a verdict to the middlewares; it counts unless they raise another error."""
        run.failure, run.expected, run.job.outcomes = failure, verdict, verdict.meant
        return verdict

    def _expect_failure(self, run: Execution, error: BaseException) -> None:
        self._expect(run, self._verdicts.failed(run.job, run.policy, error), error)

    def _send_events(self, verdict: Verdict) -> Meant:
        """Send the events of a verdict."""
        for event in verdict.events:
            self._events.tell(event)
        return verdict.meant

    def _call_measured(self, kinds: Kinds, run: Execution) -> Meant:
        """Call, and measure the CPU time."""
        self._until_measured = SAMPLE
        around, cpu, wall = time.process_time(), time.thread_time(), time.perf_counter()
        meant = contextvars.Context().run(self._call, run)
        kinds.ran(run.task.name, time.perf_counter() - wall, time.thread_time() - cpu, time.process_time() - around)
        return meant

    def _call_specially(self, run: Execution) -> Meant:
        if run.job.claim.lost == "timeout":
            return self._failed(run, JobTimeout(f"{too_long(run.task)}; its worker had to be ended"))
        if run.where == ISOLATED:
            return self._call_isolated(run)
        return contextvars.Context().run(self._call, run)

    def _call_limited(self, run: Execution, seconds: float) -> Verdict:
        """Call a task with a timeout."""
        limit = Limit()
        try:
            try:
                self.watchdog.begin(limit, seconds)
                return self._call_inside(run)
            finally:
                self._lift(limit)
        except TimeIsUp as error:
            self._lift(limit)  # again: the limit may have struck while it was lifted
            mend_log()
            raise timed_out(run.task, error) from None

    def _lift(self, limit: Limit) -> None:
        if forks.depth == self._home:
            self.watchdog.end(limit)

    async def _acall(self, run: Execution) -> Meant:
        job, task = run.job, run.task
        running_job.set(job)
        limit: asyncio.Timeout | None = None
        try:
            if task.timeout is None:
                verdict = await self._await(run)
            else:
                import asyncio  # noqa: PLC0415 - loaded already: it runs this

                async with asyncio.timeout(task.timeout) as limit:
                    verdict = await self._await(run, limit)
        except BaseException as error:  # noqa: BLE001 - as in _call; CancelledError too
            is_over = limit is not None and limit.expired() and isinstance(error, TimeoutError)
            return self._failed(run, timed_out(task, error) if is_over else error)
        return self._send_events(verdict)

    async def _await(self, run: Execution, limit: asyncio.Timeout | None = None) -> Verdict:
        """Await a task inside the middlewares, as `_call_inside`."""
        job, task = run.job, run.task
        if not self._hooks.middlewares and not self._hooks.async_middlewares:
            return self._verdicts.done(job, task, await task.function(*job.args, **job.kwargs))
        async with aaround(self._hooks.middlewares, self._hooks.async_middlewares, job):
            try:
                return self._expect(run, self._verdicts.done(job, task, await task.function(*job.args, **job.kwargs)))
            except BaseException as error:
                is_over = limit is not None and limit.expired()
                self._expect_failure(run, timed_out(task, error) if is_over else error)
                raise

    def _failed(self, run: Execution, error: BaseException) -> Meant:
        self._leave_child(error)
        verdict = run.expected if run.failure is error else None
        run.failure = None  # its traceback refers to the run
        return self._send_events(verdict or self._verdicts.failed(run.job, run.policy, error))

    # -- in a process of its own -----------------------------------------------------------------------------

    def _is_isolated(self, run: Execution) -> bool:
        """Return whether a run needs a process of its own: it is declared so, or an earlier claim may have crashed a worker."""
        return (run.task.isolate or run.job.claim.lost == "crash") and self._isolation is not None

    def _call_isolated(self, run: Execution) -> Meant:
        assert self._isolation is not None  # noqa: S101 - checked before
        job, claim = run.job, run.job.claim
        if len(claim.units) > 1:
            end = self._isolation.run(claim, run.task.timeout, job)
            if end.outcomes or job.cancelled or end.killed or end.code is None:
                return self._ended_isolated(end, run) or for_each(claim, GO_BACK)
            # One of the lanes crashed the process. Running each alone shows which.
            self._events.tell(RunCrashed(job, f"{end.said}: each lane runs alone"))
            each = [msgspec.structs.replace(claim, units=(unit,)) for unit in claim.units]
            return tuple([self._lane_isolated(one, run) for one in each])
        said = ""
        for crashes in range(1, CRASHES + 1):
            end = self._isolation.run(claim, run.task.timeout, job)
            meant = self._ended_isolated(end, run)
            if meant is not None:
                return meant
            said = end.said
            self._events.tell(RunCrashed(job, f"{said} ({crashes} of {CRASHES})"))
        return self._send_events(self._verdicts.failed(job, NEVER_AGAIN, JobCrashed(f"{said}, {CRASHES} times")))

    def _lane_isolated(self, claim: Claim, run: Execution) -> Outcome:
        """Run one lane of a collector's run in a process of its own."""
        job, lane = run.job, claim.unit.lane or ""
        one = JobContext(claim, [{lane: job.payloads[lane]}], {}, job.headers, job.started)
        one.cancelled = job.cancelled
        return self._call_isolated(Execution(claim, run.started, ISOLATED, one, run.task, run.policy))[0]

    def _ended_isolated(self, end: IsolatedEnd, run: Execution) -> Meant | None:
        """Return the outcomes of an isolated run; None: it crashed."""
        if end.outcomes:
            return end.outcomes
        if run.job.cancelled:
            return for_each(run.job.claim, CANCELLED)
        if end.killed:
            return self._failed(run, JobTimeout(too_long(run.task)))
        if end.code is None:
            return for_each(run.job.claim, GO_BACK)  # it never began: the forker is gone
        verdict = self._verdicts.finished(run.job, JobCrashed(end.said))
        return None if verdict is None else self._send_events(verdict)

    # -- after the call --------------------------------------------------------------------------------------

    def _leave_child(self, error: BaseException | None = None) -> None:
        """End the child of a fork in a job's code: the job and the worker belong to the parent."""
        if forks.depth != self._home:
            code = error.code if isinstance(error, SystemExit) else error and 1
            os._exit(code if isinstance(code, int) else code is not None)

    def _finish(self, run: Execution) -> Settled:
        if forks.depth != self._home:
            self._leave_child()
        claim, meant, finished, keep, finishes = run.claim, run.meant, time.time_ns() // 1000, 0, False
        job = self.running.pop(claim.token, None)
        if job is not None:
            self._board.leave(job.row)
            finishes = job.finishes
            if meant is not ONE_DONE:
                meant = self._ended(job, meant)
                keep = micros(run.task.keep_result or 0)
            if RunEnded in self._heard:
                self._events.tell(RunEnded(job, meant, run.started, finished))
            if run.spoilt:
                meant = collector_run.for_all(claim, meant, run.spoilt)
        return Settled(claim, meant, run.started, finished, keep, finishes)

    def _ended(self, job: JobContext, meant: Meant) -> Meant:
        """Return the outcomes of a run that was not just done."""
        if all(isinstance(outcome, Done) for outcome in meant):
            return meant
        if job.claim_may_be_lost:
            # The run was told to stop, and may have: if the worker still holds the claim, the job is still to be done.
            meant = for_each(job.claim, GO_BACK)
        if job.notes_changed:
            self._flush_notes(job)
        return meant


def _read_options(options: dict[str, Any], policy: Retry) -> tuple[Retry, dict[str, str]]:
    """Return the policy and the headers that travelled with a job."""
    try:
        if "retry" in options:
            policy = with_stored(policy, options["retry"])
        return policy, {str(name): str(value) for name, value in options.get("headers", {}).items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise GarbageError(f"the options of this job cannot be read: {error}") from None
