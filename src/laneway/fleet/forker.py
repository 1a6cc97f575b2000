"""Forking: makes workers and processes for isolated runs, reaps them, and reports their ends.

The forker runs in a process that has loaded the app, holds no connection and has no thread, so that a fork is safe and memory is
shared. In a fleet that is the zygote; a `Worker` inside a program makes a small one of its own when it needs it.

Enters: `Fork` of the supervisor, `Isolate` of workers.  Leaves: processes, `Forked`, `Child` and `Ended`.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
import traceback
from collections.abc import Callable

from msgspec import Struct

from laneway.fleet.messages import Child, Ended, Fork, Forked, Isolate, MessageSocket
from laneway.kernel import Process, die_with, open_pidfd, set_title
from laneway.logs import log

__all__ = ["Forker"]

#: How often children are polled where the kernel has no pidfds, milliseconds.
LOOK_EVERY = 20


#: The delay before a failed fork is tried again, seconds.
AGAIN = 0.05


class _Child(Struct):
    """A child of the forker."""

    process: Process
    word: MessageSocket | None  # to the worker whose run it is


class Forker:
    """`serve` runs until the process that started the forker is gone."""

    def __init__(
        self, boss: MessageSocket, be_worker: Callable[[Fork, list[int], MessageSocket], None], be_isolated: Callable[[int], None]
    ) -> None:
        self._boss = boss
        self._be_worker = be_worker
        self._be_isolated = be_isolated
        self._workers: dict[int, tuple[MessageSocket, str]] = {}  # sockets on which workers request isolated runs
        self._children: dict[int, _Child] = {}  # by pid

    def serve(self) -> None:
        """Serve until the process that started the forker closes its socket."""
        while not self._boss.closed:
            poll = select.poll()
            watched = [self._boss.fileno(), *self._workers]
            handles = {child.process.handle for child in self._children.values()}
            for fd in (*watched, *(handle for handle in handles if handle is not None)):
                poll.register(fd, select.POLLIN)
            poll.poll(LOOK_EVERY if None in handles else None)
            self._reap()
            for message in self._boss.read():
                if isinstance(message, Fork):
                    self._fork_worker(message)
                elif isinstance(message, Isolate):
                    self._fork_isolated(message, self._boss, "")
            for fd, (wire, worker) in list(self._workers.items()):
                for message in wire.read():
                    if isinstance(message, Isolate):
                        self._fork_isolated(message, wire, worker)
                if wire.closed:
                    del self._workers[fd]
                    wire.close()

    def _fork_worker(self, message: Fork) -> None:
        fds = self._boss.take_fds(3)
        ours, theirs = MessageSocket.pair()
        pid = self._fork(lambda: self._be_worker(message, fds, MessageSocket(theirs)), f"worker {message.number}", keep=ours)
        for fd in fds:
            os.close(fd)
        theirs.close()
        self._workers[ours.fileno()] = (ours, message.id)
        handle = self._adopt(pid, None)
        self._boss.send(Forked(message.id, pid, len(handle)), handle)

    def _fork_isolated(self, _: Isolate, wire: MessageSocket, worker: str) -> None:
        word_fd, child_fd = wire.take_fds(2)
        word = MessageSocket(socket.socket(fileno=word_fd))
        pid = self._fork(lambda: self._be_isolated(child_fd), "isolated run", keep=word)
        os.close(child_fd)
        handle = self._adopt(pid, word)
        made = Child(worker, pid, len(handle))
        # The supervisor must know of the child before the worker sends it a claim.
        if wire is not self._boss:
            self._boss.send(made, handle)
        word.send(made, handle)

    def _adopt(self, pid: int, word: MessageSocket | None) -> list[int]:
        handle = open_pidfd(pid)
        self._children[pid] = _Child(Process(pid, handle), word)
        return handle

    def _fork(self, be: Callable[[], None], title: str, keep: MessageSocket) -> int:
        """Fork; the child calls `be`, and never returns."""
        us = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = self._try_fork(title)
        if pid:
            return pid
        code = 1
        try:
            die_with(us)
            set_title(title)
            self._forget(keep)
            be()
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:  # noqa: BLE001 - a child must never go on as its parent
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _try_fork(self, title: str) -> int:
        """Fork; if there are too many processes or too little memory, retry until there is room: the fleet depends on it."""
        told = False
        while True:
            try:
                return os.fork()
            except OSError as error:
                if not told:
                    log.error("cannot fork a process for %s: %s. Trying again until it succeeds", title, error)
                told = True
                self._reap()
                time.sleep(AGAIN)

    def _forget(self, keep: MessageSocket) -> None:
        """Close what belongs to the parent alone: a socket that a child held open would never seem closed to others."""
        keep.close()
        self._boss.close()
        for wire, _ in self._workers.values():
            wire.close()
        for child in self._children.values():
            child.process.close()
            if child.word is not None:
                child.word.close()

    def _reap(self) -> None:
        for pid, child in list(self._children.items()):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # another handler for SIGCHLD was quicker
                ended, status = pid, 0
            if not ended:
                continue
            del self._children[pid]
            end = Ended(pid, os.waitstatus_to_exitcode(status))
            child.process.close()
            self._boss.send(end)
            if child.word is not None:
                child.word.send(end)
                child.word.close()

    def kill_all(self) -> None:
        """End all children."""
        for child in self._children.values():
            child.process.kill()
