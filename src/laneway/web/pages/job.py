"""A job's page: its state and why, what it was given, what happened to it, and what can be done.

A job that has left the store is shown as far as it is remembered: its last run, and what it returned.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from laneway.core.error_groups import fault_of
from laneway.core.instant import as_datetime
from laneway.core.job import FINISHED
from laneway.core.outcome import ErrorInfo
from laneway.desk.app import App
from laneway.errors import UnknownJob
from laneway.present.actions import RETRY, applicable
from laneway.present.known import declared_tasks, parameter_names
from laneway.present.words import cut, job_type, share_of, summary
from laneway.store.error_history import KILLED, WORKER_LOST
from laneway.store.inspection import JobInfo
from laneway.store.runs import Run
from laneway.web.api import RUNS, job_id
from laneway.web.pages.filters import json_text
from laneway.web.redact import HIDDEN
from laneway.web.request import WebRequest

__all__ = ["BUTTONS", "error_of", "job", "timeline", "trace_lines"]

#: Arguments longer than this, as JSON, are not edited on a page, characters.
EDITABLE = 10_000
#: What explanations advise, and the page has a button for.
BUTTONS = ("replay it with: retry",)

_FILE = re.compile(r'^\s*File "([^"]+)"')
_FOREIGN = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python\d[^/\\]*|laneway[/\\]worker)[/\\]|^<frozen")


def job(ask: WebRequest) -> dict[str, Any]:
    """Show a job."""
    id_ = job_id(ask)
    found = ask.app.inspect.job(id_)
    if found is None:
        return {"gone": True, **_gone(ask, id_)}
    reasons = [one for one in ask.app.inspect.explain(id_).reasons if one not in BUTTONS]
    ended = found.state in FINISHED
    document = ask.site.documents.job(found, reasons, ask.app.store_inspect.result(id_).value if ended else None)
    started = found.started_at if ended else _started(ask.app, found)
    done, total = found.progress or (0.0, 0.0)
    return {
        "gone": False,
        "job": found,
        "kind": job_type(found),
        "reasons": reasons,
        "arguments": _arguments(ask.app, found, document),
        "readable": document["args"] is not None,
        "edit": _edit(ask.app, found, document),
        "timeline": timeline(found, started),
        "errors": [error_of(error) for error in reversed(found.errors)],
        "group": fault_of(found.errors[-1], found.id, found.task, found.queue).id if found.errors else None,
        "progress": {"done": done, "total": total, "share": share_of(done, total)} if total > 0 else None,
        "log": found.log,
        "verbs": applicable(found.state),
        "has_result": "result" in document,
        "result": document.get("result"),
    }


def _gone(ask: WebRequest, id_: str) -> dict[str, Any]:
    """Return what is remembered of a job that has left the store."""
    runs = [run for run in ask.app.stats.recent(RUNS) if run.id == id_]
    kept = ask.app.store_inspect.result(id_)
    if not runs and kept.state == "gone":
        raise UnknownJob(f'no job "{id_}" is in the store: it has finished too long ago to be remembered, or never was')
    document = ask.site.documents.run(runs[0], kept.value) if runs else {}
    return {
        "id": id_, "state": runs[0].outcome if runs else kept.state, "last": runs[0] if runs else None,
        "has_result": "result" in document, "result": document.get("result"), "timeline": _ran(runs),
    }  # fmt: skip


# -- what it was given -------------------------------------------------------------------------------------------


def _arguments(app: App, job: JobInfo, document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the arguments with their names, without secrets."""
    names = ["payload"] if job.score is not None else parameter_names(app, job.task)
    placed = [
        {"name": names[place] if place < len(names) else f"#{place + 1}", "value": value}
        for place, value in enumerate(document["args"] or [])
    ]
    kwargs: dict[str, Any] = document["kwargs"] or {}
    return [*placed, *({"name": name, "value": value} for name, value in kwargs.items())]


def _edit(app: App, job: JobInfo, document: dict[str, Any]) -> dict[str, Any] | None:
    """Return what can be edited before it is tried again; None: nothing can."""
    if job_type(job) != "job" or document["args"] is None or job.task not in declared_tasks(app):
        return None
    args, kwargs = document["args"], document["kwargs"]
    if max(len(json_text(args)), len(json_text(kwargs))) > EDITABLE:
        return None
    return {"args": args, "kwargs": kwargs, "hides": HIDDEN in str((args, kwargs)), "replaces": job.state in RETRY.states}


