"""The pages of lanes: a list by lag, size, attempts, due time or name; and one lane with its payloads, or the jobs in it."""

from __future__ import annotations

from typing import Any

from laneway.core.job import check_lane
from laneway.errors import ConfigError, UnknownLane
from laneway.present.actions import can_run
from laneway.present.words import lane_state, score_words, summary
from laneway.store.inspection import JobInfo, LaneInfo
from laneway.store.paging import LANE_ORDERS
from laneway.web.pages.find import call_text, row_of
from laneway.web.pages.job import BUTTONS, error_of
from laneway.web.pages.query import Query
from laneway.web.request import WebRequest

__all__ = ["lane", "lanes"]

LIMIT = 50
#: The most jobs of a queue that are searched for those of a lane.
LOOK = 10_000


def lanes(ask: WebRequest) -> dict[str, Any]:
    """Show lanes that have something to do."""
    order = ask.text("order") or "lag"
    queue = ask.text("queue") or None
    key = (ask.text("lane") or "").strip()
    queues = ask.app.inspect.queues()
    after = ask.page()["after"]
    try:
        found = _named(ask, key, [queue] if queue else [one.name for one in queues]) if key else None
        page = ask.app.inspect.lanes(queue, order=order, limit=LIMIT, after=after) if found is None else found
    except ConfigError:
        page, order = ask.app.inspect.lanes(queue, limit=LIMIT), "lag"
    rows = [_row(one) for one in page]
    return {
        "rows": rows,
        "longest": max((row["lag"] for row in rows), default=0.0) or 1.0,
        "next": getattr(page, "next", None),
        "after": after,
        "order": order,
        "orders": LANE_ORDERS,
        "queue": queue or "",
        "lane": key,
        "queues": [one.name for one in queues],
        "collects": [one.name for one in queues if one.collects],
        "none_at_all": not rows and queue is None and not key,
    }


def _named(ask: WebRequest, key: str, queues: list[str]) -> list[LaneInfo]:
    """Return the lanes of this name, one of each queue at most."""
    try:
        name = check_lane(key)
    except ValueError:
        return []
    return [one for queue in queues for one in ask.app.store_inspect.lanes(queue, "name", 1, None, name)]


def _row(found: LaneInfo) -> dict[str, Any]:
    return {
        "queue": found.queue, "lane": found.lane, "task": found.task, "collects": found.collects, "state": lane_state(found),
        "size": found.size, "attempts": found.attempts, "due_at": found.due_at, "lag": found.lag, "head": found.head,
        "error": summary(found.error)[:200] if found.error else "", "can_run": can_run(found),
    }  # fmt: skip


def lane(ask: WebRequest) -> dict[str, Any]:
    """Show a lane: its holder, its state and the reason for it, and what is in it."""
    queue, key = ask.lane()
    try:
        found = ask.app.inspect.lane(queue, key)
    except UnknownLane:
        return _empty(ask, queue, key)
    after = ask.page()["after"]
    page = ask.app.inspect.payloads(queue, key, limit=LIMIT, after=after) if found.collects else None
    head = ask.app.inspect.job(found.head)
    behind: list[JobInfo] = [] if found.collects else _behind(ask, queue, key, head)
    return {
        "lane": _row(found),
        "reasons": [one for one in ask.app.inspect.explain(found.head).reasons if one not in BUTTONS] if head else [],
        "worker": head.worker if head else None,
        "mark": head.mark if head else None,
        "error": error_of(found.error) if found.error else None,
        "payloads": [_payload(ask, one) for one in page] if page is not None else None,
        "next": page.next if page is not None else None,
        "after": after,
        "jobs": [row_of(job, ask.site.documents) for job in behind],
        "query": str(Query(queue=queue, lane=key)),
        "dead": str(Query(state="dead", queue=queue, lane=key)),
    }


def _empty(ask: WebRequest, queue: str, key: str) -> dict[str, Any]:
    """Return a lane that has nothing to do, which may have something dead in it."""
    dead = list(ask.app.inspect.jobs("dead", queue=queue, lane=key, limit=LIMIT, newest=True, look=LOOK))
    if not dead:
        raise UnknownLane(f'nothing waits, runs or is dead in a lane "{key[:100]}" of queue {queue[:100]}', queue=queue, lane=key)
    return {
        "lane": {"queue": queue, "lane": key, "task": dead[0].task, "state": "idle", "size": 0, "collects": False},
        "reasons": ["nothing waits or runs in it: what is below is dead, and stays until it is retried or deleted"],
        "worker": None, "mark": None, "error": None, "payloads": None, "next": None, "after": None,
        "jobs": [row_of(job, ask.site.documents) for job in dead], "query": str(Query(queue=queue, lane=key)),
        "dead": str(Query(state="dead", queue=queue, lane=key)),
    }  # fmt: skip


def _behind(ask: WebRequest, queue: str, key: str, head: JobInfo | None) -> list[JobInfo]:
    """Return what is in a lane of jobs, as far as it is found: its head, then the others by place.

    Dead jobs have left it, except for one that halts it.
    """
    found = ask.app.inspect.jobs(queue=queue, lane=key, limit=4 * LIMIT, look=LOOK)
    others = [job for job in found if (job.state != "dead" or job.holds) and (head is None or job.id != head.id)]
    return [*([head] if head else []), *sorted(others, key=lambda job: (job.place_at, job.enqueued_at, job.id))][:LIMIT]


def _payload(ask: WebRequest, found: Any) -> dict[str, Any]:
    entry = ask.site.documents.payload(found)
    exact, moment = score_words(found.score)
    text = call_text([entry["payload"]], {}) if found.body else "left out"
    return {"text": text[:2000], "score": exact, "score_words": moment, "running": found.running}
