"""Sentry: an event for each death, a transaction for each run, and check-ins of schedules.

A death is reported with the exception itself, so that Sentry groups it by its stack; what the log says about it is not reported
again. The events of a run have its tags and its breadcrumbs, and belong to the trace in which the job was enqueued.

Enters: drafts, jobs and events.  Leaves: events, transactions and check-ins, through the Sentry SDK.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from laneway.contrib.instruments import Guard, add_headers
from laneway.core.instant import SECOND
from laneway.core.outcome import Cancelled, Dead, Done, Retrying
from laneway.desk.app import App
from laneway.desk.context import JobContext, LaneFailures, gravest
from laneway.desk.enqueue import AnyDraft
from laneway.errors import ConfigError
from laneway.events import Death, RunEnded, RunFailed, RunStarted, WorkerStopped

try:
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.scope import (
        Scope,
        add_global_event_processor,
        should_send_default_pii,
        use_isolation_scope,
        use_scope,
    )
    from sentry_sdk.tracing import Span
    from sentry_sdk.tracing_utils import has_tracing_enabled
    from sentry_sdk.utils import event_from_exception
except ModuleNotFoundError as missing:
    raise ConfigError('laneway.contrib.sentry needs the Sentry SDK: pip install "laneway[sentry]"') from missing

if TYPE_CHECKING:
    from sentry_sdk._types import Event, Hint

    from laneway.core.cron import Schedule

__all__ = ["instrument"]

#: How long the end of a worker or an isolated run waits for events to be sent, seconds.
FLUSH = 5.0
#: The header with the monitor of the schedule that fired a job.
MONITOR = "laneway-monitor"
#: Intervals that Sentry knows, microseconds, the longest first.
INTERVALS = {"day": 86400 * SECOND, "hour": 3600 * SECOND, "minute": 60 * SECOND}
#: The status of a transaction, by the outcome of its run.
STATUS = {"done": "ok", "snoozed": "ok", "cancelled": "cancelled", "retrying": "internal_error", "dead": "internal_error"}

_instrumented: weakref.WeakSet[App] = weakref.WeakSet()


def instrument(app: App, *, every_failure: bool = False, monitor_schedules: bool = False) -> None:
    """Report an app's dead jobs to Sentry, and trace its runs. Calling it again has no effect.

    With `every_failure` a failed attempt that is retried is reported too, as a warning. With `monitor_schedules` every schedule
    is a cron monitor, and the runs of its jobs check in.
    """
    if app in _instrumented:
        return
    _instrumented.add(app)
    _drop_log_events()
    guard = Guard("Sentry")
    reports, events = _Reports(guard), app.hooks.events
    app.client_middleware(reports.around_enqueue)
    app.middleware(reports.around_run)
    # Before the log: what it says of the same exception is a duplicate to the SDK, and the first one is kept.
    events.listen(Death, lambda event: guard(reports.died, event), first=True)
    if every_failure:
        events.listen(RunFailed, lambda event: guard(reports.failed, event), first=True)
    events.listen(RunEnded, lambda event: reports.forget(event.job))
    if monitor_schedules:
        monitors = _Monitors(guard, app)
        app.client_middleware(monitors.around_enqueue)
        events.listen(RunStarted, lambda event: guard(monitors.started, event.job))
        events.listen(RunEnded, lambda event: guard(monitors.ended, event))
    # The process of an isolated run ends at once, and sends nothing by itself.
    events.listen(WorkerStopped, lambda _: guard(sentry_sdk.flush, FLUSH))


@functools.cache
def _drop_log_events() -> None:
    add_global_event_processor(_not_twice)


def _not_twice(event: Event, hint: Hint) -> Event | None:
    """Drop what Sentry's logging integration makes of our lines about failures and deaths: those are reported as such."""
    fields = getattr(hint.get("log_record"), "laneway_fields", {})
    return None if "error" in fields else event


# -- errors and transactions -------------------------------------------------------------------------------------


