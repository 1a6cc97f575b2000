"""What is logged about runs.

Failures and deaths are always logged. The start and the end of a run are logged at level DEBUG.

Enters: events.  Leaves: records of the logger "laneway.runs".
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from laneway.core.instant import SECOND
from laneway.core.outcome import Retrying
from laneway.events import Death, Events, RunCrashed, RunEnded, RunFailed, RunStarted
from laneway.logs import log, runs_log, some

if TYPE_CHECKING:
    from laneway.desk.context import JobContext

__all__ = ["log_failures", "log_runs"]


def log_failures(events: Events) -> None:
    """Log runs that fail or crash, and deaths."""
    events.listen(RunFailed, _failed)
    events.listen(RunCrashed, _crashed)
    events.listen(Death, _died)


def log_runs(events: Events) -> None:
    """Log the start and end of each run too, at level DEBUG."""
    if runs_log.isEnabledFor(logging.DEBUG):
        events.listen(RunStarted, _started)
        events.listen(RunEnded, _ended)


def _what(job: JobContext) -> str:
    return f"({some(job.lanes)})" if job.claim.collects else job.id


def _fields(job: JobContext, **more: object) -> dict[str, dict[str, object]]:
    """Return what is known of a job, for programs that read the log."""
    where = {"lanes": list(job.lanes)} if job.claim.collects else {"lane": job.lane}
    known = {"job_id": job.id, "task": job.task, "queue": job.queue, **where, "attempt": job.attempt}
    return {"laneway_fields": {**known, **more}}


def _started(event: RunStarted) -> None:
    runs_log.debug("%s %s starts", event.job.task, _what(event.job), extra=_fields(event.job))


def _ended(event: RunEnded) -> None:
    names = " and ".join(dict.fromkeys(outcome.name for outcome in event.outcomes))
    seconds = (event.finished - event.started) / SECOND
    extra = _fields(event.job, outcome=names, seconds=seconds)
    runs_log.debug("%s %s %s in %.3f s", event.job.task, _what(event.job), names, seconds, extra=extra)


def _failed(event: RunFailed) -> None:
    job = event.job
    failed = [(lane, one) for lane, one in zip(job.lanes or ("",), event.outcomes, strict=True) if isinstance(one, Retrying)]
    first = failed[0][1]
    error = first.error
    extra = _fields(job, outcome="retrying", again_in=first.after / SECOND, error=error.kind)
    if job.claim.collects:
        runs_log.warning(
            "%s failed in %d of %d lanes (%s), the first: %s: %s",
            job.task, len(failed), len(event.outcomes), some([lane for lane, _ in failed]), error.kind, error.message,
            extra=extra,
        )  # fmt: skip
    else:
        runs_log.warning(
            "%s %s failed in attempt %d, again in %.3g s: %s: %s",
            job.task, job.id, job.attempt, first.after / SECOND, error.kind, error.message, extra=extra,
        )  # fmt: skip


def _crashed(event: RunCrashed) -> None:
    # Logged apart from the run's own line: the run goes on in another process.
    log.warning("%s %s: %s", event.job.task, _what(event.job), event.said, extra=_fields(event.job))


def _died(event: Death) -> None:
    """Log a death. The record carries the exception, for error trackers; the stored text follows below the line."""
    job, error, raised = event.job, event.outcome.error, event.error
    exc_info = (type(raised), raised, raised.__traceback__)
    extra = {"laneway_error": error, **_fields(job, outcome="dead", error=error.kind)}
    who, why = (job.task, job.id, job.attempt), (error.kind, error.message)
    if event.ran:
        runs_log.error("%s %s is dead after attempt %d: %s: %s", *who, *why, exc_info=exc_info, extra=extra)
    else:
        log.error(
            '%s %s is dead in attempt %d, before it could run: %s: %s. It is kept in queue "%s": laneway jobs show %s',
            *who, *why, job.queue, job.id, exc_info=exc_info, extra=extra,
        )  # fmt: skip
