"""The wire: sends commands to the server and reads the answers, one round trip at a time, with errors in plain words.

A caller may set a deadline: waiting for a connection, connecting, greeting, checking the store, sending and the answer all end
then. A connection that was cut while it was idle is replaced before anything is sent. After that nothing is sent twice: the
caller decides, since only the answer may be lost.

Enters: commands.  Leaves: answers.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
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
from laneway.store.pool import Pool
from laneway.store.redis.connection import BROKEN, Command, Complaint, Connection, hurried, pack
from laneway.store.redis.scripts import MOVED, text_of
from laneway.store.transfer import read_move

__all__ = ["Asked", "Command", "Complaint", "Connection", "Wire"]

#: How many times in a row a server may forget a script that it was just sent, before the call fails.
FORGETS = 5

_open_wires: weakref.WeakSet[Wire] = weakref.WeakSet()
_inherited: list[object] = []  # connections inherited over fork: never closed here, since that would end the parent's sessions

_pools: Any = ConnectionPool  # untyped


class _Address(Struct, frozen=True):
    """A parsed URL, as redis-py reads it."""

    kind: Any  #: the class of its connections
    options: dict[str, Any]
    greeting: tuple[Command, ...]


class Asked:
    """Commands that were sent, whose answers can be read once. If it is dropped unread, its connection is closed."""

    __slots__ = ("_commands", "_wire", "lines")

    def __init__(self, wire: Wire, commands: Sequence[Command]) -> None:
        self.lines: list[Connection] = []  #: the connection, until the answers were read
        self._wire = wire
        self._commands = commands

    def hear(self, *, patient: bool = False, until: float | None = None) -> list[Any]:
        """Return the answers. An error reply is raised; if patient, returned."""
        answers = self._read(until)
        for n, answer in enumerate(answers):
            if isinstance(answer, Complaint):
                answers[n] = self._wire.translate(answer)
                if not patient:
                    raise answers[n] from answer
        return answers

    def _read(self, until: float | None) -> list[Any]:
        wire = self._wire
        if not self.lines:
            raise StoreUnavailable(f"{wire}: this answer was read before, or was lost. {MAYBE}")
        shield.up()
        try:
            try:
                line = self.lines[0]
                line.until = time.monotonic() + wire.timeout if until is None else until
                answers = [line.read() for _ in self._commands]
                for _ in range(FORGETS):
                    unknown = [n for n, answer in enumerate(answers) if _is_unknown(answer)]
                    if not unknown:
                        break
                    for n, answer in zip(unknown, _say_in_full(line, [self._commands[n] for n in unknown]), strict=True):
                        answers[n] = answer
                wire.pool.give(self.lines)
            except BaseException as error:
                self.drop()
                if isinstance(error, BROKEN):
                    raise wire.translate(error) from error
                raise
            return answers
        finally:
            shield.down()

    def fileno(self) -> int:
        """Return the descriptor of its connection."""
        return self.lines[0].fileno()

    def comes_at_once(self) -> bool:
        """Wait for a moment; return whether an answer is here."""
        return self.lines[0].comes_at_once()

    def give_up(self) -> StoreError:
        """Close the connection; return the error of an answer that did not come in time."""
        self.drop()
        return self._wire.translate(TimeoutError("timed out"))

    def drop(self) -> None:
        """Close the connection, if it still has one: answers may be on their way."""
        for line in self.lines:
            line.close()
        self.lines.clear()
        self._wire.pool.tell()


class Wire:
    """Asks the server, on connections of its pool."""

    def __init__(self, url: str, *, connections: int = 5, timeout: float = 5.0) -> None:
        self.url = url
        self.timeout = timeout  #: the longest an answer may take if no deadline is given, seconds
        self.opened: Callable[[Connection], None] = lambda _: None  # called with the first line
        self.on_fork: Callable[[], None] = lambda: None
        self.pool = Pool(str(self), connections, Connection)  #: all connections, except those that wait for jobs
        self._address: _Address | None = None
        self._is_open = False
        _open_wires.add(self)

    def __str__(self) -> str:
        return f"the store {safe_url(self.url)}"

    # -- asking ----------------------------------------------------------------------------------------------

    def ask(self, command: Command, until: float | None = None) -> Any:
        """Send one command, and return its answer or raise an error."""
        until = time.monotonic() + self.timeout if until is None else until
        return self.send_all((command,), until).hear(until=until)[0]

    def ask_all(self, commands: Sequence[Command], *, patient: bool = False, until: float | None = None) -> list[Any]:
        """Send commands in one go, and return their answers. An error reply is raised; if patient, returned."""
        until = time.monotonic() + self.timeout if until is None else until
        return self.send_all(commands, until).hear(patient=patient, until=until) if commands else []

    def send_all(self, commands: Sequence[Command], until: float | None = None) -> Asked:
        """Send commands in one go: their answers must be read."""
        return self._send(commands, time.monotonic() + self.timeout if until is None else until)

    def send_now(self, commands: Sequence[Command], until: float) -> Asked | None:
        """Send commands on an idle connection, without waiting for one; None: there is none, and nothing was sent."""
        asked = self._send(commands, until, idle=True)
        return asked if asked.lines else None

    def _send(self, commands: Sequence[Command], until: float, *, idle: bool = False) -> Asked:
        asked = Asked(self, commands)
        shield.up()
        try:
            try:
                line = self.pool.lend_idle(asked.lines) if idle else self.pool.lend(asked.lines, until)
                if line is None:
                    return asked
                if not line.is_open:
                    self._open(line, until)
                line.wait_until(until)
                line.send(b"".join([pack(command) for command in commands]))
            except BaseException as error:
                asked.drop()
                if isinstance(error, BROKEN):
                    raise self.translate(error) from error
                raise
            return asked
        finally:
            shield.down()

    # -- connecting ------------------------------------------------------------------------------------------

    def dial(self, *, opened: Callable[[Connection], None] | None = None) -> Connection:
        """Return an open connection that does not count among those of the pool."""
        line = Connection()
        try:
            self._open(line, time.monotonic() + self.timeout, opened)
        except BaseException:
            line.close()
            raise
        return line

    def _open(self, line: Connection, until: float, opened: Callable[[Connection], None] | None = None) -> None:
        """Open a connection. The first one checks whether the database is a usable store."""
        address = self._address or self._read_url()
        try:
            line.open(address.kind(**address.options), address.greeting, until)
            if not self._is_open:
                (opened or self.opened)(line)
                self._is_open = True
        except (*BROKEN, exceptions.RedisError, Complaint) as error:
            raise self.translate(error, sent=False) from error

    def _read_url(self) -> _Address:
        given: dict[str, Any] = {"retry": Retry(NoBackoff(), 0), "protocol": 2, "health_check_interval": 0}
        try:
            found = _pools.from_url(self.url, **given)
        except (ValueError, TypeError, exceptions.RedisError) as error:
            raise ConfigError(f"{safe_url(self.url)!r} is not a Redis URL: {error}") from None
        options: dict[str, Any] = found.connection_kwargs
        for option in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
            path = options.get(option)
            if path and not os.path.exists(path):
                raise ConfigError(f"{safe_url(self.url)!r}: there is no file {path}, which {option} names")
        self._address = _Address(
            hurried(found.connection_class), {**options, "redis_connect_func": _no_greeting}, _greeting(options)
        )
        return self._address

    def close(self) -> None:
        """Close all connections that are not in use. The next command opens new ones."""
        self.pool.close()
        self._is_open = False

    def __del__(self) -> None:
        if hasattr(self, "pool"):
            self.pool.close()

    def after_fork(self) -> None:
        """Forget the parent's connections."""
        _inherited.extend(self.pool.idle)
        self.pool = Pool(str(self), self.pool.most, Connection)
        self._is_open = False
        self.on_fork()

    # -- in plain words --------------------------------------------------------------------------------------

    def translate(self, error: Exception, *, sent: bool = True) -> StoreError:
        """Return an error that says what happened, why, and what to do. If `sent`, the command may have had its effect."""
        if isinstance(error, StoreError):
            return error
        text = " ".join(str(error).split())
        end, written = (MAYBE, None) if sent else ("Nothing was written.", False)
        for word, saying in _REFUSALS.items():
            if word in text:
                return StoreUnavailable(f"{self} {saying.format(text)}. {end}", written=written)
        if isinstance(error, Complaint):
            return read_move(text[len(MOVED) :].encode()).refusal(self) if text.startswith(MOVED) else self._complaint(text)
        tls = self.url.startswith("rediss:")
        if isinstance(error, exceptions.TimeoutError | TimeoutError):
            plain = " (or it does not speak TLS: then its address begins with redis:)" if tls and not sent else ""
            return StoreUnavailable(
                f"{self} did not answer in time: it is busy, frozen or cut off{plain}. {end} Try again later.", written=written
            )
        why = "is it running, and is the address right?"
        if not sent and not tls and isinstance(error.__cause__ or error, ConnectionResetError):
            why = "it hung up at once. Perhaps it wants TLS: then its address begins with rediss:"
        return StoreUnavailable(f"{self} cannot be reached ({text}): {why} {end}", written=written)

    def _complaint(self, text: str) -> StoreError:
        for words, kind, written, saying in _COMPLAINTS:
            if any(word in text for word in words):
                return kind(f"{self} {saying.format(text)}", written=written)
        return StoreError(f"{self} complains: {text}")


