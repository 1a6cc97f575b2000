"""The page of errors: failures that are the same one, the last seen first.

The store counts them as they happen, so the page costs the same whether there were ten or a million. A group's jobs are those
that are dead or to be tried again, and whose last error is of this group.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from laneway.core.instant import as_datetime
from laneway.store.error_groups import ErrorGroup
from laneway.web.pages.job import trace_lines
from laneway.web.pages.query import Query
from laneway.web.request import WebRequest, bad

__all__ = ["errors"]

#: The number of groups on the page; the store keeps 500.
LIMIT = 200
#: What can be asked for, in hours.
WINDOWS = {"1h": 1, "3h": 3, "24h": 24, "3d": 72, "7d": 168}


def errors(ask: WebRequest) -> dict[str, Any]:
    """Show failures by kind."""
    window = ask.text("in") or ""
    if window and window not in WINDOWS:
        raise bad(f"in={window[:60]}: use {', '.join(WINDOWS)}")
    text = (ask.text("q") or "").strip()
    groups = ask.app.stats.errors(500)
    now = as_datetime(ask.app.store.schedules().now)
    since = now - timedelta(hours=WINDOWS[window]) if window else None
    shown = [group for group in groups if _fits(group, text, since)]
    most = max((group.count for group in shown), default=1)
    return {
        "groups": [_row(group, most) for group in shown[:LIMIT]],
        "hidden": max(len(shown) - LIMIT, 0),
        "known": len(groups),
        "window": window,
        "windows": list(WINDOWS),
        "text": text,
    }


def _fits(group: ErrorGroup, text: str, since: datetime | None) -> bool:
    if since is not None and group.last_at < since:
        return False
    said = "\n".join((group.kind, group.message, group.place, group.task, group.queue, group.error.message))
    return all(word in said.casefold() for word in text.casefold().split())


def _row(group: ErrorGroup, most: int) -> dict[str, Any]:
    return {
        "id": group.id, "kind": group.kind, "message": group.message, "place": group.place, "count": group.count,
        "share": group.count / max(most, 1), "first_at": group.first_at, "last_at": group.last_at, "task": group.task,
        "queue": group.queue, "job": group.job, "sample": group.error.message, "trace": trace_lines(group.error.traceback),
        "dead": str(Query(state="dead", group=group.id)), "retrying": str(Query(state="retrying", group=group.id)),
    }  # fmt: skip
