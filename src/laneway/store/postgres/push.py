"""Pushing: one function of the database inserts jobs. If it returns that a worker sleeps, a second transaction wakes it.

Enters: jobs.  Leaves: for each of them None, or the id of the existing job that prevented it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from laneway.core.job import Job, UniformJobs
from laneway.errors import StoreError
from laneway.ids import is_made
from laneway.store.postgres.connection import (
    PostgresConnection,
    PostgresError,
    Statement,
    bigint,
    bigints,
    bytea,
    encoded,
    encoded_name,
    smallint,
    smallints,
    texts,
)
from laneway.store.postgres.statements import VERSION, call
from laneway.store.postgres.wire import AGAIN, FORGOTTEN, Sent

if TYPE_CHECKING:
    from laneway.store.postgres.store import PostgresStore

__all__ = ["NOT_SO", "PostgresPush", "PostgresSentJobs", "is_simple"]

Answers = list[str | None]
#: A queue is a collector's, or the store is closed. Then the caller pushes by the other way, which raises the right error.
NOT_SO = frozenset(("LW004", "LW006"))

#: In the server's binary format.
TRUE, FALSE = b"\1", b"\0"


def is_simple(jobs: Sequence[Job]) -> bool:
    """Return whether one call can push these: there are some, and none is a payload."""
    if type(jobs) is not UniformJobs:
        for job in jobs:
            if job.gather:
                return False
    return bool(jobs)


class PostgresPush:
    """Pushes jobs that are no payloads."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._push_one = f"select {store.schema}.push_one_v{VERSION}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
        self._known: set[str] = set()  # queues into which jobs were pushed; a queue is never removed

    def push(self, jobs: Sequence[Job], timeout: float) -> Answers:
        """Insert jobs, in order."""
        with self._store.wire.lend(timeout) as line:
            answers, rings = self.insert(line, jobs)
        if rings:
            self._store.ring()
        return answers

    def begin(self, jobs: Sequence[Job], timeout: float) -> Callable[[], Answers | None]:
        """Send jobs; calling the returned function returns the answers, or None: nothing was done.

        Each of the two steps may take this long: the caller may have been busy in between.
        """
        sent = self._send(self._store.wire.sending(timeout), jobs)
        return lambda: self.heard(sent, jobs, time.monotonic() + timeout)

    def send(self, jobs: Sequence[Job], timeout: float) -> PostgresSentJobs | None:
        """Send jobs without waiting for a connection; None: nothing was sent."""
        sent = self._store.wire.sending_now(timeout)
        return None if sent is None else PostgresSentJobs(self, self._send(sent, jobs), jobs, time.monotonic() + timeout)

    def heard(self, sent: Sent, jobs: Sequence[Job], until: float) -> Answers | None:
        """Return the answers; None: nothing was inserted, and another try may succeed."""
        try:
            [([answer], _)] = sent.hear(until)
        except StoreError as error:
            if isinstance(error.__cause__, PostgresError) and error.__cause__.code in AGAIN | FORGOTTEN | NOT_SO:
                return None
            raise
        prevented, rings = answer if len(answer) == 2 else (None, *answer)
        if rings is None:
            return None
        if len(answer) == 1:
            self._known.add(jobs[0].queue)
        if rings:
            self._store.ring()
        answers: Answers = [None] * len(jobs) if prevented is None else prevented
        for n in _gone(answers):
            [answers[n]] = self.push([jobs[n]], until - time.monotonic())
        return answers

    def insert(self, line: PostgresConnection, jobs: Sequence[Job]) -> tuple[Answers, bool]:
        """Insert jobs in a transaction; return the answers, and whether to ring after it."""
        prepare = self._store.prepare
        if _is_plain(jobs):
            [(rings,)] = line.ask(*self._one(jobs[0]), prepare=prepare)
            if rings is not None:
                self._known.add(jobs[0].queue)
                return [None], rings
        [(prevented, rings)] = line.ask(*self._many(jobs), prepare=prepare)
        answers: Answers = [None] * len(jobs) if prevented is None else prevented
        for n in _gone(answers):
            [answers[n]], more = self.insert(line, [jobs[n]])
            rings = rings or more
        return answers, rings

    def ringing(self) -> Statement:
        """Return the statement that wakes all sleepers."""
        return f"select {self._store.schema}.ring_v{VERSION}()", ()

    def _send(self, sent: Sent, jobs: Sequence[Job]) -> Sent:
        return sent.send([self._one(jobs[0]) if _is_plain(jobs) else self._many(jobs)], prepare=self._store.prepare)

    def _one(self, job: Job) -> Statement:
        values = (
            encoded(job.id), job.body, encoded_name(job.queue), encoded_name(job.task),
            None if job.lane is None else encoded(job.lane),
            smallint(-job.priority), bigint(job.delay), bigint(job.at), bigint(job.expires),
            TRUE if job.queue in self._known else FALSE,
        )  # fmt: skip
        return self._push_one, values

    def _many(self, jobs: Sequence[Job]) -> Statement:
        each = [jobs.first] if type(jobs) is UniformJobs else jobs
        ids, bodies = (
            (jobs.ids, jobs.bodies) if type(jobs) is UniformJobs else zip(*[(job.id, job.body) for job in jobs], strict=True)
        )
        values = (
            texts(ids), bytea(bodies), texts([job.queue for job in each]), texts([job.task for job in each]),
            texts([job.lane for job in each]), smallints([-job.priority for job in each]),
            bigints([job.delay for job in each]), bigints([job.at for job in each]), texts([job.unique for job in each]),
            texts([job.unique if job.until_end else None for job in each]),
            bigints([job.expires for job in each]),
            type(jobs) is not UniformJobs and not all(map(is_made, ids)), False,
        )  # fmt: skip
        return call(self._store.schema, "push", len(values)), values


class PostgresSentJobs:
    """Jobs on their way. See `SentPush`."""

    def __init__(self, push: PostgresPush, sent: Sent, jobs: Sequence[Job], until: float) -> None:
        self._push = push
        self._sent = sent
        self._jobs = jobs
        self._until = until
        self.fileno = sent.fileno
        self.comes_at_once = sent.comes_at_once
        self.give_up = sent.give_up

    def hear(self) -> Answers | None:
        """Return the answers; None: nothing was done."""
        return self._push.heard(self._sent, self._jobs, self._until)


def _is_plain(jobs: Sequence[Job]) -> bool:
    """Return whether this is one job without a unique key and with an id of Laneway's own: see `push_one`."""
    return len(jobs) == 1 and jobs[0].unique is None and is_made(jobs[0].id) is not None


def _gone(answers: Answers) -> list[int]:
    """Return the positions of jobs that were prevented by jobs which have left the store since: they are pushed again."""
    return [n for n, by in enumerate(answers) if by == ""]
