"""A line: one connection to the server, and its deadline for answers.

redis-py makes the connection (TCP, TLS, sockets, all that a URL can say). Laneway greets the server itself, in one round trip,
and then uses the socket directly: redis-py's client would cost several times as much. Every wait ends at the line's deadline: a
server that sends a little now and then does not prolong it.

Commands are packed by hiredis, which must get only bytes and strings: to pack a number it runs Python code, and a signal
handler that raises at that moment ends the process.

Enters: commands.  Leaves: answers.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import hiredis

from laneway.store.watch import Watch

__all__ = ["BROKEN", "Command", "Complaint", "Connection", "as_words", "hurried", "pack"]

#: A command and its arguments.
Command = tuple[str | bytes, ...]

#: If answers usually come this fast, the thread polls for them, seconds: a server on the same machine needs 20 µs for little.
QUICK = 0.000_15
#: The shortest time-out that a socket is given, seconds: 0 would mean that it does not block.
SHORTEST = 0.001

#: Raised when a connection breaks, or brings invalid data.
BROKEN = (OSError, hiredis.HiredisError)

_hiredis: Any = hiredis  # its types say that a command is one word long
pack: Callable[[Command], bytes] = _hiredis.pack_command


def as_words(arguments: Iterable[str | bytes | int]) -> Command:
    """Return arguments as a command takes them: numbers as text."""
    return tuple([str(argument) if isinstance(argument, int) else argument for argument in arguments])


class Complaint(Exception):
    """The server replied with an error."""


class _Hurried:
    """A connection of redis-py in which each step of connecting gets the time that is left until its deadline."""

    until = 0.0

    @property
    def socket_timeout(self) -> float:
        """The seconds that are left: redis-py asks before it connects to an address, and before it speaks TLS."""
        return max(self.until - time.monotonic(), SHORTEST)

    @socket_timeout.setter
    def socket_timeout(self, seconds: object) -> None:
        """Ignore the value: redis-py sets the one that it was constructed with."""

    socket_connect_timeout = socket_timeout


def hurried(kind: type) -> type:
    """Return a subclass of one of redis-py's connections, with a deadline."""
    return type("Hurried", (_Hurried, kind), {})


class Connection:
    """One connection. A pool counts it first; then it is opened."""

    def __init__(self) -> None:
        self.is_open = False
        self.is_closed = False
        self.until = 0.0  #: the deadline for answers, by the monotonic clock
        self.thread = threading.get_ident()  #: the thread that last took it from the pool
        self._connection: Any = None

    def open(self, connection: Any, greeting: Sequence[Command], until: float) -> None:
        """Connect and greet the server."""
        self._connection = connection
        self.until = connection.until = until
        connection.connect()
        self._socket: Any = connection._sock
        self._receive = self._socket.recv
        self._reader = hiredis.Reader(replyError=Complaint)
        self.send: Callable[[bytes], None] = self._socket.sendall
        self._patience: float = self._socket.gettimeout() or 0
        self._watch = Watch(self._socket.fileno(), QUICK)
        self._greet(greeting)
        self.is_open = True

    def _greet(self, greeting: Sequence[Command]) -> None:
        """Authenticate, name the client and select the database. Servers before 7.2, and some users, may refuse SETINFO."""
        for command, answer in zip(greeting, self.talk(greeting), strict=True):
            if isinstance(answer, Complaint) and not (
                command[1] == "SETINFO" and str(answer).startswith(("ERR unknown", "ERR Unknown", "NOPERM"))
            ):
                raise answer

    def is_quiet(self) -> bool:
        """Return whether nothing has come."""
        return self._watch.is_quiet()

    def wait_until(self, until: float) -> None:
        """Set the deadline for what is sent and answered from now on; it may be exceeded a little."""
        self.until = until
        seconds = until - time.monotonic()
        if not 0.95 * self._patience <= seconds <= self._patience:
            if seconds <= 0:
                raise TimeoutError("timed out")
            self._patience = max(seconds, SHORTEST)
            self._socket.settimeout(self._patience)

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return int(self._socket.fileno())

    def read(self) -> Any:
        """Return the next answer; an error reply is returned, not raised."""
        answer: Any = self._reader.gets()
        while answer is False:
            if not self._watch.wait(self.until):
                raise TimeoutError("timed out")
            data = self._receive(65536)
            if not data:
                raise ConnectionResetError("the server hung up")
            self._reader.feed(data)
            answer = self._reader.gets()
        return answer

    def comes_at_once(self) -> bool:
        """Poll for an answer that is expected at once; return whether it is here."""
        return self._watch.comes_at_once()

    def send_command(self, command: Command) -> None:
        """Send one command; its answer must be read."""
        self.send(pack(command))

    def talk(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one go and return their answers; error replies are returned, not raised."""
        self.send(b"".join([pack(command) for command in commands]))
        return [self.read() for _ in commands]

    def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one go and return their answers; an error reply is raised."""
        answers = self.talk(commands)
        for answer in answers:
            if isinstance(answer, Complaint):
                raise answer
        return answers

    def ask(self, command: Command) -> Any:
        """Send one command and return its answer; an error reply is raised."""
        return self.ask_all((command,))[0]

    def close(self) -> None:
        """Close the connection."""
        try:
            if self._connection is not None:
                with contextlib.suppress(Exception):  # whatever is wrong with it, it is closed now
                    self._connection.disconnect()
        finally:
            self.is_closed = True
