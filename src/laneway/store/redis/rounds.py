"""The long way of an exchange: all that jobs and lanes can be, over any number of queues.

Each queue is asked by one call of a script, all of them together: `exchange` for jobs, `collect` for a collector's lanes. A limit
over several queues is dealt out in the order of the wants before it is known who has how much; only if places are left over and
somebody has more is there another round trip.

Enters: `Sorted`, `Want`.  Leaves: `Exchange`.  Called by: `exchange`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from laneway.codec import open_body
from laneway.errors import GarbageError, StoreCorrupt, StoreError
from laneway.job import Claim, Payload, Unit
from laneway.store.contract import Exchange, Want
from laneway.store.redis.ends import MOST_ALIKE, Ends, Sorted
from laneway.store.redis.keys import NUMBERS, queue_base
from laneway.store.redis.record import LOST, is_plain, read, read_plain
from laneway.store.redis.wire import Asked, Command

if TYPE_CHECKING:
    from laneway.store.redis.exchange import Exchanges

__all__ = ["Rounds", "claim_of"]

WRONG_KIND, NOT_ALIKE = -3, -4

log = logging.getLogger("laneway")

_to_msgpack = msgspec.msgpack.Encoder().encode


class _Step(Struct):
    """A want, as far as it is served."""

    queue: str
    left: int
    lanes: int
    payloads: int
    asked: int = 0
    claims: list[Claim] = field(default_factory=list[Claim])


class _Round(Struct):
    """What was sent together."""

    asked: Asked
    names: list[str]  #: of the queues that settle or claim
    collect: list[bool]  #: whether each was taken for a collector's
    ends: dict[str, Ends]
    shares: dict[str, int]


class _First(Struct):
    """The first round, which also asks how the other queues stand."""

    round: _Round
    rest: list[str]  #: the other queues
    remembered: bool  #: they need not be asked


class Rounds:
    """One exchange."""

    def __init__(self, house: Exchanges, worker: str, ends: Sorted, wants: Sequence[Want], limit: int) -> None:
        self._house = house
        self._worker = worker
        self._ends, self._ids = ends.by_queue, ends.ids
        self._steps = [_Step(want.queue, want.most, want.lanes, want.payloads) for want in wants]
        self._wanted = {want.queue for want in wants}
        self._limit = limit
        self._now = house.clock()
        self._claimed = 0
        self._refused: list[int] = []
        self._loads: dict[str, int] = {}
        self._paused: set[str] = set()
        self._next_due: dict[str, int] = {}
        self._spent: set[str] = set()  # queues that have no more for this call
        self._known = set(house.queues.numbers)

    def send(self) -> None:
        """Send the first round."""
        self._house.collectors |= {queue for queue, ends in self._ends.items() if ends.of_lanes}
        self._first = self._send_first(self._ends, self._known)

    def hear(self) -> Exchange:
        """Hear its answers, and ask again where that is needed."""
        house = self._house
        self._hear_first(self._first)
        while new := house.queues.numbers.keys() - self._known:
            self._known |= new
            self._hear_first(self._send_first({}, new))
        self._go_round()
        if self._first.remembered and self._limit and not self._claimed:  # who goes to sleep must know
            rest = self._first.rest
            self._hear_loads(rest, house.wire.ask_all(self._loading(rest), patient=True))
            self._go_round()
        return self._answer()

    def _go_round(self) -> None:
        """Ask again, as long as places are left over and somebody may have more."""
        while self._claimed < self._limit and (shares := self._shares()):
            self._hear_round(self._send({}, shares, []))

    # -- what is sent ----------------------------------------------------------------------------------------

    def _send_first(self, ends: dict[str, Ends], known: set[str]) -> _First:
        """Ask the queues that are concerned, and how the others stand."""
        house = self._house
        remembered = house.remembers(known)
        if not remembered:
            house.ask_anew()
        # Where nothing was ready nothing is asked for, unless something is settled there: its lane may go on.
        shares = self._shares({name: house.stood[name][0] for name in known if name not in ends} if remembered else {})
        rest = [name for name in known if name not in shares and name not in ends]
        loads = [] if remembered else self._loading(rest)
        return _First(self._send(ends, shares, [*loads, house.queues.asks]), rest, remembered)

    def _hear_first(self, first: _First) -> None:
        house, rest = self._house, first.rest
        *answers, number = self._hear_round(first.round)
        if isinstance(number, StoreError):
            raise number
        if first.remembered:
            stood = {name: house.stood[name] for name in rest}
            self._next_due |= {name: due_in for name, (_, _, due_in) in stood.items()}
            self._paused |= {name for name, (_, paused, _) in stood.items() if paused}
            self._loads |= {name: ready for name, (ready, paused, _) in stood.items() if not paused}
        else:
            self._hear_loads(rest, answers)
        if number != len(house.queues.numbers):
            house.queues.read()

    def _loading(self, names: Sequence[str]) -> list[Command]:
        return [("EVALSHA", self._house.load, "1", queue_base(name), self._now) for name in names]

    def _hear_loads(self, names: Sequence[str], answers: Sequence[Any]) -> None:
        for name, answer in zip(names, answers, strict=True):
            if not self._is_trouble(name, answer, needed=False):
                self._stands(name, *answer)

    def _send(self, ends: dict[str, Ends], shares: dict[str, int], more: list[Command]) -> _Round:
        """Settle and claim, and ask more."""
        house = self._house
        names = list(dict.fromkeys([*ends, *shares]))
        collect = [name in house.collectors for name in names]
        commands = [
            self._command(name, ends.get(name), shares.get(name, 0), kind) for name, kind in zip(names, collect, strict=True)
        ]
        return _Round(house.wire.send_all([*commands, *more]), names, collect, ends, shares)

    def _hear_round(self, round_: _Round) -> list[Any]:
        """Hear what was settled and claimed; return the answers to what was asked more."""
        house, names, collect, ends, shares = self._house, round_.names, round_.collect, round_.ends, round_.shares
        answers = round_.asked.hear(patient=True)
        while wrong := [n for n in range(len(names)) if answers[n] in (WRONG_KIND, NOT_ALIKE)]:
            # It is of the other kind than we thought, and nothing of it has happened.
            for n in wrong:
                if answers[n] == NOT_ALIKE:
                    house.see(names[n], ())
                else:
                    collect[n] = not collect[n]
                    (house.collectors.add if collect[n] else house.collectors.discard)(names[n])
            again = [self._full_command(names[n], ends.get(names[n]), shares.get(names[n], 0), collect[n]) for n in wrong]
            for n, answer in zip(wrong, house.wire.ask_all(again, patient=True), strict=True):
                answers[n] = answer
        for name, kind, answer in zip(names, collect, answers, strict=False):
            if not self._is_trouble(name, answer, needed=name in ends):
                self._hear(name, ends.get(name), shares.get(name, 0), kind, answer)
        return answers[len(names) :]

    def _shares(self, guessed: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
        """Deal the places that are left, in the order of the steps, to those who may have something."""
        places = self._limit - self._claimed
        known, there = self._house.queues.numbers, {**guessed, **self._loads}
        shares: dict[str, int] = {}
        for step in self._steps:
            name = step.queue
            step.asked = 0
            if places <= 0 or name in self._spent or name in self._paused or name not in known:
                continue
            step.asked = min(step.left, places, there.get(name, places))
            if step.asked > 0:
                places -= step.asked
                there[name] = there.get(name, self._limit) - step.asked
                shares[name] = shares.get(name, 0) + step.asked
        return shares

    def _command(self, queue: str, ends: Ends | None, most: int, collects: bool) -> Command:
        house = self._house
        plain: Command | None = None
        if not collects and (not most or (queue in house.plain_ones and most <= MOST_ALIKE)):
            plain = ends.plain() if ends is not None else (b"",)
        if plain is None:
            return self._full_command(queue, ends, most, collects)
        return ("EVALSHA", house.plain, "1", queue_base(queue), self._now, self._worker, str(most), str(house.highest), *plain)

    def _full_command(self, queue: str, ends: Ends | None, most: int, collects: bool) -> Command:
        house = self._house
        done, others, results = (b"", b"", b"") if ends is None else ends.packed()
        arguments = ("1", queue_base(queue), self._now, self._worker, str(most), str(house.highest), done, others, results)
        if not collects:
            return ("EVALSHA", house.jobs, *arguments)
        steps = [n for step in self._steps if step.queue == queue for n in (step.asked, step.lanes, step.payloads)]
        return ("EVALSHA", house.lanes, *arguments, _to_msgpack(steps) if most else b"")

    # -- what comes back -------------------------------------------------------------------------------------

    def _is_trouble(self, queue: str, answer: Any, *, needed: bool) -> bool:
        """Say whether a queue cannot be used. Garbage in one does not keep the others from working."""
        if not isinstance(answer, StoreError):
            return False
        if not isinstance(answer, StoreCorrupt):
            raise answer
        if self._house.mend(queue) and not needed:
            self._loads[queue] = 1  # it goes on: somebody should look again
        elif needed:
            raise answer
        elif queue not in self._house.complained:
            self._house.complained.add(queue)
            log.error('the queue "%s" cannot be worked on, the others go on: %s', queue, answer)
        self._spent.add(queue)
        return True

    def _stands(self, queue: str, ready: int, paused: int, due_in: int) -> None:
        self._next_due[queue] = due_in
        self._house.stand(queue, ready, paused, due_in)
        if paused:
            self._paused.add(queue)
            self._loads.pop(queue, None)
        else:
            self._loads[queue] = ready

    def _hear(self, queue: str, ends: Ends | None, share: int, collects: bool, answer: list[Any]) -> None:
        self._stands(queue, *answer[:3])
        if len(answer) == 5:  # the short way
            answer[3:] = (-1, answer[3], [], [], answer[4], [])
        dead, token, refused, refused_others, claims, words = answer[3:]
        if dead >= 0:
            self._house.dead[queue] = dead
        if ends is not None and ends.done_at:
            self._refused += [ends.done_at[n] for n in refused]
        if ends is not None and ends.others_at:
            self._refused += [ends.others_at[n] for n in refused_others]
        number = len(claims) if collects else len(claims) // 2
        if number < share:
            self._spent.add(queue)
        if number:
            self._house.highest = max(self._house.highest, token + number * NUMBERS)
            if collects:
                self._take_runs(queue, token, claims)
            else:
                self._take_jobs(queue, token, claims, dict(zip(words[::2], words[1::2], strict=True)))

    def _take_jobs(self, queue: str, token: int, claims: list[bytes], words: dict[bytes, bytes]) -> None:
        self._house.see(queue, claims[1::2])
        steps = iter([step for step in self._steps if step.queue == queue and step.asked])
        step = next(steps)
        room = step.asked
        for id_, record in zip(claims[::2], claims[1::2], strict=True):
            if not room:
                step = next(steps)
                room = step.asked
            room -= 1
            step.claims.append(claim_of(queue, id_, record, token, words))
            step.left -= 1
            self._claimed += 1
            token += NUMBERS

    def _take_runs(self, queue: str, token: int, runs: list[Any]) -> None:
        steps = [step for step in self._steps if step.queue == queue]
        for run in runs:
            step = steps[int(run[0])]
            step.claims.append(_run(queue, token, run[1], run[2:]))
            step.left -= 1
            self._claimed += 1
            token += NUMBERS

    def _answer(self) -> Exchange:
        refused = [self._ids[n] for n in sorted(self._refused)]
        claims = self._steps[0].claims if len(self._steps) == 1 else [claim for step in self._steps for claim in step.claims]
        more = any(self._loads.get(name) for name in self._wanted)
        waits = [due for name, due in self._next_due.items() if due >= 0 and name in self._wanted and name not in self._paused]
        return Exchange(refused, claims, more, None if more or not waits else min(waits), self._loads)


def claim_of(queue: str, id_: bytes, raw: bytes, token: int, words: dict[bytes, bytes]) -> Claim:
    """Return a claim; if there is no job in it, it says why."""
    try:
        if is_plain(raw):
            _, enqueued, task, body = read_plain(raw)
            unit = Unit(id_.decode(errors="replace"), None, 1, enqueued, enqueued, enqueued, body)
            return Claim(token, queue, task, (unit,), "", _flaw(body))
        record = read(raw)
    except GarbageError as error:
        return _garbage(queue, id_, raw, token, str(error))
    name, attempt = id_.decode(errors="replace"), record.attempt + 1
    unit = Unit(name, record.lane, attempt, record.enqueued, record.due, record.place, record.body)
    lost = words.get(id_, b"").decode(errors="replace") if record.flags & LOST else ""
    return Claim(token, queue, record.task, (unit,), lost, _flaw(record.body))


def _flaw(body: bytes) -> str:
    """Say why a body is no job's; empty: it is one."""
    try:
        open_body(body)
    except GarbageError as error:
        return str(error)
    return ""


def _garbage(queue: str, id_: bytes, raw: bytes, token: int, why: str) -> Claim:
    """Return the claim of a record that cannot be read."""
    return Claim(token, queue, "", (Unit(id_.decode(errors="replace"), None, 1, 0, 0, body=raw),), garbage=why)


def _run(queue: str, token: int, word: bytes, rows: list[Any]) -> Claim:
    """Return the claim of a collector's run: id, record, payloads and the first of them of each of its lanes.

    Without payloads it is no lane's record.
    """
    if rows[2] is None:
        return _garbage(queue, rows[0], rows[1], token, "this is no lane's record")
    records = [read(raw) for raw in rows[1::4]]
    units: list[Unit] = []
    for id_, record, flat, arrived in zip(rows[::4], records, rows[2::4], rows[3::4], strict=True):
        payloads = [Payload(body, float(score)) for body, score in zip(flat[::2], flat[1::2], strict=True)]
        name, attempt, times = record.lane or "", record.attempt + 1, (record.enqueued, record.due, record.place)
        units.append(Unit(id_.decode(), name, attempt, *times, payloads=payloads, first=arrived, number=record.seq))
    return Claim(token, queue, records[0].task, tuple(units), word.decode(errors="replace"))
