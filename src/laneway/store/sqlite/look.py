"""Looking: what the SQLite store shows, through its reading connection. Needs no lock, and holds up nobody."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from laneway.errors import NotFound
from laneway.figures import Depth
from laneway.instant import SECOND, as_datetime
from laneway.job import STATES, State
from laneway.outcome import Notes
from laneway.store.failures import read_errors
from laneway.store.faults import ErrorGroup
from laneway.store.inspect import (
    Counts,
    Filter,
    JobInfo,
    LanePage,
    Page,
    PayloadPage,
    QueueInfo,
    Run,
    StoredResult,
    WorkerStatus,
    read_runs,
)
from laneway.store.paging import read_number
from laneway.store.rollup import Kept, Level
from laneway.store.sqlite.books import BLOCKED, DEAD, READY, RUNNING, Books, Execute, Queue, ranks, ripen
from laneway.store.sqlite.filters import COLUMNS, condition
from laneway.store.sqlite.look_lanes import list_lanes, list_payloads
from laneway.store.sqlite.sql import SQL
from laneway.store.sqlite.statistics import read_faults, read_figures
from laneway.store.sqlite.store import SQLiteStore
from laneway.store.sqlite.turn import KEEP_RUNS, Row
from laneway.store.sqlite.workers import list_workers

__all__ = ["Looking"]

#: What is shown beside a row's columns.
MORE = "notes, body, case when side is not null then (select count(*) from laneway_payload where lane = seq) end"

_notes = msgspec.json.Decoder(Notes)


class Looking:
    """The half of the inspection side that changes nothing."""

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store

    def counts(self) -> Counts:
        """Count the jobs in each state."""
        totals: Counts = dict.fromkeys(STATES, 0)
        for queue in self.queues():
            for state, number in queue.counts.items():
                totals[state] += number
        return totals

    def queues(self) -> list[QueueInfo]:
        """List the queues by name, with counts as of now."""
        with self._store.database.reading() as connection:
            books = self._store.read_books(connection)
            for queue in books.queues:
                ripen(connection.execute, queue, books.now)
            lags = {queue.name: _lag(connection.execute, queue, books.now) for queue in books.queues if queue.counts[READY]}
        return [
            QueueInfo(
                queue.name, queue.paused, dict(zip(STATES, queue.counts, strict=True)),
                paused_by=queue.paused_by, paused_at=as_datetime(queue.paused_at) if queue.paused else None,
                collects=queue.collects, lag=lags.get(queue.name, 0) / SECOND,
            )
            for queue in sorted(books.queues, key=lambda queue: queue.name)
        ]  # fmt: skip

    def jobs(self, which: Filter, limit: int, after: str | None, newest: bool = False) -> Page:
        """List jobs by arrival, or the newest first."""
        with self._store.database.reading() as connection:
            books = self._store.read_books(connection)
            now = books.now
            terms, values = condition(which, now)
            few = _few(connection.execute, books, which)
            if few:
                terms += f" and seq in ({few})"
                values["pairs"] = _pairs(connection.execute, books, which.queue)
            direction, beyond = ("desc", "<") if newest else ("asc", ">")
            if after is not None:
                terms += f" and seq {beyond} :after"
            values |= {"after": _position(connection, after), "limit": limit + 1}
            end = (
                None if which.look is None or which.is_indexed or few else _end(connection, which.look, direction, beyond, values)
            )
            if end is not None:
                terms += f" and seq {'>=' if newest else '<='} {end}"
            # Through an index by something else all that are meant would be read, and sorted by arrival.
            by_arrival = "" if which.ids is not None else "not indexed"
            statement = (
                f"select {COLUMNS}, {MORE} from laneway_job {by_arrival} where {terms} "  # noqa: S608 - our own words
                f"order by seq {direction} limit :limit"
            )
            rows = connection.execute(statement, values).fetchall()
        page = Page(_info(row, now) for row in rows[:limit])
        if len(rows) > limit:
            page.next = f"seq:{rows[limit - 1][0]}"
        elif end is not None:
            page.next = f"seq:{end}"
        return page

    def count(self, which: Filter) -> int:
        """Count jobs; by state and queue the books have it."""
        if which == Filter(state=which.state, queue=which.queue) and which.state in (None, *STATES):
            found = [queue.counts for queue in self.queues() if which.queue in (None, queue.name)]
            return sum(sum(counts.values()) if which.state is None else counts[which.state] for counts in found)
        with self._store.database.reading() as connection:
            terms, values = condition(which, self._store.read_books(connection).now)
            statement = f"select count(*) from laneway_job where {terms}"  # noqa: S608 - our own words
            return int(connection.execute(statement, values).fetchone()[0])

    def job(self, id: str) -> JobInfo | None:  # noqa: A002
        """Return a job that is in the store."""
        return self._one("id = ?", id)

    def lane_holder(self, queue: str, lane: str) -> JobInfo | None:
        """Return the job that holds a lane."""
        return self._one("holds = 1 and queue = ? and lane = ?", queue, lane)

    def _one(self, terms: str, *values: str) -> JobInfo | None:
        with self._store.database.reading() as connection:
            now = self._store.read_books(connection).now
            statement = f"select {COLUMNS}, {MORE} from laneway_job where {terms}"  # noqa: S608 - our own words
            row = connection.execute(statement, values).fetchone()
        return _info(row, now) if row else None

    def parked_before(self, id: str) -> int:  # noqa: A002
        """Count the jobs that wait in a parked job's lane before it."""
        with self._store.database.reading() as connection:
            return int(connection.execute(SQL["parked_before"], (id,)).fetchone()[0])

    def result(self, id: str) -> StoredResult:  # noqa: A002
        """Say how a job stands."""
        with self._store.database.reading() as connection:
            now = self._store.read_books(connection).now
            row = connection.execute(SQL["find"], (id,)).fetchone()
            if row:
                job = Row(*row)
                errors = read_errors(job.errors)
                return StoredResult(_state(job, now), error=errors[-1] if errors else None)
            value = connection.execute(SQL["result_find"], (id, now)).fetchone()
            if value:
                return StoredResult("done", value=value[0])
            for run in _recent(connection):
                if run.id == id and run.outcome in ("done", "cancelled"):
                    return StoredResult("done" if run.outcome == "done" else "cancelled")
        return StoredResult("gone")

    def lanes(self, queue: str | None, order: str, limit: int, after: str | None, name: str | None = None) -> LanePage:
        """List lanes in an order."""
        with self._store.database.reading() as connection:
            return list_lanes(connection, self._store.read_books(connection), queue, order, limit, after, name)

    def payloads(self, queue: str, lane: str, limit: int, after: str | None) -> PayloadPage:
        """List the payloads of a collector's lane."""
        with self._store.database.reading() as connection:
            return list_payloads(connection, queue, lane, limit, after)

    def workers(self) -> list[WorkerStatus]:
        """List the workers by host and pid, with what they hold."""
        with self._store.database.reading() as connection:
            return list_workers(connection, self._store.read_books(connection).now)

    def totals(self) -> dict[str, int]:
        """Return the counters since the store began."""
        with self._store.database.reading() as connection:
            books = self._store.read_books(connection)
            counted: dict[str, int] = dict(connection.execute(SQL["count_read"]).fetchall())
        names = ("enqueued", "merged", "processed", "failed", "retried", "dead", "cancelled", "recovered", "refused")
        return {**counted, **{name: getattr(books, name) for name in names}}

    def recent(self, limit: int) -> list[Run]:
        """Return the last runs, newest first."""
        with self._store.database.reading() as connection:
            return _recent(connection)[:limit]

    def figures(self, level: Level, number: int, depth: Depth = "times") -> Kept:
        """Return the last so many buckets of a level."""
        with self._store.database.reading() as connection:
            return read_figures(connection, self._store.read_books(connection), level, number, depth)

    def errors(self, limit: int) -> list[ErrorGroup]:
        """Return failures by kind, the last seen first."""
        with self._store.database.reading() as connection:
            return read_faults(connection, limit)


