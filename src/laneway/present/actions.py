"""What can be done to jobs, queues and lanes by hand: in which states, and to which of them.

Enters: an app and filters.  Leaves: how many were changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from laneway.core.job import FINISHED, STATES, TIMED

if TYPE_CHECKING:
    from laneway.core.instant import When
    from laneway.desk.app import App
    from laneway.store.inspection import Counts, LaneInfo

__all__ = [
    "ACTIONS", "CANCEL", "DELETE", "FILTERS", "KILL", "RESCHEDULE", "RETRY", "WAITING", "Action", "applicable", "can_run",
    "waiting", "waiting_in",
]  # fmt: skip

#: What says which jobs are meant, as `app.inspect.jobs` takes it.
FILTERS = ("state", "queue", "task", "lane", "error", "failing")
#: What waits: for its time, a slot, its retry or its lane.
WAITING = ("scheduled", "ready", "retrying", "blocked")


class Action(Struct, frozen=True):
    """Something that can be done to jobs."""

    verb: str  #: as it is called in `app.inspect`, and with `_all` for many
    past: str
    states: tuple[str, ...]  #: the states of jobs that it changes

    def apply(self, app: App, id_: str, when: When | None = None) -> bool:
        """Do it to one job; `when` is for rescheduling. Says whether there was something to do."""
        call = getattr(app.inspect, self.verb)
        return bool(call(id_) if when is None else call(id_, when))

    def apply_all(self, app: App, when: When | None = None, **which: Any) -> int:
        """Do it to all jobs that match. Returns the number of jobs changed."""
        call = getattr(app.inspect, f"{self.verb}_all")
        return int(call(**which) if when is None else call(when, **which))

    def targets(self, which: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the filters to act with, one after the other.

        Of a collector `retry` would make lanes due that wait for their time: they are not meant, unless a state or ids say so.
        """
        if self.verb != "retry" or "state" in which or "ids" in which:
            return [which]
        return [{**which, "state": state} for state in self.states]


RETRY = Action("retry", "retried", ("retrying", "dead"))
RESCHEDULE = Action("reschedule", "rescheduled", WAITING)
CANCEL = Action("cancel", "cancelled", tuple(state for state in STATES if state != "dead"))
KILL = Action("kill", "killed", CANCEL.states)
DELETE = Action("delete", "deleted", STATES)

#: In the order in which they are offered.
ACTIONS = (RETRY, RESCHEDULE, CANCEL, KILL, DELETE)


def applicable(state: str | None) -> list[str]:
    """Name what can be done to jobs of a state; with None to some."""
    if state in FINISHED:
        return [DELETE.verb]
    return [action.verb for action in ACTIONS if state is None or state in action.states]


def waiting(counts: Counts) -> int:
    """Return how many of the counted wait."""
    return sum(counts[state] for state in WAITING)


def waiting_in(app: App, queue: str) -> Counts:
    """Count the jobs that clearing a queue removes, by state."""
    found = [one.counts for one in app.inspect.queues() if one.name == queue]
    return {state: counts[state] for counts in found for state in WAITING}


def can_run(lane: LaneInfo) -> bool:
    """Say whether a lane can be made to run now: it waits for its retry, or for the time of its payloads."""
    return lane.state in TIMED and (lane.collects or lane.state == "retrying")
