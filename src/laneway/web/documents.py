"""Documents: what the API shows, as plain JSON values, with the names that the command line's --json has.

Jobs, runs, lanes and workers are the command line's own documents; other values are their fields. What may be secret in
arguments, payloads and results is taken out here, where the task is known.

Enters: values of the inspection side.  Leaves: dicts and lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from laneway.desk.app import App
from laneway.desk.inspection import ScheduleInfo
from laneway.present import documents
from laneway.present.actions import waiting
from laneway.present.documents import by_fields, worker_document
from laneway.present.known import parameter_names
from laneway.present.snapshot import Snapshot
from laneway.store.inspection import JobInfo, PayloadInfo, QueueInfo, WorkerStatus
from laneway.store.runs import Run
from laneway.web.health import Health
from laneway.web.redact import HIDDEN, Redactor

__all__ = ["Documents", "figures", "queue", "worker"]


def queue(found: QueueInfo) -> dict[str, Any]:
    """Return a queue."""
    known = {**by_fields(found), "paused_by": found.paused_by or None}
    return {**known, "length": waiting(found.counts), "dead": found.counts["dead"]}


def worker(found: WorkerStatus) -> dict[str, Any]:
    """Return a worker."""
    more = {"busy": found.busy, "uptime": found.uptime, "beat_age": found.beat_age, "tasks": list(found.tasks)}
    return {**worker_document(found), **more}


def figures(seen: Snapshot, health: Health) -> dict[str, Any]:
    """Return a snapshot of a store: length, dead and lag in total and of each queue."""
    workers = seen.workers
    return {
        "length": waiting(seen.counts),
        "dead": seen.counts["dead"],
        "lag": seen.lag,
        "counts": seen.counts,
        "queues": [queue(one) for one in seen.queues],
        "totals": seen.totals,
        "workers": {
            "count": len(workers),
            "slots": sum(one.slots for one in workers),
            "busy": sum(one.busy for one in workers),
            "memory": sum(one.rss for one in workers),
        },
        "health": by_fields(health),
    }


class Documents:
    """Documents with arguments in them, which may be secret."""

    def __init__(self, app: App, redactor: Redactor) -> None:
        self._app = app
        self._redactor = redactor

    def entry(self, job: JobInfo) -> dict[str, Any]:
        """Return a job as an entry of a list."""
        return self._without_secrets(job, documents.job_entry(job))

    def job(self, job: JobInfo, reasons: Sequence[str], result: bytes | None = None) -> dict[str, Any]:
        """Return everything about a job, and what it returned if that is kept."""
        return self._with_result(self._without_secrets(job, documents.job_document(job, reasons)), result)

    def run(self, run: Run, result: bytes | None = None) -> dict[str, Any]:
        """Return a finished run, and what it returned if that is kept."""
        return self._with_result(documents.run_document(run), result)

    def schedule(self, schedule: ScheduleInfo) -> dict[str, Any]:
        """Return a schedule."""
        return self._without_secrets(schedule, documents.schedule_document(schedule))

    def payload(self, found: PayloadInfo) -> dict[str, Any]:
        """Return a payload."""
        document = documents.payload_entry(found)
        return {**document, "payload": self._redactor.value(document["payload"])}

    def safe(self, value: Any) -> Any:
        """Return what a client sent, without secrets."""
        safe = self._redactor.value(value)
        sent = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        args, task = sent.get("args"), sent.get("task")
        if isinstance(args, list) and isinstance(task, str) and (names := parameter_names(self._app, task)):
            safe["args"] = self._redactor.call(cast("list[Any]", args), {}, names)[0]  # a call: its arguments have names
        return safe

    def _with_result(self, document: dict[str, Any], result: bytes | None) -> dict[str, Any]:
        return document if result is None else {**document, "result": self._redactor.value(documents.result_of(result, HIDDEN))}

    def _without_secrets(self, job: JobInfo | ScheduleInfo, document: dict[str, Any]) -> dict[str, Any]:
        names = parameter_names(self._app, job.task)
        document["args"], document["kwargs"] = self._redactor.call(document["args"], document["kwargs"], names)
        return document
