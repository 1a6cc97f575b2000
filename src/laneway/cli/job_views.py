"""A job as a document, as a row of a list, and as a page; a collector's lane and its dead payloads too."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from laneway.cli.table import STATE_COLOURS, Cell, Column, moment
from laneway.core.instant import as_datetime
from laneway.logs import visible
from laneway.present.documents import call_text
from laneway.present.words import ago, clip, due_word, duration, job_type, plural, score_words, seconds_of, share_of, summary

if TYPE_CHECKING:
    from laneway.core.outcome import ErrorInfo
    from laneway.store.inspection import JobInfo
    from laneway.store.runs import Run

__all__ = ["COLUMNS", "columns", "error_lines", "facts", "head", "page", "row", "run_page", "score_cell", "time_text", "title"]

COLUMNS = [
    Column("id", whole=True),
    Column("state", whole=True),
    Column("task", names=True),
    Column("queue", spare=2, names=True),
    Column("lane", names=True),
    Column("attempt", right=True, whole=True, spare=1),
    Column("due", whole=True),
    Column("payload", wish=20, spare=3),
    Column("last error", wish=30),
]
#: Where all are of one collector, what is in a lane matters more than a name that they share.
COLLECTED = [
    {"task": column._replace(spare=1), "attempt": column._replace(spare=2), "payload": Column("payload")}.get(column.name, column)
    for column in COLUMNS
]
#: The most characters of a payload in a list, even where nothing else is cut: it may be large.
MOST = 200


def columns(jobs: Sequence[JobInfo]) -> list[Column]:
    """Return the columns of a list."""
    return COLLECTED if len({job.queue for job in jobs}) == 1 and all(job_type(job) != "job" for job in jobs) else COLUMNS


def row(job: JobInfo, queues: int, lanes: int = 0) -> list[str | Cell]:
    """Return a job as a row; where all are of one queue, or of one lane, a terminal need not show it."""
    return [
        job.id,
        Cell(job.state, STATE_COLOURS[job.state]),
        job.task,
        job.queue if queues > 1 else Cell(job.queue, "", " "),
        Cell(job.lane or "", "", " ") if lanes == 1 else job.lane or "",
        str(job.attempt) if job.attempt else Cell("0", "", " "),
        moment(job.due_at),
        _payload(job)[:MOST],
        Cell(summary(job.errors[-1]), "red") if job.errors else "",
    ]


def _payload(job: JobInfo) -> str:
    """Return what a collector's lane or dead payload has in it."""
    if job.payloads is not None:
        return plural(job.payloads, "payload")
    if job.score is None:
        return ""
    if not job.args:
        return call_text(job) if job.args is None else "left out"
    return json.dumps(job.args[0], ensure_ascii=False, separators=(",", ":"))


def score_cell(score: float) -> Cell:
    """Return a score as a cell: exact for programs, as a moment for people if it is one."""
    exact, near = score_words(score)
    return Cell(exact, "", near)


def _score(score: float) -> str:
    exact, near = score_words(score)
    return f"{exact} ({near})" if near else exact


# -- the page ----------------------------------------------------------------------------------------------------


def page(job: JobInfo, reasons: Sequence[str], result: str | None = None) -> list[str]:
    """Return everything about a job as lines."""
    lines = [title(job.task, job.id, job.state), *(f"  {visible(reason)}" for reason in reasons), ""]
    lines += facts([*_about(job), ("result", result or "")])
    if job.errors:
        lines += ["", head("errors, the newest first")]
        for error in reversed(job.errors):
            lines += error_lines(error)
    if job.log:
        lines += ["", head("log"), *(f"  {visible(line)}" for line in job.log)]
    return lines


def run_page(run: Run, result: str | None) -> list[str]:
    """Return what is still known of a job that has left the store."""
    took = seconds_of(run)
    known = [
        ("queue", run.queue), ("lane", run.lane or ""), ("enqueued", time_text(run.enqueued_at)),
        ("started", time_text(run.started_at) if run.started_at else ""), ("finished", time_text(run.finished_at)),
        ("took", "it never ran" if took is None else duration(took)), ("result", result or ""),
    ]  # fmt: skip
    return [title(run.task, run.id, run.outcome), "  it has left the store; this is its last run", "", *facts(known)]


def _about(job: JobInfo) -> list[tuple[str, str]]:
    what = {
        "job": [("arguments", call_text(job))],
        "lane": [("payloads", f"{job.payloads}: laneway lanes show {shlex.quote(job.lane or '')} --queue {job.queue}")],
        "payload": [("payload", _payload(job)), ("score", _score(job.score or 0.0))],
    }
    return [
        *what[job_type(job)],
        ("queue", job.queue),
        ("lane", f"{job.lane}{' (this job holds it)' if job.holds else ''}" if job.lane else ""),
        ("priority", str(job.priority) if job.priority else ""),
        ("enqueued", time_text(job.enqueued_at)),
        ("started", time_text(job.started_at) if job.started_at else ""),
        (due_word(job.state), time_text(job.due_at)),
        ("expires", time_text(job.expires_at) if job.expires_at else ""),
        ("attempts", str(job.attempt)),
        ("worker", job.worker or ""),
        ("asked for", job.mark or ""),
        ("unique", "no equal job is taken at present" if job.unique else ""),
        ("progress", _progress(*job.progress) if job.progress else ""),
    ]


def facts(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return names and values as lines, those that have one."""
    return [f"  {click.style(clip(name, 10), dim=True)}  {visible(value)}" for name, value in pairs if value]


def title(name: str, of: str, state: str) -> str:
    """Return the first line of a page."""
    return f"{click.style(visible(name), bold=True)}  {visible(of)}  {click.style(visible(state), fg=STATE_COLOURS.get(state))}"


def head(text: str) -> str:
    """Return the heading of a part."""
    return click.style(text, bold=True)


def time_text(then: datetime) -> str:
    """Return a moment in this machine's time zone, and how far it is."""
    return f"{then.astimezone():%Y-%m-%d %H:%M:%S} ({ago(then)})"


def _progress(done: float, total: float) -> str:
    share = share_of(done, total)
    return f"{'━' * round(share * 20):╌<20} {share:.0%}, {done:g} of {total:g}"


def error_lines(error: ErrorInfo) -> list[str]:
    """Return an error with its traceback."""
    at = f", {time_text(as_datetime(error.at))}" if error.at else ""
    said = visible(f"{error.kind}: {error.message}", keep="\n\t")
    trace = textwrap.indent(visible(error.traceback.rstrip(), keep="\n\t"), "    ").splitlines()
    return [f"  attempt {error.attempt}{at}", *(f"  {click.style(line, fg='red')}" for line in said.splitlines()), *trace]
