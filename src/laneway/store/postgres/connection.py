"""One connection to the server (a line), and its deadline for answers.

psycopg brings libpq. Its cursors are not used: they cost several times as much, and have no time limit for an answer. Values are
sent as text or bytes, and the server converts them to the types that the statement needs. Rows come back in binary.

Enters: statements.  Leaves: rows.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import select
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer

from laneway.store.watch import Watch

__all__ = [
    "Rows",
    "Broken",
    "PostgresError",
    "PostgresConnection",
    "TooLate",
    "Statement",
    "bigint",
    "bigints",
    "bytea",
    "encoded",
    "encoded_name",
    "integers",
    "names",
    "smallint",
    "smallints",
    "texts",
]

#: A text and its values.
Statement = tuple[str, Sequence[Any]]

#: If answers usually come this fast, the thread polls for them, seconds. On the same machine an exchange with its commit on disk
#: takes less.
QUICK = 0.000_5
#: After these the server ends the session.
_FATAL = ("FATAL", "PANIC")
# Members of an enum are looked up here once: each lookup takes as long as a call.
_OK, _SYNC = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK), pq.ExecStatus.PIPELINE_SYNC
_TEXT, _BINARY, _ALIVE, _IDLE = pq.Format.TEXT, pq.Format.BINARY, pq.ConnStatus.OK, pq.TransactionStatus.IDLE
_WAITS_FOR = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}


class Broken(Exception):
    """The connection is broken, or the answer did not come in time."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code  #: the SQLSTATE of the server's last message, if there was one


class TooLate(Broken):
    """The answer did not come in time."""


class PostgresError(Exception):
    """The server replied with an error."""

    def __init__(self, code: str, said: str, more: str = "") -> None:
        super().__init__(f"{said}. {more}" if more else said)
        self.code = code  #: its SQLSTATE
        self.said = said  #: its message, without details and hints


class Rows(NamedTuple):
    """The answer to a statement."""

    rows: list[Any]
    number: int  #: of rows that were changed, or are here


#: Return a number in the server's binary format.
smallint, bigint = struct.Struct(">h").pack, struct.Struct(">q").pack


def bigints(values: Sequence[int]) -> bytes:
    """Return an array of numbers."""
    return _numbers(20, "q", 8, values)


def integers(values: Sequence[int]) -> bytes:
    """Return an array of small numbers."""
    return _numbers(23, "i", 4, values)


def smallints(values: Sequence[int]) -> bytes:
    """Return an array of very small numbers."""
    return _numbers(21, "h", 2, values)


def texts(values: Sequence[str | None]) -> bytes:
    """Return an array of texts."""
    return _array(25, [None if value is None else encoded(value) for value in values])


def bytea(values: Sequence[bytes]) -> bytes:
    """Return an array of bytes."""
    return _array(17, values)


def _numbers(kind: int, letter: str, size: int, values: Sequence[int]) -> bytes:
    number = len(values)
    if not number:
        return _nothing(kind)
    return _layout(letter, number)(1, 1, kind, number, 1, *[part for value in values for part in (size, value)])


@functools.lru_cache(1000)
def _layout(letter: str, number: int) -> Callable[..., bytes]:
    """Return what packs an array of so many numbers, each with its size in front."""
    return struct.Struct(">iiiii" + f"i{letter}" * number).pack


def _array(kind: int, values: Sequence[bytes | None]) -> bytes:
    if not values:
        return _nothing(kind)
    parts = [part for value in values for part in ((_size(len(value)), value) if value is not None else (_NULL,))]
    return b"".join([_head(1, 1, kind, len(values), 1), *parts])


@functools.cache
def _nothing(kind: int) -> bytes:
    """Return an empty array."""
    return struct.pack(">iii", 0, 0, kind)


_size, _head, _NULL = struct.Struct(">i").pack, struct.Struct(">iiiii").pack, struct.pack(">i", -1)


def encoded(value: str) -> bytes:
    """Return a text as the server reads it: it has no NUL, and libpq would take one for the end."""
    return value.replace("\0", "\ufffd").encode()


#: `encoded` for names, and `texts` for a tuple of names, which are few and used often: so the results are cached.
encoded_name, names = functools.lru_cache(1000)(encoded), functools.lru_cache(1000)(texts)


def _value(value: Any) -> bytes:
    """Return a value as the server reads it."""
    if isinstance(value, str):
        return encoded(value)
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return repr(value).encode()  # of a number


