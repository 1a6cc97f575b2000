"""Finishing a job in the user's transaction: `current_job().finish(connection)`.

The transaction leaves a mark on the claim: once it has committed the job is done, and after a rollback there is no mark. The job
leaves the store with the worker's next exchange, or when its worker is found dead. Nothing is begun or committed here.

Enters: the job that runs, and a connection of the user's.  Leaves: a mark, written on that connection by the store.
"""

from __future__ import annotations

import time
from typing import Any

from laneway.core.instant import micros
from laneway.core.outcome import FinishMark
from laneway.desk.context import JobContext
from laneway.errors import BadOption, NotSameDatabase, StoreError
from laneway.logs import log
from laneway.store.contract import can_join
from laneway.transactions.connection import UserConnection
from laneway.transactions.drivers import recognise
from laneway.transactions.steps import Look, Steps

__all__ = ["afinish", "finish", "has_finished"]


def finish(job: JobContext, given: Any, result: object) -> None:
    """Let the transaction of a user's connection finish a job."""
    connection = recognise(given)
    connection.run(_mark(job, connection, result))


async def afinish(job: JobContext, given: Any, result: object) -> None:
    """Let the transaction of a user's async connection finish a job."""
    connection = recognise(given)
    await connection.arun(_mark(job, connection, result))


def has_finished(job: JobContext) -> bool:
    """Return whether a transaction of the user's that finishes this job has committed, as far as its store can tell."""
    if not job.finishes or job.declared is None or job.declared.app.desk.is_tested:
        return False
    store = job.declared.app.store
    try:
        return can_join(store) and store.is_finished(job.claim)
    except StoreError as error:
        log.debug("job %s: it is not known whether it was finished (%s); its store decides", job.id, error)
        return False


def _mark(job: JobContext, connection: UserConnection, result: object) -> Steps[None]:
    if job.claim.collects:
        raise BadOption(
            "finish() is for tasks, and this is a collector: its lanes are settled one by one, and payloads gather while it "
            "runs. Let what you write be the same twice (insert … on conflict do update), or enqueue a task for each payload"
        )
    yield Look(_check_mode)
    task = job.declared
    if task is None:
        return  # a test that calls the code directly
    keep, value = 0, None
    if task.keep_result is not None:
        keep, value = micros(task.keep_result), task.app.codecs.encode(result)
    job.marked = FinishMark(job.started, time.time_ns() // 1000, keep, value)
    if task.app.desk.is_tested:
        return  # the store of a test is elsewhere: the run's own outcome counts, with this result
    store = task.app.store
    if not can_join(store) or store.capabilities.transactions != connection.database:
        raise NotSameDatabase.to_finish(connection, store)
    job.finishes = True  # even if this fails: the answer may be lost on its way
    yield from store.finish_with(connection, job.claim, job.marked)


def _check_mode(connection: UserConnection) -> None:
    connection.check_mode("the end of the job")
