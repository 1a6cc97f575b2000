"""The exchanger: settles outcomes and claims jobs, both in one round trip.

A thread with outcomes to settle calls it: the session's thread, or, while jobs are short, the thread of a slot whose job has
ended. One thread at a time holds the mutex. The phases are drawn in docs/design.md.

Enters: outcomes that wait, claims from the store.  Leaves: outcomes to the store, claims to slots and seats.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from laneway.core.outcome import Settled
from laneway.errors import ConfigError, StoreError, StoreMoved, StoreUnavailable
from laneway.logs import log, some
from laneway.store.contract import ClaimRequest, Store, WorkerInfo, is_pipelined
from laneway.store.two_steps import begin_exchange
from laneway.worker.freshness import Freshness, clock
from laneway.worker.inventory import Inventory
from laneway.worker.outcomes import WaitingOutcomes
from laneway.worker.prospect import Later, OpenExchange, Prospect

__all__ = ["Exchanger", "Owner", "Phase"]


class Phase(Enum):
    """The phase of the exchange with the store."""

    IDLE = "idle"  #: every request was answered
    SENT = "sent"  #: an exchange was begun, and its answer not read; claims handed over before run meanwhile
    UNSURE = "unsure"  #: an answer got lost, so its effect is not known: claims that the worker does not know go back first


class Owner(Protocol):
    """The session, as the exchanger uses it."""

    @property
    def stopping(self) -> bool:
        """Whether claims are no longer handed over."""
        ...

    def claims_left(self) -> float:
        """Return the number of jobs that may still be claimed: 0 while none may."""
        ...

    def begins_exchange(self) -> None:
        """Note that an exchange is about to begin."""
        ...

    def settled(self, settled: list[Settled], refused: list[str]) -> None:
        """Note that the store has taken these outcomes, except for those that it refused."""
        ...

    def make_known(self) -> bool:
        """Register the worker at the store; return whether it was known. If it was not, all its claims are lost."""
        ...


class Exchanger:
    """Exchanges outcomes for claims. Only methods that other threads call take the mutex."""

    def __init__(
        self, store: Store, worker: WorkerInfo, queues: tuple[str, ...] | None, session: Owner, inventory: Inventory,
        waiting: WaitingOutcomes, freshness: Freshness, tasks: Callable[[], list[str]],
    ) -> None:  # fmt: skip
        self._store = store
        self._worker = worker
        self._queues = queues  # all, if None
        self._session = session
        self._inventory = inventory
        self._outcomes = waiting
        self._freshness = freshness
        self._tasks = tasks  # of the current runs
        self._mutex = threading.Lock()
        self._asked: OpenExchange | None = None
        self._failures = 0  # exchanges that failed in a row
        self._loads: dict[str, int] = {}
        self._prospect = Prospect()
        self._later = Later()
        self.turns = 0  #: exchanges that were begun

    @property
    def phase(self) -> Phase:
        """The phase of the exchange."""
        if self._failures:
            return Phase.UNSURE
        return Phase.IDLE if self._asked is None else Phase.SENT

    @property
    def next_look(self) -> float:
        """When there is a reason for the next exchange, as far as known; monotonic seconds."""
        return min(self._prospect.due, self._later.at)

    @property
    def has_looked(self) -> bool:
        """Whether nothing is left to claim now, as far as known."""
        return not self._prospect.look

    # -- from the session's thread ---------------------------------------------------------------------------

    def step(self, *, stopping: bool) -> int | None:
        """Exchange, if there is a reason to; else return the number of claims that there would be room for."""
        with self._mutex:
            self._hear()
            if stopping or self._inventory.is_overfull():
                self._give_back()
            self._prospect.come()
            if self._later.outcomes and (stopping or self._later.at <= time.monotonic()):
                self._put_back(self._later.take())
            settled = self._outcomes.take()
            limit = self._room(len(settled))
            if settled or self.phase is Phase.UNSURE or (limit and self._prospect.look):
                self._exchange(settled, limit)
                return None
        return limit

    @property
    def is_left_to_slots(self) -> bool:
        """Whether the slots' threads do the exchanges (in `ended`): they do while jobs are short."""
        if not self._inventory.short:
            return False
        busy = self._mutex.locked()
        if not (self._inventory.in_flight or busy) or self._later.at <= time.monotonic():
            return False
        return busy or not self._all_ended  # else the slot that ended last found the mutex held

    def look_again(self) -> None:
        """Note that there may be something to claim."""
        self._prospect.look = True

    def wait(self, timeout: float) -> bool:
        """Wait until the store rings; return whether it did, or cannot be reached."""
        try:
            rung = self._store.wait(timeout)
        except StoreUnavailable as error:
            self._away(error)
            return True
        self._prospect.rings += rung
        self._prospect.look = self._prospect.look or rung
        return rung

    def wait_out(self, deadline: float) -> None:
        """Wait before the next try, a little longer each time, up to a second."""
        pause = min(0.05 * 2 ** min(self._failures, 10), 1.0) * (0.5 + random.random() / 2)  # noqa: S311 - jitter is no secret
        time.sleep(min(pause, max(deadline - time.monotonic(), 0)))

    def give_back_stuck(self, pace: float) -> None:
        """Give back prefetched claims if none could start for `pace` seconds: another worker may be free."""
        with self._mutex:
            self._inventory.pace.is_at_least(pace)
            self._give_back()

    def is_idle(self) -> bool:
        """Return whether nothing runs, waits or is on its way."""
        if not self._is_idle:
            return False
        with self._mutex:  # during a slot's exchange the worker may look idle, and is not
            return self._is_idle

    @property
    def _is_idle(self) -> bool:
        return self.holds_nothing and not self._inventory.prefetched and self.phase is Phase.IDLE

    @property
    def holds_nothing(self) -> bool:
        """Whether every job that was begun is settled."""
        return not (self._inventory.in_flight or self._outcomes.waiting or self._later.outcomes)

    def close(self) -> None:
        """Give back claims that have not begun."""
        if self._mutex.acquire(timeout=1.0):
            try:
                self._give_back()
            finally:
                self._mutex.release()

    # -- from other threads ----------------------------------------------------------------------------------

    def ended(self, settled: Settled) -> None:
        """Take an outcome from a slot, in its own thread.

        If all other running jobs are long, this thread does the exchange itself: waking the session's thread, and being woken by
        it, takes longer than a short job. So short jobs, and the jobs of one busy lane, run at full speed.
        """
        self._outcomes.waiting.append(settled)
        for_session = not self._inventory.pace.short
        # A thread that ends a job during this exchange leaves its outcome waiting: look once more after releasing the
        # mutex.
        while self._all_ended and self._mutex.acquire(blocking=False):
            try:
                gathered = self._outcomes.take()
                if not gathered:
                    self._hear()
                    break
                self._exchange(gathered, self._room(len(gathered)))
                for_session = self._is_for_session()
            finally:
                self._mutex.release()
        if for_session:
            self._outcomes.wake()

    @property
    def _all_ended(self) -> bool:
        """Whether no run will end soon."""
        return len(self._outcomes.waiting) + self._inventory.long_ones >= self._inventory.in_flight

    def _is_for_session(self) -> bool:
        """Return whether the next exchange is the session's: no slot's job will end soon, or there is more to claim."""
        match self.phase:
            case Phase.UNSURE:
                return True
            case Phase.SENT:
                return not self._inventory.in_flight
            case Phase.IDLE:
                return not self._inventory.in_flight or bool(self._prospect.is_something and self._room(0))

    def was_forgotten(self) -> None:
        """Distrust all claims: the store does not know this worker, and other workers may have them."""
        with self._mutex:
            if not self._freshness.has_just_returned:
                self._distrust()

    # -- an exchange, with the mutex held --------------------------------------------------------------------

    def _room(self, settling: int) -> int:
        """Return how many claims are wanted, if `settling` claims are settled in the same exchange."""
        left = self._session.claims_left()
        return self._inventory.room(settling, left, self._loads) if left > 0 else 0

    def _exchange(self, settled: list[Settled], limit: int) -> None:
        """Begin an exchange. If claims can run meanwhile its answer is read after handing them over, else at once."""
        unsure = self.phase is Phase.UNSURE
        if unsure:
            self._hear()  # before give_back: it would return the claims in that answer too
        requests = self._requests(settled, limit) if limit else []
        self.turns += 1
        self._session.begins_exchange()
        now, rings = clock(), self._prospect.rings
        silent = self._freshness.is_silent(now)
        if silent:
            self._distrust()
        try:
            if silent and (unsure or self._freshness.was_frozen(now)):
                self._make_known()
            if unsure:
                # The last answer got lost: the claims in it go back, since this worker does not know of them.
                self._store.give_back(self._worker.id, keep=self._inventory.known.keys())
            hear = begin_exchange(self._store, self._worker.id, settled, requests, limit)
        except (StoreUnavailable, StoreMoved) as error:
            self._outcomes.put_back(settled)
            self._away(error)
            return
        before, self._asked = self._asked, OpenExchange(hear, settled, limit, self._loads, unsure, now, rings)
        self._inventory.sent(settled, requests, limit)
        if before is not None:
            self._take_answer(before)
        if not (is_pipelined(self._store) and self._inventory.short and not unsure and self._hand_over()):
            self._hear()

    def _requests(self, settled: list[Settled], limit: int) -> list[ClaimRequest]:
        """Divide the next claim among the queues: how many jobs of each."""
        queues = self._queues or tuple(self._loads)
        loads = self._loads if self._queues is None else {queue: self._loads.get(queue, 0) for queue in queues}
        before = self._inventory.balance.trouble
        requests = self._inventory.wants(settled, queues, loads, limit, self.turns, self._tasks())
        trouble = self._inventory.balance.trouble
        if trouble is not None and type(trouble) is not type(before):
            own = not isinstance(trouble, ConfigError)
            failed = f"the balance policy {self._worker.balance} failed ({type(trouble).__name__}: {trouble})"
            why = failed if own else str(trouble)
            log.error("%s. Slots are dealt evenly instead", why.rstrip("."), exc_info=trouble if own else None)
        return requests

    def _hear(self) -> None:
        """Read the answer of the open exchange, if there is one."""
        asked, self._asked = self._asked, None
        if asked is not None:
            self._take_answer(asked)
            self._hand_over()

    def _take_answer(self, asked: OpenExchange) -> None:
        settled = asked.settled
        self._inventory.answered(settled)
        try:
            answer = asked.hear()
        except (StoreUnavailable, StoreMoved) as error:
            self._put_back(settled)
            self._away(error)
            return
        self._freshness.spoke(asked.at)
        if asked.unsure:
            log.warning("the store is back")
            self._failures = 0
        if answer.later:
            self._later.keep(item for item in settled if item.claim.token in answer.later)
            settled = [item for item in settled if item.claim.token not in answer.later]
        if settled:
            self._inventory.settled(settled)
            # After a lost answer a refusal means that the outcome was settled by the lost exchange.
            refused = [] if asked.unsure else answer.refused
            self._session.settled(settled, refused)
            if refused:
                self._claims_gone(settled, frozenset(refused))
        self._loads = answer.loads
        self._inventory.took(answer.claims)
        if asked.limit:
            new = self._queues is None and not answer.loads.keys() <= asked.loads.keys()  # these were not asked for claims
            self._prospect.answered(answer, asked, new_queues=new)
        elif settled:
            self._prospect.look = True  # these runs may have enqueued jobs since the last request for claims

    def _put_back(self, settled: list[Settled]) -> None:
        """Keep outcomes for the next exchange, as if their runs had just ended."""
        self._inventory.not_sent(settled)
        self._outcomes.put_back(settled)

    def _hand_over(self) -> bool:
        return bool(self._inventory.prefetched and not self._session.stopping and self._inventory.hand_over())

    def _give_back(self) -> None:
        """Give back claims that are prefetched or queued for a slot. They are forgotten first: the answer may get lost."""
        self._hear()  # before give_back: it would return the claims in that answer too
        if not self._inventory.take_back():
            return
        self._prospect.look = True
        try:
            self._store.give_back(self._worker.id, keep=self._inventory.known.keys())
        except StoreUnavailable as error:
            self._away(error)  # the next exchange gives back claims that are not known here

    def _away(self, error: StoreError) -> None:
        """Log, once, that the store cannot be reached, or was moved; look again."""
        if isinstance(error, StoreMoved):  # the store has answered, so no effect is unknown
            self._failures = 0
            self._prospect.moved(error)
            return
        self._failures += 1
        self._prospect.look = True
        if self._failures == 1:
            log.warning("%s The worker keeps trying; nothing is lost.", error)

    # -- claims that are no longer this worker's -------------------------------------------------------------

    def _distrust(self) -> None:
        """Give back claims that have not started: this process may have been frozen, and other workers have its claims."""
        self._hear()
        self._freshness.distrust(self._inventory.known)
        self._give_back()

    def _make_known(self) -> bool:
        """Register again before claiming: this worker was cut off or frozen, and may have been declared dead.

        Otherwise the supervisor's next beat would report it, and that would stop the runs of newer claims. Returns
        whether the store still knew this worker.
        """
        self._freshness.returns()
        return self._session.make_known()

    def _claims_gone(self, settled: list[Settled], refused: frozenset[str]) -> None:
        """Log that the store refused outcomes. If it does not know this worker either, one line covers all its claims."""
        tokens: dict[str, int] = {}  # for a job that is settled twice in one exchange, the older claim
        for item in settled:
            for id_ in refused.intersection(item.claim.ids):
                tokens[id_] = min(item.claim.token, tokens.get(id_, item.claim.token))
        if any(token > self._freshness.fence for token in tokens.values()) and not self._is_known():
            self._freshness.distrust(tokens.values())
        gone = [id_ for id_, token in tokens.items() if token > self._freshness.fence]
        if gone:
            what = ("job", "its claim is", "outcome") if len(gone) == 1 else ("jobs", "their claims are", "outcomes")
            log.warning(
                "%s %s: %s gone from the store; %s discarded. Recovered or given back while this worker was silent, deleted, "
                "or the store was emptied", what[0], some(gone), *what[1:],
            )  # fmt: skip

    def _is_known(self) -> bool:
        """Ask whether the store knows this worker. If not, this registers it, and all its claims are lost."""
        before = self._freshness.returned
        try:
            known = self._make_known()
        except StoreUnavailable:
            known = True  # as far as known here
        if known:
            self._freshness.returned_for_nothing(before)
        return known
