"""Running: a claim becomes an outcome.

A pipe of small steps over one claim: find the task, read the arguments, go through the middlewares, call, keep the result.
Whatever is raised on the way is judged, and what it means is a value. This is the one place that catches everything: a job's
code may raise anything, and must harm nobody but its own job.

Enters: a `Claim`.  Leaves: a `Settled`.  Called by: slots (threads) and seats (the event loop).
"""

from __future__ import annotations

import contextvars
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.board import ASYNC, IN_THREAD, ISOLATED, Board
from laneway.context import Cancel, JobContext, RetryIn, Snooze, check_seconds, running_job
from laneway.errors import BadArguments, GarbageError, JobCrashed, JobTimeout, UnknownTask
from laneway.hooks import Hooks
from laneway.instant import SECOND, micros, now_micros
from laneway.job import Claim
from laneway.kernel import cause_of_death
from laneway.middleware import aaround, around
from laneway.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.retry import Retry
from laneway.shield import Limit, TimeIsUp, mend_log
from laneway.task import Task
from laneway.worker.isolate import Isolation
from laneway.worker.watchdog import Watchdog

if TYPE_CHECKING:
    import asyncio

__all__ = ["Runner", "clock", "judge"]

log = logging.getLogger("laneway")

#: A task nobody here knows may be known elsewhere, or soon: a deployment takes a while.
UNKNOWN_FOR = 3600 * SECOND
#: So often a job may take its own process with it, before it is dead.
CRASHES = 3
#: Seconds that go on while the machine sleeps, where there is such a clock.
clock = functools.partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 1)))


class _Forks:
    """How many forks lie between the program and this process: a job that forks finds out, and the kernel need not be asked."""

    depth = 0

    def one_more(self) -> None:
        self.depth += 1


_forks = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forks.one_more)


def judge(
    policy: Retry, attempt: int, error: BaseException, describe: Callable[[BaseException], ErrorInfo] = ErrorInfo.of
) -> Outcome:
    """Decide what a failed run means."""
    try:
        if isinstance(error, Snooze):
            return Snoozed(micros(check_seconds("Snooze", error.seconds)))
        if isinstance(error, Cancel):
            return Cancelled(error.reason)
        if isinstance(error, RetryIn) and attempt <= policy.times:
            return Retrying(micros(check_seconds("RetryIn", error.seconds)), describe(error))
        if isinstance(error, RetryIn) or not policy.allows(attempt, error):
            return Dead(describe(error))
        return Retrying(micros(policy.delay(attempt - 1)), describe(error))
    except BaseException as trouble:  # noqa: BLE001 - a user's backoff function may raise anything, and a user's Snooze hold anything
        return Dead(ErrorInfo.of(trouble))


def unknown(claim: Claim, now: int) -> Outcome:
    """Decide what to do with a job of a task that is not known here: put it back, for longer each time, for an hour."""
    age = max(now - claim.place, 0)
    if age > UNKNOWN_FOR:
        return Dead(ErrorInfo(kind="unknown task", message=f'no worker here knew a task named "{claim.job.task}" for an hour'))
    return Snoozed(min(max(age, SECOND), 300 * SECOND))


