"""What can be done to jobs by hand, and in which states."""

from __future__ import annotations

from msgspec import Struct

from laneway.core.job import STATES

__all__ = ["ACTIONS", "CANCEL", "DELETE", "KILL", "RESCHEDULE", "RETRY", "WAITING", "Action", "applicable"]


class Action(Struct, frozen=True):
    """Something that can be done to jobs."""

    verb: str  #: as it is called in `app.inspect`, and with `_all` for many
    past: str
    states: tuple[str, ...]  #: the states of jobs that it changes


#: What waits: for its time, a slot, its retry or its lane.
WAITING = ("scheduled", "ready", "retrying", "blocked")

RETRY = Action("retry", "retried", ("retrying", "dead"))
RESCHEDULE = Action("reschedule", "rescheduled", WAITING)
CANCEL = Action("cancel", "cancelled", tuple(state for state in STATES if state != "dead"))
KILL = Action("kill", "killed", CANCEL.states)
DELETE = Action("delete", "deleted", STATES)

#: In the order in which they are offered.
ACTIONS = (RETRY, RESCHEDULE, CANCEL, KILL, DELETE)


def applicable(state: str | None) -> list[str]:
    """Name what can be done to jobs of a state; with None to some."""
    return [action.verb for action in ACTIONS if state is None or state in action.states]
