"""Queries: what SQL stores show. They need no lock, and block no other client."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec

from laneway.core.buckets import Depth
from laneway.core.instant import SECOND, as_datetime
from laneway.core.job import FINISHED, STATES
from laneway.errors import NotFound
from laneway.store.error_groups import ErrorGroup
from laneway.store.error_history import read_errors
from laneway.store.inspection import (
    Counts,
    Filter,
    JobInfo,
    LanePage,
    Page,
    PayloadPage,
    QueueInfo,
    StoredResult,
    WorkerStatus,
    read_notes,
    sum_counts,
)
from laneway.store.paging import read_number
from laneway.store.runs import Run, read_runs
from laneway.store.sql.filters import FINISHED_JOBS, JOBS, Table, condition, where
from laneway.store.sql.lane_queries import list_lanes, list_payloads
from laneway.store.sql.port import Database, Queue, Reading, ranks
from laneway.store.sql.rows import READY, RUNNING, Row, state_of
from laneway.store.sql.statistics import read_faults, read_figures
from laneway.store.statistics import Kept, Level
from laneway.store.workers import Held, read_worker, status

__all__ = ["KEEP_RUNS", "Queries"]

#: How many finished runs are kept.
KEEP_RUNS = 1000


class Queries:
    """The half of the inspection side that changes nothing."""

    def __init__(self, store: Database) -> None:
        self._store = store

    def counts(self) -> Counts:
        """Count the jobs in each state."""
        with self._store.reading() as reading:
            return sum_counts(dict(zip(STATES, queue.counts, strict=True)) for queue in reading.queues())

    def queues(self) -> list[QueueInfo]:
        """List the queues by name, with counts as of now."""
        with self._store.reading() as reading:
            queues = reading.queues()
            lags = {queue.name: _lag(reading, queue) for queue in queues if queue.counts[READY]}
        return [
            QueueInfo(
                queue.name, queue.paused, dict(zip(STATES, queue.counts, strict=True)),
                paused_by=queue.paused_by, paused_at=as_datetime(queue.paused_at) if queue.paused else None,
                collects=queue.collects, lag=lags.get(queue.name, 0) / SECOND,
            )
            for queue in sorted(queues, key=lambda queue: queue.name)
        ]  # fmt: skip

    def jobs(self, which: Filter, limit: int, after: str | None, newest: bool = False) -> Page:
        """List jobs by arrival, or the newest first."""
        with self._store.reading() as reading:
            terms, values = condition(which, reading)
            table = where(which)
            few = _few(reading, which)
            if few:
                terms += f" and seq in ({few})"
                values["pairs"] = _pairs(reading, which.queue)
            direction, beyond = ("desc", "<") if newest else ("asc", ">")
            position = _position(reading, after)
            if after is not None:
                terms += f" and seq {beyond} :after"
            end = None if which.look is None or which.is_indexed or few else _end(reading, table, which.look, newest, position)
            if end is not None:
                terms += f" and seq {'>=' if newest else '<='} {end}"
            by_arrival = "" if which.ids is not None else reading.dialect.by_arrival
            words = {"shown": reading.text(table.shown), "by_arrival": by_arrival, "terms": terms, "direction": direction}
            rows = reading.select("list_jobs", words, **values, after=position, limit=limit + 1)
        page = Page(_info(row, reading.now) for row in rows[:limit])
        if len(rows) > limit:
            page.next = f"seq:{rows[limit - 1][0]}"
        elif end is not None:
            page.next = f"seq:{end}"
        return page

    def count(self, which: Filter) -> int:
        """Count jobs; by state and queue the count is stored."""
        if which == Filter(state=which.state, queue=which.queue) and which.state in (None, *STATES):
            found = [queue.counts for queue in self.queues() if which.queue in (None, queue.name)]
            return sum(sum(counts.values()) if which.state is None else counts[which.state] for counts in found)
        with self._store.reading() as reading:
            terms, values = condition(which, reading)
            return int(reading.select("count_jobs", {"table": where(which).name, "terms": terms}, **values)[0][0])

    def job(self, id: str) -> JobInfo | None:  # noqa: A002
        """Return a job that is in the store, or the record of a finished one."""
        with self._store.reading() as reading:
            found = _one(reading, JOBS, "id = :id", id=id)
            return found or _one(reading, FINISHED_JOBS, "id = :id and until > :now and task <> ''", id=id, now=reading.now)

    def lane_holder(self, queue: str, lane: str) -> JobInfo | None:
        """Return the job that holds a lane."""
        with self._store.reading() as reading:
            return _one(reading, JOBS, "holds = 1 and queue = :queue and lane = :lane", queue=queue, lane=lane)

    def parked_before(self, id: str) -> int:  # noqa: A002
        """Count the jobs that wait before a parked job in its lane."""
        with self._store.reading() as reading:
            return int(reading.rows("parked_before", id=id)[0][0])

    def result(self, id: str) -> StoredResult:  # noqa: A002
        """Return the state of a job."""
        with self._store.reading() as reading:
            row = reading.find("find", id=id)
            if row is not None:
                errors = read_errors(row.errors)
                return StoredResult(state_of(row.state, row.due, reading.now), error=errors[-1] if errors else None)
            for state, task, value in reading.rows("finished_result", id=id, now=reading.now):
                return StoredResult(state_of(state, 0, reading.now), value=value, task=task)
            for run in _recent(reading):
                if run.id == id and run.outcome in ("done", "cancelled"):
                    return StoredResult("done" if run.outcome == "done" else "cancelled")
        return StoredResult("gone")

    def lanes(self, queue: str | None, order: str, limit: int, after: str | None, name: str | None = None) -> LanePage:
        """List lanes in an order."""
        with self._store.reading() as reading:
            return list_lanes(reading, queue, order, limit, after, name)

    def payloads(self, queue: str, lane: str, limit: int, after: str | None) -> PayloadPage:
        """List the payloads of a collector's lane."""
        with self._store.reading() as reading:
            return list_payloads(reading, queue, lane, limit, after)

    def workers(self) -> list[WorkerStatus]:
        """List the workers by host and pid, with their claims."""
        with self._store.reading() as reading:
            return _workers(reading)

    def totals(self) -> dict[str, int]:
        """Return the counters since the store was created."""
        with self._store.reading() as reading:
            return {**dict(reading.rows("count_read")), **reading.totals()}

    def recent(self, limit: int) -> list[Run]:
        """Return the last runs, newest first."""
        with self._store.reading() as reading:
            return _recent(reading)[:limit]

    def figures(self, level: Level, number: int, depth: Depth = "times") -> Kept:
        """Return the last `number` buckets of a level."""
        with self._store.reading() as reading:
            return read_figures(reading, level, number, depth)

    def errors(self, limit: int) -> list[ErrorGroup]:
        """Return failures by kind, the most recent first."""
        with self._store.reading() as reading:
            return read_faults(reading, limit)


