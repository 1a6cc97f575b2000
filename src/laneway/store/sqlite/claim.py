"""Claiming: the walk over due jobs.

A queue's due jobs are walked by priority, then due, then place. A free job is claimed; one whose lane has another holder is
parked: it leaves the due index and waits in its lane, so that it stands in nobody's way and is met only once. A body that
is no job goes to dead.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from laneway.codec import open_body
from laneway.errors import GarbageError
from laneway.job import Claim, Job
from laneway.outcome import ErrorInfo
from laneway.store.contract import Want
from laneway.store.sqlite.books import BLOCKED, READY, RETRYING, RUNNING, SCHEDULED, Queue, ranks
from laneway.store.sqlite.sql import SQL
from laneway.store.sqlite.turn import Turn

__all__ = ["claim", "next_due"]

#: Parking is work for others: one call does this much of it, then says "more".
MOST_PARKED = 1000


def claim(turn: Turn, worker: str, wants: Sequence[Want], limit: int) -> list[Claim]:
    """Claim up to `limit` jobs, step by step."""
    walk = _Walk(turn, worker)
    for want in wants:
        queue = turn.queues.get(want.queue)
        most = min(want.most, limit - len(walk.claims))
        if queue is not None and not queue.paused and queue.counts[READY] and most > 0:
            walk.queue(queue, most)
    return walk.claims


def next_due(turn: Turn, wants: Sequence[Want]) -> int | None:
    """Return how long it is until the next job of the wanted queues is due, microseconds."""
    first: int | None = None
    for name in {want.queue for want in wants}:
        queue = turn.queues.get(name)
        if queue is None or queue.paused or not (queue.counts[SCHEDULED] or queue.counts[RETRYING]):
            continue
        for rank in ranks(turn.execute, name):
            due: int = turn.execute(SQL["first_due"], (name, rank)).fetchone()[0]
            first = due if first is None else min(first, due)
    return None if first is None else max(first - turn.now, 0)


class _Walk:
    """One call's walk: what it has claimed, and how much it has parked."""

    def __init__(self, turn: Turn, worker: str) -> None:
        self.claims: list[Claim] = []
        self._turn = turn
        self._worker = worker
        self._parked = 0

    def queue(self, queue: Queue, most: int) -> None:
        """Claim up to `most` jobs of a queue."""
        most += len(self.claims)
        for rank in ranks(self._turn.execute, queue.name):
            while len(self.claims) < most and self._parked < MOST_PARKED and self._portion(queue, rank, most):
                pass
            if len(self.claims) == most or self._parked == MOST_PARKED or not queue.counts[READY]:
                break

    def _portion(self, queue: Queue, rank: int, most: int) -> bool:
        """Walk some of the due jobs of a rank; False at its end."""
        # Where many are parked, portions grow, so that a long lane in front is passed over quickly.
        size = min(most - len(self.claims) + 2 * self._parked, MOST_PARKED)
        rows = self._read(queue.name, rank, size)
        claimed: list[tuple[str, int, int]] = []
        in_lanes: list[tuple[str, int, int]] = []
        parked: list[tuple[int]] = []
        taken: set[str] = set()  # lanes taken in this portion
        claims, worker, books = self.claims, self._worker, self._turn.books
        for row in rows:
            seq, id_, task, lane, attempt, enqueued, due, place, lost, body, holder = row
            if len(claims) == most or self._parked + len(parked) == MOST_PARKED:
                break
            if lane is not None and holder != seq:
                if holder is not None or lane in taken:
                    parked.append((seq,))
                    continue
                taken.add(lane)
            try:
                open_body(body)
                job = Job(id_, task, queue.name, body, lane, -rank)
            except GarbageError as error:
                # Its lane goes on with another holder than these rows know of: read them again.
                self._write(queue, claimed, in_lanes, parked)
                self._set_aside(seq, error)
                return True
            books.token = token = books.token + 1
            (claimed if lane is None else in_lanes).append((worker, token, seq))
            claims.append(Claim(job, token, attempt + 1, enqueued, due, place, lost or ""))
        self._write(queue, claimed, in_lanes, parked)
        return len(rows) == size

    def _read(self, queue: str, rank: int, size: int) -> list[Any]:
        """Read due jobs. Text is decoded by SQLite's own means, which is faster, unless somebody wrote text that is none."""
        connection, values = self._turn.connection, (queue, rank, self._turn.now, size)
        careful, connection.text_factory = connection.text_factory, str
        try:
            return connection.execute(SQL["walk"], values).fetchall()
        except sqlite3.OperationalError:
            connection.text_factory = careful
            return connection.execute(SQL["walk"], values).fetchall()
        finally:
            connection.text_factory = careful

    def _write(
        self,
        queue: Queue,
        claimed: list[tuple[str, int, int]],
        in_lanes: list[tuple[str, int, int]],
        parked: list[tuple[int]],
    ) -> None:
        if parked:
            self._turn.executemany(SQL["park"], parked)
            queue.move(READY, BLOCKED, len(parked))
            self._parked += len(parked)
        if claimed:
            self._turn.executemany(SQL["claim"], claimed)
        if in_lanes:
            self._turn.executemany(SQL["claim_lane"], in_lanes)
        queue.move(READY, RUNNING, len(claimed) + len(in_lanes))

    def _set_aside(self, seq: int, error: GarbageError) -> None:
        row = self._turn.find("find_seq", seq)
        assert row is not None  # noqa: S101 - this turn has just read it
        self._turn.die(row, READY, ErrorInfo(kind="garbage", message=str(error)))
