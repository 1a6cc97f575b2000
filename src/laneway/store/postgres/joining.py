"""Pushing, and finishing a claim, in the transaction of a user's connection to the same database; and the inbox, where some jobs
wait for the commit.

A push is one statement, `select * from laneway.enqueue(…)`, with one value: see `functions/enqueue.sql`. Jobs with a unique key
and payloads must be compared with other rows: they go to the inbox. After the commit the next client that finds them there (an
idle worker, or any turn or reading of a store) inserts them. One statement finishes a claim too, see `functions/finish.sql`.

Enters: jobs or a claim, and a user's connection.  Leaves: rows.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.core.job import Claim, Gather, Job
from laneway.core.outcome import FinishMark
from laneway.errors import (
    BadOption,
    ClaimLost,
    NotSameDatabase,
    SchemaError,
    StoreBusy,
    StoreReadOnly,
    StoreUnavailable,
    WrongQueue,
)
from laneway.logs import log
from laneway.store.postgres.statements import VERSION
from laneway.store.sql.push import push, settle_kind
from laneway.transactions.connection import UserConnection, complaint
from laneway.transactions.identity import POSTGRES, identity
from laneway.transactions.job_json import as_json
from laneway.transactions.steps import Aside, Ask, Look, Steps

if TYPE_CHECKING:
    from laneway.store.postgres.store import PostgresStore
    from laneway.store.postgres.turn import PostgresTurn

__all__ = ["Inbox", "Joining"]

#: The most jobs that leave the inbox in one transaction.
AT_ONCE = 1000
#: A delay for a job that has waited in the inbox: its time is what `at` says.
NO_DELAY = -(1 << 62)

#: What a call waits for in vain.
_IN_THE_WAY = {
    "enqueue": "another open transaction has a job with the same id, or a copy is about to close the store",
    "finish": "another open transaction, of this run on another connection, is about to finish the same job",
}

_encode = msgspec.json.Encoder().encode
_gather = msgspec.json.Decoder(Gather)


class Joining:
    """Pushes jobs in transactions of users."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # the databases of users' sessions
        self._ours = ""  # the store's database
        self._kinds: set[tuple[str, bool]] = set()  # queues that are there, and whether each is a collector's

    def push(self, connection: UserConnection, jobs: Sequence[Job]) -> Steps[list[str | None]]:
        """Insert jobs in the transaction of a user's connection. See the contract."""
        if not (yield from self._is_same(connection)):
            raise NotSameDatabase.of(connection, self._store)
        kinds = {(job.queue, job.gather is not None) for job in jobs}
        if not kinds <= self._kinds:
            # On a connection of the store: inside the user's open transaction, a new queue's row would block other pushes.
            yield Aside(lambda: self._settle(kinds - self._kinds))
        text = _encode({"version": VERSION, "jobs": [as_json(job) for job in jobs]}).decode()
        try:
            rows = yield Ask(f"select id, created from {self._store.schema}.enqueue(?)", (text,))
        except Exception as error:
            self._kinds.clear()
            code, said = complaint(error)
            if code == "LW006":
                yield Aside(self._check_open)
            found = self._wrong_queue(said, kinds) if code == "LW004" else self._translated(code, said, "enqueue")
            if found is None:
                raise  # it is about the user's transaction: code that repeats transactions expects the driver's own error
            raise found from error
        return [None if created else "" if created is None else id_ for id_, created in rows]

    def finish(self, connection: UserConnection, claim: Claim, mark: FinishMark) -> Steps[None]:
        """Finish a claim in the transaction of a user's connection. See the contract."""
        if not (yield from self._is_same(connection)):
            raise NotSameDatabase.to_finish(connection, self._store)
        id_, token = claim.unit.id, claim.token
        text = _encode({"version": VERSION, "id": id_, "token": token, "mark": _encode(mark).decode()}).decode()
        try:
            yield Ask(f"select {self._store.schema}.finish(?)", (text,))
        except Exception as error:
            code, said = complaint(error)
            if code == "LW002":
                reason = next((asked for asked in ("cancel", "delete", "kill") if asked in said), "taken")
                raise ClaimLost.of(id_, token, reason) from error
            found = BadOption.finished_before(id_) if code == "LW009" else self._translated(code, said, "finish")
            if found is None:
                raise  # as in push
            raise found from error

    def _is_same(self, connection: UserConnection) -> Steps[bool]:
        """Return whether the connection leads to the store's database. A session is asked once."""
        session = yield Look(_session)
        if self._ours and self._known.get(session) == self._ours:
            return True
        found = yield from identity(connection)
        if found != self._ours:
            yield Aside(self._look)  # the server may have been started anew
        if found is None or found != self._ours:
            return False
        self._known[session] = found
        return True

    def _look(self) -> None:
        with self._store.wire.lend() as line:
            [(self._ours,)] = line.ask(POSTGRES)

    def _settle(self, kinds: set[tuple[str, bool]]) -> None:
        def verb() -> None:
            with self._store.turn(self._store.enqueue_timeout) as turn:
                for queue, collects in sorted(kinds):
                    settle_kind(turn, (queue,), collects=collects)

        self._store.repeat(verb, self._store.enqueue_timeout)
        self._kinds |= kinds

    def _check_open(self) -> None:
        with self._store.turn() as turn:
            turn.check_open(self._store)

    def _wrong_queue(self, said: str, kinds: set[tuple[str, bool]]) -> WrongQueue:
        queue, collects = max(((q, c) for q, c in kinds if q in said), key=lambda kind: len(kind[0]), default=("", False))
        return WrongQueue.of(queue, collects=collects)

    def _translated(self, code: str, said: str, function: str) -> Exception | None:
        store = self._store
        if code == "25006":
            return StoreReadOnly(f"your transaction is read-only, and a job is a row ({said}): {function} in one that may write")
        if code == "42501":
            return StoreUnavailable(
                f"your connection's user may not {function} in {store} ({said}). Nothing was written: "
                f"grant usage on schema {store.schema}, and execute on function {store.schema}.{function}(text)", written=False,
            )  # fmt: skip
        if code in ("LW008", "42883", "42P01", "3F000"):
            return SchemaError(f"{store} has no functions of this version ({said}): run laneway migrate, or upgrade Laneway here")
        if code == "55P03":
            return StoreBusy(f"{_IN_THE_WAY[function]} ({said}). Your transaction must be rolled back: repeat it")
        return None


