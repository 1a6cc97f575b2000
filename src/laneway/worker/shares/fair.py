"""Fair shares: how many jobs of each queue a worker claims. Pure: no store, no clock, no threads.

A policy (`balance`) returns the slots that each queue is to have: its share. It is called once a second, and at once when a queue
gets work that had none. In between each claim goes to the queue that has used least of its share until now. Use is the
time that its runs took, so shares hold whether jobs are long or short, and for fractions of a slot.

* No slot stays empty while work waits: an idle queue lends its share. Runs are never interrupted: a borrowing queue gives way by
  getting no new slot.
* Idle queues accrue no credit: a queue that becomes busy starts with the use of the least used busy queue. A queue that is behind
  catches up slowly: it gets at most 1.25 times its share, plus one job.
* A queue of CPU-bound jobs runs one at a time in each process. More would only take turns on the interpreter lock, and delay
  I/O-bound jobs.

Enters: loads, claims and runs.  Leaves: `ClaimRequest`s.
"""

from __future__ import annotations

import heapq
import inspect
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from laneway.store.contract import ClaimRequest
from laneway.worker.balance import Policy, check, even, smoothed_loads
from laneway.worker.prefetch import MOST_WAITING, SHORT, WAITING, RunSizes

__all__ = ["Balance", "QueueShare", "deal", "expected", "first_to_run"]

#: How often slots are dealt, seconds.
EVERY = 1.0
#: The cost of an empty job for a worker, seconds.
MIN_COST = 0.00002
#: A run this many times as long as the other short ones was slowed by a busy machine: at most this multiple counts.
OUTLIER = 10
#: Short jobs of one queue are claimed for about this time at once, seconds.
STEP = 0.002
#: A process that uses more than the first part of a core has no time for another computing job; below the second, it has.
SATURATED, IDLE = 0.85, 0.5
#: The part of its share that a queue that is behind may have.
CATCH_UP = 1.25
#: More claims than any worker has.
ANY = 1_000_000


class QueueShare(Struct, gc=False, eq=False):
    """A queue in a worker's balance."""

    queue: str
    share: float = 0.0  #: slots that it should have
    held: int = 0  #: its claims that run, or wait inside this worker
    load: int = 0  #: jobs that wait in the store
    spent: float = 0.0  #: the time of its runs, each divided by the share at that time: seconds
    mean: float = WAITING  #: the mean time of a run, seconds
    cap: int | None = None  #: the most runs at a time, if its jobs compute
    position: int = 0  #: its position among queues without a share
    seen: bool = False  #: whether the mean was measured

    def rank(self, piece: float, scale: float) -> tuple[int, float, int]:
        """Return a sort key: the lowest gets the next job."""
        if not self.share:
            return (2, self.position, 0)
        if self.cap is not None and self.share >= 1 and self.held < self.share + self.waiting:
            return (-1, 0.0, self.position)  # its slot is not lent: the borrower would keep it for a whole run
        return (int(self.held >= self.own(scale)), self.spent + self.held * piece / self.share, self.position)

    def own(self, scale: float) -> float:
        """Return how many claims it may hold before others go first: its share, prefetched ones, and some to catch up."""
        return self.share * min(scale, 1 + WAITING / self.mean) * CATCH_UP + 1

    def room(self, less: int = 0) -> int:
        """Return how many may be claimed, apart from shares, if it holds `less` fewer."""
        if self.cap is None:
            return ANY
        return max(self.cap + self.waiting - self.held + less, 0)

    @property
    def waiting(self) -> int:
        """The most claims of a CPU-bound queue that may wait in this worker, besides those that run."""
        return min(int(WAITING / self.mean), MOST_WAITING)


NO_SHARE = QueueShare("")
NONE = Counter[str]()


