"""Finding jobs for a page: what the store finds by itself, and what is looked into one by one, within a budget.

By state and queue a store finds jobs at once. Everything else is looked for newest first, in portions, until a page is full or
the budget is used up; then the page says how far it has come, and goes on from there if the user wants it. What is secret cannot
be found: what is searched is what would be shown.

Enters: a `Query` and where to go on.  Leaves: `FoundJobs`.
"""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
from msgspec import Struct

from laneway.core.error_groups import fault_of
from laneway.core.job import check_id
from laneway.desk.app import App
from laneway.errors import NotFound
from laneway.present.words import cut, due_word, job_type, share_of, summary
from laneway.store.inspection import JobInfo
from laneway.web.documents import Documents
from laneway.web.pages.query import FINISHED, Query
from laneway.web.redact import HIDDEN

__all__ = ["BUDGET", "INDEXED", "FoundJobs", "call_text", "find", "group_of", "may_fit", "parts_of", "row_of"]

#: The most jobs that are read for one page, how long that may take in seconds, and the jobs of one query.
BUDGET = 10_000
PATIENCE = 0.15
PORTION = 500
#: The jobs of one query, of a store that filters by itself.
LOOK = 2_500
#: The most characters of a large text in a list.
CLIP = 160


#: By these a store finds jobs at once.
INDEXED = {"state", "queue"}


class FoundJobs(Struct, frozen=True, kw_only=True):
    """Some jobs, the newest first."""

    jobs: list[JobInfo]
    next: str | None = None  #: where to go on; None: that was all
    looked: int = 0  #: how many were looked into one by one, about
    tired: bool = False  #: the budget was used up before the page was full
    moved: bool = False  #: where to go on was not there any more: this is the beginning


def find(app: App, documents: Documents, query: Query, after: str | None, limit: int) -> FoundJobs:
    """Return a page of jobs."""
    if query.state == FINISHED:
        return FoundJobs(jobs=[])
    try:
        return _find(app, documents, query, after, limit)
    except NotFound:
        if after is None:
            raise
        return msgspec.structs.replace(_find(app, documents, query, None, limit), moved=True)


def _find(app: App, documents: Documents, query: Query, after: str | None, limit: int) -> FoundJobs:
    if not query.searches and {*query.which} <= INDEXED:
        page = app.inspect.jobs(**query.which, limit=limit, after=after, newest=True)
        return FoundJobs(jobs=list(page), next=page.next)
    if after is None and (named := _named(app, query)) is not None:
        return FoundJobs(jobs=[named], looked=1)
    return _search(app, documents, query, after, limit)


def _search(app: App, documents: Documents, query: Query, after: str | None, limit: int) -> FoundJobs:
    until = time.monotonic() + PATIENCE
    which, portion = query.which, PORTION if query.searches else limit
    found: list[JobInfo] = []
    looked = 0
    while True:
        page = app.inspect.jobs(**which, limit=portion, after=after, newest=True, look=LOOK)
        looked += len(page) if {*which} <= INDEXED or page.next is None else LOOK
        for job in page:
            if _fits(job, documents, query):
                found.append(job)
            if len(found) == limit:
                return FoundJobs(jobs=found, next=page.next if job is page[-1] else job.id, looked=looked)
        after = page.next
        if after is None or looked >= BUDGET or time.monotonic() > until:
            return FoundJobs(jobs=found, next=after, looked=looked, tired=after is not None)


def _named(app: App, query: Query) -> JobInfo | None:
    """Return the job whose id the only word is."""
    if query.args or query.group or query.which or len(query.words) != 1:
        return None
    try:
        return app.inspect.job(check_id(query.words[0]))
    except ValueError:
        return None


def _fits(job: JobInfo, documents: Documents, query: Query) -> bool:
    if query.group is not None and group_of(job) != query.group:
        return False
    return not (query.args or query.words) or (may_fit(job, query) and query.fits(parts_of(job, documents)))


def may_fit(job: JobInfo, query: Query) -> bool:
    """Return whether a close look is worth it: a plain word that is shown in arguments is in the body, too, or was hidden."""
    body = job.body.lower()
    if not body.isascii() or b"\\" in body:
        return True
    known = "\n".join((job.id, job.task, job.queue, job.lane or "", *(summary(error) for error in job.errors[-1:]))).casefold()
    words = [word for word in query.words if word.casefold() not in known]
    plain = [one.lower() for one in (*query.args, *words) if _PLAIN.fullmatch(one)]
    return all(one.encode() in body or one in HIDDEN for one in plain)


_PLAIN = re.compile(r"[A-Za-z_]+|[0-9]{1,15}|[A-Za-z0-9_@-]*[A-Za-z_@][A-Za-z0-9_@-]*", re.ASCII)


def group_of(job: JobInfo) -> str | None:
    """Return the id of the kind of failure that a job's last error is."""
    return fault_of(job.errors[-1], job.id, job.task, job.queue).id if job.errors else None


# -- a job in a list ---------------------------------------------------------------------------------------------


def parts_of(job: JobInfo, documents: Documents) -> dict[str, str]:
    """Return what of a job is searched, by name."""
    entry = documents.entry(job)
    parts = {name: entry[name] or "" for name in ("id", "task", "queue", "lane", "error")}
    return {**parts, "args": call_text(entry["args"], entry["kwargs"])}


def row_of(job: JobInfo, documents: Documents) -> dict[str, Any]:
    """Return a job as a row of a list."""
    entry = documents.entry(job)
    said = {"lane": "", "payload": call_text(entry["args"], {})}.get(job_type(job), call_text(entry["args"], entry["kwargs"]))
    return {
        "id": job.id, "state": job.state, "task": job.task, "queue": job.queue, "lane": job.lane, "attempt": job.attempt,
        "kind": job_type(job), "payloads": job.payloads, "args": cut(said, CLIP), "at": job.due_at,
        "word": due_word(job.state), "mark": job.mark, "worker": job.worker,
        "error": cut(summary(job.errors[-1]), CLIP) if job.errors else "",
        "share": share_of(*job.progress) if job.progress and job.progress[1] > 0 else None,
    }  # fmt: skip


def call_text(args: list[Any] | None, kwargs: dict[str, Any] | None) -> str:
    """Return arguments as they would be written.

    >>> call_text([1, "a"], {"b": None})
    '1, "a", b=null'
    """
    if args is None or kwargs is None:
        return "(cannot be read)"
    return ", ".join([*map(_json, args), *(f"{name}={_json(value)}" for name, value in kwargs.items())])


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode(errors="replace")
