"""Messages between the processes of a fleet.

A pair of stream sockets with JSON lines; a message may carry file descriptors. Reading never blocks: it returns what has come,
and notices when the other end is gone. `send` waits while the other end does not read; the supervisor uses `post`, which does
not wait: a process that is frozen must not keep it from stopping the fleet.

Enters and leaves: the structs below.
"""

from __future__ import annotations

import array
import os
import select
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from laneway.fleet.settings import FleetSettings
from laneway.store.contract import BeatReply

__all__ = ["Child", "Ended", "Failed", "Fork", "Forked", "Isolate", "Message", "AppReport", "MessageSocket", "receive"]

#: The most descriptors that come with one read.
MOST_FDS = 64


class AppReport(Struct, frozen=True, tag=True):
    """The zygote has loaded the app."""

    url: str
    settings: dict[str, Any]  #: the settings of its store
    tasks: list[str]
    files: list[str]  #: what --reload watches


class Failed(Struct, frozen=True, tag=True):
    """The zygote could not load the app."""

    line: str


class Fork(Struct, frozen=True, tag=True):
    """Make a worker. With it come the board, the file for its stacks, and its end of a socket pair."""

    id: str
    number: int


class Forked(Struct, frozen=True, tag=True):
    """A worker is made. With it comes its pidfd, if the kernel has pidfds."""

    id: str
    pid: int
    fds: int


class Isolate(Struct, frozen=True, tag=True):
    """A worker wants a process for one run. With it come the ends of two sockets: to the zygote, and to the child."""

    token: int


class Child(Struct, frozen=True, tag=True):
    """A process for one run is made. With it comes its pidfd. The supervisor gets this before the worker does."""

    worker: str
    pid: int
    fds: int


class Ended(Struct, frozen=True, tag=True):
    """A child of the zygote has ended: with an exit code, or by a signal (negative)."""

    pid: int
    code: int


Message = FleetSettings | AppReport | Failed | Fork | Forked | Isolate | Child | Ended | BeatReply

_decoder = msgspec.json.Decoder(FleetSettings | AppReport | Failed | Fork | Forked | Isolate | Child | Ended)
_heard = msgspec.json.Decoder(BeatReply)


def receive(end: socket.socket, size: int = 65536) -> tuple[bytes, list[int]]:
    """Return the bytes that have come, and the descriptors with them; raise BlockingIOError if nothing has."""
    # Not socket.recv_fds: before Python 3.13 it ignores the flags, and blocks.
    data, extras, _, _ = end.recvmsg(size, socket.CMSG_LEN(MOST_FDS * 4), socket.MSG_DONTWAIT)
    fds = array.array("i")
    for level, kind, value in extras:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(value[: len(value) - len(value) % fds.itemsize])
    return data, list(fds)


class MessageSocket:
    """One end of a socket pair for messages."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._rest = b""
        self._unsent = b""  # the rest of a message whose beginning was posted
        self._fds: deque[int] = deque()
        self.closed = False  #: the other end is gone, or this one was closed

    @classmethod
    def pair(cls) -> tuple[MessageSocket, socket.socket]:
        """Return an end to keep and one to pass on."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._end.fileno()

    def send(self, message: Message, fds: Sequence[int] = ()) -> bool:
        """Send a message; return False if the other end is gone."""
        data = msgspec.json.encode(message) + b"\n"
        try:
            self._end.setblocking(True)
            sent = socket.send_fds(self._end, [data], fds) if fds else self._end.send(data)
            if sent < len(data):
                self._end.sendall(data[sent:])
        except OSError:
            self.closed = True
            return False
        return True

    def post(self, message: Message, fds: Sequence[int] = ()) -> bool:
        """Send a message without waiting; return False if there is no room for it now, and then nothing of it was sent.

        The rest of a long message goes out with later calls of `post` and `read`. If the other end is gone, `closed` is set.
        """
        self._send_rest()
        if self._unsent:
            return False
        data = msgspec.json.encode(message) + b"\n"
        sent = self._send_some(data, fds)
        self._unsent = data[sent:] if sent else b""
        return sent > 0 or self.closed

    def _send_rest(self) -> None:
        while self._unsent and (sent := self._send_some(self._unsent)):
            self._unsent = self._unsent[sent:]

    def _send_some(self, data: bytes, fds: Sequence[int] = ()) -> int:
        """Send as many bytes as there is room for; return their number."""
        extras = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            return self._end.sendmsg([data], extras, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError:
            self.closed = True
            return 0

    def read(self) -> list[Message]:
        """Return the messages that have come, without waiting."""
        self._send_rest()
        lines: list[bytes] = []
        while not self.closed:
            try:
                data, fds = receive(self._end)
            except BlockingIOError:
                break
            except OSError:
                data, fds = b"", []
            self._fds.extend(fds)
            self.closed = not data
            *whole, self._rest = (self._rest + data).split(b"\n")
            lines += whole
        return [_heard.decode(line) if b'"type"' not in line[:8] else _decoder.decode(line) for line in lines]

    def wait(self) -> Message:
        """Wait for a message; raise EOFError if none will come."""
        while not self.closed:
            select.select([self._end], [], [])
            for message in self.read():
                return message
        raise EOFError

    def take_fds(self, number: int) -> list[int]:
        """Return the descriptors that came with a message; ask for those of messages in order."""
        return [self._fds.popleft() for _ in range(number)]

    def close(self) -> None:
        """Close the socket, and descriptors that were not taken."""
        self.closed = True
        self._end.close()
        while self._fds:
            os.close(self._fds.popleft())