def deal(
    parts: Sequence[QueueShare], slots: int, held: int, capacity: int, *, least: int = 1, piece: float = WAITING
) -> dict[str, int]:
    """Divide a claim among queues: how many jobs of each, in order. These numbers are added to the parts.

    `held` are all claims of the worker. `capacity` may be more than the free slots, where a few claims wait inside the
    worker. Where jobs are short, queues get about `least` jobs at a time: a few of each of many queues would cost more than
    their runs. `piece` is the cost of a claim before it has run, seconds.
    """
    asking = [part for part in parts if part.load > 0 and part.room() > 0]
    scale = max((held + capacity) / slots, 1.0) if least == 1 else math.inf  # the next are claimed long before these have run
    together = sum([part.share for part in asking])
    heap = [(part.rank(piece, scale), number) for number, part in enumerate(asking)]
    heapq.heapify(heap)
    dealt: dict[str, int] = {}
    fine = max(capacity // 32, 1)
    while capacity > 0 and heap:
        (kind, *_), number = heap[0]
        part = asking[number]
        number_dealt = fine
        if kind == 2:
            number_dealt = capacity  # the first in order gets all free slots
        elif least > 1:
            number_dealt = max(int(min(least, STEP / part.mean) * part.share * len(asking) / together), 1)
        number_dealt = min(number_dealt, part.load, part.room(), capacity)
        dealt[part.queue] = dealt.get(part.queue, 0) + number_dealt
        part.held += number_dealt
        part.load -= number_dealt
        capacity -= number_dealt
        if part.load and part.room():
            heapq.heapreplace(heap, (part.rank(piece, scale), number))
        else:
            heapq.heappop(heap)
    return dealt


class Balance:
    """Divides one worker's claims among queues, and remembers the use of each queue."""

    def __init__(self, slots: int, policy: Policy = even) -> None:
        self.trouble: Exception | None = None  #: an error of the policy: slots are dealt evenly instead
        self.computing = 1  #: the most jobs of a computing queue or task that run at a time
        self.held_back = False  #: more of them wait than were asked for: look again in a second
        self._slots = slots
        self._patience = WAITING + 4 * slots * SHORT  # a claim this old has surely begun to run, seconds
        self._policy = policy
        asks = _parameters(policy)
        self._asks_turn, self._asks_io = "turn" in asks, "io" in asks
        self._parts: dict[str, QueueShare] = {}
        self._claims: dict[int, tuple[QueueShare, float]] = {}  # by token: the queue, and since when its time is counted
        self._mean = WAITING  # seconds of a run, over all queues
        self._smoothed: dict[str, float] = {}
        self._turn = 0
        self._next = -math.inf
        self._capped: set[str] = set()  # queues whose jobs compute
        self._competed: set[str] = set()  # queues that wanted more than they got at the last deal
        self._floor = 0.0  # the lowest use among them
        self._last_asked: tuple[tuple[str, ...], int] = ((), 0)  # queues and free slots for which these were made:
        self._of_each: list[ClaimRequest] = []  # as many as there are free slots, of each queue

    @property
    def shares(self) -> dict[str, float]:
        """The slots that each queue should have now; a queue that is missing has none."""
        return {queue: part.share for queue, part in self._parts.items() if part.share}

    @property
    def longest(self) -> float:
        """The mean time of a job of the slowest queue with claims here, seconds, as far as measured."""
        if len(self._parts) > len(self._claims):
            return max([part.mean for part, _ in self._claims.values() if part.seen], default=0.0)
        return max([part.mean for part in self._parts.values() if part.seen and part.held > 0], default=0.0)

    @property
    def computers(self) -> int:
        """The number of held claims of computing queues."""
        return sum([self._parts[queue].held for queue in self._capped])

    @property
    def places_to_compute(self) -> int:
        """The most claims of computing queues that may run at a time."""
        return self.computing * len(self._capped)

    def ahead(self, loads: Mapping[str, int]) -> int:
        """Return how many more claims of computing queues may wait here: in no slot, until those before them have ended."""
        return sum([min(self._parts[queue].room(), loads.get(queue, 0)) for queue in self._capped]) if self._capped else 0

    def took(self, claims: Iterable[tuple[int, str]], now: float) -> None:
        """Note claims: token and queue."""
        entry, noted = (NO_SHARE, now), self._claims  # this and `ran` are called for every job: they must be quick
        for token, queue in claims:
            if entry[0].queue != queue:
                entry = (self._part(queue), now)
            entry[0].held += 1
            noted[token] = entry

    def returned(self, tokens: Iterable[int]) -> None:
        """Note claims that went back without having run."""
        for token in tokens:
            if token in self._claims:
                self._claims.pop(token)[0].held -= 1

    def ran(self, runs: Iterable[tuple[int, float]], now: float) -> None:
        """Note claims that are settled: token, and how many seconds the run took."""
        mean, latest, noted = self._mean, now + MIN_COST, self._claims
        for token, seconds in runs:
            entry = noted.pop(token, None)
            if entry is None:
                continue
            part, since = entry
            part.held -= 1
            usual = part.mean
            cost = seconds + MIN_COST if seconds > 0 else MIN_COST  # a clock may have been set back
            if usual < SHORT and cost > OUTLIER * usual:
                cost = OUTLIER * usual
            mean += 0.05 * (cost - mean)
            part.mean = usual + 0.1 * (cost - usual) if part.seen else cost
            part.seen = True
            if part.share:
                part.spent += (cost if cost < latest - since else latest - since) / part.share
        self._mean = mean

    def look(
        self, loads: Mapping[str, int], now: float, *, io: Collection[str] = (), cpu: Collection[str] = (), busy: float = 1.0
    ) -> bool:
        """Deal slots anew, if it is time for that; return whether it was.

        `loads` are those of the served queues, `now` are seconds of a monotonic clock. `io` and `cpu` are the queues whose jobs
        wait, and those whose jobs compute; `busy` is how much of a core this process has used since the last time.
        """
        is_time = now >= self._next
        if not is_time and (
            loads.keys() <= self._smoothed.keys() or all(queue in self._smoothed for queue, load in loads.items() if load)
        ):
            return False
        if is_time:
            self._next = now + EVERY
            self._smoothed = smoothed_loads(self._smoothed, loads)
            self._let_compute(busy)
        else:
            self._smoothed |= {queue: load for queue, load in loads.items() if load and queue not in self._smoothed}
        self._accrue(now)
        self._apply(self._ask({queue: math.ceil(load) for queue, load in self._smoothed.items()}, io), cpu)
        self._turn += 1
        return True

    def _accrue(self, now: float) -> None:
        """Charge running claims for their time up to now: shares are about to change."""
        surely = now - self._patience
        for token, (part, since) in self._claims.items():
            if since >= surely:
                break  # so have all later ones: the claims are in order
            self._claims[token] = (part, surely)
            if part.share:
                part.spent += (surely - since) / part.share

    def _let_compute(self, busy: float) -> None:
        """Adjust how many CPU-bound jobs run at a time: one if they keep the interpreter busy, else twice as many as before."""
        if busy >= SATURATED:
            self.computing = 1
        elif busy < IDLE and any(part.cap is not None and part.held >= part.cap for part in self._parts.values()):
            self.computing = min(self.computing * 2, self._slots)

    def _ask(self, loads: dict[str, int], io: Collection[str]) -> dict[str, float]:
        if not loads:
            return {}
        more: dict[str, Any] = {"turn": self._turn} if self._asks_turn else {}
        if self._asks_io:
            more["io"] = {queue for queue in loads if queue in io or queue.endswith("-io")}
        try:
            shares = check(self._policy(self._slots, MappingProxyType(loads), **more), self._slots, loads, self._policy)
            self.trouble = None
        except Exception as error:  # noqa: BLE001 - a user's policy may raise anything, and jobs run all the same
            self.trouble = error
            shares = dict[str, float](even(self._slots, loads, turn=self._turn))
        return shares

    def _apply(self, shares: Mapping[str, float], cpu: Collection[str]) -> None:
        for position, queue in enumerate(shares):
            self._part(queue).position = position
        for queue, part in self._parts.items():
            part.share = shares.get(queue, 0.0)
            if part.cap is None and queue in cpu:
                part.spent = min(part.spent, self._floor)  # its use before it was known does not count
            part.cap = self.computing if queue in cpu else None
            if queue not in shares:
                part.position = len(shares)
        self._capped = {queue for queue in cpu if queue in self._parts}

    def _part(self, queue: str) -> QueueShare:
        part = self._parts.get(queue)
        if part is None:
            part = self._parts[queue] = QueueShare(queue, mean=self._mean, position=len(self._parts))
        return part

    def wants(
        self, queues: Sequence[str], loads: Mapping[str, int], capacity: int, turn: int, now: float, *,
        ending: Iterable[int] = (), asked: Mapping[str, int] = MappingProxyType({}),
        run_sizes: RunSizes = MappingProxyType({}), least: int = 1,
    ) -> list[ClaimRequest]:  # fmt: skip
        """Return the steps of a claim: first the number of jobs dealt to each queue by its known load, then any other jobs.

        `ending` are the tokens of runs that are being settled: by the same exchange, or by one whose answer was not read
        yet. The claims `expected` in that answer are `asked`. `turn` rotates the queues of which nothing is known.
        """
        busy = [queue for queue in queues if loads.get(queue)]
        ends = NONE
        dealt: dict[str, int] = {}
        if len(busy) > 1 or self._capped:
            ends = Counter[str]()
            ends.update([self._claims[token][0].queue for token in ending if token in self._claims])
            ends.subtract(asked)
            parts = self._at_present(busy, loads, ends, now)
            held = len(self._claims) - ends.total()
            if len(parts) > 1:
                dealt = deal(parts, self._slots, held, capacity, least=least, piece=min(self._mean, EVERY))
        elif busy or self._competed:
            self._catch_up([part for part in map(self._part, busy) if part.share])
        steps = [ClaimRequest(queue, number, *run_sizes.get(queue, ())) for queue, number in dealt.items()]
        first = turn % len(queues) if queues else 0
        self.held_back = False
        if not self._capped:
            if self._last_asked != (tuple(queues), capacity):
                self._last_asked = (tuple(queues), capacity)
                self._of_each = [ClaimRequest(queue, capacity, *run_sizes.get(queue, ())) for queue in queues]
            return steps + self._of_each[first:] + self._of_each[:first]
        for queue in (*queues[first:], *queues[:first]):
            most = capacity
            if queue in self._capped:
                most = min(self._parts[queue].room(ends[queue] - dealt.get(queue, 0)), capacity)
            if most > 0:
                steps.append(ClaimRequest(queue, most, *run_sizes.get(queue, ())))
            else:  # not asked for: the store would always answer that more is due
                self.held_back = self.held_back or loads.get(queue, 0) > 0
        return steps

    def _at_present(
        self, queues: Sequence[str], loads: Mapping[str, int], ends: Mapping[str, int], now: float
    ) -> list[QueueShare]:
        """Return the queues that have work, in their state after the exchange has settled what ends."""
        parts: dict[str, QueueShare] = {}
        for queue in queues:
            part = self._part(queue)
            held = part.held - ends.get(queue, 0)
            parts[queue] = QueueShare(queue, part.share, held, loads[queue], part.spent, part.mean, part.cap, part.position)
        if len(parts) > 1:
            surely = now - self._patience
            for part, since in self._claims.values():
                if since >= surely:
                    break
                if part.share and part.queue in parts:
                    parts[part.queue].spent += (surely - since) / part.share
        self._catch_up([part for part in parts.values() if part.share and part.room()])
        return list(parts.values())

    def _catch_up(self, competing: Sequence[QueueShare]) -> None:
        """Give a queue that begins to compete the use of the least used of the others: it gets no credit for idle time."""
        self._floor = min([part.spent for part in competing if part.queue in self._competed], default=self._floor)
        for part in competing:
            if part.queue not in self._competed and part.spent < self._floor:
                self._parts[part.queue].spent += self._floor - part.spent
                part.spent = self._floor
        self._competed = {part.queue for part in competing}


def expected(wants: Sequence[ClaimRequest], limit: int) -> dict[str, int]:
    """Return how many claims of each queue the store is expected to return, by the last known loads."""
    claims: dict[str, int] = {}
    for want in wants:
        number = min(want.most, limit)
        if number <= 0:
            break
        claims[want.queue] = claims.get(want.queue, 0) + number
        limit -= number
    return claims


def first_to_run(
    waiting: Sequence[tuple[str, str]], free: int, running: Mapping[str, int], cpu_tasks: Set[str], cpu_queues: Set[str],
    computing: int = 1,
) -> list[int]:  # fmt: skip
    """Choose which of the claims that wait in a worker start; return their numbers. Each is (task, queue), in order.

    A CPU-bound task has `computing` runs at a time (`running`: the current number). Further claims of it let I/O-bound ones go
    first. In a queue of CPU-bound tasks alone they wait. In a mixed queue they start in slots that are left, since I/O-bound jobs
    may be behind them.
    """
    if not cpu_tasks:
        return list(range(min(free, len(waiting))))
    chosen: list[int] = []
    later: list[int] = []
    runs = Counter(running)
    for number, (task, queue) in enumerate(waiting):
        if len(chosen) == free:
            break
        if task in cpu_tasks and runs[task] >= computing:
            if queue not in cpu_queues:
                later.append(number)
            continue
        runs[task] += 1
        chosen.append(number)
    return sorted([*chosen, *later[: free - len(chosen)]])


def _parameters(policy: Policy) -> Collection[str]:
    try:
        return inspect.signature(policy).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return ()