class _Reports:
    """Errors and transactions of runs."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._scopes: dict[int, tuple[Scope, Scope, Span | None]] = {}  # of runs in this process, by token

    def around_enqueue(self, draft: AnyDraft) -> Iterator[None]:
        """Let the trace travel with the job."""
        self._guard(_add_trace, draft)
        yield

    def around_run(self, job: JobContext) -> Iterator[None]:
        """Give a run scopes of its own, and a transaction."""
        stack = contextlib.ExitStack()
        try:
            self._guard(self._enter, job, stack)
            yield
        finally:
            self._guard(stack.close)

    def _enter(self, job: JobContext, stack: contextlib.ExitStack) -> None:
        if not sentry_sdk.get_client().is_active():
            return
        scope = stack.enter_context(sentry_sdk.isolation_scope())
        _describe(scope, job)
        self._scopes[job.token] = (scope, Scope.get_current_scope(), self._begin(job, stack))

    @staticmethod
    def _begin(job: JobContext, stack: contextlib.ExitStack) -> Span | None:
        """Continue the trace in which the job was enqueued; begin a transaction if the SDK traces at all."""
        transaction = sentry_sdk.continue_trace(
            dict(job.headers), op="queue.process", name=job.task, source="task", origin="auto.queue.laneway"
        )
        if not has_tracing_enabled(sentry_sdk.get_client().options):
            return None
        sampling = {"laneway_job": {"task": job.task, "queue": job.queue, "attempt": job.attempt}}
        span = stack.enter_context(sentry_sdk.start_transaction(transaction, custom_sampling_context=sampling))
        due = min([unit.due for unit in job.claim.units])
        for name, value in {
            "messaging.system": "laneway",
            "messaging.destination.name": job.queue,
            "messaging.message.id": job.id,
            "messaging.message.retry.count": job.attempt - 1,
            "messaging.message.receive.latency": max(job.started - due, 0) / 1000,
        }.items():
            span.set_data(name, value)
        stack.callback(_end, span, job)
        return span

    def died(self, event: Death) -> None:
        """Report a death."""
        self._report(event.job, event.error, "error")

    def failed(self, event: RunFailed) -> None:
        """Report a failed attempt; of a collector's run each error once."""
        error, lanes = event.error, event.job.lanes or ("",)
        named: Mapping[str, BaseException] = error.failures if isinstance(error, LaneFailures) else {}
        pairs = zip(lanes, event.outcomes, strict=True)
        errors = [named.get(lane, error) for lane, outcome in pairs if isinstance(outcome, Retrying)]
        for one in {id(one): one for one in errors}.values():
            self._report(event.job, one, "warning")

    def forget(self, job: JobContext) -> None:
        """Forget the scopes of a run that is over."""
        self._scopes.pop(job.token, None)

    def _report(self, job: JobContext, error: BaseException, level: str) -> None:
        client = sentry_sdk.get_client()
        if not client.is_active():
            return
        frames = _own_frames(error.__traceback__)
        event, hint = event_from_exception(
            (type(error), error, frames), client.options, {"type": "laneway", "handled": level == "warning"}
        )
        event["level"] = cast("Any", level)
        if frames is None:  # without a stack: not together with the same error of other tasks
            event["fingerprint"] = ["{{ default }}", job.task]
        known = self._scopes.get(job.token)
        with contextlib.ExitStack() as stack:
            scope = stack.enter_context(use_isolation_scope(known[0]) if known else sentry_sdk.isolation_scope())
            if known:
                stack.enter_context(use_scope(known[1])).span = known[2]  # which the end of the transaction removed
            else:
                sentry_sdk.continue_trace(dict(job.headers))
            _describe(scope, job)  # of a collector's run that is the payload that died
            sentry_sdk.capture_event(event, hint)


def _end(span: Span, job: JobContext) -> None:
    """Set the status of a transaction, before it is finished."""
    outcome = job.outcome
    span.set_status("internal_error" if outcome is None else STATUS[outcome.name])


def _add_trace(draft: AnyDraft) -> None:
    if sentry_sdk.get_client().is_active():
        found = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
        add_headers(draft.headers, {name: value for name, value in found.items() if value})


