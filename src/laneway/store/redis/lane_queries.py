"""Queries of lanes: which lanes there are, their state, and the payloads of a collector's lane.

Lanes have no index of their own: a collector's lane is a job of its queue, and a lane of jobs is only a field of its jobs. So a
list reads the records of jobs that may represent a lane: holders, running and halting jobs; and of waiting jobs the 10,000 that
are due first. Parked jobs are only counted. That is enough to sort lanes, and only the heads of those on the page are read in
full.

Enters: records, payloads.  Leaves: `LanePage`, `PayloadPage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from laneway.core.instant import SECOND, as_datetime
from laneway.errors import NotFound
from laneway.store.inspection import JobInfo, LaneInfo, LanePage, PayloadInfo, PayloadPage
from laneway.store.paging import read_order, read_position, write_position
from laneway.store.redis.keys import queue_key
from laneway.store.redis.reading import number, record_of
from laneway.store.redis.record import id_of_entry, split_headers
from laneway.store.redis.scan import what_runs
from laneway.store.redis.wire import Command, Wire

__all__ = ["FoundLane", "lane_of", "lanes_found_in", "list_lanes", "list_payloads"]

#: The most waiting jobs that are examined to find their lanes,
LOOKED = 10_000
#: and the least number for each queue.
LEAST = 100
#: How many records one command asks for.
PORTION = 1000

#: Where a page of lanes ended: the value it is ordered by, queue, lane, and the time that counts for all pages.
_LanePosition = tuple[float | str, str, str, int]
#: Where a page of payloads ended: whether it ran, score, arrival.
_PayloadPosition = tuple[bool, float, int]
_lane_positions: msgspec.json.Decoder[_LanePosition] = msgspec.json.Decoder(_LanePosition)
_payload_positions: msgspec.json.Decoder[_PayloadPosition] = msgspec.json.Decoder(_PayloadPosition)


# -- lanes -------------------------------------------------------------------------------------------------------


class FoundLane(Struct):
    """A lane with the fields that it is sorted by."""

    queue: str
    lane: str
    head: bytes  #: the id of the job that represents it: its holder, else the first by place
    rank: tuple[bool, int, int]  #: of the head: the job with the lowest represents the lane
    due: int  #: its due time, microseconds
    attempts: int
    size: int = 1  #: jobs in it, or payloads

    def join(self, other: FoundLane) -> None:
        """Take in another job of the same lane."""
        if other.rank < self.rank:
            self.head, self.rank, self.due, self.attempts = other.head, other.rank, other.due, other.attempts
        self.size += other.size


def lane_of(job: JobInfo) -> FoundLane | None:
    """Return a job as a candidate head of its lane; None if it has no lane."""
    if job.lane is None or (job.state == "dead" and not job.holds):
        return None
    rank = (not job.holds, _micros(job.place_at), 0)
    return FoundLane(job.queue, job.lane, job.id.encode(), rank, _micros(job.due_at), job.attempt, job.payloads or 1)


def list_lanes(
    found_lanes: Callable[[bool], Iterable[FoundLane]],
    look: Callable[[list[tuple[str, bytes]]], Mapping[tuple[str, bytes], JobInfo]],
    now: int, order: str, limit: int, after: str | None,
) -> LanePage:  # fmt: skip
    """Return some lanes in an order, from a position on.

    `found_lanes` returns candidate heads of lanes, with the sizes of all if it is asked to; `look` reads jobs.
    """
    by, reverse = read_order(order)
    position = None if after is None else read_position(after, _lane_positions)
    since = now if position is None else position[3]
    value, down = _ORDERS[by]
    down = down is not reverse
    lanes = sorted(_joined(found_lanes(by == "size")), key=lambda lane: (lane.queue, lane.lane))
    lanes.sort(key=lambda lane: value(lane, since), reverse=down)  # ties stay by queue and name
    if position is not None:
        ended = (position[0], position[1], position[2])
        lanes = [lane for lane in lanes if _is_further(value(lane, since), lane, ended, down)]
    shown = lanes[:limit]
    heads = look([(lane.queue, lane.head) for lane in shown])
    page = LanePage(_lane(lane, heads[lane.queue, lane.head], now) for lane in shown if (lane.queue, lane.head) in heads)
    if len(lanes) > limit > 0:
        last = shown[-1]
        page.next = write_position((value(last, since), last.queue, last.lane, since))
    return page


#: The sort values of lanes, and whether the greatest comes first. A lane that is due later has no lag.
_ORDERS: dict[str, tuple[Callable[[FoundLane, int], Any], bool]] = {
    "lag": (lambda lane, since: min(lane.due, since), False),
    "size": (lambda lane, _: lane.size, True),
    "attempts": (lambda lane, _: lane.attempts, True),
    "due": (lambda lane, _: lane.due, False),
    "name": (lambda lane, _: lane.lane, False),
}


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * SECOND)


def _is_further(value: Any, lane: FoundLane, ended: tuple[Any, str, str], down: bool) -> bool:
    if value == ended[0]:
        return (lane.queue, lane.lane) > ended[1:]
    if isinstance(value, str) != isinstance(ended[0], str):
        raise NotFound("this position is in a list of another order. Go on with after=page.next", after=ended[0])
    return bool(value < ended[0] if down else value > ended[0])


def _joined(found_lanes: Iterable[FoundLane]) -> list[FoundLane]:
    """Return one for each lane. They come by arrival: of equal ranks the first counts."""
    lanes: dict[tuple[str, str], FoundLane] = {}
    for one in found_lanes:
        lane = lanes.setdefault((one.queue, one.lane), one)
        if lane is not one:
            lane.join(one)
    return list(lanes.values())


def _lane(lane: FoundLane, head: JobInfo, now: int) -> LaneInfo:
    return LaneInfo(
        queue=lane.queue, lane=lane.lane, task=head.task, collects=head.payloads is not None, state=head.state,
        size=lane.size if head.payloads is None else head.payloads, attempts=head.attempt, due_at=head.due_at, head=head.id,
        lag=max((as_datetime(now) - head.due_at).total_seconds(), 0.0), error=head.errors[-1] if head.errors else None,
    )  # fmt: skip


# -- heads of lanes ----------------------------------------------------------------------------------------------


class _Books(Struct):
    """The lanes of a queue."""

    queue: str
    collects: bool
    parks: bool  #: some jobs are parked
    holders: dict[bytes, bytes]  #: lane → id
    ids: list[bytes]  #: candidate heads of lanes


def lanes_found_in(wire: Wire, queues: Sequence[str], *, sizes: bool) -> list[FoundLane]:
    """Return candidate heads of the lanes of some queues; those of collectors with their sizes only if asked for."""
    books = _read_books(wire, queues)
    found: list[FoundLane] = []
    for one, rows in zip(books, _records(wire, [(one.queue, one.ids) for one in books]), strict=True):
        holders = set(one.holders.values())
        for id_, raw in zip(one.ids, rows, strict=True):
            record = record_of(raw) if raw is not None else None
            if record is not None and record.lane is not None:
                rank = (id_ not in holders, record.place, record.seq)
                found.append(FoundLane(one.queue, record.lane, id_, rank, record.due, record.attempt))
    _add_parked(wire, books, found)
    if sizes:
        _measure(wire, [lane for lane in found if lane.queue in {one.queue for one in books if one.collects}])
    return found


def _read_books(wire: Wire, queues: Sequence[str]) -> list[_Books]:
    each = max(LOOKED // max(len(queues), 1), LEAST)
    runs: dict[str, list[bytes]] = {}
    for run in what_runs(wire, queues):
        runs.setdefault(run.queue, []).append(run.id)
    asked: list[Command] = []
    for queue in queues:
        # Jobs in lanes have no priority.
        asked += [
            ("HMGET", queue_key(queue, "META"), "kind", "blocked"), ("HGETALL", queue_key(queue, "LANES")),
            ("ZRANGE", queue_key(queue, "HALTED"), "0", "-1"), ("ZRANGE", queue_key(queue, "DUE", "0"), "0", str(each - 1)),
        ]  # fmt: skip
    answers = iter(wire.ask_all(asked))
    books: list[_Books] = []
    for queue, (kind, blocked), held, halted, due in zip(queues, answers, answers, answers, answers, strict=True):
        holders = dict(zip(held[::2], held[1::2], strict=True))
        ids = dict.fromkeys([*runs.get(queue, ()), *holders.values(), *halted, *map(id_of_entry, due)])
        books.append(_Books(queue, kind == b"lanes", number(blocked) > 0, holders, list(ids)))
    return books


def _records(wire: Wire, wanted: Sequence[tuple[str, Sequence[bytes]]]) -> list[list[bytes | None]]:
    """Return the records of some jobs of each queue, in order."""
    portions = [(at, ids[start : start + PORTION]) for at, (_, ids) in enumerate(wanted) for start in range(0, len(ids), PORTION)]
    answers = wire.ask_all([("HMGET", queue_key(wanted[at][0], "JOB"), *ids) for at, ids in portions])
    found: list[list[bytes | None]] = [[] for _ in wanted]
    for (at, _), answer in zip(portions, answers, strict=True):
        found[at] += answer
    return found


def _add_parked(wire: Wire, books: Sequence[_Books], found: Sequence[FoundLane]) -> None:
    """Count the jobs that are parked behind holders."""
    holders = {(lane.queue, lane.head): lane for lane in found if not lane.rank[0]}
    lanes = [
        (lane, one, raw)
        for one in books
        if one.parks
        for raw, id_ in one.holders.items()
        if (lane := holders.get((one.queue, id_)))
    ]
    sizes = wire.ask_all([("ZCARD", queue_key(one.queue, "PARKED").encode() + raw) for _, one, raw in lanes])
    for (lane, _, _), size in zip(lanes, sizes, strict=True):
        lane.size += size


def _measure(wire: Wire, lanes: Sequence[FoundLane]) -> None:
    """Count the payloads of a collector's lanes: waiting and running ones."""
    asked = [("ZCARD", queue_key(lane.queue, name, lane.lane)) for lane in lanes for name in ("WAITS", "RUNS")]
    sizes = iter(wire.ask_all(asked))
    for lane, waits, runs in zip(lanes, sizes, sizes, strict=True):
        lane.size = waits + runs


