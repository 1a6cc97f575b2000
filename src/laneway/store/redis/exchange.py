"""The exchange: outcomes go in and claims come out, in one round trip where that is possible.

One script (`exchange.lua`) settles and claims in a queue, whatever jobs or lanes are there. Every queue that is concerned is
asked by one call of it, all of them together. A limit over several queues is dealt out in the order of the wants before it is
known who has how much; only if places are left over and somebody has more is there another round trip.

A busy worker need not know exactly how the other queues stand: with many queues, asking each of them every time would be most
of the work. So what they said is remembered for a moment (`_Memory`). Whoever gets nothing asks them all, because it goes to
sleep then.

Enters: `Settled`, `Want`.  Leaves: `Exchange`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from laneway.errors import StoreCorrupt, StoreError
from laneway.job import Claim
from laneway.outcome import Settled
from laneway.store.contract import Exchange, Want
from laneway.store.redis.claims import claims_of_jobs, claims_of_lanes
from laneway.store.redis.keys import queue_base
from laneway.store.redis.mend import mend
from laneway.store.redis.outcomes import Grouped, QueueOutcomes, group_by_queue
from laneway.store.redis.queues import Queues
from laneway.store.redis.scripts import script
from laneway.store.redis.tokens import STEP, tokens_from
from laneway.store.redis.wire import Asked, Command, Wire

__all__ = ["Exchanges"]

#: While a worker keeps receiving claims, it is good enough to know how other queues stood so long ago, seconds.
LATELY = 0.05
#: A queue that nobody was asked about: it may have any number of jobs ready.
UNKNOWN = (1 << 62, 0, -1)
#: An exchange that settles nothing: no other ends, no results, no successes.
NOTHING: tuple[str | bytes, ...] = (b"", b"", "0", b"")

log = logging.getLogger("laneway")

_to_msgpack = msgspec.msgpack.Encoder().encode


class _Memory:
    """How queues stood when they were last asked."""

    def __init__(self, clock: Callable[[], str]) -> None:
        self.stood: dict[str, tuple[int, int, int]] = {}  #: ready, paused, microseconds until the next is due (-1: none)
        self._clock = clock
        self._asked = 0.0  # when we last began to ask all of them
        self._soonest = 0.0  # when the first of those is due that had nothing ready

    def _now(self) -> float:
        """Return seconds, as the store's clock goes."""
        given = self._clock()
        return int(given) / 1_000_000 if given else time.monotonic()

    def is_fresh(self) -> bool:
        """Say whether all were asked so lately that a busy worker need not know better."""
        now = self._now()
        return now - self._asked < LATELY and now < self._soonest

    def begin(self) -> None:
        """All of them are about to be asked."""
        self.stood = {}
        self._asked, self._soonest = self._now(), float("inf")

    def note(self, queue: str, ready: int, paused: int, due_in: int) -> None:
        """Remember what a queue said."""
        self.stood[queue] = (ready, paused, due_in)
        if due_in >= 0:
            self._soonest = min(self._soonest, self._now() + due_in / 1_000_000)

    def forget(self, queues: Collection[str] | None = None) -> None:
        """Something has changed in these queues, or in any of them."""
        if queues is None:
            self._soonest = 0.0
        else:
            for queue in queues:
                self.stood.pop(queue, None)


class Exchanges:
    """Settles and claims; and keeps what one exchange leaves for the next."""

    def __init__(self, wire: Wire, queues: Queues, clock: Callable[[], str]) -> None:
        self.wire = wire
        self.queues = queues
        self.clock = clock
        self.memory = _Memory(clock)
        self.script = script("exchange").digest
        self.load = script("load").digest
        self.highest = 0  #: the highest token seen: later claims of this process have greater ones, whatever their queue
        self.complained: set[str] = set()  #: queues that cannot be worked on, and it was said
        self.dead: dict[str, int] = {}  #: how many were dead when we last had one

    def begin(self, worker: str, settled: Sequence[Settled], wants: Sequence[Want], limit: int) -> Callable[[], Exchange]:
        """Send what an exchange is to do; calling what is returned hears the answer."""
        call = _Call(self, worker, group_by_queue(settled), wants, limit)
        call.send()
        return call.hear

    def mend(self, queue: str) -> bool:
        """Set aside what somebody else wrote; say whether there was anything."""
        return bool(mend(self.wire, queue, self.queues.number(queue)))


