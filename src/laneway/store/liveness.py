"""Which workers are alive.

A worker reports its host, its host's boot and pid namespace, its pid and that process's start time. An observer on the same host
asks the kernel about exactly that process, so a dead worker is found at once and a busy one is never declared dead.
Elsewhere, and for stopped processes, an observer watches the beat counter by its own monotonic time.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from laneway.ids import new_id
from laneway.logs import log, some
from laneway.store.contract import Store, WorkerInfo

__all__ = ["FORGOTTEN", "Observer", "is_stopped", "recover_dead_workers", "this_worker"]

#: The log message about a worker that the store no longer knows. It is not known which of the two happened.
FORGOTTEN = (
    "the store does not know %s any more: it was taken for dead and its claims were recovered, or the store was emptied. "
    "Outcomes of what it runs now are discarded"
)

#: States of a process: a zombie's code has ended, as has that of a missing process; a stopped process may never go on.
_ENDED = ("", "Z", "X")
_STOPPED = ("T", "t")


def this_worker(
    pid: int | None = None, *, id: str = "", fleet: str = "", queues: tuple[str, ...] = (), slots: int = 0, version: str = "",  # noqa: A002
    since: int = 0, tasks: tuple[str, ...] = (), balance: str = "",
) -> WorkerInfo:  # fmt: skip
    """Return a process of this host as a worker: by default this one, with a new id."""
    pid = pid or os.getpid()
    return WorkerInfo(
        id=id or new_id(), fleet=fleet, host=socket.gethostname(), boot=_boot(), pid=pid, started=_process(pid)[0],
        queues=queues, slots=slots, version=version, since=since, tasks=tasks, balance=balance,
    )  # fmt: skip


def _boot() -> str:
    """Return the id of this boot of this host and of this pid namespace; empty where the system has none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _process(pid: int) -> tuple[int, str]:
    """Return a process's start time in clock ticks and its state, a letter; none if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0, ""
    # The command in parentheses may hold any text: the fields come after the last one.
    fields = stat[stat.rindex(")") + 2 :].split()
    return int(fields[19]), fields[0]


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped: by SIGSTOP, or in a debugger."""
    return _process(pid)[1] in _STOPPED


class Observer:
    """Finds dead workers by repeated looks at their beats."""

    def __init__(self, dead_after: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.dead_after = dead_after
        self._clock = clock
        self._looked = clock()
        self._seen: dict[str, tuple[object, float]] = {}  # worker → its beat, and for how long that was seen not to move
        self._boot = _boot()

    def dead(self, workers: Iterable[tuple[WorkerInfo, object]]) -> list[str]:
        """Return the ids of the dead workers among (worker, beat) pairs.

        A beat is its number and its time: a worker that was recovered by another observer counts anew, perhaps up to that number.
        """
        now = self._clock()
        # Time in which this observer did not look (it was frozen, or the store was away) does not count against a worker.
        passed = min(now - self._looked, self.dead_after / 3)
        self._looked = now
        seen, self._seen = self._seen, {}
        states = [(worker, beat, self._state(worker)) for worker, beat in workers]
        # If a worker of a fleet lives, so does its supervisor, which knows why another worker ended: leave that one to it.
        supervised = {worker.fleet for worker, _, state in states if worker.fleet and state and state not in _ENDED}
        dead: list[str] = []
        for worker, beat, state in states:
            last, silent = seen.get(worker.id, (beat, -passed))
            silent = silent + passed if beat == last else 0.0
            self._seen[worker.id] = (beat, silent)
            runs = state is not None and state not in (*_ENDED, *_STOPPED)
            ended = state in _ENDED and worker.fleet not in supervised
            if ended or (silent > self.dead_after and not runs):
                dead.append(worker.id)
        return dead

    def forget(self, worker: str) -> None:
        """Forget a worker whose claims were recovered: if it comes back, it is observed anew."""
        self._seen.pop(worker, None)

    def _state(self, worker: WorkerInfo) -> str | None:
        """Return the state of a process of this host, boot and pid namespace: a running one lives, whether or not it beats."""
        if not worker.boot or worker.boot != self._boot:
            return None
        started, state = _process(worker.pid)
        return state if started == worker.started else ""


def recover_dead_workers(store: Store, ours: Callable[[str], bool] = lambda _: False) -> None:
    """Give back the claims of dead workers, except for those of the own fleet (`ours`): its supervisor does that."""
    for dead in store.dead_workers():
        if not ours(dead):
            ids = store.recover(dead, "its process ended, or its heartbeat stopped")
            if ids:
                log.warning("worker %s is dead: its %d jobs are ready again (%s)", dead, len(ids), some(ids))