#: The message for a call that was sent and got no answer.
MAYBE = "What was asked may have been done all the same."

#: Reasons why a connection is refused.
_REFUSALS = {
    "max number of clients": "takes no more connections ({}): raise its maxclients, or use fewer connections",
    "CERTIFICATE_VERIFY_FAILED": (
        "has a certificate that is not trusted here ({}): name the CA that signed it, such as ?ssl_ca_certs=/path/to/ca.pem"
    ),
}

#: Error replies of a server, from a script or not: the error, whether something may have been written, the message.
_COMPLAINTS: tuple[tuple[tuple[str, ...], type[StoreError], bool | None, str], ...] = (
    (("OOM ",), StoreFull, False, "has no memory left ({}). Nothing was written: raise its maxmemory, or remove something."),
    (("READONLY",), StoreReadOnly, False,
     "is a replica and cannot be written to. Nothing was written: use its primary's address."),
    (("MISCONF",), StoreReadOnly, False, "cannot save to its disk and takes no writes ({}). Nothing was written: see its log."),
    (("NOAUTH", "WRONGPASS", "invalid username-password", "Authentication"), StoreUnavailable, False,
     "does not let us in ({}): check the user and the password in the URL."),
    (("NOPERM", "ACL failure", "no permissions", "can't run this command"), StoreUnavailable, None,
     "does not let this user do that ({}): the commands and keys that Laneway needs are in docs/redis.md."),
    (("DB index is out of range",), StoreUnavailable, False,
     "has no database of that number ({}): use a lower one at the end of the address, such as /0."),
    (("WRONGTYPE",), StoreCorrupt, None,
     "has a key of a type that Laneway did not give it ({}). Remove it, or use another database."),
    (("LOADING",), StoreUnavailable, False, "is still loading its data. Nothing was written: try again in a moment."),
    (("BUSY ",), StoreBusy, False, "is blocked by a long script of another program ({}). Nothing was written."),
    (("NOREPLICAS", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN"), StoreUnavailable, False,
     "takes nothing just now ({}). Nothing was written."),
)  # fmt: skip


def _is_unknown(answer: Any) -> bool:
    """Return whether the server does not know the script that it was to run."""
    return isinstance(answer, Complaint) and answer.args[0].startswith("NOSCRIPT")


def _say_in_full(line: Connection, commands: Sequence[Command]) -> list[Any]:
    """Send scripts that the server does not know, and ask again: the first call had no effect.

    In one go, since the server may forget them again; and not by EVAL, which a user of ours need not be allowed.
    """
    loads: list[Command] = [("SCRIPT", "LOAD", text_of(digest)) for digest in {str(command[1]) for command in commands}]
    return line.talk([*loads, *commands])[len(loads) :]


def _greeting(options: dict[str, Any]) -> tuple[Command, ...]:
    """Return the commands that come first on a connection."""
    commands: list[Command] = [("CLIENT", "SETINFO", "LIB-NAME", "laneway")]
    user, password, name, database = (options.get(option) for option in ("username", "password", "client_name", "db"))
    if user or password:
        commands.insert(0, ("AUTH", *([user] if user else []), password or ""))
    if name:
        commands.append(("CLIENT", "SETNAME", name))
    if database:
        commands.append(("SELECT", str(database)))
    return tuple(commands)


def _no_greeting(_: object) -> None:
    """Do nothing: redis-py must only connect, since it would wait for each answer anew."""


def _after_fork_in_child() -> None:
    for wire in list(_open_wires):
        wire.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

# Modules that redis-py and Python import at the first connection are imported now, under the app's lock, which excludes forks: an
# import that another thread has begun would never end in a forked child.
_pools.from_url("redis://localhost").connection_class()
"".encode("idna")
