"""The exchanger: settles outcomes and claims jobs, both in one round trip.

Whoever has something to settle calls it: the session's thread, or, while jobs are short, the thread of a slot whose job has
ended. One of them at a time holds the mutex. The drawing of its phases is in docs/design.md.

Enters: outcomes from the outbox, claims from the store.  Leaves: the same, the other way round.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from laneway.core.outcome import Settled
from laneway.errors import ConfigError, StoreUnavailable
from laneway.logs import log, some
from laneway.store.contract import ClaimRequest, Store, WorkerInfo, begin_exchange, is_pipelined
from laneway.worker.freshness import Freshness, clock
from laneway.worker.inventory import Inventory
from laneway.worker.outbox import Outbox
from laneway.worker.prospect import Later, OpenExchange, Prospect

__all__ = ["Exchanger", "Owner", "Phase"]


class Phase(Enum):
    """Where the exchange with the store stands."""

    IDLE = "idle"  #: all that was asked is answered
    SENT = "sent"  #: an exchange was begun, and its answer is to be heard; what was handed over before runs meanwhile
    UNSURE = "unsure"  #: an answer got lost, and nobody knows what was done: claims that nobody heard of go back first


class Owner(Protocol):
    """What the exchanger asks of the worker's session, and tells it."""

    @property
    def stopping(self) -> bool:
        """Nothing is handed over any more."""
        ...

    def claims_left(self) -> float:
        """Return how many jobs may still be claimed: 0 while none may."""
        ...

    def begins_exchange(self) -> None:
        """An exchange is about to begin."""
        ...

    def settled(self, settled: list[Settled], refused: list[str]) -> None:
        """The store has taken these outcomes, but for those that it refused."""
        ...

    def make_known(self) -> bool:
        """Make the worker known to the store; say whether it was. If it was not, all that it holds is lost."""
        ...


