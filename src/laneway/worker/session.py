"""A session: one run of a worker, from its start to its end.

A session starts the parts of a worker, takes turns with the slots' threads at exchanging, sleeps when there is nothing to do, and
ends when it is told to.

Enters: an app, signals and commands.  Leaves: jobs that ran.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import laneway
from laneway.clock import now_micros
from laneway.core.instant import FAR, micros
from laneway.core.outcome import Settled
from laneway.desk.lifespan import Lifespans
from laneway.desk.run_log import log_runs
from laneway.errors import LifespanError, StoreError, StoreUnavailable
from laneway.events import Events, RunsSettled, WorkerCrashed, WorkerStarted, WorkerStopped
from laneway.logs import log
from laneway.store import liveness
from laneway.store.contract import BeatReply
from laneway.store.liveness import FORGOTTEN
from laneway.worker.balance import Policy, even, name_of
from laneway.worker.board import Board, with_runs
from laneway.worker.duties.beat import Beat
from laneway.worker.duties.lifespan_keeper import LifespanKeeper
from laneway.worker.duties.link import FleetLink, SupervisorListener
from laneway.worker.duties.notes import NoteTaker
from laneway.worker.duties.stats_reporter import StatsReporter
from laneway.worker.duties.timetable import Timetable
from laneway.worker.exchanger import Exchanger, Phase
from laneway.worker.executors import LoopSlots, ThreadSlots
from laneway.worker.freshness import Freshness
from laneway.worker.inventory import Inventory
from laneway.worker.isolate import Isolation
from laneway.worker.outcomes import WaitingOutcomes
from laneway.worker.run import Runner

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.outbox.database import OutboxURL
    from laneway.worker.duties.service import Service

__all__ = ["Session"]

#: Prefetched claims go back if none could start for this long, seconds: another worker may be free.
STUCK = 0.1
#: A stop without a deadline: ten years.
FOREVER = float(FAR)
#: How often a worker that enters its lifespans looks whether it is to stop, seconds.
LOOK = 0.05
#: The least time that lifespans have to end, seconds: a fleet's supervisor allows a second after the shutdown timeout.
LAST_WORDS = 0.4
#: How long a claim waits behind one that was expected to be short, before another thread is woken for it, seconds.
SOON = 0.005


class Stop:
    """A stop that was requested: its reason, and the time that runs have to end."""

    def __init__(self, timeout: float, jobs: int | None) -> None:
        self.jobs = float("inf") if jobs is None else jobs  #: how many may still run before a new process takes over
        self.asked = False
        self.why = "stop"
        self.failure: BaseException | None = None  #: an internal error in a slot: the worker stops and raises it
        self.patient = False  #: the stop waits for all runs, however long they take
        self.deadline = float("inf")  #: monotonic seconds; set when the stop begins
        self.timeout = timeout

    @property
    def has_begun(self) -> bool:
        """Whether the deadline is set."""
        return self.deadline != float("inf")

    def begin(self) -> None:
        """Set the deadline for what runs."""
        self.deadline = FOREVER if self.patient else time.monotonic() + self.timeout

    @property
    def last_words(self) -> float:
        """The seconds that lifespans have to end: what runs have left of the timeout."""
        return max(min(self.deadline - time.monotonic(), self.timeout), LAST_WORDS)


class Session:
    """One `run` of a worker."""

    def __init__(
        self, worker: object, app: App, slots: int, queues: tuple[str, ...] | None, shutdown_timeout: float, beat: float,
        link: FleetLink | None = None, policy: Policy = even, loop: str = "asyncio",
    ) -> None:  # fmt: skip
        self.quiet = False  #: nothing more is claimed
        self._stop = Stop(shutdown_timeout, None if link is None else link.max_jobs)
        self._app, self._worker = app, worker  # the second is for the hooks
        app.need_connections(slots + 3)  # each slot may enqueue; plus the session, the beat and the note taker
        store = app.store
        self._link = link
        self._board = Board(2 * slots) if link is None else link.board
        self._info = liveness.this_worker(
            id=link.id if link else "", fleet=link.fleet if link else "", queues=queues or (), slots=slots,
            version=laneway.__version__, since=now_micros(), tasks=tuple(sorted(app.declared)), balance=name_of(policy),
        )  # fmt: skip
        for declared in app.declared.values():
            declared.prepare()
        self._outcomes = WaitingOutcomes(store.wake)
        self._freshness = Freshness(app.dead_after / 2)
        self._isolation = Isolation(app, None if link is None else link.zygote, shutdown_timeout, loop)
        notes = NoteTaker(store, lambda: list(self._runner.running.values()))
        self._duties: list[Service] = [notes]  # beside the beat and the statistics
        self._events = Events(app.hooks.events)
        log_runs(self._events)
        lifespans = Lifespans(app.hooks.lifespans, worker)
        self._runner = Runner(
            app.declared, app.hooks, notes.flush, self._board, self._isolation, self._freshness, self._events, lifespans.resources
        )
        self._threads = ThreadSlots(slots, self._runner, lambda: self._exchanger.ended, self._crash)
        self._event_loop = LoopSlots(slots, self._runner, self.ended, self._crash, self._board, loop)
        self._lifespans = LifespanKeeper(lifespans, self._event_loop)
        self._inventory = Inventory(
            slots, app.declared, policy, self._threads, self._event_loop, pipelined=store.capabilities.pipelined
        )
        kinds = self._runner.kinds = self._inventory.kinds
        self._reporter = StatsReporter(store, self._info.id, slots, lambda: len(self._runner.running), kinds.news)
        self._events.listen(RunsSettled, self._board.count_settled)
        self._events.listen(RunsSettled, self._reporter.count)
        self._beat: Beat | SupervisorListener
        if link is None:
            self._beat = Beat(store, self._info, self._board, self._heard, beat)
        else:
            self._beat = SupervisorListener(link, store, self._info, self._heard)
        self._exchanger = Exchanger(
            store, self._info, queues, self, self._inventory, self._outcomes, self._freshness, self._tasks_that_run
        )

    @property
    def stopping(self) -> bool:
        """Whether the session was told to stop, or has reason to."""
        return self._stop.asked

    def run(self, burst: bool) -> None:
        """Work until there is a reason to stop."""
        if any(task.isolate for task in self._app.declared.values()):
            self._isolation.prepare()
        self._beat.tick()
        with contextlib.suppress(StoreError):  # else it is learned anew
            self._inventory.kinds.begin_with(self._app.store.learned())
        self._beat.start()
        started = False
        try:
            if self._enter_lifespans():
                started = True
                self._events.tell(WorkerStarted(self._worker))
                self._work(burst)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                self._stop.deadline = time.monotonic()  # at once
            elif not isinstance(error, LifespanError):
                self._events.tell(WorkerCrashed(error))
            raise
        finally:
            self._end(started)
        if self._stop.failure is not None:
            self._events.tell(WorkerCrashed(self._stop.failure))
            raise self._stop.failure

    def _enter_lifespans(self) -> bool:
        """Enter the app's lifespans, however long they take; return False if the session is told to stop before."""
        self._lifespans.start()
        while not self._lifespans.has_entered(LOOK):
            if self.stopping:
                self._begin_stop()
                return False
        return True

    def _work(self, burst: bool) -> None:
        if self._app.outbox is not None:
            self._relay(self._app.outbox, burst)
        if not burst:
            self._duties.append(Timetable(self._app))
        for duty in (self._reporter, *self._duties):
            duty.start()
        self._board.set_phase("working")
        while not self._finished(burst):
            self._step()

    def _relay(self, outbox: OutboxURL, burst: bool) -> None:
        from laneway.worker.duties.relay import RelayDuty  # noqa: PLC0415 - most apps have no outbox

        duty = RelayDuty(self._app, outbox)
        if burst:
            duty.drain()
        else:
            self._duties.append(duty)

    def stop(self, why: str, *, patient: bool = False) -> None:
        """Claim nothing more, and return from `run` when all runs have ended. From any thread, and from a signal handler.

        Nothing is logged here: the handler may have interrupted a thread that writes. The session's thread logs it.
        """
        self._stop.why = why
        self._stop.patient = patient
        self._stop.asked = True
        self._outcomes.wake()

    # -- one pass --------------------------------------------------------------------------------------------

    def _step(self) -> None:
        if self._exchanger.phase is Phase.UNSURE:
            self._exchanger.wait_out(self._stop.deadline)
        elif not self.stopping and self._exchanger.is_left_to_slots and self._slots_go_on():
            return
        room = self._exchanger.step(stopping=self.stopping)
        if room is not None:
            self._sleep(room)

    def _slots_go_on(self) -> bool:
        """Leave the exchanges to the slots' threads for a moment; return whether they did one, or another thread was woken."""
        before = (self._exchanger.turns, self._threads.waiting)
        self._freshness.goes_to_sleep()
        self._outcomes.doze(SOON)
        since = now_micros() - micros(SOON)
        self._inventory.long_ones = sum([job.started < since for job in list(self._runner.running.values())])
        if before != (self._exchanger.turns, self._threads.waiting):
            return True
        # A job takes longer than expected: others need not wait for it.
        return self._threads.waiting > 0 and self._threads.wake()

    def _sleep(self, room: int) -> None:
        now = time.monotonic()
        self._freshness.goes_to_sleep()
        timeout = min(self._exchanger.next_look, self._stop.deadline, now + 60) - now
        if self._inventory.balance.held_back:  # tasks that compute: a second later another one may have room
            timeout = min(timeout, 1.0)
            self._exchanger.look_again()
        stuck = self._inventory.prefetched or self._threads.waiting
        if room and not stuck:
            self._outcomes.sleep(max(timeout, 0), self._exchanger.wait)
        elif stuck:
            turns = self._exchanger.turns
            self._outcomes.sleep(STUCK, None)
            # Only if the time is over: the session may have been woken for something else.
            if not self._outcomes.waiting and self._exchanger.turns == turns and time.monotonic() >= now + STUCK:
                self._exchanger.give_back_stuck(STUCK)
        else:
            self._outcomes.sleep(max(min(timeout, 1.0), 0), None)

    # -- called by the exchanger -----------------------------------------------------------------------------

    def claims_left(self) -> float:
        """Return the number of jobs that may still be claimed: 0 while the store does not know this worker, to recover them."""
        if self.stopping or self.quiet or self._stop.failure is not None or not self._beat.known:
            return 0
        return self._stop.jobs

    def begins_exchange(self) -> None:
        """Note that an exchange is about to begin: there may be something to do."""
        self._board.set_idle(False)

    def settled(self, settled: list[Settled], refused: list[str]) -> None:
        """Report settled runs, and check whether the worker has run enough jobs."""
        self._runner.all_measured = not self._inventory.short
        self._events.tell(RunsSettled(settled, refused))
        self._stop.jobs -= len(settled)
        if self._stop.jobs <= 0 and not self.stopping:
            self.stop("as many jobs as one process runs", patient=True)

    def make_known(self) -> bool:
        """Beat, to be known again and to learn whether this worker was declared dead."""
        heard = self._app.store.beat([with_runs(self._info, self._board, (0, 0))])[self._info.id]
        if not heard.known:
            log.warning(FORGOTTEN, "this worker")
            self._freshness.distrust(self._inventory.known)
        self._tell_runs(heard)
        self._obey(heard)
        return heard.known

    def _tasks_that_run(self) -> list[str]:
        return [job.task for job in list(self._runner.running.values())]

    # -- called by slots -------------------------------------------------------------------------------------

    def ended(self, settled: Settled) -> None:
        """Take the outcome of a job on the event loop."""
        self._exchanger.ended(settled)

    def _crash(self, error: BaseException) -> None:
        """Stop the worker after an internal error in a slot, and keep the error."""
        self._stop.failure = error
        self._outcomes.wake()

    # -- messages of the store and the supervisor ------------------------------------------------------------

    def _heard(self, heard: BeatReply) -> None:
        if not heard.known:
            self._exchanger.was_forgotten()
        self._tell_runs(heard)
        if not self._exchanger.turns:
            self._outcomes.wake()  # the session may have waited to be known
        self._obey(heard)

    def _tell_runs(self, heard: BeatReply) -> None:
        for job in list(self._runner.running.values()):
            job.claim_may_be_lost = job.claim_may_be_lost or (not heard.known and job.token <= self._freshness.fence)
            # A collector's run goes on for the other lanes: it ends only if all are marked.
            if not job.cancelled and (job.claim_may_be_lost or all(id_ in heard.marks for id_ in job.ids)):
                job.cancelled = True
                self._event_loop.cancel(job.token)

    def _obey(self, heard: BeatReply) -> None:
        if "quiet" in heard.commands and not self.quiet:
            self.quiet = True
            self._board.set_phase("quiet")
            log.info("worker is quiet by command: it claims nothing more")
        if "stop" in heard.commands:
            self.stop("told to stop")
        if "drain" in heard.commands:
            self.stop("told to drain", patient=True)

    # -- stopping --------------------------------------------------------------------------------------------

    def _finished(self, burst: bool) -> bool:
        if self.stopping or self._stop.failure is not None:
            if not self._stop.has_begun:
                self._begin_stop()
            return self._exchanger.is_idle() or time.monotonic() >= self._stop.deadline
        if burst and self._exchanger.is_idle() and self._exchanger.has_looked:
            self._board.set_idle(True)
            return self._link is None  # a fleet ends when all its workers are idle at once
        return False

    def _begin_stop(self) -> None:
        self._board.set_phase("stopping")
        self._stop.begin()
        if self._link is None:
            log.info("%s: stopping, running jobs have %g s", self._stop.why, self._stop.timeout)

    def _end(self, started: bool) -> None:
        """Give back all claims that do not run."""
        for duty in (*reversed(self._duties), self._beat):
            duty.stop()
        self._exchanger.close()
        self._reporter.finish()
        left = list(self._runner.running.values())
        if left:
            names = ", ".join(f"{job.task} {job.id}" for job in left[:5])
            they = "job still runs and keeps its claim" if len(left) == 1 else "jobs still run and keep their claims"
            log.error("%d %s until this process ends: %s", len(left), they, names)
        try:
            if self._exchanger.holds_nothing:
                self._app.store.recover(self._info.id, "the worker stopped")
        except StoreUnavailable as error:
            log.warning("worker stopped, and could not report that to the store: %s", error)
        if started:
            self._events.tell(WorkerStopped(self._worker))
        self._lifespans.leave(self._stop.last_words)
        for slots in (self._threads, self._event_loop):
            slots.close(0 if left else 1.0)
        self._runner.watchdog.stop(1.0)
        self._isolation.close()
