"""The bell: wakes workers that wait for jobs.

Each waiting worker listens on a Unix datagram socket beside the database; a process that brings work sends an empty datagram
to all of them. If a socket is full, its worker has a ring to read already. If it refuses, its process is dead, and it is removed.
Where there are no such sockets, and in case a ring gets lost, a waiting thread also polls whether the database has changed.

One of the waiting threads reads the socket, and the others wait in line behind it: each gets its rings in turn.

Enters: commits.  Leaves: the end of a wait.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

from laneway.ids import new_id
from laneway.locks import FairLock, this_frame

__all__ = ["SQLiteBell"]

_SUFFIX = ".bell"
#: How often a listening worker looks for changes that did not ring (a program in another container, for example), seconds.
_LOOK_EVERY = 0.25
#: How often it looks where nothing can ring, seconds: 1 to 2 % of a core.
_POLL_EVERY = 0.005
#: A folder's time stamp moves in steps of a few milliseconds: a listing this fresh may miss a new listener.
_FRESH = 50_000_000
#: The kernel's limit is 108 bytes.
_PATH_LIMIT = 100


class SQLiteBell:
    """Rings all listeners of a folder and listens itself. Without a folder it works inside this process."""

    def __init__(self, folder: Path | None, changed: Callable[[], bool]) -> None:
        self._folder = folder
        self._changed = changed
        self._deaf = folder is not None and not hasattr(socket, "AF_UNIX")
        self._heard_of: tuple[int, int, list[str]] = (0, 0, [])  # the folder's time stamp, when it was read, the listeners
        self._reset()

    def _reset(self) -> None:
        self._name = ""
        self._ear: socket.socket | None = None
        self._mouth: socket.socket | None = None  # in memory: the other end of the ear
        self._opening = FairLock()
        self._attending = FairLock()  # for the thread at the socket; the others wait in line behind it
        self._generation = 0  # the number of rings
        self._mine = threading.local()  # the number of rings that each thread has seen

    def listen(self) -> None:
        """Start to listen. Call it before looking for work, so that no ring is missed in between."""
        if self._ear is None and not self._deaf:
            with self._opening.held(this_frame()):  # two workers of one program may begin at once
                if self._ear is None:
                    self._open_ear()

    def _open_ear(self) -> None:
        if self._folder is None:
            self._mouth, self._ear = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._mouth.setblocking(False)
            self._ear.setblocking(False)
            return
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ear.setblocking(False)
        name = f"{os.getpid()}-{new_id()}{_SUFFIX}"
        try:
            self._folder.mkdir(exist_ok=True)
            with self._address(name) as address:
                ear.bind(address)
        except OSError as error:
            ear.close()
            # If the folder cannot be made the store itself reports it; a file system without sockets is polled.
            self._deaf = not isinstance(error, FileNotFoundError)
            return
        self._ear, self._name = ear, name

    def ring(self, *, others_only: bool = False) -> None:
        """Wake every listener."""
        if self._folder is None:
            self.wake()
            return
        if self._deaf:
            return
        for name in self._listeners():
            if not (others_only and name == self._name):
                self._send(self._open_mouth(), name)

    def _open_mouth(self) -> socket.socket:
        if self._mouth is not None:
            return self._mouth
        with self._opening.held(this_frame()):  # two threads may ring for the first time
            if self._mouth is None:
                mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                mouth.setblocking(False)
                self._mouth = mouth
            return self._mouth

    def _send(self, mouth: socket.socket, name: str) -> None:
        try:
            with self._address(name) as address:
                mouth.sendto(b"", address)
        except BlockingIOError:
            pass  # it has been rung and has not looked yet
        except ConnectionRefusedError:
            with contextlib.suppress(OSError):
                self._path(name).unlink()
        except OSError:
            pass  # its process has ended, or belongs to another user, which polls for changes by itself

    def wait(self, timeout: float) -> bool:
        """Sleep until a ring, a change or the time is over (False). Several threads may wait: every ring wakes each of them."""
        deadline = time.monotonic() + timeout
        while not self._is_news():
            left = max(deadline - time.monotonic(), 0)
            waiter = self._attending.acquire(left, this_frame())
            if waiter is not None:
                try:
                    self._attend(left)
                finally:
                    self._attending.release(waiter)
            if not left:
                return self._is_news()
        return True

    def wake(self) -> None:
        """End every wait of this bell. Safe in signal handlers: it waits for no lock."""
        self._generation += 1
        mouth = self._mouth
        if self._folder is None:
            if mouth is not None:
                with contextlib.suppress(OSError):  # it has been rung already, or is being closed
                    mouth.send(b"")
        elif self._ear is not None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as once:
                once.setblocking(False)
                self._send(once, self._name)

    def _attend(self, left: float) -> None:
        """Watch the socket and the file for a while."""
        if self._has_news():  # the previous thread has seen it
            return
        self._stay_reachable()
        ear = self._ear
        if ear is None and left:
            time.sleep(min(left, _POLL_EVERY))
        if (ear is not None and self._ring_within(ear, min(left, _LOOK_EVERY))) or self._changed():
            self._generation += 1

    def _stay_reachable(self) -> None:
        """Listen, under a new name if another process has removed the folder with the old one."""
        if self._name and not self._path(self._name).exists():
            self._close_sockets()
        self.listen()

    def _has_news(self) -> bool:
        return getattr(self._mine, "seen", 0) != self._generation

    def _is_news(self) -> bool:
        """Return whether something happened since this thread last asked."""
        before, self._mine.seen = getattr(self._mine, "seen", 0), self._generation
        return bool(before != self._mine.seen)

    @staticmethod
    def _ring_within(ear: socket.socket, seconds: float) -> bool:
        # poll(), since select() is limited to 1,024 open files; it counts milliseconds and may end one early.
        poll = select.poll()
        try:
            poll.register(ear, select.POLLIN)
            if not poll.poll(seconds * 1000):
                return False
            while True:
                ear.recv(1)
        except (OSError, ValueError):  # nothing more to read; or closed meanwhile, by another thread
            return True

    def close(self, *, forked: bool = False) -> None:
        """Stop listening. A forked child leaves the socket's name to its parent."""
        if self._name and not forked:
            with contextlib.suppress(OSError):
                self._path(self._name).unlink()
        self._close_sockets()
        if forked:
            self._reset()  # a thread of the parent may have waited in line

    def __del__(self) -> None:
        if hasattr(self, "_mouth"):
            self._close_sockets()

    def _close_sockets(self) -> None:
        ends, self._ear, self._mouth, self._name = (self._ear, self._mouth), None, None, ""
        for end in ends:
            if end is not None:
                end.close()

    def _listeners(self) -> list[str]:
        assert self._folder is not None  # noqa: S101 - for the type checker
        changed, read, names = self._heard_of
        try:
            now_changed = self._folder.stat().st_mtime_ns
            if now_changed != changed or read - changed < _FRESH:
                read = time.time_ns()
                names = [name for name in os.listdir(self._folder) if name.endswith(_SUFFIX)]
                self._heard_of = (now_changed, read, names)
        except OSError:
            return []
        return names

    def _path(self, name: str) -> Path:
        assert self._folder is not None  # noqa: S101 - for the type checker
        return self._folder / name

    @contextlib.contextmanager
    def _address(self, name: str) -> Generator[str]:
        """Yield an address short enough for the kernel, through the folder's descriptor if needed."""
        path = str(self._path(name))
        if len(path.encode()) < _PATH_LIMIT:
            yield path
            return
        fd = os.open(self._path(""), os.O_RDONLY)
        try:
            yield f"/proc/self/fd/{fd}/{name}"
        finally:
            os.close(fd)
