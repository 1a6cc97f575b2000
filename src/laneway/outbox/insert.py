"""Rows for the outbox, written on the user's connection, in the user's transaction.

An insert and nothing else: the role of a web program needs no other right. It sends no notification and takes no lock.

Enters: jobs, and a user's connection.  Leaves: rows.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from laneway.core.job import Job
from laneway.errors import NoOutbox, StoreReadOnly
from laneway.outbox.database import OutboxURL, open_database
from laneway.transactions.connection import UserConnection, complaint
from laneway.transactions.identity import identity
from laneway.transactions.job_json import write_job
from laneway.transactions.steps import Aside, Ask, Look, Steps

__all__ = ["Outbox", "OutboxURL"]

#: The most rows in a statement: drivers and databases allow 32,000 values and more.
AT_ONCE = 500


class Outbox:
    """An app's outbox, as its enqueues see it."""

    def __init__(self, url: OutboxURL) -> None:
        self.url = url
        self._known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # the databases of sessions of servers
        self._ours = ""  # the outbox's database

    def is_in(self, connection: UserConnection) -> Steps[bool]:
        """Return whether a connection leads to the database of the outbox. A session is asked once."""
        if connection.database != self.url.kind:
            return False
        session = None if self.url.kind == "sqlite" else (yield Look(_session))  # a file is known without asking
        if session is not None and self._ours and self._known.get(session) == self._ours:
            return True
        found = yield from identity(connection)
        if found is not None and found != self._ours:
            yield Aside(self._look)  # the server may have been started anew, or the file replaced
        if found is None or found != self._ours:
            return False
        if session is not None:
            self._known[session] = found
        return True

    def _look(self) -> None:
        with closing(open_database(self.url)) as database:
            self._ours = database.identity()

    def insert(self, connection: UserConnection, jobs: Sequence[Job]) -> Steps[list[str | None]]:
        """Insert a row for each job, in order. Whether another job prevents one is not known before it is relayed: ""."""
        texts = [write_job(job) for job in jobs]
        try:
            for start in range(0, len(texts), AT_ONCE):
                some = texts[start : start + AT_ONCE]
                marks = ", ".join(["(?)"] * len(some))
                yield Ask(f"insert into {self.url.schema}laneway_outbox (job) values {marks}", some)  # noqa: S608 - checked names
        except Exception as error:
            code, said = complaint(error)
            if code == "42P01" or "no such table: laneway_outbox" in said:
                raise NoOutbox.of(connection) from error
            if code == "25006":
                raise StoreReadOnly(
                    f"your transaction is read-only, and a job is a row ({said}): enqueue in one that may write"
                ) from error
            raise  # it is about the user's transaction
        return [""] * len(jobs)


def _session(connection: UserConnection) -> object:
    return connection.session