_WAITING = (
    "select job.seq from json_each(:pairs) pair cross join laneway_job job on job.queue = json_extract(pair.value, '$[0]') "
    "and job.rank = json_extract(pair.value, '$[1]') and job.state < 2 and job.due "
)
#: Where the jobs of a state are, by its own index.
_OF_STATE = {
    "ready": f"{_WAITING}<= :now",
    "scheduled": f"{_WAITING}> :now",
    "retrying": f"{_WAITING}> :now",
    "dead": "select seq from laneway_job where state = 4 and holds = 0{in_queue} union all "
    "select seq from laneway_job where state = 4 and holds = 1{in_queue}",
    "running": "select seq from laneway_job where state = 3{in_queue}",
    "blocked": "select seq from laneway_job where state = 2{in_queue}",
}
#: Those that stand there for all queues together.
_MIXED = ("running", "dead")
_NOWHERE = "select seq from laneway_job where false"


def _end(connection: sqlite3.Connection, look: int, direction: str, beyond: str, values: dict[str, Any]) -> int | None:
    """Return the last of so many jobs by arrival; None: there are not so many left."""
    further = f"seq {beyond} :after" if values["after"] else "true"
    statement = f"select seq from laneway_job where {further} order by seq {direction} limit 1 offset :look"  # noqa: S608 - our own
    row = connection.execute(statement, {"after": values["after"], "look": max(look - 1, 0)}).fetchone()
    return None if row is None else int(row[0])


