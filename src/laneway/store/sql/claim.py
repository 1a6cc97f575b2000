"""Claiming: the one walk over due jobs.

A queue's due jobs are walked by priority, then due, then place. A free job is claimed. A job whose lane has another holder is
parked: it leaves the due index and waits in its lane, so that it blocks no other job and is met only once. An expired job
leaves, cancelled. A body that is not a job is claimed as garbage.

Lanes of a collector are rows of the same index. Some of them run together: they have one token. All payloads of a lane belong to
the run, and new ones gather on its other side. If a run may have only some payloads, those move to the other side, and the rest
gathers.

Enters: what a worker wants.  Leaves: `Claim`s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile

from laneway.core.codec import open_body
from laneway.core.job import Claim, Payload, Unit
from laneway.core.outcome import Cancelled
from laneway.errors import GarbageError
from laneway.store.contract import ClaimRequest
from laneway.store.runs import Run
from laneway.store.sql.gather import ALL
from laneway.store.sql.port import LOWEST, Queue, Turn, next_rank, ranks
from laneway.store.sql.rows import BLOCKED, READY, RETRYING, RUNNING, SCHEDULED

__all__ = ["claim", "claim_lanes", "next_due"]

#: One call parks or expires at most this many jobs, so that it stays short. Then it sets `more`.
MOST_PASSED = 1000
#: After a job that changed the state of later ones, only this many are read: the next job may do the same.
FEW = 16

#: The most lanes of collectors that one call claims.
MOST_LANES = 1000

#: seq, id, task, lane, attempt, enqueued, due, place, lost, unique_key, expires, body, holder, rank: see `walk` in jobs.sql
DueRow = tuple[int, str, str, str | None, int, int, int, int, str | None, str | None, int | None, bytes, int | None, int]
#: seq, id, task, lane, attempt, enqueued, due, place, state, lost, side: see `lane_walk` in lanes.sql
LaneRow = tuple[int, str, str, str, int, int, int, int, int, str | None, int | None]
#: worker, token, seq
Claimed = tuple[str, int, int]
#: seq, id, task, lane, enqueued
Old = tuple[int, str, str, str | None, int]


def claim(turn: Turn, worker: str, wants: Sequence[ClaimRequest], limit: int) -> list[Claim]:
    """Claim up to `limit` jobs, or runs of collectors, step by step."""
    walk = _Walk(turn, worker)
    for want in wants:
        if len(walk.claims) >= limit:
            break
        queue = turn.find_queue(want.queue)
        if queue is not None and not queue.paused and queue.counts[READY]:
            walk.queue(queue, want, min(want.most, limit - len(walk.claims)))
    return walk.claims


def claim_lanes(turn: Turn, worker: str, want: ClaimRequest, most: int) -> list[Claim]:
    """Claim up to `most` runs of a collector."""
    walk = _Walk(turn, worker)
    walk.lanes(want.queue, want, most)
    return walk.claims


def next_due(turn: Turn, wants: Sequence[ClaimRequest]) -> int | None:
    """Return the time until the next job of the wanted queues is due, microseconds."""
    first: int | None = None
    for name in {want.queue for want in wants}:
        queue = turn.find_queue(name)
        if queue is None or queue.paused or not (queue.counts[SCHEDULED] or queue.counts[RETRYING]):
            continue
        for rank in ranks(turn, name):
            [(due,)] = turn.rows("first_due", queue=name, rank=rank)
            first = due if first is None else min(first, due)
    return None if first is None else max(first - turn.now, 0)


class _Walk:
    """One call's walk: its claims, and the number of jobs it has passed over."""

    def __init__(self, turn: Turn, worker: str) -> None:
        self.claims: list[Claim] = []
        self._turn = turn
        self._worker = worker
        self._passed = 0
        self._lanes = 0  # of collectors, claimed or found empty
        self._stride = MOST_PASSED  # the most jobs that are read at once

    def queue(self, queue: Queue, want: ClaimRequest, most: int) -> None:
        """Claim up to `most` jobs or runs of a queue."""
        most += len(self.claims)
        if queue.collects:
            self.lanes(queue.name, want, most)
            return
        above: int | None = LOWEST
        while above is not None and queue.counts[READY] and len(self.claims) < most and self._has_time():
            # Portions grow while jobs are passed over, so that a long lane at the front takes few statements.
            size = min(most - len(self.claims) + 2 * self._passed, self._stride)
            rows: list[DueRow] = self._turn.walk("walk", queue=queue.name, above=above, now=self._turn.now, most=size)
            if not rows:
                above = next_rank(self._turn, queue.name, above)  # the jobs of that rank are due later
                continue
            rank = rows[0][-1]
            is_over = not self._portion(queue, rows, most) and len(rows) < size
            above = rank if is_over else rank - 1

    def lanes(self, queue: str, want: ClaimRequest, most: int) -> None:
        """Claim runs of a collector until there are `most` claims."""
        while len(self.claims) < most and self._has_time() and self._lane_portion(queue, want, most):
            pass

    def _has_time(self) -> bool:
        """Return whether this call is still within its limits."""
        return self._passed < MOST_PASSED and self._lanes < MOST_LANES

    def _portion(self, queue: Queue, rows: list[DueRow], most: int) -> bool:
        """Walk some of the due jobs of a rank; return True if they are to be read again: a lane has another holder now."""
        claims, worker, next_token, now = self.claims, self._worker, self._turn.next_token, self._turn.now
        found = _Found()
        claimed, in_lanes, unique, parked, expired = found.claimed, found.in_lanes, found.unique, found.parked, found.expired
        taken: set[str] = set()  # lanes taken in this portion
        turning: Callable[[], None] | None = None  # its lane gets a holder that these rows do not show
        room = MOST_PASSED - self._passed
        for seq, id_, task, lane, attempt, enqueued, due, place, lost, key, expires, body, holder, _ in rows:
            if len(claims) == most or not room:
                break
            if lane is not None and holder != seq and (holder is not None or lane in taken):
                room -= 1
                parked.append((seq,))
                continue
            if expires is not None and expires < now:
                old = (seq, id_, task, lane, enqueued)
                if lane is not None and holder == seq:
                    turning = partial(self._expire_holder, queue, lane, old)
                    break
                room -= 1
                expired.append(old)
                continue
            garbage = ""
            try:
                open_body(body)
            except GarbageError as error:
                garbage = str(error)
            token = next_token()
            if lane is None:
                claimed.append((worker, token, seq))
            else:
                taken.add(lane)
                in_lanes.append((worker, token, seq))
            if key is not None:
                unique.append((seq,))
            unit = Unit(id_, lane, attempt + 1, enqueued, due, place, body)
            claims.append(Claim(token, queue.name, task, (unit,), lost or "", garbage))
        self._write(queue, found)
        if turning is None:
            self._stride = min(4 * self._stride, MOST_PASSED)
            return False
        turning()
        self._stride = FEW
        return True

    def _lane_portion(self, queue: str, want: ClaimRequest, most: int) -> bool:
        """Walk some of the due lanes of a collector; return False at the end."""
        size = min((most - len(self.claims)) * want.lanes, MOST_LANES - self._lanes)
        rows = self._turn.walk("lane_walk", queue=queue, now=self._turn.now, most=size)
        whole: list[Claimed] = []  # lanes that are claimed with all their payloads, as values of `claim`
        states: list[int] = []  # of the lanes that are claimed
        for run in _runs(rows, want.lanes)[: most - len(self.claims)]:
            token = self._turn.next_token()
            self._lanes += len(run)
            taken = [
                (row[8], unit) for row in run if (unit := self._take_lane(queue, row, token, want.payloads, whole)) is not None
            ]
            if taken:
                (_, _, task, *_, lost, _) = run[0]  # equal in all of them
                self.claims.append(Claim(token, queue, task, tuple([unit for _, unit in taken]), lost or ""))
                states += [state for state, _ in taken]
        if whole:
            self._turn.change_many("claim", whole)
        for state, number in Counter(states).items():
            self._turn.count(queue, self._turn.counted_due(state), RUNNING, number)
        return len(rows) == size

    def _take_lane(self, queue: str, row: LaneRow, token: int, most: int, whole: list[Claimed]) -> Unit | None:
        """Claim a lane with its payloads, or the oldest of them; return None if a user removed them all."""
        turn = self._turn
        seq, id_, _, lane, attempt, enqueued, due, place, state, _, side = row
        payloads = turn.rows("payloads_read", lane=seq, side=side, most=most + 1 if most else ALL)
        if not payloads:
            turn.change("remove", id=id_)
            turn.ended(queue, None, turn.counted_due(state))
            return None
        if most and len(payloads) > most:
            payloads.pop()
            _, score, arrival, _ = payloads[-1]
            turn.change("payloads_take", lane=seq, side=side, score=score, arrival=arrival)
            turn.change("lane_claim_some", worker=self._worker, token=token, now=turn.now, id=id_)
        else:
            whole.append((self._worker, token, seq))
        bodies, scores, arrivals, headers = zip(*payloads, strict=True)
        texts = ([text or "" for text in headers],) if any(headers) else ()
        given, first = list(map(Payload, bodies, scores, *texts)), arrivals.index(min(arrivals))
        return Unit(id_, lane, attempt + 1, enqueued, due, place, payloads=given, first=first, number=seq)

    def _write(self, queue: Queue, found: _Found) -> None:
        turn = self._turn
        if found.parked:
            turn.change_many("park", found.parked)
            turn.count(queue.name, READY, BLOCKED, len(found.parked))
            self._passed += len(found.parked)
        if found.expired:
            self._expire(queue, READY, found.expired)
        if found.claimed:
            turn.change_many("claim", found.claimed)
        if found.in_lanes:
            turn.change_many("claim_lane", found.in_lanes)
        if found.unique:
            turn.change_many("claimed_unique", found.unique)
        turn.count(queue.name, READY, RUNNING, len(found.claimed) + len(found.in_lanes))

    def _expire(self, queue: Queue, before: int, expired: Sequence[Old]) -> None:
        """Remove jobs that have expired."""
        turn = self._turn
        turn.change_many("remove", [(id_,) for _, id_, *_ in expired])
        turn.total("cancelled", len(expired))
        for _, id_, task, lane, enqueued in expired:
            run = Run(id_, task, queue.name, lane, enqueued, 0, turn.now, Cancelled.name)
            turn.ended(queue.name, None, before, run=run)
        self._passed += len(expired)

    def _expire_holder(self, queue: Queue, lane: str, holder: Old) -> None:
        """Remove a lane's holder, and with it the next jobs of its lane that have expired too."""
        self._expire(queue, READY, [holder])
        self._expire(queue, BLOCKED, self._too_old(queue.name, lane))
        self._turn.let_out(queue.name, (lane,))

    def _too_old(self, queue: str, lane: str) -> list[Old]:
        """Return the next jobs of a lane that have expired. Most often there are none, so a few are read first."""
        room = MOST_PASSED - self._passed
        for size in (FEW, room):
            parked = self._turn.rows("parked", queue=queue, lane=lane, most=min(size, room))
            old = [row[:-1] for row in takewhile(lambda row: row[-1] is not None and row[-1] < self._turn.now, parked)]
            if len(old) < min(size, room):
                break
        return old


class _Found:
    """The changes of a portion, to be written together."""

    __slots__ = ("claimed", "expired", "in_lanes", "parked", "unique")

    def __init__(self) -> None:
        self.claimed: list[Claimed] = []  # jobs without a lane
        self.in_lanes: list[Claimed] = []
        self.unique: list[tuple[int]] = []  # claimed jobs with a unique key
        self.parked: list[tuple[int]] = []
        self.expired: list[Old] = []


def _runs(rows: list[LaneRow], most: int) -> list[list[LaneRow]]:
    """Group lanes that may run together: of one task, and none that remembers why its claim was lost."""
    runs: list[list[LaneRow]] = []
    last: LaneRow | None = None
    for row in rows:
        task, lost = row[2], row[9]
        if last is not None and len(runs[-1]) < most and task == last[2] and not lost and not last[9]:
            runs[-1].append(row)
        else:
            runs.append([row])
        last = row
    return runs
