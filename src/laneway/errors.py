"""Everything that can go wrong, as one tree.

::

    LanewayError
    ├── ConfigError               a URL or a setting
    │   ├── NoOutbox              the user's database has no outbox
    │   └── NoReceipts            the user's database has no table for once()
    ├── DeclarationError          a task that cannot work, found where it is declared
    ├── EnqueueError
    │   ├── BadArguments          arguments that do not fit or cannot make the trip
    │   │   └── PayloadTooLarge
    │   ├── BadOption             an option of using() or task() that is unknown or wrong
    │   ├── BulkError             enqueue_many stopped on the way; says how many were accepted
    │   ├── NotSameDatabase       a connection of the user's that does not lead to the store's database
    │   ├── PoolClosed            of laneway.pool, as the next one
    │   ├── QueueFull
    │   ├── UnknownTask
    │   ├── UnknownTopic          of laneway.pool
    │   └── WrongQueue            a collector's queue, or one with jobs that a collector needs for itself
    ├── LifespanError             a lifespan of the app could not be entered: the worker does not start
    ├── NoCurrentJob              current_job() where no worker runs the code
    ├── NotFound
    │   ├── UnknownJob
    │   ├── UnknownLane
    │   ├── UnknownQueue
    │   └── UnknownWorker
    ├── ResultError
    │   ├── JobCancelled
    │   ├── JobFailed
    │   ├── NoResult
    │   └── ResultTimeout
    ├── RunError                  a run was ended from outside
    │   ├── ClaimLost             finish() of a job that another worker has, or that was cancelled
    │   ├── JobCrashed
    │   └── JobTimeout
    └── StoreError
        ├── GarbageError          bytes in the store that are no job
        ├── SchemaError           tables of another version
        ├── StoreCorrupt
        ├── StoreMoved            its jobs were moved to another store: use that
        └── StoreUnavailable      the same call may work later; a job with the same id is never taken twice
            ├── StoreBusy
            ├── StoreFull
            └── StoreReadOnly

A class's docstring is its default message. The facts of the case are attributes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "BadArguments",
    "BadOption",
    "BulkError",
    "ClaimLost",
    "ConfigError",
    "DeclarationError",
    "EnqueueError",
    "GarbageError",
    "JobCancelled",
    "JobCrashed",
    "JobFailed",
    "JobTimeout",
    "LanewayError",
    "LifespanError",
    "NoCurrentJob",
    "NoOutbox",
    "NoReceipts",
    "NoResult",
    "NotFound",
    "NotSameDatabase",
    "PayloadTooLarge",
    "PoolClosed",
    "QueueFull",
    "ResultError",
    "ResultTimeout",
    "RunError",
    "SchemaError",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreMoved",
    "StoreReadOnly",
    "StoreUnavailable",
    "UnknownJob",
    "UnknownLane",
    "UnknownQueue",
    "UnknownTask",
    "UnknownTopic",
    "UnknownWorker",
    "WrongQueue",
    "did_you_mean",
]


class LanewayError(Exception):
    """Something went wrong in Laneway."""

    def __init__(self, message: str | None = None, **facts: object) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())
        for name, fact in facts.items():
            setattr(self, name, fact)


class ConfigError(LanewayError, ValueError):
    """A setting has a value that Laneway cannot use."""

    no_app = False  #: no app was named, and none was found


class NoOutbox(ConfigError):
    """The database of this connection has no outbox."""

    @classmethod
    def of(cls, connection: object) -> NoOutbox:
        """Return the error for a connection."""
        return cls(
            f"the database of {connection} has no table laneway_outbox, or its search path does not lead there. Create it once, "
            "before you enqueue in a transaction: laneway outbox init, or put what laneway outbox init --sql prints into your "
            "migrations"
        )


class NoReceipts(ConfigError):
    """The database of this connection has no table for receipts."""

    @classmethod
    def of(cls, connection: object, statements: Iterable[str]) -> NoReceipts:
        """Return the error for a connection; the statements create the table."""
        return cls(
            f"the database of {connection} has no table laneway_receipt, or its search path does not lead there. Create it "
            f"before you use once(): {'; '.join(statements)}"
        )


class DeclarationError(LanewayError, TypeError):
    """This function cannot be a task."""


class EnqueueError(LanewayError):
    """The job was not enqueued."""


class BadArguments(EnqueueError, TypeError):
    """The arguments do not fit the task."""


class PayloadTooLarge(BadArguments):
    """The arguments are too large or nested too deeply: pass a reference (an id, a path) instead of the thing itself."""


class BadOption(EnqueueError, TypeError):
    """An option is unknown or has a value that cannot be used."""

    @classmethod
    def finished_before(cls, id: str) -> BadOption:  # noqa: A002 - the glossary's word
        """Return the error of a second finish() of a run."""
        return cls(
            f"job {id} is finished already: finish() was called before, in this transaction or in one that has committed. Call "
            "it once, in the transaction that writes what the job is for; after a rollback it may be called again"
        )


class BulkError(EnqueueError):
    """enqueue_many stopped on the way. `accepted` jobs were enqueued before."""

    accepted: int
    reason: LanewayError

    @classmethod
    def of(cls, reason: LanewayError, accepted: int) -> BulkError:
        """Return the error of a bulk enqueue that stopped for a reason."""
        unsure = isinstance(reason, StoreUnavailable) and reason.written is None
        more = ". Those on their way may have been accepted too: only with ids they are harmless to repeat" if unsure else ""
        why = str(reason).replace("Nothing was written", "Nothing of this chunk was written")
        message = f"{why} (enqueue_many stopped here: {accepted} were accepted before; enqueue the rest again{more})"
        return cls(message, accepted=accepted, reason=reason)


class NotSameDatabase(EnqueueError, ValueError):
    """The connection does not lead to the database that the store is in."""

    @classmethod
    def to_finish(cls, connection: object, store: object) -> NotSameDatabase:
        """Return the error for a connection whose transaction cannot finish a job of a store."""
        return cls(
            f"{connection} does not lead to the database of {store}: a transaction there cannot finish its jobs. Nothing was "
            "written: give a connection to the store's database; or use current_job().once(connection), which writes once with "
            "any store"
        )

    @classmethod
    def of(cls, connection: object, store: object) -> NotSameDatabase:
        """Return the error for a connection and a store that share no transaction."""
        return cls(
            f"{connection} does not lead to the database of {store}: a job there cannot be one transaction with what you write. "
            "Nothing was written: give a connection to the store's database; or name an outbox in yours, App(…, outbox=URL); or "
            "enqueue after your commit, outside of the block, and accept that a crash in between loses the job"
        )


class PoolClosed(EnqueueError, RuntimeError):
    """The pool is closed: it takes no more jobs."""


class QueueFull(EnqueueError):
    """The pool's queue is full: it takes no more jobs (back-pressure)."""

    capacity: int