def _few(execute: Execute, books: Books, which: Filter) -> str:
    """Return where the jobs of a state, or of a queue, are, if they are so few that going through all by arrival takes longer."""
    if which.state not in (None, *STATES) or (which.state is None and which.queue is None):
        return ""
    looked, parts = 0, list[str]()
    for queue in books.queues:
        ripen(execute, queue, books.now)
    for number, state in enumerate(STATES):
        mine = sum(queue.counts[number] for queue in books.queues if which.queue in (None, queue.name))
        if which.state in (None, state) and mine:
            looked += sum(queue.counts[number] for queue in books.queues) if state in _MIXED else mine
            parts.append(_OF_STATE[state].format(in_queue="" if which.queue is None else " and queue = :queue"))
    if 4 * looked >= sum(sum(queue.counts) for queue in books.queues) > 0:
        return ""
    return " union all ".join(parts) or _NOWHERE


def _pairs(execute: Execute, books: Books, queue: str | None) -> str:
    """Return the queues that are meant and their priorities in use, as JSON."""
    names = [one.name for one in books.queues if queue in (None, one.name)]
    return msgspec.json.encode([(name, rank) for name in names for rank in ranks(execute, name)]).decode()


def _lag(execute: Execute, queue: Queue, now: int) -> int:
    """Return how long the oldest due job of a queue has waited: a look at the first of each priority."""
    first = (execute(SQL["first_due"], (queue.name, rank)).fetchone()[0] for rank in ranks(execute, queue.name))
    return max(now - min(first, default=now), 0)


def _recent(connection: sqlite3.Connection) -> list[Run]:
    tail = connection.execute(SQL["books_read"]).fetchone()[1:]
    portions = connection.execute(SQL["recent_read"]).fetchall()
    return [run for (runs,) in (tail, *portions) for run in reversed(read_runs(runs[:-1]))][:KEEP_RUNS]


def _position(connection: sqlite3.Connection, after: str | None) -> int:
    """Return the sequence number that a job's id or a page's `next` stands for."""
    if after is None:
        return 0
    if after.startswith("seq:") and (number := read_number(after[4:])) is not None:
        return number
    row = connection.execute("select seq from laneway_job where id = ?", (after,)).fetchone()
    if row is None:
        raise NotFound(f"after={after!r}: no such job is in the store any more. Go on with after=page.next instead", id=after)
    return int(row[0])


def _state(row: Row, now: int) -> State:
    if row.state > 1:
        return STATES[{3: RUNNING, 4: DEAD}.get(row.state, BLOCKED)]  # nobody claims what is in a state that there is not
    if row.due <= now:
        return STATES[READY]
    return "retrying" if row.state else "scheduled"


def _read_notes(notes: bytes | None) -> Notes:
    try:
        return _notes.decode(notes) if notes else Notes()
    except (ValueError, RecursionError):
        return Notes(log=["(what the run told cannot be read)"])


def _info(columns: tuple[Any, ...], now: int) -> JobInfo:
    row = Row(*columns[:-3])
    told, body, payloads = columns[-3:]
    notes = _read_notes(told)
    if row.side is not None or row.score is not None:
        body = b"[[%b],{}]" % body  # a payload as a call with it
    expires = None if row.expires is None or row.state > 2 else as_datetime(row.expires)
    return JobInfo(
        id=row.id, task=row.task, queue=row.queue, lane=row.lane, priority=-row.rank, state=_state(row, now),
        attempt=row.attempt, enqueued_at=as_datetime(row.enqueued), place_at=as_datetime(row.place), due_at=as_datetime(row.due),
        expires_at=expires, unique=row.unique_key is not None, holds=bool(row.holds), worker=row.worker, token=row.token,
        mark=row.mark, errors=read_errors(row.errors), body=body, payloads=payloads,
        score=row.score, progress=notes.progress, log=notes.log,
    )  # fmt: skip
