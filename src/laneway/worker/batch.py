"""Batches: what a collector's run gets, and what it meant for each of its lanes. Pure but for a user's codecs.

A lane with payloads that cannot be read takes no part in the run: those die, the rest comes back at once.

Enters: a collector's `Claim`.  Leaves: the lanes to call it with, and an `Each`.  Called by: `run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from laneway.collector import AnyCollector, is_collector
from laneway.context import JobContext, LaneFailures
from laneway.declared import Declared
from laneway.job import Claim, Job, LaneClaim, payload_id
from laneway.outcome import Dead, Each, ErrorInfo, Outcome

__all__ = ["Batch", "alone", "batch_sizes", "causes", "dead_ones", "each", "open_batch"]


def batch_sizes(declared: Mapping[str, Declared]) -> dict[str, tuple[int, int]]:
    """Return how many lanes a run of each collector gets, and how many payloads of each; 0: all."""
    collectors = [one for one in declared.values() if is_collector(one)]
    return {one.queue: (one.max_lanes, one.max_payloads or 0) for one in collectors}


class Batch(msgspec.Struct):
    """A collector's claim, read."""

    claim: Claim  #: with the lanes that can be read
    lanes: dict[str, list[Any]]
    spoilt: dict[str, Dead]  #: those that cannot, by their keys


def open_batch(collector: AnyCollector[Any, Any], claim: Claim) -> Batch:
    """Read the payloads of a claim."""
    lanes: dict[str, list[Any]] = {}
    spoilt: dict[str, Dead] = {}
    for lane in claim.lanes:
        try:
            lanes[lane.lane] = collector.read(lane)
        except BaseException as error:  # noqa: BLE001 - a user's codec may raise anything
            kind = type(error)
            info = ErrorInfo(kind=f"{kind.__module__}.{kind.__qualname__}", message=f"this payload cannot be read: {error}")
            spoilt[lane.lane] = Dead(info, payloads=collector.spoilt(lane))
    if spoilt:
        claim = msgspec.structs.replace(claim, lanes=tuple([lane for lane in claim.lanes if lane.lane in lanes]))
    return Batch(claim, lanes, spoilt)


def each(claim: Claim, outcome: Outcome | Each, spoilt: Mapping[str, Dead]) -> Each:
    """Return what a run meant for all lanes of a claim, those that took no part included."""
    if isinstance(outcome, Each):
        if not spoilt:
            return outcome
        took_part = iter(outcome.outcomes)
        return Each(tuple([spoilt[lane.lane] if lane.lane in spoilt else next(took_part) for lane in claim.lanes]))
    return Each(tuple([spoilt.get(lane.lane, outcome) for lane in claim.lanes]))


def causes(claim: Claim, error: BaseException) -> list[BaseException | None]:
    """Return what each lane of a failed run failed of; None: it is done."""
    if not isinstance(error, LaneFailures):
        return [error] * len(claim.lanes)
    strange = error.failures.keys() - {lane.lane for lane in claim.lanes}
    if strange:
        wrong = ValueError(f"LaneFailures names lanes that are not in this run: {', '.join(sorted(strange)[:5])}")
        return [error.failures.get(lane.lane, wrong) for lane in claim.lanes]
    return [error.failures.get(lane.lane) for lane in claim.lanes]


def alone(claim: Claim, lane: LaneClaim) -> Claim:
    """Return one lane of a claim as a claim of its own, with the same token."""
    job = Job(lane.id, claim.job.task, claim.job.queue, b"", lane.lane)
    return msgspec.structs.replace(claim, job=job, attempt=lane.attempt, enqueued=lane.enqueued, due=lane.due, lanes=(lane,))


def dead_ones(
    claim: Claim, lane: LaneClaim, outcome: Dead, read: Callable[[bytes], Any], headers: Mapping[str, str]
) -> list[JobContext]:
    """Return the payloads of a lane that die, as jobs: what `on_death` gets."""
    bodies = outcome.payloads or (lane.payloads[lane.first].body,)
    found: list[JobContext] = []
    for body in bodies:
        id_ = payload_id(claim.job.queue, lane.lane, body)
        job = Job(id_, claim.job.task, claim.job.queue, body, lane.lane)
        try:
            args = [read(body)] if body else []
        except BaseException:  # noqa: BLE001 - it may be dead because it cannot be read
            args = []
        found.append(JobContext(Claim(job, claim.token, lane.attempt, lane.enqueued, lane.due), args, {}, headers))
    return found
