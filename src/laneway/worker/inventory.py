"""The inventory: all claims that a worker holds, and where each of them is.

A claim is prefetched, is with a slot, or its outcome is on the way to the store; then it is forgotten. The inventory decides
which claims are handed over, and in which order. It is used only under the exchanger's mutex.

Enters: claims of the store.  Leaves: claims to slots and seats.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from laneway.core.instant import SECOND
from laneway.core.job import Claim
from laneway.core.outcome import Settled
from laneway.desk.task_base import TaskBase
from laneway.store.contract import ClaimRequest
from laneway.worker.balance import Policy
from laneway.worker.collector_run import run_sizes
from laneway.worker.executors import LoopSlots, ThreadSlots
from laneway.worker.prefetch import MOST_BESIDE, MOST_WAITING, Prefetch
from laneway.worker.shares.fair import Balance, expected, first_to_run
from laneway.worker.shares.kinds import Kinds

__all__ = ["Inventory"]


class Inventory:
    """The claims that a worker holds."""

    def __init__(
        self,
        size: int,
        declared: Mapping[str, TaskBase],
        policy: Policy,
        slots: ThreadSlots,
        seats: LoopSlots,
        *,
        pipelined: bool,
    ) -> None:
        self.known: dict[int, Claim] = {}  # all claims, by token
        self.prefetched: deque[Claim] = deque()  # not yet handed over
        self.in_flight = 0  # handed over, and their outcomes not sent
        self.long_ones = 0  # of these, running for longer than jobs do here, as of the session's last look
        self.pace = Prefetch(size, MOST_BESIDE if pipelined else MOST_WAITING)
        self.kinds = Kinds(declared)
        self.balance = Balance(size, policy)
        self._size = size
        self._slots = slots
        self._seats = seats
        self._pipelined = pipelined  # claims run while others are settled
        self._run_sizes = run_sizes(declared)
        self._seated = {name for name, task in declared.items() if task.is_async and not task.isolate}
        self._on_loop = 0  # of those in flight, on the event loop
        self._overfull = float("-inf")  # when far too many were prefetched
        self._sent: list[Settled] = []  # outcomes on their way
        self._wanted: Sequence[ClaimRequest] = ()  # the claims requested with them,
        self._limit = 0  # and the most claims in all

    @property
    def short(self) -> bool:
        """Whether jobs are so short here that an exchange takes longer than they do."""
        return self.pace.short

    def is_overfull(self) -> bool:
        """Return whether far more claims are prefetched than can start soon: they were claimed when jobs were shorter.

        True once a second at most: where short and long jobs alternate, claims would otherwise go back and forth.
        """
        if not self.prefetched or self.short:
            return False
        enough = 2 * (self._size + self.pace.ahead)
        if len(self.prefetched) <= enough or len(self.prefetched) - self._kept() <= enough:
            return False
        now = time.monotonic()
        if now - self._overfull < 1.0:
            return False
        self._overfull = now
        return True

    # -- to the store and back -------------------------------------------------------------------------------

    def room(self, settling: int, most: float, loads: Mapping[str, int]) -> int:
        """Return how many claims are wanted, if `settling` are settled in the same exchange; never more than `most` in all."""
        free = self.pace.unsettled - self.in_flight + settling - len(self._sent)
        ready = len(self.prefetched) - self._kept()
        missing = free + self.pace.ahead - ready - self._limit
        if missing > 0 and not self.short:
            missing += self.balance.ahead(loads)
        if missing > most - len(self.known):
            missing = int(most) - len(self.known)
        # A few claims at a time would cost a round trip each: a worker with prefetched claims waits until it has outcomes to
        # settle. Claiming many takes hardly longer than claiming a few: a worker with many prefetched claims waits until half of
        # them are used.
        left = ready + self._limit - free
        return 0 if (left >= 0 and not settling) or left > self.pace.ahead // 2 else max(missing, 0)

    def _kept(self) -> int:
        """Return how many prefetched claims of CPU-bound queues wait for others of these queues to end: they need no slot yet."""
        if not self.prefetched or self.short or not self.kinds.cpu:
            return 0
        here = sum([claim.queue in self.kinds.cpu for claim in self.prefetched])
        return max(here - max(self.balance.places_to_compute - (self.balance.computers - here), 0), 0)

    def wants(
        self, settled: Sequence[Settled], queues: Sequence[str], loads: Mapping[str, int], limit: int, turn: int,
        running: Iterable[str],
    ) -> list[ClaimRequest]:  # fmt: skip
        """Divide the next claim among the queues: how many jobs of each. `running` are the tasks that run now."""
        now = time.monotonic()
        self.kinds.learn(now, running)
        self.balance.look(loads, now, io=self.kinds.io, cpu=self.kinds.cpu, busy=self.kinds.busy)
        ending = [item.claim.token for item in (*settled, *self._sent)]
        return self.balance.wants(
            queues, loads, limit, turn, now, ending=ending, asked=expected(self._wanted, self._limit), run_sizes=self._run_sizes,
            least=self.pace.share,
        )  # fmt: skip

    def sent(self, settled: list[Settled], wanted: Sequence[ClaimRequest], limit: int) -> None:
        """Note that these outcomes are on their way, and how long their runs took: their claims are in no slot any more.

        The thread that settles them works meanwhile.
        """
        self._sent, self._wanted, self._limit = settled, wanted, limit
        if not settled:
            return
        self._leave(settled, 1)
        ran = [(item.claim.token, (item.finished - item.started) / SECOND) for item in settled]
        self.balance.ran(ran, time.monotonic())
        self.kinds.settled(settled)
        self.pace.measured(sum([seconds for _, seconds in ran]), len(settled))
        self.pace.has_longest(self.balance.longest)

    def answered(self, settled: list[Settled]) -> None:
        """Note that the answer for these outcomes has come."""
        if self._sent is settled:
            self._sent, self._wanted, self._limit = [], (), 0

    def not_sent(self, settled: list[Settled]) -> None:
        """Count these claims as if their runs had just ended: their outcomes did not arrive, or that is not known."""
        self._leave(settled, -1)

    def _leave(self, settled: list[Settled], sign: int) -> None:
        self.in_flight -= sign * len(settled)
        if self._seated:
            self._on_loop -= sign * sum([self._is_seated(item.claim) for item in settled])

    def settled(self, settled: Sequence[Settled]) -> None:
        """Forget claims that are settled."""
        for item in settled:
            del self.known[item.claim.token]

    def took(self, claims: Sequence[Claim]) -> None:
        """Take in new claims, as prefetched ones."""
        if not claims:
            return
        for claim in claims:
            self.known[claim.token] = claim
        self.balance.took([(claim.token, claim.queue) for claim in claims], time.monotonic())
        self.prefetched.extend(claims)
        self.pace.has_longest(self.balance.longest)

    def take_back(self) -> Collection[Claim]:
        """Forget claims that are prefetched or queued for a slot, and return them."""
        line = self._slots.take_back()
        self.in_flight -= len(line)
        back = (*self.prefetched, *line)
        for claim in back:
            del self.known[claim.token]
        self.balance.returned([claim.token for claim in back])
        self.pace.has_longest(self.balance.longest)
        self.prefetched.clear()
        return back

    # -- to slots and seats ----------------------------------------------------------------------------------

    def hand_over(self) -> bool:
        """Hand claims to slots and seats; return whether there were any, and room for them."""
        room = self.pace.unsettled - self.in_flight - len(self._sent)
        if self._pipelined and self.short:
            room = min(room, self.pace.unsettled // 2 - self.in_flight)  # the others run while these are settled
        before = len(self.prefetched)
        claims = self._choose(max(min(before, room), 0))
        if self._seated and (self._on_loop or any(map(self._is_seated, claims))):
            claims = self._seat(claims)
        self.in_flight += len(claims)
        if claims:
            self._slots.hand(claims, short=self.short, long_ones=self.long_ones)
        return len(self.prefetched) < before

    def _choose(self, number: int) -> list[Claim]:
        """Take `number` claims, in order; where jobs are long, those that compute let others go first."""
        if not self.kinds.computing or self.short:
            return [self.prefetched.popleft() for _ in range(number)]
        claims = list(self.prefetched)
        elsewhere = {claim.token for claim in claims} | {item.claim.token for item in self._sent}
        running = Counter([claim.task for claim in self.known.values() if claim.token not in elsewhere])
        waiting = [(claim.task, claim.queue) for claim in claims]
        chosen = first_to_run(waiting, number, running, self.kinds.computing, self.kinds.cpu, self.balance.computing)
        taken = set(chosen)
        self.prefetched = deque([claim for number, claim in enumerate(claims) if number not in taken])
        return [claims[number] for number in chosen]

    def _seat(self, claims: list[Claim]) -> list[Claim]:
        """Hand claims of async tasks to the event loop, and return those for threads.

        Threads never run more than there are slots, nor does the loop. Together they would: so while both have claims, no
        more is handed over than there are slots.
        """
        plain: list[Claim] = []
        seated: list[Claim] = []
        for number, claim in enumerate(claims):
            on_loop = self._is_seated(claim)
            threads = self.in_flight - self._on_loop + len(plain)
            loop = self._on_loop + len(seated)
            if (threads if on_loop else loop) and threads + loop >= self._size:
                self.prefetched.extendleft(reversed(claims[number:]))
                break
            (seated if on_loop else plain).append(claim)
        if seated:
            self.in_flight += len(seated)
            self._on_loop += len(seated)
            self._seats.hand(seated)
        return plain

    def _is_seated(self, claim: Claim) -> bool:
        return claim.task in self._seated and not claim.lost
