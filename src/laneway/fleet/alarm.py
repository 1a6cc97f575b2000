"""The alarm: what wakes the supervisor, be it a signal or another thread."""

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
        self.signals: list[int] = []  #: those that were not heard yet
        self.ear, self._bell = socket.socketpair()
        self.ear.setblocking(False)
        self._bell.setblocking(False)
        self._before: dict[int, Any] = {}  # the handlers that were there
        self._told_to_end = False

    def take_signals(self) -> None:
        """Hear signals from now on."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTTIN, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                self._before[number] = signal.signal(number, self._note)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signals.append(number)
        self._told_to_end = self._told_to_end or number != signal.SIGTTIN
        self.ring()

    def ring(self) -> None:
        """Wake the supervisor, from any thread."""
        with contextlib.suppress(OSError):  # it has been rung, or nobody listens any more
            self._bell.send(b".")

    def drain(self) -> None:
        """It was heard."""
        with contextlib.suppress(BlockingIOError):
            while self.ear.recv(1024):
                pass

    def close(self) -> None:
        """Leave signals to the handlers that were there."""
        for number, handler in self._before.items():
            # Who is told to end again and again is just ending: nothing may spoil that.
            signal.signal(number, signal.SIG_IGN if self._told_to_end else handler)
        self.ear.close()
        self._bell.close()
