"""A worker as its supervisor sees it: a process, its board, and a wire to it.

Enters: what the zygote and the board say.  Leaves: signals and words to the process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence

from laneway.clock import now_micros
from laneway.fleet.messages import Fork, MessageSocket
from laneway.fleet.settings import FleetSettings
from laneway.store import liveness
from laneway.store.contract import BeatReply, WorkerInfo
from laneway.worker.balance import choose, name_of
from laneway.worker.board import ASYNC, ISOLATED, Board, Entry

__all__ = ["Late", "Member", "Process", "late"]


class Process:
    """A process that can be ended and whose end can be seen, by its pidfd where there is one."""

    def __init__(self, pid: int, handles: Sequence[int]) -> None:
        self.pid = pid
        self.handle = handles[0] if handles else None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal."""
        with contextlib.suppress(ProcessLookupError):
            if self.handle is not None:
                signal.pidfd_send_signal(self.handle, number)
            else:
                os.kill(self.pid, number)

    def is_gone(self) -> bool:
        """Say whether its code has ended; it may still be a zombie."""
        if self.handle is not None:
            poll = select.poll()
            poll.register(self.handle, select.POLLIN)
            return bool(poll.poll(0))
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def close(self) -> None:
        """Let go of the handle."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


class Late:
    """Which runs of a worker have not ended in time, and whether anybody beside them still goes on."""

    def __init__(self, tokens: frozenset[int], others: bool) -> None:
        self.tokens = tokens
        self.others = others


def late(entries: Sequence[Entry], loop_stands: bool, now: int, grace: int) -> Late:
    """Judge a board: times in microseconds.

    An isolated run is its worker's business. Where the event loop stands still, nothing on it goes on.
    """
    found = {entry.token for entry in entries if entry.deadline and now > entry.deadline + grace and entry.place != ISOLATED}
    stuck = {entry.token for entry in entries if entry.place == ASYNC} if loop_stands else set[int]()
    return Late(frozenset(found), any(entry.token not in found | stuck for entry in entries))


class Member:
    """One worker of the fleet."""

    def __init__(self, plan: FleetSettings, number: int, id_: str, version: str, tasks: Sequence[str] = ()) -> None:
        self.id = id_
        self.number = number
        self.since = time.monotonic()
        self.told = ""  #: stop, drain: what it was told, after which its end is no surprise
        self.kill_at = float("inf")  #: when it is ended if it has not ended itself, monotonic
        self.killed = False  #: we have
        self.late: frozenset[int] = frozenset()  #: runs that do not end
        self.late_since = 0.0  #: since when, monotonic
        self.process: Process | None = None  #: None until the zygote has forked it
        self.code: int | None = None  #: how it ended, from the zygote
        self.gone_at: float | None = None  #: since when we know that it has ended, monotonic
        self.isolated: dict[int, Process] = {}  #: its isolated runs, by pid
        self.rss = 0
        self.loop_warned = 0  #: at which tick of its event loop it was last said that the loop stands
        self._plan = plan
        self._version = version
        self._tasks = tuple(tasks)
        self._board_fd = _file_in_memory()
        os.ftruncate(self._board_fd, Board.size(plan.rows))
        self.board = Board(plan.rows, self._board_fd)
        self.stacks = _file_in_memory()  #: where it writes its stacks when asked
        self.stacks_told = 0  #: how much of it is in the log
        self.stacks_seen = 0  #: its size at the last look
        self.wire, self._theirs = MessageSocket.pair()
        self._asked = False  # the zygote, for the process
        self._untold: BeatReply | None = None  # what its wire had no room for
        self._info: WorkerInfo | None = None

    def fork(self, zygote: MessageSocket) -> None:
        """Ask the zygote for the process, unless it was asked. Call again while there is none: its wire may be full."""
        if not self._asked and zygote.post(Fork(self.id, self.number), [self._board_fd, self.stacks, self._theirs.fileno()]):
            self._let_go_of_theirs()

    def _let_go_of_theirs(self) -> None:
        if not self._asked:
            self._asked = True
            os.close(self._board_fd)
            self._theirs.close()

    def forked(self, process: Process) -> None:
        """It is there."""
        self.process = process
        plan = self._plan
        self._info = liveness.this_worker(
            process.pid, id=self.id, fleet=plan.fleet, queues=plan.queues, slots=plan.slots, version=self._version,
            since=now_micros(), tasks=self._tasks, balance=name_of(choose(plan.balance, plan.queues, plan.weights)),
        )  # fmt: skip

    @property
    def info(self) -> WorkerInfo | None:
        """Who it is, for the store; None until it is there, and after its end."""
        return None if self.gone_at is not None else self._info

    def tell(self, heard: BeatReply) -> None:
        """Pass something on to it. What a full wire has no room for is kept: marks come again, all else must not get lost."""
        kept = self._untold
        if kept is not None:
            commands = tuple(dict.fromkeys((*kept.commands, *heard.commands)))
            heard = BeatReply(known=kept.known and heard.known, marks=heard.marks, commands=commands)
        self._untold = None if self.wire.post(heard) else heard

    def go_on_telling(self) -> None:
        """Pass on what was kept."""
        if self._untold is not None:
            kept, self._untold = self._untold, None
            self.tell(kept)

    def stop(self, command: str, within: float) -> None:
        """Tell it to end, and remember by when."""
        if command == "stop" or not self.told:
            self.told = command
            self.tell(BeatReply(known=True, marks={}, commands=(command,)))
        self.kill_at = min(self.kill_at, time.monotonic() + within)

    def kill(self) -> None:
        """End it now."""
        self.killed = True
        if self.process is not None:
            self.process.kill()

    def is_gone(self) -> bool:
        """Say whether its process, and those of its isolated runs, have ended."""
        return self.process is not None and self.process.is_gone() and all(child.is_gone() for child in self.isolated.values())

    def close(self) -> None:
        """Let go of everything but the board: somebody may still read it."""
        self._let_go_of_theirs()
        self.wire.close()
        os.close(self.stacks)
        for process in (self.process, *self.isolated.values()):
            if process is not None:
                process.close()


def _file_in_memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("laneway")
    import tempfile  # noqa: PLC0415 - only where there is no such thing

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
