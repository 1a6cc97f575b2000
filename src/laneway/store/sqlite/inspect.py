"""The SQLite store's inspection side: look, find and act."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any

import msgspec

from laneway.errors import NotFound, UnknownJob, UnknownQueue, did_you_mean
from laneway.instant import as_datetime
from laneway.job import STATES, State
from laneway.outcome import Notes
from laneway.store.inspect import Counts, Filter, JobInfo, Page, QueueInfo, Run, StoredResult, WorkerStatus
from laneway.store.sqlite.books import BLOCKED, DEAD, READY, RUNNING, Books, decode, ripen
from laneway.store.sqlite.sql import SQL
from laneway.store.sqlite.store import SQLiteStore
from laneway.store.sqlite.turn import KEEP_RUNS, Row, Turn, read_errors
from laneway.store.sqlite.workers import list_workers

__all__ = ["SQLiteInspect"]

_runs = msgspec.json.Decoder(list[Run])
_notes = msgspec.json.Decoder(Notes)
_COLUMNS = (
    "seq, id, queue, task, lane, rank, place, due, state, holds, attempt, enqueued, worker, token, mark, lost, errors, "
    "notes, body"
)
#: A state of the API as a condition; `:now` is the store's.
_IN_STATE = {
    "scheduled": "state = 0 and due > :now",
    "ready": "state < 2 and due <= :now",
    "retrying": "state = 1 and due > :now",
    "blocked": "state = 2",
    "running": "state = 3",
    "dead": "state = 4",
}


class SQLiteInspect:
    """Looks at the store through its reading connection; acts in turns of its own."""

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store

    # -- looking ---------------------------------------------------------------------------------------------

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
            books = self._books(connection)
            for queue in books.queues:
                ripen(connection.execute, queue, books.now)
        queues = sorted(books.queues, key=lambda queue: queue.name)
        return [QueueInfo(queue.name, queue.paused, dict(zip(STATES, queue.counts, strict=True))) for queue in queues]

    def jobs(self, which: Filter, limit: int, after: str | None) -> Page:
        """List jobs by arrival."""
        conditions = ["seq > :after"]
        if which.state is not None:
            conditions.append(_IN_STATE[which.state])
        conditions += [f"{name} = :{name}" for name in ("queue", "task", "lane") if getattr(which, name) is not None]
        statement = f"select {_COLUMNS} from laneway_job where {' and '.join(conditions)} order by seq limit :limit"  # noqa: S608 - our own words
        with self._store.database.reading() as connection:
            now = self._books(connection).now
            values = {
                "after": _position(connection, after), "now": now, "limit": limit + 1,
                "queue": which.queue, "task": which.task, "lane": which.lane,
            }  # fmt: skip
            rows = connection.execute(statement, values).fetchall()
        page = Page(_info(row, now) for row in rows[:limit])
        if len(rows) > limit:
            page.next = f"seq:{rows[limit - 1][0]}"
        return page

    def job(self, id: str) -> JobInfo | None:  # noqa: A002
        """Return a job that is in the store."""
        with self._store.database.reading() as connection:
            now = self._books(connection).now
            row = connection.execute(f"select {_COLUMNS} from laneway_job where id = ?", (id,)).fetchone()  # noqa: S608
        return _info(row, now) if row else None

    def result(self, id: str) -> StoredResult:  # noqa: A002
        """Say how a job stands."""
        with self._store.database.reading() as connection:
            now = self._books(connection).now
            row = connection.execute(SQL["find"], (id,)).fetchone()
            if row:
                job = Row(*row)
                errors = read_errors(job.errors)
                return StoredResult(_state(job, now), error=errors[-1] if errors else None)
            value = connection.execute(SQL["result_find"], (id, now)).fetchone()
            if value:
                return StoredResult("done", value=value[0])
            for run in self._recent(connection):
                if run.id == id and run.outcome in ("done", "cancelled"):
                    return StoredResult("done" if run.outcome == "done" else "cancelled")
        return StoredResult("gone")

    def workers(self) -> list[WorkerStatus]:
        """List the workers by host and pid, with what they hold."""
        with self._store.database.reading() as connection:
            return list_workers(connection, self._books(connection).now)

    def totals(self) -> dict[str, int]:
        """Return the counters since the store began."""
        with self._store.database.reading() as connection:
            books = self._books(connection)
            counted: dict[str, int] = dict(connection.execute(SQL["count_read"]).fetchall())
        names = ("enqueued", "processed", "failed", "retried", "dead", "cancelled", "recovered", "refused")
        return {**counted, **{name: getattr(books, name) for name in names}}

    def recent(self, limit: int) -> list[Run]:
        """Return the last runs, newest first."""
        with self._store.database.reading() as connection:
            return self._recent(connection)[:limit]

    @staticmethod
    def _recent(connection: sqlite3.Connection) -> list[Run]:
        tail = connection.execute(SQL["books_read"]).fetchone()[1:]
        portions = connection.execute(SQL["recent_read"]).fetchall()
        return [run for (runs,) in (tail, *portions) for run in reversed(_runs.decode(b"[" + runs[:-1] + b"]"))][:KEEP_RUNS]

    def _books(self, connection: sqlite3.Connection) -> Books:
        books = decode(connection.execute(SQL["books_read"]).fetchone()[0])
        books.now = max(books.now, self._store.clock())
        return books

    # -- acting ----------------------------------------------------------------------------------------------

    def retry(self, id: str) -> bool:  # noqa: A002
        """Replay a dead job, or make a waiting retry due now."""
        with self._store.turn() as turn:
            row = _found(turn, id)
            queue = turn.queue(row.queue)
            if row.state == 4:
                turn.books.seq += 1
                turn.execute(SQL["replay"], (turn.books.seq, turn.now, turn.now, row.seq))
                queue.move(DEAD, READY)
            elif row.state < 2 and row.due > turn.now and (row.holds or row.state == 1):
                # It has run: it keeps its place and its lane, only the wait is over.
                turn.execute(SQL["wait_again"], (0, turn.now, row.attempt, None, row.errors, row.seq))
                queue.move(queue.waiting(row.due, failed=bool(row.state)), READY)
            else:
                return False
        self._store.bell.ring()
        return True

    def cancel(self, id: str) -> bool:  # noqa: A002
        """Cancel a waiting job at once, mark a running one."""
        return self._end(id, "cancel")

    def delete(self, id: str) -> bool:  # noqa: A002
        """Remove a waiting or dead job at once, mark a running one."""
        return self._end(id, "delete")

    def _end(self, id_: str, mark: str) -> bool:
        with self._store.turn() as turn:
            row = _found(turn, id_)
            if row.state == 3:
                turn.execute(SQL["mark"], (mark, row.seq))
                return True
            if row.state == 4 and mark == "cancel":
                return False
            queue = turn.queue(row.queue)
            before = {2: BLOCKED, 4: DEAD}.get(row.state) or queue.waiting(row.due, failed=bool(row.state))
            turn.leave(row, before, "cancelled" if mark == "cancel" else None)
        if turn.ring:
            self._store.bell.ring()
        return True

    def pause(self, queue: str, paused: bool, declared: Collection[str] = ()) -> None:
        """Stop or resume claims from a queue."""
        with self._store.turn() as turn:
            known = {*turn.queues, *declared}
            if queue not in known:
                raise UnknownQueue(f'no queue "{queue}" is in {self._store.database}.{did_you_mean(queue, known)}', queue=queue)
            turn.queue(queue).paused = paused
            turn.changed = True
        self._store.bell.ring()

    def tell(self, worker: str, command: str) -> bool:
        """Leave a command for a worker's next beat."""
        with self._store.turn() as turn:
            found: Any = turn.execute(SQL["command_read"], (worker,)).fetchone()
            if found is None:
                return False
            turn.execute(SQL["command_write"], (f"{found[0] or ''} {command}".strip(), worker))
        return True


