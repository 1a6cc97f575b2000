"""The exchange: outcomes go in and claims come out, in one round trip where that is possible.

Most jobs are plain: they have neither lane nor key nor end. While a worker remembers how the queues stand, and meets no others,
it goes the short way: a small script for each queue, and little to think about. All else goes the long way (`rounds`). What the
short way finds and was not made for, it leaves untouched.

Enters: `Settled`, `Want`.  Leaves: `Exchange`.  Called by: the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from laneway.job import Claim
from laneway.outcome import Settled
from laneway.store.contract import Exchange, Want
from laneway.store.redis.ends import MOST_ALIKE, Sorted, sort_out
from laneway.store.redis.keys import NUMBERS, queue_base
from laneway.store.redis.mend import mend
from laneway.store.redis.queues import Queues
from laneway.store.redis.record import is_plain
from laneway.store.redis.rounds import Rounds, claim_of
from laneway.store.redis.scripts import script
from laneway.store.redis.wire import Command, Wire

__all__ = ["Exchanges"]

#: Who gets something to do hears of other queues as they stood so long ago, seconds: with many queues, asking each of them every
#: time would be most of the work. Who gets nothing asks, and whoever heard the bell.
LATELY = 0.05
#: A lane that could not go on the short way goes the long one for so long, seconds: others come and are ready just now.
DETOUR = 0.01
#: How a queue stands that we do not know.
UNKNOWN = (0, 0, -1)


class Exchanges:
    """What one exchange leaves for the next."""

    def __init__(self, wire: Wire, queues: Queues, clock: Callable[[], str]) -> None:
        self.wire = wire
        self.queues = queues
        self.clock = clock
        self.jobs = script("exchange").digest
        self.plain = script("plain").digest
        self.onward = script("onward").digest
        self.lanes = script("collect").digest
        self.load = script("load").digest
        self.highest = 0  # the highest token seen: later claims of this process have greater ones, whatever their queue
        self.collectors: set[str] = set()  # queues that were a collector's when we last looked
        self.complained: set[str] = set()  # queues that cannot be worked on, and it was said
        self.dead: dict[str, int] = {}  # how many were dead when we last had one
        self.stood: dict[str, tuple[int, int, int]] = {}  # how queues stood when we last asked: ready, paused, due in
        self.plain_ones: set[str] = set()  # queues where all jobs were plain when we last claimed some
        self._missed = 0.0  # when a lane could not go on the short way
        self._asked = 0.0  # when we last asked all of them
        self._soonest = 0.0  # and when the first of those that had nothing ready is due

    def mend(self, queue: str) -> bool:
        """Set aside what somebody else wrote; say whether there was anything."""
        return bool(mend(self.wire, queue, self.queues.number(queue)))

    def remembers(self, names: Iterable[str]) -> bool:
        """Say whether it is so lately that we asked how these queues stand that a busy worker need not know better."""
        now = time.monotonic()
        lately = now - self._asked < LATELY and now < self._soonest
        return lately and self.clock() == "" and all(name in self.stood for name in names)

    def ask_anew(self) -> None:
        """All queues are about to be asked."""
        self._asked, self._soonest = time.monotonic(), float("inf")

    def stand(self, queue: str, ready: int, paused: int, due_in: int) -> None:
        """Remember how a queue stands."""
        self.stood[queue] = (ready, paused, due_in)
        if due_in >= 0:
            self._soonest = min(self._soonest, time.monotonic() + due_in / 1_000_000)

    def forget(self) -> None:
        """Something has changed: ask all queues."""
        self._asked = 0.0

    def see(self, queue: str, records: Sequence[bytes]) -> None:
        """Take note of what kind of jobs were claimed in a queue; nothing: of other kinds than plain ones."""
        (self.plain_ones.add if records and all(is_plain(record) for record in records) else self.plain_ones.discard)(queue)

    def exchange(self, worker: str, settled: Sequence[Settled], wants: Sequence[Want], limit: int) -> Exchange:
        """Settle, then claim."""
        return self.begin(worker, settled, wants, limit)()

    def begin(self, worker: str, settled: Sequence[Settled], wants: Sequence[Want], limit: int) -> Callable[[], Exchange]:
        """Send what an exchange is to do; calling what is returned hears the answer."""
        ends = sort_out(settled)
        shares = self._deal(wants, limit) if settled and self.remembers(self.queues.numbers) else None
        hear = None if shares is None else self.short(worker, ends, shares, wants, limit)
        return hear or self._send(Rounds(self, worker, ends, wants, limit))

    @staticmethod
    def _send(call: Rounds) -> Callable[[], Exchange]:
        call.send()
        return call.hear

    # -- the short way ---------------------------------------------------------------------------------------

    def _deal(self, wants: Sequence[Want], limit: int) -> dict[str, int] | None:
        """Deal the places of a claim to queues, as far as we know how these stand; None if others than plain jobs are there."""
        shares: dict[str, int] = {}
        for want in wants:
            queue = want.queue
            ready, paused, _ = self.stood.get(queue, UNKNOWN)
            number = min(want.most, ready - shares.get(queue, 0), limit)
            if number > 0 and not paused:
                if queue not in self.plain_ones:
                    return None
                shares[queue] = shares.get(queue, 0) + number
                limit -= number
            if limit <= 0:
                break
        return shares

    def short(
        self, worker: str, ends: Sorted, shares: Mapping[str, int], wants: Sequence[Want], limit: int
    ) -> Callable[[], Exchange] | None:
        """Send the scripts for a common case: plain jobs, or one lane that is worked off. None if it is none."""
        commands = self._onward(worker, ends) if limit and not shares else self._plain(worker, ends, shares)
        if not commands:
            return None
        asked = self.wire.send_all([*commands.values()])
        return lambda: self._hear_short(dict(zip(commands, asked.hear(patient=True), strict=True)), worker, ends, wants, limit)

    def _onward(self, worker: str, ends: Sorted) -> dict[str, Command]:
        ((queue, end), *others) = ends.by_queue.items()
        if others or not end.goes_on() or time.monotonic() - self._missed < DETOUR:
            return {}
        return {queue: ("EVALSHA", self.onward, "1", queue_base(queue), self.clock(), worker, str(self.highest), *end.one())}

    def _plain(self, worker: str, ends: Sorted, shares: Mapping[str, int]) -> dict[str, Command]:
        commands: dict[str, Command] = {}
        for queue in dict.fromkeys((*shares, *ends.by_queue)):  # so claims are in the order of the wants
            end, most = ends.by_queue.get(queue), min(shares.get(queue, 0), MOST_ALIKE)
            plain = (b"",) if end is None else end.plain()
            if plain is None:
                return {}
            head = ("1", queue_base(queue), self.clock(), worker)
            commands[queue] = ("EVALSHA", self.plain, *head, str(most), str(self.highest), *plain)
        return commands

    def _hear_short(self, answers: Mapping[str, Any], worker: str, ends: Sorted, wants: Sequence[Want], limit: int) -> Exchange:
        claims: list[Claim] = []
        rest = {queue: end for queue, end in ends.by_queue.items() if not isinstance(answers[queue], list)}
        for queue, answer in answers.items():
            if isinstance(answer, list):
                claims += self._take(queue, cast("list[Any]", answer))
            else:  # it was something else, and nothing has happened there, or something is wrong: the long way tells
                self.see(queue, ())
                self._missed = time.monotonic()
        if rest or (limit and not claims):  # who goes to sleep must know how all of them stand
            more = self._send(Rounds(self, worker, Sorted(rest, ends.ids), wants, limit - len(claims)))()
            return Exchange(more.refused, claims + more.claims, more.more, more.next_due, more.loads)
        loads = {name: ready for name, (ready, paused, _) in self.stood.items() if not paused}
        ready = any(loads.get(want.queue) for want in wants)
        waits = [self.stood[want.queue][2] for want in wants if want.queue in loads] if not ready else []
        return Exchange([], claims, ready, min([due for due in waits if due >= 0], default=None), loads)

    def _take(self, queue: str, answer: list[Any]) -> list[Claim]:
        """Return what was claimed the short way."""
        ready, paused, due_in, token, claimed = answer
        self.stand(queue, ready, paused, due_in)
        claims: list[Claim] = []
        for id_, record in zip(claimed[::2], claimed[1::2], strict=True):
            claims.append(claim_of(queue, id_, record, token, {}))
            token += NUMBERS
        self.highest = max(self.highest, token if claimed else 0)
        return claims
