"""Statistics: what arrived and what workers report, kept at write time; see `laneway.store.rollup`.

What arrives is counted in the books, which every push writes anyway. It moves to a table when something arrives in another
stretch of ten seconds, or when it gets too much to carry along. Whoever does that, or records, closes what is complete in the
same turn.

Called by: `push`, `gather`, the store and its inspection side.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import msgspec

from laneway.faults import MOST_FAULTS
from laneway.figures import Bucket, Depth, Key, Report, Seen, decode, encode, encode_report
from laneway.store.faults import ErrorGroup, pack_fault, read_fault
from laneway.store.rollup import DAY, LEVELS, TEN, Kept, Level, Open, begin_of, complete_until, outdated, roll
from laneway.store.sqlite.books import Books
from laneway.store.sqlite.sql import SQL
from laneway.store.sqlite.turn import Turn

__all__ = ["arrive", "read_faults", "read_figures", "read_learned", "record"]

#: So many queues and tasks are counted in the books.
IN_BOOKS = 16

_seen = msgspec.json.Decoder(Seen)


def arrive(turn: Turn, counts: Mapping[Key, int]) -> None:
    """Count what arrived, by queue and task."""
    books, at = turn.books, begin_of(turn.now, TEN)
    if books.arrived_at != at:
        _put_down(turn)
        books.arrived_at = at
        _close(turn)
    for (queue, task), number in counts.items():
        tasks = books.arrived.setdefault(queue, {})
        tasks[task] = tasks.get(task, 0) + number
    if sum(map(len, books.arrived.values())) > IN_BOOKS:
        _put_down(turn)


def record(turn: Turn, report: Report) -> None:
    """Keep what a worker reports, unless it has done so before."""
    if report.worker and not turn.execute(SQL["reporter_write"], (report.worker, report.number, turn.now)).rowcount:
        return
    if raw := encode_report(report):
        turn.execute(SQL["report_add"], (begin_of(turn.now, TEN), raw))
    turn.executemany(SQL["count_add"], report.counters.items())
    if report.faults:
        turn.executemany(SQL["fault_add"], [(f.id, f.count, turn.now, turn.now, pack_fault(f)) for f in report.faults])
        turn.execute(SQL["faults_trim"], (MOST_FAULTS,))
    if report.learned:
        _learn(turn, report.learned)
    _close(turn)


def _learn(turn: Turn, learned: Mapping[str, Seen]) -> None:
    known = read_learned(turn.connection)
    for task, seen in learned.items():
        total = [one + more for one, more in zip(known.get(task, (0.0,) * 6), seen, strict=True)]
        turn.execute(SQL["learned_write"], (task, msgspec.json.encode(total)))


def _put_down(turn: Turn) -> None:
    """Move what the books have counted to its table."""
    books = turn.books
    rows = [(books.arrived_at, queue, task, n) for queue, tasks in books.arrived.items() for task, n in tasks.items()]
    turn.executemany(SQL["arrived_add"], rows)
    books.arrived = {}


def _close(turn: Turn) -> None:
    """Add up what is complete. Once every ten seconds there is something to do, if anybody is here."""
    books, until = turn.books, complete_until(turn.now)
    if books.closed >= until:
        return
    for (level, at), more in roll(_open(turn.connection, Books()).closed(until=until), turn.now).items():
        found = turn.execute(SQL["figures_find"], (level, at)).fetchone()
        bucket = decode(found[0]) if found else Bucket()
        bucket.add(more)
        turn.execute(SQL["figures_write"], (level, at, encode(bucket)))
    turn.execute(SQL["reports_drop"], (until,))
    turn.execute(SQL["arrived_drop"], (until,))
    for level in LEVELS:
        turn.execute(SQL["figures_drop"], (level, outdated(turn.now, level)))
    turn.execute(SQL["reporters_drop"], (turn.now - DAY,))
    books.closed, turn.changed = until, True


def _open(connection: sqlite3.Connection, books: Books) -> Open:
    """Return what nobody has added up yet."""
    found = Open()
    for at, raw in connection.execute(SQL["reports"]):
        found.reports.setdefault(at, []).append(raw)
    for at, queue, task, number in connection.execute(SQL["arrived"]):
        found.arrived.setdefault(at, {})[queue, task] = number
    for queue, tasks in books.arrived.items():
        at_last = found.arrived.setdefault(books.arrived_at, {})
        for task, number in tasks.items():
            at_last[queue, task] = at_last.get((queue, task), 0) + number
    return found


# -- reading -----------------------------------------------------------------------------------------------------


def read_figures(connection: sqlite3.Connection, books: Books, level: Level, number: int, depth: Depth) -> Kept:
    """Return the last so many buckets of a level, with what is still open."""
    since = begin_of(books.now, level) - (number - 1) * level
    buckets = {at: decode(raw, depth) for at, raw in connection.execute(SQL["figures_read"], (level, since))}
    for at, bucket in _open(connection, books).closed().items():
        if at >= since:
            buckets.setdefault(begin_of(at, level), Bucket()).add(bucket)
    return Kept(books.now, buckets)


def read_faults(connection: sqlite3.Connection, limit: int) -> list[ErrorGroup]:
    """Return kinds of failures, the last seen first."""
    return [read_fault(*row) for row in connection.execute(SQL["faults"], (limit,))]


def read_learned(connection: sqlite3.Connection) -> dict[str, Seen]:
    """Return what workers have learned about tasks. What cannot be read is not known."""
    known: dict[str, Seen] = {}
    for task, raw in connection.execute(SQL["learned"]):
        try:
            known[task] = _seen.decode(raw)
        except ValueError:
            continue
    return known
