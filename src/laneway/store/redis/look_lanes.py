"""Looking at lanes: which there are and how they stand, and what a collector's lane holds.

Lanes have no index of their own: a collector's is a job of its queue, and those of jobs are what their jobs have in common. So a
list looks at the jobs that are in lanes; of those that wait, at the 10,000 that are due first.

Enters: `JobInfo`, payloads.  Leaves: `LanePage`, `PayloadPage`.  Called by: `look`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from laneway.errors import ConfigError, NotFound, did_you_mean
from laneway.instant import SECOND, as_datetime
from laneway.store.inspect import LANE_ORDERS, JobInfo, LaneInfo, LanePage, PayloadInfo, PayloadPage
from laneway.store.paging import read_place, write_place
from laneway.store.redis.keys import queue_key
from laneway.store.redis.wire import Command, Wire

__all__ = ["list_lanes", "list_payloads"]


#: Where a page of lanes ended: the value it is ordered by, queue, lane, and the time that counts for all pages.
_LanePlace = tuple[float | str, str, str, int]
#: Where a page of payloads ended: whether it ran, score, arrival.
_PayloadPlace = tuple[bool, float, int]
_lane_places: msgspec.json.Decoder[_LanePlace] = msgspec.json.Decoder(_LanePlace)
_payload_places: msgspec.json.Decoder[_PayloadPlace] = msgspec.json.Decoder(_PayloadPlace)


# -- lanes -------------------------------------------------------------------------------------------------------


def list_lanes(jobs: Callable[[], Iterable[JobInfo]], now: int, order: str, limit: int, after: str | None) -> LanePage:
    """Return some lanes in an order, from a place on."""
    by = order.removeprefix("-")
    if by not in LANE_ORDERS:
        raise ConfigError(f'"{order}" is no order for lanes.{did_you_mean(by, LANE_ORDERS)} There are {", ".join(LANE_ORDERS)}')
    place = None if after is None else read_place(after, _lane_places)
    since = now if place is None else place[3]
    value, down = _ORDERS[by]
    down = down if by == order else not down
    lanes = sorted(_lanes(jobs(), now), key=lambda lane: (lane.queue, lane.lane))
    lanes.sort(key=lambda lane: value(lane, since), reverse=down)  # ties stay by queue and name
    if place is not None:
        ended = (place[0], place[1], place[2])
        lanes = [lane for lane in lanes if _is_further(value(lane, since), lane, ended, down)]
    page = LanePage(lanes[:limit])
    if len(lanes) > limit > 0:
        last = lanes[limit - 1]
        page.next = write_place((value(last, since), last.queue, last.lane, since))
    return page


#: By what lanes are ordered, and whether the greatest comes first. Who is due later has no lag.
_ORDERS: dict[str, tuple[Callable[[LaneInfo, int], Any], bool]] = {
    "lag": (lambda lane, since: min(_micros(lane), since), False),
    "size": (lambda lane, _: lane.size, True),
    "attempts": (lambda lane, _: lane.attempts, True),
    "due": (lambda lane, _: _micros(lane), False),
    "name": (lambda lane, _: lane.lane, False),
}


def _micros(lane: LaneInfo) -> int:
    return round(lane.due_at.timestamp() * SECOND)


def _is_further(value: Any, lane: LaneInfo, ended: tuple[Any, str, str], down: bool) -> bool:
    if value == ended[0]:
        return (lane.queue, lane.lane) > ended[1:]
    if isinstance(value, str) != isinstance(ended[0], str):
        raise NotFound("this place is of a list in another order. Go on with after=page.next", after=ended[0])
    return bool(value < ended[0] if down else value > ended[0])


def _lanes(jobs: Iterable[JobInfo], now: int) -> list[LaneInfo]:
    by_lane: dict[tuple[str, str], list[JobInfo]] = {}
    for job in jobs:
        if job.lane is not None and (job.state != "dead" or job.holds):
            by_lane.setdefault((job.queue, job.lane), []).append(job)
    return [_lane(queue, lane, found, now) for (queue, lane), found in by_lane.items()]


def _lane(queue: str, lane: str, jobs: list[JobInfo], now: int) -> LaneInfo:
    head = min(jobs, key=lambda job: (not job.holds, job.place_at))  # given by arrival: of equal places the first counts
    return LaneInfo(
        queue=queue, lane=lane, task=head.task, collects=head.payloads is not None, state=head.state,
        size=len(jobs) if head.payloads is None else head.payloads, attempts=head.attempt, due_at=head.due_at, head=head.id,
        lag=max((as_datetime(now) - head.due_at).total_seconds(), 0.0), error=head.errors[-1] if head.errors else None,
    )  # fmt: skip


# -- payloads ----------------------------------------------------------------------------------------------------


def list_payloads(wire: Wire, queue: str, lane: str, limit: int, after: str | None) -> PayloadPage:
    """Return some payloads of a collector's lane, from a place on: first what runs."""
    place = None if after is None else read_place(after, _payload_places)
    found: list[tuple[bool, float, int, bytes]] = []
    sides = [(True, "RUNS", "RUN_BODIES"), (False, "WAITS", "BODIES")]
    for running, index, bodies in sides:
        if len(found) > limit or (place is not None and place[0] < running):
            continue
        ended = place[1:] if place is not None and place[0] == running else None
        rows = _read_side(wire, queue_key(queue, index, lane), queue_key(queue, bodies, lane), limit + 1 - len(found), ended)
        found += [(running, *row) for row in rows]
    page = PayloadPage(PayloadInfo(body=body, score=score, running=running) for running, score, _, body in found[:limit])
    if len(found) > limit > 0:
        page.next = write_place(found[limit - 1][:3])
    return page


def _read_side(wire: Wire, index: str, bodies: str, most: int, ended: tuple[float, int] | None) -> list[tuple[float, int, bytes]]:
    """Read payloads of one side, the oldest first: score, arrival, body."""
    command: Command = ("ZRANGE", index, 0, most - 1, "WITHSCORES")
    if ended is not None:
        command = ("ZRANGEBYSCORE", index, repr(ended[0]), "+inf", "WITHSCORES")
    answer = wire.ask(command)
    rows = [(float(score), int.from_bytes(entry[:7]), entry[7:]) for entry, score in zip(answer[::2], answer[1::2], strict=True)]
    rows = [row for row in rows if ended is None or row[:2] > ended][:most]
    found: list[bytes | None] = wire.ask(("HMGET", bodies, *(digest for _, _, digest in rows))) if rows else []
    return [(score, arrival, body[16:]) for (score, arrival, _), body in zip(rows, found, strict=True) if body is not None]