#: States that have one index for all queues together.
_MIXED = ("running", "dead")


def _one(reading: Reading, table: Table, terms: str, **values: Any) -> JobInfo | None:
    rows = reading.select("show_job", {"shown": reading.text(table.shown), "terms": terms}, **values)
    return _info(rows[0], reading.now) if rows else None


def _end(reading: Reading, table: Table, look: int, newest: bool, after: int) -> int | None:
    """Return the last of `look` jobs by arrival; None: fewer are left."""
    further = f"seq {'<' if newest else '>'} :after" if after else "true"
    words = {"table": table.name, "further": further, "direction": "desc" if newest else "asc"}
    found = reading.select("arrival_at", words, after=after, look=max(look - 1, 0))
    return int(found[0][0]) if found else None


def _few(reading: Reading, which: Filter) -> str:
    """Return where the jobs of a state, or of a queue, are, if they are few: then a walk of all jobs by arrival takes longer."""
    if which.state not in (None, *STATES) or (which.state is None and which.queue is None):
        return ""
    looked, parts, queues = 0, list[str](), reading.queues()
    words = {"pairs": reading.dialect.pairs.format(":pairs"), "in_queue": "" if which.queue is None else " and queue = :queue"}
    for number, state in enumerate(STATES):
        mine = sum(queue.counts[number] for queue in queues if which.queue in (None, queue.name))
        if which.state in (None, state) and mine:
            looked += sum(queue.counts[number] for queue in queues) if state in _MIXED else mine
            parts.append(reading.text(f"where_{state}", **words))
    if 4 * looked >= sum(sum(queue.counts) for queue in queues) > 0:
        return ""
    return " union all ".join(parts) or reading.text("where_nothing")


def _pairs(reading: Reading, queue: str | None) -> str:
    """Return the selected queues and their priorities in use, as JSON."""
    names = [one.name for one in reading.queues() if queue in (None, one.name)]
    return msgspec.json.encode([(name, rank) for name in names for rank in ranks(reading, name)]).decode()


def _lag(reading: Reading, queue: Queue) -> int:
    """Return how long the oldest due job of a queue has waited, from the first job of each priority."""
    first = [reading.rows("first_due", queue=queue.name, rank=rank)[0][0] for rank in ranks(reading, queue.name)]
    return max(reading.now - min(first, default=reading.now), 0)


def _recent(reading: Reading) -> list[Run]:
    portions = [reading.last_runs(), *(runs for (runs,) in reading.rows("recent_read"))]
    return [run for runs in portions for run in reversed(read_runs(runs[:-1]))][:KEEP_RUNS]


def _workers(reading: Reading) -> list[WorkerStatus]:
    held: defaultdict[str, list[Held]] = defaultdict(list)
    for worker, *claim in reading.rows("claims"):
        held[worker].append(tuple(claim))
    rows = reading.rows("workers")
    workers = [status(read_worker(id_, info), at, held[id_], reading.now) for id_, _, at, info in rows]
    return sorted(workers, key=lambda worker: (worker.host, worker.pid, worker.id))


def _position(reading: Reading, after: str | None) -> int:
    """Return the sequence number that a job's id or a page's `next` means."""
    if after is None:
        return 0
    if after.startswith("seq:") and (number := read_number(after[4:])) is not None:
        return number
    for (seq,) in reading.rows("arrival_of", id=after):
        return int(seq)
    raise NotFound(f"after={after!r}: no such job is in the store any more. Go on with after=page.next instead", id=after)


def _info(columns: tuple[Any, ...], now: int) -> JobInfo:
    row = Row(*columns[:-4])
    told, body, started, payloads = columns[-4:]
    state = state_of(row.state, row.due, now)
    notes = read_notes(told)
    if row.side is not None or row.score is not None:
        body = b"[[%b],{}]" % body  # a payload as a call with it
    expires = None if row.expires is None or row.state >= RUNNING else as_datetime(row.expires)
    return JobInfo(
        id=row.id, task=row.task, queue=row.queue, lane=row.lane, priority=-row.rank, state=state,
        attempt=row.attempt, enqueued_at=as_datetime(row.enqueued), place_at=as_datetime(row.place), due_at=as_datetime(row.due),
        expires_at=expires, unique=row.unique_key is not None, holds=bool(row.holds), worker=row.worker, token=row.token,
        mark=row.mark, errors=read_errors(row.errors), body=body, payloads=payloads,
        score=row.score, progress=notes.progress, log=notes.log, started_at=as_datetime(started) if started else None,
        finished_at=as_datetime(row.due) if state in FINISHED else None,
    )  # fmt: skip
