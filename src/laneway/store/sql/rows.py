"""Rows: a job's columns and the numbers of its states."""

from __future__ import annotations

from msgspec import Struct

from laneway.core.job import STATES, State

__all__ = ["BLOCKED", "COLUMNS", "DEAD", "READY", "RETRYING", "RUNNING", "SCHEDULED", "WORDS", "Row", "state_of"]

#: The states, in tables and counts. A waiting job has one of the first three, as of its last write: it becomes ready by time
#: alone, without a write.
SCHEDULED, READY, RETRYING, BLOCKED, RUNNING, DEAD = range(len(STATES))


class Row(Struct, frozen=True):
    """A job's columns, without the body and the notes of its run."""

    seq: int
    id: str
    queue: str
    task: str
    lane: str | None
    rank: int
    place: int
    due: int
    state: int
    holds: int
    attempt: int
    enqueued: int
    worker: str | None
    token: int | None
    mark: str | None
    lost: str | None
    errors: bytes | None
    unique_key: str | None
    expires: int | None
    ran: int
    side: int | None  #: not None: it is a collector's lane
    next_due: int | None
    next_since: int | None
    score: float | None  #: not None: it is a collector's dead payload

    @property
    def waits(self) -> bool:
        """Whether it waits for its time, or to be claimed."""
        return self.state <= RETRYING

    @property
    def failed(self) -> bool:
        """Whether it waits after a failure."""
        return self.state == RETRYING


def state_of(state: int, due: int, now: int) -> State:
    """Return the current state of a job. A job in an unknown state is never claimed."""
    if state <= RETRYING:
        return "ready" if due <= now else "retrying" if state == RETRYING else "scheduled"
    return STATES[state] if state < len(STATES) else "blocked"


COLUMNS = ", ".join(Row.__struct_fields__)

#: What `$words` in statements stand for.
WORDS: dict[str, str] = {
    "columns": COLUMNS,
    "waits": f"state < {BLOCKED}",
    **{str(name): str(number) for number, name in enumerate(STATES)},
}
