"""The alarm: wakes the supervisor, on a signal or from another thread."""

from __future__ import annotations

import contextlib
import signal
import socket
from types import FrameType
from typing import Any

__all__ = ["Alarm"]


class Alarm:
    """Ends the supervisor's waits, and keeps the signals that came."""

    def __init__(self) -> None:
        self.signals: list[int] = []  #: signals that were not handled yet
        self.ear, self._bell = socket.socketpair()
        self.ear.setblocking(False)
        self._bell.setblocking(False)
        self._before: dict[int, Any] = {}  # the previous handlers
        self._told_to_end = False

    def take_signals(self) -> None:
        """Install the signal handlers."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTTIN, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                self._before[number] = signal.signal(number, self._note)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signals.append(number)
        self._told_to_end = self._told_to_end or number != signal.SIGTTIN
        self.ring()

    def ring(self) -> None:
        """Wake the supervisor, from any thread."""
        with contextlib.suppress(OSError):  # it has been rung, or the other end is closed
            self._bell.send(b".")

    def drain(self) -> None:
        """Reset the alarm: the supervisor is awake."""
        with contextlib.suppress(BlockingIOError):
            while self.ear.recv(1024):
                pass

    def close(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._before.items():
            # A fleet that was told to stop may get more signals while it ends: these must not disturb it.
            signal.signal(number, signal.SIG_IGN if self._told_to_end else handler)
        self.ear.close()
        self._bell.close()
