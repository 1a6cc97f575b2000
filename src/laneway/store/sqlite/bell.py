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
from collections.abc import Callable
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
        self._event = threading.Event()
        self._ear: socket.socket | None = None
        self._mouth: socket.socket | None = None
        self._name = ""
        self._heard_of: tuple[int, int, list[str]] = (0, 0, [])  # the folder's time, when it was read, who listens
        self._deaf = folder is None or not hasattr(socket, "AF_UNIX")

    def listen(self) -> None:
        """Start to listen. Call it before looking for work, so that no ring is missed in between."""
        if self._ear is not None or self._deaf or self._folder is None:
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
            # Without a place for the folder the store itself will say so; a file system without sockets is polled.
            self._deaf = not isinstance(error, FileNotFoundError)
            return
        self._ear, self._name = ear, name

    def ring(self, *, others_only: bool = False) -> None:
        """Wake every listener."""
        if self._folder is None:
            self._event.set()
            return
        if self._deaf:
            return
        if self._mouth is None:
            self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._mouth.setblocking(False)
        for name in self._listeners():
            if not (others_only and name == self._name):
                self._send(self._mouth, name)

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
        """Sleep until a ring, a change or the time is over (False)."""
        deadline = time.monotonic() + timeout
        self.listen()
        while True:
            left = deadline - time.monotonic()
            if self._ring_within(max(0.0, min(left, _POLL_EVERY if self._ear is None else _LOOK_EVERY))):
                return True
            if self._folder is not None and self._changed():
                return True
            if left <= 0:
                return False

    def _ring_within(self, seconds: float) -> bool:
        if self._ear is not None:
            # poll(), since select() ends at 1,024 open files; it counts milliseconds and may end one early.
            poll = select.poll()
            poll.register(self._ear, select.POLLIN)
            if poll.poll(seconds * 1000):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        self._ear.recv(1)
                self._event.clear()
                return True
        elif self._event.wait(seconds if self._folder is not None else min(seconds, 3600)):
            self._event.clear()
            return True
        if self._event.is_set():
            self._event.clear()
            return True
        return False

    def wake(self) -> None:
        """End this bell's own wait."""
        self._event.set()
        if self._ear is not None:
            if self._mouth is None:
                self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._mouth.setblocking(False)
            self._send(self._mouth, self._name)

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
    def _address(self, name: str):  # type: ignore[no-untyped-def]
        """Give an address short enough for the kernel, by way of the folder's descriptor if need be."""
        path = str(self._path(name))
        if len(path.encode()) < _PATH_LIMIT:
            yield path
            return
        fd = os.open(self._folder, os.O_RDONLY)  # type: ignore[arg-type]
        try:
            yield f"/proc/self/fd/{fd}/{name}"
        finally:
            os.close(fd)
