"""Statistics: arrivals and reports of workers, summed at write time; see `laneway.store.statistics`.

An open interval of ten seconds is a list of reports, and beside each queue a hash of its arrivals. The server never reads their
content: a worker is asked, once every ten seconds, to close complete intervals. It reads, sums, and writes if no other worker has
done so meanwhile; only then the summed entries are removed.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from laneway.core.buckets import Bucket, Depth, Report, Seen, decode, encode, encode_report
from laneway.core.error_groups import MOST_FAULTS
from laneway.core.instant import SECOND
from laneway.errors import StoreError
from laneway.store.error_groups import ErrorGroup, pack_fault, read_fault
from laneway.store.redis.connection import as_words
from laneway.store.redis.keys import SHARED_KEYS, STORE, queue_key
from laneway.store.redis.queues import Queues
from laneway.store.redis.reading import instant, number
from laneway.store.redis.scripts import script
from laneway.store.redis.wire import Command, Wire
from laneway.store.statistics import DAY, LEVELS, TEN, Kept, Level, Open, begin_of, complete_until, outdated, roll

__all__ = ["Statistics", "pack_seen"]

#: The most complete intervals that are left to workers; a reader that finds more closes them.
LEFT_OPEN = 30
_to_msgpack = msgspec.msgpack.Encoder().encode
_seen = struct.Struct(">6d")


class Statistics:
    """Records, closes and reads."""

    def __init__(self, wire: Wire, queues: Queues) -> None:
        self._wire = wire
        self._queues = queues

    # -- writing ---------------------------------------------------------------------------------------------

    def record(self, report: Report, clock: str) -> None:
        """Keep a worker's report, and close complete intervals if asked to."""
        counters = [part for pair in report.counters.items() for part in pair]
        faults = [part for fault in report.faults for part in (fault.id, fault.count, pack_fault(fault).decode())]
        learned = [part for task, seen in report.learned.items() for part in (task, *map(float, seen))]
        now, to_close = self._ask(
            "record", clock, report.worker, report.number, encode_report(report), MOST_FAULTS, _to_msgpack(counters),
            _to_msgpack(faults), _to_msgpack(learned),
        )  # fmt: skip
        if to_close:
            self._close(now)

    def _close(self, now: int) -> None:
        until = complete_until(now)
        before, _, found = self._read(self._queues.read(), TEN, [])
        if until <= before:  # another worker has gone further meanwhile: its sums stay
            return
        added = roll(found.closed(until=until), now)
        keys = list(added)
        kept = self._wire.ask_all([("HGET", _figures(level), str(at // level)) for level, at in keys])
        arguments: list[str | bytes | int] = []
        for (level, at), raw in zip(keys, kept, strict=True):
            bucket = decode(raw)
            bucket.add(added[level, at])
            arguments += (level // SECOND, at // level, encode(bucket))
        old = _to_msgpack([part for level in LEVELS for part in (str(level // SECOND), outdated(now, level) // level)])
        if self._ask("close", before // TEN, until // TEN, max(now - DAY, 0), old, *arguments):
            self._forget_arrived(until)

    def _forget_arrived(self, until: int) -> None:
        """Remove summed arrivals. If a worker dies before that, they stay and are never read; the next call removes them."""
        names = list(self._queues.numbers)
        keys = [queue_key(name, "ARRIVED") for name in names]
        answers = self._wire.ask_all([("HKEYS", key) for key in keys])
        commands: list[Command] = []
        for key, fields in zip(keys, answers, strict=True):
            old = [field for field in fields if (at := _stretch(field)) is None or at < until]
            commands += [("HDEL", key, *old[start : start + 1000]) for start in range(0, len(old), 1000)]
        self._wire.ask_all(commands)

    # -- reading ---------------------------------------------------------------------------------------------

    def figures(self, now: int, level: Level, size: int, depth: Depth) -> Kept:
        """Return the last `number` buckets of a level, including open intervals."""
        begin = begin_of(now, level) - (size - 1) * level
        wanted = range(begin, now + 1, level)
        before, raws, found = self._read(self._queues.read(), level, [at // level for at in wanted])
        buckets = {at: decode(raw, depth) for at, raw in zip(wanted, raws, strict=True) if raw is not None}
        left = found.closed(since=before)
        for at, bucket in left.items():
            if begin <= at <= now:
                buckets.setdefault(begin_of(at, level), Bucket()).add(bucket)
        if len(left) > LEFT_OPEN:
            with contextlib.suppress(StoreError):  # a client that may only read goes on
                self._close(now)
        return Kept(now, dict(sorted(buckets.items())))

    def _read(self, names: Sequence[str], level: Level, numbers: Sequence[int]) -> tuple[int, list[bytes | None], Open]:
        """Return up to when all is summed, buckets, and what is open: read in an order in which nothing is missed or doubled."""
        commands: list[Command] = [("HGETALL", queue_key(name, "ARRIVED")) for name in names]
        commands.append(("EVALSHA", script("figures").digest, "1", STORE, *as_words((level // SECOND, *numbers))))
        *arrived, (closed, buckets, reports) = self._wire.ask_all(commands)
        found = Open()
        for stretch, raws in reports:
            if stretch.isdigit():
                found.reports[number(stretch) * TEN] = raws
        for name, answer in zip(names, arrived, strict=True):
            for field, size in zip(answer[::2], answer[1::2], strict=True):
                at = _stretch(field)
                if at is not None and at >= closed * TEN and size.isdigit():
                    task = field.partition(b":")[2].decode(errors="replace")
                    found.arrived.setdefault(at, {})[name, task] = number(size)
        return closed * TEN, buckets, found

    def faults(self, limit: int) -> list[ErrorGroup]:
        """Return kinds of failures, the most recent first."""
        last: list[bytes] = self._wire.ask(("ZRANGE", _key("FAULT_LAST"), "0", str(max(limit, 1) - 1), "REV", "WITHSCORES"))
        ids = last[::2]
        if not ids:
            return []
        samples, counts, firsts = self._wire.ask_all([
            ("HMGET", _key(name), *ids) for name in ("FAULTS", "FAULT_COUNTS", "FAULT_FIRST")
        ])  # fmt: skip
        return [
            read_fault(id_.decode(errors="replace"), number(count), instant(first or at), instant(at), sample or b"")
            for id_, at, sample, count, first in zip(ids, last[1::2], samples, counts, firsts, strict=True)
        ]

    def forget_fault(self, id_: str) -> bool:
        """Forget a kind of failure."""
        commands: list[Command] = [("ZREM", _key("FAULT_LAST"), id_)]
        commands += [("HDEL", _key(name), id_) for name in ("FAULTS", "FAULT_COUNTS", "FAULT_FIRST")]
        return bool(self._wire.ask_all(commands)[0])

    def learned(self) -> dict[str, Seen]:
        """Return what workers have learned about tasks. Unreadable entries are left out."""
        answer = self._wire.ask(("HGETALL", _key("LEARNED")))
        known: dict[str, Seen] = {}
        for task, raw in zip(answer[::2], answer[1::2], strict=True):
            if len(raw) == _seen.size:
                one, two, three, four, five, six = _seen.unpack(raw)
                known[task.decode(errors="replace")] = (one, two, three, four, five, six)
        return known

    def _ask(self, name: str, *arguments: str | bytes | int) -> Any:
        return self._wire.ask(("EVALSHA", script(name).digest, "1", STORE, *as_words(arguments)))


def pack_seen(seen: Seen) -> bytes:
    """Return what workers learned about a task, as it is stored."""
    return _seen.pack(*seen)


def _key(name: str) -> str:
    return STORE + SHARED_KEYS[name]


def _figures(level: Level) -> str:
    return f"{_key('FIGURES')}{level // SECOND}"


def _stretch(field: bytes) -> int | None:
    """Return the begin of the interval of an arrival; None if another program wrote it."""
    found = field.partition(b":")[0]
    return number(found) * TEN if found.isdigit() else None
