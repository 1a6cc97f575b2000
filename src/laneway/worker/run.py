"""Running: a claim becomes an outcome.

A pipe of small steps over one claim: find the task, read the arguments, go through the middlewares, call, keep the result.
Whatever is raised on the way is judged, and what it means is a value. This is the one place that catches everything: a job's
code may raise anything, and must harm nobody but its own job.

Enters: a `Claim`.  Leaves: a `Settled`.
"""

from __future__ import annotations

import contextvars
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.core.instant import SECOND, micros
from laneway.core.job import Claim, Unit
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.core.retry import Retry
from laneway.desk.collector import is_collector
from laneway.desk.context import Cancel, JobContext, RetryIn, Snooze, check_seconds, running_job
from laneway.desk.hooks import Hooks
from laneway.desk.middleware import aaround, around
from laneway.desk.task import is_task
from laneway.desk.task_base import TaskBase
from laneway.errors import BadArguments, GarbageError, JobCrashed, JobTimeout, UnknownTask
from laneway.kernel import cause_of_death
from laneway.logs import log
from laneway.shield import Limit, TimeIsUp, mend_log
from laneway.worker import collector_run
from laneway.worker.board import ASYNC, IN_THREAD, ISOLATED, Board
from laneway.worker.duties.watchdog import Watchdog
from laneway.worker.freshness import Freshness, clock
from laneway.worker.isolate import IsolatedEnd, Isolation
from laneway.worker.shares.kinds import Kinds

if TYPE_CHECKING:
    import asyncio

__all__ = ["Runner", "judge", "some"]

#: What a run meant, for each unit of its claim.
Meant = tuple[Outcome, ...]

#: A task nobody here knows may be known elsewhere, or soon: a deployment takes a while.
UNKNOWN_FOR = 3600 * SECOND
#: Of short jobs one in so many is measured.
SAMPLE = 64
#: So often a job may take its own process with it, before it is dead.
CRASHES = 3


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


def unknown(claim: Claim) -> Outcome:
    """Decide what to do with a job of a task that is not known here: put it back, for longer each time, for an hour.

    It came at its place and was last put back until its due: both are the store's times, and this machine's clock may be wrong.
    """
    age = max(claim.unit.due - claim.unit.place, 0)
    if age > UNKNOWN_FOR:
        return Dead(ErrorInfo(kind="unknown task", message=f'no worker here knew a task named "{claim.task}" for an hour'))
    return Snoozed(min(max(age, SECOND), 300 * SECOND))


class Ready(msgspec.Struct):
    """A run that can begin."""

    job: JobContext
    task: TaskBase
    policy: Retry


