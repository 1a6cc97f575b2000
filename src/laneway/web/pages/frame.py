"""The frame: what stands around every page. Where one can go, the counters, health in words, and who asks.

Enters: an `WebRequest`, and a snapshot of the store.  Leaves: a `PageFrame`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import laneway as front
from laneway.config import safe_url
from laneway.present.snapshot import Snapshot
from laneway.store.inspection import WorkerStatus
from laneway.web.health import SILENT, Health
from laneway.web.pages.filters import short
from laneway.web.request import WebRequest

__all__ = ["CountLink", "PageFrame", "Visitor", "frame_of", "framed", "health_words", "slots_of", "unserved"]

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
    """Who asks, and what they may do."""

    who: str
    may_act: bool
    read_only: bool  #: nobody may act here
    csrf: str


@dataclass(frozen=True, slots=True)
class PageFrame:
    """What stands around a page."""

    here: str  #: the nav's entry that is open: "", "jobs", …
    nav: tuple[tuple[str, str], ...]
    counters: tuple[CountLink, ...]
    status: str  #: ok, failing, or unknown: the store cannot be asked
    words: tuple[str, ...]  #: how it is, in sentences
    session: Visitor | None  #: None: whoever asks is not let in
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
    nobody = _nobody(seen)
    due = _due(health) if nobody else f"All is well: {_due(health)}"
    return tuple(said[:1].upper() + said[1:] for said in (due, nobody, _paused(seen), _crew(seen)) if said)


def _due(health: Health) -> str:
    if not health.due:
        return "nothing due waits."
    said = "1 due job waits" if health.due == 1 else f"{short(health.due)} due jobs wait"
    return f"{said}, {'for' if health.due == 1 else 'none longer than'} {short(max(health.lag or 0.0, 1.0), 'seconds')}."


def _nobody(seen: Snapshot) -> str:
    names = [
        queue.name for queue in seen.queues if queue.counts["ready"] and not queue.paused and unserved(queue.name, seen.workers)
    ]
    return f"{_listed('Queue', names)} {'has' if len(names) == 1 else 'have'} no workers." if names else ""


def _paused(seen: Snapshot) -> str:
    names = [queue.name for queue in seen.queues if queue.paused]
    return f"{_listed('Queue', names)} {'is' if len(names) == 1 else 'are'} paused." if names else ""


def _crew(seen: Snapshot) -> str:
    if not seen.workers:
        return "No worker runs."
    busy, slots = slots_of(seen.workers)
    return f"{len(seen.workers)} worker{'s' * (len(seen.workers) != 1)}, {short(busy)} of {short(slots)} slots busy."


def slots_of(workers: Sequence[WorkerStatus]) -> tuple[int, int]:
    """Return how many slots are in use, and how many there are. What a worker holds beyond its slots waits inside it."""
    return sum(min(one.busy, one.slots) for one in workers), sum(one.slots for one in workers)


def _listed(word: str, names: Sequence[str]) -> str:
    shown = ", ".join(name[:60] for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{word}{'s' * (len(names) != 1)} {shown}{more}"


def unserved(queue: str, workers: Sequence[WorkerStatus]) -> bool:
    """Say whether no worker would claim from a queue."""
    working = (one for one in workers if one.phase == "working" and (one.beat_age or 0.0) <= SILENT)
    return not any(not one.queues or queue in one.queues for one in working)