class PostgresConnection:
    """One connection. A pool counts it first; then it is opened."""

    server: pq.abc.PGconn  #: libpq's connection, once it was opened

    def __init__(self) -> None:
        self.is_open = False
        self.is_closed = False
        self.until = 0.0  #: the deadline for answers, by the monotonic clock
        self.thread = threading.get_ident()  #: the thread that last took it from the pool
        self._pid = os.getpid()
        self._server: pq.abc.PGconn | None = None  # the same, until it is closed
        self._prepared: set[str] = set()  # the statements that the server knows
        self._sent: deque[list[str]] = deque()  # what was sent and not read
        self._loader = Transformer()

    def open(self, addresses: Sequence[bytes], until: float) -> None:
        """Connect to the first of these addresses that accepts. Each has a part of the time, so that a dead one leaves some."""
        for number, address in enumerate(addresses, 1):
            now = time.monotonic()
            self.until = now + (until - now) / (len(addresses) - number + 1)
            try:
                self._connect(address)
                break
            except Broken:
                if number == len(addresses):
                    raise
        self.until = until
        server = self.server
        server.nonblocking = 1
        server.enter_pipeline_mode()
        self._watch = Watch(server.socket, QUICK)
        self.is_open = True

    def _connect(self, address: bytes) -> None:
        server = self._server = self.server = pq.PGconn.connect_start(address)
        state, waits_for = pq.PollingStatus.WRITING, select.POLLOUT  # poll first: libpq's first step has no time limit
        while server.status != pq.ConnStatus.BAD and state != pq.PollingStatus.FAILED:
            self._wait(server.socket, waits_for)
            state = pq.PollingStatus(server.connect_poll())
            if state == pq.PollingStatus.OK:
                return
            waits_for = _WAITS_FOR.get(state, 0)
        raise Broken(server.get_error_message().strip())

    @property
    def version(self) -> int:
        """The server's version, such as 150018."""
        return self.server.server_version

    def is_quiet(self) -> bool:
        """Return whether the socket has nothing to read: neither a message nor the end of the connection."""
        return self._watch.is_quiet()

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return int(self.server.socket)

    def close(self) -> None:
        """Close the connection. One of a parent process is only forgotten: its session goes on."""
        server, self._server = self._server, None
        self.is_closed = True
        if server is not None and self._pid == os.getpid():
            with contextlib.suppress(psycopg.Error):
                server.finish()

    # -- asking ----------------------------------------------------------------------------------------------

    def send(self, statements: Sequence[Statement], *, prepare: bool = False) -> None:
        """Send statements in one go, as one transaction unless one is open: their answers must be read."""
        server = self.server
        steps: list[str] = []  # what each answer is of: a statement's name that is prepared by it, or nothing
        try:
            for text, values in statements:
                given = [value if value is None or isinstance(value, bytes) else _value(value) for value in values]
                formats = [_BINARY if isinstance(value, bytes) else _TEXT for value in values]
                if not prepare:
                    server.send_query_params(text.encode(), given, None, formats, _BINARY)
                else:
                    name = _name(text)
                    if text not in self._prepared and text not in steps:
                        server.send_prepare(name, text.encode())
                        steps.append(text)
                    server.send_query_prepared(name, given, formats, _BINARY)
                steps.append("")
            server.pipeline_sync()
            self._flush()
        except psycopg.Error as error:
            self._read_last_words()
            raise Broken(str(error)) from error
        self._sent.append(steps)

    def read(self) -> list[Rows]:
        """Return the answers to the statements that were sent first; raise the first error among them."""
        steps = self._sent.popleft()
        trouble: PostgresError | None = None
        answers: list[Rows] = []
        for step in steps:
            result = self._result()
            if result is None:
                raise Broken("an answer is missing")
            while self._result() is not None:
                pass
            if result.status in _OK:
                if step:
                    self._prepared.add(step)
                else:
                    answers.append(self._answer(result))
            elif trouble is None and result.status != pq.ExecStatus.PIPELINE_ABORTED:
                trouble = _complaint(result)
        while (end := self._result()) is None or end.status != _SYNC:
            if end is not None and trouble is None:
                trouble = _complaint(end)  # of the commit: all statements had been answered
        if trouble is not None:
            raise trouble
        return answers

    def ask(self, text: str, values: Sequence[Any] = (), *, prepare: bool = False) -> list[Any]:
        """Send one statement, and return its rows."""
        self.send([(text, values)], prepare=prepare)
        return self.read()[0].rows

    def run_script(self, text: str) -> None:
        """Run a text of many statements, without values."""
        server = self.server
        try:
            server.exit_pipeline_mode()
            server.send_query(text.encode())
            self._flush()
            trouble: PostgresError | None = None
            while (result := self._result()) is not None:
                if result.status not in (*_OK, pq.ExecStatus.EMPTY_QUERY) and trouble is None:
                    trouble = _complaint(result)
            if trouble is not None:
                raise trouble
        except psycopg.Error as error:
            raise Broken(str(error)) from error
        finally:
            if server.status == pq.ConnStatus.OK:
                server.enter_pipeline_mode()

    def notifications(self) -> int:
        """Return the number of notifications that have come, without waiting."""
        server = self.server
        try:
            server.consume_input()
            number = 0
            while server.notifies() is not None:
                number += 1
        except psycopg.Error as error:
            raise Broken(str(error)) from error
        return number

    def in_transaction(self) -> bool:
        """Return whether a transaction is open, or may be."""
        return self.server.transaction_status != _IDLE

    def is_waiting(self) -> bool:
        """Return whether something was sent whose answer was not read."""
        return bool(self._sent)

    def is_done(self) -> bool:
        """Return whether everything was answered, and no transaction is open."""
        return not self._sent and self.server.transaction_status == _IDLE

    # -- at the socket ---------------------------------------------------------------------------------------

    def _answer(self, result: pq.abc.PGresult) -> Rows:
        number = result.ntuples
        if not number:
            return Rows([], result.command_tuples or 0)
        self._loader.set_pgresult(result)
        return Rows(self._loader.load_rows(0, number, tuple), result.command_tuples or 0)

    def _result(self) -> pq.abc.PGresult | None:
        server = self.server
        try:
            while server.is_busy():
                if not self._watch.wait(self.until):
                    raise TooLate("timed out")
                server.consume_input()
            result = server.get_result()
        except psycopg.Error as error:
            self._read_last_words()
            raise Broken(str(error)) from error
        if server.status == _ALIVE if result is None else result.status in _OK or result.status == _SYNC:
            return result
        return self._checked(result)

    def _read_last_words(self) -> None:
        """Raise Broken with what the server said before it ended the session, if it said anything."""
        with contextlib.suppress(psycopg.Error):
            while (result := self.server.get_result()) is not None:
                self._checked(result)

    def _checked(self, result: pq.abc.PGresult | None) -> pq.abc.PGresult | None:
        server = self.server
        if result is None:
            if server.status == pq.ConnStatus.BAD:
                raise Broken(server.get_error_message().strip())
        elif result.status == pq.ExecStatus.FATAL_ERROR:
            fields = pq.DiagnosticField
            severity = result.error_field(fields.SEVERITY_NONLOCALIZED) or result.error_field(fields.SEVERITY)  # of a pooler
            if _text(severity) in _FATAL or server.status == pq.ConnStatus.BAD:
                raise Broken(str(_complaint(result)), _complaint(result).code)
        return result

    def _flush(self) -> None:
        server = self.server
        while server.flush():
            self._wait(server.socket, select.POLLIN | select.POLLOUT)
            server.consume_input()

    def _wait(self, socket: int, events: int) -> None:
        poll = select.poll()
        poll.register(socket, events)
        if not poll.poll(max(self.until - time.monotonic(), 0) * 1000):
            raise TooLate("timed out")


@functools.cache
def _name(text: str) -> bytes:
    """Return the name of a prepared statement. A pooler shares sessions: one name is one text for all clients."""
    return b"laneway_" + hashlib.blake2s(text.encode(), digest_size=12).hexdigest().encode()


def _complaint(result: pq.abc.PGresult) -> PostgresError:
    fields = pq.DiagnosticField
    said = (result.error_field(fields.MESSAGE_PRIMARY) or result.error_message).decode(errors="replace")
    more = [_text(result.error_field(field)) for field in (fields.MESSAGE_DETAIL, fields.MESSAGE_HINT)]
    return PostgresError(_text(result.error_field(fields.SQLSTATE)), said, " ".join(filter(None, more)))


def _text(message: bytes | None) -> str:
    return " ".join((message or b"").decode(errors="replace").split())
