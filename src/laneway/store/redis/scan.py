"""Walking: jobs in the order of the indexes, from a cursor on, and no further than needed.

There is no index by arrival, since every waiting job would pay for it. But each state has one: waiting jobs by due time, dead
ones by time of death. A list goes through these: running, waiting, parked, dead jobs, and in each group by that time, over all
queues. So a page costs the same however many jobs there are.

Enters: a filter and a cursor.  Leaves: ids, each with its cursor.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from laneway.store.inspection import Filter, JobInfo
from laneway.store.redis.keys import queue_base, queue_key
from laneway.store.redis.reading import instant, number
from laneway.store.redis.record import Record, id_of_entry, parked_entry
from laneway.store.redis.wire import Command, Wire

__all__ = ["ENDED", "Cursor", "Walk", "cursor_of", "walk_hash", "what_runs"]

#: How many jobs are read at once, after the first read.
PORTION = 500
RUNNING, WAITING, PARKED, DEAD, ENDED = range(5)
GROUPS: dict[str | None, tuple[int, ...]] = {
    None: (RUNNING, WAITING, PARKED, DEAD), "running": (RUNNING,), "ready": (WAITING,), "scheduled": (WAITING,),
    "retrying": (WAITING,), "waiting": (WAITING, PARKED), "blocked": (PARKED,), "dead": (DEAD,), "done": (ENDED,),
    "cancelled": (ENDED,),
}  # fmt: skip


def walk_hash(wire: Wire, key: str) -> Iterator[tuple[bytes, bytes]]:
    """Walk all fields of a hash with their values, in portions. One that others write meanwhile may come twice."""
    cursor = b"0"
    while True:
        cursor, answer = wire.ask(("HSCAN", key, cursor, "COUNT", "1000"))
        yield from zip(answer[::2], answer[1::2], strict=True)
        if cursor == b"0":
            return


class Cursor(Struct, frozen=True, order=True):
    """The position of a job in a list."""

    group: int
    at: int  #: due, or died, or its lane's place: microseconds; for running jobs the claim's token
    queue: str
    entry: bytes  #: in its index

    @property
    def id(self) -> bytes:
        """The job's id."""
        return id_of_entry(self.entry) if self.group in (WAITING, PARKED) else self.entry


class _Index(Struct):
    """One sorted set, and the range of it that may match."""

    group: int
    queue: str
    key: bytes
    low: str = "-inf"  #: scores, in the server's notation for bounds
    high: str = "+inf"


class Walk:
    """One list of jobs."""

    def __init__(self, wire: Wire, queues: Sequence[str], which: Filter, now: int, *, newest: bool) -> None:
        self._wire = wire
        self._queues = queues
        self._state = which.state
        self._now = now
        self._newest = newest

    def cursors(self, after: Cursor | None, first: int) -> Iterator[Cursor]:
        """Walk the jobs that may match, from a cursor on. `first`: at least this many are wanted."""
        groups = GROUPS.get(self._state, (WAITING,))
        for group in reversed(groups) if self._newest else groups:
            if after is None or (group <= after.group if self._newest else group >= after.group):
                yield from self._group(group, after if after is not None and after.group == group else None, first)

    def _group(self, group: int, after: Cursor | None, first: int) -> Iterator[Cursor]:
        if group in (RUNNING, PARKED):
            found = what_runs(self._wire, self._queues) if group == RUNNING else self._parked()
            found.sort(reverse=self._newest)
            yield from [cursor for cursor in found if after is None or self._is_further(cursor, after)]
            return
        indexes = self._waiting() if group == WAITING else self._ended(group)
        walks = self._begin(indexes, after, first)
        yield from heapq.merge(*walks, reverse=self._newest)

    def _is_further(self, cursor: Cursor, after: Cursor) -> bool:
        return cursor < after if self._newest else cursor > after

    # -- indexes ---------------------------------------------------------------------------------------------

    def _waiting(self) -> list[_Index]:
        if self._state == "retrying":
            return [_Index(WAITING, queue, queue_key(queue, "RETRY").encode(), low=f"({self._now}") for queue in self._queues]
        asked = [("HGET", queue_key(queue, "META"), "ranks") for queue in self._queues]
        bounds = {"ready": ("-inf", str(self._now)), "scheduled": (f"({self._now}", "+inf")}
        low, high = bounds.get(self._state or "", ("-inf", "+inf"))
        return [
            _Index(WAITING, queue, queue_key(queue, "DUE", str(rank - 100)).encode(), low, high)
            for queue, ranks in zip(self._queues, self._wire.ask_all(asked), strict=True)
            for rank in (100, *(ranks or b""))
        ]

    def _ended(self, group: int) -> list[_Index]:
        names = ("DEAD", "HALTED") if group == DEAD else ("ENDED",)
        return [_Index(group, queue, queue_key(queue, name).encode()) for queue in self._queues for name in names]

    def _parked(self) -> list[Cursor]:
        """Return the parked jobs. Lanes have no common index: all of them are read."""
        lanes = self._wire.ask_all([("HKEYS", queue_key(queue, "LANES")) for queue in self._queues])
        keys = [
            (queue, queue_key(queue, "PARKED").encode() + lane)
            for queue, names in zip(self._queues, lanes, strict=True)
            for lane in names
        ]
        found: list[Cursor] = []
        for start in range(0, len(keys), PORTION):
            portion = keys[start : start + PORTION]
            answers = self._wire.ask_all([("ZRANGE", key, "0", "-1", "WITHSCORES") for _, key in portion])
            for (queue, _), answer in zip(portion, answers, strict=True):
                found += _cursors(_Index(PARKED, queue, b""), answer)
        return found

    # -- sorted sets -----------------------------------------------------------------------------------------

    def _begin(self, indexes: Sequence[_Index], after: Cursor | None, first: int) -> list[Iterator[Cursor]]:
        """Return a walk through each index; all of them begin in two round trips."""
        if not indexes:
            return []
        begins = [int(number) for number in self._wire.ask_all([self._before(index, after) for index in indexes])]
        size = max(first, 1)
        portions = self._wire.ask_all([self._read(index, begin, size) for index, begin in zip(indexes, begins, strict=True)])
        return [
            self._walk(index, after, begin + size, answer, ended=len(answer) < 2 * size)
            for index, begin, answer in zip(indexes, begins, portions, strict=True)
        ]

    def _before(self, index: _Index, after: Cursor | None) -> Command:
        """Return the command that counts entries before the first match; entries with the same time as the cursor are kept."""
        if self._newest:
            bound = f"({after.at}" if after is not None and _within(after.at, index.high, above=False) else _beyond(index.high)
            return ("ZCOUNT", index.key, bound, "+inf") if bound else ("ZCOUNT", index.key, "1", "0")
        bound = f"({after.at}" if after is not None and _within(after.at, index.low, above=True) else _beyond(index.low)
        return ("ZCOUNT", index.key, "-inf", bound) if bound else ("ZCOUNT", index.key, "1", "0")

    def _read(self, index: _Index, begin: int, size: int) -> Command:
        return ("ZREVRANGE" if self._newest else "ZRANGE", index.key, str(begin), str(begin + size - 1), "WITHSCORES")

    def _walk(self, index: _Index, after: Cursor | None, begin: int, answer: list[Any], *, ended: bool) -> Iterator[Cursor]:
        last = _bound(index.low if self._newest else index.high)
        while True:
            for cursor in _cursors(index, answer):
                if last is not None and last(cursor.at):
                    return
                if after is None or self._is_further(cursor, after):
                    yield cursor
            if ended:
                return
            answer = self._wire.ask(self._read(index, begin, PORTION))
            begin += PORTION
            ended = len(answer) < 2 * PORTION


