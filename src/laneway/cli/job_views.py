"""A job as a document, as a row of a list, and as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from laneway.cli.show import clip, duration
from laneway.cli.table import STATE_COLOURS, Cell, Column, ago, moment

if TYPE_CHECKING:
    from laneway.outcome import ErrorInfo
    from laneway.store.inspect import JobInfo, Run

__all__ = ["COLUMNS", "call", "document", "entry", "page", "row", "run_document", "run_page"]

COLUMNS = [
    Column("id", whole=True),
    Column("state", whole=True),
    Column("task"),
    Column("queue", spare=2),
    Column("lane"),
    Column("attempt", right=True, whole=True, spare=1),
    Column("due", whole=True),
    Column("last error", wish=30),
]


def row(job: JobInfo, queues: int) -> list[str | Cell]:
    """Return a job as a row; where all are of one queue a terminal need not show it."""
    return [
        job.id,
        Cell(job.state, STATE_COLOURS[job.state]),
        job.task,
        job.queue if queues > 1 else Cell(job.queue, "", " "),
        job.lane or "",
        str(job.attempt) if job.attempt else Cell("0", "", " "),
        moment(job.due_at),
        Cell(_summary(job.errors[-1]), "red") if job.errors else "",
    ]


def entry(job: JobInfo) -> dict[str, Any]:
    """Return a job as an entry of a list."""
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "lane": job.lane,
        "priority": job.priority,
        "state": job.state,
        "attempt": job.attempt,
        "args": job.args,
        "kwargs": job.kwargs,
        "enqueued_at": job.enqueued_at.isoformat(),
        "due_at": job.due_at.isoformat(),
        "expires_at": job.expires_at.isoformat() if job.expires_at else None,
        "worker": job.worker,
        "mark": job.mark,
        "progress": list(job.progress) if job.progress else None,
        "error": _summary(job.errors[-1]) if job.errors else None,
    }


def document(job: JobInfo, reasons: Sequence[str]) -> dict[str, Any]:
    """Return everything about a job."""
    from laneway.instant import as_datetime  # noqa: PLC0415 - the help needs none of it

    errors = [
        {
            "attempt": error.attempt, "at": as_datetime(error.at).isoformat() if error.at else None, "kind": error.kind,
            "message": error.message, "traceback": error.traceback,
        }
        for error in job.errors
    ]  # fmt: skip
    known = {name: value for name, value in entry(job).items() if name != "error"}
    return {**known, "unique": job.unique, "holds_lane": job.holds, "log": job.log, "errors": errors, "reasons": list(reasons)}


def call(job: JobInfo) -> str:
    """Return a job's arguments as they would be written."""
    import json  # noqa: PLC0415 - the help needs none of it

    if job.args is None or job.kwargs is None:
        return f"cannot be read: {job.body[:60]!r}"
    shown = [json.dumps(value, ensure_ascii=False) for value in job.args]
    shown += [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in job.kwargs.items()]
    return ", ".join(shown) or "none"


def _summary(error: ErrorInfo) -> str:
    return f"{error.kind}: {' '.join(error.message.split())}"


# -- the page ----------------------------------------------------------------------------------------------------


def page(job: JobInfo, reasons: Sequence[str]) -> list[str]:
    """Return everything about a job as lines."""
    lines = [_title(job.task, job.id, job.state), *(f"  {reason}" for reason in reasons), ""]
    lines += _facts(_about(job))
    if job.errors:
        lines += ["", _head("errors, the newest first")]
        for error in reversed(job.errors):
            lines += _error(error)
    if job.log:
        lines += ["", _head("log"), *(f"  {line}" for line in job.log)]
    return lines


def run_page(run: Run, result: str | None) -> list[str]:
    """Return what is still known of a job that has left the store."""
    took = f"{duration((run.finished - run.started) / 1_000_000)}" if run.started else "it never ran"
    facts = [
        ("queue", run.queue), ("lane", run.lane or ""), ("enqueued", _time(run.enqueued_at)),
        ("started", _time(run.started_at) if run.started_at else ""), ("finished", _time(run.finished_at)), ("took", took),
        ("result", result or ""),
    ]  # fmt: skip
    return [_title(run.task, run.id, run.outcome), "  it has left the store; this is its last run", "", *_facts(facts)]


def run_document(run: Run) -> dict[str, Any]:
    """Return a finished run as a document."""
    return {
        "id": run.id,
        "task": run.task,
        "queue": run.queue,
        "lane": run.lane,
        "outcome": run.outcome,
        "enqueued_at": run.enqueued_at.isoformat(),
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "finished_at": run.finished_at.isoformat(),
    }


def _about(job: JobInfo) -> list[tuple[str, str]]:
    due = {"dead": "died", "running": "was due"}.get(job.state, "due")
    return [
        ("arguments", call(job)),
        ("queue", job.queue),
        ("lane", f"{job.lane}{' (this job holds it)' if job.holds else ''}" if job.lane else ""),
        ("priority", str(job.priority) if job.priority else ""),
        ("enqueued", _time(job.enqueued_at)),
        (due, _time(job.due_at)),
        ("expires", _time(job.expires_at) if job.expires_at else ""),
        ("attempts", str(job.attempt)),
        ("worker", job.worker or ""),
        ("asked for", job.mark or ""),
        ("unique", "an equal job is not taken until this one starts" if job.unique else ""),
        ("progress", _progress(*job.progress) if job.progress else ""),
    ]


def _facts(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [f"  {click.style(clip(name, 10), dim=True)}  {value}" for name, value in pairs if value]


def _title(task: str, id_: str, state: str) -> str:
    return f"{click.style(task, bold=True)}  {id_}  {click.style(state, fg=STATE_COLOURS.get(state))}"


def _head(text: str) -> str:
    return click.style(text, bold=True)


def _time(then: datetime) -> str:
    return f"{then.astimezone():%Y-%m-%d %H:%M:%S} ({ago(then)})"


def _progress(done: float, total: float) -> str:
    share = min(max(done / total if total else 0.0, 0.0), 1.0)
    return f"{'━' * round(share * 20):╌<20} {share:.0%}, {done:g} of {total:g}"


def _error(error: ErrorInfo) -> list[str]:
    from laneway.instant import as_datetime  # noqa: PLC0415 - the help needs none of it

    at = f", {_time(as_datetime(error.at))}" if error.at else ""
    said = click.style(f"{error.kind}: {error.message}", fg="red")
    trace = textwrap.indent(error.traceback.rstrip(), "    ").splitlines()
    return [f"  attempt {error.attempt}{at}", *(f"  {line}" for line in said.splitlines()), *trace]
