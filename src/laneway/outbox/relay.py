"""The relay: committed rows of an outbox become jobs of the store, each once, in order.

One step is one transaction in the user's database and one call of the store::

    lock the meta row, check the epoch        another relay may have taken over
    delete what the store has taken           and set aside what it never will
    read the first rows that are there        only committed ones are visible
    write down: these rows, from this number on; commit
    hand them to the store, with their numbers

So a row gets its number after its commit, and numbers are written down before anything is sent. The relay that takes
over from one that was killed or is frozen finds the portion as it was, and sends it first, with the same numbers. The store takes
each number once, in the step that inserts the job: a relay that comes late, however late, repeats nothing. Numbers are not below
the database's clock, nor below what the store has taken: also a database that was restored from an older backup gives numbers
that are new.

A relay works for as long as its epoch is the current one. For LEASE seconds after its last transaction no other takes over. That
is for speed alone: a late relay finds another epoch in its next transaction, and the store compares numbers.

Enters: rows.  Leaves: jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from laneway.clock import now_micros
from laneway.core.instant import SECOND
from laneway.core.job import Job
from laneway.errors import LanewayError, StoreError, WrongQueue
from laneway.logs import log
from laneway.outbox.database import Ask, OutboxDatabase, no_tables
from laneway.store.contract import Relayed, Store
from laneway.transactions.job_json import read_job

__all__ = ["AT_ONCE", "LEASE", "Numbered", "Relay", "Standing", "aged"]

#: The most rows in a portion, and about the most bytes.
AT_ONCE = 1000
BYTES_AT_ONCE = 4_000_000
#: For how long after its last transaction no other relay takes over, seconds.
LEASE = 3.0
#: The longest a store may take for a portion, seconds: a busy one takes its time, and nothing waits for the answer.
PATIENCE = 5.0
#: How much of a reason is kept.
LONGEST = 500

_META = "select source, last, batch, epoch, until, {now} from {schema}laneway_outbox_meta where only_row = 1{lock}"
_WRITE = "update {schema}laneway_outbox_meta set last = ?, batch = ?, epoch = ?, until = ? where only_row = 1"
_FIRST = (
    "select seq, job, made from ("
    "select seq, job, made, sum({bytes}) over (order by seq) - {bytes} as before "
    "from (select seq, job, made from {schema}laneway_outbox order by seq limit ?) first_rows) sized "
    "where before < ? order by seq"
)
_RANGE = "select seq, job, made from {schema}laneway_outbox where seq >= ? and seq <= ? order by seq"
_DELETE = "delete from {schema}laneway_outbox where seq >= ? and seq <= ?"
_ASIDE = (
    "insert into {schema}laneway_outbox_aside (seq, job, made, at, reason) "
    "select seq, job, made, {now}, ? from {schema}laneway_outbox where seq = ? on conflict do nothing"
)
_IS_THERE = "select 1 from {schema}laneway_outbox limit 1"
_STANDING = "select epoch, until, {now} from {schema}laneway_outbox_meta where only_row = 1"


class Numbered(Struct, frozen=True, array_like=True):
    """The rows that have numbers: the first of them, and ranges of rows. The second row has the next number."""

    number: int = 0
    ranges: list[tuple[int, int]] = []

    def rows(self) -> Iterator[tuple[int, int]]:
        """Walk its rows: seq, number."""
        number = self.number
        for first, last in self.ranges:
            for seq in range(first, last + 1):
                yield seq, number
                number += 1


_numbered = msgspec.json.Decoder(Numbered)


def ranges_of(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """Return rising numbers as ranges.

    >>> ranges_of([3, 4, 5, 9])
    [(3, 5), (9, 9)]
    """
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = found[-1][0], seq
        else:
            found.append((seq, seq))
    return found


def aged(job: Job, age: int, now: int) -> Job:
    """Return a job that has waited this long in an outbox, microseconds: its delay and its expiry count from its enqueue.

    >>> job = Job("id", "task", "default", b"[[],{}]", delay=60, expires=100)
    >>> (aged(job, 40, 1000).delay, aged(job, 40, 1000).expires), (aged(job, 90, 1000).delay, aged(job, 90, 1000).expires)
    ((20, 100), (0, 70))
    """
    if age <= 0 or not (job.delay or job.expires):
        return job
    late = max(now - max(now - age + job.delay, job.at), 0)  # how long ago it was due
    expires = max(job.expires - late, 1) if job.expires else 0
    return replace(job, delay=max(job.delay - age, 0), expires=expires)


class Carried(Struct):
    """A portion on its way."""

    rows: list[tuple[int, int, str, int]]  #: seq, number, job, and how old it is, microseconds
    is_new: bool  #: this relay has given the numbers, since it took over
    taken: list[int] = []  #: the rows that the store has taken, or had
    aside: list[tuple[int, str]] = []  #: the rows that it never will, with the reason


class Standing(Struct, frozen=True):
    """What a step has found."""

    holds: bool  #: this relay is the one that works
    carried: int = 0  #: rows that the store has taken or refused for good in this step


class Relay:
    """Carries rows of one outbox to one store. One thread at a time uses it."""

    def __init__(self, database: OutboxDatabase, store: Callable[[], Store], *, at_once: int = AT_ONCE) -> None:
        self.database = database
        self._store = store
        self._at_once = at_once
        self._epoch: int | None = None  # since it took over, as long as it knows of no other
        self._source = ""
        self._floor = 0  # what the store had taken of this outbox when this relay took over
        self._sent: Carried | None = None  # what was handed over and is not deleted yet
        self._leased = 0.0  # when it last prolonged its lease, monotonic

    @property
    def holds(self) -> bool:
        """Whether it has taken over, as far as it knows."""
        return self._epoch is not None

    def step(self) -> Standing:
        """Take over if no relay works, and carry one portion. Raises StoreError if a database or the store is away.

        After an error this relay lets go, so that another one may try, which can perhaps reach both.
        """
        try:
            if self._epoch is None and not self._take_over():
                return Standing(holds=False)
            is_due = time.monotonic() - self._leased > LEASE / 3
            if self._sent is None and not is_due and not self.database.read(_IS_THERE):
                return Standing(holds=True)
            return self._carry()
        except LanewayError:
            self._sent = None  # what the database has written of it is not known: it is sent again, with the same numbers
            self.release()
            raise

    def release(self) -> None:
        """Let another relay take over at once, if the database can be reached.

        Rows that the store has taken are deleted first: else they would count as waiting until another relay comes. What is
        still on its way is sent again.
        """
        epoch, sent, self._epoch, self._sent = self._epoch, self._sent, None, None
        if epoch is not None:
            try:
                with self.database.writing() as ask:
                    source, last, written, current, _, _ = _only(ask(_META), self.database)
                    if current != epoch or source != self._source:
                        return  # another relay has taken over: the rows are its own
                    if sent is not None:
                        self._clear(ask, sent)
                        written = ""
                    ask(_WRITE, (last, written, epoch, 0))
            except StoreError as error:
                log.debug("the lease of the outbox runs out by itself: %s", error)

    # -- whose turn it is ------------------------------------------------------------------------------------

    def _take_over(self) -> bool:
        """Take over if the lease of the last relay is over; return whether this relay works now."""
        rows = self.database.read(_STANDING)
        if rows and not _is_over(*rows[0][1:]):
            return False
        with self.database.writing() as ask:
            source, last, batch, epoch, until, now = _only(ask(_META), self.database)
            if not _is_over(until, now):
                return False
            ask(_WRITE, (last, batch, epoch + 1, self._lease(now)))
        self._source, self._sent, self._epoch = source, None, epoch + 1
        self._floor = self._store().taken(source)
        return True

    def _lease(self, now: int) -> int:
        self._leased = time.monotonic()
        return now + round(LEASE * SECOND)

    # -- carrying --------------------------------------------------------------------------------------------

    def _carry(self) -> Standing:
        carried = self._turn()
        if carried is None:
            return Standing(holds=False)
        if not carried.rows:
            return Standing(holds=True)
        self._push(carried)
        self._sent = carried
        return Standing(holds=True, carried=len(carried.taken) + len(carried.aside))

    def _turn(self) -> Carried | None:
        """Delete what has arrived, and number what comes next; None: another relay has taken over."""
        with self.database.writing() as ask:
            source, last, written, epoch, _, now = _only(ask(_META), self.database)
            if epoch != self._epoch or source != self._source:
                self._epoch = self._sent = None
                return None
            if self._sent is not None:
                self._clear(ask, self._sent)
                written = ""
            carried = self._again(ask, written, now) if written else None
            if carried is None:
                last, carried, written = self._next(ask, last, now)
            ask(_WRITE, (last, written, epoch, self._lease(now)))
        self._sent = None
        return carried

    def _clear(self, ask: Ask, sent: Carried) -> None:
        for seq, reason in sent.aside:
            ask(_ASIDE, (reason, seq))
        for first, last in ranges_of(sorted([*sent.taken, *(seq for seq, _ in sent.aside)])):
            ask(_DELETE, (first, last))

    def _again(self, ask: Ask, written: str, now: int) -> Carried | None:
        """Return the portion that another relay left, or this one before an error; None if nothing of it is left."""
        portion = _numbered.decode(written)
        numbers = dict(portion.rows())
        found = ask(_RANGE, (portion.ranges[0][0], portion.ranges[-1][1])) if portion.ranges else []
        rows = [(seq, numbers[seq], job, now - made) for seq, job, made in found if seq in numbers]
        return Carried(rows, is_new=False) if rows else None

    def _next(self, ask: Ask, last: int, now: int) -> tuple[int, Carried, str]:
        found = ask(_FIRST, (self._at_once, BYTES_AT_ONCE))
        if not found:
            return last, Carried([], is_new=True), ""
        number = max(last + 1, now, self._floor + 1)
        portion = Numbered(number, ranges_of([seq for seq, _, _ in found]))
        rows = [(seq, number + at, job, now - made) for at, (seq, job, made) in enumerate(found)]
        return number + len(found) - 1, Carried(rows, is_new=True), msgspec.json.encode(portion).decode()

    def _push(self, carried: Carried) -> None:
        """Hand rows to the store, and note what became of each."""
        now = now_micros()
        jobs: list[tuple[int, Job]] = []
        seqs: list[int] = []
        carried.taken, carried.aside = [], []
        for seq, number, text, age in carried.rows:
            try:
                jobs.append((number, aged(read_job(text), age, now)))
                seqs.append(seq)
            except ValueError as error:
                carried.aside.append((seq, _short(error)))
        passed = 0
        for seq, answer in zip(seqs, self._hand_over(jobs), strict=True):
            if isinstance(answer, Exception):
                carried.aside.append((seq, _short(answer)))
            elif answer == "" and carried.is_new:
                passed += 1  # the store has seen this number, which is new: the row gets another
            else:
                carried.taken.append(seq)
        if passed:
            self._floor = self._store().taken(self._source)
            log.warning(
                "%s: the store had higher numbers of this outbox than its last %d rows, which are handed over again. Does a copy "
                "of this database relay to the same store? It needs a source of its own, see docs/transactions.md",
                self.database, passed,
            )  # fmt: skip
        for seq, reason in carried.aside:
            log.error("%s: row %d cannot become a job and is set aside: %s", self.database, seq, reason)

    def _hand_over(self, jobs: list[tuple[int, Job]]) -> list[Relayed | Exception]:
        """Hand jobs to the store. One that it cannot take for a reason of its own is found by halving."""
        if not jobs:
            return []
        try:
            return list(self._store().relay(self._source, jobs, PATIENCE))
        except StoreError:
            raise  # it may work later
        except Exception as error:  # noqa: BLE001 - a job that cannot be sent at all; nothing else may wait for it
            if len(jobs) == 1:
                return [error]
        half = len(jobs) // 2
        return [*self._hand_over(jobs[:half]), *self._hand_over(jobs[half:])]


def _is_over(until: int, now: int) -> bool:
    """Return whether a lease is over. One that is far in the future was written before the clock was set back."""
    return not now <= until <= now + 2 * LEASE * SECOND


def _only(rows: list[Any], database: OutboxDatabase) -> Any:
    if not rows:
        raise no_tables(database.url, "laneway_outbox_meta is empty")
    return rows[0]


def _short(error: Exception) -> str:
    why = str(error) if isinstance(error, ValueError | WrongQueue) else f"{type(error).__name__}: {error}"
    return " ".join(why.split())[:LONGEST]