class Runner:
    """Runs claims of an app's tasks."""

    def __init__(
        self, tasks: Mapping[str, TaskBase], hooks: Hooks, flush_notes: Callable[[JobContext], None],
        board: Board | None = None, isolation: Isolation | None = None, freshness: Freshness | None = None,
    ) -> None:  # fmt: skip
        self._tasks = tasks
        self._hooks = hooks
        self._flush_notes = flush_notes
        self._board = board or Board(1)
        self._isolation = isolation
        self.watchdog = Watchdog()
        self.running: dict[int, JobContext] = {}  # by token
        self._freshness = freshness or Freshness()
        self.log_runs = log.isEnabledFor(logging.DEBUG)
        self.kinds: Kinds | None = None  # hears how much of the processor runs use
        self.all_measured = True  # or some of them, where jobs are short
        self._until_measured = 0
        self._home = _forks.depth

    def run(self, claim: Claim) -> Settled:
        """Run a claim in this thread."""
        started = time.time_ns() // 1000
        ready = self._prepare(claim, started)
        if not isinstance(ready, Ready):
            return self._finish(claim, ready, started)
        job, task, policy = ready.job, ready.task, ready.policy
        if task.isolate or claim.lost:
            meant = self._call_specially(job.claim, job, task, policy)
        elif self.kinds is not None and (self.all_measured or self._until_measured <= 0):
            meant = self._call_measured(self.kinds, job, task, policy)
        else:
            # An empty context: what one job sets, the next on this thread does not see.
            self._until_measured -= 1
            meant = contextvars.Context().run(self._call, job, task, policy)
        return self._finish(claim, meant, started)

    def _call_measured(self, kinds: Kinds, job: JobContext, task: TaskBase, policy: Retry) -> Meant:
        """Call, and see how much of the processor that uses."""
        self._until_measured = SAMPLE
        around, cpu, wall = time.process_time(), time.thread_time(), time.perf_counter()
        meant = contextvars.Context().run(self._call, job, task, policy)
        kinds.ran(task.name, time.perf_counter() - wall, time.thread_time() - cpu, time.process_time() - around)
        return meant

    def _call_specially(self, claim: Claim, job: JobContext, task: TaskBase, policy: Retry) -> Meant:
        if claim.lost == "timeout":
            return self._failed(job, policy, JobTimeout(f"{_too_long(task)}; its worker had to be ended"))
        if self._apart(task, claim):
            return self._call_apart(claim, job, task, policy)
        return contextvars.Context().run(self._call, job, task, policy)

    def run_alone(self, claim: Claim) -> Settled:
        """Run the one claim of this process, be its task async or not."""
        task = self._tasks.get(claim.task)
        if task is None or not task.is_async:
            return self.run(claim)
        import asyncio  # noqa: PLC0415 - only where there are async tasks

        return asyncio.run(self.arun(claim))

    async def arun(self, claim: Claim) -> Settled:
        """Run a claim of an async task on this event loop."""
        started = time.time_ns() // 1000
        ready = self._prepare(claim, started, ASYNC)
        meant = await self._acall(ready.job, ready.task, ready.policy) if isinstance(ready, Ready) else ready
        return self._finish(claim, meant, started)

    # -- the steps -------------------------------------------------------------------------------------------

    def _prepare(self, claim: Claim, started: int, place: int = IN_THREAD) -> Ready | Meant:
        """Find the task and read the arguments, or say what it means that this cannot be done."""
        fresh = self._freshness
        if claim.token <= fresh.fence or clock() - fresh.spoken > fresh.limit:
            # Of those before the fence the log has a line.
            level = logging.DEBUG if claim.token <= fresh.fence else logging.WARNING
            log.log(level, "job %s waited too long in this worker, which stood still: it goes back", claim.unit.id)
            return _same(claim, _GO_BACK)
        task = self._tasks.get(claim.task)
        if claim.garbage or task is None:
            return self._strange(claim)
        if claim.collects or not is_task(task):
            return self._prepare_collector(claim, task, started, place)
        try:
            args, kwargs, options = task.signature.open(claim.unit.body)
            policy, headers = _read_options(options, task.retry) if options else (task.retry, _NO_HEADERS)
        except (BadArguments, GarbageError) as error:
            info = ErrorInfo(kind=f"laneway.errors.{type(error).__name__}", message=f"the arguments do not fit: {error}")
            return self._stillborn(claim, Dead(info), error)
        except BaseException as error:  # noqa: BLE001 - a user's codec may raise anything
            return self._stillborn(claim, Dead(self._hooks.describe(error)), error)
        return self._begin(JobContext(claim, args, kwargs, headers, started), task, policy, place)

    def _strange(self, claim: Claim) -> Meant:
        """Say what becomes of a job of which nothing is known here: bytes that are no job die, others may be known elsewhere."""
        if claim.garbage:
            return self._stillborn(claim, Dead(ErrorInfo(kind="garbage", message=claim.garbage)), GarbageError(claim.garbage))
        log.warning('no task named "%s" is known here: job %s is put back', claim.task, claim.unit.id)
        return self._stillborn(claim, unknown(claim))

    def _prepare_collector(self, claim: Claim, task: TaskBase, started: int, place: int) -> Ready | Meant:
        """The same for a collector's lanes."""
        if not is_collector(task) or not claim.collects:
            kinds = ("a task's", "a collector") if is_collector(task) else ("a collector's", "a task")
            message = f"it is {kinds[0]}, and {claim.task} is {kinds[1]} here: was it changed while it waited?"
            return self._stillborn(claim, Dead(ErrorInfo(kind="wrong kind", message=message)))
        read = collector_run.open_run(task, claim)
        for unit in claim.units:
            if (dead := read.spoilt.get(unit.id)) is not None:
                self._lane_died(claim, unit, dead, BadArguments(dead.error.message), ran=False)
        if not read.lanes:
            return collector_run.for_all(claim, (), read.spoilt)
        job = JobContext(read.claim, [read.lanes], {}, _NO_HEADERS, started)
        job.spoilt = read.spoilt
        return self._begin(job, task, task.retry, place)

    def _begin(self, job: JobContext, task: TaskBase, policy: Retry, place: int) -> Ready:
        """Write down that a run begins."""
        claim = job.claim
        if (task.isolate or claim.lost) and place == IN_THREAD and self._apart(task, claim):
            place = ISOLATED
        deadline = 0 if task.timeout is None else time.monotonic_ns() // 1000 + micros(task.timeout)
        job.row = self._board.enter(claim.token, job.started, deadline, place)
        self.running[claim.token] = job
        if self.log_runs:
            log.debug("%s %s starts", job.task, _what(job), extra={"laneway_job": job})
        return Ready(job, task, policy)

    def _stillborn(self, claim: Claim, outcome: Outcome, error: BaseException | None = None) -> Meant:
        """Tell of a job that died before it could run; of a collector's lanes all payloads do."""
        if not isinstance(outcome, Dead):
            return _same(claim, outcome)
        error = error or UnknownTask(outcome.error.message)
        if not claim.collects:
            job = JobContext(claim, [], {}, _NO_HEADERS)
            outcome = self._halting(job, outcome)
            self._died(job, outcome, error, ran=False)
            return (outcome,)
        dead = [msgspec.structs.replace(outcome, payloads=tuple([p.body for p in unit.payloads])) for unit in claim.units]
        for unit, one in zip(claim.units, dead, strict=True):
            self._lane_died(claim, unit, one, error, ran=False)
        return tuple(dead)

    def _call(self, job: JobContext, task: TaskBase, policy: Retry) -> Meant:
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

    def _call_limited(self, job: JobContext, task: TaskBase, seconds: float) -> object:
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

    def _apart(self, task: TaskBase, claim: Claim) -> bool:
        """Say whether a run is to have a process of its own: it is declared so, or it may have taken a worker with it."""
        return (task.isolate or claim.lost == "crash") and self._isolation is not None

    def _call_apart(self, claim: Claim, job: JobContext, task: TaskBase, policy: Retry) -> Meant:
        assert self._isolation is not None  # noqa: S101 - asked before
        if len(claim.units) > 1:
            apart = self._isolation.run(claim, task.timeout, job)
            if apart.outcomes or job.cancelled or apart.killed or apart.code is None:
                return self._ended_apart(apart, job, task, policy) or _same(claim, _GO_BACK)
            # One of them took the process along. Which one shows when each runs alone.
            log.warning(
                "%s %s: %s: each lane runs alone", job.task, _what(job), _ended_with(apart), extra={"laneway_crash": True}
            )
            each = [msgspec.structs.replace(claim, units=(unit,)) for unit in claim.units]
            return tuple([self._lane_apart(one, job, task, policy) for one in each])
        said = ""
        for crashes in range(1, CRASHES + 1):
            apart = self._isolation.run(claim, task.timeout, job)
            meant = self._ended_apart(apart, job, task, policy)
            if meant is not None:
                return meant
            said = _ended_with(apart)
            log.warning("%s %s: %s (%d of %d)", job.task, _what(job), said, crashes, CRASHES, extra={"laneway_crash": True})
        return self._failed(job, _NEVER, JobCrashed(f"{said}, {CRASHES} times"))

    def _lane_apart(self, claim: Claim, job: JobContext, task: TaskBase, policy: Retry) -> Outcome:
        """Run one lane of a collector's run apart."""
        lane = claim.unit.lane or ""
        one = JobContext(claim, [{lane: job.payloads[lane]}], {}, job.headers, job.started)
        one.cancelled = job.cancelled
        return self._call_apart(claim, one, task, policy)[0]

    def _ended_apart(self, apart: IsolatedEnd, job: JobContext, task: TaskBase, policy: Retry) -> Meant | None:
        """Return what the end of an isolated run means; None: it crashed."""
        if apart.outcomes:
            return apart.outcomes
        if job.cancelled:
            return _same(job.claim, _CANCELLED)
        if apart.killed:
            return self._failed(job, policy, JobTimeout(_too_long(task)))
        if apart.code is None:
            return _same(job.claim, _GO_BACK)  # it never began: whoever forks for us is gone
        return None

    async def _acall(self, job: JobContext, task: TaskBase, policy: Retry) -> Meant:
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

    async def _await(self, job: JobContext, task: TaskBase) -> Any:
        if not self._hooks.middlewares and not self._hooks.async_middlewares:
            return await task.function(*job.args, **job.kwargs)
        async with aaround(self._hooks.middlewares, self._hooks.async_middlewares, job):
            return await task.function(*job.args, **job.kwargs)

    def _done(self, job: JobContext, task: TaskBase, result: object) -> Meant:
        if isinstance(result, CoroutineType):
            result.close()
            error = TypeError(f"{job.task} returned a coroutine that nobody runs: declare the task itself with async def")
            return self._failed(job, _NEVER, error)
        if task.keep_result is None:
            return _ONE_DONE if len(job.claim.units) == 1 else _same(job.claim, _DONE)
        try:
            return _same(job.claim, Done(task.app.codecs.encode(result), micros(task.keep_result)))
        except BaseException as error:  # noqa: BLE001 - a user's codec may raise anything
            # Running it again would do its work again: the result alone is at fault.
            described = self._hooks.describe(error)
            message = f"it was done, but its result cannot be kept: {described.message}"
            outcome = self._halting(job, Dead(msgspec.structs.replace(described, message=message)))
            self._died(job, outcome, error)
            return (outcome,)

    def _failed(self, job: JobContext, policy: Retry, error: BaseException) -> Meant:
        self._leave_child(error)
        if job.cancelled and not isinstance(error, Snooze | RetryIn):
            return _same(job.claim, _CANCELLED)
        if job.claim.collects:
            return self._failed_lanes(job, policy, error)
        outcome = judge(policy, job.attempt, error, self._hooks.describe)
        if isinstance(outcome, Retrying):
            log.warning(
                "%s %s failed in attempt %d, again in %.3g s: %s: %s",
                job.task, job.id, job.attempt, outcome.after / SECOND, outcome.error.kind, outcome.error.message,
                extra={"laneway_job": job, "laneway_outcomes": (outcome,)},
            )  # fmt: skip
        elif isinstance(outcome, Dead):
            outcome = self._halting(job, outcome)
            self._died(job, outcome, error)
        return (outcome,)

    def _halting(self, job: JobContext, outcome: Dead) -> Dead:
        """Let a job that dies keep its lane, if its task says so."""
        task = self._tasks.get(job.task)
        return msgspec.structs.replace(outcome, halt=True) if task is not None and task.halt_on_death else outcome

    def _failed_lanes(self, job: JobContext, policy: Retry, error: BaseException) -> Meant:
        """Judge each lane of a collector's run by itself: they have their own attempts, and perhaps their own errors."""
        described: dict[int, ErrorInfo] = {}

        def describe(cause: BaseException) -> ErrorInfo:
            found = described[id(cause)] = described.get(id(cause)) or self._hooks.describe(cause)
            return found

        outcomes: list[Outcome] = []
        for unit, cause in zip(job.claim.units, collector_run.causes(job.claim, error), strict=True):
            outcome = _DONE if cause is None else judge(policy, unit.attempt, cause, describe)
            if isinstance(outcome, Dead) and self._tried_last_only(job):
                outcome = msgspec.structs.replace(outcome, payloads=tuple([payload.body for payload in unit.payloads]))
            outcomes.append(outcome)
            if isinstance(outcome, Dead) and cause is not None:
                self._lane_died(job.claim, unit, outcome, cause)
        failed = [(lane, meant) for lane, meant in zip(job.lanes, outcomes, strict=True) if isinstance(meant, Retrying)]
        if failed:
            info = failed[0][1].error
            log.warning(
                "%s failed in %d of %d lanes (%s), the first: %s: %s",
                job.task, len(failed), len(outcomes), some([lane for lane, _ in failed]), info.kind, info.message,
                extra={"laneway_job": job, "laneway_outcomes": tuple(outcomes)},
            )  # fmt: skip
        return tuple(outcomes)

    def _tried_last_only(self, job: JobContext) -> bool:
        """Say whether the newest payload stood for all of its lane: then they die together, since no older one was tried."""
        task = self._tasks.get(job.task)
        return is_collector(task) and task.last_only

    def _lane_died(self, claim: Claim, unit: Unit, outcome: Dead, error: BaseException, *, ran: bool = True) -> None:
        """Tell of payloads of a collector's lane that give up."""
        task = self._tasks.get(claim.task)
        read = task.payload.unpack if is_collector(task) else msgspec.json.decode
        for job in collector_run.dead_ones(claim, unit, outcome, read, _NO_HEADERS):
            self._died(job, outcome, error, ran=ran)

    def _leave_child(self, error: BaseException | None = None) -> None:
        """End the child of a fork in a job's code: the job is its parent's, and the worker too."""
        if _forks.depth != self._home:
            code = error.code if isinstance(error, SystemExit) else error and 1
            os._exit(code if isinstance(code, int) else code is not None)

    def _died(self, job: JobContext, outcome: Dead, error: BaseException, *, ran: bool = True) -> None:
        """Tell of a death. The exception goes with it, for trackers of errors; if it `ran`, its run has a line on a terminal."""
        extra: dict[str, object] = {"laneway_error": outcome.error}
        exc_info = (type(error), error, error.__traceback__)
        who, why = (job.task, job.id, job.attempt), (outcome.error.kind, outcome.error.message)
        if ran:
            extra |= {"laneway_job": job, "laneway_outcomes": (outcome,)}
            log.error("%s %s is dead after attempt %d: %s: %s", *who, *why, exc_info=exc_info, extra=extra)
        else:
            log.error(
                '%s %s is dead in attempt %d, before it could run: %s: %s. It is kept in queue "%s": laneway jobs show %s',
                *who, *why, job.queue, job.id, exc_info=exc_info, extra=extra,
            )  # fmt: skip
        self._hooks.call("on_death", job, error)

    def _finish(self, claim: Claim, meant: Meant, started: int) -> Settled:
        if _forks.depth != self._home:
            self._leave_child()
        finished = time.time_ns() // 1000
        job = self.running.pop(claim.token, None)
        if job is not None:
            self._board.leave(job.row)
            if meant is not _ONE_DONE:
                meant = self._ended(job, meant)
            if self.log_runs:
                names = " and ".join(dict.fromkeys(outcome.name for outcome in meant))
                extra = {"laneway_job": job, "laneway_outcomes": meant}
                log.debug("%s %s %s in %.3f s", job.task, _what(job), names, (finished - started) / SECOND, extra=extra)
            if job.spoilt:
                meant = collector_run.for_all(claim, meant, job.spoilt)
        return Settled(claim, meant, started, finished)

    def _ended(self, job: JobContext, meant: Meant) -> Meant:
        """Return what a run meant that was not just done."""
        if all(isinstance(outcome, Done) for outcome in meant):
            return meant
        if job.lost:
            # It was told to stop, and may have: if the claim is ours after all, the job is still to be done.
            meant = _same(job.claim, _GO_BACK)
        if job.notes_changed:
            self._flush_notes(job)
        return meant


_DONE = Done()
_ONE_DONE: Meant = (_DONE,)
_GO_BACK = Snoozed(0)
_CANCELLED = Cancelled("cancelled while it ran")
_NEVER = Retry(times=0)
_NO_HEADERS: dict[str, str] = {}


def _same(claim: Claim, outcome: Outcome) -> Meant:
    """Return one outcome for all units of a claim."""
    return (outcome,) * len(claim.units)


def _what(job: JobContext) -> str:
    return f"({some(job.lanes)})" if job.claim.collects else job.id


def some(names: Sequence[str]) -> str:
    """Return some names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _ended_with(apart: IsolatedEnd) -> str:
    return f"the process that ran it alone ended with {cause_of_death(apart.code or 0)}"


def _too_long(task: TaskBase) -> str:
    return f"it ran longer than its timeout of {task.timeout or 0:g} s"


def _timed_out(task: TaskBase, error: BaseException) -> JobTimeout:
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
