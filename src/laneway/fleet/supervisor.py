"""The supervisor: keeps a fleet's workers alive, ends processes that hang, and gives back the claims of dead workers.

It has no user code and no policy for jobs: a worker that hogs its interpreter, crashes or exhausts memory is another process. It
starts the zygote, asks it for workers, watches their pidfds and boards, counts signals, and has its store thread call the store.
One loop in one thread: it waits for an event, and looks at all workers ten times a second.

Enters: `FleetSettings`, signals, ends of processes.  Leaves: processes, and none of them at the end.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

import laneway
from laneway.config import safe_url
from laneway.core.instant import SECOND
from laneway.errors import ConfigError, LanewayError
from laneway.fleet.alarm import Alarm
from laneway.fleet.burst import Burst
from laneway.fleet.member import Member
from laneway.fleet.messages import AppReport, Child, Ended, Failed, Forked, Message
from laneway.fleet.position import Position
from laneway.fleet.readiness import Readiness, not_ready
from laneway.fleet.reload import Reload
from laneway.fleet.settings import FleetSettings
from laneway.fleet.stacks import Stacks
from laneway.fleet.store_thread import StoreThread, diagnose
from laneway.fleet.zygote_handle import UNKILLABLE, ZygoteHandle
from laneway.fleet.zygotes import Zygotes
from laneway.ids import new_id
from laneway.kernel import Process, cause_of_death, kill_group, set_title
from laneway.logs import log
from laneway.store import StoreSettings, open_store
from laneway.store.contract import BeatReply
from laneway.store.liveness import FORGOTTEN

if TYPE_CHECKING:
    from laneway.fleet.probes import Probes

__all__ = ["Stopped", "Supervisor"]

#: How often the supervisor looks at all workers if nothing happens, seconds.
TICK = 0.1
#: How long a worker may take beyond the shutdown timeout before it is killed, seconds.
LAST_WORDS = 1.0
#: How long the end waits for the store, seconds; the second: after a second signal.
LAST_WRITES, LAST_WRITES_HURRIED = 5.0, 1.0


class Stopped(LanewayError):
    """The fleet was told to stop before it had started."""


class Supervisor:
    """One fleet, from its start to its end."""

    def __init__(self, plan: FleetSettings) -> None:
        self.plan = msgspec.structs.replace(plan, parent=os.getpid(), fleet=new_id())
        self.outcomes: Counter[str] = Counter()  #: of all runs
        self._readiness = Readiness()
        self._probes: Probes | None = None
        if plan.health is not None:
            from laneway.fleet.probes import Probes  # noqa: PLC0415 - most fleets have none

            self._probes = Probes(*plan.health, self._readiness)
        self._selector = selectors.DefaultSelector()
        self._zygotes = Zygotes(self.plan, self._selector)
        self._positions = [Position(number) for number in range(1, plan.processes + 1)]
        self._members: dict[str, Member] = {}
        self._alarm = Alarm()
        self._reload: Reload | None = None
        self._burst: Burst | None = None
        self._stopping = self._hurried = False
        self._leave_at = float("inf")  # when a stop ends, even with workers left, monotonic
        self._store_thread: StoreThread | None = None
        self._stacks = Stacks()

    # -- from start to end -----------------------------------------------------------------------------------

    def load(self) -> AppReport:
        """Wait until the zygote has loaded the app, and open its store; an error in either is one line."""
        self._alarm.take_signals()
        try:
            report = self._wait_for_report()
            self._store, inspect = open_store(report.url, StoreSettings(**report.settings))
            inspect.counts()
            self._store.note([])  # a worker would wait for a store that cannot be written to; at start-up that is a mistake
        except LanewayError:
            self._clean_up()
            raise
        return report

    def _wait_for_report(self) -> AppReport:
        set_title("supervisor")
        self._selector.register(self._alarm.ear, selectors.EVENT_READ)
        zygote = self._zygotes.current
        while zygote.report is None:
            self._readiness.beat("starting: the app is being loaded")
            self._selector.select(TICK)
            if any(number != signal.SIGTTIN for number in self._alarm.signals):
                raise Stopped
            for message in zygote.wire.read():
                if isinstance(message, Failed):
                    raise ConfigError(message.line)
                if isinstance(message, AppReport):
                    zygote.report = message
            if zygote.wire.closed and zygote.report is None:
                zygote.end()
                raise ConfigError(f"the app cannot be loaded: its process ended with {cause_of_death(zygote.code or 0)}")
        set_title(f"supervisor of {safe_url(zygote.report.url)}")
        return zygote.report

    def run(self) -> None:
        """Run the fleet until told to stop. Call `load` before."""
        try:
            self._store_thread = StoreThread(self._store, lambda: list(self._members.values()), self.plan.beat, self._alarm.ring)
            self._store_thread.start()
            if self.plan.burst:
                self._burst = Burst(self._store_thread, self.plan.queues)
            report = self._zygotes.current.report
            if self.plan.reload and report is not None:
                self._reload = Reload(report.files, self._alarm.ring)
                self._reload.start()
            while not self._is_over():
                self._turn()
            self._finish(self._store_thread)
        finally:
            self._clean_up()

    def _turn(self) -> None:
        """Do what is due, and wait."""
        self._fill_positions()
        self._selector.select(TICK)
        self._alarm.drain()
        self._hear_signals()
        self._hear_zygotes()
        self._hear_store()
        self._hear_changes()
        for member in list(self._members.values()):
            self._look_at(member)
        self._readiness.beat(not_ready(self._stopping, self._store_thread, self._positions))
        self._zygotes.look(stopping=self._stopping)
        if self._burst is not None and not self._stopping and self._burst.is_done(self._positions, self._members.values()):
            self.stop()

    def _is_over(self) -> bool:
        closing = self._stopping or not any(position.open or position.member for position in self._positions)
        return closing and (not self._members or time.monotonic() >= self._leave_at)

    def _finish(self, store_thread: StoreThread) -> None:
        """Finish the calls of the store, which may be away, as long as there is time."""
        for member in self._members.values():
            pid = member.process.pid if member.process else "-"
            log.error(
                "worker %d (pid %s) did not exit after SIGKILL; leaving it. What it holds is recovered by the next worker that "
                "starts after its end", member.number, pid,
            )  # fmt: skip
        since = time.monotonic()

        def left() -> float:
            return since + (LAST_WRITES_HURRIED if self._hurried else LAST_WRITES) - time.monotonic()

        while store_thread.busy and left() > 0:
            self._hear_signals()
            time.sleep(0.005)
        if store_thread.busy:
            log.error("fleet ended, and could not report that to the store: the next worker that starts recovers its jobs")
        if store_thread.stop(max(left(), 0)):
            self._store.close()  # else it is in use, and closing it would block

    def _clean_up(self) -> None:
        if self._reload is not None:
            self._reload.stop(2.0)
        self._zygotes.close(at_once=self._hurried)
        self._selector.close()
        self._alarm.close()
        if self._probes is not None:
            self._probes.close()

    # -- signals ---------------------------------------------------------------------------------------------

    def _hear_signals(self) -> None:
        while self._alarm.signals:
            number = self._alarm.signals.pop(0)
            if number == signal.SIGTTIN:
                for member in self._members.values():
                    self._stacks.ask(member)
            elif not self._stopping:
                log.info("%s: stopping, running jobs have %g s", signal.Signals(number).name, self.plan.shutdown_timeout)
                self.stop()
            else:
                log.warning("%s again: ending at once", signal.Signals(number).name)
                self._hurried = True
                self._leave_at = min(self._leave_at, time.monotonic() + UNKILLABLE)
                for member in self._members.values():
                    member.kill()

    def stop(self) -> None:
        """Tell all workers to end."""
        self._stopping = True
        self._leave_at = time.monotonic() + self.plan.shutdown_timeout + LAST_WORDS + UNKILLABLE
        for member in self._members.values():
            member.stop("stop", self.plan.shutdown_timeout + LAST_WORDS)

    # -- workers come and go ---------------------------------------------------------------------------------

    def _fill_positions(self) -> None:
        now, zygote = time.monotonic(), self._zygotes.current
        if self._stopping or zygote.report is None or zygote.wire.closed or self._store_thread is None:
            return
        for position in self._positions:
            if position.open and position.member is None and now >= position.free_at:
                member = Member(self.plan, position.number, new_id(), laneway.__version__, zygote.report.tasks)
                position.member = self._members[member.id] = member
                self._zygotes.homes[member.id] = zygote
                self._store_thread.claim(member.id)
                member.fork(zygote.wire)

    def _hear_zygotes(self) -> None:
        for zygote in self._zygotes.all():
            for message in zygote.wire.read():
                self._hear(zygote, message)
            if zygote.wire.closed:
                self._zygotes.unwatch(zygote)

    def _hear(self, zygote: ZygoteHandle, message: Message) -> None:
        match message:
            case AppReport():
                zygote.report = message
                self._took_over(zygote)
            case Failed():
                zygote.failed = True
                log.error("the app cannot be loaded any more: %s", message.line)
            case Forked():
                member = self._members[message.id]
                process = Process(message.pid, zygote.wire.take_fds(message.fds))
                member.forked(process)
                if process.handle is not None:
                    self._selector.register(process.handle, selectors.EVENT_READ)
                if self._stopping:
                    member.stop("stop", self.plan.shutdown_timeout + LAST_WORDS)
            case Child():
                child = Process(message.pid, zygote.wire.take_fds(message.fds))
                if message.worker in self._members:
                    self._members[message.worker].isolated[message.pid] = child
                else:
                    kill_group(child.pid)
                    child.kill()  # its worker is gone, and another worker may have the claim by now
                    child.close()
            case Ended():
                self._ended(message)
            case _:
                pass

    def _ended(self, message: Ended) -> None:
        for member in self._members.values():
            if member.process is not None and member.process.pid == message.pid:
                member.code = message.code
            elif (child := member.isolated.pop(message.pid, None)) is not None:
                child.close()

    def _look_at(self, member: Member) -> None:
        """Check whether a worker has ended, must be ended, or is to be replaced."""
        if member.process is None:
            self._look_at_unborn(member, self._zygotes.homes[member.id])
            return
        if member.gone_at is None and member.process.is_gone():
            member.gone_at = time.monotonic()
            if member.process.handle is not None:
                self._selector.unregister(member.process.handle)
            for child in member.isolated.values():
                kill_group(child.pid)
                child.kill()
        if member.gone_at is not None:
            self._look_at_dead(member, member.gone_at)
        else:
            self._look_at_living(member, member.process)

    def _look_at_unborn(self, member: Member, home: ZygoteHandle) -> None:
        """Check whether the zygote that should fork a worker is lost. A zygote that hangs must not delay a stop."""
        member.fork(home.wire)
        if self._stopping and not home.killed and (member.killed or time.monotonic() >= member.kill_at):
            if not member.killed:
                pid, number = home.process.pid, member.number
                log.warning("zygote (pid %d) did not fork worker %d before its deadline; sending SIGKILL", pid, number)
            member.kill()
            home.kill()
        if home.wire.closed:
            self._bury(member)

    def _look_at_dead(self, member: Member, since: float) -> None:
        # The zygote's messages about it came before its end could be seen; its exit code comes a moment later.
        waited = self._hurried or time.monotonic() > since + 1.0
        known = member.code is not None or self._zygotes.homes[member.id].wire.closed or waited
        if known and member.is_gone():
            self._bury(member)

    def _look_at_living(self, member: Member, process: Process) -> None:
        member.go_on_telling()
        self._stacks.look(member)
        self._look_for_late(member)
        if not member.told and member.board.phase == "stopping":
            self._make_room(member, "")
        if not member.told and self._is_too_large(member):
            self._make_room(member, f"worker {member.number} has {member.rss >> 20} MiB, more than --max-memory allows")
        if time.monotonic() >= member.kill_at and not member.killed:
            log.warning("worker %d (pid %d) did not exit before its deadline; sending SIGKILL", member.number, process.pid)
            member.kill()

    def _is_too_large(self, member: Member) -> bool:
        """Return whether a worker is too large and is to be replaced. One that has run no job is not: the next would be equal."""
        if self.plan.max_memory is None or member.rss <= self.plan.max_memory:
            return False
        return any(member.board.counts.values()) or bool(member.board.entries())

    def _make_room(self, member: Member, why: str) -> None:
        """Let a worker end when its jobs have, and start another one at once."""
        if why:
            log.info("%s: starting a replacement; this worker exits when its jobs are done", why)
        member.stop("drain", float("inf"))
        self._left(member, surprise=False)

    def _left(self, member: Member, *, surprise: bool) -> None:
        for position in self._positions:
            position.left(member, surprise)

    def _look_for_late(self, member: Member) -> None:
        """Check whether runs go on after their timeout: they do not yield, and can only be ended with their process."""
        overdue, found = member.overdue, member.overdue.look(member.board, round(self.plan.timeout_grace * SECOND))
        if overdue.are_new(found.tokens):
            runs = "a run goes" if len(found.tokens) == 1 else f"{len(found.tokens)} runs go"
            log.error(
                "worker %d: %s on %g s after the timeout and cannot be ended alone: the worker ends with its other jobs",
                member.number, runs, self.plan.timeout_grace,
            )  # fmt: skip
            self._stacks.ask(member, tell=True)
            member.stop("stop", self.plan.shutdown_timeout)
            self._left(member, surprise=False)
        elif overdue.loop_is_blocked_anew():
            log.warning("worker %d: its event loop is blocked by an async task", member.number)
            self._stacks.ask(member, tell=True)
        if overdue.may_be_ended(found) and not member.killed:
            member.kill()

    def _bury(self, member: Member) -> None:
        """Give back the claims of a worker whose code has ended."""
        del self._members[member.id]
        self._stacks.look(member, last=True)
        home = self._zygotes.homes[member.id]
        self.outcomes.update(member.board.counts)
        end = diagnose(member, zygote_lost=home.wire.closed)
        expected = bool(member.told) and not end.said
        self._left(member, surprise=not expected)
        member.close()
        if self._store_thread is not None:
            self._store_thread.recover(end)
        self._zygotes.left(member.id)

    # -- reload of the app -----------------------------------------------------------------------------------

    def _took_over(self, zygote: ZygoteHandle) -> None:
        """Drain the workers of the old zygote: a new one has loaded the app."""
        old = self._zygotes.take_over(zygote)
        for member in list(self._members.values()):
            if old is not None and not member.told and self._zygotes.homes[member.id] is old and not old.wire.closed:
                self._make_room(member, "")

    def _hear_changes(self) -> None:
        if self._reload is not None and self._reload.changed and not self._stopping:
            log.info("%s has changed: loading the app again", os.path.relpath(self._reload.changed[0]))
            self._reload.changed.clear()
            self._zygotes.start_next()

    # -- replies of the store --------------------------------------------------------------------------------

    def _hear_store(self) -> None:
        while self._store_thread is not None and self._store_thread.heard:
            id_, heard = self._store_thread.heard.popleft()
            member = self._members.get(id_)
            if member is None:
                continue
            lost = not heard.known and not member.told
            if lost:
                log.warning(FORGOTTEN, f"worker {member.number}")
            if lost or heard.marks or heard.commands:
                member.tell(
                    BeatReply(known=not lost, marks=heard.marks, commands=tuple(c for c in heard.commands if c != "stop"))
                )
            if "stop" in heard.commands:
                log.info("worker %d was told to stop, and is not replaced", member.number)
                for position in self._positions:
                    position.open = position.open and position.member is not member
                member.stop("stop", self.plan.shutdown_timeout + LAST_WORDS)
