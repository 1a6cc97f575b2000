"""A worker as its supervisor sees it: a process, its board, and a socket to it.

Enters: messages of the zygote, and the board.  Leaves: signals and messages to the process.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Sequence

from laneway.clock import now_micros
from laneway.fleet.messages import Fork, MessageSocket
from laneway.fleet.overdue import Overdue
from laneway.fleet.settings import FleetSettings
from laneway.kernel import Process
from laneway.store import liveness
from laneway.store.contract import BeatReply, WorkerInfo
from laneway.worker.balance import choose, name_of
from laneway.worker.board import Board

__all__ = ["Member", "StackFile"]


class StackFile:
    """Where a worker writes its stacks when asked."""

    def __init__(self) -> None:
        self.fd = _file_in_memory()
        self.told = 0  #: how many bytes of it are in the log
        self.seen = 0  #: its size at the last look


class Member:
    """One worker of the fleet."""

    def __init__(self, plan: FleetSettings, number: int, id_: str, version: str, tasks: Sequence[str] = ()) -> None:
        self.id = id_
        self.number = number
        self.since = time.monotonic()
        self.told = ""  #: `stop` or `drain`: the command it was sent, after which its end is expected
        self.kill_at = float("inf")  #: when it is killed if it has not ended by itself, monotonic
        self.killed = False  #: the supervisor has killed it
        self.overdue = Overdue()
        self.process: Process | None = None  #: None until the zygote has forked it
        self.code: int | None = None  #: its exit code, from the zygote
        self.gone_at: float | None = None  #: since when its end is known, monotonic
        self.isolated: dict[int, Process] = {}  #: its isolated runs, by pid
        self.rss = 0
        self._describe = functools.partial(
            liveness.this_worker, id=id_, fleet=plan.fleet, queues=plan.queues, slots=plan.slots, version=version,
            tasks=tuple(tasks), balance=name_of(choose(plan.balance, plan.queues, plan.weights)),
        )  # fmt: skip
        board_fd = _file_in_memory()
        os.ftruncate(board_fd, Board.size(plan.rows))
        self.board = Board(plan.rows, board_fd)
        self.stacks = StackFile()
        self.wire, theirs = MessageSocket.pair()
        self._theirs: tuple[int, socket.socket] | None = (board_fd, theirs)  # its ends, until the zygote has them
        self._untold: BeatReply | None = None  # a message that found no room in the socket
        self._info: WorkerInfo | None = None

    def fork(self, zygote: MessageSocket) -> None:
        """Ask the zygote for the process, unless it was asked. Call again while there is none: the socket may be full."""
        if self._theirs is not None:
            board_fd, theirs = self._theirs
            if zygote.post(Fork(self.id, self.number), [board_fd, self.stacks.fd, theirs.fileno()]):
                self._let_go_of_theirs()

    def _let_go_of_theirs(self) -> None:
        if self._theirs is not None:
            (board_fd, theirs), self._theirs = self._theirs, None
            os.close(board_fd)
            theirs.close()

    def forked(self, process: Process) -> None:
        """Note that the process exists."""
        self.process = process
        self._info = self._describe(process.pid, since=now_micros())

    @property
    def info(self) -> WorkerInfo | None:
        """Return its identity, for the store; None before its process exists, and after its end."""
        return None if self.gone_at is not None else self._info

    def tell(self, heard: BeatReply) -> None:
        """Send a reply on to it. If the socket is full the reply is kept: marks come again, all else must not get lost."""
        kept = self._untold
        if kept is not None:
            commands = tuple(dict.fromkeys((*kept.commands, *heard.commands)))
            heard = BeatReply(known=kept.known and heard.known, marks=heard.marks, commands=commands)
        self._untold = None if self.wire.post(heard) else heard

    def go_on_telling(self) -> None:
        """Send the kept reply."""
        if self._untold is not None:
            kept, self._untold = self._untold, None
            self.tell(kept)

    def stop(self, command: str, within: float) -> None:
        """Send it a command to end, and set its deadline."""
        if command == "stop" or not self.told:
            self.told = command
            self.tell(BeatReply(known=True, marks={}, commands=(command,)))
        self.kill_at = min(self.kill_at, time.monotonic() + within)

    def kill(self) -> None:
        """Kill it now."""
        self.killed = True
        if self.process is not None:
            self.process.kill()

    def is_gone(self) -> bool:
        """Return whether its process, and those of its isolated runs, have ended."""
        return self.process is not None and self.process.is_gone() and all(child.is_gone() for child in self.isolated.values())

    def close(self) -> None:
        """Close everything but the board, which may still be read."""
        self._let_go_of_theirs()
        self.wire.close()
        os.close(self.stacks.fd)
        for process in (self.process, *self.isolated.values()):
            if process is not None:
                process.close()


def _file_in_memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("laneway")
    import tempfile  # noqa: PLC0415 - only where there is no memfd

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
