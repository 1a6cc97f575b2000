"""Outcomes of runs, grouped by queue, as arguments of the exchange script.

Successes are many and alike: their ids and tokens are arguments of their own, and their runs one text. Other outcomes are a list
each. A collector's run has an outcome for each of its lanes. This code runs for every job: what can be made for many at once is.

Enters: `Settled`.  Leaves: `QueueOutcomes` for each queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from laneway.core.job import FINISHED, State, Unit, payload_id
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.store.error_history import add_error
from laneway.store.runs import Run

__all__ = ["NONE", "Grouped", "QueueOutcomes", "error_text", "group_by_queue"]

_to_json = msgspec.json.Encoder().encode
_to_lines = msgspec.json.Encoder().encode_lines

#: The arguments of an exchange without successes.
NONE: tuple[str | bytes, ...] = ("0", b"")


class QueueOutcomes(Struct):
    """The outcomes for one queue."""

    ids: list[str] = []  #: of successes: jobs, or lanes of a collector
    tokens: list[str] = []
    lanes: list[str | None] = []
    runs: list[Run] = []
    others: list[Any] = []  #: a list each, see `_other`
    kept: list[Any] = []  #: successes that are kept, flat: see `_record`
    done_at: list[int] = []  #: the positions of the successes among all outcomes
    others_at: list[int] = []  #: and of the others
    #: How many jobs may become ready in this queue because these have ended: the next in their lanes, and themselves again.
    followers: int = 0

    def successes(self) -> tuple[str | bytes, ...]:
        """Return the successes as arguments of the script."""
        number = len(self.ids)
        if not number:
            return NONE
        runs = _to_lines(self.runs).replace(b"\n", b",\n")[:-2]
        if self.lanes.count(None) == number:
            return (str(number), runs, *self.ids, *self.tokens)
        return (str(number), runs, *self.ids, *self.tokens, *["" if lane is None else f":{lane}" for lane in self.lanes])


class Grouped(Struct, frozen=True):
    """All outcomes of an exchange."""

    by_queue: dict[str, QueueOutcomes]
    ids: list[str]  #: of all units, in order


def group_by_queue(worker: str, settled: Sequence[Settled]) -> Grouped:
    """Return a worker's outcomes by the queues of their claims."""
    by_queue: dict[str, QueueOutcomes] = {}
    ids: list[str] = []
    for item in settled:
        claim = item.claim
        outcomes = by_queue.get(claim.queue)
        if outcomes is None:
            outcomes = by_queue[claim.queue] = QueueOutcomes()
        for unit, outcome in zip(claim.units, item.outcomes, strict=True):
            _add(outcomes, ids, worker, item, unit, outcome)
    return Grouped(by_queue, ids)


def _add(outcomes: QueueOutcomes, ids: list[str], worker: str, item: Settled, unit: Unit, outcome: Outcome) -> None:
    claim = item.claim
    if type(outcome) is Done:
        run = Run(unit.id, claim.task, claim.queue, unit.lane, unit.enqueued, item.started, item.finished, "done")
        outcomes.runs.append(run)
        outcomes.ids.append(unit.id)
        outcomes.tokens.append(str(claim.token))
        outcomes.lanes.append(unit.lane)
        if unit.lane is not None:
            outcomes.followers += 1
        outcomes.done_at.append(len(ids))
        if item.keep:
            outcomes.kept += _record(unit, item, "done", outcome.result)
    else:
        run = Run(unit.id, claim.task, claim.queue, unit.lane, unit.enqueued, item.started, item.finished, "")
        outcomes.others.append(_other(worker, unit, item, outcome, run))
        outcomes.others_at.append(len(ids))
        outcomes.followers += 1
    ids.append(unit.id)


def _record(unit: Unit, item: Settled, state: State, result: bytes | None) -> tuple[Any, ...]:
    """Return what a script needs to keep a finished job: id, state, how long, when its run began and ended, result."""
    value = b"" if result is None else result
    return unit.id, FINISHED.index(state), item.keep, item.started, item.finished, value.decode()


def _other(worker: str, unit: Unit, item: Settled, outcome: Outcome, run: Run) -> list[Any]:
    """Return an outcome other than success.

    That is id, token, outcome, after, error, run up to the outcome, the effect of death (whether it halts a job's lane, or which
    payloads of a collector's lane die), and how it is kept if it ends as cancelled.
    """
    after, error = 0, ""
    last: bool | list[str] = [] if unit.payloads else False
    match outcome:
        case Retrying():
            after, error = outcome.after, error_text(outcome.error, unit.attempt, worker)
        case Snoozed():
            after = outcome.after
        case Dead():
            error = error_text(outcome.error, unit.attempt, worker)
            named = dict.fromkeys(outcome.payloads)
            last = [payload_id(run.queue, unit.lane or "", body)[2:] for body in named] if unit.payloads else outcome.halt
        case Cancelled() | Done():
            pass
    kept = _record(unit, item, "cancelled", None) if item.keep else ()
    return [unit.id, str(item.claim.token), outcome.name, after, error, _to_json(run).decode()[:-3], last, kept]


def error_text(error: ErrorInfo, attempt: int, worker: str) -> str:
    """Return an error as JSON; the script adds the time."""
    return add_error(None, error, 0, attempt, worker)[1:-1].decode()
