"""The bell: wakes workers that wait for jobs.

Each worker that waits listens on a Unix datagram socket beside the database; who brings work sends an empty datagram
to all of them. A full socket has been rung already, a refused one belongs to the dead and is removed. Where there are no
such sockets, and against rings that get lost, waiting also looks whether the database has changed.

Enters: commits.  Leaves: the end of a wait.  Called by: the store.
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

from laneway.job import new_id

__all__ = ["Bell"]

_SUFFIX = ".bell"
#: How often a listening worker looks for changes that did not ring (a program in another container, say).
_LOOK_EVERY = 0.25
#: How often it looks where nothing can ring: 1 to 2 % of a core.
_POLL_EVERY = 0.005
#: A folder's time stamp moves in steps of a few milliseconds: a listing this fresh may miss a newcomer.
_FRESH = 50_000_000
#: The kernel's limit is 108 bytes.
_PATH_LIMIT = 100


class Bell:
    """Rings all listeners of a folder and listens itself. Without a folder it works inside this process."""

    def __init__(self, folder: Path | None, changed: Callable[[], bool]) -> None:
        self._folder = folder
        self._changed = changed
        self._reset()
        self._ear: socket.socket | None = None
        self._mouth: socket.socket | None = None
        self._name = ""
        self._heard_of: tuple[int, int, list[str]] = (0, 0, [])  # the folder's time, when it was read, who listens
        self._deaf = folder is None or not hasattr(socket, "AF_UNIX")

    def _reset(self) -> None:
        self._listening = threading.Lock()
        self._news = threading.Condition()
        self._generation = 0  # how often it rang
        self._attended = False  # a thread waits at the socket
        self._mine = threading.local()  # what each thread has heard of

    def listen(self) -> None:
        """Start to listen. Call it before looking for work, so that no ring is missed in between."""
        if self._ear is not None or self._deaf or self._folder is None:
            return
        with self._listening:  # two workers of one program may begin at once
            if self._ear is None:
                self._open_ear(self._folder)

    def _open_ear(self, folder: Path) -> None:
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ear.setblocking(False)
        name = f"{os.getpid()}-{new_id()}{_SUFFIX}"
        try:
            folder.mkdir(exist_ok=True)
            with self._address(name) as address:
                ear.bind(address)
        except OSError as error:
            ear.close()
            # Without a place for the folder the store itself will say so; a file system without sockets is polled.
            self._deaf = not isinstance(error, FileNotFoundError)
            return
        self._ear, self._name = ear, name

    def ring(self, *, others_only: bool = False) -> None:
        """Wake every listener."""
        if self._folder is None:
            self._tell()
            return
        if self._deaf:
            return
        for name in self._listeners():
            if not (others_only and name == self._name):
                self._send(self._open_mouth(), name)

    def _open_mouth(self) -> socket.socket:
        if self._mouth is not None:
            return self._mouth
        with self._listening:  # two threads may ring for the first time
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
            pass  # it has been rung and did not look yet
        except ConnectionRefusedError:
            with contextlib.suppress(OSError):
                self._path(name).unlink()
        except OSError:
            pass  # gone meanwhile, or another user's: it looks for changes by itself

    def wait(self, timeout: float) -> bool:
        """Sleep until a ring, a change or the time is over (False). Several threads may wait: each hears of everything."""
        deadline = time.monotonic() + timeout
        self.listen()
        while True:
            left = max(deadline - time.monotonic(), 0)
            with self._news:
                if self._is_news():
                    return True
                # One thread attends to the socket, the others hear from it.
                attends = self._folder is not None and not self._attended
                if attends:
                    self._attended = True
                elif left:
                    self._news.wait(left if self._folder is None else min(left, _LOOK_EVERY))
            if attends:
                self._attend(left)
            with self._news:
                if self._is_news():
                    return True
            if not left:
                return False

    def rang(self) -> bool:
        """Say whether it rang since this thread last heard of it, without waiting."""
        if self._ear is not None and self._ring_within(self._ear, 0):
            self._tell()
        with self._news:
            return self._is_news()

    def wake(self) -> None:
        """End every wait of this bell. Also for signal handlers: the lock inside may be taken twice by one thread."""
        self._tell()
        if self._ear is not None:
            self._send(self._open_mouth(), self._name)

    def _attend(self, left: float) -> None:
        """Look after the socket and the file for a while, and tell the others."""
        rung = False
        try:
            if self._ear is not None:
                rung = self._ring_within(self._ear, min(left, _LOOK_EVERY))
            elif left:
                time.sleep(min(left, _POLL_EVERY))
            rung = rung or self._changed()
        finally:
            with self._news:
                self._attended = False
                self._generation += rung
                self._news.notify_all()  # of the ring, or that the place at the socket is free

    def _tell(self) -> None:
        with self._news:
            self._generation += 1
            self._news.notify_all()

    def _is_news(self) -> bool:
        """Say whether something happened since this thread last asked."""
        before, self._mine.seen = getattr(self._mine, "seen", 0), self._generation
        return bool(before != self._generation)

    @staticmethod
    def _ring_within(ear: socket.socket, seconds: float) -> bool:
        # poll(), since select() ends at 1,024 open files; it counts milliseconds and may end one early.
        poll = select.poll()
        poll.register(ear, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return False
        with contextlib.suppress(BlockingIOError):
            while True:
                ear.recv(1)
        return True

    def close(self, *, forked: bool = False) -> None:
        """Stop listening. A forked child leaves the socket's name to its parent."""
        if self._ear is not None:
            self._ear.close()
            if not forked:
                with contextlib.suppress(OSError):
                    self._path(self._name).unlink()
        if self._mouth is not None:
            self._mouth.close()
        self._ear = self._mouth = None
        self._name = ""
        if forked:
            self._reset()  # another thread of the parent may have held a lock

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
        """Give an address short enough for the kernel, by way of the folder's descriptor if need be."""
        path = str(self._path(name))
        if len(path.encode()) < _PATH_LIMIT:
            yield path
            return
        fd = os.open(self._path(""), os.O_RDONLY)
        try:
            yield f"/proc/self/fd/{fd}/{name}"
        finally:
            os.close(fd)
