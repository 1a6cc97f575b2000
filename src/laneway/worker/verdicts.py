"""Verdicts: the outcomes of runs that were done, failed, or could not begin.

Each unit of a claim has an outcome. Failed runs and deaths are events too: a verdict has them, and they are sent when it is
final.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import NamedTuple

import msgspec

from laneway.core.instant import SECOND, micros
from laneway.core.job import Claim, Unit
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Snoozed
from laneway.core.retry import Retry
from laneway.desk.collector import is_collector
from laneway.desk.context import Cancel, JobContext, RetryIn, Snooze, check_seconds
from laneway.desk.hooks import Hooks
from laneway.desk.task_base import TaskBase
from laneway.errors import BadArguments, ClaimLost, GarbageError, JobTimeout, UnknownTask
from laneway.events import Death, Event, RunFailed
from laneway.logs import log
from laneway.worker import collector_run

__all__ = [
    "CANCELLED", "GO_BACK", "NEVER_AGAIN", "NO_HEADERS", "ONE_DONE", "Meant", "Verdict", "Verdicts", "for_each", "judge",
    "timed_out", "too_long", "unknown",
]  # fmt: skip

#: The outcomes of a run, for each unit of its claim.
Meant = tuple[Outcome, ...]

#: How long a job of an unknown task is put back: another worker may know the task, or a deployment may bring it.
UNKNOWN_FOR = 3600 * SECOND


class Verdict(NamedTuple):
    """The outcomes of a run, and the events to send for it."""

    meant: Meant
    events: tuple[Event, ...] = ()


DONE = Done()
ONE_DONE: Meant = (DONE,)
_JUST_DONE = Verdict(ONE_DONE)
GO_BACK = Snoozed(0)
CANCELLED = Cancelled("cancelled while it ran")
NEVER_AGAIN = Retry(times=0)
NO_HEADERS: dict[str, str] = {}


def judge(
    policy: Retry, attempt: int, error: BaseException, describe: Callable[[BaseException], ErrorInfo] = ErrorInfo.of
) -> Outcome:
    """Return the outcome of a failed run."""
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
    """Return the outcome of a job of a task that is not known here: put it back, for longer each time, for an hour.

    The job's age is its due time minus its place. Both are the store's times: this machine's clock may be wrong.
    """
    age = max(claim.unit.due - claim.unit.place, 0)
    if age > UNKNOWN_FOR:
        return Dead(ErrorInfo(kind="unknown task", message=f'no worker here knew a task named "{claim.task}" for an hour'))
    return Snoozed(min(max(age, SECOND), 300 * SECOND))


def too_long(task: TaskBase) -> str:
    """Return the error message for a run that exceeded its timeout."""
    return f"it ran longer than its timeout of {task.timeout or 0:g} s"


def timed_out(task: TaskBase, error: BaseException) -> JobTimeout:
    """Return a timeout as the error of the run, with the line that it interrupted."""
    return JobTimeout(too_long(task)).with_traceback(error.__traceback__)


def for_each(claim: Claim, outcome: Outcome) -> Meant:
    """Return one outcome for all units of a claim."""
    return (outcome,) * len(claim.units)


class Verdicts:
    """Judges the runs of an app's tasks."""

    def __init__(self, tasks: Mapping[str, TaskBase], hooks: Hooks) -> None:
        self._tasks = tasks
        self._hooks = hooks

    def done(self, job: JobContext, task: TaskBase, result: object) -> Verdict:
        """Return the outcomes of a run that returned a result."""
        if isinstance(result, CoroutineType):
            result.close()
            error = TypeError(f"{job.task} returned a coroutine, which was not awaited: declare the task itself with async def")
            return self.failed(job, NEVER_AGAIN, error)
        if task.keep_result is None:
            return _JUST_DONE if len(job.claim.units) == 1 else Verdict(for_each(job.claim, DONE))
        if job.marked is not None and task.app.desk.is_tested:
            return Verdict((Done(job.marked.result),))
        try:
            return Verdict(for_each(job.claim, Done(task.app.codecs.encode(result))))
        except BaseException as error:  # noqa: BLE001 - a user's codec may raise anything
            if (verdict := self.finished(job, error)) is not None:
                return verdict
            # No retry: the work was done, only its result cannot be stored.
            described = self._hooks.describe(error)
            message = f"it was done, but its result cannot be kept: {described.message}"
            outcome = self._halting(job, Dead(msgspec.structs.replace(described, message=message)))
            return Verdict((outcome,), (Death(job, outcome, error, ran=True),))

    def failed(self, job: JobContext, policy: Retry, error: BaseException) -> Verdict:
        """Return the outcomes of a run that raised an error."""
        if (verdict := self.finished(job, error)) is not None:
            return verdict
        if job.cancelled and not isinstance(error, Snooze | RetryIn):
            return Verdict(for_each(job.claim, CANCELLED))
        if job.claim.collects:
            return self._failed_lanes(job, policy, error)
        outcome = judge(policy, job.attempt, error, self._hooks.describe)
        if isinstance(outcome, Retrying):
            return Verdict((outcome,), (RunFailed(job, (outcome,), error),))
        if isinstance(outcome, Dead):
            outcome = self._halting(job, outcome)
            return Verdict((outcome,), (Death(job, outcome, error, ran=True),))
        return Verdict((outcome,))

    def finished(self, job: JobContext, error: BaseException) -> Verdict | None:
        """Return the verdict of a failed run if a user's transaction finished its job, or lost the claim; else None."""
        if not job.finishes:
            return None
        from laneway.desk.finish import has_finished  # noqa: PLC0415 - most jobs need none

        if has_finished(job):
            log.warning("job %s: it was finished by a transaction, and its run failed after that", job.id, exc_info=error)
            return Verdict((DONE,))  # not the one for jobs without a record: the store has its result
        if isinstance(error, ClaimLost) and (error.id, error.token) == (job.id, job.token):
            log.warning("job %s: claim was lost (%s) before it could be finished; this run had no effect", job.id, error.reason)
            return Verdict((GO_BACK if error.reason == "taken" else CANCELLED,))
        return None

    def _failed_lanes(self, job: JobContext, policy: Retry, error: BaseException) -> Verdict:
        """Judge each lane of a collector's run by itself: they have their own attempts, and perhaps their own errors."""
        described: dict[int, ErrorInfo] = {}

        def describe(cause: BaseException) -> ErrorInfo:
            found = described[id(cause)] = described.get(id(cause)) or self._hooks.describe(cause)
            return found

        outcomes: list[Outcome] = []
        events: list[Event] = []
        for unit, cause in zip(job.claim.units, collector_run.causes(job.claim, error), strict=True):
            outcome = DONE if cause is None else judge(policy, unit.attempt, cause, describe)
            if isinstance(outcome, Dead) and self._tried_last_only(job):
                outcome = msgspec.structs.replace(outcome, payloads=tuple([payload.body for payload in unit.payloads]))
            outcomes.append(outcome)
            if isinstance(outcome, Dead) and cause is not None:
                events += self.lane_died(job.claim, unit, outcome, cause)
        if any(isinstance(outcome, Retrying) for outcome in outcomes):
            events.append(RunFailed(job, tuple(outcomes), error))
        return Verdict(tuple(outcomes), tuple(events))

    def _tried_last_only(self, job: JobContext) -> bool:
        """Return whether the run got only its lane's newest payload: then all die together, since no older one was tried."""
        task = self._tasks.get(job.task)
        return is_collector(task) and task.last_only

    def unstartable(self, claim: Claim) -> Verdict:
        """Return the outcome of a job of an unknown task: garbage dies, other jobs may be known elsewhere."""
        if claim.garbage:
            return self._never_started(claim, Dead(ErrorInfo(kind="garbage", message=claim.garbage)), GarbageError(claim.garbage))
        log.warning('job %s: put back: this worker knows no task named "%s"', claim.unit.id, claim.task)
        return self._never_started(claim, unknown(claim))

    def unreadable(self, claim: Claim, error: BaseException) -> Verdict:
        """Return the outcome of a job whose arguments cannot be read, or do not fit."""
        if isinstance(error, BadArguments | GarbageError):
            info = ErrorInfo(kind=f"laneway.errors.{type(error).__name__}", message=f"the arguments do not fit: {error}")
            return self._never_started(claim, Dead(info), error)
        return self._never_started(claim, Dead(self._hooks.describe(error)), error)

    def wrong_kind(self, claim: Claim, task: TaskBase) -> Verdict:
        """Return the outcome of a job whose name is a collector's here, or of lanes whose name is a task's."""
        kinds = ("a task's", "a collector") if is_collector(task) else ("a collector's", "a task")
        message = f"it is {kinds[0]}, and {claim.task} is {kinds[1]} here: was it changed while it waited?"
        return self._never_started(claim, Dead(ErrorInfo(kind="wrong kind", message=message)))

    def _never_started(self, claim: Claim, outcome: Outcome, error: BaseException | None = None) -> Verdict:
        """Return the verdict of a claim that could not run. If it dies, all payloads of a collector's lanes die."""
        if not isinstance(outcome, Dead):
            return Verdict(for_each(claim, outcome))
        error = error or UnknownTask(outcome.error.message)
        if not claim.collects:
            job = JobContext(claim, [], {}, NO_HEADERS)
            outcome = self._halting(job, outcome)
            return Verdict((outcome,), (Death(job, outcome, error, ran=False),))
        dead = [msgspec.structs.replace(outcome, payloads=tuple([p.body for p in unit.payloads])) for unit in claim.units]
        pairs = zip(claim.units, dead, strict=True)
        events = [death for unit, one in pairs for death in self.lane_died(claim, unit, one, error, ran=False)]
        return Verdict(tuple(dead), tuple(events))

    def _halting(self, job: JobContext, outcome: Dead) -> Dead:
        """Let a dead job keep its lane, if its task says so."""
        task = self._tasks.get(job.task)
        return msgspec.structs.replace(outcome, halt=True) if task is not None and task.halt_on_death else outcome

    def lane_died(self, claim: Claim, unit: Unit, outcome: Dead, error: BaseException, *, ran: bool = True) -> list[Death]:
        """Return the events of payloads of a collector's lane that die."""
        task = self._tasks.get(claim.task)
        read = task.payload.unpack if is_collector(task) else msgspec.json.decode
        return [Death(job, outcome, error, ran) for job in collector_run.dead_ones(claim, unit, outcome, read, NO_HEADERS)]
