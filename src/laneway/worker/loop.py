"""The worker's loop: settles and claims.

It takes the outcomes that have gathered, exchanges them for new claims in one round trip, hands those to slots and seats, and
sleeps when there is nothing to do. Where each claim is, is known by `claims`.

Enters: claims from the store, outcomes from the outbox.  Leaves: the same the other way round.  Called by: `process`.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from laneway.clock import now_micros
from laneway.core.instant import FAR, SECOND, micros
from laneway.core.outcome import Done, Settled
from laneway.errors import ConfigError, StoreError, StoreUnavailable
from laneway.logs import log
from laneway.store import liveness
from laneway.store.contract import BeatReply, ClaimRequest, Exchange, Store
from laneway.store.liveness import FORGOTTEN
from laneway.worker.balance import Policy, even, name_of
from laneway.worker.board import Board, with_runs
from laneway.worker.duties.beat import Beat
from laneway.worker.duties.link import FleetLink, SupervisorListener
from laneway.worker.duties.notes import NoteTaker
from laneway.worker.duties.stats_reporter import StatsReporter
from laneway.worker.executors import LoopSlots, ThreadSlots
from laneway.worker.inventory import Inventory
from laneway.worker.isolate import Isolation
from laneway.worker.outbox import Outbox
from laneway.worker.run import Runner, clock, some

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.worker.duties.timetable import Timetable

__all__ = ["Loop"]

#: Claims that wait in hand and do not move for so long go back: somebody else may be free.
STUCK = 0.1
#: A stop without a deadline: ten years.
FOREVER = float(FAR)
#: So long a claim may wait behind one that was expected to be short, before another thread is woken for it, seconds.
SOON = 0.005
#: What could not be settled is sent again so many seconds later.
LATER = 0.05


class _Asked(Struct, gc=False):
    """An exchange that was begun, and whose answer is to be heard."""

    hear: Callable[[], Exchange]
    settled: list[Settled]
    limit: int
    unsure: bool  #: the answer before it got lost
    at: float
    rings: int  #: how often the store had rung when it was begun


class Loop:
    """One `run` of a worker."""

    def __init__(
        self, worker: object, app: App, slots: int, queues: tuple[str, ...] | None, shutdown_timeout: float, beat: float,
        link: FleetLink | None = None, policy: Policy = even,
    ) -> None:  # fmt: skip
        self.stopping = False
        self._quiet = False
        self._patient = False  # who stops waits for what runs, however long
        self._why = "stop"
        self._app, self._worker = app, worker  # the second is for the hooks
        self._queues = queues
        self._shutdown_timeout = shutdown_timeout
        app.need_connections(slots + 3)  # each slot may enqueue; beside them the loop, the beat and who takes notes
        self._store: Store = app.store
        self._link = link
        self._board = Board(2 * slots) if link is None else link.board
        self._isolation = Isolation(app, None if link is None else link.zygote)
        self._info = liveness.this_worker(
            id=link.id if link else "", fleet=link.fleet if link else "", queues=queues or (), slots=slots, version=_version(),
            since=now_micros(), tasks=tuple(sorted(app.declared)), balance=name_of(policy),
        )  # fmt: skip
        self._outbox = Outbox(self._store.wake)
        for declared in app.declared.values():
            declared.prepare()
        self._notes = NoteTaker(self._store, lambda: list(self._runner.running.values()))
        self._runner = Runner(app.declared, app.hooks, self._notes.flush, self._board, self._isolation)
        self._runner.fresh_for = app.dead_after / 2
        self._slots = ThreadSlots(slots, self._runner, self.ended, self._crash)
        self._seats = LoopSlots(slots, self._runner, self.ended, self._crash, self._board)
        self._claims = Inventory(
            slots, app.declared, policy, self._slots, self._seats, pipelined=self._store.capabilities.pipelined
        )
        self._runner.kinds = self._claims.kinds
        self._reporter = StatsReporter(
            self._store, self._info.id, slots, lambda: len(self._runner.running), self._claims.kinds.news
        )
        self._beat: Beat | SupervisorListener
        if link is None:
            self._beat = Beat(self._store, self._info, self._board, self._heard, beat)
        else:
            self._beat = SupervisorListener(link, self._store, self._info, self._heard)
        self._left = float("inf") if link is None or link.max_jobs is None else link.max_jobs  # jobs to run before a new process
        self._timetable: Timetable | None = None
        self._mutex = threading.Lock()  # held by who exchanges: the loop, or a slot's thread for it
        self._asked: _Asked | None = None  # what runs now was handed over since
        self._loads: dict[str, int] = {}
        self._look = True  # there may be something to claim
        self._rings = 0  # how often the store has said so
        self._due = float("inf")  # or there will be, at this monotonic time
        self._turn = 0
        self._later: list[Settled] = []  # what could not be settled when it was sent,
        self._later_at = float("inf")  # and when it is sent again
        self._trouble = 0  # exchanges that failed in a row
        self._awake = clock()  # when the loop last went to sleep
        self._frozen = False  # it slept for longer than it ever does, and the store was not spoken with since
        self._returned = float("-inf")  # when this worker last made itself known again, after it was silent for long
        self._failure: BaseException | None = None
        self._deadline = float("inf")

    def run(self, burst: bool) -> None:
        """Work until there is a reason to stop."""
        if any(task.isolate for task in self._app.declared.values()):
            self._isolation.prepare()
        self._beat.tick()
        with contextlib.suppress(StoreError):  # it is learned anew
            self._claims.kinds.begin_with(self._store.learned())
        self._app.hooks.call("on_start", self._worker)
        self._beat.start()
        self._notes.start()
        self._reporter.start()
        if not burst:
            self._start_timetable()
        self._board.set_phase("working")
        try:
            while not self._finished(burst):
                self._step()
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                self._app.hooks.call("on_crash", error)
            raise
        finally:
            self._end()
        if self._failure is not None:
            self._app.hooks.call("on_crash", self._failure)
            raise self._failure

    def _start_timetable(self) -> None:
        scheduled = [task for task in self._app.tasks.values() if task.schedule is not None]
        if scheduled:
            from laneway.worker.duties.timetable import Timetable  # noqa: PLC0415 - most workers have none, and time zones take a while

            self._timetable = Timetable(self._store, scheduled)
            self._timetable.start()

    def stop(self, why: str, *, patient: bool = False) -> None:
        """Claim nothing more, and return from `run` when what runs has ended. From any thread, and from a signal's handler.

        Nothing is written here: a handler may have interrupted who writes just now. The loop says it.
        """
        self._why = why
        self._patient = patient
        self.stopping = True
        self._outbox.wake()

    # -- one turn of the loop --------------------------------------------------------------------------------

    def _step(self) -> None:
        if self._trouble:
            self._wait_out()
        elif self._left_to_slots():
            return
        with self._mutex:
            self._hear()
            if self.stopping or self._claims.is_overfull():
                self._give_back()
            if self._due <= time.monotonic():
                self._look, self._due = True, float("inf")
            if self._later and (self.stopping or self._later_at <= time.monotonic()):
                self._send_again()
            settled = self._outbox.take()
            limit = self._room(len(settled))
            if settled or self._trouble or (limit and self._look):
                self._exchange(settled, limit)
                return
        self._sleep(limit)

    def _left_to_slots(self) -> bool:
        """While jobs are short, the slots' threads do the exchanges. Look now and then whether they do."""
        if not self._claims.short or self.stopping or not (self._claims.in_flight or self._mutex.locked()):
            return False
        if self._later_at <= time.monotonic():
            return False
        if len(self._outbox.waiting) + self._claims.long_ones >= self._claims.in_flight and not self._mutex.locked():
            return False  # all have ended, and whoever was last found us holding the mutex
        before = (self._turn, self._slots.waiting)
        self._is_awake()
        self._outbox.doze(SOON)
        since = now_micros() - micros(SOON)
        self._claims.long_ones = sum([job.started < since for job in list(self._runner.running.values())])
        if before != (self._turn, self._slots.waiting):
            return True
        # Somebody takes longer than expected: others need not wait for it.
        return self._slots.waiting > 0 and self._slots.wake()

    def ended(self, settled: Settled) -> None:
        """Take an outcome from a slot or seat, in its own thread.

        If nothing else runs here but long jobs, this thread does the exchange itself: waking the loop and being woken by it
        would take longer than that. So short jobs, and a lane that is worked off one by one, run at full speed.
        """
        waiting = self._outbox.waiting
        waiting.append(settled)
        needed = not self._claims.short
        # Who ends a job during our exchange leaves its outcome to us: look once more after letting go.
        while len(waiting) + self._claims.long_ones >= self._claims.in_flight and self._mutex.acquire(blocking=False):
            try:
                gathered = self._outbox.take()
                if not gathered:
                    self._hear()
                    break
                self._exchange(gathered, self._room(len(gathered)))
                due = self._look or self._due != float("inf")
                needed = bool(self._trouble or not self._claims.in_flight or (due and self._asked is None and self._room(0)))
            finally:
                self._mutex.release()
        if needed:
            self._outbox.wake()

    def _room(self, settling: int) -> int:
        """Return how many claims are wanted, if so many are settled in the same exchange."""
        if self.stopping or self._quiet or self._failure is not None or not self._beat.known:
            return 0  # who claims must be known
        return self._claims.room(settling, self._left, self._loads)

    def _exchange(self, settled: list[Settled], limit: int) -> None:
        """Begin an exchange. If there is something to run meanwhile its answer is heard after that, else at once."""
        if self._trouble:
            self._hear()  # or what it brings would go back too
        wants = self._wants(settled, limit) if limit else []
        self._turn += 1
        unsure = self._trouble > 0
        self._board.set_idle(False)
        now, rings = clock(), self._rings
        silent = now - self._runner.alive > self._runner.fresh_for
        if silent:
            self._distrust()
        try:
            if silent and self._beat.known and (unsure or self._frozen or now - self._awake > self._runner.fresh_for):
                self._return()
            if unsure:
                # The last answer got lost: what was claimed in it goes back, since nobody here has heard of it.
                self._store.give_back(self._info.id, keep=self._claims.known.keys())
            hear = self._store.begin(self._info.id, settled, wants, limit)
        except StoreUnavailable as error:
            self._outbox.put_back(settled)
            self._away(error)
            return
        before, self._asked = self._asked, _Asked(hear, settled, limit, unsure, now, rings)
        self._claims.sent(settled, wants, limit)
        if before is not None:
            self._take_answer(before)
        if not (self._store.capabilities.pipelined and self._claims.short and not unsure and self._hand_over()):
            self._hear()

    def _wants(self, settled: list[Settled], limit: int) -> list[ClaimRequest]:
        """Deal the places of a claim to queues."""
        queues = self._queues or tuple(self._loads)
        loads = self._loads if self._queues is None else {queue: self._loads.get(queue, 0) for queue in queues}
        running = [job.task for job in list(self._runner.running.values())]
        before = self._claims.balance.trouble
        wants = self._claims.wants(settled, queues, loads, limit, self._turn, running)
        trouble = self._claims.balance.trouble
        if trouble is not None and type(trouble) is not type(before):
            own = not isinstance(trouble, ConfigError)
            why = f"the balance policy {self._info.balance} failed ({type(trouble).__name__}: {trouble})" if own else str(trouble)
            log.error("%s. Slots are dealt evenly instead", why.rstrip("."), exc_info=trouble if own else None)
        return wants

    def _hear(self) -> None:
        """Hear the answer to what was begun, if something was."""
        asked, self._asked = self._asked, None
        if asked is not None:
            self._take_answer(asked)
            self._hand_over()

    def _take_answer(self, asked: _Asked) -> None:
        settled, limit, unsure = asked.settled, asked.limit, asked.unsure
        self._claims.answered(settled)
        try:
            answer = asked.hear()
        except StoreUnavailable as error:
            self._claims.not_sent(settled)
            self._outbox.put_back(settled)
            self._away(error)
            return
        self._runner.alive = asked.at
        self._runner.all_measured = not self._claims.short
        self._frozen = False
        if unsure:
            log.warning("the store is back")
            self._trouble = 0
        if answer.later:
            self._later += [item for item in settled if item.claim.token in answer.later]
            self._later_at = time.monotonic() + LATER
            settled = [item for item in settled if item.claim.token not in answer.later]
        self._settled(settled, answer.refused, unsure)
        new = not answer.loads.keys() <= self._loads.keys()
        self._loads = answer.loads
        self._claims.took(answer.claims)
        if limit:
            # What rang since this was asked may have come after it.
            self._look = answer.more or (new and self._queues is None) or self._rings != asked.rings
            self._due = float("inf") if answer.next_due is None else time.monotonic() + answer.next_due / SECOND
        elif settled:
            self._look = True  # they may have enqueued something since somebody last asked

    def _send_again(self) -> None:
        """Outcomes that somebody else's transaction kept from being written go with the next exchange."""
        self._claims.not_sent(self._later)
        self._outbox.put_back(self._later)
        self._later, self._later_at = [], float("inf")

    def _settled(self, settled: list[Settled], refused: list[str], unsure: bool) -> None:
        self._claims.settled(settled)
        self._count(settled)
        # After a lost answer a refusal means: it was settled then.
        self._reporter.count(settled, () if unsure else refused)
        if refused and not unsure:
            self._claims_gone(settled, frozenset(refused))

    def _claims_gone(self, settled: list[Settled], refused: frozenset[str]) -> None:
        """The store refused outcomes: say what is known. If it does not know this worker either, one line is for all it holds."""
        lost: dict[str, int] = {}  # of a job that is settled twice at once, the older claim
        for item in settled:
            for id_ in refused.intersection(item.claim.ids):
                lost[id_] = min(item.claim.token, lost.get(id_, item.claim.token))
        if any(token > self._runner.fence for token in lost.values()) and not self._is_known():
            self._runner.fence = max(self._runner.fence, *lost.values())
        gone = [id_ for id_, token in lost.items() if token > self._runner.fence]
        if gone:
            what = ("job", "its claim is", "outcome") if len(gone) == 1 else ("jobs", "their claims are", "outcomes")
            log.warning(
                "%s %s: %s gone from the store; %s discarded. Recovered or given back while this worker was silent, deleted, "
                "or the store was emptied", what[0], some(gone), *what[1:],
            )  # fmt: skip

    def _count(self, settled: list[Settled]) -> None:
        done = 0
        for item in settled:
            for outcome in item.outcomes:
                if type(outcome) is Done:
                    done += 1
                else:
                    self._board.count(outcome.name)
        self._board.count("done", done)
        self._left -= len(settled)
        if self._left <= 0 and not self.stopping:
            self.stop("as many jobs as one process runs", patient=True)

    def _distrust(self) -> None:
        """This process may have been frozen, and others have its claims: what has not started does not start."""
        self._hear()
        self._runner.fence = max(self._claims.known, default=self._runner.fence)
        self._give_back()

    def _is_awake(self) -> None:
        """The loop is about to sleep: note whether it was frozen before."""
        now = clock()
        self._frozen = self._frozen or now - self._awake > self._runner.fresh_for
        self._awake = now

    def _is_known(self) -> bool:
        """Ask whether the store knows this worker. If it does not, it does from now on, and all that was held is lost."""
        before = self._returned
        try:
            known = self._return()
        except StoreUnavailable:
            known = True  # as far as we know
        if known:
            self._returned = before
        return known

    def _return(self) -> bool:
        """We were cut off or frozen, and may have been taken for dead: hear of it, and be known again, before we claim anything.

        Else our supervisor would hear of it, moments later, and what we claimed meanwhile would be told to stop. Says whether the
        store still knew us.
        """
        self._returned = clock()
        heard = self._store.beat([with_runs(self._info, self._board, (0, 0))])[self._info.id]
        if not heard.known:
            log.warning(FORGOTTEN, "this worker")
            self._runner.fence = max(self._claims.known, default=self._runner.fence)
        self._tell_runs(heard)
        self._obey(heard)
        return heard.known

    def _hand_over(self) -> bool:
        return bool(not self.stopping and self._claims.hand and self._claims.hand_over())

    def _sleep(self, limit: int) -> None:
        now = time.monotonic()
        self._is_awake()
        timeout = min(self._due, self._deadline, self._later_at, now + 60) - now
        if self._claims.balance.held_back:  # tasks that compute: a second later there may be room for another
            timeout, self._look = min(timeout, 1.0), True
        stuck = self._claims.hand or self._slots.waiting
        if limit and not stuck:
            self._outbox.sleep(max(timeout, 0), self._wait)
        elif stuck:
            exchanges = self._turn
            self._outbox.sleep(STUCK, None)
            # Only if the time is over: it may have been woken for something else.
            if not self._outbox.waiting and self._turn == exchanges and time.monotonic() >= now + STUCK:
                with self._mutex:
                    self._claims.pace.mean = max(self._claims.pace.mean, STUCK)
                    self._give_back()
        else:
            self._outbox.sleep(max(min(timeout, 1.0), 0), None)

    def _wait(self, timeout: float) -> bool:
        try:
            rung = self._store.wait(timeout)
        except StoreUnavailable as error:
            self._away(error)
            return True
        self._rings += rung
        self._look = self._look or rung
        return rung

    def _away(self, error: StoreUnavailable) -> None:
        """The store is away: say so once, and look again."""
        self._trouble += 1
        self._look = True
        if self._trouble == 1:
            log.warning("%s The worker keeps trying; nothing is lost.", error)

    def _wait_out(self) -> None:
        """Wait before the next try, a little longer each time, up to a second."""
        pause = min(0.05 * 2 ** min(self._trouble, 10), 1.0) * (0.5 + random.random() / 2)  # noqa: S311 - jitter is no secret
        time.sleep(min(pause, max(self._deadline - time.monotonic(), 0)))

    def _give_back(self) -> None:
        """Return what waits in hand, or in line for a slot. It is forgotten first: the answer may get lost."""
        self._hear()  # or what it brings would go back too
        if not self._claims.take_back():
            return
        self._look = True
        try:
            self._store.give_back(self._info.id, keep=self._claims.known.keys())
        except StoreUnavailable as error:
            self._away(error)  # and the next exchange gives back what is not known

    # -- coming to an end ------------------------------------------------------------------------------------

    def _finished(self, burst: bool) -> bool:
        idle = self._idle()
        if idle:
            with self._mutex:  # in the middle of a slot's exchange it may look as if nothing were left
                idle = self._idle()
        looked = not self._look
        if self.stopping or self._failure is not None:
            if self._deadline == float("inf"):
                self._stop_began()
            return idle or time.monotonic() >= self._deadline
        if burst and idle and looked:
            self._board.set_idle(True)
            return self._link is None  # a fleet ends when all its workers are idle at once
        return False

    def _stop_began(self) -> None:
        self._board.set_phase("stopping")
        self._deadline = FOREVER if self._patient else time.monotonic() + self._shutdown_timeout
        if self._link is None:
            log.info("%s: stopping, running jobs have %g s", self._why, self._shutdown_timeout)

    def _idle(self) -> bool:
        busy = self._claims.hand or self._claims.in_flight or self._outbox.waiting or self._later
        return not (busy or self._trouble or self._asked)

    def _end(self) -> None:
        """Leave everything in order: nothing claimed that does not run."""
        if self._timetable is not None:
            self._timetable.stop()
        self._beat.stop()
        self._notes.stop()
        if self._mutex.acquire(timeout=1.0):
            try:
                self._give_back()
            finally:
                self._mutex.release()
        self._reporter.finish()
        left = list(self._runner.running.values())
        if left:
            names = ", ".join(f"{job.task} {job.id}" for job in left[:5])
            they = "job still runs and keeps its claim" if len(left) == 1 else "jobs still run and keep their claims"
            log.error("%d %s until this process ends: %s", len(left), they, names)
        try:
            if not self._claims.in_flight and not self._outbox.waiting and not self._later:
                self._store.recover(self._info.id, "the worker stopped")
        except StoreUnavailable as error:
            log.warning("the store did not hear that this worker stopped: %s", error)
        self._slots.close(0 if left else 1.0)
        self._seats.close(0 if left else 1.0)
        self._runner.watchdog.close()
        self._isolation.close()
        self._app.hooks.call("on_stop", self._worker)

    def _crash(self, error: BaseException) -> None:
        """A place broke down: an internal error. The worker stops and says so."""
        self._failure = error
        self._outbox.wake()

    # -- what others ask and tell ----------------------------------------------------------------------------

    def _heard(self, heard: BeatReply) -> None:
        if not heard.known:
            with self._mutex:
                # Nobody can have taken us for dead again within the limit after our return: it is the death we heard of then.
                if clock() - self._returned > 2 * self._runner.fresh_for:
                    self._distrust()
        self._tell_runs(heard)
        if not self._turn:
            self._outbox.wake()  # it may have waited to be known
        self._obey(heard)

    def _tell_runs(self, heard: BeatReply) -> None:
        for job in list(self._runner.running.values()):
            job.lost = job.lost or (not heard.known and job.token <= self._runner.fence)
            # A collector's run goes on for the other lanes: only if all are marked it is to end.
            if not job.cancelled and (job.lost or all(id_ in heard.marks for id_ in job.ids)):
                job.cancelled = True
                self._seats.cancel(job.token)

    def _obey(self, heard: BeatReply) -> None:
        if "quiet" in heard.commands and not self._quiet:
            self._quiet = True
            self._board.set_phase("quiet")
            log.info("told to be quiet: this worker claims nothing more")
        if "stop" in heard.commands:
            self.stop("told to stop")
        if "drain" in heard.commands:
            self.stop("told to make place", patient=True)


def _version() -> str:
    import laneway  # noqa: PLC0415 - the front door imports us

    return laneway.__version__
