"""The exchange: outcomes go in and claims come out.

Where all runs succeeded and no queue is a collector's, one function of the database does it all. Other outcomes are written by
the shared rules, and lanes of collectors are claimed by them, in one transaction with that function.

Enters: `Settled`, `ClaimRequest`.  Leaves: `Exchange`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from laneway.core.codec import open_body
from laneway.core.job import Claim, Unit
from laneway.core.outcome import Dead, Done, Settled
from laneway.errors import GarbageError, StoreError, StoreUnavailable
from laneway.store.contract import ClaimRequest, Exchange
from laneway.store.postgres.connection import (
    PostgresConnection,
    PostgresError,
    Statement,
    bigint,
    bigints,
    encoded_name,
    integers,
    names,
    texts,
)  # fmt: skip
from laneway.store.postgres.floors import FloorPair, Floors, is_slow
from laneway.store.postgres.look_around import LookAround
from laneway.store.postgres.statements import call, numbered, statements
from laneway.store.postgres.wire import Sent
from laneway.store.runs import Run
from laneway.store.sql.claim import claim_lanes
from laneway.store.sql.settle import settle
from laneway.store.transfer import Move, read_move

if TYPE_CHECKING:
    from laneway.store.postgres.store import PostgresStore

__all__ = ["PostgresExchanges"]

#: While a worker keeps receiving claims, depths of queues up to this old are good enough, seconds.
LATELY = 1.0
#: If an exchange reads more entries by lane than this for each claim, the next ones of its kind send along where the live jobs of
#: lanes begin, for LINES_HELP seconds. That helps while a transaction is open somewhere. Otherwise it costs more than it saves.
LINES_TAKE, LINES_HELP = 12, 10.0
#: How many lanes of a queue are remembered.
MOST_LINES = 4096

_encode = msgspec.json.Encoder().encode


class ExchangeRequest(NamedTuple):
    """What an exchange was asked, and what was known of the store by then."""

    settled: Sequence[Settled]
    wants: Sequence[ClaimRequest]
    limit: int
    goes_on: bool  #: it settles one job of a lane, so most likely it claims the lane's next one
    lowered: int  #: how many times floors had been lowered
    full: bool  #: its walks may begin at the front
    near: int  #: until then it looks no further than to the lane's next job, by the store's clock
    floors: list[FloorPair]  #: where its walks begin, for each want


class PostgresExchanges:
    """Settles and claims; and keeps what one exchange leaves for the next."""

    def __init__(self, store: PostgresStore, *, durable: bool) -> None:
        self._store = store
        self._durable = durable
        self._epochs: dict[str, tuple[int, Move | None]] = {}  # by worker: see `_epoch`, `_closed`
        self._started: dict[str, str] = {}  # by worker: when the server was started, as far as the worker knows
        self._collectors: set[str] = set()  # queues that are known to be a collector's
        self.floors = Floors()
        self._back = ""  # how often jobs were put back to the front, as the store says
        self._lines: dict[str, dict[str, int]] = {}  # by queue and lane: all its jobs have this place or a later one
        self._lines_until = {False: 0.0, True: 0.0}  # how long they are sent along, by `ExchangeRequest.goes_on`
        self._around = LookAround(store.wire)
        self._loads: dict[str, int] = {}
        self._loads_until = 0.0
        self._sent: WeakValueDictionary[str, Sent] = WeakValueDictionary()  # by worker: its last exchange

    def forget(self, worker: str) -> None:
        """Forget what is known of a worker, and where walks begin: its claims are taken back."""
        self._epochs.pop(worker, None)
        self._started.pop(worker, None)
        self._sent.pop(worker, None)
        self.put_back()

    def put_back(self) -> None:
        """Let the next walks begin at the front: something was put back there."""
        self.floors.put_back()
        self._around.forget()

    def rung(self) -> None:
        """Let walks begin at the front sooner: something may have been put back there."""
        self.floors.rung()
        self._around.forget()

    def exchange(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Exchange:
        """Write outcomes, then claim what may run."""
        asked = limit
        while True:
            closed = self._closed(worker)
            if closed is not None:
                if limit > 0 and not settled:
                    self._epochs.pop(worker, None)  # it may be opened again: ask anew
                    raise closed.refusal(self._store)
                wants, limit = (), 0
            try:
                if self._is_simple(settled, wants):
                    # On a connection without unread answers: the next answer would be that of an earlier exchange.
                    given = self._request(settled, wants, limit)
                    answer = self._hear(self._send(self._store.wire.sending(), worker, given), given)
                else:
                    answer = self._in_turn(worker, settled, wants, limit)
                break
            except StoreError as error:
                cause = error.__cause__
                code = cause.code if isinstance(cause, PostgresError) else ""
                if code == "LW001":
                    self._epochs.pop(worker, None)  # its claims were taken back: what it settles is refused now
                elif code == "LW007":
                    self._store.inbox.empty()  # its jobs must join their lanes before this exchange claims there
                elif isinstance(cause, PostgresError) and code == "LW005":
                    self._collectors.add(cause.said)
                else:
                    raise
        return answer if limit == asked else replace(answer, more=True)  # the worker then asks again, and gets the error

    def begin(
        self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int
    ) -> Callable[[], Exchange] | None:
        """Send an exchange; calling the returned function reads the answer. None: the exchange needs more than one call."""
        if self._closed(worker) is not None or not self._is_simple(settled, wants):
            return None
        wire, last = self._store.wire, self._sent.get(worker)
        asked = self._request(settled, wants, limit)
        sent = wire.sending() if last is None else last.behind(time.monotonic() + wire.timeout)
        self._sent[worker] = self._send(sent, worker, asked)
        return lambda: self._hear(sent, asked)

    def _is_simple(self, settled: Sequence[Settled], wants: Sequence[ClaimRequest]) -> bool:
        return all(map(_just_leaves, settled)) and self._collectors.isdisjoint([want.queue for want in wants])

    def _send(self, sent: Sent, worker: str, asked: ExchangeRequest) -> Sent:
        return sent.send([self._call(worker, self._epochs[worker][0], asked)], prepare=self._store.prepare)

    def _hear(self, sent: Sent, asked: ExchangeRequest) -> Exchange:
        [(rows, _)] = sent.hear()
        waits = rows[-1][11] == "inbox"
        claims, refused, more, due_in = self._heard(rows, asked)
        if waits:
            with contextlib.suppress(StoreError):  # the claims are committed: an error here must not lose them
                more = self._store.inbox.empty() or more
        loads = self._loads
        if (not claims and asked.limit) or time.monotonic() > self._loads_until:
            with contextlib.suppress(StoreError), self._store.wire.lend() as line:  # the claims are ours by now
                loads = self._look(line)
        ids = {item.claim.token: item.claim.unit.id for item in asked.settled} if refused else {}
        self._store.bell.heard(bool(claims))
        return Exchange([ids[token] for token in refused], claims, more, due_in, dict(loads))

    def _in_turn(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Exchange:
        with self._store.turn() as turn:
            held = [
                (item.claim.queue, unit.lane) for item in settled for unit in item.claim.units if not unit.payloads and unit.lane
            ]
            epoch, queues, lanes = self._epoch(turn.line, worker), *(texts(part) for part in _unzipped(held))
            [(turn.now,)] = turn.call("begin_exchange", worker, epoch, queues, lanes)
            finishing = [item.claim.token for item in settled if item.finishes]
            later = frozenset([token for (token,) in turn.call("open", worker, bigints(finishing))] if finishing else ())
            settled = [item for item in settled if item.claim.token not in later]
            turn.hold([unit.id for item in settled for unit in item.claim.units])
            refused = settle(turn, worker, settled) if settled else []
            if any(isinstance(outcome, Dead) for item in settled for outcome in item.outcomes):
                turn.write_down()
                self._store.trim_dead(turn)
            turn.write_down()
            claims: list[Claim] = []
            found = {want.queue: turn.find_queue(want.queue) for want in wants}
            awake = {name for name, queue in found.items() if queue is not None and not queue.paused}
            more, due = False, list[int | None]()
            asked = self._request((), wants, limit)
            for want, floors in zip(wants, asked.floors, strict=True):
                most = min(want.most, limit - len(claims))
                queue = found[want.queue]
                if most <= 0 or queue is None or queue.paused:
                    continue
                if queue.collects:
                    claims += claim_lanes(turn, worker, want, most)
                else:
                    self._collectors.discard(want.queue)
                    one = asked._replace(wants=[want], limit=most, floors=[floors])
                    text, values = self._call(worker, self._epoch(turn.line, worker), one)
                    taken, _, left, due_in = self._heard(turn.line.ask(text, values, prepare=self._store.prepare), one)
                    claims, more = claims + taken, more or left
                    due.append(due_in)
                    awake.discard(want.queue)
            for name in awake:
                [(is_due, at)] = turn.call("queue_due", turn.now, name)
                more = more or is_due
                due.append(None if at is None else at - turn.now)
            next_due = None if more else min((in_ for in_ in due if in_ is not None), default=None)
            turn.write_down()
            loads = self._look(turn.line)
        self._store.bell.heard(bool(claims))
        return Exchange(refused, claims, more, next_due, loads, later)

    def _sql(self, statement: str) -> str:
        """Return a statement, by its name."""
        return numbered(statements(self._store.schema)[statement]).text

    def _epoch(self, line: PostgresConnection, worker: str) -> int:
        """Return the number that the store expects with exchanges of a worker."""
        if worker not in self._epochs:
            [(epoch, moved, started)] = line.ask(self._sql("enrol"), (worker,))
            self._lines = {}  # the store may have been filled by a copy, or from a dump
            before, self._started[worker] = self._started.get(worker, started), started
            if before != started:
                raise StoreUnavailable(
                    f"{self._store} was started anew, and may have forgotten what was settled and claimed a moment before. "
                    "Nothing was written: give back claims that you do not know.",
                    written=False,
                )
            self._epochs[worker] = epoch, None if moved is None else read_move(moved.encode())
        return self._epochs[worker][0]

    def _closed(self, worker: str) -> Move | None:
        """Return the store's part in a copy that has closed it, as far as the worker's number tells."""
        if worker not in self._epochs:
            with self._store.wire.lend() as line:
                self._epoch(line, worker)
        return self._epochs[worker][1]

    def _request(self, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> ExchangeRequest:
        """Return an exchange that begins its walks where it should now."""
        full, floors = self.floors.begin(wants, limit)
        goes_on = len(settled) == 1 and settled[0].claim.unit.lane is not None
        near = self._around.is_good_until(settled[0].claim.queue, wants) if goes_on and limit > 0 else 0
        return ExchangeRequest(settled, wants, limit, goes_on, self.floors.lowered, full, near, floors)

    def _call(self, worker: str, epoch: int, asked: ExchangeRequest) -> Statement:
        """Return the call of the function that does an exchange."""
        settled, wants, floors = asked.settled, asked.wants, asked.floors
        held = [item.claim for item in settled if item.claim.unit.lane is not None]
        lines: dict[str, dict[str, int]] = {}
        if time.monotonic() < self._lines_until[asked.goes_on]:
            lines = {want.queue: self._lines.get(want.queue, {}) for want in wants}
        values = (
            encoded_name(worker), bigint(epoch), bigints([item.claim.token for item in settled]), texts(list(map(_run, settled))),
            names(tuple([claim.queue for claim in held])), texts([claim.unit.lane for claim in held]),
            names(tuple([want.queue for want in wants])), integers([want.most for want in wants]), asked.limit,
            bigints([part for floor, _ in floors for part in floor]), bigints([part for _, floor in floors for part in floor]),
            asked.full, bigint(asked.near), _encode(lines).decode(), self._durable,
        )  # fmt: skip
        return call(self._store.schema, "exchange", len(values)), values

    def _heard(self, rows: list[Any], asked: ExchangeRequest) -> tuple[list[Claim], list[int], bool, int | None]:
        """Return claims, tokens that were refused, whether more is due, and in how many microseconds the next is."""
        head = rows.pop()
        rows.sort(key=_token)  # they were claimed in this order
        claims: list[Claim] = []
        for _, token, id_, task, queue, lane, attempt, enqueued, due, place, _, lost, body, line_from in rows:
            if lane is not None and line_from is not None:
                self._remember_line(queue, lane, line_from)
            garbage = ""
            try:
                open_body(body)
            except GarbageError as error:
                garbage = str(error)
            claims.append(
                Claim(token, queue, task, (Unit(id_, lane, attempt + 1, enqueued, due, place, body),), lost or "", garbage)
            )
        self._learn(rows, head, asked, len(claims))
        more, due_in = bool(head[6]), None if head[8] is None else head[8] - head[9]
        if head[1] is None:  # nothing else was looked for: the last look around still counts
            due_in = self._around.due_in(head[9])
        elif head[10] and not more:  # walks were cut short: ask again as soon as they may begin at the front
            again = max(int((self.floors.front_at - time.monotonic()) * 1_000_000), 0)
            due_in = again if due_in is None else min(due_in, again)
        refused = [int(token) for token in head[2].split(",")] if head[2] else []
        if asked.goes_on and asked.limit and not more and head[1] is not None:
            self._around.found_nothing(asked.wants, head[9], due_in)
        return claims, refused, more, due_in

    def _learn(self, rows: list[Any], head: Any, asked: ExchangeRequest, claimed: int) -> None:
        """Learn where the next walks begin, and what the next exchanges send along."""
        more, cut, floors = head[6], head[10], self.floors
        slow = is_slow(head[7], len(asked.wants), len(asked.settled) + claimed)
        if asked.lowered == floors.lowered and head[1] is not None:
            floors.raise_to(rows, asked.wants, head[1], head[9], found_late=slow and bool(more) and not cut)
        if head[13] is not None:
            floors.lower_to(head[13])
        if int(head[3]) > LINES_TAKE * (1 + claimed):
            self._lines_until[asked.goes_on] = time.monotonic() + LINES_HELP
        if slow and not cut:
            floors.was_slow(head[7])
        if head[4] != self._back:
            self._back = head[4]
            self.rung()

    def _remember_line(self, queue: str, lane: str, line_from: int) -> None:
        """Remember where the live jobs of a lane begin."""
        lines = self._lines.setdefault(queue, {})
        if len(lines) >= MOST_LINES and lane not in lines:
            lines.clear()
        lines[lane] = line_from

    def _look(self, line: PostgresConnection) -> dict[str, int]:
        """Return the depths of all queues that are not paused."""
        rows = line.ask(self._sql("depths"), prepare=self._store.prepare)
        self._loads, self._loads_until = dict(rows), time.monotonic() + LATELY
        return self._loads


_token = itemgetter(1)


def _unzipped(pairs: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Return the first parts of pairs, and the second ones."""
    return [first for first, _ in pairs], [second for _, second in pairs]


def _just_leaves(item: Settled) -> bool:
    """Return whether a claim is one job that was done, is not kept, and that no transaction of a user's may finish."""
    return not item.keep and not item.finishes and type(item.outcomes[0]) is Done and not item.claim.units[0].payloads


def _run(item: Settled) -> str:
    """Return the record of a success, as JSON."""
    unit, claim = item.claim.unit, item.claim
    run = Run(unit.id, claim.task, claim.queue, unit.lane, unit.enqueued, item.started, item.finished, Done.name)
    return _encode(run).decode()