class Runner:
    """Runs claims of an app's tasks."""

    def __init__(
        self, tasks: Mapping[str, Task[..., Any, Any]], hooks: Hooks, flush_notes: Callable[[JobContext], None],
        board: Board | None = None, isolation: Isolation | None = None,
    ) -> None:  # fmt: skip
        self._tasks = tasks
        self._hooks = hooks
        self._flush_notes = flush_notes
        self._board = board or Board(1)
        self._isolation = isolation
        self.watchdog = Watchdog()
        self.running: dict[int, JobContext] = {}  # by token
        # A process that was frozen may have lost its claims meanwhile: what has not started then does not start any more.
        self.alive = clock()  # when the worker last spoke with the store
        self.fresh_for = float("inf")  # so long after that its claims are surely its own, seconds
        self.fence = 0  # claims up to this token are not
        self.log_runs = log.isEnabledFor(logging.DEBUG)
        self._home = _forks.depth

    def run(self, claim: Claim) -> Settled:
        """Run a claim in this thread."""
        started = time.time_ns() // 1000
        outcome = self._prepare(claim, started)
        if isinstance(outcome, tuple):
            job, task, policy = outcome
            if task.isolate or claim.lost:
                outcome = self._call_specially(claim, job, task, policy)
            else:
                # An empty context: what one job sets, the next on this thread does not see.
                outcome = contextvars.Context().run(self._call, job, task, policy)
        return self._finish(claim, outcome, started)

    def _call_specially(self, claim: Claim, job: JobContext, task: Task[..., Any, Any], policy: Retry) -> Outcome:
        if claim.lost == "timeout":
            return self._failed(job, policy, JobTimeout(f"{_too_long(task)}; its worker had to be ended"))
        if self._apart(task, claim):
            return self._call_apart(claim, job, task, policy)
        return contextvars.Context().run(self._call, job, task, policy)

    def run_alone(self, claim: Claim) -> Settled:
        """Run the one claim of this process, be its task async or not."""
        task = self._tasks.get(claim.job.task)
        if task is None or not task.is_async:
            return self.run(claim)
        import asyncio  # noqa: PLC0415 - only where there are async tasks

        return asyncio.run(self.arun(claim))

    async def arun(self, claim: Claim) -> Settled:
        """Run a claim of an async task on this event loop."""
        started = time.time_ns() // 1000
        outcome = self._prepare(claim, started, ASYNC)
        if isinstance(outcome, tuple):
            outcome = await self._acall(*outcome)
        return self._finish(claim, outcome, started)

    # -- the steps -------------------------------------------------------------------------------------------

    def _prepare(
        self, claim: Claim, started: int, place: int = IN_THREAD
    ) -> Outcome | tuple[JobContext, Task[..., Any, Any], Retry]:
        """Find the task and read the arguments, or say what it means that this cannot be done."""
        if claim.token <= self.fence or clock() - self.alive > self.fresh_for:
            log.warning("job %s waited too long in this worker, which stood still: it goes back", claim.job.id)
            return _GO_BACK
        task = self._tasks.get(claim.job.task)
        if task is None:
            log.warning('no task named "%s" is known here: job %s is put back', claim.job.task, claim.job.id)
            return self._stillborn(claim, unknown(claim, now_micros()))
        try:
            args, kwargs, options = task.signature.open(claim.job.body)
            policy, headers = _read_options(options, task.retry) if options else (task.retry, _NO_HEADERS)
        except (BadArguments, GarbageError) as error:
            info = ErrorInfo(kind=f"laneway.errors.{type(error).__name__}", message=f"the arguments do not fit: {error}")
            return self._stillborn(claim, Dead(info), error)
        except BaseException as error:  # noqa: BLE001 - a user's codec may raise anything
            return self._stillborn(claim, Dead(self._hooks.describe(error)), error)
        job = JobContext(claim, args, kwargs, headers, started)
        if (task.isolate or claim.lost) and place == IN_THREAD and self._apart(task, claim):
            place = ISOLATED
        deadline = 0 if task.timeout is None else time.monotonic_ns() // 1000 + micros(task.timeout)
        job.row = self._board.enter(claim.token, started, deadline, place)
        self.running[claim.token] = job
        if self.log_runs:
            log.debug("%s %s starts", job.task, job.id, extra={"laneway_job": job})
        return job, task, policy

    def _stillborn(self, claim: Claim, outcome: Outcome, error: BaseException | None = None) -> Outcome:
        """Tell of a job that died before it could run."""
        if isinstance(outcome, Dead):
            self._died(JobContext(claim, [], {}, _NO_HEADERS), outcome, error or UnknownTask(outcome.error.message))
        return outcome

    def _call(self, job: JobContext, task: Task[..., Any, Any], policy: Retry) -> Outcome:
        running_job.set(job)
        try:
            if task.timeout is not None:
                result = self._call_limited(job, task, task.timeout)
            elif not self._hooks.middlewares:
                result = task.function(*job.args, **job.kwargs)
            else:
                with around(self._hooks.middlewares, (job,)):
                    result = task.function(*job.args, **job.kwargs)
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of a job's code end that job alone
            return self._failed(job, policy, error)
        return self._done(job, task, result)

    def _call_limited(self, job: JobContext, task: Task[..., Any, Any], seconds: float) -> object:
        """The same for a task with a timeout."""
        limit: Limit | None = None
        try:
            try:
                limit = self.watchdog.begin(seconds)
                with around(self._hooks.middlewares, (job,)):
                    return task.function(*job.args, **job.kwargs)
            finally:
                self._lift(limit)
        except TimeIsUp as error:
            self._lift(limit)  # again: it may have struck while it was lifted
            mend_log()
            raise _timed_out(task, error) from None

    def _lift(self, limit: Limit | None) -> None:
        if limit is not None and _forks.depth == self._home:
            self.watchdog.end(limit)

    def _apart(self, task: Task[..., Any, Any], claim: Claim) -> bool:
        """Say whether a run is to have a process of its own: it is declared so, or it may have taken a worker with it."""
        return (task.isolate or claim.lost == "crash") and self._isolation is not None

    def _call_apart(self, claim: Claim, job: JobContext, task: Task[..., Any, Any], policy: Retry) -> Outcome:
        assert self._isolation is not None  # noqa: S101 - asked before
        said = ""
        for crashes in range(1, CRASHES + 1):
            apart = self._isolation.run(claim, task.timeout, job)
            if apart.outcome is not None:
                return apart.outcome
            if job.cancelled:
                return Cancelled("cancelled while it ran")
            if apart.killed:
                return self._failed(job, policy, JobTimeout(_too_long(task)))
            if apart.code is None:
                return _GO_BACK  # it never began: whoever forks for us is gone
            said = f"the process that ran it alone ended with {cause_of_death(apart.code)}"
            log.warning("%s %s: %s (%d of %d)", job.task, job.id, said, crashes, CRASHES, extra={"laneway_crash": True})
        error = JobCrashed(f"{said}, {CRASHES} times")
        outcome = Dead(self._hooks.describe(error))
        self._died(job, outcome, error)
        return outcome

    async def _acall(self, job: JobContext, task: Task[..., Any, Any], policy: Retry) -> Outcome:
        running_job.set(job)
        limit: asyncio.Timeout | None = None
        try:
            if task.timeout is None:
                result = await self._await(job, task)
            else:
                import asyncio  # noqa: PLC0415 - loaded already: it runs this

                async with asyncio.timeout(task.timeout) as limit:
                    result = await self._await(job, task)
        except BaseException as error:  # noqa: BLE001 - the same; CancelledError too
            is_over = limit is not None and limit.expired() and isinstance(error, TimeoutError)
            return self._failed(job, policy, _timed_out(task, error) if is_over else error)
        return self._done(job, task, result)

    async def _await(self, job: JobContext, task: Task[..., Any, Any]) -> Any:
        if not self._hooks.middlewares and not self._hooks.async_middlewares:
            return await task.function(*job.args, **job.kwargs)
        async with aaround(self._hooks.middlewares, self._hooks.async_middlewares, job):
            return await task.function(*job.args, **job.kwargs)

    def _done(self, job: JobContext, task: Task[..., Any, Any], result: object) -> Outcome:
        if isinstance(result, CoroutineType):
            result.close()
            error = TypeError(f"{job.task} returned a coroutine that nobody runs: declare the task itself with async def")
            return self._failed(job, _NEVER, error)
        if task.keep_result is None:
            return _DONE
        try:
            return Done(task.app.codecs.encode(result), micros(task.keep_result))
        except BaseException as error:  # noqa: BLE001 - a user's codec may raise anything
            # Running it again would do its work again: the result alone is at fault.
            described = self._hooks.describe(error)
            message = f"it was done, but its result cannot be kept: {described.message}"
            outcome = Dead(msgspec.structs.replace(described, message=message))
            self._died(job, outcome, error)
            return outcome

    def _failed(self, job: JobContext, policy: Retry, error: BaseException) -> Outcome:
        self._leave_child(error)
        if job.cancelled and not isinstance(error, Snooze | RetryIn):
            return Cancelled("cancelled while it ran")
        outcome = judge(policy, job.attempt, error, self._hooks.describe)
        if isinstance(outcome, Retrying):
            log.warning(
                "%s %s failed in attempt %d, again in %.0f s: %s: %s",
                job.task, job.id, job.attempt, outcome.after / SECOND, outcome.error.kind, outcome.error.message,
                extra={"laneway_job": job, "laneway_outcome": outcome},
            )  # fmt: skip
        elif isinstance(outcome, Dead):
            self._died(job, outcome, error)
        return outcome

    def _leave_child(self, error: BaseException | None = None) -> None:
        """End the child of a fork in a job's code: the job is its parent's, and the worker too."""
        if _forks.depth != self._home:
            code = error.code if isinstance(error, SystemExit) else error and 1
            os._exit(code if isinstance(code, int) else code is not None)

    def _died(self, job: JobContext, outcome: Dead, error: BaseException) -> None:
        log.error(
            "%s %s is dead after attempt %d: %s: %s\n%s",
            job.task, job.id, job.attempt, outcome.error.kind, outcome.error.message, outcome.error.traceback.rstrip(),
            extra={"laneway_job": job, "laneway_outcome": outcome},
        )  # fmt: skip
        self._hooks.call("on_death", job, error)

    def _finish(self, claim: Claim, outcome: Outcome, started: int) -> Settled:
        self._leave_child()
        finished = time.time_ns() // 1000
        job = self.running.pop(claim.token, None)
        if job is not None:
            self._board.leave(job.row)
            if job.notes_changed and not isinstance(outcome, Done):
                self._flush_notes(job)
            if self.log_runs:
                seconds = (finished - started) / SECOND
                log.debug(
                    "%s %s %s in %.3f s",
                    job.task,
                    job.id,
                    outcome.name,
                    seconds,
                    extra={"laneway_job": job, "laneway_outcome": outcome},
                )
        return Settled(claim, outcome, started, finished)


_DONE = Done()
_GO_BACK = Snoozed(0)
_NEVER = Retry(times=0)
_NO_HEADERS: dict[str, str] = {}


def _too_long(task: Task[..., Any, Any]) -> str:
    return f"it ran longer than its timeout of {task.timeout or 0:g} s"


def _timed_out(task: Task[..., Any, Any], error: BaseException) -> JobTimeout:
    """Return the timeout as the error of the run, with the place where it struck."""
    return JobTimeout(_too_long(task)).with_traceback(error.__traceback__)


def _read_options(options: dict[str, Any], policy: Retry) -> tuple[Retry, dict[str, str]]:
    """Return the policy and the headers that travelled with a job."""
    try:
        if "retry" in options:
            times, backoff = options["retry"]
            policy = Retry(
                times=times, backoff=policy.backoff if backoff is None else backoff, on=policy.on, give_up_on=policy.give_up_on
            )
        return policy, {str(name): str(value) for name, value in options.get("headers", {}).items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise GarbageError(f"the options of this job cannot be read: {error}") from None
