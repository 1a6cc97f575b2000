"""The wire: connections to the server, one round trip at a time, and errors in plain words.

redis-py makes the connections (TLS, passwords, sockets, all that a URL can say); we lend them out, at most so many at once, and
talk to them directly: its client would cost several times as much. A connection that was cut while it lay idle is replaced before
anything is sent. After that nothing is sent twice: whoever asked decides, since it may be the answer that was lost.

Enters: commands.  Leaves: answers.  Called by: the store, its inspection side, the bell.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.retry import Retry

from laneway import shield
from laneway.config import safe_url
from laneway.errors import (
    ConfigError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from laneway.store.redis.scripts import text_of

__all__ = ["Asked", "Command", "Complaint", "Line", "Wire"]

#: A command and its arguments.
Command = tuple[str | bytes | int | float, ...]

#: Answers that usually come so fast are watched for, seconds: a server on the same machine needs 20 µs for little, and a thread
#: that sleeps is awake again 50 µs later.
QUICK = 0.000_15
#: What does not come so soon may want the core that we look from, seconds.
AT_ONCE = 0.00003
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

#: What is raised when a connection breaks, or brings nonsense.
BROKEN = (OSError, hiredis.HiredisError)

_open_wires: weakref.WeakSet[Wire] = weakref.WeakSet()
_inherited: list[object] = []  # connections of our parent: closing them would be ours to regret

_hiredis: Any = hiredis  # its types say that a command is one word long
_pack: Callable[[Command], bytes] = _hiredis.pack_command
_pools: Any = ConnectionPool  # untyped


_let_others_run: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


class Complaint(Exception):
    """The server understood, and will not."""


class Line:
    """One connection. redis-py makes it and greets the server; then we use its socket."""

    def __init__(self, connection: Any) -> None:
        connection.connect()
        self._connection = connection
        self._socket: Any = connection._sock
        self._receive = self._socket.recv
        self._reader = hiredis.Reader(replyError=Complaint)
        self.send: Callable[[bytes], None] = self._socket.sendall
        self._patience: float = self._socket.gettimeout() or 0
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._usual = 0.0  # how long an answer takes, seconds

    def is_quiet(self) -> bool:
        """Say whether nothing has come."""
        return not self._poll.poll(0)

    def be_patient(self, seconds: float) -> None:
        """Wait so long for an answer, or a little longer."""
        if not 0.95 * self._patience <= seconds <= self._patience:
            self._socket.settimeout(seconds)
            self._patience = seconds

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return int(self._socket.fileno())

    def read(self) -> Any:
        """Return the next answer; a complaint too is returned."""
        answer: Any = self._reader.gets()
        if answer is False:
            self._watch()
        while answer is False:
            data = self._receive(65536)
            if not data:
                raise ConnectionResetError("the server hung up")
            self._reader.feed(data)
            answer = self._reader.gets()
        return answer

    def _watch(self) -> None:
        """Look for an answer that is expected at once, instead of sleeping until it comes: to be woken takes longer than that."""
        begun = now = time.perf_counter()
        if self._usual < QUICK and CORES > 1:
            while now - begun < 2 * QUICK and not self._poll.poll(0):
                now = time.perf_counter()
                if now - begun > AT_ONCE:
                    _let_others_run()  # on a machine of few cores the server may be waiting for this one
        else:
            if not self._poll.poll(self._patience * 1000):
                raise TimeoutError("timed out")  # reading would wait as long again
            now = time.perf_counter()
        self._usual += 0.1 * (now - begun - self._usual)

    def send_command(self, command: Command) -> None:
        """Send one command; its answer is to be read."""
        self.send(_pack(command))

    def ask(self, command: Command) -> Any:
        """Send one command and return its answer; a complaint is raised."""
        self.send(_pack(command))
        answer = self.read()
        if isinstance(answer, Complaint):
            raise answer
        return answer

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(Exception):  # whatever ails it, it is gone now
            self._connection.disconnect()


class Asked:
    """What was sent, and is answered when it is heard: once."""

    __slots__ = ("_commands", "_line", "_wire")

    def __init__(self, wire: Wire, line: Line, commands: Sequence[Command]) -> None:
        self._wire = wire
        self._line = line
        self._commands = commands

    def hear(self, *, patient: bool = False) -> list[Any]:
        """Return the answers. What a command complains of is raised; if patient, returned."""
        answers = self._wire.hear(self._line, self._commands)
        for n, answer in enumerate(answers):
            if isinstance(answer, Complaint):
                answers[n] = self._wire.translate(answer)
                if not patient:
                    raise answers[n] from answer
        return answers


class Wire:
    """Lends out connections, and asks."""

    def __init__(self, url: str, *, connections: int = 5, timeout: float = 5.0) -> None:
        self.url = url
        self.timeout = timeout
        self.connections = connections
        self.opened: Callable[[Line], None] = lambda _: None  # called with the first line
        self.on_fork: Callable[[], None] = lambda: None
        self._factory: Any = None
        self._here = threading.local()  # until when this thread waits
        self._reset()
        _open_wires.add(self)

    def _reset(self) -> None:
        self._idle: list[Line] = []
        self._change = threading.Condition()
        self._waiting = 0  # threads that wait for a line
        self._lent = 0  # lines there are, idle ones included
        self._opening = threading.RLock()
        self._is_open = False

    def __str__(self) -> str:
        return f"the store {safe_url(self.url)}"

    def reserve(self, connections: int) -> None:
        """Allow so many connections at once."""
        with self._change:
            self.connections = connections
            self._change.notify_all()

    def limit(self, seconds: float | None) -> None:
        """Let what this thread asks from now on take no longer than this in all; None: each as long as usual."""
        self._here.deadline = None if seconds is None else time.monotonic() + seconds

    def _left(self) -> float:
        deadline: float | None = getattr(self._here, "deadline", None)
        return self.timeout if deadline is None else max(min(deadline - time.monotonic(), self.timeout), 0.001)

    # -- asking ----------------------------------------------------------------------------------------------

    def ask(self, command: Command) -> Any:
        """Send one command, and return its answer or raise what is wrong."""
        return self.send_all((command,)).hear()[0]

    def ask_all(self, commands: Sequence[Command], *, patient: bool = False) -> list[Any]:
        """Send commands in one go, and return their answers. What one of them complains of is raised; if patient, returned."""
        return self.send_all(commands).hear(patient=patient) if commands else []

    def send_all(self, commands: Sequence[Command]) -> Asked:
        """Send commands in one go: their answers are to be heard."""
        shield.up()
        try:
            line = self._take()
            try:
                line.be_patient(self._left())
                line.send(b"".join([_pack(command) for command in commands]))
            except BaseException as error:
                self._drop(line)  # nobody knows what is still on the way
                if isinstance(error, BROKEN):
                    raise self.translate(error) from error
                raise
            return Asked(self, line, commands)
        finally:
            shield.down()

    def hear(self, line: Line, commands: Sequence[Command]) -> list[Any]:
        """Return the answers to what was sent."""
        shield.up()
        try:
            try:
                answers = [line.read() for _ in commands]
                unknown = [n for n, a in enumerate(answers) if isinstance(a, Complaint) and a.args[0].startswith("NOSCRIPT")]
                if unknown:
                    for n, answer in zip(unknown, _say_in_full(line, [commands[n] for n in unknown]), strict=True):
                        answers[n] = answer
            except BaseException as error:
                self._drop(line)  # nobody knows what is still on the way
                if isinstance(error, BROKEN):
                    raise self.translate(error) from error
                raise
            self._give(line)
            return answers
        finally:
            shield.down()

    # -- lending ---------------------------------------------------------------------------------------------

    def _take(self) -> Line:
        while True:
            try:
                line = self._idle.pop()
            except IndexError:
                found = self._take_place()
                if found is None:
                    return self._dial_for_place()
                line = found
            if line.is_quiet():
                return line
            self._drop(line)  # it was cut while it lay idle

    def _take_place(self) -> Line | None:
        """Wait for a line, or for the right to open one (None)."""
        patience = self._left()
        deadline = time.monotonic() + patience
        with self._change:
            self._waiting += 1
            try:
                # Who gives a line back first puts it there and then looks whether anybody waits.
                while not self._idle:
                    if self._lent < self.connections:
                        self._lent += 1
                        return None
                    if not self._change.wait(deadline - time.monotonic()):
                        raise StoreUnavailable(
                            f"{self}: all {self.connections} connections of this process were in use for {patience:.2g} s. "
                            "Nothing was written: allow more (connections=), or use fewer threads.",
                            connections=self.connections,
                        )
                return self._idle.pop()
            finally:
                self._waiting -= 1

    def _dial_for_place(self) -> Line:
        try:
            return self.dial()
        except BaseException:
            self._free_place()
            raise

    def _free_place(self) -> None:
        with self._change:
            self._lent -= 1
            self._change.notify()

    def _give(self, line: Line) -> None:
        self._idle.append(line)
        if self._waiting:
            with self._change:
                self._change.notify()

    def _drop(self, line: Line) -> None:
        line.close()
        self._free_place()

    def dial(self) -> Line:
        """Open a connection. The first one looks whether this is a store that we can use."""
        try:
            if self._is_open:
                return Line(self._make())
            with self._opening:
                line = Line(self._make())
                if not self._is_open:
                    try:
                        self.opened(line)
                    except BaseException:
                        line.close()
                        raise
                    self._is_open = True
                return line
        except (OSError, exceptions.RedisError, Complaint, hiredis.HiredisError) as error:
            raise self.translate(error, sent=False) from error

    def _make(self) -> Any:
        if self._factory is None:
            options: dict[str, Any] = {"retry": Retry(NoBackoff(), 0), "protocol": 2, "health_check_interval": 0}
            try:
                self._factory = _pools.from_url(self.url, **options)
            except (ValueError, TypeError, exceptions.RedisError) as error:
                raise ConfigError(f"{safe_url(self.url)!r} is no Redis URL: {error}") from None
            for option in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
                path = self._factory.connection_kwargs.get(option)
                if path and not os.path.exists(path):
                    self._factory = None
                    raise ConfigError(f"{safe_url(self.url)!r}: there is no file {path}, which {option} names")
        left = self._left()
        limits = {"socket_timeout": left, "socket_connect_timeout": left}
        # Not make_connection(): that counts all it ever made, and stops at a hundred.
        return self._factory.connection_class(**{**self._factory.connection_kwargs, **limits})

    def close(self) -> None:
        """Hang up all connections that nobody uses. Asking again opens new ones."""
        with self._change:
            while self._idle:
                self._idle.pop().close()
                self._lent -= 1
            self._is_open = False

    def __del__(self) -> None:
        for line in getattr(self, "_idle", ()):
            line.close()

    def after_fork(self) -> None:
        """Forget what belongs to the parent."""
        _inherited.extend((*self._idle, self._factory))
        self._factory = None
        self._here = threading.local()
        self._reset()
        self.on_fork()

    # -- in plain words --------------------------------------------------------------------------------------

    def translate(self, error: Exception, *, sent: bool = True) -> StoreError:
        """Say in one line what happened, why, and what to do. What was `sent` may have been done, though there was no answer."""
        if isinstance(error, StoreError):
            return error
        text = " ".join(str(error).split())
        if isinstance(error, Complaint | exceptions.ResponseError | exceptions.AuthenticationError):
            return self._complaint(text)
        if isinstance(error, exceptions.BusyLoadingError):
            return self._complaint(f"LOADING {text}")
        end = "What was asked may have been done all the same." if sent else "Nothing was written."
        tls = self.url.startswith("rediss:")
        if isinstance(error, exceptions.TimeoutError | TimeoutError):
            plain = " (or it does not speak TLS: then its address begins with redis:)" if tls and not sent else ""
            return StoreUnavailable(
                f"{self} did not answer in time: it is busy, frozen or cut off{plain}. {end} Try again later."
            )
        for word, saying in _REFUSALS.items():
            if word in text:
                return StoreUnavailable(f"{self} {saying.format(text)}. {end}")
        why = "is it running, and is the address right?"
        if not sent and not tls and isinstance(error.__cause__ or error, ConnectionResetError):
            why = "it hung up at once. Perhaps it wants TLS: then its address begins with rediss:"
        return StoreUnavailable(f"{self} cannot be reached ({text}): {why} {end}")

    def _complaint(self, text: str) -> StoreError:
        for words, kind, saying in _COMPLAINTS:
            if any(word in text for word in words):
                return kind(f"{self} {saying.format(text)}")
        return StoreError(f"{self} complains: {text}")


#: What keeps a connection from being made.
_REFUSALS = {
    "max number of clients": "takes no more connections ({}): raise its maxclients, or use fewer connections",
    "CERTIFICATE_VERIFY_FAILED": (
        "has a certificate that is not trusted here ({}): name who signed it, such as ?ssl_ca_certs=/path/to/ca.pem"
    ),
}

#: What a server says, inside a script or not, and what it means.
_COMPLAINTS: tuple[tuple[tuple[str, ...], type[StoreError], str], ...] = (
    (("OOM ",), StoreFull, "has no memory left ({}). Nothing was written: raise its maxmemory, or remove something."),
    (("READONLY",), StoreReadOnly, "is a replica and cannot be written to. Nothing was written: use its primary's address."),
    (("MISCONF",), StoreReadOnly, "cannot save to its disk and takes no writes ({}). Nothing was written: see its log."),
    (("NOAUTH", "WRONGPASS", "invalid username-password", "Authentication"), StoreUnavailable,
     "does not let us in ({}): check the user and the password in the URL."),
    (("NOPERM", "ACL failure", "no permissions", "can't run this command"), StoreUnavailable,
     "does not let this user do that ({}): the commands and keys that Laneway needs are in docs/redis.md."),
    (("DB index is out of range",), StoreUnavailable,
     "has no database of that number ({}): use a lower one at the end of the address, such as /0."),
    (("WRONGTYPE",), StoreCorrupt, "has a key of a type that Laneway did not give it ({}). Remove it, or use another database."),
    (("LOADING",), StoreUnavailable, "is still loading its data. Nothing was written: try again in a moment."),
    (("BUSY ",), StoreBusy, "is held up by somebody's script ({}). Nothing was written."),
    (("NOREPLICAS", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN"), StoreUnavailable,
     "takes nothing just now ({}). Nothing was written."),
)  # fmt: skip


def _talk(line: Line, commands: Sequence[Command]) -> list[Any]:
    line.send(b"".join([_pack(command) for command in commands]))
    return [line.read() for _ in commands]


def _say_in_full(line: Line, commands: Sequence[Command]) -> list[Any]:
    """Send scripts that the server does not know, and ask again: nothing of that has happened."""
    digests = {str(command[1]) for command in commands}
    _talk(line, [("SCRIPT", "LOAD", text_of(digest)) for digest in digests])
    return _talk(line, commands)


def _after_fork_in_child() -> None:
    for wire in list(_open_wires):
        wire.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
