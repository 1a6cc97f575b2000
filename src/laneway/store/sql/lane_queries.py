"""Queries of lanes: which lanes there are, their state, and the payloads of a collector's lane.

A collector's lane is a row, but a lane of jobs is only a column of its jobs. So a page is one statement that puts all lanes
together and takes as many as it needs; only those are read in full. Of waiting jobs, those that are due first are examined.

Enters: rows.  Leaves: `LanePage`, `PayloadPage`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from laneway.core.instant import as_datetime
from laneway.core.job import lane_id
from laneway.store.error_history import read_errors
from laneway.store.inspection import LaneInfo, LanePage, PayloadInfo, PayloadPage
from laneway.store.paging import read_order, read_position, write_position
from laneway.store.sql.port import Reading
from laneway.store.sql.rows import RUNNING, state_of

__all__ = ["list_lanes", "list_payloads"]

#: The most waiting jobs that are examined to find their lanes.
LOOKED = 10_000

#: The orders of lanes, as columns of `lanes` in inspection.sql, each with its usual direction. A lane that is due later has no
#: lag.
_ORDERS = {
    "lag": ("case when due < :now then due else :now end", "asc"),
    "size": ("size", "desc"),
    "attempts": ("attempt", "desc"),
    "due": ("due", "asc"),
    "name": ("lane", "asc"),
}
_OTHER = {"asc": "desc", "desc": "asc"}

#: Where a page of lanes ended: the value it is ordered by, queue, lane, and the time that counts for all pages.
_LanePosition = tuple[int | str, str, str, int]
#: Where a page of payloads ended: whether it ran, score, arrival.
_PayloadPosition = tuple[bool, float, int]
_lane_positions: msgspec.json.Decoder[_LanePosition] = msgspec.json.Decoder(_LanePosition)
_payload_positions: msgspec.json.Decoder[_PayloadPosition] = msgspec.json.Decoder(_PayloadPosition)

#: seq, queue, lane, task, id, state, attempt, due, collects, errors, size, value: see `lanes` in inspection.sql
_LaneRow = tuple[int, str, str, str, str, int, int, int, int, bytes | None, int, int | str]


def list_lanes(reading: Reading, queue: str | None, order: str, limit: int, after: str | None, name: str | None) -> LanePage:
    """Return some lanes in an order, from a position on."""
    by, reverse = read_order(order)
    column, direction = _ORDERS[by]
    direction = _OTHER[direction] if reverse else direction
    position = None if after is None else read_position(after, _lane_positions)
    terms = "true" if queue is None else "queue = :queue"
    terms += "" if name is None else " and lane = :name"
    further = "true"
    if position is not None:
        beyond = ">" if direction == "asc" else "<"
        further = f"(value {beyond} :value or value = :value and (queue, lane) > (:after_queue, :after_lane))"
    words = {
        "terms": terms, "further": further, "value": column, "direction": direction,
        "waiting": reading.dialect.numbers.format(":waiting"),
    }  # fmt: skip
    value, after_queue, after_lane, since = position or (0, "", "", reading.now)
    rows: list[_LaneRow] = reading.select(
        "lanes", words, waiting=_waiting(reading, queue, name), queue=queue, name=name, now=since, value=value,
        after_queue=after_queue, after_lane=after_lane, limit=limit + 1,
    )  # fmt: skip
    page = LanePage(_lane(row, reading.now) for row in rows[:limit])
    if len(rows) > limit > 0:
        last = rows[limit - 1]
        page.next = write_position((last[-1], last[1], last[2], since))
    return page


def _waiting(reading: Reading, queue: str | None, name: str | None) -> str:
    """Return the jobs that wait in lanes, those of each queue that are due first, as JSON; for one lane all."""
    if name is not None:
        rows = reading.rows("waiting_in_lane", lane=name)
    else:
        queues = [one.name for one in reading.queues() if queue in (None, one.name)]
        each = max(LOOKED // max(len(queues), 1), 100)
        rows = [row for one in queues for row in reading.rows("waiting_in_lanes", queue=one, most=each)]
    return msgspec.json.encode([row[0] for row in rows]).decode()


def _lane(row: _LaneRow, now: int) -> LaneInfo:
    _, queue, lane, task, id_, state, attempt, due, collects, errors, size, _ = row
    stored = read_errors(errors)
    return LaneInfo(
        queue=queue, lane=lane, task=task, collects=bool(collects), state=state_of(state, due, now), size=size, attempts=attempt,
        due_at=as_datetime(due), lag=max(now - due, 0) / 1_000_000, head=id_, error=stored[-1] if stored else None,
    )  # fmt: skip


def list_payloads(reading: Reading, queue: str, lane: str, limit: int, after: str | None) -> PayloadPage:
    """Return some payloads of a collector's lane, from a position on: running ones first."""
    position = None if after is None else read_position(after, _payload_positions)
    row = reading.find("lane_find", id=lane_id(queue, lane))
    found: list[tuple[bool, Any]] = []
    if row is not None:
        side = row.side or 0
        sides = [(True, 1 - side)] if row.state == RUNNING and (position is None or position[0]) else []
        for running, number in [*sides, (False, side)]:
            left = limit + 1 - len(found)
            if position is not None and position[0] == running:
                _, score, arrival = position
                rows = reading.rows("payloads_after", lane=row.seq, side=number, score=score, arrival=arrival, most=left)
            else:
                rows = reading.rows("payloads_read", lane=row.seq, side=number, most=left)
            found += [(running, row) for row in rows]
    page = PayloadPage(PayloadInfo(body=body, score=score, running=running) for running, (body, score, *_) in found[:limit])
    if len(found) > limit > 0:
        running, (_, score, arrival, _) = found[limit - 1]
        page.next = write_position((running, score, arrival))
    return page
