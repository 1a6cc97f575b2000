"""The wire: borrows connections, opens them, and puts errors into plain words.

Enters: statements.  Leaves: rows.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from psycopg import conninfo

from laneway import shield
from laneway.config import IN_PASSWORDS, safe_url
from laneway.errors import (
    ConfigError,
    SchemaError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from laneway.store.pool import Pool
from laneway.store.postgres.connection import Broken, PostgresConnection, PostgresError, Rows, Statement, TooLate

__all__ = ["AGAIN", "FORGOTTEN", "Lent", "Sent", "PostgresWire"]

_open_wires: weakref.WeakSet[PostgresWire] = weakref.WeakSet()
_inherited: list[object] = []  # connections of a parent process: closing them would end its sessions

#: Errors after which nothing was written, and the call may be repeated: a deadlock, a serialization failure, a lock that was not
#: free in time, no room for locks, a unique key that another transaction has just inserted.
AGAIN = frozenset(("40P01", "40001", "55P03", "53200", "23505"))
#: A prepared statement that is not there, or is there already: a pooler gave us the session of another client.
FORGOTTEN = frozenset(("26000", "42P05"))
#: The address leads to another server now, or to tables of another version: idle connections may still lead to the old server.
ELSEWHERE = ("25006", "42883", "42P01", "3F000")
#: The message for a call that was sent and got no answer.
MAYBE = "What was asked may have been done all the same."


class Lent:
    """`with wire.lend() as line:` borrows a connection. If the block fails, it is closed: answers may be on their way."""

    _may_wait = False  # answers may be left when the block ends: they are read later

    def __init__(self, wire: PostgresWire, until: float, lines: list[PostgresConnection] | None = None) -> None:
        wire.calls += 1
        self._wire = wire
        self._until = until
        self._lines: list[PostgresConnection] = [] if lines is None else lines  # the connection, if there is one

    def __enter__(self) -> PostgresConnection:
        shield.up()
        try:
            line = self._lines[0] if self._lines else self._wire.pool.lend(self._lines, self._until)
            if not line.is_open:
                self._wire.open(line, self._until)
            line.until = self._until
        except BaseException as error:
            self._drop()
            shield.down()
            if isinstance(error, Broken | PostgresError):
                raise self._wire.translate(error, sent=False) from error
            raise
        return line

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            elsewhere = isinstance(error, PostgresError) and error.code in ELSEWHERE
            usable = (error is None or isinstance(error, PostgresError)) and not elsewhere
            if usable and self._lines[0].is_done():
                self._wire.pool.give(self._lines)
            elif not (usable and self._may_wait and self._lines[0].is_waiting()):
                self._drop()
            if elsewhere:
                self._wire.close()
        finally:
            shield.down()
        if isinstance(error, Broken | PostgresError):
            raise self._wire.translate(error) from error

    def _drop(self) -> None:
        for line in self._lines:
            line.close()
        self._lines.clear()
        self._wire.pool.tell()


class Sent(Lent):
    """Statements that were sent; their answers can be read once, in this order. Left unread, the connection is closed."""

    _may_wait = True

    def send(self, *transactions: Sequence[Statement], prepare: bool) -> Sent:
        """Send statements: each of these lists is a transaction."""
        with self as line:
            for statements in transactions:
                line.send(statements, prepare=prepare)
        return self

    def hear(self, until: float | None = None) -> list[Rows]:
        """Return the answers of the first transaction that is left."""
        if not self._lines:
            raise StoreUnavailable(f"{self._wire}: this answer was read before, or was lost. {MAYBE}")
        self._until = time.monotonic() + self._wire.timeout if until is None else until
        with self as line:
            return line.read()

    def behind(self, until: float) -> Sent:
        """Return one for statements that the server does after these: on the same connection, while answers are unread."""
        return Sent(self._wire, until, self._lines or None)

    def fileno(self) -> int:
        """Return the descriptor of its connection."""
        return self._lines[0].fileno()

    def comes_at_once(self) -> bool:
        """Return whether an answer is here."""
        return not self._lines[0].is_quiet()

    def give_up(self) -> StoreError:
        """Close the connection; return the error of an answer that did not come in time."""
        self._drop()
        return self._wire.translate(TooLate("timed out"))


class PostgresWire:
    """The connections of one store in this process."""

    def __init__(self, url: str, *, connections: int = 5, timeout: float = 5.0) -> None:
        self.url = url
        self.timeout = timeout  #: the longest an answer may take if no deadline is given, seconds
        self.opened: Callable[[PostgresConnection], None] = lambda _: None  # called with the first line
        self.on_fork: Callable[[], None] = lambda: None
        self.pool = Pool(str(self), connections, PostgresConnection)  #: all connections, except the one that listens
        self._addresses: Sequence[bytes] = ()
        self.is_open = False
        self.calls = 0  #: how often a connection was asked for
        _open_wires.add(self)

    def __str__(self) -> str:
        return f"the store {safe_url(self.url)}"

    def lend(self, timeout: float | None = None) -> Lent:
        """Return a connection, to be used in a `with`, that takes at most this long."""
        return Lent(self, time.monotonic() + (self.timeout if timeout is None else timeout))

    def sending(self, timeout: float | None = None) -> Sent:
        """Return what sends statements whose answers are read later."""
        return Sent(self, time.monotonic() + (self.timeout if timeout is None else timeout))

    def sending_now(self, timeout: float) -> Sent | None:
        """Return what sends on an idle connection, without waiting for one; None: there is none."""
        lines: list[PostgresConnection] = []
        return Sent(self, time.monotonic() + timeout, lines) if self.pool.lend_idle(lines) is not None else None

    def dial(
        self, address: str | None = None, *, opened: Callable[[PostgresConnection], None] | None = None
    ) -> PostgresConnection:
        """Return an open connection that does not count among those of the pool."""
        line = PostgresConnection()
        try:
            self.open(line, time.monotonic() + self.timeout, address, opened)
        except BaseException as error:
            line.close()
            if isinstance(error, Broken | PostgresError):
                raise self.translate(error, sent=False) from error
            raise
        line.until = time.monotonic() + self.timeout
        return line

    def open(
        self,
        line: PostgresConnection,
        until: float,
        address: str | None = None,
        opened: Callable[[PostgresConnection], None] | None = None,
    ) -> None:
        """Open a connection. The first one checks whether the database is a usable store."""
        line.open(self.read(address) if address else self._addresses or self.read(self.url), until)
        if line.ask("show default_transaction_isolation") != [("read committed",)]:  # else a pooler's session is left as it is
            line.ask("set session characteristics as transaction isolation level read committed")
        if not self.is_open and address is None:
            (opened or self.opened)(line)
            self.is_open = True

    def read(self, url: str) -> Sequence[bytes]:
        """Return a URL as libpq takes it, with what Laneway adds: one address for each host."""
        try:
            given = conninfo.conninfo_to_dict(url)
            ours = {"application_name": "laneway", "client_encoding": "UTF8", "keepalives_idle": "30", "keepalives_interval": "5"}
            addresses = [conninfo.make_conninfo("", **{**ours, **given, **host}).encode() for host in _hosts(given)]
        except Exception:  # noqa: BLE001 - its message may have a part of the password in it
            raise ConfigError(f"{safe_url(url)!r} is not a PostgreSQL URL. {IN_PASSWORDS}, % as %25") from None
        if url == self.url:
            self._addresses = addresses
        return addresses

    def close(self) -> None:
        """Close all connections that are not in use. The next use opens new ones."""
        self.pool.close()
        self.is_open = False

    def __del__(self) -> None:
        if hasattr(self, "pool"):
            self.pool.close()

    def after_fork(self) -> None:
        """Forget the parent's connections."""
        _inherited.extend(self.pool.idle)
        self.pool = Pool(str(self), self.pool.most, PostgresConnection)
        self.is_open = False
        self.on_fork()

    # -- in plain words --------------------------------------------------------------------------------------

    def translate(self, error: Exception, *, sent: bool = True) -> StoreError:
        """Return an error that says what happened, why, and what to do. If `sent`, the statement may have had its effect."""
        text = " ".join(str(error).split())
        if isinstance(error, PostgresError):
            for codes, kind, written, saying in _COMPLAINTS:
                if error.code.startswith(codes):
                    return kind(f"{self} {saying.format(text)}", written=written)
            return StoreError(f"{self} complains ({error.code}): {text}")
        end, written = (MAYBE, None) if sent else ("Nothing was written.", False)
        if isinstance(error, Broken) and error.code:
            return StoreUnavailable(f"{self} ended the session ({text}). {end} Try again.", written=written)
        if isinstance(error, TooLate) or "timed out" in text or "timeout expired" in text:
            return StoreUnavailable(
                f"{self} did not answer in time: it is busy, frozen or cut off. {end} Try again later.", written=written
            )
        for word, saying in _REFUSALS.items():
            if not sent and word in text:
                return StoreUnavailable(f"{self} {saying.format(text)}", written=False)
        return StoreUnavailable(
            f"{self} cannot be reached ({text}): is it running, and is the address right? {end}", written=written
        )