# -- payloads ----------------------------------------------------------------------------------------------------


def list_payloads(wire: Wire, queue: str, lane: str, limit: int, after: str | None) -> PayloadPage:
    """Return some payloads of a collector's lane, from a position on: running ones first."""
    position = None if after is None else read_position(after, _payload_positions)
    found: list[tuple[bool, float, int, bytes]] = []
    sides = [(True, "RUNS", "RUN_BODIES"), (False, "WAITS", "BODIES")]
    for running, index, bodies in sides:
        if len(found) > limit or (position is not None and position[0] < running):
            continue
        ended = position[1:] if position is not None and position[0] == running else None
        rows = _read_side(wire, queue_key(queue, index, lane), queue_key(queue, bodies, lane), limit + 1 - len(found), ended)
        found += [(running, *row) for row in rows]
    page = PayloadPage(PayloadInfo(body=body, score=score, running=running) for running, score, _, body in found[:limit])
    if len(found) > limit > 0:
        page.next = write_position(found[limit - 1][:3])
    return page


def _read_side(wire: Wire, index: str, bodies: str, most: int, ended: tuple[float, int] | None) -> list[tuple[float, int, bytes]]:
    """Read payloads of one side, the oldest first: score, arrival, body."""
    command: Command = ("ZRANGE", index, "0", str(most - 1), "WITHSCORES")
    if ended is not None:
        command = ("ZRANGEBYSCORE", index, repr(ended[0]), "+inf", "WITHSCORES")
    answer = wire.ask(command)
    rows = [(float(score), int.from_bytes(entry[:7]), entry[7:]) for entry, score in zip(answer[::2], answer[1::2], strict=True)]
    rows = [row for row in rows if ended is None or row[:2] > ended][:most]
    found: list[bytes | None] = wire.ask(("HMGET", bodies, *(digest for _, _, digest in rows))) if rows else []
    return [
        (score, arrival, split_headers(stored[16:])[0])
        for (score, arrival, _), stored in zip(rows, found, strict=True)
        if stored is not None
    ]
