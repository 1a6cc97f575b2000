"""The frame: what is around every page. Links to the other pages, the counters, health in words, and the user.

Enters: a `WebRequest`, and a snapshot of the store.  Leaves: a `PageFrame`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import laneway as front
from laneway.config import safe_url
from laneway.present.snapshot import Snapshot, working_of
from laneway.present.words import plural
from laneway.store.inspection import WorkerStatus
from laneway.store.workers import serving_of
from laneway.web.health import Health
from laneway.web.pages.filters import short
from laneway.web.request import WebRequest

__all__ = ["CountLink", "PageFrame", "Visitor", "frame_of", "framed", "health_words", "slots_of"]

#: Where one can go: address, name, icon.
NAV = (
    ("", "Overview"),
    ("jobs", "Jobs"),
    ("errors", "Errors"),
    ("lanes", "Lanes"),
    ("workers", "Workers"),
    ("schedules", "Schedules"),
    ("history", "History"),
)
#: The states in the order of a job's life, with what they mean.
STATES = {
    "scheduled": "wait for their time",
    "ready": "are due and wait for a slot",
    "blocked": "wait behind another job of their lane",
    "running": "run now",
    "retrying": "failed and will be tried again",
    "dead": "gave up: retry or delete them",
}


@dataclass(frozen=True, slots=True)
class CountLink:
    """A number on every page that leads to its list."""

    name: str  #: what scripts know it by: a state, or processed, failed, workers
    label: str
    value: int
    parts: tuple[str, ...]  #: of its address
    asked: dict[str, str]  #: the address's parameters
    meaning: str


@dataclass(frozen=True, slots=True)
class Visitor:
    """The visitor that asks, and what they may do."""

    who: str
    may_act: bool
    read_only: bool  #: no user may act here
    csrf: str


@dataclass(frozen=True, slots=True)
class PageFrame:
    """What is around a page."""

    here: str  #: the nav's entry that is open: "", "jobs", …
    nav: tuple[tuple[str, str], ...]
    counters: tuple[CountLink, ...]
    status: str  #: ok, failing, or unknown: the store cannot be asked
    words: tuple[str, ...]  #: how it is, in sentences
    session: Visitor | None  #: None: the visitor may not see anything
    store: str
    version: str
    root: str


def frame_of(ask: WebRequest, here: str, seen: Snapshot, health: Health) -> PageFrame:
    """Return the frame of a page."""
    return framed(ask, here, counters=_counters(seen), status=health.status, words=health_words(seen, health))


def framed(
    ask: WebRequest, here: str, *, counters: tuple[CountLink, ...] = (), status: str = "unknown", words: tuple[str, ...] = ()
) -> PageFrame:
    """Return a frame with what is known: without a snapshot of the store there are no counters."""
    access = ask.site.access
    session = Visitor(ask.caller.who, ask.caller.may == "act", access.read_only, access.csrf_token(ask.caller))
    return PageFrame(here, NAV, counters, status, words, session, safe_url(ask.app.url), front.__version__, ask.root)


def _counters(seen: Snapshot) -> tuple[CountLink, ...]:
    states = tuple(
        CountLink(state, state.capitalize(), seen.counts[state], ("jobs",), {"state": state}, f"jobs that {meaning}")
        for state, meaning in STATES.items()
    )
    return (
        *states,
        CountLink("processed", "Processed", seen.totals.get("processed", 0), ("history",), {}, "jobs done since the store began"),
        CountLink(
            "failed", "Failed", seen.totals.get("failed", 0), ("errors",), {}, "attempts that failed since the store began"
        ),
        CountLink("workers", "Workers", len(seen.workers), ("workers",), {}, "workers that beat"),
    )


# -- health in words ---------------------------------------------------------------------------------------------


def health_words(seen: Snapshot, health: Health) -> tuple[str, ...]:
    """Say how it is, what is wrong first."""
    if health.reasons:
        return tuple(reason[:1].upper() + reason[1:] + "." for reason in health.reasons)
    working = working_of(seen.workers)
    due_in = [queue.name for queue in seen.queues if queue.counts["ready"] and not queue.paused]
    unserved = _of_queues([name for name in due_in if not serving_of(name, working)], "has no workers", "have no workers")
    paused = _of_queues([queue.name for queue in seen.queues if queue.paused], "is paused", "are paused")
    due = _due(health) if unserved else f"All is well: {_due(health)}"
    return tuple(said[:1].upper() + said[1:] for said in (due, unserved, paused, _crew(seen)) if said)


def _due(health: Health) -> str:
    if not health.due:
        return "nothing due waits."
    said = "1 due job waits" if health.due == 1 else f"{short(health.due)} due jobs wait"
    return f"{said}, {'for' if health.due == 1 else 'none longer than'} {short(max(health.lag or 0.0, 1.0), 'seconds')}."


def _of_queues(names: Sequence[str], one: str, many: str) -> str:
    """Say something of queues, the first of them by name; nothing if there are none."""
    if not names:
        return ""
    shown = ", ".join(name[:60] for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"Queue {shown} {one}." if len(names) == 1 else f"Queues {shown} {many}."


def _crew(seen: Snapshot) -> str:
    if not seen.workers:
        return "No worker runs."
    busy, slots = slots_of(seen.workers)
    return f"{plural(len(seen.workers), 'worker')}, {short(busy)} of {short(slots)} slots busy."


def slots_of(workers: Sequence[WorkerStatus]) -> tuple[int, int]:
    """Return how many slots are in use, and how many there are. What a worker holds beyond its slots waits inside it."""
    return sum(min(one.busy, one.slots) for one in workers), sum(one.slots for one in workers)
