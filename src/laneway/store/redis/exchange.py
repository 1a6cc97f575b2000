"""The exchange: outcomes go in and claims come out, in one round trip where that is possible.

One script (`exchange.lua`) settles and claims in a queue, whatever jobs or lanes are there. Each queue that takes part gets one
call of it, all of them together. A limit over several queues is dealt out in the order of the wants, before the numbers of
ready jobs are known; there is another round trip only if the limit is not used up and a queue has more.

A busy worker need not know the exact depths of the other queues: with many queues, asking each of them every time would be most
of the work. So their answers are remembered for a moment (`_Memory`). A worker that gets nothing asks them all, because it goes
to sleep then.

Enters: `Settled`, `ClaimRequest`.  Leaves: `Exchange`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from laneway.core.job import Claim
from laneway.core.outcome import Settled
from laneway.errors import StoreCorrupt, StoreError, StoreMoved, StoreUnavailable
from laneway.logs import log
from laneway.store.contract import ClaimRequest, Exchange
from laneway.store.redis.claims import claims_of_jobs, claims_of_lanes
from laneway.store.redis.keys import queue_base
from laneway.store.redis.outcomes import NONE, Grouped, QueueOutcomes, group_by_queue
from laneway.store.redis.quarantine import set_aside_foreign_keys
from laneway.store.redis.queues import Queues
from laneway.store.redis.scripts import script
from laneway.store.redis.wire import Asked, Command, Wire

__all__ = ["Exchanges"]

#: While a worker keeps receiving claims, cached depths of other queues up to this old are good enough, seconds.
LATELY = 0.05
#: A queue that was not asked: it may have any number of jobs ready.
UNKNOWN = (1 << 62, 0, -1, 0.0)

_to_msgpack = msgspec.msgpack.Encoder().encode


class _Memory:
    """The last known depths of queues."""

    def __init__(self) -> None:
        #: Ready, paused, microseconds until the next is due (-1: none), and when that was asked, seconds of the store's clock.
        self.depths: dict[str, tuple[int, int, int, float]] = {}
        self.until = 0.0  #: until when this is good enough for a busy worker, seconds of the store's clock

    def begin(self, now: float) -> None:
        """Note that all queues are about to be asked."""
        self.depths = {}
        self.until = now + LATELY

    def note(self, queue: str, ready: int, paused: int, due_in: int, asked: float) -> None:
        """Remember a queue's answer to a question of that time. When the next job of an empty queue is due, it must be asked."""
        self.depths[queue] = (ready, paused, due_in, asked)
        if due_in >= 0:
            self.until = min(self.until, asked + due_in / 1_000_000)

    def forget(self, queues: Collection[str] | None = None) -> None:
        """Forget the depths of these queues, or of all: something has changed in them."""
        if queues is None:
            self.until = 0.0
        else:
            for queue in queues:
                self.depths.pop(queue, None)