class _Call:
    """One exchange."""

    def __init__(self, house: Exchanges, worker: str, outcomes: Grouped, wants: Sequence[Want], limit: int) -> None:
        self._house = house
        self._memory = house.memory
        self._worker = worker
        self._outcomes = outcomes.by_queue  # what is still to be settled
        self._ids = outcomes.ids
        self._wants = wants
        self._limit = self._places = limit  # how many may still be claimed
        self._claims: dict[int, list[Claim]] = {}  # by the number of the want
        self._refused: list[int] = []
        self._spent: set[str] = set()  # queues that have no more for this exchange
        self._heard: set[str] = set()  # queues that said how they stand
        self._new: list[str] = []  # queues that were registered meanwhile
        self._remembers = False  # some are not asked, because we remember how they stood
        # What was sent, and not heard:
        self._asked: Asked | None = None
        self._shares: dict[str, list[tuple[int, int]]] = {}  # of each queue: which want asks for how many
        self._working: list[str] = []  # queues that settle or claim
        self._loading: list[str] = []  # queues that say how they stand, and no more
        self._counting = False  # the registry is asked how many queues there are

    # -- what is sent ----------------------------------------------------------------------------------------

    def send(self) -> None:
        """Send the first round: all outcomes, what is likely to be claimable, and the question how the other queues stand."""
        memory, known = self._memory, self._house.queues.numbers
        busy = bool(self._outcomes or self._limit)
        self._remembers = busy and memory.is_fresh()
        if not self._remembers:
            memory.begin()
        self._deal()
        others = [name for name in known if name not in memory.stood and name not in self._shares and name not in self._outcomes]
        self._send(others, count=not self._remembers)

    def _send_more(self) -> bool:
        """Send another round if that may bring more: places are left, or nobody knows how some of the queues stand."""
        others, self._new = self._new, []
        self._shares = {}
        if self._places > 0:
            self._deal()
            if self._remembers and not (self._shares or others) and self._places == self._limit:
                self._remembers = False  # who goes to sleep must know
                others = [name for name in self._house.queues.numbers if name not in self._heard]
                self._send(others, count=True)
                return True
        if others or self._shares:
            self._send([name for name in others if name not in self._shares], count=False)
            return True
        return False

    def _deal(self) -> None:
        """Deal the places that are left to queues, in the order of the wants: as many as are ready, as far as we know.

        What is left then goes where something is settled: those in the lanes of what has ended may follow it.
        """
        ready: dict[str, int] = {}
        stood, known, spent, places = self._memory.stood, self._house.queues.numbers, self._spent, self._places
        for number, want in enumerate(self._wants):
            name = want.queue
            if places <= 0:
                return
            if name in known and name not in spent:
                there, paused, _ = stood.get(name, UNKNOWN)
                if not paused:
                    ready.setdefault(name, there)
                    places -= self._ask_for(number, want, min(places, ready[name]), ready)
        for name, outcomes in self._outcomes.items():
            ready[name] = outcomes.may_follow()
        for number, want in enumerate(self._wants) if self._outcomes else ():
            if want.queue in self._outcomes and places > 0:
                places -= self._ask_for(number, want, min(places, ready[want.queue]), ready)

    def _ask_for(self, number: int, want: Want, most: int, ready: dict[str, int]) -> int:
        """Let a want ask for so many at most; return how many that are."""
        shares = self._shares.get(want.queue, ())
        asked = min(most, want.most - len(self._claims.get(number, ())) - sum(share for one, share in shares if one == number))
        if asked <= 0:
            return 0
        ready[want.queue] -= asked
        self._shares.setdefault(want.queue, []).append((number, asked))
        return asked

    def _send(self, loading: list[str], *, count: bool) -> None:
        house = self._house
        self._working = list(dict.fromkeys((*self._outcomes, *self._shares)))
        self._loading, self._counting = loading, count
        now = house.clock()
        commands: list[Command] = [self._command(name, now) for name in self._working]
        commands += [("EVALSHA", house.load, "1", queue_base(name), now) for name in loading]
        if count:
            commands.append(house.queues.asks)
        self._asked = house.wire.send_all(commands) if commands else None

    def _command(self, queue: str, now: str) -> Command:
        house, outcomes, shares = self._house, self._outcomes.get(queue), self._shares.get(queue, ())
        told = NOTHING if outcomes is None else outcomes.arguments()
        most = sum(asked for _, asked in shares)
        head = ("EVALSHA", house.script, "1", queue_base(queue), now, self._worker, str(most), str(house.highest))
        return (*head, self._steps(shares), *told)

    def _steps(self, shares: Collection[tuple[int, int]]) -> bytes:
        """Return how a collector's lanes are to be claimed: runs, lanes of each, payloads of each, …; nothing: one by one."""
        wants = [(asked, self._wants[number]) for number, asked in shares]
        if all(want.lanes == 1 and not want.payloads for _, want in wants):
            return b""
        return _to_msgpack([part for asked, want in wants for part in (asked, want.lanes, want.payloads)])

    # -- what comes back -------------------------------------------------------------------------------------

    def hear(self) -> Exchange:
        """Hear the answers, and ask again where that is needed."""
        self._hear()
        while self._send_more():
            self._hear()
        return self._answer()

    def _hear(self) -> None:
        answers = [] if self._asked is None else self._asked.hear(patient=True)
        settled, self._outcomes = self._outcomes, {}
        number = answers.pop() if self._counting else None
        for name, answer in zip((*self._working, *self._loading), answers, strict=True):
            self._heard.add(name)
            if isinstance(answer, StoreError):
                self._meet_trouble(name, answer, needed=name in settled)
            else:
                self._memory.note(name, *answer[:3])
                if len(answer) > 3:
                    self._take(name, settled.get(name), answer)
        if isinstance(number, StoreError):
            raise number
        if number is not None and number != len(self._house.queues.numbers):
            self._read_queues()

    def _read_queues(self) -> None:
        """Others have come, or the store was emptied."""
        before = set(self._house.queues.numbers)
        names = self._house.queues.read()
        self._new = [name for name in names if name not in before]
        self._memory.forget(before.difference(names))

    def _meet_trouble(self, queue: str, error: StoreError, *, needed: bool) -> None:
        """A queue cannot be used. Garbage in one does not keep the others from working.

        Some of what was asked may have been done: it is never sent again.
        """
        if not isinstance(error, StoreCorrupt):
            raise error
        self._spent.add(queue)
        self._memory.forget((queue,))
        mended = self._house.mend(queue)
        if needed:
            raise error
        if mended:
            self._memory.note(queue, 1, 0, -1)  # it goes on: somebody should look again
        elif queue not in self._house.complained:
            self._house.complained.add(queue)
            log.error('the queue "%s" cannot be worked on, the others go on: %s', queue, error)

    def _take(self, queue: str, outcomes: QueueOutcomes | None, answer: list[Any]) -> None:
        """Take what a queue has claimed and refused."""
        _, _, _, token, ids, records, *rare = answer
        words: dict[bytes, bytes] = {}
        runs: list[Any] = []
        if rare:
            dead, refused, refused_others, flat, runs = rare
            words = dict(zip(flat[::2], flat[1::2], strict=True))
            if dead >= 0:
                self._house.dead[queue] = dead
            if outcomes is not None:
                self._refused += [outcomes.done_at[n] for n in refused]
                self._refused += [outcomes.others_at[n] for n in refused_others]
        tokens = tokens_from(token)
        claims = claims_of_lanes(queue, runs, tokens) if runs else claims_of_jobs(queue, ids, records, tokens, words)
        if claims:
            self._house.highest = max(self._house.highest, token + len(claims) * STEP)
            self._places -= len(claims)
        at = 0
        for number, asked in self._shares.get(queue, ()):
            self._claims.setdefault(number, []).extend(claims[at : at + asked])
            at += asked
        if len(claims) < at:
            self._spent.add(queue)

    def _answer(self) -> Exchange:
        refused = [self._ids[n] for n in sorted(self._refused)]
        claims = [claim for number in sorted(self._claims) for claim in self._claims[number]]
        stood = self._memory.stood.copy()  # other threads exchange too
        loads = {name: ready for name, (ready, paused, _) in stood.items() if not paused}
        if any(loads.get(want.queue) for want in self._wants):
            return Exchange(refused, claims, True, None, loads)
        waits = [stood[want.queue][2] for want in self._wants if want.queue in loads]
        return Exchange(refused, claims, False, min([due for due in waits if due >= 0], default=None), loads)