def _describe(scope: Scope, job: JobContext) -> None:
    """Say in a scope which job runs."""
    for name, value in {"task": job.task, "queue": job.queue, "attempt": job.attempt}.items():
        scope.set_tag(name, value)
    known: dict[str, object] = {"job": job.id, "task": job.task, "queue": job.queue, "attempt": job.attempt}
    if job.lanes:
        known["lane"] = job.lane or list(job.lanes[:10])
    if _may_send_arguments(sentry_sdk.get_client().options):
        known |= {"args": job.args, "kwargs": job.kwargs}
    scope.set_context("laneway", known)


def _may_send_arguments(options: Mapping[str, Any]) -> bool:
    """Return whether the user lets the SDK send a job's arguments: by `data_collection`, or by its old name."""
    collected: Mapping[str, Any] = options.get("data_collection") or {}
    return bool(collected["queues"]) if collected.get("provided_by_user") else should_send_default_pii()


def _own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the task's function on: the frames before it are the worker's, and middlewares'."""
    start = found = traceback
    while found is not None:
        following = found.tb_next
        if found.tb_frame.f_globals.get("__name__") == "laneway.worker.run":
            start = following
        found = following
    return start or traceback


# -- schedules ---------------------------------------------------------------------------------------------------


class _Monitors:
    """Check-ins of the jobs that schedules fire: one for each job, however often it runs."""

    def __init__(self, guard: Guard, app: App) -> None:
        self._guard = guard
        self._app = app

    def around_enqueue(self, draft: AnyDraft) -> Iterator[None]:
        """Let the monitor travel with the job that a schedule fires: a worker that runs it need not know the schedule."""
        if draft.schedule is not None:
            self._guard(self._add_monitor, draft, draft.schedule)
        yield

    def _add_monitor(self, draft: AnyDraft, name: str) -> None:
        schedule = _schedule(self._app, name)
        config = None if schedule is None else _config(schedule, self._app.declared[draft.task].timeout)
        if config is not None:
            draft.headers[MONITOR] = json.dumps({"slug": _slug(name), "config": config})

    def started(self, job: JobContext) -> None:
        """Check in: it runs."""
        self._check_in(job, "in_progress")

    def ended(self, event: RunEnded) -> None:
        """Check in: it is done, or dead. One that runs again is still in progress."""
        seconds = (event.finished - event.started) / SECOND
        outcome = gravest(event.outcomes)
        if isinstance(outcome, Done | Cancelled):
            self._check_in(event.job, "ok", seconds)
        elif isinstance(outcome, Dead):
            self._check_in(event.job, "error", seconds)

    @staticmethod
    def _check_in(job: JobContext, status: str, duration: float | None = None) -> None:
        if MONITOR in job.headers:
            monitor = json.loads(job.headers[MONITOR])
            check_in = hashlib.blake2b(job.id.encode(), digest_size=16).hexdigest()  # the same in every attempt
            capture_checkin(monitor["slug"], check_in, status, duration, monitor["config"])


def _schedule(app: App, name: str) -> Schedule | None:
    """Return a schedule by its name, which is its task's."""
    task = app.tasks.get(name)
    return None if task is None else task.schedule


def _slug(name: str) -> str:
    """Return a name as Sentry takes it for a monitor.

    >>> _slug("shop.Nightly report")
    'shop-nightly-report'
    """
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:50]


def _config(schedule: Schedule, timeout: float | None) -> dict[str, Any] | None:
    """Return a schedule as Sentry knows them; None: it counts seconds, and Sentry's monitors count minutes."""
    config: dict[str, Any] = {"timezone": schedule.timezone}
    if timeout is not None:
        config["max_runtime"] = max(round(timeout / 60), 1)
    if schedule.every:
        unit = next((unit for unit, length in INTERVALS.items() if schedule.every % length == 0), None)
        if unit is None:
            return None
        config["schedule"] = {"type": "interval", "value": schedule.every // INTERVALS[unit], "unit": unit}
    elif len(schedule.expression.split()) == 5:
        config["schedule"] = {"type": "crontab", "value": schedule.expression}
    else:
        return None
    return config