# -- what happened -----------------------------------------------------------------------------------------------


def timeline(job: JobInfo, started: datetime | None) -> list[dict[str, Any]]:
    """Return what happened to a job, the oldest first; the last entry is its state now."""
    events = [_event("enqueued", job.enqueued_at)]
    if (job.place_at - job.enqueued_at).total_seconds() >= 1 and job.attempt == 0 and job.state != "scheduled":
        events.append(_event("became due", job.place_at))
    lost = job.attempt - len(job.errors)
    if lost > 0 and job.errors and job.errors[0].attempt > 1:
        events.append(_event(f"{job.errors[0].attempt - 1} earlier attempts", None, "only the last ten errors are kept"))
    for error in job.errors:
        at = as_datetime(error.at) if error.at else None
        if error.kind == KILLED.kind:
            events.append(_event(error.message, at, "", "dead"))
        elif error.kind == WORKER_LOST:
            events.append(_event("its worker was lost", at, f"{error.message}; no attempt counts"))
        else:
            name = f"attempt {error.attempt} failed" if error.attempt else "failed"
            events.append(_event(name, at, cut(summary(error), 200), "bad"))
    if job.state in FINISHED and started is not None:
        events.append(_event(f"attempt {max(job.attempt, 1)} began" if job.attempt > 1 else "started", started))
    return [*events, _now(job, started)]


def _now(job: JobInfo, started: datetime | None) -> dict[str, Any]:
    nth = f"attempt {job.attempt + 1}"
    words = {
        "running": f"{nth} runs" if started else "claimed by a worker",
        "retrying": f"{nth} is due",
        "scheduled": "snoozes, is due" if job.holds else "is due",
        "ready": "due, waits for a slot",
        "blocked": "waits for its lane",
        "dead": "gave up",
        "done": "done",
        "cancelled": "cancelled",
    }
    at = {"running": started, "blocked": job.place_at}.get(job.state, job.due_at)
    asked = f"asked to {job.mark}" if job.state == "running" and job.mark else ""
    return _event(words[job.state], at, asked, {"dead": "dead", "done": "good", "cancelled": ""}.get(job.state, "now"))


def _ran(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return what is remembered of runs, the newest first, as a timeline."""
    events = [_event("enqueued", runs[-1].enqueued_at)] if runs else []
    for run in reversed(runs):
        if run.started_at is not None:
            events.append(_event("started", run.started_at))
        tone = {"done": "good", "dead": "dead", "retrying": "bad"}.get(run.outcome, "")
        events.append(_event({"retrying": "failed, to be tried again"}.get(run.outcome, run.outcome), run.finished_at, "", tone))
    return events


def _event(word: str, at: datetime | None, detail: str = "", tone: str = "") -> dict[str, Any]:
    return {"word": word, "at": at, "detail": detail, "tone": tone}


def _started(app: App, job: JobInfo) -> datetime | None:
    """Return since when it runs, if its worker has reported it."""
    if job.worker is None:
        return None
    runs = (run for worker in app.inspect.workers() if worker.id == job.worker for run in worker.jobs)
    return next((run.started_at for run in runs if run.id == job.id), None)


# -- what went wrong ---------------------------------------------------------------------------------------------


def error_of(error: ErrorInfo) -> dict[str, Any]:
    """Return an error for a page."""
    return {
        "kind": error.kind, "message": error.message, "attempt": error.attempt,
        "at": as_datetime(error.at) if error.at else None, "trace": trace_lines(error.traceback),
    }  # fmt: skip


def trace_lines(traceback: str) -> list[dict[str, Any]]:
    """Return a traceback's lines; those of other people's code are marked, and what the user wrote stands out.

    >>> found = trace_lines('  File "/x/site-packages/a.py", line 1\\n    a()\\n  File "/app/b.py", line 2\\n    b()')
    >>> [line["foreign"] for line in found]
    [True, True, False, False]
    """
    lines: list[dict[str, Any]] = []
    foreign = False
    for text in traceback.rstrip().splitlines():
        file = _FILE.match(text)
        if file is not None:
            foreign = _FOREIGN.search(file[1]) is not None
        elif not text.startswith(" "):
            foreign = False
        lines.append({"text": text, "foreign": foreign})
    return lines