def _found(turn: Turn, id_: str) -> Row:
    row = turn.find("find", id_)
    if row is None:
        raise UnknownJob(f'no job "{id_}" is in the store: it has finished, or never was', id=id_)
    return row


def _position(connection: sqlite3.Connection, after: str | None) -> int:
    """Return the sequence number that a job's id or a page's `next` stands for."""
    if after is None:
        return 0
    if after.startswith("seq:") and after[4:].isdigit():
        return int(after[4:])
    row = connection.execute("select seq from laneway_job where id = ?", (after,)).fetchone()
    if row is None:
        raise NotFound(f"after={after!r}: no such job is in the store any more. Go on with after=page.next instead", id=after)
    return int(row[0])


def _state(row: Row, now: int) -> State:
    if row.state > 1:
        return STATES[{2: BLOCKED, 3: RUNNING, 4: DEAD}[row.state]]
    if row.due <= now:
        return STATES[READY]
    return "retrying" if row.state else "scheduled"


def _read_notes(notes: bytes | None) -> Notes:
    try:
        return _notes.decode(notes) if notes else Notes()
    except (ValueError, RecursionError):
        return Notes(log=["(what the run told cannot be read)"])


def _info(columns: tuple[Any, ...], now: int) -> JobInfo:
    row = Row(*columns[:-2])
    notes = _read_notes(columns[-2])
    return JobInfo(
        id=row.id, task=row.task, queue=row.queue, lane=row.lane, priority=-row.rank, state=_state(row, now),
        attempt=row.attempt, enqueued_at=as_datetime(row.enqueued), due_at=as_datetime(row.due), worker=row.worker,
        token=row.token, mark=row.mark, errors=read_errors(row.errors), body=columns[-1], progress=notes.progress, log=notes.log,
    )  # fmt: skip
