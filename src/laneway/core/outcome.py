"""The outcome of a run, as a value.

Running decides an outcome; settling writes it to the store. Times are relative to the store's now, so that a
worker's clock does not matter.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import Struct

from laneway.core.instant import as_datetime
from laneway.core.job import Claim
from laneway.core.plain import Plain

__all__ = ["Cancelled", "Dead", "Done", "ErrorInfo", "FinishMark", "Notes", "Outcome", "Retrying", "Settled", "Snoozed"]

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 20_000


class ErrorInfo(Plain, frozen=True, omit_defaults=True):
    """An error as text: nothing of it can run when it is read."""

    kind: str  #: the exception's class, or what happened: `worker lost`, `garbage`
    message: str
    traceback: str = ""
    at: int = 0  #: when, microseconds; set by the store
    attempt: int = 0  #: in which attempt; set by the store
    worker: str = ""  #: whose run it was; set by the store

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict of plain values."""
        return {**super().as_dict(), "at": as_datetime(self.at).isoformat() if self.at else None}

    @classmethod
    def of(cls, error: BaseException, format_error: Callable[[BaseException], str] | None = None) -> ErrorInfo:
        """Describe an exception, whatever its own methods do; `format_error` is the user's own formatter."""
        kind = type(error)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        try:
            message = str(error)
        except BaseException as trouble:  # noqa: BLE001 - a user's __str__ may raise anything
            message = f"<its str() raised {type(trouble).__name__}>"
        try:
            lines = traceback.format_exception(error) if format_error is None else [str(format_error(error))]
        except BaseException:  # noqa: BLE001 - as above, in one of its causes
            lines = traceback.format_tb(error.__traceback__)
        # The end of a traceback is where the error happened; a huge message must not push that out.
        text = "".join(line if len(line) <= 2 * MESSAGE_LIMIT else f"{line[:MESSAGE_LIMIT]} …\n" for line in lines)
        return cls(kind=_clean(name), message=_clean(message[:MESSAGE_LIMIT]), traceback=_clean(text[-TRACEBACK_LIMIT:]))


def _clean(text: str) -> str:
    """Return text that can be stored: lone surrogates have no bytes."""
    return text.encode(errors="replace").decode()


class Notes(Struct):
    """The notes of a run: shown with the job, kept while it is in the store."""

    progress: tuple[float, float] | None = None  #: (done, total)
    log: list[str] = []


class Done(Struct, frozen=True, tag="done", gc=False):
    """The run succeeded."""

    name: ClassVar[str] = "done"
    result: bytes | None = None  #: the result as JSON, if it is kept


class Retrying(Struct, frozen=True, tag="retrying"):
    """The run failed; try again later. The attempt counts."""

    name: ClassVar[str] = "retrying"
    after: int  #: from now, microseconds
    error: ErrorInfo  #: what went wrong this time


class Snoozed(Struct, frozen=True, tag="snoozed"):
    """Not yet. The job keeps its place and no attempt counts."""

    name: ClassVar[str] = "snoozed"
    after: int  #: from now, microseconds


class Dead(Struct, frozen=True, tag="dead"):
    """The run failed and is not retried. The job stays in the store for replay (a dead letter).

    Of a collector's lane one payload dies, the one of the run that arrived first unless others are named; the rest goes on.
    """

    name: ClassVar[str] = "dead"
    error: ErrorInfo
    halt: bool = False  #: it keeps its lane until it is replayed or deleted
    payloads: tuple[bytes, ...] = ()  #: the bodies of the payloads that die


class Cancelled(Struct, frozen=True, tag="cancelled"):
    """The job is no longer wanted."""

    name: ClassVar[str] = "cancelled"
    reason: str = ""


class FinishMark(Struct, frozen=True, array_like=True):
    """What a transaction of the user's leaves on a claim that it finishes: enough to settle it as done without the worker."""

    started: int  #: when the run began, by the worker's clock, microseconds
    finished: int  #: when `finish` was called
    keep: int = 0  #: how long a record of the job is kept, microseconds; 0: none is
    result: bytes | None = None  #: the result as JSON, if it is kept


Outcome = Done | Retrying | Snoozed | Dead | Cancelled


class Settled(Struct, frozen=True, gc=False):
    """A claim and the outcomes of its run."""

    claim: Claim
    outcomes: tuple[Outcome, ...]  #: one for each of the claim's units
    started: int = 0  #: when the run began and ended, by the worker's clock, microseconds
    finished: int = 0
    keep: int = 0  #: how long a record of the job is kept if this ends it, microseconds; 0: none is
    finishes: bool = False  #: its code may have called `finish`: a transaction of the user's may still hold the claim
