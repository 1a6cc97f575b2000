"""Rows: a job's columns and the numbers of its states."""

from __future__ import annotations

from msgspec import Struct

from laneway.core.job import FINISHED, STATES, State

__all__ = [
    "BLOCKED", "CANCELLED", "COLUMNS", "DEAD", "DONE", "READY", "RETRYING", "RUNNING", "SCHEDULED", "WORDS", "Row", "state_of",
]  # fmt: skip

#: The states, in tables and counts. A waiting job has one of the first three, as of its last write: it becomes ready by time
#: alone, without a write.
SCHEDULED, READY, RETRYING, BLOCKED, RUNNING, DEAD = range(len(STATES))
#: The states of finished jobs, which are in a table of their own and not counted.
DONE, CANCELLED = DEAD + 1, DEAD + 2
_NAMES = (*STATES, *FINISHED)


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
    end_key: str | None
    expires: int | None
    ran: int
    side: int | None  #: not None: it is a collector's lane
    next_due: int | None
    next_since: int | None
    score: float | None  #: not None: it is a collector's dead payload
    finish: bytes | None  #: not None: a transaction of a user's has finished its run: see `FinishMark`

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
    return _NAMES[state] if state < len(_NAMES) else "blocked"


COLUMNS = ", ".join(Row.__struct_fields__)
#: The columns that a finished job has as well; it has its result, when it started and until when it is kept besides.
_FINISHED = ("seq", "id", "queue", "task", "lane", "rank", "place", "due", "state", "attempt", "enqueued", "worker", "errors")

#: What `$words` in statements stand for.
WORDS: dict[str, str] = {
    "columns": COLUMNS,
    "finished": ", ".join(name if name in _FINISHED else "null" for name in Row.__struct_fields__),
    "waits": f"state < {BLOCKED}",
    # A job that begins anew takes its key again if that lasts until its end, and no other job has it meanwhile.
    "key_again": "unique_key = (select d.end_key from laneway_job d where d.id = :id and not exists "
    "(select 1 from laneway_job o where o.unique_key = d.end_key))",
    **{str(name): str(number) for number, name in enumerate(_NAMES)},
}
