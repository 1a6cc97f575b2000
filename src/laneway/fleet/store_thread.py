"""Beats and recoveries: the supervisor's calls of the store, in a thread of its own.

A store that is slow or away must not keep the supervisor from ending a run or counting a signal. So all calls of the fleet go
through here: the beat for all workers, recovery of dead workers' claims, and of those of other fleets that are gone.

Enters: members, and ends of workers.  Leaves: `BeatReply`, for the supervisor to pass on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from laneway.core.buckets import Report
from laneway.errors import StoreError, StoreUnavailable
from laneway.fleet.member import Member
from laneway.kernel import cause_of_death, memory
from laneway.logs import log, some
from laneway.store.contract import BeatReply, Store, WorkerInfo
from laneway.store.liveness import is_stopped, recover_dead_workers
from laneway.worker.board import ISOLATED, with_runs
from laneway.worker.duties.service import Service

__all__ = ["End", "StoreThread", "diagnose"]

#: The delay before a store that was away is tried again, seconds.
AGAIN = 0.25


class End(Struct, frozen=True):
    """The end of a worker, whose claims go back."""

    id: str
    cause: str  #: for the jobs' records
    lost: dict[int, str]  #: the claims that are blamed, and why
    said: str = ""  #: for the log, if it held claims


def diagnose(member: Member, *, zygote_lost: bool) -> End:
    """Return what a worker's end means for its claims. The next worker that claims a job decides about it."""
    running = member.board.entries()
    who = f"worker {member.number} (pid {member.process.pid if member.process else '-'})"
    if member.overdue.tokens:
        lost = {entry.token: "timeout" for entry in running if entry.token in member.overdue.tokens}
        return End(member.id, "its worker was ended: a run did not end in time", lost, f"{who} was ended: a run did not yield")
    stopped = bool(member.told) or member.board.phase == "stopping"  # a signal to it alone may have come before this look
    if member.killed or (stopped and member.code == 0):
        return End(member.id, "its worker was stopped before it ended", {})
    if zygote_lost:
        return End(member.id, "the zygote of its fleet was lost", {}, f"{who} ended with its zygote")
    if member.code == 0 and not running:
        return End(member.id, "its worker ended", {})
    ended = "an unknown end" if member.code is None else cause_of_death(member.code)
    # An isolated run cannot have crashed the worker.
    lost = {entry.token: "crash" for entry in running if entry.where != ISOLATED}
    return End(member.id, f"its worker ended with {ended}", lost, f"{who} ended with {ended}")


class StoreThread(Service):
    """Sends the heartbeats of the fleet's workers, and recovers the claims of those that ended."""

    name = "store"

    def __init__(self, store: Store, members: Callable[[], Iterable[Member]], every: float, wake: Callable[[], None]) -> None:
        super().__init__()
        self.heard: deque[tuple[str, BeatReply]] = deque()
        self._store = store
        self._members = members
        self.every = every
        self._wake_supervisor = wake
        self._ends: deque[End] = deque()
        self._ours: set[str] = set()
        self._rung = threading.Event()
        self.away = False  #: the store did not answer the last time
        self._question: object = None
        self.answer: tuple[object, dict[str, int]] = (None, {})  #: to the last `ask`: how many jobs are ready in each queue

    def claim(self, id_: str) -> None:
        """Register a worker before it exists: this fleet judges what it leaves behind."""
        self._ours.add(id_)

    def recover(self, end: End) -> None:
        """Give back a worker's claims."""
        self._ends.append(end)
        self.wake()

    def ask(self, question: object) -> None:
        """Ask the store how many jobs are ready; `answer` comes with the question."""
        self._question = question
        self.wake()

    @property
    def busy(self) -> bool:
        """Whether a call of the store is still to be made."""
        return bool(self._ends)

    def wake(self) -> None:
        """Wake the thread for something new."""
        self._rung.set()

    def run(self) -> None:
        """Beat, recover and answer."""
        next_beat = 0.0
        while not self._stopping.is_set():
            now = time.monotonic()
            try:
                self._recover()
                if (question := self._question) is not self.answer[0]:
                    self.answer = (question, self._store.exchange("", [], [], 0).loads)
                    self._wake_supervisor()
                if now >= next_beat:
                    next_beat = now + self.every
                    self._beat()
                self.away = False
            except StoreUnavailable as error:
                self._is_away(error)
            except StoreError:
                log.exception("supervisor: an operation at the store failed; it is tried again")
            # Recoveries are retried soon while the store is away; the beat keeps its own interval.
            self._rung.wait(AGAIN if self._ends else max(next_beat - time.monotonic(), 0))
            self._rung.clear()

    def _recover(self) -> None:
        while self._ends:
            end = self._ends[0]
            ids = self._store.recover(end.id, end.cause, end.lost)
            self._ours.discard(end.id)
            if end.said:
                held = f": what it held is ready again ({len(ids)}: {some(ids)})" if ids else ""
                suspects = sum(word == "crash" for word in end.lost.values())
                alone = f"; what ran runs alone next ({suspects})" if suspects else ""
                log.warning("%s%s%s", end.said, held, alone)
            self._ends.popleft()
            if "crash" in end.lost.values():
                self._store.record(Report(counters={"crashed": 1}))
        self._wake_supervisor()

    def _beat(self) -> None:
        members = [member for member in self._members() if member.info is not None]
        infos: list[WorkerInfo] = []
        stopped: set[str] = set()
        for member in members:
            if (info := member.info) is not None and is_stopped(info.pid):
                stopped.add(info.id)  # it cannot answer, and may never again: other workers may have its jobs
            elif info is not None:
                used = memory(info.pid)
                member.rss = used[0]
                infos.append(with_runs(info, member.board, used))
        # A worker that has not reported yet may be unknown without having been declared dead. Its reply may come when it has.
        there = {member.id for member in members if member.board.phase != "starting"}
        for id_, heard in self._store.beat(infos).items():
            self.heard.append((id_, heard if id_ in there else replace(heard, known=True)))
        self._wake_supervisor()
        recover_dead_workers(self._store, lambda id_: id_ in self._ours and id_ not in stopped)

    def _is_away(self, error: StoreUnavailable) -> None:
        if not self.away:
            log.warning("%s The supervisor keeps trying; nothing is lost.", error)
        self.away = True
        time.sleep(AGAIN)
