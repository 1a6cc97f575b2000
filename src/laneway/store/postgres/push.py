"""Pushing: jobs arrive by one function of the database; sleepers are rung in a transaction after it, in the same round trip.

Enters: jobs.  Leaves: for each of them None, or the id of the existing job that prevented it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from laneway.core.job import Alike, Job
from laneway.errors import StoreError
from laneway.ids import is_made
from laneway.store.postgres.connection import PostgresConnection, PostgresError, Statement, bigints, bytea, smallints, texts
from laneway.store.postgres.statements import VERSION, call
from laneway.store.postgres.wire import AGAIN, FORGOTTEN, Sent

if TYPE_CHECKING:
    from laneway.store.postgres.store import PostgresStore

__all__ = ["NOT_SO", "PostgresPush", "PostgresSentJobs", "is_simple"]

Answers = list[str | None]
#: A queue of them is a collector's, or the store is closed: what is said then needs another look.
NOT_SO = frozenset(("LW004", "LW006"))


def is_simple(jobs: Sequence[Job]) -> bool:
    """Return whether one call can push these: there are some, and none is a payload."""
    return bool(jobs) and (type(jobs) is Alike or not any(job.gather for job in jobs))


class PostgresPush:
    """Pushes jobs that are no payloads."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def push(self, jobs: Sequence[Job], timeout: float) -> Answers:
        """Insert jobs, in order."""
        until = time.monotonic() + timeout
        return self._hear(self._send(self._store.wire.sending(timeout), jobs), jobs, until)

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
        """Return the answers; None: nothing was done, and to try again may help."""
        try:
            return self._hear(sent, jobs, until)
        except StoreError as error:
            if isinstance(error.__cause__, PostgresError) and error.__cause__.code in AGAIN | FORGOTTEN | NOT_SO:
                return None
            raise

    def insert(self, line: PostgresConnection, jobs: Sequence[Job]) -> tuple[Answers, bool]:
        """Insert jobs in a transaction; return the answers, and whether to ring after it."""
        [(prevented, rings)] = line.ask(*self._statement(jobs), prepare=self._store.prepare)
        answers: Answers = [None] * len(jobs) if prevented is None else list(prevented)
        for n in _gone(answers):
            [answers[n]], more = self.insert(line, [jobs[n]])
            rings = rings or more
        return answers, rings

    def ringing(self) -> Statement:
        """Return the statement that wakes all sleepers."""
        return f"select {self._store.schema}.ring_v{VERSION}()", ()

    def _send(self, sent: Sent, jobs: Sequence[Job]) -> Sent:
        ring = [[self.ringing()]] if _is_due(jobs) else []
        return sent.send([self._statement(jobs)], *ring, prepare=self._store.prepare)

    def _hear(self, sent: Sent, jobs: Sequence[Job], until: float) -> Answers:
        try:
            [([(prevented, rings)], _)] = sent.hear(until)
        finally:
            if _is_due(jobs):
                with contextlib.suppress(StoreError):  # the jobs are in: sleepers look by themselves, a moment later
                    sent.hear(until)
        if rings and not _is_due(jobs):
            self._store.ring()
        answers: Answers = [None] * len(jobs) if prevented is None else list(prevented)
        for n in _gone(answers):
            [answers[n]] = self.push([jobs[n]], until - time.monotonic())
        return answers

    def _statement(self, jobs: Sequence[Job]) -> Statement:
        alike = [jobs.first] if type(jobs) is Alike else jobs
        ids, bodies = (jobs.ids, jobs.bodies) if type(jobs) is Alike else zip(*[(job.id, job.body) for job in jobs], strict=True)
        values = (
            texts(ids), bytea(bodies), texts([job.queue for job in alike]), texts([job.task for job in alike]),
            texts([job.lane for job in alike]), smallints([-job.priority for job in alike]),
            bigints([job.delay for job in alike]), bigints([job.at for job in alike]), texts([job.unique for job in alike]),
            texts([job.unique if job.until_end else None for job in alike]),
            bigints([job.expires for job in alike]),
            type(jobs) is not Alike and not all(map(is_made, ids)), False,
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


def _is_due(jobs: Sequence[Job]) -> bool:
    """Return whether the first of them may run at once: then sleepers are rung without a second thought."""
    first = jobs.first if type(jobs) is Alike else jobs[0]
    return first.delay <= 0 and not first.at


def _gone(answers: Answers) -> list[int]:
    """Return which jobs were prevented by some that have just left: these are pushed again."""
    return [n for n, by in enumerate(answers) if by == ""]