class UnknownTask(EnqueueError, LookupError):
    """No task of this name is registered here."""


class UnknownTopic(EnqueueError, LookupError):
    """The pool has no topic of this name."""

    topic: str | None


class WrongQueue(EnqueueError, ValueError):
    """A collector has its queue for itself."""

    queue: str

    @classmethod
    def of(cls, queue: str, *, collects: bool) -> WrongQueue:
        """Return the error for a queue that a collector (`collects`) or a task wanted to use."""
        if collects:
            what = "has jobs of tasks, and a collector needs one of its own: give it another name, or let the jobs finish"
        else:
            what = "is a collector's, which has it for itself: use another queue for the task"
        return cls(f'queue "{queue}" {what}', queue=queue)


class LifespanError(LanewayError):
    """A lifespan could not be entered. What it raised is the `__cause__`."""


class NoCurrentJob(LanewayError, RuntimeError):
    """No job runs here: current_job() is for code that a worker runs."""


class NotFound(LanewayError, LookupError):
    """There is no such thing in the store."""


class UnknownJob(NotFound):
    """No job with this id is in the store."""


class UnknownLane(NotFound):
    """Nothing waits or runs in this lane."""


class UnknownQueue(NotFound):
    """No queue of this name is known."""


class UnknownWorker(NotFound):
    """No worker with this id beats in the store."""


class ResultError(LanewayError):
    """There is no result."""


class JobCancelled(ResultError):
    """The job was cancelled."""


class JobFailed(ResultError):
    """The job is dead: it gave up after its last attempt."""


class NoResult(ResultError):
    """The task keeps no results: declare it with keep_result=SECONDS."""


class ResultTimeout(ResultError, TimeoutError):
    """The job has not finished in time. It goes on; ask again later."""


class RunError(LanewayError):
    """A run was ended from outside."""


class ClaimLost(RunError):
    """This run no longer has the claim to its job: roll your transaction back."""

    id: str  #: the job's
    token: int  #: of the claim that was lost
    reason: str  #: `taken`: it was recovered or given back, or has ended; `cancel`, `delete` or `kill`: a user asked for that

    @classmethod
    def of(cls, id: str, token: int, reason: str) -> ClaimLost:  # noqa: A002 - the glossary's word
        """Return the error for a claim that cannot be finished."""
        if reason == "taken":
            why = "its claim was recovered or given back while this run was silent, and another run may have it"
        else:
            why = f"a user asked to {reason} it while it ran"
        message = f"job {id} cannot be finished: {why}. Nothing was marked: roll your transaction back, and let the run end"
        return cls(message, id=id, token=token, reason=reason)


class JobCrashed(RunError):
    """The process that ran the job ended."""


class JobTimeout(RunError, TimeoutError):
    """The job ran longer than its timeout."""


class StoreError(LanewayError):
    """The store failed."""


class GarbageError(StoreError, ValueError):
    """These bytes are not a job that Laneway wrote."""


class SchemaError(StoreError):
    """The store's tables have another version than this Laneway."""


class StoreCorrupt(StoreError):
    """The store's file is damaged."""


class StoreMoved(StoreError):
    """The store was moved to another address. Nothing was written."""

    address: str  #: where its jobs are, or go; without the password
    written = False

    @classmethod
    def of(cls, store: object, address: str) -> StoreMoved:
        """Return the error of a store whose jobs are elsewhere."""
        what = f"{store} was moved to {address}: it takes no jobs and gives no claims. Nothing was written: use the new address"
        return cls(f"{what} (or undo the move with laneway store reopen)", address=address)


class StoreUnavailable(StoreError):
    """The store cannot be reached. If it is on a server and only its answer got lost, it may have taken what was sent."""

    written: bool | None = None  #: False: nothing of the call was written; None: it may have been
    missing = False  #: there is no store at this address yet


class StoreBusy(StoreUnavailable):
    """Another process holds the store's write lock. Nothing was written."""

    written = False


class StoreFull(StoreUnavailable):
    """The store has no space left. Nothing was written."""

    written = False


class StoreReadOnly(StoreUnavailable):
    """The store cannot be written to. Nothing was written."""

    written = False


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `' Did you mean "x"?'` for the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f' Did you mean "{near[0]}"?' if near else ""