class Exchanger:
    """Exchanges outcomes for claims. Only what is called from a thread of its own takes the mutex."""

    def __init__(
        self, store: Store, worker: WorkerInfo, queues: tuple[str, ...] | None, session: Owner, inventory: Inventory,
        outbox: Outbox, freshness: Freshness, tasks: Callable[[], list[str]],
    ) -> None:  # fmt: skip
        self._store = store
        self._worker = worker
        self._queues = queues  # all, if None
        self._session = session
        self._inventory = inventory
        self._outbox = outbox
        self._freshness = freshness
        self._tasks = tasks  # of what runs now
        self._mutex = threading.Lock()
        self._asked: OpenExchange | None = None
        self._failures = 0  # exchanges that failed in a row
        self._loads: dict[str, int] = {}
        self._prospect = Prospect()
        self._later = Later()
        self.turns = 0  #: exchanges that were begun

    @property
    def phase(self) -> Phase:
        """Where the exchange stands."""
        if self._failures:
            return Phase.UNSURE
        return Phase.IDLE if self._asked is None else Phase.SENT

    @property
    def next_look(self) -> float:
        """When there is a reason for the next exchange, as far as it is known; monotonic seconds."""
        return min(self._prospect.due, self._later.at)

    @property
    def has_looked(self) -> bool:
        """Nothing is left to claim now, as far as is known."""
        return not self._prospect.look

    # -- from the session's thread ---------------------------------------------------------------------------

    def step(self, *, stopping: bool) -> int | None:
        """Exchange, if there is a reason to; else return how many claims there would be room for."""
        with self._mutex:
            self._hear()
            if stopping or self._inventory.is_overfull():
                self._give_back()
            self._prospect.come()
            if self._later.outcomes and (stopping or self._later.at <= time.monotonic()):
                self._put_back(self._later.take())
            settled = self._outbox.take()
            limit = self._room(len(settled))
            if settled or self.phase is Phase.UNSURE or (limit and self._prospect.look):
                self._exchange(settled, limit)
                return None
        return limit

    @property
    def is_left_to_slots(self) -> bool:
        """While jobs are short, the slots' threads do the exchanges: `ended`."""
        busy = self._mutex.locked()
        if not self._inventory.short or not (self._inventory.in_flight or busy) or self._later.at <= time.monotonic():
            return False
        return busy or not self._all_ended  # else whoever was last found the mutex held

    def look_again(self) -> None:
        """There may be something to claim."""
        self._prospect.look = True

    def wait(self, timeout: float) -> bool:
        """Wait until the store rings; say whether it did, or cannot be reached."""
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
        """Claims in hand did not move for so long: somebody else may be free."""
        with self._mutex:
            self._inventory.pace.mean = max(self._inventory.pace.mean, pace)
            self._give_back()

    def is_idle(self) -> bool:
        """Say whether nothing runs, waits or is on its way."""
        if not self._is_idle:
            return False
        with self._mutex:  # in the middle of a slot's exchange it may look as if nothing were left
            return self._is_idle

    @property
    def _is_idle(self) -> bool:
        return self.holds_nothing and not self._inventory.hand and self.phase is Phase.IDLE

    @property
    def holds_nothing(self) -> bool:
        """Every job that was begun is settled."""
        return not (self._inventory.in_flight or self._outbox.waiting or self._later.outcomes)

    def close(self) -> None:
        """Give back what has not begun."""
        if self._mutex.acquire(timeout=1.0):
            try:
                self._give_back()
            finally:
                self._mutex.release()

    # -- from other threads ----------------------------------------------------------------------------------

    def ended(self, settled: Settled) -> None:
        """Take an outcome from a slot, in its own thread.

        If nothing else runs here but long jobs, this thread does the exchange itself: waking the session's thread and being woken
        by it would take longer than that. So short jobs, and a lane that is worked off one by one, run at full speed.
        """
        self._outbox.waiting.append(settled)
        for_session = not self._inventory.short
        # Who ends a job during our exchange leaves its outcome to us: look once more after letting go.
        while self._all_ended and self._mutex.acquire(blocking=False):
            try:
                gathered = self._outbox.take()
                if not gathered:
                    self._hear()
                    break
                self._exchange(gathered, self._room(len(gathered)))
                for_session = self._is_for_session()
            finally:
                self._mutex.release()
        if for_session:
            self._outbox.wake()

    @property
    def _all_ended(self) -> bool:
        """Nothing runs that will end soon."""
        return len(self._outbox.waiting) + self._inventory.long_ones >= self._inventory.in_flight

    def _is_for_session(self) -> bool:
        """Say whether the next exchange is the session's to do: no slot's job will end soon, or there is more to claim."""
        match self.phase:
            case Phase.UNSURE:
                return True
            case Phase.SENT:
                return not self._inventory.in_flight
            case Phase.IDLE:
                return not self._inventory.in_flight or bool(self._prospect.is_something and self._room(0))

    def was_forgotten(self) -> None:
        """The store does not know this worker: others may have its claims."""
        with self._mutex:
            if not self._freshness.has_just_returned:
                self._distrust()

    # -- an exchange, with the mutex held --------------------------------------------------------------------

    def _room(self, settling: int) -> int:
        """Return how many claims are wanted, if so many are settled in the same exchange."""
        left = self._session.claims_left()
        return self._inventory.room(settling, left, self._loads) if left > 0 else 0

    def _exchange(self, settled: list[Settled], limit: int) -> None:
        """Begin an exchange. If there is something to run meanwhile its answer is heard after that, else at once."""
        unsure = self.phase is Phase.UNSURE
        if unsure:
            self._hear()  # or what it brings would go back too
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
                # The last answer got lost: what was claimed in it goes back, since nobody here has heard of it.
                self._store.give_back(self._worker.id, keep=self._inventory.known.keys())
            hear = begin_exchange(self._store, self._worker.id, settled, requests, limit)
        except StoreUnavailable as error:
            self._outbox.put_back(settled)
            self._away(error)
            return
        before, self._asked = self._asked, OpenExchange(hear, settled, limit, self._loads, unsure, now, rings)
        self._inventory.sent(settled, requests, limit)
        if before is not None:
            self._take_answer(before)
        if not (is_pipelined(self._store) and self._inventory.short and not unsure and self._hand_over()):
            self._hear()

    def _requests(self, settled: list[Settled], limit: int) -> list[ClaimRequest]:
        """Deal the places of a claim to queues."""
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
        """Hear the answer to what was begun, if something was."""
        asked, self._asked = self._asked, None
        if asked is not None:
            self._take_answer(asked)
            self._hand_over()

    def _take_answer(self, asked: OpenExchange) -> None:
        settled = asked.settled
        self._inventory.answered(settled)
        try:
            answer = asked.hear()
        except StoreUnavailable as error:
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
        self._inventory.settled(settled)
        # After a lost answer a refusal means: it was settled then.
        refused = [] if asked.unsure else answer.refused
        self._session.settled(settled, refused)
        if refused:
            self._claims_gone(settled, frozenset(refused))
        self._loads = answer.loads
        self._inventory.took(answer.claims)
        if asked.limit:
            new = self._queues is None and not answer.loads.keys() <= asked.loads.keys()  # nothing was asked of these
            self._prospect.answered(answer, asked, new_queues=new)
        elif settled:
            self._prospect.look = True  # they may have enqueued something since somebody last asked

    def _put_back(self, settled: list[Settled]) -> None:
        """They go with the next exchange, as if their runs had just ended."""
        self._inventory.not_sent(settled)
        self._outbox.put_back(settled)

    def _hand_over(self) -> bool:
        return bool(self._inventory.hand and not self._session.stopping and self._inventory.hand_over())

    def _give_back(self) -> None:
        """Return what waits in hand, or in line for a slot. It is forgotten first: the answer may get lost."""
        self._hear()  # or what it brings would go back too
        if not self._inventory.take_back():
            return
        self._prospect.look = True
        try:
            self._store.give_back(self._worker.id, keep=self._inventory.known.keys())
        except StoreUnavailable as error:
            self._away(error)  # and the next exchange gives back what is not known

    def _away(self, error: StoreUnavailable) -> None:
        """The store is away: say so once, and look again."""
        self._failures += 1
        self._prospect.look = True
        if self._failures == 1:
            log.warning("%s The worker keeps trying; nothing is lost.", error)

    # -- claims that are not ours any more -------------------------------------------------------------------

    def _distrust(self) -> None:
        """This process may have been frozen, and others have its claims: what has not started does not start."""
        self._hear()
        self._freshness.distrust(self._inventory.known)
        self._give_back()

    def _make_known(self) -> bool:
        """We were cut off or frozen, and may have been taken for dead: hear of it, and be known again, before we claim anything.

        Else our supervisor would hear of it, moments later, and what we claimed meanwhile would be told to stop. Says whether the
        store still knew us.
        """
        self._freshness.returns()
        return self._session.make_known()

    def _claims_gone(self, settled: list[Settled], refused: frozenset[str]) -> None:
        """The store refused outcomes: say what is known. If it does not know this worker either, one line is for all it holds."""
        lost: dict[str, int] = {}  # of a job that is settled twice at once, the older claim
        for item in settled:
            for id_ in refused.intersection(item.claim.ids):
                lost[id_] = min(item.claim.token, lost.get(id_, item.claim.token))
        if any(token > self._freshness.fence for token in lost.values()) and not self._is_known():
            self._freshness.distrust(lost.values())
        gone = [id_ for id_, token in lost.items() if token > self._freshness.fence]
        if gone:
            what = ("job", "its claim is", "outcome") if len(gone) == 1 else ("jobs", "their claims are", "outcomes")
            log.warning(
                "%s %s: %s gone from the store; %s discarded. Recovered or given back while this worker was silent, deleted, "
                "or the store was emptied", what[0], some(gone), *what[1:],
            )  # fmt: skip

    def _is_known(self) -> bool:
        """Ask whether the store knows this worker. If it does not, it does from now on, and all that was held is lost."""
        before = self._freshness.returned
        try:
            known = self._make_known()
        except StoreUnavailable:
            known = True  # as far as we know
        if known:
            self._freshness.returned_for_nothing(before)
        return known
