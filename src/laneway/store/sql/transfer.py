"""Transfer over rows: see `laneway.store.transfer`.

Rows are exported by their sequence numbers, over all queues. A number is the primary key here, while in other stores each queue
counts by itself: a job whose number is taken gets the next free one. Jobs of a queue come in order, so they keep it.

Enters and leaves: `Portion`s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from laneway.core.error_groups import MOST_FAULTS
from laneway.core.job import FINISHED, State, lane_id
from laneway.errors import StoreError
from laneway.store.error_history import read_errors, write_errors
from laneway.store.sql.gather import digest
from laneway.store.sql.port import CopyTurn, Database, Queue, Reading
from laneway.store.sql.rows import BLOCKED, CANCELLED, DEAD, DONE, RETRYING, RUNNING, Row
from laneway.store.sql.statistics import read_learned
from laneway.store.transfer import (
    JOBS,
    PAYLOADS,
    PORTION,
    QUEUE,
    RECORDS,
    SHARED,
    Cursor,
    Move,
    Portion,
    SharedState,
    StoredCounts,
    StoredJob,
    StoredPayload,
    StoredQueue,
    StoredRecord,
    StoredSchedule,
    chunks,
    out_of_step,
    read_cursor,
    write_cursor,
)

__all__ = ["SQLTransfer"]

#: Before all sequence numbers.
FIRST = -(1 << 62)


class CopiedStore(Database, Protocol):
    """What a transfer needs of a store."""

    def turn(self) -> AbstractContextManager[CopyTurn]:
        """Return one atomic step, to be used in a `with`."""
        ...


class SQLTransfer:
    """The side of an SQL store that takes part in copies."""

    def __init__(self, store: CopiedStore) -> None:
        self._store = store

    # -- the store's part ------------------------------------------------------------------------------------

    def move(self) -> Move | None:
        """Return its part in a copy."""
        with self._store.reading() as reading:
            return reading.move

    def close(self, move: Move) -> Move:
        """Close a source, and wake all waiting workers."""
        with self._store.turn() as turn:
            if turn.move is None or not (turn.is_closed or turn.move.copy == move.copy):  # a copy's target may be moved on
                turn.set_move(move)
            found = turn.move or move
        self._store.ring()
        return found

    def begin(self, move: Move, queues: Collection[str]) -> Move:  # noqa: ARG002 - a step is one over all queues
        """Close a target."""
        return self.close(move)

    def finish(self) -> None:
        """Note that all was copied."""
        with self._store.turn() as turn:
            if turn.move is not None:
                turn.set_move(replace(turn.move, finished=True, copied={}))
        self._store.ring()

    def reopen(self) -> None:
        """Forget the copy, and wake all waiting workers."""
        with self._store.turn() as turn:
            turn.set_move(None)
        self._store.ring()

    def queues(self) -> list[str]:
        """Return the names of all queues."""
        with self._store.reading() as reading:
            return [queue.name for queue in reading.queues()]

    def copied(self) -> dict[str, str]:
        """Return the cursors of a target."""
        move = self.move()
        return {} if move is None else move.copied

    def stored_counts(self) -> StoredCounts:
        """Count what the store holds."""
        with self._store.reading() as reading:
            states: dict[int, int] = dict(reading.rows("tally_jobs"))
            [(payloads, schedules, records)] = reading.rows("tally_others", now=reading.now)
        return StoredCounts(
            waiting=sum(number for state, number in states.items() if state <= RETRYING), blocked=states.get(BLOCKED, 0),
            running=states.get(RUNNING, 0), dead=states.get(DEAD, 0), payloads=payloads, schedules=schedules, records=records,
        )  # fmt: skip

    # -- the source ------------------------------------------------------------------------------------------

    def export(self, done: Mapping[str, str]) -> Iterator[Portion]:
        """Walk the content in portions. Each is read by itself: the source is at rest."""
        behind = {section: read_cursor(cursor) for section, cursor in done.items()}
        for portion in self._all():
            rest = _rest(portion, behind.get(portion.section, ()))
            if rest is not None:
                yield rest

    def _all(self) -> Iterator[Portion]:
        with self._store.turn() as turn:
            shared, queues = _shared(turn), [(queue.name, _stored_queue(turn, queue)) for queue in turn.queues()]
        yield Portion(section=SHARED, cursor=write_cursor((QUEUE,)), shared=shared)
        for name, stored in queues:
            yield Portion(section=name, cursor=write_cursor((QUEUE,)), queue=stored)
        for rows in self._pages("export_jobs"):
            for queue, mine in _by_queue(rows).items():
                for jobs in chunks([_stored_job(row) for row in mine]):
                    yield Portion(section=queue, cursor=write_cursor((JOBS, jobs[-1].number)), jobs=jobs)
        for lanes in self._pages("export_lanes"):
            for lane in lanes:
                yield from self._payloads(*lane)
        for rows in self._pages("export_records"):
            for queue, mine in _by_queue(rows).items():
                for records in chunks([_stored_record(row) for row in mine]):
                    yield Portion(section=queue, cursor=write_cursor((RECORDS, records[-1].number)), records=records)

    def _pages(self, statement: str) -> Iterator[list[Any]]:
        after = FIRST
        while True:
            with self._store.reading() as reading:
                times = {"now": reading.now} if statement == "export_records" else {}
                rows = reading.rows(statement, after=after, **times, most=PORTION)
            if not rows:
                return
            yield rows
            after = rows[-1][0]

    def _payloads(self, seq: int, queue: str, lane: str, side: int) -> Iterator[Portion]:
        """Walk the payloads of a lane, by score."""
        after: tuple[float, int] | None = None
        while True:
            with self._store.reading() as reading:
                if after is None:
                    rows = reading.rows("payloads_read", lane=seq, side=side, most=PORTION)
                else:
                    rows = reading.rows("payloads_after", lane=seq, side=side, score=after[0], arrival=after[1], most=PORTION)
            if not rows:
                return
            found = [
                StoredPayload(lane=lane, score=score, arrival=arrival, body=body, headers=headers or "")
                for body, score, arrival, headers in rows
            ]
            for payloads in chunks(found):
                after = payloads[-1].score, payloads[-1].arrival
                yield Portion(section=queue, cursor=write_cursor((PAYLOADS, seq, *after)), payloads=payloads)

    # -- the target ------------------------------------------------------------------------------------------

    def take(self, portion: Portion) -> None:
        """Take a portion and its cursor, in one turn."""
        section = portion.section
        with self._store.turn() as turn:
            move = turn.move
            if move is None or not move.fills or move.finished or move.copied.get(section, "") != portion.before:
                raise out_of_step(section)
            if portion.shared is not None:
                _take_shared(turn, portion.shared)
            if portion.queue is not None:
                _take_queue(turn, section, portion.queue)
            if portion.jobs:
                _take_jobs(turn, section, portion.jobs)
            if portion.payloads:
                _take_payloads(turn, section, portion.payloads)
            if portion.records:
                _take_records(turn, section, portion.records)
            turn.set_move(replace(move, copied={**move.copied, section: portion.cursor}))


# -- rows as values ----------------------------------------------------------------------------------------------


def _rest(portion: Portion, done: Cursor) -> Portion | None:
    """Return the part of a portion that comes behind a cursor."""
    if read_cursor(portion.cursor) <= done:
        return None
    if done and done[0] == JOBS:
        return replace(portion, jobs=[job for job in portion.jobs if (JOBS, job.number) > done])
    if done and done[0] == RECORDS:
        return replace(portion, records=[record for record in portion.records if (RECORDS, record.number) > done])
    return portion  # the portions of payloads are always the same


def _by_queue(rows: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row[2], []).append(row)
    return found


def _shared(reading: Reading) -> SharedState:
    return SharedState(
        schedules=[StoredSchedule(*row) for row in reading.rows("schedules")],
        totals={**dict(reading.rows("count_read")), **reading.totals()}, learned=read_learned(reading),
        figures=reading.rows("export_figures"), faults=reading.rows("faults", most=MOST_FAULTS),
    )  # fmt: skip


def _stored_queue(turn: CopyTurn, queue: Queue) -> StoredQueue:
    seq, score = turn.reached()
    return StoredQueue(
        paused_at=queue.paused_at if queue.paused else None, paused_by=queue.paused_by, collects=queue.collects, now=turn.now,
        number=seq, score=score, sources=dict(turn.rows("sources", queue=queue.name)),
    )  # fmt: skip


_STATES: dict[int, State] = {RETRYING: "retrying", DEAD: "dead", DONE: "done", CANCELLED: "cancelled"}


def _fields(columns: Sequence[Any]) -> dict[str, Any]:
    """Return what jobs and records have in common."""
    row, notes, body = Row(*columns[: len(Row.__struct_fields__)]), *columns[len(Row.__struct_fields__) :][:2]
    waits: State = "ready" if row.state < BLOCKED else "blocked"
    return {
        "id": row.id, "task": row.task, "lane": row.lane, "priority": -row.rank, "number": row.seq, "place": row.place,
        "due": row.due, "enqueued": row.enqueued, "state": _STATES.get(row.state, waits), "attempt": row.attempt,
        "errors": read_errors(row.errors), "notes": notes or b"", "body": body,
    }  # fmt: skip


def _stored_job(columns: Sequence[Any]) -> StoredJob:
    row = Row(*columns[: len(Row.__struct_fields__)])
    return StoredJob(
        **_fields(columns), holds=bool(row.holds), ran=bool(row.ran), unique=row.unique_key, end_key=row.end_key,
        expires=row.expires, lost=row.lost or "", collects=row.side is not None, score=row.score,
    )  # fmt: skip


def _stored_record(columns: Sequence[Any]) -> StoredRecord:
    row, (started, until, value) = Row(*columns[: len(Row.__struct_fields__)]), columns[-3:]
    return StoredRecord(**_fields(columns), worker=row.worker or "", started=started, until=until, value=value)


# -- values as rows ----------------------------------------------------------------------------------------------


def _take_shared(turn: CopyTurn, shared: SharedState) -> None:
    turn.change_many("take_schedule", [(one.name, one.last, one.paused_by, one.entry) for one in shared.schedules])
    ours = turn.totals()
    for name, number in shared.totals.items():
        if name in ours:
            turn.total(name, number)
        else:
            turn.change("count_add", name=name, number=number)
    turn.change_many("learned_write", [(task, msgspec.json.encode(seen)) for task, seen in shared.learned.items()])
    turn.change_many("fault_add", shared.faults)
    turn.change_many("figures_write", shared.figures)


def _take_queue(turn: CopyTurn, name: str, queue: StoredQueue) -> None:
    turn.reach(queue.now, queue.number, queue.score)
    turn.queue(name)
    turn.set_collects(name, queue.collects)
    if queue.paused_at is not None:
        turn.pause_since(name, queue.paused_at, queue.paused_by)
    turn.change_many("take_source", [(name, source, number) for source, number in queue.sources.items()])


def _take_jobs(turn: CopyTurn, name: str, jobs: Sequence[StoredJob]) -> None:
    counts, rows = Counter[int](), list[tuple[Any, ...]]()
    for seq, job in zip(_numbers(turn, "laneway_job", jobs), jobs, strict=True):
        counted = {"blocked": BLOCKED, "dead": DEAD}.get(job.state, turn.waiting(name, job.due, failed=job.state == "retrying"))
        counts[counted] += 1
        state = RETRYING if job.state == "retrying" else counted
        rows.append((
            seq, job.id, name, job.task, job.lane, -job.priority, job.place, job.due, state, int(job.holds), int(job.ran),
            job.attempt, job.enqueued, job.expires, job.lost or None, write_errors(job.errors), job.notes or None,
            0 if job.collects else None, job.score, job.body, job.end_key, job.unique, job.unique,
        ))  # fmt: skip
    if turn.change_many("take_job", rows) != len(rows):
        what = f'queue "{name}" has a job with an id that a job of another queue has, too, and this store has each id once'
        raise StoreError(f"{what}: reopen the source, and delete one of them")
    for state, number in counts.items():
        turn.count(name, None, state, number)


def _take_payloads(turn: CopyTurn, queue: str, payloads: Sequence[StoredPayload]) -> None:
    lanes: dict[str, tuple[int, int]] = {}
    for lane in {payload.lane for payload in payloads}:
        row = turn.find("lane_find", id=lane_id(queue, lane))
        if row is None or row.side is None:
            raise out_of_step(queue)
        lanes[lane] = row.seq, row.side
    rows = [(*lanes[one.lane], one.score, one.arrival, digest(one.body), one.body, one.headers or None) for one in payloads]
    turn.change_many("payload_add_headers", rows)


def _take_records(turn: CopyTurn, queue: str, records: Sequence[StoredRecord]) -> None:
    rows = [
        (seq, one.id, queue, one.task, one.lane, -one.priority, one.place, one.due, DONE + FINISHED.index(one.state),
         one.attempt, one.enqueued, one.worker or None, write_errors(one.errors), one.notes or None, one.started, one.until,
         one.value, one.body)
        for seq, one in zip(_numbers(turn, "laneway_finished", records), records, strict=True)
    ]  # fmt: skip
    turn.change_many("take_record", rows)


def _numbers(turn: CopyTurn, table: str, jobs: Sequence[StoredJob | StoredRecord]) -> list[int]:
    """Return a sequence number for each: its own, or the next one that is free.

    A dead payload arrives with its number when it is replayed, and no other payload of its lane may have it: if its own is not
    free it gets a new one.
    """
    words, own = {"table": table, "numbers": turn.dialect.numbers.format(":numbers")}, [job.number for job in jobs]
    taken = {seq for (seq,) in turn.select("taken_numbers", words, numbers=msgspec.json.encode(own).decode())}
    last, given = FIRST, list[int | None]()
    for job in jobs:
        if job.number > last and job.number not in taken:
            last = job.number
        elif isinstance(job, StoredRecord) or job.score is None:
            [(last,)] = turn.select("free_number", {"table": table}, seq=max(job.number, last + 1))
        else:
            given.append(None)
            continue
        given.append(last)
    turn.reach(0, last, 0.0)
    return [turn.next_seq() if number is None else number for number in given]
