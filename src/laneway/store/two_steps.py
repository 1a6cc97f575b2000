"""Calls in two steps: a store that can works while its caller goes on.

Enters: jobs, or outcomes and requests.  Leaves: a function that returns the answer, to be called once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from laneway.core.job import Job
from laneway.core.outcome import Settled
from laneway.store.contract import ClaimRequest, Exchange, Store, is_pipelined

__all__ = ["begin_exchange", "begin_push"]


def begin_push(store: Store, jobs: Sequence[Job]) -> Callable[[], list[str | None]]:
    """Push in two steps where the store can, else at once."""
    if is_pipelined(store):
        return store.begin_push(jobs)
    answers = store.push(jobs)
    return lambda: answers


def begin_exchange(
    store: Store, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int
) -> Callable[[], Exchange]:
    """Exchange in two steps where the store can, else when the returned function is called."""
    if is_pipelined(store):
        return store.begin(worker, settled, wants, limit)
    return partial(store.exchange, worker, settled, wants, limit)
