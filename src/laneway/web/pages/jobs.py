"""The page of jobs: tabs of states with counts, the query box, a page of jobs, and what can be done with them.

Counts are those the store keeps. How many a query means is said where the store has counted them; else the page says that it was
not counted, and a user who acts on all of them is shown the number first.
"""

from __future__ import annotations

from typing import Any

from laneway.core.job import FINISHED as ENDED
from laneway.core.job import STATES
from laneway.present.actions import applicable
from laneway.present.words import seconds_of
from laneway.store.inspection import Counts, sum_counts
from laneway.store.runs import Run
from laneway.web.pages.find import BUDGET, INDEXED, FoundJobs, find, row_of
from laneway.web.pages.query import EXACT, FINISHED, Query, parse
from laneway.web.request import WebRequest

__all__ = ["LIMIT", "jobs"]

#: The number of jobs on a page.
LIMIT = 50
#: The number of finished runs that are shown; the store remembers 1,000.
RUNS = 200


def jobs(ask: WebRequest) -> dict[str, Any]:
    """Show jobs."""
    query = parse(ask.given.get("q", ""), {name: ask.given[name] for name in EXACT if ask.given.get(name)})
    queues = ask.app.inspect.queues()
    after = ask.page()["after"]
    counts = sum_counts(queue.counts for queue in queues if query.queue in (None, queue.name))
    none_counted = query.state in STATES and not counts[query.state]  # the store has counted: it need not search
    found = FoundJobs(jobs=[]) if none_counted else find(ask.app, ask.site.documents, query, after, LIMIT)
    rows = [row_of(job, ask.site.documents) for job in found.jobs]
    runs = _runs(ask, query) if query.state == FINISHED else None
    return {
        "query": str(query),
        "notes": list(query.notes),
        "empty_query": query.is_empty,
        "tabs": _tabs(query, counts),
        "state": query.state,
        "rows": rows,
        "runs": runs,
        "next": found.next,
        "after": None if found.moved else after,
        "moved": found.moved,
        "looked": found.looked if found.looked > 1 else None,
        "tired": found.tired,
        "budget": BUDGET,
        "verbs": applicable(query.state),
        "all": _all(query, counts, more=found.next is not None or after is not None),
        "queues": [queue.name for queue in queues],
        "tasks": sorted(ask.app.declared),
        "none_at_all": not any(sum_counts(queue.counts for queue in queues).values()),
        "id_like": query.words[0] if len(query.words) == 1 and _is_made_id(query.words[0]) else None,
    }


def _tabs(query: Query, counts: Counts) -> list[dict[str, Any]]:
    """Return a tab for each state; the numbers are of all jobs, or of the queue that is asked for."""
    listed: list[tuple[str | None, int | None]] = [(None, sum(counts.values())), *counts.items()]
    listed += [(state, None) for state in (*ENDED, FINISHED)]
    labels = {None: "all", FINISHED: "last runs"}
    return [
        {
            "state": state, "label": labels.get(state, state), "count": number, "q": str(query.but(state=state)),
            "here": query.state == state,
        }
        for state, number in listed
    ]  # fmt: skip


def _all(query: Query, counts: Counts, *, more: bool) -> dict[str, Any] | None:
    """Return what all that match are, for actions on them: the filters, and their number if the store knows it.

    None: there is but one page, the store cannot filter so, or a part of the query was not understood.
    """
    if not more or query.searches or query.notes or query.state == FINISHED:
        return None
    which = query.which
    counted = {*which} <= INDEXED and query.state not in ENDED
    number = sum(counts.values()) if query.state is None else counts.get(query.state)
    return {"which": which or {"all": True}, "number": number if counted else None}


def _runs(ask: WebRequest, query: Query) -> list[dict[str, Any]]:
    """Return the last runs that fit."""
    found = [run for run in ask.app.stats.recent(1000) if _run_fits(run, query)]
    return [
        {
            "id": run.id, "task": run.task, "queue": run.queue, "lane": run.lane, "outcome": run.outcome,
            "finished_at": run.finished_at, "took": seconds_of(run),
            "waited": max(run.started - run.enqueued, 0) / 1e6 if run.started else None,
        }
        for run in found[:RUNS]
    ]  # fmt: skip


def _run_fits(run: Run, query: Query) -> bool:
    exact = all(getattr(query, name) in (None, getattr(run, name)) for name in ("queue", "task", "lane"))
    known = {"id": run.id, "task": run.task, "queue": run.queue, "lane": run.lane or "", "outcome": run.outcome}
    return exact and not query.args and query.fits(known)


def _is_made_id(word: str) -> bool:
    return len(word) == 20 and word.isascii() and word.isalnum()
