"""The state of an outbox: what waits, since when, and what was set aside.

Enters: an outbox.  Leaves: `OutboxStatus`, findings.
"""

from __future__ import annotations

from contextlib import closing
from datetime import datetime

from laneway.core.instant import SECOND, as_datetime
from laneway.core.plain import Plain
from laneway.errors import StoreError
from laneway.outbox.database import OutboxDatabase, OutboxURL, open_database
from laneway.store.findings import Finding

__all__ = ["LAGS", "OutboxRowAside", "OutboxStatus", "check_outbox", "look", "read_status", "retry_aside"]

#: A row that has waited longer means that the outbox lags, seconds.
LAGS = 60.0

_WAITING = (
    "select (select count(*) from {schema}laneway_outbox), (select min(made) from {schema}laneway_outbox), "
    "(select count(*) from {schema}laneway_outbox_aside), {now}, (select until from {schema}laneway_outbox_meta), "
    "(select source from {schema}laneway_outbox_meta)"
)
_AGE = (
    "select (select made from {schema}laneway_outbox order by seq limit 1), {now}, "
    "(select count(*) from {schema}laneway_outbox_aside)"
)
_ASIDE = "select seq, job, made, at, reason from {schema}laneway_outbox_aside order by seq desc limit ?"
_BACK = "insert into {schema}laneway_outbox (job, made) select job, made from {schema}laneway_outbox_aside order by seq"
_FORGET = "delete from {schema}laneway_outbox_aside"
#: The most characters that are shown of a row that was set aside.
SHOWN = 200


class OutboxRowAside(Plain, frozen=True):
    """A row that cannot become a job."""

    seq: int
    job: str  #: its text, or the beginning of it
    made_at: datetime
    aside_at: datetime  #: when it was set aside
    reason: str


class OutboxStatus(Plain, frozen=True):
    """The state of an outbox."""

    waiting: int  #: committed rows that are not jobs yet
    oldest: float  #: how long the oldest of them has waited, seconds; 0 if none waits
    aside: int  #: rows that were set aside
    relayed: bool  #: a relay works
    source: str  #: the outbox's name in the store
    reasons: list[OutboxRowAside]  #: the newest of those that were set aside


def read_status(database: OutboxDatabase, most: int = 20) -> OutboxStatus:
    """Return the state of an outbox. All rows are counted: with millions of them that takes a moment."""
    [(waiting, made, aside, now, until, source)] = database.read(_WAITING)
    rows = database.read(_ASIDE, (most,)) if aside else []
    return OutboxStatus(
        waiting, _age(made, now), aside, (until or 0) >= now, source or "",
        [OutboxRowAside(seq, job[:SHOWN], as_datetime(made), as_datetime(at), why) for seq, job, made, at, why in rows],
    )  # fmt: skip


def look(url: OutboxURL) -> tuple[float, int]:
    """Return the age of the oldest waiting row, seconds, and the number of rows that were set aside. It counts no others."""
    with closing(open_database(url)) as database:
        [(made, now, aside)] = database.read(_AGE)
    return _age(made, now), aside


def retry_aside(database: OutboxDatabase) -> int:
    """Let rows that were set aside wait again, in their order; return how many."""
    with database.writing() as ask:
        [(number,)] = ask("select count(*) from {schema}laneway_outbox_aside")
        ask(_BACK)
        ask(_FORGET)
    return int(number)


def check_outbox(url: OutboxURL) -> Finding:
    """Examine an outbox."""
    try:
        oldest, aside = look(url)
    except StoreError as error:
        return Finding("outbox", "problem", str(error), "Rows are not relayed while it is so")
    if oldest > LAGS:
        text = f"a row of {url} has waited {oldest:.0f} s, and is not a job yet"
        return Finding("outbox", "problem", text, "Start a worker, or laneway outbox relay; see the log of the workers")
    if aside:
        text = f"{aside} rows of {url} cannot become jobs and were set aside"
        return Finding("outbox", "warning", text, "laneway outbox status has the reasons")
    return Finding("outbox", "ok", f"rows of {url} become jobs")


def _age(made: int | None, now: int) -> float:
    return 0.0 if made is None else max(now - made, 0) / SECOND
