"""A collector's run: its input, and the outcome for each of its lanes. Pure but for a user's codecs.

A lane with payloads that cannot be read takes no part in the run: those payloads die, the rest comes back at once.

Enters: a collector's `Claim`.  Leaves: the lanes to call it with, and an outcome for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from laneway.core.job import Claim, Unit, payload_id
from laneway.core.outcome import Dead, ErrorInfo, Outcome
from laneway.desk.collector import AnyCollector, is_collector
from laneway.desk.context import JobContext, LaneFailures
from laneway.desk.task_base import TaskBase

__all__ = ["CollectorRun", "causes", "dead_ones", "for_all", "open_run", "run_sizes"]


def run_sizes(declared: Mapping[str, TaskBase]) -> dict[str, tuple[int, int]]:
    """Return the most lanes of a run for each collector, and the most payloads of each lane; 0: all."""
    collectors = [one for one in declared.values() if is_collector(one)]
    return {one.queue: (one.max_lanes, one.max_payloads or 0) for one in collectors}


class CollectorRun(msgspec.Struct):
    """A collector's claim, read."""

    claim: Claim  #: with the lanes that can be read
    lanes: dict[str, list[Any]]
    spoilt: dict[str, Dead]  #: lanes that cannot be read, by their ids


def open_run(collector: AnyCollector[Any, Any], claim: Claim) -> CollectorRun:
    """Read the payloads of a claim."""
    lanes: dict[str, list[Any]] = {}
    spoilt: dict[str, Dead] = {}
    for unit in claim.units:
        try:
            lanes[unit.lane or ""] = collector.read(unit)
        except BaseException as error:  # noqa: BLE001 - a user's codec may raise anything
            kind = type(error)
            info = ErrorInfo(kind=f"{kind.__module__}.{kind.__qualname__}", message=f"this payload cannot be read: {error}")
            spoilt[unit.id] = Dead(info, payloads=collector.spoilt(unit))
    if spoilt:
        claim = msgspec.structs.replace(claim, units=tuple([unit for unit in claim.units if unit.id not in spoilt]))
    return CollectorRun(claim, lanes, spoilt)


def for_all(claim: Claim, outcomes: Sequence[Outcome], spoilt: Mapping[str, Dead]) -> tuple[Outcome, ...]:
    """Return the outcomes for all units of a claim, including those that took no part in the run."""
    took_part = iter(outcomes)
    return tuple([spoilt[unit.id] if unit.id in spoilt else next(took_part) for unit in claim.units])


def causes(claim: Claim, error: BaseException) -> list[BaseException | None]:
    """Return the error of each lane of a failed run; None: the lane is done."""
    if not isinstance(error, LaneFailures):
        return [error] * len(claim.units)
    lanes = [unit.lane or "" for unit in claim.units]
    unknown = error.failures.keys() - set(lanes)
    if unknown:
        wrong = ValueError(f"LaneFailures names lanes that are not in this run: {', '.join(sorted(unknown)[:5])}")
        return [error.failures.get(lane, wrong) for lane in lanes]
    return [error.failures.get(lane) for lane in lanes]


def dead_ones(
    claim: Claim, unit: Unit, outcome: Dead, read: Callable[[bytes], Any], headers: Mapping[str, str]
) -> list[JobContext]:
    """Return the payloads of a lane that die, as jobs for `on_death`."""
    bodies = outcome.payloads or (unit.payloads[unit.first].body,)
    found: list[JobContext] = []
    for body in bodies:
        id_ = payload_id(claim.queue, unit.lane or "", body)
        job = Unit(id_, unit.lane, unit.attempt, unit.enqueued, unit.due, body=body)
        try:
            args = [read(body)] if body else []
        except BaseException:  # noqa: BLE001 - it may be dead because it cannot be read
            args = []
        found.append(JobContext(Claim(claim.token, claim.queue, claim.task, (job,)), args, {}, headers))
    return found
