"""What `app.inspect` offers: the store's inspection side, for users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from laneway.clock import now_micros
from laneway.core.instant import When, as_datetime, parse_when
from laneway.core.job import FINISHED, STATES, State, check_queue
from laneway.core.plain import Plain
from laneway.desk.checks import Work, check_work
from laneway.desk.explain import Around, explain
from laneway.desk.lane_inspection import LaneInspection, check_limit
from laneway.desk.schedule_inspection import ScheduleInfo, ScheduleInspection, this_user
from laneway.errors import ConfigError, SchemaError, StoreCorrupt, UnknownJob, UnknownWorker, did_you_mean
from laneway.settings import Settings
from laneway.store.findings import Finding
from laneway.store.inspection import Counts, Filter, JobInfo, Page, QueueInfo, WorkerStatus

if TYPE_CHECKING:
    from laneway.desk.app import App

__all__ = ["Explanation", "Inspection", "ScheduleInfo"]


class Explanation(Plain, frozen=True):
    """Why a job is where it is."""

    id: str
    state: State
    reasons: list[str]  #: sentences, the most important one first

    def __str__(self) -> str:
        return f"{self.id} is {self.state}: " + "; ".join(self.reasons)


class Inspection(LaneInspection, ScheduleInspection):
    """Look at jobs, lanes and queues, and act on them."""

    def __init__(self, app: App) -> None:
        self._app = app

    # -- jobs ------------------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """Count the jobs in each state: scheduled, ready, retrying, blocked, running, dead."""
        return self._app.store_inspect.counts()

    def jobs(
        self, state: str | None = None, *, queue: str | None = None, task: str | None = None, lane: str | None = None,
        error: str | None = None, failing: bool = False, limit: int = 100, after: str | None = None, newest: bool = False,
        look: int | None = None,
    ) -> Page:  # fmt: skip
        """List jobs, the oldest or the newest first. The next page is `jobs(..., after=page.next)`; a job's id works too.

        `state="done"` and `"cancelled"` list finished jobs, while they are kept: those of tasks with `keep_result`.

        By state and queue jobs are found at once. Other filters examine further jobs: with `look` about that many at most for one
        page, which may then be short, or empty, and yet have a `next`.
        """
        check_limit(limit)
        which = _filter(state, queue, task, lane, error, failing=failing)
        return self._app.store_inspect.jobs(structs.replace(which, look=look), limit, after, newest)

    def count(
        self, state: str | None = None, *, queue: str | None = None, task: str | None = None, lane: str | None = None,
        error: str | None = None, failing: bool = False,
    ) -> int:  # fmt: skip
        """Count the jobs that match."""
        return self._app.store_inspect.count(_filter(state, queue, task, lane, error, failing=failing))

    def job(self, id: str) -> JobInfo | None:  # noqa: A002 - the glossary's word
        """Return a job, or None: it has finished, or never existed.

        A finished job of a task with `keep_result` is there as long as its result, with its attempts, errors, worker and times.
        """
        return self._app.store_inspect.job(id)

    def explain(self, id: str) -> Explanation:  # noqa: A002
        """Say why a job is where it is: behind which job, held by which worker, due when and why, and what keeps it there."""
        store = self._app.store_inspect
        job = store.job(id)
        if job is None:
            return _gone(id, store.result(id).state)
        if job.state in FINISHED:
            return Explanation(id, job.state, explain(job, Around(now=as_datetime(self._app.store.schedules().now))))
        plain = job.lane is not None and job.payloads is None  # a collector's lane has no other holder
        around = Around(
            now=as_datetime(self._app.store.schedules().now),
            queue=next((queue for queue in store.queues() if queue.name == job.queue), None),
            workers=store.workers(),
            holder=store.lane_holder(job.queue, job.lane) if plain and job.lane is not None else None,
            before=store.parked_before(id),
        )
        return Explanation(id, job.state, explain(job, around))

    def retry(self, id: str) -> bool:  # noqa: A002
        """Replay a dead job, or make one that waits for its retry due now. Returns False if it is neither."""
        return self._app.store_inspect.retry(id)

    def cancel(self, id: str) -> bool:  # noqa: A002
        """Cancel a job: at once if it waits, at the next beat if it runs. Returns False if it is dead."""
        return self._app.store_inspect.cancel(id)

    def delete(self, id: str) -> bool:  # noqa: A002
        """Remove a job: at once if it waits, is dead or finished; when its run has ended if it runs."""
        return self._app.store_inspect.delete(id)

    def kill(self, id: str) -> bool:  # noqa: A002
        """Let a job die: at once if it waits, when its run ended without success if it runs. Returns False if it is dead."""
        return self._app.store_inspect.kill(id)

    def reschedule(self, id: str, when: When) -> bool:  # noqa: A002
        """Make a waiting job due at another time: seconds from now, a timedelta, an aware datetime.

        Returns False if it runs or is dead. A job that has never run takes a new place and leaves its lane's line; one that has
        run only moves its due time.
        """
        return self._app.store_inspect.reschedule(id, *_when(when))

    # -- all that match --------------------------------------------------------------------------------------

    def retry_all(self, /, state: str | None = None, **which: Any) -> int:
        """Replay all dead jobs that match, and make waiting retries due now; filters as in `jobs`. Returns the number changed.

        For a collector this includes all waiting lanes, whatever they wait for: give a state to narrow it.
        """
        return self._app.store_inspect.act_all("retry", _filter(state, **which))

    def cancel_all(self, /, state: str | None = None, **which: Any) -> int:
        """Cancel all jobs that match; filters as in `jobs`. Returns the number of jobs changed."""
        return self._app.store_inspect.act_all("cancel", _filter(state, **which))

    def delete_all(self, /, state: str | None = None, **which: Any) -> int:
        """Remove all jobs that match; filters as in `jobs`. Returns the number of jobs changed."""
        return self._app.store_inspect.act_all("delete", _filter(state, **which))

    def kill_all(self, /, state: str | None = None, **which: Any) -> int:
        """Let all jobs that match die; filters as in `jobs`. Returns the number of jobs changed."""
        return self._app.store_inspect.act_all("kill", _filter(state, **which))

    def reschedule_all(self, /, when: When, state: str | None = None, **which: Any) -> int:
        """Make all waiting jobs that match due at another time; filters as in `jobs`. Returns the number of jobs changed."""
        delay, at = _when(when)
        return self._app.store_inspect.act_all("reschedule", _filter(state, **which), delay, at)

    # -- queues ----------------------------------------------------------------------------------------------

    def queues(self) -> list[QueueInfo]:
        """List the queues with their counts."""
        return self._app.store_inspect.queues()

    def pause(self, queue: str, *, by: str | None = None) -> None:
        """Stop claims from a queue, also before its first job. Running jobs go on; jobs can still be enqueued."""
        try:
            check_queue(queue)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._app.store_inspect.pause(queue, paused=True, declared=self._queues(), by=this_user() if by is None else by)

    def resume(self, queue: str) -> None:
        """Let a paused queue go on."""
        self._app.store_inspect.pause(queue, paused=False, declared=self._queues())

    def clear(self, queue: str) -> int:
        """Remove all waiting jobs of a queue. Running and dead jobs stay. Returns the number of jobs removed."""
        return self._app.store_inspect.clear(queue)

    def _queues(self) -> set[str]:
        return {task.queue for task in self._app.declared.values()}

    # -- workers ---------------------------------------------------------------------------------------------

    def workers(self) -> list[WorkerStatus]:
        """List the workers with what they run, by host and pid."""
        return self._app.store_inspect.workers()

    def quiet(self, worker: WorkerStatus | str) -> None:
        """Ask a worker to claim nothing more, from its next beat on. Running jobs go on."""
        self._send_command(worker, "quiet")

    def stop(self, worker: WorkerStatus | str) -> None:
        """Ask a worker to stop, from its next beat on, when its running jobs have ended."""
        self._send_command(worker, "stop")

    def _send_command(self, worker: WorkerStatus | str, command: str) -> None:
        id_ = worker.id if isinstance(worker, WorkerStatus) else worker
        if not self._app.store_inspect.tell(id_, command):
            raise UnknownWorker(f'no worker "{id_}" beats in the store: it has ended, or was taken for dead', id=id_)

    # -- all of it -------------------------------------------------------------------------------------------

    def examine(self, *, deep: bool = False) -> list[Finding]:
        """Examine the store, its settings and its surroundings, and whether jobs get done.

        With `deep` also what takes long: an SQLite file is read as a whole. A store of another version is one finding.
        """
        app = self._app
        store = app.store_inspect
        try:
            findings = store.examine(deep)
        except SchemaError as error:
            return [Finding("layout", "problem", str(error))]
        try:
            work = Work(
                workers=store.workers(), queues=store.queues(), schedules=self.schedules(),
                ahead=app.store.schedules().now - now_micros(), dead_after=app.dead_after, dead_max=app.settings["dead_max"],
                max_lag=Settings().find("health_lag").value,
            )  # fmt: skip
        except StoreCorrupt as error:
            return [*findings, Finding("integrity", "problem", str(error))]
        if app.outbox is not None:
            from laneway.outbox.status import check_outbox  # noqa: PLC0415 - most apps have none

            findings.append(check_outbox(app.outbox))
        return [*findings, *check_work(work)]


def _filter(
    state: str | None = None, queue: str | None = None, task: str | None = None, lane: str | None = None,
    error: str | None = None, ids: tuple[str, ...] | None = None, failing: bool = False,
) -> Filter:  # fmt: skip
    if state is not None and state not in (known := (*STATES, *FINISHED)):
        raise ConfigError(f'no job in the store is "{state}".{did_you_mean(state, known)} States: {", ".join(known)}')
    return Filter(state, queue, task, lane, error, ids, failing)


def _when(when: When) -> tuple[int, int]:
    try:
        return parse_when(when, now_micros())
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _gone(id_: str, state: State) -> Explanation:
    said = {
        "done": "it has finished",
        "cancelled": "it was cancelled, or had expired",
    }
    if state not in said:
        raise UnknownJob(f'no job "{id_}" is in the store: it has finished too long ago to be remembered, or never was', id=id_)
    return Explanation(id_, state, [said[state]])