#: Reasons why a connection is refused.
_REFUSALS = {
    "too many clients": "takes no more connections ({}): raise its max_connections, or use fewer workers and connections.",
    "remaining connection slots": "takes no more connections ({}): raise its max_connections, or use fewer workers.",
    "authentication failed": "does not let us in ({}): check the user and the password.",
    "no password supplied": "does not let us in ({}): check the user and the password.",
    "no pg_hba.conf entry": "does not let us in ({}): see its pg_hba.conf.",
    "does not exist": "cannot be opened ({}): check the database and the user in the address.",
    "starting up": "is still starting. Nothing was written: try again in a moment.",
    "recovery mode": "is still starting, after a crash. Nothing was written: try again in a moment.",
    "accepting connections": "is still starting. Nothing was written: try again in a moment.",
    "shutting down": "is stopping. Nothing was written: try again in a moment.",
    "read-only": "has no primary ({}): wait for the end of a failover, or use the primary's address.",
    "certificate verify failed": "has a certificate that is not trusted here ({}): name the CA that signed it (sslrootcert=).",
}

#: Errors of a server, by how their codes begin: the error, whether something may have been written, the message.
_COMPLAINTS: tuple[tuple[tuple[str, ...], type[StoreError], bool | None, str], ...] = (
    (("53100", "53200", "54000"), StoreFull, False, "has no room left ({}). Nothing was written."),
    (("53300",), StoreUnavailable, False, "takes no more connections ({}). Nothing was written."),
    (("25006",), StoreReadOnly, False,
     "is read-only: a replica, perhaps after a failover. Nothing was written: use its primary's address ({})."),
    (("42501", "28"), StoreUnavailable, False,
     "does not let this user do that ({}). Nothing was written: the rights that Laneway needs are in docs/postgres.md."),
    (("LW003",), StoreUnavailable, False,
     "begins transactions at another level than READ COMMITTED ({}). Nothing was written: see docs/postgres.md, poolers."),
    (("42883", "42P01", "3F000", "42704"), SchemaError, False,
     "has no tables of this version ({}). Nothing was written: run laneway migrate, or upgrade Laneway here."),
    (("55P03", "40P01", "40001"), StoreBusy, False,
     "is busy: a lock was not free in time ({}). Nothing was written: `laneway doctor` names the transaction that holds it."),
    (("57014",), StoreBusy, False, "ended the statement ({}). Nothing was written: raise the statement_timeout of this user."),
    (("26000", "42P05"), StoreUnavailable, False,
     "is behind a pooler that keeps no prepared statements ({}). Nothing was written: add prepare=off to the address."),
    (("XX001", "XX002"), StoreCorrupt, False, "is damaged ({}). Nothing was written: see its log, and restore a backup."),
    (("08", "25", "40", "53", "55", "57", "58", "F0", "XX"), StoreUnavailable, False,
     "reported an error of its own ({}). Nothing was written: see its log, and try again."),
)  # fmt: skip


def _hosts(given: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the hosts of an address one by one: libpq has no time limit for each, and a dead one would hide the others."""
    names = [name for name in ("host", "hostaddr", "port") if given.get(name)]
    number = max((given[name].count(",") + 1 for name in names if name != "port"), default=1)
    if number == 1 or given.get("target_session_attrs") == "prefer-standby" or "load_balance_hosts" in given:
        return [{}]
    lists = {name: given[name].split(",") for name in names}
    return [{name: found[n] if len(found) > 1 else found[0] for name, found in lists.items()} for n in range(number)]


def _after_fork_in_child() -> None:
    for wire in list(_open_wires):
        wire.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
