"""Filters as conditions of a statement."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from laneway.core.job import FINISHED
from laneway.store.inspection import Filter
from laneway.store.sql.port import Reading
from laneway.store.sql.rows import BLOCKED, CANCELLED, DEAD, DONE, RETRYING, RUNNING, WORDS

__all__ = ["FINISHED_JOBS", "JOBS", "Table", "condition", "where"]


class Table(NamedTuple):
    """A table of jobs."""

    name: str
    shown: str  #: the name of the statement that shows jobs of it
    columns: str  #: those of a `Row`


JOBS = Table("laneway_job", "jobs_shown", WORDS["columns"])
FINISHED_JOBS = Table("laneway_finished", "finished_shown", WORDS["finished"])

#: A state of the API as a condition; `:now` is the store's.
_IN_STATE = {
    "scheduled": f"state < {RETRYING} and due > :now",
    "ready": f"{WORDS['waits']} and due <= :now",
    "retrying": f"state = {RETRYING} and due > :now",
    "blocked": f"state = {BLOCKED}",
    "running": f"state = {RUNNING}",
    "dead": f"state = {DEAD}",
    "done": f"state = {DONE} and until > :now and task <> ''",
    "cancelled": f"state = {CANCELLED} and until > :now",
    "waiting": f"state < {RUNNING}",  # internal: all that clear() removes
}


def where(which: Filter) -> Table:
    """Return the table that has the jobs of a filter."""
    return FINISHED_JOBS if which.state in FINISHED else JOBS


def condition(which: Filter, reading: Reading) -> tuple[str, dict[str, Any]]:
    """Return the condition of a filter, and the values in it."""
    terms = ["true"]
    if which.state is not None:
        terms.append(_IN_STATE[which.state])
    terms += [f"{name} = :{name}" for name in ("queue", "task", "lane") if getattr(which, name) is not None]
    if which.failing:
        terms.append(f"attempt > 0 and state < {DEAD}")
    if which.error is not None:
        terms.append(reading.dialect.error_has.format(":error"))
    if which.ids is not None:
        terms.append(f"id in ({reading.dialect.elements.format(':ids')})")
    values = {
        "now": reading.now, "queue": which.queue, "task": which.task, "lane": which.lane, "error": which.error,
        "ids": None if which.ids is None else msgspec.json.encode(which.ids).decode(),
    }  # fmt: skip
    return " and ".join(terms), values