def what_runs(wire: Wire, queues: Sequence[str]) -> list[Cursor]:
    """Return the running jobs of some queues."""
    holders = wire.ask_all([("SMEMBERS", queue_key(queue, "HOLDERS")) for queue in queues])
    asked = [(queue, worker) for queue, workers in zip(queues, holders, strict=True) for worker in workers]
    held = wire.ask_all([("HGETALL", queue_base(queue).encode() + b"running:" + worker) for queue, worker in asked])
    return [
        Cursor(RUNNING, number(token), queue, id_)
        for (queue, _), claims in zip(asked, held, strict=True)
        for id_, token in zip(claims[::2], claims[1::2], strict=True)
        if token.isdigit()
    ]


def cursor_of(record: Record, info: JobInfo, which: Filter) -> Cursor:
    """Return the position of a job in a list."""
    id_ = info.id.encode(errors="replace")
    if info.state == "running":
        return Cursor(RUNNING, info.token or 0, info.queue, id_)
    if info.state == "dead":
        return Cursor(DEAD, record.due, info.queue, id_)
    if info.state == "blocked":
        return Cursor(PARKED, record.place, info.queue, parked_entry(record, id_))
    if which.state == "retrying":
        return Cursor(WAITING, record.due, info.queue, _bare(id_))
    if record.place == record.due:
        return Cursor(WAITING, record.due, info.queue, parked_entry(record, id_))
    return Cursor(WAITING, record.due, info.queue, b"\0" + record.place.to_bytes(7) + record.seq.to_bytes(7) + id_)


def _bare(id_: bytes) -> bytes:
    """Return an id as an entry of an index that has no numbers in front of it."""
    return b"\xff" + bytes(7) + id_


def _cursors(index: _Index, answer: Sequence[bytes]) -> list[Cursor]:
    plain = index.group == WAITING and index.key.endswith(b":retry")
    return [
        Cursor(index.group, instant(score), index.queue, _bare(entry) if plain else entry)
        for entry, score in zip(answer[::2], answer[1::2], strict=True)
    ]


def _within(at: int, bound: str, *, above: bool) -> bool:
    """Return whether a time is on the inner side of a bound."""
    number = bound.lstrip("(")
    if number in ("-inf", "+inf"):
        return True
    return at >= int(number) if above else at <= int(number)


def _beyond(bound: str) -> str:
    """Return the bound of the part outside of it; empty: there is none."""
    if bound in ("-inf", "+inf"):
        return ""
    return bound[1:] if bound.startswith("(") else f"({bound}"


def _bound(bound: str) -> Callable[[int], bool] | None:
    """Return a function that returns whether a time is outside of the bound at which a walk ends."""
    if bound in ("-inf", "+inf"):
        return None
    number = int(bound.lstrip("("))
    # A lower bound is written with a bracket, an upper one without.
    return (lambda at: at <= number) if bound.startswith("(") else (lambda at: at > number)