class Exchanges:
    """Settles and claims; and keeps what one exchange leaves for the next."""

    def __init__(self, wire: Wire, queues: Queues, clock: Callable[[], str]) -> None:
        self.wire = wire
        self.queues = queues
        self.clock = clock
        self.memory = _Memory()
        self.script = script("exchange").digest
        self.depth_script = script("queue_depth").digest
        self.highest = 0  #: the highest token seen: later claims of this process have greater ones, whatever their queue
        self.complained: set[str] = set()  #: queues that cannot be used, and for which that was logged
        self.dead: dict[str, int] = {}  #: how many jobs were dead at the last death

    def begin(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Callable[[], Exchange]:
        """Send an exchange; calling the returned function reads the answer."""
        call = _ExchangeCall(self, worker, group_by_queue(worker, settled), wants, limit)
        call.send()
        return call.hear

    def set_aside_foreign_keys(self, queue: str) -> bool:
        """Set aside keys that another program wrote; return whether there were any."""
        return bool(set_aside_foreign_keys(self.wire, queue, self.queues.number(queue)))


class _ExchangeCall:
    """One exchange. Created for every job of a busy lane, so most attributes are created only when they are needed."""

    _asked: Asked | None = None  # commands that were sent, and their answers not read
    _asked_at = 0.0  # when, seconds of the store's clock
    _counting = False  # the command also asks how many queues there are
    _remembers = False  # some queues were not asked, because their depths are remembered
    _is_more = False  # some queues that were asked have more
    _is_cut = False  # the limit was used up before all wants had their turn
    _names: Sequence[str] = ()  # queues that were asked
    _new: Sequence[str] = ()  # queues that were registered meanwhile
    _spent: frozenset[str] = frozenset()  # queues that have no more for this exchange
    _closed: StoreMoved | None = None  # a copy has closed one of them, and there was nothing to settle
    _refused: Sequence[int] = ()  # by number

    def __init__(self, owner: Exchanges, worker: str, outcomes: Grouped, wants: Sequence[ClaimRequest], limit: int) -> None:
        self._owner = owner
        self._worker = worker
        self._outcomes = outcomes.by_queue  # outcomes still to be settled
        self._ids = outcomes.ids
        self._wants = wants
        self._limit = self._room = limit  # the most that may still be claimed
        self._shares: dict[str, list[tuple[int, int]]] = {}  # for each queue that is asked: want, and number of claims
        self._claims: dict[int, list[Claim]] = {}  # by the number of the want

    # -- requests --------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Send the first round: all outcomes, requests for likely claims, and the question for the depths of other queues."""
        memory, now = self._owner.memory, self._look_at_clock()
        if memory.until - LATELY <= self._asked_at < memory.until and (self._outcomes or self._limit):
            self._remembers = True
        else:
            memory.begin(self._asked_at)
        if self._limit:
            self._deal()
        known = self._owner.queues.numbers
        others: list[str] = []
        if len(memory.depths) < len(known):
            concerned = {*self._shares, *self._outcomes, *memory.depths}
            others = [name for name in known if name not in concerned]
        self._send(now, others, count=not self._remembers)

    def _look_at_clock(self) -> str:
        """Return the time for scripts, and note it in seconds."""
        now = self._owner.clock()
        self._asked_at = int(now) / 1_000_000 if now else time.monotonic()
        return now

    def _send_more(self) -> bool:
        """Send another round if that may bring more: the limit is not used up, or the depths of some queues are not known."""
        others, self._new, self._shares = self._new, (), {}
        if self._is_more or self._is_cut or others:
            self._deal()
            if self._shares or others:
                self._send(self._look_at_clock(), [name for name in others if name not in self._shares], count=False)
                return True
        if self._remembers and self._room == self._limit:  # no claims: the worker will sleep, and needs exact depths
            self._remembers = False
            others = [name for name in self._owner.queues.numbers if name not in self._names]
            self._send(self._look_at_clock(), others, count=True)
            return True
        return False

    def _deal(self) -> None:
        """Divide the rest of the limit among queues, in the order of the wants: as many as are ready, as far as known.

        A queue where something is settled may get more ready jobs: the next one of a lane, or a settled job that is retried.
        """
        owner, room = self._owner, self._room
        depths, known = owner.memory.depths, owner.queues.numbers
        left: dict[str, int] = {}  # for each queue: how many are ready and not dealt
        for number, want in enumerate(self._wants):
            name = want.queue
            if name in left:
                ready = left[name]
            else:
                ready, paused, *_ = depths.get(name, UNKNOWN)
                if name in self._outcomes:
                    ready += self._outcomes[name].followers
                if paused or name in self._spent or name not in known:
                    ready = 0
            if ready:
                asked = self._ask_for(number, name, min(want.most - len(self._claims.get(number, ())), room, ready))
                left[name] = ready - asked
                room -= asked
                if not room:
                    self._is_cut = True
                    return
        self._is_cut = False

    def _ask_for(self, number: int, queue: str, most: int) -> int:
        """Let a want ask a queue for up to `most` claims; return the number asked for."""
        if most <= 0:
            return 0
        if queue in self._shares:
            self._shares[queue].append((number, most))
        else:
            self._shares[queue] = [(number, most)]
        return most

    def _send(self, now: str, loading: Sequence[str], *, count: bool) -> None:
        """Send a round: outcomes and shares, the questions for depths of some queues, and for the number of queues."""
        owner = self._owner
        self._names = names = [*self._outcomes]
        for name in self._shares:
            if name not in self._outcomes:
                names.append(name)  # noqa: PERF401 - there is mostly none
        commands = [self._command(name, now) for name in names]
        if loading:
            names += loading
            commands += [("EVALSHA", owner.depth_script, "1", queue_base(name), now) for name in loading]
        if count:
            commands.append(owner.queues.asks)
        self._counting = count
        self._asked = owner.wire.send_all(commands) if commands else None

    def _command(self, queue: str, now: str) -> Command:
        owner, outcomes, most = self._owner, self._outcomes.get(queue), 0
        steps: list[int] = []
        for number, asked in self._shares.get(queue, ()):
            most += asked
            if self._wants[number].lanes != 1 or self._wants[number].payloads:
                steps = self._steps(queue)
        rare, successes = b"", NONE if outcomes is None else outcomes.successes()
        if steps or (outcomes is not None and (outcomes.others or outcomes.kept)):
            others, kept = ((), ()) if outcomes is None else (outcomes.others, outcomes.kept)
            rare = _to_msgpack((steps, others, kept))
        head = ("EVALSHA", owner.script, "1", queue_base(queue), now, self._worker, str(most), str(owner.highest), rare)
        return head + successes

    def _steps(self, queue: str) -> list[int]:
        """Return how a collector's lanes are to be claimed: runs, lanes of each, payloads of each, …"""
        asked = [(most, self._wants[number]) for number, most in self._shares[queue]]
        return [n for most, want in asked for n in (most, want.lanes, want.payloads)]

    # -- answers ---------------------------------------------------------------------------------------------

    def hear(self) -> Exchange:
        """Read the answers, and ask again where that is needed."""
        self._hear()
        while (self._room > 0 or self._new) and self._send_more():
            self._hear()
        answer = self._answer()
        if self._closed is not None and not answer.claims:
            raise self._closed
        return answer

    def _hear(self) -> None:
        answers = self._asked.hear(patient=True) if self._asked is not None else []
        settled, self._outcomes, self._is_more = self._outcomes, {}, False
        number = answers.pop() if self._counting else None
        for name, answer in zip(self._names, answers, strict=True):
            if isinstance(answer, StoreError) and self._is_closed(name, answer):
                continue
            if isinstance(answer, StoreError):
                self._meet_trouble(name, answer, needed=name in settled)
                continue
            self._owner.memory.note(name, answer[0], answer[1], answer[2], self._asked_at)
            if answer[0]:
                self._is_more = True
            if len(answer) > 3:
                self._take(name, settled.get(name), answer)
        if number is not None:
            self._hear_number(number)

    def _is_closed(self, queue: str, answer: StoreError) -> bool:
        """Return whether a copy has closed a queue. Outcomes are taken all the same; without any, that is an error.

        But the copy may not have come to other queues yet, and then this exchange has claimed there.
        """
        if not isinstance(answer, StoreMoved):
            return False
        self._spent |= {queue}
        self._closed = None if self._ids else answer
        return True

    def _hear_number(self, number: int | StoreError) -> None:
        """Take the number of queues: there may be new ones, or the store was emptied."""
        if isinstance(number, StoreError):
            raise number
        if number != len(self._owner.queues.numbers):
            before = set(self._owner.queues.numbers)
            names = self._owner.queues.read()
            self._new = [name for name in names if name not in before]
            self._owner.memory.forget(before.difference(names))

    def _meet_trouble(self, queue: str, error: StoreError, *, needed: bool) -> None:
        """Handle the error of a queue. Garbage in one queue does not keep the others from working.

        A part of the request may have been done: it is never sent again.
        """
        if not isinstance(error, StoreCorrupt):
            raise error
        self._spent |= {queue}
        self._owner.memory.forget((queue,))
        mended = self._owner.set_aside_foreign_keys(queue)
        if needed:
            raise error
        if mended and queue in self._shares:
            # The script may have claimed jobs before it failed: after an error the worker gives back claims that it does not
            # know.
            raise StoreUnavailable(f"The exchange with queue {queue} failed at a key that Laneway did not write.") from error
        if mended:
            self._owner.memory.note(queue, 1, 0, -1, self._asked_at)  # the queue works again: make the worker ask once more
        elif queue not in self._owner.complained:
            self._owner.complained.add(queue)
            log.error('queue "%s": its jobs can be neither settled nor claimed; other queues go on: %s', queue, error)

    def _take(self, queue: str, outcomes: QueueOutcomes | None, answer: list[Any]) -> None:
        """Take the claims and refusals of a queue."""
        if len(answer) == 6:
            claims = claims_of_jobs(queue, answer[4], answer[5], answer[3])
        else:
            claims = self._take_all(queue, outcomes, *answer[3:])
        owner, at = self._owner, 0
        if claims:
            self._room -= len(claims)
            owner.highest = max(owner.highest, claims[-1].token)
        for number, asked in self._shares.get(queue, ()):  # they go to the wants that asked for them
            part = claims[at : at + asked]
            self._claims[number] = self._claims[number] + part if number in self._claims else part
            at += asked
        if len(claims) < at:
            self._spent |= {queue}

    def _take_all(
        self, queue: str, outcomes: QueueOutcomes | None, token: int, ids: list[bytes], records: list[bytes], dead: int,
        refused: list[int], refused_others: list[int], words: list[bytes], runs: list[Any],
    ) -> list[Claim]:  # fmt: skip
        """Take an answer with more fields than most: see `exchange.lua`."""
        if dead >= 0:
            self._owner.dead[queue] = dead
        if outcomes is not None:
            named = [outcomes.done_at[n] for n in refused] + [outcomes.others_at[n] for n in refused_others]
            self._refused = [*self._refused, *named]
        if runs:
            return claims_of_lanes(queue, runs, token)
        return claims_of_jobs(queue, ids, records, token, dict(zip(words[::2], words[1::2], strict=True)))

    def _answer(self) -> Exchange:
        refused = [self._ids[n] for n in self._refused]
        claims: list[Claim] = []
        for number in sorted(self._claims):
            claims += self._claims[number]
        depths = self._owner.memory.depths.copy()  # other threads exchange too
        loads = {name: ready for name, (ready, paused, *_) in depths.items() if not paused}
        waits: list[int] = []
        for want in self._wants:
            name = want.queue
            if name in loads:
                if loads[name]:
                    return Exchange(refused, claims, True, None, loads)
                _, _, due_in, asked = depths[name]
                if due_in >= 0:
                    waits.append(max(due_in - round((self._asked_at - asked) * 1_000_000), 0))
        return Exchange(refused, claims, False, min(waits) if waits else None, loads)