class Inbox:
    """What was enqueued in transactions of users, and has not joined the jobs yet."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def empty(self) -> bool:
        """Insert all jobs of the inbox; return whether there were any."""
        taken = number = self._store.repeat(self._take)
        while number == AT_ONCE:
            number = self._store.repeat(self._take)
        return taken > 0

    def _take(self) -> int:
        with self._store.turn(inbox=False) as turn:
            turn.rows("lock", schema=turn.schema, number=84)  # one at a time, so that they keep their order
            return 0 if turn.is_closed else self.join(turn)

    def join(self, turn: PostgresTurn) -> int:
        """Insert jobs of the inbox in a turn, at most AT_ONCE; return how many rows were taken out of it."""
        rows = turn.rows("inbox_take", most=AT_ONCE)
        jobs = [job for row in rows if (job := _job(*row)) is not None]
        while jobs:
            try:
                push(turn, jobs, self._store.push_jobs)
                break
            except WrongQueue as error:  # found before anything was written
                lost = [job for job in jobs if job.queue == error.queue]
                log.error("%d jobs were not enqueued when their transaction had committed: %s", len(lost), error)
                jobs = [job for job in jobs if job.queue != error.queue]
        return len(rows)


def _job(
    id_: str, queue: str, task: str, lane: str | None, rank: int, delay: int, at: int, unique: str | None,
    end_key: str | None, expires: int,
    body: bytes, gather: str | None, score: float | None,
) -> Job | None:  # fmt: skip
    """Return a job of the inbox. It keeps the place from the time of its enqueue; a payload keeps its score."""
    if gather is not None:
        try:
            how = msgspec.structs.replace(_gather.decode(gather), score=score)
        except (ValueError, RecursionError) as error:
            log.error("a payload of %s was not enqueued: another program than Laneway wrote it (%s)", queue, error)
            return None
        return Job(id_, task, queue, body, lane, delay=delay, at=at, gather=how)
    return Job(id_, task, queue, body, lane, -rank, NO_DELAY, at, unique, expires, until_end=end_key is not None)


def _session(connection: UserConnection) -> object:
    return connection.session
