"""The page of schedules: when each runs next, when it ran last, what became of it, and whether it is paused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from laneway.core.instant import as_datetime
from laneway.desk.inspection import ScheduleInfo
from laneway.present.words import seconds_of
from laneway.store.runs import Run
from laneway.web.pages.find import call_text
from laneway.web.pages.query import FINISHED, Query
from laneway.web.request import WebRequest

__all__ = ["schedules"]

#: The last runs of a task that are shown as marks.
MARKS = 20


def schedules(ask: WebRequest) -> dict[str, Any]:
    """Show the schedules of the app, and those that are kept in the store."""
    found = ask.loaded.inspect.schedules()
    now = as_datetime(ask.app.store.schedules().now) if found else None
    runs = _runs({one.task for one in found}, ask.app.stats.recent(1000)) if found else {}
    rows = [_row(ask, one, runs.get(one.task, []), now) for one in found]
    return {"schedules": sorted(rows, key=lambda row: (row["paused"], row["sorts_by"])), "tasks": len(ask.app.declared)}


def _runs(tasks: set[str], recent: list[Run]) -> dict[str, list[Run]]:
    """Return the last runs of tasks, the newest first."""
    found: dict[str, list[Run]] = {}
    for run in recent:
        if run.task in tasks:
            found.setdefault(run.task, []).append(run)
    return found


def _row(ask: WebRequest, one: ScheduleInfo, runs: list[Run], now: datetime | None) -> dict[str, Any]:
    last = runs[0] if runs else None
    document = ask.site.documents.schedule(one)
    readable = one.args is not None and one.next_at is not None
    return {
        "name": one.name, "task": one.task, "schedule": one.schedule, "catch_up": one.catch_up, "paused": one.paused,
        "paused_by": one.paused_by, "last_at": one.last_at, "next_at": one.next_at, "readable": readable,
        "stored": one.stored, "set_by": one.set_by, "trouble": one.trouble,
        "call": f"{one.task}({call_text(document['args'], document['kwargs'])})" if readable else "",
        "sorts_by": datetime.max.replace(tzinfo=UTC) if one.next_at is None else one.next_at,
        "late": now is not None and one.next_at is not None and not one.paused and (now - one.next_at).total_seconds() > 60,
        "outcome": last.outcome if last else None,
        "ran_at": last.finished_at if last else None,
        "took": seconds_of(last) if last else None,
        "job": last.id if last else None,
        "marks": [run.outcome for run in reversed(runs[:MARKS])],
        "q": str(Query(task=one.task)), "finished_q": str(Query(task=one.task, state=FINISHED)),
    }  # fmt: skip
