"""Statistics: reports of workers, summed at write time; see `laneway.store.statistics`.

The database counts arrivals (`Turn.arrive`). A transaction that records a report, or counts the first arrivals of another
interval of ten seconds, also closes the complete intervals.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from laneway.core.buckets import Bucket, Depth, Report, Seen, decode, encode, encode_report
from laneway.core.error_groups import MOST_FAULTS
from laneway.store.error_groups import ErrorGroup, pack_fault, read_fault
from laneway.store.sql.port import Reading, Turn
from laneway.store.statistics import DAY, LEVELS, TEN, Kept, Level, Open, begin_of, complete_until, outdated, roll

__all__ = ["close", "read_faults", "read_figures", "read_learned", "record"]

_seen = msgspec.json.Decoder(Seen)


def record(turn: Turn, report: Report) -> None:
    """Keep a worker's report, unless it was kept before."""
    if report.worker and not turn.change("reporter_write", worker=report.worker, number=report.number, now=turn.now):
        return
    if raw := encode_report(report):
        turn.change("report_add", at=begin_of(turn.now, TEN), report=raw)
    turn.change_many("count_add", list(report.counters.items()))
    if report.faults:
        turn.change_many("fault_add", [(f.id, f.count, turn.now, turn.now, pack_fault(f)) for f in report.faults])
        turn.change("faults_trim", keep=MOST_FAULTS)
    if report.learned:
        _learn(turn, report.learned)
    close(turn)


def _learn(turn: Turn, learned: Mapping[str, Seen]) -> None:
    known = read_learned(turn)
    for task, seen in learned.items():
        total = [one + more for one, more in zip(known.get(task, (0.0,) * 6), seen, strict=True)]
        turn.change("learned_write", task=task, seen=msgspec.json.encode(total))


def close(turn: Turn) -> None:
    """Sum complete intervals. Once every ten seconds there is something to do, if any program uses the store."""
    until = complete_until(turn.now)
    if turn.closed >= until:
        return
    for (level, at), more in roll(_open(turn).closed(until=until), turn.now).items():
        found = turn.rows("figures_find", level=level, at=at)
        bucket = decode(found[0][0]) if found else Bucket()
        bucket.add(more)
        turn.change("figures_write", level=level, at=at, figures=encode(bucket))
    turn.change("reports_drop", until=until)
    turn.change("arrived_drop", until=until)
    for level in LEVELS:
        turn.change("figures_drop", level=level, until=outdated(turn.now, level))
    turn.change("reporters_drop", until=turn.now - DAY)
    turn.closed = until


def _open(reading: Reading) -> Open:
    """Return what is in tables and not summed yet."""
    found = Open()
    for at, raw in reading.rows("reports"):
        found.reports.setdefault(at, []).append(raw)
    for at, queue, task, number in reading.rows("arrived"):
        found.arrived.setdefault(at, {})[queue, task] = number
    return found


# -- reading -----------------------------------------------------------------------------------------------------


def read_figures(reading: Reading, level: Level, number: int, depth: Depth) -> Kept:
    """Return the last `number` buckets of a level, including the open interval."""
    since = begin_of(reading.now, level) - (number - 1) * level
    buckets = {at: decode(raw, depth) for at, raw in reading.rows("figures_read", level=level, since=since)}
    still_open = _open(reading)
    for at, queue, task, more in reading.arrivals():
        counted = still_open.arrived.setdefault(at, {})
        counted[queue, task] = counted.get((queue, task), 0) + more
    for at, bucket in still_open.closed().items():
        if at >= since:
            buckets.setdefault(begin_of(at, level), Bucket()).add(bucket)
    return Kept(reading.now, buckets)


def read_faults(reading: Reading, limit: int) -> list[ErrorGroup]:
    """Return kinds of failures, the most recent first."""
    return [read_fault(*row) for row in reading.rows("faults", most=limit)]


def read_learned(reading: Reading) -> dict[str, Seen]:
    """Return what workers have learned about tasks. Unreadable entries are left out."""
    known: dict[str, Seen] = {}
    for task, raw in reading.rows("learned"):
        try:
            known[task] = _seen.decode(raw)
        except ValueError:
            continue
    return known
