"""Collecting: due lanes of a collector's queue are claimed, some for each run.

All payloads of a lane are its run's, and what comes from now on gathers on its other side. If a run is to have only some of them,
those go to the other side, and the rest is what gathers. All lanes of a run have one token.

Called by: `claim`.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from laneway.job import Claim, Payload, Unit
from laneway.store.contract import Want
from laneway.store.sqlite.books import READY, RUNNING, Queue
from laneway.store.sqlite.sql import SQL
from laneway.store.sqlite.turn import Turn

__all__ = ["Collecting"]

#: So many lanes at most are claimed in one call, so that none is long; then it says "more".
MOST_LANES = 1000

#: seq, id, task, lane, attempt, enqueued, due, place, lost, side: see lane_walk.sql
LaneRow = tuple[int, str, str, str, int, int, int, int, str | None, int | None]


class Collecting:
    """One call's walk over lanes."""

    def __init__(self, turn: Turn, worker: str) -> None:
        self._turn = turn
        self._worker = worker
        self._room = MOST_LANES
        self._all: list[tuple[str, int, int]] = []  # lanes claimed with all their payloads: worker, token, seq

    def claim(self, queue: Queue, want: Want, most: int) -> list[Claim]:
        """Claim up to `most` runs of a queue."""
        claims: list[Claim] = []
        while len(claims) < most and self._room and queue.counts[READY]:
            rows = self._read(queue.name, min((most - len(claims)) * want.lanes, self._room))
            if not rows:
                break
            for run in _runs(rows, want.lanes)[: most - len(claims)]:
                self._room -= len(run)
                if units := self._take(queue, run, want.payloads):
                    task, lost = run[0][2], run[0][8]  # the same for all of them, see `_runs`
                    claims.append(Claim(self._turn.books.token, queue.name, task, tuple(units), lost or ""))
            self._turn.executemany(SQL["lane_claim"], self._all)
            self._all.clear()
        return claims

    def _read(self, queue: str, number: int) -> list[LaneRow]:
        """Read due lanes. As with jobs, text is decoded by SQLite's own means unless somebody wrote text that is none."""
        connection, values = self._turn.connection, (queue, self._turn.now, number)
        careful, connection.text_factory = connection.text_factory, str
        try:
            return connection.execute(SQL["lane_walk"], values).fetchall()
        except sqlite3.OperationalError:
            connection.text_factory = careful
            return connection.execute(SQL["lane_walk"], values).fetchall()
        finally:
            connection.text_factory = careful

    def _take(self, queue: Queue, run: list[LaneRow], most: int) -> list[Unit]:
        """Claim the lanes of one run; return what it is given."""
        books, execute = self._turn.books, self._turn.execute
        books.token += 1
        units: list[Unit] = []
        for seq, id_, _, lane, attempt, enqueued, due, place, _, side in run:
            payloads = execute(SQL["payloads_read"], (seq, side, most + 1 if most else -1)).fetchall()
            if not payloads:
                self._remove(queue, seq)
                continue
            if most and len(payloads) > most:
                payloads.pop()
                self._take_some(seq, side, payloads[-1])
            else:
                self._all.append((self._worker, books.token, seq))
            bodies, scores, arrivals = zip(*payloads, strict=True)
            given, first = list(map(Payload, bodies, scores)), arrivals.index(min(arrivals))
            units.append(Unit(id_, lane, attempt + 1, enqueued, due, place, payloads=given, first=first, number=seq))
        queue.move(READY, RUNNING, len(units))
        return units

    def _take_some(self, seq: int, side: int | None, last: Any) -> None:
        """The oldest of a lane's payloads run, up to the last one; the rest gathers."""
        turn, (_, score, arrival) = self._turn, last
        turn.execute(SQL["payloads_take"], (1 - (side or 0), seq, side, score, arrival))
        turn.execute(SQL["lane_claim_some"], (self._worker, turn.books.token, turn.now, seq))

    def _remove(self, queue: Queue, seq: int) -> None:
        """A lane without payloads is none: somebody took them away."""
        self._turn.execute(SQL["remove"], (seq,))
        queue.move(READY, None)


def _runs(rows: list[LaneRow], most: int) -> list[list[LaneRow]]:
    """Put lanes together that may run together: of one task, and none that remembers why it was lost."""
    runs: list[list[LaneRow]] = []
    last: LaneRow | None = None
    for row in rows:
        task, lost = row[2], row[8]
        if last is not None and len(runs[-1]) < most and task == last[2] and not lost and not last[8]:
            runs[-1].append(row)
        else:
            runs.append([row])
        last = row
    return runs
